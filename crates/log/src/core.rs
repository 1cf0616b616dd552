//! [`Core`]: what appenders, readers and the log's own threads share.
//!
//! ```text
//!  appenders ──► ring ──► writer ──► segment ──► syncer
//!   (tail lock)   │        (its role: a lock)      (sync turn: a lock)
//!                 ▼            ▼                     ▼
//!              buffered     written               durable, and the ring's room is free again
//! ```
//!
//! Locks, in the order in which they may be taken: role → preparing → sync turn → the small ones
//! (tail, spares, unsynced, segments, counts, waiters), which nobody holds while anything waits, but
//! for truncation, which holds the tail so that appends wait.
//!
//! Invariant: `durable` ≤ `written` ≤ `last`. Invariant: the ring holds every record that is not
//! durable, except under [`Policy::Never`], where it holds every record that is not written.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

use crate::active::{Previous, Segment};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::format::{BLOCK_BYTES, Frame, Header, INDEX_END, Kind, frame_bytes};
use crate::options::{Options, Policy, records_end};
use crate::place::{Place, Spare, segment_name};
use crate::ring::Ring;
use crate::segments::Segments;
use crate::shim::{AtomicBool, AtomicU64, Mutex, lock};
use crate::signal::Signal;
use crate::stale::Stale;
use crate::stats::{Counts, Event, Stats, ns};
use crate::watermark::Watermark;

/// One append in so many is timed.
const TIMED: u64 = 64;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) places: Vec<Place>,
    pub(crate) log_id: u128,
    pub(crate) ring: Ring,
    tail: Apart<Mutex<Tail>>,
    gate: AtomicGate,
    pub(crate) last: Apart<Watermark>,
    pub(crate) written: Watermark,
    pub(crate) durable: Watermark,
    /// How often there came to be more room, in the ring or in segments, to be waited on.
    room: Watermark,
    /// Ring position up to which there is certainly room in segments.
    room_limit: AtomicU64,
    /// The last record that somebody wants durable.
    pub(crate) wanted: AtomicU64,
    /// The segment is filled so fast that zeros in the next one are not worth their writing.
    pub(crate) is_bulk: AtomicBool,
    /// Somebody waits for the ring to be released.
    pub(crate) pressed: AtomicBool,
    pub(crate) unsynced: Mutex<Unsynced>,
    pub(crate) sync_turn: Mutex<Anchor>,
    pub(crate) segments: Segments,
    pub(crate) spares: Mutex<Spares>,
    /// Of each place, held while a file is made ready there, which takes its time.
    pub(crate) preparing: Vec<Mutex<()>>,
    /// Held while segments are taken away, so that they go in order; taken before the writer's role.
    pub(crate) retention: Mutex<()>,
    /// Files that are named as segments and are none: a failover replaced them and could not remove
    /// them, or they failed as they got their name. Which is the log's is told from those that came in
    /// their place, which therefore stay as long as they do.
    pub(crate) stale: Stale,
    /// Threads that want the writer's role and are no writers.
    pub(crate) role_wanted: AtomicU64,
    /// Which directory is written.
    pub(crate) place: AtomicU64,
    stopped: Mutex<Option<Error>>,
    pub(crate) counts: Counts,
    pub(crate) writer_signal: Signal,
    pub(crate) syncer_signal: Signal,
    /// Of each place: on a disk that hangs one may hang.
    pub(crate) preparer_signals: Vec<Signal>,
}

/// What appenders change, one at a time.
#[derive(Debug)]
struct Tail {
    next_index: u64,
    position: u64,
    /// The ring's released position when it was last asked for.
    released: u64,
    records: u64,
    payload_bytes: u64,
}

/// What is written and not durable.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    /// Segments with such bytes, oldest first.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The last record written, and where the next one is in the ring.
    pub(crate) index: u64,
    pub(crate) position: u64,
    /// When the oldest of it was taken from the ring.
    pub(crate) since: Option<Duration>,
}

/// Where what is durable ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anchor {
    pub(crate) previous: Option<Previous>,
}

/// Files that are ready to become segments.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    pub(crate) ready: Vec<Spare>,
    /// Segments that retention took, to be used again: place and name.
    pub(crate) used: Vec<(usize, String)>,
    /// The last attempt to prepare one found no room.
    pub(crate) out_of_space: bool,
    /// Whether one should be ready.
    pub(crate) wanted: bool,
}

