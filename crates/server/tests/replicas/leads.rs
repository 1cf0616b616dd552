//! [`Leads`]: what a node does while it leads: it takes batches (`shard.rs`), coordinates groups (`coordinating.rs`), and is the
//! controller (`controlling.rs`).

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use plimsoll_server::cluster::{Group, Leadership};
use rand::Rng;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::desk::{Desk, Reply, Told};
use super::life::Life;
use super::machines::{Did, Ledgers, Machines};
use super::net::Net;
use super::oracle::Oracle;
use super::world::{Remembers, lock};
use super::{controlling, coordinating, shard};

/// How often a leader looks whether it leads still.
const LOOK: Duration = Duration::from_millis(100);

/// Where clients ask.
#[derive(Default)]
pub(crate) struct Desks {
    pub(crate) records: Desk<shard::Ask>,
    pub(crate) groups: Desk<coordinating::Ask>,
    pub(crate) topics: Desk<controlling::Ask>,
}

/// What leads at a node.
pub(crate) struct Leads {
    pub(crate) node: u64,
    pub(crate) group: Arc<Group<Remembers>>,
    pub(crate) machines: Arc<Mutex<Machines>>,
    pub(crate) oracle: Arc<Oracle>,
    net: Arc<Net>,
    pub(crate) ledgers: Arc<Ledgers>,
    /// Whether anything may be asked of disks.
    syncs: Arc<AtomicBool>,
    /// By how much its clock is wrong, in ms.
    skew_ms: u64,
    begun: Instant,
}

impl Life {
    /// Whoever leads takes what clients ask from here on.
    pub(super) fn leads(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        for id in self.world.up() {
            let Some(leadership) = self.world.group(id).leadership() else { continue };
            let led = (self.world.nodes[&id].incarnation, leadership.term);
            if self.led.get(&id) == Some(&led) {
                continue;
            }
            self.led.insert(id, led);
            let leads = Arc::new(Leads {
                node: id,
                group: Arc::clone(self.world.group(id)),
                machines: Arc::clone(&self.world.nodes[&id].machines),
                oracle: Arc::clone(&self.world.oracle),
                net: Arc::clone(&self.world.net),
                ledgers: Arc::clone(&self.world.ledgers),
                syncs: Arc::clone(&self.syncs),
                // Clocks of nodes need not agree: hours may be between them, and they jump with a start.
                skew_ms: self.drawn.random_range(0..10_000_000),
                begun: self.begun,
            });
            let (of, asks) = (Arc::clone(&leads), open(&self.desks.records, id));
            self.goes_on(&leads, leadership, async move { of.takes(leadership, asks).await });
            if self.has_members {
                let (of, asks) = (Arc::clone(&leads), open(&self.desks.groups, id));
                let coordinates = async move { of.coordinates(leadership, asks).await };
                self.goes_on(&leads, leadership, coordinates);
            }
            if self.has_topics {
                let (of, asks) = (Arc::clone(&leads), open(&self.desks.topics, id));
                self.goes_on(
                    &leads,
                    leadership,
                    async move { of.controls(leadership, asks).await },
                );
            }
        }
    }

    /// Goes on for as long as the node does, and leads.
    fn goes_on(
        &mut self,
        leads: &Arc<Leads>,
        leadership: Leadership,
        what: impl Future<Output = Option<()>> + Send + 'static,
    ) {
        let (leads, id) = (Arc::clone(leads), leads.node);
        let task = async move {
            leads.until_lost(leadership, what).await;
        };
        let task = tokio::spawn(task).abort_handle();
        self.world.nodes.get_mut(&id).unwrap().clients.push(task);
    }
}

fn open<A>(desk: &Desk<A>, id: u64) -> mpsc::UnboundedReceiver<A> {
    let (asks, asked) = mpsc::unbounded_channel();
    lock(desk).insert(id, asks);
    asked
}

impl Leads {
    /// Goes on until it is over, or leads no more. Who waits then is told nothing.
    async fn until_lost(&self, leadership: Leadership, goes_on: impl Future<Output = Option<()>>) {
        let lost = async {
            while self.group.leadership() == Some(leadership) {
                sleep(LOOK).await;
            }
        };
        tokio::select! {
            _ = goes_on => {}
            () = lost => {}
        }
    }

    /// Has an entry agreed on: where it is, and what applying it said. `None`: it does not lead.
    pub(crate) async fn agree(
        &self,
        leadership: Leadership,
        payload: Bytes,
    ) -> Option<BoxFuture<'static, Option<(u64, Did)>>> {
        let pending = self.group.submit(leadership, payload.clone()).await.ok()?;
        let (oracle, whose) = (Arc::clone(&self.oracle), (self.node, self.group.generation()));
        Some(Box::pin(async move {
            let committed = pending.await.ok()?;
            oracle.acknowledges(whose, committed.index, leadership.term, &payload);
            Some((committed.index, committed.answer))
        }))
    }

    /// Waits until D has passed all that is applied. Groups and topics are carried by groups of their own in the broker, in which
    /// nothing is applied before that.
    pub(crate) async fn is_behind_d(&self, leadership: Leadership) -> Option<()> {
        let applied = lock(&self.machines).applied();
        if let Some(applied) = applied {
            self.group.wait_durable(applied).await.ok()?;
        }
        (self.group.leadership() == Some(leadership)).then_some(())
    }

    /// Answers a client with what was read here, once D has passed that.
    pub(crate) fn shows<T: Send + 'static>(
        self: &Arc<Self>,
        leadership: Leadership,
        what: T,
        reply: Reply<T>,
    ) -> BoxFuture<'static, ()> {
        let leads = Arc::clone(self);
        Box::pin(async move {
            if leads.is_behind_d(leadership).await.is_some() {
                // A client that is gone asks for nothing.
                drop(reply.send(Told { term: leadership.term, what }));
            }
        })
    }

    /// What it tells a client goes into the trace.
    pub(crate) fn tell(&self, term: u64, what: &impl Debug) {
        self.net.trace.tell(format_args!("{} in term {term} tells {what:?}", self.node));
    }

    pub(crate) fn may_sync(&self) -> bool {
        self.syncs.load(Ordering::Relaxed)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        let since = u64::try_from(self.begun.elapsed().as_millis()).expect("a life is short");
        self.skew_ms + since
    }
}
