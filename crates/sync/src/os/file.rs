//! [`OsFile`]: a file of the real filesystem. Always behind a latch.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::full_fsync::{is_ours, says_unsupported};
#[cfg(unix)]
use super::map::Mapping;
use super::requests::Write;
use super::sys;
use super::uring::Ring;
use crate::method::{Call, Chain, Step};
use crate::{Access, Allocation, Error, File, Overwrite, Promise, Result, SyncMethod, System};

/// Zeros are written in pieces of this size.
const ZEROS_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct OsFile {
    file: fs::File,
    path: PathBuf,
    access: Access,
    alignment: usize,
    /// Whether a flagged write has succeeded.
    flag_works: AtomicBool,
    /// Made at the first use and kept: mapping anew for each write would be the cost measured.
    #[cfg(unix)]
    mapping: Mutex<Option<Mapping>>,
    ring: Mutex<Option<Ring>>,
}

impl OsFile {
    pub(super) fn new(file: fs::File, path: PathBuf, access: Access) -> Self {
        let alignment = if access.direct { sys::alignment(&file) } else { 1 };
        Self {
            file,
            path,
            access,
            alignment,
            flag_works: AtomicBool::new(false),
            #[cfg(unix)]
            mapping: Mutex::new(None),
            ring: Mutex::new(None),
        }
    }

    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> Error {
        move |error| Error::io(operation, &self.path, error)
    }

    fn unsupported(&self, method: SyncMethod, reason: impl Into<String>) -> Error {
        Error::Unsupported { method, path: self.path.clone(), reason: reason.into() }
    }

