//! [`State`]: all partitions of a shard, and what an entry does to them.
//!
//! Invariants: the state is a function of the entries up to `applied`; equal entries make equal
//! states, bit by bit in a snapshot. An entry that does not fit is the leader's error or the disk's:
//! the shard stops ([`Diverged`]), and nothing is made of the state that is left. One thing alone is this
//! replica's own: which chapters it has settled ([`State::settle`]), and so need no points any more.

use std::collections::{BTreeMap, VecDeque};

use super::batch::{Batch, NotABatch};
use super::entry::Entry;
use super::item::{Fence, Generation, Item};
use super::name::{Opening, PartitionId, TopicId};
use super::partition::{Partition, Place, Unfit};
use super::producers::Producers;
use crate::cursor::Malformed;

/// The partitions of a shard, after some entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub(super) applied: u64,
    pub(super) time: u64,
    pub(super) term: u64,
    pub(super) turns: u64,
    pub(super) feature: u32,
    pub(super) chapter: u64,
    pub(super) chapter_end: u64,
    pub(super) open_bytes: u64,
    pub(super) open_since: u64,
    pub(super) ended: VecDeque<Ended>,
    pub(super) fence: Option<Fence>,
    pub(super) intended: u64,
    pub(super) generation: Generation,
    pub(super) partitions: BTreeMap<Opening, Partition>,
}

/// A chapter that has ended and is not settled here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub chapter: u64,
    /// The log index of the entry that ended it; the first after that of the chapter before is its first.
    pub end: u64,
    /// When, in ms since 1970.
    pub time: u64,
}

/// What an entry did that somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Records can be read.
    Appended {
        /// Whose.
        opening: Opening,
        /// The offset of the first.
        base_offset: i64,
        /// The offset behind the last.
        end: i64,
    },
    /// A partition has come.
    Opened(Opening),
    /// It is told what it may do.
    Configured(Opening),
    /// It has left, and this is what the next shard has to know.
    Closed {
        /// Which.
        opening: Opening,
        /// The offset at which it goes on.
        next: i64,
        /// What its producers sent last.
        producers: Producers,
    },
    /// What may be given away is known anew.
    Ceiling(Opening),
    /// The log up to this entry is a chapter.
    ChapterEnd(Ended),
    /// Records went.
    Deleted,
}

/// An entry that this state cannot have come to agree on: the shard must stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {index} of the shard does not follow from those before it (item {item}): {why}")]
pub struct Diverged {
    /// Its log index.
    pub index: u64,
    /// Which of its items, from 0.
    pub item: usize,
    /// What does not fit.
    #[source]
    pub why: Mismatch,
}

/// What does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It is no entry.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Another index was next.
    #[error("entry {0} was next")]
    Index(u64),
    /// Time has gone back.
    #[error("its time is {found} ms, and {last} ms was before")]
    Time {
        /// The time of the entry before.
        last: u64,
        /// Its own.
        found: u64,
    },
    /// Its batch is none.
    #[error(transparent)]
    NotABatch(#[from] NotABatch),
    /// The partition is not here.
    #[error("{0} is not here")]
    NotHere(Opening),
    /// The partition has been here with this opening or a later one.
    #[error("{0} came before")]
    CameBefore(Opening),
    /// It does not fit the partition.
    #[error("{0}: {1}")]
    Unfit(Opening, Unfit),
    /// A batch, or another end, stands behind the end of a chapter in one entry.
    #[error("the chapter has ended within its entry")]
    Ended,
    /// Terms, features, chapters and versions of the catalog only go on.
    #[error("{0} does not follow {1}")]
    Backwards(u64, u64),
}

impl State {
    /// The log index of the last entry that it knows.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The time of the last entry, in ms since 1970.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// How many leaderships and fences there were.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// The last loss, if there was one.
    #[must_use]
    pub fn last_fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// After which loss it goes on.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The version of the catalog that the last act was of which control intended; 0 if that is not known.
    #[must_use]
    pub fn intended(&self) -> u64 {
        self.intended
    }

    /// A partition during one of its stays.
    #[must_use]
    pub fn partition(&self, opening: Opening) -> Option<&Partition> {
        self.partitions.get(&opening)
    }

    /// All of them, in order.
    pub fn partitions(&self) -> impl Iterator<Item = (Opening, &Partition)> {
        self.partitions.iter().map(|(opening, partition)| (*opening, partition))
    }

