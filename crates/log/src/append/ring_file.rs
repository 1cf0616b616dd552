//! A ring in a file: what an earlier process left in it, whose it is, and since when.
//!
//! ```text
//!   words      0 magic · version · log id (2) · boot id (2) · capacity
//!              8 token · next token · one past where a cut is to end, 0 while there is none
//! ```
//!
//! In a file a ring outlives its process: everything below `filled` is complete, because `filled` is
//! stored after the frame and the kernel does not die. Hence no more than the checksum of the payload.
//!
//! **Whose records they are.** Each open draws a token and puts it into the ring and into a note in the
//! log's directory, durably, before anything is appended. A ring with another token than the note's is
//! from before somebody opened the log without it, and may hold records that others have replaced: it is
//! not used. The ring learns the next token first and forgets the old one last, so that a crash in
//! between leaves a ring that still matches.
//!
//! **What a cut took away.** A cut ends the segments first, then empties the ring. Killed in between it
//! leaves a ring that begins behind a gap: the ring knows where the cut was to end, so that whoever opens
//! the log knows that nothing is missing.

use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release};

use plimsoll_sync::{Held, Words, boot_id};

use super::ring::{FILLED, HEAD_WORDS, RELEASED, Ring, words_of};
use crate::error::Result;
use crate::segment::format::{FRAME_BYTES, INDEX_END, hash};

const MAGIC: u64 = u64::from_le_bytes(*b"PLIMRING");
const VERSION: u64 = 2;
const TOKEN: usize = 8;
const NEXT_TOKEN: usize = 9;
const CUT: usize = 10;

/// What a ring in a file held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or it was never used.
    Nothing,
    /// Records of this log, written since the system started: where each begins, oldest first.
    Records(Vec<Left>),
    /// It is the ring of another log, which may need it.
    Foreign,
    /// Something that cannot be used, and why.
    Unusable(&'static str),
}

/// A record in a ring that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) position: u64,
    pub(crate) index: u64,
}

impl Ring {
    /// The ring of a file, as it is.
    pub(crate) fn in_file(path: &Path, capacity: u64) -> Result<(Self, Held)> {
        let (words, held) = Words::of_file(path, words_of(capacity))?;
        Ok((Self { words, capacity, is_own: false }, held))
    }

    /// What an earlier process left, if it is this log's and of this run of the system, and if nobody
    /// has opened the log without it since: `token` is the note's.
    pub(crate) fn found(&self, log_id: u128, token: Option<u64>) -> Found {
        let head = |at: usize| self.words[at].load(Relaxed);
        if head(0) == 0 {
            return Found::Nothing;
        }
        if head(0) != MAGIC || head(1) != VERSION || head(6) != self.capacity {
            return Found::Unusable("the file is no ring of this size and version");
        }
        if two(log_id) != [head(2), head(3)] {
            return Found::Foreign;
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
        if position == filled {
            return Found::Records(Vec::new());
        }
        if !token.is_some_and(|token| self.has_token(token)) {
            return Found::Unusable("the log was opened without it since, and may have gone on");
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
            records.push(Left { position, index: held.frame.index });
            next = Some(held.frame.index.saturating_add(1));
            more = held.frame.more.checked_sub(1);
            position += held.frame.bytes() as u64;
        }
        if more.is_some() {
            return Found::Unusable("it ends in the middle of a batch");
        }
        Found::Records(records)
    }

    /// Whether a note with this token is of this ring.
    pub(crate) fn has_token(&self, token: u64) -> bool {
        [TOKEN, NEXT_TOKEN].iter().any(|&at| self.words[at].load(Relaxed) == token)
    }

    /// Learns the token that the note is about to have.
    pub(crate) fn expect_token(&self, token: u64) {
        self.words[NEXT_TOKEN].store(token, Release);
    }

    /// The note has it.
    pub(crate) fn take_token(&self, token: u64) {
        self.words[TOKEN].store(token, Release);
    }

    /// What comes after `last_index` is being cut off; none, if nothing is.
    pub(crate) fn note_cut(&self, last_index: Option<u64>) {
        self.words[CUT].store(last_index.map_or(0, |index| index.saturating_add(1)), Release);
    }

    /// Whether a cut that was to end with `last_index` was not finished.
    pub(crate) fn was_cut_to(&self, last_index: u64) -> bool {
        self.words[CUT].load(Relaxed) == last_index.saturating_add(1)
    }

    /// Begins anew: empty, and this log's.
    pub(crate) fn reset(&self, log_id: u128, token: u64) {
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
        self.words[TOKEN].store(token, Relaxed);
        self.words[NEXT_TOKEN].store(token, Relaxed);
        self.words[CUT].store(0, Relaxed);
        self.words[0].store(MAGIC, Release);
    }
}

fn two(id: u128) -> [u64; 2] {
    let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let bytes = id.to_le_bytes();
    [half(&bytes[..8]), half(&bytes[8..])]
}

const _: () = assert!(CUT < FILLED && RELEASED < HEAD_WORDS);

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::segment::format::{Frame, Kind};

