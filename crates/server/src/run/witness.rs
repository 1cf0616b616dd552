//! [`Witness`]: what was acknowledged, in memory that outlives the process and not the system.
//!
//! A file `witness-N` for incarnation N, in a directory on tmpfs(5), and `begun-N` with what that start drew, u64, and the XXH3-64 of
//! these 8 bytes, once the directory knows of it durably (empty where it has no room to know):
//!
//! ```text
//!  byte offset  bytes
//!            0      8  "PLIMWITN"
//!            8      4  version: 1
//!           12      4  zeros
//!           16      8  incarnation
//!           24     16  boot id
//!           40     16  id of the data directory
//!           56      8  XXH3-64 of the 56 bytes before: the seed of those below
//!           64     32  256 times, a shard each, zeros once there are no more:
//!                         shard u32 · 1 u32 · last acknowledged log index u64
//!                         XXH3-64 of these 16 bytes · zeros 8
//! ```
//!
//! Little-endian. An acknowledgement writes its shard's place: one write(2), never synced. **A torn
//! place is detected, as is a changed one**, by its checksum; and no place crosses a page, so that
//! a process which is killed leaves it as it was or as it is to be. A witness with one bad place is
//! none.
//!
//! Whoever may write in that directory is believed.

use std::sync::Arc;

use plimsoll_sync::{Dir, File, Overwrite, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::{Error, Result};
use super::mark::{Ends, SHARDS_MAX};
use crate::cursor::{Cursor, Malformed};

const PREFIX: &str = "witness-";
/// Says that the directory knew of a run: a start that dies before leaves a witness only.
const BEGUN: &str = "begun-";
const MAGIC: [u8; 8] = *b"PLIMWITN";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 64;
const PLACE_BYTES: usize = 32;
const WITNESS_BYTES: usize = HEAD_BYTES + SHARDS_MAX * PLACE_BYTES;

/// What a run acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// Whose run it was.
    pub data: u128,
    /// Which run it was.
    pub incarnation: u64,
    /// The system that it was on.
    pub boot: u128,
    /// The last index of each log that was acknowledged, or that it began with.
    pub acknowledged: Ends,
}

/// The directory for witnesses, if it is memory: one on a disk could not tell whether that disk
/// forgot.
pub(super) fn memory(dir: Option<&dyn Dir>) -> Option<&dyn Dir> {
    dir.filter(|dir| dir.overwrite() == Overwrite::Memory)
}

/// The runs of a directory that came to be, as memory has it: what they drew, of which it knows that.
pub(super) fn begun(dir: &dyn Dir, data: u128) -> Vec<(u64, Option<u64>)> {
    let names = dir.list().unwrap_or_default();
    let numbers = names.iter().filter_map(|name| name.strip_prefix(BEGUN)?.parse().ok());
    let is_its = |number: &u64| Witness::read(dir, *number).is_some_and(|said| said.data == data);
    numbers.filter(is_its).map(|number| (number, drawn(dir, number))).collect()
}

fn drawn(dir: &dyn Dir, incarnation: u64) -> Option<u64> {
    let file = dir.open(&begun_name(incarnation), SyncMethod::None.access()).ok()?;
    let mut bytes = [0; 16];
    let length = file.read_at(&mut bytes, 0).ok()?;
    let (drawn, checksum) = bytes.split_first_chunk::<8>()?;
    let is_whole = length == bytes.len() && XxHash3_64::oneshot(drawn).to_le_bytes() == *checksum;
    is_whole.then(|| u64::from_le_bytes(*drawn))
}

impl Witness {
    /// What the run `incarnation` left; none if that is nothing, or nothing that can be read.
    pub(super) fn read(dir: &dyn Dir, incarnation: u64) -> Option<Self> {
        let file = dir.open(&name(incarnation), SyncMethod::None.access()).ok()?;
        let mut bytes = vec![0; WITNESS_BYTES + 1];
        let length = file.read_at(&mut bytes, 0).ok()?;
        Self::decode(&bytes[..length]).ok()
    }

