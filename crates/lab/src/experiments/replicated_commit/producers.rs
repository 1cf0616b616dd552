//! An arm: writers that each send one record and wait for its acknowledgement before they send the next.
//!
//! A block during which the brokers were guarded says nothing of memory: then they waited for disks. It is
//! left out, and counted.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use plimsoll_server::client::Connection;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{ProducePartition, ProduceRequest, ProduceTopic};
use plimsoll_server::kafka::records::Draft;
use plimsoll_sync::{Promise, SyncMethod};

use super::fleet::{Fleet, Stop, chain};
use super::plan::{GUARD, MEASURE, RECORD_BYTES, SYNC_BEHIND, Way, arm_name};
use super::status::Status;
use crate::arm::Identity;
use crate::arm_result::ArmResult;
use crate::counters::nanoseconds;
use crate::error::{Error, Result};
use crate::experiment::Setup;
use crate::layout::{Layout, noise};
use crate::runner::{Arm, Block, Watch};
use crate::units;
use crate::verdict::Asked;
use crate::warning::{Kind, Warning};

const TIMEOUT_MS: i32 = 10_000;
/// How long it is waited until what was acknowledged is synced, before another arm has its turn.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// How long an arm waits in all until a cluster is guarded no more: it is so for [`GUARD`] after its last
/// trouble.
const UNGUARDED_MAX: Duration = GUARD.saturating_mul(3);
const PAUSE: Duration = Duration::from_millis(10);
/// The log behind an acknowledgement from memory is written and synced meanwhile, on each of three brokers.
const BEHIND_BYTES: u64 = 16 << 10;

/// Writers that wait for acknowledgements.
pub(super) struct Producers<'a> {
    way: Way,
    writers: usize,
    fleet: &'a Fleet,
    stop: &'a Stop<'a>,
    watch: &'a Watch<'a>,
    connections: Vec<Connection>,
    question: ProduceRequest,
    /// How long it still waits for a cluster that is guarded.
    patience: Duration,
    /// Of the block that is under way.
    begun: Begun,
    /// Of every block.
    notes: Vec<Note>,
}

/// What was so before a block.
#[derive(Debug, Clone, Copy, Default)]
struct Begun {
    is_guarded: bool,
    cpu_ns: Option<u64>,
}

/// What is known of a block beside its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    /// Brokers waited for disks, whatever the topic says.
    pub(super) is_guarded: bool,
    /// CPU time of the brokers.
    pub(super) cpu_ns: Option<u64>,
    /// Bytes that were acknowledged and not synced when it ended, on the broker that had most.
    pub(super) at_risk_bytes: u64,
}

impl<'a> Producers<'a> {
    pub(super) fn create(
        setup: &Setup<'_>,
        way: Way,
        writers: usize,
        fleet: &'a Fleet,
        stop: &'a Stop<'a>,
        watch: &'a Watch<'a>,
    ) -> Result<Self> {
        let connections = fleet.connect(way, writers, watch)?;
        let question = question(way, setup.seed);
        let (begun, notes) = (Begun::default(), Vec::new());
        let patience = UNGUARDED_MAX;
        Ok(Self { way, writers, fleet, stop, watch, connections, question, patience, begun, notes })
    }

