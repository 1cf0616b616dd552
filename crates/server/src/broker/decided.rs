//! [`Decided`]: that a shard goes on though most of its replicas may have forgotten what they acknowledged.
//!
//! ```text
//! DIR/loss-N
//!
//!  0 magic      8   "PLIMLOSS"
//!  8 version   u32  3
//! 12 shard     u32
//! 16 generation u64 of the shard from there on
//! 24 digest    16   of what was shown to whoever decided
//! 40 guaranteed u64 entries up to this log index were known to be durable on a majority, and are there
//! 48 at        u64  when it was decided, in ms since 1970
//! 56 flags     u32  1 lifts: the replica here does not count as one in doubt any more,
//!                   2 what is gone may have been durable, and with it how far offsets were given,
//!                   4 the log here is cut off before what is damaged of it
//! 60 zeros      4
//! 64 least     u64 term · u64 index   of the last entry of the best log of those that were shown: who ends before does not lead
//! 80 ended     u64 index · u64 term   of the last entry of the log here, as it was decided: what was behind that is not missed any more,
//!                   and what of it is behind `least` is given up
//! 96 checksum  u64  XXH3-64 of all before it
//! ```
//!
//! Little-endian. Version 2 had no term of `ended`, and is written where nothing is given up, and in messages. Version 1 had neither `least` nor
//! `ended`. The file is durable before the node is closed to be opened again, which raises the generation of the replica,
//! then ends its doubt, and then takes `lifts` back: each is durable before the next, and a start that is interrupted does it
//! again. It stays: whoever leads writes of it what it has agreed on first, the loss fence.

use std::sync::Arc;

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::Failed;
use super::layout::{self, RECORDS};
use super::seeded::{Stage, trust};
use crate::cluster::Basis;
use crate::cursor::{Cursor, Malformed};
use crate::whole;

const MAGIC: [u8; 8] = *b"PLIMLOSS";
const VERSION: u32 = 3;
const LIFTS: u32 = 1;
const LOST_DURABLE: u32 = 2;
const CUTS: u32 = 4;
const BYTES: usize = 104;
/// Of one that was told to others: where the log of each ended it notes itself.
pub(super) const TOLD_BYTES: usize = 96;

/// What was decided of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) number: u32,
    pub(crate) generation: u64,
    pub(crate) digest: u128,
    /// Entries up to this log index were known to be durable on a majority.
    pub(crate) guaranteed: u64,
    pub(crate) at_ms: u64,
    /// The replica here is not in doubt any more.
    pub(crate) lifts: bool,
    /// What is gone may have been durable, and with it ceilings: none is believed.
    pub(crate) lost_durable: bool,
    /// Term and index of the last entry of the best log of those that were shown.
    pub(crate) least: (u64, u64),
    /// Term and index of the last entry of the log here, as it was decided; zeros where this node was not asked.
    pub(crate) ended: (u64, u64),
    /// The log here ends as `least` before what is damaged of it, and is cut off there.
    pub(crate) cuts: bool,
}

impl Decided {
    /// What was decided last of a shard, as this node has heard.
    pub(super) fn read(dir: &dyn Dir, number: u32) -> Result<Option<Self>, Failed> {
        let name = layout::loss(number);
        let Some(file) = whole::open(dir, &name).map_err(Failed::Directory)? else {
            return Ok(None);
        };
        let mut bytes = [0; BYTES + 1];
        let read = file.read_at(&mut bytes, 0).map_err(Failed::Directory)?;
        let decided = Self::decode(&bytes[..read]).ok();
        let decided = decided.filter(|decided| decided.number == number);
        decided.map(Some).ok_or(Failed::Damaged(name))
    }

    /// Durable on return.
    pub(super) fn write(self, dir: &dyn Dir) -> Result<(), Failed> {
        let bytes = self.encode();
        let fill = |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
        let written = whole::create(dir, &layout::loss(self.number), fill);
        written.map(drop).map_err(Failed::Directory)
    }

