//! What a replica does once it is seen that the process of its leader has ended.
//!
//! A follower waits for a second and more of silence before it campaigns, and gives its vote to nobody before: a
//! process may pause, a message may be late. One that is gone does neither. So whoever sees that gives its vote at once where
//! it is asked, and asks for those of the others, one replica after the other.
//!
//! None of this is needed for what is promised, nor can it harm it: an election is one, whatever it began with. It goes
//! through only where enough of those that vote have seen the same, or have heard no leader for as long as ever.

use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use tokio::time::sleep;

use super::apply::Apply;
use super::receiver::Receiver;
use super::types::Vote;

/// How much later than the one before it each replica campaigns: long enough for two syncs of a vote.
const TURN: Duration = Duration::from_millis(60);
/// How often each does, as the others may see it later, or have entries that it lacks.
const ROUNDS: u32 = 3;

impl<S: Apply> Receiver<S> {
    /// The process of a node is gone. If this replica followed it, it has another lead, or leads.
    pub fn gone(&self, node: u64) -> impl Future<Output = ()> + Send + use<S> {
        let receiver = self.clone();
        async move {
            receiver.heard.is_gone(node);
            let Some((vote, turn, turns)) = receiver.follows(node) else { return };
            // Only the lease ends by it: the one that is to take over is not this one.
            let released = TransferLeaderRequest::new(vote, node, None);
            if receiver.engine.handle_transfer_leader(released).await.is_err() {
                return;
            }
            sleep(TURN * turn).await;
            for _ in 0..ROUNDS {
                let may_campaign = receiver.may_campaign();
                let still_follows = receiver.follows(node).is_some_and(|(now, ..)| now == vote);
                if !may_campaign || !still_follows {
                    return;
                }
                // It asks first whether it would be elected.
                if receiver.engine.trigger().elect(true).await.is_err() {
                    return;
                }
                sleep(TURN * turns).await;
            }
        }
    }

    /// The engine is not asked here what it was told of that.
    fn may_campaign(&self) -> bool {
        let storage = self.storage.upgrade();
        let may_lead = storage.is_some_and(|storage| {
            storage.is_whole() && self.standing.may_lead(storage.tail().last())
        });
        may_lead && !self.standing.is_dirty() && self.newcomer.takes_part()
    }

    /// The vote of the leader on a node, if this replica votes and follows that; and whose turn it is among those that are
    /// left, ascending.
    fn follows(&self, leader: u64) -> Option<(Vote, u32, u32)> {
        let metrics = self.engine.metrics();
        let now = metrics.borrow_watched();
        let vote = now.vote;
        let is_its = vote.committed && vote.leader_id.voted_for == leader;
        if !is_its || now.state != ServerState::Follower {
            return None;
        }
        let voters = now.membership_config.membership().voter_ids();
        let mut left: Vec<_> = voters.filter(|voter| *voter != leader).collect();
        left.sort_unstable();
        left.dedup();
        let turn = left.iter().position(|voter| *voter == self.node)?;
        Some((vote, u32::try_from(turn).ok()?, u32::try_from(left.len()).ok()?))
    }
}
