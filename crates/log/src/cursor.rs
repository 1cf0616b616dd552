//! [`Cursor`]: walks the frames of one segment file, checking each.
//!
//! Invariant: memory grows with what the file holds, never with what it says.

use std::sync::Arc;

use plimsoll_sync::{AlignedBuf, File};

use crate::error::Result;
use crate::format::{BLOCK, BLOCK_BYTES, Damage, Decoded, FRAME_ALIGN, FRAME_BYTES, Frame, Header};

/// How much is read at once, at first.
const READ_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Cursor {
    file: Arc<dyn File>,
    header: Header,
    buf: AlignedBuf,
    /// Byte offset of the buffer, and how many bytes of the file it holds.
    start: u64,
    held: usize,
    at: u64,
}

impl Cursor {
    /// At the first frame of a segment.
    pub(crate) fn new(file: Arc<dyn File>, header: Header) -> Self {
        Self::reading(file, header, READ_BYTES)
    }

    fn reading(file: Arc<dyn File>, header: Header, bytes: usize) -> Self {
        Self {
            file,
            header,
            buf: AlignedBuf::zeroed(bytes, BLOCK),
            start: 0,
            held: 0,
            at: BLOCK_BYTES,
        }
    }

    /// At the first frame, where that is all that is looked at: no more is read than it needs.
    pub(crate) fn of_head(file: Arc<dyn File>, header: Header) -> Self {
        Self::reading(file, header, BLOCK)
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
        &self.bytes()[FRAME_BYTES..FRAME_BYTES + frame.payload_bytes as usize]
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
        &self.buf[skip..self.held]
    }

    /// Reads so that the buffer holds `needed` bytes from the cursor on, if the file does. Returns
    /// whether it holds the file's end.
    fn fill(&mut self, needed: usize) -> Result<bool> {
        let inside = (self.start..=self.start + self.held as u64).contains(&self.at);
        if inside && self.bytes().len() >= needed {
            return Ok(false);
        }
        let start = self.at / BLOCK_BYTES * BLOCK_BYTES;
        let ahead = usize::try_from(self.at - start).expect("less than a block");
        let wanted = (ahead + needed).next_multiple_of(BLOCK);
        if wanted > self.buf.len() {
            self.buf = AlignedBuf::zeroed(wanted.next_multiple_of(READ_BYTES), BLOCK);
        }
        self.start = start;
        self.held = 0;
        while self.held < self.buf.len() {
            let at = self.start + self.held as u64;
            let read = self.file.read_at(&mut self.buf[self.held..], at)?;
            self.held += read;
            // Past the cache the next read would have to begin at a block.
            if read == 0 || !self.held.is_multiple_of(BLOCK) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
