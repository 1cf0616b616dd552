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
//!
//! Nor does one whose log goes on behind that, as one that is damaged may, keep it from being elected: what is behind was given up. As
//! long as it has taken nothing since, it votes as one whose log ends there.

use super::record::to_log;
use super::types::{LogId, Vote};
use super::watch;

/// Where logs ended as it was decided after a loss on which of them the group goes on: the terms and indexes, as the log counts, of their
/// last entries; zeros for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Basis {
    /// Of that one. A replica whose log ends before it does not campaign, and votes for none whose log does.
    pub least: (u64, u64),
    /// Of this replica's own, if it was asked.
    pub own: (u64, u64),
}

/// Whether a replica may have forgotten what it acknowledged, and who may lead it.
#[derive(Debug)]
pub(crate) struct Standing {
    is_dirty: watch::Sender<bool>,
    basis: Basis,
}

impl Standing {
    pub(crate) fn new(is_dirty: bool, basis: Basis) -> Self {
        Self { is_dirty: watch::Sender::new(is_dirty), basis }
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
        end(last) >= self.basis.least
    }

    /// Where the log of one that asks for this replica's vote counts as ending, whose own is damaged, ends with this entry and is applied so far: as
    /// its own, if what that has more was given up. What it has taken since has a newer term; and what is applied stays.
    pub(crate) fn counts(
        &self,
        asks: Option<LogId>,
        own: Option<LogId>,
        applied: Option<u64>,
    ) -> Option<LogId> {
        let Basis { least, own: ended } = self.basis;
        let has_applied = asks.map(|asks| asks.index) >= applied;
        let gives_up = ended > least && end(own) == ended && self.may_lead(asks) && has_applied;
        if gives_up { asks.max(own) } else { asks }
    }
}

/// Term and index of the last entry of a log, as that counts.
fn end(last: Option<LogId>) -> (u64, u64) {
    last.map_or((0, 0), |last| (last.leader_id.term, to_log(last.index)))
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
        let standing = Standing::new(false, Basis { least: (3, 10), own: (2, 4) });
        for (last, may) in [(None, false), (Some((3, 8)), false), (Some((2, 20)), false)]
            .into_iter()
            .chain([(Some((3, 9)), true), (Some((3, 30)), true), (Some((4, 2)), true)])
        {
            // The engine counts from 0.
            let last = last.map(|(term, index)| log_id(term, index));
            assert_eq!(standing.may_lead(last), may, "{last:?}");
        }
        assert!(Standing::new(false, Basis::default()).may_lead(None));
    }

    #[test]
    fn what_was_given_up_holds_nobodys_election_up_until_something_is_taken() {
        let standing = Standing::new(false, Basis { least: (3, 10), own: (4, 12) });
        // The engine counts from 0.
        let (best, own) = (Some(log_id(3, 9)), Some(log_id(4, 11)));
        assert_eq!(standing.counts(best, own, Some(9)), own);
        assert_eq!(
            standing.counts(Some(log_id(4, 12)), own, None),
            Some(log_id(4, 12)),
            "it has more"
        );
        assert_eq!(standing.counts(best, own, Some(10)), best, "more is applied here");
        for less in [None, Some(log_id(3, 8)), Some(log_id(2, 40))] {
            assert_eq!(standing.counts(less, own, None), less, "it may not lead");
        }
        for now in [Some(log_id(5, 10)), Some(log_id(4, 12)), Some(log_id(3, 9)), None] {
            assert_eq!(
                standing.counts(best, now, None),
                best,
                "it has taken something, or lost it"
            );
        }
        // Who was not asked gives nothing up, nor does one that has no more.
        for own in [(0, 0), (3, 10), (2, 30)] {
            let standing = Standing::new(false, Basis { least: (3, 10), own });
            let last = Some(log_id(own.0, own.1.max(1) - 1));
            assert_eq!(standing.counts(best, last, None), best);
        }
    }
}

#[cfg(test)]
mod decided {
    use std::sync::Arc;
    use std::time::Duration;

    use plimsoll_sync::Crash;
    use tokio::time::{sleep, timeout};

    use super::Basis;
    use crate::cluster::trio::{Net, PATIENCE, damage, start_decided, tell, three};

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
            let decided = (1, Basis { least: (term, index), own: (0, 0) });
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

    /// One of two disks lost the end of a log, the other an entry within it, and the third was away: it was decided to go on with the first,
    /// for which the second did not vote, as its own log was longer, nor was it elected itself (a test on a busy machine).
    #[test]
    fn a_damaged_log_that_is_longer_does_not_hold_up_what_was_decided() {
        let net = Net::default();
        tell(async {
            let (nodes, _) = three(&net).await;
            let leader = &nodes[0].group;
            let leadership = leader.wait_to_lead().await.unwrap();
            let shorter = Arc::new(nodes[0].dir.crash(Crash::Process, 0));
            let shown = leader.outline().last;
            let mut last = 0;
            for payload in ["lost", "behind it"] {
                last = leader.propose(leadership, payload.into()).await.unwrap().index;
            }
            nodes[1].reaches(last).await;
            let [_, two, _] = nodes;
            let own = two.group.outline().last;
            let longer = two.close(2, &net).await;
            damage(&longer, last - 1, 30, &[0xa5; 4]);
            net.heard().clear();
            let decided = |own| (1, Basis { least: shown, own });
            let one = start_decided(shorter, 1, &net, decided(shown));
            let two = start_decided(longer, 2, &net, decided(own));
            let leadership = timeout(PATIENCE, one.group.wait_to_lead()).await;
            let leadership = leadership.expect("it is elected").unwrap();
            let last = one.group.propose(leadership, "again".into()).await.unwrap().index;
            for one in [&one, &two] {
                one.reaches(last).await;
                assert_eq!(one.read(last).unwrap().as_deref(), Some(&b"again"[..]));
            }
            assert!(!two.group.outline().is_damaged, "what was is not in its log any more");
        });
        net.heard().clear();
    }
}
