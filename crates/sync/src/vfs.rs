//! The seam: everything above is written against these two traits, and all bytes go through them.
//!
//! [`crate::OsDir`] is the real machine. `SimDir` in plimsoll-simdisk forgets, tears and fails on
//! demand. Both pass `crate::contract`.
//!
//! A name is one plain name, without separators; a directory in a directory is another [`Dir`]. What a
//! call makes durable is said at each.
//!
//! **No link is followed** where a name is opened in a directory: neighbours who may write there could
//! lead us anywhere with one. What is not a regular file (a link, a device, a FIFO, a directory) is
//! refused as [`crate::Error::NotAFile`], without waiting for it; a directory that is reached by a link
//! is refused too. The path by which the *first* directory is opened is the user's word, and followed.
//! Windows has no such flag: there a link to a file is followed.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use crate::{Access, Error, Promise, Result, SyncMethod};

/// A directory of files.
///
/// Creating, renaming and removing sync the directory before they return: after a power cut the
/// entry is as the caller was told. The *content* of a file is another matter: see [`File`].
pub trait Dir: Debug + Send + Sync {
    /// Names of the regular files, sorted. Says nothing about durability. What is none is passed over:
    /// [`Dir::refuse_strangers`].
    fn list(&self) -> Result<Vec<String>>;

    /// Refuses, as [`crate::Error::NotAFile`], what is no regular file and has a name for which `is_ours`
    /// holds: a link, a device, a FIFO, a directory. Nothing where there are only regular files.
    fn refuse_strangers(&self, _is_ours: &dyn Fn(&str) -> bool) -> Result<()> {
        Ok(())
    }

    /// A new, empty file. Its directory entry is durable on return. Fails if the name is taken.
    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>>;

    /// A file that exists. Changes nothing. Where it may not be written (a read-only mount, or its
    /// permissions) it can be read, and every write to it fails.
    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>>;

    /// Gives a file another name, replacing what had it, atomically: after a crash the new name
    /// leads to the old file or to the new one. Durable on return. The renamed file's *content* is
    /// only as durable as it was synced before.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Takes a name away. Durable on return: the file does not come back after a power cut. Open
    /// handles go on working.
    fn remove(&self, name: &str) -> Result<()>;

    /// Makes all entries of the directory durable.
    fn sync(&self) -> Result<()>;

    /// A directory in this one, made if it is not there. Its name is durable on return, also if it was
    /// there already: whoever made it may not have synced it. Fails if a file or a link has the name,
    /// and, unless the implementation says otherwise, where directories are flat.
    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Err(Error::io("create directory", name, io::ErrorKind::Unsupported.into()))
    }

    /// A directory in this one that exists. Changes nothing. Fails if a file or a link has the name.
    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Err(Error::io("open directory", name, io::ErrorKind::Unsupported.into()))
    }

    /// Which device it is on, where there is such a number: what works in one directory of a device works
    /// in its others.
    fn device(&self) -> Option<u64> {
        None
    }

    /// The room on the filesystem that it is on, where somebody can say.
    fn space(&self) -> Option<Space> {
        None
    }

    /// What becomes of bytes that are written where others were, as far as the system says.
    fn overwrite(&self) -> Overwrite {
        Overwrite::InPlace
    }

    /// The exclusive lock of the directory, held until dropped or until the process dies. It is the
    /// directory's own, whatever becomes of the file `name`, in which its holder is named where there is
    /// room for that. Where a system cannot lock directories (Windows, some network filesystems) it is
    /// that file's. The file is locked in any case, as those who know no better lock it alone.
    ///
    /// Dropping it in the process that took it frees it, also while a forked child lives that has a copy;
    /// what the child drops stays locked.
    fn lock(&self, name: &str) -> Result<Lock>;
}

