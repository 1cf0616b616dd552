//! [`Budget`]: bytes that the rings of many logs may hold together. A log draws some when it needs them and
//! gives them back when its ring is empty, so that an append that has enough asks nobody.

use std::fmt;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};

use crate::shim::{AtomicBool, AtomicU64, Mutex, lock};

/// What a log has in any case.
pub(crate) const GRANT_MIN: u64 = 64 << 10;
/// What it draws at once, at least.
const GRANT_STEP: u64 = 256 << 10;

pub(crate) struct Budget {
    all: u64,
    left: AtomicU64,
    /// Somebody found too little since the holders were asked.
    is_short: AtomicBool,
    holders: Mutex<Vec<Weak<dyn Holder>>>,
}

/// A log that may hold some of it.
pub(crate) trait Holder: Send + Sync {
    /// Others want it: what is held is made durable.
    fn press(&self);
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            all: bytes,
            left: AtomicU64::new(bytes),
            is_short: AtomicBool::new(false),
            holders: Mutex::default(),
        }
    }

    /// From here on a log is asked to give back what it holds, when others want it.
    pub(crate) fn enter(&self, holder: Weak<dyn Holder>) {
        let mut holders = lock(&self.holders);
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
    }

    /// Asks those who hold some for it, if somebody found too little.
    pub(crate) fn press(&self) {
        if !self.is_short.swap(false, SeqCst) {
            return;
        }
        let holders: Vec<Arc<dyn Holder>> =
            lock(&self.holders).iter().filter_map(Weak::upgrade).collect();
        holders.iter().for_each(|holder| holder.press());
    }

    /// The most that one log can ever have.
    pub(crate) fn most(&self) -> u64 {
        self.all.saturating_add(GRANT_MIN)
    }

    /// Draws at least `wanted` bytes, up to `most`; 0 if there are not so many.
    pub(crate) fn draw(&self, wanted: u64, most: u64) -> u64 {
        let drawn = |left: u64| wanted.max(GRANT_STEP).min(most).min(left);
        let take = |left: u64| (drawn(left) >= wanted).then(|| left - drawn(left));
        let drew = self.left.fetch_update(SeqCst, SeqCst, take).map_or(0, drawn);
        if drew == 0 {
            self.is_short.store(true, SeqCst);
        }
        drew
    }

    /// Gives bytes back that were drawn.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, SeqCst);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} of {} left)", self.left.load(SeqCst), self.all)
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
