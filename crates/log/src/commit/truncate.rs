//! Truncation: retention at the oldest end of a log, cutting off at its newest.

use super::Commit;
use super::succession::{Beginning, Step, Successor};
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::files::place::Spare;
use crate::files::retain::Retain;
use crate::options::Ack;
use crate::read::reader::Reader;
use crate::read::source::Source;
use crate::segment::handle::Previous;

impl Commit {
    /// Removes the oldest segments; the oldest record that is left.
    pub(crate) fn truncate_before(&self, retain: Retain) -> Result<u64> {
        // Before it is known what goes: a cut gives indexes away again.
        let _retention = self.files.retention_turn();
        // The oldest that is left must have a record that is durable: then its link is, and a power cut
        // leaves a log that knows where it was.
        let keep_from = self.files.keep_from(retain)?.min(self.intake.marks.durable.get());
        if self.intake.is_stopped() && !self.files.stale.is_empty() {
            // What it stopped at may be one of them, and hold records.
            return Err(self.intake.why_stopped());
        }
        self.files.sweep()?;
        let removed = self.files.remove_before(keep_from);
        self.room_again();
        removed?;
        Ok(self.files.first_index())
    }

    /// Cuts off what comes after a record. Appends go on meanwhile, but for those to a ring that outlives
    /// the process: it must not hold two records of one index.
    pub(crate) fn truncate_after(&self, last_index: u64) -> Result<()> {
        // What is being taken away shall not get its name again meanwhile.
        let _retention = self.files.retention_turn();
        let (first_index, newest) = (self.files.first_index(), self.intake.marks.appended.get());
        if last_index.saturating_add(1) < first_index {
            return Err(Error::OutOfRange { index: last_index, first_index, last_index: newest });
        }
        if last_index >= newest {
            return self.role_by_force().drain(self, newest);
        }
        // Before anybody waits for us: it takes its time, and on a full disk there may be none.
        let spare = self.files.stock.take_quickly().map_err(|error| self.no_spare(error))?;
        // While it can be refused: once the marks are back the records are gone from memory.
        if let Err(error) = self.files.note_cut() {
            self.files.stock.put_back(spare);
            let last_index = newest;
            let is_full = error.is_out_of_space();
            return Err(if is_full { Error::OutOfSpace { last_index } } else { error });
        }
        let name = spare.name.clone();
        let cut = self.cut(last_index, first_index, spare);
        if cut.is_err() {
            // It is of no use then, if it is still there. Neither is the note.
            self.files.dir().remove(&name).ok();
            self.sweep_soon();
        }
        cut
    }

    fn cut(&self, last_index: u64, first_index: u64, spare: Spare) -> Result<()> {
        let mut writer = self.role_by_force();
        writer.drain(self, last_index)?;
        let end = if last_index < first_index { None } else { Some(self.end_of(last_index)?) };
        writer.cut(self, last_index, end, spare)
    }

    /// Where a durable record ends.
    fn end_of(&self, index: u64) -> Result<Previous> {
        let mut reader = Reader::new(Source::Live(self.live()), index, Ack::Durable)?;
        let (first_index, salt, end) = reader.find_end()?;
        let ordinal = self.files.head(first_index)?.ok().and_then(|head| head.link);
        let ordinal = ordinal.map_or(0, |link| link.ordinal);
        Ok(Previous { salt, end, first_index, ordinal })
    }
}

impl Writer {
    /// Goes on behind `last_index`, which is durable and ends there, in a new segment. Nothing is written
    /// over, so that a crash leaves the log as it was or cut.
    fn cut(
        &mut self,
        commit: &Commit,
        last_index: u64,
        end: Option<Previous>,
        spare: Spare,
    ) -> Result<()> {
        let begun = commit.clock().now();
        let turn = commit.syncer.turn();
        commit.syncer.want_nothing();
        // The marks before the files, so that a reader who does not find a record knows why.
        let mut quiet = commit.intake.quiet();
        let taken = quiet.set_back(last_index);
        let ring = &commit.intake.ring;
        ring.note_cut(Some(last_index));
        let held = commit.ring_outlives_us.then_some(quiet);
        self.generation += 1;
        let (generation, staging_bytes) = (self.generation, self.staging_bytes);
        let first_index = last_index + 1;
        let beginning = Beginning { first_index, previous: end, generation, durable: last_index };
        let next = Successor::stage(&commit.files, spare, Step::Cut, beginning, staging_bytes);
        let next = match next.enter(&commit.files) {
            Ok(next) => next,
            // The records are gone from memory, and may not be from the disk.
            Err(error) => {
                self.active = None;
                drop(held);
                return Err(commit.stop(error));
            }
        };
        self.active = Some(next);
        self.taken = taken;
        self.since = begun;
        let took = commit.clock().now().saturating_sub(begun);
        let synced = turn.all_durable(end, last_index, taken, took);
        ring.release(taken);
        ring.note_cut(None);
        // A record that comes behind those that were cut off must find none of them: a ring that
        // outlives the process with two records of one index is of no use.
        assert!(
            held.is_none() || ring.released() == ring.filled(),
            "what was cut off is in the ring"
        );
        drop(held);
        commit.release(synced);
        commit.sweep_soon();
        self.tell_room(commit);
        commit.room_again();
        Ok(())
    }
}
