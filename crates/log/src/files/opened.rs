//! [`Opened`]: a segment that readers have open, and what they know of it. [`Recent`]: those that were
//! read last, so that the next reader need not open and learn again.

use std::sync::{Arc, OnceLock};

use plimsoll_sync::File;

use crate::segment::header::Header;
use crate::segment::sparse::SparseIndex;

/// The most files that are kept open.
const FILES_MAX: usize = 16;
/// The most memory that their sparse indexes may take together.
const BYTES_MAX: usize = 1 << 20;

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

/// Segments that were read last, newest last.
#[derive(Debug, Default)]
pub(crate) struct Recent(Vec<Arc<Opened>>);

impl Recent {
    pub(crate) fn get(&mut self, first_index: u64) -> Option<Arc<Opened>> {
        let at = self.0.iter().rposition(|opened| opened.first_index == first_index)?;
        self.0[at..].rotate_left(1);
        self.0.last().map(Arc::clone)
    }

    /// Keeps one, and returns those that have to go for it: closing a file is for the caller, who may
    /// hold a lock now.
    #[must_use]
    pub(crate) fn keep(&mut self, opened: Arc<Opened>) -> Vec<Arc<Opened>> {
        let first_index = opened.first_index;
        let mut gone = self.forget(|old| old == first_index);
        self.0.push(opened);
        let bytes =
            |all: &[Arc<Opened>]| all.iter().map(|opened| opened.bytes_max()).sum::<usize>();
        let fits = |all: &[Arc<Opened>]| all.len() <= FILES_MAX && bytes(all) <= BYTES_MAX;
        let from = (0..self.0.len()).find(|&from| fits(&self.0[from..]));
        gone.extend(self.0.drain(..from.unwrap_or(self.0.len() - 1)));
        gone
    }

    /// Gives up what is not a segment of the log any more.
    #[must_use]
    pub(crate) fn forget(&mut self, which: impl Fn(u64) -> bool) -> Vec<Arc<Opened>> {
        let mut gone = Vec::new();
        self.0.retain(|opened| {
            let goes = which(opened.first_index);
            if goes {
                gone.push(Arc::clone(opened));
            }
            !goes
        });
        gone
    }
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

    fn kept(recent: &Recent) -> Vec<u64> {
        recent.0.iter().map(|opened| opened.first_index).collect()
    }

    #[test]
    fn few_files_are_kept_open_and_little_memory_those_that_were_read_last() {
        let mut recent = Recent::default();
        for first_index in 1..=100 {
            drop(recent.keep(opened(first_index, 64 << 20)));
            recent.get(1).unwrap();
        }
        assert_eq!(recent.0.len(), FILES_MAX);
        assert_eq!(kept(&recent)[FILES_MAX - 2..], [100, 1], "the newest, and what was read last");
        for first_index in 200..300 {
            drop(recent.keep(opened(first_index, 1 << 30)));
        }
        assert_eq!(kept(&recent), [297, 298, 299], "of 256 KiB each");
    }
}
