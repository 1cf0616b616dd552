//! What is kept of a shard whose disk has lost some of it, in `damaged-N`: its log as it was found, and its snapshot where nothing of it
//! could be used. It goes once the replica has caught up. After an operator's decision it stays: it may have what nobody else has.

use std::io::ErrorKind;

use plimsoll_sync::{Dir, SyncMethod};

use super::aside::ASIDE;
use super::error::{Failed, found};
use super::layout;
use crate::whole;

/// Says, among what was kept of a log, that it was decided to go on without it.
const DECIDED: &str = "decided";
/// Says there that the shard began anew.
const ANEW_MARK: &str = "anew";
/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

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

/// Copies all that files have of a shard beside its chapters: nothing of it can be used. Durable on return.
pub(super) fn keep_all(root: &dyn Dir, number: u32) -> plimsoll_sync::Result<()> {
    keep_beside(root, number)?;
    let kept = root.create_dir(&layout::damaged(number))?;
    let there = kept.list()?;
    keep_one(root, &layout::state(number), &*kept, &there)?;
    if !there.iter().any(|name| name == ANEW_MARK) {
        kept.create(ANEW_MARK, SyncMethod::ORDINARY.access())?;
    }
    Ok(())
}

/// Copies the files of a log. What was kept before stays as it is, and a file with the name of one of these gets a number behind it. Durable on
/// return.
pub(super) fn keep_beside(root: &dyn Dir, number: u32) -> plimsoll_sync::Result<()> {
    let log = root.open_dir(&layout::shard(number))?;
    let kept = root.create_dir(&layout::damaged(number))?;
    let there = kept.list()?;
    let names = log.list()?.into_iter().filter(|name| !name.ends_with(ASIDE));
    names.into_iter().try_for_each(|name| keep_one(&*log, &name, &*kept, &there))
}

fn keep_one(
    from: &dyn Dir,
    name: &str,
    kept: &dyn Dir,
    there: &[String],
) -> plimsoll_sync::Result<()> {
    let numbered = (2..).map(|nth| format!("{name}.{nth}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !there.contains(name)).expect("there is no end of numbers");
    // An attempt before this one may have copied it.
    let is_it = |there: &&String| there.starts_with(name) && is_same(from, name, kept, there);
    match there.iter().find(is_it) {
        Some(_) => Ok(()),
        None => copy(from, name, kept, &free),
    }
}

/// Whether a shard is marked as one that began anew, and has not caught up with a leader since: a copy of what another has says
/// nothing that this one had.
pub(super) fn began_anew(root: &dyn Dir, number: u32) -> Result<bool, Failed> {
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
pub(super) fn keep(
    root: &dyn Dir,
    log: &dyn Dir,
    number: u32,
    is_kept: bool,
) -> plimsoll_sync::Result<()> {
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
    fn who_has_caught_up_has_not_begun_anew_whatever_else_is_kept() {
        let root = SimDir::new();
        write(&*root.create_dir("shard-2").unwrap(), "segment", b"first");
        caught_up(&root, 2).unwrap();
        keep_all(&root, 2).unwrap();
        assert!(began_anew(&root, 2).unwrap());
        caught_up(&root, 2).unwrap();
        assert!(!began_anew(&root, 2).unwrap());
        assert_eq!(names(&*root.open_dir("damaged-2").unwrap()), ["segment"]);
    }
}
