//! At which points of a recording a power cut has a choice.

use super::event::Event;
use super::states::can_tear;
use super::timeline::Timeline;

/// Points, each list in order.
#[derive(Debug)]
pub(super) struct Points {
    /// A write may be lost.
    pub(super) pending: Vec<usize>,
    /// One may be lost and another not.
    pub(super) several: Vec<usize>,
    /// A write may be there in parts.
    pub(super) tearable: Vec<usize>,
}

impl Points {
    /// Looks at each request once, and at each point once.
    pub(super) fn of(events: &[Event], timeline: &Timeline, tear_bytes: u32) -> Self {
        // By how much the number of pending writes, and of those that can tear, changes at each point.
        let mut changes = vec![(0_i64, 0_i64); events.len() + 2];
        for request in timeline.requests() {
            let pending = request.pending_points(events.len());
            if pending.is_empty() {
                continue;
            }
            let tears = i64::from(can_tear(&events[request.arrived], tear_bytes));
            let (first, after) = (*pending.start(), *pending.end() + 1);
            changes[first] = (changes[first].0 + 1, changes[first].1 + tears);
            changes[after] = (changes[after].0 - 1, changes[after].1 - tears);
        }
        let mut points = Self { pending: vec![], several: vec![], tearable: vec![] };
        let (mut pending, mut tearable) = (0, 0);
        for (point, change) in changes.iter().enumerate().take(events.len() + 1) {
            (pending, tearable) = (pending + change.0, tearable + change.1);
            points.pending.extend((pending > 0).then_some(point));
            points.several.extend((pending > 1).then_some(point));
            points.tearable.extend((tearable > 0).then_some(point));
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::states::tests::events;
    use super::super::timeline::Belief;
    use super::*;

    proptest! {
        #[test]
        fn a_point_is_listed_if_what_is_pending_there_says_so(events in events()) {
            let timeline = Timeline::of(&events, Belief::default());
            let points = Points::of(&events, &timeline, 4096);
            for point in 0..=events.len() {
                let pending = timeline.pending(point);
                let arrived = |&number: &u32| timeline.requests()[number as usize].arrived;
                let tears = pending.iter().any(|number| can_tear(&events[arrived(number)], 4096));
                prop_assert_eq!(points.pending.contains(&point), !pending.is_empty());
                prop_assert_eq!(points.several.contains(&point), pending.len() > 1);
                prop_assert_eq!(points.tearable.contains(&point), tears);
            }
        }
    }
}
