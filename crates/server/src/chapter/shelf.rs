//! [`Shelf`]: the chapters of a shard: which runs each partition has; settled, and read.
//!
//! Of each partition a few words are in memory; the rest is read when somebody asks. One at a time changes the shelf;
//! who reads meanwhile reads what there was, whose files stay open for as long.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use plimsoll_sync::{Dir, File, SyncMethod};

use super::books::{Book, Books, Files, Leaving, Shelved, Size};
use super::error::Error;
use super::format::{Footer, Run};
use super::hot::Hot;
use super::lookup::Lookup;
use super::manifest::{self, Manifest, Named, Settled, name_of};
use super::ranges::Ranges;
use super::reader::Chapter;
use super::rollup::RollUp;
use super::writer::{Plan, Writer};
use crate::cursor::Malformed;
use crate::shard::{Batch, Ended, Opening};

/// The chapters of a shard.
#[derive(Debug)]
pub struct Shelf {
    pub(super) dir: Arc<dyn Dir>,
    pub(super) shard: u32,
    /// Held by who changes it.
    turn: Mutex<Manifest>,
    books: RwLock<Books>,
    /// What was found so, by whoever read it.
    damaged: Mutex<BTreeMap<(String, Opening), Error>>,
    pub(super) hot: Hot,
    /// Nothing is merged any more.
    pub(super) is_ending: AtomicBool,
}

/// A file that was filled.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) named: Named,
    pub(super) chapter: Arc<Chapter>,
    pub(super) runs: Vec<Run>,
}

/// What becomes another with a manifest.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// A file that comes.
    pub(super) made: Option<Made>,
    /// Runs that go.
    pub(super) leaving: BTreeMap<u64, Leaving>,
    /// What is left of some partitions; `None`: nothing.
    pub(super) partitions: Vec<(Opening, Option<Shelved>)>,
}

impl Shelf {
    /// The shelf of a shard, in a directory of its own. What the manifest does not name is removed.
    ///
    /// # Errors
    /// [`Error`]: a file that the manifest names is not there, or does not say what it holds.
    pub fn open(dir: Arc<dyn Dir>, shard: u32) -> Result<Self, Error> {
        let shelf = Self::open_settled(dir, shard, 0)?;
        shelf.remove_strays()?;
        Ok(shelf)
    }

    /// The same, of a shard of which this chapter was settled at least: a manifest that is missing, or older, names too few files, and
    /// the others are not nobody's. Nothing is removed before whoever opens it has seen that all else fits.
    ///
    /// # Errors
    /// As there, and [`Error::Unsettled`].
    pub fn open_settled(dir: Arc<dyn Dir>, shard: u32, chapter: u64) -> Result<Self, Error> {
        let manifest = Manifest::read(&*dir, shard)?;
        if manifest.settled.chapter < chapter {
            return Err(Error::Unsettled { named: manifest.settled.chapter, chapter });
        }
        let mut files = Files::new();
        for named in &manifest.files {
            let chapter = open_named(&*dir, named)?;
            if chapter.shard() != shard {
                return Err(Error::Missing { file: named.name() });
            }
            files.insert(named.number, Book::whole(Arc::new(chapter)));
        }
        let rolled_up = RollUp::read(&*dir, shard, manifest.checksum(shard));
        let has_all = |found: &RollUp| found.live_bytes.keys().eq(files.keys());
        // Where it cannot be read the tables still can.
        let rolled_up = rolled_up.ok().flatten().filter(has_all);
        let is_fresh = rolled_up.is_some();
        let found = rolled_up.map_or_else(|| from_tables(&manifest, &files), Ok)?;
        for named in &manifest.files {
            let book = files.get_mut(&named.number).expect("it was opened just now");
            book.gone = named.gone.clone();
            book.live_bytes = found.live_bytes[&named.number];
        }
        let shelf = Self::of(dir, shard, manifest, files, found.partitions);
        if !is_fresh && !shelf.is_empty() {
            shelf.roll_up();
        }
        Ok(shelf)
    }

    /// Removes what the manifest does not name. Nothing has been written on the shelf yet.
    pub(crate) fn remove_strays(&self) -> Result<(), Error> {
        let named: BTreeSet<String> = self.turn().files.iter().map(Named::name).collect();
        for name in self.dir.list()? {
            if name.ends_with(".chapter") && !named.contains(&name) {
                self.dir.remove(&name)?;
            }
        }
        Ok(())
    }

