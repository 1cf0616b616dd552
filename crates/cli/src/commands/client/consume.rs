//! `plimsoll consume`: the records of a topic are printed.

use std::collections::BTreeMap;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use plimsoll_server::client::{Cluster, Error, Member};
use plimsoll_server::kafka::batch::{Batch, Wrong};
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{FetchPartition, FetchRequest, FetchTopic, FetchedPartition};
use plimsoll_server::kafka::records::{Record, Records};
use serde_json::{Value, json};

use super::TIMEOUT;
use super::group::{Place as Committed, committed};
use super::start::{BEGINNING, END, offsets};
use crate::client_args::ConsumeArgs;
use crate::exit::Exit;
use crate::interrupt::{interrupted, on_interrupt};
use crate::output;

/// How long a broker waits for records, and we for Ctrl-C.
const WAIT_MS: i32 = 500;
/// How much is asked for at once, and of one partition.
const FETCH_BYTES: i32 = 16 << 20;
const PARTITION_BYTES: i32 = 1 << 20;
/// A larger batch, decompressed, may be a bomb.
pub(crate) const BATCH_BYTES_MAX: usize = 256 << 20;
/// How long to wait before a leader is looked for again.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &ConsumeArgs) -> Result<Exit> {
    on_interrupt(|| {})?;
    let mut consumer = Consumer::open(args)?;
    let mut out = output::stream();
    while !consumer.is_done() && !interrupted() {
        consumer.stay()?;
        let consumed = consumer.round(&mut out);
        out.flush()?;
        consumed?;
        if output::reader_is_gone() {
            break;
        }
    }
    // Whether what was printed last was read is not known where nobody reads any more.
    let committed = if output::reader_is_gone() { Ok(()) } else { consumer.commit() };
    consumer.leave()?;
    committed.context("what was printed last is not committed")?;
    Ok(if interrupted() { Exit::Interrupted } else { Exit::Ok })
}

struct Consumer<'a> {
    args: &'a ConsumeArgs,
    cluster: Cluster,
    /// In the group, if one is named.
    member: Option<Member>,
    /// Where partitions go on.
    places: BTreeMap<i32, Place>,
    /// Records that may still be printed.
    left: u64,
}

struct Place {
    next: i64,
    /// Where to stop; `None`: never.
    end: Option<i64>,
}

impl Place {
    fn is_done(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}

impl<'a> Consumer<'a> {
    fn open(args: &'a ConsumeArgs) -> Result<Self> {
        let mut cluster = args.asked.open()?;
        let all = cluster.topic(&args.topic)?.partitions;
        let member = args.group.as_ref().map(|group| Member::new(group, &args.topic));
        let left = args.max.unwrap_or(u64::MAX);
        let mut consumer = Self { args, cluster, member, places: BTreeMap::new(), left };
        if consumer.member.is_some() {
            consumer.join()?;
            return Ok(consumer);
        }
        let mut partitions: Vec<_> = all.iter().map(|part| part.partition_index).collect();
        partitions.retain(|partition| args.partition.is_none_or(|only| only == *partition));
        if partitions.is_empty() {
            let count = output::counted(all.len() as u64, "partition");
            bail!("topic {} has {count}, and not that one", args.topic);
        }
        consumer.begin(&partitions, &BTreeMap::new())?;
        Ok(consumer)
    }

    /// Reads these partitions from here on: each from where it is committed, if that is there.
    fn begin(&mut self, partitions: &[i32], committed: &BTreeMap<Committed, i64>) -> Result<()> {
        let (topic, isolation) = (&self.args.topic, self.args.isolation.level());
        let cluster = &mut self.cluster;
        // Where it began is asked first, so that it is not behind the end.
        let begins = offsets(cluster, topic, partitions, BEGINNING, isolation)?;
        let starts = self.args.from.offsets(cluster, topic, partitions, isolation)?;
        let ends = offsets(cluster, topic, partitions, END, isolation)?;
        self.places.clear();
        for (partition, start) in starts {
            let (begin, end) = (begins[&partition], ends[&partition]);
            let committed = committed.get(&(topic.clone(), partition)).copied();
            let next = committed.filter(|next| (begin..=end).contains(next)).unwrap_or(start);
            if !(begin..=end).contains(&next) {
                bail!("partition {partition} of {topic} has offsets {begin} to {end}, not {next}");
            }
            let end = (!self.args.follow).then_some(end);
            self.places.insert(partition, Place { next, end });
        }
        Ok(())
    }

    /// Joins the group, with all who are in it, and goes on with what it is given.
    fn join(&mut self) -> Result<()> {
        let (Some(member), Some(group)) = (&mut self.member, &self.args.group) else {
            return Ok(());
        };
        let deadline = Instant::now() + TIMEOUT;
        let given = loop {
            match member.join(&mut self.cluster) {
                Err(error) if Member::must_join(&error) && Instant::now() < deadline => {
                    thread::park_timeout(PAUSE);
                }
                given => break given?,
            }
        };
        let committed = committed(&mut self.cluster, group)?;
        self.begin(&given, &committed)
    }

    /// Says in the group that it is there. Where others come or go, joins them.
    fn stay(&mut self) -> Result<()> {
        let Some(member) = &mut self.member else { return Ok(()) };
        match member.beat(&mut self.cluster) {
            Err(error) if Member::must_join(&error) => {}
            beaten => return Ok(beaten?),
        }
        match self.commit() {
            // It is too late: whoever is given its partitions has the last records again.
            Err(error) if Member::must_join(&error) => {}
            committed => committed?,
        }
        self.join()
    }

