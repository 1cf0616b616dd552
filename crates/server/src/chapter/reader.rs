//! [`Chapter`]: a file of runs, opened to be read. What it gives was verified.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_sync::File;
use twox_hash::XxHash3_64;

use super::error::Error;
use super::format::{
    self, BLOCK_HEAD_BYTES, Block, FENCE_BYTES, FENCED_RUNS, FOOTER_BYTES, Footer, HEADER_BYTES,
    RUN_BYTES, Run,
};
use super::ranges::Ranges;
use super::table::{Fences, Page};
use crate::cursor::Malformed;
use crate::shard::{Batch, let_go};
use crate::whole::read_at;

/// Blocks of a run that are looked at with one read.
const LOOK_BLOCKS: u32 = 64;
/// No filesystem that we know of has larger blocks, unless it was told to.
const HOLE_BYTES: u64 = 4096;
/// Bytes of batches that are read at once when all of a run is verified.
const VERIFY_BYTES: usize = 1 << 20;

/// A file of runs.
#[derive(Debug)]
pub struct Chapter {
    name: String,
    file: Arc<dyn File>,
    shard: u32,
    footer: Footer,
    fences: Fences,
}

impl Chapter {
    /// Opens the file of this name. Runs and batches are verified when they are read.
    ///
    /// # Errors
    /// [`Error::File`]: it is no chapter.
    pub fn open(name: &str, file: Arc<dyn File>) -> Result<Self, Error> {
        let damaged = |why| Error::File { file: name.to_owned(), why };
        let file_bytes = file.len()?;
        let footer_at = file_bytes.checked_sub(FOOTER_BYTES as u64);
        let footer_at = footer_at.ok_or_else(|| damaged(Malformed::Short("a chapter")))?;
        let short = || damaged(Malformed::Short("a chapter"));
        let (header, footer) =
            (read_at(&*file, 0, HEADER_BYTES)?, read_at(&*file, footer_at, FOOTER_BYTES)?);
        let header = header.first_chunk().ok_or_else(short)?;
        let footer = footer.first_chunk().ok_or_else(short)?;
        let shard = format::shard_of(header).map_err(damaged)?;
        let footer = Footer::decode(footer, file_bytes).map_err(damaged)?;
        let mut chapter =
            Self { name: name.to_owned(), file, shard, footer, fences: Fences::default() };
        chapter.fences = chapter.read_fences()?;
        Ok(chapter)
    }

    /// They say nothing that the table does not.
    fn read_fences(&self) -> Result<Fences, Error> {
        // The footer was held against the size of the file.
        let bytes = usize::try_from(self.footer.fences()).unwrap_or(usize::MAX) * FENCE_BYTES;
        let bytes = self.read_at(self.footer.fences_at(), bytes)?;
        let is_good = XxHash3_64::oneshot(&bytes) == self.footer.fences_hash;
        match Fences::decode(&bytes).filter(|_| is_good) {
            Some(fences) => Ok(fences),
            None => self.runs().map(|runs| Fences::of(&runs)),
        }
    }

    /// The name of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shard that it is of.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// Where to look for a run.
    pub(super) fn fences(&self) -> &Fences {
        &self.fences
    }

    /// What it holds.
    #[must_use]
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Its runs, in their order.
    pub fn runs(&self) -> Result<Vec<Run>, Error> {
        let count = usize::try_from(self.footer.runs).unwrap_or(usize::MAX);
        // The footer was held against the size of the file.
        let bytes = self.read_at(self.footer.runs_at, count * RUN_BYTES)?;
        let runs = bytes.chunks_exact(RUN_BYTES).map(|row| self.row(row));
        let runs: Vec<Run> = runs.collect::<Result<_, _>>().map_err(|why| self.damaged(why))?;
        let (expected, found) = (self.footer.hash, Footer::hash_of(&runs));
        let is_sorted = runs.is_sorted_by(|a, b| a.key() < b.key());
        if !is_sorted || expected != found {
            return Err(self.damaged(Malformed::Checksum { expected, found }));
        }
        Ok(runs)
    }

    /// Those of its runs that are not gone, with their numbers: a row that is damaged, and gone, is none.
    pub(super) fn living(&self, gone: &Ranges) -> Result<Vec<(u32, Run)>, Error> {
        let mut living = Vec::new();
        for page in 0..self.pages() {
            for (number, row) in self.page(page)?.rows().filter(|(number, _)| !gone.has(*number)) {
                living.push((number, row.map_err(|why| self.damaged(why))?));
            }
        }
        Ok(living)
    }