    /// Those of one topic, in order.
    pub fn partitions_of(&self, topic: TopicId) -> impl Iterator<Item = Opening> {
        let at = |number| PartitionId { topic, number };
        let first = Opening { partition: at(0), number: 0 };
        let last = Opening { partition: at(u32::MAX), number: u32::MAX };
        self.partitions.range(first..=last).map(|(opening, _)| *opening)
    }

    /// The first entry of the log that a partition needs; the next one if none does.
    #[must_use]
    pub fn needs_from(&self) -> u64 {
        let needed = self.partitions.values().filter_map(Partition::needs_from).min();
        needed.unwrap_or(self.applied + 1)
    }

    /// The last chapter that has ended; 0 if none has.
    #[must_use]
    pub fn chapter(&self) -> u64 {
        self.chapter
    }

    /// The last chapter that is settled here, as far as this state knows: the chapters have it.
    #[must_use]
    pub fn settled_chapter(&self) -> u64 {
        self.ended.front().map_or(self.chapter, |ended| ended.chapter.saturating_sub(1))
    }

    /// The chapters that have ended and are not settled here, the oldest first.
    pub fn ended(&self) -> impl ExactSizeIterator<Item = &Ended> {
        self.ended.iter()
    }

    /// The size of the entries with batches since the last chapter ended, and the time of the first of them in
    /// ms since 1970; `None` if there are none.
    #[must_use]
    pub fn open_chapter(&self) -> Option<(u64, u64)> {
        (self.open_bytes > 0).then_some((self.open_bytes, self.open_since))
    }

    /// Forgets where batches lie in the log up to this index: this replica has them in chapters. Of a chapter that
    /// has not ended here yet, as the log comes by once more, nothing is forgotten: retention looks at it.
    pub fn settle(&mut self, index: u64) {
        let index = index.min(self.chapter_end);
        self.ended.retain(|ended| ended.end > index);
        for partition in self.partitions.values_mut() {
            partition.settle(index);
        }
    }

    /// Whether an [`Item::Advance`] at this time would delete something.
    #[must_use]
    pub fn is_due(&self, now: u64) -> bool {
        self.partitions.values().any(|partition| partition.is_due(now))
    }

    /// Passes an entry of the engine's own, which holds nothing of ours. The first of a term begins a
    /// leadership.
    ///
    /// # Errors
    /// The entry does not follow from those before it. Nothing may be made of this state any more.
    pub fn pass(&mut self, index: u64, term: u64) -> Result<(), Diverged> {
        self.step(index)?;
        if term < self.term {
            let why = Mismatch::Backwards(term, self.term);
            return Err(Diverged { index, item: 0, why });
        }
        self.turns += u64::from(term > self.term);
        self.term = term;
        Ok(())
    }

