//! The disk as a file: a FUSE filesystem of one file, `disk.img`, in which each read, write, fsync and hole
//! is a request to the [`Device`].
//!
//! One thread takes requests from the kernel. Without a latency model it answers at once; with one, a
//! second thread answers when the time has come.
//!
//! **Invariant:** the threads that serve share neither descriptors nor mounts with the rest of the
//! process. When a process is killed the kernel unmounts what only it had mounted before it closes
//! what only it had open. Unmounting ext4 writes to our file; if `/dev/fuse` were still to be closed by the
//! same thread, nobody would answer, nobody would fail, and the kernel would wait for ever.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, Session, WriteFlags,
};
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::close;

use super::error::{Error, Result};
use super::namespace::DEVICE;
use crate::block::{Device, Errno, Latency, Model};

/// The one file.
pub(super) const NAME: &str = "disk.img";
const FILE: INodeNo = INodeNo(2);
/// The kernel may believe what it knows of the file: it does not change.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// How long the kernel may take to let go of the file.
const END_WAIT: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_micros(200);
/// Processes that are named.
const USERS_MAX: usize = 8;
/// Below this a thread is woken too late, so it waits awake.
const SPIN: Duration = Duration::from_micros(60);
const FALLOC_PUNCH_HOLE: i32 = 2;
const FALLOC_ZERO_RANGE: i32 = 16;

/// The disk, for all who use it.
#[derive(Debug)]
pub(super) struct Shared {
    device: Mutex<Device>,
    clock: Option<Clock>,
}

impl Shared {
    pub(super) fn device(&self) -> MutexGuard<'_, Device> {
        // A panic under the lock is a bug of ours, and shows where it happened.
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A disk that is being served.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Serves a device at [`DEVICE`].
    pub(super) fn start(device: Device, model: Option<Model>) -> Result<Self> {
        let shared = Arc::new(Shared { device: Mutex::new(device), clock: model.map(Clock::new) });
        let (ready, begun) = mpsc::channel();
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serve(&served, &ready));
        if begun.recv().is_ok() {
            return Ok(Self { shared, thread: Some(thread) });
        }
        let failed = thread.join().expect("a server does not panic");
        let reason = failed.map_or_else(|error| error.to_string(), |()| "it ended".to_owned());
        let reason = format!("{reason}; it needs /dev/fuse and root");
        Err(Error::Unavailable { what: "FUSE", reason })
    }

    /// Unmounts the file and ends the threads. Nobody may use the file any more.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        if umount2(DEVICE, MntFlags::empty()).is_err() {
            // In use. Its last user ends it, and with it the thread.
            umount2(DEVICE, MntFlags::MNT_DETACH)?;
        }
        match ended(thread) {
            // The kernel's word where it ends while a request is being read (`fuse_dev_do_read`), for what is
            // otherwise ENODEV. Nothing is lost: the filesystem on the file was unmounted before.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
            ended => ended,
        }
    }
}

/// Waits until the kernel has let go of the file, but not for ever: a process with mounts of its own may
/// have taken a copy of ours.
fn ended(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    let deadline = Instant::now() + END_WAIT;
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            let users = users(Path::new("/proc"));
            return Err(io::Error::other(format!(
                "the disk is still mounted in a namespace of {users}; it goes when they end"
            )));
        }
        std::thread::park_timeout(END_PAUSE);
    }
    thread.join().expect("a server does not panic")
}

/// Processes that have the file mounted where they are, by their numbers.
fn users(proc: &Path) -> String {
    let place = format!(" {DEVICE} ");
    let listed = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let mounts = std::fs::read_to_string(entry.path().join("mountinfo")).ok()?;
        mounts.contains(&place).then(|| number.to_string())
    });
    let numbers: Vec<String> = numbers.take(USERS_MAX).collect();
    if numbers.is_empty() {
        "somebody".to_owned()
    } else {
        format!("process {}", numbers.join(", "))
    }
}

/// Serves until the file is unmounted everywhere. Says when it has begun.
fn serve(shared: &Arc<Shared>, ready: &mpsc::Sender<()>) -> io::Result<()> {
    // The descriptor of /dev/fuse is this thread's alone, and those of others are not.
    unshare(CloneFlags::CLONE_FILES)?;
    close_inherited()?;
    let mut config = fuser::Config::default();
    let name = MountOption::FSName("plimsoll-disk".to_owned());
    config.mount_options = vec![name, MountOption::NoAtime];
    let session = Session::new(Disk(Arc::clone(shared)), DEVICE, &config)?;
    // What is mounted on the file is not this thread's to unmount.
    unshare(CloneFlags::CLONE_NEWNS)?;
    umount2(DEVICE, MntFlags::MNT_DETACH)?;
    let clock_thread = shared.clock.is_some().then(|| {
        let shared = Arc::clone(shared);
        std::thread::spawn(move || shared.clock.as_ref().map_or((), Clock::run))
    });
    let _gone = ready.send(());
    let served = session.run();
    if let Some(clock) = &shared.clock {
        clock.stop();
    }
    if let Some(thread) = clock_thread {
        thread.join().expect("the clock does not panic");
    }
    served
}

/// Copies of the descriptors of other threads keep open what those mean to close.
fn close_inherited() -> io::Result<()> {
    let mut inherited = Vec::new();
    for entry in std::fs::read_dir("/proc/thread-self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        inherited.extend(number.filter(|&number| number > 2));
    }
    for number in inherited {
        // That of the listing itself is closed already.
        let _closed = close(number);
    }
    Ok(())
}

