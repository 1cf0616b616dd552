//! [`RollUp`]: of each partition the chapters that it is in, so that a start reads no tables.
//!
//! ```text
//!  0 magic       8   "PLIMROLL"
//!  8 version    u32  1
//! 12 shard      u32
//! 16 manifest   u64  the checksum of the manifest that it is of, with 0 for its next file
//! 24 files      u32  count, then each: number u64 · bytes of its runs that live u64
//! .. partitions u32  count, then each, sorted:
//!                    topic id 16 · partition u32 · opening u32
//!                    bytes u64 · of those compacted u64 · end offset i64
//!                    of the oldest run: end offset i64 · last time u64 · bytes u64
//!                    chapters: count u32, each: first u32 · last u32
//! .. checksum   u64  XXH3-64 of all before it
//! ```
//!
//! Little-endian. It says nothing that manifest and tables do not: one that is missing, damaged, or of another manifest is
//! made again from those.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::books::{Oldest, Shelved};
use super::error::Error;
use super::ranges::Ranges;
use crate::cursor::{Cursor, Malformed};
use crate::shard::Opening;
use crate::whole;

const MAGIC: [u8; 8] = *b"PLIMROLL";
const VERSION: u32 = 1;
/// Its name in the directory of the chapters.
const NAME: &str = "roll-up";
const FILE_BYTES: usize = 16;
const PARTITION_BYTES: usize = 76;
/// No roll-up is larger: ten million partitions.
const BYTES_MAX: u64 = 1 << 30;

/// What a start has to know of runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RollUp {
    /// Of each file by its number the bytes that live.
    pub(super) live_bytes: BTreeMap<u64, u64>,
    pub(super) partitions: BTreeMap<Opening, Shelved>,
}

impl RollUp {
    /// That of the manifest with this checksum, if there is one and it is good. Changes nothing.
    pub(super) fn read(dir: &dyn Dir, shard: u32, manifest: u64) -> Result<Option<Self>, Error> {
        let file = match dir.open(NAME, SyncMethod::ORDINARY.access()) {
            Ok(file) => file,
            Err(error) if error.kind() == Some(ErrorKind::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let length = file.len()?;
        if length > BYTES_MAX {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = file.read_at(&mut bytes, 0)?;
        Ok(Self::decode(&bytes[..read], shard, manifest).ok())
    }

    /// Makes these bytes the roll-up of a shard. Durable on return.
    pub(super) fn write(bytes: &[u8], dir: &dyn Dir) -> Result<(), Error> {
        let fill = |file: &dyn File| file.write_sync_at(bytes, 0, SyncMethod::ORDINARY).map(drop);
        Ok(whole::create(dir, NAME, fill).map(drop)?)
    }

    /// Its bytes.
    pub(super) fn encode(
        live_bytes: impl ExactSizeIterator<Item = (u64, u64)>,
        partitions: &BTreeMap<Opening, Shelved>,
        shard: u32,
        manifest: u64,
    ) -> Vec<u8> {
        let mut to = Vec::with_capacity(64 + partitions.len() * (PARTITION_BYTES + 8));
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&VERSION.to_le_bytes());
        to.extend_from_slice(&shard.to_le_bytes());
        to.extend_from_slice(&manifest.to_le_bytes());
        let count =
            |count: usize| u32::try_from(count).expect("fewer than 4 billion").to_le_bytes();
        to.extend_from_slice(&count(live_bytes.len()));
        for (number, bytes) in live_bytes {
            to.extend_from_slice(&number.to_le_bytes());
            to.extend_from_slice(&bytes.to_le_bytes());
        }
        to.extend_from_slice(&count(partitions.len()));
        for (opening, of) in partitions {
            opening.encode(&mut to);
            to.extend_from_slice(&of.bytes.to_le_bytes());
            to.extend_from_slice(&of.clean_bytes.to_le_bytes());
            to.extend_from_slice(&of.end.to_le_bytes());
            to.extend_from_slice(&of.oldest.end.to_le_bytes());
            to.extend_from_slice(&of.oldest.last_time.to_le_bytes());
            to.extend_from_slice(&of.oldest.bytes.to_le_bytes());
            of.chapters.encode(&mut to);
        }
        let checksum = XxHash3_64::oneshot(&to);
        to.extend_from_slice(&checksum.to_le_bytes());
        to
    }

    fn decode(bytes: &[u8], shard: u32, manifest: u64) -> Result<Self, Malformed> {
        let (body, checksum) = bytes.split_last_chunk().ok_or(Malformed::Short("a roll-up"))?;
        let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let mut from = Cursor::new(body, "a roll-up");
        let is_ours = from.array()? == MAGIC
            && from.u32()? == VERSION
            && from.u32()? == shard
            && from.u64()? == manifest;
        if !is_ours {
            return Err(Malformed::Field("the head of a roll-up", 0));
        }
        let mut live_bytes = BTreeMap::new();
        for _ in 0..from.count(FILE_BYTES, "the count of files")? {
            live_bytes.insert(from.u64()?, from.u64()?);
        }
        let count = from.count(PARTITION_BYTES, "the count of partitions")?;
        let partitions = (0..count).map(|_| {
            let opening = Opening::decode(&mut from)?;
            let (bytes, clean_bytes, end) = (from.u64()?, from.u64()?, from.i64()?);
            let oldest = Oldest { end: from.i64()?, last_time: from.u64()?, bytes: from.u64()? };
            let chapters = Ranges::decode(&mut from)?;
            Ok((opening, Shelved { chapters, bytes, clean_bytes, end, oldest }))
        });
        let partitions = partitions.collect::<Result<_, _>>()?;
        from.end()?;
        Ok(Self { live_bytes, partitions })
    }
}
