//! [`Watermark`]: how far something has come, to be read or waited on.
//!
//! Who waits, parks by itself and leaves its thread in a list; who advances the mark wakes those that
//! have what they waited for, and nobody else. Reading is one load.
//!
//! Invariant: no wake-up is lost. A waiter enters the list and *then* looks at the value again; who
//! advances stores the value and *then* looks whether there is a list. All four are sequentially
//! consistent, or have a sequentially consistent fence between them, so one of the two sees the other.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::shim::thread::{self, Thread};
use crate::shim::{AtomicU64, AtomicUsize, Deadline, Mutex, lock};

/// So often a waiter lets others run before it parks, where so many others wait as well: what they all
/// wait for has often come by then, and nobody has to wake them. Where few wait it is better that they
/// come back together, because the disk takes what they bring in one go.
const YIELDS: u32 = 8;
const YIELDERS_MIN: usize = if cfg!(shuttle) { 1 } else { 16 };

/// How far something has come: an index that only ever grows, but for truncation.
#[derive(Debug)]
pub struct Watermark {
    state: &'static str,
    value: AtomicU64,
    waiting: AtomicUsize,
    yielding: AtomicUsize,
    waiters: Mutex<Waiters>,
    /// Nobody in the list waits for this or less.
    taken: AtomicU64,
    /// Raised when the mark went back: who waited for more waits in vain.
    cuts: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiters {
    list: Vec<Waiter>,
    next_ticket: u64,
    closed: Option<Error>,
    /// How often it had gone back before it went back to where. Of those that went as far back or
    /// further the last one only, so both numbers grow.
    cuts: Vec<(u64, u64)>,
}

impl Waiters {
    fn cut(&mut self, before: u64, to: u64) {
        while self.cuts.last().is_some_and(|cut| cut.1 >= to) {
            self.cuts.pop();
        }
        self.cuts.push((before, to));
    }

    /// Whether it went back behind `index` since it had gone back so often.
    fn is_cut_off(&self, index: u64, since: u64) -> bool {
        let first = self.cuts.partition_point(|cut| cut.0 < since);
        self.cuts.get(first).is_some_and(|cut| cut.1 < index)
    }
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    index: u64,
    wake: Wake,
}

#[derive(Debug)]
enum Wake {
    Thread(Thread),
    Task(Waker),
}

impl Wake {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
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
    pub fn get(&self) -> u64 {
        self.value.load(SeqCst)
    }

    /// Waits until it has reached `index`.
    ///
    /// # Errors
    /// [`Error::Stopped`] or [`Error::Closed`] if it never will, [`Error::Truncated`] if the record
    /// was cut off meanwhile.
    pub fn wait(&self, index: u64) -> Result<()> {
        self.wait_until(index, None, None)
    }

    /// How often it went back; for [`Watermark::wait_since`].
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(SeqCst)
    }

    /// As [`Watermark::wait`], if it has not gone back behind `index` since `cuts` was read.
    pub(crate) fn wait_since(&self, index: u64, cuts: u64) -> Result<()> {
        self.wait_until(index, None, Some(cuts))
    }

    /// Waits until it has reached `index`, but no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Watermark::wait`], and [`Error::TimedOut`].
    pub fn wait_timeout(&self, index: u64, timeout: Duration) -> Result<()> {
        self.wait_until(index, Some(&Deadline::after(timeout)), None)
    }

    /// As [`Watermark::wait_timeout`], if it has not gone back behind `index` since `cuts` was read.
    pub(crate) fn wait_timeout_since(
        &self,
        index: u64,
        timeout: Duration,
        cuts: u64,
    ) -> Result<()> {
        self.wait_until(index, Some(&Deadline::after(timeout)), Some(cuts))
    }

    /// As [`Watermark::wait`], for tasks: pending until then, when the task is woken. A truncation wakes
    /// the task as well, and does not say so: look at [`crate::Log::last_index`].
    pub fn poll(&self, index: u64, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.get() >= index {
            return Poll::Ready(Ok(()));
        }
        self.poll_in_list(index, None, context)
    }

    /// As [`Watermark::poll`], if it has not gone back behind `index` since `cuts` was read; says so if
    /// it has.
    pub(crate) fn poll_since(
        &self,
        index: u64,
        cuts: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        self.poll_in_list(index, Some(cuts), context)
    }

