//! How a leader hands over: it has the replica of another node campaign, and votes for that.
//!
//! The engine has a way of its own, after which a leader takes nothing and says nothing any more, for ever: where the other
//! one crashes at that moment, and a third lacks an entry, nobody could be elected. So the leader stays what it is
//! until the other's vote has come, and goes on in its term where none does.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use openraft::RaftState;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use tokio::time::timeout;

use super::apply::Apply;
use super::error::{Error, Result};
use super::group::Group;
use super::message::{Answer, AskDurable, Request};
use super::quorum;
use super::state::Leadership;
use super::types::{LogId, Types};

/// How long the other may take, with two syncs of a slow disk in it: meanwhile nobody leads.
const PATIENCE: Duration = Duration::from_secs(2);

impl<S: Apply> Group<S> {
    /// Has the replica of another node lead in place of this one: it does on return. Meanwhile this one
    /// [leads](Group::leadership) no more; what was submitted to it before is applied first, where that is not kept from it by what its disk
    /// has lost.
    ///
    /// # Errors
    /// [`Error::NotLeader`]; [`Error::NotTaken`], and this one goes on; [`Error::Stopped`].
    pub async fn hand_over(&self, to: u64) -> Result<()> {
        let not_taken = |why: &str| Error::NotTaken { to, why: why.to_owned() };
        let (term, own) = {
            let metrics = self.engine.metrics();
            let now = metrics.borrow_watched();
            (now.current_term, now.vote)
        };
        let Some(led) = self.leadership().filter(|led| led.term == term) else {
            return Err(Error::NotLeader { term });
        };
        if to == self.node {
            return Ok(());
        }
        if !self.voters().contains(&to) {
            return Err(not_taken("it does not vote here"));
        }
        let handed = async {
            // Before anybody is kept waiting.
            self.would_be_elected(to).await.map_err(not_taken)?;
            let _hands = self.handing.hands(term);
            let last = self.last().await?;
            let applied = self.until_applied(led, last);
            if self.is_damaged() {
                // What it cannot send others wait for, and it may be that no majority takes anything before another leads.
                timeout(PATIENCE / 2, applied).await.unwrap_or(Ok(()))?;
            } else {
                applied.await?;
            }
            self.until_matched(to, last).await?;
            // Meanwhile others may have gone, and came back in doubt.
            self.would_be_elected(to).await.map_err(not_taken)?;
            let request = Request::TakeOver(TransferLeaderRequest::new(own, to, last));
            let taken = self.network.ask(to, &request).await;
            taken.map_err(|why| not_taken(&why.to_string()))?;
            let mut roles = self.engine.metrics();
            loop {
                let (now, leader) = {
                    let role = roles.borrow_and_update();
                    (role.current_term, role.current_leader)
                };
                if now > term && leader.is_some() {
                    return Ok(());
                }
                roles.changed().await.map_err(|_ended| self.why_stopped())?;
            }
        };
        timeout(PATIENCE, handed).await.unwrap_or_else(|_late| Err(not_taken("it took too long")))
    }

    /// Whether this replica is about to lead, or about to lead no more: who asks does better to wait for that.
    #[must_use]
    pub fn is_between(&self) -> bool {
        let (term, leads) = {
            let metrics = self.engine.metrics();
            let role = metrics.borrow_watched();
            (role.vote.leader_id.term, role.state == openraft::ServerState::Leader)
        };
        leads && (self.handing.is_in(term) || self.leadership().is_none() && !self.is_cut_off())
    }

    /// Waits until all that was submitted before is applied, as long as this replica leads in this leadership. Whoever begins
    /// to lead anew knows then what its own entries have made, in its own term too.
    pub(crate) async fn settle(&self, led: Leadership) -> Result<()> {
        let last = self.last().await?;
        self.until_applied(led, last).await
    }

    async fn until_applied(&self, led: Leadership, last: Option<LogId>) -> Result<()> {
        let mut progress = self.progress.clone();
        loop {
            let now = *progress.borrow_and_update();
            if now.applied >= last.map(|last| last.index) || now.began != Some(led) {
                return Ok(());
            }
            progress.changed().await.map_err(|_ended| self.why_stopped())?;
        }
    }

    async fn until_matched(&self, to: u64, last: Option<LogId>) -> Result<()> {
        let mut metrics = self.engine.metrics();
        loop {
            let matched = {
                let now = metrics.borrow_and_update();
                now.replication.as_ref().and_then(|all| *all.get(&to)?)
            };
            if matched >= last {
                return Ok(());
            }
            metrics.changed().await.map_err(|_ended| self.why_stopped())?;
        }
    }

    /// The last entry of its log, behind all that was submitted before.
    async fn last(&self) -> Result<Option<LogId>> {
        let last =
            |state: &RaftState<Types>| state.log_ids.last().or(state.log_ids.purged()).copied();
        let last = self.engine.with_raft_state(last).await;
        last.map_err(|why| Error::Stopped { why: why.to_string() })
    }

    /// Whether the replica of a node would vote, and with it so many that they are a quorum; if not, why not.
    async fn would_be_elected(&self, to: u64) -> std::result::Result<(), &'static str> {
        let others = self.voters().into_iter().filter(|voter| *voter != self.node);
        let asked = others.map(|voter| async move { (voter, self.would_vote(voter).await) });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut voting = BTreeSet::from([self.node]);
        while let Some((voter, would)) = asked.next().await {
            if would {
                voting.insert(voter);
            } else if voter == to {
                return Err("it is away, or may have forgotten what it acknowledged");
            }
            // One that is damaged may lead nothing on, and loses nothing by it.
            if voting.contains(&to) && (self.is_damaged() || self.is_quorum(&voting)) {
                return Ok(());
            }
        }
        Err(
            "too few of the others are there, whole, and know that they forgot nothing: it might not be elected",
        )
    }

    fn is_quorum(&self, these: &BTreeSet<u64>) -> bool {
        let metrics = self.engine.metrics();
        let now = metrics.borrow_watched();
        quorum::is_one(now.membership_config.membership().get_joint_config(), these)
    }

    /// Whether the replica of a node is there, follows this one, and votes.
    async fn would_vote(&self, node: u64) -> bool {
        let metrics = self.engine.metrics();
        let vote = metrics.borrow_watched().vote;
        let Some(last) = self.storage.tail().last() else { return false };
        let ask = AskDurable { vote, last, durable: None, syncs: false };
        let asked = self.network.ask(node, &Request::Durable(ask));
        matches!(timeout(PATIENCE / 4, asked).await, Ok(Ok(Answer::Durable(_, how))) if how.votes)
    }
}
