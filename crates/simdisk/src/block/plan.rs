//! Which states of a trace to visit, and how many there would be.
//!
//! A third of them are flush boundaries: just before a flush is answered, when all that it should save
//! is still in danger and all that rests on the one before has been said, and just after. Half of the
//! rest is every combination of pending writes where those are few, and half is drawn: points behind
//! the first mark, and losses that keep some of what was pending and not all, or tear it. What one
//! kind has no use for the next has.
//!
//! Invariants: no sample is the disk of another one with the same marks; where modes are asked for,
//! there are no states of others.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::event::Event;
use super::points::Points;
use super::states::{Fate, Loss, Mode, State, Toll};
use super::timeline::Timeline;

/// What can be asked for, by name.
const MODES: [&str; 4] = ["durable", "arrived", "subset", "torn"];
/// Of these are samples if nothing is asked for.
const MODES_USUAL: [&str; 3] = ["arrived", "subset", "torn"];
/// After so many draws in a row that are nothing new there is hardly anything new.
const MISSES_MAX: usize = 1000;

/// What to visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// So many states at most; fewer where there are hardly any more that differ.
    pub states: usize,
    /// Only these modes, of `durable`, `arrived`, `subset`, `torn`; if empty, what finds most.
    pub modes: Vec<String>,
    /// What tears, in bytes.
    pub tear_bytes: u32,
    /// All combinations where at most so many writes are pending.
    pub exhaustive_writes: u32,
    /// Seed of all choices.
    pub seed: u64,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { states: 2000, modes: vec![], tear_bytes: 4096, exhaustive_writes: 6, seed: 1 }
    }
}

impl Wanted {
    /// What cannot be asked for.
    pub fn check(&self) -> Result<(), String> {
        if let Some(mode) = self.modes.iter().find(|mode| !MODES.contains(&mode.as_str())) {
            return Err(format!("'{mode}' is not one of {}", MODES.join(", ")));
        }
        if !self.tear_bytes.is_power_of_two() || !(512..=1 << 20).contains(&self.tear_bytes) {
            return Err("what tears is a power of two from 512 to 1048576".to_owned());
        }
        if self.exhaustive_writes > 12 {
            return Err("of more than 12 writes there are too many combinations".to_owned());
        }
        Ok(())
    }

    fn takes(&self, mode: &str) -> bool {
        self.modes.is_empty() || self.modes.iter().any(|asked| asked == mode)
    }
}

/// States to visit, in the order of their points.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The states.
    pub states: Vec<State>,
    /// What they cover.
    pub coverage: Coverage,
    /// Flushes there are.
    flushes: usize,
    /// Flushes whose boundary is in it.
    boundaries: Vec<usize>,
    /// Flushes before which every combination of the pending writes is in it.
    exhaustive: Vec<usize>,
    /// Of each state, whether it came by its point and seed alone.
    is_sample: Vec<bool>,
}

/// How much of what there is a plan visits, or those of its states that were visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Flushes whose boundary is visited.
    pub boundaries: usize,
    /// Flushes that there are.
    pub flushes: usize,
    /// Flushes before which every combination of the pending writes is visited: whether each of them is
    /// there or not.
    pub exhaustive: usize,
    /// States at random points.
    pub samples: usize,
}

impl Plan {
    /// Chooses.
    #[must_use]
    pub fn new(events: &[Event], timeline: &Timeline, wanted: &Wanted) -> Self {
        let mut draft = Draft::new(events, timeline, wanted);
        draft.end();
        draft.boundaries(wanted.states / 3);
        draft.combinations();
        draft.samples();
        // Where there is nothing to draw.
        draft.boundaries(wanted.states);
        draft.other_points();
        let Draft { states, samples, flushes, boundaries, exhaustive, .. } = draft;
        let is_sample = states.iter().map(|state| samples.contains(state)).collect();
        let states: Vec<State> = states.into_iter().collect();
        let flushes = flushes.len();
        let coverage = Coverage::default();
        let mut plan = Self { states, coverage, flushes, boundaries, exhaustive, is_sample };
        plan.coverage = plan.covered(|_number| true);
        plan
    }