    pub(super) fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        let promise = if self.way.is_synced() { Promise::Media } else { Promise::Nothing };
        let identity = Identity {
            name: arm_name(self.way, self.writers),
            method: SyncMethod::None,
            layout: Layout::Append,
            promise,
            payload_bytes: RECORD_BYTES as u64,
            measures: &[MEASURE],
        };
        // The first block of all is thrown away by the runner.
        let notes = &self.notes[self.notes.len() - blocks.len()..];
        let (kept, left_out) = kept(blocks, notes);
        let asked = |operations| match (self.way.is_synced(), self.writers) {
            // The log may force its writes to the medium in place of a flush. Three brokers that share a disk
            // may share flushes, too: there is one at least.
            (true, 1) => {
                let once = Asked::new(promise, operations, 0);
                Some(Asked { may_use_fua: true, syncs: 3, ..once })
            }
            // Those who wait together share a sync.
            (true, _) => None,
            (false, _) => Some(Asked::new(promise, operations, BEHIND_BYTES)),
        };
        let mut arm = identity.result(&kept, asked, setup);
        if self.way.is_synced() {
            arm.method = "the log's own".to_owned();
        }
        // More threads than CPUs wait for a CPU by design.
        if self.writers > setup.environment.cpus {
            arm.warnings.retain(|warning| !warning.text.contains("for a CPU"));
        }
        arm.warnings.extend(guarded(left_out, blocks.len()));
        arm.valid &= !kept.is_empty();
        let at_risk_bytes = notes.iter().map(|note| note.at_risk_bytes).max().unwrap_or(0);
        let wall_ns: u64 = kept.iter().map(|block| block.elapsed.wall_ns).sum();
        let acknowledged: usize = kept.iter().map(|block| block.samples[0].len()).sum();
        let mut values = BTreeMap::from([
            ("writers".to_owned(), units::ratio(self.writers as u64, 1)),
            ("acknowledged_per_s".to_owned(), units::ratio(acknowledged as u64, wall_ns) * 1e9),
        ]);
        if !self.way.is_synced() {
            values.insert("unsynced_bytes".to_owned(), units::ratio(at_risk_bytes, 1));
        }
        // The counters are those of one thread, and say little about brokers.
        ArmResult { values, attribution: None, ..arm }
    }

    /// What the brokers say, if they answer.
    fn look(&self) -> Option<Vec<Status>> {
        self.fleet.of(self.way).look().ok()
    }

    /// Waits until the brokers acknowledge from memory; how it is then.
    fn until_unguarded(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            let is_guarded = is_guarded(self.look().as_deref());
            if !is_guarded || self.stop.is_set() || begun.elapsed() >= self.patience {
                self.patience = self.patience.saturating_sub(begun.elapsed());
                return is_guarded;
            }
            thread::park_timeout(10 * PAUSE);
        }
    }

    /// Sees that the brokers are there, and that all writers reach the leader.
    fn reconnect(&mut self) -> Result<()> {
        self.fleet.of(self.way).check()?;
        if self.connections.is_empty() {
            self.connections = self.fleet.connect(self.way, self.writers, self.watch)?;
        }
        Ok(())
    }

    /// Tells why the run is to end, if it is not that somebody asked for it.
    fn fail(&self, error: &Error) {
        // What a writer met may be that a broker ended: then that is what is told.
        let ended = self.fleet.of(self.way).check().err();
        self.stop.fail(ended.as_ref().unwrap_or(error).to_string());
    }
}

impl Arm for Producers<'_> {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        if let Err(error) = self.reconnect() {
            self.fail(&error);
        }
        let is_guarded = self.way == Way::QuorumMemory && self.until_unguarded();
        self.begun = Begun { is_guarded, cpu_ns: self.fleet.cpu_ns() };
        Ok(())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let until = Instant::now() + block.time();
        let start = Barrier::new(self.connections.len());
        let (stop, question, begin) = (self.stop, &self.question, &start);
        let outcomes: Vec<std::result::Result<Written, String>> = thread::scope(|scope| {
            let spawn = |connection| {
                scope.spawn(move || {
                    begin.wait();
                    write(connection, question, until, stop)
                })
            };
            let threads: Vec<_> = self.connections.iter_mut().map(spawn).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let mut has_moved = false;
        for outcome in outcomes {
            match outcome {
                Ok(written) => {
                    has_moved |= written.has_moved;
                    block.samples[0].extend(written.samples);
                }
                Err(why) => self.fail(&Error::Broker(format!("{}: {why}", self.way.name()))),
            }
        }
        if has_moved {
            // Looked for again before the next block. A new leader is guarded, so this one is left out.
            self.connections.clear();
            self.begun.is_guarded = true;
        }
        block.durable_operations = block.samples[0].len() as u64;
        Ok(())
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        let Begun { is_guarded: was_guarded, cpu_ns: before_ns } = self.begun;
        let cpu_ns = self.fleet.cpu_ns().zip(before_ns).map(|(now, then)| now.saturating_sub(then));
        let statuses = self.look();
        let is_guarded = self.way == Way::QuorumMemory && is_guarded(statuses.as_deref());
        let mut at_risk_bytes = most_at_risk(statuses.as_deref());
        self.notes.push(Note { is_guarded: was_guarded || is_guarded, cpu_ns, at_risk_bytes });
        // Others do not pay for the syncs of this one.
        let deadline = Instant::now() + SETTLE_MAX + SYNC_BEHIND;
        while at_risk_bytes > 0 && Instant::now() < deadline && !self.stop.is_set() {
            thread::park_timeout(PAUSE);
            at_risk_bytes = most_at_risk(self.look().as_deref());
        }
        Ok(())
    }
}

/// What a writer did in a block.
#[derive(Debug, Default)]
struct Written {
    samples: Vec<u64>,
    /// Another broker leads now.
    has_moved: bool,
}

fn write(
    connection: &mut Connection,
    question: &ProduceRequest,
    until: Instant,
    stop: &Stop<'_>,
) -> std::result::Result<Written, String> {
    let mut written = Written::default();
    loop {
        let start = Instant::now();
        if start >= until || stop.is_set() {
            return Ok(written);
        }
        let answer = connection.call(question.clone()).map_err(|error| chain(&error))?;
        let elapsed = start.elapsed();
        let topic = answer.responses.into_iter().next();
        let partition = topic.and_then(|topic| topic.partition_responses.into_iter().next());
        let partition = partition.ok_or("the broker says nothing of the record")?;
        match partition.error_code {
            ErrorCode::None => written.samples.push(nanoseconds(elapsed)),
            ErrorCode::NotLeaderOrFollower | ErrorCode::LeaderNotAvailable => {
                return Ok(Written { has_moved: true, ..written });
            }
            code => return Err(partition.error_message.unwrap_or_else(|| code.to_string())),
        }
    }
}

