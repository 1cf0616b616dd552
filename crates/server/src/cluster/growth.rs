//! How nodes are taken into a group.

use std::collections::{BTreeMap, BTreeSet};

use openraft::async_runtime::WatchReceiver;
use openraft::{BasicNode, ServerState};

use super::apply::Apply;
use super::error::{Error, Result};
use super::receiver::Receiver;

impl<S: Apply> Receiver<S> {
    /// Makes these nodes voters, if this replica leads and some of them are not. Each gets the log before it
    /// votes; that they vote is durable on a quorum on return.
    ///
    /// # Errors
    /// [`Error::Stopped`], with why they are not: another leads now, or a change is under way.
    pub async fn take_in(&self, nodes: &BTreeMap<u64, String>) -> Result<()> {
        let stopped = |why: &dyn std::fmt::Display| Error::Stopped { why: why.to_string() };
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
            let learner = self.engine.add_learner(*node, BasicNode::new(address), true).await;
            learner.map_err(|why| stopped(&why))?;
        }
        let all: BTreeSet<u64> = voters.into_iter().chain(nodes.keys().copied()).collect();
        let changed = self.engine.change_membership(all, false).await;
        changed.map(drop).map_err(|why| stopped(&why))
    }
}
