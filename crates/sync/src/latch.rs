//! A file that stays failed once a write or a sync has failed.
//!
//! After a failed fsync Linux marks the dirty pages clean, reports the error once per open file
//! description, and answers the next fsync with success (Rebello et al., "Can Applications Recover
//! from fsync Failures?", USENIX ATC 2020). A retry therefore lies, and so does a second handle
//! opened afterwards. Hence one latch per *file*, shared by all its handles.
//!
//! Of two threads that sync one handle together, only one is told of the error. Hence one sync at a
//! time per handle; threads that want to sync at once open a handle each.
//!
//! Invariant: once closed a latch never opens, and no write, truncation or sync reaches the file.
//! Reads still do, so that recovery can look.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Access, Allocation, Error, File, Promise, Result, SyncMethod, Through};

/// The longest file: byte offsets are signed in every system.
const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// Whether a file has failed, shared by all its handles.
#[derive(Debug, Default)]
pub struct Latch {
    failure: OnceLock<Arc<Error>>,
}

impl Latch {
    /// Runs `operation` unless the latch is closed, and closes it if that fails. An operation that
    /// was refused before anything was written leaves it open.
    pub fn guard<T>(&self, path: &Path, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check(path)?;
        operation().inspect_err(|error| {
            if matches!(error, Error::Io { .. }) {
                self.failure.get_or_init(|| Arc::new(error.clone()));
            }
        })
    }

    /// Fails if the latch is closed.
    pub fn check(&self, path: &Path) -> Result<()> {
        match self.failure.get() {
            Some(failure) => {
                Err(Error::Latched { path: path.to_owned(), source: Arc::clone(failure) })
            }
            None => Ok(()),
        }
    }
}

/// The latches of a directory's files, by name.
#[derive(Debug, Default)]
pub struct Latches {
    by_name: Mutex<HashMap<String, Arc<Latch>>>,
}

impl Latches {
    /// The latch of the file that has this name now.
    pub fn of(&self, name: &str) -> Arc<Latch> {
        let mut by_name = lock(&self.by_name);
        // Forget files that nobody holds, unless they failed.
        by_name.retain(|_, latch| Arc::strong_count(latch) > 1 || latch.failure.get().is_some());
        Arc::clone(by_name.entry(name.to_owned()).or_default())
    }

    /// The file called `from` is called `to` now; what was called `to` is gone.
    pub fn rename(&self, from: &str, to: &str) {
        let mut by_name = lock(&self.by_name);
        match by_name.remove(from) {
            Some(latch) => by_name.insert(to.to_owned(), latch),
            None => by_name.remove(to),
        };
    }

    /// The file of this name is gone; a new one of the same name starts afresh.
    pub fn remove(&self, name: &str) {
        lock(&self.by_name).remove(name);
    }
}

/// A handle whose file's latch closes on the first failed write or sync.
#[derive(Debug)]
pub struct Latched<F> {
    inner: F,
    path: PathBuf,
    access: Access,
    latch: Arc<Latch>,
    sync_turn: Mutex<()>,
}

impl<F: File> Latched<F> {
    /// Wraps `inner`, a handle of the file that `latch` belongs to, opened with `access`.
    pub fn new(inner: F, path: PathBuf, access: Access, latch: Arc<Latch>) -> Self {
        Self { inner, path, access, latch, sync_turn: Mutex::new(()) }
    }

    fn guard<T>(&self, operation: impl FnOnce(&F) -> Result<T>) -> Result<T> {
        self.latch.guard(&self.path, || operation(&self.inner))
    }

    /// Where a write waits for its own sync, it is one.
    fn guard_in_turn_if_through<T>(&self, operation: impl FnOnce(&F) -> Result<T>) -> Result<T> {
        if self.access.through == Through::No {
            self.guard(operation)
        } else {
            self.guard_in_turn(operation)
        }
    }

    fn check_range(&self, operation: &'static str, byte_offset: u64, bytes: u64) -> Result<()> {
        check_range(&self.path, operation, byte_offset, bytes)
    }

    /// The check of the latch comes after the turn, so that whoever waited sees what happened.
    fn guard_in_turn<T>(&self, operation: impl FnOnce(&F) -> Result<T>) -> Result<T> {
        let _turn = lock(&self.sync_turn);
        self.guard(operation)
    }
}

impl<F: File> File for Latched<F> {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> Result<usize> {
        self.inner.read_at(buf, byte_offset)
    }

    fn write_at(&self, buf: &[u8], byte_offset: u64) -> Result<()> {
        self.check_range("write", byte_offset, buf.len() as u64)?;
        self.guard_in_turn_if_through(|file| file.write_at(buf, byte_offset))
    }

