//! What lies where in the directory of a node (drawn in `mod.rs`), and the name that it was given.

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::Failed;
use crate::{random, whole};

/// The shard of what topics there are to be.
pub(crate) const CONTROL: u32 = 0;
/// The shard of groups.
pub(crate) const GROUPS: u32 = 1;
/// The shard of records that are synced in the background.
pub(crate) const SHARED: u32 = 2;
/// The shard of records that are durable before they are acknowledged.
pub(crate) const DURABLE: u32 = 3;

/// The directory of a shard's log.
pub(super) fn shard(number: u32) -> String {
    format!("shard-{number}")
}

/// The file with a shard's state.
pub(super) fn state(number: u32) -> String {
    format!("state-{number}")
}

/// The directory of a shard's chapters.
pub(super) fn chapters(number: u32) -> String {
    format!("chapters-{number}")
}

/// The id of the cluster, which is given to a directory that is new.
pub(super) fn cluster_id(dir: &dyn Dir) -> Result<String, Failed> {
    const NAME: &str = "cluster";
    let io = Failed::Directory;
    if let Some(file) = whole::open(dir, NAME).map_err(io)? {
        let mut bytes = [0; ID_DIGITS + CHECK_DIGITS + 1];
        let read = file.read_at(&mut bytes, 0).map_err(io)?;
        let id = cluster_in(&bytes[..read]).ok_or(Failed::Damaged(NAME.to_owned()))?;
        return Ok(id.to_owned());
    }
    let id = random::hex();
    let written = id.clone() + &check(&id);
    let fill =
        |file: &dyn File| file.write_sync_at(written.as_bytes(), 0, SyncMethod::ORDINARY).map(drop);
    whole::create(dir, NAME, fill).map_err(io)?;
    Ok(id)
}

const ID_DIGITS: usize = 32;
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
        let id = cluster_id(&dir).unwrap();
        assert_eq!(cluster_id(&dir).unwrap(), id);
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
        for dir in whole::killed_while(|dir| drop(cluster_id(dir).unwrap())) {
            let told = cluster_id(&dir).unwrap();
            for seed in 0..20 {
                assert_eq!(cluster_id(&dir.power_cut(seed)).unwrap(), told, "seed {seed}");
            }
        }
    }
}