    /// One of its runs.
    pub fn run(&self, number: u32) -> Result<Run, Error> {
        let at = self.footer.runs_at + u64::from(number) * RUN_BYTES as u64;
        self.row(&self.read_at(at, RUN_BYTES)?).map_err(|why| self.damaged(why))
    }

    /// A page of the table. What is damaged on it stands there.
    pub(super) fn page(&self, page: u32) -> Result<Page, Error> {
        let first = page.saturating_mul(FENCED_RUNS);
        let count = FENCED_RUNS.min(self.footer.runs.saturating_sub(first));
        let at = self.footer.runs_at + u64::from(first) * RUN_BYTES as u64;
        let bytes = self.read_at(at, count as usize * RUN_BYTES)?;
        let rows = bytes.chunks_exact(RUN_BYTES).map(|row| self.row(row));
        Ok(Page::of(first, rows.collect()))
    }

    /// How many pages the table has.
    pub(super) fn pages(&self) -> u32 {
        self.footer.runs.div_ceil(FENCED_RUNS)
    }

    /// A run that lies where there can be one.
    fn row(&self, row: &[u8]) -> Result<Run, Malformed> {
        let run = Run::decode(row.first_chunk().ok_or(Malformed::Short("a run"))?)?;
        self.check(&run).map(|()| run)
    }

    /// The blocks of a run from this number on, up to some. Not verified.
    pub fn blocks(&self, run: &Run, from: u32, count: u32) -> Result<Vec<Block>, Error> {
        let count = count.min(run.blocks.saturating_sub(from));
        let number = run.first_block + u64::from(from);
        let at = self.footer.blocks_at + number * BLOCK_HEAD_BYTES as u64;
        let bytes = self.read_at(at, count as usize * BLOCK_HEAD_BYTES)?;
        let blocks = bytes.chunks_exact(BLOCK_HEAD_BYTES).map(Block::decode);
        blocks.collect::<Result<_, _>>().map_err(|why| self.damaged(why))
    }

    /// The number of the last block for which this holds, as it holds for none behind another for which it does
    /// not; the first if it holds for none; with some blocks from that one on. Believed only as far as what is read from
    /// there is verified.
    fn search(
        &self,
        run: &Run,
        holds: impl Fn(&Block) -> bool,
    ) -> Result<(u32, Vec<Block>), Error> {
        let (mut from, mut to) = (0, run.blocks);
        while to - from > LOOK_BLOCKS {
            let middle = from + (to - from) / 2;
            match self.blocks(run, middle, 1)?.first().is_some_and(&holds) {
                true => from = middle,
                false => to = middle,
            }
        }
        let mut blocks = self.blocks(run, from, to - from)?;
        let last = blocks.iter().take_while(|block| holds(block)).count().saturating_sub(1);
        let found = from + u32::try_from(last).unwrap_or(0);
        Ok((found, blocks.split_off(last.min(blocks.len()))))
    }

