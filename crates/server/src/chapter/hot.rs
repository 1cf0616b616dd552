//! [`Hot`]: where the chapters of a shard were read last, so that a start reads on from there before somebody asks.
//!
//! ```text
//!  0 magic       8   "PLIMSHOT"
//!  8 version    u32  1
//! 12 shard      u32
//! 16 places     u32  count, then each, the newest first:
//!                    topic id 16 · partition u32 · opening u32 · offset i64
//! .. checksum   u64  XXH3-64 of all before it
//! ```
//!
//! Little-endian. It is written where a node is stopped, and promises nothing: a start does without it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use twox_hash::XxHash3_64;

use crate::cursor::{Cursor, Malformed};
use crate::shard::Opening;

const MAGIC: [u8; 8] = *b"PLIMSHOT";
const VERSION: u32 = 1;
/// Its name in the directory of the chapters.
pub(super) const NAME: &str = "hot";
const PLACE_BYTES: usize = 32;
/// Places that are known at once.
const PLACES_MAX: usize = 1024;
/// The file has no more bytes.
pub(super) const BYTES_MAX: usize = 64 + PLACES_MAX * PLACE_BYTES;

/// Of each partition that was read lately the offset behind what was.
#[derive(Debug, Default)]
pub(super) struct Hot(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    /// Each with its number among all reads.
    of: HashMap<Opening, (u64, i64)>,
    reads: u64,
}

impl Hot {
    /// A partition was read up to this offset. Where there are too many, the one goes that was read longest ago.
    pub(super) fn note(&self, opening: Opening, next: i64) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.reads += 1;
        let read = places.reads;
        places.of.insert(opening, (read, next));
        if places.of.len() > PLACES_MAX {
            let oldest = places.of.iter().min_by_key(|(_, (read, _))| *read);
            let oldest = oldest.map(|(opening, _)| *opening);
            oldest.map(|opening| places.of.remove(&opening));
        }
    }

    /// Places, the one that was read last first.
    pub(super) fn places(&self) -> Vec<(Opening, i64)> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = places.of.iter().collect();
        all.sort_unstable_by_key(|(_, (read, _))| Reverse(*read));
        all.into_iter().map(|(opening, (_, next))| (*opening, *next)).collect()
    }
}

pub(super) fn encode(places: &[(Opening, i64)], shard: u32) -> Vec<u8> {
    let mut to = MAGIC.to_vec();
    let count = u32::try_from(places.len()).expect("no more than are known at once");
    for field in [VERSION, shard, count] {
        to.extend_from_slice(&field.to_le_bytes());
    }
    for (opening, next) in places {
        opening.encode(&mut to);
        to.extend_from_slice(&next.to_le_bytes());
    }
    let checksum = XxHash3_64::oneshot(&to);
    to.extend_from_slice(&checksum.to_le_bytes());
    to
}

pub(super) fn decode(bytes: &[u8], shard: u32) -> Result<Vec<(Opening, i64)>, Malformed> {
    let (body, checksum) = bytes.split_last_chunk().ok_or(Malformed::Short("places"))?;
    let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
    if expected != found {
        return Err(Malformed::Checksum { expected, found });
    }
    let mut from = Cursor::new(body, "places");
    if from.array()? != MAGIC || from.u32()? != VERSION || from.u32()? != shard {
        return Err(Malformed::Field("the head of places", 0));
    }
    let count = from.count(PLACE_BYTES, "the count of places")?;
    let places = (0..count).map(|_| Ok((Opening::decode(&mut from)?, from.i64()?)));
    let places = places.collect::<Result<_, _>>()?;
    from.end()?;
    Ok(places)
}
