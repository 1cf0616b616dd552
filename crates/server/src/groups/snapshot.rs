//! The bytes of a [`Store`]: equal stores have equal bytes.
//!
//! ```text
//!  0 magic     8    "PLIMGRPS"
//!  8 version  u32   1
//! 12 groups   u32   count, then each, by name:
//!                   name text · roster, see `roster.rs`
//!                   topics u32, then each, by name: topic text
//!                   partitions u32, not 0, then each, in order:
//!                   partition i32 · offset, see `offset.rs`
//! .. checksum u64   XXH3-64 of all before it
//! ```

use std::collections::BTreeMap;

use twox_hash::XxHash3_64;

use super::fields::{put_count, put_text};
use super::offset::{COMMITTED_BYTES_MIN, Committed};
use super::roster::Roster;
use super::store::{Store, Stored};
use crate::cursor::{Cursor, Malformed};

const MAGIC: [u8; 8] = *b"PLIMGRPS";
const VERSION: u32 = 1;
/// A name, a generation's fields, two counts.
const GROUP_BYTES_MIN: usize = 4 + 16 + 12 + 4 + 4;
/// A name, a count, a partition.
const TOPIC_BYTES_MIN: usize = 4 + 4 + 4 + COMMITTED_BYTES_MIN;

impl Store {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&VERSION.to_le_bytes());
        put_count(&mut to, self.groups.len());
        for (id, stored) in &self.groups {
            put_text(&mut to, id);
            stored.encode(&mut to);
        }
        let checksum = XxHash3_64::oneshot(&to);
        to.extend_from_slice(&checksum.to_le_bytes());
        to
    }

    /// The store that these bytes are.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (body, checksum) = bytes.split_last_chunk().ok_or(Malformed::Short("the groups"))?;
        let mut from = Cursor::new(body, "the groups");
        if from.array()? != MAGIC {
            return Err(Malformed::Field("the first byte of the groups", u64::from(body[0])));
        }
        let version = from.u32()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of the groups", u64::from(version)));
        }
        let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let mut groups = BTreeMap::new();
        for number in 0..from.count(GROUP_BYTES_MIN, "the count of groups")? {
            let id = from.name()?;
            if groups.last_key_value().is_some_and(|(last, _)| *last >= id) {
                return Err(Malformed::Field("the place of a group", number as u64));
            }
            groups.insert(id, Stored::decode(&mut from)?);
        }
        from.end()?;
        Ok(Self { groups })
    }
}

impl Stored {
    fn encode(&self, to: &mut Vec<u8>) {
        self.roster.encode(to);
        put_count(to, self.offsets.len());
        for (topic, partitions) in &self.offsets {
            put_text(to, topic);
            put_count(to, partitions.len());
            for (partition, committed) in partitions {
                to.extend_from_slice(&partition.to_le_bytes());
                committed.encode(to);
            }
        }
    }

    fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let roster = Roster::decode(from)?;
        let mut offsets = BTreeMap::new();
        for number in 0..from.count(TOPIC_BYTES_MIN, "the count of topics")? {
            let topic = from.name()?;
            if offsets.last_key_value().is_some_and(|(last, _)| *last >= topic) {
                return Err(Malformed::Field("the place of a topic", number as u64));
            }
            offsets.insert(topic, decode_partitions(from)?);
        }
        Ok(Self { roster, offsets })
    }
}

fn decode_partitions(from: &mut Cursor<'_>) -> Result<BTreeMap<i32, Committed>, Malformed> {
    let count = from.count(4 + COMMITTED_BYTES_MIN, "the count of partitions")?;
    if count == 0 {
        return Err(Malformed::Field("the count of partitions", 0));
    }
    let mut partitions = BTreeMap::new();
    for _ in 0..count {
        let partition = from.i32()?;
        if partitions.last_key_value().is_some_and(|(last, _)| *last >= partition) {
            let found = u64::from(partition.cast_unsigned());
            return Err(Malformed::Field("the next partition", found));
        }
        partitions.insert(partition, Committed::decode(from)?);
    }
    Ok(partitions)
}