    /// As others are told of it: nothing of theirs is lifted, or given up, that they were not asked for.
    pub(super) fn as_told(self) -> Self {
        Self { lifts: false, ended: (0, 0), cuts: false, ..self }
    }

    /// The same, unless as much is known: what a node was told itself says more than what others were.
    pub(super) fn write_if_news(self, dir: &dyn Dir) -> Result<(), Failed> {
        match Self::read(dir, self.number)? {
            Some(known) if known.generation >= self.generation && !self.lifts => Ok(()),
            _ => self.write(dir),
        }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let (term, index) = self.ended;
        let gives_up = self.ended > self.least;
        let version = if gives_up { VERSION } else { 2 };
        let mut to = Vec::with_capacity(BYTES);
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&version.to_le_bytes());
        to.extend_from_slice(&self.number.to_le_bytes());
        to.extend_from_slice(&self.generation.to_le_bytes());
        to.extend_from_slice(&self.digest.to_le_bytes());
        to.extend_from_slice(&self.guaranteed.to_le_bytes());
        to.extend_from_slice(&self.at_ms.to_le_bytes());
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let flags =
            flag(self.lifts, LIFTS) | flag(self.lost_durable, LOST_DURABLE) | flag(self.cuts, CUTS);
        to.extend_from_slice(&flags.to_le_bytes());
        to.extend_from_slice(&[0; 4]);
        to.extend_from_slice(&self.least.0.to_le_bytes());
        to.extend_from_slice(&self.least.1.to_le_bytes());
        to.extend_from_slice(&index.to_le_bytes());
        to.extend(gives_up.then(|| term.to_le_bytes()).into_iter().flatten());
        let checksum = XxHash3_64::oneshot(&to);
        to.extend_from_slice(&checksum.to_le_bytes());
        to
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        const OF: &str = "what was decided of a shard";
        let (body, checksum) = bytes.split_last_chunk().ok_or(Malformed::Short(OF))?;
        let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let mut from = Cursor::new(body, OF);
        if from.array()? != MAGIC {
            return Err(Malformed::Field("the first byte of a decision", u64::from(body[0])));
        }
        let version = match from.u32()? {
            known @ 1..=VERSION => known,
            other => return Err(Malformed::Field("the version of a decision", other.into())),
        };
        let mut decided = Self {
            number: from.u32()?,
            generation: from.raisable("a generation")?,
            digest: from.array().map(u128::from_le_bytes)?,
            guaranteed: from.raisable("a log index")?,
            at_ms: from.u64()?,
            lifts: false,
            lost_durable: false,
            least: (0, 0),
            ended: (0, 0),
            cuts: false,
        };
        let flags = from.u32()?;
        if flags > LIFTS + LOST_DURABLE + CUTS {
            return Err(Malformed::Field("flags of a decision", flags.into()));
        }
        decided.lifts = flags & LIFTS != 0;
        decided.cuts = flags & CUTS != 0;
        // In version 1 the flag said that others were to campaign first, and nothing said this.
        decided.lost_durable = version == 1 || flags & LOST_DURABLE != 0;
        from.zeros(4, "what stands behind a flag")?;
        if version > 1 {
            decided.least = (from.u64()?, from.raisable("a log index")?);
            decided.ended.1 = from.raisable("a log index")?;
        }
        if version > 2 {
            decided.ended.0 = from.u64()?;
        }
        from.end()?;
        Ok(decided)
    }
}

/// What a start found decided of its shards.
pub(super) struct Decisions(Vec<Decided>);

impl Decisions {
    pub(super) fn read(dir: &Arc<dyn Dir>) -> Result<Self, Failed> {
        let read = RECORDS.map(|number| Decided::read(&**dir, number));
        read.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>().map(Self)
    }

    /// What was decided of a shard.
    pub(super) fn of(&self, number: u32) -> Option<Decided> {
        self.0.iter().find(|decided| decided.number == number).copied()
    }

    /// On what a shard goes on.
    pub(super) fn basis(&self, number: u32) -> Basis {
        let basis = |Decided { least, ended, .. }| Basis { least, own: ended };
        self.of(number).map_or(Basis::default(), basis)
    }

