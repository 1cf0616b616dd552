//! How many durable records per second with K writers sharing one sync?
//!
//! Source: the question behind every log with more than one client (group commit; `DeWitt` et al.,
//! "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984). Writers that each
//! sync for themselves stand beside writers of which one syncs for all that came meanwhile.
//!
//! A closed loop per writer: its next record comes when the one before is durable.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_sync::{Dir, File, Promise, SyncMethod, System};

use crate::arm::Identity;
use crate::counters::nanoseconds;
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::{LaidOut, Layout, noise};
use crate::result::ArmResult;
use crate::runner::{self, Arm, Block, Rule, Size, Watch};
use crate::units;
use crate::verdict::Asked;

/// The experiment.
#[derive(Debug)]
pub(super) struct GroupCommit;

const MEASURE: &str = "time to durable";
const RECORD_BYTES: usize = 200;
/// Records that a file holds before it is written over.
const RECORDS: u64 = 64 * 1024;
const METHOD: SyncMethod =
    if cfg!(target_os = "linux") { SyncMethod::Fdatasync } else { SyncMethod::ORDINARY };

const QUICK: [usize; 5] = [1, 4, 16, 64, 256];
const FULL: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Who syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syncs {
    /// Each writer for itself, through a handle of its own.
    Private,
    /// One writer at a time, for all that wrote meanwhile.
    Shared,
}

impl Experiment for GroupCommit {
    fn name(&self) -> &'static str {
        "group-commit"
    }

    fn question(&self) -> &'static str {
        "How many durable records per second with K writers sharing one sync?"
    }

    fn source(&self) -> &'static str {
        "group commit (DeWitt et al., SIGMOD 1984); no article measures it"
    }

    fn explanation(&self) -> &'static str {
        "\
K threads make records of 200 bytes durable, each waiting for its own before the next.

  private  each writes into its own part of the file and syncs through its own descriptor
  shared   whoever comes first writes and syncs for all that wait; those who come meanwhile are
           taken along by the next (group commit)

One file whose blocks are written already, fdatasync (the ordinary sync where there is none). The columns: records per
second, and records per sync, which is how wide the groups became.

How to read it: while shared syncs gain with every doubling of K, the sync is what limits; where the
gain ends, CPU or wake-ups do. The width that reaches 90 % of the most is the one to aim for.

How it can mislead: 256 threads on few CPUs wait for a CPU too; a kernel merges the flushes of private
syncs, so they gain as well."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 8,
            Profile::Full => 90,
            Profile::Article => 30,
        };
        let files = 2 * FULL.len() as u64;
        let disk_bytes = files * RECORDS * RECORD_BYTES as u64;
        Cost { budget: Duration::from_secs(seconds), disk_bytes }
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        let both = |&writers: &usize| {
            [Syncs::Private, Syncs::Shared].map(|syncs| arm_name(syncs, writers))
        };
        widths(profile).iter().flat_map(both).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let mut arms = Vec::new();
        for (number, &writers) in widths(setup.profile).iter().enumerate() {
            watch.check()?;
            for syncs in [Syncs::Private, Syncs::Shared] {
                if setup.wants(&arm_name(syncs, writers)) {
                    arms.push(Group::create(setup, syncs, writers, number)?);
                }
            }
        }
        let time = Duration::from_millis(if setup.profile == Profile::Quick { 60 } else { 200 });
        let size = Size { operations: usize::MAX, time };
        let rule = Rule {
            budget: setup.budget,
            blocks_min: 8,
            precision: 0.02,
            samples: None,
            seed: setup.seed,
        };
        let blocks = runner::run(&mut arms, 1, size, &rule, setup.counters, watch)?;
        let arms: Vec<ArmResult> =
            arms.iter().zip(&blocks).map(|(arm, blocks)| arm.result(blocks, setup)).collect();
        let parameters = vec![
            format!("record_bytes={RECORD_BYTES}"),
            format!("method={METHOD}"),
            format!("block_ms={}", time.as_millis()),
        ];
        let answer = answer(&arms);
        Ok(Measured { parameters, answer, arms, ..Measured::default() })
    }
}

