//! [`Opened`]: a segment that readers have open, and what they know of it. [`Recent`]: those that were
//! read last, so that the next reader need not open and learn again. A log by itself has its own; the logs
//! of a crew have one together, so that a thousand of them that are read do not take the process's file
//! descriptors.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use plimsoll_sync::File;

use crate::segment::header::Header;
use crate::segment::sparse::SparseIndex;
use crate::shim::{AtomicU64, Mutex, lock};

/// The most files of one log that are kept open.
const FILES_OF_A_LOG: usize = 16;
/// The most memory that their sparse indexes may take together.
const BYTES_OF_A_LOG: usize = 1 << 20;
/// The most files that are kept open, of all logs.
const FILES_MAX: usize = 256;

/// A segment that readers have open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) first_index: u64,
    pub(crate) header: Header,
    pub(crate) file: Arc<dyn File>,
    /// What its seal says, once somebody looked: a segment that has been left does not change.
    pub(crate) sealed: OnceLock<Option<SparseIndex>>,
}

impl Opened {
    pub(crate) fn new(first_index: u64, header: Header, file: Arc<dyn File>) -> Self {
        Self { first_index, header, file, sealed: OnceLock::new() }
    }

    /// The most memory that it may come to take.
    fn bytes_max(&self) -> usize {
        SparseIndex::seal_bytes_max(self.header.segment_bytes)
    }
}

/// Segments that were read last, of one log or of many.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Newest last.
    entries: Mutex<Vec<Entry>>,
    /// Logs that were counted.
    logs: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    log: u64,
    opened: Arc<Opened>,
}

/// What of it is one log's. Whatever goes is closed outside the lock of all.
#[derive(Debug)]
pub(crate) struct RecentOf {
    recent: Arc<Recent>,
    log: u64,
}

impl RecentOf {
    pub(crate) fn new(recent: &Arc<Recent>) -> Self {
        Self { recent: Arc::clone(recent), log: recent.logs.fetch_add(1, Relaxed) }
    }

    pub(crate) fn get(&self, first_index: u64) -> Option<Arc<Opened>> {
        let mut entries = lock(&self.recent.entries);
        let at = entries.iter().rposition(|entry| self.is_of(entry, first_index))?;
        entries[at..].rotate_left(1);
        entries.last().map(|entry| Arc::clone(&entry.opened))
    }

    /// Keeps one, and returns those that have to go for it: closing a file is for the caller, who may
    /// hold a lock now.
    #[must_use]
    pub(crate) fn keep(&self, opened: Arc<Opened>) -> Vec<Arc<Opened>> {
        let mut entries = lock(&self.recent.entries);
        let mut gone = Vec::new();
        take(&mut entries, &mut gone, |old| self.is_of(old, opened.first_index));
        entries.push(Entry { log: self.log, opened });
        let (mut files, mut bytes, mut from) = (0, 0, entries.len());
        for (at, entry) in entries.iter().enumerate().rev().filter(|(_, it)| it.log == self.log) {
            files += 1;
            bytes += entry.opened.bytes_max();
            if files > 1 && (files > FILES_OF_A_LOG || bytes > BYTES_OF_A_LOG) {
                break;
            }
            from = at;
        }
        let mut at = 0..;
        let log = self.log;
        take(&mut entries, &mut gone, |old| {
            at.next().is_some_and(|at| at < from) && old.log == log
        });
        let over = entries.len().saturating_sub(FILES_MAX);
        gone.extend(entries.drain(..over).map(|entry| entry.opened));
        gone
    }

    /// Gives up what is not a segment of the log any more.
    #[must_use]
    pub(crate) fn forget(&self, which: impl Fn(u64) -> bool) -> Vec<Arc<Opened>> {
        let mut gone = Vec::new();
        let is_gone = |entry: &Entry| entry.log == self.log && which(entry.opened.first_index);
        take(&mut lock(&self.recent.entries), &mut gone, is_gone);
        gone
    }

    fn is_of(&self, entry: &Entry, first_index: u64) -> bool {
        entry.log == self.log && entry.opened.first_index == first_index
    }
}

impl Drop for RecentOf {
    fn drop(&mut self) {
        drop(self.forget(|_| true));
    }
}

fn take(
    entries: &mut Vec<Entry>,
    gone: &mut Vec<Arc<Opened>>,
    mut which: impl FnMut(&Entry) -> bool,
) {
    gone.extend(entries.extract_if(.., |entry| which(entry)).map(|entry| entry.opened));
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::{Access, Dir};

    use super::*;

    fn opened(first_index: u64, segment_bytes: u64) -> Arc<Opened> {
        let file = SimDir::new().create("file", Access::default()).unwrap();
        let header = Header { log_id: 1, salt: 1, segment_bytes };
        Arc::new(Opened::new(first_index, header, file))
    }

    fn kept(log: &RecentOf) -> Vec<u64> {
        let entries = lock(&log.recent.entries);
        let its = entries.iter().filter(|entry| entry.log == log.log);
        its.map(|entry| entry.opened.first_index).collect()
    }

    #[test]
    fn few_files_are_kept_open_and_little_memory_those_that_were_read_last() {
        let recent = RecentOf::new(&Arc::default());
        for first_index in 1..=100 {
            drop(recent.keep(opened(first_index, 64 << 20)));
            recent.get(1).unwrap();
        }
        assert_eq!(kept(&recent).len(), FILES_OF_A_LOG);
        let newest = &kept(&recent)[FILES_OF_A_LOG - 2..];
        assert_eq!(*newest, [100, 1], "the newest, and what was read last");
        for first_index in 200..300 {
            drop(recent.keep(opened(first_index, 1 << 30)));
        }
        assert_eq!(kept(&recent), [297, 298, 299], "of 256 KiB each");
    }

    /// A thousand logs that were each read kept 16 files each.
    #[test]
    fn many_logs_together_keep_few_files_and_each_its_own() {
        let shared = Arc::default();
        let logs: Vec<RecentOf> = (0..1000).map(|_| RecentOf::new(&shared)).collect();
        for first_index in 1..=3 {
            for log in &logs {
                drop(log.keep(opened(first_index, 64 << 10)));
                assert_eq!(log.get(first_index).unwrap().first_index, first_index);
            }
        }
        assert_eq!(lock(&shared.entries).len(), FILES_MAX);
        assert!(logs[0].get(3).is_none(), "it was read long ago");
        assert_eq!(kept(&logs[999]), [3]);
        let gone = logs[999].forget(|first_index| first_index == 3);
        assert_eq!((gone.len(), kept(&logs[998])), (1, vec![3]), "no other log's");
        drop(logs);
        assert!(lock(&shared.entries).is_empty(), "a log that is closed keeps nothing open");
    }
}
