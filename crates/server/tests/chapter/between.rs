//! [`Between`]: a directory in which something happens between two reads of somebody else, or behind the page cache.

use std::fmt;
use std::sync::{Arc, Mutex};

use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Allocation, Dir, File, Lock, Promise, Result, SyncMethod};

type Hook = Box<dyn FnOnce() + Send>;

/// A disk in memory, and what is done just before the next read of one of its files.
#[derive(Clone)]
pub(crate) struct Between {
    disk: Arc<SimDir>,
    before_read: Arc<Mutex<Option<Hook>>>,
    /// What there is on the medium, where it is not what the page cache has.
    medium: Arc<Mutex<Option<Arc<SimDir>>>>,
}

impl Between {
    pub(crate) fn new(disk: &Arc<SimDir>) -> Self {
        Self { disk: Arc::clone(disk), before_read: Arc::default(), medium: Arc::default() }
    }

    /// Whoever reads past the page cache reads this from now on.
    pub(crate) fn on_medium(&self, medium: &Arc<SimDir>) {
        *self.medium.lock().unwrap() = Some(Arc::clone(medium));
    }

    /// This happens once, before the next read.
    pub(crate) fn before_next_read(&self, what: impl FnOnce() + Send + 'static) {
        *self.before_read.lock().unwrap() = Some(Box::new(what));
    }

    /// Whether it has happened.
    pub(crate) fn has_happened(&self) -> bool {
        self.before_read.lock().unwrap().is_none()
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Watched { file, before_read: Arc::clone(&self.before_read) })
    }
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(f)
    }
}

impl Dir for Between {
    fn list(&self) -> Result<Vec<String>> {
        self.disk.list()
    }

    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.file(self.disk.create(name, access)?))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let medium = self.medium.lock().unwrap().clone().filter(|_| access.direct);
        Ok(self.file(medium.as_ref().unwrap_or(&self.disk).open(name, access)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.disk.remove(name)
    }

    fn sync(&self) -> Result<()> {
        Dir::sync(&*self.disk)
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        self.disk.lock(name)
    }
}

struct Watched {
    file: Arc<dyn File>,
    before_read: Arc<Mutex<Option<Hook>>>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl File for Watched {
    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> Result<usize> {
        // Others read while it happens.
        let due = self.before_read.lock().unwrap().take();
        due.into_iter().for_each(|happens| happens());
        self.file.read_at(buf, byte_offset)
    }

    fn write_at(&self, buf: &[u8], byte_offset: u64) -> Result<()> {
        self.file.write_at(buf, byte_offset)
    }

    fn write_sync_at(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<Promise> {
        self.file.write_sync_at(buf, byte_offset, method)
    }

    fn sync(&self, method: SyncMethod) -> Result<Promise> {
        self.file.sync(method)
    }

    fn allocate(&self, byte_offset: u64, bytes: u64, allocation: Allocation) -> Result<()> {
        self.file.allocate(byte_offset, bytes, allocation)
    }

    fn punch(&self, byte_offset: u64, bytes: u64) -> Result<bool> {
        self.file.punch(byte_offset, bytes)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.file.truncate(len)
    }

    fn alignment(&self) -> usize {
        self.file.alignment()
    }
}
