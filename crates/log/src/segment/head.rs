//! The head of a segment file: its name, its header, and the link that says what it follows.

use plimsoll_sync::{AlignedBuf, File};

use super::damage::Damage;
use super::format::{BLOCK, BLOCK_BYTES, Decoded, Frame, HEADER_BYTES, INDEX_END, Kind};
use super::header::Header;
use super::link::Link;
use crate::error::{Error, Result};

/// What a file says of itself that calls itself a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) header: Header,
    /// `None` if it does not validate: the segment was never synced, or was damaged since.
    pub(crate) link: Option<Link>,
}

impl Head {
    /// Reads header and link, in one read.
    ///
    /// # Errors
    /// The disk's, and [`Error::Version`].
    pub(crate) fn read(
        file: &dyn File,
        first_index: u64,
    ) -> Result<std::result::Result<Self, Damage>> {
        let mut head = AlignedBuf::zeroed(2 * BLOCK, BLOCK);
        let held = file.read_at(&mut head, 0)?;
        let header = match header_of(&head[..held.min(BLOCK)], first_index)? {
            Ok(header) => header,
            Err(damage) => return Ok(Err(damage)),
        };
        let frames = &head[BLOCK.min(held)..held];
        let link = match Frame::decode(frames, header.salt, BLOCK_BYTES, header.segment_bytes) {
            Decoded::Frame(frame) if frame.kind == Kind::Link => {
                Link::decode(frame.index, frame.payload(frames)).ok()
            }
            _ => None,
        };
        // A link to another place is none.
        let link = link.filter(|link| link.first_index == first_index);
        Ok(Ok(Self { header, link }))
    }

    /// The link, or what stands in for it in a segment that has none.
    pub(crate) fn link_or_nothing(&self, first_index: u64) -> Link {
        self.link.unwrap_or(Link {
            first_index,
            ordinal: 0,
            generation: 0,
            previous_salt: 0,
            previous_end: 0,
            previous_first_index: 0,
            durable: 0,
            unix_ns: 0,
        })
    }
}

/// Reads the header alone, of a file that was not opened past the cache.
pub(crate) fn read_header(
    file: &dyn File,
    first_index: u64,
) -> Result<std::result::Result<Header, Damage>> {
    let mut bytes = [0; HEADER_BYTES];
    let held = file.read_at(&mut bytes, 0)?;
    header_of(&bytes[..held], first_index)
}

fn header_of(bytes: &[u8], first_index: u64) -> Result<std::result::Result<Header, Damage>> {
    if first_index > INDEX_END {
        return Ok(Err(Damage::Index(first_index)));
    }
    match Header::decode(bytes) {
        // Not damaged, and not ours to judge.
        Err(Damage::Version(version)) => {
            Err(Error::Version { segment: segment_name(first_index), version })
        }
        decoded => Ok(decoded),
    }
}

/// `00000000000000000001.seg`.
pub(crate) fn segment_name(first_index: u64) -> String {
    format!("{first_index:020}.seg")
}

/// The first index that a name says, if it is the name of a segment.
pub(crate) fn first_index_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    let ours = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|&first_index| ours && first_index > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_first_index_and_nothing_else_is_a_segment() {
        assert_eq!(first_index_of(&segment_name(1234)), Some(1234));
        assert_eq!(first_index_of(&segment_name(u64::MAX)), Some(u64::MAX));
        for other in ["lock", "1.seg", "0000000000000000000x.seg", "99999999999999999999.seg"] {
            assert_eq!(first_index_of(other), None, "{other}");
        }
        assert_eq!(first_index_of(&segment_name(0)), None, "records are counted from 1");
    }
}