    /// What those of its states cover that were visited, by their numbers in it.
    #[must_use]
    pub fn covered(&self, is_visited: impl Fn(usize) -> bool) -> Coverage {
        let is_there =
            |point, mode| self.states.binary_search(&State { point, mode }).is_ok_and(&is_visited);
        let is_passed =
            |&&flush: &&usize| is_there(flush, Mode::Durable) && is_there(flush + 1, Mode::Durable);
        let is_exhausted = |&&flush: &&usize| {
            let first = self.states.partition_point(|state| state.point < flush);
            let there = self.states[first..].iter().take_while(|state| state.point == flush);
            let is_asked = |state: &State| matches!(state.mode, Mode::Durable | Mode::Without(_));
            (first..).zip(there).all(|(number, state)| !is_asked(state) || is_visited(number))
        };
        let samples = self.is_sample.iter().enumerate().filter(|(_, is_sample)| **is_sample);
        Coverage {
            boundaries: self.boundaries.iter().filter(is_passed).count(),
            flushes: self.flushes,
            exhaustive: self.exhaustive.iter().filter(is_exhausted).count(),
            samples: samples.filter(|(number, _)| is_visited(*number)).count(),
        }
    }
}

/// A plan that is being made.
struct Draft<'a> {
    events: &'a [Event],
    timeline: &'a Timeline,
    wanted: &'a Wanted,
    rng: Pcg64Mcg,
    points: Points,
    /// The first point with a mark before it; beyond the end if there is none.
    marked: usize,
    /// In the order in which they are taken: those behind the first mark first.
    flushes: Vec<usize>,
    /// How many of them were taken.
    taken: usize,
    states: BTreeSet<State>,
    samples: BTreeSet<State>,
    boundaries: Vec<usize>,
    exhaustive: Vec<usize>,
    /// Disks and marks, as hashes.
    seen: HashSet<u64>,
}

impl<'a> Draft<'a> {
    fn new(events: &'a [Event], timeline: &'a Timeline, wanted: &'a Wanted) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(wanted.seed);
        let marks = timeline.marks(events.len());
        let marked = marks.first().map_or(events.len(), |(index, _)| *index) + 1;
        let mut flushes = timeline.flushes().to_vec();
        flushes.shuffle(&mut rng);
        flushes.sort_by_key(|flush| *flush < marked);
        Self {
            events,
            timeline,
            wanted,
            rng,
            points: Points::of(events, timeline, wanted.tear_bytes),
            marked,
            flushes,
            taken: 0,
            states: BTreeSet::new(),
            samples: BTreeSet::new(),
            boundaries: Vec::new(),
            exhaustive: Vec::new(),
            seen: HashSet::new(),
        }
    }

    fn end(&mut self) {
        let point = self.events.len();
        for (name, mode) in [("durable", Mode::Durable), ("arrived", Mode::Arrived)] {
            if self.wanted.takes(name) && self.states.len() < self.wanted.states {
                self.insert(State { point, mode });
            }
        }
    }

    fn boundaries(&mut self, limit: usize) {
        // Two for each.
        while self.wanted.takes("durable")
            && self.states.len() + 1 < limit
            && let Some(&flush) = self.flushes.get(self.taken)
        {
            self.taken += 1;
            self.insert(State { point: flush, mode: Mode::Durable });
            self.insert(State { point: flush + 1, mode: Mode::Durable });
            self.boundaries.push(flush);
            if self.timeline.pending(flush).is_empty() {
                self.exhaustive.push(flush);
            }
        }
    }

    /// Takes half of the room that is left.
    fn combinations(&mut self) {
        if !self.wanted.takes("subset") {
            return;
        }
        // If there are no boundaries; if there are, that all are lost is one.
        let all_lost = usize::from(!self.wanted.takes("durable"));
        let room = self.states.len() + self.wanted.states.saturating_sub(self.states.len()) / 2;
        for flush in self.flushes.clone() {
            let is_boundary = self.states.contains(&State { point: flush, mode: Mode::Durable });
            let pending = self.timeline.pending(flush);
            let few = 1..=self.wanted.exhaustive_writes as usize;
            // Of one write before any mark there is nothing to learn that its boundary does not say.
            let is_telling = pending.len() > 1 || flush >= self.marked || all_lost == 1;
            if !(is_boundary || all_lost == 1) || !few.contains(&pending.len()) || !is_telling {
                continue;
            }
            let count = (1_usize << pending.len()) - 1 + all_lost;
            if self.states.len() + count <= room {
                for mask in 0..count {
                    let mode = Mode::Without(chosen(&pending, mask));
                    self.insert(State { point: flush, mode });
                }
                self.exhaustive.push(flush);
            }
        }
    }

