//! A directory that says what is done to it, before it is done: to count, and to hold up.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};

use plimsoll_sync::{Access, Allocation, Dir, File, Lock, Overwrite, Promise, Result, SyncMethod};

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Was done: a file is open.
    Open,
    /// Was done: so many bytes came.
    Read(u64),
    Write,
    Sync,
    Allocate,
    Create,
    Rename,
    Remove,
    SyncDir,
}

type Hear = Arc<dyn Fn(Call) + Send + Sync>;

/// A directory, or a file in it.
pub(crate) struct Wrapped<T> {
    inner: T,
    hear: Hear,
}

impl Wrapped<Arc<dyn Dir>> {
    pub(crate) fn dir(
        dir: Arc<dyn Dir>,
        hear: impl Fn(Call) + Send + Sync + 'static,
    ) -> Arc<dyn Dir> {
        Arc::new(Self { inner: dir, hear: Arc::new(hear) })
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Wrapped { inner: file, hear: Arc::clone(&self.hear) })
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Wrapped<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Dir for Wrapped<Arc<dyn Dir>> {
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn refuse_strangers(&self, is_ours: &dyn Fn(&str) -> bool) -> Result<()> {
        self.inner.refuse_strangers(is_ours)
    }
    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        (self.hear)(Call::Create);
        Ok(self.file(self.inner.create(name, access)?))
    }
    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let file = self.inner.open(name, access)?;
        (self.hear)(Call::Open);
        Ok(self.file(file))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        (self.hear)(Call::Rename);
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        (self.hear)(Call::Remove);
        self.inner.remove(name)
    }
    fn sync(&self) -> Result<()> {
        (self.hear)(Call::SyncDir);
        self.inner.sync()
    }
    fn overwrite(&self) -> Overwrite {
        self.inner.overwrite()
    }
    fn lock(&self, name: &str) -> Result<Lock> {
        self.inner.lock(name)
    }
}

impl File for Wrapped<Arc<dyn File>> {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> Result<usize> {
        let read = self.inner.read_at(buf, byte_offset)?;
        (self.hear)(Call::Read(read as u64));
        Ok(read)
    }
    fn write_at(&self, buf: &[u8], byte_offset: u64) -> Result<()> {
        (self.hear)(Call::Write);
        self.inner.write_at(buf, byte_offset)
    }
    fn write_sync_at(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<Promise> {
        (self.hear)(Call::Write);
        self.inner.write_sync_at(buf, byte_offset, method)
    }
    fn sync(&self, method: SyncMethod) -> Result<Promise> {
        (self.hear)(Call::Sync);
        self.inner.sync(method)
    }
    fn start_write_out(&self) -> Result<()> {
        self.inner.start_write_out()
    }
    fn allocate(&self, byte_offset: u64, bytes: u64, allocation: Allocation) -> Result<()> {
        (self.hear)(Call::Allocate);
        self.inner.allocate(byte_offset, bytes, allocation)
    }
    fn punch(&self, byte_offset: u64, bytes: u64) -> Result<bool> {
        self.inner.punch(byte_offset, bytes)
    }
    fn keep_in_place(&self) -> Result<bool> {
        self.inner.keep_in_place()
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)
    }
    fn alignment(&self) -> usize {
        self.inner.alignment()
    }
}

/// Holds up whoever changes the disk, from one of its calls on, until it is opened.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Passed by so many calls more; open to all if `None`.
    left: Option<u64>,
    /// Only this thread is held up, if it is known.
    only: Option<ThreadId>,
    /// Somebody stands before it.
    is_reached: bool,
}

impl Gate {
    pub(crate) fn wrap(self: &Arc<Self>, dir: Arc<dyn Dir>) -> Arc<dyn Dir> {
        let gate = Arc::clone(self);
        Wrapped::dir(dir, move |call| {
            if !matches!(call, Call::Read(_) | Call::Open) {
                gate.pass();
            }
        })
    }

    /// Closed once so many calls have passed, of this thread or of all.
    pub(crate) fn shut_after(&self, calls: u64, only: Option<ThreadId>) {
        *self.state.lock().unwrap() = GateState { left: Some(calls), only, is_reached: false };
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().left = None;
        self.changed.notify_all();
    }

    /// Waits until somebody stands before it, or `is_over`.
    pub(crate) fn is_reached_before(&self, is_over: impl Fn() -> bool) -> bool {
        loop {
            if self.state.lock().unwrap().is_reached {
                return true;
            }
            if is_over() {
                return self.state.lock().unwrap().is_reached;
            }
            thread::yield_now();
        }
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        if state.only.is_some_and(|only| only != thread::current().id()) {
            return;
        }
        match &mut state.left {
            None => return,
            Some(0) => state.is_reached = true,
            Some(left) => {
                *left -= 1;
                return;
            }
        }
        while state.left.is_some() {
            state = self.changed.wait(state).unwrap();
        }
    }
}
