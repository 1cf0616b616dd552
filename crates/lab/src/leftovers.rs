//! What runs that were killed left behind, and its removal.
//!
//! Invariant: a directory is removed only if its name is one of the lab's, it is a directory and no link
//! to one, the lab's lock file is in it and nobody holds the lock, and it holds nothing but regular files
//! and the directory of brokers. The lock is held while they are removed, and no link is followed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_sync::{Dir, Error as SyncError, OsDir};

use crate::scratch::{self, BROKERS, CannotRun, LOCK};

/// A scratch directory that a killed run left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Where it is, or was.
    pub path: PathBuf,
    /// Files in it.
    pub files: u64,
    /// Their length together.
    pub bytes: u64,
}

/// A directory with the name of a scratch directory that is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// Whether a run is using it.
    pub in_use: bool,
    /// Why it is left alone, and what to do.
    pub reason: String,
}

/// What was found in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// What was removed, or would be.
    pub removed: Vec<Leftover>,
    /// What was not.
    pub kept: Vec<Kept>,
}

impl Cleaned {
    /// Length of all files that were removed, or would be.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.removed.iter().map(|left| left.bytes).sum()
    }
}

/// Removes what killed runs left in `directory`; in a dry run, nothing.
pub fn clean(directory: &Path, dry_run: bool) -> Result<Cleaned, CannotRun> {
    let directory = scratch::directory(directory)?;
    let refused =
        |error: io::Error| CannotRun::because(&directory, &format!("it cannot be listed: {error}"));
    let mut paths = Vec::new();
    for entry in fs::read_dir(&directory).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        // The type of the entry itself: a link is no directory.
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && entry.file_name().to_str().is_some_and(scratch::is_name) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let mut cleaned = Cleaned::default();
    for path in paths {
        match clean_one(&directory, &path, dry_run) {
            Ok(left) => cleaned.removed.push(left),
            Err(kept) => cleaned.kept.push(kept),
        }
    }
    Ok(cleaned)
}

fn clean_one(directory: &Path, path: &Path, dry_run: bool) -> Result<Leftover, Kept> {
    let keep = |in_use: bool, reason: String| Kept { path: path.to_owned(), in_use, reason };
    let failed = |error: SyncError| match error {
        SyncError::Locked { holder: Some(process), .. } => {
            keep(true, format!("a run is using it (process {process})"))
        }
        SyncError::Locked { holder: None, .. } => keep(true, "a run is using it".to_owned()),
        error => keep(false, format!("{error}; look at it, and remove it yourself")),
    };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // Found by its name in the directory, where no link is followed.
    let dir = OsDir::open(directory).and_then(|parent| parent.open_dir(name)).map_err(failed)?;
    let names = dir.list().map_err(failed)?;
    if !names.iter().any(|name| name == LOCK) {
        let reason = "it has no lock file, so nothing shows that the lab made it: look at it, and remove \
                      it yourself";
        return Err(keep(false, reason.to_owned()));
    }
    let brokers = path.join(BROKERS);
    // A link of that name is a stranger.
    let has_brokers = fs::symlink_metadata(&brokers).is_ok_and(|found| found.is_dir());
    dir.refuse_strangers(&|name| !(has_brokers && name == BROKERS)).map_err(failed)?;
    let length = |name: &String| fs::symlink_metadata(path.join(name)).map_or(0, |file| file.len());
    let unreadable =
        |error: io::Error| keep(false, format!("{error}; look at it, and remove it yourself"));
    let of_brokers = if has_brokers { held(&brokers).map_err(unreadable)? } else { (0, 0) };
    let left = Leftover {
        path: path.to_owned(),
        files: names.len() as u64 + of_brokers.0,
        bytes: names.iter().map(length).sum::<u64>() + of_brokers.1,
    };
    if dry_run {
        OsDir::open(path).and_then(|dir| dir.check_unlocked(LOCK)).map_err(failed)?;
        return Ok(left);
    }
    let _lock = dir.lock(LOCK).map_err(failed)?;
    // The lock file goes last: what is stopped half-way can be cleaned again.
    if has_brokers {
        fs::remove_dir_all(&brokers).map_err(unreadable)?;
    }
    let (lock, files): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| *name == LOCK);
    files.into_iter().chain(lock).try_for_each(|name| dir.remove(name)).map_err(failed)?;
    fs::remove_dir(path).map_err(unreadable)?;
    Ok(left)
}

