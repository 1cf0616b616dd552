//! Locks: of a directory, with the file in it that says who holds it, and of a [single file](of_file).
//!
//! For a directory two locks are taken, always in this order: the directory's own, which nobody can
//! remove, and the file's, which older versions take alone and which is all there is where directories
//! cannot be locked.
//!
//! A forked child has a copy of the descriptors, also a child that is about to become another program.
//! So closing them is not enough: who took the lock unlocks it, and then nobody has it. What a child
//! drops is left locked.
//!
//! Invariant: who holds a directory's lock holds both, or the one of the two that the system has.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use super::entry::Entry;
use super::fork::Process;
use super::regular::regular;
use super::{How, sys};
use crate::{Access, Error, Result};

/// What is held of a directory, until whoever took it drops it: the file first.
#[derive(Debug, Default)]
pub(super) struct Held {
    file: Option<Locked>,
    dir: Option<Locked>,
}

/// A file that is locked, until whoever locked it drops it.
#[derive(Debug)]
pub(super) struct Locked {
    owner: Process,
    file: File,
}

impl Locked {
    /// What was locked just now.
    fn new(file: File) -> Self {
        Self { owner: Process::this(), file }
    }

    #[cfg_attr(any(not(unix), miri), expect(dead_code, reason = "no file is mapped there"))]
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.owner.is_this() {
            // If it fails, closing it unlocks it, unless a child has it too.
            self.file.unlock().ok();
        }
    }
}

/// Locks one file, which is at `path`, against all who ask for its lock.
#[cfg_attr(any(not(unix), miri), expect(dead_code, reason = "no file is mapped there"))]
pub(super) fn of_file(file: File, path: &Path) -> Result<Locked> {
    match file.try_lock() {
        Ok(()) => Ok(Locked::new(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: path.to_owned(), holder: None }),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", path, error)),
    }
}

/// Takes the lock of a directory, whose lock file is the entry.
pub(super) fn take(entry: Entry<'_>) -> Result<Held> {
    let Entry { dir, path, .. } = entry;
    let failed = |e| Error::io("lock", path, e);
    let mut held = Held::default();
    if let Some(dir) = sys::open_to_lock(dir).map_err(failed)? {
        match dir.try_lock() {
            Ok(()) => held.dir = Some(Locked::new(dir)),
            Err(TryLockError::WouldBlock) => return Err(locked(entry)),
            // This filesystem locks no directories.
            Err(TryLockError::Error(_)) => {}
        }
    }
    let file = match open(entry, How::WriteOrCreate) {
        Ok(file) => file,
        // Nobody can come by a file that there is no room for.
        Err(error) if held.dir.is_some() && is_full(&error) => return Ok(held),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked(entry)),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // A courtesy to the next one who asks: it need not be durable, and on a full disk it is left out.
    name_holder(&mut held.file.insert(Locked::new(file)).file).ok();
    Ok(held)
}

/// Says whether somebody holds the lock, by taking it for a moment, shared with others who look. Makes
/// nothing.
pub(super) fn check_free(entry: Entry<'_>) -> Result<()> {
    let Entry { dir, path, .. } = entry;
    let failed = |e| Error::io("lock", path, e);
    let mut held = Held::default();
    if let Some(dir) = sys::open_to_lock(dir).map_err(failed)? {
        match dir.try_lock_shared() {
            Ok(()) => held.dir = Some(Locked::new(dir)),
            Err(TryLockError::WouldBlock) => return Err(locked(entry)),
            Err(TryLockError::Error(_)) => {}
        }
    }
    let file = match open(entry, How::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == Some(io::ErrorKind::NotFound) => return Ok(()),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => {
            held.file = Some(Locked::new(file));
            Ok(())
        }
        Err(TryLockError::WouldBlock) => Err(locked(entry)),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn open(entry: Entry<'_>, how: How) -> Result<File> {
    regular(entry.path, sys::open(entry, Access::default(), how), || sys::stranger(entry))
}

fn is_full(error: &Error) -> bool {
    matches!(error.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

fn name_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn locked(entry: Entry<'_>) -> Error {
    Error::Locked { path: entry.path.to_owned(), holder: holder(entry) }
}

/// The process that says in a lock file that it holds it.
fn holder(entry: Entry<'_>) -> Option<u32> {
    let file = open(entry, How::Read).ok()?;
    let mut text = String::new();
    // 20 digits hold any process number; more is not one of ours.
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
