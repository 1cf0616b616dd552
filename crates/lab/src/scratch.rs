//! The directory that a run writes in: checked before, removed after.
//!
//! Invariant: only the directory that was made here is ever removed, with the files in it and the
//! directory of brokers, if an experiment started some. This happens when the value is dropped: on every way out, unless the process is killed. For as long as it
//! lives, it is locked: so what a killed run left can be told ([`crate::leftovers`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_sync::{Dir, Lock, OsDir, Space, SyncMethod};

use crate::environment::Environment;
use crate::mount::Kind;

/// How the names of scratch directories begin; the process and a number follow.
const PREFIX: &str = ".plimsoll-lab-";
/// The file in it that names the process which holds its lock.
pub(crate) const LOCK: &str = "plimsoll-lab.lock";
/// The directory in it that brokers have for their data, which has directories of its own.
pub(crate) const BROKERS: &str = "brokers";
/// Where systems have memory as a directory: what brokers have there is in a directory of the same name.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";
/// One part in so many of the filesystem must stay free.
const KEEP_FREE: u64 = 10;
/// Of a large filesystem, so many bytes must stay free. Others who write there need room, not a
/// share of the disk, and the free space that is reported leaves out what is reserved.
const KEEP_FREE_AT_MOST: u64 = 4 << 30;

/// A directory of our own, inside the one that is measured.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    dir: OsDir,
    /// Held as long as files are written there. Absent where the filesystem has no locks.
    _lock: Option<Lock>,
}

/// Why nothing can be measured in a directory, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {reason}", directory.display())]
pub struct CannotRun {
    /// What cannot be done there, as in `cannot measure`.
    pub what: &'static str,
    /// The directory.
    pub directory: PathBuf,
    /// Why not, and what to do about it.
    pub reason: String,
}

impl Scratch {
    /// Where a run in `directory` would write. Touches nothing.
    #[must_use]
    pub(crate) fn planned(directory: &Path) -> PathBuf {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        directory.join(format!("{PREFIX}{}-{}", std::process::id(), now.subsec_nanos()))
    }

    /// Makes the directory `path`, which [`Self::planned`] named.
    pub(crate) fn create(path: PathBuf) -> Result<Self, CannotRun> {
        let parent = path.parent().unwrap_or(Path::new("."));
        let refused = |error: io::Error| CannotRun::because(parent, &cure(&error));
        fs::create_dir(&path).map_err(refused)?;
        let dir = OsDir::open(&path).map_err(|error| {
            fs::remove_dir(&path).ok();
            CannotRun::because(parent, &format!("the scratch directory cannot be opened: {error}"))
        })?;
        let lock = dir.lock(LOCK).ok();
        // Nothing of it is left to be written, and counted, while something is measured.
        let method = SyncMethod::ORDINARY;
        dir.open(LOCK, method.access()).and_then(|file| file.sync(method)).ok();
        Ok(Self { path, dir, _lock: lock })
    }

    /// A directory of the same name in `parent`: for what must not be on the disk that is measured.
    pub(crate) fn twin_in(parent: &Path, of: &Path) -> PathBuf {
        parent.join(of.file_name().unwrap_or_default())
    }

    /// The directory, as the seam sees it.
    #[must_use]
    pub(crate) fn dir(&self) -> &OsDir {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // No link is followed there. An experiment removes it itself; this is for one that failed.
        fs::remove_dir_all(self.path.join(BROKERS)).ok();
        let mut names = self.dir.list().unwrap_or_default();
        // Last, so that what a kill interrupts can be told for ours.
        names.sort_by_key(|name| name == LOCK);
        for name in names {
            // A file that cannot be removed stays, for its owner to see.
            fs::remove_file(self.path.join(name)).ok();
        }
        fs::remove_dir(&self.path).ok();
    }
}

impl CannotRun {
    pub(crate) fn because(directory: &Path, reason: &str) -> Self {
        let (directory, reason) = (directory.to_owned(), reason.to_owned());
        Self { what: "cannot measure in", directory, reason }
    }
}

/// Whether a scratch directory may have this name.
#[must_use]
pub(crate) fn is_name(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(process, nanos)| is_number(process) && is_number(nanos))
}

/// The absolute path of a directory that exists.
pub(crate) fn directory(path: &Path) -> Result<PathBuf, CannotRun> {
    let refused = |error: io::Error| CannotRun::because(path, &cure(&error));
    let directory = fs::canonicalize(path).map_err(refused)?;
    if directory.is_dir() {
        return Ok(directory);
    }
    Err(CannotRun::because(path, "it is not a directory; pass one with --dir"))
}

