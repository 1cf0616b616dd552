//! [`Tail`]: what appenders change, one at a time; and the queue of those that wait for room.

use std::collections::VecDeque;
use std::sync::Arc;

use super::grant::Grant;
use super::ring::Ring;
use crate::crew::budget::Budget;

/// What appenders change, one at a time.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(super) next_index: u64,
    pub(super) position: u64,
    /// The ring's released position when it was last asked for.
    pub(super) released: u64,
    pub(super) grant: Grant,
    /// Bytes of the largest batch since the ring was last seen empty. One of that size may not fit where a
    /// segment ends, and leave as much of it unused.
    pub(super) largest: u64,
    /// Appends that wait for room, in the order in which they came: ticket and bytes.
    queue: VecDeque<(u64, u64)>,
    next_ticket: u64,
    pub(super) records: u64,
    pub(super) payload_bytes: u64,
}

impl Tail {
    /// Of a ring that is empty, or holds what was found in it.
    pub(super) fn new(
        ring: &Ring,
        next_index: u64,
        max_batch_bytes: u64,
        budget: Option<Arc<Budget>>,
    ) -> Self {
        Self {
            next_index,
            position: ring.filled(),
            released: ring.released(),
            grant: Grant::new(ring, budget),
            largest: if ring.filled() == ring.released() { 0 } else { max_batch_bytes },
            queue: VecDeque::new(),
            next_ticket: 0,
            records: 0,
            payload_bytes: 0,
        }
    }

    /// Enters the queue, behind all who wait.
    pub(super) fn queue_up(&mut self, bytes: u64) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queue.push_back((ticket, bytes));
        ticket
    }

    /// Leaves the queue. Whether others wait.
    pub(super) fn leave(&mut self, ticket: u64) -> bool {
        self.queue.retain(|waiter| waiter.0 != ticket);
        !self.queue.is_empty()
    }

    /// Bytes of those who came before.
    pub(super) fn ahead_of(&self, ticket: u64) -> u64 {
        self.queue.iter().take_while(|waiter| waiter.0 != ticket).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of all who wait.
    #[inline]
    pub(super) fn queued_bytes(&self) -> u64 {
        if self.queue.is_empty() { 0 } else { self.queue.iter().map(|(_, bytes)| bytes).sum() }
    }
}
