//! [`Recording`]: what a disk was asked for, so that the power can be cut at any point of it; or, where it
//! lives for long, only what a cut now could take.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::event::{End, Event};
use super::platter::Platter;

/// What is kept in memory of an event beside its payload.
pub(super) const EVENT_BYTES: u64 = 64;

/// How much of what is asked of a disk it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// All of it: the power can be cut at any point.
    #[default]
    Everything,
    /// Marks, and the bytes that a power cut now could take: it can be cut at the end.
    Pending,
    /// Nothing: the disk only behaves, for as long as one likes.
    Nothing,
}

/// What was there at first, and what happened since.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) base: Platter,
    pub(super) events: Vec<Event>,
    pub(super) keep: Keep,
    /// Requests that were answered and are not durable yet, where only those are kept: indices of the end
    /// and of the arrival.
    unsettled: VecDeque<(usize, usize)>,
    /// Indices of the arrival of requests that failed, likewise.
    failed: Vec<usize>,
    /// Nothing is forgotten meanwhile.
    pub(super) is_held: bool,
    pub(super) bytes: u64,
    pub(super) limit_bytes: u64,
    /// More was asked for than may be kept.
    pub(super) is_full: bool,
}

impl Recording {
    pub(super) fn new(base: Platter, limit_bytes: u64) -> Self {
        Self {
            base,
            events: Vec::new(),
            keep: Keep::Everything,
            unsettled: VecDeque::new(),
            failed: Vec::new(),
            is_held: false,
            bytes: 0,
            limit_bytes,
            is_full: false,
        }
    }

    pub(super) fn add(&mut self, event: Event) {
        if self.keep == Keep::Nothing {
            return;
        }
        self.bytes += EVENT_BYTES
            + match &event {
                Event::Write { bytes, .. } => bytes.len() as u64,
                Event::Mark(text) => text.len() as u64,
                _ => 0,
            };
        self.events.push(event);
    }

    pub(super) fn has_room(&mut self, bytes: u64) -> bool {
        self.is_full |= self.bytes.saturating_add(bytes) > self.limit_bytes;
        !self.is_full
    }

    /// A request that arrived then has ended.
    pub(super) fn end(&mut self, request: u32, arrived: usize, end: End) {
        self.add(Event::Ended { request, end });
        if self.keep != Keep::Pending {
            return;
        }
        if matches!(end, End::Failed(_)) {
            self.failed.push(arrived);
        } else if end == End::Done {
            match self.events[arrived] {
                Event::Flush if self.is_held => {}
                Event::Flush => self.settle(arrived),
                _ => self.unsettled.push_back((self.events.len() - 1, arrived)),
            }
        }
    }

    /// A flush that arrived then was answered: what it covers was always there. The same rule, and the same
    /// order, as in [`super::Timeline`].
    fn settle(&mut self, flush_arrived: usize) {
        let covered = self.unsettled.iter().take_while(|(ended, _)| *ended < flush_arrived);
        let count = covered.count();
        let mut covered: Vec<usize> =
            self.unsettled.drain(..count).map(|(_, arrived)| arrived).collect();
        covered.sort_unstable();
        for index in covered {
            self.replace_failed(index);
            match &mut self.events[index] {
                Event::Write { byte_offset, bytes } => {
                    let bytes = std::mem::replace(bytes, Arc::from([]));
                    self.base.write(*byte_offset, &bytes);
                    self.bytes -= bytes.len() as u64;
                }
                Event::Discard { byte_offset, byte_count } => {
                    self.base.discard(*byte_offset, std::mem::take(byte_count));
                }
                Event::Flush | Event::Ended { .. } | Event::Mark(_) => {}
            }
        }
    }

    /// What arrived then is durable, so what failed there before is nowhere any more.
    fn replace_failed(&mut self, index: usize) {
        let Some(durable) = place(&self.events[index]) else { return };
        let (events, kept_bytes) = (&mut self.events, &mut self.bytes);
        self.failed.retain(|&earlier| {
            let there = place(&events[earlier]);
            let is_replaced =
                earlier < index && there.is_some_and(|there| overlap(&there, &durable));
            if is_replaced {
                match &mut events[earlier] {
                    Event::Write { bytes, .. } => {
                        *kept_bytes -= bytes.len() as u64;
                        *bytes = Arc::from([]);
                    }
                    Event::Discard { byte_count, .. } => *byte_count = 0,
                    Event::Flush | Event::Ended { .. } | Event::Mark(_) => {}
                }
            }
            !is_replaced
        });
    }
}

/// What a write or a discard is about.
fn place(event: &Event) -> Option<Range<u64>> {
    let (start, bytes) = match event {
        Event::Write { byte_offset, bytes } => (*byte_offset, bytes.len() as u64),
        Event::Discard { byte_offset, byte_count } => (*byte_offset, *byte_count),
        Event::Flush | Event::Ended { .. } | Event::Mark(_) => return None,
    };
    Some(start..start.saturating_add(bytes))
}

pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
