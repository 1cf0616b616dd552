//! What Linux, Apple systems and other Unixes answer alike.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::How;
use crate::Through;

pub(super) fn open(path: &Path, flags: i32, how: How) -> io::Result<File> {
    how.options().custom_flags(flags).open(path)
}

pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    File::open(path)
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
