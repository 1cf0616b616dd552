//! When each write became durable.
//!
//! The rule is that of dm-log-writes: a write is durable when its completion precedes the arrival of
//! a flush that completed. A flush that fails, or that the disk only pretended to do, makes nothing
//! durable. A write that the disk lied about never will be.
//!
//! Of a write or discard that *failed* nothing is known: reads do not show it, no flush makes it durable,
//! and any of it may be there after a power cut, until something that was written there later is durable.
//! It is then gone as a whole, also where only a part of it was written over.
//!
//! A *point* is a number of events: at point 7 the first seven have happened and nothing else.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
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
    /// Of one that failed: the index of the event that made durable what was written there later.
    pub replaced: Option<usize>,
    /// Whether it is a flush.
    pub is_flush: bool,
    /// Where they go.
    pub byte_offset: u64,
    /// Bytes written or discarded.
    pub bytes: u64,
    /// What it takes of a write cache.
    cached_bytes: u64,
}

impl Request {
    /// Whether its bytes may or may not survive a power cut at that point.
    #[must_use]
    pub fn is_pending(&self, point: usize) -> bool {
        let may_be_there = self.bytes > 0 && !matches!(self.ended, Some((_, End::Lied)));
        let is_replaced = self.replaced.is_some_and(|replaced| replaced < point);
        may_be_there && self.arrived < point && !self.is_durable(point) && !is_replaced
    }

    /// The points at which it is pending, of a recording of so many events.
    pub(super) fn pending_points(&self, events: usize) -> RangeInclusive<usize> {
        if self.bytes == 0 || matches!(self.ended, Some((_, End::Lied))) {
            return RangeInclusive::new(1, 0);
        }
        self.arrived + 1..=self.durable.or(self.replaced).unwrap_or(events)
    }

    /// Whether it is refused: reads show nothing of it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.ended, Some((_, End::Failed(_))))
    }

    fn place(&self) -> Range<u64> {
        self.byte_offset..self.byte_offset.saturating_add(self.bytes)
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
        let mut cache = Cache {
            bytes: 0,
            limit: belief.cache_bytes,
            writes: VecDeque::new(),
            failed: Vec::new(),
        };
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Write { byte_offset, bytes } => {
                    let bytes = bytes.len() as u64;
                    timeline.arrive(index, *byte_offset, bytes, bytes);
                }
                Event::Discard { byte_offset, byte_count } => {
                    timeline.arrive(index, *byte_offset, *byte_count, DISCARD_BYTES);
                }
                Event::Flush => {
                    timeline.arrive(index, 0, 0, 0);
                    timeline.requests.last_mut().expect("just arrived").is_flush = true;
                }
                Event::Mark(text) => timeline.marks.push((index, Arc::clone(text))),
                Event::Ended { request, end } => {
                    timeline.end(index, *request, *end, belief, &mut cache);
                }
            }
        }
        let last = |request: &Request| match request.ended {
            _ if request.bytes == 0 => 0,
            Some((_, End::Lied)) => 0,
            _ => request.durable.or(request.replaced).unwrap_or(usize::MAX),
        };
        let blocks = timeline.requests.chunks(BLOCK);
        timeline.last_pending =
            blocks.map(|block| block.iter().map(last).max().unwrap_or(0)).collect();
        timeline
    }

    fn arrive(&mut self, arrived: usize, byte_offset: u64, bytes: u64, cached_bytes: u64) {
        self.requests.push(Request {
            arrived,
            ended: None,
            durable: None,
            replaced: None,
            is_flush: false,
            byte_offset,
            bytes,
            cached_bytes,
        });
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
                    self.settle(number, index, &mut cache.failed);
                }
            }
        } else if matches!(end, End::Failed(_)) {
            cache.failed.push(number);
        } else if end == End::Done {
            cache.writes.push_back((index, number));
            cache.bytes += cached_bytes;
            while cache.limit.is_some_and(|limit| cache.bytes > limit)
                && let Some((_, oldest)) = cache.writes.pop_front()
            {
                cache.bytes -= self.requests[oldest as usize].cached_bytes;
                self.settle(oldest, index, &mut cache.failed);
            }
        }
    }

    /// A request is durable, and in the place of those before it that failed there.
    fn settle(&mut self, number: u32, index: usize, failed: &mut Vec<u32>) {
        self.requests[number as usize].durable = Some(index);
        self.durable.push((index, number));
        let place = self.requests[number as usize].place();
        failed.retain(|&earlier| {
            let request = &mut self.requests[earlier as usize];
            let there = request.place();
            let is_replaced =
                earlier < number && there.start < place.end && place.start < there.end;
            if is_replaced {
                request.replaced = Some(index);
            }
            !is_replaced
        });
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

/// What is not settled.
struct Cache {
    bytes: u64,
    limit: Option<u64>,
    /// Completed writes that no flush covers yet, as they completed.
    writes: VecDeque<(usize, u32)>,
    /// Requests that failed where nothing is durable that came later.
    failed: Vec<u32>,
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
    fn a_write_that_was_lost_cannot_survive() {
        let events = [write(0), ended(0, End::Lied)];
        assert!(Timeline::of(&events, Belief::default()).pending(2).is_empty());
    }

    /// It was believed to have stored nothing, so every power cut left what was there before.
    #[test]
    fn a_write_that_failed_may_survive_until_what_was_written_there_later_is_durable() {
        let eio = End::Failed(super::super::Errno::Eio);
        let (earlier, failed, later) = (0, 1, 4);
        let events = [
            write(512),
            write(0),
            ended(earlier, End::Done),
            ended(failed, eio),
            Event::Flush,
            ended(2, End::Done),
            // Beside it, and then over it.
            write(512),
            ended(3, End::Done),
            write(0),
            ended(later, End::Done),
            Event::Flush,
            ended(5, End::Done),
        ];
        let timeline = Timeline::of(&events, Belief::default());
        assert_eq!(timeline.pending(2), [earlier, failed]);
        assert_eq!(timeline.pending(6), [failed], "no flush decides it");
        assert_eq!(timeline.pending(11), [failed, 3, later]);
        assert!(timeline.pending(12).is_empty());
        let refused = [Event::Write { byte_offset: 0, bytes: Arc::from([]) }, ended(0, eio)];
        assert!(Timeline::of(&refused, Belief::default()).pending(2).is_empty());
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
