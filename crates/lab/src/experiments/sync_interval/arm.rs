//! An arm: trials that write a growing file, and sync it in the same thread or in another one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_sync::{AlignedBuf, Dir, File, Promise, SyncMethod};

use super::plan::{AT_RISK, MEASURES, SYNC, Schedule, Syncer, Trial, WRITE_BYTES, When};
use super::values::{median, per_mib, values};
use crate::arm::Identity;
use crate::arm_result::ArmResult;
use crate::counters::nanoseconds;
use crate::experiment::Setup;
use crate::layout::{Layout, noise};
use crate::runner::{Arm, Block};
use crate::verdict::Asked;

/// An arm.
pub(super) struct TrialWriter<'a> {
    schedule: Schedule,
    method: SyncMethod,
    promise: Promise,
    trial: Trial,
    file: Arc<dyn File>,
    payload: AlignedBuf,
    cancel: &'a AtomicBool,
    /// Bytes of each trial.
    written: Vec<u64>,
}

/// One sync of a trial.
struct Synced {
    /// The time from the first write that it covers until it returned.
    at_risk: Duration,
    time: Duration,
}

type Written = plimsoll_sync::Result<u64>;

impl<'a> TrialWriter<'a> {
    pub(super) fn create(
        setup: &Setup<'_>,
        schedule: Schedule,
        method: SyncMethod,
        trial: Trial,
        number: usize,
        cancel: &'a AtomicBool,
    ) -> plimsoll_sync::Result<Self> {
        let file = setup.dir.create(&format!("sync-interval-{number}"), method.access())?;
        let len = usize::try_from(WRITE_BYTES).expect("a page is small");
        let mut payload = AlignedBuf::zeroed(len, file.alignment());
        noise(&mut payload, setup.seed);
        let promise = match schedule.when {
            When::Never => Promise::Nothing,
            When::End | When::Every(_) => file.sync(method)?,
        };
        Ok(Self { schedule, method, promise, trial, file, payload, cancel, written: Vec::new() })
    }

    /// Writes a trial, and calls `sync` after each interval with the time of its first write.
    /// Returns the bytes written.
    fn write(&self, mut sync: impl FnMut(Instant) -> plimsoll_sync::Result<()>) -> Written {
        let Trial { bytes, time } = self.trial;
        let batch_bytes = self.schedule.batch_bytes(bytes);
        let started = Instant::now();
        let mut written = 0;
        loop {
            let first = Instant::now();
            let until = bytes.min(written + batch_bytes);
            while written < until {
                self.file.write_at(&self.payload, written)?;
                written += WRITE_BYTES;
                if self.cancel.load(Ordering::Relaxed) {
                    return Ok(written);
                }
            }
            sync(first)?;
            if written == bytes || started.elapsed() >= time {
                return Ok(written);
            }
        }
    }

    fn sync(&self, first: Instant) -> plimsoll_sync::Result<Synced> {
        let start = Instant::now();
        self.file.sync(self.method)?;
        let end = Instant::now();
        Ok(Synced { at_risk: end - first, time: end - start })
    }

    fn write_and_sync(&self, syncs: &mut Vec<Synced>) -> Written {
        self.write(|first| {
            syncs.push(self.sync(first)?);
            Ok(())
        })
    }

    /// Writes a trial with the syncs in another thread. Handing over waits until that thread is
    /// free.
    fn write_beside_syncs(&self, syncs: &mut Vec<Synced>) -> Written {
        thread::scope(|scope| {
            let (hand_over, batches) = mpsc::sync_channel(0);
            let syncer = scope.spawn(|| {
                batches.into_iter().try_for_each(|first| {
                    syncs.push(self.sync(first)?);
                    Ok(())
                })
            });
            let written = self.write(|first| {
                // If the syncer is gone, a sync has failed: the file takes no more writes, and the
                // failure is reported below.
                hand_over.send(first).ok();
                Ok(())
            });
            drop(hand_over);
            syncer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            written
        })
    }

    pub(super) fn result(
        &self,
        blocks: &[Block],
        end_ns: Option<u64>,
        setup: &Setup<'_>,
    ) -> ArmResult {
        let synced = self.schedule.when != When::Never;
        let identity = Identity {
            name: self.schedule.name(),
            method: if synced { self.method } else { SyncMethod::None },
            layout: Layout::Append,
            promise: self.promise,
            payload_bytes: WRITE_BYTES,
            measures: &MEASURES,
        };
        let mut written = self.written[self.written.len() - blocks.len()..].to_vec();
        let bytes: u64 = written.iter().sum();
        let asked =
            |operations: u64| Some(Asked::new(self.promise, operations, bytes / operations.max(1)));
        let arm = identity.result(blocks, asked, setup);
        written.sort_unstable();
        let values = values(self.schedule, self.trial, &arm.summaries, median(&written), end_ns);
        // If another thread syncs, the time of this one says little.
        let attribution = arm.attribution.filter(|_| self.schedule.syncer == Syncer::Writer);
        ArmResult { values, attribution, ..arm }
    }
}

impl Arm for TrialWriter<'_> {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        Ok(())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let mut syncs = Vec::new();
        let start = Instant::now();
        let written = match (self.schedule.when, self.schedule.syncer) {
            (When::Never, _) => self.write(|_first| Ok(())),
            (_, Syncer::Writer) => self.write_and_sync(&mut syncs),
            (_, Syncer::Background) => self.write_beside_syncs(&mut syncs),
        }?;
        let end = Instant::now();
        // A trial that syncs nothing is one operation that asked for nothing.
        block.durable_operations = (syncs.len() as u64).max(1);
        block.samples[AT_RISK] = syncs.iter().map(|sync| nanoseconds(sync.at_risk)).collect();
        block.samples[SYNC] = syncs.iter().map(|sync| nanoseconds(sync.time)).collect();
        block.sample(per_mib(end - start, written), end);
        self.written.push(written);
        Ok(())
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        self.file.truncate(0)?;
        self.file.sync(SyncMethod::ORDINARY).map(|_kept| ())
    }
}
