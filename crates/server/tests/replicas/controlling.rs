//! What is the controller, as the broker's is (`src/broker/topics.rs`): it has one change of topics agreed on after the other, and
//! the names of topics that went become free.
//!
//! What a change comes to is what applying it says. Which shards partitions are in, and that they are emptied there, is not
//! simulated.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use plimsoll_server::cluster::Leadership;
use plimsoll_server::control::{Catalog, Change, Impossible};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::desk::{Reply, Told};
use super::leads::Leads;
use super::machines::{Agreed, of_topics};
use super::world::lock;

/// How often it is looked for topics that are to go.
const LOOK: Duration = Duration::from_millis(250);

/// What the controller is asked, and who waits for the answer.
pub(crate) enum Ask {
    Change(Change, Reply<Result<Agreed, Impossible>>),
    Look(Reply<Catalog>),
}

impl Leads {
    /// Is the controller.
    pub(super) async fn controls(
        self: &Arc<Self>,
        leadership: Leadership,
        mut asks: mpsc::UnboundedReceiver<Ask>,
    ) -> Option<()> {
        self.is_behind_d(leadership).await?;
        let term = leadership.term;
        if let Err(how) = self.ledgers.intents.sees(term, &lock(&self.machines).catalog) {
            self.oracle.broken(format!("node {} begins with topics: {how}", self.node));
        }
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looking = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = looking.next() => {}
                ask = asks.recv() => match ask? {
                    Ask::Change(change, reply) => {
                        let what = self.intends(leadership, &change).await?;
                        // A client that is gone asks for nothing.
                        drop(reply.send(Told { term, what }));
                    }
                    Ask::Look(reply) => {
                        let catalog = lock(&self.machines).catalog.clone();
                        if let Err(how) = self.ledgers.intents.sees(term, &catalog) {
                            self.oracle.broken(format!("node {} shows topics: {how}", self.node));
                        }
                        looking.push(self.shows(leadership, catalog, reply));
                    }
                },
                _ = looks.tick() => self.lets_go(leadership).await?,
            }
        }
    }

    /// Has a change agreed on: durable on return, and applied.
    async fn intends(
        &self,
        leadership: Leadership,
        change: &Change,
    ) -> Option<Result<Agreed, Impossible>> {
        let (index, did) = self.agree(leadership, of_topics(change)).await?.await?;
        let did = did.expect("it is a change of topics");
        self.tell(leadership.term, &(index, change, &did));
        if let Ok(agreed) = &did {
            let catalog = &lock(&self.machines).catalog;
            let term = leadership.term;
            if let Err(how) = self.ledgers.intents.agreed((term, index), change, *agreed, catalog) {
                self.oracle.broken(format!("node {} in term {term}: {how}", self.node));
            }
        }
        Some(did)
    }

    /// Frees the names of topics that are to go.
    async fn lets_go(&self, leadership: Leadership) -> Option<()> {
        if !self.may_sync() {
            return Some(());
        }
        let gone: Vec<_> = {
            let machines = lock(&self.machines);
            let turns = i32::try_from(machines.records.turns()).expect("a life is short");
            let deleted = machines.catalog.topics().filter(|(_, topic)| topic.is_deleted);
            let gone = deleted.map(|(id, topic)| {
                // As the broker has it: each came with its base, and each turn adds one.
                let bases = topic.partitions.iter().flatten().map(|extent| extent.base_epoch);
                Change::Gone { id, epoch: bases.max().unwrap_or(0) + turns }
            });
            gone.collect()
        };
        for change in gone {
            let done = self.intends(leadership, &change).await?;
            if !matches!(done, Ok(_) | Err(Impossible::NoSuchTopic)) {
                self.oracle.broken(format!("a deleted topic can go: {done:?}"));
            }
        }
        Some(())
    }
}