/// Refuses a place where measuring would mislead, or where `needed_bytes` would nearly fill the
/// disk.
pub(crate) fn check_place(environment: &Environment, needed_bytes: u64) -> Result<(), CannotRun> {
    let refuse = |reason: &str| Err(CannotRun::because(&environment.directory, reason));
    match environment.mount.as_ref().map(|mount| (mount.kind(), &mount.filesystem)) {
        Some((Kind::Memory, name)) => refuse(&format!(
            "it is on {name}, in memory: nothing there is durable, so a sync costs nothing and \
             promises nothing; choose a directory on a disk with --dir"
        ))?,
        Some((Kind::Overlay, name)) => refuse(&format!(
            "it is on {name}, as in a container: two filesystems lie under it, and the figures \
             would be of neither; choose a volume or a bind mount with --dir"
        ))?,
        Some((Kind::Network, name)) => refuse(&format!(
            "it is on {name}: what is durable is decided on another machine; run the lab there, \
             or choose a local directory with --dir"
        ))?,
        Some((Kind::Kernel, name)) => refuse(&format!(
            "it is on {name}, which is no filesystem of files on a disk; choose another with --dir"
        ))?,
        _ => {}
    }
    if environment.mount.as_ref().is_some_and(|mount| mount.has_option("ro")) {
        refuse("it is mounted read-only: remount it, or pass another with --dir")?;
    }
    match (environment.free_bytes, environment.total_bytes) {
        (Some(free_bytes), Some(total_bytes)) => {
            check_space(Space { total_bytes, free_bytes }, needed_bytes)
                .or_else(|reason| refuse(&reason))
        }
        _ => Ok(()),
    }
}

fn check_space(space: Space, needed_bytes: u64) -> Result<(), String> {
    let keep = (space.total_bytes / KEEP_FREE).min(KEEP_FREE_AT_MOST);
    if space.free_bytes >= needed_bytes.saturating_add(keep) {
        return Ok(());
    }
    Err(format!(
        "{} are free and the run writes {}; that would leave less than {} free, a tenth of the \
         filesystem but at most 4096 MiB; free some room, or choose another directory with --dir",
        mib(space.free_bytes),
        mib(needed_bytes),
        mib(keep)
    ))
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// What a user can do about a directory that cannot be used.
fn cure(error: &io::Error) -> String {
    let cure = match error.kind() {
        io::ErrorKind::NotFound => "create it, or pass another with --dir",
        io::ErrorKind::PermissionDenied => "run as its owner, or pass another with --dir",
        io::ErrorKind::ReadOnlyFilesystem => {
            "it is mounted read-only: remount it, or pass another with --dir"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some room, or pass another with --dir"
        }
        io::ErrorKind::NotADirectory => "pass a directory with --dir",
        _ => "pass another with --dir",
    };
    format!("{error}; {cure}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::Mount;

    fn on(filesystem: &str) -> Environment {
        let mount = Mount { filesystem: filesystem.to_owned(), ..Mount::default() };
        Environment { mount: Some(mount), ..Environment::default() }
    }

    #[test]
    fn a_place_where_nothing_is_durable_is_refused_with_a_cure() {
        for filesystem in ["tmpfs", "overlay", "nfs4"] {
            let refused = check_place(&on(filesystem), 0).unwrap_err().to_string();
            assert!(refused.contains(filesystem) && refused.contains("--dir"), "{refused}");
        }
        check_place(&on("ext4"), 0).unwrap();
    }

    #[test]
    fn a_tenth_of_the_filesystem_stays_free() {
        let space = Space { total_bytes: 1000 << 20, free_bytes: 300 << 20 };
        check_space(space, 200 << 20).unwrap();
        let refused = check_space(space, 201 << 20).unwrap_err();
        assert!(refused.contains("300 MiB") && refused.contains("201 MiB"), "{refused}");
        check_space(space, u64::MAX).unwrap_err();
    }

    /// A tenth of 252 GiB was asked for, and a run of 17 MiB refused with 23 GiB free: a machine
    /// that reserves most of its disk could not pass the tests.
    #[test]
    fn a_large_filesystem_need_not_keep_a_tenth_free() {
        let space = Space { total_bytes: 252 << 30, free_bytes: 23 << 30 };
        check_space(space, 17 << 20).unwrap();
        check_space(space, 19 << 30).unwrap();
        check_space(space, (19 << 30) + 1).unwrap_err();
    }

    #[test]
    fn only_what_was_made_is_removed() {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("precious"), b"kept").unwrap();
        let scratch = Scratch::create(Scratch::planned(tmp.path())).unwrap();
        scratch.dir().create("made", plimsoll_sync::Access::default()).unwrap();
        drop(scratch);
        let left: Vec<_> = fs::read_dir(tmp.path()).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left, [tmp.path().join("precious")]);
    }

    #[test]
    fn what_brokers_left_goes_with_the_directory() {
        let tmp = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(Scratch::planned(tmp.path())).unwrap();
        let data = scratch.dir().path().join(BROKERS).join("one").join("data-1");
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("segment"), "12345").unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_scratch_directory_has_a_name_that_nothing_else_has() {
        let planned = Scratch::planned(Path::new("/"));
        assert!(is_name(planned.file_name().unwrap().to_str().unwrap()));
        for other in
            ["plimsoll-lab-1-2", ".plimsoll-lab-1", ".plimsoll-lab-1-x", ".plimsoll-lab--2"]
        {
            assert!(!is_name(other), "{other}");
        }
    }

    #[test]
    fn a_missing_directory_is_refused_with_a_cure() {
        let refused = directory(Path::new("/no/such/place")).unwrap_err().to_string();
        assert!(refused.contains("/no/such/place") && refused.contains("--dir"), "{refused}");
    }
}
