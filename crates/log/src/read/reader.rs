//! [`Reader`]: records in order, each checked.

use std::sync::Arc;

use super::lookup;
use super::shelf::Follows;
use super::source::Source;
use crate::error::{Error, Result};
use crate::files::list::Span;
use crate::files::opened::Opened;
use crate::options::Ack;
use crate::segment::cursor::Cursor;
use crate::segment::damage::Damage;
use crate::segment::format::{BLOCK_BYTES, Decoded, Frame, Kind};
use crate::segment::head::segment_name;

/// A record, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number.
    pub index: u64,
    /// What was appended.
    pub payload: &'a [u8],
}

/// Reads records one after the other, up to what the kernel had when they were asked for.
///
/// Every checksum is verified. A reader holds a file open and up to 256 KiB of memory, more where
/// records are larger; it never makes an append wait. One that has read a mebibyte in order is helped
/// by a thread: both read and check what comes, a piece each, with 1.3 MiB of memory. The log keeps the
/// segments that were read last open, at most 16, so that a lookup in one of them takes one read.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    next_index: u64,
    /// What must be reached before a record is read.
    level: Ack,
    open: Option<Open>,
    epoch: u64,
    /// How often the log had been cut when it began.
    cuts: u64,
    /// It has read so much in order that it is helped from the beginning of each segment on.
    is_long: bool,
}

#[derive(Debug)]
struct Open {
    span: Span,
    opened: Arc<Opened>,
    cursor: Cursor,
    frame: Option<Frame>,
    /// Index of the next record in the file.
    next_index: u64,
    /// Nothing was read since the file was opened or read anew: what stands at the cursor is what the
    /// file has.
    is_fresh: bool,
    /// Where a log that somebody else writes ended, and what stood there: it was read through to find
    /// out, and is not again as long as that stands there.
    end: Option<(u64, Damage)>,
    /// Where a record was missing that somebody else's log calls durable. It may have been written
    /// after its place was read and before the word of it was: then it is there at a second look.
    doubt: Option<u64>,
    /// Up to this record the rest of the batch was found behind each, since the file was read anew.
    whole_to: u64,
}

impl Open {
    /// Forgets what was read, because the file may have changed.
    fn refresh(&mut self) {
        self.cursor.refresh();
        self.whole_to = 0;
    }
}

impl Reader {
    pub(crate) fn new(source: Source, from: u64, level: Ack) -> Result<Self> {
        let (cuts, epoch) = (source.cuts(), source.epoch());
        let (open, is_long) = (None, false);
        let reader = Self { source, next_index: from, level, open, epoch, cuts, is_long };
        reader.source.check_range(from)?;
        Ok(reader)
    }

