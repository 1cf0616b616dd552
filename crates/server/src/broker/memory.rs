//! What a node has in memory that outlives its process: the ring of the shard whose records are not waited for.

use std::io::ErrorKind;

use plimsoll_sync::{Access, Dir, OsDir, Overwrite};

use super::error::Failed;
use super::layout::memory_name;
use super::options::Options;

/// Half of it is the largest entry, which is 1 MiB and what stands around one.
pub(super) const RING_BYTES_MIN: u64 = 4 << 20;
/// The file in memory that holds what is not durable of the first of them.
pub(super) const RING: &str = "shard-2";

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

/// Takes the ring away, if there is one.
pub(super) fn forget_ring(memory: &OsDir) -> Result<(), Failed> {
    match memory.remove(RING) {
        Err(why) if why.kind() != Some(ErrorKind::NotFound) => Err(Failed::Directory(why)),
        _ => Ok(()),
    }
}

/// The size of the ring that is there: it may hold records, and is opened as it is or not at all.
pub(super) fn ring_left(memory: Option<&OsDir>) -> Option<u64> {
    let file = memory?.open(RING, Access::default()).ok()?;
    // A power of two, behind a head that is smaller.
    let ring_bytes = 1 << file.len().ok()?.checked_ilog2()?;
    Some(ring_bytes).filter(|bytes| *bytes >= RING_BYTES_MIN)
}

/// Whether that has room for a ring, for another's, and for what the system keeps beside them.
pub(super) fn has_room(memory: &OsDir, options: &Options) -> bool {
    let space = plimsoll_sync::space(memory.path());
    memory.path().join(RING).exists()
        || space.is_ok_and(|space| space.free_bytes > 2 * options.ring_bytes)
}
