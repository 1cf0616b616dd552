//! [`Segments`]: which files the log consists of, oldest first, in memory.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;

use crate::format::SparseIndex;
use crate::shim::{AtomicU64, Mutex, lock};

/// One file of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Index of its first record; also its name.
    pub(crate) first_index: u64,
    /// Which of the log's directories it is in.
    pub(crate) place: usize,
}

/// A file, and the last record that it has if another follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Covering {
    pub(crate) entry: Entry,
    pub(crate) last_index: Option<u64>,
}

/// The files of a log.
#[derive(Debug)]
pub(crate) struct Segments {
    list: Mutex<VecDeque<Entry>>,
    /// Raised when records were cut off or replaced: readers look where they are.
    epoch: AtomicU64,
    /// Where some records of the segment that is written begin, and its salt.
    newest: Mutex<(u64, SparseIndex)>,
}

impl Segments {
    /// From a list in order.
    pub(crate) fn new(list: impl IntoIterator<Item = Entry>) -> Self {
        Self {
            list: Mutex::new(list.into_iter().collect()),
            epoch: AtomicU64::new(0),
            newest: Mutex::default(),
        }
    }

    /// Shows readers where records begin in the segment with this salt, which is being written.
    pub(crate) fn show(&self, salt: u64, sparse: &SparseIndex) {
        let mut newest = lock(&self.newest);
        if newest.0 != salt {
            *newest = (salt, SparseIndex::default());
        }
        if newest.1.len() < sparse.len() {
            newest.1.catch_up(sparse);
        }
    }

    /// A place at or before the frame of a record, if its segment, which has this salt, is the one that
    /// is being written.
    pub(crate) fn near(&self, salt: u64, index: u64) -> Option<u64> {
        let newest = lock(&self.newest);
        if newest.0 == salt { newest.1.before(index) } else { None }
    }

    /// Changes whenever what a reader has seen may be another's now.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    /// First index of the oldest.
    pub(crate) fn first_index(&self) -> Option<u64> {
        lock(&self.list).front().map(|entry| entry.first_index)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.list).len()
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<Entry> {
        lock(&self.list).iter().copied().collect()
    }

    /// The file that has, or will have, this record.
    pub(crate) fn covering(&self, index: u64) -> Option<Covering> {
        let list = lock(&self.list);
        let after = list.partition_point(|entry| entry.first_index <= index);
        let entry = *list.get(after.checked_sub(1)?)?;
        let last_index = list.get(after).map(|next| next.first_index - 1);
        Some(Covering { entry, last_index })
    }

    /// A full segment is followed by another.
    pub(crate) fn push(&self, entry: Entry) {
        let mut list = lock(&self.list);
        assert!(list.back().is_none_or(|last| last.first_index < entry.first_index), "in order");
        list.push_back(entry);
    }

    /// `entry` takes the place of whatever came at or after its first index, which is returned.
    pub(crate) fn replace(&self, entry: Entry) -> Vec<Entry> {
        let mut list = lock(&self.list);
        let keep = list.partition_point(|old| old.first_index < entry.first_index);
        let cut = list.drain(keep..).collect();
        list.push_back(entry);
        self.epoch.fetch_add(1, SeqCst);
        cut
    }

    /// The oldest is still there after all.
    pub(crate) fn put_back(&self, oldest: Entry) {
        lock(&self.list).push_front(oldest);
    }

    /// Takes the oldest away, if another follows and begins no later than `index`.
    pub(crate) fn pop_before(&self, index: u64) -> Option<Entry> {
        let mut list = lock(&self.list);
        match list.get(1) {
            Some(second) if second.first_index <= index => list.pop_front(),
            _ => None,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn entry(first_index: u64) -> Entry {
        Entry { first_index, place: 0 }
    }

    #[test]
    fn each_record_is_in_one_file() {
        let segments = Segments::new([entry(5), entry(10), entry(20)]);
        assert_eq!(segments.covering(4), None);
        let covering = |index| segments.covering(index).unwrap();
        assert_eq!(covering(9), Covering { entry: entry(5), last_index: Some(9) });
        assert_eq!(covering(10), Covering { entry: entry(10), last_index: Some(19) });
        assert_eq!(covering(99), Covering { entry: entry(20), last_index: None });
    }

    #[test]
    fn a_replaced_suffix_is_returned_and_seen_by_readers() {
        let segments = Segments::new([entry(5), entry(10), entry(20)]);
        let epoch = segments.epoch();
        assert_eq!(segments.replace(entry(10)), [entry(10), entry(20)]);
        assert_ne!(segments.epoch(), epoch);
        assert_eq!(segments.all(), [entry(5), entry(10)]);
    }

    #[test]
    fn a_record_of_the_segment_that_is_written_is_found_near_its_place_and_in_no_other_segment() {
        let segments = Segments::new([entry(1)]);
        assert_eq!(segments.near(7, 1), None);
        let mut sparse = SparseIndex::default();
        sparse.note(1, 4176);
        segments.show(7, &sparse);
        sparse.note(900, 4176 + (64 << 10));
        segments.show(7, &sparse);
        assert_eq!((segments.near(7, 899), segments.near(7, 900)), (Some(4176), Some(69_712)));
        assert_eq!(segments.near(8, 900), None);
        segments.show(8, &SparseIndex::default());
        assert_eq!(segments.near(7, 900), None, "it is full, and its seal says the same");
    }

    #[test]
    fn retention_never_takes_the_last_file_nor_one_that_is_needed() {
        let segments = Segments::new([entry(1), entry(10), entry(20)]);
        assert_eq!(segments.pop_before(9), None);
        assert_eq!(segments.pop_before(10), Some(entry(1)));
        assert_eq!(segments.pop_before(u64::MAX), Some(entry(10)));
        assert_eq!(segments.pop_before(u64::MAX), None);
    }
}
