//! [`Behind`]: what a replica lacks, and its leader has let go of: whoever opened it has it seeded. And what a leader
//! keeps for replicas that are only a moment behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use openraft::{Instant, RaftMetrics, ServerState};

use super::types::{LogId, Types};

/// A replica that answered so lately is there.
const LATELY: Duration = Duration::from_secs(2);

/// What is not in the leader's log any more, nor here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// Who is asked for it first: who said so, or leads.
    pub leader: u64,
    /// The last entry that is not to be had, as the engine counts.
    pub through: u64,
}

/// How far the log of another goes at least that comes in the place of this replica's: nothing is lost by that then but what
/// comes while it is given, which a leader has that is heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needed {
    /// It has this record, as the log counts.
    pub through: u64,
    /// By the rule of elections it is no shorter than one that ends with this record, in this term: the term comes first.
    pub ends: (u64, u64),
}

/// Whether a replica lacks what no leader can send it.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    lack: Mutex<Option<Lack>>,
    /// What is damaged here, and nobody gives by entry, by the entry that was noted.
    of_damage: Mutex<BTreeMap<u64, Lack>>,
    is_anew: bool,
}

impl Behind {
    /// Of one that [begins anew](super::Begin::anew), or not.
    pub(crate) fn new(is_anew: bool) -> Self {
        // Whoever has any of it may give it.
        let lack = is_anew.then_some(Lack { leader: 0, through: 0 });
        Self { lack: Mutex::new(lack), is_anew, ..Self::default() }
    }

    /// Whether it takes no entries: what it is given has them.
    pub(crate) fn takes_none(&self) -> bool {
        self.is_anew
    }

    pub(crate) fn learn(&self, lack: Lack) {
        *self.lack.lock().unwrap_or_else(PoisonError::into_inner) = Some(lack);
    }

    /// What is damaged, and was noted there, is not to be had by entry.
    pub(crate) fn learn_of_damage(&self, noted: u64, lack: Lack) {
        self.of_damage.lock().unwrap_or_else(PoisonError::into_inner).insert(noted, lack);
    }

    /// Of all that was damaged only this is so still.
    pub(crate) fn is_damaged_still(&self, noted: &BTreeSet<u64>) {
        let mut of_damage = self.of_damage.lock().unwrap_or_else(PoisonError::into_inner);
        of_damage.retain(|at, _| noted.contains(at));
    }

    /// What is lacking. Of what is damaged only while another leads: until then it may be healed all the same, or this replica be the
    /// one that is to lead.
    pub(crate) fn lack(&self, is_led: bool) -> Option<Lack> {
        let told = *self.lack.lock().unwrap_or_else(PoisonError::into_inner);
        let of_damage = self.of_damage.lock().unwrap_or_else(PoisonError::into_inner);
        told.or_else(|| of_damage.values().next().copied().filter(|_| is_led))
    }
}

