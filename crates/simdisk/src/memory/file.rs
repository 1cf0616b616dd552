//! [`SimFile`]: a handle of a simulated file. Behind a latch, except in tests of what the latch
//! prevents.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use plimsoll_sync::{Access, Allocation, Error, File, Promise, Result, SyncMethod, System};

use super::directory::FileId;
use super::disk::Disk;
use super::failure;
use super::fault::Operation;
use super::machine::{Shared, Twist};
use super::room::Claim;
use crate::sparse::pages_of;

#[derive(Debug)]
pub(crate) struct SimFile {
    pub(crate) machine: Shared,
    pub(crate) id: FileId,
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
    pub(crate) alignment: usize,
    pub(crate) system: System,
}

impl SimFile {
    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> Error {
        move |error| Error::io(operation, &self.path, error)
    }

    fn unsupported(&self, method: SyncMethod, reason: impl Into<String>) -> Error {
        Error::Unsupported { method, path: self.path.clone(), reason: reason.into() }
    }

    /// What the method promises on the system that is simulated.
    fn promise(&self, method: SyncMethod) -> Result<Promise> {
        let promise = method.promise(self.system);
        promise.ok_or_else(|| self.unsupported(method, "no such call on this system"))
    }

    fn check_aligned(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<()> {
        if buf.as_ptr().addr().is_multiple_of(self.alignment) {
            return self.check_range_aligned(buf.len() as u64, byte_offset, method);
        }
        let reason = format!("direct I/O needs a buffer at a multiple of {}", self.alignment);
        Err(self.unsupported(method, reason))
    }

    fn check_range_aligned(&self, bytes: u64, byte_offset: u64, method: SyncMethod) -> Result<()> {
        let alignment = self.alignment as u64;
        if bytes.is_multiple_of(alignment) && byte_offset.is_multiple_of(alignment) {
            return Ok(());
        }
        let reason = format!(
            "direct I/O needs buffer, length and byte offset at multiples of {alignment}, \
             got {bytes} bytes at {byte_offset}"
        );
        Err(self.unsupported(method, reason))
    }

    /// One numbered operation on this file, found by the name that it has now.
    fn step<T>(
        &self,
        operation: Operation,
        detail: impl std::fmt::Display,
        act: impl FnOnce(&mut Disk, Twist) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut machine = self.machine.lock();
        let name = machine.disk.file(self.id).name.clone();
        machine.step(operation, &name, detail, act)
    }

    /// What a write of this handle needs blocks for.
    fn claim(&self) -> Claim {
        if self.access.direct { Claim::DirectWrite } else { Claim::Write }
    }

    /// Into the page cache, or past it if the file is opened direct.
    fn write(&self, buf: &[u8], byte_offset: u64) -> Result<()> {
        let detail = format_args!("{} bytes at {byte_offset}", buf.len());
        let written = self.step(Operation::Write, detail, |disk, twist| {
            match twist {
                Twist::Fail { error, seed } => {
                    let (len, tear) = (buf.len(), disk.tear);
                    for part in failure::parts(len, byte_offset, self.access.direct, tear, seed) {
                        let at = byte_offset.saturating_add(part.start as u64);
                        // That there is no room for it, or no such place, is not what it fails with.
                        self.put(disk, &buf[part], at, false).ok();
                    }
                    Err(error)
                }
                Twist::Short(bytes) => {
                    self.put(disk, &buf[..short_of(buf.len(), bytes)], byte_offset, false)?;
                    Err(io::ErrorKind::StorageFull.into())
                }
                Twist::Lie => self.put(disk, buf, byte_offset, true),
                Twist::None => self.put(disk, buf, byte_offset, false),
            }
        });
        written.map_err(self.failed("write"))
    }

    /// What a write does to the disk.
    fn put(&self, disk: &mut Disk, buf: &[u8], byte_offset: u64, lost: bool) -> io::Result<()> {
        let written = disk.write(self.id, buf, byte_offset, self.claim(), lost);
        if self.access.direct && !matches!(&written, Err(e) if is_too_large(e)) {
            let bytes = byte_offset..byte_offset + buf.len() as u64;
            disk.hand_over(self.id, Some(&pages_of(&bytes)), false);
        }
        written
    }

    /// Keeps what `method` promises of a range of bytes, or of all bytes if `None`.
    fn keep(&self, method: SyncMethod, promise: Promise, bytes: Option<&Range<u64>>) -> Result<()> {
        // What these two do, they do while they write.
        if promise == Promise::Nothing || method == SyncMethod::Direct {
            return Ok(());
        }
        let pages = bytes.map(pages_of);
        let pages = pages.as_ref();
        let all = method == SyncMethod::Syncfs;
        let kept = self.step(Operation::Sync, method, |disk, twist| {
            let pays = disk.pays(self.id, all);
            match twist {
                Twist::Fail { error, seed } => {
                    failure::sync(disk, self.id, pages, pays.then_some(seed));
                    return Err(error);
                }
                _ if !pays => {
                    failure::sync(disk, self.id, pages, None);
                    return Err(io::ErrorKind::StorageFull.into());
                }
                Twist::Lie => disk.hand_over(self.id, pages, method != SyncMethod::SyncFileRange),
                Twist::None | Twist::Short(_) => match promise {
                    Promise::Nothing => {}
                    Promise::Ordering => disk.barrier(self.id),
                    Promise::Device => {
                        disk.hand_over(self.id, pages, method != SyncMethod::SyncFileRange);
                    }
                    Promise::Media if all => disk.persist_all(),
                    Promise::Media => disk.persist(self.id, pages),
                },
            }
            disk.settle(self.id, pages, all);
            Ok(())
        });
        kept.map_err(self.failed(method.name()))
    }
}

impl File for SimFile {
    fn len(&self) -> Result<u64> {
        let mut machine = self.machine.lock();
        machine.check_up().map_err(self.failed("stat"))?;
        Ok(machine.disk.file(self.id).live.len)
    }

    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> Result<usize> {
        let len = buf.len();
        let detail = format_args!("{len} bytes at {byte_offset}");
        let read = self.step(Operation::Read, detail, |disk, twist| match twist {
            Twist::Fail { error, .. } => Err(error),
            _ if self.access.direct => Ok(disk.file(self.id).read_direct(buf, byte_offset)),
            _ => Ok(disk.file(self.id).live.read_at(buf, byte_offset)),
        });
        read.map_err(self.failed("read"))
    }