    fn write_sync_at(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<Promise> {
        self.check_range("write", byte_offset, buf.len() as u64)?;
        self.guard_in_turn(|file| file.write_sync_at(buf, byte_offset, method))
    }

    fn sync(&self, method: SyncMethod) -> Result<Promise> {
        self.guard_in_turn(|file| file.sync(method))
    }

    fn start_write_out(&self) -> Result<()> {
        self.guard_in_turn(F::start_write_out)
    }

    fn allocate(&self, byte_offset: u64, bytes: u64, allocation: Allocation) -> Result<()> {
        self.check_range("allocate", byte_offset, bytes)?;
        self.guard_in_turn_if_through(|file| file.allocate(byte_offset, bytes, allocation))
    }

    fn punch(&self, byte_offset: u64, bytes: u64) -> Result<bool> {
        self.check_range("punch", byte_offset, bytes)?;
        self.guard_in_turn_if_through(|file| file.punch(byte_offset, bytes))
    }

    fn keep_in_place(&self) -> Result<bool> {
        self.latch.check(&self.path)?;
        self.inner.keep_in_place()
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.check_range("truncate", len, 0)?;
        self.guard_in_turn_if_through(|file| file.truncate(len))
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }
}

/// Refuses what no file can hold, before anything is written and without closing the latch. To some
/// system calls a byte offset of all ones means "where the last write ended".
pub(crate) fn check_range(
    path: &Path,
    operation: &'static str,
    byte_offset: u64,
    bytes: u64,
) -> Result<()> {
    match byte_offset.checked_add(bytes) {
        Some(end) if end <= MAX_FILE_BYTES => Ok(()),
        _ => Err(Error::io(operation, path, io::ErrorKind::FileTooLarge.into())),
    }
}

/// A panic while a lock was held leaves nothing half-done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Like Linux: the first sync fails, the next ones report success.
    #[derive(Debug, Default)]
    struct ForgetfulFile {
        syncs: AtomicUsize,
        writes: AtomicUsize,
    }

    impl File for &ForgetfulFile {
        fn len(&self) -> Result<u64> {
            Ok(0)
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize> {
            Ok(0)
        }
        fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn write_sync_at(&self, _: &[u8], _: u64, method: SyncMethod) -> Result<Promise> {
            let (path, reason) = (PathBuf::from("f"), String::from("no such flag"));
            Err(Error::Unsupported { method, path, reason })
        }
        fn sync(&self, _: SyncMethod) -> Result<Promise> {
            match self.syncs.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Error::io("fsync", "f", io::Error::other("lost"))),
                _ => Ok(Promise::Media),
            }
        }
        fn allocate(&self, _: u64, _: u64, _: Allocation) -> Result<()> {
            Ok(())
        }
        fn truncate(&self, _: u64) -> Result<()> {
            Ok(())
        }
        fn alignment(&self) -> usize {
            1
        }
    }

    fn handle<'a>(file: &'a ForgetfulFile, latch: &Arc<Latch>) -> Latched<&'a ForgetfulFile> {
        Latched::new(file, "f".into(), Access::default(), Arc::clone(latch))
    }

    #[test]
    fn retrying_a_failed_sync_fails() {
        let file = ForgetfulFile::default();
        let handle = handle(&file, &Arc::default());
        assert!(matches!(handle.sync(SyncMethod::Fsync), Err(Error::Io { .. })));
        assert!(matches!(handle.sync(SyncMethod::Fsync), Err(Error::Latched { .. })));
        assert_eq!(file.syncs.load(Ordering::Relaxed), 1, "the retry must not reach the file");
    }

    #[test]
    fn a_second_handle_of_a_failed_file_refuses_to_write() {
        let (file, latches) = (ForgetfulFile::default(), Latches::default());
        handle(&file, &latches.of("f")).sync(SyncMethod::Fsync).unwrap_err();
        let late = handle(&file, &latches.of("f"));
        assert!(matches!(late.write_at(b"x", 0), Err(Error::Latched { .. })));
        assert!(matches!(late.truncate(0), Err(Error::Latched { .. })));
        assert!(matches!(late.punch(0, 1), Err(Error::Latched { .. })));
        assert!(matches!(late.start_write_out(), Err(Error::Latched { .. })));
        assert_eq!(file.writes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn reads_survive_a_failed_sync() {
        let file = ForgetfulFile::default();
        let handle = handle(&file, &Arc::default());
        handle.sync(SyncMethod::Fsync).unwrap_err();
        assert_eq!(handle.read_at(&mut [0; 8], 0).unwrap(), 0);
    }

    #[test]
    fn a_method_that_is_unsupported_does_not_close_the_latch() {
        let file = ForgetfulFile::default();
        let handle = handle(&file, &Arc::default());
        handle.write_sync_at(b"x", 0, SyncMethod::RwfDsync).unwrap_err();
        handle.write_at(b"x", 0).unwrap();
    }

    #[test]
    fn a_latch_follows_its_file_through_a_rename_and_dies_with_it() {
        let (file, latches) = (ForgetfulFile::default(), Latches::default());
        handle(&file, &latches.of("old")).sync(SyncMethod::Fsync).unwrap_err();
        latches.rename("old", "new");
        assert!(handle(&file, &latches.of("new")).write_at(b"x", 0).is_err());
        assert!(handle(&file, &latches.of("old")).write_at(b"x", 0).is_ok());
        latches.remove("new");
        assert!(handle(&file, &latches.of("new")).write_at(b"x", 0).is_ok());
    }
}
