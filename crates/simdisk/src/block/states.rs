//! What a power cut may leave: a point of a trace, a mode and a seed. The same three give the same
//! disk, byte for byte.
//!
//! Invariants: what is durable at the point is in every state of it; what had not arrived is in none;
//! a sector holds what one of these left there. In which share pending writes survive is drawn
//! first, from none to all: of a hundred coins all heads would never be seen.

use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::event::Event;
use super::platter::Platter;
use super::timeline::{Belief, Timeline};
use super::trace::Trace;

/// What a power cut may leave of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// So many events had happened.
    pub point: usize,
    /// What became of the writes that were pending.
    pub mode: Mode,
}

/// What became of the writes that were pending.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// All lost.
    Durable,
    /// All there but what failed: the kernel died, not the disk.
    Arrived,
    /// Each is there or not, as the seed says.
    Subset {
        /// Chooses.
        seed: u64,
    },
    /// Each is there, or not, or in parts.
    Torn {
        /// Chooses.
        seed: u64,
        /// Parts of so many bytes, at multiples of it, are whole.
        tear_bytes: u32,
    },
    /// All there but these.
    Without(Vec<Loss>),
}

/// A write that is missing, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loss {
    /// The number of the request.
    pub request: u32,
    /// Which of its bytes, counted from its first, the end excluded; all if `None`.
    pub bytes: Option<(u32, u32)>,
}

/// What is left of a write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fate {
    /// All of it.
    Whole,
    /// Nothing.
    Lost,
    /// These parts, as bytes from its first.
    Parts(Vec<Range<u32>>),
}

/// A pending request and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Survivor {
    /// Its number.
    pub request: u32,
    /// What is left.
    pub fate: Fate,
}

/// How many pending writes fared how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Toll {
    /// All of them is gone.
    pub lost: usize,
    /// All of them is there.
    pub kept: usize,
    /// A part of them is there.
    pub torn: usize,
}

impl Toll {
    /// Of one state.
    #[must_use]
    pub fn of(survivors: &[Survivor]) -> Self {
        let mut toll = Self::default();
        for survivor in survivors {
            match survivor.fate {
                Fate::Lost => toll.lost += 1,
                Fate::Whole => toll.kept += 1,
                Fate::Parts(_) => toll.torn += 1,
            }
        }
        toll
    }

    /// Whether a part of what was pending survived, and another did not.
    #[must_use]
    pub fn is_mixed(self) -> bool {
        self.torn > 0 || self.lost > 0 && self.kept > 0
    }
}

impl State {
    /// What became of each write that was pending at the point, as they arrived.
    #[must_use]
    pub fn fates(&self, events: &[Event], timeline: &Timeline) -> Vec<Survivor> {
        let pending = timeline.pending(self.point);
        let with = |fate: &dyn Fn(u32) -> Fate| -> Vec<Survivor> {
            pending.iter().map(|&request| Survivor { request, fate: fate(request) }).collect()
        };
        match &self.mode {
            Mode::Durable => with(&|_| Fate::Lost),
            Mode::Arrived => with(&|request| {
                let failed = timeline.requests()[request as usize].has_failed();
                if failed { Fate::Lost } else { Fate::Whole }
            }),
            Mode::Subset { seed } => {
                let mut chooser = Chooser::new(*seed);
                let mut fate = || if chooser.survives() { Fate::Whole } else { Fate::Lost };
                pending.iter().map(|&request| Survivor { request, fate: fate() }).collect()
            }
            Mode::Torn { seed, tear_bytes } => {
                let mut chooser = Chooser::new(*seed);
                let mut fate = |request| {
                    let arrived = timeline.requests()[request as usize].arrived;
                    chooser.tear(&events[arrived], *tear_bytes)
                };
                pending.iter().map(|&request| Survivor { request, fate: fate(request) }).collect()
            }
            Mode::Without(losses) => with(&|request| {
                let of = losses.iter().filter(|loss| loss.request == request);
                let arrived = timeline.requests()[request as usize].arrived;
                without(&events[arrived], of)
            }),
        }
    }

