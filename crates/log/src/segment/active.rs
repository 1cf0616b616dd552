//! [`Active`]: the segment that is being written. Frames are staged in memory and written in blocks.
//!
//! ```text
//!   staging   ┌──────────┬───────────────────────────┬ ─ ─ ─ ─ ┐
//!             │ written  │ staged, not yet written   │ zeros    to the end of the block
//!             └──────────┴───────────────────────────┴ ─ ─ ─ ─ ┘
//!             ▲ start: a multiple of 4096 in the file
//! ```
//!
//! Past the page cache whole blocks are written, so the last one is written again with what comes
//! next, its old bytes unchanged.
//!
//! Invariant: bytes before `written` never change. Invariant: writes of a segment come one after the
//! other, as each begins in the block where the one before it ended.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use plimsoll_sync::{AlignedBuf, File, SyncMethod};

use super::flusher::{Flight, Flusher, Landed, Write};
use super::format::{BLOCK, BLOCK_BYTES, FRAME_BYTES, Frame, Kind, hash};
use super::handle::{Ends, Segment};
use super::header::Header;
use super::link::Link;
use super::sparse::SparseIndex;
use crate::error::Result;
use crate::shim::AtomicU64;

/// The most that is staged. Half of it is written at once, so that there is always room for more.
const STAGING_BYTES_MAX: usize = 2 << 20;

/// So much of it an idle log keeps.
const KEPT_BYTES: usize = 32 << 10;

/// A segment that is being written.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) segment: Arc<Segment>,
    pub(crate) sparse: SparseIndex,
    /// The last record that is staged.
    pub(crate) last_index: u64,
    /// Where its records must end, so that its seal still fits.
    records_limit: u64,
    /// Byte offset of the last mark.
    pub(crate) marked_at: u64,
    /// What the last mark said.
    pub(crate) marked: u64,
    buf: AlignedBuf,
    /// Others, of which none is in use.
    others: Vec<AlignedBuf>,
    /// Writes that are under way, oldest first, and what each of them publishes.
    flights: VecDeque<(Flight, Ends)>,
    start: u64,
    staged: usize,
    written: usize,
    /// So much of the buffer was used.
    most_staged: usize,
    /// Where the last record that is staged ends.
    records_end: u64,
    /// Something was written that no write's own sync covers and no background sync knows of yet: the
    /// link, or the front of a large record.
    pub(crate) loose: bool,
}

impl Active {
    /// A segment that has nothing but its header; its link is staged.
    pub(crate) fn begin(
        file: Arc<dyn File>,
        header: Header,
        link: Link,
        staging_bytes: usize,
    ) -> Self {
        let segment = Segment { header, link, file, end: AtomicU64::new(BLOCK_BYTES) };
        let sparse = SparseIndex::default();
        let mut active =
            Self::new(segment, sparse, link.first_index - 1, BLOCK_BYTES, staging_bytes);
        active.marked = link.durable;
        active.stage_frame(link.frame(), &link.encode());
        active.loose = true;
        active
    }

    /// A segment that has records up to `last_index`; where they end, and where its frames end. What
    /// its last block holds until there is `tail`.
    pub(crate) fn resume(
        segment: Segment,
        sparse: SparseIndex,
        last_index: u64,
        (records_end, frames_end): (u64, u64),
        tail: &[u8],
        staging_bytes: usize,
    ) -> Self {
        let start = frames_end - tail.len() as u64;
        let mut active = Self::new(segment, sparse, last_index, start, staging_bytes);
        active.buf[..tail.len()].copy_from_slice(tail);
        active.staged = tail.len();
        active.written = tail.len();
        active.records_end = records_end;
        active.segment.end.store(records_end, SeqCst);
        active
    }

    fn new(
        segment: Segment,
        sparse: SparseIndex,
        last_index: u64,
        start: u64,
        staging_bytes: usize,
    ) -> Self {
        assert!(start.is_multiple_of(BLOCK_BYTES), "a segment is written in blocks");
        let seal = SparseIndex::seal_bytes_max(segment.header.segment_bytes);
        // Room for a seal in the half that a write leaves free.
        let staging_bytes = staging_bytes.max(2 * seal.next_multiple_of(BLOCK));
        let alignment = segment.file.alignment().max(BLOCK);
        let records_limit = SparseIndex::records_end(segment.header.segment_bytes);
        Self {
            segment: Arc::new(segment),
            sparse,
            last_index,
            records_limit,
            marked_at: start,
            marked: 0,
            buf: AlignedBuf::zeroed(staging_bytes, alignment),
            others: Vec::new(),
            flights: VecDeque::new(),
            start,
            staged: 0,
            written: 0,
            most_staged: 0,
            records_end: start,
            loose: false,
        }
    }

    /// Takes over the buffers of the segment before, which needs them no longer.
    pub(crate) fn inherit(&mut self, before: &mut Self) {
        assert!(before.flights.is_empty(), "everything was written");
        // Files of another size are staged otherwise.
        self.others.extend(before.others.drain(..).filter(|buf| buf.len() == self.buf.len()));
    }

