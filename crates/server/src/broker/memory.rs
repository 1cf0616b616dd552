//! What a node has in memory that outlives its process: the rings of the shards whose records are not waited for.

use std::io::ErrorKind;

use plimsoll_sync::{Access, Dir, OsDir, Overwrite};

use super::error::Failed;
use super::layout::{self, SHARED, memory_name};
use super::options::Options;

/// Half of it is the largest entry, which is 1 MiB and what stands around one.
pub(super) const RING_BYTES_MIN: u64 = 4 << 20;
/// The file in memory that holds what is not durable of a shard.
pub(super) fn ring(number: u32) -> String {
    layout::shard(number)
}

/// A directory of this node in memory that outlives the process, if there is any.
pub(super) fn memory(
    options: &Options,
    dir: &dyn Dir,
    cluster_id: &str,
    node: u64,
) -> Result<Option<OsDir>, Failed> {
    let Some(path) = &options.memory else { return Ok(None) };
    let path = path.join(memory_name(dir, cluster_id, node)?);
    Ok(OsDir::create_all(path).ok().filter(|dir| dir.overwrite() == Overwrite::Memory))
}

/// Takes the ring of a shard away, if there is one.
pub(super) fn forget_ring(memory: &OsDir, number: u32) -> Result<(), Failed> {
    match memory.remove(&ring(number)) {
        Err(why) if why.kind() != Some(ErrorKind::NotFound) => Err(Failed::Directory(why)),
        _ => Ok(()),
    }
}

/// Whether there is the ring of any shard.
pub(super) fn has_ring(memory: &OsDir) -> bool {
    SHARED.into_iter().any(|number| memory.path().join(ring(number)).exists())
}

/// The size of the rings that are there: they may hold records, and are opened as they are or not at all. All are made alike.
pub(super) fn ring_left(memory: Option<&OsDir>) -> Option<u64> {
    let left = |number| {
        let file = memory?.open(&ring(number), Access::default()).ok()?;
        // A power of two, behind a head that is smaller.
        let ring_bytes = 1 << file.len().ok()?.checked_ilog2()?;
        Some(ring_bytes).filter(|bytes| *bytes >= RING_BYTES_MIN)
    };
    SHARED.into_iter().find_map(left)
}

/// Whether that has room for the rings, for another's, and for what the system keeps beside them.
pub(super) fn has_room(memory: &OsDir, options: &Options) -> bool {
    let lacking = SHARED.into_iter().filter(|of| !memory.path().join(ring(*of)).exists()).count();
    let space = plimsoll_sync::space(memory.path());
    let needed = (lacking as u64 + 1) * options.ring_bytes;
    lacking < SHARED.len() || space.is_ok_and(|space| space.free_bytes > needed)
}
