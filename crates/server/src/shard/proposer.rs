//! [`Proposer`]: what producers sent, made into entries while the last ones are on their way.
//!
//! Batches wait in a [`Fair`] queue. A draft takes as many as one entry holds, and they are answered
//! when it was applied; a batch that came before is answered with what was drafted last before it. So
//! one entry, and one sync, serve all who sent meanwhile.
//!
//! **Ceilings.** A partition without one is *closed*: its first batch raises one at once, and its entry
//! waits for a sync, which all first batches of the entry share. An open one is raised in good time, by
//! more the faster it is used up. What was idle for [`IDLE_MS`] is closed again, so that a fence leaves it
//! alone.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use super::batch::Batch;
use super::entry::Draft;
use super::fair::Fair;
use super::item::Item;
use super::leading::{Admission, Leading, Refused};
use super::name::Opening;
use super::state::State;

/// After so long without a batch a partition is closed.
pub const IDLE_MS: u64 = 3_600_000;
/// By so many offsets at least a ceiling is raised.
const WIDTH_MIN: i64 = 1 << 10;
/// By so many at most: so many offsets a fence skips, at most twice.
const WIDTH_MAX: i64 = 1 << 24;
/// A ceiling that lasts less is raised by eight times as much next time: the next one holds only once a sync
/// took it along, of which there is one a second, and a disk may be slow.
const LASTS_MS_MIN: u64 = 4_000;
/// One that lasts longer is raised by half as much next time.
const LASTS_MS_MAX: u64 = 64_000;

/// The batches that wait for a shard's leader, and those that are on their way.
#[derive(Debug)]
pub struct Proposer {
    leading: Leading,
    waiting: Fair<Opening, Submission>,
    in_flight: VecDeque<Vec<(u64, Answer)>>,
    open: HashMap<Opening, Pace>,
}

/// A batch that a client sent.
#[derive(Debug, Clone)]
pub struct Submission {
    /// What its answer will name.
    pub ticket: u64,
    /// Who sent it.
    pub connection: u64,
    /// Where it is to go.
    pub opening: Opening,
    /// Its bytes: a whole batch, checked where it came in.
    pub batch: Bytes,
}

/// An entry to agree on.
#[derive(Debug)]
pub struct Proposal {
    /// Its bytes.
    pub bytes: Bytes,
    /// Nothing may be said of it before it is durable.
    pub must_be_durable: bool,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is agreed on.
    Appended {
        /// Offset of its first record.
        base_offset: i64,
        /// When, in ms since 1970.
        time: u64,
    },
    /// It was sent before, and is agreed on.
    Repeated {
        /// Offset of its first record.
        base_offset: i64,
    },
    /// It was not taken.
    Refused(Refused),
    /// Another leads now. If it was proposed, it may be agreed on all the same.
    NotLeader,
}

/// How fast a partition uses up its ceiling.
#[derive(Debug, Clone, Copy)]
struct Pace {
    width: i64,
    raised_ms: u64,
    used_ms: u64,
}

impl Proposer {
    /// Begins a leadership whose first entry was applied. All of that is durable, or [doubted](Self::doubt).
    #[must_use]
    pub fn new(state: &State, clock_ms: u64) -> Self {
        let is_open = |(opening, partition): (Opening, &super::Partition)| {
            partition.ceiling().map(|_| (opening, Pace::new(clock_ms)))
        };
        Self {
            leading: Leading::new(state),
            waiting: Fair::new(),
            in_flight: VecDeque::new(),
            open: state.partitions().filter_map(is_open).collect(),
        }
    }

    /// What was applied is durable up to this log index only: until it is, first batches raise their ceilings at once.
    pub fn doubt(&mut self, state: &State, durable: u64) {
        self.leading.doubt(state, durable);
    }

    /// Lets a batch wait for the next entry.
    pub fn submit(&mut self, submission: Submission) {
        let (connection, opening) = (submission.connection, submission.opening);
        self.waiting.push(connection, opening, submission.batch.len(), submission);
    }

