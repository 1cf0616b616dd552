//! [`Pool`]: threads that take the [steps](crate::commit::duties) of many logs.
//!
//! One idle thread, the *keeper*, waits for the next timer; the others wait for work. What is only nudged
//! waits for the keeper to come by, a few milliseconds later, for all that were nudged since; and timers
//! fall due together, a few milliseconds late. While the keeper works nobody keeps the time, as it hardly
//! ever works for long: where a disk holds it up, another one, the *deputy*, takes over after a while.
//!
//! Invariant: while a thread runs a task, and anything is ready or has its time, there is a keeper or a
//! deputy, or every other thread runs a task as well.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_sync::Process;

use super::task::{Calls, Duty, Task};
use crate::commit::Commit;
use crate::commit::duties::Next;
use crate::commit::signal::{Signal, Wakes};
use crate::error::Result;

/// How long what is only nudged waits.
const NAP: Duration = Duration::from_millis(5);
/// When the deputy looks whether nobody keeps the time.
const TAKE_OVER: Duration = Duration::from_millis(100);
/// No timer is later than that: it falls due in vain then.
const LATEST: Duration = Duration::from_secs(3600);
/// Another thread is called if so many tasks are ready.
const READY_MANY: usize = 4;
/// So many steps of one task are taken in a row.
const STEPS_MAX: u32 = 8;

/// Threads that take the steps of many logs.
#[derive(Debug)]
pub(crate) struct Pool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    /// Who started them.
    owner: Process,
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
    /// By when they are due, and the number of the task, which has one at most.
    timers: BTreeMap<(u64, u64), Arc<Task>>,
    /// Threads that wait for work, without the keeper.
    idle: usize,
    /// Of those so many have been called and have not come yet.
    called: usize,
    has_keeper: bool,
    has_deputy: bool,
    is_over: bool,
    /// What timers count from.
    begun: Option<Instant>,
    tasks: u64,
}

impl Pool {
    pub(crate) fn start(threads: usize) -> Result<Self> {
        let queue = Arc::<Queue>::default();
        let mut pool = Self { queue, threads: Vec::new(), owner: Process::this() };
        for _ in 0..threads {
            let queue = Arc::clone(&pool.queue);
            let name = "log-crew";
            let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || queue.work());
            let failed = |error| plimsoll_sync::Error::io("start a thread", name, error);
            pool.threads.push(spawned.map_err(failed)?);
        }
        Ok(pool)
    }

    /// Whether its threads are there: not in a child that was forked since.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner.is_this()
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
            let number = self.queue.lock().number();
            let queue = Arc::downgrade(&self.queue);
            let task = Arc::new(Task::new(duty, number, queue, Arc::clone(commit)));
            signal.register_crew(Arc::clone(&task) as Arc<dyn Wakes>);
            task
        };
        duties.map(task).into()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_ours() {
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
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

impl Calls for Queue {
    fn push(&self, task: Arc<Task>) {
        let mut state = self.lock();
        state.ready.push_back(task);
        self.call_one(&mut state);
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
                self.call_one(&mut state);
            }
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody who waits shall take what is ready.
    fn call_one(&self, state: &mut State) {
        if state.idle > state.called {
            state.called += 1;
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
                let leaves_some = next.is_some() || !state.ready.is_empty();
                let is_watched = state.has_deputy || state.has_keeper && state.ready.is_empty();
                if state.ready.len() >= READY_MANY || leaves_some && !is_watched {
                    self.call_one(&mut state);
                }
                drop(state);
                self.run(&task);
                drop(task);
                state = self.lock();
            } else if !state.has_keeper {
                state.has_keeper = true;
                state = wait(&self.keeper, state, next);
                state.has_keeper = false;
            } else {
                let is_deputy = next.is_some() && !state.has_deputy;
                state.has_deputy |= is_deputy;
                state.idle += 1;
                state = wait(&self.work, state, is_deputy.then_some(TAKE_OVER));
                state.idle -= 1;
                state.called = state.called.saturating_sub(1);
                state.has_deputy &= !is_deputy;
            }
        }
    }

    fn run(&self, task: &Arc<Task>) {
        if !task.begins() {
            return;
        }
        let mut next = task.step();
        for _ in 1..STEPS_MAX {
            if next != Next::Again {
                break;
            }
            next = task.step();
        }
        // Where it is ready again, this thread takes the next one.
        match next {
            Next::Again => {
                task.is_ready_again();
                self.lock().ready.push_back(Arc::clone(task));
            }
            Next::Woken => self.rest(task),
            Next::Within(after) => {
                let mut state = self.lock();
                let is_first = state.set_timer(task, Instant::now() + after.min(LATEST));
                if is_first && state.has_keeper {
                    self.keeper.notify_one();
                }
                drop(state);
                self.rest(task);
            }
            Next::Never => {
                self.lock().timers.remove(&(task.timer(), task.number));
                task.end();
            }
        }
    }

    /// It has nothing to do, unless it was woken since.
    fn rest(&self, task: &Arc<Task>) {
        if task.rests() {
            return;
        }
        self.lock().ready.push_back(Arc::clone(task));
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.tasks += 1;
        self.tasks
    }

    /// What timers fall due at: nanoseconds, in steps, so that many fall due together.
    fn in_step(&mut self, at: Instant) -> u64 {
        let begun = *self.begun.get_or_insert(at);
        let since = at.saturating_duration_since(begun).as_nanos();
        let in_step = since.div_ceil(NAP.as_nanos()).max(1) * NAP.as_nanos();
        u64::try_from(in_step).unwrap_or(u64::MAX)
    }

    /// Has the task run by then, if it does not run earlier anyway. Whether that is the next timer.
    fn set_timer(&mut self, task: &Arc<Task>, at: Instant) -> bool {
        let at = self.in_step(at);
        let before = task.timer();
        if before != 0 && before <= at {
            return false;
        }
        self.timers.remove(&(before, task.number));
        task.set_timer(at);
        self.timers.insert((at, task.number), Arc::clone(task));
        self.timers.first_key_value().is_some_and(|(first, _)| *first == (at, task.number))
    }

    /// Makes ready what is due, and says how long until more is.
    fn collect(&mut self, now: Instant) -> Option<Duration> {
        if self.nap_ends.is_some_and(|ends| ends <= now) {
            self.nap_ends = None;
            self.ready.extend(self.soon.drain(..).filter(|task| task.is_soon_over()));
        }
        let begun = *self.begun.get_or_insert(now);
        let since = |at: u64| (begun + Duration::from_nanos(at)).saturating_duration_since(now);
        while let Some(first) = self.timers.first_entry()
            && since(first.key().0).is_zero()
        {
            let task = first.remove();
            task.set_timer(0);
            if task.is_due() {
                self.ready.push_back(task);
            }
        }
        let timer = self.timers.first_key_value().map(|((at, _), _)| since(*at));
        let nap = self.nap_ends.map(|ends| ends.saturating_duration_since(now));
        timer.into_iter().chain(nap).min()
    }
}

/// Waits to be notified, and no longer than that; it may also wake for nothing.
fn wait<'a>(
    notified: &Condvar,
    state: MutexGuard<'a, State>,
    longest: Option<Duration>,
) -> MutexGuard<'a, State> {
    match longest {
        None => notified.wait(state).unwrap_or_else(PoisonError::into_inner),
        Some(longest) => {
            notified.wait_timeout(state, longest).unwrap_or_else(PoisonError::into_inner).0
        }
    }
}