    /// Batches of a run from the one on that holds this offset, or else the next: of about so many bytes, at least
    /// one; and below the offset `end`. All of them were verified.
    ///
    /// # Errors
    /// [`Error::Run`]: there is no batch that could be.
    pub fn read(
        &self,
        run: &Run,
        from: i64,
        end: i64,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, Error> {
        self.read_on(run, from, end, bytes_max).map(|(batches, _)| batches)
    }

    /// The same, and whether the run has none behind them.
    pub(super) fn read_on(
        &self,
        run: &Run,
        from: i64,
        end: i64,
        bytes_max: usize,
    ) -> Result<(Vec<Bytes>, bool), Error> {
        let (mut number, first) = self.search(run, |block| block.base_offset <= from)?;
        let mut first = Some(first);
        let (mut found, mut found_bytes, mut read_bytes) = (Vec::new(), 0, 0);
        while number < run.blocks && (found.is_empty() || found_bytes < bytes_max) {
            let blocks = first.take().filter(|blocks| !blocks.is_empty());
            let blocks = blocks.map_or_else(|| self.blocks(run, number, LOOK_BLOCKS), Ok)?;
            let mut wanted = blocks_within(&blocks, bytes_max.saturating_sub(found_bytes));
            let batches = match self.verified(run, &blocks, wanted) {
                // What was found before it is good.
                Err(_) if !found.is_empty() => break,
                // So may be the first of these.
                Err(Error::Run { .. }) if wanted > 1 => {
                    wanted = 1;
                    self.verified(run, &blocks, wanted)?
                }
                batches => batches?,
            };
            read_bytes += batches.iter().map(Bytes::len).sum::<usize>();
            for batch in batches {
                let read = Batch::read(&batch).expect("it was verified");
                let batch_end = read.end().unwrap_or(i64::MAX);
                let has_room = found.is_empty() || found_bytes + batch.len() <= bytes_max;
                if batch_end > end || (batch_end > from && !has_room) {
                    return Ok((let_go_of(found, found_bytes, read_bytes), false));
                }
                if batch_end > from {
                    found_bytes += batch.len();
                    found.push(batch);
                }
            }
            number += u32::try_from(wanted).unwrap_or(u32::MAX);
        }
        Ok((let_go_of(found, found_bytes, read_bytes), number == run.blocks))
    }

    /// The first batch from which on a record with this timestamp or a later one may be: its base offset.
    pub fn offset_at(&self, run: &Run, timestamp: i64) -> Result<i64, Error> {
        // The maximum runs on: what is below it in one block is below it in all before.
        let (below, _) = self.search(run, |block| block.max_timestamp < timestamp)?;
        let blocks = self.blocks(run, below, 2)?;
        self.verified(run, &blocks, blocks.len())?;
        let first = blocks.iter().find(|block| block.max_timestamp >= timestamp);
        let offset = first.map_or(run.base_offset, |block| block.base_offset);
        Ok(offset.clamp(run.base_offset, run.end_offset))
    }

    /// Reads all of a run; returns how many bytes it has.
    ///
    /// # Errors
    /// [`Error::Run`] with the offsets of the first block that is not what was written.
    pub fn verify(&self, run: &Run) -> Result<u64, Error> {
        self.verify_while(run, &mut |_bytes| true)
    }

    /// The same; `goes_on` is told of each piece that was read, and says whether to read the next.
    ///
    /// # Errors
    /// As [`Chapter::verify`]. [`Error::Stopped`]: `goes_on` said no.
    pub(super) fn verify_while(
        &self,
        run: &Run,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, Error> {
        self.read_while(run, &mut |_place, bytes| goes_on(bytes.len() as u64))?;
        Ok(run.bytes)
    }

    /// The same; `see` is shown each piece, verified, and where in the run it begins. Returns all blocks of the run.
    ///
    /// # Errors
    /// As [`Chapter::verify_while`]. What was seen before is not the run then: it may lack some.
    pub(super) fn read_while(
        &self,
        run: &Run,
        see: &mut dyn FnMut(u64, &Bytes) -> bool,
    ) -> Result<Vec<Block>, Error> {
        let (mut all, mut next) = (Vec::new(), 0);
        let damaged = || self.damaged_run(run, run.base_offset, run.end_offset - 1);
        while all.len() < run.blocks as usize {
            let from = u32::try_from(all.len()).unwrap_or(u32::MAX);
            let blocks = self.blocks(run, from, LOOK_BLOCKS)?;
            let mut rest = &blocks[..];
            while let Some(first) = rest.first() {
                if first.place != next {
                    return Err(damaged());
                }
                let some = blocks_within(rest, VERIFY_BYTES);
                let (bytes, _batches) = self.read_verified(run, rest, some)?;
                next += bytes.len() as u64;
                if !see(first.place, &bytes) {
                    return Err(Error::Stopped);
                }
                rest = &rest[some..];
            }
            all.extend(blocks);
        }
        if next != run.bytes || Run::hash_of(&all) != run.hash {
            return Err(damaged());
        }
        Ok(all)
    }

    /// Gives the blocks of these runs back to the filesystem, where it can. Those that follow each other in the table do so in
    /// the file, and go together. Only whole blocks are touched.
    pub(super) fn punch(&self, numbers: &Ranges) -> Result<(), Error> {
        for (first, last) in numbers.ranges() {
            let (first, last) = (self.run(*first)?, self.run(*last)?);
            let (begin, end) = (first.place, last.place + last.bytes);
            let (begin, end) = (begin.next_multiple_of(HOLE_BYTES), end - end % HOLE_BYTES);
            if begin < end && !self.file.punch(begin, end - begin)? {
                break;
            }
        }
        Ok(())
    }

    /// Goes through a run block by block, with the batches of each: all of them were verified.
    pub(super) fn walk(
        &self,
        run: &Run,
        mut see: impl FnMut(&Block, &[Bytes]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut number = 0;
        while number < run.blocks {
            let blocks = self.blocks(run, number, LOOK_BLOCKS)?;
            for (nth, block) in blocks.iter().enumerate() {
                see(block, &self.verified(run, &blocks[nth..], 1)?)?;
            }
            number += u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// The batches of so many of the blocks, the first, that follow each other.
    pub(super) fn verified(
        &self,
        run: &Run,
        all: &[Block],
        wanted: usize,
    ) -> Result<Vec<Bytes>, Error> {
        self.read_verified(run, all, wanted).map(|(_bytes, batches)| batches)
    }

    /// And all their bytes.
    fn read_verified(
        &self,
        run: &Run,
        all: &[Block],
        wanted: usize,
    ) -> Result<(Bytes, Vec<Bytes>), Error> {
        let blocks = &all[..wanted];
        let Some((first, last)) = blocks.first().zip(blocks.last()) else {
            return Ok((Bytes::new(), Vec::new()));
        };
        let end = last.place.saturating_add(u64::from(last.bytes));
        let is_within = first.place <= end && end <= run.bytes;
        let length = end.saturating_sub(first.place);
        let expected: u64 = blocks.iter().map(|block| u64::from(block.bytes)).sum();
        if !is_within || length != expected {
            return Err(self.damaged_run(run, first.base_offset, last.base_offset));
        }
        let length = usize::try_from(length).expect("a run is in memory piece by piece");
        let bytes = Bytes::from(self.read_at(run.place + first.place, length)?);
        let mut batches = Vec::new();
        let mut at = 0;
        for (number, block) in blocks.iter().enumerate() {
            let in_block = bytes.slice(at..at + block.bytes as usize);
            let next = all.get(number + 1).map_or(run.end_offset, |next| next.base_offset);
            let verified = block.verify(run.opening, run.chapter, &in_block);
            let verified = verified
                .ok_or_else(|| self.damaged_run(run, block.base_offset, next.saturating_sub(1)))?;
            batches.extend(verified.into_iter().map(|batch| in_block.slice_ref(batch)));
            at += block.bytes as usize;
        }
        Ok((bytes, batches))
    }

    /// Whether a run lies where there can be one.
    fn check(&self, run: &Run) -> Result<(), Malformed> {
        let end = run.place.saturating_add(run.bytes);
        let last_block = run.first_block.saturating_add(u64::from(run.blocks));
        let is_within = run.place >= HEADER_BYTES as u64
            && end <= self.footer.blocks_at
            && last_block <= self.footer.blocks;
        if is_within { Ok(()) } else { Err(Malformed::Field("the place of a run", run.place)) }
    }

    fn read_at(&self, at: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        let buffer = read_at(&*self.file, at, bytes)?;
        if buffer.len() < bytes {
            return Err(self.damaged(Malformed::Short("a chapter")));
        }
        Ok(buffer)
    }

    pub(super) fn damaged(&self, why: Malformed) -> Error {
        Error::File { file: self.name.clone(), why }
    }

    /// What the disk gives an error for is damaged too.
    pub(super) fn unreadable(&self, run: &Run, why: Error) -> Error {
        if !matches!(why, Error::Disk(_)) {
            return why;
        }
        let (file, opening) = (&self.name, run.opening);
        tracing::error!(shard = self.shard, %opening, file, %why, "a run cannot be read");
        self.damaged_run(run, run.base_offset, run.end_offset - 1)
    }

    /// What its index says of offsets may be what is damaged.
    fn damaged_run(&self, run: &Run, from: i64, last: i64) -> Error {
        let of_run = |offset: i64| offset.clamp(run.base_offset, run.end_offset - 1);
        let (from, last) = (of_run(from), of_run(last).max(of_run(from)));
        Error::Run { file: self.name.clone(), opening: run.opening, from, last }
    }
}

/// Batches that were found among so many bytes: copied where they are less than half of them, which they hold.
fn let_go_of(mut found: Vec<Bytes>, found_bytes: usize, read_bytes: usize) -> Vec<Bytes> {
    if found_bytes < read_bytes / 2 {
        let_go(&mut found);
    }
    found
}

/// How many of these blocks, the first, have about so many bytes: at least one.
fn blocks_within(blocks: &[Block], bytes_max: usize) -> usize {
    let mut bytes = 0_usize;
    let within = blocks.iter().take_while(|block| {
        bytes = bytes.saturating_add(block.bytes as usize);
        bytes <= bytes_max
    });
    within.count().max(1).min(blocks.len())
}
