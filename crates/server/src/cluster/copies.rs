//! How many voters have an entry, and which of them may be read from: asked by those who want more than that it is committed.

use std::collections::BTreeSet;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;

use super::apply::Apply;
use super::durability::Unwell;
use super::group::Group;
use super::quorum;
use super::state::Engine;

impl<S: Apply> Group<S> {
    /// Whether so many copies are more than a majority of the voters: then an entry may be committed and have fewer.
    #[must_use]
    pub fn is_above_majority(&self, copies: usize) -> bool {
        let metrics = self.engine.metrics();
        let members = &metrics.borrow_watched().membership_config;
        let sets = members.membership().get_joint_config();
        sets.iter().any(|set| copies > set.len() / 2 + 1)
    }

    /// How many voters have, as far as this replica knows as their leader, what was committed a moment ago, itself included;
    /// 0 where it does not lead.
    #[must_use]
    pub fn in_sync(&self) -> usize {
        if self.leadership().is_some() { self.durability.level().others.len() + 1 } else { 0 }
    }

    /// The voters that have what was committed a moment ago, itself included; `None` where it does not lead, or for too short a
    /// time to know.
    #[must_use]
    pub fn level(&self) -> Option<BTreeSet<u64>> {
        let leadership = self.leadership()?;
        let level = self.durability.level();
        let is_known = level.known_in == leadership.term;
        is_known.then(|| level.others.iter().copied().chain([self.node]).collect())
    }

    /// How many more voters may fail before this replica takes nothing any more: those count that are level, and not away, in doubt or full. `None` where
    /// it does not lead, or for too short a time to know.
    #[must_use]
    pub fn spare(&self) -> Option<usize> {
        let (mut level, unwell) = (self.level()?, self.unwell());
        let takes_none = |how| matches!(how, &Unwell::Away | &Unwell::InDoubt | &Unwell::Full);
        level.retain(|voter| !unwell.get(voter).is_some_and(takes_none));
        let metrics = self.engine.metrics();
        let members = &metrics.borrow_watched().membership_config;
        Some(quorum::spare(members.membership().get_joint_config(), &level))
    }

    /// Whether another voter may be read from, as far as this replica knows as its leader.
    #[must_use]
    pub fn is_level(&self, voter: u64) -> bool {
        self.durability.level().others.contains(&voter)
    }

    /// Whether this replica may be read from though another leads: it hears that leader, votes, is not in doubt, and has
    /// applied what the leader's log held a few seconds ago.
    #[must_use]
    pub fn follows_closely(&self) -> bool {
        let follows = self.leader().is_some_and(|leader| leader != self.node);
        let is_sure = !self.is_dirty() && self.lack().is_none();
        follows
            && is_sure
            && self.voters().contains(&self.node)
            && !self.named.is_behind(self.applied())
    }

    /// The last entry that so many of the voters have, as far as this replica knows as their leader.
    #[must_use]
    pub fn copied(&self, copies: usize) -> Option<u64> {
        copied(&self.engine, copies)
    }

    /// Waits until more than that entry has so many copies: until this replica has lost its leadership, it may be for ever.
    pub fn watch_copied(
        &self,
        copies: usize,
        beyond: Option<u64>,
    ) -> impl Future<Output = ()> + Send + use<S> {
        let (engine, mut changes) = (self.engine.clone(), self.engine.metrics());
        async move {
            loop {
                // What changes from here on is heard.
                drop(changes.borrow_and_update());
                if copied(&engine, copies) > beyond {
                    return;
                }
                if changes.changed().await.is_err() {
                    // The engine has ended: nothing has more copies any more.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

fn copied<S: Apply>(engine: &Engine<S>, copies: usize) -> Option<u64> {
    let metrics = engine.metrics();
    let now = metrics.borrow_watched();
    let matched = now.replication.as_ref().filter(|_| now.state == ServerState::Leader)?;
    let has =
        |(node, last): (&u64, &Option<super::types::LogId>)| Some((*node, last.as_ref()?.index));
    let matched = matched.iter().filter_map(has).collect();
    let voters = now.membership_config.membership().get_joint_config();
    quorum::copied(voters, &matched, copies)
}
