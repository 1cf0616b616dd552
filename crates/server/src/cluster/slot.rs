//! What the file `identity` holds, twice: who this replica is, and what it promised.
//!
//! ```text
//!  byte offset  bytes
//!            0      8  "plimsoID"
//!            8      4  version: 2
//!           12      4  flags: 1 it voted, 2 a quorum granted that vote, 4 entries were purged
//!           16      8  sequence: one more at each save
//!           24      8  id of this node
//!           32      8  vote: term
//!           40      8  vote: node
//!           48      8  purged: term
//!           56      8  purged: index, as the engine counts
//!           64      8  generation: after which loss the group goes on, 0 for none
//!           72      8  XXH3-64 of the 72 bytes before
//! ```
//!
//! Little-endian; what a flag does not announce is zero. Version 1 has no generation: its checksum, of 64 bytes, stands
//! there.

use twox_hash::XxHash3_64;

use super::types::{LeaderId, LogId, Vote, log_id};

/// Bytes of a slot that mean something.
pub(crate) const SLOT_BYTES: usize = 80;

const CHECKED_BYTES: usize = SLOT_BYTES - 8;
const MAGIC: [u8; 8] = *b"plimsoID";
const VERSION: u32 = 2;
/// What version 1 has its checksum of.
const CHECKED_BYTES_1: usize = 64;

const VOTED: u32 = 1;
const GRANTED: u32 = 2;
const PURGED: u32 = 4;

/// Who this replica is, and what it promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub(crate) node: u64,
    /// The newest vote. None comes after one that is smaller.
    pub(crate) vote: Option<Vote>,
    /// The last entry that was taken out of the log at its beginning.
    pub(crate) purged: Option<LogId>,
    /// After which loss its group goes on.
    pub(crate) generation: u64,
}

/// Why a slot cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadSlot {
    /// Unfinished, or its bytes changed, or they are not what this version writes.
    Damaged,
    /// Whole, and of another version of Plimsoll.
    Version(u32),
}

/// The slot as bytes.
pub(crate) fn encode(sequence: u64, identity: &Identity) -> [u8; SLOT_BYTES] {
    let Identity { node, vote, purged, generation } = identity;
    let mut flags = 0;
    let mut words = [sequence, *node, 0, 0, 0, 0, *generation];
    if let Some(Vote { leader_id, committed }) = vote {
        flags |= if *committed { VOTED | GRANTED } else { VOTED };
        words[2..4].copy_from_slice(&[leader_id.term, leader_id.voted_for]);
    }
    if let Some(LogId { leader_id, index }) = purged {
        flags |= PURGED;
        words[4..6].copy_from_slice(&[leader_id.term, *index]);
    }
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&MAGIC);
    slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
    slot[12..16].copy_from_slice(&flags.to_le_bytes());
    for (place, word) in slot[16..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let check = XxHash3_64::oneshot(&slot[..CHECKED_BYTES]);
    slot[CHECKED_BYTES..].copy_from_slice(&check.to_le_bytes());
    slot
}

/// The sequence and the identity of a slot.
pub(crate) fn decode(slot: &[u8; SLOT_BYTES]) -> Result<(u64, Identity), BadSlot> {
    let word = |at: usize| {
        let bytes = slot[at..].first_chunk().expect("a slot has 80 bytes");
        u64::from_le_bytes(*bytes)
    };
    let half = |at: usize| {
        let bytes = slot[at..].first_chunk().expect("a slot has 80 bytes");
        u32::from_le_bytes(*bytes)
    };
    let (version, flags) = (half(8), half(12));
    let checked = if version == 1 { CHECKED_BYTES_1 } else { CHECKED_BYTES };
    if slot[..8] != MAGIC || word(checked) != XxHash3_64::oneshot(&slot[..checked]) {
        return Err(BadSlot::Damaged);
    }
    if !(1..=VERSION).contains(&version) {
        return Err(BadSlot::Version(version));
    }
    let has = |flag| flags & flag != 0;
    let leader_id = LeaderId { term: word(32), voted_for: word(40) };
    let vote = has(VOTED).then(|| Vote { leader_id, committed: has(GRANTED) });
    let purged = has(PURGED).then(|| log_id(word(48), word(56)));
    let generation = if version == 1 { 0 } else { word(64) };
    let (sequence, identity) = (word(16), Identity { node: word(24), vote, purged, generation });
    // There is one way to write it: nothing stands there that was not read.
    let written = encode(sequence, &identity);
    if written[12..CHECKED_BYTES_1] == slot[12..CHECKED_BYTES_1] {
        Ok((sequence, identity))
    } else {
        Err(BadSlot::Damaged)
    }
}

/// For fuzzing: what is written of the identity that a slot holds.
#[cfg(fuzzing)]
#[must_use]
pub fn slot_again(slot: &[u8; SLOT_BYTES]) -> Option<[u8; SLOT_BYTES]> {
    let (sequence, identity) = decode(slot).ok()?;
    Some(encode(sequence, &identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &[u8] = include_bytes!("testdata/identity-v2");
    const GOLDEN_1: &[u8] = include_bytes!("testdata/identity-v1");

    fn sample() -> Identity {
        let vote = Some(Vote::new_committed(7, 3));
        Identity { node: 3, vote, purged: Some(log_id(5, 41)), generation: 2 }
    }

    #[test]
    fn a_slot_is_written_as_version_2_has_it() {
        let slot = encode(9, &sample());
        assert!(slot == GOLDEN, "{slot:02x?}");
    }

    #[test]
    fn a_slot_of_version_1_is_of_no_generation() {
        let mut slot = [0; SLOT_BYTES];
        slot[..GOLDEN_1.len()].copy_from_slice(GOLDEN_1);
        assert_eq!(decode(&slot), Ok((9, Identity { generation: 0, ..sample() })));
    }

    #[test]
    fn an_identity_comes_back_as_it_was() {
        let new = Identity { node: u64::MAX, vote: None, purged: None, generation: u64::MAX };
        let candidate = Identity { vote: Some(Vote::new(u64::MAX, 0)), ..new };
        for (sequence, identity) in [(1, new), (2, candidate), (u64::MAX, sample())] {
            assert_eq!(decode(&encode(sequence, &identity)), Ok((sequence, identity)));
        }
    }

    #[test]
    fn a_slot_with_any_bit_changed_is_damaged() {
        let slot = encode(9, &sample());
        for bit in 0..SLOT_BYTES * 8 {
            let mut changed = slot;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&changed), Err(BadSlot::Damaged), "bit {bit}");
        }
    }

    /// A flag that was not read would have been lost with the next save.
    #[test]
    fn a_slot_that_says_more_than_is_read_is_damaged() {
        for (place, byte) in [(12, 2), (12, 8), (15, 0x80), (32, 1), (63, 1)] {
            let mut slot =
                encode(9, &Identity { node: 3, vote: None, purged: None, generation: 0 });
            slot[place] = byte;
            let check = XxHash3_64::oneshot(&slot[..CHECKED_BYTES]);
            slot[CHECKED_BYTES..].copy_from_slice(&check.to_le_bytes());
            assert_eq!(decode(&slot), Err(BadSlot::Damaged), "byte {place}");
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut slot = encode(9, &sample());
        slot[8] = 3;
        let check = XxHash3_64::oneshot(&slot[..CHECKED_BYTES]);
        slot[CHECKED_BYTES..].copy_from_slice(&check.to_le_bytes());
        assert_eq!(decode(&slot), Err(BadSlot::Version(3)));
    }
}