    /// How many bytes of batches wait.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.bytes()
    }

    /// How many entries are on their way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Makes an entry of what waits, and answers what is not taken. `None` if nothing is to be agreed on.
    pub fn draft(
        &mut self,
        state: &State,
        clock_ms: u64,
        answers: &mut Vec<(u64, Answer)>,
    ) -> Option<Proposal> {
        let mut draft = Draft::new();
        let mut promised = Vec::new();
        let time = self.leading.stamp_time(clock_ms);
        while let Some((_, submission)) = self.waiting.pop_if(|bytes, _| draft.has_room(bytes)) {
            let ticket = submission.ticket;
            match self.take(state, &mut draft, time, &submission) {
                Ok(Admission::Stamped { base_offset, .. }) => {
                    promised.push((ticket, Answer::Appended { base_offset, time }));
                }
                Ok(Admission::Repeated { base_offset }) => {
                    promised.push((ticket, Answer::Repeated { base_offset }));
                }
                Err(refused) => answers.push((ticket, Answer::Refused(refused))),
            }
        }
        self.propose(draft, time, promised, answers)
    }

    /// Makes an entry of acts that are not of producers: all but batches and ceilings.
    ///
    /// Whether they fit is for the caller to know: an act on a partition that is not there stops the
    /// shard.
    pub fn act(&mut self, state: &State, clock_ms: u64, items: &[Item<'_>]) -> Option<Proposal> {
        let mut draft = Draft::new();
        let time = self.leading.stamp_time(clock_ms);
        for item in items {
            if let Item::Close { opening } = item {
                self.open.remove(opening);
                // Where it is not, the shard stops; here there is nothing to note.
                self.leading.close(state, *opening).ok();
            }
            draft.push(item);
        }
        self.propose(draft, time, Vec::new(), &mut Vec::new())
    }

    /// Makes an entry that closes the partitions which were idle. `None` if none was.
    pub fn close_idle(&mut self, state: &State, clock_ms: u64) -> Option<Proposal> {
        let mut draft = Draft::new();
        let time = self.leading.stamp_time(clock_ms);
        let is_old = |pace: &Pace| time.saturating_sub(pace.used_ms) >= IDLE_MS;
        let mut idle: Vec<Opening> = self
            .open
            .iter()
            .filter(|(opening, pace)| is_old(pace) && self.leading.is_idle(**opening))
            .map(|(opening, _)| *opening)
            .collect();
        idle.sort_unstable();
        for opening in idle {
            if !draft.has_room(0) {
                break;
            }
            self.open.remove(&opening);
            if self.leading.lower_ceiling(state, opening).is_ok() {
                draft.push(&Item::Ceiling { opening, ceiling: None });
            }
        }
        self.propose(draft, time, Vec::new(), &mut Vec::new())
    }

    /// The oldest entry on its way was applied, with this log index.
    pub fn applied(&mut self, index: u64, answers: &mut Vec<(u64, Answer)>) {
        self.leading.applied(index);
        answers.extend(self.in_flight.pop_front().into_iter().flatten());
    }

    /// Entries up to this log index are durable.
    pub fn durable(&mut self, index: u64) {
        self.leading.durable(index);
    }

    /// Answers all that waits, and all that is on its way: another leads now.
    pub fn resign(mut self, answers: &mut Vec<(u64, Answer)>) {
        let in_flight = self.in_flight.into_iter().flatten();
        answers.extend(in_flight.map(|(ticket, _)| (ticket, Answer::NotLeader)));
        // Whatever its size, it has room among answers.
        while let Some((_, submission)) = self.waiting.pop_if(|_, _| true) {
            answers.push((submission.ticket, Answer::NotLeader));
        }
    }

    /// Puts a batch into the draft, with the ceilings that it needs.
    fn take(
        &mut self,
        state: &State,
        draft: &mut Draft,
        time: u64,
        submission: &Submission,
    ) -> Result<Admission, Refused> {
        let opening = submission.opening;
        let batch = Batch::read(&submission.batch)?;
        let mut admission = self.leading.admit(state, opening, &batch);
        if let Err(Refused::NeedsCeiling(end)) = admission {
            let ceiling = end.saturating_add(self.widen(opening, time));
            let ceiling = self.leading.raise_at_once(state, opening, ceiling)?;
            draft.push(&Item::Ceiling { opening, ceiling: Some(ceiling) });
            draft.make_durable();
            admission = self.leading.admit(state, opening, &batch);
        }
        if let Ok(Admission::Stamped { base_offset, epoch }) = admission {
            draft.push_batch(opening, base_offset, epoch, &submission.batch);
            self.raise_in_time(state, draft, time, opening)?;
        }
        admission
    }

    /// Raises the ceiling of a partition that has used up half of it.
    fn raise_in_time(
        &mut self,
        state: &State,
        draft: &mut Draft,
        time: u64,
        opening: Opening,
    ) -> Result<(), Refused> {
        let pace = self.open.entry(opening).or_insert_with(|| Pace::new(time));
        pace.used_ms = time;
        let width = pace.width;
        let partition = state.partition(opening).ok_or(Refused::NotHere)?;
        let next = self.leading.next(partition, opening);
        let left = self.leading.ceiling(partition, opening).unwrap_or(next) - next;
        if left >= width / 2 || self.leading.is_raised(opening) {
            return Ok(());
        }
        let ceiling = next.saturating_add(self.widen(opening, time));
        if self.leading.raise_ahead(state, opening, ceiling)? {
            draft.push(&Item::Ceiling { opening, ceiling: Some(ceiling) });
        }
        Ok(())
    }

    /// By how much a ceiling is raised now.
    fn widen(&mut self, opening: Opening, time: u64) -> i64 {
        let Some(pace) = self.open.get_mut(&opening) else {
            self.open.insert(opening, Pace::new(time));
            return WIDTH_MIN;
        };
        match time.saturating_sub(pace.raised_ms) {
            ..LASTS_MS_MIN => pace.width = (8 * pace.width).min(WIDTH_MAX),
            LASTS_MS_MAX.. => pace.width = (pace.width / 2).max(WIDTH_MIN),
            _ => {}
        }
        pace.raised_ms = time;
        pace.width
    }

    fn propose(
        &mut self,
        draft: Draft,
        time: u64,
        promised: Vec<(u64, Answer)>,
        answers: &mut Vec<(u64, Answer)>,
    ) -> Option<Proposal> {
        if draft.is_empty() {
            // What was sent before is agreed on with the last entry, if one is on its way.
            match self.in_flight.back_mut() {
                Some(last) => last.extend(promised),
                None => answers.extend(promised),
            }
            return None;
        }
        self.in_flight.push_back(promised);
        self.leading.proposed();
        let must_be_durable = draft.must_be_durable();
        Some(Proposal { bytes: draft.finish(time), must_be_durable })
    }
}

impl Pace {
    /// Of a partition that was raised just now.
    fn new(time: u64) -> Self {
        Self { width: WIDTH_MIN, raised_ms: time, used_ms: time }
    }
}
