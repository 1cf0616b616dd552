//! [`Pool`]: threads that take the [steps](crate::commit::duties) of many logs.
//!
//! ```text
//!            wake                       run
//!   idle ─────────► queued ──────────────────────► running ──► queued · idle · ended
//!     │  nudge                 soon                   │ woken meanwhile: again
//!     └──────────► soon ──────────► queued            └──► queued
//! ```
//!
//! One idle thread, the *keeper*, waits for the next timer; the others wait for work. What is only nudged
//! waits for the keeper to come by, a few milliseconds later, for all that were nudged since; and timers
//! fall due together, a few milliseconds late. While the keeper works nobody keeps the time, as it hardly
//! ever works for long: where a disk holds it up, another idle thread takes over after a while.
//!
//! Invariant: a task that is woken runs once more after that. Whoever publishes work looks at the task's
//! state after it did; a thread that runs a task says so before it looks for work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::commit::Commit;
use crate::commit::duties::Next;
use crate::commit::signal::{Signal, Wakes};
use crate::error::Result;

/// How long what is only nudged waits.
const NAP: Duration = Duration::from_millis(5);
/// When an idle thread looks whether nobody keeps the time, if there is any to keep.
const TAKE_OVER: Duration = Duration::from_millis(100);
/// No timer is later than that: it falls due in vain then.
const LATEST: Duration = Duration::from_secs(3600);
/// Another thread is called if so many tasks are ready.
const READY_MANY: usize = 4;
/// So many steps of one task are taken in a row.
const STEPS_MAX: u32 = 8;

const IDLE: u8 = 0;
const SOON: u8 = 1;
const QUEUED: u8 = 2;
const RUNNING: u8 = 3;
/// Running, and woken since.
const AGAIN: u8 = 4;
const ENDED: u8 = 5;

/// Threads that take the steps of many logs.
#[derive(Debug)]
pub(crate) struct Pool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// What a log wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    Write,
    Sync,
    Prepare,
}

/// A duty of a log.
#[derive(Debug)]
pub(crate) struct Task {
    duty: Duty,
    state: AtomicU8,
    queue: Weak<Queue>,
    /// Until it ends, so that an ended log is gone.
    commit: Mutex<Option<Arc<Commit>>>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    work: Condvar,
    keeper: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Arc<Task>>,
    soon: Vec<Arc<Task>>,
    /// When those are due.
    nap_ends: Option<Instant>,
    timers: BinaryHeap<Reverse<Timer>>,
    /// Threads that wait for work, without the keeper.
    idle: usize,
    has_keeper: bool,
    is_over: bool,
    /// What timers count from.
    begun: Option<Instant>,
}

#[derive(Debug)]
struct Timer {
    at: Instant,
    task: Arc<Task>,
}

