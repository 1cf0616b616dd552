//! [`Shelf`]: the chapters of a shard: which runs each partition has; settled, read, freed.
//!
//! Of each run a few words are in memory; the rest is read when somebody asks. One at a time changes the shelf;
//! who reads meanwhile reads what there was, whose files stay open for as long.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use plimsoll_sync::{Dir, File, SyncMethod};

use super::books::{Books, Held, Size};
use super::compact::{Found, Rules, compact};
use super::error::Error;
use super::format::{Footer, Run};
use super::gone::Gone;
use super::manifest::{Manifest, Named, Settled, name_of};
use super::merge::merge;
use super::reader::Chapter;
use super::writer::{Plan, Writer};
use crate::shard::{Ended, Opening, State};

/// The chapters of a shard.
#[derive(Debug)]
pub struct Shelf {
    dir: Arc<dyn Dir>,
    shard: u32,
    /// Held by who changes it.
    turn: Mutex<Manifest>,
    books: RwLock<Books>,
    /// What was found so, by whoever read it.
    damaged: Mutex<BTreeMap<(String, Opening), Error>>,
    /// Nothing is merged any more.
    is_ending: AtomicBool,
}

impl Shelf {
    /// The shelf of a shard, in a directory of its own. What the manifest does not name is removed.
    ///
    /// # Errors
    /// [`Error`]: a file that the manifest names is not there, or does not say what it holds.
    pub fn open(dir: Arc<dyn Dir>, shard: u32) -> Result<Self, Error> {
        let manifest = Manifest::read(&*dir, shard)?;
        let mut books = Books { settled: manifest.settled, ..Books::default() };
        for named in &manifest.files {
            let missing = || Error::Missing { file: named.name() };
            let file = dir.open(&named.name(), SyncMethod::ORDINARY.access());
            let file = file.map_err(|why| match why.kind() {
                Some(ErrorKind::NotFound) => missing(),
                _ => why.into(),
            })?;
            let chapter = Chapter::open(&named.name(), file)?;
            let found = (chapter.footer().checksum(), chapter.footer().file_bytes);
            if found != (named.checksum, named.bytes) || chapter.shard() != shard {
                return Err(missing());
            }
            let runs = chapter.runs()?;
            let live = (0..).zip(&runs).filter(|(number, _)| !named.gone.has(*number));
            books.add(named.number, Arc::new(chapter), live);
        }
        let named: BTreeSet<String> = manifest.files.iter().map(Named::name).collect();
        for name in dir.list()? {
            if name.ends_with(".chapter") && !named.contains(&name) {
                dir.remove(&name)?;
            }
        }
        Ok(Self {
            dir,
            shard,
            turn: Mutex::new(manifest),
            books: RwLock::new(books),
            damaged: Mutex::default(),
            is_ending: AtomicBool::new(false),
        })
    }

    /// How far the shard is settled.
    #[must_use]
    pub fn settled(&self) -> Settled {
        self.read_books().settled
    }

