//! [`Books`]: what is on a shelf: files, and of each run a few words.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::error::Error;
use super::format::Run;
use super::manifest::Settled;
use super::reader::Chapter;
use crate::cursor::Malformed;
use crate::shard::{Opening, Partition, State};

/// What is left of files that are merged has at most so many bytes together.
const MERGED_BYTES_MAX: u64 = 512 << 20;
/// Files with fewer bytes of batches are merged once there are so many.
const SMALL_BYTES: u64 = 8 << 20;
const SMALL_FILES: usize = 16;

/// What is on a shelf.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) settled: Settled,
    pub(super) files: BTreeMap<u64, Book>,
    pub(super) runs: HashMap<Opening, Runs>,
}

/// A file, and how much of it lives.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) chapter: Arc<Chapter>,
    pub(super) live_bytes: u64,
    pub(super) live_runs: u32,
    /// It holds a run that is damaged: it stays as it is.
    pub(super) is_spoiled: bool,
}

/// The runs of a partition, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub(super) list: VecDeque<Held>,
    pub(super) bytes: u64,
}

/// What is in memory of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) chapter: u64,
    pub(super) file: u64,
    pub(super) number: u32,
    pub(super) end_offset: i64,
    pub(super) max_timestamp: i64,
    pub(super) last_time: u64,
    pub(super) bytes: u64,
    pub(super) is_clean: bool,
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
    /// The first run of a partition that has something at this offset or behind it, and a timestamp that is not
    /// below this one.
    pub(super) fn find(
        &self,
        opening: Opening,
        from: i64,
        timestamp: i64,
    ) -> Option<(Arc<Chapter>, Held)> {
        let list = &self.runs.get(&opening)?.list;
        let first = list.partition_point(|held| held.end_offset <= from);
        let held = list.range(first..).find(|held| held.max_timestamp >= timestamp)?;
        Some((Arc::clone(&self.files[&held.file].chapter), *held))
    }

    /// Adds a file, and these of its runs: those that are held already are read there from now on.
    pub(super) fn add<'a>(
        &mut self,
        file: u64,
        chapter: Arc<Chapter>,
        runs: impl IntoIterator<Item = (u32, &'a Run)>,
    ) {
        let mut book = Book { chapter, live_bytes: 0, live_runs: 0, is_spoiled: false };
        for (number, run) in runs {
            self.drop_run(run.opening, run.chapter);
            let of = self.runs.entry(run.opening).or_default();
            let at = of.list.partition_point(|held| held.chapter < run.chapter);
            of.list.insert(at, Held::of(run, file, number));
            of.bytes += run.bytes;
            book.live_bytes += run.bytes;
            book.live_runs += 1;
        }
        self.files.insert(file, book);
    }

    /// Whether a run is where it was.
    pub(super) fn has(&self, opening: Opening, held: &Held) -> bool {
        let list = self.runs.get(&opening).map(|runs| &runs.list);
        let mut all = list.into_iter().flatten();
        all.any(|there| (there.file, there.number) == (held.file, held.number))
    }

    /// Whether any run is there.
    pub(super) fn has_number(&self, file: u64, number: u32) -> bool {
        let mut all = self.runs.values().flat_map(|runs| &runs.list);
        all.any(|held| (held.file, held.number) == (file, number))
    }

    /// File and number of a run, if it is held.
    pub(super) fn place(&self, run: &Run) -> Option<(u64, u32)> {
        let list = &self.runs.get(&run.opening)?.list;
        let held = list.iter().find(|held| held.chapter == run.chapter)?;
        Some((held.file, held.number))
    }

    /// Holds a run no more, if it did.
    pub(super) fn drop_run(&mut self, opening: Opening, chapter: u64) {
        let Some(of) = self.runs.get_mut(&opening) else { return };
        let at = of.list.partition_point(|held| held.chapter < chapter);
        if of.list.get(at).is_none_or(|held| held.chapter != chapter) {
            return;
        }
        let held = of.list.remove(at).expect("it is there");
        of.bytes -= held.bytes;
        let book = self.files.get_mut(&held.file).expect("what is held has a file");
        book.live_bytes -= held.bytes;
        book.live_runs -= 1;
    }

    /// Forgets runs that are deleted by this state, and returns them: file and number. What it does not know yet is
    /// not deleted.
    pub(super) fn forget(&mut self, state: &State) -> Vec<(u64, u32)> {
        let (files, applied) = (&mut self.files, state.applied());
        let mut gone = Vec::new();
        self.runs.retain(|opening, runs| {
            let start = state.partition(*opening).map_or(i64::MAX, Partition::start);
            while let Some(held) = runs.list.front() {
                let book = files.get_mut(&held.file).expect("what is held has a file");
                let is_known = book.chapter.footer().last_index <= applied;
                if !is_known || held.end_offset > start {
                    break;
                }
                book.live_bytes -= held.bytes;
                book.live_runs -= 1;
                runs.bytes -= held.bytes;
                gone.push((held.file, held.number));
                runs.list.pop_front();
            }
            !runs.list.is_empty()
        });
        gone
    }

    /// Files to be merged next: all of which nothing is left; or else some of which less than half is; or else small
    /// ones, where there are many: each takes a descriptor, and its place in the manifest.
    pub(super) fn next_to_merge(&self) -> BTreeSet<u64> {
        let empty: BTreeSet<u64> =
            self.files.iter().filter(|(_, book)| book.live_runs == 0).map(|(n, _)| *n).collect();
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

impl Held {
    pub(super) fn of(run: &Run, file: u64, number: u32) -> Self {
        Self {
            chapter: run.chapter,
            file,
            number,
            end_offset: run.end_offset,
            max_timestamp: run.max_timestamp,
            last_time: run.last_time,
            bytes: run.bytes,
            is_clean: run.compacted != 0,
        }
    }

    /// All that is said of it, read again. A disk may give another part of the file, whole and with a checksum of
    /// its own.
    pub(super) fn run(&self, chapter: &Chapter, opening: Opening) -> Result<Run, Error> {
        let run = chapter.run(self.number)?;
        let is_it = run.opening == opening && run.chapter == self.chapter;
        let why = Malformed::Field("the chapter of a run", run.chapter);
        let damaged = || Error::File { file: chapter.name().to_owned(), why };
        is_it.then_some(run).ok_or_else(damaged)
    }
}

impl Runs {
    /// The first offset that is kept at this time, if some of these are not.
    pub(super) fn kept_from(&self, partition: &Partition, now: u64) -> Option<i64> {
        let settings = partition.settings();
        let since = settings.retention_ms.map_or(0, |ms| now.saturating_sub(ms));
        let mut bytes = self.bytes + partition.bytes();
        let expired = self.list.iter().take_while(|held| {
            bytes = bytes.saturating_sub(held.bytes);
            let is_over = settings.retention_bytes.is_some_and(|kept| bytes >= kept);
            is_over || held.last_time < since
        });
        expired.last().map(|held| held.end_offset)
    }
}
