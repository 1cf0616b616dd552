//! [`Mark`]: how far the last run got, and how it ended; the file `run` in the data directory.
//!
//! Two slots of 4 KiB, written by turns, each all at once:
//!
//! ```text
//!  byte offset  bytes
//!            0      8  "PLIMSRUN"
//!            8      4  version: 1
//!           12      4  state: 1 running, 2 quiesced, 3 clean, 4 doubtful
//!           16      8  sequence: one more at each write; odd ones are in the second slot
//!           24      8  incarnation
//!           32     16  id of the data directory
//!           48     16  boot id, zero if the system has none
//!           64      8  when, in ms since 1970
//!           72      4  count of shards, at most 256
//!           76     12  each, ascending: shard u32 · last durable log index u64
//!            …         zeros
//!         4088      8  XXH3-64 of the 4088 bytes before
//! ```
//!
//! Little-endian. **A slot that cannot be read is no evidence, and neither is the other**: it may
//! be the older one, quiesced, beside a newer one that said *running*. The same holds for slots
//! whose sequences do not follow each other. So what is found then is *doubtful*, and its
//! incarnation one more, as the newer one's may have been.
//!
//! The file gets its name once it is whole ([`crate::whole`]). It is under the lock of the data directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::{Error, Result};
use crate::cursor::{Cursor, Malformed};
use crate::whole;

/// The file.
const RUN: &str = "run";

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 4096;

/// The most shards that a broker may have.
pub const SHARDS_MAX: usize = 256;

const CHECKED_BYTES: usize = SLOT_BYTES - 8;
const HEAD_BYTES: usize = 76;
const SHARD_BYTES: usize = 12;
const MAGIC: [u8; 8] = *b"PLIMSRUN";
const VERSION: u32 = 1;

const _: () = assert!(HEAD_BYTES + SHARDS_MAX * SHARD_BYTES <= CHECKED_BYTES);

/// A log index for each shard.
pub type Ends = BTreeMap<u32, u64>;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Which data directory it is; drawn once.
    pub data: u128,
    /// How often the broker was started; never used twice.
    pub incarnation: u64,
    /// The system that the run was on.
    pub boot: Option<u128>,
    /// What it was doing.
    pub state: State,
    /// When all that was acknowledged was known to be there, in ms since 1970.
    pub when_ms: u64,
    /// The last index of each log that was durable then.
    pub ends: Ends,
}

/// What a run was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It acknowledged, or was about to.
    Running = 1,
    /// Nothing beyond its ends was acknowledged.
    Quiesced = 2,
    /// The same, and it had ended.
    Clean = 3,
    /// Something acknowledged before it may be gone, and no fence said so yet.
    Doubtful = 4,
}

impl Mark {
    /// What a directory says that a node may have open, if it does: the newest slot that is whole. Changes nothing.
    pub(crate) fn look(dir: &dyn Dir) -> Option<Self> {
        let file = dir.open(RUN, SyncMethod::ORDINARY.access()).ok()?;
        // One of them may be half written.
        let slots = [0, 1].map(|slot| read(&*file, slot).ok()?.ok());
        let newest = slots.into_iter().flatten().max_by_key(|(sequence, _)| *sequence);
        newest.map(|(_, mark)| mark)
    }