impl Spares {
    /// Whether one is ready in this place. One elsewhere is of no use.
    pub(crate) fn is_ready(&self, place: u64) -> bool {
        self.ready.iter().any(|spare| spare.place as u64 == place)
    }
}

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

#[derive(Debug)]
struct AtomicGate(AtomicU64);

/// What every append writes, in cache lines of its own: it would slow down who reads its neighbours,
/// and every record passes the writer.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What an append does when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Wait,
    Refuse,
}

/// Where a log that is opened goes on.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) log_id: u128,
    pub(crate) last_index: u64,
    pub(crate) ring: Ring,
    /// Of the ring: the first record that is not in a segment, and the end.
    pub(crate) taken: u64,
    pub(crate) filled: u64,
    /// The last record in the ring, or of the segments if there is none.
    pub(crate) accepted: u64,
    pub(crate) segments: Segments,
    pub(crate) anchor: Option<Previous>,
}

impl Core {
    pub(crate) fn new(options: Options, places: Vec<Place>, start: Start) -> Self {
        let preparing = places.iter().map(|_| Mutex::default()).collect();
        let preparer_signals = places.iter().map(|_| Signal::default()).collect();
        Self {
            places,
            log_id: start.log_id,
            ring: start.ring,
            tail: Apart(Mutex::new(Tail {
                next_index: start.accepted + 1,
                position: start.filled,
                released: start.taken,
                records: 0,
                payload_bytes: 0,
            })),
            gate: AtomicGate(AtomicU64::new(Gate::Open as u64)),
            last: Apart(Watermark::new("appended", start.accepted)),
            written: Watermark::new("written", start.last_index),
            durable: Watermark::new("durable", start.last_index),
            room: Watermark::new("released", 0),
            room_limit: AtomicU64::new(start.filled),
            wanted: AtomicU64::new(0),
            is_bulk: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            unsynced: Mutex::new(Unsynced {
                index: start.last_index,
                position: start.taken,
                ..Unsynced::default()
            }),
            sync_turn: Mutex::new(Anchor { previous: start.anchor }),
            segments: start.segments,
            spares: Mutex::default(),
            preparing,
            retention: Mutex::default(),
            stale: Stale::default(),
            role_wanted: AtomicU64::new(0),
            place: AtomicU64::new(0),
            stopped: Mutex::new(None),
            counts: Counts::new(),
            writer_signal: Signal::default(),
            syncer_signal: Signal::default(),
            preparer_signals,
            options,
        }
    }

    /// Wakes who makes files ready where the log is written now.
    pub(crate) fn preparer_signal(&self) -> &Signal {
        &self.preparer_signals[usize::try_from(self.place.load(SeqCst)).expect("one of a few")]
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.options.clock
    }

    pub(crate) fn tell(&self, event: Event<'_>) {
        if let Some(observer) = &self.options.observer {
            observer.observe(event);
        }
    }

    /// Accepts records, all or none: the index of the last one. `drive` makes room where the log has
    /// no threads of its own.
    pub(crate) fn accept(
        &self,
        records: &[(&[u8], u64)],
        full: Full,
        drive: &dyn Fn() -> Result<()>,
    ) -> Result<u64> {
        let bytes: u64 = records.iter().map(|(payload, _)| frame_bytes(payload.len()) as u64).sum();
        let max_bytes = self.options.max_batch_bytes();
        if bytes > max_bytes || records.len() >= crate::format::BATCH_RECORDS_MAX {
            return Err(Error::TooLarge { bytes, max_bytes });
        }
        let mut tail = lock(&self.tail);
        let timed = tail.next_index.is_multiple_of(TIMED).then(|| self.clock().now());
        let mut stalled = None;
        // How often there had been more room before it was looked for in vain.
        let mut looked_at = None;
        loop {
            match self.gate.get() {
                Gate::Open if self.has_room(&mut tail, bytes) => break,
                Gate::Stopped => return Err(self.why_stopped()),
                Gate::Closed => return Err(Error::Closed),
                Gate::OutOfSpace if !self.fits(&tail, bytes) => {
                    return Err(Error::OutOfSpace { last_index: tail.next_index - 1 });
                }
                Gate::OutOfSpace if self.has_room(&mut tail, bytes) => break,
                Gate::Open | Gate::Overdue | Gate::OutOfSpace => {}
            }
            let behind_bytes = tail.position - self.ring.released();
            if full == Full::Refuse {
                return Err(Error::WouldBlock { behind_bytes });
            }
            stalled.get_or_insert_with(|| self.clock().now());
            let Some(seen) = looked_at.take() else {
                looked_at = Some(self.room.get());
                continue;
            };
            drop(tail);
            self.wait_for_room(seen, drive)?;
            tail = lock(&self.tail);
        }
        if records.len() as u64 > INDEX_END - tail.next_index {
            return Err(Error::Exhausted { last_index: tail.next_index - 1 });
        }
        let mut position = tail.position;
        let mut more = u32::try_from(records.len()).expect("checked above");
        for (number, &(payload, payload_hash)) in (0_u64..).zip(records) {
            more -= 1;
            let payload_bytes = u32::try_from(payload.len()).expect("less than a ring");
            let index = tail.next_index + number;
            let frame = Frame { kind: Kind::Record, index, payload_bytes, more };
            self.ring.put(position, frame, payload_hash, payload);
            position += frame.bytes() as u64;
            tail.payload_bytes += u64::from(payload_bytes);
        }
        tail.records += records.len() as u64;
        tail.next_index += records.len() as u64;
        tail.position = position;
        let index = tail.next_index - 1;
        // First the mark, so that `written` never comes before it.
        self.last.set(index);
        self.ring.publish(position);
        drop(tail);
        // Between what was stored and a look at who waits for it: here, and in `finish_append`.
        fence(SeqCst);
        self.last.wake(index);
        if let Some(begun) = timed.or(stalled) {
            self.timed(begun, stalled);
        }
        Ok(index)
    }

