//! Which methods work here, found by trying each once.

use std::io::ErrorKind;

use crate::{
    Access, AlignedBuf, Allocation, Dir, Error, Promise, Result, SyncMethod, System, Through,
};

/// What trying a method showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It worked, and kept this promise.
    Works(Promise),
    /// It does not work here.
    Unavailable {
        /// Why not, in words.
        reason: String,
    },
}

/// The file that is written, and removed again.
const PROBE_FILE: &str = "plimsoll-probe";
const PROBE_BYTES: usize = 4096;

/// Tries every method in `dir` with one small file at a time, each removed again.
///
/// # Errors
/// Only what makes the directory useless: no file can be created, written or removed in it.
pub fn probe(dir: &dyn Dir) -> Result<Vec<(SyncMethod, Availability)>> {
    // A directory that takes no plain write has no use for a list of reasons.
    try_method(dir, SyncMethod::None)?;
    SyncMethod::ALL.into_iter().map(|method| Ok((method, availability(dir, method)?))).collect()
}

fn availability(dir: &dyn Dir, method: SyncMethod) -> Result<Availability> {
    if method.promise(System::HERE).is_none() {
        let reason = "no such call on this system".to_owned();
        return Ok(Availability::Unavailable { reason });
    }
    match try_method(dir, method) {
        Ok(promise) => Ok(Availability::Works(promise)),
        Err(Error::Unsupported { reason, .. }) => Ok(Availability::Unavailable { reason }),
        // Flags and calls that a kernel or a filesystem does not know. A disk that fails is not a
        // method that is missing.
        Err(Error::Io { operation, source, .. })
            if matches!(source.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput) =>
        {
            Ok(Availability::Unavailable { reason: format!("{operation}: {source}") })
        }
        Err(error) => Err(error),
    }
}

fn try_method(dir: &dyn Dir, method: SyncMethod) -> Result<Promise> {
    let access = method.access();
    // Direct and flagged opens of a new file fail after the file was made on some filesystems.
    drop(dir.create(PROBE_FILE, Access { direct: false, through: Through::No })?);
    let tried = dir.open(PROBE_FILE, access).and_then(|file| {
        let bytes = PROBE_BYTES.next_multiple_of(file.alignment());
        file.allocate(0, bytes as u64, Allocation::Zeroed)?;
        file.write_sync_at(&AlignedBuf::zeroed(bytes, file.alignment()), 0, method)
    });
    dir.remove(PROBE_FILE)?;
    tried
}
