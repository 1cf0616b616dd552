//! `plimsoll produce`: lines become records of a topic.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use plimsoll_server::client::{Cluster, Error};
use plimsoll_server::kafka::batch::Producer as Identity;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    ProducePartition, ProduceRequest, ProduceTopic, ProducedPartition,
};
use plimsoll_server::kafka::records::Draft;
use serde_json::json;

use super::waiting::Waiting;
use super::{BROKER_TIMEOUT_MS, TIMEOUT, partitioner};
use crate::client_args::{AcksArg, ProduceArgs};
use crate::commands::log::input::{self, Limit, Message};
use crate::exit::Exit;
use crate::interrupt::interrupted;
use crate::log_args::InputFormat;
use crate::output;

/// A batch goes when its records have so many bytes.
const BATCH_BYTES: usize = 256 << 10;
/// A larger line is no record.
const LINE_BYTES_MAX: usize = 64 << 20;
/// How long to wait before a batch is sent again.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(args: ProduceArgs) -> Result<Exit> {
    let mut producer = Producer::open(args)?;
    let args = &producer.args;
    if args.file.is_none() && io::stdin().is_terminal() {
        let key = args.key_separator.as_ref();
        let key =
            key.map_or_else(String::new, |separator| format!(", its key before {separator:?}"));
        output::news(&format!("a record a line{key}; Ctrl-D ends"));
    }
    let advice = format!("a record may have {LINE_BYTES_MAX}");
    let limit = Limit { max_bytes: LINE_BYTES_MAX, advice };
    let files = args.file.iter().cloned().collect();
    let input = input::start(files, InputFormat::Lines, limit, || {})?;
    let read = loop {
        match input.next() {
            Message::Records(chunk) => {
                // Before more is waited for, what came is sent.
                let sent = chunk.records().try_for_each(|line| producer.add(line));
                if let Err(error) = sent.and_then(|()| producer.send_all()) {
                    break Err(error);
                }
            }
            Message::End(read) => break read,
            Message::Interrupted => break Ok(()),
        }
    };
    producer.end(read)
}

struct Producer {
    args: ProduceArgs,
    cluster: Cluster,
    /// What is not sent yet, by partition.
    drafts: BTreeMap<i32, Draft>,
    partitions: Vec<i32>,
    /// Whose turn it is to take records without a key: it changes with each batch.
    turn: usize,
    /// None with acks 0: what nobody answers is not sent again.
    identity: Option<(i64, i16)>,
    /// The sequence of each partition's next record.
    sequences: BTreeMap<i32, i32>,
    lines: u64,
    done: Done,
    waiting: Waiting,
}

/// What was acknowledged, or with acks 0 sent.
#[derive(Default)]
struct Done {
    records: u64,
    /// The first and the last offset in each partition.
    offsets: BTreeMap<i32, (i64, i64)>,
}

impl Producer {
    fn open(args: ProduceArgs) -> Result<Self> {
        let mut cluster = args.asked.open()?;
        let topic = cluster.topic(&args.topic)?;
        let all = topic.partitions.iter().map(|partition| partition.partition_index);
        let partitions: Vec<_> = match args.partition {
            Some(partition) => all.filter(|other| *other == partition).collect(),
            None => all.collect(),
        };
        if partitions.is_empty() {
            let count = output::counted(topic.partitions.len() as u64, "partition");
            return Err(anyhow!("topic {} has {count}, and not that one", args.topic));
        }
        let identity = match args.acks {
            AcksArg::All => Some(cluster.producer_id()?),
            AcksArg::Zero => None,
        };
        Ok(Self {
            args,
            cluster,
            drafts: BTreeMap::new(),
            partitions,
            // Runs that send little do not all begin with the same partition.
            turn: usize::try_from(now_ms()).unwrap_or(0),
            identity,
            sequences: BTreeMap::new(),
            lines: 0,
            done: Done::default(),
            waiting: Waiting::default(),
        })
    }

    /// Adds a line to the batch of its partition, and sends that if it is full.
    fn add(&mut self, line: &[u8]) -> Result<()> {
        self.lines += 1;
        let (key, value) = match &self.args.key_separator {
            None => (None, line),
            Some(separator) => {
                let (key, value) = split(line, separator.as_bytes())
                    .with_context(|| format!("line {} has no {separator:?}", self.lines))?;
                (Some(key), value)
            }
        };
        let place = match key {
            Some(key) => partitioner::partition(key, self.partitions.len()),
            None => self.turn % self.partitions.len(),
        };
        let partition = self.partitions[place];
        let headers = self.args.header.iter();
        let headers: Vec<_> =
            headers.map(|(name, value)| (name.as_bytes(), Some(value.as_bytes()))).collect();
        let draft = self.drafts.entry(partition).or_default();
        draft.push(now_ms(), key, Some(value), &headers);
        if draft.bytes() >= BATCH_BYTES { self.send(partition) } else { Ok(()) }
    }

