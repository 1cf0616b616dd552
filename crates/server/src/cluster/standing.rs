//! [`Standing`]: whether this replica may vote, and how it comes to vote again.
//!
//! A replica that may have forgotten what it acknowledged is *dirty*. It takes entries and acknowledges
//! them, which is true when it is said; it neither votes nor pre-votes, campaigns, takes over a
//! leadership, nor tells another how to re-enter. It re-enters once it has **applied up to the last
//! entry of the log of a leader whose term is at least its own, as that leader named it to this
//! incarnation**. Not up to what was committed: what it acknowledged and forgot may become committed
//! later, by that acknowledgement. No time that passes is evidence of anything.
//!
//! After a loss it was decided with which log the group goes on: the best of those that were shown. One whose log ends before
//! that neither campaigns nor votes for another that does, however long the best stays away: all that was guaranteed may be in that alone.

use super::record::to_log;
use super::types::{LogId, Vote};
use super::watch;

/// Whether a replica may have forgotten what it acknowledged, and who may lead it.
#[derive(Debug)]
pub(crate) struct Standing {
    is_dirty: watch::Sender<bool>,
    /// Term and index, as the log counts, of what a leader must have.
    least: (u64, u64),
}

impl Standing {
    pub(crate) fn new(is_dirty: bool, least: (u64, u64)) -> Self {
        Self { is_dirty: watch::Sender::new(is_dirty), least }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        *self.is_dirty.borrow()
    }

    pub(crate) fn is_clean_from_here(&self) {
        self.is_dirty.send_modify(|is_dirty| *is_dirty = false);
    }

    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.is_dirty.subscribe()
    }

    /// Whether a replica may lead whose log ends with this entry.
    pub(crate) fn may_lead(&self, last: Option<LogId>) -> bool {
        last.map_or((0, 0), |last| (last.leader_id.term, to_log(last.index))) >= self.least
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

    #[test]
    fn who_has_less_than_was_decided_on_does_not_lead_and_who_has_more_does() {
        let standing = Standing::new(false, (3, 10));
        for (last, may) in [(None, false), (Some((3, 8)), false), (Some((2, 20)), false)]
            .into_iter()
            .chain([(Some((3, 9)), true), (Some((3, 30)), true), (Some((4, 2)), true)])
        {
            // The engine counts from 0.
            let last = last.map(|(term, index)| log_id(term, index));
            assert_eq!(standing.may_lead(last), may, "{last:?}");
        }
        assert!(Standing::new(false, (0, 0)).may_lead(None));
    }
}

#[cfg(test)]
mod decided {
    use std::sync::Arc;
    use std::time::Duration;

    use plimsoll_sync::Crash;
    use tokio::time::{sleep, timeout};

    use crate::cluster::trio::{Net, PATIENCE, start_decided, tell, three};

    /// After ten seconds those with less could elect one of themselves, the best log's broker being away still: what had been
    /// called durable was cut off so, as it seems (a test on a busy machine).
    #[test]
    fn a_group_does_not_go_on_with_less_than_was_decided_however_long_the_best_log_stays_away() {
        let net = Net::default();
        tell(async {
            let (nodes, _) = three(&net).await;
            let leader = &nodes[0].group;
            let leadership = leader.wait_to_lead().await.unwrap();
            // The disks of two lose what comes now.
            let less = [1, 2].map(|at: usize| Arc::new(nodes[at].dir.crash(Crash::Process, 0)));
            let last = leader.propose(leadership, "guaranteed".into()).await.unwrap().index;
            nodes[1].reaches(last).await;
            let (term, index) = leader.outline().last;
            let [one, ..] = nodes;
            let one = one.close(1, &net).await;
            net.heard().clear();
            let decided = (1, (term, index));
            let mut nodes = less.into_iter().zip([2, 3]);
            let [second, third] = [(); 2].map(|()| {
                let (disk, node) = nodes.next().unwrap();
                start_decided(disk, node, &net, decided)
            });
            assert!(second.group.outline().has_less);
            sleep(Duration::from_secs(4)).await;
            for one in [&second, &third] {
                assert_eq!(one.group.outline().leader, None);
                assert_eq!(one.group.outline().vote.0, term, "it campaigns");
            }
            let first = start_decided(one, 1, &net, decided);
            assert!(!first.group.outline().has_less);
            for one in [&first, &second, &third] {
                one.reaches(last).await;
            }
            assert_eq!(first.read(last).unwrap().as_deref(), Some(&b"guaranteed"[..]));
            let may = async {
                while second.group.outline().has_less {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, may).await.expect("it has all of it");
        });
        net.heard().clear();
    }
}