    /// Commits what was printed, where there is a group.
    fn commit(&mut self) -> Result<(), Error> {
        let Some(member) = &mut self.member else { return Ok(()) };
        let printed = self.places.iter().map(|(partition, place)| (*partition, place.next));
        member.commit(&mut self.cluster, &printed.collect())
    }

    fn leave(self) -> Result<(), Error> {
        let Self { member, mut cluster, .. } = self;
        member.map_or(Ok(()), |member| member.leave(&mut cluster))
    }

    fn is_done(&self) -> bool {
        // Who follows in a group may be given partitions again, where it has none now.
        self.left == 0 || !self.args.follow && self.places.values().all(Place::is_done)
    }

    /// Asks each leader once.
    fn round(&mut self, out: &mut impl Write) -> Result<()> {
        let goes_on = self.places.iter().filter(|(_, place)| !place.is_done());
        let partitions: Vec<_> = goes_on.map(|(partition, _)| *partition).collect();
        if partitions.is_empty() {
            thread::park_timeout(PAUSE);
        }
        for (first, together) in self.cluster.by_leader(&self.args.topic, &partitions)? {
            let question = self.question(&together);
            let answer = self.cluster.leader(&self.args.topic, first)?.call(question)?;
            Error::check("a fetch", answer.error_code, None)?;
            for fetched in answer.responses.into_iter().flat_map(|topic| topic.partitions) {
                self.print(fetched, out)?;
            }
        }
        Ok(())
    }

    fn question(&self, partitions: &[i32]) -> FetchRequest {
        let partition = |partition: &i32| FetchPartition {
            partition: *partition,
            fetch_offset: self.places[partition].next,
            partition_max_bytes: PARTITION_BYTES,
            ..FetchPartition::default()
        };
        let partitions = partitions.iter().map(partition).collect();
        FetchRequest {
            max_wait_ms: WAIT_MS,
            min_bytes: 1,
            max_bytes: FETCH_BYTES,
            isolation_level: self.args.isolation.level(),
            topics: vec![FetchTopic {
                topic: self.args.topic.clone(),
                partitions,
                ..Default::default()
            }],
            ..FetchRequest::default()
        }
    }

    fn print(&mut self, fetched: FetchedPartition, out: &mut impl Write) -> Result<()> {
        let partition = fetched.partition_index;
        let what = format!("partition {partition} of {}", self.args.topic);
        match fetched.error_code {
            ErrorCode::NotLeaderOrFollower
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::OffsetNotAvailable => {
                self.cluster.forget_leaders(&self.args.topic);
                thread::park_timeout(PAUSE);
                return Ok(());
            }
            code => Error::check(&what, code, None)?,
        }
        if fetched.aborted_transactions.is_some_and(|aborted| !aborted.is_empty()) {
            bail!(
                "{what} has transactions that were aborted, which this command cannot tell apart"
            );
        }
        let mut bytes = Bytes::from(fetched.records.0.concat());
        let Some(place) = self.places.get_mut(&partition) else { return Ok(()) };
        loop {
            let batch = match Batch::take(&mut bytes) {
                Ok(Some(batch)) => batch,
                // The last one may be cut off.
                Ok(None) | Err(Wrong::Short(_)) => return Ok(()),
                Err(wrong) => {
                    let next = place.next;
                    return Err(wrong)
                        .with_context(|| format!("{what}, at offset {next} or later"));
                }
            };
            let base_offset = batch.header().base_offset();
            let next = batch.header().last_offset() + 1;
            let wrong = || {
                format!(
                    "{what}, the batch at offset {base_offset} (--from {next} goes on behind it)"
                )
            };
            if !batch.header().is_control() {
                for record in &Records::of(&batch, BATCH_BYTES_MAX).with_context(wrong)? {
                    let record = record.with_context(wrong)?;
                    if self.left == 0 || place.is_done() {
                        return Ok(());
                    }
                    if record.offset >= place.next {
                        write(&record, partition, self.args.asked.json, out)?;
                        place.next = record.offset + 1;
                        self.left -= 1;
                    }
                }
            }
            place.next = place.next.max(next);
        }
    }
}

/// Prints a record: its value and a line end, or all of it as JSON.
pub(crate) fn write(
    record: &Record<'_>,
    partition: i32,
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    if json {
        return Ok(writeln!(out, "{}", output::plain(&object(record, partition).to_string()))?);
    }
    out.write_all(record.value.unwrap_or_default())?;
    Ok(out.write_all(b"\n")?)
}

fn object(record: &Record<'_>, partition: i32) -> Value {
    let header = |(key, value): (&[u8], Option<&[u8]>)| {
        let mut object = json!({});
        put(&mut object, "key", Some(key));
        put(&mut object, "value", value);
        object
    };
    let mut object = json!({
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": record.headers.map(header).collect::<Vec<_>>(),
    });
    put(&mut object, "key", record.key);
    put(&mut object, "value", record.value);
    object
}

/// Bytes under this name if they are text or none, and under its name with `_hex` if they are not.
fn put(object: &mut Value, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(str::from_utf8) {
        None => object[name] = Value::Null,
        Some(Ok(text)) => object[name] = text.into(),
        Some(Err(_no_text)) => {
            let hex = bytes.unwrap_or_default().iter().map(|byte| format!("{byte:02x}"));
            object[format!("{name}_hex")] = hex.collect::<String>().into();
        }
    }
}
