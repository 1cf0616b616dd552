//! [`Tail`]: where the log of a group begins and ends, and its newest entries.
//!
//! Invariants:
//! * `entries` are consecutive, and the last of them is `last`, the end of the log;
//! * what is not here and not purged is with the kernel, where readers of the log find it: an entry
//!   leaves only once it is written;
//! * beyond that as much is kept as `KEPT_BYTES`, so that what was just committed is applied, and
//!   soon served, from memory.

use std::collections::VecDeque;
use std::ops::Range;

use openraft::EntryPayload;

use super::record::{HEAD_BYTES, to_log};
use super::types::{Entry, LogId};

/// Bytes of entries that stay although they could be read from the log.
const KEPT_BYTES: usize = 8 << 20;

/// The newest entries, and the ends of the log.
#[derive(Debug)]
pub(crate) struct Tail {
    entries: VecDeque<Entry>,
    bytes: usize,
    last: Option<LogId>,
    purged: Option<LogId>,
    /// What an empty log begins with.
    first_index: u64,
}

impl Tail {
    /// Of a log that begins at the engine's `first_index`, ends with `last`, and has nothing in
    /// memory.
    pub(crate) fn new(first_index: u64, last: Option<LogId>, purged: Option<LogId>) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, last, purged, first_index }
    }

    /// The last entry of the log, or the last that was taken out of it.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.last.max(self.purged)
    }

    pub(crate) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    /// The index that the next entry has.
    pub(crate) fn next_index(&self) -> u64 {
        self.last().map_or(self.first_index, |last| last.index + 1)
    }

    /// Adds the newest entry, and lets go of the oldest that the kernel has.
    pub(crate) fn push(&mut self, entry: Entry, written: u64) {
        assert_eq!(entry.log_id.index, self.next_index(), "entries are consecutive");
        self.last = Some(entry.log_id);
        self.bytes += bytes(&entry);
        self.entries.push_back(entry);
        while self.bytes > KEPT_BYTES
            && self.entries.front().is_some_and(|oldest| to_log(oldest.log_id.index) <= written)
        {
            let oldest = self.entries.pop_front().expect("just seen");
            self.bytes -= bytes(&oldest);
        }
    }

    /// Everything after `last` is gone. Whether there was any.
    pub(crate) fn cut_after(&mut self, last: Option<LogId>) -> bool {
        let last = last.max(self.purged);
        if last.map_or(self.first_index, |last| last.index + 1) >= self.next_index() {
            return false;
        }
        self.last = last;
        while self.entries.back().is_some_and(|newest| Some(newest.log_id) > last) {
            let newest = self.entries.pop_back().expect("just seen");
            self.bytes -= bytes(&newest);
        }
        true
    }

    /// Everything up to `purged` is gone.
    pub(crate) fn purge(&mut self, purged: LogId) {
        self.purged = self.purged.max(Some(purged));
        while self.entries.front().is_some_and(|oldest| oldest.log_id <= purged) {
            let oldest = self.entries.pop_front().expect("just seen");
            self.bytes -= bytes(&oldest);
        }
    }

    /// What the log has of the range.
    pub(crate) fn clip(&self, range: &Range<u64>) -> Range<u64> {
        let first = self.purged.map_or(self.first_index, |purged| purged.index + 1);
        let start = range.start.max(first);
        start..range.end.min(self.next_index()).max(start)
    }

    /// The first entry from `index` on that is in memory; the next one if none is.
    pub(crate) fn first_from(&self, index: u64) -> u64 {
        let oldest = self.entries.front().map_or(self.next_index(), |entry| entry.log_id.index);
        oldest.max(index)
    }

    /// The entries of a range that are in memory.
    pub(crate) fn newest(&self, range: Range<u64>) -> impl Iterator<Item = &Entry> {
        let skipped = range.start.saturating_sub(self.first_from(0));
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        self.entries.iter().skip(skipped).take_while(move |entry| entry.log_id.index < range.end)
    }
}

/// What an entry takes in memory, about.
pub(crate) fn bytes(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(payload) => HEAD_BYTES + payload.0.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => HEAD_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openraft::entry::RaftEntry;

    use super::*;
    use crate::cluster::types::{Payload, log_id};

    fn entry(index: u64) -> Entry {
        let payload = Payload(Bytes::from(vec![0; 1 << 20]));
        Entry::new(log_id(1, index), EntryPayload::Normal(payload))
    }

    #[test]
    fn what_only_memory_has_stays_and_what_the_kernel_has_is_bounded() {
        let mut tail = Tail::new(0, None, None);
        for index in 0..20 {
            tail.push(entry(index), 0);
        }
        assert_eq!(tail.first_from(0), 0);
        tail.push(entry(20), to_log(4));
        assert_eq!(tail.first_from(0), 5, "entry 5 is not written");
        tail.push(entry(21), to_log(20));
        assert!(tail.bytes <= KEPT_BYTES);
        let kept = tail.first_from(0);
        assert_eq!(tail.newest(kept..22).count(), usize::try_from(22 - kept).unwrap());
    }

    #[test]
    fn what_is_cut_off_is_gone_and_the_next_entry_takes_its_place() {
        let mut tail = Tail::new(0, None, None);
        (0..4).for_each(|index| tail.push(entry(index), 0));
        assert!(!tail.cut_after(Some(log_id(1, 3))));
        assert!(tail.cut_after(Some(log_id(1, 1))));
        assert_eq!((tail.next_index(), tail.clip(&(0..9))), (2, 0..2));
        tail.purge(log_id(1, 0));
        assert!(tail.cut_after(None));
        assert_eq!((tail.last(), tail.clip(&(0..9))), (Some(log_id(1, 0)), 1..1));
        tail.push(entry(1), 0);
    }
}
