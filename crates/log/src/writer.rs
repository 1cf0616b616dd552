//! [`Writer`]: takes records from the ring and puts them into segments. A role, not a thread: whoever
//! holds its lock plays it, the log's own thread or an appender that would only wait for it.
//!
//! After a write or a sync has failed, the segment is never touched again. What is not durable is
//! still in the ring and goes to another segment, in the second directory if there is one, under the
//! same indexes. The new segment is synced before it gets its name, so that at every moment the
//! directory holds everything that was acknowledged.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::accept::Gate;
use crate::active::{Active, Previous};
use crate::core::{Anchor, Core};
use crate::error::{Error, Result};
use crate::flusher::Flusher;
use crate::format::{BLOCK_BYTES, FRAME_BYTES, Frame, Kind, Link};
use crate::options::{Policy, Tail, records_end};
use crate::place::{Spare, segment_name};
use crate::ring::Queued;
use crate::segments::Entry;
use crate::shim::{lock, try_lock};
use crate::spares;
use crate::stats::{Event, ns};

/// At least so many bytes between two marks: one in each block.
const MARK_BYTES: u64 = BLOCK_BYTES;
/// A segment that is filled in less is filled by large writes.
const BULK: Duration = Duration::from_secs(2);
/// Writes that may be under way at once: one is made, and the next one is there when it ends.
const FLIGHTS_MAX: usize = 2;
/// Segments that may fail one after the other before the log stops.
const FAILURES_MAX: u32 = 3;

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) active: Active,
    /// Ring position of the next record to take.
    pub(crate) taken: u64,
    pub(crate) generation: u64,
    /// When the segment was begun.
    since: Duration,
    /// Failures since something last became durable, and what was durable then.
    failures: (u32, u64),
    pub(crate) flusher: Arc<Flusher>,
}

/// What a turn did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There was nothing to do.
    Idle,
    /// Something was done, and there may be more.
    Worked,
    /// There is something to do and no room for it.
    Stuck,
}

impl Writer {
    pub(crate) fn new(core: &Core, active: Active, taken: u64, generation: u64) -> Self {
        Self {
            active,
            taken,
            generation,
            since: core.clock().now(),
            failures: (0, 0),
            flusher: Arc::new(Flusher::inline(core.clock().clone())),
        }
    }

    /// Takes some records and writes them, and syncs if somebody waits for that.
    ///
    /// # Errors
    /// The log has stopped.
    pub(crate) fn turn(&mut self, core: &Core) -> Result<Turn> {
        if core.is_stopped() {
            return Err(core.why_stopped());
        }
        match self.try_turn(core) {
            Err(Error::OutOfSpace { .. }) => Ok(Turn::Stuck),
            Err(error) => self.fail_over(core, error).map(|()| Turn::Worked),
            done => done,
        }
    }

    fn try_turn(&mut self, core: &Core) -> Result<Turn> {
        let filled = core.ring.filled();
        let wanted = core.wanted.load(SeqCst);
        if self.taken == filled {
            if self.active.flying() > 0 {
                self.settle(core, 0)?;
                return Ok(Turn::Worked);
            }
            if wanted > core.durable.get() && core.written.get() > core.durable.get() {
                core.sync_now()?;
                return Ok(Turn::Worked);
            }
            return Ok(Turn::Idle);
        }
        core.counts.change(|counts| {
            counts.occupancy_bytes.saturating_record(filled - self.taken);
        });
        self.mark(core);
        let mut stuck = false;
        while !stuck && self.taken < filled && !self.active.is_write_due() {
            if self.take_small(core) {
                continue;
            }
            match self.take_unit(core) {
                Err(Error::OutOfSpace { .. }) => stuck = true,
                taken => taken?,
            }
        }
        let all = stuck || self.taken == filled;
        if core.options.tail == Tail::Pad {
            self.active.pad_block();
        }
        if !all {
            // It goes out while the next turns stage what comes after it.
            self.settle(core, FLIGHTS_MAX - 1)?;
            self.active.begin_write(&self.flusher, self.taken);
            return Ok(Turn::Worked);
        }
        let wants = wanted > core.durable.get();
        let with_write = core.places[self.active.segment.place].method.with_write;
        if wants && with_write.is_some() && !self.active.loose && !stuck {
            self.write_durably(core)?;
        } else {
            self.write(core)?;
            if wants && core.written.get() > core.durable.get() {
                core.sync_now()?;
            }
        }
        Ok(if stuck { Turn::Stuck } else { Turn::Worked })
    }

