//! [`Stale`]: segments that were replaced and whose files may still be there. They would be taken for
//! the log's beginning once what replaced them is gone, so they go before retention takes anything.
//!
//! No lock is held while a file is removed, because its disk may hang. Invariant: a name that was
//! [claimed](Stale::claim) for a new segment is not removed any more.

use crate::error::Result;
use crate::shim::{Mutex, lock, thread};

#[derive(Debug, Default)]
pub(crate) struct Stale(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    all: Vec<u64>,
    removing: Option<u64>,
}

impl Stale {
    pub(crate) fn push(&self, first_index: u64) {
        lock(&self.0).all.push(first_index);
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).all.is_empty()
    }

    /// The name gets another file now. Waits if the old one is just being removed.
    pub(crate) fn claim(&self, first_index: u64) {
        loop {
            let mut names = lock(&self.0);
            if names.removing != Some(first_index) {
                names.all.retain(|old| *old != first_index);
                return;
            }
            drop(names);
            thread::yield_now();
        }
    }

    /// Removes all of them, the newest first, so that what a crash leaves has no hole. One sweep at a
    /// time.
    pub(crate) fn sweep(&self, remove: impl Fn(u64) -> Result<()>) -> Result<()> {
        let mut swept = Ok(());
        let mut all = lock(&self.0).all.clone();
        all.sort_unstable();
        for first_index in all.into_iter().rev() {
            {
                let mut names = lock(&self.0);
                if !names.all.contains(&first_index) {
                    continue;
                }
                names.removing = Some(first_index);
            }
            let removed = remove(first_index);
            let mut names = lock(&self.0);
            names.removing = None;
            match removed {
                Ok(()) => names.all.retain(|old| *old != first_index),
                Err(error) => swept = Err(error),
            }
        }
        swept
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Retention removed the segment that had just got the name, and durable records with it.
    #[test]
    fn a_name_that_was_claimed_is_not_removed() {
        let stale = Stale::default();
        (1..=3).for_each(|index| stale.push(index));
        let removed = RefCell::new(Vec::new());
        let remove = |first_index: u64| {
            if first_index == 3 {
                stale.claim(2);
            }
            removed.borrow_mut().push(first_index);
            Ok(())
        };
        stale.sweep(remove).unwrap();
        assert_eq!(*removed.borrow(), [3, 1]);
        assert!(stale.is_empty());
    }

    #[test]
    fn a_name_is_claimed_once_its_old_file_is_gone() {
        let stale = Stale::default();
        stale.push(1);
        let (removing, is_removing) = mpsc::channel();
        let (ended, has_ended) = mpsc::channel();
        thread::scope(|scope| {
            let stale = &stale;
            let ends = ended.clone();
            scope.spawn(move || {
                is_removing.recv().unwrap();
                stale.claim(1);
                ends.send("claimed").unwrap();
            });
            let remove = |_| {
                removing.send(()).unwrap();
                (0..10_000).for_each(|_| thread::yield_now());
                ended.send("removed").unwrap();
                Ok(())
            };
            stale.sweep(remove).unwrap();
        });
        assert_eq!(has_ended.try_iter().collect::<Vec<_>>(), ["removed", "claimed"]);
    }

    #[test]
    fn what_cannot_be_removed_stays_stale() {
        let stale = Stale::default();
        stale.push(1);
        assert!(stale.sweep(|_| Err(crate::Error::Closed)).is_err());
        assert!(!stale.is_empty());
        stale.sweep(|_| Ok(())).unwrap();
        assert!(stale.is_empty());
    }
}