    /// The file has got its name, and is known by it from here on, in messages too.
    pub(crate) fn named(&mut self, file: Arc<dyn File>) {
        assert!(self.flights.is_empty(), "nothing is on its way to a segment without a name");
        let Segment { header, link, ref end, .. } = *self.segment;
        let end = AtomicU64::new(end.load(SeqCst));
        self.segment = Arc::new(Segment { header, link, file, end });
    }

    /// Gives back memory that was used to stage much, if nothing is staged now.
    pub(crate) fn rest(&mut self) {
        self.others.clear();
        if self.unwritten() == 0 && self.most_staged > KEPT_BYTES && self.flights.is_empty() {
            let mut buf = AlignedBuf::zeroed(self.buf.len(), self.alignment());
            buf[..self.staged].copy_from_slice(&self.buf[..self.staged]);
            self.buf = buf;
            self.most_staged = self.staged;
        }
    }

    fn alignment(&self) -> usize {
        self.segment.file.alignment().max(BLOCK)
    }

    /// Whether it has no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.last_index < self.segment.link.first_index
    }

    /// A frame that says what is durable.
    pub(crate) fn stage_mark(&mut self, durable: u64, generation: u64) {
        self.marked_at = self.next_offset();
        self.marked = durable;
        self.stage_frame(Frame::mark(durable, generation), &[]);
    }

    /// Byte offset of the next frame.
    pub(crate) fn next_offset(&self) -> u64 {
        self.start + self.staged as u64
    }

    /// Bytes that are staged and not written, nor on their way.
    pub(crate) fn unwritten(&self) -> usize {
        self.staged - self.written
    }

    /// Whether as much is staged as is written at once.
    pub(crate) fn is_write_due(&self) -> bool {
        self.unwritten() >= self.buf.len() / 2
    }

    /// Whether so many bytes can be staged without a write.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        bytes <= (self.buf.len() - self.staged) as u64
    }

    /// Whether so many bytes fit into the segment, before its seal.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.next_offset() + bytes <= self.records_limit
    }

    /// A small frame, whose payload is at hand.
    pub(crate) fn stage_frame(&mut self, frame: Frame, payload: &[u8]) {
        assert_eq!(frame.payload_bytes as usize, payload.len(), "a frame says its length");
        let at = self.next_offset();
        let head = frame.encode(self.segment.header.salt, at, hash(payload));
        assert!(self.buf.len() - self.staged >= frame.bytes(), "small frames fit");
        self.push(&head);
        self.push(payload);
        self.pad(frame.bytes() - FRAME_BYTES - payload.len());
        if frame.kind == Kind::Link {
            self.records_end = self.next_offset();
        }
    }

    /// The head of a record, whose payload comes through [`Active::stage_payload`].
    pub(crate) fn stage_head(&mut self, frame: Frame, payload_hash: u64) -> Result<()> {
        self.make_room(FRAME_BYTES)?;
        let head = self.head_of_next(frame, payload_hash);
        self.push(&head);
        Ok(())
    }

    fn head_of_next(&mut self, frame: Frame, payload_hash: u64) -> [u8; FRAME_BYTES] {
        assert_eq!(frame.index, self.last_index + 1, "records are written in order");
        let at = self.next_offset();
        self.sparse.note(frame.index, at);
        self.last_index = frame.index;
        frame.encode(self.segment.header.salt, at, payload_hash)
    }

    /// A record for which there [is room](Active::has_room). The caller fills in its payload, and
    /// zeros up to the next multiple of 8.
    pub(crate) fn stage_whole(&mut self, frame: Frame, payload_hash: u64) -> &mut [u8] {
        let head = self.head_of_next(frame, payload_hash);
        let (from, to) = (self.staged, self.staged + frame.bytes());
        self.staged = to;
        self.records_end = self.next_offset();
        let (place, payload) = self.buf[from..to].split_at_mut(FRAME_BYTES);
        place.copy_from_slice(&head);
        payload
    }

    /// Room for the next piece of a payload of which `left` bytes are missing; what is staged is
    /// written if there is none. The caller fills it.
    pub(crate) fn stage_payload(&mut self, left: usize) -> Result<&mut [u8]> {
        self.make_room(1)?;
        let piece = left.min(self.buf.len() - self.staged);
        let at = self.staged;
        self.staged += piece;
        Ok(&mut self.buf[at..at + piece])
    }

    /// Zeros to the next multiple of 8, after a payload. It ends a record.
    pub(crate) fn end_record(&mut self) -> Result<()> {
        let over = self.staged % 8;
        if over > 0 {
            self.make_room(8 - over)?;
            self.pad(8 - over);
        }
        self.records_end = self.next_offset();
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) {
        self.buf[self.staged..self.staged + bytes.len()].copy_from_slice(bytes);
        self.staged += bytes.len();
    }

    fn pad(&mut self, bytes: usize) {
        self.buf[self.staged..self.staged + bytes].fill(0);
        self.staged += bytes;
    }

    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.buf.len() - self.staged < bytes {
            self.write(None)?;
            self.loose = true;
        }
        assert!(self.buf.len() - self.staged >= bytes, "a block at most is kept");
        Ok(())
    }

    /// Writes what is staged, and makes it durable if `with` says how. What was written earlier is
    /// not covered. Returns how many bytes went out, whole blocks where blocks are written.
    pub(crate) fn write(&mut self, with: Option<SyncMethod>) -> Result<u64> {
        if self.unwritten() == 0 {
            return Ok(0);
        }
        self.write_and(0, with)
    }

    /// Writes what is staged, and behind it zeros where the next frame would begin: a file that is used
    /// again holds old bytes there, which look like an unfinished write.
    pub(crate) fn write_end(&mut self) -> Result<u64> {
        let written = if self.has_room(FRAME_BYTES as u64) { 0 } else { self.write(None)? };
        Ok(written + self.write_and(FRAME_BYTES, None)?)
    }

    fn write_and(&mut self, zeros: usize, with: Option<SyncMethod>) -> Result<u64> {
        assert!(self.flights.is_empty(), "writes come one after the other");
        let range = self.range_to_write(zeros);
        let (bytes, at) = (&self.buf[range.clone()], self.start + range.start as u64);
        match with {
            Some(method) => self.segment.file.write_sync_at(bytes, at, method).map(|_| ())?,
            None => self.segment.file.write_at(bytes, at)?,
        }
        self.written = self.staged;
        self.keep_last_block();
        Ok(range.len() as u64)
    }

    /// Begins to write what is staged, up to `position` in the ring, and goes on staging in another
    /// buffer meanwhile, which begins with the same last block. What is under way has
    /// [landed](Active::land) before [`Active::write`].
    pub(crate) fn begin_write(&mut self, flusher: &Flusher, position: u64) {
        let range = self.range_to_write(0);
        let alignment = self.alignment();
        let fresh = || AlignedBuf::zeroed(self.buf.len(), alignment);
        let mut next = self.others.pop().unwrap_or_else(fresh);
        let whole = self.staged / BLOCK * BLOCK;
        let rest = self.staged - whole;
        next[..rest].copy_from_slice(&self.buf[whole..self.staged]);
        let buf = std::mem::replace(&mut self.buf, next);
        let byte_offset = self.start + range.start as u64;
        let file = Arc::clone(&self.segment.file);
        let flight = flusher.begin(Write { file, buf, range, byte_offset });
        let ends = Ends { index: self.last_index, records_end: self.records_end, position };
        self.flights.push_back((flight, ends));
        self.start += whole as u64;
        self.staged = rest;
        self.written = rest;
    }

    /// How many writes are under way.
    pub(crate) fn flying(&self) -> usize {
        self.flights.len()
    }

    /// Waits for the oldest write that is under way, if one is: bytes and time that it took, and what
    /// is there now.
    pub(crate) fn land(&mut self) -> Result<Option<(u64, Duration, Ends)>> {
        let Some((flight, ends)) = self.flights.pop_front() else {
            return Ok(None);
        };
        let Landed { buf, bytes, took, result } = flight.land()?;
        self.others.push(buf);
        result?;
        Ok(Some((bytes, took, ends)))
    }

    /// What of the staging is to be written, and so many zeros; filled up with more where blocks are
    /// written.
    fn range_to_write(&mut self, zeros: usize) -> Range<usize> {
        let blocks = self.segment.file.alignment() > 1;
        let end = self.staged + zeros;
        let end = if blocks { end.next_multiple_of(BLOCK) } else { end };
        self.buf[self.staged..end].fill(0);
        self.most_staged = self.most_staged.max(end);
        let begin = if blocks { self.written / BLOCK * BLOCK } else { self.written };
        begin..end
    }

    /// Once half the staging is used, its last block moves to the front.
    fn keep_last_block(&mut self) {
        if self.staged >= self.buf.len() / 2 {
            let whole = self.staged / BLOCK * BLOCK;
            self.buf.copy_within(whole..self.staged, 0);
            self.start += whole as u64;
            self.staged -= whole;
            self.written = self.staged;
        }
    }

    /// Where the last record that is written ends, to be published: nothing but records and the link
    /// count.
    pub(crate) fn publish_end(&self) {
        assert_eq!(self.unwritten(), 0, "only what is written is published");
        assert!(self.flights.is_empty(), "only what is written is published");
        self.segment.end.store(self.records_end, SeqCst);
    }
}

/// How much one log of very many stages.
pub(crate) const STAGING_BYTES_IN_CREW: usize = 32 << 10;

/// How much is staged for a ring of this size: a quarter of it.
pub(crate) fn staging_bytes(ring_bytes: u64) -> usize {
    let wanted = usize::try_from(ring_bytes / 4).unwrap_or(STAGING_BYTES_MAX);
    wanted.clamp(2 * BLOCK, STAGING_BYTES_MAX)
}
