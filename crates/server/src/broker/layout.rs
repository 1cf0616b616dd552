//! What lies where in the directory of a node (drawn in `mod.rs`), and the name that it was given.

use std::io::ErrorKind;
use std::path::Path;

use plimsoll_sync::{Dir, File, OsDir, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::{self, Failed};
use crate::{random, whole};

/// The shard of what topics there are to be.
pub(crate) const CONTROL: u32 = 0;
/// The shard of groups.
pub(crate) const GROUPS: u32 = 1;
/// The shards of records that are synced in the background: so many that three nodes lead one each. Where a node is alone
/// all that comes goes into the first, and is synced together.
pub(crate) const SHARED: [u32; 3] = [2, 4, 6];
/// The shard of records that are durable before they are acknowledged: what waits for a disk waits together.
pub(crate) const DURABLE: u32 = 3;
/// The shards of records.
pub(crate) const RECORDS: [u32; 4] = [SHARED[0], DURABLE, SHARED[1], SHARED[2]];
/// All shards.
pub const SHARDS: [u32; 6] = [CONTROL, GROUPS, RECORDS[0], RECORDS[1], RECORDS[2], RECORDS[3]];
/// Shards of which something may be given to a node that lacks it: of control every log has all.
pub(crate) const GIVEN: [u32; 5] = [GROUPS, RECORDS[0], RECORDS[1], RECORDS[2], RECORDS[3]];

/// The id of a node that is alone.
pub(crate) const ALONE: u64 = 1;

/// The directory of a shard's log.
pub(crate) fn shard(number: u32) -> String {
    format!("shard-{number}")
}

/// The file with a shard's state.
pub(crate) fn state(number: u32) -> String {
    format!("state-{number}")
}

/// The directory of a shard's chapters.
pub(crate) fn chapters(number: u32) -> String {
    format!("chapters-{number}")
}

/// The directory of what is being given of a shard.
pub(crate) fn seed(number: u32) -> String {
    format!("seed-{number}")
}

/// The file that says how far that is.
pub(crate) fn seeded(number: u32) -> String {
    format!("seeded-{number}")
}

/// The directory of a shard's log, and snapshot, as they were found damaged.
pub(crate) fn damaged(number: u32) -> String {
    format!("damaged-{number}")
}

/// The file that says that a shard goes on after a loss.
pub(crate) fn loss(number: u32) -> String {
    format!("loss-{number}")
}

/// The file with the C and the D of a shard that were known a while ago.
pub(crate) fn known(number: u32) -> String {
    format!("known-{number}")
}

/// The file with the starts of other nodes that were met.
pub(super) const MET: &str = "met";

/// The id of the cluster.
const CLUSTER: &str = "cluster";
/// Says that an empty directory is to become a cluster that others are taken into. A directory that was lost has
/// it no more, so that no second cluster comes of it.
const FOUNDER: &str = "founder";
/// Says that a directory was new when it became a node of a cluster.
const MEMBER: &str = "member";
/// What a directory that was restored is called, where the id of its cluster does not tell it from another's.
const RESTORED: &str = "restored";
/// What stands in place of the id while a directory is restored: no broker starts there.
const RESTORING: &[u8] = b"a restore is not finished\n";

/// The id of the cluster, which is given to a directory that is new: that of the cluster that it is to be in, or
/// one that nobody had before.
pub(super) fn cluster_id(dir: &dyn Dir, wanted: Option<&str>) -> Result<String, Failed> {
    let io = Failed::Directory;
    if let Some(file) = whole::open(dir, CLUSTER).map_err(io)? {
        let found = id_in(&*file, CLUSTER)?;
        return match wanted {
            Some(wanted) if wanted != found => {
                Err(Failed::OtherCluster { found, wanted: wanted.to_owned() })
            }
            _ => Ok(found),
        };
    }
    // Drawn anew, it would not be found what memory has of them.
    if error::found(dir.open_dir(&shard(CONTROL)))?.is_some() {
        return Err(Failed::NoId);
    }
    if let Some(wanted) = wanted {
        write_id(dir, MEMBER, wanted).map_err(io)?;
    }
    let id = wanted.map_or_else(random::hex, str::to_owned);
    write_id(dir, CLUSTER, &id).map_err(io)?;
    Ok(id)
}

/// The same of a directory that a node may have open; `None` if it has none. Changes nothing.
pub(crate) fn look_for_cluster_id(dir: &dyn Dir) -> Result<Option<String>, Failed> {
    match dir.open(CLUSTER, SyncMethod::ORDINARY.access()) {
        Ok(file) => id_in(&*file, CLUSTER).map(Some),
        Err(why) if why.kind() == Some(ErrorKind::NotFound) => Ok(None),
        Err(why) => Err(Failed::Directory(why)),
    }
}

/// What its directory in memory is called: as the cluster, with the number of its node where that was never alone; of one that was restored by a name of its own, as the one that it
/// is a copy of may be on the same machine, or have left something there.
pub(super) fn memory_name(dir: &dyn Dir, cluster_id: &str, node: u64) -> Result<String, Failed> {
    if let Some(file) = whole::open(dir, RESTORED).map_err(Failed::Directory)? {
        return id_in(&*file, RESTORED);
    }
    let names = dir.list().map_err(Failed::Directory)?;
    let was_alone = !names.iter().any(|name| name == FOUNDER || name == MEMBER);
    Ok(if was_alone { cluster_id.to_owned() } else { format!("{cluster_id}-{node}") })
}

/// Makes a new directory the founder of a cluster: its id. Durable on return.
///
/// # Errors
/// [`Failed::Directory`]. [`Failed::Founded`]: something is there.
pub fn found(path: &Path) -> Result<String, Failed> {
    let dir = OsDir::create_all(path).map_err(Failed::Directory)?;
    if !dir.list().map_err(Failed::Directory)?.is_empty() {
        return Err(Failed::Founded(path.display().to_string()));
    }
    let id = random::hex();
    write_id(&dir, FOUNDER, &id).map_err(Failed::Directory)?;
    write_id(&dir, CLUSTER, &id).map_err(Failed::Directory)?;
    Ok(id)
}

/// Whether the cluster was founded here.
pub(super) fn is_founder(dir: &dyn Dir) -> Result<bool, Failed> {
    Ok(dir.list().map_err(Failed::Directory)?.iter().any(|name| name == FOUNDER))
}

/// Whether it was restored, once.
pub(super) fn is_restored(dir: &dyn Dir) -> Result<bool, Failed> {
    Ok(dir.list().map_err(Failed::Directory)?.iter().any(|name| name == RESTORED))
}

/// No broker starts in this directory before it is [restored](end_restore). Durable on return.
pub(crate) fn begin_restore(dir: &dyn Dir) -> Result<(), plimsoll_sync::Error> {
    let fill = |file: &dyn File| file.write_sync_at(RESTORING, 0, SyncMethod::ORDINARY).map(drop);
    whole::create(dir, CLUSTER, fill).map(drop)
}

/// From here on a broker starts in it. Durable on return.
pub(crate) fn end_restore(dir: &dyn Dir, cluster_id: &str) -> Result<(), plimsoll_sync::Error> {
    write_id(dir, RESTORED, &random::hex())?;
    write_id(dir, CLUSTER, cluster_id)
}

fn write_id(dir: &dyn Dir, name: &str, id: &str) -> Result<(), plimsoll_sync::Error> {
    let written = id.to_owned() + &check(id);
    let fill =
        |file: &dyn File| file.write_sync_at(written.as_bytes(), 0, SyncMethod::ORDINARY).map(drop);
    whole::create(dir, name, fill).map(drop)
}

fn id_in(file: &dyn File, name: &str) -> Result<String, Failed> {
    let mut bytes = [0; ID_DIGITS + CHECK_DIGITS + 1];
    let read = file.read_at(&mut bytes, 0).map_err(Failed::Directory)?;
    if bytes[..read] == *RESTORING {
        return Err(Failed::Unrestored);
    }
    let id = cluster_in(&bytes[..read]).ok_or(Failed::Damaged(name.to_owned()))?;
    Ok(id.to_owned())
}

/// How long the id of a cluster is.
pub(crate) const ID_DIGITS: usize = 32;
const CHECK_DIGITS: usize = 16;

/// The id of the cluster that stands in the file `cluster`, if that is what a broker wrote: 32 digits, and
/// behind them the 16 of their XXH3-64.
#[must_use]
pub fn cluster_in(file: &[u8]) -> Option<&str> {
    let (id, found) = std::str::from_utf8(file).ok()?.split_at_checked(ID_DIGITS)?;
    (found == check(id)).then_some(id)
}

fn check(id: &str) -> String {
    format!("{:0CHECK_DIGITS$x}", XxHash3_64::oneshot(id.as_bytes()))
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;

    use super::*;

    #[test]
    fn a_directory_keeps_its_id_and_never_takes_another_for_it() {
        let dir = SimDir::new();
        let id = cluster_id(&dir, None).unwrap();
        assert_eq!(cluster_id(&dir, None).unwrap(), id);
        // Another was drawn where it was gone, and nothing in memory was found any more.
        dir.create_dir(&shard(CONTROL)).unwrap();
        dir.remove(CLUSTER).unwrap();
        assert!(matches!(cluster_id(&dir, None), Err(Failed::NoId)));
        let written = id.clone() + &check(&id);
        for at in 0..written.len() {
            for digit in b"0f" {
                let mut changed = written.clone().into_bytes();
                changed[at] = if changed[at] == *digit { b'7' } else { *digit };
                assert_eq!(cluster_in(&changed), None, "digit {at}");
            }
            assert_eq!(cluster_in(&written.as_bytes()[..at]), None, "{at} digits");
        }
        assert_eq!(cluster_in(format!("{written}0").as_bytes()), None);
    }

    /// Clients that were told of one cluster would find another one there.
    #[test]
    fn the_id_of_a_cluster_that_was_told_is_the_same_after_a_power_cut() {
        for dir in whole::killed_while(|dir| drop(cluster_id(dir, None).unwrap())) {
            let told = cluster_id(&dir, None).unwrap();
            for seed in 0..20 {
                assert_eq!(cluster_id(&dir.power_cut(seed), None).unwrap(), told, "seed {seed}");
            }
        }
    }
}
