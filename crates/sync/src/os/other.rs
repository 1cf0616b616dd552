//! Unixes whose sync calls nobody has checked here (BSDs and others). Type-checked; not run.

use std::fs::File;
use std::io;

use super::entry::Entry;
pub(super) use super::unix::{
    create_dir, entries, open_dir, open_own_dir, open_stranger, open_to_lock, read_at, remove,
    rename, stranger, write_at,
};
use super::{How, unix};
use crate::method::Call;
use crate::{Access, Promise, Through};

pub(super) fn open(entry: Entry<'_>, access: Access, how: How) -> io::Result<File> {
    if access.direct {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "O_DIRECT was not checked here"));
    }
    unix::open(entry, unix::through_flags(access.through), how)
}

pub(super) fn write_flagged(_: &File, _: &[u8], _: u64, _: Through) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn call(file: &File, call: Call) -> io::Result<Promise> {
    match call {
        Call::Fsync => {
            rustix::fs::fsync(file)?;
            Ok(Promise::Device)
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// No call that all of them have reserves blocks; the length alone would be a lie.
pub(super) fn reserve(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// No call that all of them have gives blocks back.
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

pub(super) fn sync_dir(dir: &File) -> io::Result<()> {
    Ok(rustix::fs::fsync(dir)?)
}
