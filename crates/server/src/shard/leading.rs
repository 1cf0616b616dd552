//! [`Leading`]: what the leader's entries in flight will make of the state, and so the stamps of the
//! next ones.
//!
//! A leader proposes entries before those before them are agreed on. For each partition that they
//! touch it keeps what comes next *ahead* of the state: only as long as they are in flight, so an idle
//! partition costs nothing here. When the leadership ends the whole is dropped: what was in flight and
//! is agreed on after all comes through [`State::apply`] like any other entry.
//!
//! **Ceilings.** No offset is given away that a durable ceiling does not cover. Where one is needed at
//! once, its entry is made durable before anything is said of it, and of what comes behind it. Where it
//! is raised in good time, its entry costs nobody a wait: the old ceiling holds until it is durable.
//!
//! Invariants: a leadership believes no ceiling before all that was applied when it began is durable; entries are applied in the
//! order in which they were proposed; a batch is admitted only against the newest of state and ahead;
//! what is stamped here is what apply computes.

use std::collections::{BTreeMap, VecDeque};

use super::batch::{Batch, NotABatch};
use super::name::Opening;
use super::partition::Partition;
use super::producers::{Misplaced, Producers, Standing};
use super::state::State;

/// A leadership's entries in flight.
#[derive(Debug, Default)]
pub struct Leading {
    ahead: BTreeMap<Opening, Ahead>,
    /// Ceilings that were raised in good time and are not durable yet.
    raised: BTreeMap<Opening, Raised>,
    /// What each entry in flight touches, the oldest first.
    in_flight: VecDeque<Touched>,
    /// What the entry that is being drafted touches.
    drafted: Touched,
    /// How many entries were proposed, and how many of them were applied.
    proposed: u64,
    applied: u64,
    time: u64,
}

/// What an entry touches.
#[derive(Debug, Default)]
struct Touched {
    partitions: Vec<Opening>,
    raised: Vec<Opening>,
}

/// A ceiling that is on its way.
#[derive(Debug)]
struct Raised {
    /// The one that holds until then.
    holds: i64,
    /// The number of its entry among those proposed.
    entry: u64,
    /// The log index of its entry, once that was applied.
    index: Option<u64>,
}

/// What entries in flight will make of a partition.
#[derive(Debug)]
struct Ahead {
    next: i64,
    ceiling: Option<i64>,
    is_closed: bool,
    producers: Producers,
    /// How many entries in flight, and in the draft, touch it.
    entries: usize,
    /// The number of the last of them.
    last_entry: u64,
}

/// What becomes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It goes into the draft with this stamp.
    Stamped {
        /// Offset of its first record.
        base_offset: i64,
        /// The leader epoch.
        epoch: i32,
    },
    /// It came before: its answer is that one's, once that one is agreed on.
    Repeated {
        /// Offset of its first record.
        base_offset: i64,
    },
}

/// Why a batch is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The partition is not here, or is about to leave: ask where it is.
    #[error("the partition is not here")]
    NotHere,
    /// Its offsets may not be given away yet: a ceiling must be agreed on, and be durable, first.
    #[error("a ceiling of at least {0} is needed first")]
    NeedsCeiling(i64),
    /// The partition takes no batch of this size.
    #[error("{bytes} bytes are more than the {max} that the partition takes in a batch")]
    TooLarge {
        /// The batch's.
        bytes: u32,
        /// What it takes.
        max: u32,
    },
    /// Its bytes are no batch.
    #[error(transparent)]
    NotABatch(#[from] NotABatch),
    /// It does not follow its producer's last.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
    /// No offset or epoch is left.
    #[error("the partition has no offset or leader epoch left")]
    Exhausted,
}

impl Leading {
    /// A leadership whose first entry was applied: it knows all that was agreed on before.
    #[must_use]
    pub fn new(state: &State) -> Self {
        Self { time: state.time(), ..Self::default() }
    }

