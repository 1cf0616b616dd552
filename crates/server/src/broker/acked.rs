//! [`Acked`]: up to where the entries of a shard were durable here and acknowledged, in memory that outlives the process.
//!
//! ```text
//! MEMORY/acked-N
//!
//!  0 magic      8   "PLIMACKD"
//!  8 shard     u32
//! 12 version   u32  1
//! 16 index     u64  the last acknowledged, as the log counts
//! 24 checksum  u64  XXH3-64 of all before it
//! ```
//!
//! Little-endian; one write(2), never synced, within a page: a process that is killed leaves it as it was or as it is to be.
//!
//! Of shards whose entries are durable before they are acknowledged, and where others may have what this disk loses. A log says itself some
//! records later only how far it was durable, and `known-N` is a second old: what is damaged behind that looks like a write that was not
//! finished, and whole records behind it would go with it. A bound from below: one that is lost, or cannot be written, is taken for 0, or stays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_sync::{Dir, File, OsDir, SyncMethod};
use twox_hash::XxHash3_64;

use super::decided::Decisions;
use super::error::Failed;
use super::layout::{CONTROL, DURABLE, GROUPS};
use super::seeded::Stage;
use crate::cluster::Testimony;

const MAGIC: [u8; 8] = *b"PLIMACKD";
const VERSION: u32 = 1;
const BYTES: usize = 32;

/// What is known in memory of a shard.
#[derive(Debug)]
pub(crate) struct Acked {
    file: Arc<dyn File>,
    number: u32,
    last: Mutex<u64>,
}

impl Acked {
    /// What an earlier run left of a shard in memory; nothing where it is `forgotten`, as its log is another. None if memory takes nothing.
    pub(super) fn open(memory: &OsDir, number: u32, is_forgotten: bool) -> Option<Arc<Self>> {
        let (name, access) = (format!("acked-{number}"), SyncMethod::None.access());
        let found = memory.open(&name, access).or_else(|_| memory.create(&name, access));
        let file = found.ok()?;
        let mut bytes = [0; BYTES];
        let length = file.read_at(&mut bytes, 0).ok()?;
        let index = u64::from_le_bytes(*bytes[16..].first_chunk().expect("there are 32 bytes"));
        let is_whole = length == BYTES && bytes == encode(number, index);
        let last = if is_whole && !is_forgotten { index } else { 0 };
        let acked = Self { file, number, last: Mutex::new(last) };
        acked.write(last)?;
        Some(Arc::new(acked))
    }

    /// The last that was acknowledged, as the log counts.
    pub(super) fn last(&self) -> u64 {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever was acknowledged behind this entry is not missed.
    pub(super) fn had_up_to(&self, index: u64) {
        // What memory does not take is missed at worst.
        let _best_effort = self.cuts(index);
    }

    fn write(&self, index: u64) -> Option<()> {
        self.file.write_at(&encode(self.number, index), 0).ok()
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = to(*last);
        if now != *last && self.write(now).is_some() {
            *last = now;
        }
    }
}

impl Testimony for Acked {
    /// An acknowledgement does not hang on it.
    fn acknowledges(&self, index: u64) -> Result<(), String> {
        // The log counts from 1.
        self.change(|last| last.max(index + 1));
        Ok(())
    }

    fn cuts(&self, from: u64) -> Result<(), String> {
        self.change(|last| last.min(from));
        Ok(())
    }
}

/// What memory knows of shards whose entries are durable before they are acknowledged. Of one that was given, or goes on after a loss from this start on,
/// what was acknowledged before says nothing.
pub(super) fn all(
    dir: &dyn Dir,
    memory: &OsDir,
    decided: &Decisions,
) -> Result<BTreeMap<u32, Arc<Acked>>, Failed> {
    let mut all = BTreeMap::new();
    for number in [CONTROL, GROUPS, DURABLE] {
        let is_own = matches!(Stage::read(dir, number)?, None | Some(Stage::Forgot));
        let is_forgotten = !is_own || decided.lifts(number);
        all.extend(Acked::open(memory, number, is_forgotten).map(|acked| (number, acked)));
    }
    Ok(all)
}

/// What its replica is to have know what it acknowledges.
pub(super) fn testimony(acked: Option<Arc<Acked>>) -> Option<Arc<dyn Testimony>> {
    acked.map(|acked| acked as Arc<dyn Testimony>)
}

fn encode(number: u32, index: u64) -> [u8; BYTES] {
    let mut to = [0; BYTES];
    to[..8].copy_from_slice(&MAGIC);
    to[8..12].copy_from_slice(&number.to_le_bytes());
    to[12..16].copy_from_slice(&VERSION.to_le_bytes());
    to[16..24].copy_from_slice(&index.to_le_bytes());
    let checksum = XxHash3_64::oneshot(&to[..24]);
    to[24..].copy_from_slice(&checksum.to_le_bytes());
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::decided::Decided;

    #[test]
    fn what_was_acknowledged_is_known_to_the_next_run_and_what_was_cut_off_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let memory = OsDir::create_all(dir.path().join("memory")).unwrap();
        let last = |is_forgotten| Acked::open(&memory, 1, is_forgotten).unwrap().last();
        assert_eq!(last(false), 0);
        let acked = Acked::open(&memory, 1, false).unwrap();
        acked.acknowledges(28).unwrap();
        acked.acknowledges(11).unwrap();
        assert_eq!(last(false), 29);
        acked.cuts(20).unwrap();
        assert_eq!(last(false), 20);
        acked.cuts(25).unwrap();
        assert_eq!(last(false), 20);
        assert_eq!(Acked::open(&memory, 0, false).unwrap().last(), 0, "of another shard");
        assert_eq!(last(true), 0);
        assert_eq!(last(false), 0, "it stays forgotten");
    }

    /// It was forgotten at each start once there had been a decision, and one damaged disk lost what two had acknowledged (an attacker).
    #[test]
    fn a_decision_has_what_was_acknowledged_forgotten_once() {
        let dir = tempfile::tempdir().unwrap();
        let memory = OsDir::create_all(dir.path().join("memory")).unwrap();
        let root: Arc<dyn Dir> = Arc::new(plimsoll_simdisk::SimDir::new());
        let last = || {
            let all = all(&*root, &memory, &Decisions::read(&root).unwrap()).unwrap();
            all[&DURABLE].last()
        };
        Acked::open(&memory, DURABLE, false).unwrap().acknowledges(28).unwrap();
        assert_eq!(last(), 29);
        let decided = Decided {
            number: DURABLE,
            generation: 1,
            digest: 1,
            guaranteed: 20,
            at_ms: 1,
            lifts: true,
            lost_durable: true,
            least: (1, 20),
            ended: (1, 20),
            cuts: false,
        };
        decided.write(&*root).unwrap();
        assert_eq!(last(), 0);
        Acked::open(&memory, DURABLE, false).unwrap().acknowledges(28).unwrap();
        Decided { lifts: false, ..decided }.write(&*root).unwrap();
        assert_eq!(last(), 29);
    }

    #[test]
    fn what_is_damaged_in_memory_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let memory = OsDir::create_all(dir.path().join("memory")).unwrap();
        for at in 0..BYTES as u64 {
            Acked::open(&memory, 1, true).unwrap().acknowledges(28).unwrap();
            memory
                .open("acked-1", SyncMethod::None.access())
                .unwrap()
                .write_at(&[0x5a], at)
                .unwrap();
            assert_eq!(Acked::open(&memory, 1, false).unwrap().last(), 0, "byte {at}");
        }
    }
}
