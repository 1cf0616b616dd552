//! [`Segments`]: which files the log consists of, oldest first, in memory; and which of them readers had
//! open last.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::opened::{Opened, Recent};
use crate::shim::{AtomicU64, Mutex, lock};
use crate::sparse::{Near, SparseIndex};

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

/// Where a record is, as far as is known without looking.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    pub(crate) covering: Covering,
    /// The file, if somebody read it lately.
    pub(crate) opened: Option<Arc<Opened>>,
    /// [`Segments::epoch`] when this was so.
    pub(crate) epoch: u64,
}

/// Invariant: what is open is a file of the list, under the name that the list gives it.
#[derive(Debug)]
struct Files {
    list: VecDeque<Entry>,
    recent: Recent,
}

impl Files {
    fn covering(&self, index: u64) -> Option<Covering> {
        let after = self.list.partition_point(|entry| entry.first_index <= index);
        let entry = *self.list.get(after.checked_sub(1)?)?;
        let last_index = self.list.get(after).map(|next| next.first_index - 1);
        Some(Covering { entry, last_index })
    }
}

/// The files of a log.
#[derive(Debug)]
pub(crate) struct Segments {
    files: Mutex<Files>,
    /// Raised when records were cut off or replaced: readers look where they are.
    epoch: AtomicU64,
    /// Where some records of the segment that is written begin, and its salt.
    newest: Mutex<(u64, SparseIndex)>,
}

impl Segments {
    /// From a list in order.
    pub(crate) fn new(list: impl IntoIterator<Item = Entry>) -> Self {
        Self {
            files: Mutex::new(Files {
                list: list.into_iter().collect(),
                recent: Recent::default(),
            }),
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
    pub(crate) fn near(&self, salt: u64, index: u64) -> Option<Near> {
        let newest = lock(&self.newest);
        if newest.0 == salt { newest.1.before(index) } else { None }
    }

    /// The same for many: [`SparseIndex::ranges`].
    pub(crate) fn ranges(&self, salt: u64, after: u64, most: u64) -> Vec<Range<u64>> {
        let newest = lock(&self.newest);
        if newest.0 == salt { newest.1.ranges(after, most) } else { Vec::new() }
    }

    /// Changes whenever what a reader has seen may be another's now.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    /// First index of the oldest.
    pub(crate) fn first_index(&self) -> Option<u64> {
        lock(&self.files).list.front().map(|entry| entry.first_index)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.files).list.len()
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<Entry> {
        lock(&self.files).list.iter().copied().collect()
    }

    /// The file that has, or will have, this record.
    pub(crate) fn covering(&self, index: u64) -> Option<Covering> {
        lock(&self.files).covering(index)
    }

    /// The same, for who is about to read it.
    pub(crate) fn find(&self, index: u64) -> Option<Whereabouts> {
        let mut files = lock(&self.files);
        let covering = files.covering(index)?;
        let opened = files.recent.get(covering.entry);
        Some(Whereabouts { covering, opened, epoch: self.epoch() })
    }

    /// Keeps a file open for those who read it next. Not if the list has changed since `epoch` so that
    /// it may be another's, nor if it was taken away.
    pub(crate) fn keep(&self, opened: &Arc<Opened>, epoch: u64) {
        let mut files = lock(&self.files);
        let entry = opened.entry;
        let is_listed = |files: &Files| {
            files
                .list
                .binary_search_by_key(&entry.first_index, |entry| entry.first_index)
                .is_ok_and(|at| files.list[at] == entry)
        };
        if self.epoch() == epoch && is_listed(&files) {
            let gone = files.recent.keep(Arc::clone(opened));
            drop(files);
            drop(gone);
        }
    }

    /// A full segment is followed by another.
    pub(crate) fn push(&self, entry: Entry) {
        let list = &mut lock(&self.files).list;
        assert!(list.back().is_none_or(|last| last.first_index < entry.first_index), "in order");
        list.push_back(entry);
    }

    /// `entry` takes the place of whatever came at or after its first index, which is returned.
    pub(crate) fn replace(&self, entry: Entry) -> Vec<Entry> {
        let mut files = lock(&self.files);
        let keep = files.list.partition_point(|old| old.first_index < entry.first_index);
        let cut = files.list.drain(keep..).collect();
        files.list.push_back(entry);
        let gone = files.recent.forget(|old| old.first_index >= entry.first_index);
        self.epoch.fetch_add(1, SeqCst);
        drop(files);
        drop(gone);
        cut
    }

    /// The oldest is still there after all.
    pub(crate) fn put_back(&self, oldest: Entry) {
        lock(&self.files).list.push_front(oldest);
    }

    /// Takes the oldest away, if another follows and begins no later than `index`.
    pub(crate) fn pop_before(&self, index: u64) -> Option<Entry> {
        let mut files = lock(&self.files);
        if files.list.get(1)?.first_index > index {
            return None;
        }
        let oldest = files.list.pop_front()?;
        let gone = files.recent.forget(|old| old == oldest);
        drop(files);
        drop(gone);
        Some(oldest)
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
        let near = |salt, index| segments.near(salt, index).map(|near| near.byte_offset);
        assert_eq!((near(7, 899), near(7, 900)), (Some(4176), Some(69_712)));
        assert_eq!(near(8, 900), None);
        segments.show(8, &SparseIndex::default());
        assert_eq!(near(7, 900), None, "it is full, and its seal says the same");
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
