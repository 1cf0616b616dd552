//! [`Wounds`]: what of this replica's log its disk has lost, and what other replicas gave in its place until it is
//! healed ([`super::heal`]).
//!
//! A replica with a wound does not campaign, and what its disk has does not count for D.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::types::Entry;
use super::watch;

/// What cannot be read of a log.
#[derive(Debug)]
pub(crate) struct Wounds {
    /// Who waits for a change of what can be read looks at this.
    found: watch::Sender<Found>,
    given: Mutex<BTreeMap<u64, Entry>>,
    healed: AtomicU64,
    /// Stretches that are not in the log any more, and were not healed before.
    gone: AtomicU64,
    /// How often entries were cut off.
    cuts: AtomicU64,
    /// Something was noted some seconds ago, and nobody has given it.
    are_lasting: AtomicBool,
    /// So was the first that is noted now.
    first_lasting: AtomicBool,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Entries that could not be read: of each stretch the first.
    pub(crate) open: BTreeSet<u64>,
    /// There are others that may have them, and this replica asks them.
    is_tended: bool,
    /// The group ends: nobody is asked any more.
    pub(crate) has_ended: bool,
}

impl Default for Wounds {
    fn default() -> Self {
        let (found, given) = (watch::Sender::new(Found::default()), Mutex::default());
        let (healed, gone, cuts, are_lasting, first_lasting) = Default::default();
        Self { found, given, healed, gone, cuts, are_lasting, first_lasting }
    }
}

impl Wounds {
    /// An entry cannot be read.
    pub(crate) fn note(&self, index: u64) {
        self.found.send_if_modified(|found| found.open.insert(index));
    }

    /// Whether there is anything that cannot be read.
    pub(crate) fn are_open(&self) -> bool {
        !self.found.borrow().open.is_empty()
    }

    /// The first entry that is known not to be readable.
    pub(crate) fn first(&self) -> Option<u64> {
        self.found.borrow().open.first().copied()
    }

    /// Says whether something that was noted lasts, and the first of it.
    pub(crate) fn set_lasting(&self, are_lasting: bool, first: bool) {
        self.are_lasting.store(are_lasting, Ordering::Relaxed);
        self.first_lasting.store(first, Ordering::Relaxed);
    }

    /// Whether the first that cannot be read was not healed for seconds.
    pub(crate) fn first_lasts(&self) -> bool {
        self.first_lasting.load(Ordering::Relaxed) && self.are_open()
    }

    pub(crate) fn are_lasting(&self) -> bool {
        self.are_lasting.load(Ordering::Relaxed) && self.are_open()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Found> {
        self.found.subscribe()
    }

    /// Says whether others are asked for what cannot be read. Where they are not it is an error.
    pub(crate) fn set_tended(&self, is_tended: bool) {
        self.found.send_if_modified(|found| {
            let is_tended = is_tended && !found.has_ended;
            let was = std::mem::replace(&mut found.is_tended, is_tended);
            was != is_tended
        });
    }

    /// Who waits for what is to be given is told that nothing will be.
    pub(crate) fn end(&self) {
        self.found.send_modify(|found| {
            found.has_ended = true;
            found.is_tended = false;
        });
    }

    pub(crate) fn are_tended(&self) -> bool {
        self.found.borrow().is_tended
    }

    /// The entry that another replica gave.
    pub(crate) fn given(&self, index: u64) -> Option<Entry> {
        self.all_given().get(&index).cloned()
    }

    /// How often entries were cut off: what is asked for, or read, from here on is of the log as it is now.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }

    /// From here on these are served until they can be read, if nothing was cut off since it was asked for them. Whether they
    /// are.
    pub(crate) fn give(&self, entries: Vec<Entry>, cuts: u64) -> bool {
        let mut given = self.all_given();
        let are_of_this_log = self.cuts() == cuts;
        if are_of_this_log {
            given.extend(entries.into_iter().map(|entry| (entry.log_id.index, entry)));
        }
        drop(given);
        self.found.send_modify(|_| ());
        are_of_this_log
    }

    /// All can be read now that was noted here, of which so many entries were damaged. What was given for it is not needed
    /// any more.
    pub(crate) fn close(&self, noted: u64, healed: u64) {
        self.healed.fetch_add(healed, Ordering::Relaxed);
        let is_last = {
            let found = self.found.borrow();
            found.open.len() == usize::from(found.open.contains(&noted))
        };
        if is_last {
            self.all_given().clear();
        }
        self.found.send_modify(|found| {
            found.open.remove(&noted);
        });
    }

    /// Entries from this one on are cut off: others come in their places.
    pub(crate) fn cut_from(&self, index: u64) {
        {
            let mut given = self.all_given();
            self.cuts.fetch_add(1, Ordering::SeqCst);
            given.split_off(&index);
        }
        self.found.send_if_modified(|found| {
            let gone = found.open.split_off(&index).len() as u64;
            self.gone.fetch_add(gone, Ordering::Relaxed);
            gone > 0
        });
    }

    /// What was noted here is not in the log any more.
    pub(crate) fn close_gone(&self, noted: u64) {
        if self.found.borrow().open.contains(&noted) {
            self.gone.fetch_add(1, Ordering::Relaxed);
        }
        self.close(noted, 0);
    }

    /// How many stretches are not in the log any more, and were not healed before.
    pub(crate) fn gone(&self) -> u64 {
        self.gone.load(Ordering::Relaxed)
    }

    /// How many entries were healed.
    pub(crate) fn healed(&self) -> u64 {
        self.healed.load(Ordering::Relaxed)
    }

    fn all_given(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use openraft::EntryPayload;
    use openraft::entry::RaftEntry;

    use super::*;
    use crate::cluster::types::log_id;

    /// An answer that came after a cut brought entries of an older term back.
    #[test]
    fn what_was_asked_for_before_a_cut_is_not_served_after_it() {
        let wounds = Wounds::default();
        let entry = |term| Entry::new(log_id(term, 9), EntryPayload::Blank);
        let cuts = wounds.cuts();
        assert!(wounds.give(vec![entry(1)], cuts) && wounds.given(9).is_some());
        wounds.cut_from(8);
        assert!(!wounds.give(vec![entry(1)], cuts) && wounds.given(9).is_none());
        assert!(wounds.give(vec![entry(2)], wounds.cuts()) && wounds.given(9).is_some());
    }
}
