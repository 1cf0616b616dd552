//! [`Cursor`]: walks the frames of one segment file, checking each.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_sync::File;

use super::damage::Damage;
use super::format::{BLOCK_BYTES, Decoded, FRAME_ALIGN, FRAME_BYTES, Frame};
use super::header::Header;
use super::window::Window;
use crate::error::Result;

#[derive(Debug)]
pub(crate) struct Cursor {
    window: Window,
    header: Header,
    at: u64,
}

impl Cursor {
    /// At the first frame of a segment, for whoever reads it all.
    pub(crate) fn new(file: Arc<dyn File>, header: Header) -> Self {
        Self { window: Window::new(file, header), header, at: BLOCK_BYTES }
    }

    /// At the first frame, for whoever looks for one: so much is read at first.
    pub(crate) fn for_lookup(file: Arc<dyn File>, header: Header, bytes: u64) -> Self {
        Self { window: Window::for_lookup(file, header, bytes), header, at: BLOCK_BYTES }
    }

    /// The same, for whoever may be helped by a thread: [`Window::with_help`].
    pub(crate) fn with_help(self, at_once: bool) -> Self {
        Self { window: self.window.with_help(at_once), ..self }
    }

    /// Whether it is time to say where pieces are that somebody else could read.
    pub(crate) fn wants_help(&self) -> bool {
        self.window.wants_help()
    }

    /// Has these pieces of the file read and checked ahead; none of them is before the cursor.
    pub(crate) fn help(&mut self, plan: Vec<Range<u64>>) {
        self.window.help(self.at, plan);
    }

    /// Byte offset of the next frame.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Goes to where a frame begins.
    pub(crate) fn seek(&mut self, at: u64) {
        self.at = at;
        self.window.believe_nothing();
    }

    /// Forgets what was read, because the file may have changed.
    pub(crate) fn refresh(&mut self) {
        self.window.refresh();
    }

    /// What stands at the cursor. Its payload is [`Cursor::payload`] until the cursor is used again.
    pub(crate) fn peek(&mut self) -> Result<Decoded> {
        if self.window.is_checked(self.at)
            && let Some(frame) = Frame::head(self.bytes())
        {
            return Ok(Decoded::Frame(frame));
        }
        let mut needed = FRAME_BYTES;
        loop {
            let ended = self.window.fill(self.at, needed)?;
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
                    if self.window.file_bytes()?.saturating_sub(self.at) < more as u64 {
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
        plausible: impl FnMut(&Frame) -> bool,
        gave_up: &mut bool,
    ) -> Result<Option<Frame>> {
        self.hunt_before(u64::MAX, plausible, gave_up)
    }

    /// The same, of those that begin before this place.
    pub(crate) fn hunt_before(
        &mut self,
        before: u64,
        mut plausible: impl FnMut(&Frame) -> bool,
        gave_up: &mut bool,
    ) -> Result<Option<Frame>> {
        let end = self.window.file_bytes()?.min(self.header.segment_bytes);
        self.window.believe_nothing();
        let mut budget = 4 * end;
        while self.at < before && self.at + FRAME_BYTES as u64 <= end {
            self.window.fill(self.at, FRAME_BYTES)?;
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
        self.window.bytes(self.at)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::{Access, Dir};

    use super::*;
    use crate::segment::ahead::PIECE_BYTES;
    use crate::segment::format::{Kind, hash};

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