/// The filesystem, as the kernel asks it.
struct Disk(Arc<Shared>);

impl Disk {
    fn attr(&self, inode: INodeNo) -> FileAttr {
        let is_file = inode == FILE;
        let size = if is_file { self.0.device().disk_bytes() } else { 0 };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o700 },
            nlink: if is_file { 1 } else { 2 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Answers now, or when the model says so.
    fn answer(
        &self,
        when: impl FnOnce(&mut Latency, u64) -> u64,
        job: impl FnOnce() + Send + 'static,
    ) {
        match &self.0.clock {
            None => job(),
            Some(clock) => clock.at(when, Box::new(job)),
        }
    }
}

impl Filesystem for Disk {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // If the kernel wants less, less it is.
        let _nearest = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == NAME {
            reply.entry(&FOR_EVER, &self.attr(FILE), Generation(0));
        } else {
            reply.error(fuser::Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if ino == INodeNo::ROOT || ino == FILE {
            reply.attr(&FOR_EVER, &self.attr(ino));
        } else {
            reply.error(fuser::Errno::ENOENT);
        }
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // No page cache between the block layer and us.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(1), flags);
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // A closed descriptor, not a flush of the device.
        reply.ok();
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let read = self.0.device().read(offset, &mut bytes);
        self.answer(
            |latency, now| latency.read(now, u64::from(size)),
            move || match read {
                Ok(()) => reply.data(&bytes),
                Err(errno) => reply.error(error(errno)),
            },
        );
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let count = u32::try_from(data.len()).expect("bounded by the kernel");
        let ticket = self.0.device().write(offset, data);
        let shared = Arc::clone(&self.0);
        self.answer(
            |latency, now| latency.write(now, offset, u64::from(count)),
            move || {
                let answer = ticket.answer();
                shared.device().end(ticket);
                match answer {
                    Ok(()) => reply.written(count),
                    Err(errno) => reply.error(error(errno)),
                }
            },
        );
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let ticket = self.0.device().flush();
        let shared = Arc::clone(&self.0);
        self.answer(Latency::flush, move || finish(&shared, vec![ticket], reply));
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & (FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE) == 0 {
            reply.error(fuser::Errno::EOPNOTSUPP);
            return;
        }
        // The loop device asks for a hole when it is told to discard, or to write zeros in whatever
        // way it likes; and for zeros when it must write them.
        let tickets = if mode & FALLOC_ZERO_RANGE != 0 {
            self.0.device().zero(offset, length)
        } else {
            vec![self.0.device().discard(offset, length)]
        };
        let shared = Arc::clone(&self.0);
        self.answer(
            |latency, now| latency.write(now, offset, 0),
            move || finish(&shared, tickets, reply),
        );
    }
}

/// Ends what one request of the kernel became, and answers it: with the first error.
fn finish(shared: &Shared, tickets: Vec<crate::block::Ticket>, reply: ReplyEmpty) {
    let mut answer = Ok(());
    for ticket in tickets {
        answer = answer.and(ticket.answer());
        shared.device().end(ticket);
    }
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(error(errno)),
    }
}

fn error(errno: Errno) -> fuser::Errno {
    match errno {
        Errno::Eio => fuser::Errno::EIO,
        Errno::Enospc => fuser::Errno::ENOSPC,
        Errno::Etimedout => fuser::Errno::ETIMEDOUT,
    }
}

/// Answers when their time has come.
struct Clock {
    start: Instant,
    state: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    latency: Latency,
    jobs: BinaryHeap<Reverse<Due>>,
    next: u64,
    is_over: bool,
}

/// A job; of two that are due at one moment the one that came first is first.
struct Due {
    at_ns: u64,
    order: u64,
    job: Box<dyn FnOnce() + Send>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ns, self.order) == (other.at_ns, other.order)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

impl Clock {
    fn new(model: Model) -> Self {
        let latency = Latency::new(model);
        let state = Queue { latency, jobs: BinaryHeap::new(), next: 0, is_over: false };
        Self { start: Instant::now(), state: Mutex::new(state), changed: Condvar::new() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn at(&self, when: impl FnOnce(&mut Latency, u64) -> u64, job: Box<dyn FnOnce() + Send>) {
        let now = self.now_ns();
        let mut queue = self.queue();
        let (at_ns, order) = (when(&mut queue.latency, now), queue.next);
        queue.next += 1;
        queue.jobs.push(Reverse(Due { at_ns, order, job }));
        self.changed.notify_one();
    }

    fn stop(&self) {
        self.queue().is_over = true;
        self.changed.notify_one();
    }

    fn run(&self) {
        let mut queue = self.queue();
        loop {
            let now = self.now_ns();
            match queue.jobs.peek() {
                Some(Reverse(due)) if due.at_ns <= now || queue.is_over => {
                    let Reverse(due) = queue.jobs.pop().expect("it was just seen");
                    drop(queue);
                    (due.job)();
                    queue = self.queue();
                }
                Some(Reverse(due)) => {
                    let left = Duration::from_nanos(due.at_ns - now);
                    if left > SPIN {
                        let waited = self.changed.wait_timeout(queue, left - SPIN);
                        queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                    } else {
                        drop(queue);
                        std::hint::spin_loop();
                        queue = self.queue();
                    }
                }
                None if queue.is_over => return,
                None => {
                    let waited = self.changed.wait(queue);
                    queue = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
