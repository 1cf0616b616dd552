//! [`Header`]: the first block of a segment.

use super::damage::Damage;
use super::format::{BLOCK_BYTES, HEADER_BYTES, SEGMENT_BYTES_MAX, VERSION, hash, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"PLIMSEG\n";

/// The first block of a segment. Written and synced before the segment gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The log that the segment belongs to.
    pub log_id: u128,
    /// Drawn anew for each use of a file: the key of its frames' checksums.
    pub salt: u64,
    /// Size of the file.
    pub segment_bytes: u64,
}

impl Header {
    /// The block that begins a segment.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&4096_u32.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.salt.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.segment_bytes.to_le_bytes());
        let checksum = hash(&bytes[..56]);
        bytes[56..64].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads it back.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        if bytes.len() < HEADER_BYTES {
            return Err(Damage::Short);
        }
        if bytes[0..8] != MAGIC {
            return Err(Damage::Magic);
        }
        // In every version the checksum is here, so that a flipped bit is not taken for another version.
        if u64_at(bytes, 56) != hash(&bytes[..56]) {
            return Err(Damage::HeaderChecksum);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        let header = Self {
            log_id: u128::from_le_bytes(bytes[16..32].try_into().expect("sixteen bytes")),
            salt: u64_at(bytes, 32),
            segment_bytes: u64_at(bytes, 40),
        };
        let possible = u32_at(bytes, 12) == 4096
            && header.segment_bytes.is_multiple_of(BLOCK_BYTES)
            && (2 * BLOCK_BYTES..=SEGMENT_BYTES_MAX).contains(&header.segment_bytes);
        if possible { Ok(header) } else { Err(Damage::HeaderField) }
    }
}
