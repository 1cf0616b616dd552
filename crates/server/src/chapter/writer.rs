//! [`Writer`]: a range of the log, written again sorted by partition.
//!
//! How large each run becomes is known before a byte of it is read, from where its batches lie
//! ([`Plan`]). So the log is read once, from its first entry to its last, and each batch goes to its place: what
//! was read in one window is put in order and written in pieces as large as it makes them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_sync::{Allocation, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::Error;
use super::format::{
    self, BLOCK_BYTES, Block, FOOTER_BYTES, Footer, HEADER_BYTES, RUN_BYTES, Run, Span,
};
use super::table::Fences;
use crate::shard::{Batch, Ended, Entry, Item, Opening, Point, State};

/// Bytes of the log that are in memory at once, about.
const WINDOW_BYTES: usize = 16 << 20;
/// The most that is written with one call.
const PIECE_BYTES: usize = 1 << 20;

/// What a chapter will hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Which chapter, and where it ends.
    pub ended: Ended,
    /// The first log index behind the chapter before.
    pub first_index: u64,
    /// Where its batches lie in the log, of each partition that has any, in the order of partitions.
    pub runs: Vec<(Opening, Vec<Point>)>,
}

impl Plan {
    /// Of the oldest chapter of a shard that is not settled. What was deleted altogether is left out.
    #[must_use]
    pub fn of(state: &State, ended: Ended, first_index: u64) -> Self {
        let runs = state.partitions().filter_map(|(opening, partition)| {
            let points: Vec<Point> = partition.points_up_to(ended.end).copied().collect();
            let is_live = !points.is_empty() && partition.end_at(ended.end) > partition.start();
            is_live.then_some((opening, points))
        });
        Self { ended, first_index, runs: runs.collect() }
    }

    /// The first entry of the log that is needed, if any is.
    #[must_use]
    pub fn needs_from(&self) -> Option<u64> {
        self.runs.iter().filter_map(|(_, points)| points.first()).map(|point| point.index).min()
    }

    /// Bytes of batches in it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|(_, points)| bytes_of(points)).sum()
    }
}

fn bytes_of(points: &[Point]) -> u64 {
    points.iter().map(|point| u64::from(point.bytes)).sum()
}

/// A chapter that is being written.
#[derive(Debug)]
pub struct Writer {
    file: Arc<dyn File>,
    plan: Plan,
    runs: Vec<Growing>,
    by_opening: HashMap<Opening, usize>,
    /// Read, and not written yet: each with its place in the file.
    window: Vec<(u64, Bytes)>,
    /// Of the entries that these hold.
    window_bytes: usize,
}

/// A run, as far as it has come.
#[derive(Debug)]
struct Growing {
    run: Run,
    /// The next of its points in the plan.
    point: usize,
    end: u64,
    hash: u64,
    open: Option<Block>,
    blocks: Vec<Block>,
}

impl Writer {
    /// Begins a chapter in an empty file, whose blocks it takes at once: a disk without room for it says so before
    /// anything is read.
    pub fn begin(file: Arc<dyn File>, shard: u32, plan: Plan) -> Result<Self, Error> {
        let mut place = HEADER_BYTES as u64;
        let mut runs = Vec::with_capacity(plan.runs.len());
        for (opening, points) in &plan.runs {
            let bytes = bytes_of(points);
            runs.push(Growing::at(place, bytes, *opening, plan.ended.chapter, points));
            place += bytes;
        }
        file.allocate(0, place, Allocation::Reserved)?;
        file.write_at(&format::header(shard), 0)?;
        let by_opening = plan.runs.iter().enumerate();
        let by_opening = by_opening.map(|(number, (opening, _))| (*opening, number)).collect();
        Ok(Self { file, plan, runs, by_opening, window: Vec::new(), window_bytes: 0 })
    }

    /// Takes the batches of the next entry that the plan has; returns how many bytes of the log were
    /// written with it: none until a window is full.
    ///
    /// # Errors
    /// [`Error::NotPlanned`]: they are not what the plan says. The file is not to be used.
    pub fn take(&mut self, index: u64, payload: &Bytes) -> Result<usize, Error> {
        let not_planned = |_| Error::NotPlanned { chapter: self.plan.ended.chapter, index };
        let entry = Entry::decode(payload).map_err(not_planned)?;
        let before = self.window.len();
        for (item, found) in entry.items().enumerate() {
            let Item::Batch { opening, bytes } = found.map_err(not_planned)? else { continue };
            let Some(number) = self.by_opening.get(&opening) else { continue };
            let (run, points) = (&mut self.runs[*number], &self.plan.runs[*number].1);
            let item = u16::try_from(item).expect("an entry counts its items in 16 bits");
            if let Some(place) = run.take(points, index, item, bytes, entry.time) {
                self.window.push((place, payload.slice_ref(bytes)));
            }
        }
        if self.window.len() > before {
            self.window_bytes += payload.len();
        }
        if self.window_bytes < WINDOW_BYTES { Ok(0) } else { self.write_window() }
    }

    /// Writes what is left, and what finds it. Durable on return.
    ///
    /// # Errors
    /// [`Error::NotPlanned`]: the entries were not all that the plan has. The file is not to be used.
    pub fn finish(mut self) -> Result<Footer, Error> {
        self.write_window()?;
        let Ended { chapter, end, time } = self.plan.ended;
        let mut blocks = Vec::new();
        let mut runs = Vec::with_capacity(self.runs.len());
        for growing in self.runs {
            let run = growing.finish(&mut blocks);
            runs.push(run.ok_or(Error::NotPlanned { chapter, index: end })?);
        }
        let blocks_at = runs.last().map_or(HEADER_BYTES as u64, |run| run.place + run.bytes);
        let span = Span {
            first_chapter: chapter,
            last_chapter: chapter,
            first_index: self.plan.first_index,
            last_index: end,
            time,
        };
        finish(&*self.file, blocks_at, span, &blocks, &runs)
    }

