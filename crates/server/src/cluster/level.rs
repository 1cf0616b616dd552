//! [`Level`]: which other voters are level with a leader. They answer, are not in doubt, and have what was committed a
//! moment ago. [`Named`]: the same question, as a follower asks it of itself.
//!
//! Consumers are sent to a nearer replica only if that is level, and a topic that wants more copies than a majority takes
//! records only while so many voters are.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A voter that lacks what was committed so long ago is not level; nor is one that lacks what was committed up to twice as
/// long ago.
const MOMENT: Duration = Duration::from_secs(1);
/// A follower that has not applied what its leader's log held so long ago sends consumers back to the leader.
const BEHIND: Duration = Duration::from_secs(5);

/// What a voter must have to be level: pure.
#[derive(Debug, Default)]
pub(crate) struct Level {
    goal: Option<u64>,
    /// The goal from the end of this moment on, and when the moment began.
    next: Option<(Option<u64>, Instant)>,
}

impl Level {
    /// So much is committed now.
    pub(crate) fn turn(&mut self, committed: Option<u64>, now: Instant) {
        match self.next {
            Some((_, since)) if now - since < MOMENT => {}
            next => {
                self.goal = next.and_then(|(goal, _)| goal);
                self.next = Some((committed, now));
            }
        }
    }

    /// Whether it is known what was committed a moment ago.
    pub(crate) fn is_known(&self) -> bool {
        self.goal.is_some()
    }

    /// Whether a voter that has the leader's log up to there is level.
    pub(crate) fn is_reached(&self, matched: Option<u64>) -> bool {
        matched >= self.goal
    }
}

/// The end of its leader's log, as a follower heard it; or of its own, as a leader has it agreed on.
#[derive(Debug, Default)]
pub(crate) struct Named(Mutex<Option<(u64, Instant)>>);

impl Named {
    /// The leader names the end of its log to a replica that has applied so much. An end that was named before, and is not
    /// applied yet, holds.
    pub(crate) fn hears(&self, last: u64, applied: Option<u64>) {
        let mut goal = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if goal.is_none_or(|(named, _)| applied >= Some(named)) {
            *goal = Some((last, Instant::now()));
        }
    }

    /// Whether a replica that has applied so much is too far behind to be read from.
    pub(crate) fn is_behind(&self, applied: Option<u64>) -> bool {
        let goal = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        goal.is_some_and(|(named, at)| applied < Some(named) && at.elapsed() >= BEHIND)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn paused(story: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(story);
    }

    #[test]
    fn a_voter_that_lacks_what_was_committed_a_moment_ago_is_not_level() {
        paused(async {
            let mut level = Level::default();
            level.turn(Some(10), Instant::now());
            assert!(
                level.is_reached(Some(3)),
                "nothing was committed a moment ago, as far as is known"
            );
            assert!(!level.is_known());
            advance(MOMENT).await;
            level.turn(Some(50), Instant::now());
            assert!(level.is_reached(Some(10)) && !level.is_reached(Some(9)));
            assert!(!level.is_reached(None) && level.is_known());
            advance(MOMENT / 2).await;
            level.turn(Some(80), Instant::now());
            assert!(level.is_reached(Some(10)), "that is not a moment ago");
            advance(MOMENT / 2).await;
            level.turn(Some(90), Instant::now());
            assert!(level.is_reached(Some(50)) && !level.is_reached(Some(49)));
        });
    }

    #[test]
    fn a_follower_is_behind_once_it_has_lacked_something_for_long() {
        paused(async {
            let named = Named::default();
            assert!(!named.is_behind(None), "no leader has named anything");
            named.hears(10, Some(5));
            advance(BEHIND / 2).await;
            named.hears(90, Some(9));
            assert!(!named.is_behind(Some(9)));
            advance(BEHIND / 2).await;
            assert!(named.is_behind(Some(9)), "it has lacked the first for that long");
            assert!(!named.is_behind(Some(10)));
            named.hears(99, Some(10));
            assert!(!named.is_behind(Some(10)), "it has come on");
        });
    }
}
