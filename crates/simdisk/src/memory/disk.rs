//! The whole simulated disk: files, names, room and barriers. Pure: no clock, no randomness, no I/O.
//!
//! Invariant: if something that the device got after a barrier is durable, everything that it got
//! before that barrier is.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use super::directory::{Directory, FileId};
use super::inode::Inode;
use super::options::Persistence;
use crate::sparse::{PAGE, pages_of};

/// The longest file, as with every 64-bit offset that is signed.
pub(crate) const MAX_FILE_BYTES: u64 = i64::MAX as u64;

#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    pub(crate) files: BTreeMap<FileId, Inode>,
    pub(crate) directory: Directory,
    /// Barriers so far.
    pub(crate) epoch: u64,
    pub(crate) persistence: Persistence,
    pub(crate) capacity_bytes: Option<u64>,
    pub(crate) next_order: u64,
    next_file: u64,
}

impl Disk {
    pub(crate) fn new(persistence: Persistence, capacity_bytes: Option<u64>) -> Self {
        Self { persistence, capacity_bytes, ..Self::default() }
    }

    pub(crate) fn find(&self, name: &str) -> io::Result<FileId> {
        let id = self.directory.live.get(name).copied();
        id.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Panics if the file is gone, which a handle prevents.
    pub(crate) fn file(&mut self, id: FileId) -> &mut Inode {
        self.files.get_mut(&id).expect("a handle or a name keeps its file")
    }

    pub(crate) fn create(&mut self, name: &str) -> io::Result<FileId> {
        if self.directory.live.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = FileId(self.next_file);
        self.next_file += 1;
        let inode = Inode { name: name.to_owned(), ..Inode::default() };
        self.files.insert(id, inode);
        let order = self.order();
        self.directory.link(order, name, id);
        Ok(id)
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let id = self.find(from)?;
        if self.directory.live.get(to) == Some(&id) {
            return Ok(()); // as rename(2) does with two names of one file
        }
        let order = self.order();
        self.directory.rename(order, from, to, id);
        to.clone_into(&mut self.file(id).name);
        self.forget_unreachable();
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) -> io::Result<()> {
        self.find(name)?;
        let order = self.order();
        self.directory.unlink(order, name);
        self.forget_unreachable();
        Ok(())
    }

    /// Writes what fits; fails if that is not all.
    pub(crate) fn write(&mut self, id: FileId, buf: &[u8], at: u64, lost: bool) -> io::Result<()> {
        let bytes = range(at, buf.len() as u64)?;
        let fitting = self.fitting(id, &bytes);
        let order = self.order();
        let take = usize::try_from(fitting.end - at).expect("no more than the buffer");
        self.file(id).write(order, &buf[..take], at, lost);
        full_unless(fitting == bytes)
    }

    /// Writes zeros where they fit; fails if that is not everywhere.
    pub(crate) fn zero(&mut self, id: FileId, at: u64, bytes: u64) -> io::Result<()> {
        let bytes = range(at, bytes)?;
        let fitting = self.fitting(id, &bytes);
        let order = self.order();
        self.file(id).zero(order, fitting.clone());
        full_unless(fitting == bytes)
    }

    /// All of the range, or nothing.
    pub(crate) fn reserve(&mut self, id: FileId, at: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into()); // as fallocate(2)
        }
        let bytes = range(at, bytes)?;
        full_unless(self.fitting(id, &bytes) == bytes)?;
        let order = self.order();
        self.file(id).reserve(order, bytes);
        Ok(())
    }

    pub(crate) fn truncate(&mut self, id: FileId, len: u64) -> io::Result<()> {
        range(len, 0)?;
        let order = self.order();
        self.file(id).truncate(order, len);
        Ok(())
    }

    pub(crate) fn hand_over(&mut self, id: FileId, pages: Option<&Range<u64>>, metadata: bool) {
        let epoch = self.epoch;
        if metadata && self.persistence == Persistence::Journal {
            // As it is committed: for all files at once.
            self.hand_over_directory();
        }
        self.file(id).hand_over(pages, metadata, epoch);
    }

    pub(crate) fn hand_over_directory(&mut self) {
        if self.persistence == Persistence::Journal {
            self.files.values_mut().for_each(|inode| inode.hand_over_new(self.epoch));
        }
        self.directory.hand_over(self.epoch);
    }

    /// The file goes to the device, and nothing that comes later overtakes it.
    pub(crate) fn barrier(&mut self, id: FileId) {
        self.hand_over(id, None, true);
        self.epoch += 1;
    }

    pub(crate) fn persist(&mut self, id: FileId, pages: Option<&Range<u64>>) {
        if self.persistence == Persistence::Journal && self.file(id).changes_metadata(pages) {
            self.commit();
        }
        self.file(id).persist(pages);
        self.keep_order();
    }

    /// The journal is on the medium: names and lengths of all files, and before them what is in blocks
    /// that are new.
    fn commit(&mut self) {
        self.files.values_mut().for_each(Inode::persist_new);
        self.directory.persist();
        self.forget_unreachable();
    }

    pub(crate) fn persist_all(&mut self) {
        for inode in self.files.values_mut() {
            inode.persist(None);
        }
        self.persist_directory();
    }

    pub(crate) fn persist_directory(&mut self) {
        if self.persistence == Persistence::Journal {
            self.commit();
        }
        self.directory.persist();
        self.keep_order();
        self.forget_unreachable();
    }

    pub(crate) fn close(&mut self, id: FileId) {
        self.file(id).handles -= 1;
        self.forget_unreachable();
    }

    pub(crate) fn forget_unreachable(&mut self) {
        let directory = &self.directory;
        self.files.retain(|&id, inode| inode.handles > 0 || directory.refers_to(id));
    }

    pub(crate) fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// Something became durable, so everything behind an earlier barrier is.
    fn keep_order(&mut self) {
        if self.epoch > 0 {
            for inode in self.files.values_mut() {
                inode.persist_before(self.epoch);
            }
        }
    }

    /// The beginning of a range that there is room for.
    fn fitting(&self, id: FileId, bytes: &Range<u64>) -> Range<u64> {
        let Some(capacity) = self.capacity_bytes else {
            return bytes.clone();
        };
        let used: u64 = self.files.values().map(|inode| inode.live.blocks.count()).sum();
        let spare = (capacity / PAGE).saturating_sub(used);
        let blocks = &self.files[&id].live.blocks;
        let end = blocks.fitting_end(&pages_of(bytes), spare);
        bytes.start..end.saturating_mul(PAGE).clamp(bytes.start, bytes.end)
    }
}

fn range(at: u64, bytes: u64) -> io::Result<Range<u64>> {
    match at.checked_add(bytes) {
        Some(end) if end <= MAX_FILE_BYTES => Ok(at..end),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

fn full_unless(all: bool) -> io::Result<()> {
    if all { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
}
