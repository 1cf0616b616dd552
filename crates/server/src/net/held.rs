//! [`Held`]: for how long a request was not read on, because its memory would be over a bound.

use std::time::{Duration, Instant};

/// For how long the request that is being received was held.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Since when it is held.
    since: Option<Instant>,
    /// For how long it was held before that.
    before: Duration,
}

impl Held {
    /// From now on it is held, or is not. The clock is looked at only where that changes.
    pub(super) fn note(&mut self, is_held: bool, now: impl FnOnce() -> Instant) {
        match self.since {
            None if is_held => self.since = Some(now()),
            Some(since) if !is_held => {
                self.before += now() - since;
                self.since = None;
            }
            _ => {}
        }
    }

    /// It is held no more, and was received: for how many milliseconds it was held. The next one was not
    /// held yet.
    pub(super) fn take_ms(&mut self, now: impl FnOnce() -> Instant) -> i32 {
        self.note(false, now);
        let held = std::mem::take(&mut self.before);
        i32::try_from(held.as_millis()).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_was_held_for_as_long_as_it_was_and_the_next_one_was_not() {
        let begin = Instant::now();
        let at = |ms| move || begin + Duration::from_millis(ms);
        let mut held = Held::default();
        held.note(false, at(0));
        held.note(true, at(10));
        held.note(true, at(20));
        held.note(false, at(40));
        held.note(false, at(90));
        held.note(true, at(100));
        assert_eq!(held.take_ms(at(105)), 35, "30 ms, and 5 more");
        assert_eq!(held.take_ms(at(200)), 0);
    }
}
