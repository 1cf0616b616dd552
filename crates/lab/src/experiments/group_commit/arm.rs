//! An arm: K writers on one file, each in a closed loop.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use plimsoll_sync::{Dir, File, Promise, SyncMethod, System};

use super::plan::{MEASURE, METHOD, RECORD_BYTES, RECORDS, Syncs, arm_name};
use super::shared_log::SharedLog;
use crate::arm::Identity;
use crate::arm_result::ArmResult;
use crate::counters::nanoseconds;
use crate::experiment::Setup;
use crate::layout::{LaidOut, Layout, noise};
use crate::runner::{Arm, Block};
use crate::units;
use crate::verdict::Asked;

/// K writers on one file.
pub(super) struct Group {
    syncs: Syncs,
    writers: usize,
    file: LaidOut,
    /// One handle for each writer that syncs for itself.
    handles: Vec<Arc<dyn File>>,
    record: Vec<u8>,
}

impl Group {
    pub(super) fn create(
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

    pub(super) fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
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
        // The counters are those of one thread, and say little about many.
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
        // The file is filled once; after that, every writer writes over it.
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

/// Appends record after record to the log that all writers share.
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