    /// One call that writes and syncs, if nothing earlier waits for a sync.
    fn write_durably(&mut self, core: &Core) -> Result<()> {
        self.settle(core, 0)?;
        let mut anchor = lock(&core.sync_turn);
        if !lock(&core.unsynced).segments.is_empty() {
            drop(anchor);
            self.write(core)?;
            return core.sync_now();
        }
        let with_write = core.places[self.active.segment.place].method.with_write;
        let _span = tracing::trace_span!("write_sync", index = self.active.last_index).entered();
        let begun = core.clock().now();
        let bytes = self.active.write(with_write)?;
        self.active.publish_end();
        let took = core.clock().now().saturating_sub(begun);
        let index = self.active.last_index;
        *anchor = Anchor { previous: Some(self.active.segment.previous()) };
        {
            let mut unsynced = lock(&core.unsynced);
            unsynced.index = index;
            unsynced.position = self.taken;
        }
        self.count_write(core, bytes, took);
        core.written.advance(index);
        core.on_durable(index, self.taken, took);
        drop(anchor);
        Ok(())
    }

    /// Waits until no more than so many writes are under way, and publishes what the others wrote.
    fn settle(&mut self, core: &Core, flights: usize) -> Result<()> {
        while self.active.flying() > flights
            && let Some((bytes, took, ends)) = self.active.land()?
        {
            self.count_write(core, bytes, took);
            let segment = &self.active.segment;
            segment.end.store(ends.records_end, SeqCst);
            if ends.index > core.written.get() {
                core.on_written(segment, ends.index, ends.position);
                self.active.loose = false;
            }
        }
        Ok(())
    }

    /// Writes what is staged, and publishes it.
    fn write(&mut self, core: &Core) -> Result<()> {
        self.settle(core, 0)?;
        if self.active.unwritten() > 0 {
            let _span = tracing::trace_span!("write", index = self.active.last_index).entered();
            let begun = core.clock().now();
            let bytes = self.active.write(None)?;
            self.count_write(core, bytes, core.clock().now().saturating_sub(begun));
        }
        self.active.publish_end();
        if self.active.last_index > core.written.get() {
            core.on_written(&self.active.segment, self.active.last_index, self.taken);
            // From here on a sync covers it.
            self.active.loose = false;
        }
        Ok(())
    }

    fn count_write(&self, core: &Core, bytes: u64, took: Duration) {
        self.show(core);
        core.counts.change(|counts| {
            counts.written_bytes += bytes;
            counts.write_ns.saturating_record(ns(took));
        });
        core.tell(Event::Wrote { bytes, took });
        self.tell_room(core);
    }

    /// Shows readers where records begin. Some of them may not be written yet; nobody asks for those.
    pub(crate) fn show(&self, core: &Core) {
        core.segments.show(self.active.segment.header.salt, &self.active.sparse);
    }

    /// How far appends may go.
    pub(crate) fn tell_room(&self, core: &Core) {
        let segment_bytes = self.active.segment.header.segment_bytes;
        let here = core.certain_room(segment_bytes, self.active.next_offset());
        core.place.store(self.active.segment.place as u64, SeqCst);
        let mut spares = lock(&core.spares);
        spares.wanted = here < core.certain_room_of_spare() / 4 * 3;
        let is_ready = spares.is_ready(self.active.segment.place as u64);
        let spare = if is_ready { core.certain_room_of_spare() } else { 0 };
        core.set_room_limit(self.taken + here + spare);
        let prepare = spares.wanted && !is_ready;
        drop(spares);
        if prepare {
            let took = core.clock().now().saturating_sub(self.since);
            core.is_bulk.store(is_bulk(self.active.next_offset(), segment_bytes, took), SeqCst);
            core.preparer_signal().wake_if_asleep();
        }
    }

    /// Says in the segment what is durable, now and then.
    fn mark(&mut self, core: &Core) {
        let durable = core.durable.get();
        let due = durable > self.active.marked
            && self.active.next_offset() >= self.active.marked_at + MARK_BYTES
            && self.active.next_offset() + FRAME_BYTES as u64
                <= records_end(self.active.segment.header.segment_bytes);
        if due && self.active.unwritten() == 0 {
            self.active.marked_at = self.active.next_offset();
            self.active.marked = durable;
            self.active.stage_frame(Frame::mark(durable, self.generation), &[]);
        }
    }

