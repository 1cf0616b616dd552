//! [`doubts_of`]: why a broker may lack something that its cluster has, as the files in its directory say, whether it
//! runs or not. Nothing is changed.

use std::collections::BTreeMap;

use plimsoll_sync::Dir;

use super::aside::ASIDE;
use super::error::{Failed, found};
use super::known::Known;
use super::layout;
use super::seeded::Stage;
use crate::run::{Mark, State};

/// The D of each shard, as the broker in a directory noted it last.
pub(crate) fn durable_of(dir: &dyn Dir) -> BTreeMap<u32, u64> {
    let durable = |number| Some((number, Known::read(dir, number)?.durable));
    layout::SHARDS.into_iter().filter_map(durable).collect()
}

/// Why a broker may lack something, given what it had [noted](durable_of), and where the log of each of its shards ended later.
pub(crate) fn doubts_of(
    dir: &dyn Dir,
    known: &BTreeMap<u32, u64>,
    ends: &BTreeMap<u32, u64>,
) -> Result<Vec<String>, Failed> {
    let names = dir.list().map_err(Failed::Directory)?;
    let has = |name: &str| names.iter().any(|found| found == name);
    let mut doubts = Vec::new();
    if Mark::look(dir).is_some_and(|mark| mark.state == State::Doubtful) {
        doubts.push(
            "it may have forgotten records that it acknowledged, and has not got them back from the others"
                .to_owned(),
        );
    }
    for (number, end) in ends {
        let stage = if has(&layout::seeded(*number)) { Stage::read(dir, *number)? } else { None };
        if stage == Some(Stage::Forgot) {
            doubts.push(format!(
                "it may have forgotten records of shard {number} that it acknowledged, and has not got them back from the \
                 others"
            ));
        } else if stage.is_some() || is_being_given(dir, *number)? {
            doubts.push(format!("shard {number} is being given to it by another broker"));
        }
        if let Some(durable) = known.get(number).filter(|durable| *durable > end) {
            doubts.push(format!(
                "its log of shard {number} ends at entry {end}, and a majority has all up to {durable}"
            ));
        }
    }
    Ok(doubts)
}

/// Whether anything of a shard is there that another broker has given. The directories stay, once they are made.
fn is_being_given(dir: &dyn Dir, number: u32) -> Result<bool, Failed> {
    let Some(given) = found(dir.open_dir(&layout::seed(number)))? else { return Ok(false) };
    if !given.list().map_err(Failed::Directory)?.is_empty() {
        return Ok(true);
    }
    if let Some(manifest) = found(given.open_dir(&layout::chapters(number)))?
        && !manifest.list().map_err(Failed::Directory)?.is_empty()
    {
        return Ok(true);
    }
    let Some(log) = found(dir.open_dir(&layout::shard(number)))? else { return Ok(false) };
    Ok(log.list().map_err(Failed::Directory)?.iter().any(|name| name.ends_with(ASIDE)))
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;

    use super::*;

    #[test]
    fn a_replica_that_is_behind_or_being_seeded_is_called_so() {
        let dir = SimDir::new();
        let ends = BTreeMap::from([(2, 9), (3, 5)]);
        assert_eq!(doubts_of(&dir, &durable_of(&dir), &ends).unwrap(), [""; 0]);
        Known::of(12, 9, 9).write(&dir, 2).unwrap();
        assert_eq!(
            doubts_of(&dir, &durable_of(&dir), &ends).unwrap(),
            [""; 0],
            "it has all that is durable"
        );
        Known::of(12, 10, 9).write(&dir, 2).unwrap();
        dir.create_dir("seed-3").unwrap();
        let shard = dir.create_dir("shard-3").unwrap();
        assert_eq!(
            doubts_of(&dir, &durable_of(&dir), &ends).unwrap().len(),
            1,
            "what was given is gone from there"
        );
        shard.create("identity.seed", plimsoll_sync::Access::default()).unwrap();
        let said = doubts_of(&dir, &durable_of(&dir), &ends).unwrap();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("ends at entry 9") && said[0].contains("up to 10"), "{said:?}");
        assert!(said[1].contains("shard 3 is being given"), "{said:?}");
    }
}
