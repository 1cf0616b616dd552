//! [`Lag`]: how far the disks of a majority are behind what is agreed on, in bytes.
//!
//! Each log takes no more than a bound of what is not durable there, and stops whoever appends when it is reached. With
//! seven eighths of that, records are taken as fast as they became durable in the last second; nearer to it half as fast: who
//! produces is slowed down, and told so, before it has to stop.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::throttle::Pace;

/// How long it is measured how much becomes durable.
const MEASURED: Duration = Duration::from_secs(1);

/// Entries that are agreed on and not durable.
#[derive(Debug)]
pub(super) struct Lag {
    /// What a log takes at most; `None`: it takes all.
    bound: Option<u64>,
    /// The index of each, and its bytes.
    entries: VecDeque<(u64, u64)>,
    bytes: u64,
    /// What became durable since when.
    measured: (Instant, u64),
    bytes_a_second: u64,
}

impl Lag {
    pub(super) fn new(bound: Option<u64>, now: Instant) -> Self {
        let (entries, bytes, measured) = (VecDeque::new(), 0, (now, 0));
        Self { bound, entries, bytes, measured, bytes_a_second: 0 }
    }

    /// An entry was agreed on.
    pub(super) fn agreed(&mut self, index: u64, bytes: u64) {
        if self.bound.is_some() {
            self.entries.push_back((index, bytes));
            self.bytes += bytes;
        }
    }

    /// All up to this index is durable.
    pub(super) fn durable(&mut self, through: u64, now: Instant) {
        while let Some((_, bytes)) = self.entries.front().filter(|(index, _)| *index <= through) {
            self.bytes -= bytes;
            self.measured.1 += bytes;
            self.entries.pop_front();
        }
        let (since, bytes) = self.measured;
        let ms = u64::try_from(now.duration_since(since).as_millis()).unwrap_or(u64::MAX);
        if u128::from(ms) >= MEASURED.as_millis() {
            self.bytes_a_second = bytes.saturating_mul(1000) / ms;
            self.measured = (now, 0);
        }
    }

    /// Bytes that are agreed on and not durable.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How fast records are to be taken. Never so slowly that the bound would take longer than a quarter of a minute.
    pub(super) fn pace(&self) -> Pace {
        let Some(bound) = self.bound else { return Pace::Free };
        let pace = self.bytes_a_second.max(bound / 16).max(2);
        match self.bytes {
            bytes if bytes < bound / 8 * 7 => Pace::Free,
            bytes if bytes < bound / 16 * 15 => Pace::Slow(pace),
            _ => Pace::Slow(pace / 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn who_produces_is_slowed_down_to_what_disks_take_before_a_log_has_to_stop() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut lag = Lag::new(Some(32 * MIB), begun);
        for index in 1..=8 {
            lag.agreed(index, 4 * MIB);
        }
        lag.durable(2, after(500));
        assert_eq!((lag.bytes(), lag.pace()), (24 * MIB, Pace::Free));
        lag.durable(2, after(1_000));
        lag.agreed(9, 4 * MIB);
        assert_eq!(lag.pace(), Pace::Slow(8 * MIB), "as fast as it became durable");
        lag.agreed(10, 3 * MIB);
        assert_eq!(lag.pace(), Pace::Slow(4 * MIB));
        // A disk that takes nothing at all is not waited for here for ever: the log does that.
        lag.durable(2, after(2_000));
        assert_eq!(lag.pace(), Pace::Slow(MIB));
        lag.durable(10, after(3_000));
        assert_eq!((lag.bytes(), lag.pace()), (0, Pace::Free));
    }

    #[test]
    fn nobody_is_slowed_down_where_nothing_bounds_what_is_not_durable() {
        let mut lag = Lag::new(None, Instant::now());
        lag.agreed(1, 1 << 40);
        assert_eq!((lag.bytes(), lag.pace()), (0, Pace::Free));
    }
}
