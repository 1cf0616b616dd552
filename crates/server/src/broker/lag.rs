//! [`Lag`]: how far the disks of a majority are behind what is agreed on, in bytes.
//!
//! Each log takes no more than a bound of what is not durable there, and stops whoever appends when it is reached; by three
//! quarters of that at the latest a sync is due. From then on it is seen how fast that becomes durable. Where it takes a quarter of a second or
//! longer, records are taken so fast that the room that is left lasts for it: who produces is slowed down, and told so,
//! before it has to stop. A disk that keeps up slows nobody.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::throttle::Pace;

/// What a sync may take without anybody being slowed down.
const UNSLOWED: Duration = Duration::from_millis(250);
/// How long it is measured at most how much becomes durable.
const MEASURED: Duration = Duration::from_secs(1);

/// Entries that are agreed on and not durable.
#[derive(Debug)]
pub(super) struct Lag {
    /// What a log takes at most; `None`: it takes all.
    bound: Option<u64>,
    /// The index of each, and its bytes.
    entries: VecDeque<(u64, u64)>,
    bytes: u64,
    /// While a sync is due.
    due: Option<Due>,
    /// How fast what was due became durable last; as fast as can be if that is not known.
    bytes_a_second: u64,
}

/// A sync is due.
#[derive(Debug, Clone, Copy)]
struct Due {
    since: Instant,
    /// Bytes that have become durable since, and when some did last.
    durable: u64,
    at: Instant,
}

impl Lag {
    pub(super) fn new(bound: Option<u64>) -> Self {
        let entries = VecDeque::new();
        Self { bound, entries, bytes: 0, due: None, bytes_a_second: u64::MAX }
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
        let before = self.bytes;
        while let Some((_, bytes)) = self.entries.front().filter(|(index, _)| *index <= through) {
            self.bytes -= bytes;
            self.entries.pop_front();
        }
        let is_due = self.bound.is_some_and(|bound| self.bytes >= bound / 4 * 3);
        if let Some(due) = self.due.as_mut().filter(|_| self.bytes < before) {
            due.durable += before - self.bytes;
            due.at = now;
            let waited = now.duration_since(due.since);
            if !is_due || waited >= MEASURED {
                self.bytes_a_second = a_second(due.durable, waited);
                self.due = None;
            }
        }
        if is_due {
            self.due.get_or_insert(Due { since: now, durable: 0, at: now });
        }
    }

    /// Bytes that are agreed on and not durable.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How fast records are to be taken.
    pub(super) fn pace(&self, now: Instant) -> Pace {
        let Some((bound, due)) = self.bound.zip(self.due) else { return Pace::Free };
        // What is not durable yet is no faster than this.
        let so_far = a_second(self.bytes, now.duration_since(due.at));
        let speed = self.bytes_a_second.min(so_far).max(1);
        let takes_ms = self.bytes.saturating_mul(1000) / speed;
        if u128::from(takes_ms) < UNSLOWED.as_millis() {
            return Pace::Free;
        }
        let room = bound.saturating_sub(self.bytes);
        let pace = u128::from(speed) * u128::from(room) / u128::from(self.bytes.max(1));
        Pace::Slow(u64::try_from(pace).unwrap_or(u64::MAX).max(bound / 64).max(1))
    }
}

fn a_second(bytes: u64, within: Duration) -> u64 {
    let ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    bytes.saturating_mul(1000) / ms.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn who_produces_is_slowed_down_so_that_room_lasts_until_the_disk_has_what_is_due() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut lag = Lag::new(Some(32 * MIB));
        for index in 1..=6 {
            lag.agreed(index, 4 * MIB);
        }
        lag.durable(0, begun);
        assert_eq!((lag.bytes(), lag.pace(after(249))), (24 * MIB, Pace::Free));
        // After half a second it is no faster than 48 MiB/s, and a third of what it has may come meanwhile.
        assert_eq!(lag.pace(after(500)), Pace::Slow(16 * MIB));
        lag.agreed(7, 6 * MIB);
        assert_eq!(lag.pace(after(750)), Pace::Slow(40 * MIB / 15));
        // It took 24 MiB in a second. The next sync is known to take as long.
        lag.durable(6, after(1_000));
        assert_eq!((lag.bytes(), lag.pace(after(1_000))), (6 * MIB, Pace::Free));
        lag.agreed(8, 18 * MIB);
        lag.durable(6, after(1_100));
        assert_eq!(lag.pace(after(1_100)), Pace::Slow(8 * MIB));
        // A disk that takes nothing at all: the log stops whoever appends, not this.
        assert_eq!(lag.pace(after(100_000)), Pace::Slow(MIB / 2));
        lag.durable(8, after(100_000));
        assert_eq!((lag.bytes(), lag.pace(after(100_000))), (0, Pace::Free));
    }

    #[test]
    fn a_disk_that_keeps_up_slows_nobody_and_nothing_is_slowed_that_nothing_bounds() {
        let begun = Instant::now();
        let mut lag = Lag::new(Some(32 * MIB));
        for (index, at) in (1..).zip((0..10_000).step_by(100)) {
            let now = begun + Duration::from_millis(at);
            lag.agreed(index, 26 * MIB);
            lag.durable(index - 1, now);
            assert_eq!((lag.bytes(), lag.pace(now)), (26 * MIB, Pace::Free));
        }
        let mut lag = Lag::new(None);
        lag.agreed(1, 1 << 40);
        lag.durable(0, begun);
        assert_eq!((lag.bytes(), lag.pace(begun + MEASURED)), (0, Pace::Free));
    }
}
