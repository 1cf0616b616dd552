//! Who votes in a group: nodes are taken in, and let go.

use std::collections::{BTreeMap, BTreeSet};

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{BasicNode, ServerState};
use plimsoll_log::Ack;

use super::apply::Apply;
use super::error::{Error, Result};
use super::group::{Group, why_stopped};
use super::receiver::Receiver;
use super::state::Engine;
use super::storage::Storage;
use super::types::Types;

impl<S: Apply> Group<S> {
    /// Adds the replica of a node, which gets the log and does not vote yet. It has all of it on return.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Stopped`].
    pub async fn add(&self, node: u64, address: &str) -> Result<()> {
        add(&self.engine, &self.storage, node, address).await
    }

    /// Makes these nodes the voters, each of which was [added](Group::add); who is none of them is let go.
    /// Durable on a quorum on return. Who leads is to be one of them: asked again once it had taken itself out, its
    /// engine would end.
    ///
    /// # Errors
    /// As [`Group::add`].
    pub async fn set_voters(&self, voters: impl IntoIterator<Item = u64>) -> Result<()> {
        set_voters(&self.engine, voters.into_iter().collect()).await
    }
}

/// Entries that a node may lack when it begins to vote: they are on their way.
const LAG: u64 = 1024;

impl<S: Apply> Receiver<S> {
    /// Makes these nodes voters, if this replica leads and some of them are not. Each gets the log before it
    /// votes; that they vote is durable on a quorum on return.
    ///
    /// # Errors
    /// As [`Group::add`]: another leads now, or a change is under way.
    pub async fn take_in(&self, nodes: &BTreeMap<u64, String>) -> Result<()> {
        let (leads, voters, known) = {
            let metrics = self.engine.metrics();
            let now = metrics.borrow_watched();
            let members = now.membership_config.membership();
            let known: BTreeSet<u64> = members.nodes().map(|(node, _)| *node).collect();
            let voters: BTreeSet<u64> = members.voter_ids().collect();
            (now.state == ServerState::Leader, voters, known)
        };
        let lacks = nodes.keys().any(|node| !voters.contains(node));
        if !leads || !lacks {
            return Ok(());
        }
        for (node, address) in nodes.iter().filter(|(node, _)| !known.contains(node)) {
            let storage = self.storage.upgrade().ok_or_else(|| why_stopped(&self.engine))?;
            add(&self.engine, &storage, *node, address).await?;
        }
        let all: BTreeSet<u64> = voters.iter().copied().chain(nodes.keys().copied()).collect();
        self.until_they_have_it(&all - &voters).await?;
        set_voters(&self.engine, all).await
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

async fn add<S: Apply>(
    engine: &Engine<S>,
    storage: &Storage,
    node: u64,
    address: &str,
) -> Result<()> {
    // From here on nothing is acknowledged by one voter alone that is not durable; what was before is, too.
    storage.onlookers.come();
    let last = storage.log.last_index();
    if last > storage.log.durable() {
        storage.log.wait(last, Ack::Durable)?.await?;
    }
    let added = engine.add_learner(node, BasicNode::new(address), true).await;
    added.map(drop).map_err(|why| why_unchanged(engine, why))
}

async fn set_voters<S: Apply>(engine: &Engine<S>, voters: BTreeSet<u64>) -> Result<()> {
    let takes_itself_out = {
        let metrics = engine.metrics();
        let now = metrics.borrow_watched();
        now.state == ServerState::Leader && !voters.contains(&now.id)
    };
    if takes_itself_out {
        let why = "a leader does not take itself out: have another lead first".to_owned();
        return Err(Error::Stopped { why });
    }
    let changed = engine.change_membership(voters, false).await;
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
        why => Error::Stopped { why: why.to_string() },
    }
}
