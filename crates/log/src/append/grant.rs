//! [`Grant`]: how much of its ring a log may use, and what it gives back.
//!
//! A log by itself has all of it. In a crew it draws what it needs from a [`Budget`], and gives the bytes
//! back, and their memory to the system, once the ring is empty and much of it was used.

use std::sync::Arc;

use super::ring::Ring;
use crate::crew::budget::{Budget, GRANT_MIN};

/// A ring of which less was used keeps its memory.
const RESTED_BYTES: u64 = 64 << 10;
/// So much of it is given back at once, so that no append waits for long.
const PIECE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Grant {
    pub(super) bytes: u64,
    /// Of them it keeps so many in any case.
    kept: u64,
    capacity: u64,
    /// Where the ring was when its memory was given back.
    rested_at: u64,
    budget: Option<Arc<Budget>>,
}

impl Grant {
    /// All of a ring; or a little of it, and what it holds already, if the rest comes from a budget.
    pub(super) fn new(ring: &Ring, budget: Option<Arc<Budget>>) -> Self {
        let capacity = ring.capacity();
        let rested_at = ring.released();
        let kept = match budget {
            None => capacity,
            Some(_) => (ring.filled() - rested_at).max(GRANT_MIN).min(capacity),
        };
        Self { bytes: kept, kept, capacity, rested_at, budget }
    }

    /// Draws what is wanted of the ring, if it is not granted already.
    pub(super) fn draw(&mut self, wanted: u64) {
        if let Some(budget) = &self.budget
            && (self.bytes + 1..=self.capacity).contains(&wanted)
        {
            self.bytes += budget.draw(wanted - self.bytes, self.capacity - self.bytes);
        }
    }

    /// Gives back a piece of the memory of a ring that is empty at `position`. Whether there is more.
    pub(super) fn rest(&mut self, ring: &Ring, position: u64) -> bool {
        let used = position - self.rested_at;
        if !ring.is_own() || used < RESTED_BYTES {
            self.give_back();
            return false;
        }
        // What was used more than once around is given back once.
        let from = self.rested_at + used.saturating_sub(self.capacity);
        let to = (from + PIECE_BYTES).min(position);
        ring.give_back(from, to);
        self.rested_at = to;
        if to == position {
            self.give_back();
        }
        to < position
    }

    /// Gives back what was drawn.
    fn give_back(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give_back(self.bytes - self.kept);
            self.bytes = self.kept;
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.give_back();
    }
}
