//! [`Ends`]: how work that goes on on another thread is told to end.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Whether it is to end, and what wakes it then.
#[derive(Debug, Default)]
pub(super) struct Ends {
    has_come: Mutex<bool>,
    changed: Condvar,
    told: Notify,
    /// Held while something is written on another thread.
    writing: Mutex<()>,
}

impl Ends {
    /// Has it end; what is being written is left as it is. Waits for that.
    pub(super) fn come(&self) {
        self.tell();
        drop(self.begin());
    }

    /// Has it end, and does not wait.
    pub(super) fn tell(&self) {
        *self.has_come.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
        self.told.notify_one();
    }

    /// Waits until it is to end.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    /// Held by who writes on another thread.
    pub(super) fn begin(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it end when that is dropped, and does not wait.
    pub(super) fn on_drop(&self) -> EndOnDrop<'_> {
        EndOnDrop(self)
    }

    pub(super) fn has_come(&self) -> bool {
        self.has_come_within(Duration::ZERO)
    }

    /// Waits for it for so long at most.
    pub(super) fn has_come_within(&self, wait: Duration) -> bool {
        let has_come = self.has_come.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(has_come, wait, |has_come| !*has_come);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Tells that it is to end.
pub(super) struct EndOnDrop<'a>(&'a Ends);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.tell();
    }
}