    /// What was applied is durable up to this log index only. Where that is not all, no ceiling is believed before it is:
    /// another leader may have raised one in good time, and a loss would take it.
    pub fn doubt(&mut self, state: &State, durable: u64) {
        let applied = state.applied();
        if durable >= applied {
            return;
        }
        for (opening, partition) in state.partitions().filter(|(_, of)| of.ceiling().is_some()) {
            // Of no entry of this leadership.
            let (holds, entry, index) = (partition.next(), u64::MAX, Some(applied));
            self.raised.insert(opening, Raised { holds, entry, index });
        }
    }

    /// Stamps a batch for the entry that is being drafted, or says why it may not go in.
    pub fn admit(
        &mut self,
        state: &State,
        opening: Opening,
        batch: &Batch,
    ) -> Result<Admission, Refused> {
        let partition = state.partition(opening).ok_or(Refused::NotHere)?;
        let ahead = self.ahead.get(&opening);
        if ahead.map_or(partition.is_closed(), |ahead| ahead.is_closed) {
            return Err(Refused::NotHere);
        }
        let max = partition.settings().batch_bytes_max;
        if batch.bytes > max {
            return Err(Refused::TooLarge { bytes: batch.bytes, max });
        }
        if let Some(base_offset) = find_repeated(partition, ahead, batch)? {
            return Ok(Admission::Repeated { base_offset });
        }
        let base_offset = ahead.map_or(partition.next(), |ahead| ahead.next);
        let ceiling = self.ceiling(partition, opening);
        let stamped = Batch { base_offset, ..*batch };
        let end = stamped.end().ok_or(Refused::Exhausted)?;
        if ceiling.is_none_or(|ceiling| ceiling < end) {
            return Err(Refused::NeedsCeiling(end));
        }
        let epoch = i32::try_from(partition.epoch(state.turns())).ok();
        let epoch = epoch.ok_or(Refused::Exhausted)?;
        let time = self.time;
        let ahead = self.touch(partition, opening);
        ahead.next = end;
        if let Some(sequenced) = batch.sequenced {
            let known = partition.producer(sequenced.producer);
            ahead.producers.note_after(known, sequenced, &stamped, time);
        }
        Ok(Admission::Stamped { base_offset, epoch })
    }

    /// The first offset of a partition that may not be given away.
    #[must_use]
    pub fn ceiling(&self, partition: &Partition, opening: Opening) -> Option<i64> {
        match self.raised.get(&opening) {
            Some(raised) => Some(raised.holds),
            None => self.ahead.get(&opening).map_or(partition.ceiling(), |ahead| ahead.ceiling),
        }
    }

    /// The offset that the next record of a partition gets.
    #[must_use]
    pub fn next(&self, partition: &Partition, opening: Opening) -> i64 {
        self.ahead.get(&opening).map_or(partition.next(), |ahead| ahead.next)
    }

    /// Notes that the draft raises a partition's ceiling, for batches of this very draft, and returns it:
    /// this one, or a higher one that is on its way. It must be
    /// [made durable](super::Draft::make_durable).
    pub fn raise_at_once(
        &mut self,
        state: &State,
        opening: Opening,
        to: i64,
    ) -> Result<i64, Refused> {
        let partition = state.partition(opening).ok_or(Refused::NotHere)?;
        self.raised.remove(&opening);
        let ahead = self.touch(partition, opening);
        let ceiling = ahead.ceiling.map_or(to, |ceiling| ceiling.max(to));
        ahead.ceiling = Some(ceiling);
        Ok(ceiling)
    }

    /// Notes that the draft raises a partition's ceiling, which holds once it is durable. False if one is
    /// on its way already, or the partition has none: then the draft must not.
    pub fn raise_ahead(
        &mut self,
        state: &State,
        opening: Opening,
        to: i64,
    ) -> Result<bool, Refused> {
        let partition = state.partition(opening).ok_or(Refused::NotHere)?;
        let Some(holds) = self.ceiling(partition, opening) else { return Ok(false) };
        if self.raised.contains_key(&opening) || to <= holds {
            return Ok(false);
        }
        self.touch(partition, opening).ceiling = Some(to);
        self.raised.insert(opening, Raised { holds, entry: self.proposed, index: None });
        self.drafted.raised.push(opening);
        Ok(true)
    }