/// How many files are in a directory and those below it, and their length together. A link counts as a
/// file.
fn held(directory: &Path) -> io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let more = match entry.file_type()?.is_dir() {
            true => held(&entry.path())?,
            false => (1, entry.metadata()?.len()),
        };
        files += more.0;
        bytes += more.1;
    }
    Ok((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// What a killed run leaves, with three more bytes.
    fn left_in(directory: &Path, name: &str) -> PathBuf {
        let path = directory.join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join(LOCK), "4242\n").unwrap();
        fs::write(path.join("writer-0"), "abc").unwrap();
        path
    }

    #[test]
    fn what_a_killed_run_left_is_removed_and_told_with_its_bytes() {
        let tmp = tempfile::tempdir().unwrap();
        let directory = fs::canonicalize(tmp.path()).unwrap();
        let path = left_in(&directory, ".plimsoll-lab-4242-1");
        fs::write(directory.join("precious"), "kept").unwrap();
        let left = Leftover { path: path.clone(), files: 2, bytes: 8 };
        let dry = clean(&directory, true).unwrap();
        assert_eq!((&dry.removed[..], dry.bytes()), (&[left][..], 8));
        assert!(path.join("writer-0").exists(), "a dry run removes nothing");
        assert_eq!(fs::read(path.join(LOCK)).unwrap(), b"4242\n", "and changes nothing");
        assert_eq!(clean(&directory, false).unwrap(), dry);
        assert!(!path.exists() && directory.join("precious").exists());
        assert_eq!(clean(&directory, false).unwrap(), Cleaned::default());
    }

    #[test]
    fn a_run_that_is_alive_is_left_alone() {
        let tmp = tempfile::tempdir().unwrap();
        let living = Scratch::create(Scratch::planned(tmp.path())).unwrap();
        for dry_run in [true, false] {
            let cleaned = clean(tmp.path(), dry_run).unwrap();
            let us = format!("a run is using it (process {})", std::process::id());
            assert!(cleaned.removed.is_empty(), "{cleaned:?}");
            assert_eq!((cleaned.kept[0].in_use, &cleaned.kept[0].reason), (true, &us));
        }
        drop(living);
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_known_to_be_the_labs_is_left_alone() {
        let tmp = tempfile::tempdir().unwrap();
        let directory = tmp.path();
        fs::create_dir(directory.join(".plimsoll-lab-1-1")).unwrap();
        fs::write(directory.join(".plimsoll-lab-1-1/writer-0"), "no lock file").unwrap();
        fs::create_dir(left_in(directory, ".plimsoll-lab-1-2").join("a directory")).unwrap();
        left_in(directory, "plimsoll-lab-1-3");
        left_in(directory, ".plimsoll-lab-mine");
        let cleaned = clean(directory, false).unwrap();
        assert!(cleaned.removed.is_empty(), "{cleaned:?}");
        let reasons: Vec<&str> = cleaned.kept.iter().map(|kept| kept.reason.as_str()).collect();
        assert!(reasons[0].contains("no lock file"), "{reasons:?}");
        assert!(reasons[1].contains("a directory") && reasons.len() == 2, "{reasons:?}");
        assert_eq!(fs::read_dir(directory).unwrap().count(), 4);
        assert!(directory.join(".plimsoll-lab-1-2/writer-0").exists());
    }

    #[test]
    fn what_brokers_of_a_killed_run_had_is_removed_and_counted() {
        let tmp = tempfile::tempdir().unwrap();
        let directory = fs::canonicalize(tmp.path()).unwrap();
        let path = left_in(&directory, ".plimsoll-lab-4242-1");
        let data = path.join(BROKERS).join("three").join("data-1");
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("segment"), "12345").unwrap();
        let left = [Leftover { path: path.clone(), files: 3, bytes: 13 }];
        assert_eq!(clean(&directory, true).unwrap().removed, left);
        assert!(data.exists(), "a dry run removes nothing");
        assert_eq!(clean(&directory, false).unwrap().removed, left);
        assert!(!path.exists());
    }

    #[test]
    #[cfg(unix)]
    fn a_link_in_place_of_what_brokers_had_is_a_stranger() {
        let (tmp, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("precious"), "kept").unwrap();
        let path = left_in(tmp.path(), ".plimsoll-lab-1-1");
        std::os::unix::fs::symlink(elsewhere.path(), path.join(BROKERS)).unwrap();
        let cleaned = clean(tmp.path(), false).unwrap();
        assert!(cleaned.removed.is_empty() && !cleaned.kept[0].in_use, "{cleaned:?}");
        // A link further down is removed, and what it leads to is not.
        fs::remove_file(path.join(BROKERS)).unwrap();
        fs::create_dir(path.join(BROKERS)).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), path.join(BROKERS).join("link")).unwrap();
        assert_eq!(clean(tmp.path(), false).unwrap().removed.len(), 1);
        assert!(elsewhere.path().join("precious").exists());
    }

    #[test]
    #[cfg(unix)]
    fn a_link_to_a_leftover_is_not_followed() {
        let (tmp, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let real = left_in(elsewhere.path(), ".plimsoll-lab-1-1");
        std::os::unix::fs::symlink(&real, tmp.path().join(".plimsoll-lab-1-1")).unwrap();
        assert_eq!(clean(tmp.path(), false).unwrap(), Cleaned::default());
        assert!(real.join("writer-0").exists());
    }
}