fn widths(profile: Profile) -> &'static [usize] {
    if profile == Profile::Quick { &QUICK } else { &FULL }
}

fn arm_name(syncs: Syncs, writers: usize) -> String {
    match syncs {
        Syncs::Private => format!("private/{writers}"),
        Syncs::Shared => format!("shared/{writers}"),
    }
}

/// K writers on one file.
struct Group {
    syncs: Syncs,
    writers: usize,
    file: LaidOut,
    /// One handle for each writer that syncs for itself.
    handles: Vec<Arc<dyn File>>,
    record: Vec<u8>,
}

impl Group {
    fn create(
        setup: &Setup<'_>,
        syncs: Syncs,
        writers: usize,
        number: usize,
    ) -> plimsoll_sync::Result<Self> {
        let name =
            format!("{}-{number}", if syncs == Syncs::Shared { "shared" } else { "private" });
        let bytes = RECORD_BYTES as u64;
        let file = LaidOut::create(setup.dir, &name, METHOD, Layout::Overwritten, bytes, RECORDS)?;
        let handles = match syncs {
            Syncs::Shared => Vec::new(),
            Syncs::Private => open_each(setup.dir, &name, writers)?,
        };
        let mut record = vec![0; RECORD_BYTES];
        noise(&mut record, setup.seed);
        Ok(Self { syncs, writers, file, handles, record })
    }

    fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        let promise = METHOD.promise(System::HERE).unwrap_or(Promise::Nothing);
        let identity = Identity {
            name: arm_name(self.syncs, self.writers),
            method: METHOD,
            layout: Layout::Overwritten,
            promise,
            payload_bytes: RECORD_BYTES as u64,
            measures: &[MEASURE],
        };
        // The kernel may answer several private syncs with one flush.
        let sure = self.syncs == Syncs::Shared || self.writers == 1;
        let asked = |syncs| sure.then(|| Asked::new(promise, syncs, 0));
        let mut arm = identity.result(blocks, asked, setup);
        // More threads than CPUs wait for a CPU by design.
        if self.writers > setup.environment.cpus {
            arm.warnings.retain(|warning| !warning.text.contains("for a CPU"));
        }
        let wall_ns: u64 = blocks.iter().map(|block| block.elapsed.wall_ns).sum();
        let records: usize = blocks.iter().map(|block| block.samples[0].len()).sum();
        let records = records as u64;
        let values = BTreeMap::from([
            ("writers".to_owned(), units::ratio(self.writers as u64, 1)),
            ("records_per_s".to_owned(), units::ratio(records, wall_ns) * 1e9),
            ("records_per_sync".to_owned(), units::ratio(records, arm.durable_operations)),
        ]);
        // Of many threads the counters say little.
        ArmResult { values, attribution: None, ..arm }
    }
}

fn open_each(
    dir: &dyn Dir,
    name: &str,
    writers: usize,
) -> plimsoll_sync::Result<Vec<Arc<dyn File>>> {
    (0..writers).map(|_| dir.open(name, METHOD.access())).collect()
}