    /// The bytes of its file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(WITNESS_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&u64::from(VERSION).to_le_bytes());
        bytes.extend_from_slice(&self.incarnation.to_le_bytes());
        bytes.extend_from_slice(&self.boot.to_le_bytes());
        bytes.extend_from_slice(&self.data.to_le_bytes());
        let seed = XxHash3_64::oneshot(&bytes);
        bytes.extend_from_slice(&seed.to_le_bytes());
        for (shard, index) in &self.acknowledged {
            bytes.extend_from_slice(&place(seed, *shard, *index));
        }
        bytes.resize(WITNESS_BYTES, 0);
        bytes
    }

    /// The witness that these bytes are.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "a witness");
        if bytes.len() != WITNESS_BYTES {
            return Err(Malformed::Field("the length of a witness", bytes.len() as u64));
        }
        if from.array()? != MAGIC {
            return Err(Malformed::Field("the first byte of a witness", u64::from(bytes[0])));
        }
        let version = from.u64()?;
        if version != u64::from(VERSION) {
            return Err(Malformed::Field("the version of a witness", version));
        }
        let incarnation = from.u64()?;
        let boot = u128::from_le_bytes(from.array()?);
        let data = u128::from_le_bytes(from.array()?);
        let (expected, seed) = (from.u64()?, XxHash3_64::oneshot(&bytes[..HEAD_BYTES - 8]));
        if expected != seed {
            return Err(Malformed::Checksum { expected, found: seed });
        }
        let mut acknowledged = Ends::new();
        for _ in 0..SHARDS_MAX {
            let bytes: [u8; PLACE_BYTES] = from.array()?;
            if bytes == [0; PLACE_BYTES] {
                break;
            }
            let mut fields = Cursor::new(&bytes, "a place");
            let (shard, _, index) = (fields.u32()?, fields.u32()?, fields.u64()?);
            if bytes != place(seed, shard, index) || acknowledged.insert(shard, index).is_some() {
                return Err(Malformed::Field("a place of shard", u64::from(shard)));
            }
        }
        from.zeros(from.rest().len(), "a byte behind the shards")?;
        Ok(Self { data, incarnation, boot, acknowledged })
    }
}

fn name(incarnation: u64) -> String {
    format!("{PREFIX}{incarnation}")
}

fn begun_name(incarnation: u64) -> String {
    format!("{BEGUN}{incarnation}")
}

fn place(seed: u64, shard: u32, index: u64) -> [u8; PLACE_BYTES] {
    let mut bytes = [0; PLACE_BYTES];
    bytes[..4].copy_from_slice(&shard.to_le_bytes());
    bytes[4] = 1;
    bytes[8..16].copy_from_slice(&index.to_le_bytes());
    let check = XxHash3_64::oneshot_with_seed(seed, &bytes[..16]);
    bytes[16..24].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// The witness of the run that goes on.
#[derive(Debug)]
pub(super) struct WitnessFile {
    file: Arc<dyn File>,
    seed: u64,
    /// Shards, in the order of their places.
    places: Vec<u32>,
}

impl WitnessFile {
    /// Makes the file, or makes it anew. It is whole on return, should the process die.
    pub(super) fn create(dir: &dyn Dir, witness: &Witness) -> Result<Self> {
        let name = name(witness.incarnation);
        if dir.list()?.contains(&name) {
            dir.remove(&name)?;
        }
        let bytes = witness.encode();
        let seed = XxHash3_64::oneshot(&bytes[..HEAD_BYTES - 8]);
        let file = dir.create(&name, SyncMethod::None.access())?;
        file.write_at(&bytes, 0)?;
        Ok(Self { file, seed, places: witness.acknowledged.keys().copied().collect() })
    }

    /// The directory knows of its run, durably: from here on one that does not went back. Removes what earlier runs left.
    pub(super) fn begins(dir: &dyn Dir, incarnation: u64, drawn: Option<u64>) -> Result<()> {
        let own = [name(incarnation), begun_name(incarnation)];
        if dir.list()?.contains(&own[1]) {
            dir.remove(&own[1])?;
        }
        let file = dir.create(&own[1], SyncMethod::None.access())?;
        if let Some(drawn) = drawn.map(u64::to_le_bytes) {
            file.write_at(&[drawn, XxHash3_64::oneshot(&drawn).to_le_bytes()].concat(), 0)?;
        }
        let is_its = |name: &str| name.starts_with(PREFIX) || name.starts_with(BEGUN);
        let is_other = |name: &String| is_its(name) && !own.contains(name);
        Ok(dir
            .list()?
            .iter()
            .filter(|name| is_other(name))
            .try_for_each(|name| dir.remove(name))?)
    }

    /// Notes what is about to be acknowledged. On return a process that dies leaves it known.
    pub(super) fn note(&mut self, shard: u32, index: u64) -> Result<()> {
        let at = self.places.iter().position(|known| *known == shard);
        let at = at.unwrap_or(self.places.len());
        if at == SHARDS_MAX {
            return Err(Error::TooManyShards { count: at + 1, most: SHARDS_MAX });
        }
        let byte_offset = (HEAD_BYTES + at * PLACE_BYTES) as u64;
        self.file.write_at(&place(self.seed, shard, index), byte_offset)?;
        if at == self.places.len() {
            self.places.push(shard);
        }
        Ok(())
    }
}
