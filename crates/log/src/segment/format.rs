//! The bytes of a log, version 1: encoding and decoding, and nothing else. Drawn at length in
//! `docs/log-format.md`.
//!
//! ```text
//! segment   0 ┌──────────────────────────────────────────────────────────┐
//!             │ header: magic, version, log id, salt, size, checksum     │  one block,
//!             │ zeros                                                    │  synced before use
//!        4096 ├──────────────────────────────────────────────────────────┤
//!             │ frame: link (what this segment follows)                  │
//!             │ frame: record │ frame: record │ frame: mark │ …          │  frames begin at
//!             │ frame: seal (a sparse index)                             │  multiples of 8
//!             │ zeros, or what was here before the file was recycled     │
//!        size └──────────────────────────────────────────────────────────┘
//!
//! frame     0 checksum  u64   XXH3-64, keyed by the segment's salt, of
//!                             byte offset · bytes 8..24 · XXH3-64 of the payload
//!           8 index     u64   of the record; what it means of the others stands at `Kind`
//!          16 length    u32   of the payload
//!          20 kind·more u32   kind in the high byte; below it, how many records of the same batch
//!                             follow
//!          24 payload, then zeros to a multiple of 8
//! ```
//!
//! Invariants: all integers are little-endian. A frame validates only at the byte offset and in the
//! segment that it was written for, so that what a recycled file still holds never does. A length is
//! checked against what is left of the segment before it is used.

use std::hash::Hasher;

use twox_hash::XxHash3_64;

use super::damage::Damage;

/// Where frames begin; also what writes are a multiple of.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// [`BLOCK_BYTES`] for what lies in memory.
pub(crate) const BLOCK: usize = 4096;
/// Version of the format.
pub const VERSION: u32 = 1;
/// Bytes before the payload.
pub(crate) const FRAME_BYTES: usize = 24;
/// Frames begin at multiples of this, so that a length never lies in two sectors.
pub(crate) const FRAME_ALIGN: u64 = 8;

/// Records have indexes below this: no log gets there by appending, and what is counted from bytes of
/// a disk never overflows.
pub(crate) const INDEX_END: u64 = 1 << 63;

/// Bytes of a header; the rest of its block is zero.
pub(crate) const HEADER_BYTES: usize = 64;
/// The largest segment.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// The most records of one batch: what fits beside the kind.
pub(crate) const BATCH_RECORDS_MAX: usize = 1 << 24;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The first of a segment; its index is the one of the first record that will follow.
    Link,
    /// A record.
    Record,
    /// Says that records up to its index were durable when it was written.
    Mark,
    /// The last of a segment; its index is the one of the last record.
    Seal,
    /// Fills a block up. Earlier versions wrote some, and all read them.
    Pad,
}

/// The beginning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// See [`Kind`].
    pub index: u64,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Of a record: records of the same batch that come after it. Of a mark: the lowest 24 bits of
    /// the segment's generation.
    pub more: u32,
}

/// What stands at a byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// A frame whose checksum is right. Its payload follows its head.
    Frame(Frame),
    /// More bytes are needed to say: this many in all.
    Needs(usize),
    /// Zeros where a frame would begin: nothing was written here.
    Empty,
    /// Something that is no frame of this segment and place.
    Bad(Damage),
}

/// XXH3-64 of a payload, which appenders compute before they take any lock.
pub(crate) fn hash(payload: &[u8]) -> u64 {
    XxHash3_64::oneshot(payload)
}

/// The same of a payload in pieces.
pub(crate) fn hash_pieces(pieces: &[&[u8]]) -> u64 {
    let mut hasher = XxHash3_64::new();
    pieces.iter().for_each(|piece| hasher.write(piece));
    hasher.finish()
}

/// What a mark has of a generation.
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
pub(crate) const fn generation_bits(generation: u64) -> u32 {
    generation as u32 & 0x00ff_ffff
}

/// Bytes that a payload takes in a segment, head and padding included.
pub(crate) const fn frame_bytes(payload_bytes: usize) -> usize {
    (FRAME_BYTES + payload_bytes).next_multiple_of(8)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Self::Link => 1,
            Self::Record => 2,
            Self::Mark => 3,
            Self::Seal => 4,
            Self::Pad => 5,
        }
    }

    fn of(number: u8) -> Option<Self> {
        [Self::Link, Self::Record, Self::Mark, Self::Seal, Self::Pad]
            .into_iter()
            .find(|kind| kind.number() == number)
    }

    /// The kind in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Record => "record",
            Self::Mark => "mark",
            Self::Seal => "seal",
            Self::Pad => "pad",
        }
    }
}

