//! Windows. Type-checked; not run.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::How;
use crate::method::Call;
use crate::{Access, Promise, Through};

/// Lets a directory be opened at all (`CreateFileW`).
const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;

pub(super) fn open(path: &Path, access: Access, how: How) -> io::Result<File> {
    if access != Access::default() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "not offered on Windows"));
    }
    how.options().open(path)
}

pub(super) fn read_at(file: &File, buf: &mut [u8], byte_offset: u64) -> io::Result<usize> {
    match file.seek_read(buf, byte_offset) {
        // ERROR_HANDLE_EOF
        Err(error) if error.raw_os_error() == Some(38) => Ok(0),
        other => other,
    }
}

pub(super) fn write_at(file: &File, buf: &[u8], byte_offset: u64) -> io::Result<usize> {
    file.seek_write(buf, byte_offset)
}

pub(super) fn write_flagged(_: &File, _: &[u8], _: u64, _: Through) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

#[expect(clippy::disallowed_methods, reason = "sync_all is FlushFileBuffers on Windows")]
pub(super) fn call(file: &File, call: Call) -> io::Result<Promise> {
    match call {
        Call::FlushFileBuffers => file.sync_all().map(|()| Promise::Media),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Setting the end of a file allocates its clusters, unless the file is sparse.
pub(super) fn reserve(file: &File, byte_offset: u64, bytes: u64) -> io::Result<()> {
    let end = byte_offset.checked_add(bytes).ok_or(io::ErrorKind::FileTooLarge)?;
    if end > file.metadata()?.len() { file.set_len(end) } else { Ok(()) }
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

/// `FlushFileBuffers` on a directory needs a handle that may write it.
pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)
}

/// A directory that `path` names. A link to one is followed.
pub(super) fn open_own_dir(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_dir() {
        open_dir(path)
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// Directories cannot be locked.
pub(super) fn open_to_lock(_: &File) -> io::Result<Option<File>> {
    Ok(None)
}

/// What a type of file is, with its article.
pub(super) fn kind(_: FileType) -> &'static str {
    "nothing known"
}

pub(super) fn sync_dir(dir: &File) -> io::Result<()> {
    call(dir, Call::FlushFileBuffers).map(|_promise| ())
}
