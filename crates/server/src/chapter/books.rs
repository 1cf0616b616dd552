//! [`Books`]: what is in memory of a shelf: its files, and of each partition a few words.
//!
//! Nothing here is proportional to the runs: which chapters a partition is in are ranges of numbers, and a run is found
//! with a read of its file's table ([`super::lookup`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::format::Run;
use super::manifest::Settled;
use super::ranges::Ranges;
use super::reader::Chapter;
use crate::shard::Opening;

/// What is left of files that are merged has at most so many bytes together.
const MERGED_BYTES_MAX: u64 = 512 << 20;
/// Files with fewer bytes of batches are merged once there are so many.
const SMALL_BYTES: u64 = 8 << 20;
const SMALL_FILES: usize = 16;

/// What is on a shelf.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) settled: Settled,
    /// Who looks for runs does so in the files of one moment.
    pub(super) files: Arc<Files>,
    pub(super) partitions: BTreeMap<Opening, Shelved>,
}

/// The files of a shelf, by their numbers.
pub(super) type Files = BTreeMap<u64, Book>;

/// A file, and how much of it lives.
#[derive(Debug, Clone)]
pub(super) struct Book {
    pub(super) chapter: Arc<Chapter>,
    /// Runs that are not read any more.
    pub(super) gone: Ranges,
    pub(super) live_bytes: u64,
    /// It holds a run that is damaged: it stays as it is.
    pub(super) is_spoiled: bool,
}

/// What lives of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shelved {
    /// Those that it has a run in.
    pub(super) chapters: Ranges,
    /// Of all of them.
    pub(super) bytes: u64,
    /// Of those that were compacted.
    pub(super) clean_bytes: u64,
    /// The offset behind the last.
    pub(super) end: i64,
    pub(super) oldest: Oldest,
}

/// The oldest run of a partition: it expires first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Oldest {
    pub(super) end: i64,
    pub(super) last_time: u64,
    pub(super) bytes: u64,
}

/// Runs that leave a file.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pub(super) numbers: Ranges,
    pub(super) bytes: u64,
}

/// How large a shelf is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Files.
    pub files: usize,
    /// Runs that somebody can read.
    pub runs: usize,
    /// Bytes of batches in them.
    pub live_bytes: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
}

impl Books {
    /// Has these runs of files be gone.
    pub(super) fn let_go(&mut self, leaving: &BTreeMap<u64, Leaving>) {
        if leaving.is_empty() {
            return;
        }
        let files = Arc::make_mut(&mut self.files);
        for (number, leaving) in leaving {
            if let Some(book) = files.get_mut(number) {
                book.gone.add(&leaving.numbers);
                book.live_bytes = book.live_bytes.saturating_sub(leaving.bytes);
            }
        }
    }

    /// Whether a run is where it was.
    pub(super) fn has(&self, file: u64, number: u32) -> bool {
        self.files.get(&file).is_some_and(|book| !book.gone.has(number))
    }

    /// Files to be merged next: all of which nothing is left; or else some of which less than half is; or else small
    /// ones, where there are many: each takes a descriptor, and its place in the manifest.
    pub(super) fn next_to_merge(&self) -> BTreeSet<u64> {
        let empty = self.files.iter().filter(|(_, book)| book.live_runs() == 0);
        let empty: BTreeSet<u64> = empty.map(|(number, _)| *number).collect();
        if !empty.is_empty() {
            return empty;
        }
        let is_thin = |book: &Book| {
            !book.is_spoiled && 2 * book.live_bytes < book.chapter.footer().batches_bytes()
        };
        let mut thin: Vec<(u64, &Book)> =
            self.files.iter().filter(|(_, book)| is_thin(book)).map(|(n, b)| (*n, b)).collect();
        if thin.is_empty() {
            let is_small = |book: &Book| {
                !book.is_spoiled && book.chapter.footer().batches_bytes() < SMALL_BYTES
            };
            let all = self.files.iter().filter(|(_, book)| is_small(book));
            thin = all.map(|(number, book)| (*number, book)).collect();
            if thin.len() < SMALL_FILES {
                return BTreeSet::new();
            }
        }
        thin.sort_by_key(|(_, book)| book.chapter.footer().first_chapter);
        let mut bytes = 0;
        let fit = thin.into_iter().take_while(|(_, book)| {
            // One that is larger is written again alone.
            let is_first = bytes == 0;
            bytes += book.live_bytes;
            is_first || bytes <= MERGED_BYTES_MAX
        });
        fit.map(|(number, _)| number).collect()
    }
}

impl Book {
    /// One of which all can be read.
    pub(super) fn whole(chapter: Arc<Chapter>) -> Self {
        let live_bytes = chapter.footer().batches_bytes();
        Self { chapter, gone: Ranges::default(), live_bytes, is_spoiled: false }
    }

    /// How many of its runs can be read.
    pub(super) fn live_runs(&self) -> u64 {
        u64::from(self.chapter.footer().runs).saturating_sub(self.gone.count())
    }
}

impl Shelved {
    /// Has a run more, of this chapter, unless it had one of that.
    pub(super) fn take(&mut self, chapter: u32, run: &Run) {
        if self.chapters.has(chapter) {
            return;
        }
        if self.chapters.first().is_none_or(|first| chapter < first) {
            self.oldest = Oldest::of(run);
        }
        if self.chapters.last().is_none_or(|last| last < chapter) {
            self.end = run.end_offset;
        }
        self.chapters.insert(chapter);
        self.count(run);
    }

    /// Counts the bytes of a run.
    pub(super) fn count(&mut self, run: &Run) {
        self.bytes += run.bytes;
        self.clean_bytes += clean(run);
    }

    /// Counts them no more.
    pub(super) fn discount(&mut self, run: &Run) {
        self.bytes = self.bytes.saturating_sub(run.bytes);
        self.clean_bytes = self.clean_bytes.saturating_sub(clean(run));
    }
}

fn clean(run: &Run) -> u64 {
    if run.compacted == 0 { 0 } else { run.bytes }
}

impl Oldest {
    pub(super) fn of(run: &Run) -> Self {
        Self { end: run.end_offset, last_time: run.last_time, bytes: run.bytes }
    }
}
