//! [`Producers`]: the last batches of each idempotent producer of a partition.
//!
//! A producer numbers its records for each partition; a batch that comes twice is known by its
//! sequences and answered with the offset that it has. Rules as in Kafka (KIP-98; its
//! `ProducerStateManager`): the last [`REMEMBERED`] batches are known again; a producer that is not
//! known may begin anywhere; a higher epoch begins at 0; a lower one is fenced.
//!
//! ```text
//! producers   count u32, then each, in the order of their ids:
//!             id i64 · epoch i16 · batches u16 · last time u64
//!             each batch: first sequence i32 · offsets u32 · base offset i64
//! ```

use super::batch::{Batch, Sequenced, sequence_after};
use crate::cursor::{Cursor, Malformed};

/// How many batches of a producer are known again: as many as it may have in flight
/// (`max.in.flight.requests.per.connection` with idempotence, Kafka's documentation).
pub(super) const REMEMBERED: usize = 5;

/// The producers of a partition, in the order of their ids. Most have one: it lies in one piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Producers {
    list: Vec<(i64, Producer)>,
}

/// What is known of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    epoch: i16,
    /// When its last batch was appended, in ms since 1970.
    last_time: u64,
    batches: Batches,
}

/// A producer's last batches, the oldest first; at least one. Places that were never taken hold the default, so
/// that equal batches are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Batches {
    count: usize,
    known: [Known; REMEMBERED],
}

/// A batch that is known again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Known {
    first: i32,
    offsets: u32,
    base_offset: i64,
}

/// Where a batch stands among its producer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is next.
    Next,
    /// It came before, and has this base offset.
    Repeated(i64),
}

/// A batch that is neither next nor known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// Some are missing before it, or it is too old to be known.
    #[error("sequence {found} of producer {producer} is not {expected}, which comes next")]
    OutOfOrder {
        /// Whose.
        producer: i64,
        /// What comes next.
        expected: i32,
        /// What came.
        found: i32,
    },
    /// Another of this name has begun anew.
    #[error("epoch {found} of producer {producer} ended when {current} began")]
    Fenced {
        /// Whose.
        producer: i64,
        /// The epoch that is valid.
        current: i16,
        /// The batch's.
        found: i16,
    },
}

impl Producer {
    /// One whose first batch this is.
    pub(super) fn new(sequenced: Sequenced, batch: &Batch, time: u64) -> Self {
        let batches = Batches::new(Known::new(sequenced, batch));
        Self { epoch: sequenced.epoch, last_time: time, batches }
    }

    /// Where this batch stands.
    pub(super) fn place(&self, sequenced: Sequenced, offsets: u32) -> Result<Standing, Misplaced> {
        let Sequenced { producer, epoch, first } = sequenced;
        if epoch < self.epoch {
            return Err(Misplaced::Fenced { producer, current: self.epoch, found: epoch });
        }
        let expected = if epoch > self.epoch { 0 } else { self.next_sequence() };
        if first == expected {
            return Ok(Standing::Next);
        }
        let is_it = |known: &&Known| known.first == first && known.offsets == offsets;
        match self.batches.all().iter().find(is_it).filter(|_| epoch == self.epoch) {
            Some(known) => Ok(Standing::Repeated(known.base_offset)),
            None => Err(Misplaced::OutOfOrder { producer, expected, found: first }),
        }
    }

    /// Notes its next batch.
    pub(super) fn note(&mut self, sequenced: Sequenced, batch: &Batch, time: u64) {
        let known = Known::new(sequenced, batch);
        if sequenced.epoch == self.epoch {
            self.batches.push(known);
        } else {
            self.epoch = sequenced.epoch;
            self.batches = Batches::new(known);
        }
        self.last_time = time;
    }

    fn next_sequence(&self) -> i32 {
        let last = self.batches.all().last().expect("a producer has a batch");
        sequence_after(last.first, last.offsets)
    }
}

impl Batches {
    fn new(first: Known) -> Self {
        let mut batches = Self { count: 0, known: [Known::default(); REMEMBERED] };
        batches.push(first);
        batches
    }

    fn all(&self) -> &[Known] {
        &self.known[..self.count]
    }

    /// Where there are as many as are remembered, the oldest goes.
    fn push(&mut self, known: Known) {
        if self.count == REMEMBERED {
            self.known.rotate_left(1);
            self.count -= 1;
        }
        self.known[self.count] = known;
        self.count += 1;
    }
}

