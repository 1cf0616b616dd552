//! An arm: a thread overwrites a small file and syncs it at a fixed rate. In the arms `torture` the
//! random writer runs beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_sync::{Access, AlignedBuf, Dir, File, Promise, SyncMethod};

use super::big_file::BigFile;
use super::plan::{CALM_BYTES, MEASURES, Plan, SYNC, SmallWrite, WRITE, payload_len};
use super::values::{Trace, restless, series, values};
use crate::arm::Identity;
use crate::arm_result::ArmResult;
use crate::counters::{DirtyPages, nanoseconds};
use crate::experiment::Setup;
use crate::layout::{Layout, noise};
use crate::pace::Pace;
use crate::runner::{Arm, Block};
use crate::verdict::Asked;

/// How often dirty pages are looked at until few are left.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An arm.
#[derive(Debug)]
pub(super) struct Stall<'a> {
    write: SmallWrite,
    plan: Plan,
    promise: Promise,
    file: Arc<dyn File>,
    payload: AlignedBuf,
    big: &'a BigFile,
    cancel: &'a AtomicBool,
    history: Vec<Trace>,
}

impl<'a> Stall<'a> {
    pub(super) fn create(
        setup: &Setup<'_>,
        write: SmallWrite,
        plan: Plan,
        big: &'a BigFile,
        number: usize,
        cancel: &'a AtomicBool,
    ) -> plimsoll_sync::Result<Self> {
        let file = setup.dir.create(&format!("writeback-stall-{number}"), Access::default())?;
        let mut payload = AlignedBuf::zeroed(payload_len(write.write_bytes), file.alignment());
        noise(&mut payload, setup.seed);
        file.write_at(&payload, 0)?;
        let promise = file.sync(SyncMethod::ORDINARY)?;
        Ok(Self { write, plan, promise, file, payload, big, cancel, history: Vec::new() })
    }

    /// Overwrites and syncs at the rate, until the block is over.
    fn measure(&self, block: &mut Block, trace: &mut Trace) -> plimsoll_sync::Result<()> {
        let started = Instant::now();
        // The first block is thrown away, so it need not take a minute.
        let first = self.history.is_empty();
        let until = started + if first { 3 * self.plan.write_every } else { block.time() };
        // The first start is one period later, when the random writer is at work.
        let mut pace = Pace::new(started + self.plan.write_every, self.plan.write_every);
        loop {
            if pace.wait() >= until || self.cancel.load(Ordering::Relaxed) {
                return Ok(());
            }
            let start = Instant::now();
            self.file.write_at(&self.payload, 0)?;
            let written = Instant::now();
            self.file.sync(SyncMethod::ORDINARY)?;
            let end = Instant::now();
            let (write, sync) = (written - start, end - written);
            block.durable_operations += 1;
            block.samples[WRITE].push(nanoseconds(write));
            block.samples[SYNC].push(nanoseconds(sync));
            trace.operations.push((start - started, write, sync));
            trace.dirty.extend(DirtyPages::now().map(|dirty| (end - started, dirty)));
            if !block.sample(end - start, end) {
                return Ok(());
            }
        }
    }

    pub(super) fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        let identity = Identity {
            name: self.write.name(),
            method: SyncMethod::ORDINARY,
            layout: Layout::Overwritten,
            promise: self.promise,
            payload_bytes: self.write.write_bytes,
            measures: &MEASURES,
        };
        // Beside the random writer only the flushes are ours.
        let bytes = if self.write.torture { 0 } else { self.write.write_bytes };
        let asked = |operations| Some(Asked::new(self.promise, operations, bytes));
        let mut arm = identity.result(blocks, asked, setup);
        let history = &self.history[self.history.len() - blocks.len()..];
        if !self.write.torture {
            arm.warnings.extend(restless(history));
        }
        ArmResult {
            values: values(history),
            // Starts are due at fixed times, so the loop is not closed.
            attribution: None,
            series: Some(series(history, self.plan.write_every)),
            ..arm
        }
    }
}

impl Arm for Stall<'_> {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        wait_until_calm(self.plan.calm, self.cancel);
        Ok(())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let mut trace = Trace { dirty_at_start: DirtyPages::now(), ..Trace::default() };
        let number = self.history.len() as u64;
        let stop = AtomicBool::new(false);
        let (at_work, begun) = mpsc::channel();
        let started = Instant::now();
        let (measured, tortured) = thread::scope(|scope| {
            let (big, stop) = (self.big, &stop);
            let writer = (self.write.torture)
                .then(|| scope.spawn(move || big.torture(number, at_work, stop)));
            let measured = {
                let _stop = StopOnDrop(stop);
                if self.write.torture {
                    // A writer that fails ends without a word, and says why when it is joined.
                    begun.recv().ok();
                }
                self.measure(block, &mut trace)
            };
            let join = |writer: thread::ScopedJoinHandle<'_, _>| {
                writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            (measured, writer.map(join))
        });
        measured?;
        trace.writer_mib_s = tortured.transpose()?;
        trace.length = started.elapsed();
        self.history.push(trace);
        Ok(())
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        if self.write.torture {
            self.big.file.sync(SyncMethod::ORDINARY)?;
        }
        Ok(())
    }
}

/// Tells the other thread to stop, even if this one panics: else their scope would wait for ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until little is dirty, but not for ever: what is dirty is not ours, and others may go on
/// writing.
#[expect(clippy::disallowed_methods, reason = "nobody tells when pages are written: one must look")]
fn wait_until_calm(at_most: Duration, cancel: &AtomicBool) {
    let until = Instant::now() + at_most;
    while DirtyPages::now().is_some_and(|dirty| dirty.sum_bytes() > CALM_BYTES)
        && Instant::now() < until
        && !cancel.load(Ordering::Relaxed)
    {
        thread::sleep(LOOK_EVERY);
    }
}
