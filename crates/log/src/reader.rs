//! [`Reader`] and [`Follower`]: records in order, each checked.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_sync::{Access, Dir};

use crate::ahead::PIECE_BYTES;
use crate::core::Core;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::{BLOCK_BYTES, Damage, Decoded, FRAME_ALIGN, Frame, Kind};
use crate::opened::Opened;
use crate::options::Ack;
use crate::place::segment_name;
use crate::recovery::{Piece, read_header, read_piece};
use crate::segments::{Covering, Entry, Whereabouts};
use crate::sparse::{Near, SPARSE_BYTES, SparseIndex};
use crate::view::Shelf;

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
    /// It has read so much in order that it is helped from the beginning of each segment on.
    is_long: bool,
}

/// Waits for records and reads them as they come.
#[derive(Debug)]
pub struct Follower {
    reader: Reader,
    core: Arc<Core>,
}

/// Where records are read from: a log that is open, or files that somebody else may be writing.
#[derive(Debug)]
pub(crate) enum Source {
    Live(Arc<Core>),
    Files(Arc<Shelf>),
}

#[derive(Debug)]
struct Open {
    covering: Covering,
    opened: Arc<Opened>,
    cursor: Cursor,
    frame: Option<Frame>,
    /// Index of the next record in the file.
    next_index: u64,
    /// Where and how far the cursor is inside a batch that may not be read yet.
    is_fresh: bool,
    /// Where a log that somebody else writes ended, and what stood there: it was read through to find
    /// out, and is not again as long as that stands there.
    end: Option<(u64, Damage)>,
    /// Where a record was missing that somebody else's log calls durable. It may have been written
    /// after its place was read and before the word of it was: then it is there at a second look.
    doubt: Option<u64>,
}

impl Source {
    fn dir(&self, place: usize) -> &dyn Dir {
        match self {
            Self::Live(core) => &*core.places[place].dir,
            Self::Files(shelf) => shelf.dir(place),
        }
    }

    fn covering(&self, index: u64) -> Option<Covering> {
        match self {
            Self::Live(core) => core.segments.covering(index),
            Self::Files(shelf) => shelf.covering(index),
        }
    }

    /// The same, for who is about to read it. A file of somebody else's log is not kept open: another
    /// may have its name by now.
    fn find(&self, index: u64) -> Option<Whereabouts> {
        match self {
            Self::Live(core) => core.segments.find(index),
            Self::Files(shelf) => {
                let epoch = shelf.epoch();
                let covering = shelf.covering(index)?;
                Some(Whereabouts { covering, opened: None, epoch })
            }
        }
    }

    fn epoch(&self) -> u64 {
        match self {
            Self::Live(core) => core.segments.epoch(),
            Self::Files(shelf) => shelf.epoch(),
        }
    }

    fn first_index(&self) -> u64 {
        match self {
            Self::Live(core) => core.first_index(),
            Self::Files(shelf) => shelf.first_index(),
        }
    }

    /// The last record that may be read; of files nobody knows before looking.
    fn limit(&self, level: Ack) -> u64 {
        match (self, level) {
            (Self::Live(core), Ack::Durable) => core.durable.get(),
            (Self::Live(core), Ack::Buffered | Ack::Written) => core.written.get(),
            (Self::Files(_), _) => u64::MAX,
        }
    }
}

