//! [`recover`]: what a disk has lost of a log, and is met at the start.
//!
//! While a replica runs, a damaged record of its log is healed by another's (`cluster/heal.rs`). At its start nobody can be asked: the
//! engine must first have read what follows its snapshot. So the log is cut before the first entry that is damaged, and the
//! replica is in doubt like any that may have forgotten what it acknowledged: it gets the rest back from the others before it
//! votes, and if too many are in doubt at once, an operator is asked. That is where others vote by what stays of the log and by all of it that
//! can be read, and for damage behind the snapshot and what is in chapters. Otherwise it is an error.
//!
//! Nothing is destroyed before that: the log is copied into `damaged-N`, as it was found, which goes once the replica has caught up. After
//! an operator's decision it stays: it may have what nobody else has.

use std::io::ErrorKind;
use std::sync::Arc;

use plimsoll_sync::{Dir, SyncMethod};

use super::anew::{self, ANEW};
use super::aside::ASIDE;
use super::error::Failed;
use super::known;
use super::layout::{self, SHARED};
use super::seeded::{Stage, found};
use crate::cluster::{self, Recovered};
use crate::whole;

/// Why the replica of a shard is in doubt whose log was cut off.
const DAMAGED: &str =
    "its disk has lost entries that it had called durable, and it has not got them back";
/// Says, among what was kept of a log, that it was decided to go on without it.
const DECIDED: &str = "decided";
/// Says there that the shard began anew.
const ANEW_MARK: &str = "anew";
/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// What a disk has lost of a shard, as a start finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// All from this entry on, as the shard counts: it was cut off.
    From(u64),
    /// Nothing can be used: it begins anew.
    All,
}

impl Lost {
    /// Why its replica is in doubt.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::From(_) => DAMAGED,
            Self::All => ANEW,
        }
    }
}

/// The same, of a start: a part of a sentence.
pub(super) fn said((number, lost): (&u32, &Lost)) -> String {
    let entry = match lost {
        Lost::From(entry) => entry,
        Lost::All => return anew::said(*number),
    };
    format!(
        "; the disk has lost entries of shard {number} from {entry} on that it had called durable: the shard is in \
         doubt until the other brokers have given them back, and what was found is kept in {} until then",
        layout::damaged(*number)
    )
}

/// What is found of a log, and what was cut off of it as its disk had lost that. The chapters have the first
/// `settled` entries.
pub(super) fn recover(
    root: &Arc<dyn Dir>,
    number: u32,
    options: &cluster::Options,
    settled: u64,
) -> Result<(Recovered, Option<Lost>), Failed> {
    let failed = |why| Failed::Shard { number, why };
    let dir = root.open_dir(&layout::shard(number)).map_err(Failed::Directory)?;
    let start = options.start.as_ref();
    let is_behind_the_rest =
        |lost: u64| lost >= settled && start.is_none_or(|start| start.index() < lost);
    let others_have_it =
        |lost: u64| cluster::others_vote(&dir, start, options.node, lost).map_err(failed);
    let mut cut = None;
    // What ends before its snapshot or its chapters is called so by whoever opens it.
    let missed = missed(&**root, number, &dir)?.filter(|(end, _)| is_behind_the_rest(*end));
    if let Some((end, durable)) = missed {
        if !others_have_it(end)? {
            return Err(Failed::TooShort { number, end, durable });
        }
        tracing::warn!(shard = number, entry = end + 1, "its log ends before what was durable");
        give_up(root, number, options.clone(), end)?;
        cut = Some(end);
    }
    loop {
        let why = match read_all(&dir, options) {
            // The shard counts from 1.
            Ok(recovered) => return Ok((recovered, cut.map(|cut| Lost::From(cut + 1)))),
            Err(cluster::Error::Gap { first_index, wanted: 0, .. }) if start.is_none() => {
                return Err(Failed::NoSnapshot { number, first: first_index + 1 });
            }
            Err(why) => why,
        };
        // What was cut off is not met again.
        let lost = why.damaged_from().filter(|lost| cut.is_none_or(|cut| *lost < cut));
        match lost {
            Some(lost) if is_behind_the_rest(lost) && others_have_it(lost)? => {
                tracing::warn!(shard = number, entry = lost + 1, %why, "its log is cut off there");
                give_up(root, number, options.clone(), lost)?;
                cut = Some(lost);
            }
            _ => return Err(failed(why)),
        }
    }
}

