//! [`Writer`]: takes records from the ring and puts them into segments. A role, not a thread: whoever
//! holds its lock plays it, the log's own thread or an appender that would only wait for it.
//!
//! After a write or a sync has failed, the segment is never touched again: the writer is without one
//! until another follows ([`super::replace`]). What is not durable is still in the ring.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::Commit;
use super::succession::{Beginning, Step, Successor};
use super::take::{take_small, take_unit, unit_bytes};
use crate::error::{Error, Result};
use crate::segment::active::Active;
use crate::segment::flusher::Flusher;
use crate::segment::format::{BLOCK_BYTES, FRAME_BYTES, Frame, Kind};
use crate::segment::handle::Previous;
use crate::shim::thread;
use crate::stats::Event;

/// At least so many bytes between two marks: one in each block.
const MARK_BYTES: u64 = BLOCK_BYTES;
/// Writes that may be under way at once: one is made, and the next one is there when it ends.
const FLIGHTS_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct Writer {
    /// `None` after it failed, or where the log was opened and the disk is full.
    pub(super) active: Option<Active>,
    /// Ring position of the next record to take.
    pub(super) taken: u64,
    pub(super) generation: u64,
    /// When the segment was begun.
    pub(super) since: Duration,
    /// Failures since something last became durable, and what was durable then.
    pub(super) failures: (u32, u64),
    /// The segment that failed, and whether it only had no room, until another has followed.
    pub(super) failed: Option<(String, bool)>,
    pub(super) flusher: Arc<Flusher>,
    pub(super) staging_bytes: usize,
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
    /// Goes on in a segment, or in one that is still to follow the last.
    pub(crate) fn new(
        active: Option<Active>,
        taken: u64,
        generation: u64,
        flusher: Arc<Flusher>,
        staging_bytes: usize,
    ) -> Self {
        Self {
            active,
            taken,
            generation,
            since: Duration::ZERO,
            failures: (0, 0),
            failed: None,
            flusher,
            staging_bytes,
        }
    }

    /// Gives back memory that was used, if nothing is staged.
    pub(super) fn rest(&mut self) {
        if let Some(active) = &mut self.active {
            active.rest();
        }
    }

    /// Shows what a log that was just opened goes on with.
    pub(crate) fn begin(&mut self, commit: &Commit) -> Result<()> {
        self.since = commit.clock().now();
        self.show(commit);
        self.tell_room(commit);
        if self.active.is_none() {
            self.go_on(commit)?;
        }
        Ok(())
    }

    /// Ring position of the next record to take.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes some records and writes them, and syncs if somebody waits for that.
    ///
    /// # Errors
    /// The log has stopped, or was closed: then its directory may be another's by now.
    pub(crate) fn turn(&mut self, commit: &Commit) -> Result<Turn> {
        if commit.is_over() {
            return Err(commit.intake.why_stopped());
        }
        if self.active.is_none() {
            return self.go_on(commit);
        }
        match self.try_turn(commit) {
            Err(Error::OutOfSpace { .. }) => Ok(Turn::Stuck),
            Err(error) => self.fail(commit, error),
            done => done,
        }
    }

    fn active(&mut self) -> &mut Active {
        self.active.as_mut().expect("whoever has no segment gets one first")
    }

    fn try_turn(&mut self, commit: &Commit) -> Result<Turn> {
        let filled = commit.intake.ring.filled();
        if self.taken == filled {
            return self.idle_turn(commit);
        }
        commit.tell.occupancy(filled - self.taken);
        commit.syncer.note_taken();
        self.mark(commit);
        let stuck = self.stage(commit, filled)?;
        if !stuck && self.taken < filled {
            // It goes out while the next turns stage what comes after it.
            self.settle(commit, FLIGHTS_MAX - 1)?;
            let (taken, flusher) = (self.taken, Arc::clone(&self.flusher));
            self.active().begin_write(&flusher, taken);
            return Ok(Turn::Worked);
        }
        let wants = commit.syncer.is_wanted();
        let syncs_itself = commit.files.place.method.with_write.is_some();
        if wants && syncs_itself && !self.active().loose && !stuck {
            self.write_durably(commit)?;
        } else {
            self.write(commit)?;
            if wants && commit.syncer.is_sync_wanted() {
                commit.sync()?;
            }
        }
        Ok(if stuck { Turn::Stuck } else { Turn::Worked })
    }

    /// There is nothing to take.
    fn idle_turn(&mut self, commit: &Commit) -> Result<Turn> {
        if self.active().flying() > 0 {
            self.settle(commit, 0)?;
            return Ok(Turn::Worked);
        }
        if commit.syncer.is_sync_wanted() {
            commit.sync()?;
            return Ok(Turn::Worked);
        }
        Ok(Turn::Idle)
    }

    /// Stages records until all are, or a write is due. Returns whether there is no room for the rest.
    fn stage(&mut self, commit: &Commit, filled: u64) -> Result<bool> {
        let ring = &commit.intake.ring;
        while self.taken < filled {
            let active = self.active.as_mut().expect("a turn has a segment");
            take_small(ring, active, &mut self.taken, filled);
            if self.taken == filled || active.is_write_due() {
                break;
            }
            let bytes = unit_bytes(ring, self.taken);
            if !active.fits(bytes) {
                match self.rotate(commit, bytes) {
                    Err(Error::OutOfSpace { .. }) => return Ok(true),
                    rotated => rotated?,
                }
            }
            if !self.active().has_room(bytes) {
                self.settle(commit, 0)?;
            }
            let active = self.active.as_mut().expect("a turn has a segment");
            take_unit(ring, active, &mut self.taken)?;
        }
        Ok(false)
    }

    /// One call that writes and syncs, if nothing earlier waits for a sync.
    fn write_durably(&mut self, commit: &Commit) -> Result<()> {
        self.settle(commit, 0)?;
        let Some(turn) = commit.syncer.turn_if_all_durable() else {
            self.write(commit)?;
            return commit.sync();
        };
        let taken = self.taken;
        let with_write = commit.files.place.method.with_write;
        let active = self.active();
        let _span = tracing::trace_span!("write_sync", index = active.last_index).entered();
        let begun = commit.clock().now();
        let bytes = active.write(with_write)?;
        active.publish_end();
        let took = commit.clock().now().saturating_sub(begun);
        let (index, previous) = (active.last_index, active.segment.previous());
        self.wrote(commit, bytes, took);
        let synced = turn.all_durable(Some(previous), index, taken, took);
        commit.release(synced);
        Ok(())
    }

    /// Waits until no more than so many writes are under way, and publishes what the others wrote.
    fn settle(&mut self, commit: &Commit, flights: usize) -> Result<()> {
        while self.active().flying() > flights
            && let Some((bytes, took, ends)) = self.active().land()?
        {
            self.wrote(commit, bytes, took);
            let active = self.active();
            active.segment.end.store(ends.records_end, SeqCst);
            if ends.index > commit.intake.marks.written.get() {
                commit.written(&active.segment, ends.index, ends.position);
                active.loose = false;
            }
            if active.flying() > 0 {
                commit.syncer.note_taken();
            }
        }
        Ok(())
    }

    /// Writes what is staged, and publishes it.
    pub(super) fn write(&mut self, commit: &Commit) -> Result<()> {
        self.settle(commit, 0)?;
        if self.active().unwritten() > 0 {
            let active = self.active();
            let _span = tracing::trace_span!("write", index = active.last_index).entered();
            let begun = commit.clock().now();
            let bytes = active.write(None)?;
            self.wrote(commit, bytes, commit.clock().now().saturating_sub(begun));
        }
        let taken = self.taken;
        let active = self.active();
        active.publish_end();
        if active.last_index > commit.intake.marks.written.get() {
            commit.written(&active.segment, active.last_index, taken);
            // From here on a sync covers it.
            active.loose = false;
        }
        Ok(())
    }

    fn wrote(&mut self, commit: &Commit, bytes: u64, took: Duration) {
        self.show(commit);
        commit.tell.wrote(bytes, took);
        self.tell_room(commit);
    }

    /// Shows readers where records begin. Some of them may not be written yet; nobody asks for those.
    pub(crate) fn show(&self, commit: &Commit) {
        if let Some(active) = &self.active {
            commit.files.segments.show(active.segment.header.salt, &active.sparse);
        }
    }

    /// Tells appends how far they may go.
    pub(crate) fn tell_room(&self, commit: &Commit) {
        let Some(active) = &self.active else { return };
        let took = commit.clock().now().saturating_sub(self.since);
        let tell = |room| commit.intake.set_room_limit(self.taken + room);
        let stock = &commit.files.stock;
        if stock.look(active.segment.header, active.next_offset(), took, tell) {
            commit.signals.preparer.wake_if_asleep();
        }
    }

    /// Says in the segment what is durable, now and then.
    fn mark(&mut self, commit: &Commit) {
        let (durable, generation) = (commit.intake.marks.durable.get(), self.generation);
        let active = self.active();
        let due = durable > active.marked
            && active.next_offset() >= active.marked_at + MARK_BYTES
            && active.fits(FRAME_BYTES as u64)
            && active.unwritten() == 0;
        if due {
            active.stage_mark(durable, generation);
        }
    }

    /// Seals the segment and goes on in another that has room for so many bytes.
    pub(super) fn rotate(&mut self, commit: &Commit, bytes: u64) -> Result<()> {
        let index = self.active().last_index;
        let _span = tracing::debug_span!("rotate", after = index).entered();
        let begun = commit.clock().now();
        // First what may fail, so that nothing is left of a file that is not used.
        self.write(commit)?;
        let spare = commit.take_spare(bytes)?;
        let is_empty = self.active().is_empty();
        let (durable, generation) = (commit.intake.marks.durable.get(), self.generation);
        let active = self.active();
        let (step, previous) = if is_empty {
            // Too small for the first batch: the next one takes its name, and its word of what it cut off.
            (Step::Cut, Previous::of_link(&active.segment.link))
        } else {
            if let Err(error) = seal(active) {
                // What follows the one that failed needs it.
                commit.files.stock.put_back(spare);
                return Err(error);
            }
            (Step::Rotate, Some(active.segment.previous()))
        };
        let beginning = Beginning { first_index: index + 1, previous, generation, durable };
        let staging_bytes = self.staging_bytes;
        let next = Successor::stage(&commit.files, spare, step, beginning, staging_bytes);
        let mut next = next.enter(&commit.files)?;
        if step == Step::Cut {
            commit.sweep_soon();
        }
        next.inherit(self.active());
        self.active = Some(next);
        self.since = begun;
        let took = commit.clock().now().saturating_sub(begun);
        tracing::debug!(first_index = index + 1, ?took, "rotated");
        commit.tell.happened(Event::Rotated { first_index: index + 1, took });
        self.tell_room(commit);
        commit.room_again();
        Ok(())
    }

    /// Makes records up to `index` durable, and waits for what is on its way.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if there is no room for it, [`Error::Stopped`].
    pub(super) fn drain(&mut self, commit: &Commit, index: u64) -> Result<()> {
        let marks = &commit.intake.marks;
        commit.syncer.want(index);
        while marks.durable.get() < index || self.active.is_none() {
            match self.turn(commit)? {
                Turn::Worked => {}
                // An append has its index and is about to show its record.
                Turn::Idle => thread::yield_now(),
                Turn::Stuck => return Err(Error::OutOfSpace { last_index: marks.durable.get() }),
            }
        }
        if let Err(error) = self.settle(commit, 0)
            && self.fail(commit, error)? == Turn::Stuck
        {
            return Err(Error::OutOfSpace { last_index: marks.durable.get() });
        }
        Ok(())
    }
}

/// Says where some records begin. A help only.
fn seal(active: &mut Active) -> Result<()> {
    let payload = active.sparse.encode();
    let payload_bytes = u32::try_from(payload.len()).expect("a seal is small");
    let seal = Frame { kind: Kind::Seal, index: active.last_index, payload_bytes, more: 0 };
    let end = active.next_offset() + seal.bytes() as u64;
    assert!(end <= active.segment.header.segment_bytes, "records end before the seal's place");
    active.stage_frame(seal, &payload);
    active.write(None)?;
    Ok(())
}
