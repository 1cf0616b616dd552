//! [`Receiver`]: what a replica does that another asks for.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::AppendEntriesRequest as Append;
use openraft::raft::VoteRequest;

use super::apply::Apply;
use super::behind::{Behind, Lack};
use super::carrier::Incarnations;
use super::disk::Disk;
use super::durability::{self, Durability};
use super::generation::Generation;
use super::heal;
use super::heard::Heard;
use super::level::Named;
use super::message::{Answer, Fitness, Greeting, Refusal, Request};
use super::newcomer::Newcomer;
use super::standing::Standing;
use super::state::Engine;
use super::storage::Storage;
use super::types::{LogId, Types, Vote};

/// Answers the other replicas of a group. It does not hold the group: after that has ended it refuses.
pub struct Receiver<S: Apply> {
    pub(super) node: u64,
    pub(super) engine: Engine<S>,
    pub(super) storage: Weak<Storage>,
    pub(super) standing: Arc<Standing>,
    pub(super) durability: Arc<Durability>,
    pub(super) incarnations: Arc<Incarnations>,
    pub(super) generation: Arc<Generation>,
    pub(super) behind: Arc<Behind>,
    pub(super) newcomer: Arc<Newcomer>,
    pub(super) heard: Arc<Heard>,
    pub(super) named: Arc<Named>,
    pub(super) disk: Arc<Disk>,
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
        let request = self.generation.open(from, request).map(|request| Request::decode(&request));
        let receiver = self.clone();
        async move {
            let answer = match request {
                _ if !is_current => Err(Refusal::Ended),
                None => Err(Refusal::OtherGeneration),
                Some(Ok(Request::Greet)) => Ok(Answer::Greet(receiver.greet(from))),
                Some(Ok(_)) if !receiver.newcomer.takes_part() => Err(Refusal::HasNothing),
                Some(Ok(Request::Gone(through))) => receiver.look_for(from, through),
                Some(Ok(request)) => receiver.act(request).await,
                Some(Err(why)) => {
                    tracing::error!(from, %why, "a message of another replica cannot be read");
                    Err(Refusal::Unreadable)
                }
            };
            receiver.generation.seal(answer.unwrap_or_else(Answer::Refused).encode())
        }
    }

    /// The node whose replica leads, be it this one, or another that was heard lately.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        let leader = self.engine.metrics().borrow_watched().current_leader;
        leader.filter(|leader| *leader == self.node || self.heard.is_lately(*leader))
    }

    pub(super) async fn act(&self, request: Request) -> Result<Answer, Refusal> {
        let Self { engine, standing, .. } = self;
        if self.disk.has_failed() {
            if let Request::Append(Append { vote, .. }) = &request {
                self.heard.hears_of(vote.leader_id.term, vote.leader_id.voted_for);
            }
            return Err(Refusal::DiskFailed);
        }
        let storage = self.storage.upgrade();
        let is_wounded = storage.is_some_and(|s| s.wounds.are_open() || s.hid_members());
        let (needs_vote, needs_log) = match request {
            Request::Append(_) | Request::Durable(_) | Request::Give(_) => (false, false),
            // Its log may be damaged: what it ends with is known all the same.
            Request::Vote(_) | Request::PreVote(_) | Request::ReEnter(_) => (true, false),
            _ => (true, true),
        };
        if needs_vote && standing.is_dirty() || needs_log && is_wounded {
            return Err(Refusal::DoesNotVote);
        }
        Ok(match request {
            // The engine takes an error of its log for its end. So it is not asked; its leader sends it again.
            Request::Append(request) if self.disk.is_full() && !request.entries.is_empty() => {
                self.heard.hears(request.vote.leader_id.voted_for);
                return Err(Refusal::NoRoom);
            }
            Request::Append(request) if self.behind.takes_none() && !request.entries.is_empty() => {
                self.heard.hears(request.vote.leader_id.voted_for);
                return Err(Refusal::HasNothing);
            }
            Request::Append(request) => {
                // Where that is not the leader any more, the engine does not name it.
                self.heard.hears(request.vote.leader_id.voted_for);
                let appended = engine.append_entries(request).await;
                Answer::Appended(appended.map_err(|_why| Refusal::Engine)?)
            }
            Request::Vote(request) | Request::PreVote(request)
                if !standing.may_lead(request.last_log_id) =>
            {
                return Err(Refusal::DoesNotVote);
            }
            Request::Vote(request) => {
                let request = self.as_it_counts(request);
                let voted = engine.vote(request).await.map_err(|_why| Refusal::Engine)?;
                debug_assert!(
                    !(voted.vote_granted && standing.is_dirty()),
                    "S6: it votes in doubt"
                );
                Answer::Voted(voted)
            }
            Request::PreVote(request) => {
                let request = self.as_it_counts(request);
                Answer::Voted(engine.pre_vote(request).await.map_err(|_why| Refusal::Engine)?)
            }
            Request::ReEnter(_) => self.name_last().await?,
            Request::Durable(asked) => {
                let storage = self.storage.upgrade().ok_or(Refusal::Engine)?;
                if self.vote() == Some(asked.vote) {
                    self.named.hears(asked.last.index, self.applied());
                }
                let through = durability::answer(&storage, self.vote(), &asked).await;
                // Meanwhile it may have voted for another, whose log need not have what was synced.
                let through = through.filter(|_| self.vote() == Some(asked.vote) && !is_wounded);
                if let Some(through) = through {
                    self.durability.learn(asked.durable.min(Some(through)));
                }
                let votes = !standing.is_dirty() && !is_wounded;
                Answer::Durable(through, Fitness { votes, has_room: !self.disk.is_full() })
            }
            Request::TakeOver(request) => match engine.handle_transfer_leader(request).await {
                Ok(Ok(())) => Answer::Taken,
                _ => return Err(Refusal::Engine),
            },
            Request::Give(asked) => {
                let storage = self.storage.upgrade().ok_or(Refusal::Engine)?;
                heal::give(engine, &storage, &asked).await.map_err(|_why| Refusal::Engine)?
            }
            Request::Gone(_) | Request::Greet => unreachable!("a replica in doubt answers too"),
        })
    }

    /// A request for this replica's vote, as it is held against its log.
    fn as_it_counts(&self, mut asked: VoteRequest<Types>) -> VoteRequest<Types> {
        // Who could lead with what it has, gives nothing up.
        if let Some(storage) = self.storage.upgrade().filter(|storage| !storage.is_whole()) {
            let own = storage.tail().last();
            asked.last_log_id = self.standing.counts(asked.last_log_id, own, self.applied());
        }
        asked
    }

    /// What is known here of the replica on a node, which has nothing.
    fn greet(&self, node: u64) -> Greeting {
        let metrics = self.engine.metrics();
        let now = metrics.borrow_watched();
        let votes = now.membership_config.membership().voter_ids().any(|voter| voter == node);
        match now.state {
            _ if votes => Greeting::Votes,
            ServerState::Leader => Greeting::New,
            _ => Greeting::Unknown,
        }
    }

    /// Whether all is here that the leader on a node has let go of. If not, whoever opened this replica is told.
    fn look_for(&self, leader: u64, through: LogId) -> Result<Answer, Refusal> {
        let storage = self.storage.upgrade().ok_or(Refusal::Engine)?;
        let is_here = storage.has(through).map_err(|_why| Refusal::Engine)?;
        if !is_here {
            self.behind.learn(Lack { leader, through: through.index });
        }
        Ok(Answer::Gone(is_here))
    }

    fn vote(&self) -> Option<Vote> {
        let metrics = self.engine.metrics();
        let vote = metrics.borrow_watched().vote;
        Some(vote)
    }

    fn applied(&self) -> Option<u64> {
        let metrics = self.engine.metrics();
        let applied = metrics.borrow_watched().last_applied;
        applied.map(|last| last.index)
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
            generation: Arc::clone(&self.generation),
            behind: Arc::clone(&self.behind),
            newcomer: Arc::clone(&self.newcomer),
            heard: Arc::clone(&self.heard),
            named: Arc::clone(&self.named),
            disk: Arc::clone(&self.disk),
        }
    }
}

impl<S: Apply> std::fmt::Debug for Receiver<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("node", &self.node).finish_non_exhaustive()
    }
}
