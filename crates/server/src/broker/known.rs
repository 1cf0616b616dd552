//! The C and the D of a shard that this node knew a while ago, for whoever has to decide after a loss what is gone.
//!
//! ```text
//! DIR/known-N
//!
//!  0 magic      8   "PLIMKNOW"
//!  8 version   u32  1
//! 12 shard     u32
//! 16 committed u64  C, a log index
//! 24 durable   u64  D
//! 32 checksum  u64  XXH3-64 of all before it
//! ```
//!
//! Little-endian. Both are bounds from below, and one that is lost is taken for 0. Of shards whose entries are durable before they are
//! acknowledged only what this node has itself is noted: a log that ends before D has lost something (`damaged.rs`).

use std::io::ErrorKind;

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::layout;
use crate::whole;

const MAGIC: [u8; 8] = *b"PLIMKNOW";
const VERSION: u32 = 1;
const BYTES: usize = 40;

/// C and D, as they were noted last; `None` if that cannot be read.
pub(super) fn read(dir: &dyn Dir, number: u32) -> Option<(u64, u64)> {
    // Nothing is changed: the directory may be that of a node that runs.
    let file = dir.open(&layout::known(number), SyncMethod::ORDINARY.access()).ok()?;
    let mut bytes = [0; BYTES + 1];
    let read = file.read_at(&mut bytes, 0).ok()?;
    let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("it is that long"));
    let known = (word(16), word(24));
    (bytes[..read] == encode(number, known)).then_some(known)
}

/// Whether something was noted, and cannot be read.
pub(super) fn is_unreadable(dir: &dyn Dir, number: u32) -> bool {
    let opened = dir.open(&layout::known(number), SyncMethod::ORDINARY.access());
    let is_there = opened.map_or_else(|why| why.kind() != Some(ErrorKind::NotFound), |_| true);
    is_there && read(dir, number).is_none()
}

/// What is known, where that was known before: a start knows less than the run before it, until somebody who leads tells it.
pub(super) fn raised(was: (u64, u64), now: (u64, u64)) -> (u64, u64) {
    (was.0.max(now.0), was.1.max(now.1))
}

/// Where the shard goes on after a loss all that is `guaranteed` is there, and what was known beyond may be other entries. Durable
/// on return.
pub(super) fn forget_lost(
    dir: &dyn Dir,
    number: u32,
    guaranteed: u64,
) -> plimsoll_sync::Result<()> {
    let Some((_, durable)) = read(dir, number) else { return Ok(()) };
    let known = durable.min(guaranteed);
    write(dir, number, (known, known))
}

/// Notes C and D. Durable on return.
pub(super) fn write(dir: &dyn Dir, number: u32, known: (u64, u64)) -> plimsoll_sync::Result<()> {
    let bytes = encode(number, known);
    let fill = |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
    whole::create(dir, &layout::known(number), fill).map(drop)
}

fn encode(number: u32, (committed, durable): (u64, u64)) -> [u8; BYTES] {
    let mut to = [0; BYTES];
    to[..8].copy_from_slice(&MAGIC);
    to[8..12].copy_from_slice(&VERSION.to_le_bytes());
    to[12..16].copy_from_slice(&number.to_le_bytes());
    to[16..24].copy_from_slice(&committed.to_le_bytes());
    to[24..32].copy_from_slice(&durable.to_le_bytes());
    let checksum = XxHash3_64::oneshot(&to[..32]);
    to[32..].copy_from_slice(&checksum.to_le_bytes());
    to
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::Access;

    use super::*;

    /// With a C that its snapshot had, and no D yet, a start took the place of what was known before.
    #[test]
    fn what_a_start_does_not_know_yet_takes_nothing_from_what_was_known() {
        assert_eq!(raised((11_054, 11_031), (6_060, 0)), (11_054, 11_031));
        assert_eq!(raised((9, 7), (12, 0)), (12, 7));
        let dir = SimDir::new();
        forget_lost(&dir, 2, 9).unwrap();
        assert_eq!(read(&dir, 2), None);
        write(&dir, 2, (12, 9)).unwrap();
        forget_lost(&dir, 2, 11).unwrap();
        assert_eq!(read(&dir, 2), Some((9, 9)));
        // No log that is left has what was durable.
        forget_lost(&dir, 2, 5).unwrap();
        assert_eq!(read(&dir, 2), Some((5, 5)));
    }

    #[test]
    fn what_was_known_is_there_after_a_power_cut_and_damage_is_nothing() {
        let dir = SimDir::new();
        assert_eq!(read(&dir, 2), None);
        write(&dir, 2, (9, 7)).unwrap();
        write(&dir, 2, (12, 9)).unwrap();
        for seed in 0..20 {
            assert_eq!(read(&dir.power_cut(seed), 2), Some((12, 9)), "seed {seed}");
        }
        assert_eq!(encode(2, (12, 9))[..24], *b"PLIMKNOW\x01\0\0\0\x02\0\0\0\x0c\0\0\0\0\0\0\0");
        dir.rename("known-2", "known-3").unwrap();
        assert_eq!(read(&dir, 3), None);
        assert!(is_unreadable(&dir, 3) && !is_unreadable(&dir, 2));
        write(&dir, 3, (12, 9)).unwrap();
        assert!(!is_unreadable(&dir, 3));
        dir.open("known-3", Access::default()).unwrap().write_at(&[13], 16).unwrap();
        assert!(is_unreadable(&dir, 3));
    }
}
