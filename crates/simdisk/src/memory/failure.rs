//! What an operation that fails leaves: some of what it was for, chosen by a seed and by nothing else.
//!
//! An error says that not everything was done. It does not say that nothing was (docs/failed-sync.md).
//!
//! * Of what a **sync** covers there is what a power cut at that moment could have left: some sectors,
//!   from none to all. The device has those, and may still lose them. The kernel calls the others clean:
//!   nobody will write them again, though reads through the page cache go on showing them.
//! * Of the names that a sync of a **directory** covers likewise: one by one or, with a journal, up to some
//!   operation.
//! * A **write** put some of its sectors into the file: past the page cache any of them, into the page
//!   cache the first few. They are there as if a smaller write had brought them.
//!
//! Which those are is drawn at the failure, not at the crash, because they can be read: past the page cache
//! a file shows what the device has. A program that syncs the file anew and reads it there must find it so
//! after a crash. Otherwise it could believe records that are gone, or write behind others that come back.
//!
//! From then on they are effects like all others: a power cut takes them or not, the next good sync makes
//! them durable, and what is written over them later wins.

use std::ops::Range;

use plimsoll_sync::Crash;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::crash::Chooser;
use super::directory::{DirId, FileId};
use super::disk::Disk;
use super::inode::{Effect, Stage};
use super::options::Tear;
use crate::sparse::{PAGE, SECTOR_BYTES};

/// A sync of these pages (all if `None`) of a file failed. Without a seed for want of room: there was
/// nowhere to write to, so the device has no more than before.
///
/// Lengths are metadata, and still on their way.
pub(crate) fn sync(disk: &mut Disk, id: FileId, pages: Option<&Range<u64>>, seed: Option<u64>) {
    let mut chooser = seed.map(|seed| Chooser::new(disk, Crash::PowerCut, seed));
    let inode = disk.file(id);
    inode.forgot = true;
    inode.room.give_up(pages, seed.is_some());
    let pending = std::mem::take(&mut inode.pending);
    for operation in pending.chunk_by(|a, b| a.order == b.order) {
        let mut covered = Vec::new();
        for effect in operation {
            if effect.pages().is_none() {
                inode.pending.push(effect.clone());
                continue;
            }
            let (inside, outside) = effect.clone().split(pages);
            covered.extend(inside);
            inode.pending.extend(outside);
        }
        match &mut chooser {
            Some(chooser) => chooser.write(&covered, &mut inode.pending),
            None => {
                let is_there = |effect: &Effect| effect.stage != Stage::Kernel;
                inode.pending.extend(covered.into_iter().filter(is_there));
            }
        }
    }
}

/// A sync of a directory failed.
pub(crate) fn sync_directory(disk: &mut Disk, id: DirId, seed: u64) {
    let mut chooser = Chooser::new(disk, Crash::PowerCut, seed);
    let directory = disk.directory(id);
    let pending = std::mem::take(&mut directory.pending);
    directory.pending = chooser.names(pending);
    disk.forget_unreachable();
}

/// The parts of a write of `len` bytes that are in the file although it failed.
pub(crate) fn parts(
    len: usize,
    byte_offset: u64,
    is_direct: bool,
    tear: Tear,
    seed: u64,
) -> Vec<Range<usize>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let unit = match tear {
        Tear::Bytes4096 => PAGE,
        Tear::Bytes512 => SECTOR_BYTES as u64,
    };
    let mut units = Vec::new();
    let mut at = 0;
    while at < len {
        let left = unit - (byte_offset.saturating_add(at as u64)) % unit;
        let end = usize::try_from(left).map_or(len, |left| len.min(at + left));
        units.push(at..end);
        at = end;
    }
    if is_direct {
        let survival = rng.random_range(0..=4);
        units.retain(|_| rng.random_ratio(survival, 4));
    } else {
        // Of all of them it would not have failed.
        units.truncate(rng.random_range(0..units.len().max(1)));
    }
    units
}