    const CAPACITY: u64 = 4096;
    const TOKEN_OF_TEST: Option<u64> = Some(99);

    fn put(ring: &Ring, position: u64, index: u64, payload: &[u8]) -> u64 {
        let payload_bytes = u32::try_from(payload.len()).unwrap();
        let frame = Frame { kind: Kind::Record, index, payload_bytes, more: 0 };
        ring.put(position, frame, hash(payload), &[payload]);
        position + frame.bytes() as u64
    }

    /// An opener that could not see the ring appended records of its own; then the ring's old ones came
    /// back behind them.
    #[test]
    fn a_ring_of_another_token_is_not_used_unless_it_is_empty() {
        let ring = Ring::in_memory(CAPACITY).unwrap();
        ring.reset(7, 99);
        assert_eq!(ring.found(7, None), Found::Records(Vec::new()));
        ring.publish(put(&ring, 0, 1, b"record"));
        assert!(matches!(ring.found(7, None), Found::Unusable(_)));
        assert!(matches!(ring.found(7, Some(98)), Found::Unusable(_)));
        ring.expect_token(100);
        for token in [99, 100] {
            assert!(matches!(ring.found(7, Some(token)), Found::Records(_)), "{token}");
        }
        ring.take_token(100);
        assert!(matches!(ring.found(7, Some(99)), Found::Unusable(_)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn a_ring_in_a_file_is_found_again_by_its_own_log_only() {
        let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        let path = shm.path().join("ring");
        let (ring, _) = Ring::in_file(&path, CAPACITY).unwrap();
        assert_eq!(ring.found(7, TOKEN_OF_TEST), Found::Nothing);
        ring.reset(7, 99);
        let second = put(&ring, 0, 1, b"released");
        let third = put(&ring, second, 2, b"held");
        ring.publish(put(&ring, third, 3, b""));
        ring.release(second);
        drop(ring);
        let (ring, held) = Ring::in_file(&path, CAPACITY).unwrap();
        assert_eq!(held, Held::Words);
        assert_eq!(
            ring.found(7, TOKEN_OF_TEST),
            Found::Records(vec![
                Left { position: second, index: 2 },
                Left { position: third, index: 3 }
            ])
        );
        assert_eq!(ring.found(8, TOKEN_OF_TEST), Found::Foreign);
    }

    #[test]
    fn a_ring_with_positions_or_indexes_near_the_end_of_numbers_is_not_used() {
        let ring = Ring::in_memory(CAPACITY).unwrap();
        ring.reset(7, 99);
        ring.publish(put(&ring, 0, u64::MAX, b"record"));
        assert!(matches!(ring.found(7, TOKEN_OF_TEST), Found::Unusable(_)));
        for word in [RELEASED, FILLED] {
            ring.words[word].store(u64::MAX - 7, Relaxed);
        }
        assert!(matches!(ring.found(7, TOKEN_OF_TEST), Found::Unusable(_)));
    }

    #[test]
    fn a_ring_with_any_flipped_bit_gives_no_wrong_record_and_no_panic() {
        let ring = Ring::in_memory(CAPACITY).unwrap();
        ring.reset(7, 99);
        let second = put(&ring, 0, 1, b"first record");
        ring.publish(put(&ring, second, 2, b"second"));
        let good = ring.found(7, TOKEN_OF_TEST);
        let used = HEAD_WORDS + 16;
        for bit in (0..used * 64).step_by(if cfg!(miri) { 509 } else { 1 }) {
            // How many of its batch follow the last one: the writer would look for them.
            let is_more = bit / 64 == HEAD_WORDS + 5 + 2 && (32..56).contains(&(bit % 64));
            let flip = |ring: &Ring| ring.words[bit / 64].fetch_xor(1 << (bit % 64), Relaxed);
            flip(&ring);
            assert!(
                !is_more || matches!(ring.found(7, TOKEN_OF_TEST), Found::Unusable(_)),
                "bit {bit}"
            );
            if let Found::Records(records) = ring.found(7, TOKEN_OF_TEST)
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
