//! When each write became durable.
//!
//! The rule is that of dm-log-writes: a write is durable when its completion precedes the arrival of
//! a flush that completed. A flush that fails, or that the disk only pretended to do, makes nothing
//! durable. A write that failed was not stored; one that the disk lied about never will be.
//!
//! A *point* is a number of events: at point 7 the first seven have happened and nothing else.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::{End, Event};

/// Requests that are looked over at once.
const BLOCK: usize = 256;
/// What a discard takes of a cache: it brings no bytes, only its own place and length.
const DISCARD_BYTES: u64 = 512;

/// What is believed of the disk beyond what it recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Belief {
    /// Flushes do nothing, whatever they answered: a lying disk.
    pub flushes_lie: bool,
    /// The write cache holds so many bytes, and what it has no room for is on the medium, oldest
    /// first. Without a limit nothing is there before a flush.
    pub cache_bytes: Option<u64>,
}

/// A write, discard or flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The index of its arrival among the events.
    pub arrived: usize,
    /// The index of its end, and how it ended.
    pub ended: Option<(usize, End)>,
    /// The index of the event that made it durable.
    pub durable: Option<usize>,
    /// Whether it is a flush.
    pub is_flush: bool,
    /// Bytes written or discarded.
    pub bytes: u64,
    /// What it takes of a write cache.
    cached_bytes: u64,
}

impl Request {
    /// Whether its bytes may or may not survive a power cut at that point.
    #[must_use]
    pub fn is_pending(&self, point: usize) -> bool {
        let reached = !matches!(self.ended, Some((_, End::Failed(_) | End::Lied)));
        !self.is_flush && reached && self.arrived < point && !self.is_durable(point)
    }

    /// Whether it survives every power cut at that point.
    #[must_use]
    pub fn is_durable(&self, point: usize) -> bool {
        self.durable.is_some_and(|durable| durable < point)
    }
}

/// All requests of a recording, and when each became durable.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    belief: Belief,
    requests: Vec<Request>,
    /// Requests that became durable, in the order in which they did.
    durable: Vec<(usize, u32)>,
    /// Index of the event and text of each mark.
    marks: Vec<(usize, Arc<str>)>,
    /// Index of the completion of each flush that worked, and of each that was answered at all.
    flushes: Vec<usize>,
    /// For each block of requests the last point at which one of them is pending.
    last_pending: Vec<usize>,
}

impl Timeline {
    /// Reads the events once.
    #[must_use]
    pub fn of(events: &[Event], belief: Belief) -> Self {
        let mut timeline = Self { belief, ..Self::default() };
        let mut cache = Cache { bytes: 0, limit: belief.cache_bytes, writes: VecDeque::new() };
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Write { bytes, .. } => {
                    timeline.arrive(index, bytes.len() as u64, bytes.len() as u64);
                }
                Event::Discard { byte_count, .. } => {
                    timeline.arrive(index, *byte_count, DISCARD_BYTES);
                }
                Event::Flush => {
                    timeline.arrive(index, 0, 0);
                    timeline.requests.last_mut().expect("just arrived").is_flush = true;
                }
                Event::Mark(text) => timeline.marks.push((index, Arc::clone(text))),
                Event::Ended { request, end } => {
                    timeline.end(index, *request, *end, belief, &mut cache);
                }
            }
        }
        let last = |request: &Request| match request.ended {
            _ if request.is_flush => 0,
            Some((_, End::Failed(_) | End::Lied)) => 0,
            _ => request.durable.unwrap_or(usize::MAX),
        };
        let blocks = timeline.requests.chunks(BLOCK);
        timeline.last_pending =
            blocks.map(|block| block.iter().map(last).max().unwrap_or(0)).collect();
        timeline
    }

    fn arrive(&mut self, arrived: usize, bytes: u64, cached_bytes: u64) {
        let (ended, durable, is_flush) = (None, None, false);
        self.requests.push(Request { arrived, ended, durable, is_flush, bytes, cached_bytes });
    }

    fn end(&mut self, index: usize, number: u32, end: End, belief: Belief, cache: &mut Cache) {
        let request = &mut self.requests[number as usize];
        request.ended = Some((index, end));
        let Request { arrived, is_flush, cached_bytes, .. } = *request;
        if is_flush {
            self.flushes.push(index);
            if end == End::Done && !belief.flushes_lie {
                let covered = |&(ended, _): &(usize, u32)| ended < arrived;
                let count = cache.writes.iter().take_while(|write| covered(write)).count();
                let mut covered: Vec<u32> =
                    cache.writes.drain(..count).map(|(_, number)| number).collect();
                covered.sort_unstable();
                for number in covered {
                    cache.bytes -= self.requests[number as usize].cached_bytes;
                    self.settle(number, index);
                }
            }
        } else if end == End::Done {
            cache.writes.push_back((index, number));
            cache.bytes += cached_bytes;
            while cache.limit.is_some_and(|limit| cache.bytes > limit)
                && let Some((_, oldest)) = cache.writes.pop_front()
            {
                cache.bytes -= self.requests[oldest as usize].cached_bytes;
                self.settle(oldest, index);
            }
        }
    }

    fn settle(&mut self, number: u32, index: usize) {
        self.requests[number as usize].durable = Some(index);
        self.durable.push((index, number));
    }

    /// What was believed of the disk.
    #[must_use]
    pub fn belief(&self) -> Belief {
        self.belief
    }

    /// All requests, by number.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// What became durable, and through which event, in order.
    #[must_use]
    pub fn durable(&self) -> &[(usize, u32)] {
        &self.durable
    }

    /// Where flushes were answered: indexes of events.
    #[must_use]
    pub fn flushes(&self) -> &[usize] {
        &self.flushes
    }

    /// What may or may not survive a power cut at that point: numbers of requests, as they arrived.
    #[must_use]
    pub fn pending(&self, point: usize) -> Vec<u32> {
        let arrived = self.requests.partition_point(|request| request.arrived < point);
        let mut pending = Vec::new();
        // Most blocks are durable as a whole, and there are as many points as requests.
        for (block, &last) in self.last_pending[..arrived.div_ceil(BLOCK)].iter().enumerate() {
            if last >= point {
                let numbers = block * BLOCK..((block + 1) * BLOCK).min(arrived);
                let is_pending = |&number: &usize| self.requests[number].is_pending(point);
                pending.extend(numbers.filter(is_pending).map(to_number));
            }
        }
        pending
    }

    /// The marks that were there at that point.
    #[must_use]
    pub fn marks(&self, point: usize) -> &[(usize, Arc<str>)] {
        let there = self.marks.partition_point(|(index, _)| *index < point);
        &self.marks[..there]
    }
}