    /// The slot with this sequence.
    ///
    /// # Panics
    /// If there are more than [`SHARDS_MAX`] ends.
    #[must_use]
    pub fn encode(&self, sequence: u64) -> [u8; SLOT_BYTES] {
        let Self { data, incarnation, boot, state, when_ms, ends } = self;
        assert!(ends.len() <= SHARDS_MAX, "{} shards are too many for a mark", ends.len());
        let count = u32::try_from(ends.len()).expect("it was just compared");
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(*state as u32).to_le_bytes());
        bytes.extend_from_slice(&sequence.to_le_bytes());
        bytes.extend_from_slice(&incarnation.to_le_bytes());
        bytes.extend_from_slice(&data.to_le_bytes());
        bytes.extend_from_slice(&boot.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&when_ms.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        for (shard, end) in ends {
            bytes.extend_from_slice(&shard.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        bytes.resize(CHECKED_BYTES, 0);
        bytes.extend_from_slice(&XxHash3_64::oneshot(&bytes).to_le_bytes());
        bytes.try_into().expect("it has as many bytes as a slot")
    }

    /// The sequence and the mark of a slot.
    pub fn decode(slot: &[u8; SLOT_BYTES]) -> std::result::Result<(u64, Self), Malformed> {
        let (body, checksum) = slot.split_last_chunk().expect("a slot has more than 8 bytes");
        let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let mut from = Cursor::new(body, "a mark");
        if from.array()? != MAGIC {
            return Err(Malformed::Field("the first byte of a mark", u64::from(body[0])));
        }
        let version = from.u32()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of a mark", u64::from(version)));
        }
        let state = State::decode(from.u32()?)?;
        let sequence = from.raisable("a sequence")?;
        let incarnation = from.raisable("an incarnation")?;
        let data = u128::from_le_bytes(from.array()?);
        let boot = Some(u128::from_le_bytes(from.array()?)).filter(|boot| *boot != 0);
        let when_ms = from.u64()?;
        let count = from.count(SHARD_BYTES, "the count of shards")?;
        if count > SHARDS_MAX {
            return Err(Malformed::Field("the count of shards", count as u64));
        }
        let mut ends = Ends::new();
        for _ in 0..count {
            let (shard, end) = (from.u32()?, from.u64()?);
            if ends.last_key_value().is_some_and(|(last, _)| *last >= shard) {
                return Err(Malformed::Field("the next shard", u64::from(shard)));
            }
            ends.insert(shard, end);
        }
        from.zeros(from.rest().len(), "a byte behind the shards")?;
        Ok((sequence, Self { data, incarnation, boot, state, when_ms, ends }))
    }
}

impl State {
    fn decode(state: u32) -> std::result::Result<Self, Malformed> {
        match state {
            1 => Ok(Self::Running),
            2 => Ok(Self::Quiesced),
            3 => Ok(Self::Clean),
            4 => Ok(Self::Doubtful),
            other => Err(Malformed::Field("the state of a run", u64::from(other))),
        }
    }
}

/// The file, open.
#[derive(Debug)]
pub(super) struct MarkFile {
    file: Arc<dyn File>,
    /// Of the newest slot.
    sequence: u64,
}

impl MarkFile {
    /// The file and what it says, if it is there.
    pub(super) fn open(dir: &dyn Dir) -> Result<Option<(Self, Mark)>> {
        let Some(file) = whole::open(dir, RUN)? else { return Ok(None) };
        let (sequence, mark) = newest(read(&*file, 0)?, read(&*file, 1)?)?;
        Ok(Some((Self { file, sequence }, mark)))
    }

    /// What it is evidence of, if it is there; of a damaged one the incarnation that may have been the last. Changes nothing.
    pub(super) fn look(dir: &dyn Dir) -> Option<Mark> {
        let file = dir.open(RUN, SyncMethod::ORDINARY.access()).ok()?;
        let found = newest(read(&*file, 0).ok()?, read(&*file, 1).ok()?);
        found.ok().map(|(_, mark)| mark)
    }

    /// Makes the file. It is durable on return, with its name.
    pub(super) fn create(dir: &dyn Dir, mark: &Mark) -> Result<Self> {
        let slots = [mark.encode(0), mark.encode(1)].concat();
        let fill = |file: &dyn File| file.write_sync_at(&slots, 0, SyncMethod::ORDINARY).map(drop);
        let file = whole::create(dir, RUN, fill)?;
        Ok(Self { file, sequence: 1 })
    }

    /// Writes the mark in place of the older one. Durable on return; if it fails the file takes
    /// nothing more, and which of the two marks is found later is open.
    pub(super) fn write(&mut self, mark: &Mark) -> Result<()> {
        let sequence = self.sequence + 1;
        let slot = mark.encode(sequence);
        self.file.write_sync_at(&slot, place(sequence % 2), SyncMethod::ORDINARY)?;
        self.sequence = sequence;
        Ok(())
    }
}

type Slot = std::result::Result<(u64, Mark), Malformed>;

const fn place(slot: u64) -> u64 {
    slot * SLOT_BYTES as u64
}

fn read(file: &dyn File, slot: u64) -> Result<Slot> {
    let mut bytes = [0; SLOT_BYTES];
    // What a file that is too short lacks stays zero, and has no checksum.
    file.read_at(&mut bytes, place(slot))?;
    Ok(Mark::decode(&bytes).and_then(|(sequence, mark)| {
        let is_here = sequence % 2 == slot;
        if is_here { Ok((sequence, mark)) } else { Err(Malformed::Field("a sequence", sequence)) }
    }))
}

/// What two slots are evidence of.
fn newest(even: Slot, odd: Slot) -> Result<(u64, Mark)> {
    let (is_whole, (sequence, mark)) = match (even, odd) {
        (Ok(even), Ok(odd)) => {
            let is_whole = even.0.abs_diff(odd.0) == 1;
            (is_whole, if even.0 > odd.0 { even } else { odd })
        }
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => (false, one),
        (Err(error), Err(_)) => return Err(Error::Unreadable(error)),
    };
    if is_whole {
        return Ok((sequence, mark));
    }
    Ok((sequence, Mark { incarnation: mark.incarnation + 1, state: State::Doubtful, ..mark }))
}
