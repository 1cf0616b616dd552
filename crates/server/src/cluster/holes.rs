//! [`Holes`]: entries that a start cannot read, as their disk has lost them, and whose ids are known all the same.
//!
//! The engine reads at its start in which terms its entries are, and who votes. It cannot wait for what another replica gives: nobody is
//! asked before it runs. So it is shown a blank entry where there is a hole, with the id of the one that is missing, or that entry if it says
//! who votes and is kept beside the log (`terms`); and nothing else is (`LogReader::try_get_log_entries`). Once it runs, the hole is healed as
//! any damage (`heal`).
//!
//! The id follows from what lies around: terms never fall, and each leader begins its own with a blank entry. Where that leaves a choice it
//! is as what is kept beside the log has it. Where that does not say, the damage is an error, as where the log does not open.
//!
//! A hole behind the snapshot may hide who votes, if that is not kept. Then the engine goes by those before until it is started again, which
//! it is to be once the hole is healed: until then this replica neither campaigns nor takes over.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use openraft::EntryPayload;
use openraft::entry::RaftEntry;

use super::terms::Terms;
use super::types::{Entry, log_id};

/// Entries that cannot be read, one behind the other, all of one term.
#[derive(Debug, PartialEq, Eq)]
struct Hole {
    entries: Range<u64>,
    term: u64,
}

/// What a start cannot read of a log.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    all: Vec<Hole>,
    /// Of what is missing, what is known all the same: who votes.
    known: Vec<Entry>,
    /// From here on the engine has read who votes.
    read_from: u64,
    hid_members: AtomicBool,
}

impl Holes {
    /// None yet, of a log whose engine reads who votes from here on.
    pub(crate) fn none(read_from: u64) -> Self {
        Self { read_from, ..Self::default() }
    }

    /// These cannot be read, behind one of the term `before`, if there is one. Whether their ids are known, by what lies around or is
    /// kept beside the log.
    pub(crate) fn add(
        &mut self,
        entries: Range<u64>,
        before: Option<u64>,
        behind: &Entry,
        terms: &Terms,
    ) -> bool {
        let holes = match term_of(before, entries.end - entries.start, behind) {
            Some(term) => vec![Hole { entries, term }],
            None => {
                let runs = terms.of(&entries, behind.log_id).unwrap_or_default();
                runs.into_iter().map(|(entries, term)| Hole { entries, term }).collect()
            }
        };
        // They are behind what lies before.
        if holes.first().is_none_or(|first| Some(first.term) < before) {
            return false;
        }
        for Hole { entries, term } in &holes {
            self.known.extend(terms.members(entries, *term));
        }
        self.all.extend(holes);
        true
    }

    /// How many entries they are.
    pub(crate) fn count(&self) -> u64 {
        self.all.iter().map(|hole| hole.entries.end - hole.entries.start).sum()
    }

    /// What stands in for those of a range.
    pub(crate) fn blanks(&self, range: &Range<u64>) -> impl Iterator<Item = Entry> {
        let range = range.clone();
        self.all.iter().flat_map(move |Hole { entries, term }| {
            let entries = entries.start.max(range.start)..entries.end.min(range.end);
            entries.map(|index| {
                let known = self.known.iter().find(|entry| entry.log_id.index == index);
                known.cloned().unwrap_or_else(|| Entry::new_blank(log_id(*term, index)))
            })
        })
    }

    /// These were given: whether the engine should have read one that says who votes, or has read another in its place.
    pub(crate) fn see(&self, given: &[Entry]) {
        let was_shown_otherwise = |entry: &Entry| {
            let index = entry.log_id.index;
            let was_missing = self.all.iter().any(|hole| hole.entries.contains(&index));
            let shown = self.known.iter().find(|known| known.log_id.index == index);
            let members = matches!(entry.payload, EntryPayload::Membership(_));
            index >= self.read_from
                && was_missing
                && (members || shown.is_some())
                && shown != Some(entry)
        };
        if given.iter().any(was_shown_otherwise) {
            self.hid_members.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the engine goes by others who vote than those that its log says, until it is started again.
    pub(crate) fn hid_members(&self) -> bool {
        self.hid_members.load(Ordering::Relaxed)
    }
}

/// The term of so many entries between one of this term and one that can be read, if they are of one, and that is known.
fn term_of(before: Option<u64>, count: u64, behind: &Entry) -> Option<u64> {
    let (before, after) = (before?, behind.log_id.leader_id.term);
    let begins_behind = matches!(behind.payload, EntryPayload::Blank);
    match after.checked_sub(before)? {
        0 => Some(before),
        // The leader of the term begins with what comes behind.
        1 if begins_behind => Some(before),
        // It began with the one that is missing.
        _ if !begins_behind && count == 1 => Some(after),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::cluster::types::Payload;

    #[test]
    fn the_term_of_what_is_missing_is_said_only_where_it_is_known() {
        let blank = |term| Entry::new_blank(log_id(term, 9));
        let normal = |term| {
            let payload = EntryPayload::Normal(Payload(Bytes::new()));
            Entry::new(log_id(term, 9), payload)
        };
        assert_eq!(term_of(Some(4), 7, &normal(4)), Some(4));
        assert_eq!(term_of(Some(4), 7, &blank(5)), Some(4), "a leader begins with a blank one");
        assert_eq!(term_of(Some(4), 1, &normal(6)), Some(6), "which is missing here");
        assert_eq!(term_of(Some(4), 2, &normal(6)), None, "one of the two");
        assert_eq!(term_of(Some(4), 1, &blank(6)), None, "another may have led between them");
        assert_eq!(term_of(None, 1, &normal(1)), None);
    }
}