impl Pool {
    pub(crate) fn start(threads: usize) -> Result<Self> {
        let queue = Arc::<Queue>::default();
        let mut pool = Self { queue, threads: Vec::new() };
        for _ in 0..threads {
            let queue = Arc::clone(&pool.queue);
            let name = "log-crew";
            let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || queue.work());
            let failed = |error| plimsoll_sync::Error::io("start a thread", name, error);
            pool.threads.push(spawned.map_err(failed)?);
        }
        Ok(pool)
    }

    /// Takes a log's duties over.
    pub(crate) fn adopt(&self, commit: &Arc<Commit>) -> Vec<Arc<Task>> {
        let signals = &commit.signals;
        let duties = [
            (Duty::Write, &signals.writer),
            (Duty::Sync, &signals.syncer),
            (Duty::Prepare, &signals.preparer),
        ];
        let task = |(duty, signal): (Duty, &Signal)| {
            let task = Arc::new(Task {
                duty,
                state: AtomicU8::new(IDLE),
                queue: Arc::downgrade(&self.queue),
                commit: Mutex::new(Some(Arc::clone(commit))),
                ended: Condvar::new(),
            });
            signal.register_crew(Arc::clone(&task) as Arc<dyn Wakes>);
            task
        };
        duties.map(task).into()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.work.notify_all();
        self.queue.keeper.notify_all();
        for thread in self.threads.drain(..) {
            // The last log may be dropped by one of them.
            if thread.thread().id() != thread::current().id() {
                drop(thread.join());
            }
        }
    }
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
    /// Waits until it has ended, which a log that is over has it do.
    pub(crate) fn join(self: &Arc<Self>) {
        Arc::clone(self).wake();
        let mut commit = lock(&self.commit);
        while commit.is_some() {
            commit = self.ended.wait(commit).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change(&self, to: impl Fn(u8) -> Option<u8>) -> Option<u8> {
        self.state.fetch_update(SeqCst, SeqCst, to).ok()
    }

    fn step(&self) -> Next {
        let Some(commit) = lock(&self.commit).clone() else { return Next::Never };
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
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn push(&self, task: Arc<Task>) {
        let mut state = self.lock();
        state.ready.push_back(task);
        self.call_one(&state);
    }

    fn push_soon(&self, task: Arc<Task>) {
        let mut state = self.lock();
        state.soon.push(task);
        if state.nap_ends.is_none() {
            state.nap_ends = Some(Instant::now() + NAP);
            // It may wait for longer than that.
            if state.has_keeper {
                self.keeper.notify_one();
            } else {
                self.work.notify_one();
            }
        }
    }

    /// Somebody who waits shall take what is ready.
    fn call_one(&self, state: &State) {
        if state.idle > 0 {
            self.work.notify_one();
        } else if state.has_keeper {
            self.keeper.notify_one();
        }
    }

    /// A thread of the pool.
    fn work(&self) {
        let mut state = self.lock();
        while !state.is_over {
            let next = state.collect(Instant::now());
            if let Some(task) = state.ready.pop_front() {
                if state.ready.len() >= READY_MANY {
                    self.call_one(&state);
                }
                drop(state);
                self.run(&task);
                drop(task);
                state = self.lock();
            } else if !state.has_keeper {
                state.has_keeper = true;
                let waited = match next {
                    Some(left) => {
                        let waited = self.keeper.wait_timeout(state, left);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.keeper.wait(state).unwrap_or_else(PoisonError::into_inner),
                };
                state = waited;
                state.has_keeper = false;
            } else {
                state.idle += 1;
                state = match next {
                    Some(_) => {
                        let waited = self.work.wait_timeout(state, TAKE_OVER);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                };
                state.idle -= 1;
            }
        }
    }

    fn run(&self, task: &Arc<Task>) {
        // A timer, a nudge and a wake-up may all have brought it here: it runs once.
        if task.change(|state| (state == QUEUED).then_some(RUNNING)).is_none() {
            return;
        }
        fence(SeqCst);
        let mut next = task.step();
        for _ in 1..STEPS_MAX {
            if next != Next::Again {
                break;
            }
            next = task.step();
        }
        match next {
            Next::Again => {
                task.state.store(QUEUED, SeqCst);
                // This thread takes the next one.
                self.lock().ready.push_back(Arc::clone(task));
            }
            Next::Woken => self.rest(task),
            Next::Within(after) => {
                let mut state = self.lock();
                let at = state.in_step(Instant::now() + after.min(LATEST));
                let is_first = state.timers.peek().is_none_or(|Reverse(first)| at < first.at);
                state.timers.push(Reverse(Timer { at, task: Arc::clone(task) }));
                if is_first && state.has_keeper {
                    self.keeper.notify_one();
                }
                drop(state);
                self.rest(task);
            }
            Next::Never => {
                task.state.store(ENDED, SeqCst);
                let ended = lock(&task.commit).take();
                task.ended.notify_all();
                drop(ended);
            }
        }
    }

    /// It has nothing to do, unless it was woken since.
    fn rest(&self, task: &Arc<Task>) {
        let before = task.change(|state| Some(if state == AGAIN { QUEUED } else { IDLE }));
        if before == Some(AGAIN) {
            self.lock().ready.push_back(Arc::clone(task));
        }
    }
}

impl State {
    /// The next moment at which timers fall due.
    fn in_step(&mut self, at: Instant) -> Instant {
        let begun = *self.begun.get_or_insert(at);
        let since = at.saturating_duration_since(begun).as_nanos();
        let in_step = since.div_ceil(NAP.as_nanos()) * NAP.as_nanos();
        begun + Duration::from_nanos(u64::try_from(in_step).unwrap_or(u64::MAX))
    }

    /// Makes ready what is due, and says how long until more is.
    fn collect(&mut self, now: Instant) -> Option<Duration> {
        if self.nap_ends.is_some_and(|ends| ends <= now) {
            self.nap_ends = None;
            for task in self.soon.drain(..) {
                if task.change(|state| (state == SOON).then_some(QUEUED)).is_some() {
                    self.ready.push_back(task);
                }
            }
        }
        while let Some(Reverse(first)) = self.timers.peek()
            && first.at <= now
        {
            let Some(Reverse(Timer { task, .. })) = self.timers.pop() else { break };
            // One that is running is about to rest: it runs again instead.
            let due = task.change(|state| match state {
                IDLE => Some(QUEUED),
                RUNNING => Some(AGAIN),
                _ => None,
            });
            if due == Some(IDLE) {
                self.ready.push_back(task);
            }
        }
        let timer = self.timers.peek().map(|Reverse(first)| first.at);
        let next = timer.into_iter().chain(self.nap_ends).min();
        next.map(|at| at.saturating_duration_since(now))
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
