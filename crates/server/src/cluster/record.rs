//! What a record of the log holds: one entry of the engine.
//!
//! ```text
//!  byte offset  bytes
//!            0      1  version: 1
//!            1      1  kind: 1 blank, 2 normal, 3 membership
//!            2      6  zeros
//!            8      8  term of the leader that made it
//!           16      8  its index, as the engine counts
//!           24      …  normal: the payload; membership: see `membership`; blank: nothing
//! ```
//!
//! Little-endian. The log's frame around it has the length and the checksum, so a record that does
//! not decode was written by another version, or by a bug. The index stands in it to be checked: an
//! entry that is read at another place than it was written to would be a forked log.
//!
//! **One relation of indexes.** The engine counts from 0, the log from 1, so the log's index is one
//! more, always: also in a log that begins at N. Nothing stores an offset that could be wrong.

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::entry::RaftEntry;

use super::membership;
use super::types::{Entry, Payload, log_id};

/// Bytes before the payload.
pub(crate) const HEAD_BYTES: usize = 24;

const VERSION: u8 = 1;
const BLANK: u8 = 1;
const NORMAL: u8 = 2;
const MEMBERSHIP: u8 = 3;

/// Why a record is no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnEntry {
    /// It has fewer bytes than its kind needs, or more.
    #[error("its length is wrong")]
    Length,
    /// Another version of Plimsoll wrote it.
    #[error("its format has version {0}")]
    Version(u8),
    /// Nothing has this kind.
    #[error("its kind is {0}")]
    Kind(u8),
    /// What is reserved is not zero.
    #[error("its reserved bytes are not zero")]
    Reserved,
    /// It was written for another place.
    #[error("it says that its index is {0}")]
    Index(u64),
    /// Its members are none.
    #[error("its membership cannot be")]
    Membership,
}

/// The log's index of what the engine calls `index`.
pub(crate) const fn to_log(index: u64) -> u64 {
    index + 1
}

/// The engine's index of what the log calls `index`; none before its first record.
pub(crate) const fn from_log(index: u64) -> Option<u64> {
    index.checked_sub(1)
}

/// Puts the record into `record`, in place of what was there.
pub(crate) fn encode(entry: &Entry, record: &mut Vec<u8>) {
    record.clear();
    encode_more(entry, record);
}

/// Puts the record behind what is there.
pub(crate) fn encode_more(entry: &Entry, record: &mut Vec<u8>) {
    encode_head(entry, record);
    match &entry.payload {
        EntryPayload::Blank => {}
        EntryPayload::Normal(Payload(payload)) => record.extend_from_slice(payload),
        EntryPayload::Membership(members) => membership::encode(members, record),
    }
}

/// The same without a payload or members.
pub(crate) fn encode_head(entry: &Entry, record: &mut Vec<u8>) {
    let kind = match &entry.payload {
        EntryPayload::Blank => BLANK,
        EntryPayload::Normal(_) => NORMAL,
        EntryPayload::Membership(_) => MEMBERSHIP,
    };
    record.extend_from_slice(&[VERSION, kind, 0, 0, 0, 0, 0, 0]);
    record.extend_from_slice(&entry.log_id.leader_id.term.to_le_bytes());
    record.extend_from_slice(&entry.log_id.index.to_le_bytes());
}

/// The entry that a record holds which was read as the engine's `index`.
pub(crate) fn decode(index: u64, record: &[u8]) -> Result<Entry, NotAnEntry> {
    decode_as(index, record, Bytes::copy_from_slice)
}

/// The same of a record that lies within a message, which its payload shares.
pub(crate) fn decode_within(
    index: u64,
    record: &[u8],
    message: &Bytes,
) -> Result<Entry, NotAnEntry> {
    decode_as(index, record, |payload| message.slice_ref(payload))
}

fn decode_as(
    index: u64,
    record: &[u8],
    own: impl FnOnce(&[u8]) -> Bytes,
) -> Result<Entry, NotAnEntry> {
    let (head, body) = record.split_first_chunk::<HEAD_BYTES>().ok_or(NotAnEntry::Length)?;
    let word = |at: usize| {
        let bytes = head[at..].first_chunk().expect("the head has 24 bytes");
        u64::from_le_bytes(*bytes)
    };
    if head[0] != VERSION {
        return Err(NotAnEntry::Version(head[0]));
    }
    if head[2..8] != [0; 6] {
        return Err(NotAnEntry::Reserved);
    }
    let (term, found) = (word(8), word(16));
    if found != index {
        return Err(NotAnEntry::Index(found));
    }
    let payload = match head[1] {
        BLANK if body.is_empty() => EntryPayload::Blank,
        BLANK => return Err(NotAnEntry::Length),
        NORMAL => EntryPayload::Normal(Payload(own(body))),
        MEMBERSHIP => {
            EntryPayload::Membership(membership::decode(body).ok_or(NotAnEntry::Membership)?)
        }
        kind => return Err(NotAnEntry::Kind(kind)),
    };
    Ok(Entry::new(log_id(term, index), payload))
}

