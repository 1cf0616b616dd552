//! The table of a file's runs: sorted, and on the disk.
//!
//! In memory are its [`Fences`] alone, so that a file with a hundred thousand runs takes 50 kB, and one of them is
//! found with one read of 8 KiB. Each row has a checksum of its own: one that is damaged takes none of the others
//! with it.

use super::error::Error;
use super::format::{FENCE_BYTES, FENCED_RUNS, Key, RUN_BYTES, Run};
use super::reader::Chapter;
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
    /// Number and run of this name, if it is there.
    pub(super) fn find(&self, key: Key) -> Option<(u32, Run)> {
        self.runs().find(|(_, run)| run.key() == key)
    }

    /// Those that are not damaged, with their numbers.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u32, Run)> {
        let rows = (self.first..).zip(&self.rows);
        rows.filter_map(|(number, row)| Some((number, *row.as_ref().ok()?)))
    }

    /// What is wrong with the first of the others, and its number.
    pub(super) fn damage(&self) -> Option<(Malformed, u32)> {
        let mut rows = (self.first..).zip(&self.rows);
        rows.find_map(|(number, row)| Some((*row.as_ref().err()?, number)))
    }
}

impl Chapter {
    /// A page of the table. What is damaged on it stands there.
    pub(super) fn page(&self, page: u32) -> Result<Page, Error> {
        let first = page.saturating_mul(FENCED_RUNS);
        let count = FENCED_RUNS.min(self.footer().runs.saturating_sub(first));
        let at = self.footer().runs_at + u64::from(first) * RUN_BYTES as u64;
        let bytes = self.read_at(at, count as usize * RUN_BYTES)?;
        let rows = bytes.chunks_exact(RUN_BYTES).map(|row| self.row(row));
        Ok(Page { first, rows: rows.collect() })
    }

    /// A run that lies where there can be one.
    pub(super) fn row(&self, row: &[u8]) -> Result<Run, Malformed> {
        let run = Run::decode(row.first_chunk().ok_or(Malformed::Short("a run"))?)?;
        self.check(&run).map(|()| run)
    }

    /// How many pages the table has.
    pub(super) fn pages(&self) -> u32 {
        self.footer().runs.div_ceil(FENCED_RUNS)
    }
}
