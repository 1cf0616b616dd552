//! What Linux, Apple systems and other Unixes answer alike.

use std::fs::{File, FileType};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::How;
use crate::Through;

/// Follows no link, and waits for nobody: a FIFO would let its opener hang. The caller looks whether it
/// is a regular file.
pub(super) fn open(path: &Path, flags: i32, how: How) -> io::Result<File> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = how.options().custom_flags(flags).open(path)?;
    // Reads and writes may wait again: io_uring takes the flag at its word, for regular files too.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// A directory that `path` names itself, and not through a link.
pub(super) fn open_own_dir(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// The same directory once more, to be locked: a lock belongs to who opened it. `None` where
/// directories cannot be locked.
pub(super) fn open_to_lock(dir: &File) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Some(rustix::fs::openat(dir, c".", flags, Mode::empty())?.into()))
}

/// What a type of file is, with its article.
pub(super) fn kind(of: FileType) -> &'static str {
    if of.is_fifo() {
        "a FIFO"
    } else if of.is_socket() {
        "a socket"
    } else if of.is_block_device() || of.is_char_device() {
        "a device"
    } else {
        "nothing known"
    }
}

/// The open flags that make every write wait.
pub(super) const fn through_flags(through: Through) -> i32 {
    match through {
        Through::No => 0,
        Through::Data => libc::O_DSYNC,
        Through::All => libc::O_SYNC,
    }
}

pub(super) fn read_at(file: &File, buf: &mut [u8], byte_offset: u64) -> io::Result<usize> {
    file.read_at(buf, byte_offset)
}

pub(super) fn write_at(file: &File, buf: &[u8], byte_offset: u64) -> io::Result<usize> {
    file.write_at(buf, byte_offset)
}