impl Reader {
    pub(crate) fn new(source: Source, from: u64, level: Ack) -> Result<Self> {
        let epoch = source.epoch();
        let reader = Self { source, next_index: from, level, open: None, epoch, is_long: false };
        reader.check_range()?;
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
    /// [`Error::Corrupt`] if durable bytes have changed: the reader stays before them.
    /// [`Error::OutOfRange`] if the record was truncated.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        if !self.advance()? {
            return Ok(None);
        }
        let open = self.open.as_ref().expect("just advanced");
        let frame = open.frame.as_ref().expect("just advanced");
        Ok(Some(Record { index: frame.index, payload: open.cursor.payload(frame) }))
    }

    /// Puts the cursor on the next record; false if there is none yet.
    fn advance(&mut self) -> Result<bool> {
        if self.source.epoch() != self.epoch {
            self.epoch = self.source.epoch();
            self.open = None;
        }
        if let Some(open) = &mut self.open {
            open.is_fresh = false;
        }
        if self.next_index > self.source.limit(self.level) {
            self.check_range()?;
            return Ok(false);
        }
        loop {
            let needs_open = self.open.as_ref().is_none_or(|open| {
                open.covering.last_index.is_some_and(|last| last < self.next_index)
            });
            if needs_open && !self.open_segment()? {
                return Ok(false);
            }
            let open = self.open.as_mut().expect("just opened");
            if let Some(frame) = open.frame.take() {
                open.cursor.skip(&frame);
            }
            if open.cursor.wants_help() {
                self.help()?;
            }
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
                        return Ok(false);
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

    /// Something other than the next record is there. What was read may be older than what is
    /// written by now; the segment may have been left or taken away.
    fn look_again(&mut self, damage: Damage) -> Result<bool> {
        let open = self.open.as_mut().expect("something was read");
        if !open.is_fresh {
            open.cursor.refresh();
            open.is_fresh = true;
            return Ok(true);
        }
        let at = open.cursor.at();
        let (entry, expected) = (open.covering.entry, open.next_index);
        if self.reopen_at(expected)? {
            return Ok(true);
        }
        self.check_range()?;
        if self.open.as_ref().is_some_and(|open| open.end == Some((at, damage))) {
            return Ok(false);
        }
        // It was cut off since we looked how far we may read.
        if expected > self.source.limit(self.level) {
            self.open = None;
            return Ok(false);
        }
        let last_index = match &self.source {
            Source::Live(core) => core.segments.covering(expected).and_then(|c| c.last_index),
            Source::Files(shelf) => match shelf.is_end_of_log(entry, expected)? {
                true => {
                    self.open.as_mut().expect("something was read").end = Some((at, damage));
                    return Ok(false);
                }
                false => {
                    let open = self.open.as_mut().expect("something was read");
                    if open.doubt != Some(at) {
                        open.doubt = Some(at);
                        open.cursor.refresh();
                        return Ok(true);
                    }
                    shelf.covering(expected).and_then(|covering| covering.last_index)
                }
            },
        };
        let last_index = last_index.unwrap_or_else(|| self.source.limit(self.level));
        let name = segment_name(entry.first_index);
        Err(Error::corrupt(name, at, damage, expected..=last_index.max(expected)))
    }

    /// Goes on in the segment that has `index` now, if that is another one than before.
    fn reopen_at(&mut self, index: u64) -> Result<bool> {
        let open = self.open.as_ref().expect("a segment was read");
        if let Source::Files(shelf) = &self.source {
            shelf.refresh()?;
        }
        match self.source.covering(index) {
            Some(covering) if covering.entry != open.covering.entry => {
                self.open = None;
                Ok(true)
            }
            Some(covering) => {
                let open = self.open.as_mut().expect("a segment was read");
                let changed = open.covering != covering;
                if changed {
                    open.end = None;
                }
                open.covering = covering;
                // The segment was still being written when it was read, and is full now.
                open.cursor.refresh();
                Ok(changed)
            }
            None => {
                self.check_range()?;
                Ok(false)
            }
        }
    }

    /// Whether the rest of the batch stands behind the record at the cursor. In a log that is open
    /// here nothing is read before its batch is whole.
    fn batch_is_whole(&mut self) -> Result<bool> {
        let open = self.open.as_mut().expect("a record was read");
        let Some(first) = open.frame.filter(|frame| frame.more > 0) else {
            return Ok(true);
        };
        let at = open.cursor.at();
        let mut frame = first;
        let mut whole = true;
        // A truncation may have cut it in two.
        let last = open.covering.last_index.unwrap_or(u64::MAX);
        while whole && frame.more > 0 && frame.index < last {
            open.cursor.skip(&frame);
            match open.cursor.peek()? {
                Decoded::Frame(next) if next.kind == Kind::Record => frame = next,
                _ => whole = false,
            }
        }
        open.cursor.seek(at);
        open.cursor.peek()?;
        if !whole {
            open.frame = None;
            open.next_index -= 1;
            open.cursor.refresh();
        }
        Ok(whole)
    }

    fn open_segment(&mut self) -> Result<bool> {
        let Some((covering, opened)) = self.find_opened()? else {
            self.check_range()?;
            return Ok(false);
        };
        let (first, header) = (covering.entry.first_index, opened.header);
        let near = self.near(covering, &opened)?;
        let mut cursor = Cursor::for_lookup(Arc::clone(&opened.file), header, near.bytes);
        if matches!(&self.source, Source::Live(core) if core.options.threads) {
            cursor = cursor.with_help(self.is_long);
        }
        let mut next_index = first;
        if near.byte_offset > BLOCK_BYTES {
            // The index leads near; the frame there says which record it is.
            cursor.seek(near.byte_offset);
            match cursor.peek()? {
                Decoded::Frame(frame)
                    if frame.kind == Kind::Record
                        && (first..=self.next_index).contains(&frame.index) =>
                {
                    next_index = frame.index;
                }
                _ => cursor.seek(BLOCK_BYTES),
            }
        }
        self.open = Some(Open {
            covering,
            opened,
            cursor,
            frame: None,
            next_index,
            is_fresh: true,
            end: None,
            doubt: None,
        });
        Ok(true)
    }

    /// The segment that covers the next record, open.
    fn find_opened(&self) -> Result<Option<(Covering, Arc<Opened>)>> {
        let mut found = self.source.find(self.next_index);
        loop {
            let Some(Whereabouts { covering, opened, epoch }) = found else { return Ok(None) };
            if let Some(opened) = opened {
                return Ok(Some((covering, opened)));
            }
            match self.open_file(covering.entry) {
                Ok(opened) => {
                    let opened = Arc::new(opened);
                    if let Source::Live(core) = &self.source {
                        core.segments.keep(&opened, epoch);
                    }
                    return Ok(Some((covering, opened)));
                }
                Err(error) => {
                    self.check_range()?;
                    found = self.source.find(self.next_index);
                    // Retention or a cut may have taken it before it was open.
                    let is_same = |found: &Whereabouts| {
                        (found.covering.entry, found.epoch) == (covering.entry, epoch)
                    };
                    if found.as_ref().is_some_and(is_same) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn open_file(&self, entry: Entry) -> Result<Opened> {
        let name = segment_name(entry.first_index);
        let file = self.source.dir(entry.place).open(&name, Access::default())?;
        let records = entry.first_index..=u64::MAX;
        let header = read_header(&*file, entry)?
            .map_err(|damage| Error::corrupt(name, 0, damage, records))?;
        Ok(Opened::new(entry, header, file))
    }

    /// Has what comes read and checked by two threads, as far as it is known where frames begin.
    fn help(&mut self) -> Result<()> {
        self.is_long = true;
        let open = self.open.as_ref().expect("a segment was read");
        let after = open.cursor.at();
        let plan = match (&self.source, open.covering.last_index) {
            (Source::Live(core), None) => {
                core.segments.ranges(open.opened.header.salt, after, PIECE_BYTES)
            }
            _ => self
                .sealed(open.covering, &open.opened)?
                .map_or_else(Vec::new, |sparse| sparse.ranges(after, PIECE_BYTES)),
        };
        self.open.as_mut().expect("a segment was read").cursor.help(plan);
        Ok(())
    }

    /// Where to begin to look for the next record: at the segment's beginning if nothing else is known.
    fn near(&self, covering: Covering, opened: &Opened) -> Result<Near> {
        let (entry, header) = (opened.entry, opened.header);
        let frames = BLOCK_BYTES..header.segment_bytes;
        let from_the_beginning = match covering.last_index {
            Some(last) => Near::among(entry.first_index, last + 1, frames, self.next_index),
            None => Near { byte_offset: frames.start, bytes: SPARSE_BYTES },
        };
        let near = match &self.source {
            _ if self.next_index == entry.first_index => None,
            Source::Live(core) if covering.last_index.is_none() => {
                core.segments.near(header.salt, self.next_index)
            }
            // As much as an index saves takes no longer than to find it.
            _ if header.segment_bytes <= 2 * SPARSE_BYTES => None,
            _ => self.sealed(covering, opened)?.and_then(|sparse| sparse.before(self.next_index)),
        };
        Ok(near.unwrap_or(from_the_beginning))
    }

    /// What the seal of a segment says, if it has one and can be read.
    fn sealed<'a>(
        &self,
        covering: Covering,
        opened: &'a Opened,
    ) -> Result<Option<&'a SparseIndex>> {
        let Some(last) = covering.last_index else { return Ok(None) };
        if opened.sealed.get().is_none() {
            let sparse = self.read_seal(last, opened)?;
            opened.sealed.get_or_init(|| sparse);
        }
        Ok(opened.sealed.get().and_then(Option::as_ref))
    }

    /// The sparse index of a segment that is sealed: the link of the next one says where its records
    /// end, and the seal comes behind them. It is a help, not a truth: where it cannot be read, the
    /// segment is read from its beginning.
    fn read_seal(&self, last: u64, opened: &Opened) -> Result<Option<SparseIndex>> {
        let Some(next) = self.source.covering(last + 1).map(|covering| covering.entry) else {
            return Ok(None);
        };
        let Ok(Ok(Piece { link, .. })) = read_piece(self.source.dir(next.place), next) else {
            return Ok(None);
        };
        let header = opened.header;
        let Some(link) = link.filter(|link| {
            link.previous_salt == header.salt && link.previous_end % FRAME_ALIGN == 0
        }) else {
            return Ok(None);
        };
        let bytes = SparseIndex::seal_bytes_max(header.segment_bytes) as u64;
        let mut cursor = Cursor::for_lookup(Arc::clone(&opened.file), header, bytes);
        cursor.seek(link.previous_end);
        loop {
            match cursor.peek()? {
                Decoded::Frame(frame) if frame.kind == Kind::Seal => {
                    let payload = cursor.payload(&frame);
                    return Ok(SparseIndex::decode(payload, header.segment_bytes).ok());
                }
                Decoded::Frame(frame) if matches!(frame.kind, Kind::Mark | Kind::Pad) => {
                    cursor.skip(&frame);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Whether the next record is there, or is the one that would come next.
    fn check_range(&self) -> Result<()> {
        let index = self.next_index;
        if let Source::Files(shelf) = &self.source
            && let Some(wrong) = shelf.lost(index)
        {
            return Err(Error::Corrupt(Box::new(wrong)));
        }
        let first_index = self.source.first_index();
        let last_index = match &self.source {
            Source::Live(core) => core.last.get(),
            Source::Files(_) => u64::MAX,
        };
        if index < first_index || index > last_index.saturating_add(1) {
            return Err(Error::OutOfRange { index, first_index, last_index });
        }
        Ok(())
    }
}

impl Follower {
    pub(crate) fn new(core: Arc<Core>, from: u64, level: Ack) -> Result<Self> {
        let reader = Reader::new(Source::Live(Arc::clone(&core)), from, level)?;
        Ok(Self { reader, core })
    }

    /// Index of the record that comes next.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.reader.next_index()
    }

    /// The next record; waits until there is one.
    ///
    /// # Errors
    /// As [`Reader::next_record`]; [`Error::Closed`] and [`Error::Stopped`] when no more will come.
    pub fn next_record(&mut self) -> Result<Record<'_>> {
        loop {
            if self.reader.advance()? {
                break;
            }
            self.mark().wait(self.reader.next_index)?;
        }
        self.reader.current()
    }

    /// The next record; waits for it, but no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Follower::next_record`].
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        if !self.reader.advance()? {
            match self.mark().wait_timeout(self.reader.next_index, timeout) {
                Ok(()) => {}
                Err(Error::TimedOut { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
            if !self.reader.advance()? {
                return Ok(None);
            }
        }
        self.reader.current().map(Some)
    }

    fn mark(&self) -> &crate::Watermark {
        if self.reader.level == Ack::Durable { &self.core.durable } else { &self.core.written }
    }
}

impl Reader {
    fn current(&self) -> Result<Record<'_>> {
        let open = self.open.as_ref().expect("just advanced");
        let frame = open.frame.as_ref().expect("just advanced");
        Ok(Record { index: frame.index, payload: open.cursor.payload(frame) })
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Reader>();
    is_shared::<Follower>();
};
