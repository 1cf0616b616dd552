//! What time it is and where randomness comes from: the system's, or a test's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::Result;

/// A source of time and of random numbers.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System { begun: Instant },
    Manual { ns: Arc<AtomicU64>, seed: Arc<AtomicU64> },
}

impl Clock {
    /// A clock that stands until it is [advanced](Self::advance), and random numbers that follow from
    /// `seed`: a run with it can be repeated.
    #[must_use]
    pub fn manual(seed: u64) -> Self {
        Self(Source::Manual { ns: Arc::default(), seed: Arc::new(AtomicU64::new(seed)) })
    }

    /// Lets time pass on a manual clock.
    ///
    /// # Panics
    /// On the system's clock.
    pub fn advance(&self, by: Duration) {
        let Source::Manual { ns, .. } = &self.0 else {
            panic!("nobody advances the system's clock")
        };
        ns.fetch_add(u64::try_from(by.as_nanos()).expect("some centuries"), Ordering::Relaxed);
    }

    /// Time since some moment; never goes back.
    pub(crate) fn now(&self) -> Duration {
        match &self.0 {
            Source::System { begun } => begun.elapsed(),
            Source::Manual { ns, .. } => Duration::from_nanos(ns.load(Ordering::Relaxed)),
        }
    }

    /// Time of day, in ns since 1970.
    pub(crate) fn unix_ns(&self) -> u64 {
        match &self.0 {
            Source::System { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
            }
            Source::Manual { ns, .. } => ns.load(Ordering::Relaxed),
        }
    }

    /// A number that no other log, segment or ring has.
    pub(crate) fn unique(&self) -> Result<u64> {
        let failed = |error| plimsoll_sync::Error::io("draw a random number", "", error);
        Ok(self.random().map_err(failed)?)
    }

    /// A random number that nobody has drawn before, and not zero.
    fn random(&self) -> std::io::Result<u64> {
        let drawn = match &self.0 {
            Source::System { .. } => getrandom::u64().map_err(std::io::Error::from)?,
            Source::Manual { seed, .. } => {
                // SplitMix64 (Steele, Lea, Flood 2014): every value once in 2^64 draws.
                let state = seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
                let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }
        };
        Ok(drawn.max(1))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self(Source::System { begun: Instant::now() })
    }
}
