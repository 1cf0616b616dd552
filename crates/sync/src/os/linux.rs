//! Linux.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;

use rustix::fs::{AtFlags, FallocateFlags, IFlags, OFlags, StatxFlags};
use rustix::io::{ReadWriteFlags, retry_on_intr};

use super::entry::Entry;
pub(super) use super::unix::{
    create_dir, entries, open_dir, open_own_dir, open_stranger, open_to_lock, read_at, remove,
    rename, stranger, write_at,
};
use super::{How, unix};
use crate::method::Call;
use crate::{Access, Promise, Through};

/// Waits for older write-out, starts write-out and waits for it.
const WRITE_AND_WAIT: libc::c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE
    | libc::SYNC_FILE_RANGE_WRITE
    | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// What direct I/O is safely aligned to where the kernel does not say (before 6.1).
const DIRECT_ALIGNMENT: usize = 4096;

pub(super) fn open(entry: Entry<'_>, access: Access, how: How) -> io::Result<File> {
    let direct = if access.direct { OFlags::DIRECT } else { OFlags::empty() };
    unix::open(entry, direct | unix::through_flags(access.through), how)
}

pub(super) fn write_flagged(
    file: &File,
    buf: &[u8],
    byte_offset: u64,
    through: Through,
) -> io::Result<usize> {
    let flags = match through {
        Through::No => ReadWriteFlags::empty(),
        Through::Data => ReadWriteFlags::DSYNC,
        Through::All => ReadWriteFlags::SYNC,
    };
    Ok(rustix::io::pwritev2(file, &[IoSlice::new(buf)], byte_offset, flags)?)
}

pub(super) fn call(file: &File, call: Call) -> io::Result<Promise> {
    match call {
        Call::Fsync => rustix::fs::fsync(file)?,
        Call::Fdatasync => rustix::fs::fdatasync(file)?,
        Call::Syncfs => rustix::fs::syncfs(file)?,
        Call::SyncFileRange => {
            sync_file_range(file, WRITE_AND_WAIT)?;
            return Ok(Promise::Device);
        }
        Call::BarrierFsync | Call::FullFsync | Call::FlushFileBuffers => {
            return Err(io::ErrorKind::Unsupported.into());
        }
    }
    Ok(Promise::Media)
}

/// Begins to write what of a file is only in the page cache to its device, and does not wait for it: neither
/// metadata nor a flush. Nothing is durable by it. Linux only.
pub fn start_write_out(file: &File) -> io::Result<()> {
    match sync_file_range(file, libc::SYNC_FILE_RANGE_WRITE) {
        // The kernel has no such call. Anything else that it says may come from the device.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        done => done,
    }
}

/// Of the whole file.
#[expect(unsafe_code, reason = "rustix has no sync_file_range")]
fn sync_file_range(file: &File, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call; the call takes no pointer.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn reserve(file: &File, byte_offset: u64, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), byte_offset, bytes)?)
}

/// Interrupted it has done a part, and can be done again.
pub(super) fn punch(file: &File, byte_offset: u64, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| rustix::fs::fallocate(file, flags, byte_offset, bytes))?)
}

/// btrfs does it for files that are empty still, and says nothing where it does not.
pub(super) fn keep_in_place(file: &File) -> io::Result<bool> {
    let flags = rustix::fs::ioctl_getflags(file)?;
    if !flags.contains(IFlags::NOCOW) {
        rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW)?;
    }
    Ok(rustix::fs::ioctl_getflags(file)?.contains(IFlags::NOCOW))
}

pub(super) fn alignment(file: &File) -> usize {
    let Ok(stat) = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return DIRECT_ALIGNMENT;
    };
    let said = stat.stx_dio_mem_align.max(stat.stx_dio_offset_align) as usize;
    if said.is_power_of_two() { said } else { DIRECT_ALIGNMENT }
}

pub(super) fn sync_dir(dir: &File) -> io::Result<()> {
    Ok(rustix::fs::fsync(dir)?)
}
