//! What the log counts: plain numbers, and a hook for whoever keeps metrics.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::append::intake::Timing;
use crate::shim::{Mutex, lock};

/// Is told of what the log does, from the thread that does it: return at once, and do not call the
/// log. A panic is caught, and ends nothing.
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
        /// There was no room for what was written to it, and nothing else was wrong.
        was_full: bool,
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
    /// Appends, one in 64, and all that waited for room: copying into the ring, with the wait. So its upper
    /// quantiles are of more than the appends of a log that waits often; `stall_ns` has those alone.
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

/// Where counts are kept, and who is told.
pub(crate) struct Tell {
    observer: Option<Arc<dyn Observer>>,
    counts: Mutex<Counts>,
}

/// One lock, never held while anything waits. Histograms are made when there is something to count: an
/// idle log has none.
#[derive(Default)]
struct Counts {
    written_bytes: u64,
    rotations: u64,
    failovers: u64,
    append_ns: Counted,
    write_ns: Counted,
    sync_ns: Counted,
    group_records: Counted,
    occupancy_bytes: Counted,
    stall_ns: Counted,
}

#[derive(Default)]
struct Counted(Option<Box<Histogram<u64>>>);

impl Counted {
    fn record(&mut self, value: u64) {
        let empty = || Histogram::new_with_bounds(1, 1 << 40, 2).expect("bounds in order");
        self.0.get_or_insert_with(|| Box::new(empty())).saturating_record(value.max(1));
    }

    fn distribution(&self) -> Distribution {
        self.0.as_deref().map_or_else(Distribution::default, distribution)
    }
}

impl Tell {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        Self { observer, counts: Mutex::default() }
    }

    /// An append was timed.
    #[cold]
    pub(crate) fn accepted(&self, timing: Timing) {
        let Timing { took, stalled } = timing;
        {
            let mut counts = lock(&self.counts);
            counts.append_ns.record(ns(took));
            if let Some(stalled) = stalled {
                counts.stall_ns.record(ns(stalled));
            }
        }
        if let Some(took) = stalled {
            self.observe(Event::Stalled { took });
        }
    }

    /// So many bytes were in the ring when the writer came.
    pub(crate) fn occupancy(&self, bytes: u64) {
        lock(&self.counts).occupancy_bytes.record(bytes);
    }

    pub(crate) fn wrote(&self, bytes: u64, took: Duration) {
        {
            let mut counts = lock(&self.counts);
            counts.written_bytes += bytes;
            counts.write_ns.record(ns(took));
        }
        self.observe(Event::Wrote { bytes, took });
    }

    pub(crate) fn synced(&self, durable: u64, records: u64, took: Duration) {
        {
            let mut counts = lock(&self.counts);
            counts.sync_ns.record(ns(took));
            if records > 0 {
                counts.group_records.record(records);
            }
        }
        self.observe(Event::Synced { durable, records, took });
    }

    /// Anything else.
    pub(crate) fn happened(&self, event: Event<'_>) {
        match event {
            Event::Rotated { .. } => lock(&self.counts).rotations += 1,
            Event::FailedOver { .. } => lock(&self.counts).failovers += 1,
            _ => {}
        }
        self.observe(event);
    }

    fn observe(&self, event: Event<'_>) {
        if let Some(observer) = &self.observer {
            // Whoever does the work of the log goes on with it.
            if catch_unwind(AssertUnwindSafe(|| observer.observe(event))).is_err() {
                tracing::error!("an observer panicked");
            }
        }
    }

    /// Fills in what is counted here.
    pub(crate) fn report(&self, stats: &mut Stats) {
        let counts = lock(&self.counts);
        stats.written_bytes = counts.written_bytes;
        stats.rotations = counts.rotations;
        stats.failovers = counts.failovers;
        stats.append_ns = counts.append_ns.distribution();
        stats.write_ns = counts.write_ns.distribution();
        stats.sync_ns = counts.sync_ns.distribution();
        stats.group_records = counts.group_records.distribution();
        stats.occupancy_bytes = counts.occupancy_bytes.distribution();
        stats.stall_ns = counts.stall_ns.distribution();
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

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}