    /// Takes all room that is left, or all that there is.
    fn samples(&mut self) {
        let modes: Vec<&str> = match self.wanted.modes.as_slice() {
            // To keep all of it is worth a visit where something was promised.
            [] if self.marked > self.events.len() => vec!["subset", "torn"],
            [] => MODES_USUAL.to_vec(),
            asked => asked.iter().map(String::as_str).collect(),
        };
        let mut misses = 0;
        while self.states.len() < self.wanted.states && misses < MISSES_MAX {
            misses += 1;
            let seed = u64::from(self.rng.random::<u32>());
            let mode = match modes[self.rng.random_range(0..modes.len())] {
                "durable" => Mode::Durable,
                "arrived" => Mode::Arrived,
                "subset" => Mode::Subset { seed },
                _ => Mode::Torn { seed, tear_bytes: self.wanted.tear_bytes },
            };
            let Some(point) = self.point(&mode) else { continue };
            if self.sample(State { point, mode }) {
                misses = 0;
            }
        }
    }

    /// Where a mode may do what its name says; mostly behind the first mark.
    fn point(&mut self, mode: &Mode) -> Option<usize> {
        let points = match mode {
            Mode::Torn { .. } => &self.points.tearable,
            Mode::Subset { .. } => &self.points.several,
            _ => &self.points.pending,
        };
        let behind = &points[points.partition_point(|&point| point < self.marked)..];
        let is_blunt = matches!(mode, Mode::Durable | Mode::Arrived);
        let is_behind = !behind.is_empty() && (is_blunt || self.rng.random_ratio(3, 4));
        if is_behind { behind } else { points }.choose(&mut self.rng).copied()
    }

    /// All points, also those where nothing is pending or promised.
    fn other_points(&mut self) {
        let mut modes = Vec::new();
        modes.extend(self.wanted.takes("durable").then_some(Mode::Durable));
        modes.extend(self.wanted.takes("arrived").then_some(Mode::Arrived));
        let mut misses = 0;
        while self.states.len() < self.wanted.states && misses < MISSES_MAX {
            let point = self.rng.random_range(0..=self.events.len());
            let Some(mode) = modes.choose(&mut self.rng).cloned() else { return };
            let is_new = self.sample(State { point, mode });
            misses = if is_new { 0 } else { misses + 1 };
        }
    }

    /// Whether it does what its mode says, and is not there under another name.
    fn sample(&mut self, state: State) -> bool {
        let (toll, key) = self.look(&state);
        let does = match state.mode {
            Mode::Subset { .. } => toll.is_mixed(),
            Mode::Torn { .. } => toll.torn > 0,
            _ => true,
        };
        let is_new = does && self.seen.insert(key) && self.states.insert(state.clone());
        if is_new {
            self.samples.insert(state);
        }
        is_new
    }

    fn insert(&mut self, state: State) {
        let (_, key) = self.look(&state);
        self.seen.insert(key);
        self.states.insert(state);
    }

    /// What became of what was pending; and a hash of all that the disk and its marks depend on.
    fn look(&self, state: &State) -> (Toll, u64) {
        let mut fates = state.fates(self.events, self.timeline);
        let toll = Toll::of(&fates);
        fates.retain(|survivor| survivor.fate != Fate::Lost);
        let durable = self.timeline.durable().partition_point(|(index, _)| *index < state.point);
        let mut hasher = DefaultHasher::new();
        (durable, self.timeline.marks(state.point).len(), fates).hash(&mut hasher);
        (toll, hasher.finish())
    }
}

