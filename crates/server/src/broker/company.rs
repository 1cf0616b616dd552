//! [`Company`]: the other nodes of the cluster, and how the replicas of each shard reach each other.
//!
//! All shards share the connections. A replica may ask before there are any: then nobody is reached, which
//! for its engine is a network that is down. No message leaves before the incarnation of this start is
//! durable, as the connections are made only then.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::controller::Desk;
use super::error::Failed;
use super::members::{Member, Members};
use super::options::Seat;
use super::task::Task;
use super::topics::Topics;
use crate::cluster::{Answered, Apply, Begin, Carrier, Group, Receiver, Testimony, Unreached};
use crate::peer::{self, Connected, Handler, Limits, Options, Peer, Peers, Priority};
use crate::run::Run;

/// How often it is looked who is there.
const LOOK: Duration = Duration::from_millis(100);
/// How long a node may take to get the log before others are looked at.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where the controller is asked: no shard has this number.
const CONTROLLER: u32 = u32::MAX;

/// The nodes of a cluster, as one of them meets them.
#[derive(Debug)]
pub(crate) struct Company {
    node: u64,
    /// Whether an empty log becomes the cluster that others are taken into.
    founds: bool,
    /// Where all are, this one among them; nobody but it where it is alone.
    members: BTreeMap<u64, String>,
    doors: Mutex<BTreeMap<u32, Arc<dyn Door>>>,
    peers: OnceLock<Peers>,
}

/// What a shard's replica does for other nodes, whatever it agrees on.
trait Door: std::fmt::Debug + Send + Sync {
    fn answer(&self, from: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>>;

    /// Makes these nodes voters, if this replica leads and they are not.
    fn take_in(&self, nodes: BTreeMap<u64, String>) -> BoxFuture<'static, ()>;
}

impl<S: Apply> Door for Receiver<S> {
    fn answer(&self, from: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        Self::answer(self, from.node, from.incarnation, request).boxed()
    }

    fn take_in(&self, nodes: BTreeMap<u64, String>) -> BoxFuture<'static, ()> {
        let receiver = self.clone();
        async move {
            match timeout(PATIENCE, receiver.take_in(&nodes)).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(why)) => tracing::warn!(%why, "no node was taken in"),
            }
        }
        .boxed()
    }
}

impl Door for Desk {
    fn answer(&self, _: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        Self::answer(Weak::clone(&self.0), request.clone()).boxed()
    }

    fn take_in(&self, _: BTreeMap<u64, String>) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

/// A shard's way to the other nodes.
#[derive(Debug)]
struct Line {
    number: u32,
    company: Arc<Company>,
}

impl Carrier for Line {
    fn ask(
        &self,
        to: u64,
        urgent: bool,
        request: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<Answered, Unreached>> {
        let priority = if urgent { Priority::Urgent } else { Priority::Bulk };
        let asked = self.company.peers.get();
        let asked = asked.map(|peers| peers.ask(to, priority, self.number, request));
        async move {
            let Some(asked) = asked else {
                let why = "this node has not begun to talk".to_owned();
                return Err(Unreached { to, why });
            };
            let answer = asked.await.map_err(|why| Unreached { to, why: why.to_string() })?;
            Ok(Answered { incarnation: answer.from.incarnation, answer: answer.body })
        }
        .boxed()
    }
}

/// Serves the doors.
struct Reception(Arc<Company>);

impl Handler for Reception {
    fn handle(&self, from: Peer, shard: u32, request: Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        match self.0.doors().get(&shard) {
            Some(door) => door.answer(from, &request),
            // No answer can be read out of it.
            None => std::future::ready(Vec::new()).boxed(),
        }
    }
}

impl Company {
    /// Of a node in a cluster, or of one that is alone.
    pub(super) fn new(seat: Option<&Seat>, founds: bool) -> Arc<Self> {
        let node = seat.map_or(ALONE, |seat| seat.node);
        let members = seat.map(|seat| seat.members.clone()).unwrap_or_default();
        Arc::new(Self { node, founds, members, doors: Mutex::default(), peers: OnceLock::new() })
    }

    /// The id of this node.
    pub(super) fn node(&self) -> u64 {
        self.node
    }

