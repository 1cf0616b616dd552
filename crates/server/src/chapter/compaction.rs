//! A partition on the shelf of a shard keeps the newest record of each key.

use std::sync::Arc;

use super::books::{Oldest, Shelved};
use super::compact::{Rules, compact};
use super::error::Error;
use super::format::Run;
use super::lookup::{Lookup, Placed};
use super::ranges::Ranges;
use super::reader::Chapter;
use super::shelf::{Change, Shelf, number_of};
use crate::shard::{Opening, State};

impl Shelf {
    /// Partitions that are compacted by their settings, of which at least as much was never compacted as was.
    #[must_use]
    pub fn dirty(&self, state: &State) -> Vec<(Opening, u64)> {
        let books = self.read_books();
        let dirty = state.partitions().filter_map(|(opening, partition)| {
            let stays_ms = partition.settings().compaction?;
            let of = books.partitions.get(&opening)?;
            let dirty = of.bytes.saturating_sub(of.clean_bytes);
            (dirty > 0 && 2 * dirty >= of.bytes).then_some((opening, stays_ms))
        });
        dirty.collect()
    }

    /// Keeps of each key of a partition the newest record, in what is settled of it; and tombstones for so many ms
    /// after they were compacted first. Others change the shelf meanwhile: where a run that was compacted is not where
    /// it was, all stays as it is, and it is to be tried again: whether it is not. Durable on return. Waits for the disk, as
    /// long as `goes_on` says.
    ///
    /// # Errors
    /// [`Error::Run`]: some of it is damaged, and all stays as it was. [`Error::Stopped`].
    pub fn compact(
        &self,
        opening: Opening,
        stays_ms: u64,
        now: u64,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let placed = self.all_of(opening)?;
        if placed.iter().all(|placed| placed.run.compacted != 0) {
            return Ok(true);
        }
        let runs: Vec<(Arc<Chapter>, Run)> =
            placed.iter().map(|placed| (Arc::clone(&placed.chapter), placed.run)).collect();
        let tombstones_before = now.saturating_sub(stays_ms);
        let rules = Rules { now, tombstones_before, goes_on: &goes_on };
        let number = self.turn().take_number();
        let mut replaced = Vec::new();
        let made = self.make(number, |file| {
            let (footer, numbers) = compact(file, self.shard, &runs, rules)?;
            replaced = numbers;
            Ok(footer)
        });
        let made = match made {
            // It was freed while it was read.
            Err(Error::Run { .. }) if !self.has_all(&placed.iter().collect::<Vec<_>>()) => {
                return Ok(false);
            }
            made => self.note(opening, made)?,
        };
        let replaced: Vec<&Placed> = replaced.into_iter().map(|number| &placed[number]).collect();
        let mut manifest = self.turn();
        if !self.has_all(&replaced) {
            self.dir.remove(&made.named.name())?;
            return Ok(false);
        }
        let of = self.without(opening, &replaced, &made.runs)?;
        let mut change = Change { partitions: vec![(opening, of)], ..Change::default() };
        for placed in &replaced {
            change.leaving.entry(placed.file).or_default().take(placed.number, placed.run.bytes);
        }
        let gone = change.leaving.iter().map(|(file, of)| (*file, of.numbers.clone())).collect();
        let nothing = made.runs.is_empty().then(|| made.named.name());
        change.made = Some(made).filter(|_| nothing.is_none());
        let next = manifest.clone();
        self.publish(&mut manifest, next, change)?;
        if let Some(name) = nothing {
            self.dir.remove(&name)?;
        }
        self.give_back(&gone);
        Ok(true)
    }

    /// Whether these are where they were.
    fn has_all(&self, runs: &[&Placed]) -> bool {
        let books = self.read_books();
        runs.iter().all(|placed| books.has(placed.file, placed.number))
    }

    /// The runs of a partition, in their order.
    fn all_of(&self, opening: Opening) -> Result<Vec<Placed>, Error> {
        let (mut lookup, chapters) = {
            let books = self.read_books();
            let of = books.partitions.get(&opening);
            let chapters = of.map_or_else(Ranges::default, |of| of.chapters.clone());
            (Lookup::of(Arc::clone(&books.files)), chapters)
        };
        let all = chapters.iter().map(|chapter| lookup.find(opening, chapter));
        self.note(opening, all.collect())
    }

    /// What is left of a partition once these runs are replaced by those.
    fn without(
        &self,
        opening: Opening,
        replaced: &[&Placed],
        made: &[Run],
    ) -> Result<Option<Shelved>, Error> {
        let (mut of, files) = {
            let books = self.read_books();
            (books.partitions.get(&opening).cloned().unwrap_or_default(), Arc::clone(&books.files))
        };
        for placed in replaced {
            of.discount(&placed.run);
            match made.iter().find(|made| made.chapter == placed.run.chapter) {
                Some(made) => of.count(made),
                None => of.chapters.remove(number_of(placed.run.chapter, placed.chapter.name())?),
            }
        }
        let (Some(first), Some(last)) = (of.chapters.first(), of.chapters.last()) else {
            return Ok(None);
        };
        let mut lookup = Lookup::of(files);
        let mut run_of = |chapter: u32| {
            let made = made.iter().find(|made| made.chapter == u64::from(chapter));
            made.map_or_else(
                || Ok(lookup.find(opening, chapter)?.run),
                |made| Ok::<_, Error>(*made),
            )
        };
        of.oldest = Oldest::of(&run_of(first)?);
        of.end = run_of(last)?.end_offset;
        Ok(Some(of))
    }
}
