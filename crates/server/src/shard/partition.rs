//! [`Partition`]: one partition during a stay in this shard.
//!
//! Invariants: `start ≤ next`; what is appended ends at or below the ceiling; nothing is appended to
//! one that has none, or that was closed. Offsets from `next` to the ceiling may have been given away
//! by a leader whose entries were lost: a fence jumps over them, so that no offset names two records.

use super::batch::Batch;
use super::epochs::{Epochs, Gap};
use super::item::{Open, Settings};
use super::points::{Point, Points};
use super::producers::{Misplaced, Producer, Producers, Standing};
use crate::cursor::{Cursor, Malformed};

/// A partition, as far as entries have told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    settings: Settings,
    start: i64,
    next: i64,
    ceiling: Option<i64>,
    is_closed: bool,
    /// The leader epoch that it came with, less the shard's turns when it came.
    epoch_base: i64,
    epochs: Epochs,
    producers: Producers,
    points: Points,
}

/// Where an entry's batch lies in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) index: u64,
    pub(super) item: u16,
    pub(super) time: u64,
}

/// What a batch cannot be, here and now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Offsets do not follow each other.
    #[error("its base offset is {found}, and {expected} is next")]
    Offset {
        /// What is next.
        expected: i64,
        /// What it says.
        found: i64,
    },
    /// Another leader epoch.
    #[error("its leader epoch is {found}, and {expected} is now")]
    Epoch {
        /// The partition's.
        expected: i64,
        /// What it says.
        found: i32,
    },
    /// It goes beyond what may be given away.
    #[error("it ends beyond the ceiling ({0:?})")]
    Ceiling(Option<i64>),
    /// It is larger than the partition takes.
    #[error("its {0} bytes are too many")]
    TooLarge(u32),
    /// Its producer's batches do not follow each other.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
    /// It was appended already.
    #[error("it is there already, at offset {0}")]
    Repeated(i64),
}

impl Partition {
    /// One that comes, when the shard has had so many turns.
    pub(super) fn open(open: Open, turns: u64) -> Self {
        let turns = i64::try_from(turns).expect("turns are counted one by one");
        Self {
            settings: open.settings,
            start: open.start,
            next: open.start,
            ceiling: None,
            is_closed: false,
            epoch_base: i64::from(open.base_epoch) - turns,
            epochs: Epochs::default(),
            producers: open.producers,
            points: Points::default(),
        }
    }

    /// What it may do.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The oldest offset that can be read.
    #[must_use]
    pub fn start(&self) -> i64 {
        self.start
    }

    /// The offset that the next record gets, if nothing is lost: all below it are agreed on.
    #[must_use]
    pub fn next(&self) -> i64 {
        self.next
    }

    /// The first offset that may not be given away; `None` if none may.
    #[must_use]
    pub fn ceiling(&self) -> Option<i64> {
        self.ceiling
    }

    /// Whether its stay here has ended: it can be read, and not appended to.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What its idempotent producers sent last.
    #[must_use]
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    /// What is known of an idempotent producer.
    #[must_use]
    pub fn producer(&self, id: i64) -> Option<&Producer> {
        self.producers.find(id)
    }

    /// Its leader epoch when the shard has had so many turns.
    #[must_use]
    pub fn epoch(&self, turns: u64) -> i64 {
        self.epoch_base.saturating_add(i64::try_from(turns).unwrap_or(i64::MAX))
    }

    /// The last leader epoch that is not above this one, and the offset at which it ended.
    #[must_use]
    pub fn end_of_epoch(&self, number: i32) -> Option<(i32, i64)> {
        self.epochs.end_of(number, self.next)
    }

    /// The leader epoch that this offset was given in, or would be; of one that a fence gave up that of the fence.
    #[must_use]
    pub fn epoch_at(&self, offset: i64) -> Option<i32> {
        self.epochs.at(offset)
    }

    /// The offset at which the oldest leader epoch that is known began.
    #[must_use]
    pub fn begin_of_epochs(&self) -> i64 {
        self.epochs.begin(self.next)
    }