    /// Whether a partition's ceiling was raised in good time, and does not hold yet.
    #[must_use]
    pub fn is_raised(&self, opening: Opening) -> bool {
        self.raised.contains_key(&opening)
    }

    /// Whether the draft may take a partition's ceiling away: nothing of it is on its way.
    #[must_use]
    pub fn is_idle(&self, opening: Opening) -> bool {
        !self.ahead.contains_key(&opening) && !self.raised.contains_key(&opening)
    }

    /// Notes that the draft takes a partition's ceiling away.
    pub fn lower_ceiling(&mut self, state: &State, opening: Opening) -> Result<(), Refused> {
        let partition = state.partition(opening).ok_or(Refused::NotHere)?;
        debug_assert!(self.is_idle(opening), "what is on its way needs its ceiling");
        self.touch(partition, opening).ceiling = None;
        Ok(())
    }

    /// Notes that with the draft a partition leaves.
    pub fn close(&mut self, state: &State, opening: Opening) -> Result<(), Refused> {
        let partition = state.partition(opening).ok_or(Refused::NotHere)?;
        self.touch(partition, opening).is_closed = true;
        Ok(())
    }

    /// The time for the draft's entry: the clock's, unless that went back.
    pub fn stamp_time(&mut self, clock_ms: u64) -> u64 {
        self.time = self.time.max(clock_ms);
        self.time
    }

    /// The draft was proposed.
    pub fn proposed(&mut self) {
        self.in_flight.push_back(std::mem::take(&mut self.drafted));
        self.proposed += 1;
    }

    /// The oldest entry in flight was applied, with this log index: the state knows it now.
    pub fn applied(&mut self, index: u64) {
        let touched = self.in_flight.pop_front().unwrap_or_default();
        for opening in touched.partitions {
            let ahead = self.ahead.get_mut(&opening).expect("what is in flight is known ahead");
            ahead.entries -= 1;
            if ahead.entries == 0 {
                self.ahead.remove(&opening);
            }
        }
        for opening in touched.raised {
            // Unless one that was needed at once overtook it.
            let raised = self.raised.get_mut(&opening);
            if let Some(raised) = raised.filter(|raised| raised.entry == self.applied) {
                raised.index = Some(index);
            }
        }
        self.applied += 1;
    }

    /// Entries up to this log index are durable.
    pub fn durable(&mut self, index: u64) {
        self.raised.retain(|_, raised| raised.index.is_none_or(|at| at > index));
    }

    /// How many entries are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What is ahead of a partition, noted as touched by the draft.
    fn touch(&mut self, partition: &Partition, opening: Opening) -> &mut Ahead {
        let ahead = self.ahead.entry(opening).or_insert_with(|| Ahead {
            next: partition.next(),
            ceiling: partition.ceiling(),
            is_closed: partition.is_closed(),
            producers: Producers::default(),
            entries: 0,
            last_entry: 0,
        });
        if ahead.entries == 0 || ahead.last_entry != self.proposed {
            self.drafted.partitions.push(opening);
            ahead.entries += 1;
            ahead.last_entry = self.proposed;
        }
        ahead
    }
}

/// The base offset of the batch if it came before, by what is ahead, or else by the state.
fn find_repeated(
    partition: &Partition,
    ahead: Option<&Ahead>,
    batch: &Batch,
) -> Result<Option<i64>, Misplaced> {
    let Some(sequenced) = batch.sequenced else { return Ok(None) };
    let ahead = ahead.and_then(|ahead| ahead.producers.find(sequenced.producer));
    let Some(producer) = ahead.or_else(|| partition.producer(sequenced.producer)) else {
        return Ok(None);
    };
    Ok(match producer.place(sequenced, batch.offsets)? {
        Standing::Next => None,
        Standing::Repeated(base_offset) => Some(base_offset),
    })
}