    /// Takes a record that is no part of a larger batch and fits, into the segment and beside what is
    /// staged: most of them. False if the next one is no such record.
    fn take_small(&mut self, core: &Core) -> bool {
        let queued = core.ring.head(self.taken);
        let bytes = queued.frame.bytes() as u64;
        let end = records_end(self.active.segment.header.segment_bytes);
        let fits = self.active.has_room(bytes) && self.active.next_offset() + bytes <= end;
        if queued.frame.more > 0 || !fits {
            return false;
        }
        self.take_whole(core, queued);
        true
    }

    /// A record for which there is room in the staging.
    fn take_whole(&mut self, core: &Core, queued: Queued) {
        let payload_bytes = queued.frame.payload_bytes as usize;
        let padded = self.active.stage_whole(queued.frame, queued.payload_hash);
        core.ring.read(self.taken + FRAME_BYTES as u64, padded);
        padded[payload_bytes..].fill(0);
        self.taken += queued.frame.bytes() as u64;
    }

    /// Takes a record, or a whole batch, which lies in one segment.
    fn take_unit(&mut self, core: &Core) -> Result<()> {
        let (mut end, mut bytes) = (self.taken, 0);
        loop {
            let frame = core.ring.head(end).frame;
            bytes += frame.bytes() as u64;
            end += frame.bytes() as u64;
            if frame.more == 0 {
                break;
            }
        }
        if self.active.next_offset() + bytes > records_end(self.active.segment.header.segment_bytes)
        {
            self.rotate(core)?;
        }
        if !self.active.has_room(bytes) {
            self.settle(core, 0)?;
        }
        while self.taken < end {
            self.take_record(core)?;
        }
        Ok(())
    }

    fn take_record(&mut self, core: &Core) -> Result<()> {
        let queued = core.ring.head(self.taken);
        if self.active.has_room(queued.frame.bytes() as u64) {
            self.take_whole(core, queued);
            return Ok(());
        }
        self.active.stage_head(queued.frame, queued.payload_hash)?;
        let mut position = self.taken + FRAME_BYTES as u64;
        let mut left = queued.frame.payload_bytes as usize;
        while left > 0 {
            let piece = self.active.stage_payload(left)?;
            core.ring.read(position, piece);
            position += piece.len() as u64;
            left -= piece.len();
        }
        self.active.end_record()?;
        self.taken += queued.frame.bytes() as u64;
        Ok(())
    }

    /// Seals the segment and goes on in another.
    fn rotate(&mut self, core: &Core) -> Result<()> {
        let _span = tracing::debug_span!("rotate", after = self.active.last_index).entered();
        let begun = core.clock().now();
        let spare = spares::take(core, self.active.segment.place)?;
        self.write(core)?;
        let payload = self.active.sparse.encode();
        let payload_bytes = u32::try_from(payload.len()).expect("a seal is small");
        let index = self.active.last_index;
        let seal = Frame { kind: Kind::Seal, index, payload_bytes, more: 0 };
        // Behind a pad there may be no room for it. It is a help only.
        let segment_bytes = self.active.segment.header.segment_bytes;
        if self.active.next_offset() + seal.bytes() as u64 <= segment_bytes {
            self.active.stage_frame(seal, &payload);
            self.active.write(None)?;
        }
        let first_index = index + 1;
        let mut next =
            self.begin(core, &spare, first_index, Some(self.active.segment.previous()))?;
        next.inherit(&mut self.active);
        core.segments.push(Entry { first_index, place: next.segment.place });
        self.active = next;
        self.since = begun;
        let took = core.clock().now().saturating_sub(begun);
        tracing::debug!(first_index, ?took, "rotated");
        core.counts.change(|counts| counts.rotations += 1);
        core.tell(Event::Rotated { first_index, took });
        self.tell_room(core);
        Ok(())
    }

    /// Makes a spare the next segment: its link is written, and its name durable.
    fn begin(
        &self,
        core: &Core,
        spare: &Spare,
        first_index: u64,
        previous: Option<Previous>,
    ) -> Result<Active> {
        let mut active = stage_begin(core, spare, first_index, previous, self.generation);
        active.write(None)?;
        enter(core, &mut active, spare)?;
        Ok(active)
    }

