//! [`Batch`]: files that are written and synced together, by requests submitted in one go.
//!
//! A batch opens its files itself, by name, so that no handle needs to give its descriptor away. It
//! shares their latches with all handles of the same [`OsDir`](crate::OsDir).
//!
//! Invariant: nothing is submitted for a file whose latch is closed, and the latch of every file
//! whose write or sync failed is closed before a call returns.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::requests::Write;
use super::uring::Ring;
use crate::latch::{Latch, check_range};
use crate::method::{Chain, Step};
use crate::{Error, Promise, Result, SyncMethod, System};

/// Most writes that are submitted at once; a longer list goes in several turns.
const WRITES_AT_ONCE: u32 = 128;

/// Files that are written and synced together. Made by [`crate::OsDir::batch`].
#[derive(Debug)]
pub struct Batch {
    files: Vec<Member>,
    /// Of the directory.
    path: PathBuf,
    /// One call at a time: of two that sync one descriptor, only one is told of an error.
    ring: Mutex<Ring>,
}

/// One write of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchWrite<'a> {
    /// Which of the batch's files, counted from 0 in the order in which they were named.
    pub file: usize,
    /// What to write.
    pub bytes: &'a [u8],
    /// Where in the file.
    pub byte_offset: u64,
}

/// What became of a batch in which nothing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batched {
    /// The promise that was kept for each of its writes.
    pub promise: Promise,
    /// Fsyncs whose completion arrived before that of their own write. Only
    /// [`SyncMethod::Uring`], the trap, allows it.
    pub fsyncs_before_their_write: usize,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) file: fs::File,
    pub(super) path: PathBuf,
    pub(super) latch: Arc<Latch>,
}

impl Batch {
    pub(super) fn new(files: Vec<Member>, path: PathBuf) -> Result<Self> {
        let ring = Ring::new(WRITES_AT_ONCE).map_err(|error| Error::Unsupported {
            method: SyncMethod::UringLink,
            path: path.clone(),
            reason: format!("io_uring cannot be set up: {error}"),
        })?;
        Ok(Self { files, path, ring: Mutex::new(ring) })
    }

