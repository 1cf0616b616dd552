//! What is deleted leaves the shelf of a shard, and its room is given back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::books::{Leaving, Oldest, Shelved};
use super::error::Error;
use super::lookup::Lookup;
use super::manifest::{Manifest, name_of};
use super::merge::merge;
use super::ranges::Ranges;
use super::reader::Chapter;
use super::shelf::{Change, Shelf};
use crate::shard::{Opening, Partition, State};

/// A partition whose oldest run is past its retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiring {
    opening: Opening,
    start: i64,
    /// What was appended before is past it, in ms since 1970.
    since: u64,
    bytes_max: Option<u64>,
    /// Settled or not.
    bytes: u64,
    chapters: Ranges,
}

impl Shelf {
    /// Partitions that have runs which are past their retention at this time. The state knows of all that is settled.
    #[must_use]
    pub fn expiring(&self, state: &State, now: u64) -> Vec<Expiring> {
        let books = self.read_books();
        let expiring = state.partitions().filter_map(|(opening, partition)| {
            let of = books.partitions.get(&opening)?;
            let settings = partition.settings();
            let expiring = Expiring {
                opening,
                start: partition.start(),
                since: settings.retention_ms.map_or(0, |ms| now.saturating_sub(ms)),
                bytes_max: settings.retention_bytes,
                bytes: of.bytes + partition.bytes(),
                chapters: Ranges::default(),
            };
            let is_first = expiring.is_over(&of.oldest, expiring.bytes);
            is_first.then(|| Expiring { chapters: of.chapters.clone(), ..expiring })
        });
        expiring.collect()
    }

    /// The offsets from which on these partitions keep what they have. Waits for the disk; a run that cannot be found
    /// stays, and what is behind it.
    #[must_use]
    pub fn expired(&self, expiring: Vec<Expiring>) -> Vec<(Opening, i64)> {
        let mut lookup = Lookup::of(self.files_now());
        let expired = expiring.into_iter().filter_map(|of| {
            let (mut bytes, mut start) = (of.bytes, of.start);
            for chapter in of.chapters.iter() {
                let found = lookup.find(of.opening, chapter);
                let Ok(placed) = self.note(of.opening, found) else { break };
                if !of.is_over(&Oldest::of(&placed.run), bytes) {
                    break;
                }
                bytes = bytes.saturating_sub(placed.run.bytes);
                start = start.max(placed.run.end_offset);
            }
            (start > of.start).then_some((of.opening, start))
        });
        expired.collect()
    }

    /// Lets go of what a snapshot of the shard, which is durable, says is deleted. Files of which less than half is
    /// left are merged, and what is gone of them given back. Waits for the disk.
    ///
    /// # Errors
    /// The disk. What was not freed is freed by another call.
    pub fn free(&self, state: &State) -> Result<(), Error> {
        let mut manifest = self.turn();
        let (change, unread) = self.deleted(state);
        let gone: BTreeMap<u64, Ranges> =
            change.leaving.iter().map(|(file, of)| (*file, of.numbers.clone())).collect();
        if !gone.is_empty() {
            let next = manifest.clone();
            self.publish(&mut manifest, next, change)?;
            drop(manifest);
            self.roll_up();
            self.give_back(&gone);
        } else {
            drop(manifest);
        }
        loop {
            // Whoever else changes the shelf has a turn between two of them.
            let mut manifest = self.turn();
            let group = self.read_books().next_to_merge();
            if group.is_empty() || self.is_ending.load(Ordering::Relaxed) {
                return unread.map_or(Ok(()), Err);
            }
            match self.merge(&mut manifest, &group) {
                // It stays as it is; the others go on.
                Err(why) if self.spoil(&group, &why) => continue,
                merged => merged?,
            }
            drop(manifest);
            self.roll_up();
        }
    }