    /// A write or a sync failed. Puts what is not durable somewhere else, or stops the log.
    pub(crate) fn fail_over(&mut self, core: &Core, error: Error) -> Result<()> {
        let failed = self.active.segment.name.clone();
        let _span = tracing::warn_span!("fail_over", segment = failed).entered();
        // However it went: nothing goes to this segment any more.
        while self.active.flying() > 0 {
            self.active.land().ok();
        }
        tracing::warn!(segment = failed, %error, "a segment failed");
        let durable = core.durable.get();
        let failures = if durable > self.failures.1 { 1 } else { self.failures.0 + 1 };
        self.failures = (failures, durable);
        // Under `never` what was written is not in the ring any more.
        if core.options.policy == Policy::Never || failures > FAILURES_MAX {
            return Err(core.stop(error));
        }
        let here = self.active.segment.place;
        let elsewhere = (0..core.places.len()).filter(|&place| place != here);
        let mut last_error = error;
        for place in elsewhere.chain([here]) {
            match self.replace(core, place) {
                Ok(()) => {
                    let first_index = self.active.segment.link.first_index;
                    core.tell(Event::FailedOver { segment: &failed, first_index });
                    return Ok(());
                }
                Err(error) => last_error = error,
            }
        }
        Err(core.stop(last_error))
    }

    /// Goes on in `place`, after the last durable record, with everything that the ring holds of what
    /// was written.
    fn replace(&mut self, core: &Core, place: usize) -> Result<()> {
        let begun = core.clock().now();
        let spare = spares::take(core, place)?;
        let mut anchor = lock(&core.sync_turn);
        let durable = core.durable.get();
        let written = core.written.get();
        // Also an attempt that fails has its own: it may have got its name.
        self.generation += 1;
        let generation = self.generation;
        let from = core.ring.released();
        let mut next = Self {
            active: stage_begin(core, &spare, durable + 1, anchor.previous, generation),
            taken: from,
            generation,
            since: begun,
            failures: self.failures,
            flusher: Arc::clone(&self.flusher),
        };
        next.active.stage_frame(Frame::mark(durable, generation), &[]);
        while next.active.last_index < written {
            let room = next.active.next_offset() + core.options.max_batch_bytes();
            let end = records_end(next.active.segment.header.segment_bytes);
            assert!(room <= end, "a ring fits into half a segment");
            next.take_unit(core)?;
        }
        if core.options.tail == Tail::Pad {
            next.active.pad_block();
        }
        next.active.write_end()?;
        next.active.publish_end();
        next.active.segment.file.sync(core.places[place].method.call)?;
        core.places[place].begin_cut()?;
        enter(core, &mut next.active, &spare)?;
        let cut = core.segments.replace(Entry { first_index: durable + 1, place });
        for old in &cut {
            if (old.place, old.first_index) != (place, durable + 1) {
                // Its generation says that it is not part of the log, should it stay.
                core.stale.push(*old);
            }
        }
        // A disk that is too slow is not waited for.
        let is_slow = |old: &Entry| core.options.slow_after.is_some() && old.place != place;
        // Nor whoever is taking segments away: that does it as well.
        let retention = try_lock(&core.retention);
        if retention.is_some() && !core.stale.any(is_slow) && core.sweep().is_ok() {
            core.places[place].end_cut().ok();
        }
        drop(retention);
        let (index, position) = (next.active.last_index, next.taken);
        {
            let mut unsynced = lock(&core.unsynced);
            unsynced.segments.clear();
            unsynced.since = None;
            unsynced.index = index;
            unsynced.position = position;
        }
        if index > durable {
            *anchor = Anchor { previous: Some(next.active.segment.previous()) };
        }
        next.active.loose = false;
        *self = next;
        // Whoever waits is told next, and may look.
        core.counts.change(|counts| counts.failovers += 1);
        core.on_durable(index, position, core.clock().now().saturating_sub(begun));
        drop(anchor);
        self.tell_room(core);
        Ok(())
    }

