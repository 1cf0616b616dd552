//! [`Ring`]: records that were accepted and are not yet released. Appenders fill it, one at a time,
//! under a lock of theirs; the writer reads it without one.
//!
//! ```text
//!   positions (bytes, never reused):   released ≤ taken (the writer's) ≤ filled
//!
//!   words      0 what a file must match (`ring_file.rs`)
//!             16 filled                                              stored last by an append
//!             24 released                                            stored by whoever syncs
//!            512 frames, around and around
//!   frame        XXH3-64 of the payload · index · length | kind·more « 32 · payload, padded
//! ```
//!
//! Invariant: nothing between `released` and `filled` is overwritten.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use plimsoll_sync::Words;

use crate::error::Result;
use crate::segment::format::{FRAME_BYTES, Frame, Kind, frame_bytes};

/// Words before the frames.
pub(super) const HEAD_WORDS: usize = 512;
pub(super) const FILLED: usize = 16;
pub(super) const RELEASED: usize = 24;

#[derive(Debug)]
pub(crate) struct Ring {
    pub(super) words: Words,
    pub(super) capacity: u64,
    pub(super) is_own: bool,
}

/// A frame in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) frame: Frame,
    pub(crate) payload_hash: u64,
}

impl Ring {
    /// An empty ring of this process.
    pub(crate) fn in_memory(capacity: u64) -> Result<Self> {
        Ok(Self::own(Words::own(words_of(capacity))?, capacity))
    }

    /// The same, for a log that may use little of it: memory comes with its use.
    pub(crate) fn in_sparse_memory(capacity: u64) -> Result<Self> {
        Ok(Self::own(Words::own_sparse(words_of(capacity))?, capacity))
    }

    fn own(words: Words, capacity: u64) -> Self {
        Self { words, capacity, is_own: true }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether it is this process's own, and not a file.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Gives the memory of a stretch back to the system, which nobody uses: at most once around.
    pub(crate) fn give_back(&self, from: u64, to: u64) {
        let bytes = usize::try_from(to - from).expect("no more than the ring");
        let front = bytes.min(self.before_end(from));
        let mut given = self.give_back_straight(self.place(from), front);
        if front < bytes {
            given |= self.give_back_straight(HEAD_WORDS, bytes - front);
        }
        if !given {
            tracing::debug!("the memory of a ring could not be given back");
        }
    }

    fn give_back_straight(&self, at: usize, bytes: usize) -> bool {
        self.words.give_back(at..at + bytes / 8).is_ok()
    }

    /// Everything before is complete.
    pub(crate) fn filled(&self) -> u64 {
        #[cfg(shuttle)]
        shuttle::thread::yield_now();
        self.words[FILLED].load(Acquire)
    }

    /// Everything before may be overwritten.
    pub(crate) fn released(&self) -> u64 {
        #[cfg(shuttle)]
        shuttle::thread::yield_now();
        self.words[RELEASED].load(Acquire)
    }

    /// Everything before `position` is complete. For the appender whose turn it is. Sequentially
    /// consistent with the look at whether the writer sleeps that follows; a swap costs less than a store
    /// and a fence.
    pub(crate) fn publish(&self, position: u64) {
        debug_assert!(position - self.released() <= self.capacity, "the ring overflows");
        self.words[FILLED].swap(position, SeqCst);
    }

    /// Everything before `position` may be overwritten, if it was not so already.
    pub(crate) fn release(&self, position: u64) {
        self.words[RELEASED].fetch_max(position, AcqRel);
    }

    /// Puts a frame there, whose payload comes in pieces. There must be room, and it must be the
    /// caller's turn.
    pub(crate) fn put(&self, position: u64, frame: Frame, payload_hash: u64, payload: &[&[u8]]) {
        let length_and_kind =
            u64::from(frame.payload_bytes) | u64::from(frame.more) << 32 | KIND_RECORD << 56;
        // A head may lie around the end, so each word is placed by itself.
        self.words[self.place(position)].store(payload_hash, Relaxed);
        self.words[self.place(position + 8)].store(frame.index, Relaxed);
        self.words[self.place(position + 16)].store(length_and_kind, Relaxed);
        match payload {
            [whole] => self.write(position + FRAME_BYTES as u64, whole),
            pieces => self.write_pieces(position + FRAME_BYTES as u64, pieces),
        }
    }

    /// The head of the frame that begins there, below `filled`.
    pub(crate) fn head(&self, position: u64) -> Queued {
        self.head_within(position, self.capacity).expect("what was put into the ring is a frame")
    }

    /// The head of what may be a frame, of no more than `room` bytes.
    pub(super) fn head_within(&self, position: u64, room: u64) -> Option<Queued> {
        let word = |at: u64| self.words[self.place(position + at)].load(Relaxed);
        let (payload_hash, index, length_and_kind) = (word(0), word(8), word(16));
        let payload_bytes = (length_and_kind & 0xffff_ffff) as u32;
        let more = (length_and_kind >> 32) as u32 & 0x00ff_ffff;
        let fits = frame_bytes(payload_bytes as usize) as u64 <= room;
        let frame = Frame { kind: Kind::Record, index, payload_bytes, more };
        (length_and_kind >> 56 == KIND_RECORD && fits).then_some(Queued { frame, payload_hash })
    }

    fn place(&self, position: u64) -> usize {
        HEAD_WORDS + self.inside(position) / 8
    }

    /// How many bytes lie before the end of the memory.
    fn before_end(&self, position: u64) -> usize {
        self.inside(self.capacity - 1) + 1 - self.inside(position)
    }

    /// Where in the memory a position lies: the capacity is a power of two.
    #[expect(clippy::cast_possible_truncation, reason = "less than the size of the memory")]
    fn inside(&self, position: u64) -> usize {
        (position & (self.capacity - 1)) as usize
    }

    /// Pieces one behind the other. A word that two of them share is put together first.
    fn write_pieces(&self, mut position: u64, pieces: &[&[u8]]) {
        let mut shared = [0; 8];
        let mut held = 0;
        for mut piece in pieces.iter().copied() {
            if held > 0 {
                let (front, rest) = piece.split_at(piece.len().min(8 - held));
                shared[held..held + front.len()].copy_from_slice(front);
                (held, piece) = (held + front.len(), rest);
                if held < 8 {
                    continue;
                }
                self.write(position, &shared);
                position += 8;
            }
            let (words, rest) = piece.split_at(piece.len() / 8 * 8);
            self.write(position, words);
            position += words.len() as u64;
            shared[..rest.len()].copy_from_slice(rest);
            held = rest.len();
        }
        self.write(position, &shared[..held]);
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        let (front, back) = bytes.split_at(bytes.len().min(self.before_end(position)));
        self.write_straight(self.place(position), front);
        if !back.is_empty() {
            self.write_straight(HEAD_WORDS, back);
        }
    }

    fn write_straight(&self, at: usize, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        let words = &self.words[at..];
        for (word, chunk) in words.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[chunks.len()].store(u64::from_le_bytes(last), Relaxed);
        }
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, position: u64, bytes: &mut [u8]) {
        let before_end = bytes.len().min(self.before_end(position));
        let (front, back) = bytes.split_at_mut(before_end);
        self.read_straight(self.place(position), front);
        if !back.is_empty() {
            self.read_straight(HEAD_WORDS, back);
        }
    }

