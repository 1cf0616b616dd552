//! [`Segments`]: which files the log consists of, oldest first, in memory, each known by the index of its
//! first record; and which of them readers had open last.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::opened::{Opened, Recent, RecentOf};
use crate::segment::sparse::{Near, SparseIndex};
use crate::shim::{AtomicU64, Mutex, lock};

/// The records of one file: from its first to the last that it has if another file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first_index: u64,
    pub(crate) last_index: Option<u64>,
}

/// Where a record is, as far as is known without looking.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    pub(crate) span: Span,
    /// The file, if somebody read it lately.
    pub(crate) opened: Option<Arc<Opened>>,
    /// [`Segments::epoch`] when this was so.
    pub(crate) epoch: u64,
}

/// Invariant: what is open is a file of the list, under the name that the list gives it.
#[derive(Debug)]
struct Known {
    list: VecDeque<u64>,
    recent: RecentOf,
}

impl Known {
    fn span(&self, index: u64) -> Option<Span> {
        let after = self.list.partition_point(|&first| first <= index);
        let first_index = *self.list.get(after.checked_sub(1)?)?;
        let last_index = self.list.get(after).map(|next| next - 1);
        Some(Span { first_index, last_index })
    }
}

/// The files of a log.
#[derive(Debug)]
pub(crate) struct Segments {
    known: Mutex<Known>,
    /// Raised when records were cut off or replaced: readers then look again where they are.
    epoch: AtomicU64,
    /// Where some records of the segment that is written begin, and its salt.
    newest: Mutex<(u64, SparseIndex)>,
}

