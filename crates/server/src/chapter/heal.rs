//! What is damaged on a shelf, found again past the page cache, and put right by what another replica has.
//!
//! *What heals a run is that very run.* Its row in the table says which hash it has; each block that a peer gives is verified
//! as any that is read, and all of them have to have that hash. So a peer need not be believed, and a replica that
//! compacted the partition at another time is no help. Taking what it has in place of ours would not do: what ours let go of
//! with a tombstone, which is gone by now, may still be in there.
//!
//! *A row that is damaged itself* is known by its name alone. It is taken from a peer where nothing of the partition was
//! compacted here, nor that run there: then it is a function of the log. How long it is only the peer says: what the
//! partition, and the file, have in all bounds that.
//!
//! *What was damaged stays where it is until the other is named.* The run is written into a file of its own, synced, and one
//! manifest names that file and calls the old place gone: as a compacted run takes the place of another. A power cut leaves
//! one or the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_sync::{Allocation, Dir, File, SyncMethod};

use super::books::Book;
use super::error::Error;
use super::format::{self, Block, Footer, HEADER_BYTES, Key, Run, Span};
use super::manifest::name_of;
use super::piece::Piece;
use super::reader::Chapter;
use super::shelf::{Change, Shelf};
use super::writer::finish;
use crate::shard::Opening;

/// A run that cannot be read, or whose row in its table cannot.
#[derive(Debug, Clone)]
pub struct Broken {
    opening: Opening,
    chapter: u32,
    /// The file that has it, or should, and its number there, if that is known.
    place: Option<(u64, Option<u32>)>,
    /// As its row says, if that can be read.
    run: Option<Run>,
    /// What its file says of the log that it is of.
    span: Span,
    /// Nothing of the partition was compacted here.
    is_plain: bool,
    /// It has at most so many: so many has its partition, or its file.
    bytes_max: u64,
}

/// A run that is written again, as far as it has come. Dropping it takes the file away.
#[derive(Debug)]
pub struct Healing {
    broken: Broken,
    shard: u32,
    dir: Arc<dyn Dir>,
    number: u64,
    file: Arc<dyn File>,
    run: Option<Run>,
    blocks: Vec<Block>,
    bytes: u64,
    /// Somebody else sees to the file.
    is_given: bool,
}

impl Shelf {
    /// Partitions of which something was found damaged, and is not mended.
    #[must_use]
    pub fn wounded(&self) -> BTreeSet<Opening> {
        self.lock_damaged().keys().map(|(_, opening)| *opening).collect()
    }

    /// The runs of a partition that cannot be read past the page cache, in files in which something of it was found
    /// damaged; and those that no file has. Where there are none, it is wounded no more. Waits for the disk.
    #[must_use]
    pub fn broken(&self, opening: Opening) -> Vec<Broken> {
        let names: BTreeSet<String> = {
            let damaged = self.lock_damaged();
            damaged.keys().filter(|(_, of)| *of == opening).map(|(name, _)| name.clone()).collect()
        };
        let (files, of) = {
            let books = self.read_books();
            let of = books.partitions.get(&opening).cloned().unwrap_or_default();
            (Arc::clone(&books.files), of)
        };
        let past_cache: Vec<(u64, Chapter)> = files
            .iter()
            .filter(|(_, book)| names.contains(book.chapter.name()))
            .filter_map(|(number, book)| Some((*number, self.past_cache(&book.chapter).ok()?)))
            .collect();
        let chapters = of.chapters.iter().filter_map(|chapter| {
            let key = (opening, u64::from(chapter));
            let has = |book: &Book| {
                let footer = book.chapter.footer();
                (footer.first_chapter..=footer.last_chapter).contains(&key.1)
            };
            let mut place = None;
            for (file, book) in files.iter().filter(|(_, book)| has(book)) {
                let cold = past_cache.iter().find(|(number, _)| number == file);
                let read = cold.map_or(&*book.chapter, |(_, cold)| cold);
                match find(read, book, key) {
                    Found::Run(number, run) => {
                        let is_good = cold.is_none() || read.verify(&run).is_ok();
                        let place = Some((*file, Some(number)));
                        return (!is_good).then_some((chapter, place, Some(run)));
                    }
                    Found::Hole(number) => place = Some((*file, number)),
                    Found::Nothing => {}
                }
            }
            Some((chapter, place, None))
        });
        let settled = self.settled();
        let broken = chapters.map(|(chapter, place, run)| {
            let footer = place.and_then(|(file, _)| Some(*files.get(&file)?.chapter.footer()));
            let number = u64::from(chapter);
            let span = Span {
                first_chapter: number,
                last_chapter: number,
                first_index: footer.map_or(0, |footer| footer.first_index),
                last_index: footer.map_or(settled.end, |footer| footer.last_index),
                time: footer.map_or(0, |footer| footer.time),
            };
            let of_file = footer.map_or(u64::MAX, |footer| footer.batches_bytes());
            let (is_plain, bytes_max) = (of.clean_bytes == 0, of.bytes.min(of_file));
            Broken { opening, chapter, place, run, span, is_plain, bytes_max }
        });
        let broken: Vec<Broken> = broken.collect();
        if broken.is_empty() {
            self.is_mended(opening);
        }
        broken
    }

