//! Who votes in a group: nodes are taken in, and let go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{BasicNode, ChangeMembers, ServerState};
use plimsoll_log::Ack;
use tokio::time::sleep;

use super::apply::Apply;
use super::error::{Error, Result};
use super::group::{Group, why_stopped};
use super::newcomer;
use super::receiver::Receiver;
use super::state::Engine;
use super::storage::Storage;
use super::types::{LogId, Types};

/// Who votes in a group, and whom it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Membership {
    /// Those that vote; while a change is under way, before it or after.
    pub voters: BTreeSet<u64>,
    /// Where each is that gets the log, whether it votes or not.
    pub nodes: BTreeMap<u64, String>,
}

impl<S: Apply> Group<S> {
    /// Who votes, as far as this replica has heard: it need not be committed.
    #[must_use]
    pub fn membership(&self) -> Membership {
        membership(&self.engine)
    }

    /// Whether nobody came or went since it was founded.
    #[must_use]
    pub fn is_as_founded(&self) -> bool {
        let metrics = self.engine.metrics();
        let now = metrics.borrow_watched();
        now.membership_config.log_id().is_none_or(|log_id| log_id.index == 0)
    }

    /// Has a node be known, which is to get the log once it is there. Durable on a quorum on return.
    ///
    /// # Errors
    /// As [`Group::add`].
    pub async fn enlist(&self, node: u64, address: &str) -> Result<()> {
        add(&self.engine, &self.storage, node, address, false).await
    }

    /// Has a node neither vote nor get the log any more. Durable on a quorum on return.
    ///
    /// # Errors
    /// As [`Group::set_voters`].
    pub async fn let_go(&self, node: u64) -> Result<()> {
        let mut voters = self.membership().voters;
        match voters.remove(&node) {
            true => set_voters(&self.engine, voters, false).await,
            false => forget(&self.engine, BTreeSet::from([node])).await,
        }
    }

    /// Asks those nodes that `others` names until it is known whether this replica may take part. Whether it may: if not,
    /// it votes in this group, and has lost what it had of it. The future does not hold the group.
    pub fn until_it_takes_part<F: Fn() -> Vec<u64> + Send + Sync>(
        &self,
        others: F,
    ) -> impl Future<Output = bool> + Send + use<S, F> {
        newcomer::until_it_takes_part(Arc::clone(&self.newcomer), self.network.clone(), others)
    }

    /// Adds the replica of a node, which gets the log and does not vote yet. It has all of it on return.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Changing`], [`Error::Stopped`].
    pub async fn add(&self, node: u64, address: &str) -> Result<()> {
        add(&self.engine, &self.storage, node, address, true).await
    }

    /// Makes these nodes the voters, each of which was [added](Group::add); who is none of them is let go.
    /// Durable on a quorum on return. Who leads is to be one of them: asked again once it had taken itself out, its
    /// engine would end.
    ///
    /// # Errors
    /// As [`Group::add`].
    pub async fn set_voters(&self, voters: impl IntoIterator<Item = u64>) -> Result<()> {
        set_voters(&self.engine, voters.into_iter().collect(), false).await
    }
}

/// Whoever changes the voters takes the second step of it sooner.
const BREATH: Duration = Duration::from_secs(1);

/// Entries that a node may lack when it begins to vote: they are on their way.
const LAG: u64 = 1024;

impl<S: Apply> Receiver<S> {
    /// Who votes, as [`Group::membership`].
    #[must_use]
    pub fn membership(&self) -> Membership {
        membership(&self.engine)
    }

