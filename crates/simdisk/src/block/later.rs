//! From a state that does harm though nothing had to be lost for it to the writes that it lacks: those
//! that arrived later, and with which it does none.
//!
//! Later writes are added to the state in the order in which they arrived: one after the other at first, then
//! further apart, until it does no harm. Of those that are there then the fewest are sought. Such
//! a disk is nothing that a power cut leaves: it says what had to be there for the state to be good.

use super::event::{End, Event};
use super::platter::Platter;
use super::shrink::fewest;
use super::states::{Fate, State, apply};
use super::timeline::Timeline;

/// So many are added one by one, and of those beyond an eighth more each time.
const ONE_BY_ONE: usize = 32;

/// A state, and what arrived after it.
#[derive(Debug)]
pub struct Later<'a> {
    events: &'a [Event],
    timeline: &'a Timeline,
    platter: Platter,
    /// Writes and discards that the disk did.
    requests: Vec<u32>,
}

/// What a state lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// Numbers of the writes and discards, as they arrived. With all of them it does no harm.
    pub requests: Vec<u32>,
    /// Whether it does harm without any one of them; if not, that was not tried to the end.
    pub is_fewest: bool,
}

impl<'a> Later<'a> {
    /// `events` and `timeline` may go on after the last point at which the power is cut.
    #[must_use]
    pub fn of(state: &State, base: &Platter, events: &'a [Event], timeline: &'a Timeline) -> Self {
        let is_later = |number: &u32| {
            let request = &timeline.requests()[*number as usize];
            let is_done = matches!(request.ended, None | Some((_, End::Done)));
            request.arrived >= state.point && request.bytes > 0 && is_done
        };
        let requests = (0..).take(timeline.requests().len()).filter(is_later).collect();
        Self { events, timeline, platter: state.platter(base, events, timeline), requests }
    }

    /// The disk of the state with these on it.
    #[must_use]
    pub fn platter(&self, requests: &[u32]) -> Platter {
        let mut platter = self.platter.clone();
        for &request in requests {
            let arrived = self.timeline.requests()[request as usize].arrived;
            apply(&self.events[arrived], &Fate::Whole, &mut platter);
        }
        platter
    }

    /// Finds writes and discards with which `passes` is true of the disk, such that it is not without any one
    /// of them. `None` if it is true of no disk that was tried. After `tries_max` more
    /// disks the search for fewer is ended.
    ///
    /// Stops early when `passes` returns an error.
    pub fn lacking<E>(
        &self,
        tries_max: usize,
        mut passes: impl FnMut(&Platter) -> Result<bool, E>,
    ) -> Result<Option<Lacking>, E> {
        let Some(enough) = self.enough(&mut passes)? else { return Ok(None) };
        let mut tries = 0;
        let requests = fewest(self.requests[..enough].to_vec(), |some| {
            tries += 1;
            Ok::<_, E>(tries <= tries_max && passes(&self.platter(some))?)
        })?;
        Ok(Some(Lacking { requests, is_fewest: tries <= tries_max }))
    }

    /// With how many of them it passes, and not with one less.
    fn enough<E>(
        &self,
        passes: &mut impl FnMut(&Platter) -> Result<bool, E>,
    ) -> Result<Option<usize>, E> {
        let mut with = |count: usize| passes(&self.platter(&self.requests[..count]));
        let (mut short, mut enough) = (0, 0);
        while enough == 0 || !with(enough)? {
            if enough == self.requests.len() {
                return Ok(None);
            }
            short = enough;
            enough = (enough + 1).max(enough + enough.saturating_sub(ONE_BY_ONE) / 8);
            enough = enough.min(self.requests.len());
        }
        while enough - short > 1 {
            let middle = short.midpoint(enough);
            if with(middle)? {
                enough = middle;
            } else {
                short = middle;
            }
        }
        Ok(Some(enough))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::event::Errno;
    use super::super::states::Mode;
    use super::super::timeline::Belief;
    use super::*;

    const SECTOR: u64 = 512;

    /// So many writes, each to a sector of its own.
    fn writes(count: u64) -> Vec<Event> {
        let write = |at| Event::Write { byte_offset: at * SECTOR, bytes: Arc::from([1; 512]) };
        (0..count).map(write).collect()
    }

    fn is_there(platter: &Platter, number: u32) -> bool {
        let mut byte = [0];
        platter.read(u64::from(number) * SECTOR, &mut byte);
        byte == [1]
    }

    proptest! {
        #[test]
        fn what_is_lacking_is_what_is_needed_of_what_came_later(
            all in 1u32..300, at in 0.0..1.0f64,
            needed in prop::collection::btree_set(0u32..300, 1..4),
        ) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
            let point = (at * f64::from(all)) as usize;
            let events = writes(all.into());
            let timeline = Timeline::of(&events, Belief::default());
            let state = State { point, mode: Mode::Arrived };
            let later = Later::of(&state, &Platter::new(1 << 20), &events, &timeline);
            let mut asked = 0;
            let found = later.lacking(usize::MAX, |platter| {
                asked += 1;
                Ok::<_, Infallible>(needed.iter().all(|&number| is_there(platter, number)))
            });
            let found = found.unwrap().map(|lacking| lacking.requests);
            let lacking: Vec<u32> =
                needed.iter().copied().filter(|&number| number as usize >= point).collect();
            if needed.iter().any(|&number| number >= all) {
                prop_assert_eq!(found, None);
            } else if !lacking.is_empty() {
                prop_assert_eq!(found, Some(lacking));
            }
            prop_assert!(asked < 300, "{} questions", asked);
        }
    }

    #[test]
    fn a_write_that_the_disk_did_not_do_saves_nothing() {
        for end in [End::Lied, End::Failed(Errno::Eio)] {
            let mut events = writes(1);
            events.push(Event::Ended { request: 0, end });
            let timeline = Timeline::of(&events, Belief::default());
            let state = State { point: 0, mode: Mode::Arrived };
            let later = Later::of(&state, &Platter::new(1 << 20), &events, &timeline);
            let found = later.lacking(9, |_| Ok::<_, Infallible>(true)).unwrap();
            assert_eq!(found, None);
        }
    }

    #[test]
    fn a_search_that_is_ended_early_says_so() {
        let events = writes(20);
        let timeline = Timeline::of(&events, Belief::default());
        let state = State { point: 0, mode: Mode::Arrived };
        let later = Later::of(&state, &Platter::new(1 << 20), &events, &timeline);
        let wants = |platter: &Platter| Ok::<_, Infallible>(is_there(platter, 15));
        let found = later.lacking(2, wants).unwrap().unwrap();
        assert!(!found.is_fewest && found.requests.contains(&15), "{found:?}");
        let found = later.lacking(99, wants).unwrap().unwrap();
        assert_eq!(found, Lacking { requests: vec![15], is_fewest: true });
    }
}