    fn read_straight(&self, at: usize, bytes: &mut [u8]) {
        let (chunks, rest) = bytes.as_chunks_mut::<8>();
        let words = &self.words[at..];
        for (word, chunk) in words.iter().zip(&mut *chunks) {
            *chunk = word.load(Relaxed).to_le_bytes();
        }
        if !rest.is_empty() {
            let last = words[chunks.len()].load(Relaxed).to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}

const KIND_RECORD: u64 = 2;

pub(super) fn words_of(capacity: u64) -> usize {
    HEAD_WORDS + usize::try_from(capacity / 8).expect("checked by the options")
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::segment::format::hash;

    const CAPACITY: u64 = 4096;

    fn put(ring: &Ring, position: u64, index: u64, payload: &[u8]) -> u64 {
        let payload_bytes = u32::try_from(payload.len()).unwrap();
        let frame = Frame { kind: Kind::Record, index, payload_bytes, more: 0 };
        ring.put(position, frame, hash(payload), &[payload]);
        position + frame.bytes() as u64
    }

    #[test]
    fn frames_are_read_back_also_around_the_end() {
        let ring = Ring::in_memory(CAPACITY).unwrap();
        let mut position = 0;
        for index in 1..if cfg!(miri) { 100 } else { 2000_u64 } {
            let payload: Vec<u8> =
                (0..index % 300).map(|byte| (byte + index).to_le_bytes()[0]).collect();
            let next = put(&ring, position, index, &payload);
            ring.publish(next);
            let held = ring.head(position);
            assert_eq!((held.frame.index, held.payload_hash), (index, hash(&payload)));
            let mut read = vec![0; payload.len()];
            ring.read(position + FRAME_BYTES as u64, &mut read);
            assert_eq!(read, payload, "record {index} at {position}");
            position = next;
            ring.release(position);
        }
    }

    #[test]
    fn a_payload_in_pieces_is_the_same_as_in_one() {
        let ring = Ring::in_memory(CAPACITY).unwrap();
        let payload: Vec<u8> = (0..100).collect();
        let frame = Frame { kind: Kind::Record, index: 1, payload_bytes: 100, more: 0 };
        for cut in 0..100 {
            for second in [cut, cut + (100 - cut) / 3, 100] {
                let (first, rest) = payload.split_at(cut);
                let (middle, last) = rest.split_at(second - cut);
                // Around the end as well.
                for position in [0, CAPACITY - 64, CAPACITY - 24] {
                    ring.put(position, frame, 7, &[first, &[], middle, last]);
                    let mut read = [0; 100];
                    ring.read(position + FRAME_BYTES as u64, &mut read);
                    assert_eq!(read[..], payload[..], "cut at {cut} and {second}");
                }
            }
        }
    }
}
