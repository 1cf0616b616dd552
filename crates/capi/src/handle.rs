//! [`LogHandle`] and [`ReaderHandle`]: what C holds and any thread may use.

use std::sync::{Mutex, PoisonError, RwLock, TryLockError};
use std::time::Duration;

use plimsoll_log::{Ack, Follower, Log};

use crate::code::{Refusal, Result};

/// A timeout that never ends.
const FOREVER: u64 = u64::MAX;

/// A log that is open, or was.
#[derive(Debug)]
pub struct LogHandle {
    /// Held for reading by every call that is in it, so that closing waits for them.
    open: RwLock<Option<Log>>,
}

/// Reads the records of a log in order.
#[derive(Debug)]
pub struct ReaderHandle {
    follower: Mutex<Follower>,
}

impl LogHandle {
    pub(crate) fn new(log: Log) -> Self {
        Self { open: RwLock::new(Some(log)) }
    }

    /// Does something with the log, unless it is closed.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Log) -> Result<T>) -> Result<T> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        act(open.as_ref().ok_or(plimsoll_log::Error::Closed)?)
    }

    /// Closes it. Calls that are in it end first; those that come later are told.
    pub(crate) fn close(&self) -> Result<()> {
        let open = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        Ok(open.ok_or(plimsoll_log::Error::Closed)?.close()?)
    }

    pub(crate) fn wait(&self, index: u64, level: Ack, timeout_ns: u64) -> Result<()> {
        let timeout = (timeout_ns != FOREVER).then(|| Duration::from_nanos(timeout_ns));
        self.with(|log| {
            match (level, timeout) {
                (Ack::Durable, None) => log.wait_durable(index)?,
                (Ack::Durable, Some(timeout)) => log.wait_durable_timeout(index, timeout)?,
                (_, None) => log.wait_written(index)?,
                (_, Some(timeout)) => log.wait_written_timeout(index, timeout)?,
            }
            Ok(())
        })
    }

    pub(crate) fn follow(&self, from: u64, level: Ack) -> Result<ReaderHandle> {
        let follower = self.with(|log| Ok(log.follow(from, level)?))?;
        Ok(ReaderHandle { follower: Mutex::new(follower) })
    }
}

impl ReaderHandle {
    /// The next record: its index and where its bytes are, until the next call or until it is freed.
    pub(crate) fn next(&self, timeout_ns: u64) -> Result<(u64, *const [u8])> {
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