    /// How a shard's replica begins.
    pub(super) fn begin(
        self: &Arc<Self>,
        number: u32,
        is_dirty: bool,
        testimony: Option<Arc<dyn Testimony>>,
    ) -> Begin {
        let carrier = Arc::new(Line { number, company: Arc::clone(self) });
        Begin { carrier, founds: self.founds, is_dirty, testimony }
    }

    /// From here on the shard's replica answers others.
    pub(super) fn admit<S: Apply>(&self, number: u32, group: &Group<S>) {
        self.doors().insert(number, Arc::new(group.receiver()));
    }

    /// From here on other nodes ask here for what only the controller may do.
    pub(super) fn serve(&self, topics: &Arc<Topics>) {
        self.doors().insert(CONTROLLER, Arc::new(Desk(Arc::downgrade(topics))));
    }

    /// Asks a node for what only the controller may do: once.
    pub(super) fn ask_controller(
        &self,
        node: u64,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Bytes, peer::Error>> + Send + use<> {
        let request = vec![request.into()];
        let peers = self.peers.get();
        let asked = peers.map(|peers| peers.ask(node, Priority::Bulk, CONTROLLER, request));
        async move {
            let asked = asked.ok_or(peer::Error::Unreachable { node })?;
            Ok(asked.await?.body)
        }
    }

    /// Begins to talk with the others, as this incarnation.
    pub(super) fn meet(
        self: &Arc<Self>,
        listener: TcpListener,
        (cluster, incarnation): (u128, u64),
        member: Member,
        members: Arc<Members>,
        runtime: &Handle,
    ) -> Result<Task, Failed> {
        let (node, hello, limits) = (self.node, member.hello(), Limits::default());
        let options = Options { cluster, node, incarnation, hello, limits };
        let reception = Arc::new(Reception(Arc::clone(self)));
        let peers = Peers::start(listener, options, reception, runtime)
            .map_err(|why| Failed::Peers(Arc::new(why)))?;
        peers.set_addresses(self.members.clone());
        self.peers.set(peers).expect("it meets them once");
        members.set(BTreeMap::from([(self.node, member.clone())]));
        Ok(Task::spawn(runtime, Arc::clone(self).look(member, members)))
    }

    /// Has clients told of who is there. Takes in nodes that are members by what this node was told, and vote
    /// in no shard yet that it leads: once all are there, so that no change leaves fewer copies than voters.
    async fn look(self: Arc<Self>, own: Member, members: Arc<Members>) {
        let mut here = BTreeMap::new();
        loop {
            sleep(LOOK).await;
            let connected = self.peers.get().map(Peers::connected).unwrap_or_default();
            let told = |other: &Connected| Some((other.peer.node, Member::told(&other.hello)?));
            let mut now: BTreeMap<_, _> = connected.iter().filter_map(told).collect();
            now.insert(self.node, own.clone());
            if now != here {
                members.set(now.clone());
                here = now;
            }
            if !self.members.keys().all(|node| here.contains_key(node)) {
                continue;
            }
            let doors: Vec<_> = self.doors().values().cloned().collect();
            for door in doors {
                door.take_in(self.members.clone()).await;
            }
        }
    }

    /// Ends what is answered, so that the shards can be closed.
    pub(super) fn part(&self) {
        self.doors().clear();
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<dyn Door>>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of a node that is alone.
const ALONE: u64 = 1;

/// Takes the address at which other nodes find this one.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, Failed> {
    TcpListener::bind(address).map_err(|why| {
        let said = format!("cannot listen for other brokers on {address}: {why}");
        Failed::Peers(Arc::new(io::Error::new(why.kind(), said)))
    })
}

/// Has the run know what a shard's replica acknowledges.
#[derive(Debug)]
pub(super) struct Witnessed {
    pub(super) run: Arc<Run>,
    pub(super) number: u32,
}

impl Testimony for Witnessed {
    fn acknowledges(&self, index: u64) -> Result<(), String> {
        // The shard counts from 1.
        self.run.acknowledged(self.number, index + 1).map_err(|why| why.to_string())
    }

    fn cuts(&self, from: u64) -> Result<(), String> {
        self.run.cut(self.number, from).map_err(|why| why.to_string())
    }
}