    /// Index of the record that comes next.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.next_index
    }

    /// The next record, or `None` if it is not there yet: ask again later, or [`crate::Log::follow`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] if durable bytes have changed: the reader stays before them. What is damaged before the record with which
    /// it began is passed by.
    /// [`Error::OutOfRange`] if the record was truncated, [`Error::Truncated`] if the one before it was
    /// cut off since the reader began, read or not: others may come in their place, so open another
    /// reader where it is known what stays.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        Ok(if self.advance()? { Some(self.current()) } else { None })
    }

    /// The record that the cursor is on.
    pub(super) fn current(&self) -> Record<'_> {
        let open = self.open.as_ref().expect("just advanced");
        let frame = open.frame.as_ref().expect("just advanced");
        Record { index: frame.index, payload: open.cursor.payload(frame) }
    }

    /// Where the next record ends: the segment's first index, its salt, and the byte offset.
    ///
    /// # Errors
    /// As [`Reader::next_record`]; [`Error::OutOfRange`] if it is not there.
    pub(crate) fn find_end(&mut self) -> Result<(u64, u64, u64)> {
        let index = self.next_index;
        if !self.advance()? {
            let (first_index, last_index) = (self.source.first_index(), index - 1);
            return Err(Error::OutOfRange { index, first_index, last_index });
        }
        let open = self.open.as_ref().expect("just advanced");
        let frame = open.frame.as_ref().expect("just advanced");
        let end = open.cursor.at() + frame.bytes() as u64;
        Ok((open.opened.first_index, open.opened.header.salt, end))
    }

    /// Puts the cursor on the next record; false if there is none yet.
    pub(super) fn advance(&mut self) -> Result<bool> {
        // First how far it may read, and then whether something was cut off: what comes in its place is
        // written after that.
        let limit = self.source.limit(self.level);
        if self.source.epoch() != self.epoch {
            self.begin_anew()?;
        }
        if let Some(open) = &mut self.open {
            open.is_fresh = false;
        }
        if self.next_index > limit {
            self.source.check_range(self.next_index)?;
            return Ok(false);
        }
        loop {
            let needs_open = self
                .open
                .as_ref()
                .is_none_or(|open| open.span.last_index.is_some_and(|last| last < self.next_index));
            if needs_open && !self.open_segment()? {
                return Ok(false);
            }
            self.pass_and_get_help()?;
            let open = self.open.as_mut().expect("just opened");
            let damage = match open.cursor.peek()? {
                Decoded::Frame(frame) => match frame.kind {
                    Kind::Record if frame.index == open.next_index => {
                        open.next_index += 1;
                        open.frame = Some(frame);
                        if frame.index < self.next_index {
                            open.is_fresh = false;
                            continue;
                        }
                        if matches!(self.source, Source::Live(_)) || self.batch_is_whole()? {
                            self.next_index += 1;
                            return Ok(true);
                        }
                        // Not written yet, or damaged.
                        Damage::Batch
                    }
                    Kind::Record => Damage::Order,
                    Kind::Seal => {
                        let next = open.next_index;
                        if self.reopen_at(next)? {
                            continue;
                        }
                        if !self.is_missed(next)? {
                            return Ok(false);
                        }
                        Damage::Missing
                    }
                    Kind::Link | Kind::Mark | Kind::Pad => {
                        open.cursor.skip(&frame);
                        continue;
                    }
                },
                Decoded::Empty | Decoded::Needs(_) => Damage::Empty,
                Decoded::Bad(damage) => damage,
            };
            if !self.look_again(damage)? {
                return Ok(false);
            }
        }
    }

    /// Segments were taken away: opens the one that is next, unless others may have got the indexes of what
    /// was read.
    fn begin_anew(&mut self) -> Result<()> {
        let last_read = self.next_index - 1;
        if self.source.is_cut_off(last_read, self.cuts) {
            return Err(Error::Truncated { index: last_read });
        }
        self.epoch = self.source.epoch();
        self.open = None;
        Ok(())
    }

    /// Whether a record should be there that the segment, which is full, does not have.
    fn is_missed(&self, index: u64) -> Result<bool> {
        // The segment that should follow may be gone from a log that was closed.
        if let Source::Files(shelf) = &self.source
            && let Some(missing) = shelf.missing_from(index)
        {
            return Err(Error::Corrupt(Box::new(missing)));
        }
        let last = self.open.as_ref().and_then(|open| open.span.last_index);
        Ok(last.is_some_and(|last| last >= index))
    }

    /// Passes the record that was read last, and has what comes read ahead if that is worth it.
    fn pass_and_get_help(&mut self) -> Result<()> {
        let open = self.open.as_mut().expect("a segment was opened");
        if let Some(frame) = open.frame.take() {
            open.cursor.skip(&frame);
        }
        if open.cursor.wants_help() {
            self.is_long = true;
            let at = open.cursor.at();
            let plan = lookup::pieces(&self.source, open.span, &open.opened, at)?;
            open.cursor.help(plan);
        }
        Ok(())
    }

    /// Something other than the next record is there. What was read may be older than what is
    /// written by now; the segment may have been left or taken away.
    fn look_again(&mut self, damage: Damage) -> Result<bool> {
        let open = self.open.as_mut().expect("something was read");
        if !open.is_fresh {
            open.refresh();
            open.is_fresh = true;
            return Ok(true);
        }
        let at = open.cursor.at();
        let (first_index, expected) = (open.span.first_index, open.next_index);
        // The file may be another segment's by now, and a new one have this one's first index.
        if matches!(self.source, Source::Live(_)) && self.source.epoch() != self.epoch {
            let limit = self.source.limit(self.level);
            self.begin_anew()?;
            return Ok(self.next_index <= limit);
        }
        if self.reopen_at(expected)? {
            return Ok(true);
        }
        self.source.check_range(self.next_index)?;
        if self.open.as_ref().is_some_and(|open| open.end == Some((at, damage))) {
            return Ok(false);
        }
        // It was cut off since we looked how far we may read.
        if expected > self.source.limit(self.level) {
            self.open = None;
            return Ok(false);
        }
        if let Source::Files(shelf) = &self.source {
            let open = self.open.as_mut().expect("something was read");
            match shelf.what_follows(first_index, expected)? {
                Follows::Nothing => {
                    open.end = Some((at, damage));
                    return Ok(false);
                }
                Follows::Record => {
                    self.open = None;
                    return Ok(false);
                }
                Follows::Missing => {}
            }
            if open.doubt != Some(at) {
                open.doubt = Some(at);
                open.refresh();
                return Ok(true);
            }
        }
        if self.pass_damage(damage)? {
            return Ok(true);
        }
        let last_index = self.source.span(expected).and_then(|span| span.last_index);
        let last_index = last_index.unwrap_or_else(|| self.source.limit(self.level));
        let name = segment_name(first_index);
        Err(Error::corrupt(name, at, damage, expected..=last_index.max(expected)))
    }

    /// Goes on behind what is damaged where that is before the record which comes next: nobody asked for it, and a mark is no record.
    /// Stays where it is if that cannot be told.
    fn pass_damage(&mut self, damage: Damage) -> Result<bool> {
        let wanted = self.next_index;
        let open = self.open.as_mut().expect("something was read");
        let (at, damaged) = (open.cursor.at(), open.next_index);
        // A segment whose link is damaged may not be of this log, nor one that has other records.
        let may_be_a_mark =
            at > BLOCK_BYTES && !matches!(damage, Damage::Batch | Damage::Order | Damage::Missing);
        if damaged > wanted || damaged == wanted && !may_be_a_mark {
            return Ok(false);
        }
        let plausible =
            |frame: &Frame| frame.kind == Kind::Record && (damaged..=wanted).contains(&frame.index);
        // What is no record is no longer than a block.
        let before = if damaged == wanted { at + BLOCK_BYTES } else { u64::MAX };
        let found = open.cursor.hunt_before(before, plausible, &mut false)?;
        match found {
            Some(frame) => open.next_index = frame.index,
            None => open.cursor.seek(at),
        }
        Ok(found.is_some())
    }

    /// Goes on in the segment that has `index` now, if that is another one than before.
    fn reopen_at(&mut self, index: u64) -> Result<bool> {
        if let Source::Files(shelf) = &self.source {
            shelf.refresh()?;
        }
        let Some(span) = self.source.span(index) else {
            self.source.check_range(self.next_index)?;
            return Ok(false);
        };
        let open = self.open.as_mut().expect("a segment was read");
        if span.first_index != open.span.first_index {
            self.open = None;
            return Ok(true);
        }
        let changed = open.span != span;
        if changed {
            open.end = None;
        }
        open.span = span;
        // The segment was still being written when it was read, and is full now.
        open.refresh();
        Ok(changed)
    }

    /// Whether the rest of the batch stands behind the record at the cursor. In a log that is open
    /// here nothing is read before its batch is whole.
    fn batch_is_whole(&mut self) -> Result<bool> {
        let open = self.open.as_mut().expect("a record was read");
        let is_open = |frame: &Frame| frame.more > 0 && frame.index > open.whole_to;
        let Some(first) = open.frame.filter(is_open) else {
            return Ok(true);
        };
        let at = open.cursor.at();
        let mut frame = first;
        let mut whole = true;
        // A truncation may have cut it in two.
        let last = open.span.last_index.unwrap_or(u64::MAX);
        while whole && frame.more > 0 && frame.index < last {
            open.cursor.skip(&frame);
            match open.cursor.peek()? {
                Decoded::Frame(next) if next.kind == Kind::Record => frame = next,
                _ => whole = false,
            }
        }
        open.cursor.seek(at);
        open.cursor.peek()?;
        if whole {
            open.whole_to = frame.index;
        } else {
            open.frame = None;
            open.next_index -= 1;
            open.refresh();
        }
        Ok(whole)
    }

    fn open_segment(&mut self) -> Result<bool> {
        let Some((span, opened)) = lookup::find(&self.source, self.next_index)? else {
            self.source.check_range(self.next_index)?;
            return Ok(false);
        };
        let found = lookup::cursor_at(&self.source, span, &opened, self.next_index, self.is_long)?;
        let (cursor, next_index) = found;
        self.open = Some(Open {
            span,
            opened,
            cursor,
            frame: None,
            next_index,
            is_fresh: true,
            end: None,
            doubt: None,
            whole_to: 0,
        });
        Ok(true)
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Reader>();
};
