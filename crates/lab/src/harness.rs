//! What measuring itself costs: the loop of a writer around an operation that does nothing.

use std::hint::black_box;
use std::time::Instant;

use plimsoll_sync::latch::{Latch, Latched};
use plimsoll_sync::{Access, Allocation, File, Promise, Result, SyncMethod};

use crate::counters::nanoseconds;
use crate::result::Harness;
use crate::stats;

/// Enough operations for a median; they take a few milliseconds.
const OPERATIONS: usize = 50_000;

/// Measures the cost of measuring.
#[must_use]
pub(crate) fn measure() -> Harness {
    let file: &dyn File =
        &Latched::new(Idle, "idle".into(), Access::default(), std::sync::Arc::<Latch>::default());
    let mut whole = Vec::with_capacity(OPERATIONS);
    let mut clock = Vec::with_capacity(OPERATIONS);
    let mut last = Instant::now();
    for byte_offset in 0..OPERATIONS as u64 {
        let start = Instant::now();
        let done = file.write_sync_at(&[], black_box(byte_offset), SyncMethod::Fsync);
        let end = Instant::now();
        debug_assert!(done.is_ok());
        clock.push(nanoseconds(end - start));
        whole.push(nanoseconds(end - last));
        last = end;
    }
    let median = |mut samples: Vec<u64>| {
        samples.sort_unstable();
        stats::quantile(&samples, 0.5)
    };
    Harness { operation_p50_ns: median(whole), clock_p50_ns: median(clock) }
}

/// A file that does nothing and returns at once.
#[derive(Debug)]
struct Idle;

impl File for Idle {
    fn len(&self) -> Result<u64> {
        Ok(0)
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize> {
        Ok(0)
    }
    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        Ok(())
    }
    fn write_sync_at(&self, _: &[u8], _: u64, _: SyncMethod) -> Result<Promise> {
        Ok(Promise::Nothing)
    }
    fn sync(&self, _: SyncMethod) -> Result<Promise> {
        Ok(Promise::Nothing)
    }
    fn allocate(&self, _: u64, _: u64, _: Allocation) -> Result<()> {
        Ok(())
    }
    fn truncate(&self, _: u64) -> Result<()> {
        Ok(())
    }
    fn alignment(&self) -> usize {
        1
    }
}
