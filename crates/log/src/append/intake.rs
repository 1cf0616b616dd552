//! [`Intake`]: accepts records. An append waits here for room and for its turn, and for nothing else.
//!
//! ```text
//!   append ──► gate open? ──► room, in turn? ──► ring ──► appended
//!                 │                │ no
//!                 │ closed         ▼
//!                 ▼             the queue: first come, first served
//!               error
//! ```
//!
//! Room is free in the ring once the records in it are durable, and in segments as far as they are known
//! to hold what the ring does: an accepted record always has its place on the disk.
//!
//! Invariant: what is accepted is never more than the ring and the segments that are ready can take.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_sync::Process;

use super::gate::{AtomicGate, Gate};
use super::marks::{Apart, Marks};
use super::ring::Ring;
use super::room::Room;
use super::tail::Tail;
use crate::clock::Clock;
use crate::crew::budget::Budget;
use crate::error::{Error, Result};
use crate::segment::format::{BATCH_RECORDS_MAX, FRAME_BYTES, Frame, INDEX_END, Kind, frame_bytes};
use crate::shim::{Mutex, Rank, Ranked, RankedGuard, lock};

/// One append in so many is timed.
const TIMED: u64 = 64;

#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) ring: Ring,
    pub(crate) marks: Arc<Marks>,
    clock: Clock,
    limits: Limits,
    tail: Apart<Ranked<Tail>>,
    gate: AtomicGate,
    room: Apart<Room>,
    /// Who opened the log.
    pub(crate) owner: Process,
    stopped: Mutex<Option<Error>>,
}

/// How much is accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The most that one append may put into the ring.
    pub(crate) batch_bytes: u64,
    /// The most that may be in the ring, but for a batch that is larger by itself.
    pub(crate) held_bytes: u64,
}

/// A record that is to be accepted: its payload, in pieces that lie one behind the other, and the hash
/// of all of it, which is worked out before any lock is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) pieces: &'a [&'a [u8]],
    pub(crate) bytes: usize,
    pub(crate) hash: u64,
}

/// What became of an append that was accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    /// The last of its records.
    pub(crate) index: u64,
    /// How often records had been cut off by then: whoever waits for it is told of the next cut.
    pub(crate) cuts: u64,
}

/// How long an append took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) took: Duration,
    /// How long it waited for room, if it did.
    pub(crate) stalled: Option<Duration>,
}

/// What an append does when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Wait,
    Refuse,
}

/// How much was appended since the log was opened, and is held in the ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    pub(crate) records: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) ring_bytes: u64,
}

/// While somebody has this, nothing is accepted.
#[derive(Debug)]
pub(crate) struct Quiet<'a> {
    intake: &'a Intake,
    tail: RankedGuard<'a, Tail>,
}

impl Intake {
    /// A ring that is empty, or holds what was found in it. In a crew what it holds is drawn from a budget.
    pub(crate) fn new(
        ring: Ring,
        marks: Arc<Marks>,
        clock: Clock,
        limits: Limits,
        budget: Option<Arc<Budget>>,
    ) -> Self {
        let tail = Tail::new(&ring, marks.appended.get() + 1, limits.batch_bytes, budget);
        Self {
            room: Apart(Room::new(ring.filled())),
            ring,
            marks,
            clock,
            limits,
            tail: Apart(Ranked::new(Rank::Tail, tail)),
            gate: AtomicGate::default(),
            owner: Process::this(),
            stopped: Mutex::new(None),
        }
    }