impl Arm for Group {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        // Filled once, and then written over by whoever comes by.
        self.file.prepare(RECORDS)
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let until = Instant::now() + block.time();
        let start = Barrier::new(self.writers);
        let log = SharedLog::new(Arc::clone(self.file.file()));
        let (record, start, log) = (&self.record, &start, &log);
        let outcomes: Vec<plimsoll_sync::Result<Vec<u64>>> = thread::scope(|scope| {
            let spawn = |writer: usize| {
                let handle = self.handles.get(writer);
                let region = RECORDS / self.writers as u64;
                let first = writer as u64 * region;
                scope.spawn(move || {
                    start.wait();
                    match handle {
                        Some(handle) => write_alone(&**handle, record, first, region, until),
                        None => write_together(log, record, until),
                    }
                })
            };
            let threads: Vec<_> = (0..self.writers).map(spawn).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        for samples in outcomes {
            block.samples[0].extend(samples?);
        }
        block.durable_operations = match self.syncs {
            Syncs::Private => block.samples[0].len() as u64,
            Syncs::Shared => log.syncs(),
        };
        Ok(())
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        self.file.file().sync(SyncMethod::ORDINARY).map(|_kept| ())
    }
}

/// Writes and syncs record after record, in a region of its own.
fn write_alone(
    file: &dyn File,
    record: &[u8],
    first: u64,
    region: u64,
    until: Instant,
) -> plimsoll_sync::Result<Vec<u64>> {
    let mut samples = Vec::new();
    for number in 0.. {
        let byte_offset = (first + number % region) * record.len() as u64;
        let start = Instant::now();
        if start >= until {
            break;
        }
        file.write_sync_at(record, byte_offset, METHOD)?;
        samples.push(nanoseconds(start.elapsed()));
    }
    Ok(samples)
}

/// Appends record after record to the log that all share.
fn write_together(
    log: &SharedLog,
    record: &[u8],
    until: Instant,
) -> plimsoll_sync::Result<Vec<u64>> {
    let mut samples = Vec::new();
    loop {
        let start = Instant::now();
        if start >= until {
            return Ok(samples);
        }
        log.append(record)?;
        samples.push(nanoseconds(start.elapsed()));
    }
}

/// The smallest log that commits in groups: the first to come leads, and syncs for all that came
/// before it began; the others wait, and one of them leads next.
struct SharedLog {
    file: Arc<dyn File>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    appended: u64,
    durable: u64,
    leading: bool,
    byte_offset: u64,
    syncs: u64,
    failed: Option<plimsoll_sync::Error>,
}

impl SharedLog {
    fn new(file: Arc<dyn File>) -> Self {
        Self { file, state: Mutex::default(), changed: Condvar::new() }
    }

    fn syncs(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).syncs
    }

    /// Durable on return.
    fn append(&self, record: &[u8]) -> plimsoll_sync::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.extend_from_slice(record);
        state.appended += 1;
        let mine = state.appended;
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.durable >= mine {
                return Ok(());
            }
            if state.leading {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.leading = true;
            let group = std::mem::take(&mut state.waiting);
            let last = state.appended;
            // A file that is full is written over: the log is not read back.
            let end = RECORDS * RECORD_BYTES as u64;
            let fits = state.byte_offset + group.len() as u64 <= end;
            let at = if fits { state.byte_offset } else { 0 };
            drop(state);
            let synced = self.file.write_sync_at(&group, at, METHOD);
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.byte_offset = at + group.len() as u64;
            state.leading = false;
            state.syncs += 1;
            match synced {
                Ok(_kept) => state.durable = last,
                Err(error) => state.failed = Some(error),
            }
            self.changed.notify_all();
        }
    }
}

fn answer(arms: &[ArmResult]) -> Vec<String> {
    let records = |arm: &ArmResult| arm.values.get("records_per_s").copied().unwrap_or(0.0);
    let of = |kind: &str| {
        let arms = arms.iter().filter(move |arm| arm.valid && arm.name.starts_with(kind));
        arms.max_by(|a, b| records(a).total_cmp(&records(b)))
    };
    let mut answer = Vec::new();
    let alone = arms.iter().find(|arm| arm.name == arm_name(Syncs::Private, 1));
    let Some((alone, best)) = alone.zip(of("shared")) else { return answer };
    let width = best_width(arms)
        .map_or_else(String::new, |width| format!(" {width} writers already reach 90 % of that."));
    answer.push(format!(
        "One writer alone makes {:.0} records durable per second; {} sharing one sync make {:.0} \
         ({:.1} times).{width}",
        records(alone),
        best.values.get("writers").map_or(0.0, |&writers| writers),
        records(best),
        records(best) / records(alone).max(f64::EPSILON)
    ));
    if let Some(private) = of("private") {
        answer.push(format!(
            "Syncing each for itself, {} writers reach {:.0}: sharing is worth {:.1} times.",
            private.values.get("writers").map_or(0.0, |&writers| writers),
            records(private),
            records(best) / records(private).max(f64::EPSILON)
        ));
    }
    answer
}

