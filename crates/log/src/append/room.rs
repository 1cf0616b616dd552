//! [`Room`]: what whoever writes and syncs tells appenders of: how far segments have room, and that there is
//! more of it, or of the ring.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::watermark::Watermark;
use crate::error::{Error, Result};
use crate::shim::{AtomicBool, AtomicU64, Deadline};

/// How long an append waits for room before it looks by itself: whoever opens the gate wakes nobody.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Room {
    /// How often there came to be more, in the ring or in segments, to be waited on.
    mark: Watermark,
    /// Ring position up to which there is certainly room in segments.
    limit: AtomicU64,
    /// Somebody waits, or will try again.
    pressed: AtomicBool,
    /// It is the ring that has none, not the segments.
    is_ring_short: AtomicBool,
}

impl Room {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            mark: Watermark::new("released", 0),
            limit: AtomicU64::new(limit),
            pressed: AtomicBool::new(false),
            is_ring_short: AtomicBool::new(false),
        }
    }

    /// How often there has been more.
    pub(super) fn times(&self) -> u64 {
        self.mark.get()
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(SeqCst)
    }

    pub(super) fn is_pressed(&self) -> bool {
        self.pressed.load(SeqCst)
    }

    pub(super) fn is_ring_short(&self) -> bool {
        self.is_ring_short.load(SeqCst)
    }

    /// Somebody wants more: in the ring, or else in segments.
    pub(super) fn press(&self, in_ring: bool) {
        self.is_ring_short.store(in_ring, SeqCst);
        self.pressed.store(true, SeqCst);
    }

    /// Waits until there is more than when there had been more `seen` times: in the ring, or else in
    /// segments.
    pub(super) fn wait(
        &self,
        seen: u64,
        in_ring: bool,
        make: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        self.press(in_ring);
        if make()? {
            return Ok(());
        }
        match self.mark.wait(seen + 1, 0, Some(&Deadline::after(LOOK))) {
            Ok(()) | Err(Error::TimedOut { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// There is more in the ring.
    pub(super) fn released(&self) {
        self.pressed.store(false, SeqCst);
        self.is_ring_short.store(false, SeqCst);
        self.mark.step();
    }

    /// Whoever waits looks again.
    pub(super) fn look_again(&self) {
        self.mark.step();
    }

    pub(super) fn set_limit(&self, position: u64) {
        self.limit.store(position, SeqCst);
        self.mark.step();
    }

    pub(super) fn raise_limit(&self, by: u64) {
        self.limit.fetch_add(by, SeqCst);
        self.mark.step();
    }

    /// There will be no more.
    pub(super) fn close(&self, error: &Error) {
        self.mark.close(error);
    }
}