    /// A shelf without chapters, of a shard that begins anew in this directory: what is there stays as it is, and is nobody's
    /// before the shard is given. Nothing is settled on it.
    #[must_use]
    pub fn anew(dir: Arc<dyn Dir>, shard: u32) -> Self {
        Self::of(dir, shard, Manifest::default(), Files::new(), BTreeMap::new())
    }

    fn of(
        dir: Arc<dyn Dir>,
        shard: u32,
        manifest: Manifest,
        files: Files,
        partitions: BTreeMap<Opening, Shelved>,
    ) -> Self {
        let settled = manifest.settled;
        Self {
            dir,
            shard,
            turn: Mutex::new(manifest),
            books: RwLock::new(Books { settled, files: Arc::new(files), partitions }),
            damaged: Mutex::default(),
            hot: Hot::default(),
            is_ending: AtomicBool::new(false),
        }
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
        let files = self.files_now();
        let runs: u64 = files.values().map(Book::live_runs).sum();
        Size {
            files: files.len(),
            runs: usize::try_from(runs).unwrap_or(usize::MAX),
            live_bytes: files.values().map(|book| book.live_bytes).sum(),
            file_bytes: files.values().map(|book| book.chapter.footer().file_bytes).sum(),
        }
    }

    /// Bytes of a partition's batches in it.
    #[must_use]
    pub fn bytes(&self, opening: Opening) -> u64 {
        self.read_books().partitions.get(&opening).map_or(0, |of| of.bytes)
    }

    /// The files, in the order of their numbers, to be scrubbed one by one.
    #[must_use]
    pub fn files(&self) -> Vec<u64> {
        self.files_now().keys().copied().collect()
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
        let in_ranges = number_of(chapter, manifest::NAME)?;
        let mut change = Change::default();
        if !plan.runs.is_empty() {
            let made = self.make(manifest.take_number(), |file| {
                Writer::begin(Arc::clone(file), self.shard, plan).and_then(write)
            })?;
            let books = self.read_books();
            let partitions = made.runs.iter().map(|run| {
                let mut of = books.partitions.get(&run.opening).cloned().unwrap_or_default();
                of.take(in_ranges, run);
                (run.opening, Some(of))
            });
            change.partitions = partitions.collect();
            drop(books);
            change.made = Some(made);
        }
        let next = Manifest { settled: Settled { chapter, end }, ..manifest.clone() };
        self.publish(&mut manifest, next, change)?;
        drop(manifest);
        self.roll_up();
        Ok(())
    }

    /// Whether a run of a partition has something at this offset or behind it.
    #[must_use]
    pub fn has(&self, opening: Opening, from: i64) -> bool {
        self.read_books().partitions.get(&opening).is_some_and(|of| from < of.end)
    }

