//! [`Receiver`]: what a replica does that another asks for.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;

use super::apply::Apply;
use super::carrier::Incarnations;
use super::durability::{self, Durability};
use super::message::{Answer, Refusal, Request};
use super::standing::Standing;
use super::state::Engine;
use super::storage::Storage;
use super::types::Vote;

/// Answers the other replicas of a group. It does not hold the group: after that has ended it refuses.
pub struct Receiver<S: Apply> {
    pub(super) node: u64,
    pub(super) engine: Engine<S>,
    pub(super) storage: Weak<Storage>,
    pub(super) standing: Arc<Standing>,
    pub(super) durability: Arc<Durability>,
    pub(super) incarnations: Arc<Incarnations>,
}

impl<S: Apply> Receiver<S> {
    /// Answers what the replica on a node asks, in one of its incarnations.
    pub fn answer(
        &self,
        from: u64,
        incarnation: u64,
        request: &Bytes,
    ) -> impl Future<Output = Vec<Bytes>> + Send + use<S> {
        let is_current = self.incarnations.is_current(from, incarnation);
        let request = Request::decode(request);
        let receiver = self.clone();
        async move {
            let answer = match request {
                _ if !is_current => Err(Refusal::Ended),
                Ok(request) => receiver.act(request).await,
                Err(why) => {
                    tracing::error!(from, %why, "a message of another replica cannot be read");
                    Err(Refusal::Unreadable)
                }
            };
            answer.unwrap_or_else(Answer::Refused).encode()
        }
    }

    async fn act(&self, request: Request) -> Result<Answer, Refusal> {
        let Self { engine, standing, .. } = self;
        let needs_vote = !matches!(request, Request::Append(_) | Request::Durable(_));
        if needs_vote && standing.is_dirty() {
            return Err(Refusal::DoesNotVote);
        }
        Ok(match request {
            Request::Append(request) => {
                let appended = engine.append_entries(request).await;
                Answer::Appended(appended.map_err(|_why| Refusal::Engine)?)
            }
            Request::Vote(request) => {
                Answer::Voted(engine.vote(request).await.map_err(|_why| Refusal::Engine)?)
            }
            Request::PreVote(request) => {
                Answer::Voted(engine.pre_vote(request).await.map_err(|_why| Refusal::Engine)?)
            }
            Request::ReEnter(_) => self.name_last().await?,
            Request::Durable(asked) => {
                let storage = self.storage.upgrade().ok_or(Refusal::Engine)?;
                let through = durability::answer(&storage, self.vote(), &asked).await;
                if let Some(through) = through {
                    self.durability.learn(asked.durable.min(Some(through)));
                }
                Answer::Durable(through, !standing.is_dirty())
            }
            Request::TakeOver(request) => match engine.handle_transfer_leader(request).await {
                Ok(Ok(())) => Answer::Taken,
                _ => return Err(Refusal::Engine),
            },
        })
    }

    fn vote(&self) -> Option<Vote> {
        let metrics = self.engine.metrics();
        let vote = metrics.borrow_watched().vote;
        Some(vote)
    }

    /// The last entry of this replica's log, if it leads: not the last that is committed.
    async fn name_last(&self) -> Result<Answer, Refusal> {
        let node = self.node;
        let stands = self.engine.with_raft_state(move |state| {
            let vote = *state.vote_ref();
            let is_own = vote.committed && vote.leader_id.voted_for == node;
            let leads = is_own && state.server_state == ServerState::Leader;
            leads.then(|| (vote, state.log_ids.last().or(state.log_ids.purged()).copied()))
        });
        let (vote, last) =
            stands.await.map_err(|_why| Refusal::Engine)?.ok_or(Refusal::DoesNotLead)?;
        Ok(Answer::ReEnter(vote, last))
    }
}

impl<S: Apply> Clone for Receiver<S> {
    fn clone(&self) -> Self {
        Self {
            node: self.node,
            engine: self.engine.clone(),
            storage: Weak::clone(&self.storage),
            standing: Arc::clone(&self.standing),
            durability: Arc::clone(&self.durability),
            incarnations: Arc::clone(&self.incarnations),
        }
    }
}

impl<S: Apply> std::fmt::Debug for Receiver<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("node", &self.node).finish_non_exhaustive()
    }
}