    fn send_all(&mut self) -> Result<()> {
        while let Some((partition, _)) = self.drafts.first_key_value() {
            self.send(*partition)?;
        }
        Ok(())
    }

    fn send(&mut self, partition: i32) -> Result<()> {
        let Some(draft) = self.drafts.remove(&partition) else { return Ok(()) };
        self.turn = self.turn.wrapping_add(1);
        let count = draft.count();
        let base_sequence = self.sequences.get(&partition).copied().unwrap_or(0);
        let identity = self.identity.map(|(id, epoch)| Identity { id, epoch, base_sequence });
        let batch = draft.batch(self.args.compression, identity);
        let records = batch.pieces().concat();
        if self.args.acks == AcksArg::Zero {
            let question = self.question(partition, records.into());
            self.cluster.leader(&self.args.topic, partition)?.send(question)?;
            self.done.records += u64::from(count.unsigned_abs());
            return Ok(());
        }
        let question = self.question(partition, records.into());
        let first = self.acknowledged(partition, &question)?;
        // After the largest number comes 0.
        self.sequences.insert(partition, base_sequence.wrapping_add(count) & i32::MAX);
        self.note(partition, first, count)
    }

    fn question(&self, partition: i32, records: bytes::Bytes) -> ProduceRequest {
        let partition = ProducePartition { index: partition, records: Some(records) };
        let topic = ProduceTopic { name: self.args.topic.clone(), partition_data: vec![partition] };
        ProduceRequest {
            transactional_id: None,
            acks: if self.args.acks == AcksArg::All { -1 } else { 0 },
            timeout_ms: BROKER_TIMEOUT_MS,
            topic_data: vec![topic],
        }
    }

    /// Sends a batch until it is acknowledged, or refused. Its first offset, if the broker knows it:
    /// of a batch that was there before it may not.
    fn acknowledged(&mut self, partition: i32, question: &ProduceRequest) -> Result<Option<i64>> {
        let topic = self.args.topic.clone();
        let deadline = Instant::now() + TIMEOUT;
        let _waited = self.waiting.begins(&topic, partition);
        let mut may_be_there = false;
        loop {
            let goes_on = Instant::now() < deadline && !interrupted();
            match self.ask(&topic, partition, question, &mut may_be_there) {
                Ok(ProducedPartition { error_code, error_message, base_offset, .. }) => {
                    let what = format!("a batch for partition {partition} of {topic}");
                    match Error::check(what, error_code, error_message) {
                        Ok(()) => return Ok(Some(base_offset).filter(|offset| *offset >= 0)),
                        Err(_) if error_code == ErrorCode::DuplicateSequenceNumber => {
                            return Ok(None);
                        }
                        Err(_) if goes_on && may_pass(error_code) => {
                            self.cluster.forget_leaders(&topic);
                        }
                        Err(why) => return Err(unknown(may_be_there, why, &topic, partition)),
                    }
                }
                Err(why) if goes_on && self.may_come_back(&why) => {}
                Err(why) => return Err(unknown(may_be_there, why, &topic, partition)),
            }
            thread::park_timeout(PAUSE);
        }
    }

    /// Asks the leader once. Whether the batch may be there since is told too, also where no answer came.
    fn ask(
        &mut self,
        topic: &str,
        partition: i32,
        question: &ProduceRequest,
        may_be_there: &mut bool,
    ) -> Result<ProducedPartition, Error> {
        let leader = self.cluster.leader(topic, partition)?;
        let called = leader.call(question.clone());
        *may_be_there |= called.as_ref().is_err_and(|why| !matches!(why, Error::NoVersion { .. }));
        let answer = called?.responses.into_iter().next();
        let answer = answer.and_then(|topic| topic.partition_responses.into_iter().next());
        let answer = answer.unwrap_or_else(|| ProducedPartition {
            error_code: ErrorCode::UnknownServerError,
            error_message: Some("the broker says nothing of the batch".to_owned()),
            ..ProducedPartition::default()
        });
        *may_be_there |= may_be_done(answer.error_code);
        Ok(answer)
    }