/// A record for the topic of a way.
fn question(way: Way, seed: u64) -> ProduceRequest {
    let mut payload = vec![0; RECORD_BYTES];
    noise(&mut payload, seed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut draft = Draft::default();
    draft.push(i64::try_from(now).unwrap_or(0), None, Some(&payload), &[]);
    let records = Bytes::from(draft.batch(Compression::None, None).pieces().concat());
    let partition = ProducePartition { index: 0, records: Some(records) };
    let topic = ProduceTopic { name: way.topic().to_owned(), partition_data: vec![partition] };
    let acks_of_all = -1;
    ProduceRequest {
        transactional_id: None,
        acks: acks_of_all,
        timeout_ms: TIMEOUT_MS,
        topic_data: vec![topic],
    }
}

/// Brokers that do not answer may be guarded.
fn is_guarded(statuses: Option<&[Status]>) -> bool {
    statuses.is_none_or(|all| all.iter().any(Status::is_guarded))
}

fn most_at_risk(statuses: Option<&[Status]>) -> u64 {
    statuses.unwrap_or_default().iter().map(Status::at_risk_bytes).max().unwrap_or(0)
}

/// The blocks that count, with the CPU time of brokers as our own, and how many do not.
fn kept(blocks: &[Block], notes: &[Note]) -> (Vec<Block>, usize) {
    let pairs = || blocks.iter().zip(notes);
    let count = |(block, note): (&Block, &Note)| {
        let mut block = block.clone();
        let own_ns = block.elapsed.process_cpu_ns.zip(note.cpu_ns);
        block.elapsed.process_cpu_ns = own_ns.map(|(own_ns, brokers_ns)| own_ns + brokers_ns);
        block
    };
    let kept: Vec<Block> = pairs().filter(|(_, note)| !note.is_guarded).map(count).collect();
    let left_out = blocks.len() - kept.len();
    (kept, left_out)
}

/// Says how many blocks were left out, if any were.
fn guarded(left_out: usize, blocks: usize) -> Option<Warning> {
    (left_out > 0).then(|| {
        let text = format!(
            "{left_out} of {blocks} blocks are left out: the brokers were guarded, as after a broker was not \
             heard for a second, and waited for disks; measure again on a quiet machine"
        );
        Warning::new(Kind::Guarded, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Elapsed;

    fn block(ns: u64) -> Block {
        let elapsed = Elapsed {
            wall_ns: 1_000_000_000,
            machine_cpu_ns: Some(1_500_000_000),
            process_cpu_ns: Some(300_000_000),
            ..Elapsed::default()
        };
        let mut block = Block::from_samples(vec![vec![ns; 3]]);
        block.elapsed = elapsed;
        block
    }

    fn note(is_guarded: bool) -> Note {
        Note { is_guarded, cpu_ns: Some(1_000_000_000), at_risk_bytes: 0 }
    }

    #[test]
    fn a_block_of_guarded_brokers_is_left_out_and_told() {
        let notes = [note(false), note(true), note(false)];
        let (kept, left_out) = kept(&[block(10), block(9_000), block(12)], &notes);
        let samples: Vec<u64> = kept.iter().map(|block| block.samples[0][0]).collect();
        assert_eq!((samples, left_out), (vec![10, 12], 1));
        let warning = guarded(left_out, notes.len()).unwrap();
        assert!(warning.text.starts_with("1 of 3 blocks are left out"), "{warning}");
        assert_eq!((warning.kind, guarded(0, 3)), (Kind::Guarded, None));
    }

    /// What the brokers do is what is measured: otherwise every run would be one on a busy machine.
    #[test]
    fn brokers_are_not_others_who_keep_the_machine_busy() {
        let (kept, _) = kept(&[block(10)], &[note(false)]);
        assert_eq!(kept[0].elapsed.others_cpu_ns(), Some(200_000_000));
        let unknown = Note { cpu_ns: None, ..note(false) };
        let (kept, _) = super::kept(&[block(10)], &[unknown]);
        assert_eq!(kept[0].elapsed.others_cpu_ns(), None, "nothing is said of what is not known");
    }

    #[test]
    fn brokers_that_do_not_answer_may_be_guarded() {
        let status = |is_guarded| {
            let shard = super::super::status::Shard {
                number: 2,
                leader: Some(1),
                voters: vec![1],
                is_in_doubt: false,
                is_guarded,
                at_risk_bytes: 5,
            };
            Status { acknowledged: String::new(), shards: vec![shard] }
        };
        assert!(is_guarded(None) && is_guarded(Some(&[status(false), status(true)])));
        assert!(!is_guarded(Some(&[status(false)])));
        assert_eq!(most_at_risk(Some(&[status(false), status(true)])), 5);
    }
}