/// Where the files of a log end, if that is before what this node had noted to be durable here: to the log that looks like a
/// write that was not finished. And what was noted. Of the shards that are synced behind their acknowledgements the run knows more.
fn missed(root: &dyn Dir, number: u32, log: &Arc<dyn Dir>) -> Result<Option<(u64, u64)>, Failed> {
    if SHARED.contains(&number) || Stage::read(root, number)?.is_some() {
        return Ok(None);
    }
    let Some((_, durable)) = known::read(root, number) else { return Ok(None) };
    let end = cluster::end_of(log).ok().filter(|end| *end < durable);
    Ok(end.map(|end| (end, durable)))
}

/// What is found of a log, once all that the engine reads first was read. Who is alone by its snapshot has nobody to get anything
/// from, and its engine says what is damaged.
fn read_all(dir: &Arc<dyn Dir>, options: &cluster::Options) -> cluster::Result<Recovered> {
    let recovered = Recovered::open(dir, options.clone())?;
    if options.start.as_ref().is_none_or(|start| start.has_others(options.node)) {
        recovered.check_readable()?;
    }
    Ok(recovered)
}

/// Cuts the log of a shard off before this entry. Its replica is in doubt then. Durable on return.
fn give_up(
    root: &Arc<dyn Dir>,
    number: u32,
    options: cluster::Options,
    damaged: u64,
) -> Result<(), Failed> {
    let log = root.open_dir(&layout::shard(number)).map_err(Failed::Directory)?;
    // What is found while it is in doubt was cut off before, or begun to be.
    let is_kept = Stage::read(&**root, number)?.is_some();
    keep(&**root, &*log, number, is_kept).map_err(Failed::Directory)?;
    Stage::Forgot.write(&**root, number)?;
    cluster::cut_from(&log, options, damaged).map_err(|why| Failed::Shard { number, why })
}

/// The replica has caught up: what was kept is not needed any more, unless it was decided to go on without.
pub(super) fn forget(root: &dyn Dir, number: u32) -> Result<(), Failed> {
    let Some(kept) = found(root.open_dir(&layout::damaged(number)))? else { return Ok(()) };
    let names = kept.list().map_err(Failed::Directory)?;
    if names.iter().any(|name| name == DECIDED) {
        return Ok(());
    }
    names.iter().try_for_each(|name| kept.remove(name).map_err(Failed::Directory))
}

/// It was decided to go on, whoever has what the disk has lost: what was kept of a log stays. Durable on return.
pub(super) fn stays(root: &dyn Dir, number: u32) -> Result<(), Failed> {
    let Some(kept) = found(root.open_dir(&layout::damaged(number)))? else { return Ok(()) };
    let names = kept.list().map_err(Failed::Directory)?;
    if names.is_empty() || names.iter().any(|name| name == DECIDED) {
        return Ok(());
    }
    kept.create(DECIDED, SyncMethod::ORDINARY.access()).map(drop).map_err(Failed::Directory)
}

