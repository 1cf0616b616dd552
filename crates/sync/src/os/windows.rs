//! Windows. Type-checked; not run.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::How;
use super::entry::{Entry, Found};
use crate::method::Call;
use crate::{Access, Promise, Through};

/// Lets a directory be opened at all (`CreateFileW`).
const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;

pub(super) fn open(entry: Entry<'_>, access: Access, how: How) -> io::Result<File> {
    if access != Access::default() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "not offered on Windows"));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(how != How::Read);
    options.create_new(how == How::Create).create(how == How::WriteOrCreate);
    options.open(entry.path)
}

#[expect(clippy::disallowed_methods, reason = "the one place that renames")]
pub(super) fn rename(from: Entry<'_>, to: Entry<'_>) -> io::Result<()> {
    std::fs::rename(from.path, to.path)
}

pub(super) fn remove(entry: Entry<'_>) -> io::Result<()> {
    std::fs::remove_file(entry.path)
}

pub(super) fn create_dir(entry: Entry<'_>) -> io::Result<()> {
    std::fs::create_dir(entry.path)
}

/// What has a name, if it is no regular file.
pub(super) fn stranger(entry: Entry<'_>) -> io::Result<Option<&'static str>> {
    Ok(kind(std::fs::symlink_metadata(entry.path)?.file_type()))
}

/// What is open, if it is no regular file.
pub(super) fn open_stranger(file: &File) -> io::Result<Option<&'static str>> {
    Ok(kind(file.metadata()?.file_type()))
}

/// What has the names of a directory.
pub(super) fn entries(_: &File, path: &Path) -> io::Result<Vec<Found>> {
    let found = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name(), kind(entry.file_type()?)))
    };
    std::fs::read_dir(path)?.map(found).collect()
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

/// Only a file that was made sparse gives clusters back, and ours are not.
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

/// `FlushFileBuffers` on a directory needs a handle that may write it.
pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)
}

/// A directory that the entry names. A link to one is followed.
pub(super) fn open_own_dir(entry: Entry<'_>) -> io::Result<File> {
    if std::fs::metadata(entry.path)?.is_dir() {
        open_dir(entry.path)
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// Directories cannot be locked.
pub(super) fn open_to_lock(_: &File) -> io::Result<Option<File>> {
    Ok(None)
}

/// What it is that is no regular file, with its article.
fn kind(of: FileType) -> Option<&'static str> {
    match of {
        of if of.is_file() => None,
        of if of.is_symlink() => Some("a link"),
        of if of.is_dir() => Some("a directory"),
        _ => Some("nothing known"),
    }
}

pub(super) fn sync_dir(dir: &File) -> io::Result<()> {
    call(dir, Call::FlushFileBuffers).map(|_promise| ())
}
