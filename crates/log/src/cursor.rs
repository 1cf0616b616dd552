//! [`Cursor`]: walks the frames of one segment file, checking each.
//!
//! Invariant: memory grows with what the file holds, never with what it says.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_sync::{AlignedBuf, File};

use crate::ahead::Ahead;
use crate::error::Result;
use crate::format::{BLOCK, BLOCK_BYTES, Damage, Decoded, FRAME_ALIGN, FRAME_BYTES, Frame, Header};

/// How much is read at once, at first.
const READ_BYTES: usize = 256 << 10;
/// Who has read so much in order is helped with what comes.
const HELPED_AFTER: u64 = if cfg!(shuttle) { 64 << 10 } else { 1 << 20 };
/// Nobody is.
const NEVER: u64 = u64::MAX;

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
    /// Frames before this byte offset, from the cursor on, were checked before.
    checked_to: u64,
    /// Bytes that were read one behind the other; from [`HELPED_AFTER`] on help is wanted.
    in_order: u64,
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
            checked_to: 0,
            in_order: NEVER,
            ahead: None,
        }
    }

    /// The same, for who may be helped by a thread: at once if it is known to read on and on.
    pub(crate) fn with_help(self, at_once: bool) -> Self {
        Self { in_order: if at_once { HELPED_AFTER } else { 0 }, ..self }
    }

    /// Whether it is time to say where pieces are that somebody else could read.
    pub(crate) fn wants_help(&self) -> bool {
        self.in_order >= HELPED_AFTER && self.in_order != NEVER
    }

    /// Has these pieces of the file read and checked ahead; none of them is before the cursor.
    pub(crate) fn help(&mut self, plan: Vec<Range<u64>>) {
        // Where that is all that is known it is asked for again later.
        self.in_order = 0;
        self.ahead = match plan.len() {
            // One piece: nobody else could do anything meanwhile.
            0 | 1 => None,
            _ => Ahead::start(Arc::clone(&self.file), self.header, plan),
        };
        self.stop_at_piece(1);
    }

    /// Byte offset of the next frame.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Goes to where a frame begins.
    pub(crate) fn seek(&mut self, at: u64) {
        self.at = at;
        self.checked_to = 0;
    }

    /// Forgets what was read, because the file may have changed.
    pub(crate) fn refresh(&mut self) {
        self.held = 0;
        self.checked_to = 0;
        self.ahead = None;
        if self.in_order != NEVER {
            self.in_order = 0;
        }
    }

    /// What stands at the cursor. Its payload is [`Cursor::payload`] until the cursor is used again.
    pub(crate) fn peek(&mut self) -> Result<Decoded> {
        if self.at < self.checked_to
            && let Some(frame) = Frame::head(self.bytes())
        {
            return Ok(Decoded::Frame(frame));
        }
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
        self.checked_to = 0;
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
        if inside && self.take_piece(needed) {
            return Ok(false);
        }
        let start = self.at / BLOCK_BYTES * BLOCK_BYTES;
        let ahead = usize::try_from(self.at - start).expect("less than a block");
        let wanted = (ahead + needed).next_multiple_of(BLOCK);
        let longer = self.longer(inside, wanted);
        if longer > self.buf.len() {
            self.buf = AlignedBuf::zeroed(longer, BLOCK);
        }
        (self.from, self.start, self.held, self.checked_to) = (0, start, 0, 0);
        while self.held < self.buf.len() {
            let at = self.start + self.held as u64;
            let read = self.file.read_at(&mut self.buf[self.held..], at)?;
            self.held += read;
            // Past the cache the next read would have to begin at a block.
            if read == 0 || !self.held.is_multiple_of(BLOCK) {
                return Ok(!self.stop_at_piece(needed));
            }
        }
        if self.in_order != NEVER {
            self.in_order = if inside { self.in_order + self.held as u64 } else { 0 };
        }
        self.stop_at_piece(needed);
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

    /// Takes the piece that begins at the cursor, if there is one and it has that much.
    fn take_piece(&mut self, needed: usize) -> bool {
        let Some(ahead) = &self.ahead else { return false };
        let Some(piece) = ahead.take(self.at) else { return false };
        if piece.held < needed {
            ahead.give_back(piece.buf);
            return false;
        }
        ahead.give_back(std::mem::replace(&mut self.buf, piece.buf));
        (self.from, self.start, self.held) = (piece.from, self.at, piece.held);
        self.checked_to = piece.checked_to;
        true
    }

    /// Forgets what was read of the next piece, so that it is taken from who reads it ahead. Not where a
    /// frame needs it. Returns whether something was forgotten.
    fn stop_at_piece(&mut self, needed: usize) -> bool {
        let Some(stop) = self.ahead.as_ref().and_then(|ahead| ahead.next_after(self.at)) else {
            return false;
        };
        let is_inside = (self.start..self.start + self.held as u64).contains(&stop);
        let stops = is_inside && stop - self.at >= needed as u64;
        if stops {
            self.held = usize::try_from(stop - self.start).expect("less than was held");
        }
        stops
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::{Access, Dir};

    use super::*;
    use crate::ahead::PIECE_BYTES;
    use crate::format::{Kind, hash};

    /// A seal may be made to say anything.
    #[test]
    fn pieces_that_begin_in_the_middle_of_frames_change_nothing_of_what_is_read() {
        let header = Header { log_id: 1, salt: 7, segment_bytes: 8 << 20 };
        let file = SimDir::new().create("file", Access::default()).unwrap();
        let mut at = BLOCK_BYTES;
        let mut places = Vec::new();
        for index in 1..=5000_u64 {
            let payload = vec![9; usize::try_from(index * 7 % 3000).unwrap()];
            let payload_bytes = u32::try_from(payload.len()).unwrap();
            let frame = Frame { kind: Kind::Record, index, payload_bytes, more: 0 };
            let head = frame.encode(header.salt, at, hash(&payload));
            file.write_at(&[&head[..], &payload].concat(), at).unwrap();
            places.push(at);
            at += frame.bytes() as u64;
        }
        let end = at;
        assert!(end < header.segment_bytes);
        let every = |step: u64| -> Vec<Range<u64>> {
            let starts = (0..).map(|n| BLOCK_BYTES + 8 + n * step).take_while(|at| *at < end);
            starts.map(|start| start..(start + step).min(end)).collect()
        };
        let ends_at = |starts: Vec<u64>| -> Vec<Range<u64>> {
            starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
        };
        let hundredth: Vec<u64> = places.iter().copied().skip(1).step_by(100).collect();
        let one_lies = |mut starts: Vec<u64>| {
            starts[20] += 8;
            ends_at(starts)
        };
        let behind_the_end: Vec<_> = (0..9).map(|n| end + n * PIECE_BYTES).collect();
        for plan in [
            ends_at(hundredth.clone()),
            one_lies(hundredth),
            every(PIECE_BYTES),
            every(64),
            ends_at(behind_the_end),
            Vec::new(),
        ] {
            let mut cursor = Cursor::for_lookup(Arc::clone(&file), header, 0).with_help(true);
            assert!(cursor.wants_help());
            cursor.help(plan);
            for (number, place) in places.iter().enumerate() {
                assert_eq!(cursor.at(), *place);
                let Decoded::Frame(frame) = cursor.peek().unwrap() else { panic!("at {place}") };
                assert_eq!(frame.index, number as u64 + 1);
                assert!(cursor.payload(&frame).iter().all(|byte| *byte == 9));
                cursor.skip(&frame);
            }
            assert_eq!(cursor.peek().unwrap(), Decoded::Empty);
        }
    }
}
