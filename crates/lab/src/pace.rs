//! Starts operations at a fixed rate, however long the one before took. Shared by write-during-sync
//! and writeback-stall.
//!
//! An operation that starts late because its predecessor was slow has made somebody wait. So its
//! time is counted from when it *should* have started. Otherwise a stall of a second would count as
//! one slow operation instead of as the hundreds that it delayed (coordinated omission, Tene).

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// The last stretch before a start is spun away, because a sleep overshoots.
const AWAKE: Duration = Duration::from_micros(60);

/// Starts at a fixed rate.
#[derive(Debug)]
pub(crate) struct Pace {
    next: Instant,
    period: Duration,
}

impl Pace {
    /// The first start is at `start`; another follows every `period`.
    #[must_use]
    pub(crate) fn new(start: Instant, period: Duration) -> Self {
        Self { next: start, period }
    }

    /// Waits for the next start, and returns the moment at which it was due.
    #[expect(clippy::disallowed_methods, reason = "the start is a point in time, not a condition")]
    pub(crate) fn wait(&mut self) -> Instant {
        let intended = self.next;
        self.next += self.period;
        let left = intended.saturating_duration_since(Instant::now());
        if left > AWAKE {
            thread::sleep(left - AWAKE);
        }
        while Instant::now() < intended {
            hint::spin_loop();
        }
        intended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_start_does_not_move_the_next_ones() {
        let begun = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let mut pace = Pace::new(begun, Duration::from_millis(100));
        let intended: Vec<_> = (0..5).map(|_| pace.wait().duration_since(begun)).collect();
        assert_eq!(intended, [0, 100, 200, 300, 400].map(Duration::from_millis));
    }

    #[test]
    fn a_start_is_never_early() {
        let mut pace = Pace::new(Instant::now(), Duration::from_micros(300));
        for _ in 0..20 {
            let intended = pace.wait();
            assert!(Instant::now() >= intended);
        }
    }
}
