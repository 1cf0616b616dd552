//! [`Signal`]: wakes whoever does a log's work: a thread of its own, or a crew's.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;
use std::time::Duration;

use std::sync::Arc;

use crate::shim::AtomicBool;
use crate::shim::thread::{self, Thread};

/// Who does the work, and whether it is to be woken for it.
#[derive(Default)]
pub(crate) struct Signal {
    worker: OnceLock<Worker>,
    /// Of a thread: it sleeps until it is woken. A crew's task looks at its own state.
    asleep: AtomicBool,
}

enum Worker {
    Thread(Thread),
    Crew(Arc<dyn Wakes>),
}

/// A crew's part of the work.
pub(crate) trait Wakes: Send + Sync {
    /// There is work that somebody waits for.
    fn wake(self: Arc<Self>);

    /// There is work for which nobody waits.
    fn nudge(self: Arc<Self>);
}

impl Signal {
    pub(crate) fn register_current_thread(&self) {
        self.worker.set(Worker::Thread(thread::current())).ok();
    }

    /// A crew does the work.
    pub(crate) fn register_crew(&self, crew: Arc<dyn Wakes>) {
        self.worker.set(Worker::Crew(crew)).ok();
        self.asleep.store(true, SeqCst);
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

    /// There is work that somebody waits for.
    pub(crate) fn wake(&self) {
        match self.worker.get() {
            Some(Worker::Thread(thread)) => thread.unpark(),
            Some(Worker::Crew(crew)) => Arc::clone(crew).wake(),
            None => {}
        }
    }

    /// There is work: wakes a thread that would not look for itself. What is to be seen was stored before.
    pub(crate) fn wake_if_asleep(&self) {
        fence(SeqCst);
        if self.asleep.load(SeqCst) && self.is_mine_to_wake() {
            self.wake();
        }
    }

    /// There is work for which nobody waits: a thread that sleeps is woken, and a crew comes by soon. What
    /// is to be seen was stored with sequential consistency.
    #[inline]
    pub(crate) fn nudge(&self) {
        if self.asleep.load(SeqCst) {
            self.nudge_sleeper();
        }
    }

    fn nudge_sleeper(&self) {
        match self.worker.get() {
            Some(Worker::Crew(crew)) => Arc::clone(crew).nudge(),
            _ if self.asleep.swap(false, SeqCst) => self.wake(),
            _ => {}
        }
    }

    /// Of those who find a thread asleep, one wakes it.
    fn is_mine_to_wake(&self) -> bool {
        match self.worker.get() {
            Some(Worker::Crew(_)) => true,
            _ => self.asleep.swap(false, SeqCst),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signal")
    }
}
