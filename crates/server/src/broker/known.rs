//! [`Known`]: what this node knew of a shard a while ago, for whoever has to decide after a loss what is gone.
//!
//! ```text
//! DIR/known-N
//!
//!  0 magic      8   "PLIMKNOW"
//!  8 version   u32  2
//! 12 shard     u32
//! 16 committed u64  C, a log index
//! 24 durable   u64  D
//! 32 own       u64  up to where this node had it durably, of what is up to D
//! 40 had       u64  up to where this node had it, durably or acknowledged, before it lost something: until it has caught up
//! 48 checksum  u64  XXH3-64 of all before it
//! ```
//!
//! Little-endian. All are bounds from below, and one that is lost is taken for 0. Entries up to D stay what they are, so a log that ends
//! before `own` has lost something (`damaged.rs`). Version 1 had neither `own` nor `had`: of shards whose entries are durable before they are
//! acknowledged the first was `durable`, of others it is not known.

use std::io::ErrorKind;

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::layout::{self, SHARED};
use crate::whole;

const MAGIC: [u8; 8] = *b"PLIMKNOW";
const VERSION: u32 = 2;
const BYTES: usize = 56;
const OLDER: u32 = 1;
const OLDER_BYTES: usize = 40;

/// Log indexes, of a moment that has passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// C.
    pub(super) committed: u64,
    /// D.
    pub(super) durable: u64,
    /// Up to where this node had it durably, of what is up to D.
    pub(super) own: u64,
    /// Up to where this node had it, durably or acknowledged, before it lost something; 0 once it has caught up.
    pub(super) had: u64,
}

impl Known {
    /// What is known now, of a log that is synced up to this entry.
    pub(super) fn of(committed: u64, durable: u64, synced: u64) -> Self {
        // What others have, and this node has not yet, is nothing that its disk can lose.
        Self { committed, durable, own: durable.min(synced), had: 0 }
    }

    /// What is known, where this was known before: a start knows less than the run before it, until somebody who leads tells it.
    pub(super) fn raised(self, now: Self) -> Self {
        Self {
            committed: self.committed.max(now.committed),
            durable: self.durable.max(now.durable),
            own: self.own.max(now.own),
            had: self.had.max(now.had),
        }
    }

