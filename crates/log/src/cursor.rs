//! [`Cursor`]: walks the frames of one segment file, checking each.
//!
//! Invariant: memory grows with what the file holds, never with what it says.

use std::sync::Arc;

use plimsoll_sync::{AlignedBuf, File};

use crate::ahead::{Ahead, HEADROOM};
use crate::error::Result;
use crate::format::{BLOCK, BLOCK_BYTES, Damage, Decoded, FRAME_ALIGN, FRAME_BYTES, Frame, Header};

/// How much is read at once, at first.
const READ_BYTES: usize = 256 << 10;
/// After so many pieces in order the next ones are read ahead.
const AHEAD_AFTER: u32 = 4;
/// Nothing is read ahead.
const NEVER: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Cursor {
    file: Arc<dyn File>,
    header: Header,
    buf: AlignedBuf,
    /// Where in the buffer bytes of the file are.
    from: usize,
    /// Byte offset of the first of them, and how many there are.
    start: u64,
    held: usize,
    at: u64,
    /// Pieces that were read one behind the other, and who reads the next one.
    in_order: u32,
    ahead: Option<Ahead>,
}

impl Cursor {
    /// At the first frame of a segment, for who reads it all.
    pub(crate) fn new(file: Arc<dyn File>, header: Header) -> Self {
        Self::reading(file, header, READ_BYTES)
    }