    /// Puts what survived on a platter that holds what was durable at the point, and says how much.
    pub fn survive(&self, events: &[Event], timeline: &Timeline, platter: &mut Platter) -> Toll {
        let survivors = self.fates(events, timeline);
        for survivor in &survivors {
            let arrived = timeline.requests()[survivor.request as usize].arrived;
            apply(&events[arrived], &survivor.fate, platter);
        }
        Toll::of(&survivors)
    }

    /// The disk as this state has it.
    #[must_use]
    pub fn platter(&self, base: &Platter, events: &[Event], timeline: &Timeline) -> Platter {
        let mut medium = Medium::new(base.clone());
        medium.advance(self.point, events, timeline);
        let mut platter = medium.platter;
        self.survive(events, timeline, &mut platter);
        platter
    }

    /// What a trace cannot have: a point beyond its end, the loss of a write that was not pending, or, where
    /// flushed writes were put into the base, a belief that flushes did not do what they said.
    pub fn check(&self, trace: &Trace, timeline: &Timeline) -> Result<(), String> {
        let (point, count) = (self.point, trace.events.len());
        if point > count {
            return Err(format!("point {point} is beyond the {count} events of the trace"));
        }
        if trace.about.end_only && point != count {
            let why = "the trace keeps only what was pending at its end";
            return Err(format!("{why}: the point can be {count}, not {point}"));
        }
        if trace.about.end_only && timeline.belief() != Belief::default() {
            let why = "the trace keeps only what was pending at its end";
            return Err(format!("{why}, so --lying and --cache cannot take back what was flushed"));
        }
        let Mode::Without(losses) = &self.mode else { return Ok(()) };
        for loss in losses {
            let request = timeline.requests().get(loss.request as usize);
            let Some(request) = request.filter(|request| request.is_pending(point)) else {
                return Err(format!(
                    "lost: no write {} was pending at point {point}; were --lying and --cache given as then?",
                    loss.request
                ));
            };
            let bytes = length(&trace.events[request.arrived]);
            if loss.bytes.is_some_and(|(_, end)| end > bytes) {
                return Err(format!("lost: {loss} is beyond the {bytes} bytes of that write"));
            }
        }
        Ok(())
    }

    /// What this state lost of what had arrived.
    #[must_use]
    pub fn losses(&self, events: &[Event], timeline: &Timeline) -> Vec<Loss> {
        let mut losses = Vec::new();
        for Survivor { request, fate } in self.fates(events, timeline) {
            match fate {
                Fate::Whole => {}
                Fate::Lost => losses.push(Loss { request, bytes: None }),
                Fate::Parts(kept) => {
                    let arrived = timeline.requests()[request as usize].arrived;
                    let mut at = 0;
                    let end = length(&events[arrived]);
                    for part in kept.into_iter().chain(std::iter::once(end..end)) {
                        if part.start > at {
                            losses.push(Loss { request, bytes: Some((at, part.start)) });
                        }
                        at = part.end;
                    }
                }
            }
        }
        losses
    }
}

/// What is durable, as points go by.
#[derive(Debug, Clone)]
pub struct Medium {
    platter: Platter,
    /// How much of [`Timeline::durable`] is on it.
    done: usize,
}

impl Medium {
    /// At point 0, when only what was there at first is durable.
    #[must_use]
    pub fn new(base: Platter) -> Self {
        Self { platter: base, done: 0 }
    }

    /// Puts on it what is durable at a point, which is not before the last one asked for.
    pub fn advance(&mut self, point: usize, events: &[Event], timeline: &Timeline) {
        while let Some(&(index, number)) = timeline.durable().get(self.done)
            && index < point
        {
            let arrived = timeline.requests()[number as usize].arrived;
            apply(&events[arrived], &Fate::Whole, &mut self.platter);
            self.done += 1;
        }
    }