    /// What was noted last; `None` if that cannot be read.
    pub(super) fn read(dir: &dyn Dir, number: u32) -> Option<Self> {
        // Nothing is changed: the directory may be that of a node that runs.
        let file = dir.open(&layout::known(number), SyncMethod::ORDINARY.access()).ok()?;
        let mut bytes = [0; BYTES + 1];
        let read = file.read_at(&mut bytes, 0).ok()?;
        let bytes = &bytes[..read];
        let (body, checksum) = bytes.split_last_chunk()?;
        let word = |at: usize| body[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let is_of = |version| body.starts_with(&head(version, number));
        if u64::from_le_bytes(*checksum) != XxHash3_64::oneshot(body) {
            return None;
        }
        let (is_new, is_old) = (is_of(VERSION), is_of(OLDER));
        match bytes.len() {
            BYTES if is_new => {
                let (committed, durable, own) = (word(16)?, word(24)?, word(32)?);
                Some(Self { committed, durable, own, had: word(40)? })
            }
            OLDER_BYTES if is_old => {
                let (committed, durable) = (word(16)?, word(24)?);
                let own = if SHARED.contains(&number) { 0 } else { durable };
                Some(Self { committed, durable, own, had: 0 })
            }
            _ => None,
        }
    }

    /// Durable on return.
    pub(super) fn write(self, dir: &dyn Dir, number: u32) -> plimsoll_sync::Result<()> {
        let bytes = self.encode(number);
        let fill = |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
        whole::create(dir, &layout::known(number), fill).map(drop)
    }

    fn encode(self, number: u32) -> Vec<u8> {
        let mut to = head(VERSION, number).to_vec();
        for index in [self.committed, self.durable, self.own, self.had] {
            to.extend_from_slice(&index.to_le_bytes());
        }
        let checksum = XxHash3_64::oneshot(&to);
        to.extend_from_slice(&checksum.to_le_bytes());
        to
    }
}

/// Whether something was noted, and cannot be read.
pub(super) fn is_unreadable(dir: &dyn Dir, number: u32) -> bool {
    let opened = dir.open(&layout::known(number), SyncMethod::ORDINARY.access());
    let is_there = opened.map_or_else(|why| why.kind() != Some(ErrorKind::NotFound), |_| true);
    is_there && Known::read(dir, number).is_none()
}

/// Where the shard goes on after a loss all that is `guaranteed` is there, and what was known beyond may be other entries; and this node
/// had its log up to `ended`. Durable on return.
pub(super) fn forget_lost(
    dir: &dyn Dir,
    number: u32,
    (guaranteed, ended): (u64, u64),
) -> plimsoll_sync::Result<()> {
    let Some(Known { durable, own, .. }) = Known::read(dir, number) else { return Ok(()) };
    let known = durable.min(guaranteed);
    let own = own.min(guaranteed).min(ended);
    Known { committed: known, durable: known, own, had: 0 }.write(dir, number)
}

/// Notes up to where this node had a shard of which it has lost something. Durable on return.
pub(super) fn note_had(dir: &dyn Dir, number: u32, had: u64) -> plimsoll_sync::Result<()> {
    let known = Known::read(dir, number).unwrap_or_default();
    if known.had >= had { Ok(()) } else { Known { had, ..known }.write(dir, number) }
}

/// Whether nothing was ever noted, or that is lost.
pub(super) fn is_missing(dir: &dyn Dir, number: u32) -> bool {
    let opened = dir.open(&layout::known(number), SyncMethod::ORDINARY.access());
    opened.is_err_and(|why| why.kind() == Some(ErrorKind::NotFound))
}

fn head(version: u32, number: u32) -> [u8; 16] {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&version.to_le_bytes());
    head[12..].copy_from_slice(&number.to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::Access;

    use super::*;

    fn known(committed: u64, durable: u64, own: u64) -> Known {
        Known { committed, durable, own, had: 0 }
    }

    /// With a C that its snapshot had, and no D yet, a start took the place of what was known before.
    #[test]
    fn what_a_start_does_not_know_yet_takes_nothing_from_what_was_known() {
        let raised = known(11_054, 11_031, 11_000).raised(Known::of(6_060, 0, 11_054));
        assert_eq!(raised, known(11_054, 11_031, 11_000));
        assert_eq!(known(9, 7, 7).raised(Known::of(12, 9, 8)), known(12, 9, 8));
        let dir = SimDir::new();
        forget_lost(&dir, 2, (9, u64::MAX)).unwrap();
        assert_eq!(Known::read(&dir, 2), None);
        known(12, 9, 6).write(&dir, 2).unwrap();
        forget_lost(&dir, 2, (11, u64::MAX)).unwrap();
        assert_eq!(Known::read(&dir, 2), Some(known(9, 9, 6)));
        note_had(&dir, 2, 13).unwrap();
        note_had(&dir, 2, 12).unwrap();
        assert_eq!(Known::read(&dir, 2), Some(Known { had: 13, ..known(9, 9, 6) }));
        // No log that is left has what was durable.
        forget_lost(&dir, 2, (5, 4)).unwrap();
        assert_eq!(Known::read(&dir, 2), Some(known(5, 5, 4)));
    }

    #[test]
    fn what_was_known_is_there_after_a_power_cut_and_damage_is_nothing() {
        let dir = SimDir::new();
        assert_eq!(Known::read(&dir, 2), None);
        known(9, 7, 7).write(&dir, 2).unwrap();
        known(12, 9, 8).write(&dir, 2).unwrap();
        for seed in 0..20 {
            assert_eq!(Known::read(&dir.power_cut(seed), 2), Some(known(12, 9, 8)), "seed {seed}");
        }
        let bytes = known(12, 9, 8).encode(2);
        assert_eq!(bytes[..24], *b"PLIMKNOW\x02\0\0\0\x02\0\0\0\x0c\0\0\0\0\0\0\0");
        dir.rename("known-2", "known-3").unwrap();
        assert_eq!(Known::read(&dir, 3), None);
        assert!(is_unreadable(&dir, 3) && !is_unreadable(&dir, 2));
        known(12, 9, 8).write(&dir, 3).unwrap();
        assert!(!is_unreadable(&dir, 3));
        for bit in 0..bytes.len() * 8 {
            known(12, 9, 8).write(&dir, 3).unwrap();
            let byte = known(12, 9, 8).encode(3)[bit / 8] ^ 1 << (bit % 8);
            let file = dir.open("known-3", Access::default()).unwrap();
            file.write_at(&[byte], (bit / 8) as u64).unwrap();
            assert!(is_unreadable(&dir, 3), "bit {bit}");
        }
    }

    #[test]
    fn of_version_1_it_is_not_known_what_a_node_itself_had_of_what_is_acknowledged_first() {
        for (number, own) in [(0, 9), (2, 0), (3, 9)] {
            let mut bytes = head(OLDER, number).to_vec();
            [12_u64, 9].iter().for_each(|index| bytes.extend_from_slice(&index.to_le_bytes()));
            let checksum = XxHash3_64::oneshot(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
            let dir = SimDir::new();
            let file = dir.create(&layout::known(number), Access::default()).unwrap();
            file.write_at(&bytes, 0).unwrap();
            assert_eq!(Known::read(&dir, number), Some(known(12, 9, own)), "shard {number}");
        }
    }
}
