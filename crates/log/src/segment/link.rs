//! [`Link`]: what a segment says of the one that it follows, in its first frame.

use super::damage::Damage;
use super::format::{Frame, INDEX_END, Kind, SEGMENT_BYTES_MAX, u64_at};

const LINK_BYTES: u32 = 56;

/// What a segment follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Index of its first record.
    pub first_index: u64,
    /// Its number, counted from 0 with the log's first segment.
    pub ordinal: u64,
    /// Raised when records were cut off or a failed segment was replaced: a segment of an older generation
    /// that begins later is not part of the log any more.
    pub generation: u64,
    /// Salt of the segment before it, 0 if there was none.
    pub previous_salt: u64,
    /// Where that one's last record ends.
    pub previous_end: u64,
    /// First index of that one.
    pub previous_first_index: u64,
    /// Records up to this one were durable when it was written.
    pub durable: u64,
    /// Time of day, in ns since 1970.
    pub unix_ns: u64,
}

impl Link {
    /// The payload of a link frame; the first index stands in its head.
    pub(crate) fn encode(&self) -> [u8; LINK_BYTES as usize] {
        let mut bytes = [0; LINK_BYTES as usize];
        let fields = [
            self.ordinal,
            self.generation,
            self.previous_salt,
            self.previous_end,
            self.previous_first_index,
            self.durable,
            self.unix_ns,
        ];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Its frame.
    pub(crate) fn frame(&self) -> Frame {
        Frame { kind: Kind::Link, index: self.first_index, payload_bytes: LINK_BYTES, more: 0 }
    }

    /// Reads back the payload of a link frame with this index.
    pub(crate) fn decode(first_index: u64, payload: &[u8]) -> Result<Self, Damage> {
        if payload.len() != LINK_BYTES as usize || first_index == 0 {
            return Err(Damage::Content("link"));
        }
        let field = |number: usize| u64_at(payload, 8 * number);
        let link = Self {
            first_index,
            ordinal: field(0),
            generation: field(1),
            previous_salt: field(2),
            previous_end: field(3),
            previous_first_index: field(4),
            durable: field(5),
            unix_ns: field(6),
        };
        let is_possible = link.durable < first_index
            && link.ordinal < INDEX_END
            && link.generation < INDEX_END
            && link.previous_end <= SEGMENT_BYTES_MAX;
        if is_possible { Ok(link) } else { Err(Damage::Content("link")) }
    }
}
