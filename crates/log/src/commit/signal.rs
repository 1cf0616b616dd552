//! [`Signal`]: wakes a thread of the log's own.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;
use std::time::Duration;

use crate::shim::AtomicBool;
use crate::shim::thread::{self, Thread};

/// Who sleeps, and whether it sleeps until it is woken.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    thread: OnceLock<Thread>,
    asleep: AtomicBool,
}

impl Signal {
    /// The current thread is the one to wake.
    pub(crate) fn register_current_thread(&self) {
        self.thread.set(thread::current()).ok();
    }

    /// Sleeps until woken, or for so long. A wake-up since the last sleep ends it at once.
    pub(crate) fn sleep(&self, longest: Option<Duration>) {
        match longest {
            Some(longest) => thread::park_timeout(longest),
            None => thread::park(),
        }
    }

    /// Sleeps until woken, unless there `is_work`: who publishes work looks whether we are asleep
    /// after it did, and we look for work after we said so.
    pub(crate) fn sleep_unless(&self, longest: Option<Duration>, is_work: impl FnOnce() -> bool) {
        self.asleep.store(true, SeqCst);
        fence(SeqCst);
        if !is_work() {
            self.sleep(longest);
        }
        self.asleep.store(false, SeqCst);
    }

    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Wakes it if it would not look for itself. What is to be seen was stored before.
    pub(crate) fn wake_if_asleep(&self) {
        fence(SeqCst);
        self.wake_if_asleep_after_fence();
    }

    /// The same, where a fence already stands between what was stored and this.
    #[inline]
    pub(crate) fn wake_if_asleep_after_fence(&self) {
        if self.asleep.load(SeqCst) && self.asleep.swap(false, SeqCst) {
            self.wake();
        }
    }
}