    /// Whether another attempt may do better: a broker that went may come back, or another leads. It is reached anew, by any that was named.
    fn may_come_back(&mut self, why: &Error) -> bool {
        match why {
            Error::Refused { code, .. } if may_pass(*code) => {
                self.cluster.forget_leaders(&self.args.topic);
                true
            }
            Error::Closed { .. } | Error::Broken { .. } | Error::Unreachable { .. } => {
                if let Ok(cluster) = self.args.asked.open() {
                    self.cluster = cluster;
                }
                true
            }
            _ => false,
        }
    }

    fn note(&mut self, partition: i32, first: Option<i64>, count: i32) -> Result<()> {
        self.done.records += u64::from(count.unsigned_abs());
        let last = first.map(|first| first + i64::from(count) - 1);
        if let (Some(first), Some(last)) = (first, last) {
            let offsets = self.done.offsets.entry(partition).or_insert((first, last));
            offsets.1 = last;
        }
        if self.args.asked.json {
            let line = json!({
                "partition": partition,
                "first_offset": first,
                "last_offset": last,
                "records": count,
            });
            output::answer(&format!("{line}\n"))?;
        }
        Ok(())
    }

    fn end(self, read: Result<()>) -> Result<Exit> {
        let done = self.done.words(self.args.acks);
        read.with_context(|| format!("{done}; then"))?;
        output::news(&done);
        Ok(if interrupted() { Exit::Interrupted } else { Exit::Ok })
    }
}

impl Done {
    fn words(&self, acks: AcksArg) -> String {
        let records = output::counted(self.records, "record");
        if acks == AcksArg::Zero {
            return format!("{records} sent; with --acks 0 nobody says whether they arrived");
        }
        match self.offsets.first_key_value() {
            None => format!("{records} acknowledged"),
            // Others may have produced in between, and of a batch that was there the offset is not told.
            Some((partition, (first, last)))
                if self.offsets.len() == 1
                    && i64::try_from(self.records) == Ok(last - first + 1) =>
            {
                let offsets = match first == last {
                    true => format!("offset {first}"),
                    false => format!("offsets {first} to {last}"),
                };
                format!("{records} acknowledged: {offsets} of partition {partition}")
            }
            Some(_) if self.offsets.len() == 1 => format!("{records} acknowledged"),
            Some(_) => format!("{records} acknowledged, in {} partitions", self.offsets.len()),
        }
    }
}

/// Whether a batch that was answered with this may be there, or come to be.
fn may_be_done(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UnknownServerError
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::RequestTimedOut
            | ErrorCode::NotEnoughReplicasAfterAppend
    )
}

/// What is said of a batch that is given up.
fn unknown(may_be_there: bool, why: Error, topic: &str, partition: i32) -> anyhow::Error {
    match may_be_there {
        true => anyhow!(why).context(format!(
            "whether a batch for partition {partition} of {topic} is there is not known"
        )),
        false => why.into(),
    }
}

/// Whether a batch that was answered with this may be taken if it is sent again.
fn may_pass(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::LeaderNotAvailable
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::RequestTimedOut
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::NotEnoughReplicasAfterAppend
            | ErrorCode::ThrottlingQuotaExceeded
    )
}

/// What stands before the separator, and what behind it.
fn split<'a>(line: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = line.windows(separator.len()).position(|bytes| bytes == separator)?;
    Some((&line[..at], &line[at + separator.len()..]))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_at_its_first_separator() {
        assert_eq!(split(b"a:b:c", b":"), Some((&b"a"[..], &b"b:c"[..])));
        assert_eq!(split(b":", b":"), Some((&b""[..], &b""[..])));
        assert_eq!(split(b"a=>b", b"=>"), Some((&b"a"[..], &b"b"[..])));
        assert_eq!(split(b"ab", b":"), None);
    }

    #[test]
    fn only_what_is_known_is_said_of_what_was_sent() {
        let mut done = Done { records: 1, offsets: BTreeMap::from([(2, (5, 5))]) };
        assert_eq!(done.words(AcksArg::All), "1 record acknowledged: offset 5 of partition 2");
        done.offsets.insert(2, (5, 9));
        assert_eq!(done.words(AcksArg::All), "1 record acknowledged", "others have some of these");
        done.offsets.insert(3, (0, 9));
        assert_eq!(done.words(AcksArg::All), "1 record acknowledged, in 2 partitions");
        let nobody = "1 record sent; with --acks 0 nobody says whether they arrived";
        assert_eq!(done.words(AcksArg::Zero), nobody);
        assert_eq!(Done::default().words(AcksArg::All), "0 records acknowledged");
    }
}