    /// Writes and syncs all of `writes` by a method of `io_uring`, and waits for all of them. On
    /// return each keeps the promise of the method.
    ///
    /// After an error, files whose write or sync failed are latched; the other writes may have been
    /// made, or synced, or neither.
    ///
    /// # Panics
    /// If a write is of a file that the batch does not have.
    pub fn write_sync(&self, writes: &[BatchWrite<'_>], method: SyncMethod) -> Result<Batched> {
        let (Step::Uring(chain), Some(promise)) = (method.step(), method.promise(System::HERE))
        else {
            let reason = "a batch goes through io_uring".to_owned();
            return Err(Error::Unsupported { method, path: self.path.clone(), reason });
        };
        for write in writes {
            let path = &self.files[write.file].path;
            check_range(path, "write", write.byte_offset, write.bytes.len() as u64)?;
            if u32::try_from(write.bytes.len()).is_err() {
                let reason = "one request writes less than 4 GiB".to_owned();
                return Err(Error::Unsupported { method, path: path.clone(), reason });
            }
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fsyncs_before_their_write = 0;
        for turn in writes.chunks(WRITES_AT_ONCE as usize) {
            fsyncs_before_their_write += self.take_turn(&mut ring, turn, chain)?;
        }
        Ok(Batched { promise, fsyncs_before_their_write })
    }

    fn take_turn(&self, ring: &mut Ring, turn: &[BatchWrite<'_>], chain: Chain) -> Result<usize> {
        let members: Vec<&Member> = turn.iter().map(|write| &self.files[write.file]).collect();
        for member in &members {
            member.latch.check(&member.path)?;
        }
        let writes: Vec<Write<'_>> = turn
            .iter()
            .zip(&members)
            .map(|(write, member)| Write {
                file: &member.file,
                buf: write.bytes,
                byte_offset: write.byte_offset,
            })
            .collect();
        let done = ring.write_sync(&writes, chain);
        let mut outcome = Ok(done.overtaken);
        for (member, done) in members.iter().zip(done.outcomes) {
            let failed = |error| Error::io("io_uring write", &member.path, error);
            // Every failure closes its file's latch; the first one is reported.
            let kept = member.latch.guard(&member.path, || done.map_err(failed));
            outcome = outcome.and_then(|overtaken| kept.map(|()| overtaken));
        }
        outcome
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io;

    use super::super::requests::Done;
    use super::*;
    use crate::{Access, Dir, OsDir};

    /// A directory with so many files, and a batch of them; `None` where `io_uring` is shut off.
    fn batch(files: usize) -> Option<(tempfile::TempDir, OsDir, Batch)> {
        let tmp = tempfile::tempdir().unwrap();
        let dir = OsDir::open(tmp.path()).unwrap();
        let names: Vec<String> = (0..files).map(|number| number.to_string()).collect();
        for name in &names {
            dir.create(name, Access::default()).unwrap();
        }
        match dir.batch(&names) {
            Ok(batch) => Some((tmp, dir, batch)),
            Err(Error::Unsupported { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn write(file: usize, bytes: &[u8]) -> BatchWrite<'_> {
        BatchWrite { file, bytes, byte_offset: 0 }
    }

    #[test]
    fn a_batch_writes_each_file_however_many_there_are() {
        let Some((_tmp, dir, batch)) = batch(2 * WRITES_AT_ONCE as usize + 1) else { return };
        let records: Vec<String> = (0..batch.files.len()).map(|n| format!("record {n}")).collect();
        let writes: Vec<_> =
            records.iter().enumerate().map(|(n, record)| write(n, record.as_bytes())).collect();
        for method in [SyncMethod::UringLink, SyncMethod::UringDrain, SyncMethod::UringRwfDsync] {
            let done = batch.write_sync(&writes, method).unwrap();
            assert_eq!(done, Batched { promise: Promise::Media, fsyncs_before_their_write: 0 });
        }
        for (number, record) in records.iter().enumerate() {
            let file = dir.open(&number.to_string(), Access::default()).unwrap();
            let mut content = vec![0; record.len()];
            assert_eq!(file.read_at(&mut content, 0).unwrap(), record.len());
            assert_eq!(content, record.as_bytes());
        }
    }

    #[test]
    fn the_trap_promises_nothing_and_calls_are_not_for_batches() {
        let Some((_tmp, _dir, batch)) = batch(1) else { return };
        let trapped = batch.write_sync(&[write(0, b"x")], SyncMethod::Uring).unwrap();
        assert_eq!(trapped.promise, Promise::Nothing);
        let refused = batch.write_sync(&[write(0, b"x")], SyncMethod::Fsync).unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    }

    #[test]
    fn a_failed_file_of_a_batch_is_latched_for_every_handle_and_the_others_are_not() {
        let Some((_tmp, dir, mut batch)) = batch(1) else { return };
        dir.create("full", Access::default()).unwrap();
        // Takes no byte: ENOSPC.
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let latch = dir.latch_of("full");
        batch.files.push(Member { file: full, path: dir.path().join("full"), latch });
        let writes = [write(1, b"lost"), write(0, b"kept")];
        let failed = batch.write_sync(&writes, SyncMethod::UringLink).unwrap_err();
        assert_eq!(failed.kind(), Some(io::ErrorKind::StorageFull), "{failed}");
        let other = dir.open("full", Access::default()).unwrap();
        assert!(matches!(other.write_at(b"x", 0), Err(Error::Latched { .. })));
        let again = batch.write_sync(&writes, SyncMethod::UringLink).unwrap_err();
        assert!(matches!(again, Error::Latched { .. }), "{again}");
        batch.write_sync(&[write(0, b"more")], SyncMethod::UringLink).unwrap();
    }

    #[test]
    fn a_file_that_failed_before_takes_nothing_from_a_batch() {
        let Some((_tmp, dir, batch)) = batch(2) else { return };
        let failed = || Err::<(), _>(Error::io("write", "1", io::ErrorKind::StorageFull.into()));
        dir.latch_of("1").guard("1".as_ref(), failed).unwrap_err();
        let writes = [write(0, b"kept"), write(1, b"lost")];
        let refused = batch.write_sync(&writes, SyncMethod::UringLink).unwrap_err();
        assert!(matches!(refused, Error::Latched { .. }), "{refused}");
        let untouched = dir.open("0", Access::default()).unwrap();
        assert!(untouched.is_empty().unwrap(), "nothing of the turn was submitted");
    }

    #[test]
    fn a_range_that_no_file_can_hold_is_refused_and_changes_nothing() {
        let Some((_tmp, dir, batch)) = batch(2) else { return };
        let endless = BatchWrite { byte_offset: u64::MAX, ..write(1, b"x") };
        let refused = batch.write_sync(&[write(0, b"x"), endless], SyncMethod::UringLink);
        assert_eq!(refused.unwrap_err().kind(), Some(io::ErrorKind::FileTooLarge));
        assert!(dir.open("0", Access::default()).unwrap().is_empty().unwrap());
        batch.write_sync(&[write(1, b"x")], SyncMethod::UringLink).expect("nothing is latched");
    }

    fn completed(completions: &[(usize, bool, i32)]) -> Done {
        let file = tempfile::tempfile().unwrap();
        let write = Write { file: &file, buf: &[0; 4096], byte_offset: 0 };
        let mut done = Done::of(&[write, write]);
        completions.iter().for_each(|&(n, fsync, result)| done.completed(n, fsync, result));
        done
    }

    #[test]
    fn an_fsync_that_overtook_its_own_write_is_counted() {
        let done = completed(&[(1, false, 4096), (0, true, 0), (1, true, 0), (0, false, 4096)]);
        assert_eq!(done.overtaken, 1);
        assert!(done.outcomes.iter().all(std::result::Result::is_ok));
    }

    #[test]
    fn a_short_write_is_an_error() {
        let done = completed(&[(0, false, 512), (0, true, 0), (1, false, 4096), (1, true, 0)]);
        let error = done.outcomes[0].as_ref().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
        assert!(done.outcomes[1].is_ok());
    }

    #[test]
    fn a_failed_request_reports_its_own_error_and_the_first_one_is_kept() {
        let done = completed(&[(0, false, -libc::EIO), (0, true, -libc::ECANCELED)]);
        let error = done.outcomes[0].as_ref().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
}
