//! [`PatientDir`]: a directory whose files give a disk so long, and no longer. A write or a sync that
//! takes more is a failed one, so that the log goes on elsewhere as after any failure.
//!
//! Each call runs in a thread of its own, which is left alone with it when time is up: the system
//! cannot be told to stop. What such a call still does later concerns a segment that the log has left,
//! past its durable end. Until it has ended, the file is not used again for anything else, and the
//! log's lock is held, also after the log was closed.
//!
//! Reads, the directory's own operations, and files that are no segments yet take as long as they take.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use plimsoll_sync::{
    Access, AlignedBuf, Allocation, Dir, Error, File, Lock, Overwrite, Promise, Result, SyncMethod,
};

/// How the name of a segment ends.
const SEGMENT: &str = ".seg";

/// A directory whose files have so much patience.
#[derive(Debug)]
pub(crate) struct PatientDir {
    dir: Arc<dyn Dir>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct PatientFile {
    name: Name,
    file: Arc<dyn File>,
    /// What took too long. Nothing more is written or synced through this handle then.
    failed: OnceLock<Error>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: Duration,
    /// Whether there is a limit yet.
    armed: AtomicBool,
    /// Calls that took too long and have not ended, and the file of each.
    late: Mutex<Vec<(u64, Name)>>,
    /// The files that are open.
    names: Mutex<Vec<Weak<Mutex<String>>>>,
    /// Threads that wait for a call.
    idle: Mutex<Vec<Sender<Call>>>,
    calls: AtomicU64,
    lock: Weak<Vec<Lock>>,
}

/// What a file is called now.
type Name = Arc<Mutex<String>>;

/// A call, in the thread that makes it.
type Call = Box<dyn FnOnce() + Send>;

impl PatientDir {
    /// `lock` is held also by each call that has not ended.
    pub(crate) fn new(dir: Arc<dyn Dir>, limit: Duration, lock: Weak<Vec<Lock>>) -> Self {
        let shared = Shared {
            limit,
            armed: AtomicBool::new(false),
            late: Mutex::default(),
            names: Mutex::default(),
            idle: Mutex::default(),
            calls: AtomicU64::new(0),
            lock,
        };
        Self { dir, shared: Arc::new(shared) }
    }

    /// From here on there is a limit: what opening a log writes and syncs takes as long as it takes.
    pub(crate) fn arm(&self) {
        self.shared.armed.store(true, SeqCst);
    }

    fn patient(&self, name: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        let name = Arc::new(Mutex::new(name.to_owned()));
        let mut names = lock(&self.shared.names);
        names.retain(|name| name.strong_count() > 0);
        names.push(Arc::downgrade(&name));
        Arc::new(PatientFile {
            name,
            file,
            failed: OnceLock::new(),
            shared: Arc::clone(&self.shared),
        })
    }
}

impl Shared {
    /// Makes a call in another thread, and waits for it within the limit.
    fn run<T: Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        name: &Name,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let number = self.calls.fetch_add(1, Relaxed);
        let (answer, answers) = mpsc::sync_channel(1);
        let (shared, held) = (Arc::clone(self), self.lock.upgrade());
        let call: Call = Box::new(move || {
            let result = call();
            let mut late = lock(&shared.late);
            late.retain(|(other, _)| *other != number);
            // Whoever waited may have gone.
            drop(answer.send(result));
            drop(late);
            drop(held);
        });
        let caller = self.caller()?;
        let failed = |kind, why: String| {
            Err(Error::io(operation, lock(name).clone(), io::Error::new(kind, why)))
        };
        if caller.send(call).is_err() {
            return failed(ErrorKind::Other, "its thread has ended".to_owned());
        }
        match answers.recv_timeout(self.limit) {
            Ok(result) => {
                lock(&self.idle).push(caller);
                result
            }
            Err(RecvTimeoutError::Disconnected) => {
                failed(ErrorKind::Other, "its thread panicked".to_owned())
            }
            Err(RecvTimeoutError::Timeout) => {
                let mut late = lock(&self.late);
                if let Ok(result) = answers.try_recv() {
                    return result;
                }
                late.push((number, Arc::clone(name)));
                failed(ErrorKind::TimedOut, format!("it took longer than {:?}", self.limit))
            }
        }
    }

    /// A thread that has nothing to do.
    fn caller(&self) -> Result<Sender<Call>> {
        if let Some(idle) = lock(&self.idle).pop() {
            return Ok(idle);
        }
        let (sender, calls) = mpsc::channel::<Call>();
        thread::Builder::new()
            .name("log-caller".to_owned())
            .spawn(move || calls.into_iter().for_each(|call| call()))
            .map_err(|error| Error::io("start a thread", "log-caller", error))?;
        Ok(sender)
    }
}

impl PatientFile {
    /// A write or a sync: once one has failed, there is no other.
    fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&dyn File) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if let Some(error) = self.failed.get() {
            let source = Arc::new(error.clone());
            return Err(Error::Latched { path: lock(&self.name).clone().into(), source });
        }
        // A file that is made ready is no segment yet: making it may write all of it.
        if !self.shared.armed.load(SeqCst) || !lock(&self.name).ends_with(SEGMENT) {
            return call(&*self.file);
        }
        let file = Arc::clone(&self.file);
        let result = self.shared.run(operation, &self.name, move || call(&*file));
        if let Err(error) = &result
            && error.kind() == Some(ErrorKind::TimedOut)
        {
            self.failed.get_or_init(|| error.clone());
        }
        result
    }

    /// The bytes, for a call that may outlast who asked for it.
    fn own(&self, buf: &[u8]) -> AlignedBuf {
        let mut own = AlignedBuf::zeroed(buf.len(), self.file.alignment());
        own.copy_from_slice(buf);
        own
    }
}

impl File for PatientFile {
    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> Result<usize> {
        self.file.read_at(buf, byte_offset)
    }

    fn write_at(&self, buf: &[u8], byte_offset: u64) -> Result<()> {
        let own = self.own(buf);
        self.run("write", move |file| file.write_at(&own, byte_offset))
    }

    fn write_sync_at(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<Promise> {
        let own = self.own(buf);
        self.run("write", move |file| file.write_sync_at(&own, byte_offset, method))
    }

    fn sync(&self, method: SyncMethod) -> Result<Promise> {
        self.run("sync", move |file| file.sync(method))
    }

    fn start_write_out(&self) -> Result<()> {
        self.file.start_write_out()
    }

    fn allocate(&self, byte_offset: u64, bytes: u64, allocation: Allocation) -> Result<()> {
        self.file.allocate(byte_offset, bytes, allocation)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.run("truncate", move |file| file.truncate(len))
    }

    fn alignment(&self) -> usize {
        self.file.alignment()
    }
}

impl Dir for PatientDir {
    fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }

    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.patient(name, self.dir.create(name, access)?))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.patient(name, self.dir.open(name, access)?))
    }

    /// Refused for a file that a late call may still write to: it could be written to as another then.
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        if lock(&self.shared.late).iter().any(|(_, name)| *lock(name) == from) {
            let busy = io::Error::new(ErrorKind::ResourceBusy, "a write to it has not ended");
            return Err(Error::io("rename", from, busy));
        }
        self.dir.rename(from, to)?;
        for name in lock(&self.shared.names).iter().filter_map(Weak::upgrade) {
            let mut name = lock(&name);
            if *name == from {
                to.clone_into(&mut name);
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.dir.remove(name)
    }

    fn sync(&self) -> Result<()> {
        self.dir.sync()
    }

    fn overwrite(&self) -> Overwrite {
        self.dir.overwrite()
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        self.dir.lock(name)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