    /// Does what an entry says, and adds what came of it to `outcomes`.
    ///
    /// # Errors
    /// The entry does not follow from those before it. Nothing may be made of this state any more.
    pub fn apply(
        &mut self,
        index: u64,
        bytes: &[u8],
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Diverged> {
        self.step(index)?;
        let diverged = |item, why| Diverged { index, item, why };
        let entry = Entry::decode(bytes).map_err(|error| diverged(0, error.into()))?;
        if entry.time < self.time {
            let why = Mismatch::Time { last: self.time, found: entry.time };
            return Err(diverged(0, why));
        }
        self.time = entry.time;
        let mut has_batches = false;
        for (number, item) in entry.items().enumerate() {
            let item = item.map_err(|error| diverged(number, error.into()))?;
            let place = Place {
                index,
                item: u16::try_from(number).expect("an entry counts its items in 16 bits"),
                time: entry.time,
            };
            has_batches |= matches!(item, Item::Batch { .. });
            self.act(item, place, outcomes).map_err(|why| diverged(number, why))?;
        }
        if has_batches && self.chapter_end < index {
            self.open_since = if self.open_bytes == 0 { entry.time } else { self.open_since };
            self.open_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    fn step(&mut self, index: u64) -> Result<(), Diverged> {
        let next = self.applied + 1;
        if index != next {
            return Err(Diverged { index, item: 0, why: Mismatch::Index(next) });
        }
        self.applied = index;
        Ok(())
    }

    fn act(
        &mut self,
        item: Item<'_>,
        place: Place,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Mismatch> {
        match item {
            Item::Batch { .. } | Item::ChapterEnd(_) if self.chapter_end == place.index => {
                return Err(Mismatch::Ended);
            }
            Item::Batch { opening, bytes } => {
                let batch = Batch::read(bytes)?;
                let turns = self.turns;
                let partition = self.find(opening)?;
                let fits = partition.append(&batch, turns, place);
                fits.map_err(|unfit| Mismatch::Unfit(opening, unfit))?;
                let (base_offset, end) = (batch.base_offset, partition.next());
                outcomes.push(Outcome::Appended { opening, base_offset, end });
            }
            Item::Open(open) => {
                let opening = open.opening;
                if self.newest(opening).is_some_and(|newest| newest >= opening) {
                    return Err(Mismatch::CameBefore(opening));
                }
                self.partitions.insert(opening, Partition::open(open, self.turns));
                outcomes.push(Outcome::Opened(opening));
            }
            Item::Close { opening } => {
                let (next, producers) = self.find(opening)?.close();
                outcomes.push(Outcome::Closed { opening, next, producers });
            }
            Item::Ceiling { opening, ceiling } => {
                let fits = self.find(opening)?.set_ceiling(ceiling);
                fits.map_err(|unfit| Mismatch::Unfit(opening, unfit))?;
                outcomes.push(Outcome::Ceiling(opening));
            }
            Item::Trim { opening, start } => {
                self.find(opening)?.trim(start);
                // Otherwise it is still asked where its stay ended.
                if start == i64::MAX {
                    self.forget_if_gone(opening);
                }
                outcomes.push(Outcome::Deleted);
            }
            // It was proposed by who looked at chapters: the partition may have gone meanwhile.
            Item::Expire { opening, start } => {
                if let Some(partition) = self.partitions.get_mut(&opening) {
                    partition.trim(start);
                    outcomes.push(Outcome::Deleted);
                }
            }
            Item::Configure { opening, settings } => {
                self.find(opening)?.configure(settings);
                outcomes.push(Outcome::Configured(opening));
            }
            Item::Advance => {
                self.advance();
                outcomes.push(Outcome::Deleted);
            }
            Item::Fence(fence) => self.fence_off(fence),
            Item::Generation(generation) => {
                raise(&mut self.generation.number, generation.number)?;
                self.generation = generation;
            }
            Item::Feature(level) => {
                raise(&mut self.feature, level)?;
            }
            Item::Intended(version) => raise(&mut self.intended, version)?,
            Item::ChapterEnd(chapter) => {
                raise(&mut self.chapter, chapter)?;
                outcomes.push(Outcome::ChapterEnd(self.end_chapter(place)));
            }
        }
        Ok(())
    }

    fn find(&mut self, opening: Opening) -> Result<&mut Partition, Mismatch> {
        self.partitions.get_mut(&opening).ok_or(Mismatch::NotHere(opening))
    }

    /// The last of a partition's stays here.
    fn newest(&self, opening: Opening) -> Option<Opening> {
        let first = Opening { number: 0, ..opening };
        let last = Opening { number: u32::MAX, ..opening };
        self.partitions.range(first..=last).next_back().map(|(newest, _)| *newest)
    }

    fn advance(&mut self) {
        let now = self.time;
        self.partitions.values_mut().for_each(|partition| partition.advance(now));
    }

    /// What expires before it is settled is never written again.
    fn end_chapter(&mut self, place: Place) -> Ended {
        self.advance();
        self.partitions.values_mut().for_each(Partition::end_chapter);
        let ended = Ended { chapter: self.chapter, end: place.index, time: place.time };
        (self.chapter_end, self.open_bytes, self.open_since) = (place.index, 0, 0);
        self.ended.push_back(ended);
        ended
    }

    fn fence_off(&mut self, fence: Fence) {
        self.turns += 1;
        self.fence = Some(fence);
        for partition in self.partitions.values_mut() {
            partition.fence(self.turns);
        }
    }

    fn forget_if_gone(&mut self, opening: Opening) {
        if self.partitions.get(&opening).is_some_and(is_gone) {
            self.partitions.remove(&opening);
        }
    }
}

/// Whether its stay has ended and nothing of it is left.
fn is_gone(partition: &Partition) -> bool {
    partition.is_closed() && partition.start() == partition.next()
}

fn raise<T: Copy + PartialOrd + Into<u64>>(held: &mut T, to: T) -> Result<(), Mismatch> {
    if to <= *held {
        return Err(Mismatch::Backwards(to.into(), (*held).into()));
    }
    *held = to;
    Ok(())
}
