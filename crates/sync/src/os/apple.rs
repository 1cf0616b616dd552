//! macOS and its relatives. Type-checked; not run.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::entry::Entry;
use super::full_fsync::full_fsync;
pub(super) use super::unix::{
    create_dir, entries, open_dir, open_own_dir, open_stranger, open_to_lock, read_at, remove,
    rename, stranger, write_at,
};
use super::{How, unix};
use crate::method::Call;
use crate::{Access, Promise, Through};

pub(super) fn open(entry: Entry<'_>, access: Access, how: How) -> io::Result<File> {
    if access.direct {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "O_DIRECT is Linux's"));
    }
    unix::open(entry, unix::through_flags(access.through), how)
}

pub(super) fn write_flagged(_: &File, _: &[u8], _: u64, _: Through) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn call(file: &File, call: Call) -> io::Result<Promise> {
    match call {
        Call::Fsync => fsync(file).map(|()| Promise::Device),
        Call::FullFsync => full_fsync(|| Ok(rustix::fs::fcntl_fullfsync(file)?), || fsync(file)),
        Call::BarrierFsync => barrier_fsync(file).map(|()| Promise::Ordering),
        Call::Fdatasync | Call::SyncFileRange | Call::Syncfs | Call::FlushFileBuffers => {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

fn fsync(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fsync(file)?)
}

#[expect(unsafe_code, reason = "rustix has no F_BARRIERFSYNC")]
fn barrier_fsync(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call; the command takes no argument.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_BARRIERFSYNC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// `F_PREALLOCATE` reserves blocks from the physical end of the file, so the range is grown into
/// first by what is missing, then the length is set.
#[expect(unsafe_code, reason = "rustix has no F_PREALLOCATE")]
pub(super) fn reserve(file: &File, byte_offset: u64, bytes: u64) -> io::Result<()> {
    let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
    let end = byte_offset.checked_add(bytes).ok_or_else(too_large)?;
    let len = file.metadata()?.len();
    if end <= len {
        return Ok(());
    }
    let mut store = libc::fstore_t {
        fst_flags: libc::F_ALLOCATEALL,
        fst_posmode: libc::F_PEOFPOSMODE,
        fst_offset: 0,
        fst_length: i64::try_from(end - len).map_err(|_overflow| too_large())?,
        fst_bytesalloc: 0,
    };
    // SAFETY: `store` is a valid fstore_t that outlives the call, and the descriptor is open.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PREALLOCATE, &raw mut store) } == -1 {
        return Err(io::Error::last_os_error());
    }
    file.set_len(end)
}

/// `F_PUNCHHOLE` takes whole blocks only, and what it does past the end of a file nobody has checked here.
pub(super) fn punch(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn start_write_out(_: &File) -> io::Result<()> {
    Ok(())
}

/// No filesystem that copies on write is known to take such a wish here.
pub(super) fn keep_in_place(_: &File) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn alignment(_: &File) -> usize {
    1
}

/// As far as the filesystem can: the entry should survive what the file's content survives.
pub(super) fn sync_dir(dir: &File) -> io::Result<()> {
    call(dir, Call::FullFsync).map(|_promise| ())
}