    /// Accepts records, all or none. Where there is no room `make_room` makes some and says so, or asks
    /// others to; it is told how large a segment must be that has room for the batch, 0 if there is one.
    /// Where the append does not wait, `ask` is told the same. `timing` is set for one append in some, and
    /// for all that waited for room.
    pub(crate) fn accept(
        &self,
        records: &[Incoming<'_>],
        full: Full,
        make_room: &dyn Fn(u64) -> Result<bool>,
        ask: &dyn Fn(u64),
        timing: &mut Option<Timing>,
    ) -> Result<Accepted> {
        self.check_owner()?;
        let bytes: u64 = records.iter().map(|record| frame_bytes(record.bytes) as u64).sum();
        let max_bytes = self.limits.batch_bytes;
        if bytes > max_bytes || records.len() >= BATCH_RECORDS_MAX {
            return Err(Error::TooLarge { bytes, max_bytes });
        }
        let mut tail = self.tail.lock();
        let begun = tail.next_index.is_multiple_of(TIMED).then(|| self.clock.now());
        let mut stalled = None;
        let queued = tail.queued_bytes();
        if !(self.gate.get() == Gate::Open && self.has_room(&mut tail, queued, bytes)) {
            stalled = Some(self.clock.now());
            tail = self.wait_for_turn(tail, bytes, full, make_room, ask)?;
        }
        if records.len() as u64 > INDEX_END - tail.next_index {
            return Err(Error::Exhausted { last_index: tail.next_index - 1 });
        }
        self.put(&mut tail, records);
        tail.largest = tail.largest.max(bytes);
        let index = tail.next_index - 1;
        // First the mark, so that `written` never comes before it. Nobody waits for this one.
        self.marks.appended.set(index);
        self.ring.publish(tail.position);
        let cuts = self.marks.cuts();
        drop(tail);
        if let Some(begun) = begun.or(stalled) {
            *timing = Some(self.timing(begun, stalled));
        }
        Ok(Accepted { index, cuts })
    }

    #[cold]
    fn timing(&self, begun: Duration, stalled: Option<Duration>) -> Timing {
        let now = self.clock.now();
        let since = |then: Duration| now.saturating_sub(then);
        Timing { took: since(begun), stalled: stalled.map(since) }
    }

    fn put(&self, tail: &mut Tail, records: &[Incoming<'_>]) {
        let mut more = u32::try_from(records.len()).expect("no more than a batch has");
        for record in records {
            more -= 1;
            let payload_bytes = u32::try_from(record.bytes).expect("less than a ring");
            let frame = Frame { kind: Kind::Record, index: tail.next_index, payload_bytes, more };
            self.ring.put(tail.position, frame, record.hash, record.pieces);
            tail.position += frame.bytes() as u64;
            tail.payload_bytes += u64::from(payload_bytes);
            tail.next_index += 1;
        }
        tail.records += records.len() as u64;
        assert!(tail.position - tail.released <= self.ring.capacity(), "the ring overflows");
    }

    /// Waits in the queue until it is this append's turn and there is room for it. A large record would
    /// wait for ever if whatever is small went first.
    #[cold]
    fn wait_for_turn<'a>(
        &'a self,
        mut tail: RankedGuard<'a, Tail>,
        bytes: u64,
        full: Full,
        make_room: &dyn Fn(u64) -> Result<bool>,
        ask: &dyn Fn(u64),
    ) -> Result<RankedGuard<'a, Tail>> {
        let ticket = tail.queue_up(bytes);
        // How often there had been more room before it was looked for in vain.
        let mut looked_at = None;
        let came = loop {
            let ahead = tail.ahead_of(ticket);
            let wanted = tail.position - self.ring.released() + ahead + bytes;
            tail.grant.draw(wanted);
            match self.gate.get() {
                Gate::Open if self.has_room(&mut tail, ahead, bytes) => break Ok(()),
                Gate::Stopped => break Err(self.why_stopped()),
                Gate::Closed => break Err(Error::Closed),
                Gate::OutOfSpace if self.has_room(&mut tail, ahead, bytes) => break Ok(()),
                Gate::OutOfSpace if !self.fits(&tail, 0, bytes) => {
                    break Err(Error::OutOfSpace { last_index: tail.next_index - 1 });
                }
                Gate::Open | Gate::Overdue | Gate::OutOfSpace => {}
            }
            if full == Full::Refuse {
                // Nobody waits: whoever tries again may find more, or why there will be none.
                let in_ring = self.fits(&tail, ahead, bytes);
                self.room.press(in_ring);
                ask(if in_ring { 0 } else { 2 * bytes });
                let behind_bytes = tail.position - self.ring.released();
                break Err(Error::WouldBlock { behind_bytes });
            }
            let Some(seen) = looked_at.take() else {
                looked_at = Some(self.room.times());
                continue;
            };
            let needed = bytes + tail.largest.max(bytes);
            let wanted = if self.fits(&tail, ahead, bytes) { 0 } else { needed };
            drop(tail);
            let waited = self.room.wait(seen, wanted == 0, || make_room(wanted));
            tail = self.tail.lock();
            if let Err(error) = waited {
                break Err(error);
            }
        };
        if tail.leave(ticket) {
            // There may be room for the next one too.
            self.room.look_again();
        }
        came.map(|()| tail)
    }

    /// Whether the ring and the segments have room for a batch, behind so many bytes of others.
    fn has_room(&self, tail: &mut Tail, ahead: u64, bytes: u64) -> bool {
        let end = tail.position + ahead + bytes;
        let has_room = |tail: &Tail| {
            let held = end - tail.released;
            held <= tail.grant.bytes
                && (held <= self.limits.held_bytes || held == bytes)
                && self.fits(tail, ahead, bytes)
        };
        if tail.released != tail.position && has_room(tail) {
            return true;
        }
        // More may be released by now, and what was large be gone.
        tail.released = self.ring.released();
        if tail.released == tail.position {
            tail.largest = 0;
        }
        has_room(tail)
    }

