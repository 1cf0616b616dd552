//! Truncation of a [`Log`]: retention at its oldest end, cutting off at its newest.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::active::Previous;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::{Decoded, Kind};
use crate::log::Log;
use crate::place::segment_name;
use crate::recovery::read_piece;
use crate::shim::lock;
use crate::spares;

/// How much of its oldest end a log keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retain {
    /// This record and what comes after it.
    From(u64),
    /// So many bytes of files.
    Bytes(u64),
    /// What was appended so long ago, at most.
    Age(Duration),
}

impl Log {
    /// Removes the oldest segments that nobody asked to keep, and returns the oldest record that is
    /// left. Whole segments go, so a little more may be kept than was asked for; the last one stays.
    /// Durable on return.
    ///
    /// # Errors
    /// The directory fails: what was removed before is gone, the rest is there. Also if one failed
    /// earlier and still holds a file that was replaced: it would be taken for the log's beginning.
    pub fn truncate_before(&self, retain: Retain) -> Result<u64> {
        self.core.check_owner()?;
        // Before it is known what goes: a cut gives indexes away again.
        let _retention = lock(&self.core.retention);
        let keep_from = match retain {
            Retain::From(index) => index,
            Retain::Bytes(bytes) => self.first_within(bytes)?,
            Retain::Age(age) => self.first_younger_than(age)?,
        };
        // The oldest that is left must have a record that is durable: then its link is, and a power cut
        // leaves a log that knows where it was.
        let keep_from = keep_from.min(self.core.durable.get());
        self.core.sweep()?;
        while let Some(old) = self.core.segments.pop_before(keep_from) {
            let name = segment_name(old.first_index);
            if let Err(error) = spares::give_back(&self.core, old.place, &name) {
                self.core.segments.put_back(old);
                return Err(error);
            }
        }
        Ok(self.first_index())
    }

    /// First index of the oldest segment that, with those after it, takes no more than so many bytes.
    /// Files of one log may differ in size.
    fn first_within(&self, bytes: u64) -> Result<u64> {
        let all = self.core.segments.all();
        let mut first_index = all.last().map_or(1, |entry| entry.first_index);
        let mut left = bytes;
        for entry in all.iter().rev() {
            let dir = &*self.core.places[entry.place].dir;
            let name = segment_name(entry.first_index);
            let file_bytes = dir.open(&name, plimsoll_sync::Access::default())?.len()?;
            if file_bytes > left {
                break;
            }
            left -= file_bytes;
            first_index = entry.first_index;
        }
        Ok(first_index)
    }

    /// First index of the oldest segment that has records younger than `age`: a segment is as old as
    /// the beginning of the next.
    fn first_younger_than(&self, age: Duration) -> Result<u64> {
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let since = self.core.clock().unix_ns().saturating_sub(age_ns);
        let all = self.core.segments.all();
        for pair in all.windows(2) {
            let dir = &*self.core.places[pair[1].place].dir;
            let link = read_piece(dir, pair[1])?.ok().and_then(|piece| piece.link);
            if link.is_none_or(|link| link.unix_ns >= since) {
                return Ok(pair[0].first_index);
            }
        }
        Ok(all.last().map_or(1, |entry| entry.first_index))
    }

    /// Cuts off every record after `last_index`; they never come back. The next append gets
    /// `last_index + 1`. Durable on return, as is everything up to `last_index`. Appends wait
    /// meanwhile; who waits for a record that is cut is told [`Error::Truncated`]. A retention that is
    /// under way is waited for.
    ///
    /// Nothing is overwritten: the log goes on in a new segment.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the log begins later. [`Error::Stopped`] if the disk fails.
    pub fn truncate_after(&self, last_index: u64) -> Result<()> {
        self.core.check_owner()?;
        // What is being taken away shall not get its name again meanwhile.
        let _retention = lock(&self.core.retention);
        self.core.role_wanted.fetch_add(1, SeqCst);
        let writer = lock(&self.role);
        self.core.role_wanted.fetch_sub(1, SeqCst);
        let mut writer = writer;
        let (first_index, newest) = (self.first_index(), self.core.last.get());
        if last_index.saturating_add(1) < first_index {
            return Err(Error::OutOfRange { index: last_index, first_index, last_index: newest });
        }
        self.core.while_quiet(|| {
            // So that nothing is on its way when the rest is cut.
            writer.finish(&self.core)?;
            if last_index >= self.core.last.get() {
                return Ok(((), None));
            }
            let end = self.end_of(last_index)?;
            // Before anything changes: on a full disk there may be none.
            let spare = spares::take(&self.core, writer.active.segment.place)?;
            self.core.wanted.store(0, SeqCst);
            // Before the files change, so that a reader who does not find a record knows why.
            for mark in [&self.core.durable, &self.core.written, &*self.core.last] {
                mark.set_back(last_index);
            }
            writer
                .cut(&self.core, &spare, last_index, end)
                .map_err(|error| self.core.stop(error))?;
            Ok(((), Some(last_index + 1)))
        })
    }

    /// Where a durable record ends.
    fn end_of(&self, index: u64) -> Result<Option<Previous>> {
        let Some(covering) = self.core.segments.covering(index) else {
            return Ok(None);
        };
        let entry = covering.entry;
        let dir = &*self.core.places[entry.place].dir;
        let corrupt = |damage| {
            Error::corrupt(segment_name(entry.first_index), 0, damage, entry.first_index..=index)
        };
        let piece = read_piece(dir, entry)?.map_err(corrupt)?;
        let file = dir.open(&segment_name(entry.first_index), plimsoll_sync::Access::default())?;
        let mut cursor = Cursor::new(file, piece.header);
        loop {
            match cursor.peek()? {
                Decoded::Frame(frame) => {
                    cursor.skip(&frame);
                    if frame.kind == Kind::Record && frame.index == index {
                        break;
                    }
                }
                Decoded::Bad(damage) => return Err(corrupt(damage)),
                Decoded::Empty | Decoded::Needs(_) => {
                    return Err(corrupt(crate::format::Damage::Empty));
                }
            }
        }
        let ordinal = piece.link.map_or(0, |link| link.ordinal);
        let salt = piece.header.salt;
        Ok(Some(Previous { salt, end: cursor.at(), first_index: entry.first_index, ordinal }))
    }
}