/// Those of the pending writes whose bits are set, as losses.
fn chosen(pending: &[u32], mask: usize) -> Vec<Loss> {
    let is_chosen = |&(bit, _): &(usize, &u32)| mask & (1 << bit) != 0;
    let chosen = pending.iter().enumerate().filter(is_chosen);
    chosen.map(|(_, &request)| Loss { request, bytes: None }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::event::{End, Event};
    use super::super::timeline::Belief;
    use super::*;

    /// So many epochs of three writes and a flush.
    fn events(epochs: u32) -> Vec<Event> {
        let mut events = Vec::new();
        for request in (0..epochs * 4).step_by(4) {
            for number in 0..3 {
                let byte_offset = u64::from(number) * 4096;
                events.push(Event::Write { byte_offset, bytes: Arc::from([1; 4096]) });
                events.push(Event::Ended { request: request + number, end: End::Done });
            }
            events.push(Event::Flush);
            events.push(Event::Ended { request: request + 3, end: End::Done });
        }
        events
    }

    fn of(events: &[Event], wanted: &Wanted) -> Plan {
        Plan::new(events, &Timeline::of(events, Belief::default()), wanted)
    }

    fn plan(epochs: u32, wanted: &Wanted) -> Plan {
        of(&events(epochs), wanted)
    }

    /// How many states have a mark and pending writes, or keep a part of what was pending.
    fn telling(events: &[Event], plan: &Plan) -> usize {
        let timeline = Timeline::of(events, Belief::default());
        let is_telling = |state: &&State| {
            let pending = !timeline.pending(state.point).is_empty();
            let promised = pending && !timeline.marks(state.point).is_empty();
            promised || Toll::of(&state.fates(events, &timeline)).is_mixed()
        };
        plan.states.iter().filter(is_telling).count()
    }

    #[test]
    fn boundaries_leave_room_for_combinations_and_samples() {
        let small = plan(50, &Wanted { states: 60, ..Wanted::default() });
        assert!((9..12).contains(&small.coverage.boundaries), "{:?}", small.coverage);
        assert!(small.coverage.exhaustive > 0 && small.coverage.samples >= 20);
        let large = plan(50, &Wanted { states: 2000, ..Wanted::default() });
        assert_eq!(large.coverage.boundaries, 50);
        assert_eq!(large.coverage.exhaustive, 50, "8 combinations of 50 fit in half of the rest");
        assert_eq!(large.states.len(), 50 * 9 + 1, "and with those after each flush that is all");
        assert!(large.states.is_sorted());
    }

    /// 299 of 300 states lost all that was pending, and 94 of 100 came before the first mark.
    #[test]
    fn half_of_the_states_could_break_a_promise_or_keep_a_part() {
        let mut marked = events(100);
        marked.truncate(8 * 90);
        for request in (0..80).step_by(4) {
            let mark = Event::Mark(Arc::from("row"));
            marked.push(mark);
            let bytes = Arc::from([1; 8192]);
            marked.push(Event::Write { byte_offset: 4096, bytes });
            marked.push(Event::Write { byte_offset: 0, bytes: Arc::from([2; 512]) });
            marked.push(Event::Flush);
            let first = 360 + request / 4 * 3;
            let ended = |request| Event::Ended { request, end: End::Done };
            marked.extend([ended(first), ended(first + 1), ended(first + 2)]);
        }
        let unmarked: Vec<_> =
            marked.iter().filter(|event| !matches!(event, Event::Mark(_))).cloned().collect();
        for states in [60, 100, 300] {
            for events in [&marked, &unmarked] {
                let plan = of(events, &Wanted { states, ..Wanted::default() });
                let telling = telling(events, &plan);
                assert!(telling * 2 >= states, "{telling} of {states}");
                let torn = |state: &&State| matches!(state.mode, Mode::Torn { .. });
                assert!(plan.states.iter().any(|state| torn(&state)), "of {states}");
            }
        }
    }

    /// `--modes torn` visited boundaries, and among its samples those that tear nothing.
    #[test]
    fn a_mode_that_is_asked_for_is_all_there_is() {
        let mut events = events(5);
        for modes in [vec!["torn"], vec!["subset"], vec!["arrived", "torn"], vec!["durable"]] {
            let asked = modes.iter().map(|&mode| mode.to_owned()).collect();
            let plan = of(&events, &Wanted { states: 40, modes: asked, ..Wanted::default() });
            for state in &plan.states {
                let text = state.to_string().replace("without", "subset");
                assert!(modes.iter().any(|mode| text.contains(mode)), "{text} of {modes:?}");
            }
            // No write of these is longer than what tears.
            assert_eq!(plan.states.is_empty(), modes == ["torn"], "{modes:?}");
        }
        events.push(Event::Write { byte_offset: 0, bytes: Arc::from([3; 4 * 4096]) });
        let modes = vec!["torn".to_owned()];
        let plan = of(&events, &Wanted { states: 9, modes, ..Wanted::default() });
        let timeline = Timeline::of(&events, Belief::default());
        let tears = |state: &State| Toll::of(&state.fates(&events, &timeline)).torn == 1;
        assert!(plan.states.len() == 9 && plan.states.iter().all(tears), "{:?}", plan.states);
    }

    #[test]
    fn what_is_one_disk_with_one_promise_is_not_drawn_twice() {
        assert_eq!(of(&[], &Wanted::default()).states.len(), 2, "nothing was ever written");
        let events =
            [Event::Write { byte_offset: 0, bytes: Arc::from([1; 512]) }, Event::Mark("1".into())];
        let plan = of(&events, &Wanted::default());
        let timeline = Timeline::of(&events, Belief::default());
        let disk = |state: &State| {
            let there = Toll::of(&state.fates(&events, &timeline)).kept;
            (there, timeline.marks(state.point).len())
        };
        let disks: BTreeSet<_> = plan.states.iter().map(disk).collect();
        assert_eq!((disks.len(), plan.states.len()), (4, 4), "{:?}", plan.states);
    }

    /// The last boundary had two states where there was room for one: 201 of 200.
    #[test]
    fn no_more_states_are_planned_than_were_asked_for() {
        for states in 1..60 {
            let plan = plan(20, &Wanted { states, ..Wanted::default() });
            assert_eq!(plan.states.len(), states);
        }
        let small = Wanted { states: 7, modes: vec!["durable".to_owned()], ..Wanted::default() };
        assert_eq!(plan(20, &small).states.len(), 7);
    }

    #[test]
    fn few_pending_writes_are_lost_in_every_combination() {
        let wanted = Wanted { states: 100, ..Wanted::default() };
        let plan = plan(1, &wanted);
        let before_flush = |state: &&State| state.point == 7;
        let of: Vec<_> = plan.states.iter().filter(before_flush).collect();
        let without = of.iter().filter(|state| matches!(state.mode, Mode::Without(_))).count();
        assert_eq!(without, 7);
        assert!(of.iter().any(|state| state.mode == Mode::Durable));
    }

    #[test]
    fn of_a_part_of_a_plan_less_is_covered() {
        let mut events = events(50);
        // More are pending at its end than are tried in every combination.
        let write = Event::Write { byte_offset: 0, bytes: Arc::from([1; 512]) };
        events.extend(vec![write; 20]);
        let plan = of(&events, &Wanted { states: 1000, ..Wanted::default() });
        assert_eq!(plan.covered(|_| false), Coverage { flushes: 50, ..Coverage::default() });
        let half = plan.covered(|number| plan.states[number].point <= 200);
        assert!((20..30).contains(&half.boundaries), "{half:?}");
        assert!((20..30).contains(&half.exhaustive), "{half:?}");
        assert!(half.samples < plan.coverage.samples, "{half:?}");
        // One of the combinations before the first flush was not visited, nor all of them lost.
        for mode in [Mode::Durable, Mode::Without(vec![])] {
            let left = State { point: 7, mode };
            let some = plan.covered(|number| plan.states[number] != left);
            assert_eq!(some.exhaustive, 49, "{left}");
        }
    }

    /// Where nothing is pending nothing needs room, and it counted though it was not visited.
    #[test]
    fn a_flush_without_pending_writes_counts_if_its_boundary_is_visited() {
        let events: Vec<_> = (0..50)
            .flat_map(|request| [Event::Flush, Event::Ended { request, end: End::Done }])
            .collect();
        let plan = of(&events, &Wanted { states: 20, ..Wanted::default() });
        assert!(plan.coverage.boundaries < 50);
        assert_eq!(plan.coverage.exhaustive, plan.coverage.boundaries);
    }

    #[test]
    fn one_seed_makes_one_plan() {
        let of = |seed| plan(50, &Wanted { states: 99, seed, ..Wanted::default() }).states;
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn what_cannot_be_asked_for_is_said() {
        let wrong = |wanted: Wanted| wanted.check().unwrap_err();
        let modes = vec!["half".to_owned()];
        assert!(wrong(Wanted { modes, ..Wanted::default() }).contains("subset"));
        assert!(wrong(Wanted { tear_bytes: 100, ..Wanted::default() }).contains("512"));
        assert!(Wanted::default().check().is_ok());
    }
}