    /// Has these nodes get the log and some of them vote, if this replica leads and that is not so. Each has the log before it
    /// votes; who does not vote any more gets it still, and who is none of the nodes is let go. That is durable on a quorum on
    /// return. Whoever leads votes until another leads; who is none of the nodes does nothing: another is to lead first.
    ///
    /// # Errors
    /// As [`Group::add`]: another leads now, or a change is under way.
    pub async fn follow(&self, wanted: &Membership) -> Result<()> {
        let leads = self.engine.metrics().borrow_watched().state == ServerState::Leader;
        if !leads || !wanted.nodes.contains_key(&self.node) {
            return Ok(());
        }
        let Membership { voters, nodes: known } = membership(&self.engine);
        for (node, address) in wanted.nodes.iter().filter(|(node, _)| !known.contains_key(node)) {
            let storage = self.storage.upgrade().ok_or_else(|| why_stopped(&self.engine))?;
            let will_vote = wanted.voters.contains(node);
            add(&self.engine, &storage, *node, address, will_vote).await?;
        }
        let mut vote = wanted.voters.clone();
        vote.insert(self.node);
        if vote != voters || self.was_broken_off().await? {
            self.until_they_have_it(&vote - &voters).await?;
            // What was wanted before somebody went would have that one back.
            if membership(&self.engine).voters != voters {
                return Err(Error::Changing);
            }
            set_voters(&self.engine, vote, true).await?;
        }
        let known: BTreeSet<u64> = known.into_keys().collect();
        let gone = &known - &wanted.nodes.keys().copied().collect();
        if gone.is_empty() { Ok(()) } else { forget(&self.engine, gone).await }
    }

    /// Whether a change of the voters was left in its midst: its leader led no more, or whoever asked for it was gone. Until it is ended
    /// nothing is agreed on without a majority of those before it and one of those after it. One that goes on is an error.
    async fn was_broken_off(&self) -> Result<bool> {
        let Some(since) = under_way_since(&self.engine)? else { return Ok(false) };
        sleep(BREATH).await;
        match under_way_since(&self.engine)? {
            Some(still) if still == since => Ok(true),
            _ => Err(Error::Changing),
        }
    }

    /// Waits until these have the log, but for a little: nothing would be committed while most of the voters lack it.
    async fn until_they_have_it(&self, nodes: BTreeSet<u64>) -> Result<()> {
        let mut metrics = self.engine.metrics();
        loop {
            {
                let now = metrics.borrow_and_update();
                let last = now.last_log_index.unwrap_or(0);
                let matched = now.replication.as_ref();
                let has_it = |node: &u64| {
                    let has = matched.and_then(|matched| matched.get(node).copied().flatten());
                    has.is_some_and(|has| has.index + LAG >= last)
                };
                if now.state != ServerState::Leader {
                    return Err(Error::Stopped { why: "another leads now".to_owned() });
                }
                if nodes.iter().all(has_it) {
                    return Ok(());
                }
            }
            metrics.changed().await.map_err(|why| Error::Stopped { why: why.to_string() })?;
        }
    }
}

fn membership<S: Apply>(engine: &Engine<S>) -> Membership {
    let metrics = engine.metrics();
    let now = metrics.borrow_watched();
    let members = now.membership_config.membership();
    let address = |(node, known): (&u64, &BasicNode)| (*node, known.addr.clone());
    Membership {
        voters: members.voter_ids().collect(),
        nodes: members.nodes().map(address).collect(),
    }
}

/// Since when those that voted before a change and those that vote after it have the say, both, if that is so.
fn under_way_since<S: Apply>(engine: &Engine<S>) -> Result<Option<LogId>> {
    let committed = engine.data_metrics().borrow_watched().local_committed;
    let metrics = engine.metrics();
    let members = &metrics.borrow_watched().membership_config;
    if *members.log_id() > committed {
        return Err(Error::Changing);
    }
    let is_joint = members.membership().get_joint_config().len() > 1;
    Ok(members.log_id().filter(|_| is_joint))
}

/// Has a node get the log; where `waits`, all of it before this returns.
async fn add<S: Apply>(
    engine: &Engine<S>,
    storage: &Storage,
    node: u64,
    address: &str,
    waits: bool,
) -> Result<()> {
    // From here on nothing is acknowledged by one voter alone that is not durable; what was before is, too.
    storage.onlookers.come();
    let last = storage.log.last_index();
    if last > storage.log.durable() {
        storage.log.wait(last, Ack::Durable)?.await?;
    }
    let added = engine.add_learner(node, BasicNode::new(address), waits).await;
    added.map(drop).map_err(|why| why_unchanged(engine, why))
}

