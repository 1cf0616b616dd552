//! [`Watermark`]: how far something has come, to be read or waited on.
//!
//! A thread that waits parks and leaves itself in a list; whoever advances the mark wakes those that
//! have what they waited for, and nobody else. Tasks leave their waker, callbacks themselves. Reading
//! is one load; the list is sorted by what is waited for, so that a wake-up or a second poll costs the
//! same however many wait.
//!
//! Invariant: no wake-up is lost. A waiter enters the list and *then* looks at the value again; whoever
//! advances stores the value and *then* looks whether there is a list. All four are sequentially
//! consistent, or have a sequentially consistent fence between them, so one of the two sees the other.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::task::{Context, Poll};

use super::waiters::{Call, Ticket, Waiters, Wake};
use crate::error::{Error, Result};
use crate::shim::{AtomicU64, AtomicUsize, Deadline, Mutex, lock, thread};

/// How often a waiter lets others run before it parks, where many others wait as well: what they all
/// wait for has often come by then, and nobody has to wake them. Where few wait it is better that they
/// come back together, because the disk takes what they bring in one go.
const YIELDS: u32 = 8;
const YIELDERS_MIN: usize = if cfg!(shuttle) { 1 } else { 16 };

/// How far something has come: an index that only ever grows, but for truncation.
#[derive(Debug)]
pub(crate) struct Watermark {
    state: &'static str,
    value: AtomicU64,
    waiting: AtomicUsize,
    yielding: AtomicUsize,
    waiters: Mutex<Waiters>,
    /// Nobody in the list waits for this or less.
    taken: AtomicU64,
    /// Counts truncations: a changed count means that a record which was waited for may be cut.
    cuts: AtomicU64,
}

impl Watermark {
    pub(crate) fn new(state: &'static str, value: u64) -> Self {
        Self {
            state,
            value: AtomicU64::new(value),
            waiting: AtomicUsize::new(0),
            yielding: AtomicUsize::new(0),
            waiters: Mutex::new(Waiters::default()),
            taken: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
        }
    }

    /// Where it is now.
    pub(crate) fn get(&self) -> u64 {
        self.value.load(SeqCst)
    }

