//! A shard of records in the group: the state machine of the broker, and what leads it as the broker's leader does.
//!
//! The state and the proposer are the broker's own; the loop around them is this one (the broker's reads clocks that do not
//! stand still). Entries that are none of the shard's, which clients propose too, pass by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use plimsoll_server::cluster::{Group, Leadership};
use plimsoll_server::shard::{
    Answer, Fence, Generation, Item, Open, Opening, PartitionId, Producers, Proposal, Proposer,
    Settings, State, Submission, TopicId, Why,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::oracle::Oracle;
use super::world::{Remembers, lock};

/// How often a leader looks whether it leads still.
const LOOK: Duration = Duration::from_millis(100);
/// Entries that are on their way at once.
const IN_FLIGHT_MAX: usize = 4;

/// The only partition.
pub(crate) const OPENING: Opening =
    Opening { partition: PartitionId { topic: TopicId([7; 16]), number: 0 }, number: 1 };

/// A batch that a producer sends, and who waits for its answer.
pub(crate) struct Ask {
    pub(crate) producer: u64,
    pub(crate) batch: Bytes,
    /// Dropped: what became of it is not known.
    pub(crate) reply: oneshot::Sender<Told>,
}

/// What a producer is told, and the generation in which it is.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) answer: Answer,
    pub(crate) generation: u64,
}

/// Those that lead, or believe so, and take batches.
pub(crate) type Desk = Arc<Mutex<BTreeMap<u64, mpsc::UnboundedSender<Ask>>>>;

/// What leads the shard at a node.
pub(crate) struct Leads {
    pub(crate) node: u64,
    pub(crate) group: Arc<Group<Remembers>>,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) oracle: Arc<Oracle>,
    /// By how much its clock is wrong, in ms.
    pub(crate) skew_ms: u64,
    pub(crate) begun: Instant,
}

impl Leads {
    /// Takes batches for as long as it leads.
    pub(crate) async fn lead(self, leadership: Leadership, asks: mpsc::UnboundedReceiver<Ask>) {
        tokio::select! {
            () = self.takes(leadership, asks) => {}
            () = self.until_lost(leadership) => {}
        }
    }

    async fn until_lost(&self, leadership: Leadership) {
        while self.group.leadership() == Some(leadership) {
            sleep(LOOK).await;
        }
    }

    async fn takes(&self, leadership: Leadership, mut asks: mpsc::UnboundedReceiver<Ask>) {
        if !self.begins(leadership).await {
            return;
        }
        let mut proposer = {
            let state = &lock(&self.state);
            let mut proposer = Proposer::new(state, self.now_ms());
            // The shard counts from 1.
            proposer.doubt(state, self.group.durable().map_or(0, |durable| durable + 1));
            proposer
        };
        let (mut replies, mut tickets) = (BTreeMap::new(), 0..);
        let (mut on_its_way, mut answers) = (FuturesOrdered::new(), Vec::new());
        loop {
            tokio::select! {
                biased;
                Some(agreed) = on_its_way.next() => match agreed {
                    Ok(index) => proposer.applied(index, &mut answers),
                    Err(()) => return,
                },
                ask = asks.recv() => {
                    let Some(Ask { producer, batch, reply }) = ask else { return };
                    let ticket = tickets.next().expect("there are many");
                    replies.insert(ticket, reply);
                    let opening = OPENING;
                    proposer.submit(Submission { ticket, connection: producer, opening, batch });
                }
            }
            if let Some(durable) = self.group.durable() {
                proposer.durable(durable + 1);
            }
            while on_its_way.len() < IN_FLIGHT_MAX {
                let draft = proposer.draft(&lock(&self.state), self.now_ms(), &mut answers);
                let Some(draft) = draft else { break };
                match self.agree(leadership, draft).await {
                    Some(agreed) => on_its_way.push_back(agreed),
                    None => return,
                }
            }
            for (ticket, answer) in answers.drain(..) {
                let reply: oneshot::Sender<Told> =
                    replies.remove(&ticket).expect("each ticket is answered once");
                // A producer that is gone asks for nothing.
                drop(reply.send(Told { answer, generation: self.group.generation() }));
            }
        }
    }

    /// Tells all of a loss before anything else is agreed on, and opens the partition where it is not.
    async fn begins(&self, leadership: Leadership) -> bool {
        let number = self.group.generation();
        let acts = {
            let state = &lock(&self.state);
            let now = self.now_ms();
            let mut acts = Vec::new();
            if state.generation().number < number {
                let guaranteed = self.oracle.guaranteed(number);
                acts.push(Item::Fence(Fence {
                    why: Why::Operator,
                    guaranteed,
                    given: None,
                    since: now,
                }));
                acts.push(Item::Generation(Generation { number, digest: u128::from(number) }));
                self.oracle.count("a fence after a loss");
            }
            if state.partition(OPENING).is_none() {
                acts.push(Item::Open(open()));
                self.oracle.count("a partition that was opened");
            }
            Proposer::new(state, now).act(state, now, &acts)
        };
        match acts {
            None => true,
            Some(acts) => match self.agree(leadership, acts).await {
                Some(agreed) => agreed.await.is_ok(),
                None => false,
            },
        }
    }

    /// Has an entry agreed on; its index, as the shard counts. `None`: it does not lead.
    async fn agree(
        &self,
        leadership: Leadership,
        proposal: Proposal,
    ) -> Option<BoxFuture<'static, Result<u64, ()>>> {
        let payload = proposal.bytes;
        let pending = self.group.submit(leadership, payload.clone()).await.ok()?;
        let (oracle, whose) = (Arc::clone(&self.oracle), (self.node, self.group.generation()));
        Some(Box::pin(async move {
            let committed = pending.await.map_err(drop)?;
            oracle.acknowledges(whose, committed.index, leadership.term, &payload);
            Ok(committed.index + 1)
        }))
    }

    fn now_ms(&self) -> u64 {
        let since = u64::try_from(self.begun.elapsed().as_millis()).expect("a life is short");
        self.skew_ms + since
    }
}

fn open() -> Open {
    let settings = Settings {
        retention_ms: None,
        retention_bytes: None,
        batch_bytes_max: 1 << 20,
        append_timestamps: false,
        compaction: None,
    };
    let producers = Producers::default();
    Open { opening: OPENING, base_epoch: 0, start: 0, settings, producers }
}
