//! [`Budget`]: bytes that the rings of many logs may hold together. A log draws some when it needs them and
//! gives them back when its ring is empty, so that an append that has enough asks nobody.

use std::sync::atomic::Ordering::SeqCst;

use crate::shim::AtomicU64;

/// What a log has in any case.
pub(crate) const GRANT_MIN: u64 = 64 << 10;
/// What it draws at once, at least.
const GRANT_STEP: u64 = 256 << 10;

#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicU64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes) }
    }

    /// Draws at least `wanted` bytes, up to `most`; 0 if there are not so many.
    pub(crate) fn draw(&self, wanted: u64, most: u64) -> u64 {
        let drawn = |left: u64| wanted.max(GRANT_STEP).min(most).min(left);
        let take = |left: u64| (drawn(left) >= wanted).then(|| left - drawn(left));
        self.left.fetch_update(SeqCst, SeqCst, take).map_or(0, drawn)
    }

    /// Gives bytes back that were drawn.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, SeqCst);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_drawn_than_there_is_and_what_is_given_back_is_there_again() {
        let budget = Budget::new(1 << 20);
        assert_eq!(budget.draw(10, 1 << 30), GRANT_STEP, "in steps");
        assert_eq!(budget.draw(10, 100), 100, "but no more than the ring has");
        assert_eq!(budget.draw(900 << 10, 1 << 30), 0, "all or nothing");
        assert_eq!(budget.draw(700 << 10, 1 << 30), 700 << 10);
        budget.give_back(200 << 10);
        assert_eq!(budget.draw(250 << 10, 1 << 30), GRANT_STEP);
    }
}
