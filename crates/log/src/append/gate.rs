//! [`Gate`]: whether records are accepted.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::shim::AtomicU64;

/// Whether records are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    Open,
    /// The oldest record that is not durable is too old.
    Overdue,
    OutOfSpace,
    Stopped,
    Closed,
}

/// As a number, as every append looks at it.
#[derive(Debug, Default)]
pub(super) struct AtomicGate(AtomicU64);

impl AtomicGate {
    pub(super) fn get(&self) -> Gate {
        Gate::of(self.0.load(Relaxed))
    }

    pub(super) fn change(&self, mut to: impl FnMut(Gate) -> Option<Gate>) {
        let change = |now| to(Gate::of(now)).map(|gate| gate as u64);
        self.0.fetch_update(SeqCst, SeqCst, change).ok();
    }
}

impl Gate {
    fn of(number: u64) -> Self {
        match number {
            0 => Self::Open,
            1 => Self::Overdue,
            2 => Self::OutOfSpace,
            3 => Self::Stopped,
            _ => Self::Closed,
        }
    }
}