    /// How often it went back. Who reads this before it looks whether a record is there is told when
    /// that one is cut off, even if another has got its index meanwhile.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(SeqCst)
    }

    /// Whether it went back behind `index` since it had gone back so often.
    pub(crate) fn is_cut_off(&self, index: u64, since: u64) -> bool {
        lock(&self.waiters).is_cut_off(index, since)
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Whether it has reached `index` and has not gone back since `cuts` was read. In this order: a
    /// mark that went back and came here again was cut before.
    pub(crate) fn has_reached(&self, index: u64, cuts: u64) -> bool {
        self.get() >= index && self.cuts() == cuts
    }

    /// Waits until it has reached `index`, until the deadline at the latest.
    ///
    /// # Errors
    /// [`Error::Stopped`] or [`Error::Closed`] if it never will, [`Error::Truncated`] if it has gone
    /// back behind `index` since `cuts` was read, [`Error::TimedOut`].
    pub(crate) fn wait(&self, index: u64, cuts: u64, deadline: Option<&Deadline>) -> Result<()> {
        if self.comes_by_yielding(index, cuts) {
            return Ok(());
        }
        let mut ticket = None;
        loop {
            let left = deadline.map(Deadline::left);
            {
                let mut waiters = lock(&self.waiters);
                let ended = self.how_it_went(&waiters, index, cuts).or_else(|| {
                    let late = ticket.is_some() && left.is_some_and(|left| left.is_zero());
                    late.then(|| Err(self.timed_out(index)))
                });
                if let Some(ended) = ended {
                    ticket.into_iter().for_each(|ticket| self.leave_list(&mut waiters, ticket));
                    return ended;
                }
                if ticket.is_none_or(|ticket| !waiters.list.contains_key(&ticket)) {
                    let wake = Wake::Thread(thread::current());
                    ticket = Some(self.enter(&mut waiters, index, wake));
                }
            }
            // Entering the list comes before the look at the value that decides to park.
            if !self.has_reached(index, cuts) {
                match left {
                    None => thread::park(),
                    Some(left) => thread::park_timeout(left),
                }
            }
            if self.has_reached(index, cuts) {
                // Whoever advanced it took us from the list, or is about to.
                ticket.into_iter().for_each(|ticket| self.leave(ticket));
                return Ok(());
            }
        }
    }

    /// The same for tasks: pending until then, when the task is woken. `ticket` is that of the task
    /// that asked before with the same index, and is given back by [`Watermark::forget`].
    pub(crate) fn poll(
        &self,
        index: u64,
        cuts: u64,
        ticket: &mut Option<Ticket>,
        context: &Context<'_>,
    ) -> Poll<Result<()>> {
        let mut waiters = lock(&self.waiters);
        match ticket.and_then(|ticket| waiters.list.get_mut(&ticket)) {
            Some(Wake::Task(waker)) => waker.clone_from(context.waker()),
            _ => {
                let wake = Wake::Task(context.waker().clone());
                *ticket = Some(self.enter(&mut waiters, index, wake));
            }
        }
        match self.how_it_went(&waiters, index, cuts) {
            None => Poll::Pending,
            Some(ended) => {
                ticket.take().into_iter().for_each(|ticket| self.leave_list(&mut waiters, ticket));
                Poll::Ready(ended)
            }
        }
    }

    /// The same for a callback: called here and now if it has come or never will.
    pub(crate) fn call(&self, index: u64, cuts: u64, call: Call) {
        let mut waiters = lock(&self.waiters);
        let ticket = self.enter(&mut waiters, index, Wake::Call(call));
        let Some(ended) = self.how_it_went(&waiters, index, cuts) else { return };
        let called = waiters.list.remove(&ticket);
        self.count(&waiters);
        drop(waiters);
        called.into_iter().for_each(|wake| wake.end(ended.clone()));
    }

    /// A task does not wait any more.
    pub(crate) fn forget(&self, ticket: Ticket) {
        self.leave_list(&mut lock(&self.waiters), ticket);
    }

    /// How a wait ended, if it has.
    fn how_it_went(&self, waiters: &Waiters, index: u64, cuts: u64) -> Option<Result<()>> {
        if waiters.is_cut_off(index, cuts) {
            return Some(Err(Error::Truncated { index }));
        }
        if self.get() >= index {
            return Some(Ok(()));
        }
        waiters.closed.clone().map(Err)
    }

    /// It did not come in time, and still may.
    pub(crate) fn timed_out(&self, index: u64) -> Error {
        Error::TimedOut { index, state: self.state }
    }

    /// Lets others run for a moment, if many wait; whether the mark has come to `index` meanwhile.
    fn comes_by_yielding(&self, index: u64, cuts: u64) -> bool {
        let others = self.yielding.fetch_add(1, Relaxed) + self.waiting();
        let yields = if others < YIELDERS_MIN { 0 } else { YIELDS };
        let comes = (0..yields).any(|_| {
            thread::yield_now();
            self.has_reached(index, cuts)
        });
        self.yielding.fetch_sub(1, Relaxed);
        comes
    }

    fn enter(&self, waiters: &mut Waiters, index: u64, wake: Wake) -> Ticket {
        let ticket = waiters.enter(index, wake);
        self.count(waiters);
        ticket
    }

    fn leave(&self, ticket: Ticket) {
        if self.taken.load(SeqCst) < ticket.index && self.waiting() > 0 {
            self.leave_list(&mut lock(&self.waiters), ticket);
        }
    }

    fn leave_list(&self, waiters: &mut Waiters, ticket: Ticket) {
        waiters.list.remove(&ticket);
        self.count(waiters);
    }

    fn count(&self, waiters: &Waiters) {
        self.waiting.store(waiters.list.len(), SeqCst);
    }

    /// It has come this far, if it was not further already.
    pub(crate) fn advance(&self, to: u64) {
        if self.value.fetch_max(to, SeqCst) < to {
            self.wake(to);
        }
    }

    /// The same, by whoever alone advances it, of a mark for which nobody waits.
    pub(crate) fn set(&self, to: u64) {
        self.value.store(to, Release);
    }

    /// Wakes those that waited for this.
    #[inline]
    pub(crate) fn wake(&self, to: u64) {
        if self.waiting() > 0 {
            self.wake_reached(to);
        }
    }

    fn wake_reached(&self, to: u64) {
        let reached = self.take(|list| {
            let left = list.split_off(&Ticket::first(to.saturating_add(1)));
            std::mem::replace(list, left)
        });
        self.taken.fetch_max(to, SeqCst);
        reached.into_values().for_each(Wake::reached);
    }

    /// It has come one further.
    pub(crate) fn step(&self) {
        let before = self.value.fetch_add(1, SeqCst);
        self.wake(before + 1);
    }

    /// It goes back: what came after is gone, and whoever waited for it is told so.
    pub(crate) fn set_back(&self, to: u64) {
        self.value.fetch_min(to, SeqCst);
        {
            // Under the lock, so that whoever enters the list saw it.
            let mut waiters = lock(&self.waiters);
            waiters.cut(self.cuts.fetch_add(1, SeqCst), to);
            self.taken.fetch_min(to, SeqCst);
        }
        // Threads and tasks look for themselves whether it was theirs.
        let woken = self.take(|list| {
            let is_theirs =
                |ticket: &Ticket, wake: &Wake| ticket.index > to || !matches!(wake, Wake::Call(_));
            let (woken, left) =
                std::mem::take(list).into_iter().partition(|(at, wake)| is_theirs(at, wake));
            *list = left;
            woken
        });
        for (ticket, wake) in woken {
            wake.end(Err(Error::Truncated { index: ticket.index }));
        }
    }

    /// It will not move any more. Whoever waits is told why.
    pub(crate) fn close(&self, error: &Error) {
        let closed = lock(&self.waiters).closed.get_or_insert_with(|| error.clone()).clone();
        self.take(std::mem::take).into_values().for_each(|wake| wake.end(Err(closed.clone())));
    }

    /// Takes some from the list, who are woken when it is not locked any more.
    fn take(
        &self,
        which: impl FnOnce(&mut BTreeMap<Ticket, Wake>) -> BTreeMap<Ticket, Wake>,
    ) -> BTreeMap<Ticket, Wake> {
        let mut waiters = lock(&self.waiters);
        let taken = which(&mut waiters.list);
        self.count(&waiters);
        taken
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::task::Waker;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_waiter_wakes_when_its_index_is_reached_and_not_before() {
        let mark = Arc::new(Watermark::new("durable", 0));
        let waiter = {
            let mark = Arc::clone(&mark);
            thread::spawn(move || mark.wait(10, 0, None).map(|()| mark.get()))
        };
        for index in 1..=20 {
            mark.advance(index);
        }
        assert!(waiter.join().unwrap().unwrap() >= 10);
        assert_eq!(mark.waiting(), 0);
    }

    #[test]
    fn a_mark_never_goes_back_by_advancing() {
        let mark = Watermark::new("durable", 0);
        mark.advance(5);
        mark.advance(3);
        assert_eq!(mark.get(), 5);
    }

    #[test]
    fn time_runs_out_and_leaves_nobody_in_the_list() {
        let mark = Watermark::new("durable", 0);
        let deadline = Deadline::after(Duration::from_millis(1));
        let late = mark.wait(1, 0, Some(&deadline)).unwrap_err();
        assert!(late.to_string().contains("durable"), "{late}");
        assert_eq!(mark.waiting(), 0);
    }

    #[test]
    fn who_waits_for_what_never_comes_is_told_why() {
        let mark = Arc::new(Watermark::new("durable", 3));
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let mark = Arc::clone(&mark);
                thread::spawn(move || mark.wait(10, 0, None))
            })
            .collect();
        mark.close(&Error::Closed);
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
        }
        assert!(mark.wait(3, 0, None).is_ok(), "what was reached stays reached");
        assert!(matches!(mark.wait(4, 0, None), Err(Error::Closed)));
    }

    #[test]
    fn a_task_is_woken() {
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let context = Context::from_waker(&waker);
        let mark = Watermark::new("written", 0);
        let mut ticket = None;
        assert!(mark.poll(2, 0, &mut ticket, &context).is_pending());
        mark.advance(1);
        assert_eq!(count.0.load(SeqCst), 0);
        mark.advance(2);
        assert_eq!(count.0.load(SeqCst), 1);
        assert!(mark.poll(2, 0, &mut ticket, &context).is_ready());
        assert_eq!(mark.waiting(), 0);
    }

    /// Each poll looked through all that waited, and what was dropped stayed in the list for ever.
    #[test]
    fn a_task_that_asks_again_is_in_the_list_once_and_one_that_is_dropped_is_not() {
        let context = Context::from_waker(Waker::noop());
        let mark = Watermark::new("durable", 0);
        let mut ticket = None;
        for _ in 0..3 {
            assert!(mark.poll(2, 0, &mut ticket, &context).is_pending());
            assert_eq!(mark.waiting(), 1);
        }
        mark.forget(ticket.unwrap());
        assert_eq!(mark.waiting(), 0);
    }

    #[test]
    fn a_callback_is_called_once_and_told_how_it_went() {
        let (tell, told) = mpsc::channel();
        let mark = Watermark::new("durable", 5);
        for index in [5, 6, 7, 8, 9] {
            let tell = tell.clone();
            let call = move |how: Result<()>| tell.send((index, how.is_ok())).unwrap();
            mark.call(index, 0, Box::new(call));
        }
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [(5, true)], "here and now");
        mark.advance(6);
        mark.set_back(7);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [(6, true), (8, false), (9, false)]);
        mark.close(&Error::Closed);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [(7, false)]);
        assert_eq!(mark.waiting(), 0);
    }
}
