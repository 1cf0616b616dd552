//! The topics that a consumer's metadata names.
//!
//! The metadata is for the member that assigns and opaque to a coordinator, but for this: all
//! versions of a consumer's subscription begin with `version i16 · topics i32, each: i16 length ·
//! name`, in network order.
#![expect(clippy::big_endian_bytes, reason = "the wire's metadata is in network order")]

use std::collections::BTreeSet;

/// The topics of a consumer's subscription; none if it is not one.
pub(super) fn topics(metadata: &[u8]) -> Option<BTreeSet<&str>> {
    let (_version, rest) = metadata.split_first_chunk::<2>()?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let mut topics = BTreeSet::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (length, names) = rest.split_first_chunk()?;
        let (name, after) = names.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        topics.insert(std::str::from_utf8(name).ok()?);
        rest = after;
    }
    Some(topics)
}
