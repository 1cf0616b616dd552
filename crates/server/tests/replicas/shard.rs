//! What leads the shard of records, as the broker's leader does.
//!
//! The state and the proposer are the broker's own; the loop around them is this one (the broker's reads clocks that do not
//! stand still).

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use plimsoll_server::cluster::Leadership;
use plimsoll_server::shard::{
    Answer, Fence, Generation, Item, Open, Opening, PartitionId, Producers, Proposer, Settings,
    Submission, TopicId, Why,
};
use tokio::sync::{mpsc, oneshot};

use super::leads::Leads;
use super::world::lock;

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

impl Leads {
    /// Takes batches.
    pub(super) async fn takes(
        &self,
        leadership: Leadership,
        mut asks: mpsc::UnboundedReceiver<Ask>,
    ) -> Option<()> {
        self.begins(leadership).await?;
        let mut proposer = {
            let state = &lock(&self.machines).records;
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
                Some(agreed) = on_its_way.next() => {
                    let (index, _) = agreed?;
                    proposer.applied(index + 1, &mut answers);
                }
                ask = asks.recv() => {
                    let Ask { producer, batch, reply } = ask?;
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
                let now = self.now_ms();
                let draft = proposer.draft(&lock(&self.machines).records, now, &mut answers);
                let Some(draft) = draft else { break };
                on_its_way.push_back(self.agree(leadership, draft.bytes).await?);
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
    async fn begins(&self, leadership: Leadership) -> Option<()> {
        let number = self.group.generation();
        let acts = {
            let state = &lock(&self.machines).records;
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
        if let Some(acts) = acts {
            self.agree(leadership, acts.bytes).await?.await?;
        }
        Some(())
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