    #[cold]
    fn timed(&self, begun: Duration, stalled: Option<Duration>) {
        let now = self.clock().now();
        self.counts.change(|counts| {
            counts.append_ns.saturating_record(ns(now.saturating_sub(begun)));
            if let Some(stalled) = stalled {
                counts.stall_ns.saturating_record(ns(now.saturating_sub(stalled)));
            }
        });
        if let Some(stalled) = stalled {
            self.tell(Event::Stalled { took: now.saturating_sub(stalled) });
        }
    }

    fn has_room(&self, tail: &mut Tail, bytes: u64) -> bool {
        let end = tail.position + bytes;
        if end - tail.released > self.ring.capacity() {
            tail.released = self.ring.released();
        }
        end - tail.released <= self.ring.capacity() && self.fits(tail, bytes)
    }

    /// Whether segments have room for what the ring would hold then.
    fn fits(&self, tail: &Tail, bytes: u64) -> bool {
        tail.position + bytes <= self.room_limit.load(SeqCst)
    }

    /// Waits until there is more room than when there had been more `seen` times.
    #[cold]
    fn wait_for_room(&self, seen: u64, drive: &dyn Fn() -> Result<()>) -> Result<()> {
        self.pressed.store(true, SeqCst);
        if !self.options.threads {
            return drive();
        }
        self.writer_signal.wake();
        self.syncer_signal.wake();
        self.preparer_signal().wake();
        // Whoever opens the gate does not move this mark.
        match self.room.wait_timeout(seen + 1, Duration::from_millis(20)) {
            Ok(()) | Err(Error::TimedOut { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Somebody wants this record to be durable.
    pub(crate) fn want(&self, index: u64) {
        self.wanted.fetch_max(index, SeqCst);
    }

    pub(crate) fn gate(&self) -> Gate {
        self.gate.get()
    }

    /// Opens or closes the gate, unless it is closed for good.
    pub(crate) fn set_gate(&self, gate: Gate) {
        self.gate.change(|now| (now < Gate::Stopped).then_some(gate));
    }

    /// Records up to `index`, which end at `position` in the ring, are with the kernel.
    pub(crate) fn on_written(&self, segment: &Arc<Segment>, index: u64, position: u64) {
        let now = self.clock().now();
        {
            let mut unsynced = lock(&self.unsynced);
            if unsynced.segments.last().is_none_or(|last| !Arc::ptr_eq(last, segment)) {
                unsynced.segments.push(Arc::clone(segment));
            }
            unsynced.index = index;
            unsynced.position = position;
            unsynced.since.get_or_insert(now);
        }
        self.written.advance(index);
        if self.options.policy == Policy::Never {
            self.release(position);
        }
        self.wake_syncer();
    }

    /// The syncer sleeps until a sync is due; that one is, or is due at once, is told to it.
    pub(crate) fn wake_syncer(&self) {
        match self.sync_due() {
            None => {}
            Some(Duration::ZERO) => self.syncer_signal.wake(),
            Some(_) => self.syncer_signal.wake_if_asleep(),
        }
    }

    /// Records up to `index`, which end at `position` in the ring, are durable. Called in the sync
    /// turn, so that whoever has it finds the ring and the mark in step.
    pub(crate) fn on_durable(&self, index: u64, position: u64, took: Duration) {
        let records = index.saturating_sub(self.durable.get());
        self.release(position);
        self.durable.advance(index);
        self.counts.change(|counts| {
            counts.sync_ns.saturating_record(ns(took));
            if records > 0 {
                counts.group_records.saturating_record(records);
            }
        });
        if self.gate() == Gate::Overdue {
            self.set_gate(Gate::Open);
        }
        self.tell(Event::Synced { durable: index, records, took });
    }

    fn release(&self, position: u64) {
        self.ring.release(position);
        self.pressed.store(false, SeqCst);
        self.room.step();
    }

    /// Ring positions up to this one certainly have room in segments.
    pub(crate) fn set_room_limit(&self, position: u64) {
        self.room_limit.store(position, SeqCst);
        self.room.step();
    }

    /// Segments have room for so much more.
    pub(crate) fn raise_room_limit(&self, by: u64) {
        self.room_limit.fetch_add(by, SeqCst);
        self.room.step();
    }

    /// When the next background sync is due: how long until then, or `None` if there is nothing to
    /// sync.
    pub(crate) fn sync_due(&self) -> Option<Duration> {
        let unsynced = lock(&self.unsynced);
        let since = unsynced.since?;
        // Under any policy: what a full segment holds is not left for later.
        if unsynced.segments.len() > 1 {
            return Some(Duration::ZERO);
        }
        let bytes = unsynced.position.saturating_sub(self.ring.released());
        // Not for a few bytes, so that syncs do not crowd out writes. A batch takes half the ring at
        // most, so who waits for room finds half of it full, and all of that is written before long.
        if self.pressed.load(SeqCst) && bytes >= self.ring.capacity() / 2 {
            return Some(Duration::ZERO);
        }
        if self.options.unsynced_bytes_max().is_some_and(|max| bytes >= max) {
            return Some(Duration::ZERO);
        }
        match self.options.policy {
            // Under `always` the writer syncs what it writes.
            Policy::Never | Policy::Always => None,
            Policy::Interval { max_age, .. } => {
                // The record was a little older than `since` when it was taken, and the sync takes
                // its time.
                let early = max_age.mul_f64(0.1).min(Duration::from_millis(100));
                let at = since.saturating_add(max_age - early);
                Some(at.saturating_sub(self.clock().now()))
            }
        }
    }

    /// Closes the gate while the oldest record that is not durable is older than was promised.
    pub(crate) fn watch_age(&self) {
        if let Policy::Interval { max_age, .. } = self.options.policy {
            let is_late = self.lag() > max_age.saturating_mul(2);
            self.gate.change(|now| match now {
                Gate::Open if is_late => Some(Gate::Overdue),
                Gate::Overdue if !is_late => Some(Gate::Open),
                _ => None,
            });
        }
    }

    /// Age of the oldest record that is written and not durable.
    pub(crate) fn lag(&self) -> Duration {
        let since = lock(&self.unsynced).since;
        since.map_or(Duration::ZERO, |since| self.clock().now().saturating_sub(since))
    }

    /// Syncs everything that is written, now. The error is that of the segments as they were.
    pub(crate) fn sync_now(&self) -> Result<()> {
        let mut anchor = lock(&self.sync_turn);
        let (segments, index, position) = {
            let unsynced = lock(&self.unsynced);
            (unsynced.segments.clone(), unsynced.index, unsynced.position)
        };
        let Some(last) = segments.last() else {
            return Ok(());
        };
        let _span = tracing::trace_span!("sync", index, segments = segments.len()).entered();
        let begun = self.clock().now();
        // Where records end now is no later than what the sync covers.
        let previous = last.previous();
        for segment in &segments {
            segment.file.sync(self.places[segment.place].method.call)?;
        }
        let done = self.clock().now();
        {
            let mut unsynced = lock(&self.unsynced);
            let all = unsynced.index == index;
            unsynced.segments.retain(|segment| {
                let covered = segments.iter().any(|synced| Arc::ptr_eq(synced, segment));
                !covered || (!all && Arc::ptr_eq(segment, last))
            });
            unsynced.since = (!all).then_some(begun);
        }
        anchor.previous = Some(previous);
        self.on_durable(index, position, done.saturating_sub(begun));
        Ok(())
    }

    /// The log accepts nothing more, and everybody who waits is told why.
    pub(crate) fn stop(&self, source: Error) -> Error {
        let durable = self.durable.get();
        let error = {
            let mut stopped = lock(&self.stopped);
            let stop = || Error::Stopped { durable, source: Arc::new(source) };
            stopped.get_or_insert_with(stop).clone()
        };
        tracing::error!(%error, "the log stops");
        self.gate.change(|now| (now < Gate::Stopped).then_some(Gate::Stopped));
        for mark in [&self.written, &self.durable, &*self.last, &self.room] {
            mark.close(&error);
        }
        self.tell(Event::Stopped);
        error
    }

    /// The log was closed.
    pub(crate) fn close(&self) {
        self.gate.change(|now| (now < Gate::Stopped).then_some(Gate::Closed));
        for mark in [&self.written, &self.durable, &*self.last, &self.room] {
            mark.close(&Error::Closed);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.gate() == Gate::Stopped
    }

    pub(crate) fn why_stopped(&self) -> Error {
        lock(&self.stopped).clone().unwrap_or(Error::Closed)
    }

    /// Appends nothing while `act` runs; the next index is what it returns, if it returns one.
    pub(crate) fn while_quiet<T>(
        &self,
        act: impl FnOnce() -> Result<(T, Option<u64>)>,
    ) -> Result<T> {
        let mut tail = lock(&self.tail);
        let (done, next_index) = act()?;
        if let Some(next_index) = next_index {
            tail.next_index = next_index;
        }
        Ok(done)
    }

    /// Removes what a failover left. In the turn of retention.
    pub(crate) fn sweep(&self) -> Result<()> {
        if !self.stale.is_empty() && self.is_stopped() {
            // What it stopped at may be one of them, and hold records.
            return Err(self.why_stopped());
        }
        self.stale.sweep(|old| {
            match self.places[old.place].dir.remove(&segment_name(old.first_index)) {
                Err(error) if error.kind() != Some(std::io::ErrorKind::NotFound) => {
                    Err(error.into())
                }
                _ => Ok(()),
            }
        })
    }

    /// A header with a salt that no other segment has.
    pub(crate) fn new_header(&self) -> Result<Header> {
        new_header(self.clock(), self.log_id, self.options.segment_bytes)
    }

    /// The oldest record, or the next one if there is none.
    pub(crate) fn first_index(&self) -> u64 {
        self.segments.first_index().unwrap_or(1)
    }

    pub(crate) fn stats(&self) -> Stats {
        let (records, payload_bytes, position) = {
            let tail = lock(&self.tail);
            (tail.records, tail.payload_bytes, tail.position)
        };
        let mut stats = Stats {
            records,
            payload_bytes,
            first_index: self.first_index(),
            last_index: self.last.get(),
            written: self.written.get(),
            durable: self.durable.get(),
            lag_ns: u64::try_from(self.lag().as_nanos()).unwrap_or(u64::MAX),
            ring_bytes: position.saturating_sub(self.ring.released()),
            segments: self.segments.len() as u64,
            method: self.places[0].method.name(),
            layout: self.places[0].layout.name().to_owned(),
            ..Stats::default()
        };
        self.counts.report(&mut stats);
        stats
    }

    /// Room that a segment certainly has for frames of the ring, from `byte_offset` on: a batch may
    /// not fit at its end, and there is a mark in every block.
    pub(crate) fn certain_room(&self, segment_bytes: u64, byte_offset: u64) -> u64 {
        let frames = records_end(segment_bytes).saturating_sub(byte_offset);
        let frames = frames.saturating_sub(self.options.max_batch_bytes());
        frames - frames / 128
    }

    /// [`Core::certain_room`] of an empty segment.
    pub(crate) fn certain_room_of_spare(&self) -> u64 {
        self.certain_room(self.options.segment_bytes, BLOCK_BYTES + 128)
    }
}

impl AtomicGate {
    fn get(&self) -> Gate {
        Gate::of(self.0.load(Relaxed))
    }

    fn change(&self, mut to: impl FnMut(Gate) -> Option<Gate>) {
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

/// A header with a salt that no other segment has.
pub(crate) fn new_header(clock: &Clock, log_id: u128, segment_bytes: u64) -> Result<Header> {
    let failed = |error| plimsoll_sync::Error::io("draw a random number", Path::new(""), error);
    Ok(Header { log_id, salt: clock.random().map_err(failed)?, segment_bytes })
}
