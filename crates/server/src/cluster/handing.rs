//! [`Handing`]: whether a leadership is being handed over.

use std::sync::atomic::{AtomicU64, Ordering};

/// The term in which a leadership is being handed over; 0: none.
#[derive(Debug, Default)]
pub(super) struct Handing(AtomicU64);

impl Handing {
    pub(super) fn is_in(&self, term: u64) -> bool {
        self.0.load(Ordering::Relaxed) == term
    }

    /// The leadership of this term is handed over as long as what is returned is there.
    pub(super) fn hands(&self, term: u64) -> Hands<'_> {
        self.0.store(term, Ordering::Relaxed);
        Hands(self)
    }
}

#[derive(Debug)]
pub(super) struct Hands<'a>(&'a Handing);

impl Drop for Hands<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Relaxed);
    }
}