    /// Refuses what the kernel would refuse with a bare EINVAL, before anything is written.
    fn check_aligned(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<()> {
        let alignment = self.alignment;
        let aligned = buf.as_ptr().addr().is_multiple_of(alignment)
            && buf.len().is_multiple_of(alignment)
            && byte_offset.is_multiple_of(alignment as u64);
        if aligned {
            return Ok(());
        }
        let reason = format!(
            "direct I/O needs buffer, length and byte offset at multiples of {alignment}, \
             got {} bytes at {byte_offset}",
            buf.len()
        );
        Err(self.unsupported(method, reason))
    }

    fn write_all(
        &self,
        mut buf: &[u8],
        mut byte_offset: u64,
        write: impl Fn(&[u8], u64) -> io::Result<usize>,
    ) -> Result<()> {
        while !buf.is_empty() {
            match write(buf, byte_offset) {
                Ok(0) => return Err(self.failed("write")(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    buf = &buf[written..];
                    byte_offset += written as u64;
                }
                // Nothing was written; this is not the retry of a failed write.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("write")(error)),
            }
        }
        Ok(())
    }

    fn write_flagged(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<()> {
        let Step::WriteFlag(through) = method.step() else {
            unreachable!("{method} is not a flag of write")
        };
        let written = self.write_all(buf, byte_offset, |buf, byte_offset| {
            sys::write_flagged(&self.file, buf, byte_offset, through)
        });
        match written {
            Ok(()) => {
                self.flag_works.store(true, Ordering::Relaxed);
                Ok(())
            }
            // A kernel that does not know the flag says so before it writes anything. Where the flag
            // has worked, the same words are a device's, and the sync has failed.
            Err(Error::Io { source, .. })
                if says_unsupported(&source) && !self.flag_works.load(Ordering::Relaxed) =>
            {
                Err(self.unsupported(method, source.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn call(&self, call: Call, method: SyncMethod) -> Result<Promise> {
        sys::call(&self.file, call).map_err(|error| {
            if is_ours(&error) {
                self.unsupported(method, "no such call on this system")
            } else {
                self.failed(method.name())(error)
            }
        })
    }

    #[cfg(unix)]
    fn write_mapped(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<()> {
        let mut mapping = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        let len = self.len()?;
        if byte_offset.checked_add(buf.len() as u64).is_none_or(|end| end > len) {
            let reason = "a mapping cannot grow a file: allocate it first";
            return Err(self.unsupported(method, reason));
        }
        if mapping.as_ref().is_none_or(|mapping| mapping.len() as u64 != len) {
            // Nothing is written yet, so a file that cannot be mapped is none the worse for it.
            let mapped = Mapping::new(&self.file, len);
            *mapping = Some(mapped.map_err(|e| self.unsupported(method, format!("mmap: {e}")))?);
        }
        let mapping = mapping.as_ref().expect("mapped just above");
        mapping.write_sync_at(buf, byte_offset).map_err(self.failed("msync"))
    }

    #[cfg(not(unix))]
    fn write_mapped(&self, _: &[u8], _: u64, method: SyncMethod) -> Result<()> {
        Err(self.unsupported(method, "not built for this system"))
    }

    fn write_uring(
        &self,
        buf: &[u8],
        byte_offset: u64,
        chain: Chain,
        method: SyncMethod,
    ) -> Result<()> {
        if u32::try_from(buf.len()).is_err() {
            return Err(self.unsupported(method, "one request writes less than 4 GiB"));
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.is_none() {
            *ring = Some(Ring::new(1).map_err(|e| {
                self.unsupported(method, format!("io_uring cannot be set up: {e}"))
            })?);
        }
        let ring = ring.as_mut().expect("set up just above");
        let done = ring.write_sync(&[Write { file: &self.file, buf, byte_offset }], chain);
        done.outcomes.into_iter().collect::<io::Result<()>>().map_err(self.failed("io_uring write"))
    }
}

impl File for OsFile {
    fn len(&self) -> Result<u64> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(self.failed("stat"))
    }

    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match sys::read_at(&self.file, &mut buf[filled..], byte_offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read")(error)),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, buf: &[u8], byte_offset: u64) -> Result<()> {
        if self.access.direct {
            self.check_aligned(buf, byte_offset, SyncMethod::Direct)?;
        }
        self.write_all(buf, byte_offset, |buf, at| sys::write_at(&self.file, buf, at))
    }

    fn write_sync_at(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<Promise> {
        let Some(promise) = method.promise(System::HERE) else {
            return Err(self.unsupported(method, "no such call on this system"));
        };
        if method.access() != self.access {
            return Err(self.unsupported(method, "the file was not opened for it"));
        }
        if self.access.direct {
            self.check_aligned(buf, byte_offset, method)?;
        }
        match method.step() {
            Step::Write => self.write_at(buf, byte_offset)?,
            Step::WriteFlag(_) => self.write_flagged(buf, byte_offset, method)?,
            Step::Call(call) => {
                self.write_at(buf, byte_offset)?;
                return self.call(call, method);
            }
            Step::Map => self.write_mapped(buf, byte_offset, method)?,
            Step::Uring(chain) => self.write_uring(buf, byte_offset, chain, method)?,
        }
        Ok(promise)
    }

    fn sync(&self, method: SyncMethod) -> Result<Promise> {
        if method.promise(System::HERE).is_none() {
            return Err(self.unsupported(method, "no such call on this system"));
        }
        match method.step() {
            Step::Call(call) => self.call(call, method),
            _ => Err(self.unsupported(method, "it covers only the write that it comes with")),
        }
    }

    fn start_write_out(&self) -> Result<()> {
        sys::start_write_out(&self.file).map_err(self.failed("sync_file_range"))
    }

    fn allocate(&self, byte_offset: u64, bytes: u64, allocation: Allocation) -> Result<()> {
        match allocation {
            Allocation::Reserved => sys::reserve(&self.file, byte_offset, bytes).map_err(|error| {
                if says_unsupported(&error) {
                    self.unsupported(self.access.method(), format!("no reserving: {error}"))
                } else {
                    self.failed("allocate")(error)
                }
            }),
            Allocation::Zeroed => {
                let align = self.alignment;
                let zeros = crate::AlignedBuf::zeroed(ZEROS_BYTES, align);
                let end = byte_offset + bytes;
                let mut at = byte_offset;
                while at < end {
                    let piece =
                        usize::try_from(end - at).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
                    self.write_at(&zeros[..piece], at)?;
                    at += piece as u64;
                }
                Ok(())
            }
        }
    }

    fn punch(&self, byte_offset: u64, bytes: u64) -> Result<bool> {
        if bytes == 0 {
            return Ok(false); // fallocate(2) would call it invalid
        }
        match sys::punch(&self.file, byte_offset, bytes) {
            Ok(()) => Ok(true),
            Err(error) if says_unsupported(&error) => Ok(false),
            Err(error) => Err(self.failed("punch")(error)),
        }
    }

    fn keep_in_place(&self) -> Result<bool> {
        if super::place::overwrite(&self.file) != Overwrite::Elsewhere {
            return Ok(true);
        }
        if !self.is_empty()? {
            return Ok(false);
        }
        match sys::keep_in_place(&self.file) {
            Ok(kept) => Ok(kept),
            // Filesystems disagree on how to refuse a flag that they do not know.
            Err(error)
                if says_unsupported(&error) || error.kind() == io::ErrorKind::InvalidInput =>
            {
                Ok(false)
            }
            Err(error) => Err(self.failed("set flags")(error)),
        }
    }

    fn truncate(&self, len: u64) -> Result<()> {
        // A mapping that reaches past the end would turn the next store into a SIGBUS.
        #[cfg(unix)]
        let mut mapping = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(unix)]
        {
            *mapping = None;
        }
        self.file.set_len(len).map_err(self.failed("truncate"))
    }

    fn alignment(&self) -> usize {
        self.alignment
    }
}