    /// From here on nothing of a partition is known to be damaged.
    pub fn is_mended(&self, opening: Opening) {
        self.lock_damaged().retain(|(_, of), _| *of != opening);
    }

    /// Begins to write a run again.
    ///
    /// # Errors
    /// The disk.
    pub fn begin_healing(&self, broken: Broken) -> Result<Healing, Error> {
        let number = self.turn().take_number();
        let file = self.dir.create(&name_of(number), SyncMethod::ORDINARY.access())?;
        let dir = Arc::clone(&self.dir);
        let (shard, run, blocks) = (self.shard, None, Vec::new());
        Ok(Healing { broken, shard, dir, number, file, run, blocks, bytes: 0, is_given: false })
    }

    /// Puts a run that was written again in the place of the one that is damaged. Durable on return. Whether that was
    /// still there.
    ///
    /// # Errors
    /// The disk. The damaged one stays.
    ///
    /// # Panics
    /// If not all of it was written.
    pub fn heal(&self, mut healing: Healing) -> Result<bool, Error> {
        let footer = healing.finish()?;
        let made = self.opened(healing.number, &healing.file, &footer)?;
        let Broken { opening, chapter, place, .. } = healing.broken;
        let bytes = made.runs[0].bytes;
        let mut manifest = self.turn();
        let is_there = {
            let books = self.read_books();
            let has = books.partitions.get(&opening).is_some_and(|of| of.chapters.has(chapter));
            let in_place = |(file, number): (u64, Option<u32>)| {
                books.files.contains_key(&file)
                    && number.is_none_or(|number| books.has(file, number))
            };
            has && place.is_none_or(in_place)
        };
        if !is_there {
            return Ok(false);
        }
        let mut change = Change { made: Some(made), ..Change::default() };
        if let Some((file, Some(number))) = place {
            change.leaving.entry(file).or_default().take(number, bytes);
        }
        let gone = change.leaving.iter().map(|(file, of)| (*file, of.numbers.clone())).collect();
        let next = manifest.clone();
        healing.is_given = true;
        self.publish(&mut manifest, next, change)?;
        drop(manifest);
        self.roll_up();
        self.give_back(&gone);
        if let Some((file, _)) = place {
            let mut books = self.write_books();
            let book = Arc::make_mut(&mut books.files).get_mut(&file);
            // It may be merged again; if more of it is damaged, that says so.
            book.into_iter().for_each(|book| book.is_spoiled = false);
        }
        Ok(true)
    }

    /// Notes that rows on a page of a file's table are damaged, at those whose they must be.
    pub(super) fn note_rows(&self, file: u64, read: &Chapter, page: u32, why: &Error) {
        let footer = read.footer();
        let lacking: Vec<Opening> = {
            let books = self.read_books();
            let Some(book) = books.files.get(&file) else { return };
            let lacks = |opening: Opening, chapter: u32| {
                let key = (opening, u64::from(chapter));
                (footer.first_chapter..=footer.last_chapter).contains(&key.1)
                    && read.fences().page(key) == Some(page)
                    && matches!(find(read, book, key), Found::Hole(_))
            };
            let each = books.partitions.iter();
            let lacking =
                each.filter(|(opening, of)| of.chapters.iter().any(|c| lacks(**opening, c)));
            lacking.map(|(opening, _)| *opening).collect()
        };
        for opening in lacking {
            self.note::<()>(opening, Err(why.clone())).ok();
        }
    }

    /// The same file, read past the page cache where there is a way.
    pub(super) fn past_cache(&self, chapter: &Chapter) -> Result<Chapter, Error> {
        let name = chapter.name();
        let direct = self.dir.open(name, SyncMethod::Direct.access());
        let buffered = |_refused| self.dir.open(name, SyncMethod::ORDINARY.access());
        Chapter::open(name, direct.or_else(buffered)?)
    }
}