    fn write_at(&self, buf: &[u8], byte_offset: u64) -> Result<()> {
        let method = self.access.method();
        let promise = self.promise(method)?;
        if self.access.direct {
            self.check_aligned(buf, byte_offset, method)?;
        }
        self.write(buf, byte_offset)?;
        let bytes = byte_offset..byte_offset + buf.len() as u64;
        self.keep(method, promise, Some(&bytes))
    }

    fn write_sync_at(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<Promise> {
        let promise = self.promise(method)?;
        if method.access() != self.access {
            return Err(self.unsupported(method, "the file was not opened for it"));
        }
        if self.access.direct {
            self.check_aligned(buf, byte_offset, method)?;
        }
        if method == SyncMethod::Msync {
            let end = byte_offset.checked_add(buf.len() as u64);
            let len = self.len()?;
            if end.is_none_or(|end| end > len) {
                let reason = "a mapping cannot grow a file: allocate it first";
                return Err(self.unsupported(method, reason));
            }
        }
        self.write(buf, byte_offset)?;
        let bytes = byte_offset..byte_offset + buf.len() as u64;
        self.keep(method, promise, (!method.is_call()).then_some(&bytes))?;
        Ok(promise)
    }

    fn sync(&self, method: SyncMethod) -> Result<Promise> {
        let promise = self.promise(method)?;
        if !method.is_call() {
            return Err(self.unsupported(method, "it covers only the write that it comes with"));
        }
        self.keep(method, promise, None)?;
        Ok(promise)
    }

    fn allocate(&self, byte_offset: u64, bytes: u64, allocation: Allocation) -> Result<()> {
        let method = self.access.method();
        let promise = self.promise(method)?;
        let zeroed = allocation == Allocation::Zeroed;
        if zeroed && self.access.direct {
            self.check_range_aligned(bytes, byte_offset, method)?;
        }
        let detail = format_args!("{bytes} bytes at {byte_offset}, {allocation:?}");
        let allocated = self.step(Operation::Allocate, detail, |disk, twist| match twist {
            Twist::Fail { error, .. } => Err(error),
            _ if !zeroed => disk.reserve(self.id, byte_offset, bytes),
            _ => {
                disk.zero(self.id, byte_offset, bytes, self.claim())?;
                if self.access.direct {
                    let range = byte_offset..byte_offset + bytes;
                    disk.hand_over(self.id, Some(&pages_of(&range)), false);
                }
                Ok(())
            }
        });
        allocated.map_err(self.failed("allocate"))?;
        if zeroed {
            // Zeros are written, and wait for what every write of this file waits for.
            let range = byte_offset..byte_offset + bytes;
            self.keep(method, promise, Some(&range))?;
        }
        Ok(())
    }

    fn punch(&self, byte_offset: u64, bytes: u64) -> Result<bool> {
        let detail = format_args!("{bytes} bytes at {byte_offset}");
        let punched = self.step(Operation::Punch, detail, |disk, twist| match twist {
            Twist::Fail { error, .. } => Err(error),
            _ => disk.punch(self.id, byte_offset, bytes),
        });
        punched.map_err(self.failed("punch"))
    }

    fn keep_in_place(&self) -> Result<bool> {
        let mut machine = self.machine.lock();
        machine.check_up().map_err(self.failed("set flags"))?;
        Ok(machine.disk.keep_in_place(self.id))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let detail = format_args!("to {len} bytes");
        let truncated = self.step(Operation::Truncate, detail, |disk, twist| match twist {
            Twist::Fail { error, .. } => Err(error),
            _ => disk.truncate(self.id, len),
        });
        truncated.map_err(self.failed("truncate"))
    }

    fn alignment(&self) -> usize {
        if self.access.direct { self.alignment } else { 1 }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.machine.lock().disk.close(self.id);
    }
}

/// How much of a write of `len` bytes goes in when no more than `bytes` do: never all.
fn short_of(len: usize, bytes: u64) -> usize {
    let most = len.saturating_sub(1);
    usize::try_from(bytes).map_or(most, |bytes| bytes.min(most))
}

fn is_too_large(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plimsoll_sync::Dir;

    use super::*;
    use crate::{DiskOptions, Fault, FaultKind, SimDir, Tear};

    /// What the latch is for: see `the_latch_keeps_a_failed_sync_from_being_retried`.
    #[test]
    fn without_a_latch_a_retried_sync_lies() {
        for method in [SyncMethod::Fsync, SyncMethod::DirectFsync, SyncMethod::ODsync] {
            let mut seen = BTreeSet::new();
            for seed in 0..20 {
                seen.insert(retried(method, seed));
            }
            assert_eq!(seen, BTreeSet::from([0, 7]), "{method}: what the failed sync left");
        }
    }

    /// Syncs again after a sync has failed. Returns the byte that is durable then, which should be 7.
    fn retried(method: SyncMethod, seed: u64) -> u8 {
        let dir = SimDir::with(DiskOptions { system: System::Linux, ..DiskOptions::default() });
        drop(dir.create("a", Access::default()).unwrap());
        let file = dir.handle("a", method.access(), false).unwrap();
        let mut buf = plimsoll_sync::AlignedBuf::zeroed(512, 512);
        file.write_sync_at(&buf, 0, method).unwrap();
        dir.inject(Fault::new(Operation::Sync, FaultKind::FailRaw(5)).seed(seed));
        buf.fill(7);
        file.write_sync_at(&buf, 0, method).unwrap_err();
        let retried = file.sync(SyncMethod::Fsync).unwrap();
        assert_eq!(retried, Promise::Media, "the kernel says that all is well");
        let first = |dir: &SimDir| {
            let mut byte = [9];
            let file = dir.handle("a", Access::default(), false).unwrap();
            file.read_at(&mut byte, 0).unwrap();
            byte[0]
        };
        assert_eq!(first(&dir), 7, "{method}: the cache is new");
        let direct = dir.handle("a", SyncMethod::Direct.access(), false).unwrap();
        direct.read_at(&mut buf, 0).unwrap();
        for seed in 0..50 {
            assert_eq!(
                first(&dir.power_cut(seed)),
                buf[0],
                "{method}: past the cache is the truth"
            );
        }
        buf[0]
    }

    /// Whoever reads past the page cache after a failed sync, and before another one, sees what the device
    /// has: a power cut may take it, and never brings what was not there.
    #[test]
    fn what_a_failed_sync_left_may_still_be_lost_and_nothing_else_comes() {
        let mut left = BTreeSet::new();
        for fault_seed in 0..20 {
            let dir = SimDir::with(DiskOptions { tear: Tear::Bytes512, ..DiskOptions::default() });
            let file = dir.create("a", Access::default()).unwrap();
            file.write_sync_at(&[1; 2048], 0, SyncMethod::Fsync).unwrap();
            dir.inject(Fault::new(Operation::Sync, FaultKind::FailRaw(5)).seed(fault_seed));
            file.write_sync_at(&[2; 2048], 0, SyncMethod::Fsync).unwrap_err();
            let sectors = |dir: &SimDir, access| {
                let file = dir.handle("a", access, false).unwrap();
                let mut buf = plimsoll_sync::AlignedBuf::zeroed(2048, 512);
                assert_eq!(file.read_at(&mut buf, 0).unwrap(), 2048);
                [0, 1, 2, 3].map(|sector| buf[sector * 512])
            };
            let there = sectors(&dir, SyncMethod::Direct.access());
            for seed in 0..50 {
                let found = sectors(&dir.power_cut(seed), Access::default());
                for (found, there) in found.into_iter().zip(there) {
                    assert!(found == 1 || found == there, "{found} instead of {there}");
                }
            }
            assert_eq!(
                sectors(&dir.crash(plimsoll_sync::Crash::System, 1), Access::default()),
                there
            );
            left.insert(there);
        }
        assert!(left.len() > 4, "{left:?}");
        assert!(left.contains(&[1; 4]) && left.contains(&[2; 4]), "{left:?}");
    }
}