/// What a record carries that was read as the log's `index`, if it carries something of ours: for whoever reads a
/// log that no engine has open here.
pub(crate) fn payload(index: u64, record: &[u8]) -> Result<Option<Bytes>, NotAnEntry> {
    let index = from_log(index).ok_or(NotAnEntry::Index(index))?;
    Ok(match decode(index, record)?.payload {
        EntryPayload::Normal(Payload(payload)) => Some(payload),
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    })
}

/// For fuzzing: what is written of the entry that a record holds.
#[cfg(fuzzing)]
#[must_use]
pub fn record_again(record: &[u8]) -> Option<Vec<u8>> {
    let index = u64::from_le_bytes(*record.get(16..)?.first_chunk()?);
    let entry = decode(index, record).ok()?;
    let mut again = Vec::new();
    encode(&entry, &mut again);
    Some(again)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use openraft::BasicNode;
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::types::Members;

    /// Each record with its length before it, as it has been written since version 1.
    const GOLDEN: &[u8] = include_bytes!("testdata/records-v1");

    fn samples() -> Vec<Entry> {
        let node = |id: u64| (id, BasicNode::new(format!("broker-{id}:9093")));
        let joint = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3, 4])];
        let nodes: BTreeMap<_, _> = [1, 2, 3, 4, 9].map(node).into();
        let members = Members::new(joint, nodes).unwrap();
        let payload = Payload(Bytes::from_static(b"only the shard reads this"));
        vec![
            Entry::new(log_id(0, 0), EntryPayload::Membership(members)),
            Entry::new(log_id(1, 1), EntryPayload::Blank),
            Entry::new(log_id(1, 2), EntryPayload::Normal(payload)),
            Entry::new(log_id(u64::MAX, u64::MAX - 1), EntryPayload::Normal(Payload(Bytes::new()))),
        ]
    }

    fn encoded(entry: &Entry) -> Vec<u8> {
        let mut record = Vec::new();
        encode(entry, &mut record);
        record
    }

    fn golden() -> Vec<u8> {
        let mut file = Vec::new();
        for entry in samples() {
            let record = encoded(&entry);
            file.extend_from_slice(&u32::try_from(record.len()).unwrap().to_le_bytes());
            file.extend_from_slice(&record);
        }
        file
    }

    #[test]
    fn records_are_written_as_version_1_has_them() {
        assert!(golden() == GOLDEN, "{:02x?}", golden());
    }

    #[test]
    fn every_kind_of_entry_comes_back_as_it_was() {
        for entry in samples() {
            assert_eq!(decode(entry.log_id.index, &encoded(&entry)), Ok(entry));
        }
    }

    #[test]
    fn an_entry_read_at_another_place_is_none() {
        let blank = &samples()[1];
        assert_eq!(decode(2, &encoded(blank)), Err(NotAnEntry::Index(1)));
    }

    #[test]
    fn what_another_version_wrote_is_named() {
        let mut record = encoded(&samples()[1]);
        record[0] = 2;
        assert_eq!(decode(1, &record), Err(NotAnEntry::Version(2)));
        record[0] = VERSION;
        record[1] = 4;
        assert_eq!(decode(1, &record), Err(NotAnEntry::Kind(4)));
        record[1] = BLANK;
        record.push(0);
        assert_eq!(decode(1, &record), Err(NotAnEntry::Length));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(record in prop::collection::vec(any::<u8>(), 0..80)) {
            let index = 0;
            if let Ok(entry) = decode(index, &record) {
                prop_assert_eq!(encoded(&entry), record);
            }
        }

        #[test]
        fn no_members_make_it_panic(body in prop::collection::vec(0_u8..4, 0..80)) {
            let mut record = encoded(&samples()[0]);
            record.truncate(HEAD_BYTES);
            record.extend_from_slice(&body);
            if let Ok(entry) = decode(0, &record) {
                prop_assert_eq!(encoded(&entry), record);
            }
        }
    }
}