    /// What is durable now.
    #[must_use]
    pub fn platter(&self) -> &Platter {
        &self.platter
    }
}

pub(super) fn apply(event: &Event, fate: &Fate, platter: &mut Platter) {
    let whole = 0..length(event);
    let parts = match fate {
        Fate::Lost => &[],
        Fate::Whole => std::slice::from_ref(&whole),
        Fate::Parts(parts) => parts,
    };
    for part in parts {
        match event {
            Event::Write { byte_offset, bytes } => platter.write(
                byte_offset + u64::from(part.start),
                &bytes[part.start as usize..part.end as usize],
            ),
            // Never in parts.
            Event::Discard { byte_offset, byte_count } => {
                platter.discard(*byte_offset, *byte_count);
            }
            Event::Flush | Event::Ended { .. } | Event::Mark(_) => {}
        }
    }
}

/// How long a write is. A discard counts as one byte: it happens or not.
fn length(event: &Event) -> u32 {
    match event {
        Event::Write { bytes, .. } => u32::try_from(bytes.len()).expect("bounded by the device"),
        _ => 1,
    }
}

/// The parts of a write that a device puts on its medium one by one.
fn atoms(event: &Event, tear_bytes: u32) -> Vec<Range<u32>> {
    let Event::Write { byte_offset, .. } = event else {
        return std::iter::once(0..1).collect();
    };
    let (tear, end) = (u64::from(tear_bytes), byte_offset + u64::from(length(event)));
    let mut at = *byte_offset;
    let mut atoms = Vec::new();
    while at < end {
        let next = ((at / tear + 1) * tear).min(end);
        let inside = |at: u64| u32::try_from(at - byte_offset).expect("within the write");
        atoms.push(inside(at)..inside(next));
        at = next;
    }
    atoms
}

fn without<'a>(event: &Event, losses: impl Iterator<Item = &'a Loss>) -> Fate {
    let mut lost: Vec<Range<u32>> = Vec::new();
    let end = length(event);
    for loss in losses {
        match &loss.bytes {
            None => return Fate::Lost,
            Some((start, stop)) => lost.push((*start).min(end)..(*stop).min(end)),
        }
    }
    lost.sort_by_key(|range| range.start);
    let (mut kept, mut at) = (Vec::new(), 0);
    for range in lost.iter().chain([&(end..end)]) {
        if range.start > at {
            kept.push(at..range.start);
        }
        at = at.max(range.end);
    }
    match kept.as_slice() {
        [] => Fate::Lost,
        [all] if *all == (0..end) => Fate::Whole,
        _ => Fate::Parts(kept),
    }
}

/// Whether a device may put a part of it on its medium and not the rest.
pub(super) fn can_tear(event: &Event, tear_bytes: u32) -> bool {
    let Event::Write { byte_offset, .. } = event else { return false };
    let (tear, last) = (u64::from(tear_bytes), u64::from(length(event)).saturating_sub(1));
    byte_offset / tear != (byte_offset + last) / tear
}

struct Chooser {
    rng: Pcg64Mcg,
    /// How many quarters of what is pending survive.
    survival: u32,
}

impl Chooser {
    fn new(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let survival = rng.random_range(0..=4);
        Self { rng, survival }
    }

    fn survives(&mut self) -> bool {
        self.rng.random_ratio(self.survival, 4)
    }

    fn tear(&mut self, event: &Event, tear_bytes: u32) -> Fate {
        let atoms = atoms(event, tear_bytes);
        let tears = (1..=3).contains(&self.survival) && atoms.len() > 1;
        if !tears || self.rng.random_ratio(1, 2) {
            return if self.survives() { Fate::Whole } else { Fate::Lost };
        }
        let middle = self.rng.random_range(1..atoms.len());
        let (start, end) = (0, length(event));
        match self.rng.random_range(0..3u32) {
            0 => Fate::Parts(std::iter::once(start..atoms[middle].start).collect()),
            1 => Fate::Parts(std::iter::once(atoms[middle].start..end).collect()),
            _ => {
                let rng = &mut self.rng;
                let kept: Vec<_> = atoms.into_iter().filter(|_| rng.random_ratio(1, 2)).collect();
                if kept.is_empty() { Fate::Lost } else { Fate::Parts(joined(kept)) }
            }
        }
    }
}