    fn poll_in_list(
        &self,
        index: u64,
        since: Option<u64>,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        let mut waiters = lock(&self.waiters);
        // A task that asks again is in the list once.
        let again = |waiter: &Waiter| {
            matches!(&waiter.wake, Wake::Task(waker)
                if waiter.index == index && waker.will_wake(context.waker()))
        };
        waiters.list.retain(|waiter| !again(waiter));
        if since.is_some_and(|cuts| waiters.is_cut_off(index, cuts)) {
            return Poll::Ready(Err(Error::Truncated { index }));
        }
        match self.enter(&mut waiters, index, Wake::Task(context.waker().clone())) {
            Ok(Some(_ticket)) => Poll::Pending,
            Ok(None) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    fn wait_until(
        &self,
        index: u64,
        deadline: Option<&Deadline>,
        since: Option<u64>,
    ) -> Result<()> {
        if since.is_none() && self.get() >= index {
            return Ok(());
        }
        if self.comes_by_yielding(index, since) {
            return Ok(());
        }
        let mut waiters = lock(&self.waiters);
        let cuts = since.unwrap_or_else(|| self.cuts());
        if waiters.is_cut_off(index, cuts) {
            return Err(Error::Truncated { index });
        }
        let Some(mut ticket) = self.enter(&mut waiters, index, Wake::Thread(thread::current()))?
        else {
            return Ok(());
        };
        drop(waiters);
        loop {
            let left = deadline.map(Deadline::left);
            match left {
                None => thread::park(),
                Some(left) => thread::park_timeout(left),
            }
            if self.get() >= index && self.cuts() == cuts {
                // Whoever advanced it took us from the list, or is about to.
                self.leave(ticket, index);
                return Ok(());
            }
            let mut waiters = lock(&self.waiters);
            if waiters.is_cut_off(index, cuts) {
                self.leave_list(&mut waiters, ticket);
                return Err(Error::Truncated { index });
            }
            if self.get() >= index {
                self.leave_list(&mut waiters, ticket);
                return Ok(());
            }
            if left.is_some_and(|left| left.is_zero()) {
                self.leave_list(&mut waiters, ticket);
                return Err(Error::TimedOut { index, state: self.state });
            }
            if waiters.list.iter().all(|waiter| waiter.ticket != ticket) {
                match self.enter(&mut waiters, index, Wake::Thread(thread::current()))? {
                    Some(again) => ticket = again,
                    None => return Ok(()),
                }
            }
        }
    }

    /// Lets others run for a moment, if many wait; whether the mark has come to `index` meanwhile.
    fn comes_by_yielding(&self, index: u64, since: Option<u64>) -> bool {
        let others = self.yielding.fetch_add(1, Relaxed) + self.waiting();
        let yields = if others < YIELDERS_MIN { 0 } else { YIELDS };
        let comes = (0..yields).any(|_| {
            thread::yield_now();
            // A mark that went back may have come here again, with another record.
            self.get() >= index && since.is_none_or(|since| since == self.cuts())
        });
        self.yielding.fetch_sub(1, Relaxed);
        comes
    }

    /// Enters the list, unless it has been reached or never will be.
    fn enter(&self, waiters: &mut Waiters, index: u64, wake: Wake) -> Result<Option<u64>> {
        let ticket = waiters.next_ticket;
        waiters.next_ticket += 1;
        waiters.list.push(Waiter { ticket, index, wake });
        self.waiting.store(waiters.list.len(), SeqCst);
        if self.get() >= index {
            self.leave_list(waiters, ticket);
            return Ok(None);
        }
        if let Some(error) = waiters.closed.clone() {
            self.leave_list(waiters, ticket);
            return Err(error);
        }
        Ok(Some(ticket))
    }

    fn leave(&self, ticket: u64, index: u64) {
        if self.taken.load(SeqCst) < index && self.waiting() > 0 {
            self.leave_list(&mut lock(&self.waiters), ticket);
        }
    }

    fn leave_list(&self, waiters: &mut Waiters, ticket: u64) {
        waiters.list.retain(|waiter| waiter.ticket != ticket);
        self.waiting.store(waiters.list.len(), SeqCst);
    }

    /// It has come this far, if it was not further already.
    pub(crate) fn advance(&self, to: u64) {
        if self.value.fetch_max(to, SeqCst) < to {
            self.wake(to);
        }
    }

    /// As [`Watermark::advance`], by whoever alone advances it, and wakes nobody: after a fence that
    /// is sequentially consistent [`Watermark::wake`] does.
    pub(crate) fn set(&self, to: u64) {
        self.value.store(to, Release);
    }

    /// Wakes who waited for this.
    pub(crate) fn wake(&self, to: u64) {
        if self.waiting() > 0 {
            self.take_reached(to).into_iter().for_each(Wake::wake);
        }
    }

    /// It has come one further.
    pub(crate) fn step(&self) {
        let before = self.value.fetch_add(1, SeqCst);
        self.wake(before + 1);
    }

    /// It goes back: what came after is gone, and who waited for it is told so.
    pub(crate) fn set_back(&self, to: u64) {
        self.value.fetch_min(to, SeqCst);
        {
            // Under the lock, so that whoever enters the list saw it.
            let mut waiters = lock(&self.waiters);
            waiters.cut(self.cuts.fetch_add(1, SeqCst), to);
            self.taken.fetch_min(to, SeqCst);
        }
        self.take(|_| true).into_iter().for_each(Wake::wake);
    }

    /// It will not move any more. Who waits is told why.
    pub(crate) fn close(&self, error: &Error) {
        lock(&self.waiters).closed.get_or_insert_with(|| error.clone());
        self.take(|_| true).into_iter().for_each(Wake::wake);
    }

    fn take_reached(&self, to: u64) -> Vec<Wake> {
        let reached = self.take(|waiter| waiter.index <= to);
        self.taken.fetch_max(to, SeqCst);
        reached
    }

    fn take(&self, mut which: impl FnMut(&Waiter) -> bool) -> Vec<Wake> {
        let mut waiters = lock(&self.waiters);
        let (taken, left) = std::mem::take(&mut waiters.list).into_iter().partition(&mut which);
        waiters.list = left;
        self.waiting.store(waiters.list.len(), SeqCst);
        let taken: Vec<Waiter> = taken;
        taken.into_iter().map(|waiter| waiter.wake).collect()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn a_waiter_wakes_when_its_index_is_reached_and_not_before() {
        let mark = Arc::new(Watermark::new("durable", 0));
        let waiter = {
            let mark = Arc::clone(&mark);
            thread::spawn(move || mark.wait(10).map(|()| mark.get()))
        };
        for index in 1..=20 {
            mark.advance(index);
        }
        assert!(waiter.join().unwrap().unwrap() >= 10);
        assert_eq!(mark.waiting(), 0);
    }

    /// Who waited for a record that stays was told that it was cut, where another one was.
    #[test]
    fn who_waits_is_told_of_a_cut_if_it_was_the_record_that_was_cut() {
        let mark = Watermark::new("durable", 0);
        let wait = |index, since| mark.wait_timeout_since(index, Duration::ZERO, since);
        mark.advance(10);
        for to in [7, 8, 3, 5] {
            mark.set_back(to);
            mark.advance(10);
        }
        let cut = |index| Err(Error::Truncated { index }.to_string());
        for (index, since, expected) in [
            (3, 0, Ok(())),
            (4, 0, cut(4)),
            (9, 0, cut(9)),
            (4, 2, cut(4)),
            (5, 3, Ok(())),
            (6, 3, cut(6)),
            (9, 4, Ok(())),
        ] {
            let said = wait(index, since).map_err(|error| error.to_string());
            assert_eq!(said, expected, "record {index}, after {since} cuts");
        }
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
        let late = mark.wait_timeout(1, Duration::from_millis(1)).unwrap_err();
        assert!(late.to_string().contains("durable"), "{late}");
        assert_eq!(mark.waiting(), 0);
    }

    #[test]
    fn who_waits_for_what_never_comes_is_told_why() {
        let mark = Arc::new(Watermark::new("durable", 3));
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let mark = Arc::clone(&mark);
                thread::spawn(move || mark.wait(10))
            })
            .collect();
        mark.close(&Error::Closed);
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
        }
        assert!(mark.wait(3).is_ok(), "what was reached stays reached");
        assert!(matches!(mark.wait(4), Err(Error::Closed)));
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
        let mut context = Context::from_waker(&waker);
        let mark = Watermark::new("written", 0);
        assert!(mark.poll(2, &mut context).is_pending());
        mark.advance(1);
        assert_eq!(count.0.load(SeqCst), 0);
        mark.advance(2);
        assert_eq!(count.0.load(SeqCst), 1);
        assert!(mark.poll(2, &mut context).is_ready());
    }
}
