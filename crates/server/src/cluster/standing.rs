//! [`Standing`]: whether this replica may vote, and how it comes to vote again.
//!
//! A replica that may have forgotten what it acknowledged is *dirty*. It takes entries and acknowledges
//! them, which is true when it is said; it neither votes nor pre-votes, campaigns, takes over a
//! leadership, nor tells another how to re-enter. It re-enters once it has **applied up to the last
//! entry of the log of a leader whose term is at least its own, as that leader named it to this
//! incarnation**. Not up to what was committed: what it acknowledged and forgot may become committed
//! later, by that acknowledgement. No time that passes is evidence of anything.

use super::types::{LogId, Vote};
use super::watch;

/// Whether a replica may have forgotten what it acknowledged.
#[derive(Debug)]
pub(crate) struct Standing(watch::Sender<bool>);

impl Standing {
    pub(crate) fn new(is_dirty: bool) -> Self {
        Self(watch::Sender::new(is_dirty))
    }

    pub(crate) fn is_dirty(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) fn is_clean_from_here(&self) {
        self.0.send_modify(|is_dirty| *is_dirty = false);
    }

    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

/// What a dirty replica must reach: pure.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Goal(Option<(u64, Option<u64>)>);

impl Goal {
    /// A leader with this vote named the last entry of its log, to a replica whose own vote is this.
    pub(crate) fn named(&mut self, leader: Vote, last: Option<LogId>, own: Option<Vote>) {
        let term = leader.leader_id.term;
        let own_term = own.map_or(0, |own| own.leader_id.term);
        let is_newer = self.0.is_none_or(|(known, _)| term > known);
        // The first that a leader names holds: its log goes on, and nothing more is asked for.
        if leader.committed && term >= own_term && is_newer {
            self.0 = Some((term, last.map(|last| last.index)));
        }
    }

    /// Whether a replica that follows a leader of this vote, and has applied so far, has reached it.
    pub(crate) fn is_reached(&self, follows: Option<Vote>, applied: Option<u64>) -> bool {
        let Some((term, last)) = self.0 else { return false };
        let follows = follows.filter(|vote| vote.committed).map_or(0, |vote| vote.leader_id.term);
        follows >= term && applied >= last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::types::log_id;

    #[test]
    fn the_goal_is_the_last_entry_that_a_leader_of_no_lower_term_names_first() {
        let mut goal = Goal::default();
        let leader = |term| Vote::new_committed(term, 1);
        assert!(!goal.is_reached(Some(leader(9)), Some(99)), "nobody named anything");
        goal.named(leader(3), Some(log_id(3, 10)), Some(Vote::new(4, 2)));
        assert_eq!(goal, Goal::default(), "a leader of a lower term knows nothing of it");
        goal.named(Vote::new(4, 2), Some(log_id(3, 10)), Some(Vote::new(4, 2)));
        assert_eq!(goal, Goal::default(), "a candidate is no leader");
        goal.named(leader(4), Some(log_id(4, 10)), Some(Vote::new(4, 2)));
        goal.named(leader(4), Some(log_id(4, 50)), Some(leader(4)));
        assert!(!goal.is_reached(Some(leader(4)), Some(9)));
        assert!(!goal.is_reached(Some(Vote::new(4, 2)), Some(10)), "it follows nobody");
        assert!(!goal.is_reached(Some(leader(3)), Some(10)));
        assert!(goal.is_reached(Some(leader(4)), Some(10)));
        goal.named(leader(6), Some(log_id(6, 20)), Some(leader(5)));
        assert!(!goal.is_reached(Some(leader(5)), Some(20)), "its leader is another");
        assert!(goal.is_reached(Some(leader(7)), Some(20)));
    }

    #[test]
    fn an_empty_log_is_reached_by_whoever_follows() {
        let mut goal = Goal::default();
        goal.named(Vote::new_committed(1, 1), None, None);
        assert!(goal.is_reached(Some(Vote::new_committed(1, 1)), None));
    }
}
