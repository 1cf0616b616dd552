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
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use plimsoll_sync::Process;

use crate::accept::{AtomicGate, Gate, Tail};
use crate::active::{Previous, Segment};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::format::{BLOCK_BYTES, Header};
use crate::options::{Options, Policy, records_end};
use crate::place::{Place, Spare, segment_name};
use crate::ring::Ring;
use crate::segments::Segments;
use crate::shim::{AtomicBool, AtomicU64, Mutex, lock};
use crate::signal::Signal;
use crate::stale::Stale;
use crate::stats::{Counts, Event, Stats, ns};
use crate::watermark::Watermark;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) places: Vec<Place>,
    pub(crate) log_id: u128,
    pub(crate) ring: Ring,
    pub(crate) tail: Apart<Mutex<Tail>>,
    pub(crate) gate: AtomicGate,
    pub(crate) last: Apart<Watermark>,
    pub(crate) written: Watermark,
    pub(crate) durable: Watermark,
    /// How often there came to be more room, in the ring or in segments, to be waited on.
    pub(crate) room: Watermark,
    /// Ring position up to which there is certainly room in segments.
    pub(crate) room_limit: AtomicU64,
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
    /// Who opened the log.
    owner: Process,
    pub(crate) counts: Counts,
    pub(crate) writer_signal: Signal,
    pub(crate) syncer_signal: Signal,
    /// Of each place: on a disk that hangs one may hang.
    pub(crate) preparer_signals: Vec<Signal>,
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
            tail: Apart(Mutex::new(Tail::new(start.accepted + 1, start.taken, start.filled))),
            gate: AtomicGate::default(),
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
            owner: Process::this(),
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

    /// Somebody wants this record to be durable.
    pub(crate) fn want(&self, index: u64) {
        self.wanted.fetch_max(index, SeqCst);
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

    /// An error in a forked child: it has our memory, maybe with locks taken, and none of our threads, and
    /// writes to the same files.
    pub(crate) fn check_owner(&self) -> Result<()> {
        if self.owner.is_this() { Ok(()) } else { Err(Error::Forked) }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.gate() == Gate::Stopped
    }

    pub(crate) fn why_stopped(&self) -> Error {
        lock(&self.stopped).clone().unwrap_or(Error::Closed)
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

/// A header with a salt that no other segment has.
pub(crate) fn new_header(clock: &Clock, log_id: u128, segment_bytes: u64) -> Result<Header> {
    let failed = |error| plimsoll_sync::Error::io("draw a random number", Path::new(""), error);
    Ok(Header { log_id, salt: clock.random().map_err(failed)?, segment_bytes })
}