    /// What a state says is deleted. What it does not know yet is not. And an error of the disk, if there was one.
    fn deleted(&self, state: &State) -> (Change, Option<Error>) {
        let (begun, files) = {
            let books = self.read_books();
            let begun = books.partitions.iter().filter_map(|(opening, of)| {
                let start = state.partition(*opening).map_or(i64::MAX, Partition::start);
                (of.oldest.end <= start).then(|| (*opening, start, of.clone()))
            });
            let begun: Vec<(Opening, i64, Shelved)> = begun.collect();
            (begun, Arc::clone(&books.files))
        };
        let mut lookup = Lookup::of(files);
        let (mut change, mut unread) = (Change::default(), None);
        for (opening, start, mut of) in begun {
            for chapter in of.chapters.clone().iter() {
                // What cannot be found stays, and what is behind it.
                let placed = match self.note(opening, lookup.find(opening, chapter)) {
                    Ok(placed) => placed,
                    Err(why) => {
                        unread = unread.or(Some(why).filter(|why| matches!(why, Error::Disk(_))));
                        break;
                    }
                };
                let is_known = placed.chapter.footer().last_index <= state.applied();
                of.oldest = Oldest::of(&placed.run);
                if !is_known || placed.run.end_offset > start {
                    break;
                }
                of.chapters.remove(chapter);
                of.discount(&placed.run);
                let leaving = change.leaving.entry(placed.file).or_default();
                leaving.take(placed.number, placed.run.bytes);
            }
            let is_left = of.chapters.first().is_some();
            change.partitions.push((opening, is_left.then_some(of)));
        }
        (change, unread)
    }

    /// Gives the blocks of runs back that are gone, where the filesystem can. It says nothing of how many: what counts
    /// for whether a file is merged is what lives in it.
    pub(super) fn give_back(&self, gone: &BTreeMap<u64, Ranges>) {
        let files = self.files_now();
        for (file, numbers) in gone {
            if let Some(Err(why)) = files.get(file).map(|book| book.chapter.punch(numbers)) {
                tracing::warn!(shard = self.shard, %why, "room is given back only with its file");
            }
        }
    }

    /// Puts what is left of these files into one, or nothing where nothing is left.
    fn merge(&self, manifest: &mut Manifest, group: &BTreeSet<u64>) -> Result<(), Error> {
        let files = self.files_now();
        let mut runs = Vec::new();
        for file in group {
            let book = &files[file];
            if book.live_runs() > 0 {
                let live = book.chapter.living(&book.gone)?;
                runs.extend(live.into_iter().map(|(_, run)| (Arc::clone(&book.chapter), run)));
            }
        }
        runs.sort_by_key(|(_, run): &(Arc<Chapter>, _)| run.key());
        let mut change = Change::default();
        if !runs.is_empty() {
            let number = manifest.take_number();
            change.made = Some(self.make(number, |file| merge(file, self.shard, &runs))?);
        }
        let mut next = manifest.clone();
        next.files.retain(|named| !group.contains(&named.number));
        self.publish(manifest, next, change)?;
        for number in group {
            // A name that stays is nobody's, and goes at the next start.
            self.dir.remove(&name_of(*number))?;
        }
        Ok(())
    }

    /// A file that is damaged is left as it is: what is good in it can be read. Whether it is one of these.
    fn spoil(&self, group: &BTreeSet<u64>, why: &Error) -> bool {
        let (Error::Run { file, .. } | Error::File { file, .. }) = why else { return false };
        let mut books = self.write_books();
        let mut of_group =
            Arc::make_mut(&mut books.files).iter_mut().filter(|(number, _)| group.contains(number));
        let Some((_, book)) = of_group.find(|(_, book)| book.chapter.name() == file) else {
            return false;
        };
        book.is_spoiled = true;
        drop(books);
        if let Error::Run { opening, .. } = why {
            self.note::<()>(*opening, Err(why.clone())).ok();
        }
        tracing::error!(shard = self.shard, %why, "a chapter cannot be merged");
        true
    }
}

impl Expiring {
    /// Whether a run is past its retention, where so many bytes are from it on.
    fn is_over(&self, run: &Oldest, bytes: u64) -> bool {
        let behind = bytes.saturating_sub(run.bytes);
        self.bytes_max.is_some_and(|kept| behind >= kept) || run.last_time < self.since
    }
}

impl Leaving {
    /// This run too, of so many bytes.
    pub(super) fn take(&mut self, number: u32, bytes: u64) {
        self.numbers.insert(number);
        self.bytes += bytes;
    }
}
