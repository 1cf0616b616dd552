//! The ring: records that were accepted and are not yet released. Appenders fill it, one at a time,
//! under a lock of theirs; the writer reads it without one.
//!
//! ```text
//!   positions (bytes, never reused):   released ≤ taken (the writer's) ≤ filled
//!
//!   words      0 magic · version · log id · boot id · capacity       what a file must match
//!             16 filled                                              stored last by an append
//!             24 released                                            stored by whoever syncs
//!            512 frames, around and around
//!   frame        XXH3-64 of the payload · index · length | kind·more « 32 · payload, padded
//! ```
//!
//! In a file it outlives its process: everything below `filled` is complete, because `filled` is
//! stored after the frame and the kernel does not die. Hence no more than the checksum of the payload.
//!
//! Invariant: nothing between `released` and `filled` is overwritten.

use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use plimsoll_sync::{Held, Words, boot_id};

use crate::error::Result;
use crate::format::{FRAME_BYTES, Frame, INDEX_END, Kind, frame_bytes, hash};

const HEAD_WORDS: usize = 512;
const MAGIC: u64 = u64::from_le_bytes(*b"PLIMRING");
const VERSION: u64 = 1;
const FILLED: usize = 16;
const RELEASED: usize = 24;

#[derive(Debug)]
pub(crate) struct Ring {
    words: Words,
    capacity: u64,
}

/// A frame in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) frame: Frame,
    pub(crate) payload_hash: u64,
}

/// What a ring in a file held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or it was never used.
    Nothing,
    /// Records of this log, written since the system started: where each begins, oldest first.
    Records(Vec<(u64, u64)>),
    /// Something that cannot be used, and why.
    Unusable(&'static str),
}

impl Ring {
    /// An empty ring of this process.
    pub(crate) fn in_memory(capacity: u64) -> Result<Self> {
        let words = Words::own(words_of(capacity))?;
        Ok(Self { words, capacity })
    }

    /// The ring of a file, as it is.
    pub(crate) fn in_file(path: &Path, capacity: u64) -> Result<(Self, Held)> {
        let (words, held) = Words::of_file(path, words_of(capacity))?;
        Ok((Self { words, capacity }, held))
    }

    /// What an earlier process left, if it is this log's and of this run of the system.
    pub(crate) fn found(&self, log_id: u128) -> Found {
        let head = |at: usize| self.words[at].load(Relaxed);
        if head(0) == 0 {
            return Found::Nothing;
        }
        if head(0) != MAGIC || head(1) != VERSION || head(6) != self.capacity {
            return Found::Unusable("the file is no ring of this size and version");
        }
        if two(log_id) != [head(2), head(3)] {
            return Found::Unusable("it is the ring of another log");
        }
        if two(boot_id().unwrap_or(0)) != [head(4), head(5)] {
            return Found::Unusable("the system has been started since");
        }
        let (mut position, filled) = (self.released(), self.filled());
        let sound = position <= filled
            && filled - position <= self.capacity
            && filled < INDEX_END
            && position.is_multiple_of(8)
            && filled.is_multiple_of(8);
        if !sound {
            return Found::Unusable("its positions are impossible");
        }
        let mut records = Vec::new();
        let mut payload = Vec::new();
        let mut next = None;
        // Of a batch that is not at its end: how many come next.
        let mut more: Option<u32> = None;
        while position < filled {
            let room = filled - position;
            let Some(held) = self.head_within(position, room) else {
                return Found::Unusable("it holds a frame that is none");
            };
            payload.resize(held.frame.payload_bytes as usize, 0);
            self.read(position + FRAME_BYTES as u64, &mut payload);
            let follows = next.is_none_or(|next| next == held.frame.index)
                && more.is_none_or(|more| more == held.frame.more)
                && held.frame.index < INDEX_END;
            if hash(&payload) != held.payload_hash || !follows {
                return Found::Unusable("it holds a frame that is none");
            }
            records.push((position, held.frame.index));
            next = Some(held.frame.index.saturating_add(1));
            more = held.frame.more.checked_sub(1);
            position += held.frame.bytes() as u64;
        }
        if more.is_some() {
            return Found::Unusable("it ends in the middle of a batch");
        }
        Found::Records(records)
    }

