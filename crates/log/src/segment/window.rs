//! [`Window`]: the part of a segment file that is in memory, for whoever walks it: read here, or read and
//! checked ahead by two threads ([`Ahead`]).
//!
//! Invariant: memory grows with what the file holds, never with what it says.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_sync::{AlignedBuf, File};

use super::ahead::Ahead;
use super::format::{BLOCK, BLOCK_BYTES};
use super::header::Header;
use crate::error::Result;

/// How much is read at once, at first.
const READ_BYTES: usize = 256 << 10;
/// Sequential bytes after which a thread that reads ahead starts.
const HELPED_AFTER: u64 = if cfg!(shuttle) { 64 << 10 } else { 1 << 20 };

#[derive(Debug)]
pub(crate) struct Window {
    file: Arc<dyn File>,
    header: Header,
    buf: AlignedBuf,
    /// Where in the buffer bytes of the file are.
    from: usize,
    /// Byte offset of the first of them, and how many there are.
    start: u64,
    held: usize,
    /// Frames before this byte offset were checked when they were read.
    checked_to: u64,
    /// Bytes that were read one behind the other; `None` where nobody helps.
    in_order: Option<u64>,
    ahead: Option<Ahead>,
}

impl Window {
    /// For whoever reads the whole segment.
    pub(crate) fn new(file: Arc<dyn File>, header: Header) -> Self {
        Self::reading(file, header, READ_BYTES)
    }

    /// For whoever looks for one record: so much is read at first, and ever more if that was not enough.
    pub(crate) fn for_lookup(file: Arc<dyn File>, header: Header, bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).map_or(READ_BYTES, |bytes| bytes.min(READ_BYTES));
        // The first frame need not begin a block, nor the last one end it.
        Self::reading(file, header, bytes.next_multiple_of(BLOCK) + BLOCK)
    }

    fn reading(file: Arc<dyn File>, header: Header, bytes: usize) -> Self {
        // No longer than the segment.
        let most = usize::try_from(header.segment_bytes).unwrap_or(READ_BYTES);
        let bytes = bytes.min(most).min(READ_BYTES);
        Self {
            file,
            header,
            buf: AlignedBuf::zeroed(bytes, BLOCK),
            from: 0,
            start: 0,
            held: 0,
            checked_to: 0,
            in_order: None,
            ahead: None,
        }
    }

    /// The same, with a thread that reads ahead: at once for whoever is known to read on and on.
    pub(crate) fn with_help(self, at_once: bool) -> Self {
        Self { in_order: Some(if at_once { HELPED_AFTER } else { 0 }), ..self }
    }

    /// Whether it is time to say where pieces are that somebody else could read.
    pub(crate) fn wants_help(&self) -> bool {
        self.in_order.is_some_and(|bytes| bytes >= HELPED_AFTER)
    }

    /// Has these pieces of the file read and checked ahead; none of them is before `at`.
    pub(crate) fn help(&mut self, at: u64, plan: Vec<Range<u64>>) {
        // Where that is all that is known it is asked for again later.
        self.in_order = Some(0);
        self.ahead = match plan.len() {
            // One piece: nobody else could do anything meanwhile.
            0 | 1 => None,
            _ => Ahead::start(Arc::clone(&self.file), self.header, plan),
        };
        self.stop_at_piece(at, 1);
    }

    /// Length of the file.
    pub(crate) fn file_bytes(&self) -> Result<u64> {
        Ok(self.file.len()?)
    }

    /// Whether the frame that begins at `at` was checked when it was read.
    pub(crate) fn is_checked(&self, at: u64) -> bool {
        at < self.checked_to
    }

    /// Has frames checked again.
    pub(crate) fn believe_nothing(&mut self) {
        self.checked_to = 0;
    }

    /// Forgets what was read, because the file may have changed.
    pub(crate) fn refresh(&mut self) {
        self.held = 0;
        self.checked_to = 0;
        self.ahead = None;
        self.in_order = self.in_order.map(|_| 0);
    }

    /// What it holds from `at` on.
    pub(crate) fn bytes(&self, at: u64) -> &[u8] {
        let skip = usize::try_from(at - self.start).unwrap_or(usize::MAX).min(self.held);
        &self.buf[self.from + skip..self.from + self.held]
    }

    /// Reads so that it holds `needed` bytes from `at` on, if the file does. Returns whether it holds the
    /// file's end.
    pub(crate) fn fill(&mut self, at: u64, needed: usize) -> Result<bool> {
        let end = self.start + self.held as u64;
        let inside = (self.start..=end).contains(&at);
        if inside && self.bytes(at).len() >= needed {
            return Ok(false);
        }
        if inside && self.take_piece(at, needed) {
            return Ok(false);
        }
        let start = at / BLOCK_BYTES * BLOCK_BYTES;
        let skipped = usize::try_from(at - start).expect("less than a block");
        let wanted = (skipped + needed).next_multiple_of(BLOCK);
        let longer = self.longer(inside, wanted);
        if longer > self.buf.len() {
            self.buf = AlignedBuf::zeroed(longer, BLOCK);
        }
        (self.from, self.start, self.held, self.checked_to) = (0, start, 0, 0);
        while self.held < self.buf.len() {
            let next = self.start + self.held as u64;
            let read = self.file.read_at(&mut self.buf[self.held..], next)?;
            self.held += read;
            // Past the cache the next read would have to begin at a block.
            if read == 0 || !self.held.is_multiple_of(BLOCK) {
                return Ok(!self.stop_at_piece(at, needed));
            }
        }
        let held = self.held as u64;
        self.in_order = self.in_order.map(|bytes| if inside { bytes + held } else { 0 });
        self.stop_at_piece(at, needed);
        Ok(false)
    }

    /// How much is read next: twice as much as before for whoever goes on, and what a frame needs.
    fn longer(&self, goes_on: bool, wanted: usize) -> usize {
        if wanted > READ_BYTES {
            return wanted.next_multiple_of(READ_BYTES);
        }
        let most = usize::try_from(self.header.segment_bytes).unwrap_or(READ_BYTES).min(READ_BYTES);
        let twice = if goes_on { (self.buf.len() * 2).min(most) } else { 0 };
        wanted.max(twice)
    }

    /// Takes the piece that begins at `at`, if there is one and it has that much.
    fn take_piece(&mut self, at: u64, needed: usize) -> bool {
        let Some(ahead) = &self.ahead else { return false };
        let Some(piece) = ahead.take(at) else { return false };
        if piece.held < needed {
            ahead.give_back(piece.buf);
            return false;
        }
        ahead.give_back(std::mem::replace(&mut self.buf, piece.buf));
        (self.from, self.start, self.held) = (piece.from, at, piece.held);
        self.checked_to = piece.checked_to;
        true
    }

    /// Forgets what was read of the next piece, so that it is taken from whoever reads it ahead. Not where
    /// a frame needs it. Returns whether something was forgotten.
    fn stop_at_piece(&mut self, at: u64, needed: usize) -> bool {
        let Some(stop) = self.ahead.as_ref().and_then(|ahead| ahead.next_after(at)) else {
            return false;
        };
        let is_inside = (self.start..self.start + self.held as u64).contains(&stop);
        let stops = is_inside && stop - at >= needed as u64;
        if stops {
            self.held = usize::try_from(stop - self.start).expect("less than was held");
        }
        stops
    }
}