impl Known {
    fn new(sequenced: Sequenced, batch: &Batch) -> Self {
        let Batch { base_offset, offsets, .. } = *batch;
        Self { first: sequenced.first, offsets, base_offset }
    }
}

impl Producers {
    /// What is known of a producer.
    #[must_use]
    pub fn find(&self, id: i64) -> Option<&Producer> {
        self.place(id).ok().map(|place| &self.list[place].1)
    }

    /// Where a producer is, or would be.
    fn place(&self, id: i64) -> Result<usize, usize> {
        self.list.binary_search_by_key(&id, |(id, _)| *id)
    }

    /// Notes a batch that is next.
    pub(super) fn note(&mut self, sequenced: Sequenced, batch: &Batch, time: u64) {
        self.note_after(None, sequenced, batch, time);
    }

    /// Notes a batch that is next, of a producer of which this is known where it is not here.
    pub(super) fn note_after(
        &mut self,
        known: Option<&Producer>,
        sequenced: Sequenced,
        batch: &Batch,
        time: u64,
    ) {
        let id = sequenced.producer;
        match self.place(id) {
            Ok(place) => self.list[place].1.note(sequenced, batch, time),
            Err(place) => {
                let after = |known: &Producer| {
                    let mut producer = known.clone();
                    producer.note(sequenced, batch, time);
                    producer
                };
                let producer = known.map_or_else(|| Producer::new(sequenced, batch, time), after);
                if self.list.is_empty() {
                    self.list.reserve_exact(1);
                }
                self.list.insert(place, (id, producer));
            }
        }
    }

    /// Whether there is one that sent nothing since then.
    pub(super) fn has_before(&self, time: u64) -> bool {
        self.list.iter().any(|(_, producer)| producer.last_time < time)
    }

    /// Forgets those that sent nothing since then.
    pub(super) fn forget_before(&mut self, time: u64) {
        self.list.retain(|(_, producer)| producer.last_time >= time);
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let count = u32::try_from(self.list.len()).expect("fewer than 4 billion producers");
        to.extend_from_slice(&count.to_le_bytes());
        for (id, producer) in &self.list {
            let batches = producer.batches.all();
            let count = u16::try_from(batches.len()).expect("only a few are remembered");
            to.extend_from_slice(&id.to_le_bytes());
            to.extend_from_slice(&producer.epoch.to_le_bytes());
            to.extend_from_slice(&count.to_le_bytes());
            to.extend_from_slice(&producer.last_time.to_le_bytes());
            for known in batches {
                to.extend_from_slice(&known.first.to_le_bytes());
                to.extend_from_slice(&known.offsets.to_le_bytes());
                to.extend_from_slice(&known.base_offset.to_le_bytes());
            }
        }
    }

    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        const PRODUCER_BYTES_MIN: usize = 20 + 16;
        let mut list: Vec<(i64, Producer)> = Vec::new();
        for _ in 0..from.count(PRODUCER_BYTES_MIN, "the count of producers")? {
            let id = from.offset("a producer's id")?;
            let is_next = list.last().is_none_or(|(last, _)| *last < id);
            if !is_next {
                return Err(Malformed::Field("the next producer's id", id.cast_unsigned()));
            }
            list.push((id, Producer::decode(from)?));
        }
        list.shrink_to_fit();
        Ok(Self { list })
    }
}

impl Producer {
    fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let epoch = from.i16()?;
        let count = usize::from(from.u16()?);
        let last_time = from.u64()?;
        if epoch < 0 {
            return Err(Malformed::Field("a producer's epoch", u64::from(epoch.cast_unsigned())));
        }
        if !(1..=REMEMBERED).contains(&count) {
            return Err(Malformed::Field("the count of a producer's batches", count as u64));
        }
        let mut batches = Batches { count: 0, known: [Known::default(); REMEMBERED] };
        for _ in 0..count {
            let (first, offsets) = (from.i32()?, from.u32()?);
            if first < 0 || offsets == 0 || offsets > i32::MAX.cast_unsigned() + 1 {
                return Err(Malformed::Field("a batch's sequences", u64::from(offsets)));
            }
            batches.push(Known { first, offsets, base_offset: from.offset("an offset")? });
        }
        Ok(Self { epoch, last_time, batches })
    }
}