    fn write_window(&mut self) -> Result<usize, Error> {
        let bytes = std::mem::take(&mut self.window_bytes);
        if self.window.is_empty() {
            return Ok(0);
        }
        self.window.sort_unstable_by_key(|(place, _)| *place);
        let mut piece: Vec<u8> = Vec::with_capacity(PIECE_BYTES.min(bytes));
        let mut begin = 0;
        for (place, batch) in self.window.drain(..) {
            let follows = begin + piece.len() as u64 == place;
            if !piece.is_empty() && (!follows || piece.len() + batch.len() > PIECE_BYTES) {
                self.file.write_at(&piece, begin)?;
                piece.clear();
            }
            if piece.is_empty() {
                begin = place;
            }
            piece.extend_from_slice(&batch);
        }
        self.file.write_at(&piece, begin)?;
        // Not all at the end, where others would wait behind it.
        self.file.start_write_out()?;
        Ok(bytes)
    }
}

/// Writes blocks, runs, fences and footer behind the batches. Durable on return.
pub(super) fn finish(
    file: &dyn File,
    blocks_at: u64,
    span: Span,
    blocks: &[Block],
    runs: &[Run],
) -> Result<Footer, Error> {
    let runs_at = blocks_at + (blocks.len() * format::BLOCK_HEAD_BYTES) as u64;
    let fences = Fences::of(runs).encode();
    let footer_at = runs_at + (runs.len() * RUN_BYTES + fences.len()) as u64;
    let Span { first_chapter, last_chapter, first_index, last_index, time } = span;
    let footer = Footer {
        runs: u32::try_from(runs.len()).expect("fewer than 4 billion partitions"),
        first_chapter,
        last_chapter,
        first_index,
        last_index,
        time,
        blocks: blocks.len() as u64,
        blocks_at,
        runs_at,
        file_bytes: footer_at + FOOTER_BYTES as u64,
        hash: Footer::hash_of(runs),
        fences_hash: XxHash3_64::oneshot(&fences),
    };
    let mut behind = Vec::with_capacity(PIECE_BYTES);
    let mut at = blocks_at;
    let parts = blocks.iter().map(|block| block.encode().to_vec());
    let parts = parts.chain(runs.iter().map(|run| run.encode().to_vec()));
    for part in parts.chain([fences, footer.encode().to_vec()]) {
        behind.extend_from_slice(&part);
        if behind.len() >= PIECE_BYTES {
            file.write_at(&behind, at)?;
            at += behind.len() as u64;
            behind.clear();
        }
    }
    file.write_at(&behind, at)?;
    file.sync(SyncMethod::ORDINARY)?;
    Ok(footer)
}

impl Growing {
    fn at(place: u64, bytes: u64, opening: Opening, chapter: u64, points: &[Point]) -> Self {
        let base_offset = points.first().map_or(0, |point| point.base_offset);
        let run = Run {
            opening,
            chapter,
            base_offset,
            end_offset: base_offset,
            max_timestamp: i64::MIN,
            first_time: 0,
            last_time: 0,
            place,
            bytes: 0,
            first_block: 0,
            blocks: 0,
            hash: 0,
            compacted: 0,
        };
        Self { run, point: 0, end: place + bytes, hash: 0, open: None, blocks: Vec::new() }
    }

    /// The place of a batch in the file, if it is one of this run's.
    fn take(
        &mut self,
        points: &[Point],
        index: u64,
        item: u16,
        bytes: &[u8],
        time: u64,
    ) -> Option<u64> {
        while points.get(self.point).is_some_and(|point| point.index < index) {
            self.point += 1;
        }
        // What stands before it in the entry was deleted there.
        points.get(self.point).filter(|point| point.index == index && point.item <= item)?;
        let batch = Batch::read(bytes).ok()?;
        let end_offset = batch.end()?;
        let run = &mut self.run;
        if run.bytes == 0 {
            run.first_time = time;
        }
        let closes = |block: &Block| {
            block.bytes as usize + bytes.len() > BLOCK_BYTES || block.batches == u16::MAX
        };
        if self.open.as_ref().is_some_and(closes) {
            self.blocks.extend(self.open.take().map(|block| block.seal(self.hash)));
        }
        run.last_time = time;
        run.max_timestamp = run.max_timestamp.max(batch.max_timestamp);
        let block = self.open.get_or_insert_with(|| {
            self.hash = format::hash_begin(run.opening, run.chapter);
            Block {
                base_offset: batch.base_offset,
                max_timestamp: 0,
                time,
                index,
                place: run.bytes,
                item,
                batches: 0,
                bytes: 0,
                hash: 0,
            }
        });
        block.max_timestamp = run.max_timestamp;
        block.batches += 1;
        block.bytes += batch.bytes;
        self.hash = format::hash_on(self.hash, bytes);
        let place = run.place + run.bytes;
        run.end_offset = end_offset;
        run.bytes += u64::from(batch.bytes);
        Some(place)
    }

    /// The run, if it is as large as was planned, and its blocks behind those of others.
    fn finish(mut self, blocks: &mut Vec<Block>) -> Option<Run> {
        self.blocks.extend(self.open.take().map(|block| block.seal(self.hash)));
        self.run.first_block = blocks.len() as u64;
        self.run.blocks = u32::try_from(self.blocks.len()).ok()?;
        self.run.hash = Run::hash_of(&self.blocks);
        blocks.extend(self.blocks);
        (self.run.place + self.run.bytes == self.end).then_some(self.run)
    }
}
