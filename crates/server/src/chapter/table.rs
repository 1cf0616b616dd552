//! The table of a file's runs: sorted, and on the disk.
//!
//! In memory are its [`Fences`] alone, so that a file with a hundred thousand runs takes 50 kB, and one of them is
//! found with one read of 8 KiB. Each row has a checksum of its own: one that is damaged takes none of the others
//! with it.

use super::format::{FENCE_BYTES, FENCED_RUNS, Key, Run};
use crate::cursor::{Cursor, Malformed};
use crate::shard::Opening;

/// The names of each 64th run of a file, and of the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fences(Vec<Key>);

/// Some rows of a table that follow each other.
#[derive(Debug)]
pub(super) struct Page {
    first: u32,
    rows: Vec<Result<Run, Malformed>>,
}

impl Fences {
    pub(super) fn of(runs: &[Run]) -> Self {
        let each = runs.iter().step_by(FENCED_RUNS as usize);
        Self(each.chain(runs.last()).map(Run::key).collect())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(self.0.len() * FENCE_BYTES);
        for (opening, chapter) in &self.0 {
            opening.encode(&mut to);
            to.extend_from_slice(&chapter.to_le_bytes());
        }
        to
    }

    /// Those that these bytes are, if they are in order.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let each = bytes.chunks_exact(FENCE_BYTES).map(|fence| {
            let mut from = Cursor::new(fence, "a fence");
            Some((Opening::decode(&mut from).ok()?, from.u64().ok()?))
        });
        let fences: Vec<Key> = each.collect::<Option<_>>()?;
        fences.is_sorted().then_some(Self(fences))
    }

    /// The page that a run of this name is on, if it is in the file.
    pub(super) fn page(&self, key: Key) -> Option<u32> {
        let (last, pages) = self.0.split_last()?;
        let behind = pages.partition_point(|fence| *fence <= key);
        let page = behind.checked_sub(1).filter(|_| key <= *last)?;
        Some(u32::try_from(page).expect("a file counts its runs in 32 bits"))
    }
}

impl Page {
    /// Of rows from this number on.
    pub(super) fn of(first: u32, rows: Vec<Result<Run, Malformed>>) -> Self {
        Self { first, rows }
    }

    /// Number and run of this name, if it is there.
    pub(super) fn find(&self, key: Key) -> Option<(u32, Run)> {
        self.runs().find(|(_, run)| run.key() == key)
    }

    /// Those that are not damaged, with their numbers.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u32, Run)> {
        self.rows().filter_map(|(number, row)| Some((number, row.ok()?)))
    }

    /// All of them, with their numbers.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u32, Result<Run, Malformed>)> {
        (self.first..).zip(self.rows.iter().copied())
    }

    /// Whether a row that is damaged may be the run of this name; and its number, if it is the only one between
    /// those before and behind it.
    pub(super) fn hole(&self, key: Key) -> Option<Option<u32>> {
        let is_behind = |row: &Result<Run, _>| row.as_ref().is_ok_and(|run| run.key() > key);
        let end = self.rows.iter().position(is_behind).unwrap_or(self.rows.len());
        let damaged = self.rows[..end].iter().rev().take_while(|row| row.is_err()).count();
        let last = || self.first + u32::try_from(end - 1).expect("a page has few rows");
        (damaged > 0).then(|| (damaged == 1).then(last))
    }

    /// What is wrong with the first of the others, and its number.
    pub(super) fn damage(&self) -> Option<(Malformed, u32)> {
        let mut rows = (self.first..).zip(&self.rows);
        rows.find_map(|(number, row)| Some((*row.as_ref().err()?, number)))
    }
}
