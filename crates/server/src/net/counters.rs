//! [`Counters`]: what clients ask and are answered, counted for whoever watches.
//!
//! Everything is a relaxed atomic: a request costs two looks at the clock and a few additions, and no
//! connection waits for another. The size is fixed, whatever clients send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::kafka::band::Api;
use crate::kafka::error::ErrorCode;

/// The longest that is counted in each bucket of a [`Latency`], in µs; a last bucket has no end.
pub const BOUNDS_US: [u64; 17] = [
    25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];
/// Buckets of a [`Latency`].
const BUCKETS: usize = BOUNDS_US.len() + 1;
/// Kafka's codes from -1 on that are counted one by one; others share the last place.
const CODES: usize = 130;

/// What was counted since the start.
#[derive(Debug)]
pub struct Counters {
    apis: Box<[OfApi]>,
    connections: AtomicU64,
    connected: AtomicU64,
    turned_away: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

/// What was counted of one API.
#[derive(Debug)]
struct OfApi {
    errors: [AtomicU64; CODES],
    latency: [AtomicU64; BUCKETS],
    total_us: AtomicU64,
}

/// How long answers took, from the request being read to its answer being ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many took at most as long as [`BOUNDS_US`] says, and longer than the bound before it.
    pub buckets: [u64; BUCKETS],
    /// All of them together, in µs.
    pub total_us: u64,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = AtomicU64::default;
        let of_api = |_: &Api| OfApi {
            errors: std::array::from_fn(|_| zero()),
            latency: std::array::from_fn(|_| zero()),
            total_us: zero(),
        };
        Self {
            apis: Api::ALL.iter().map(of_api).collect(),
            connections: zero(),
            connected: zero(),
            turned_away: zero(),
            received_bytes: zero(),
            sent_bytes: zero(),
        }
    }
}

impl Counters {
    /// An answer is ready; these are the errors in it.
    pub(super) fn answered(&self, api: Api, took: Duration, errors: &[ErrorCode]) {
        let of_api = &self.apis[api as usize];
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        of_api.latency[bucket].fetch_add(1, Relaxed);
        of_api.total_us.fetch_add(us, Relaxed);
        for error in errors {
            of_api.errors[place(*error)].fetch_add(1, Relaxed);
        }
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn turned_away(&self) {
        self.turned_away.fetch_add(1, Relaxed);
    }

    /// Counts a connection until what is returned is dropped.
    pub(super) fn connected(self: &Arc<Self>) -> Connected {
        self.connections.fetch_add(1, Relaxed);
        self.connected.fetch_add(1, Relaxed);
        Connected(Arc::clone(self))
    }

    /// Connections now.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Connections that were taken.
    #[must_use]
    pub fn connections_taken(&self) -> u64 {
        self.connected.load(Relaxed)
    }

    /// Connections that were closed at once, because there were too many.
    #[must_use]
    pub fn connections_turned_away(&self) -> u64 {
        self.turned_away.load(Relaxed)
    }

    /// Bytes that clients sent.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Relaxed)
    }

    /// Bytes that they were sent.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Relaxed)
    }

    /// How long answers of an API took.
    #[must_use]
    pub fn latency(&self, api: Api) -> Latency {
        let of_api = &self.apis[api as usize];
        Latency {
            buckets: std::array::from_fn(|bucket| of_api.latency[bucket].load(Relaxed)),
            total_us: of_api.total_us.load(Relaxed),
        }
    }

    /// The errors in answers of an API: each code that was told, and how often. `Other(0)` are those
    /// that have no place of their own.
    #[must_use]
    pub fn errors(&self, api: Api) -> Vec<(ErrorCode, u64)> {
        let counts = self.apis[api as usize].errors.iter().map(|count| count.load(Relaxed));
        let told = counts.enumerate().filter(|(_, count)| *count > 0);
        told.map(|(place, count)| (at(place), count)).collect()
    }
}

/// Where a code is counted.
fn place(error: ErrorCode) -> usize {
    usize::try_from(i16::from(error) + 1).map_or(CODES - 1, |place| place.min(CODES - 1))
}

/// The code that is counted in a place.
fn at(place: usize) -> ErrorCode {
    let code = i16::try_from(place).ok().filter(|_| place < CODES - 1);
    code.map_or(ErrorCode::Other(0), |place| ErrorCode::from(place - 1))
}

impl Latency {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// What came since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            buckets: std::array::from_fn(|bucket| {
                self.buckets[bucket].saturating_sub(earlier.buckets[bucket])
            }),
            total_us: self.total_us.saturating_sub(earlier.total_us),
        }
    }

    /// A bound that at least this share of them took at most, in µs; `None` if it is in the last bucket,
    /// or there were none.
    #[must_use]
    pub fn at_most_us(&self, thousandths: u64) -> Option<u64> {
        let wanted = (self.count() * thousandths).div_ceil(1000).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        BOUNDS_US.get(bucket).copied()
    }
}

/// A connection that is there.
#[derive(Debug)]
pub(super) struct Connected(Arc<Counters>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_counted_with_its_time_and_its_errors() {
        let counters = Counters::default();
        let told = [ErrorCode::CorruptMessage, ErrorCode::Other(-7), ErrorCode::Other(3000)];
        counters.answered(Api::Produce, Duration::from_micros(100), &told);
        counters.answered(Api::Produce, Duration::from_micros(101), &[]);
        counters.answered(Api::Produce, Duration::from_secs(60), &[ErrorCode::UnknownServerError]);
        let latency = counters.latency(Api::Produce);
        assert_eq!((latency.buckets[2], latency.buckets[3], latency.buckets[17]), (1, 1, 1));
        assert_eq!((latency.count(), latency.total_us), (3, 60_000_201));
        let errors = counters.errors(Api::Produce);
        let (unknown, corrupt) = (ErrorCode::UnknownServerError, ErrorCode::CorruptMessage);
        assert_eq!(errors, [(unknown, 1), (corrupt, 1), (ErrorCode::Other(0), 2)]);
        assert_eq!(counters.latency(Api::Fetch), Latency::default());
        assert_eq!(Latency::default().at_most_us(500), None, "of nothing, nothing is known");
        assert_eq!((latency.at_most_us(333), latency.at_most_us(500)), (Some(100), Some(250)));
        assert_eq!(latency.at_most_us(990), None, "longer than any bound");
    }

    #[test]
    fn a_connection_is_counted_for_as_long_as_it_is_there() {
        let counters = Arc::new(Counters::default());
        let one = counters.connected();
        drop(counters.connected());
        assert_eq!((counters.connections(), counters.connections_taken()), (1, 2));
        drop(one);
        assert_eq!(counters.connections(), 0);
    }

    #[test]
    fn every_api_has_its_place() {
        let places = Api::ALL.iter().map(|api| *api as usize);
        assert!(places.eq(0..Api::ALL.len()));
    }
}
