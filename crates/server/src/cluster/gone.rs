//! [`Gone`]: how far the log was let go of, and how far it may be.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::error::Result;
use super::storage::Storage;
use super::types::LogId;
use super::watch;

/// What of the log is not there any more, or not needed.
#[derive(Debug)]
pub(crate) struct Gone {
    /// The last entry that was let go of. Whoever tells the engine looks at this.
    last: watch::Sender<Option<LogId>>,
    /// Held by who lets go: what of two is looked at by one, the other takes.
    turn: Mutex<()>,
    /// The first entry that no durable snapshot covers.
    needed_from: AtomicU64,
}

impl Gone {
    pub(crate) fn new(last: Option<LogId>) -> Self {
        let (turn, needed_from) = Default::default();
        Self { last: watch::Sender::new(last), turn, needed_from }
    }

    /// The last entry that was let go of.
    pub(crate) fn last(&self) -> Option<LogId> {
        *self.last.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<LogId>> {
        self.last.subscribe()
    }

    /// All up to this entry is in a snapshot that is durable, and nobody reads it any more.
    pub(crate) fn cover(&self, through: u64) {
        self.needed_from.fetch_max(through + 1, Ordering::Relaxed);
    }

    /// The last entry that is not needed here, if there is one.
    pub(crate) fn covered(&self) -> Option<u64> {
        self.needed_from.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Lets go of the log up to an entry. Waits for the disk. The engine is told of it (`state`).
    pub(crate) fn purge(&self, storage: &Storage, through: u64) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_now(storage.purge_to(through)?);
        Ok(())
    }

    /// The same, where nothing of that can be read.
    pub(crate) fn purge_unread(&self, storage: &Storage, through: LogId) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        storage.purge(through)?;
        self.is_now(storage.identity.known().purged);
        Ok(())
    }

    fn is_now(&self, gone: Option<LogId>) {
        self.last.send_if_modified(|last| {
            let is_more = gone > *last;
            *last = gone.max(*last);
            is_more
        });
    }
}