/// Neighbours become one.
fn joined(parts: Vec<Range<u32>>) -> Vec<Range<u32>> {
    let mut joined: Vec<Range<u32>> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => joined.push(part),
        }
    }
    joined
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::event::{End, Errno};
    use super::super::trace::About;
    use super::*;

    const DISK: u64 = 64 << 10;

    /// Writes, discards and flushes that overlap each other, each byte saying which write it is of.
    pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
        prop::collection::vec((0u8..10, 0u64..100, 1u64..28, any::<u8>()), 1..40).prop_map(
            |steps| {
                let mut events = Vec::new();
                let (mut open, mut requests): (Vec<u32>, u32) = (Vec::new(), 0);
                for (kind, at, count, value) in steps {
                    let byte_offset = at * 512;
                    match kind {
                        0..5 => {
                            let len = usize::try_from(count * 512).unwrap();
                            let bytes = Arc::from(vec![value | 1; len]);
                            events.push(Event::Write { byte_offset, bytes });
                        }
                        5 => events.push(Event::Discard { byte_offset, byte_count: count * 512 }),
                        6 => events.push(Event::Flush),
                        7 => {
                            events.push(Event::Mark(Arc::from(value.to_string())));
                            continue;
                        }
                        _ if !open.is_empty() => {
                            let request = open.remove(usize::from(value) % open.len());
                            let end = match value % 16 {
                                0 => End::Lied,
                                1 | 2 => End::Failed(Errno::Eio),
                                _ => End::Done,
                            };
                            events.push(Event::Ended { request, end });
                            continue;
                        }
                        _ => continue,
                    }
                    open.push(requests);
                    requests += 1;
                }
                events
            },
        )
    }

    fn modes() -> impl Strategy<Value = Mode> {
        let tear = prop::sample::select(vec![512, 4096]);
        prop_oneof![
            Just(Mode::Durable),
            Just(Mode::Arrived),
            any::<u64>().prop_map(|seed| Mode::Subset { seed }),
            (any::<u64>(), tear).prop_map(|(seed, tear_bytes)| Mode::Torn { seed, tear_bytes }),
        ]
    }

    fn sectors(platter: &Platter) -> Vec<[u8; 512]> {
        let mut all = vec![0; usize::try_from(DISK).unwrap()];
        platter.read(0, &mut all);
        all.chunks_exact(512).map(|sector| sector.try_into().unwrap()).collect()
    }

    proptest! {
        /// Per sector: what is durable or newer, and never what had not arrived.
        #[test]
        fn every_sector_lies_between_the_medium_and_the_cache(
            events in events(), at in 0.0..=1.0f64, mode in modes()
        ) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
            let point = (at * events.len() as f64) as usize;
            let timeline = Timeline::of(&events, Belief::default());
            let base = Platter::new(DISK);
            let state = State { point, mode };
            let found = sectors(&state.platter(&base, &events, &timeline));
            prop_assert!(found == sectors(&state.platter(&base, &events, &timeline)));
            let mut medium = Medium::new(base);
            medium.advance(point, &events, &timeline);
            let mut allowed: Vec<Vec<[u8; 512]>> =
                sectors(&medium.platter).into_iter().map(|sector| vec![sector]).collect();
            for request in timeline.pending(point) {
                let arrived = timeline.requests()[request as usize].arrived;
                let mut one = medium.platter.clone();
                apply(&events[arrived], &Fate::Whole, &mut one);
                for (allowed, sector) in allowed.iter_mut().zip(sectors(&one)) {
                    allowed.push(sector);
                }
            }
            for (number, (found, allowed)) in found.iter().zip(allowed).enumerate() {
                prop_assert!(allowed.contains(found), "sector {number}");
            }
        }

        #[test]
        fn a_state_said_as_its_losses_is_the_same_disk(
            events in events(), at in 0.0..=1.0f64, mode in modes()
        ) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
            let point = (at * events.len() as f64) as usize;
            let timeline = Timeline::of(&events, Belief::default());
            let base = Platter::new(DISK);
            let state = State { point, mode };
            let said = Mode::Without(state.losses(&events, &timeline));
            let said = State { point, mode: said };
            prop_assert!(
                said.platter(&base, &events, &timeline) == state.platter(&base, &events, &timeline)
            );
            let again: State = said.to_string().parse().unwrap();
            prop_assert_eq!(again, said);
            let again: State = state.to_string().parse().unwrap();
            prop_assert_eq!(again, state);
        }
    }

    #[test]
    fn a_write_tears_at_multiples_on_the_disk_not_in_the_write() {
        let event = Event::Write { byte_offset: 3584, bytes: Arc::from([1; 1024]) };
        assert_eq!(atoms(&event, 4096), [0..512, 512..1024]);
        assert_eq!(atoms(&event, 512), [0..512, 512..1024]);
        assert!(can_tear(&event, 512) && can_tear(&event, 4096) && !can_tear(&event, 8192));
        let event = Event::Write { byte_offset: 4096, bytes: Arc::from([1; 8192]) };
        assert_eq!(atoms(&event, 4096), [0..4096, 4096..8192]);
        let event = Event::Write { byte_offset: 4096, bytes: Arc::from([1; 4096]) };
        assert!(!can_tear(&event, 4096), "it ends where the next page begins");
    }

    #[test]
    fn a_loss_that_cannot_be_is_not_passed_over() {
        let events = vec![
            Event::Write { byte_offset: 0, bytes: Arc::from([1; 512]) },
            Event::Ended { request: 0, end: End::Done },
            Event::Flush,
            Event::Ended { request: 1, end: End::Done },
            Event::Write { byte_offset: 0, bytes: Arc::from([2; 512]) },
        ];
        let mut trace =
            Trace { about: About::default(), base: Platter::new(DISK), events, aftermath: vec![] };
        let believed = |trace: &Trace, state: &str, belief| {
            let timeline = Timeline::of(&trace.events, belief);
            state.parse::<State>().unwrap().check(trace, &timeline)
        };
        let checked = |trace: &Trace, state: &str| believed(trace, state, Belief::default());
        let wrong = |state: &str| checked(&trace, state).unwrap_err();
        assert!(wrong("point=6,mode=durable").contains("beyond the 5 events"));
        assert!(wrong("point=5,mode=without,lost=9").contains("no write 9"));
        assert!(wrong("point=5,mode=without,lost=0").contains("--lying"), "it is durable");
        assert!(wrong("point=5,mode=without,lost=2[0-513]").contains("beyond the 512 bytes"));
        assert_eq!(checked(&trace, "point=5,mode=without,lost=2[0-512]"), Ok(()));
        assert_eq!(checked(&trace, "point=1,mode=without,lost=0"), Ok(()));
        trace.about.end_only = true;
        assert!(checked(&trace, "point=1,mode=durable").unwrap_err().contains("at its end"));
        assert_eq!(checked(&trace, "point=5,mode=durable"), Ok(()));
        // What was flushed is in the base: a lying disk would have lost nothing, and the check passed.
        let lying = Belief { flushes_lie: true, cache_bytes: None };
        let cached = Belief { flushes_lie: false, cache_bytes: Some(4096) };
        for belief in [lying, cached] {
            let wrong = believed(&trace, "point=5,mode=durable", belief).unwrap_err();
            assert!(wrong.contains("cannot take back"), "{wrong}");
        }
    }
}
