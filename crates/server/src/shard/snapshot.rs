//! The bytes of a [`State`]: equal states have equal bytes.
//!
//! ```text
//!  0 magic       8   "PLIMSTAT"
//!  8 version    u32  1
//! 12 feature    u32
//! 16 applied    u64  log index of the last entry that is in it
//! 24 time       u64  of that entry, in ms since 1970
//! 32 term       u64  of the last leadership
//! 40 turns      u64  leaderships and fences
//! 48 chapter    u64
//! 56 fence           as in `item.rs`, its reason 0 if there was none
//! 84 partitions u32  count, then each, in order:
//!                    topic id 16 · partition u32 · opening u32
//!                    settings · start i64 · next i64 · ceiling i64 (-1: none) · closed u32
//!                    epoch base i64 · epochs · producers · points
//! .. checksum   u64  XXH3-64 of all before it
//! ```

use std::collections::BTreeMap;

use twox_hash::XxHash3_64;

use super::item::Fence;
use super::name::Opening;
use super::partition::Partition;
use super::state::State;
use crate::cursor::{Cursor, Malformed};

const MAGIC: [u8; 8] = *b"PLIMSTAT";
const SNAPSHOT_VERSION: u32 = 1;
/// A partition has at least its opening, settings and fields.
const PARTITION_BYTES_MIN: usize = 24 + 24 + 36 + 12;

impl State {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&SNAPSHOT_VERSION.to_le_bytes());
        to.extend_from_slice(&self.feature.to_le_bytes());
        for field in [self.applied, self.time, self.term, self.turns, self.chapter] {
            to.extend_from_slice(&field.to_le_bytes());
        }
        Fence::encode_last(self.fence.as_ref(), &mut to);
        let count = u32::try_from(self.partitions.len()).expect("fewer than 4 billion partitions");
        to.extend_from_slice(&count.to_le_bytes());
        for (opening, partition) in &self.partitions {
            opening.encode(&mut to);
            partition.encode(&mut to);
        }
        let checksum = XxHash3_64::oneshot(&to);
        to.extend_from_slice(&checksum.to_le_bytes());
        to
    }

    /// The state that these bytes are.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (body, checksum) = bytes.split_last_chunk().ok_or(Malformed::Short("a state"))?;
        let mut from = Cursor::new(body, "a state");
        if from.array()? != MAGIC {
            return Err(Malformed::Field("the first byte of a state", u64::from(body[0])));
        }
        let version = from.u32()?;
        if version != SNAPSHOT_VERSION {
            return Err(Malformed::Field("the version of a state", u64::from(version)));
        }
        let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let feature = from.u32()?;
        let (applied, time) = (from.raisable("a log index")?, from.u64()?);
        let (term, turns) = (from.u64()?, from.raisable("a count of turns")?);
        let chapter = from.u64()?;
        let fence = Fence::decode_last(&mut from)?;
        let mut partitions = BTreeMap::new();
        for _ in 0..from.count(PARTITION_BYTES_MIN, "the count of partitions")? {
            let opening = Opening::decode(&mut from)?;
            if partitions.last_key_value().is_some_and(|(last, _)| *last >= opening) {
                return Err(Malformed::Field("the next opening", u64::from(opening.number)));
            }
            partitions.insert(opening, Partition::decode(&mut from)?);
        }
        from.end()?;
        Ok(Self { applied, time, term, turns, feature, chapter, fence, partitions })
    }
}
