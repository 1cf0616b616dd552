//! [`Head`]: the file `backup`, which says that a directory is one, and which generation of it is whole.
//!
//! ```text
//!  0 magic      8   "PLIMBKUP"
//!  8 version   u32  1
//! 12 slot      u32  1 or 2: the generation in `rest-1` or `rest-2` is whole; 0: none is yet
//! 16 begun     u64  when it was begun, in ms since 1970
//! 24 cluster  32    the id of the cluster whose it is
//! 56 shards    u32  count, then each, in their order:
//!                   shard u32 · first log index u64 · last log index u64 · hash of its records u64
//!                   hash of `identity` u64 · of `state-N` u64 · of `chapters-N/manifest` u64, 0 where there is none
//! .. checksum  u64  XXH3-64 of all before it
//! ```
//!
//! Little-endian. It is replaced as a whole, once all that it names is durable ([`whole`]): so a crash leaves the backup
//! that was, or the new one.

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::Error;
use crate::broker::CLUSTER_DIGITS;
use crate::cursor::{Cursor, Malformed};
use crate::whole;

const MAGIC: [u8; 8] = *b"PLIMBKUP";
const VERSION: u32 = 1;
const SHARD_BYTES: usize = 52;
/// No head is larger: 256 shards.
const BYTES_MAX: u64 = 64 << 10;
/// The name of the file.
pub const NAME: &str = "backup";

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Which generation is whole, if one is.
    pub(super) slot: Option<Slot>,
    /// When it was begun, in ms since 1970.
    pub(super) begun_ms: u64,
    /// Whose it is.
    pub(super) cluster: String,
    /// What it has of each shard.
    pub(super) shards: Vec<OfShard>,
}

/// Where a generation is: they take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// `rest-1`
    One = 1,
    /// `rest-2`
    Two = 2,
}

/// What a generation has of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfShard {
    pub(crate) number: u32,
    /// The log from here on.
    pub(crate) first: u64,
    /// Up to here; one less than the first if there is nothing.
    pub(crate) last: u64,
    /// Of its records.
    pub(crate) log: u64,
    /// Of its files, 0 where there is none.
    pub(crate) identity: u64,
    pub(crate) state: u64,
    pub(crate) manifest: u64,
}

impl Slot {
    /// The directory of its generation.
    pub(super) fn name(self) -> String {
        format!("rest-{}", self as u32)
    }

    /// Where the generation after it goes.
    pub(super) fn other(self) -> Self {
        match self {
            Self::One => Self::Two,
            Self::Two => Self::One,
        }
    }
}

impl Head {
    /// The head of a backup, if the directory is one. Changes nothing.
    pub(super) fn look(dir: &dyn Dir) -> Result<Option<Self>, Error> {
        let file = match dir.open(NAME, SyncMethod::ORDINARY.access()) {
            Ok(file) => file,
            Err(why) if why.kind() == Some(std::io::ErrorKind::NotFound) => return Ok(None),
            Err(why) => return Err(why.into()),
        };
        let length = file.len()?;
        let damaged = |why| Error::Damaged { file: NAME.to_owned(), why };
        if length > BYTES_MAX {
            return Err(damaged(Malformed::Field("the size of a backup's head", length)));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = file.read_at(&mut bytes, 0)?;
        Self::decode(&bytes[..read]).map(Some).map_err(damaged)
    }

    /// Makes it the head. Durable on return.
    pub(super) fn write(&self, dir: &dyn Dir) -> Result<(), Error> {
        let bytes = self.encode();
        let fill = |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
        Ok(whole::create(dir, NAME, fill).map(drop)?)
    }

    fn encode(&self) -> Vec<u8> {
        let mut to = MAGIC.to_vec();
        let slot = self.slot.map_or(0, |slot| slot as u32);
        to.extend_from_slice(&VERSION.to_le_bytes());
        to.extend_from_slice(&slot.to_le_bytes());
        to.extend_from_slice(&self.begun_ms.to_le_bytes());
        assert_eq!(self.cluster.len(), CLUSTER_DIGITS, "an id has so many digits");
        to.extend_from_slice(self.cluster.as_bytes());
        let count = u32::try_from(self.shards.len()).expect("there are few shards");
        to.extend_from_slice(&count.to_le_bytes());
        for shard in &self.shards {
            let OfShard { number, first, last, log, identity, state, manifest } = *shard;
            to.extend_from_slice(&number.to_le_bytes());
            for word in [first, last, log, identity, state, manifest] {
                to.extend_from_slice(&word.to_le_bytes());
            }
        }
        let checksum = XxHash3_64::oneshot(&to);
        to.extend_from_slice(&checksum.to_le_bytes());
        to
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (body, checksum) =
            bytes.split_last_chunk().ok_or(Malformed::Short("a backup's head"))?;
        let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let mut from = Cursor::new(body, "a backup's head");
        if from.array()? != MAGIC {
            return Err(Malformed::Field("the first byte of a backup's head", bytes[0].into()));
        }
        let version = from.u32()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of a backup", version.into()));
        }
        let slot = match from.u32()? {
            0 => None,
            1 => Some(Slot::One),
            2 => Some(Slot::Two),
            other => return Err(Malformed::Field("the generation of a backup", other.into())),
        };
        let begun_ms = from.u64()?;
        let cluster: [u8; CLUSTER_DIGITS] = from.array()?;
        let cluster = std::str::from_utf8(&cluster);
        let cluster = cluster.map_err(|why| Malformed::Text("the id of a cluster", why))?;
        let mut shards = Vec::new();
        for _ in 0..from.count(SHARD_BYTES, "the count of shards")? {
            let shard = OfShard {
                number: from.u32()?,
                first: from.raisable("a log index")?,
                last: from.raisable("a log index")?,
                log: from.u64()?,
                identity: from.u64()?,
                state: from.u64()?,
                manifest: from.u64()?,
            };
            if shard.first == 0 || shard.last < shard.first - 1 {
                return Err(Malformed::Field("the last log index", shard.last));
            }
            shards.push(shard);
        }
        from.end()?;
        Ok(Self { slot, begun_ms, cluster: cluster.to_owned(), shards })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let shard = |number: u32| OfShard {
            number,
            first: 3,
            last: 2 + u64::from(number),
            log: 4,
            identity: 5,
            state: u64::from(number),
            manifest: 6,
        };
        let cluster = "00112233445566778899aabbccddeeff".to_owned();
        let shards = (0..2).map(shard).collect();
        Head { slot: Some(Slot::Two), begun_ms: 1_795_000_000_000, cluster, shards }
    }

    /// As it has been written since version 1.
    #[test]
    fn a_head_is_written_as_version_1_has_it() {
        let bytes = head().encode();
        assert_eq!(bytes.len(), 60 + 2 * SHARD_BYTES + 8);
        assert_eq!(bytes[..16], *b"PLIMBKUP\x01\0\0\0\x02\0\0\0");
        assert_eq!(XxHash3_64::oneshot(&bytes), GOLDEN_HASH, "{bytes:02x?}");
        assert_eq!(Head::decode(&bytes), Ok(head()));
    }

    const GOLDEN_HASH: u64 = 0x2884_6662_8912_be50;

    #[test]
    fn a_head_with_any_byte_changed_added_or_gone_is_refused() {
        let bytes = head().encode();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert!(Head::decode(&changed).is_err(), "byte {at}");
            assert!(Head::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
        assert!(Head::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}