    /// Offsets that fences gave up: they may have named records that are gone.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> + '_ {
        self.epochs.gaps()
    }

    /// Where to begin to read from this offset.
    #[must_use]
    pub fn point_of(&self, offset: i64) -> Option<&Point> {
        self.points.find(offset)
    }

    /// Where its batches lie, from the one that holds this offset on, or else the first behind it.
    pub fn points_from(&self, offset: i64) -> impl Iterator<Item = &Point> {
        self.points.from(offset)
    }

    /// Where the first record with this timestamp or a later one may lie.
    #[must_use]
    pub fn point_at_time(&self, timestamp: i64) -> Option<&Point> {
        self.points.find_time(timestamp)
    }

    /// The offset behind the last record that lies in entries up to this log index: D, where that is
    /// the last durable one.
    #[must_use]
    pub fn end_at(&self, index: u64) -> i64 {
        self.points.first_after(index).map_or(self.next, |point| point.base_offset)
    }

    /// The first entry of the log that it still needs.
    #[must_use]
    pub fn needs_from(&self) -> Option<u64> {
        self.points.first().map(|point| point.index)
    }

    /// The first offset that may lie in the log: what is below it lies in chapters.
    #[must_use]
    pub fn unsettled(&self) -> i64 {
        self.points.first().map_or(self.next, |point| point.base_offset)
    }

    /// The oldest of its batches that are not in a chapter here.
    pub(super) fn oldest(&self) -> Option<&Point> {
        self.points.first()
    }

    /// Where the batches lie that came in entries up to this log index and are not in a chapter here.
    pub fn points_up_to(&self, index: u64) -> impl Iterator<Item = &Point> {
        self.points.up_to(index)
    }

    /// The size of its batches that are not in a chapter here.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.points.bytes()
    }

    /// Appends a batch, if it is what the leader had to stamp.
    pub(super) fn append(&mut self, batch: &Batch, turns: u64, place: Place) -> Result<(), Unfit> {
        let end = self.check(batch, turns)?;
        if let Some(sequenced) = batch.sequenced {
            self.producers.note(sequenced, batch, place.time);
        }
        self.epochs.note(batch.epoch, batch.base_offset);
        self.points.note(Point {
            base_offset: batch.base_offset,
            max_timestamp: batch.max_timestamp,
            time: place.time,
            index: place.index,
            bytes: batch.bytes,
            item: place.item,
        });
        self.next = end;
        Ok(())
    }

    /// The offset behind the batch, if it is what comes next.
    fn check(&self, batch: &Batch, turns: u64) -> Result<i64, Unfit> {
        if batch.base_offset != self.next {
            return Err(Unfit::Offset { expected: self.next, found: batch.base_offset });
        }
        let epoch = self.epoch(turns);
        if i64::from(batch.epoch) != epoch {
            return Err(Unfit::Epoch { expected: epoch, found: batch.epoch });
        }
        if batch.bytes > self.settings.batch_bytes_max {
            return Err(Unfit::TooLarge(batch.bytes));
        }
        let room = self.ceiling.filter(|_| !self.is_closed);
        let end = batch.end().filter(|end| room.is_some_and(|ceiling| *end <= ceiling));
        let end = end.ok_or(Unfit::Ceiling(room))?;
        let Some(sequenced) = batch.sequenced else { return Ok(end) };
        let Some(producer) = self.producers.find(sequenced.producer) else { return Ok(end) };
        match producer.place(sequenced, batch.offsets)? {
            Standing::Next => Ok(end),
            Standing::Repeated(offset) => Err(Unfit::Repeated(offset)),
        }
    }

    /// Says which offsets may be given away. A ceiling is never lowered, but taken away where nothing
    /// beyond the next offset was given.
    pub(super) fn set_ceiling(&mut self, ceiling: Option<i64>) -> Result<(), Unfit> {
        let floor = self.ceiling.unwrap_or(self.next);
        if ceiling.is_some_and(|ceiling| ceiling < floor) || self.is_closed {
            return Err(Unfit::Ceiling(self.ceiling));
        }
        self.ceiling = ceiling;
        Ok(())
    }

    /// Ends its stay, and hands over what the next shard has to know.
    pub(super) fn close(&mut self) -> (i64, Producers) {
        self.is_closed = true;
        self.ceiling = None;
        (self.next, self.producers.clone())
    }

    pub(super) fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Jumps over what may have been given away and is gone; the shard's turn that begins now is given.
    /// Without a ceiling nothing was given, and nothing happens.
    pub(super) fn fence(&mut self, turns: u64) {
        let Some(ceiling) = self.ceiling.take() else { return };
        if ceiling == self.next {
            return;
        }
        // A partition that came with too high an epoch takes no batches: none can have been given.
        let Ok(epoch) = i32::try_from(self.epoch(turns)) else { return };
        self.epochs.fence(epoch, Gap { from: self.next, to: ceiling });
        self.next = ceiling;
    }

    /// Deletes what is below an offset: from the start to the next.
    pub(super) fn trim(&mut self, start: i64) {
        self.start = start.clamp(self.start, self.next);
        self.points.forget_before(self.start, self.next);
        self.epochs.forget_before(self.start);
    }

    /// Whether time, or the size that is allowed, deletes something now of the open chapter.
    pub(super) fn is_due(&self, now: u64) -> bool {
        let silent_since = now.saturating_sub(PRODUCER_EXPIRES_MS);
        self.producers.has_before(silent_since) || self.kept_from(now).is_some()
    }

    /// Deletes what has been here for longer than it should, or is more than it should be, and forgets producers
    /// that are silent. What lies in chapters is older, and goes with it.
    pub(super) fn advance(&mut self, now: u64) {
        self.producers.forget_before(now.saturating_sub(PRODUCER_EXPIRES_MS));
        if let Some(start) = self.kept_from(now) {
            self.trim(start);
        }
    }

    /// The first offset that is kept now, if that deletes something of the open chapter.
    fn kept_from(&self, now: u64) -> Option<i64> {
        let first = self.points.first_open()?;
        let by_age = self.settings.retention_ms.map(|ms| now.saturating_sub(ms));
        let by_age = by_age.filter(|since| first.time < *since);
        let by_age = by_age.map(|since| {
            self.points.first_since(since).map_or(self.next, |point| point.base_offset)
        });
        let by_size = self.settings.retention_bytes.map(|bytes| {
            self.points.first_within(bytes).map_or(self.next, |point| point.base_offset)
        });
        let start = by_age.max(by_size)?;
        (start > first.base_offset).then_some(start)
    }

    /// The chapter ends: what it has of this partition stays as it is.
    pub(super) fn end_chapter(&mut self) {
        self.points.end_chapter();
    }

    /// Entries up to this log index are in chapters here.
    pub(super) fn settle(&mut self, index: u64) {
        self.points.settle(index);
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        self.settings.encode(to);
        to.extend_from_slice(&self.start.to_le_bytes());
        to.extend_from_slice(&self.next.to_le_bytes());
        to.extend_from_slice(&self.ceiling.unwrap_or(-1).to_le_bytes());
        to.extend_from_slice(&u32::from(self.is_closed).to_le_bytes());
        to.extend_from_slice(&self.epoch_base.to_le_bytes());
        self.epochs.encode(to);
        self.producers.encode(to);
        self.points.encode(to);
    }

    /// What lies in entries up to `chapter_end` is of chapters that have ended.
    pub(super) fn decode(from: &mut Cursor<'_>, chapter_end: u64) -> Result<Self, Malformed> {
        let settings = Settings::decode(from)?;
        let (start, next) = (from.offset("a start offset")?, from.offset("a next offset")?);
        let ceiling = from.i64()?;
        let is_closed = from.u32()?;
        let is_possible = start <= next && is_closed <= 1 && (ceiling == -1 || ceiling >= next);
        if !is_possible {
            return Err(Malformed::Field("a partition's next offset", next.cast_unsigned()));
        }
        Ok(Self {
            settings,
            start,
            next,
            ceiling: Some(ceiling).filter(|ceiling| *ceiling >= 0),
            is_closed: is_closed == 1,
            epoch_base: from.i64()?,
            epochs: Epochs::decode(from)?,
            producers: Producers::decode(from)?,
            points: Points::decode(from, chapter_end)?,
        })
    }
}

/// After so long a producer that sends nothing is forgotten: a day, as in Kafka
/// (`producer.id.expiration.ms`).
const PRODUCER_EXPIRES_MS: u64 = 86_400_000;
