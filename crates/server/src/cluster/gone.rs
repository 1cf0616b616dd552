//! [`Gone`]: how far the log was let go of, and how far it may be.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::error::Result;
use super::storage::Storage;
use super::types::LogId;

/// What of the log is not there any more, or not needed.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// The last entry that was let go of.
    last: Mutex<Option<LogId>>,
    /// The first entry that no durable snapshot covers.
    needed_from: AtomicU64,
}

impl Gone {
    pub(crate) fn new(last: Option<LogId>) -> Self {
        Self { last: Mutex::new(last), ..Self::default() }
    }

    /// The last entry that was let go of.
    pub(crate) fn last(&self) -> Option<LogId> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All up to this entry is in a snapshot that is durable, and nobody reads it any more.
    pub(crate) fn cover(&self, through: u64) {
        self.needed_from.fetch_max(through + 1, Ordering::Relaxed);
    }

    /// The last entry that is not needed here, if there is one.
    pub(crate) fn covered(&self) -> Option<u64> {
        self.needed_from.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Lets go of the log up to an entry. Waits for the disk. The engine is to be told (`state`).
    pub(crate) fn purge(&self, storage: &Storage, through: u64) -> Result<()> {
        self.is_now(storage.purge_to(through)?);
        Ok(())
    }

    /// The same, where nothing of that can be read.
    pub(crate) fn purge_unread(&self, storage: &Storage, through: LogId) -> Result<()> {
        storage.purge(through)?;
        self.is_now(storage.identity.known().purged);
        Ok(())
    }

    fn is_now(&self, gone: Option<LogId>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(gone);
    }
}