    /// Cuts off what comes after `last_index`, which is durable, and goes on in a new segment.
    pub(crate) fn cut(
        &mut self,
        core: &Core,
        spare: &Spare,
        last_index: u64,
        end: Option<Previous>,
    ) -> Result<()> {
        let place = spare.place;
        let mut anchor = lock(&core.sync_turn);
        let first_index = last_index + 1;
        self.generation += 1;
        let mut next = stage_begin(core, spare, first_index, end, self.generation);
        next.stage_frame(Frame::mark(last_index, self.generation), &[]);
        if core.options.tail == Tail::Pad {
            next.pad_block();
        }
        next.write_end()?;
        next.publish_end();
        next.segment.file.sync(core.places[place].method.call)?;
        core.places[place].begin_cut()?;
        enter(core, &mut next, spare)?;
        let cut = core.segments.replace(Entry { first_index, place });
        for old in cut.iter().rev() {
            if (old.place, old.first_index) != (place, first_index) {
                core.places[old.place].dir.remove(&segment_name(old.first_index))?;
            }
        }
        if core.stale.is_empty() {
            core.places[place].end_cut()?;
        }
        {
            let mut unsynced = lock(&core.unsynced);
            unsynced.segments.clear();
            unsynced.since = None;
            unsynced.index = last_index;
        }
        *anchor = Anchor { previous: end };
        next.loose = false;
        self.active = next;
        drop(anchor);
        self.tell_room(core);
        Ok(())
    }

    /// Says in the segment that everything is durable, durably: the last thing that a log does.
    pub(crate) fn finish(&mut self, core: &Core) -> Result<()> {
        loop {
            match self.turn(core)? {
                Turn::Worked => {}
                Turn::Idle => break,
                Turn::Stuck => return Err(Error::OutOfSpace { last_index: core.written.get() }),
            }
        }
        core.sync_now().or_else(|error| self.fail_over(core, error))?;
        let durable = core.durable.get();
        let end = records_end(self.active.segment.header.segment_bytes);
        let room = self.active.next_offset() + FRAME_BYTES as u64 <= end;
        if durable > self.active.marked && room {
            self.active.stage_frame(Frame::mark(durable, self.generation), &[]);
            self.active.marked = durable;
            // All is durable already; but a file that has failed takes no more. What replaces it says the same.
            let place = &core.places[self.active.segment.place];
            let marked = self.active.write_end().and_then(|_bytes| {
                self.active.segment.file.sync(place.method.call)?;
                Ok(())
            });
            marked.or_else(|error| self.fail_over(core, error))?;
        }
        Ok(())
    }
}

/// Whether a segment of which so much was filled in this time is filled by large writes.
fn is_bulk(filled: u64, segment_bytes: u64, took: Duration) -> bool {
    took.as_nanos() * u128::from(segment_bytes) < BULK.as_nanos() * u128::from(filled)
}

/// A spare with a link, staged.
fn stage_begin(
    core: &Core,
    spare: &Spare,
    first_index: u64,
    previous: Option<Previous>,
    generation: u64,
) -> Active {
    let link = Link {
        first_index,
        ordinal: previous.map_or(0, |previous| previous.ordinal + 1),
        generation,
        previous_salt: previous.map_or(0, |previous| previous.salt),
        previous_end: previous.map_or(0, |previous| previous.end),
        previous_first_index: previous.map_or(0, |previous| previous.first_index),
        durable: core.durable.get().min(first_index - 1),
        unix_ns: core.clock().unix_ns(),
    };
    let name = segment_name(first_index);
    let file = Arc::clone(&spare.file);
    Active::begin(name, spare.place, file, spare.header, link, core.options.ring_bytes)
}

/// Gives a spare its name. Where that fails it may have got it all the same.
fn enter(core: &Core, active: &mut Active, spare: &Spare) -> Result<()> {
    let entry = Entry { first_index: active.segment.link.first_index, place: spare.place };
    core.stale.claim(entry);
    let entered = active.enter(&core.places[spare.place], &spare.name);
    if entered.is_err() {
        core.stale.push(entry);
    }
    entered
}

/// Whether the writer has anything to do.
pub(crate) fn has_work(core: &Core, taken: u64) -> bool {
    let waits_for_sync = || {
        let durable = core.durable.get();
        core.wanted.load(SeqCst) > durable && core.written.get() > durable
    };
    !matches!(core.gate(), Gate::Stopped) && (core.ring.filled() != taken || waits_for_sync())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// The first segments of a busy log got zeros beside the records, because a segment had to be full
    /// before it was known how fast: who waited for a record waited for those too.
    #[test]
    fn a_quarter_of_a_segment_tells_how_fast_it_is_filled() {
        let quarter = |ms| is_bulk(16 << 20, 64 << 20, Duration::from_millis(ms));
        assert!(quarter(0) && quarter(499));
        assert!(!quarter(500) && !quarter(60_000));
    }
}