/// Copies all that files have of a shard beside its chapters: nothing of it can be used. What was kept before stays as it is, and a file
/// with the name of one of these gets a number behind it. Durable on return.
pub(super) fn keep_all(root: &dyn Dir, number: u32) -> plimsoll_sync::Result<()> {
    let log = root.open_dir(&layout::shard(number))?;
    let kept = root.create_dir(&layout::damaged(number))?;
    let there = kept.list()?;
    let free = |name: &str| {
        let numbered = (2..).map(|nth| format!("{name}.{nth}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        names.find(|name| !there.contains(name)).expect("there is no end of numbers")
    };
    let keep = |from: &dyn Dir, name: &str| {
        // An attempt before this one may have copied it.
        let is_it = |there: &&String| there.starts_with(name) && is_same(from, name, &*kept, there);
        match there.iter().find(is_it) {
            Some(_) => Ok(()),
            None => copy(from, name, &*kept, &free(name)),
        }
    };
    for name in log.list()?.into_iter().filter(|name| !name.ends_with(ASIDE)) {
        keep(&*log, &name)?;
    }
    keep(root, &layout::state(number))?;
    if !there.iter().any(|name| name == ANEW_MARK) {
        kept.create(ANEW_MARK, SyncMethod::ORDINARY.access())?;
    }
    Ok(())
}

/// Whether a shard began anew, and has not caught up with a leader since: a copy of what another has says nothing that this one had.
pub(super) fn began_anew(root: &dyn Dir, number: u32) -> Result<bool, Failed> {
    if Stage::read(root, number)?.is_none() {
        // It began nothing, or was ended in between.
        return caught_up(root, number).map(|()| false);
    }
    let Some(kept) = found(root.open_dir(&layout::damaged(number)))? else { return Ok(false) };
    let names = kept.list().map_err(Failed::Directory)?;
    Ok(names.iter().any(|name| name == ANEW_MARK))
}

/// From here on the replica of a shard has what it needs to say what the shard has. Durable on return.
pub(super) fn caught_up(root: &dyn Dir, number: u32) -> Result<(), Failed> {
    let Some(kept) = found(root.open_dir(&layout::damaged(number)))? else { return Ok(()) };
    found(kept.remove(ANEW_MARK)).map(drop)
}

/// Copies the files of a log, but for those that were kept while it is in doubt, or as it was decided to go on without them. Durable
/// on return.
fn keep(root: &dyn Dir, log: &dyn Dir, number: u32, is_kept: bool) -> plimsoll_sync::Result<()> {
    let kept = root.create_dir(&layout::damaged(number))?;
    let mut there = kept.list()?;
    if !is_kept && !there.iter().any(|name| name == DECIDED) {
        there.clear();
    }
    log.list()?
        .into_iter()
        .filter(|name| !name.ends_with(ASIDE) && !there.contains(name))
        .try_for_each(|name| copy(log, &name, &*kept, &name))
}

/// Whether two files can be read and have the same bytes.
fn is_same(from: &dyn Dir, name: &str, to: &dyn Dir, as_name: &str) -> bool {
    let opened = |dir: &dyn Dir, name| dir.open(name, SyncMethod::ORDINARY.access()).ok();
    let Some((one, other)) = opened(from, name).zip(opened(to, as_name)) else { return false };
    let (mut ones, mut others, mut at) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES], 0);
    if one.len().ok() != other.len().ok() {
        return false;
    }
    loop {
        let read = (one.read_at(&mut ones, at).ok(), other.read_at(&mut others, at).ok());
        let (Some(read), Some(same)) = read else { return false };
        if read != same || ones[..read] != others[..read] {
            return false;
        }
        if read == 0 {
            return true;
        }
        at += read as u64;
    }
}

