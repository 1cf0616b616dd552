//! What Linux, Apple systems and other Unixes answer alike.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::retry_on_intr;

use super::How;
use super::entry::{Entry, Found};
use crate::Through;

/// Follows no link, and waits for nobody: a FIFO would let its opener hang. The caller looks whether it
/// is a regular file.
pub(super) fn open(entry: Entry<'_>, flags: OFlags, how: How) -> io::Result<File> {
    let how = match how {
        How::Read => OFlags::RDONLY,
        How::Write => OFlags::RDWR,
        How::Create => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        How::WriteOrCreate => OFlags::RDWR | OFlags::CREATE,
    };
    let flags = flags | how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    let file = retry_on_intr(|| rustix::fs::openat(entry.dir, entry.name, flags, mode))?;
    // Reads and writes may wait again: io_uring takes the flag at its word, for regular files too.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file.into())
}

pub(super) fn rename(from: Entry<'_>, to: Entry<'_>) -> io::Result<()> {
    Ok(rustix::fs::renameat(from.dir, from.name, to.dir, to.name)?)
}

pub(super) fn remove(entry: Entry<'_>) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(entry.dir, entry.name, AtFlags::empty())?)
}

pub(super) fn create_dir(entry: Entry<'_>) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(entry.dir, entry.name, Mode::from_raw_mode(0o777))?)
}

/// What has a name, if it is no regular file.
pub(super) fn stranger(entry: Entry<'_>) -> io::Result<Option<&'static str>> {
    let stat = rustix::fs::statat(entry.dir, entry.name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(kind(FileType::from_raw_mode(stat.st_mode)))
}

/// The same of a path.
pub(super) fn stranger_at(path: &Path) -> io::Result<Option<&'static str>> {
    let stat = rustix::fs::lstat(path)?;
    Ok(kind(FileType::from_raw_mode(stat.st_mode)))
}

/// What has the names of a directory.
pub(super) fn entries(dir: &File, _: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let of = match entry.file_type() {
            FileType::Unknown => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                // It was taken away meanwhile.
                Err(rustix::io::Errno::NOENT) => continue,
                stat => FileType::from_raw_mode(stat?.st_mode),
            },
            of => of,
        };
        found.push((OsStr::from_bytes(name.to_bytes()).to_owned(), kind(of)));
    }
    Ok(found)
}

pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// A directory that the entry is itself, and not through a link.
pub(super) fn open_own_dir(entry: Entry<'_>) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(entry.dir, entry.name, flags, Mode::empty())?.into())
}

/// The same directory once more, to be locked: a lock belongs to who opened it. `None` where
/// directories cannot be locked.
pub(super) fn open_to_lock(dir: &File) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Some(rustix::fs::openat(dir, c".", flags, Mode::empty())?.into()))
}

/// What it is that is no regular file, with its article.
fn kind(of: FileType) -> Option<&'static str> {
    match of {
        FileType::RegularFile => None,
        FileType::Symlink => Some("a link"),
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        FileType::BlockDevice | FileType::CharacterDevice => Some("a device"),
        FileType::Unknown => Some("nothing known"),
    }
}

/// What is open, if it is no regular file.
pub(super) fn open_stranger(file: &File) -> io::Result<Option<&'static str>> {
    Ok(kind(FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode)))
}

/// Where it speaks to Linux without a libc, rustix has `O_SYNC` under this name.
const DSYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC.cast_unsigned());

/// The open flags that make every write wait.
pub(super) const fn through_flags(through: Through) -> OFlags {
    match through {
        Through::No => OFlags::empty(),
        Through::Data => DSYNC,
        Through::All => OFlags::SYNC,
    }
}

pub(super) fn read_at(file: &File, buf: &mut [u8], byte_offset: u64) -> io::Result<usize> {
    file.read_at(buf, byte_offset)
}

pub(super) fn write_at(file: &File, buf: &[u8], byte_offset: u64) -> io::Result<usize> {
    file.write_at(buf, byte_offset)
}