/// What a file says of a run.
enum Found {
    Run(u32, Run),
    /// It may be one whose row is damaged: that of this number, if it can be no other.
    Hole(Option<u32>),
    Nothing,
}

fn find(read: &Chapter, book: &Book, key: Key) -> Found {
    let Some(page) = read.fences().page(key) else { return Found::Nothing };
    let Ok(page) = read.page(page) else { return Found::Hole(None) };
    match page.find(key) {
        Some((number, _)) if book.gone.has(number) => Found::Nothing,
        Some((number, run)) => Found::Run(number, run),
        None => match page.hole(key) {
            Some(Some(number)) if book.gone.has(number) => Found::Nothing,
            Some(number) => Found::Hole(number),
            None => Found::Nothing,
        },
    }
}

impl Broken {
    /// Whose it is.
    #[must_use]
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Of which chapter.
    #[must_use]
    pub fn chapter(&self) -> u32 {
        self.chapter
    }

    /// Whether a peer's run is this one: it is only if its blocks have the hash, too.
    fn is(&self, theirs: &Run) -> bool {
        let is_same = match &self.run {
            Some(ours) => {
                let what = |run: &Run| (run.hash, run.bytes, run.blocks);
                let offsets = |run: &Run| (run.base_offset, run.end_offset);
                what(ours) == what(theirs) && offsets(ours) == offsets(theirs)
            }
            // Room for all of it is reserved before it has come.
            None => self.is_plain && theirs.compacted == 0 && theirs.bytes <= self.bytes_max,
        };
        is_same && theirs.key() == (self.opening, u64::from(self.chapter))
    }
}

impl Healing {
    /// What is to be given next.
    #[must_use]
    pub fn next_block(&self) -> u32 {
        u32::try_from(self.blocks.len()).expect("a run counts its blocks in 32 bits")
    }

    /// Takes the next piece, verified. Whether that was the last. Waits for the disk.
    ///
    /// # Errors
    /// [`Error::Strange`]: it is not of what is damaged here. The disk.
    pub fn take(&mut self, piece: &Piece) -> Result<bool, Error> {
        let (opening, chapter) = (self.broken.opening, self.broken.chapter);
        let strange = || Error::Strange { opening, chapter: u64::from(chapter) };
        let first = self.run.is_none();
        let run = *self.run.get_or_insert_with(|| {
            let ours = self.broken.run.unwrap_or(piece.run);
            Run { place: HEADER_BYTES as u64, first_block: 0, ..ours }
        });
        let follows = piece.first == self.next_block() && !piece.blocks.is_empty();
        let end = self.bytes + piece.batches.len() as u64;
        let fits =
            self.blocks.len() + piece.blocks.len() <= run.blocks as usize && end <= run.bytes;
        if !self.broken.is(&piece.run) || piece.run.hash != run.hash || !follows || !fits {
            return Err(strange());
        }
        let mut at = 0;
        for block in &piece.blocks {
            let is_next = block.place == self.bytes + at as u64;
            let bytes = piece.batches.get(at..at + block.bytes as usize);
            let is_good = |bytes: &[u8]| block.verify(opening, run.chapter, bytes).is_some();
            if !is_next || !bytes.is_some_and(is_good) {
                return Err(strange());
            }
            at += block.bytes as usize;
        }
        if first {
            self.file.allocate(0, run.place + run.bytes, Allocation::Reserved)?;
            self.file.write_at(&format::header(self.shard), 0)?;
        }
        self.file.write_at(&piece.batches, run.place + self.bytes)?;
        self.blocks.extend(&piece.blocks);
        self.bytes = end;
        if self.blocks.len() < run.blocks as usize {
            return Ok(false);
        }
        let is_whole = self.bytes == run.bytes && Run::hash_of(&self.blocks) == run.hash;
        if is_whole { Ok(true) } else { Err(strange()) }
    }

    fn finish(&self) -> Result<Footer, Error> {
        let run = self.run.expect("some of it was taken");
        assert_eq!(Run::hash_of(&self.blocks), run.hash, "all of it was taken");
        finish(&*self.file, run.place + run.bytes, self.broken.span, &self.blocks, &[run])
    }
}

impl Drop for Healing {
    fn drop(&mut self) {
        if !self.is_given {
            // What cannot be removed now is removed at the next start.
            self.dir.remove(&name_of(self.number)).ok();
        }
    }
}