/// Who votes no more goes on to get the log, where that is said.
async fn set_voters<S: Apply>(
    engine: &Engine<S>,
    voters: BTreeSet<u64>,
    get_it_still: bool,
) -> Result<()> {
    let takes_itself_out = {
        let metrics = engine.metrics();
        let now = metrics.borrow_watched();
        now.state == ServerState::Leader && !voters.contains(&now.id)
    };
    if takes_itself_out {
        let why = "a leader does not take itself out: have another lead first".to_owned();
        return Err(Error::Stopped { why });
    }
    let changed = engine.change_membership(voters, get_it_still).await;
    changed.map(drop).map_err(|why| why_unchanged(engine, why))
}

/// Has nodes that do not vote get the log no more.
async fn forget<S: Apply>(engine: &Engine<S>, nodes: BTreeSet<u64>) -> Result<()> {
    let changed = engine.change_membership(ChangeMembers::RemoveNodes(nodes), false).await;
    changed.map(drop).map_err(|why| why_unchanged(engine, why))
}

fn why_unchanged<S: Apply>(
    engine: &Engine<S>,
    why: RaftError<Types, ClientWriteError<Types>>,
) -> Error {
    match why {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => {
            Error::NotLeader { term: engine.metrics().borrow_watched().current_term }
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(
            ChangeMembershipError::InProgress(_),
        )) => Error::Changing,
        why => Error::Stopped { why: why.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::cluster::trio::{Net, PATIENCE, propose, start, tell};

    /// Those that voted before and those that vote after it were the ones that were wanted, together: so it was left at that, and a majority of
    /// the three that it had begun with was needed for ever (seed 2045 of the simulated replicas).
    #[test]
    fn a_change_of_the_voters_that_was_broken_off_is_ended() {
        let net = Net::default();
        tell(async {
            let [leader, two, three] = [1, 2, 3].map(|node| start(node, &net));
            propose(&leader.group).await;
            leader.group.add(2, "").await.unwrap();
            leader.group.add(3, "").await.unwrap();
            let away = std::mem::take(&mut *net.heard());
            let broken_off = timeout(BREATH / 20, leader.group.set_voters([1, 2, 3])).await;
            assert!(broken_off.is_err(), "the others are away: {broken_off:?}");
            *net.heard() = away;
            let wanted = Membership {
                voters: BTreeSet::from([1, 2, 3]),
                nodes: BTreeMap::from([1, 2, 3].map(|node| (node, String::new()))),
            };
            let ended = async {
                loop {
                    let followed = leader.group.receiver().follow(&wanted).await;
                    assert!(matches!(followed, Ok(()) | Err(Error::Changing)), "{followed:?}");
                    if let Ok(None) = under_way_since(&leader.group.engine) {
                        return leader.group.membership();
                    }
                    sleep(BREATH / 20).await;
                }
            };
            let found = timeout(PATIENCE, ended).await.expect("it is ended");
            assert_eq!(found, wanted);
            drop((two, three));
        });
        net.heard().clear();
    }

    /// It was said that the engine had stopped.
    #[test]
    fn a_change_of_the_voters_beside_another_is_told_to_come_again() {
        let net = Net::default();
        tell(async {
            let [leader, _other] = [1, 2].map(|node| start(node, &net));
            propose(&leader.group).await;
            leader.group.add(2, "").await.unwrap();
            net.heard().remove(&2).unwrap();
            let beside = async {
                sleep(Duration::from_millis(50)).await;
                leader.group.enlist(3, "").await
            };
            tokio::select! {
                changed = leader.group.set_voters([1, 2]) => panic!("one of two is away: {changed:?}"),
                said = beside => assert!(matches!(said, Err(Error::Changing)), "{said:?}"),
            }
        });
        net.heard().clear();
    }
}