/// An open file, read and written at byte offsets.
///
/// A failed write or sync is final: every later write, truncation and sync of the file, through
/// this handle or another of the same [`Dir`], fails with [`crate::Error::Latched`]. Reads go on,
/// and may show bytes that are not on the disk.
pub trait File: Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads up to `buf.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> Result<usize>;

    /// Writes all of `buf`, growing the file if need be. On return the bytes are *written*: with
    /// the kernel, not durable, unless the file was opened with [`crate::Through`].
    fn write_at(&self, buf: &[u8], byte_offset: u64) -> Result<()>;

    /// Writes all of `buf` and makes it durable by `method`, for which the file must have been
    /// opened ([`SyncMethod::access`]). Returns the promise that was kept.
    fn write_sync_at(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<Promise>;

    /// Syncs everything written before, by a method that [`SyncMethod::is_call`]. Returns the
    /// promise that was kept, which is a weaker one than asked for only where
    /// [`SyncMethod::FullFsync`] is unsupported and fsync was called instead.
    fn sync(&self, method: SyncMethod) -> Result<Promise>;

    /// Asks the system to begin writing out what was written, and does not wait. A hint: nothing is
    /// durable on return, and where there is no such call nothing happens.
    fn start_write_out(&self) -> Result<()> {
        Ok(())
    }

    /// Gives blocks to the range and makes the file at least that long; it reads as zeros where
    /// nothing was written. Durable only after a sync.
    fn allocate(&self, byte_offset: u64, bytes: u64, allocation: Allocation) -> Result<()>;

    /// Gives the blocks of a range back to the filesystem, and says whether it could: if so the range
    /// reads as zeros, and the length is what it was. What is not a whole block of the filesystem is
    /// only zeroed; past the end of the file there is nothing to do. It says `false`, and nothing
    /// happens, where there is no such call (other systems than Linux, some filesystems), and if `bytes`
    /// is 0.
    ///
    /// Durable only after a sync: until then a power cut may bring back any part of what was there. A
    /// later write into the range needs room on the disk again. btrfs has the room of an extent (what
    /// was written or reserved at once, up to 128 MiB) back only when no part of it is left.
    fn punch(&self, _byte_offset: u64, _bytes: u64) -> Result<bool> {
        Ok(false)
    }

    /// Asks that what is written over other bytes of this file, which must be empty still, goes where they
    /// were, and says whether it will: then a write into blocks that the file has needs no room on the
    /// disk, also where [`Dir::overwrite`] is [`Overwrite::Elsewhere`]. A filesystem may charge for it:
    /// btrfs then keeps no checksums of the file, and after a snapshot copies each block once more.
    fn keep_in_place(&self) -> Result<bool> {
        Ok(false)
    }

    /// Sets the length. Bytes cut off are gone; bytes added are zeros. Durable only after a sync.
    fn truncate(&self, len: u64) -> Result<()>;

    /// What buffers, lengths and byte offsets must be a multiple of; 1 unless opened direct.
    fn alignment(&self) -> usize;
}

/// How blocks are given to a file before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// Blocks are reserved but marked unwritten, so that the first write to each must still change
    /// metadata (fallocate(2) with mode 0).
    Reserved,
    /// Zeros are written, so that later writes are overwrites. Existing bytes are lost.
    Zeroed,
}

/// Room on a filesystem, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Its size.
    pub total_bytes: u64,
    /// What this user may still write.
    pub free_bytes: u64,
}

/// What a filesystem does with bytes that are written where others were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overwrite {
    /// They go where the others were, so that zeros written ahead make later writes cheaper.
    InPlace,
    /// They go elsewhere (copy on write, or a log): zeros written ahead are a waste.
    Elsewhere,
    /// Nothing goes to a disk.
    Memory,
}

/// A lock of a directory, released when dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held for its Drop")] Box<dyn Debug + Send + Sync>);

impl Lock {
    /// A lock that is released when `guard` is dropped.
    pub fn new(guard: impl Debug + Send + Sync + 'static) -> Self {
        Self(Box::new(guard))
    }
}
