//! Which states of a trace to visit, and how many there would be.
//!
//! First every flush boundary: just before a flush is answered, when all that it should save is still
//! in danger and all that rests on the one before has been said, and just after. Then every
//! combination of pending writes where those are few. Then points and seeds at random.

use std::collections::BTreeSet;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::states::{Loss, Mode, State};
use super::timeline::Timeline;

/// Modes that samples are drawn from, by name.
const MODES: [&str; 4] = ["durable", "arrived", "subset", "torn"];

/// What to visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// About so many states; the boundaries come first, and more are not left out but said.
    pub states: usize,
    /// Modes of the samples: of `durable`, `arrived`, `subset`, `torn`.
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
        Self {
            states: 2000,
            modes: ["arrived", "subset", "torn"].map(str::to_owned).to_vec(),
            tear_bytes: 4096,
            exhaustive_writes: 6,
            seed: 1,
        }
    }
}

impl Wanted {
    /// What cannot be asked for.
    pub fn check(&self) -> Result<(), String> {
        if let Some(mode) = self.modes.iter().find(|mode| !MODES.contains(&mode.as_str())) {
            return Err(format!("'{mode}' is not one of {}", MODES.join(", ")));
        }
        if self.modes.is_empty() {
            return Err("without modes there are no samples".to_owned());
        }
        if !self.tear_bytes.is_power_of_two() || !(512..=1 << 20).contains(&self.tear_bytes) {
            return Err("what tears is a power of two from 512 to 1048576".to_owned());
        }
        if self.exhaustive_writes > 12 {
            return Err("of more than 12 writes there are too many combinations".to_owned());
        }
        Ok(())
    }
}

/// States to visit, in the order of their points.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The states.
    pub states: Vec<State>,
    /// What they cover.
    pub coverage: Coverage,
}

/// How much of what there is a plan visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Flushes whose boundary is visited.
    pub boundaries: usize,
    /// Flushes that there are.
    pub flushes: usize,
    /// Flushes before which every combination of the pending writes is visited.
    pub exhaustive: usize,
    /// States at random points.
    pub samples: usize,
}

impl Plan {
    /// Chooses. `events` is how many there are.
    #[must_use]
    pub fn new(events: usize, timeline: &Timeline, wanted: &Wanted) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(wanted.seed);
        let mut states = BTreeSet::new();
        let mut coverage = Coverage { flushes: timeline.flushes().len(), ..Coverage::default() };
        let mut flushes = timeline.flushes().to_vec();
        flushes.shuffle(&mut rng);
        states.insert(State { point: events, mode: Mode::Durable });
        states.insert(State { point: events, mode: Mode::Arrived });
        for &flush in &flushes {
            if states.len() >= wanted.states {
                break;
            }
            states.insert(State { point: flush, mode: Mode::Durable });
            states.insert(State { point: flush + 1, mode: Mode::Durable });
            coverage.boundaries += 1;
        }
        // Half of what is left for the combinations, half for the samples.
        let room = states.len() + wanted.states.saturating_sub(states.len()) / 2;
        for &flush in &flushes {
            let pending = timeline.pending(flush);
            let few = pending.len() <= wanted.exhaustive_writes as usize;
            if few && states.len() + (1 << pending.len()) <= room + 1 {
                combinations(flush, &pending, &mut states);
                coverage.exhaustive += 1;
            }
        }
        let mut attempts = 0;
        while states.len() < wanted.states && attempts < 4 * wanted.states && events > 0 {
            attempts += 1;
            let point = rng.random_range(1..=events);
            let seed = u64::from(rng.random::<u32>());
            let mode = match wanted.modes[rng.random_range(0..wanted.modes.len())].as_str() {
                "durable" => Mode::Durable,
                "arrived" => Mode::Arrived,
                "subset" => Mode::Subset { seed },
                _ => Mode::Torn { seed, tear_bytes: wanted.tear_bytes },
            };
            coverage.samples += usize::from(states.insert(State { point, mode }));
        }
        Self { states: states.into_iter().collect(), coverage }
    }
}

/// Every subset but the one of all, which is [`Mode::Durable`] and a boundary.
fn combinations(point: usize, pending: &[u32], states: &mut BTreeSet<State>) {
    for mask in 0..(1_u32 << pending.len()) - 1 {
        let lost = |&(bit, _): &(usize, &u32)| mask & (1 << bit) != 0;
        let losses = pending.iter().enumerate().filter(lost);
        let losses = losses.map(|(_, &request)| Loss { request, bytes: None }).collect();
        states.insert(State { point, mode: Mode::Without(losses) });
    }
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

    fn plan(epochs: u32, wanted: &Wanted) -> Plan {
        let events = events(epochs);
        Plan::new(events.len(), &Timeline::of(&events, Belief::default()), wanted)
    }

    #[test]
    fn every_boundary_comes_before_any_sample() {
        let small = plan(50, &Wanted { states: 60, ..Wanted::default() });
        assert_eq!(small.coverage.samples, 0);
        assert!(small.coverage.boundaries < 50 && small.coverage.flushes == 50);
        let large = plan(50, &Wanted { states: 2000, ..Wanted::default() });
        assert_eq!(large.coverage.boundaries, 50);
        assert_eq!(large.coverage.exhaustive, 50, "8 combinations of 50 fit in half of the rest");
        assert_eq!(large.states.len(), 2000);
        assert!(large.states.is_sorted());
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
    fn one_seed_makes_one_plan() {
        let of = |seed| plan(9, &Wanted { seed, ..Wanted::default() }).states;
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