fn to_number(index: usize) -> u32 {
    u32::try_from(index).expect("the device numbers requests so")
}

/// Completed writes that no flush covers yet, as they completed.
struct Cache {
    bytes: u64,
    limit: Option<u64>,
    writes: VecDeque<(usize, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(byte_offset: u64) -> Event {
        Event::Write { byte_offset, bytes: Arc::from([7; 512]) }
    }

    fn ended(request: u32, end: End) -> Event {
        Event::Ended { request, end }
    }

    fn durable_at(events: &[Event], belief: Belief) -> Vec<Option<usize>> {
        let timeline = Timeline::of(events, belief);
        timeline.requests().iter().filter(|r| !r.is_flush).map(|r| r.durable).collect()
    }

    #[test]
    fn a_write_that_completes_after_a_flush_arrived_is_not_covered_by_it() {
        let events = [
            write(0),
            write(512),
            ended(0, End::Done),
            Event::Flush,
            ended(1, End::Done),
            ended(2, End::Done),
        ];
        assert_eq!(durable_at(&events, Belief::default()), [Some(5), None]);
        let timeline = Timeline::of(&events, Belief::default());
        assert_eq!(timeline.pending(5), [0, 1], "until the flush is answered, both may be lost");
        assert_eq!(timeline.pending(6), [1]);
    }

    #[test]
    fn a_flush_that_fails_or_is_dropped_makes_nothing_durable() {
        for end in [End::Failed(super::super::Errno::Eio), End::Lied] {
            let events = [write(0), ended(0, End::Done), Event::Flush, ended(1, end)];
            assert_eq!(durable_at(&events, Belief::default()), [None]);
        }
        let honest = [write(0), ended(0, End::Done), Event::Flush, ended(1, End::Done)];
        assert_eq!(durable_at(&honest, Belief::default()), [Some(3)]);
        let lying = Belief { flushes_lie: true, ..Belief::default() };
        assert_eq!(durable_at(&honest, lying), [None]);
    }

    #[test]
    fn a_write_that_failed_or_was_lost_cannot_survive() {
        let eio = End::Failed(super::super::Errno::Eio);
        let events = [write(0), ended(0, eio), write(0), ended(1, End::Lied)];
        let timeline = Timeline::of(&events, Belief::default());
        assert!(timeline.pending(4).is_empty());
    }

    #[test]
    fn what_a_small_cache_has_no_room_for_is_on_the_medium() {
        let events = [write(0), ended(0, End::Done), write(512), ended(1, End::Done)];
        let cached = |bytes| Belief { cache_bytes: Some(bytes), ..Belief::default() };
        assert_eq!(durable_at(&events, cached(1024)), [None, None]);
        assert_eq!(durable_at(&events, cached(512)), [Some(3), None]);
        assert_eq!(durable_at(&events, cached(0)), [Some(1), Some(3)]);
    }

    #[test]
    fn a_discard_of_the_whole_disk_does_not_push_writes_out_of_a_small_cache() {
        let discard = Event::Discard { byte_offset: 0, byte_count: 1 << 45 };
        let events = [write(0), ended(0, End::Done), discard, ended(1, End::Done)];
        let cached = |bytes| Belief { cache_bytes: Some(bytes), ..Belief::default() };
        assert_eq!(durable_at(&events, cached(1024)), [None, None]);
        assert_eq!(durable_at(&events, cached(0)), [Some(1), Some(3)], "write-through");
        // Sizes of many add up to more than a number holds.
        let events: Vec<Event> = (0..1 << 20)
            .flat_map(|request| {
                [Event::Discard { byte_offset: 0, byte_count: 1 << 45 }, ended(request, End::Done)]
            })
            .collect();
        assert_eq!(durable_at(&events, cached(1024)).iter().flatten().count(), (1 << 20) - 2);
    }

    #[test]
    fn what_is_pending_is_found_without_looking_at_every_request() {
        // Some are never flushed, some fail, and the rest becomes durable piece by piece.
        let mut events = Vec::new();
        for request in (0..4000_u32).step_by(4) {
            events.extend([write(0), write(512), write(1024)]);
            events.push(ended(request, End::Done));
            events.push(if request % 100 == 0 { write(0) } else { Event::Flush });
            if request % 7 == 0 {
                events.push(ended(request + 1, End::Failed(super::super::Errno::Eio)));
            }
            events.push(ended(request + 3, End::Done));
        }
        for belief in [Belief::default(), Belief { cache_bytes: Some(2048), ..Belief::default() }] {
            let timeline = Timeline::of(&events, belief);
            for point in (0..=events.len()).step_by(97) {
                let all = timeline.requests().iter().zip(0..);
                let pending = all.filter(|(request, _)| request.is_pending(point));
                assert_eq!(timeline.pending(point), pending.map(|(_, n)| n).collect::<Vec<_>>());
            }
        }
    }
}