    /// Begins anew: empty, and this log's.
    pub(crate) fn reset(&self, log_id: u128) {
        self.words[0].store(0, Release);
        for (at, word) in two(log_id).into_iter().enumerate() {
            self.words[2 + at].store(word, Relaxed);
        }
        for (at, word) in two(boot_id().unwrap_or(0)).into_iter().enumerate() {
            self.words[4 + at].store(word, Relaxed);
        }
        self.words[1].store(VERSION, Relaxed);
        self.words[6].store(self.capacity, Relaxed);
        self.words[FILLED].store(0, Relaxed);
        self.words[RELEASED].store(0, Relaxed);
        self.words[0].store(MAGIC, Release);
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
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

    /// Everything before `position` is complete. For the appender whose turn it is.
    pub(crate) fn publish(&self, position: u64) {
        debug_assert!(position - self.released() <= self.capacity, "the ring overflows");
        self.words[FILLED].store(position, Release);
    }

    /// Everything before `position` may be overwritten, if it was not so already.
    pub(crate) fn release(&self, position: u64) {
        self.words[RELEASED].fetch_max(position, AcqRel);
    }

    /// Puts a frame there. There must be room, and it must be the caller's turn.
    pub(crate) fn put(&self, position: u64, frame: Frame, payload_hash: u64, payload: &[u8]) {
        let length_and_kind =
            u64::from(frame.payload_bytes) | u64::from(frame.more) << 32 | KIND_RECORD << 56;
        let at = self.place(position);
        // A head may lie around the end, so each word is placed by itself.
        self.words[at].store(payload_hash, Relaxed);
        self.words[self.place(position + 8)].store(frame.index, Relaxed);
        self.words[self.place(position + 16)].store(length_and_kind, Relaxed);
        self.write(position + FRAME_BYTES as u64, payload);
    }

    /// The head of the frame that begins there, below `filled`.
    pub(crate) fn head(&self, position: u64) -> Queued {
        self.head_within(position, self.capacity).expect("what was put into the ring is a frame")
    }

    /// The head of what may be a frame, of no more than `room` bytes.
    fn head_within(&self, position: u64, room: u64) -> Option<Queued> {
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

fn words_of(capacity: u64) -> usize {
    HEAD_WORDS + usize::try_from(capacity / 8).expect("checked by the options")
}

fn two(id: u128) -> [u64; 2] {
    let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let bytes = id.to_le_bytes();
    [half(&bytes[..8]), half(&bytes[8..])]
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const CAPACITY: u64 = 4096;

    fn put(ring: &Ring, position: u64, index: u64, payload: &[u8]) -> u64 {
        let payload_bytes = u32::try_from(payload.len()).unwrap();
        let frame = Frame { kind: Kind::Record, index, payload_bytes, more: 0 };
        ring.put(position, frame, hash(payload), payload);
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
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn a_ring_in_a_file_is_found_again_by_its_own_log_only() {
        let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        let path = shm.path().join("ring");
        let (ring, _) = Ring::in_file(&path, CAPACITY).unwrap();
        assert_eq!(ring.found(7), Found::Nothing);
        ring.reset(7);
        let second = put(&ring, 0, 1, b"released");
        let third = put(&ring, second, 2, b"held");
        ring.publish(put(&ring, third, 3, b""));
        ring.release(second);
        drop(ring);
        let (ring, held) = Ring::in_file(&path, CAPACITY).unwrap();
        assert_eq!(held, Held::Words);
        assert_eq!(ring.found(7), Found::Records(vec![(second, 2), (third, 3)]));
        assert!(matches!(ring.found(8), Found::Unusable(why) if why.contains("another log")));
    }

    #[test]
    fn a_ring_with_positions_or_indexes_near_the_end_of_numbers_is_not_used() {
        let ring = Ring::in_memory(CAPACITY).unwrap();
        ring.reset(7);
        ring.publish(put(&ring, 0, u64::MAX, b"record"));
        assert!(matches!(ring.found(7), Found::Unusable(_)));
        for word in [RELEASED, FILLED] {
            ring.words[word].store(u64::MAX - 7, Relaxed);
        }
        assert!(matches!(ring.found(7), Found::Unusable(_)));
    }

    #[test]
    fn a_ring_with_any_flipped_bit_gives_no_wrong_record_and_no_panic() {
        let ring = Ring::in_memory(CAPACITY).unwrap();
        ring.reset(7);
        let second = put(&ring, 0, 1, b"first record");
        ring.publish(put(&ring, second, 2, b"second"));
        let good = ring.found(7);
        let used = HEAD_WORDS + 16;
        for bit in (0..used * 64).step_by(if cfg!(miri) { 509 } else { 1 }) {
            // How many of its batch follow the last one: the writer would look for them.
            let is_more = bit / 64 == HEAD_WORDS + 5 + 2 && (32..56).contains(&(bit % 64));
            let flip = |ring: &Ring| ring.words[bit / 64].fetch_xor(1 << (bit % 64), Relaxed);
            flip(&ring);
            assert!(!is_more || matches!(ring.found(7), Found::Unusable(_)), "bit {bit}");
            if let Found::Records(records) = ring.found(7)
                && Found::Records(records.clone()) != good
            {
                // Both positions are trusted: a `filled` or `released` at another frame's edge
                // would have to be flipped by more than one bit to pass unnoticed.
                assert!(records.is_empty(), "bit {bit}: {records:?}");
            }
            flip(&ring);
        }
    }
}