    /// Gives back the memory of a ring that is empty, and of which much was used.
    pub(crate) fn rest(&self) {
        loop {
            let mut tail = self.tail.lock();
            tail.released = self.ring.released();
            let position = tail.position;
            if position != tail.released || !tail.grant.rest(&self.ring, position) {
                return;
            }
        }
    }

    /// Whether segments have room for what the ring would hold then.
    fn fits(&self, tail: &Tail, ahead: u64, bytes: u64) -> bool {
        let unused = tail.largest.max(bytes);
        tail.position + ahead + bytes + unused <= self.room.limit()
    }

    /// Everything in the ring before `position` may be overwritten.
    pub(crate) fn release(&self, position: u64) {
        self.ring.release(position);
        self.room.released();
    }

    /// Whether somebody waits for room, or will try again.
    pub(crate) fn is_pressed(&self) -> bool {
        self.room.is_pressed()
    }

    /// Whether they wait for room in the ring.
    pub(crate) fn is_ring_short(&self) -> bool {
        self.room.is_ring_short()
    }

    /// Ring positions up to this one certainly have room in segments.
    pub(crate) fn set_room_limit(&self, position: u64) {
        self.room.set_limit(position);
    }

    /// Whether more is accepted than has room, and there is no room for more.
    pub(crate) fn is_beyond_room(&self) -> bool {
        self.gate() == Gate::OutOfSpace && self.ring.filled() > self.room.limit()
    }

    /// Segments have room for so much more.
    pub(crate) fn raise_room_limit(&self, by: u64) {
        self.room.raise_limit(by);
    }

    /// The largest record that is accepted.
    pub(crate) fn max_record_bytes(&self) -> u64 {
        self.limits.batch_bytes - FRAME_BYTES as u64
    }

    pub(crate) fn gate(&self) -> Gate {
        self.gate.get()
    }

    /// Opens or closes the gate, unless it is closed for good.
    pub(crate) fn set_gate(&self, gate: Gate) {
        self.gate.change(|now| (now < Gate::Stopped).then_some(gate));
    }

    /// Closes the gate while the oldest record that is not durable is older than was promised. It stays
    /// closed where the disk is full.
    pub(crate) fn set_overdue(&self, is_late: bool) {
        self.gate.change(|now| match now {
            Gate::Open if is_late => Some(Gate::Overdue),
            Gate::Overdue if !is_late => Some(Gate::Open),
            _ => None,
        });
    }

    /// Accepts nothing more, and tells everybody who waits why.
    pub(crate) fn stop(&self, source: Error) -> Error {
        let durable = self.marks.durable.get();
        let error = {
            let mut stopped = lock(&self.stopped);
            let stop = || Error::Stopped { durable, source: Arc::new(source) };
            stopped.get_or_insert_with(stop).clone()
        };
        self.gate.change(|now| (now < Gate::Stopped).then_some(Gate::Stopped));
        self.marks.close(&error);
        self.room.close(&error);
        error
    }

    /// The log was closed.
    pub(crate) fn close(&self) {
        self.gate.change(|now| (now < Gate::Stopped).then_some(Gate::Closed));
        self.marks.close(&Error::Closed);
        self.room.close(&Error::Closed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.gate() == Gate::Stopped
    }

    pub(crate) fn why_stopped(&self) -> Error {
        lock(&self.stopped).clone().unwrap_or(Error::Closed)
    }

    /// An error in a forked child: it has our memory, maybe with locks taken, and none of our threads, and
    /// writes to the same files.
    pub(crate) fn check_owner(&self) -> Result<()> {
        if self.owner.is_this() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Whether anything was accepted since the log was opened.
    pub(crate) fn has_accepted(&self) -> bool {
        self.tail.lock().records > 0
    }

    pub(crate) fn appended(&self) -> Appended {
        let tail = self.tail.lock();
        let ring_bytes = tail.position.saturating_sub(self.ring.released());
        Appended { records: tail.records, payload_bytes: tail.payload_bytes, ring_bytes }
    }

    /// Accepts nothing for as long as what is returned is held.
    pub(crate) fn quiet(&self) -> Quiet<'_> {
        Quiet { intake: self, tail: self.tail.lock() }
    }
}

impl Quiet<'_> {
    /// What was accepted behind `last_index` is gone, and its indexes are given away again. Returns where
    /// the next record begins in the ring.
    pub(crate) fn set_back(&mut self, last_index: u64) -> u64 {
        self.intake.marks.set_back(last_index);
        self.tail.next_index = last_index + 1;
        self.tail.position
    }
}
