//! Who waits for a [watermark](super::watermark::Watermark): threads, tasks and callbacks, sorted by what
//! they wait for; and what cuts took from them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::error::{Error, Result};
use crate::shim::thread::Thread;

/// Which waiter: what it waits for, and a number that no other has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(super) index: u64,
    number: u64,
}

impl Ticket {
    /// Before all that wait for this.
    pub(super) fn first(index: u64) -> Self {
        Self { index, number: 0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Waiters {
    pub(super) list: BTreeMap<Ticket, Wake>,
    next_number: u64,
    pub(super) closed: Option<Error>,
    /// How often it had gone back before it went back to where. Of those that went as far back or
    /// further the last one only, so both numbers grow.
    cuts: Vec<(u64, u64)>,
}

impl Waiters {
    pub(super) fn enter(&mut self, index: u64, wake: Wake) -> Ticket {
        let ticket = Ticket { index, number: self.next_number };
        self.next_number += 1;
        self.list.insert(ticket, wake);
        ticket
    }

    pub(super) fn cut(&mut self, before: u64, to: u64) {
        while self.cuts.last().is_some_and(|cut| cut.1 >= to) {
            self.cuts.pop();
        }
        self.cuts.push((before, to));
    }

    /// Whether it went back behind `index` since it had gone back so often.
    pub(super) fn is_cut_off(&self, index: u64, since: u64) -> bool {
        let first = self.cuts.partition_point(|cut| cut.0 < since);
        self.cuts.get(first).is_some_and(|cut| cut.1 < index)
    }
}

thread_local! {
    /// Whether this thread is in the middle of the log's work, and calls somebody.
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is called from what a wait calls at its end. Under shuttle, where all threads are one,
/// nobody calls so.
pub(crate) fn is_calling() -> bool {
    CALLING.get() && !cfg!(shuttle)
}

/// What is called once, with how it went.
pub(crate) type Call = Box<dyn FnOnce(Result<()>) + Send>;

pub(super) enum Wake {
    Thread(Thread),
    Task(Waker),
    Call(Call),
}

impl Wake {
    /// It has come this far.
    pub(super) fn reached(self) {
        self.end(Ok(()));
    }

    /// Threads and tasks look for themselves how it went. What panics has said so, and must not keep the
    /// others waiting.
    pub(super) fn end(self, how: Result<()>) {
        let call = || match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
            Self::Call(call) => call(how),
        };
        let before = CALLING.replace(true);
        let ended = catch_unwind(AssertUnwindSafe(call));
        CALLING.set(before);
        if ended.is_err() {
            tracing::error!("what was called at the end of a wait panicked");
        }
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread(_) => "Thread",
            Self::Task(_) => "Task",
            Self::Call(_) => "Call",
        })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Who waited for a record that stays was told that it was cut, where another one was.
    #[test]
    fn who_waits_is_told_of_a_cut_if_it_was_the_record_that_was_cut() {
        let mut waiters = Waiters::default();
        for (before, to) in (0..).zip([7, 8, 3, 5]) {
            waiters.cut(before, to);
        }
        for (index, since, is_cut) in [
            (3, 0, false),
            (4, 0, true),
            (9, 0, true),
            (4, 2, true),
            (5, 3, false),
            (6, 3, true),
            (9, 4, false),
        ] {
            let said = waiters.is_cut_off(index, since);
            assert_eq!(said, is_cut, "record {index}, after {since} cuts");
        }
    }
}
