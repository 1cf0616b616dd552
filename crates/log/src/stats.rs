//! What the log counts: plain numbers, and a hook for whoever keeps metrics.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::shim::{Mutex, lock};

/// Is told of what the log does, from the thread that does it: return at once, and do not call the
/// log.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn observe(&self, event: Event<'_>);
}

/// What the log did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A write to a segment returned.
    Wrote {
        /// Bytes.
        bytes: u64,
        /// How long it took.
        took: Duration,
    },
    /// A sync returned; records up to this one are durable.
    Synced {
        /// The last of them.
        durable: u64,
        /// How many there were since the sync before.
        records: u64,
        /// How long it took.
        took: Duration,
    },
    /// A segment is full, the next one is in use.
    Rotated {
        /// First index of the new one.
        first_index: u64,
        /// How long it took.
        took: Duration,
    },
    /// An append had to wait for room in the ring.
    Stalled {
        /// For so long.
        took: Duration,
    },
    /// A segment failed; what was not durable went to another.
    FailedOver {
        /// The file that failed.
        segment: &'a str,
        /// First index of the new one.
        first_index: u64,
    },
    /// There is no room for another segment.
    OutOfSpace,
    /// Nothing more is accepted.
    Stopped,
}

/// A distribution in nanoseconds, or in whatever is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Distribution {
    /// How many were counted.
    pub n: u64,
    /// The median.
    pub p50: u64,
    /// 99 of 100 are no larger.
    pub p99: u64,
    /// 999 of 1000 are no larger.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

/// What a log did since it was opened. Durations are in nanoseconds; quantiles are right to 1 %.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records appended.
    pub records: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes written to segments: frames, marks, padding, blocks written again.
    pub written_bytes: u64,
    /// The oldest record.
    pub first_index: u64,
    /// The newest.
    pub last_index: u64,
    /// The last that the kernel has.
    pub written: u64,
    /// The last that is durable.
    pub durable: u64,
    /// Age of the oldest record that the kernel has and that is not durable.
    pub lag_ns: u64,
    /// Bytes that are held in the ring.
    pub ring_bytes: u64,
    /// Files of the log.
    pub segments: u64,
    /// Segments that were filled.
    pub rotations: u64,
    /// Segments that failed and were replaced.
    pub failovers: u64,
    /// Appends, one in 64: copying into the ring, waiting for room in it included.
    pub append_ns: Distribution,
    /// Writes to segments.
    pub write_ns: Distribution,
    /// Syncs.
    pub sync_ns: Distribution,
    /// Records that became durable by one sync.
    pub group_records: Distribution,
    /// Bytes in the ring, when the writer came to take some.
    pub occupancy_bytes: Distribution,
    /// Appends that waited for room.
    pub stall_ns: Distribution,
    /// How records are made durable here: `o_direct+rwf_dsync`, say.
    pub method: String,
    /// How segments are prepared here: `zeroed`, `reserved` or `growing`.
    pub layout: String,
}

/// Where counts are kept. One lock, never held while anything waits.
pub(crate) struct Counts(Mutex<Inner>);

pub(crate) struct Inner {
    pub(crate) written_bytes: u64,
    pub(crate) rotations: u64,
    pub(crate) failovers: u64,
    pub(crate) append_ns: Histogram<u64>,
    pub(crate) write_ns: Histogram<u64>,
    pub(crate) sync_ns: Histogram<u64>,
    pub(crate) group_records: Histogram<u64>,
    pub(crate) occupancy_bytes: Histogram<u64>,
    pub(crate) stall_ns: Histogram<u64>,
}

impl Counts {
    pub(crate) fn new() -> Self {
        let empty = || Histogram::new_with_bounds(1, 1 << 40, 2).expect("bounds in order");
        Self(Mutex::new(Inner {
            written_bytes: 0,
            rotations: 0,
            failovers: 0,
            append_ns: empty(),
            write_ns: empty(),
            sync_ns: empty(),
            group_records: empty(),
            occupancy_bytes: empty(),
            stall_ns: empty(),
        }))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut lock(&self.0));
    }

    /// Fills in what is counted here.
    pub(crate) fn report(&self, stats: &mut Stats) {
        let inner = lock(&self.0);
        stats.written_bytes = inner.written_bytes;
        stats.rotations = inner.rotations;
        stats.failovers = inner.failovers;
        stats.append_ns = distribution(&inner.append_ns);
        stats.write_ns = distribution(&inner.write_ns);
        stats.sync_ns = distribution(&inner.sync_ns);
        stats.group_records = distribution(&inner.group_records);
        stats.occupancy_bytes = distribution(&inner.occupancy_bytes);
        stats.stall_ns = distribution(&inner.stall_ns);
    }
}

fn distribution(histogram: &Histogram<u64>) -> Distribution {
    Distribution {
        n: histogram.len(),
        p50: histogram.value_at_quantile(0.5),
        p99: histogram.value_at_quantile(0.99),
        p999: histogram.value_at_quantile(0.999),
        max: histogram.max(),
    }
}

/// A duration as the histograms take it.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counts")
    }
}
