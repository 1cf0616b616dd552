//! Which writes overlapped a sync, and which syncs held a write up. Pure.

use std::time::{Duration, Instant};

/// When something began and when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Its start.
    pub(super) start: Instant,
    /// Its end.
    pub(super) end: Instant,
}

impl Span {
    /// How long it took.
    #[must_use]
    pub(super) fn duration(&self) -> Duration {
        self.end - self.start
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// For each write, the first sync that it overlapped, if any. Both lists are in order of time, and
/// the spans of each list do not overlap one another.
#[must_use]
pub(super) fn overlapped(writes: &[Span], syncs: &[Span]) -> Vec<Option<usize>> {
    let mut sync = 0;
    writes
        .iter()
        .map(|write| {
            while syncs.get(sync).is_some_and(|s| s.end <= write.start) {
                sync += 1;
            }
            syncs.get(sync).is_some_and(|s| s.overlaps(write)).then_some(sync)
        })
        .collect()
}

/// For each sync, whether a write that overlapped it took at least `slow`.
#[must_use]
pub(super) fn held(writes: &[Span], syncs: &[Span], slow: Duration) -> Vec<bool> {
    let mut held = vec![false; syncs.len()];
    for (write, sync) in writes.iter().zip(overlapped(writes, syncs)) {
        if let Some(sync) = sync.filter(|_| write.duration() >= slow) {
            held[sync] = true;
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(times: &[(u64, u64)]) -> Vec<Span> {
        use std::sync::OnceLock;
        static ZERO: OnceLock<Instant> = OnceLock::new();
        let zero = *ZERO.get_or_init(Instant::now);
        let at = |us| zero + Duration::from_micros(us);
        times.iter().map(|&(start, end)| Span { start: at(start), end: at(end) }).collect()
    }

    #[test]
    fn a_write_overlaps_the_sync_that_ran_meanwhile() {
        let syncs = spans(&[(100, 200), (300, 400)]);
        let writes = spans(&[(0, 50), (90, 110), (150, 160), (200, 300), (399, 500), (600, 601)]);
        let expected = [None, Some(0), Some(0), None, Some(1), None];
        assert_eq!(overlapped(&writes, &syncs), expected);
    }

    #[test]
    fn a_write_that_spans_two_syncs_overlaps_the_first() {
        let syncs = spans(&[(100, 200), (300, 400)]);
        assert_eq!(overlapped(&spans(&[(150, 350), (360, 370)]), &syncs), [Some(0), Some(1)]);
    }

    #[test]
    fn without_syncs_nothing_overlaps() {
        assert_eq!(overlapped(&spans(&[(0, 1)]), &[]), [None]);
        assert!(held(&spans(&[(0, 1000)]), &[], Duration::ZERO).is_empty());
    }

    #[test]
    fn a_sync_is_held_against_only_if_a_write_was_slow() {
        let syncs = spans(&[(100, 200), (300, 400), (500, 600)]);
        let writes = spans(&[(110, 190), (310, 311), (700, 900)]);
        assert_eq!(held(&writes, &syncs, Duration::from_micros(50)), [true, false, false]);
    }
}
