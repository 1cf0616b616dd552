//! The bytes of a [`State`]: equal states have equal bytes.
//!
//! ```text
//!  0 magic       8   "PLIMSTAT"
//!  8 version    u32  4
//! 12 feature    u32
//! 16 applied    u64  log index of the last entry that is in it
//! 24 time       u64  of that entry, in ms since 1970
//! 32 term       u64  of the last leadership
//! 40 turns      u64  leaderships and fences
//! 48 chapter    u64  the last that has ended
//! 56 chapter end u64 the log index of the entry that ended it
//! 64 open bytes u64  of the entries with batches behind it
//! 72 open since u64  time of the first of them
//! 80 ended      u32  count of chapters that are not settled, then each:
//!                    chapter u64 · end u64 · time u64
//! .. fence           as in `item.rs`, its reason 0 if there was none
//! .. intended   u64  version of the catalog
//! .. generation u64  and 16 digest: after which loss it goes on
//! .. partitions u32  count, then each, in order:
//!                    topic id 16 · partition u32 · opening u32
//!                    settings · start i64 · next i64 · ceiling i64 (-1: none) · closed u32
//!                    epoch base i64 · epochs · producers · points
//! .. checksum   u64  XXH3-64 of all before it
//! ```
//!
//! Version 3 has nothing of generations. Version 2 has nothing of the catalog either. Version 1 has no chapters either: between chapter and fence nothing stands, and all of it is of the open one.

use twox_hash::XxHash3_64;

use super::item::{Fence, Generation};
use super::name::Opening;
use super::partition::Partition;
use super::state::{Ended, State};
use crate::cursor::{Cursor, Malformed};

const MAGIC: [u8; 8] = *b"PLIMSTAT";
const SNAPSHOT_VERSION: u32 = 4;
const WITHOUT_GENERATION: u32 = 3;
const WITHOUT_INTENDED: u32 = 2;
const WITHOUT_CHAPTERS: u32 = 1;
const ENDED_BYTES: usize = 24;
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
        for field in [self.chapter_end, self.open_bytes, self.open_since] {
            to.extend_from_slice(&field.to_le_bytes());
        }
        let ended = u32::try_from(self.ended.len()).expect("few wait to be settled");
        to.extend_from_slice(&ended.to_le_bytes());
        for field in self.ended.iter().flat_map(|ended| [ended.chapter, ended.end, ended.time]) {
            to.extend_from_slice(&field.to_le_bytes());
        }
        Fence::encode_last(self.fence.as_ref(), &mut to);
        to.extend_from_slice(&self.intended.to_le_bytes());
        self.generation.encode(&mut to);
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
        if !(WITHOUT_CHAPTERS..=SNAPSHOT_VERSION).contains(&version) {
            return Err(Malformed::Field("the version of a state", u64::from(version)));
        }
        let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let mut state = Self {
            feature: from.u32()?,
            applied: from.raisable("a log index")?,
            time: from.u64()?,
            term: from.u64()?,
            turns: from.raisable("a count of turns")?,
            chapter: from.u64()?,
            ..Self::default()
        };
        if version > WITHOUT_CHAPTERS {
            state.decode_chapters(&mut from)?;
        }
        state.fence = Fence::decode_last(&mut from)?;
        if version > WITHOUT_INTENDED {
            state.intended = from.u64()?;
        }
        if version > WITHOUT_GENERATION {
            state.generation = Generation::decode(&mut from)?;
        }
        for _ in 0..from.count(PARTITION_BYTES_MIN, "the count of partitions")? {
            let opening = Opening::decode(&mut from)?;
            if state.partitions.last_key_value().is_some_and(|(last, _)| *last >= opening) {
                return Err(Malformed::Field("the next opening", u64::from(opening.number)));
            }
            let partition = Partition::decode(&mut from, state.chapter_end)?;
            state.partitions.insert(opening, partition);
        }
        from.end()?;
        if version == WITHOUT_CHAPTERS {
            let points = || state.partitions.values().filter_map(Partition::oldest);
            state.open_since = points().map(|point| point.time).min().unwrap_or(0);
            state.open_bytes = state.partitions.values().map(Partition::bytes).sum();
        }
        Ok(state)
    }

    fn decode_chapters(&mut self, from: &mut Cursor<'_>) -> Result<(), Malformed> {
        self.chapter_end = from.raisable("the end of a chapter")?;
        self.open_bytes = from.raisable("the size of a chapter")?;
        self.open_since = from.u64()?;
        for _ in 0..from.count(ENDED_BYTES, "the count of chapters")? {
            let (chapter, end, time) = (from.u64()?, from.u64()?, from.u64()?);
            let last = self.ended.back().map_or((0, 0), |last| (last.chapter, last.end));
            let follows = chapter > last.0 && end > last.1;
            if !follows || chapter > self.chapter || end > self.chapter_end {
                return Err(Malformed::Field("a chapter", chapter));
            }
            self.ended.push_back(Ended { chapter, end, time });
        }
        if self.chapter_end > self.applied {
            return Err(Malformed::Field("the end of a chapter", self.chapter_end));
        }
        Ok(())
    }
}
