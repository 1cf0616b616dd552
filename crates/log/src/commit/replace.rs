//! What becomes of a log whose segment failed: what is not durable is still in the ring, and goes to
//! another segment under the same indexes. Only if that fails too does the log stop.
//!
//! A disk that is full is no failure: the log accepts nothing more and keeps what it accepted in the ring
//! until there is room. On filesystems that copy on write this may happen at any write or sync.

use super::Commit;
use super::succession::{Beginning, Step, Successor};
use super::take::take_unit;
use super::writer::{Turn, Writer};
use crate::append::gate::Gate;
use crate::error::{Error, Result};
use crate::options::Policy;
use crate::stats::Event;

/// Segments that may fail one after the other before the log stops.
const FAILURES_MAX: u32 = 3;

impl Writer {
    /// A write or a sync failed. Puts what is not durable somewhere else, waits for room for it, or stops
    /// the log.
    pub(crate) fn fail(&mut self, commit: &Commit, error: Error) -> Result<Turn> {
        if let Some(mut active) = self.active.take() {
            let segment = active.segment.name();
            tracing::warn!(segment, %error, "a segment failed");
            // However it went: nothing goes to this segment any more.
            while active.flying() > 0 {
                active.land().ok();
            }
            self.failed = Some((segment, error.is_out_of_space()));
        }
        // Under `never` what was written is not in the ring any more.
        if commit.policy == Policy::Never {
            return Err(commit.stop(error));
        }
        commit.syncer.give_up();
        if !error.is_out_of_space() {
            let durable = commit.intake.marks.durable.get();
            let failures = if durable > self.failures.1 { 1 } else { self.failures.0 + 1 };
            self.failures = (failures, durable);
            if failures > FAILURES_MAX {
                return Err(commit.stop(error));
            }
        }
        self.go_on(commit)
    }

    /// Goes on in another segment, if there is room for one.
    pub(super) fn go_on(&mut self, commit: &Commit) -> Result<Turn> {
        match self.replace(commit) {
            Ok(()) => Ok(Turn::Worked),
            Err(error) if error.is_out_of_space() => {
                commit.set_homeless(true);
                // What is accepted already has no room.
                commit.intake.set_room_limit(0);
                commit.intake.set_gate(Gate::OutOfSpace);
                Ok(Turn::Stuck)
            }
            Err(error) => Err(commit.stop(error)),
        }
    }

    /// Begins a segment after the last durable record, with everything of the ring that was written
    /// behind it. All of that is durable then.
    fn replace(&mut self, commit: &Commit) -> Result<()> {
        assert!(self.active.is_none(), "a segment is replaced after it failed");
        let begun = commit.clock().now();
        let spare = commit.take_spare(commit.syncer.unsynced_bytes())?;
        let turn = commit.syncer.turn();
        let (durable, written) =
            (commit.intake.marks.durable.get(), commit.intake.marks.written.get());
        let mut taken = turn.durable().position;
        // Also an attempt that fails has its own: it may have got its name.
        self.generation += 1;
        let previous = turn.durable().previous;
        let generation = self.generation;
        let first_index = durable + 1;
        let beginning = Beginning { first_index, previous, generation, durable };
        let staging_bytes = self.staging_bytes;
        let mut next = Successor::stage(&commit.files, spare, Step::Cut, beginning, staging_bytes);
        while next.active.last_index < written {
            let took = take_unit(&commit.intake.ring, &mut next.active, &mut taken);
            took.inspect_err(|_| next.discard(&commit.files))?;
        }
        let active = next.enter(&commit.files)?;
        let previous = match active.is_empty() {
            true => previous,
            false => Some(active.segment.previous()),
        };
        let index = active.last_index;
        self.active = Some(active);
        self.taken = taken;
        self.since = begun;
        // Whoever waits is told next, and may look.
        if let Some((failed, was_full)) = self.failed.take() {
            commit.tell.happened(Event::FailedOver { segment: &failed, first_index, was_full });
        }
        let took = commit.clock().now().saturating_sub(begun);
        let synced = turn.all_durable(previous, index, taken, took);
        commit.set_homeless(false);
        commit.release(synced);
        commit.room_again();
        commit.sweep_soon();
        self.tell_room(commit);
        Ok(())
    }
}