/// Copies a file, if it is there, to one of this name. Durable on return.
fn copy(from: &dyn Dir, name: &str, to: &dyn Dir, as_name: &str) -> plimsoll_sync::Result<()> {
    let from = match from.open(name, SyncMethod::ORDINARY.access()) {
        Err(why) if why.kind() == Some(ErrorKind::NotFound) => return Ok(()),
        opened => opened?,
    };
    let mut piece = vec![0; PIECE_BYTES];
    let written = whole::create(to, as_name, |to| {
        let mut at = 0;
        loop {
            // What cannot be read at all is zeros in the copy.
            let read = from.read_at(&mut piece, at).or_else(|why| match at < from.len()? {
                true => {
                    piece.fill(0);
                    tracing::warn!(file = name, at, %why, "what cannot be read is not kept");
                    Ok(usize::try_from(from.len()? - at).unwrap_or(usize::MAX).min(PIECE_BYTES))
                }
                false => Err(why),
            })?;
            if read == 0 {
                return to.sync(SyncMethod::ORDINARY).map(drop);
            }
            to.write_at(&piece[..read], at)?;
            at += read as u64;
        }
    });
    written.map(drop)
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;

    use super::*;

    fn write(dir: &dyn Dir, name: &str, bytes: &[u8]) {
        let file = dir.create(name, SyncMethod::ORDINARY.access()).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    /// The end of a later doubt took it away, or a later copy took its place.
    #[test]
    fn what_was_kept_when_it_was_decided_to_go_on_without_it_stays() {
        let root = SimDir::new();
        let log = root.create_dir("shard-2").unwrap();
        write(&*log, "segment", b"first");
        keep(&root, &*log, 2, false).unwrap();
        let kept = root.open_dir("damaged-2").unwrap();
        stays(&root, 2).unwrap();
        write(&*log, "another", b"later");
        log.remove("segment").unwrap();
        write(&*log, "segment", b"later");
        keep(&root, &*log, 2, false).unwrap();
        forget(&root, 2).unwrap();
        assert_eq!(kept.list().unwrap(), ["another", DECIDED, "segment"]);
        let mut bytes = [0; 5];
        kept.open("segment", SyncMethod::ORDINARY.access())
            .unwrap()
            .read_at(&mut bytes, 0)
            .unwrap();
        assert_eq!(&bytes, b"first");
        // Nothing was decided of this one.
        write(&*root.create_dir("shard-3").unwrap(), "segment", b"first");
        keep(&root, &*root.open_dir("shard-3").unwrap(), 3, false).unwrap();
        forget(&root, 3).unwrap();
        assert!(root.open_dir("damaged-3").unwrap().list().unwrap().is_empty());
    }

    fn names(kept: &dyn Dir) -> Vec<String> {
        let mut names = kept.list().unwrap();
        names.sort();
        names
    }

    /// What was kept was left out where it had the name of something that was kept before, and an attempt that was interrupted
    /// would have copied all of it again.
    #[test]
    fn all_of_a_shard_is_kept_once_beside_what_was_kept_before() {
        let root = SimDir::new();
        let log = root.create_dir("shard-2").unwrap();
        write(&*log, "segment", b"first");
        keep(&root, &*log, 2, false).unwrap();
        log.remove("segment").unwrap();
        write(&*log, "segment", b"later");
        write(&root, "state-2", b"state");
        let kept = root.open_dir("damaged-2").unwrap();
        for _ in 0..2 {
            keep_all(&root, 2).unwrap();
            assert_eq!(names(&*kept), [ANEW_MARK, "segment", "segment.2", "state-2"]);
        }
        let later = kept.open("segment.2", SyncMethod::ORDINARY.access()).unwrap();
        let mut bytes = [0; 6];
        let read = later.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..read], b"later");
    }

    /// It stayed where the end of a doubt was interrupted: after a later loss the replica would not have counted.
    #[test]
    fn a_mark_of_a_doubt_that_has_ended_is_nothing_and_goes() {
        let root = SimDir::new();
        write(&*root.create_dir("shard-2").unwrap(), "segment", b"first");
        keep_all(&root, 2).unwrap();
        Stage::Anew.write(&root, 2).unwrap();
        assert!(began_anew(&root, 2).unwrap());
        crate::broker::seeded::trust(&root, 2).unwrap();
        assert!(!began_anew(&root, 2).unwrap());
        Stage::Forgot.write(&root, 2).unwrap();
        assert!(!began_anew(&root, 2).unwrap());
    }
}
