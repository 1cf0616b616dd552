//! What every trial feeds and reads: records at no cost, histograms of times, the peak of memory.

use std::fs;
use std::time::Duration;

use hdrhistogram::Histogram;
use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::task::Times;

const POOL_BYTES: usize = 1 << 20;

/// Records that do not compress and are not all the same, at no cost: pieces of random bytes that all
/// appenders share.
pub(crate) struct Records<'a> {
    pool: &'a [u8],
    bytes: usize,
    at: usize,
}

pub(crate) fn random_pool(bytes: usize) -> Vec<u8> {
    let mut pool = vec![0; POOL_BYTES + bytes];
    Pcg64Mcg::seed_from_u64(1).fill_bytes(&mut pool);
    pool
}

impl<'a> Records<'a> {
    pub(crate) fn new(pool: &'a [u8], bytes: usize, appender: usize) -> Self {
        Self { pool, bytes, at: appender * 4096 }
    }

    pub(crate) fn next(&mut self) -> &[u8] {
        self.at = (self.at + 64) % POOL_BYTES;
        &self.pool[self.at..self.at + self.bytes]
    }
}

/// The most memory that a process ever had, in KiB.
pub(crate) fn peak_kib(process: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("bounds in order")
}

pub(crate) fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

pub(crate) fn times(histogram: &Histogram<u64>) -> Times {
    Times {
        n: histogram.len(),
        p50: histogram.value_at_quantile(0.5),
        p99: histogram.value_at_quantile(0.99),
        p999: histogram.value_at_quantile(0.999),
        max: histogram.max(),
    }
}
