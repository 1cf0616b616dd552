//! [`LogHandle`], [`ReaderHandle`] and [`CrewHandle`]: what C holds and any thread may use.

use std::process;
use std::sync::{Mutex, PoisonError, RwLock, TryLockError};
use std::time::Duration;

use plimsoll_log::{Ack, Crew, Follower, Log};
use plimsoll_sync::Process;

use crate::boundary::is_null;
use crate::code::{Refusal, Result};

/// A timeout that never ends.
const FOREVER: u64 = u64::MAX;

/// A log from C: any thread's, at any time.
pub(crate) type LogRef<'a> = Option<&'a LogHandle>;
/// A reader from C.
pub(crate) type ReaderRef<'a> = Option<&'a ReaderHandle>;
/// A crew from C: any thread's, at any time.
pub(crate) type CrewRef<'a> = Option<&'a CrewHandle>;

/// A log that is open, or was.
#[derive(Debug)]
pub struct LogHandle {
    /// Held for reading by every call that is in it, so that closing waits for them.
    open: RwLock<Option<Log>>,
    /// Held while it is closed, so that nobody hears of it before it is done.
    closing: Mutex<()>,
    /// Who opened it: asked by every call, and in words.
    owner: Process,
    process: u32,
    /// How far a record is when an append returns that does not say how far.
    ack: Ack,
}

/// Reads the records of a log in order.
#[derive(Debug)]
pub struct ReaderHandle {
    /// Who opened it.
    owner: Process,
    follower: Mutex<Follower>,
}

/// Threads and ring memory that many logs share.
#[derive(Debug)]
pub struct CrewHandle(pub(crate) Crew);

impl LogHandle {
    pub(crate) fn new(log: Log, ack: Ack) -> Self {
        let (open, closing) = (RwLock::new(Some(log)), Mutex::new(()));
        Self { open, closing, owner: Process::this(), process: process::id(), ack }
    }

    /// How far a record is when an append returns that asked for this, or for what the policy gives.
    pub(crate) fn ack(&self, asked: Option<Ack>) -> Ack {
        asked.unwrap_or(self.ack)
    }

    /// Does something with the log, unless it is closed or is about to be: nobody waits behind that. Not in a
    /// forked child, where a thread that is not there may have held any lock of it.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Log) -> Result<T>) -> Result<T> {
        if !self.owner.is_this() {
            return Err(plimsoll_log::Error::Forked.into());
        }
        let open = match self.open.try_read() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Only closing takes it for writing.
            Err(TryLockError::WouldBlock) => return Err(plimsoll_log::Error::Closed.into()),
        };
        act(open.as_ref().ok_or(plimsoll_log::Error::Closed)?)
    }

    /// Closes it. Calls that are in it end first; those that come later are told. Who finds it closed
    /// finds it done.
    pub(crate) fn close(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Refusal::Invalid(format!(
                "process {} opened the log, and this is process {}: after a fork the log is its parent's",
                self.process,
                process::id()
            )));
        }
        let _closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        Ok(open.ok_or(plimsoll_log::Error::Closed)?.close()?)
    }

    /// Frees it. What a fork copied is left alone: its threads are not here, and its files are those of
    /// the process that goes on.
    pub(crate) fn free(self: Box<Self>) {
        if self.is_forked() {
            std::mem::forget(self);
        }
    }

    fn is_forked(&self) -> bool {
        self.process != process::id()
    }

    /// Waits within the log: while somebody does, it is not closed.
    pub(crate) fn wait(&self, index: u64, level: Ack, timeout_ns: u64) -> Result<()> {
        self.with(|log| {
            let wait = log.wait(index, level)?;
            match timeout_ns {
                FOREVER => wait.block()?,
                _ => wait.block_for(Duration::from_nanos(timeout_ns))?,
            }
            Ok(())
        })
    }

    pub(crate) fn follow(&self, from: u64, level: Ack) -> Result<ReaderHandle> {
        let follower = self.with(|log| Ok(log.follow(from, level)?))?;
        Ok(ReaderHandle { owner: self.owner, follower: Mutex::new(follower) })
    }
}

impl ReaderHandle {
    /// Frees it. What a fork copied is left alone: a thread that is not here may have held its locks.
    pub(crate) fn free(self: Box<Self>) {
        if !self.owner.is_this() {
            std::mem::forget(self);
        }
    }

    /// The next record: its index and where its bytes are, until the next call or until it is freed.
    pub(crate) fn next(&self, timeout_ns: u64) -> Result<(u64, *const [u8])> {
        if !self.owner.is_this() {
            return Err(plimsoll_log::Error::Forked.into());
        }
        let mut follower = match self.follower.try_lock() {
            Ok(follower) => follower,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Refusal::Busy),
        };
        let record = match timeout_ns {
            FOREVER => Some(follower.next_record()?),
            _ => follower.next_within(Duration::from_nanos(timeout_ns))?,
        };
        let record = record.ok_or(Refusal::AtEnd)?;
        Ok((record.index, std::ptr::from_ref(record.payload)))
    }
}

/// The log that C must pass.
pub(crate) fn handle<'a>(log: LogRef<'a>) -> Result<&'a LogHandle> {
    log.ok_or_else(|| is_null("log"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::code::Code;

    fn opened(path: &std::path::Path) -> LogHandle {
        LogHandle::new(Log::open(path, plimsoll_log::Options::default()).unwrap().0, Ack::Buffered)
    }

    /// A wait with a deadline came behind a close, which came behind a wait without one.
    #[test]
    fn nobody_waits_behind_a_close() {
        let tmp = tempfile::tempdir().unwrap();
        let handle = &opened(tmp.path());
        let (entered, is_in) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let stay = |_: &Log| {
                    entered.send(()).unwrap();
                    may_leave.recv().unwrap();
                    Ok(())
                };
                handle.with(stay).unwrap();
            });
            is_in.recv().unwrap();
            let closing = scope.spawn(|| handle.close());
            // As soon as that waits.
            let refusal = loop {
                match handle.wait(0, Ack::Durable, 0) {
                    Ok(()) => thread::yield_now(),
                    Err(refusal) => break refusal,
                }
            };
            assert_eq!(refusal.code(), Code::CLOSED);
            leave.send(()).unwrap();
            closing.join().unwrap().unwrap();
        });
    }

    #[test]
    fn what_a_fork_copied_is_left_alone() {
        let tmp = tempfile::tempdir().unwrap();
        let mut handle = opened(tmp.path());
        handle.process += 1;
        assert_eq!(handle.close().unwrap_err().code(), Code::INVALID);
        handle.with(|log| Ok(log.append(b"x")?)).unwrap();
        Box::new(handle).free();
        // Nobody gave the lock back.
        let again = Log::open(tmp.path(), plimsoll_log::Options::default());
        assert_eq!(Refusal::from(again.unwrap_err()).code(), Code::LOCKED);
    }
}