/// The fewest writers that reach nine tenths of the most records.
#[must_use]
pub fn best_width(arms: &[ArmResult]) -> Option<u64> {
    let shared = arms.iter().filter(|arm| arm.valid && arm.name.starts_with("shared/"));
    let points: Vec<(u64, f64)> = shared
        .filter_map(|arm| {
            let writers = arm.name.strip_prefix("shared/")?.parse().ok()?;
            Some((writers, *arm.values.get("records_per_s")?))
        })
        .collect();
    let most = points.iter().map(|point| point.1).max_by(f64::total_cmp)?;
    points.iter().filter(|point| point.1 >= 0.9 * most).map(|point| point.0).min()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use plimsoll_sync::{Allocation, Error};

    use super::*;

    /// Keeps what it was given; fails from the given sync on.
    #[derive(Debug)]
    struct Recorder {
        written: Mutex<Vec<u8>>,
        syncs: AtomicUsize,
        fails_at: usize,
    }

    impl File for Recorder {
        fn len(&self) -> plimsoll_sync::Result<u64> {
            Ok(0)
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> plimsoll_sync::Result<usize> {
            Ok(0)
        }
        fn write_at(&self, _: &[u8], _: u64) -> plimsoll_sync::Result<()> {
            Ok(())
        }
        fn write_sync_at(
            &self,
            buf: &[u8],
            _: u64,
            _: SyncMethod,
        ) -> plimsoll_sync::Result<Promise> {
            if self.syncs.fetch_add(1, Ordering::Relaxed) >= self.fails_at {
                return Err(Error::io("fsync", "log", std::io::Error::other("gone")));
            }
            self.written.lock().unwrap().extend_from_slice(buf);
            thread::yield_now();
            Ok(Promise::Media)
        }
        fn sync(&self, _: SyncMethod) -> plimsoll_sync::Result<Promise> {
            Ok(Promise::Media)
        }
        fn allocate(&self, _: u64, _: u64, _: Allocation) -> plimsoll_sync::Result<()> {
            Ok(())
        }
        fn truncate(&self, _: u64) -> plimsoll_sync::Result<()> {
            Ok(())
        }
        fn alignment(&self) -> usize {
            1
        }
    }

    fn recorder(fails_at: usize) -> Arc<Recorder> {
        Arc::new(Recorder { written: Mutex::default(), syncs: AtomicUsize::new(0), fails_at })
    }

    #[test]
    fn a_record_is_durable_when_append_returns_and_none_is_written_twice() {
        let file = recorder(usize::MAX);
        let log = SharedLog::new(Arc::clone(&file) as Arc<dyn File>);
        thread::scope(|scope| {
            for writer in 0..8u8 {
                let (log, file) = (&log, &file);
                scope.spawn(move || {
                    for number in 0..100u8 {
                        log.append(&[writer, number]).unwrap();
                        let written = file.written.lock().unwrap();
                        assert!(written.chunks(2).any(|record| record == [writer, number]));
                    }
                });
            }
        });
        let mut records: Vec<Vec<u8>> =
            file.written.lock().unwrap().chunks(2).map(<[u8]>::to_vec).collect();
        assert_eq!(records.len(), 800);
        records.sort();
        records.dedup();
        assert_eq!(records.len(), 800);
        assert_eq!(log.syncs(), file.syncs.load(Ordering::Relaxed) as u64);
    }

    #[test]
    fn a_failed_sync_fails_everybody_who_waits() {
        let log = SharedLog::new(recorder(5));
        let failed = thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..100).any(|_| log.append(b"r").is_err())))
                .collect();
            writers.into_iter().all(|writer| writer.join().unwrap())
        });
        assert!(failed);
    }
}