impl Frame {
    /// A mark, which also says of what generation its segment is: the link that says so may be lost.
    pub(crate) fn mark(durable: u64, generation: u64) -> Self {
        Self {
            kind: Kind::Mark,
            index: durable,
            payload_bytes: 0,
            more: generation_bits(generation),
        }
    }

    /// Bytes that it takes in a segment.
    pub(crate) const fn bytes(&self) -> usize {
        frame_bytes(self.payload_bytes as usize)
    }

    /// Its payload in bytes that begin with it and hold all of it.
    pub(crate) fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[FRAME_BYTES..FRAME_BYTES + self.payload_bytes as usize]
    }

    fn kind_and_more(&self) -> u32 {
        u32::from(self.kind.number()) << 24 | self.more
    }

    fn checksum(&self, salt: u64, byte_offset: u64, payload_hash: u64) -> u64 {
        let mut keyed = [0; 32];
        keyed[0..8].copy_from_slice(&byte_offset.to_le_bytes());
        keyed[8..16].copy_from_slice(&self.index.to_le_bytes());
        keyed[16..20].copy_from_slice(&self.payload_bytes.to_le_bytes());
        keyed[20..24].copy_from_slice(&self.kind_and_more().to_le_bytes());
        keyed[24..32].copy_from_slice(&payload_hash.to_le_bytes());
        XxHash3_64::oneshot_with_seed(salt, &keyed)
    }

    /// The head of the frame at `byte_offset` of the segment with this salt.
    pub(crate) fn encode(
        &self,
        salt: u64,
        byte_offset: u64,
        payload_hash: u64,
    ) -> [u8; FRAME_BYTES] {
        assert!(byte_offset.is_multiple_of(FRAME_ALIGN), "a frame at {byte_offset}");
        assert!((self.more as usize) < BATCH_RECORDS_MAX, "a batch of {} records", self.more);
        let mut head = [0; FRAME_BYTES];
        head[0..8].copy_from_slice(&self.checksum(salt, byte_offset, payload_hash).to_le_bytes());
        head[8..16].copy_from_slice(&self.index.to_le_bytes());
        head[16..20].copy_from_slice(&self.payload_bytes.to_le_bytes());
        head[20..24].copy_from_slice(&self.kind_and_more().to_le_bytes());
        head
    }

    /// What the head of a frame says, checked for nothing but its kind.
    pub(crate) fn head(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: Kind::of(bytes[23])?,
            index: u64_at(bytes, 8),
            payload_bytes: u32_at(bytes, 16),
            more: u32_at(bytes, 20) & 0x00ff_ffff,
        })
    }

    /// What begins with `bytes`, at `byte_offset` of a segment whose frames end before
    /// `segment_end`.
    pub(crate) fn decode(bytes: &[u8], salt: u64, byte_offset: u64, segment_end: u64) -> Decoded {
        let room = segment_end.saturating_sub(byte_offset);
        if room < FRAME_BYTES as u64 {
            return Decoded::Empty;
        }
        if bytes.len() < FRAME_BYTES {
            return Decoded::Needs(FRAME_BYTES);
        }
        if bytes[..FRAME_BYTES] == [0; FRAME_BYTES] {
            return Decoded::Empty;
        }
        let Some(frame) = Self::head(bytes) else {
            return Decoded::Bad(Damage::FrameKind(bytes[23]));
        };
        if u64::from(frame.payload_bytes) > room - FRAME_BYTES as u64 {
            return Decoded::Bad(Damage::FrameLength(frame.payload_bytes));
        }
        let end = FRAME_BYTES + frame.payload_bytes as usize;
        if bytes.len() < end {
            return Decoded::Needs(end);
        }
        let checksum = frame.checksum(salt, byte_offset, hash(&bytes[FRAME_BYTES..end]));
        if checksum != u64_at(bytes, 0) {
            return Decoded::Bad(Damage::FrameChecksum);
        }
        // A segment may begin where records end.
        let is_possible = frame.index < INDEX_END + u64::from(frame.kind == Kind::Link);
        if is_possible { Decoded::Frame(frame) } else { Decoded::Bad(Damage::Index(frame.index)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::segment::header::Header;
    use crate::segment::link::Link;
    use crate::segment::sparse::SparseIndex;

    const SALT: u64 = 0x5a17;
    const END: u64 = 1 << 20;

    fn framed(kind: Kind, index: u64, payload: &[u8], byte_offset: u64) -> Vec<u8> {
        let payload_bytes = u32::try_from(payload.len()).unwrap();
        let frame = Frame { kind, index, payload_bytes, more: 3 };
        let mut bytes = frame.encode(SALT, byte_offset, hash(payload)).to_vec();
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_frame_validates_only_in_its_segment_and_at_its_place() {
        let bytes = framed(Kind::Record, 7, b"payload", 4096);
        let frame = Frame { kind: Kind::Record, index: 7, payload_bytes: 7, more: 3 };
        assert_eq!(Frame::decode(&bytes, SALT, 4096, END), Decoded::Frame(frame));
        let bad = Decoded::Bad(Damage::FrameChecksum);
        assert_eq!(Frame::decode(&bytes, SALT + 1, 4096, END), bad);
        assert_eq!(Frame::decode(&bytes, SALT, 4104, END), bad);
    }

    #[test]
    fn a_length_that_lies_is_found_before_it_is_believed() {
        let mut bytes = framed(Kind::Record, 7, b"payload", 4096);
        bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        let decoded = Frame::decode(&bytes, SALT, 4096, END);
        assert_eq!(decoded, Decoded::Bad(Damage::FrameLength(u32::MAX)));
    }

    #[test]
    fn zeros_are_no_frame_and_no_damage() {
        assert_eq!(Frame::decode(&[0; 64], SALT, 4096, END), Decoded::Empty);
        assert_eq!(Frame::decode(&[], SALT, END - 8, END), Decoded::Empty);
    }

    #[test]
    fn a_header_is_read_back_and_every_flipped_bit_is_seen() {
        let header = Header { log_id: 1 << 100, salt: SALT, segment_bytes: 64 << 20 };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        for bit in (0..bytes.len() * 8).step_by(if cfg!(miri) { 37 } else { 1 }) {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_link_is_read_back_and_cannot_promise_its_own_records() {
        let link = Link {
            first_index: 100,
            ordinal: 4,
            generation: 2,
            previous_salt: 9,
            previous_end: 5000,
            previous_first_index: 50,
            durable: 99,
            unix_ns: 1,
        };
        assert_eq!(Link::decode(100, &link.encode()), Ok(link));
        let boasting = Link { durable: 100, ..link };
        assert_eq!(Link::decode(100, &boasting.encode()), Err(Damage::Content("link")));
        for impossible in [
            Link { ordinal: u64::MAX, ..link },
            Link { generation: u64::MAX, ..link },
            Link { previous_end: u64::MAX, ..link },
        ] {
            assert_eq!(Link::decode(100, &impossible.encode()), Err(Damage::Content("link")));
        }
    }

    #[test]
    fn a_frame_with_an_index_that_no_log_reaches_is_damage() {
        for kind in [Kind::Link, Kind::Record, Kind::Mark, Kind::Seal, Kind::Pad] {
            for index in [INDEX_END - 1, INDEX_END, INDEX_END + 1, u64::MAX] {
                let decoded = Frame::decode(&framed(kind, index, b"", 4096), SALT, 4096, END);
                let is_possible = index < INDEX_END || (kind, index) == (Kind::Link, INDEX_END);
                assert_eq!(matches!(decoded, Decoded::Frame(_)), is_possible, "{kind:?} {index}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoders_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            salt: u64,
            block in 0_u64..100,
            end: u64,
        ) {
            Header::decode(&bytes).ok();
            Link::decode(salt, &bytes).ok();
            SparseIndex::decode(&bytes, end).ok();
            let _: Decoded = Frame::decode(&bytes, salt, block * 8, end);
        }

        #[test]
        fn every_flipped_bit_of_a_frame_is_seen(
            payload in proptest::collection::vec(any::<u8>(), 0..64),
            flip: prop::sample::Index,
        ) {
            let mut bytes = framed(Kind::Record, 7, &payload, 8192);
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let decoded = Frame::decode(&bytes, SALT, 8192, END);
            prop_assert!(!matches!(decoded, Decoded::Frame(_)), "{:?}", decoded);
        }
    }
}
