//! The lock of a directory, and the file in it that says who holds it.
//!
//! Two locks are taken, always in this order: the directory's own, which nobody can remove, and the
//! file's, which older versions take alone and which is all there is where directories cannot be
//! locked.
//!
//! A forked child has a copy of the descriptors, also a child that is about to become another program.
//! So closing them is not enough: who took the lock unlocks it, and then nobody has it. What a child
//! drops is left locked.
//!
//! Invariant: who holds the lock holds both, or the one of the two that the system has.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use super::fork::Process;
use super::regular::regular;
use super::{How, sys};
use crate::{Access, Error, Result};

/// What is held, until whoever took it drops it.
#[derive(Debug)]
pub(super) struct Held {
    owner: Process,
    file: Option<File>,
    dir: Option<File>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.owner.is_this() {
            for held in [&self.file, &self.dir].into_iter().flatten() {
                // If it fails, closing it unlocks it, unless a child has it too.
                held.unlock().ok();
            }
        }
    }
}

/// Takes the lock of `dir`, whose lock file is at `path`.
pub(super) fn take(dir: &File, path: &Path) -> Result<Held> {
    let failed = |e| Error::io("lock", path, e);
    let mut held = Held::nothing();
    if let Some(dir) = sys::open_to_lock(dir).map_err(failed)? {
        match dir.try_lock() {
            Ok(()) => held.dir = Some(dir),
            Err(TryLockError::WouldBlock) => return Err(locked(path)),
            // This filesystem locks no directories.
            Err(TryLockError::Error(_)) => {}
        }
    }
    let file = match open(path, How::WriteOrCreate) {
        Ok(file) => file,
        // Nobody can come by a file that there is no room for.
        Err(error) if held.dir.is_some() && is_full(&error) => return Ok(held),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked(path)),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // A courtesy to the next one who asks: it need not be durable, and on a full disk it is left out.
    name_holder(held.file.insert(file)).ok();
    Ok(held)
}

/// Says whether somebody holds the lock, by taking it for a moment, shared with others who look. Makes
/// nothing.
pub(super) fn check_free(dir: &File, path: &Path) -> Result<()> {
    let failed = |e| Error::io("lock", path, e);
    let mut held = Held::nothing();
    if let Some(dir) = sys::open_to_lock(dir).map_err(failed)? {
        match dir.try_lock_shared() {
            Ok(()) => held.dir = Some(dir),
            Err(TryLockError::WouldBlock) => return Err(locked(path)),
            Err(TryLockError::Error(_)) => {}
        }
    }
    let file = match open(path, How::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == Some(io::ErrorKind::NotFound) => return Ok(()),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => {
            held.file = Some(file);
            Ok(())
        }
        Err(TryLockError::WouldBlock) => Err(locked(path)),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

impl Held {
    fn nothing() -> Self {
        Self { owner: Process::this(), file: None, dir: None }
    }
}

fn open(path: &Path, how: How) -> Result<File> {
    regular(path, sys::open(path, Access::default(), how))
}

fn is_full(error: &Error) -> bool {
    matches!(error.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

fn name_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn locked(path: &Path) -> Error {
    Error::Locked { path: path.to_owned(), holder: holder(path) }
}

/// The process that says in a lock file that it holds it.
fn holder(path: &Path) -> Option<u32> {
    let file = open(path, How::Read).ok()?;
    let mut text = String::new();
    // 20 digits hold any process number; more is not one of ours.
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