    /// Whether the replica of a shard is not in doubt any more.
    pub(super) fn lifts(&self, number: u32) -> bool {
        self.of(number).is_some_and(|decided| decided.lifts)
    }

    /// All of it is done: a doubt of a later run is another, as is one of what this start found damaged. Durable on return.
    pub(super) fn are_done(
        &self,
        dir: &Arc<dyn Dir>,
        found_damaged: impl Fn(u32) -> bool,
    ) -> Result<(), Failed> {
        for decided in self.0.iter().filter(|decided| decided.lifts) {
            let is_older = !found_damaged(decided.number);
            if is_older && Stage::read(&**dir, decided.number)?.is_some() {
                trust(&**dir, decided.number)?;
            }
            Decided { lifts: false, ..*decided }.write(&**dir)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;

    use super::*;

    const GOLDEN: &[u8] = include_bytes!("testdata/loss-v3");
    const OLDER: &[u8] = include_bytes!("testdata/loss-v2");
    const OLDEST: &[u8] = include_bytes!("testdata/loss-v1");

    fn sample() -> Decided {
        let digest = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;
        Decided {
            number: 2,
            generation: 3,
            digest,
            guaranteed: 77,
            at_ms: 1_000,
            lifts: true,
            lost_durable: false,
            least: (3, 80),
            ended: (4, 79),
            cuts: true,
        }
    }

    #[test]
    fn a_decision_is_written_as_version_3_has_it_and_no_other_bytes_are_one() {
        let bytes = sample().encode();
        if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() {
            std::fs::write("src/broker/testdata/loss-v3", &bytes).unwrap();
        }
        assert!(bytes == GOLDEN, "{bytes:02x?}");
        assert_eq!(Decided::decode(&bytes), Ok(sample()));
        // As brokers of before read it.
        let told = Decided { ended: (0, 79), cuts: false, ..sample() };
        assert!(told.encode() == OLDER && OLDER.len() == TOLD_BYTES);
        assert_eq!(Decided::decode(OLDER), Ok(told));
        let of_oldest = |lifts| {
            let oldest = Decided { least: (0, 0), ended: (0, 0), cuts: false, ..sample() };
            Decided { lifts, lost_durable: true, ..oldest }
        };
        assert_eq!(Decided::decode(OLDEST), Ok(of_oldest(true)));
        // Of version 1 others were to campaign first where it said 2.
        for (flags, lifts) in [(0, false), (2, false), (3, true)] {
            let mut oldest = OLDEST.to_vec();
            oldest[56] = flags;
            let body = oldest.len() - 8;
            let checksum = XxHash3_64::oneshot(&oldest[..body]);
            oldest[body..].copy_from_slice(&checksum.to_le_bytes());
            let expected = of_oldest(lifts);
            assert_eq!(Decided::decode(&oldest), Ok(expected), "flags {flags}");
        }
        let lost_durable = Decided { lost_durable: true, ..sample() };
        assert_eq!(Decided::decode(&lost_durable.encode()), Ok(lost_durable));
        for bit in 0..BYTES * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Decided::decode(&changed).is_err(), "bit {bit}");
        }
        for end in 0..BYTES {
            assert!(Decided::decode(&bytes[..end]).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn a_decision_is_there_after_a_power_cut_and_of_its_own_shard() {
        let dir = SimDir::new();
        assert!(matches!(Decided::read(&dir, 2), Ok(None)));
        sample().write(&dir).unwrap();
        let later = Decided { lifts: false, generation: 4, ..sample() };
        later.write(&dir).unwrap();
        for seed in 0..20 {
            let found = Decided::read(&dir.power_cut(seed), 2).unwrap();
            assert_eq!(found, Some(later), "seed {seed}");
        }
        dir.rename("loss-2", "loss-3").unwrap();
        assert!(matches!(Decided::read(&dir, 3), Err(Failed::Damaged(_))));
    }
}