    /// Has it merge nothing more, beyond what it does just now.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is on it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read_books().files.is_empty()
    }

    /// How large it is.
    #[must_use]
    pub fn size(&self) -> Size {
        let books = self.read_books();
        let footers = books.files.values().map(|book| book.chapter.footer());
        Size {
            files: books.files.len(),
            runs: books.files.values().map(|book| book.live_runs as usize).sum(),
            live_bytes: books.files.values().map(|book| book.live_bytes).sum(),
            file_bytes: footers.map(|footer| footer.file_bytes).sum(),
        }
    }

    /// Bytes of a partition's batches in it.
    #[must_use]
    pub fn bytes(&self, opening: Opening) -> u64 {
        self.read_books().runs.get(&opening).map_or(0, |runs| runs.bytes)
    }

    /// Settles the next chapter. `write` has its writer take the entries of the plan. Durable on return, and can be
    /// read.
    ///
    /// # Errors
    /// What `write` says, or the disk. Nothing is settled then; it may be tried again.
    pub fn settle(
        &self,
        plan: Plan,
        write: impl FnOnce(Writer) -> Result<Footer, Error>,
    ) -> Result<(), Error> {
        let mut manifest = self.turn();
        let Ended { chapter, end, .. } = plan.ended;
        if chapter <= manifest.settled.chapter {
            return Ok(());
        }
        let settled = Settled { chapter, end };
        if plan.runs.is_empty() {
            let next = Manifest { settled, ..manifest.clone() };
            return self.publish(&mut manifest, next, None);
        }
        let made = self.make(manifest.take_number(), |file| {
            Writer::begin(Arc::clone(file), self.shard, plan).and_then(write)
        })?;
        let mut next = Manifest { settled, ..manifest.clone() };
        next.files.push(made.named.clone());
        self.publish(&mut manifest, next, Some(made))
    }

    /// Whether a run of a partition has something at this offset or behind it.
    #[must_use]
    pub fn has(&self, opening: Opening, from: i64) -> bool {
        self.read_books().find(opening, from, i64::MIN).is_some()
    }

    /// Batches of a partition, from the one on that holds this offset, or else the next, below the offset `end`:
    /// of about so many bytes, at least one if there is any. Waits for the disk.
    ///
    /// # Errors
    /// [`Error::Run`]: what comes next is damaged.
    pub fn read(
        &self,
        opening: Opening,
        mut from: i64,
        end: i64,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, Error> {
        loop {
            let found = self.read_books().find(opening, from, i64::MIN);
            let Some((chapter, held)) = found else { return Ok(Vec::new()) };
            let read = held
                .run(&chapter, opening)
                .and_then(|run| Ok((chapter.read(&run, from, end, bytes_max)?, run.end_offset)));
            // What is gone by now was given back while it was read.
            if read.is_err() && !self.read_books().has(opening, &held) {
                continue;
            }
            let (batches, end_offset) = self.note(read)?;
            if !batches.is_empty() || end_offset >= end {
                return Ok(batches);
            }
            from = end_offset;
        }
    }

    /// Runs that were found damaged since the shelf was opened, and are still here.
    #[must_use]
    pub fn damaged(&self) -> Vec<Error> {
        self.lock_damaged().values().cloned().collect()
    }

    /// The files, in the order of their numbers, to be scrubbed one by one.
    #[must_use]
    pub fn files(&self) -> Vec<u64> {
        self.read_books().files.keys().copied().collect()
    }

    /// Reads runs of a file from this number on that somebody could read, until they have so many bytes; past the
    /// page cache where that is possible: what is only in memory is not on the disk. Returns the number of the next,
    /// if there is one.
    ///
    /// # Errors
    /// The disk. What is damaged is noted ([`Shelf::damaged`]), and others are read on.
    pub fn scrub(&self, file: u64, from: u32, bytes_max: u64) -> Result<Option<u32>, Error> {
        let (name, runs) = {
            let books = self.read_books();
            let Some(book) = books.files.get(&file) else { return Ok(None) };
            let all = books.runs.values().flat_map(|runs| &runs.list);
            let of_file = all.filter(|held| held.file == file && held.number >= from);
            let runs: BTreeSet<u32> = of_file.map(|held| held.number).collect();
            (book.chapter.name().to_owned(), runs)
        };
        let direct = self.dir.open(&name, SyncMethod::Direct.access());
        let buffered = |_refused| self.dir.open(&name, SyncMethod::ORDINARY.access());
        // It may be merged meanwhile.
        let Ok(opened) = direct.or_else(buffered) else { return Ok(None) };
        let chapter = Chapter::open(&name, opened)?;
        let mut bytes = 0;
        for number in runs {
            if bytes >= bytes_max {
                return Ok(Some(number));
            }
            let read = chapter.run(number).and_then(|run| chapter.verify(&run));
            // What is gone by now was given back while it was read.
            if read.is_err() && !self.read_books().has_number(file, number) {
                continue;
            }
            bytes += match self.note(read) {
                Err(Error::Run { .. } | Error::File { .. }) => 0,
                read => read?,
            };
        }
        Ok(None)
    }

    /// Notes what is damaged, and says it once.
    fn note<T>(&self, found: Result<T, Error>) -> Result<T, Error> {
        if let Err(why @ Error::Run { file, opening, .. }) = &found {
            let key = (file.clone(), *opening);
            if self.lock_damaged().insert(key, why.clone()).is_none() {
                tracing::error!(shard = self.shard, %why, "a run of a chapter is damaged");
            }
        }
        found
    }

    fn lock_damaged(&self) -> MutexGuard<'_, BTreeMap<(String, Opening), Error>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset of the first batch from which on a record with this timestamp or a later one may be, at or
    /// above an offset. Waits for the disk.
    pub fn offset_at(
        &self,
        opening: Opening,
        start: i64,
        timestamp: i64,
    ) -> Result<Option<i64>, Error> {
        let found = self.read_books().find(opening, start, timestamp);
        let Some((chapter, held)) = found else { return Ok(None) };
        let offset = chapter.offset_at(&held.run(&chapter, opening)?, timestamp)?;
        Ok(Some(offset.max(start)))
    }

    /// Which partitions have runs that are past their retention at this time, and the offset from which on they
    /// keep theirs. The state knows of all that is settled.
    #[must_use]
    pub fn expired(&self, state: &State, now: u64) -> Vec<(Opening, i64)> {
        let books = self.read_books();
        let expired = state.partitions().filter_map(|(opening, partition)| {
            let start = books.runs.get(&opening)?.kept_from(partition, now)?;
            (start > partition.start()).then_some((opening, start))
        });
        expired.collect()
    }

    /// Partitions that are compacted by their settings, of which at least as much was never compacted as was.
    #[must_use]
    pub fn dirty(&self, state: &State) -> Vec<(Opening, u64)> {
        let books = self.read_books();
        let dirty = state.partitions().filter_map(|(opening, partition)| {
            let stays_ms = partition.settings().compaction?;
            let runs = books.runs.get(&opening)?;
            let dirty = runs.list.iter().filter(|held| !held.is_clean);
            let dirty: u64 = dirty.map(|held| held.bytes).sum();
            (dirty > 0 && 2 * dirty >= runs.bytes).then_some((opening, stays_ms))
        });
        dirty.collect()
    }

    /// Keeps of each key of a partition the newest record, in what is settled of it; and tombstones for so many ms
    /// after they were compacted first. Others change the shelf meanwhile: where a run that was compacted is not where
    /// it was, all stays as it is. Durable on return. Waits for the disk, as long as `goes_on` says.
    ///
    /// # Errors
    /// [`Error::Run`]: some of it is damaged, and all stays as it was. [`Error::Stopped`].
    pub fn compact(
        &self,
        opening: Opening,
        stays_ms: u64,
        now: u64,
        goes_on: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let runs = self.live_runs(|of, _held| of == opening)?;
        if runs.iter().all(|(_, run)| run.compacted != 0) {
            return Ok(());
        }
        let places = |numbers: &[usize]| -> Vec<Option<(u64, u32)>> {
            let books = self.read_books();
            numbers.iter().map(|number| books.place(&runs[*number].1)).collect()
        };
        let all: Vec<usize> = (0..runs.len()).collect();
        let begun = places(&all);
        let tombstones_before = now.saturating_sub(stays_ms);
        let rules = Rules { now, tombstones_before, goes_on: &goes_on };
        let number = self.turn().take_number();
        let mut replaced = Vec::new();
        let made = self.make(number, |file| {
            let (footer, numbers) = compact(file, self.shard, &runs, rules)?;
            replaced = numbers;
            Ok(footer)
        })?;
        let mut manifest = self.turn();
        let gone: Vec<(u64, u32)> = places(&replaced).into_iter().flatten().collect();
        let is_there = replaced.iter().filter_map(|number| begun[*number]).eq(gone.iter().copied());
        if !is_there || gone.len() < replaced.len() {
            return Ok(self.dir.remove(&made.named.name())?);
        }
        let is_left = |run: &Run| made.runs.iter().any(|made| made.key() == run.key());
        let replaced = replaced.iter().map(|number| runs[*number].1);
        let emptied: Vec<Run> = replaced.filter(|run| !is_left(run)).collect();
        let mut next = manifest.clone();
        next.forget(&gone);
        if made.runs.is_empty() {
            self.publish(&mut manifest, next, None)?;
            self.dir.remove(&made.named.name())?;
        } else {
            next.files.push(made.named.clone());
            self.publish(&mut manifest, next, Some(made))?;
        }
        let mut books = self.write_books();
        emptied.iter().for_each(|run| books.drop_run(run.opening, run.chapter));
        drop(books);
        self.give_back(&gone)
    }

    /// Lets go of what a snapshot of the shard, which is durable, says is deleted. Files of which less than half is
    /// left are merged, and what is gone of them given back. Waits for the disk.
    ///
    /// # Errors
    /// The disk. What was not freed is freed by another call.
    pub fn free(&self, state: &State) -> Result<(), Error> {
        let mut manifest = self.turn();
        let gone = self.write_books().forget(state);
        if !gone.is_empty() {
            let mut next = manifest.clone();
            next.forget(&gone);
            self.publish(&mut manifest, next, None)?;
            self.give_back(&gone)?;
        }
        drop(manifest);
        loop {
            // Whoever else changes the shelf has a turn between two of them.
            let mut manifest = self.turn();
            let group = self.read_books().next_to_merge();
            if group.is_empty() || self.is_ending.load(Ordering::Relaxed) {
                return Ok(());
            }
            match self.merge(&mut manifest, &group) {
                // It stays as it is; the others go on.
                Err(why) if self.spoil(&group, &why) => {}
                merged => merged?,
            }
        }
    }

    /// Gives the blocks of runs back that are gone, where the filesystem can. It says nothing of how many: what counts
    /// for whether a file is merged is what lives in it.
    fn give_back(&self, gone: &[(u64, u32)]) -> Result<(), Error> {
        let mut of_files: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for (file, number) in gone {
            of_files.entry(*file).or_default().insert(*number);
        }
        for (file, numbers) in of_files {
            let book = self.read_books().files.get(&file).map(|book| Arc::clone(&book.chapter));
            if let Some(chapter) = book {
                chapter.punch(&numbers)?;
            }
        }
        Ok(())
    }

    /// Puts what is left of these files into one, or nothing where nothing is left.
    fn merge(&self, manifest: &mut Manifest, group: &BTreeSet<u64>) -> Result<(), Error> {
        let mut runs = self.live_runs(|_opening, held| group.contains(&held.file))?;
        runs.sort_by_key(|(_, run)| run.key());
        let mut next = manifest.clone();
        let place = next.files.iter().position(|named| group.contains(&named.number));
        next.files.retain(|named| !group.contains(&named.number));
        let mut made = None;
        if !runs.is_empty() {
            let merged =
                self.make(manifest.take_number(), |file| merge(file, self.shard, &runs))?;
            next.next_file = manifest.next_file;
            next.files.insert(place.unwrap_or(0), merged.named.clone());
            made = Some(merged);
        }
        self.publish(manifest, next, made)?;
        for number in group {
            // A name that stays is nobody's, and goes at the next start.
            self.dir.remove(&name_of(*number))?;
        }
        Ok(())
    }

    /// Those runs that somebody can read and for which this holds; of a partition in their order.
    fn live_runs(&self, holds: impl Fn(Opening, &Held) -> bool) -> Result<Vec<Found>, Error> {
        let held: Vec<(Arc<Chapter>, Opening, Held)> = {
            let books = self.read_books();
            let all = books.runs.iter();
            let all = all.flat_map(|(of, runs)| runs.list.iter().map(move |held| (*of, *held)));
            let wanted = all.filter(|(opening, held)| holds(*opening, held));
            let chapter = |held: &Held| Arc::clone(&books.files[&held.file].chapter);
            wanted.map(|(opening, held)| (chapter(&held), opening, held)).collect()
        };
        let runs = held.into_iter().map(|(chapter, opening, held)| {
            let run = held.run(&chapter, opening)?;
            Ok((chapter, run))
        });
        runs.collect()
    }

    /// A file that is damaged is left as it is: what is good in it can be read. Whether it is one of these.
    fn spoil(&self, group: &BTreeSet<u64>, why: &Error) -> bool {
        let (Error::Run { file, .. } | Error::File { file, .. }) = why else { return false };
        let mut books = self.write_books();
        let mut of_group = books.files.iter_mut().filter(|(number, _)| group.contains(number));
        let Some((_, book)) = of_group.find(|(_, book)| book.chapter.name() == file) else {
            return false;
        };
        book.is_spoiled = true;
        drop(books);
        tracing::error!(shard = self.shard, %why, "a chapter cannot be merged");
        true
    }

    /// A new file with this number, filled and opened. It has a name, and nobody knows it yet.
    fn make(
        &self,
        number: u64,
        fill: impl FnOnce(&Arc<dyn File>) -> Result<Footer, Error>,
    ) -> Result<Made, Error> {
        let name = name_of(number);
        let file = self.dir.create(&name, SyncMethod::ORDINARY.access())?;
        let filled = fill(&file).and_then(|footer| {
            let chapter = Chapter::open(&name, Arc::clone(&file))?;
            let runs = chapter.runs()?;
            let (bytes, checksum) = (footer.file_bytes, footer.checksum());
            let named = Named { number, bytes, checksum, gone: Gone::default() };
            Ok(Made { named, chapter: Arc::new(chapter), runs })
        });
        if filled.is_err() {
            // What cannot be removed now is removed at the next start.
            self.dir.remove(&name).ok();
        }
        filled
    }

    /// Makes this the manifest, and what it names what can be read. If that fails, the old one or the new one is on
    /// the disk: a file stays that either names.
    fn publish(
        &self,
        manifest: &mut Manifest,
        next: Manifest,
        made: Option<Made>,
    ) -> Result<(), Error> {
        if let Err(why) = next.write(&*self.dir, self.shard) {
            let on_disk = Manifest::read(&*self.dir, self.shard);
            let is_named = |made: &Made| {
                let files = on_disk.as_ref().map(|manifest| &manifest.files);
                files.map_or(true, |files| files.iter().any(|n| n.number == made.named.number))
            };
            // Nobody would take it away before the next start, and the next try makes another.
            if let Some(made) = made.filter(|made| !is_named(made)) {
                self.dir.remove(&made.named.name()).ok();
            }
            return Err(why);
        }
        let named: BTreeSet<u64> = next.files.iter().map(|named| named.number).collect();
        let mut books = self.write_books();
        books.settled = next.settled;
        if let Some(made) = made {
            books.add(made.named.number, made.chapter, (0..).zip(&made.runs));
        }
        books.files.retain(|number, _| named.contains(number));
        drop(books);
        let names: BTreeSet<String> = next.files.iter().map(Named::name).collect();
        self.lock_damaged().retain(|(file, _), _| names.contains(file));
        *manifest = next;
        Ok(())
    }

    fn turn(&self) -> MutexGuard<'_, Manifest> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_books(&self) -> RwLockReadGuard<'_, Books> {
        self.books.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_books(&self) -> RwLockWriteGuard<'_, Books> {
        self.books.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that was filled.
struct Made {
    named: Named,
    chapter: Arc<Chapter>,
    runs: Vec<Run>,
}
