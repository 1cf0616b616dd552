//! [`Task`]: a duty of a log, for whoever of a pool's threads comes by.
//!
//! ```text
//!            wake                       run
//!   idle ─────────► queued ──────────────────────► running ──► queued · idle · ended
//!     │  nudge                 soon                   │ woken meanwhile: again
//!     └──────────► soon ──────────► queued            └──► queued
//! ```
//!
//! Invariant: a task that is woken runs once more after that. Whoever publishes work looks at the task's
//! state after it did; a thread that runs a task says so before it looks for work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU64, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use crate::commit::Commit;
use crate::commit::duties::Next;
use crate::commit::signal::Wakes;

const IDLE: u8 = 0;
const SOON: u8 = 1;
const QUEUED: u8 = 2;
const RUNNING: u8 = 3;
/// Running, and woken since.
const AGAIN: u8 = 4;
const ENDED: u8 = 5;

/// What a log wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    Write,
    Sync,
    Prepare,
}

/// Where tasks wait for a thread.
pub(super) trait Calls: std::fmt::Debug + Send + Sync {
    /// It is ready.
    fn push(&self, task: Arc<Task>);
    /// It is, when somebody comes by.
    fn push_soon(&self, task: Arc<Task>);
}

/// A duty of a log.
#[derive(Debug)]
pub(crate) struct Task {
    duty: Duty,
    /// No other task has it.
    pub(super) number: u64,
    state: AtomicU8,
    /// Its timer, as the queue knows it, under whose lock it changes: 0 if it has none.
    timer: AtomicU64,
    queue: Weak<dyn Calls>,
    /// Until it ends, so that an ended log is gone.
    commit: Mutex<Option<Arc<Commit>>>,
    ended: Condvar,
}

impl Wakes for Task {
    /// Has it run, at once if a thread is free.
    fn wake(self: Arc<Self>) {
        let woken = self.change(|state| match state {
            IDLE | SOON => Some(QUEUED),
            RUNNING => Some(AGAIN),
            _ => None,
        });
        if matches!(woken, Some(IDLE | SOON))
            && let Some(queue) = self.queue.upgrade()
        {
            queue.push(self);
        }
    }

    /// Has it run when a thread comes by.
    fn nudge(self: Arc<Self>) {
        let nudged = self.change(|state| match state {
            IDLE => Some(SOON),
            RUNNING => Some(AGAIN),
            _ => None,
        });
        if nudged == Some(IDLE)
            && let Some(queue) = self.queue.upgrade()
        {
            queue.push_soon(self);
        }
    }
}

impl Task {
    pub(super) fn new(
        duty: Duty,
        number: u64,
        queue: Weak<dyn Calls>,
        commit: Arc<Commit>,
    ) -> Self {
        Self {
            duty,
            number,
            state: AtomicU8::new(IDLE),
            timer: AtomicU64::new(0),
            queue,
            commit: Mutex::new(Some(commit)),
            ended: Condvar::new(),
        }
    }

    /// Waits until it has ended, which a log that is over has it do.
    pub(crate) fn join(self: &Arc<Self>) {
        Arc::clone(self).wake();
        let mut commit = self.commit();
        while commit.is_some() {
            commit = self.ended.wait(commit).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn timer(&self) -> u64 {
        self.timer.load(SeqCst)
    }

    pub(super) fn set_timer(&self, at: u64) {
        self.timer.store(at, SeqCst);
    }

    /// What was nudged is ready, unless it was woken since.
    pub(super) fn is_soon_over(&self) -> bool {
        self.change(|state| (state == SOON).then_some(QUEUED)).is_some()
    }

    /// Its timer is due. Whether it is ready: one that is running is about to rest, and runs again instead.
    pub(super) fn is_due(&self) -> bool {
        let due = self.change(|state| match state {
            IDLE => Some(QUEUED),
            RUNNING => Some(AGAIN),
            _ => None,
        });
        due == Some(IDLE)
    }

    /// A thread takes it, unless it has run since it was ready: a timer, a nudge and a wake-up may all have
    /// brought it here.
    pub(super) fn begins(&self) -> bool {
        let begins = self.change(|state| (state == QUEUED).then_some(RUNNING)).is_some();
        fence(SeqCst);
        begins
    }

    /// It has more to do.
    pub(super) fn is_ready_again(&self) {
        self.state.store(QUEUED, SeqCst);
    }

    /// It has nothing to do; or is ready, if it was woken since.
    pub(super) fn rests(&self) -> bool {
        let before = self.change(|state| Some(if state == AGAIN { QUEUED } else { IDLE }));
        before != Some(AGAIN)
    }

    /// The log is over.
    pub(super) fn end(&self) {
        self.state.store(ENDED, SeqCst);
        let ended = self.commit().take();
        self.ended.notify_all();
        drop(ended);
    }

    pub(super) fn step(&self) -> Next {
        let Some(commit) = self.commit().clone() else { return Next::Never };
        let step = || match self.duty {
            Duty::Write => commit.write_step(),
            Duty::Sync => commit.sync_step(),
            Duty::Prepare => commit.prepare_step(),
        };
        catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
            // It has said why; nobody shall wait for it.
            let error = std::io::Error::other("a step of the log panicked");
            commit.stop(plimsoll_sync::Error::io("run", "log-crew", error).into());
            Next::Never
        })
    }

    fn change(&self, to: impl Fn(u8) -> Option<u8>) -> Option<u8> {
        self.state.fetch_update(SeqCst, SeqCst, to).ok()
    }

    fn commit(&self) -> MutexGuard<'_, Option<Arc<Commit>>> {
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