    /// At the first frame, for who looks for one: so much is read at first, and ever more if that was
    /// not enough.
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
            at: BLOCK_BYTES,
            in_order: NEVER,
            ahead: None,
        }
    }

    /// The same, for who may read it to the end: then it is read ahead, by a thread.
    pub(crate) fn with_thread(self) -> Self {
        Self { in_order: 0, ..self }
    }

    /// Byte offset of the next frame.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Goes to where a frame begins.
    pub(crate) fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// Forgets what was read, because the file may have changed.
    pub(crate) fn refresh(&mut self) {
        self.held = 0;
        self.read_in_order(0);
        if let Some(ahead) = &mut self.ahead {
            ahead.forget();
        }
    }

    /// What stands at the cursor. Its payload is [`Cursor::payload`] until the cursor is used again.
    pub(crate) fn peek(&mut self) -> Result<Decoded> {
        let mut needed = FRAME_BYTES;
        loop {
            let ended = self.fill(needed)?;
            let bytes = self.bytes();
            if ended && bytes.len() < needed {
                // As if the file went on with zeros: a head that it cuts off is none.
                let zero = bytes.iter().all(|byte| *byte == 0);
                return Ok(if zero { Decoded::Empty } else { Decoded::Bad(Damage::Short) });
            }
            let decoded =
                Frame::decode(bytes, self.header.salt, self.at, self.header.segment_bytes);
            match decoded {
                Decoded::Needs(more) => {
                    if self.file.len()?.saturating_sub(self.at) < more as u64 {
                        return Ok(Decoded::Bad(Damage::Short));
                    }
                    needed = more;
                }
                decoded => return Ok(decoded),
            }
        }
    }

    /// The payload of the frame that was just peeked at.
    pub(crate) fn payload(&self, frame: &Frame) -> &[u8] {
        frame.payload(self.bytes())
    }

    /// Behind this frame, which is at the cursor.
    pub(crate) fn skip(&mut self, frame: &Frame) {
        self.at += frame.bytes() as u64;
    }

    /// The next valid frame at or behind the cursor for which `plausible` holds, wherever it begins:
    /// to find out what comes after damage. `None` at the end of the file, or once more bytes were
    /// checked than the file has, several times over: only bytes that were made for it do that, and
    /// then `gave_up` is set.
    pub(crate) fn hunt(
        &mut self,
        mut plausible: impl FnMut(&Frame) -> bool,
        gave_up: &mut bool,
    ) -> Result<Option<Frame>> {
        let end = self.file.len()?.min(self.header.segment_bytes);
        let mut budget = 4 * end;
        while self.at + FRAME_BYTES as u64 <= end {
            self.fill(FRAME_BYTES)?;
            let bytes = self.bytes();
            // Zeros are the rule: whole words of them are passed over at once.
            let is_zero = |piece: &&[u8]| piece.iter().fold(0, |all, byte| all | byte) == 0;
            let zeros = bytes.chunks_exact(512).take_while(is_zero).count() * 512;
            let skip = zeros.saturating_sub(FRAME_BYTES) as u64 / FRAME_ALIGN * FRAME_ALIGN;
            if skip > 0 {
                self.at += skip;
                continue;
            }
            if bytes.len() < FRAME_BYTES {
                return Ok(None);
            }
            let head = Frame::head(bytes)
                .filter(|frame| frame.bytes() as u64 <= end - self.at && plausible(frame));
            if let Some(frame) = head {
                let cost = frame.bytes() as u64;
                if cost > budget {
                    *gave_up = true;
                    return Ok(None);
                }
                budget -= cost;
                if let Decoded::Frame(frame) = self.peek()? {
                    return Ok(Some(frame));
                }
            }
            self.at += FRAME_ALIGN;
        }
        Ok(None)
    }

    fn bytes(&self) -> &[u8] {
        let skip = usize::try_from(self.at - self.start).unwrap_or(usize::MAX).min(self.held);
        &self.buf[self.from + skip..self.from + self.held]
    }

    /// Reads so that the buffer holds `needed` bytes from the cursor on, if the file does. Returns
    /// whether it holds the file's end.
    fn fill(&mut self, needed: usize) -> Result<bool> {
        let end = self.start + self.held as u64;
        let inside = (self.start..=end).contains(&self.at);
        if inside && self.bytes().len() >= needed {
            return Ok(false);
        }
        let start = self.at / BLOCK_BYTES * BLOCK_BYTES;
        let ahead = usize::try_from(self.at - start).expect("less than a block");
        let wanted = (ahead + needed).next_multiple_of(BLOCK);
        if inside {
            self.read_in_order((self.in_order.saturating_add(1)).min(AHEAD_AFTER));
        }
        if inside && let Some(ended) = self.take_ahead(start, wanted) {
            return Ok(ended);
        }
        let longer = self.longer(inside, wanted);
        if longer > self.buf.len() {
            self.buf = AlignedBuf::zeroed(longer, BLOCK);
        }
        (self.from, self.start, self.held) = (0, start, 0);
        while self.held < self.buf.len() {
            let at = self.start + self.held as u64;
            let read = self.file.read_at(&mut self.buf[self.held..], at)?;
            self.held += read;
            // Past the cache the next read would have to begin at a block.
            if read == 0 || !self.held.is_multiple_of(BLOCK) {
                return Ok(true);
            }
        }
        self.read_ahead();
        Ok(false)
    }

    /// How much is read next: twice as much as before by who goes on, and what a frame needs.
    fn longer(&self, goes_on: bool, wanted: usize) -> usize {
        if wanted > READ_BYTES {
            return wanted.next_multiple_of(READ_BYTES);
        }
        let most = usize::try_from(self.header.segment_bytes).unwrap_or(READ_BYTES).min(READ_BYTES);
        let twice = if goes_on { (self.buf.len() * 2).min(most) } else { 0 };
        wanted.max(twice)
    }

    /// Takes the piece that was read ahead, behind what is still needed of the one before it. `None`
    /// if there is none, or not enough in it.
    fn take_ahead(&mut self, start: u64, wanted: usize) -> Option<bool> {
        let end = self.start + self.held as u64;
        let carried = usize::try_from(end.checked_sub(start.max(self.start))?).ok()?;
        let ahead = self.ahead.as_mut().filter(|ahead| ahead.is_under_way(end))?;
        let piece = ahead.take()?;
        let held = piece
            .held
            .filter(|held| start >= self.start && carried <= HEADROOM && carried + held >= wanted);
        let Some(held) = held else {
            ahead.give_back(piece.buf);
            self.read_in_order(0);
            return None;
        };
        let before = std::mem::replace(&mut self.buf, piece.buf);
        let rest = self.from + self.held - carried..self.from + self.held;
        self.buf[HEADROOM - carried..HEADROOM].copy_from_slice(&before[rest]);
        ahead.give_back(before);
        (self.from, self.start, self.held) = (HEADROOM - carried, start, carried + held);
        let is_full = HEADROOM + held == self.buf.len();
        if is_full {
            self.read_ahead();
        }
        Some(!is_full)
    }

    fn read_in_order(&mut self, pieces: u32) {
        if self.in_order != NEVER {
            self.in_order = pieces;
        }
    }

    /// Has the next piece read, if this one followed the last.
    fn read_ahead(&mut self) {
        if self.in_order != AHEAD_AFTER {
            return;
        }
        let end = self.start + self.held as u64;
        if end >= self.header.segment_bytes {
            return;
        }
        if self.ahead.is_none() {
            self.ahead = Ahead::start();
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.ask(&self.file, end);
        }
    }
}