    /// Batches of a partition, from the one on that holds this offset, or else the next, below the offset `end`:
    /// of about so many bytes, at least one if there is any. Waits for the disk.
    ///
    /// # Errors
    /// [`Error::Run`], [`Error::File`]: what comes next is damaged.
    pub fn read(
        &self,
        opening: Opening,
        from: i64,
        end: i64,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, Error> {
        let found = self.read_from(opening, from, end, bytes_max)?;
        let last = found.last().and_then(|last| Batch::read(last).ok()?.end());
        if let Some(last) = last {
            self.hot.note(opening, last);
        }
        Ok(found)
    }

    /// The same, and nobody is known to read there.
    pub(super) fn read_from(
        &self,
        opening: Opening,
        from: i64,
        end: i64,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, Error> {
        let (mut found, mut found_bytes, mut next) = (Vec::new(), 0, from);
        let Some((mut lookup, chapters)) = self.looked_up(opening) else { return Ok(found) };
        let first = self.note(opening, first_behind(&mut lookup, opening, &chapters, from))?;
        let mut behind = (first..).map_while(|place| chapters.nth(place));
        while next < end && (found.is_empty() || found_bytes < bytes_max) {
            let Some(chapter) = behind.next() else { break };
            let room = bytes_max.saturating_sub(found_bytes);
            let read = lookup.find(opening, chapter).and_then(|placed| {
                let read = placed.chapter.read_on(&placed.run, from, end, room);
                let read = read.map_err(|why| placed.chapter.unreadable(&placed.run, why));
                let is_there = read.is_ok() || self.read_books().has(placed.file, placed.number);
                is_there.then_some(read).transpose().map(|read| (placed.run.end_offset, read))
            });
            let (end_offset, read) = match self.note(opening, read) {
                // What was found before it is good.
                Err(_) if !found.is_empty() => break,
                read => read?,
            };
            let Some((batches, is_all)) = read else {
                // What is gone by now was given back while it was read.
                return self.read_from(opening, from, end, bytes_max);
            };
            let bytes = batches.iter().map(Bytes::len).sum::<usize>();
            if !found.is_empty() && bytes > room {
                break;
            }
            found_bytes += bytes;
            found.extend(batches);
            next = if is_all { end_offset } else { end };
        }
        Ok(found)
    }

    /// The offset of the first batch from which on a record with this timestamp or a later one may be, at or
    /// above an offset. Waits for the disk.
    pub fn offset_at(
        &self,
        opening: Opening,
        start: i64,
        timestamp: i64,
    ) -> Result<Option<i64>, Error> {
        let Some((mut lookup, chapters)) = self.looked_up(opening) else { return Ok(None) };
        let first = self.note(opening, first_behind(&mut lookup, opening, &chapters, start))?;
        for chapter in (first..).map_while(|place| chapters.nth(place)) {
            let placed = self.note(opening, lookup.find(opening, chapter))?;
            if placed.run.max_timestamp < timestamp {
                continue;
            }
            let found = placed.chapter.offset_at(&placed.run, timestamp);
            if found.is_err() && !self.read_books().has(placed.file, placed.number) {
                return self.offset_at(opening, start, timestamp);
            }
            return Ok(Some(self.note(opening, found)?.max(start)));
        }
        Ok(None)
    }

    /// The runs of a partition, of this moment.
    fn looked_up(&self, opening: Opening) -> Option<(Lookup, Ranges)> {
        let books = self.read_books();
        let chapters = books.partitions.get(&opening)?.chapters.clone();
        Some((Lookup::of(Arc::clone(&books.files)), chapters))
    }

    /// Runs that were found damaged since the shelf was opened, whose files are still here.
    #[must_use]
    pub fn damaged(&self) -> Vec<Error> {
        self.lock_damaged().values().cloned().collect()
    }

    /// Notes what is damaged of a partition, and says it once.
    pub(super) fn note<T>(&self, opening: Opening, found: Result<T, Error>) -> Result<T, Error> {
        match &found {
            Err(why @ (Error::Run { file, .. } | Error::File { file, .. })) => {
                let before = self.lock_damaged().insert((file.clone(), opening), why.clone());
                if before.is_none() {
                    tracing::error!(shard = self.shard, %opening, %why, "a run of a chapter is damaged");
                }
            }
            Err(why @ Error::Disk(_)) => {
                tracing::error!(shard = self.shard, %opening, %why, "a run of a chapter cannot be read");
            }
            _ => {}
        }
        found
    }

    pub(super) fn lock_damaged(&self) -> MutexGuard<'_, BTreeMap<(String, Opening), Error>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new file with this number, filled and opened. It has a name, and nobody knows it yet.
    pub(super) fn make(
        &self,
        number: u64,
        fill: impl FnOnce(&Arc<dyn File>) -> Result<Footer, Error>,
    ) -> Result<Made, Error> {
        let name = name_of(number);
        let file = self.dir.create(&name, SyncMethod::ORDINARY.access())?;
        let filled = fill(&file).and_then(|footer| self.opened(number, &file, &footer));
        if filled.is_err() {
            // What cannot be removed now is removed at the next start.
            self.dir.remove(&name).ok();
        }
        filled
    }

    /// A file with this number that was filled.
    pub(super) fn opened(
        &self,
        number: u64,
        file: &Arc<dyn File>,
        footer: &Footer,
    ) -> Result<Made, Error> {
        let chapter = Chapter::open(&name_of(number), Arc::clone(file))?;
        let runs = chapter.runs()?;
        let (bytes, checksum) = (footer.file_bytes, footer.checksum());
        let named = Named { number, bytes, checksum, gone: Ranges::default() };
        Ok(Made { named, chapter: Arc::new(chapter), runs })
    }

    /// Makes this the manifest, with the change that it comes with, and what it names what can be read. If that fails,
    /// the old one or the new one is on the disk: a file stays that either names.
    pub(super) fn publish(
        &self,
        manifest: &mut Manifest,
        mut next: Manifest,
        change: Change,
    ) -> Result<(), Error> {
        let Change { made, leaving, partitions } = change;
        next.files.extend(made.as_ref().map(|made| made.named.clone()));
        leaving.iter().for_each(|(file, of)| next.forget(*file, &of.numbers));
        next.next_file = manifest.next_file;
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
        books.let_go(&leaving);
        let files = Arc::make_mut(&mut books.files);
        files.retain(|number, _| named.contains(number));
        files.extend(made.map(|made| (made.named.number, Book::whole(made.chapter))));
        for (opening, of) in partitions {
            match of {
                Some(of) => books.partitions.insert(opening, of),
                None => books.partitions.remove(&opening),
            };
        }
        drop(books);
        let names: BTreeSet<String> = next.files.iter().map(Named::name).collect();
        self.lock_damaged().retain(|(file, _), _| names.contains(file));
        *manifest = next;
        Ok(())
    }

    /// Writes down what a start has to know, so that it reads no tables. Without it a start takes longer.
    pub fn roll_up(&self) {
        let manifest = self.turn();
        let bytes = {
            let books = self.read_books();
            let live_bytes = books.files.iter().map(|(number, book)| (*number, book.live_bytes));
            let of = manifest.checksum(self.shard);
            RollUp::encode(live_bytes, &books.partitions, self.shard, of)
        };
        if let Err(why) = RollUp::write(&bytes, &*self.dir) {
            tracing::warn!(shard = self.shard, %why, "the roll-up of chapters cannot be written");
        }
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, Manifest> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn files_now(&self) -> Arc<Files> {
        Arc::clone(&self.read_books().files)
    }

    pub(super) fn read_books(&self) -> RwLockReadGuard<'_, Books> {
        self.books.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write_books(&self) -> RwLockWriteGuard<'_, Books> {
        self.books.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that a manifest names.
fn open_named(dir: &dyn Dir, named: &Named) -> Result<Chapter, Error> {
    let missing = || Error::Missing { file: named.name() };
    let file = dir.open(&named.name(), SyncMethod::ORDINARY.access());
    let file = file.map_err(|why| match why.kind() {
        Some(ErrorKind::NotFound) => missing(),
        _ => why.into(),
    })?;
    let chapter = Chapter::open(&named.name(), file)?;
    let found = (chapter.footer().checksum(), chapter.footer().file_bytes);
    if found == (named.checksum, named.bytes) { Ok(chapter) } else { Err(missing()) }
}

/// What a roll-up would say, from the tables of all files.
fn from_tables(manifest: &Manifest, files: &Files) -> Result<RollUp, Error> {
    let mut found = RollUp::default();
    for named in &manifest.files {
        let live = files[&named.number].chapter.living(&named.gone)?;
        let mut live_bytes = 0;
        for (_, run) in &live {
            let chapter = number_of(run.chapter, &named.name())?;
            found.partitions.entry(run.opening).or_default().take(chapter, run);
            live_bytes += run.bytes;
        }
        found.live_bytes.insert(named.number, live_bytes);
    }
    Ok(found)
}

/// How many of these chapters of a partition have nothing at this offset or behind it.
fn first_behind(
    lookup: &mut Lookup,
    opening: Opening,
    chapters: &Ranges,
    from: i64,
) -> Result<u64, Error> {
    let (mut first, mut last) = (0, chapters.count());
    while first < last {
        let middle = first + (last - first) / 2;
        let chapter = chapters.nth(middle).expect("there are so many");
        let Ok(placed) = lookup.find(opening, chapter) else {
            return first_good(lookup, opening, chapters, from);
        };
        match placed.run.end_offset <= from {
            true => first = middle + 1,
            false => last = middle,
        }
    }
    Ok(first)
}

/// The same, where some cannot be found: an error only where the offset may be in one of those.
fn first_good(
    lookup: &mut Lookup,
    opening: Opening,
    chapters: &Ranges,
    from: i64,
) -> Result<u64, Error> {
    let mut unread = None;
    for (place, chapter) in (0..).zip(chapters.iter()) {
        match lookup.find(opening, chapter) {
            Ok(placed) if placed.run.end_offset <= from => unread = None,
            Ok(placed) if placed.run.base_offset <= from => return Ok(place),
            Ok(_) => return unread.map_or(Ok(place), Err),
            Err(why) => unread = unread.or(Some(why)),
        }
    }
    unread.map_or(Ok(chapters.count()), Err)
}

/// The number of a chapter, as it stands in ranges.
pub(super) fn number_of(chapter: u64, file: &str) -> Result<u32, Error> {
    let why = Malformed::Field("the number of a chapter", chapter);
    u32::try_from(chapter).ok().ok_or_else(|| Error::File { file: file.to_owned(), why })
}