/// Whether a replica leads by what its engine says, and another that answered lately lacks this entry.
pub(crate) fn is_lacking(own: u64, engine: &RaftMetrics<Types>, index: u64) -> bool {
    let (Some(matched), Some(heard)) = (&engine.replication, &engine.heartbeat) else {
        return false;
    };
    let is_here = |node: &u64| {
        let heard = heard.get(node).copied().flatten();
        heard.is_some_and(|heard| heard.elapsed() < LATELY)
    };
    let lacks = |(node, has): (&u64, &Option<LogId>)| {
        *node != own && is_here(node) && has.map(|has| has.index) < Some(index)
    };
    engine.state == ServerState::Leader && matched.iter().any(lacks)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use bytes::Bytes;
    use futures_util::future::BoxFuture;
    use plimsoll_log::Ack;
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::Dir;
    use tokio::time::timeout;

    use super::*;
    use crate::cluster::{
        Answered, Apply, Begin, Carrier, Error, Group, Options, Receiver, Recovered, Stop,
        Unreached,
    };

    const PATIENCE: Duration = Duration::from_secs(60);

    #[derive(Debug)]
    struct Nothing;

    impl Apply for Nothing {
        type Answer = ();

        fn apply(&mut self, _: u64, _: u64, _: Option<&Bytes>) -> Result<(), Stop> {
            Ok(())
        }
    }

    /// Those that hear each other.
    #[derive(Debug, Default, Clone)]
    struct Net(Arc<Mutex<BTreeMap<u64, Receiver<Nothing>>>>, u64);

    impl Carrier for Net {
        fn ask(
            &self,
            to: u64,
            _: bool,
            request: Vec<Bytes>,
        ) -> BoxFuture<'static, Result<Answered, Unreached>> {
            let (heard, from) = (self.0.lock().unwrap().get(&to).cloned(), self.1);
            Box::pin(async move {
                let away = || Unreached { to, why: "it is away".to_owned() };
                let answer = heard.ok_or_else(away)?.answer(from, 1, &request.concat().into());
                Ok(Answered { incarnation: 1, answer: answer.await.concat().into() })
            })
        }
    }

    fn start(node: u64, net: &Net) -> Group<Nothing> {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let log = plimsoll_log::Options {
            segment_bytes: 256 << 10,
            ring_bytes: 64 << 10,
            ..plimsoll_log::Options::default()
        };
        let (promise, must_sync) = (Ack::Buffered, |_: &[u8]| false);
        let options = Options { node, promise, must_sync, start: None, log, crew: None };
        let carrier = Arc::new(Net(Arc::clone(&net.0), node));
        let begin = Begin { carrier, founds: node == 1, ..Begin::alone() };
        let group = Recovered::open(&dir, options).unwrap().start_as(begin, Nothing).unwrap();
        net.0.lock().unwrap().insert(node, group.receiver());
        group
    }

    async fn propose(group: &Group<Nothing>, count: u64) -> u64 {
        let leadership = group.wait_to_lead().await.unwrap();
        let mut last = 0;
        for _ in 0..count {
            let payload = Bytes::from_static(b"something");
            last = group.propose(leadership, payload).await.unwrap().index;
        }
        last
    }

    async fn until(group: &Group<Nothing>, index: u64) {
        let reached = async {
            while group.applied() < Some(index) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, reached).await.expect("it gets all of it");
    }

    /// A leader that let go of its log while it ran did not know it: whoever lacked that was sent other entries than it
    /// needed, or nothing for ever.
    #[test]
    fn who_lacks_what_the_leader_has_let_go_of_is_told_and_others_go_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let net = Net::default();
        let groups = [1, 2, 3].map(|node| start(node, &net));
        let [leader, other, away] = &groups;
        runtime.block_on(async {
            propose(leader, 1).await;
            leader.add(2, "").await.unwrap();
            leader.add(3, "").await.unwrap();
            leader.set_voters([1, 2, 3]).await.unwrap();
            let shared = propose(leader, 1).await;
            until(away, shared).await;
            let heard = net.0.lock().unwrap().remove(&3).unwrap();
            let last = propose(leader, 20).await;
            until(other, last).await;
            leader.purge(last - 5).unwrap();
            net.0.lock().unwrap().insert(3, heard);
            let told = async {
                while away.lack().is_none() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            timeout(PATIENCE, told).await.expect("it is told");
            assert_eq!(away.lack(), Some(Lack { leader: 1, through: last - 5 }));
            let more = propose(leader, 5).await;
            until(other, more).await;
            assert!(away.applied() < Some(last), "nothing else was given to it");
            assert!(away.leader() == Some(1), "it hears its leader all the same");
            assert_eq!(other.lack(), None);
        });
        net.0.lock().unwrap().clear();
    }

    /// It was said that the engine had stopped.
    #[test]
    fn a_change_of_the_voters_beside_another_is_told_to_come_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let net = Net::default();
        let groups = [1, 2].map(|node| start(node, &net));
        let leader = &groups[0];
        runtime.block_on(async {
            propose(leader, 1).await;
            leader.add(2, "").await.unwrap();
            net.0.lock().unwrap().remove(&2).unwrap();
            let beside = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                leader.enlist(3, "").await
            };
            tokio::select! {
                changed = leader.set_voters([1, 2]) => panic!("one of two is away: {changed:?}"),
                said = beside => assert!(matches!(said, Err(Error::Changing)), "{said:?}"),
            }
        });
        net.0.lock().unwrap().clear();
    }

    #[test]
    fn the_log_of_a_leader_is_known_to_be_lacked_by_who_is_there_only() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let net = Net::default();
        let groups = [1, 2].map(|node| start(node, &net));
        let [leader, other] = &groups;
        runtime.block_on(async {
            let last = propose(leader, 1).await;
            assert!(!leader.is_lacking(last), "it is alone");
            leader.add(2, "").await.unwrap();
            until(other, last).await;
            // Its answer comes a moment later.
            let knows = async {
                while !leader.is_lacking(1000) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, knows).await.expect("it is there, and lacks it");
            assert!(!other.is_lacking(1000));
            let heard = net.0.lock().unwrap().remove(&2).unwrap();
            let forgets = async {
                while leader.is_lacking(1000) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(PATIENCE, forgets).await.expect("it is away");
            drop(heard);
        });
        net.0.lock().unwrap().clear();
    }
}