impl Segments {
    /// From a list in order. What was read last is kept among `recent`.
    pub(crate) fn new(list: impl IntoIterator<Item = u64>, recent: &Arc<Recent>) -> Self {
        Self {
            known: Mutex::new(Known {
                list: list.into_iter().collect(),
                recent: RecentOf::new(recent),
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
        lock(&self.known).list.front().copied()
    }

    /// Whether one begins with this record.
    pub(crate) fn has(&self, first_index: u64) -> bool {
        lock(&self.known).list.binary_search(&first_index).is_ok()
    }

    /// First index of the newest.
    pub(crate) fn newest(&self) -> Option<u64> {
        lock(&self.known).list.back().copied()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.known).list.len()
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<u64> {
        lock(&self.known).list.iter().copied().collect()
    }

    /// The file that has, or will have, this record.
    pub(crate) fn span(&self, index: u64) -> Option<Span> {
        lock(&self.known).span(index)
    }

    /// The same, for whoever is about to read it.
    pub(crate) fn find(&self, index: u64) -> Option<Whereabouts> {
        let known = lock(&self.known);
        let span = known.span(index)?;
        let opened = known.recent.get(span.first_index);
        Some(Whereabouts { span, opened, epoch: self.epoch() })
    }

    /// Keeps a file open for those who read it next. Not if the list has changed since `epoch` so that
    /// it may be another's, nor if it was taken away.
    pub(crate) fn keep(&self, opened: &Arc<Opened>, epoch: u64) {
        let known = lock(&self.known);
        let is_listed = known.list.binary_search(&opened.first_index).is_ok();
        if self.epoch() == epoch && is_listed {
            let gone = known.recent.keep(Arc::clone(opened));
            drop(known);
            drop(gone);
        }
    }

    /// A full segment is followed by another.
    pub(crate) fn push(&self, first_index: u64) {
        let list = &mut lock(&self.known).list;
        assert!(list.back().is_none_or(|&last| last < first_index), "segments are in order");
        list.push_back(first_index);
    }

    /// A segment takes the place of whatever came at or after its first index, which is returned.
    pub(crate) fn replace(&self, first_index: u64) -> Vec<u64> {
        let mut known = lock(&self.known);
        let keep = known.list.partition_point(|&old| old < first_index);
        let cut: Vec<u64> = known.list.drain(keep..).collect();
        known.list.push_back(first_index);
        let gone = known.recent.forget(|old| old >= first_index);
        self.epoch.fetch_add(1, SeqCst);
        drop(known);
        drop(gone);
        cut
    }

    /// A file has the name of a segment now in place of the one that had it, and holds the same records:
    /// readers open it anew.
    pub(crate) fn exchange(&self, first_index: u64) {
        let known = lock(&self.known);
        let gone = known.recent.forget(|old| old == first_index);
        self.epoch.fetch_add(1, SeqCst);
        drop(known);
        drop(gone);
    }

    /// The oldest is still there after all.
    pub(crate) fn put_back(&self, oldest: u64) {
        lock(&self.known).list.push_front(oldest);
    }

    /// Takes the oldest away, if another follows and begins no later than `index`.
    pub(crate) fn pop_before(&self, index: u64) -> Option<u64> {
        let mut known = lock(&self.known);
        if *known.list.get(1)? > index {
            return None;
        }
        let oldest = known.list.pop_front()?;
        let gone = known.recent.forget(|old| old == oldest);
        drop(known);
        drop(gone);
        Some(oldest)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::{Access, Dir};

    use super::*;
    use crate::segment::header::Header;

    #[test]
    fn each_record_is_in_one_file() {
        let segments = Segments::new([5, 10, 20], &Arc::default());
        assert_eq!(segments.span(4), None);
        let span = |index| segments.span(index).unwrap();
        assert_eq!(span(9), Span { first_index: 5, last_index: Some(9) });
        assert_eq!(span(10), Span { first_index: 10, last_index: Some(19) });
        assert_eq!(span(99), Span { first_index: 20, last_index: None });
    }

    #[test]
    fn a_replaced_suffix_is_returned_and_seen_by_readers() {
        let segments = Segments::new([5, 10, 20], &Arc::default());
        let epoch = segments.epoch();
        assert_eq!(segments.replace(10), [10, 20]);
        assert_ne!(segments.epoch(), epoch);
        assert_eq!(segments.all(), [5, 10]);
    }

    #[test]
    fn a_record_of_the_segment_that_is_written_is_found_near_its_place_and_in_no_other_segment() {
        let segments = Segments::new([1], &Arc::default());
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
        let segments = Segments::new([1, 10, 20], &Arc::default());
        assert_eq!(segments.pop_before(9), None);
        assert_eq!(segments.pop_before(10), Some(1));
        assert_eq!(segments.pop_before(u64::MAX), Some(10));
        assert_eq!(segments.pop_before(u64::MAX), None);
    }

    fn opened(first_index: u64, segment_bytes: u64) -> Arc<Opened> {
        let file = SimDir::new().create("file", Access::default()).unwrap();
        let header = Header { log_id: 1, salt: 1, segment_bytes };
        Arc::new(Opened::new(first_index, header, file))
    }

    #[test]
    fn what_is_kept_is_a_file_of_the_list_and_nothing_that_was_replaced_or_taken() {
        let segments = Segments::new([5, 10, 20], &Arc::default());
        let is_kept = |index| segments.find(index).unwrap().opened.is_some();
        let epoch = segments.epoch();
        for first_index in [5, 10, 20] {
            segments.keep(&opened(first_index, 64 << 10), epoch);
            assert!(is_kept(first_index));
        }
        segments.keep(&opened(7, 64 << 10), epoch);
        assert_eq!(segments.pop_before(10), Some(5));
        // Its file may be another segment's by now.
        segments.keep(&opened(5, 64 << 10), epoch);
        segments.put_back(5);
        assert!(!is_kept(5) && is_kept(10) && is_kept(20));
        segments.replace(20);
        assert!(is_kept(10) && !is_kept(20));
        // It was opened before it was replaced.
        segments.keep(&opened(20, 64 << 10), epoch);
        assert!(!is_kept(20));
    }
}
