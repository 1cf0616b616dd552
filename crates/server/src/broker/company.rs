//! [`Company`]: the other nodes of the cluster, and how the replicas of each shard reach each other.
//!
//! All shards share the connections. A replica may ask before there are any: then nobody is reached, which
//! for its engine is a network that is down. No message leaves before the incarnation of this start is
//! durable, as the connections are made only then.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::error::Failed;
use super::layout::ALONE;
use super::members::{Member, Members};
use super::mender::Others;
use super::met::Met;
use super::options::Seat;
use super::placement::Racks;
use super::task::Task;
use crate::cluster::{
    self, Answered, Apply, Basis, Begin, Carrier, Group, Membership, Receiver, Testimony, Unreached,
};
use crate::peer::{self, Connected, Handler, Limits, Options, Peer, Peers, Priority};
use crate::run::{Run, Starts};

/// How often it is looked who is there.
const LOOK: Duration = Duration::from_millis(100);
/// How long a node may take to get the log before others are looked at.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where the controller is asked: no shard has this number, nor one of those below it.
const CONTROLLER: u32 = u32::MAX;
/// Where nodes are asked for an operator's sake.
pub(super) const OPERATORS: u32 = u32::MAX - 4;
/// Where a node is asked for what repairs something of another.
const REPAIR: u32 = u32::MAX - 2;
/// How long such an answer is waited for.
const REPAIR_PATIENCE: Duration = Duration::from_secs(5);
/// When who was met is written again, where that failed.
const KEEPS_AGAIN: Duration = Duration::from_secs(5);

/// The nodes of a cluster, as one of them meets them.
#[derive(Debug)]
pub(crate) struct Company {
    node: u64,
    rack: Option<String>,
    /// Whether an empty log becomes the cluster that others are taken into.
    founds: bool,
    /// Shards whose replicas may have forgotten what they acknowledged, as they were seeded.
    in_doubt: Vec<u32>,
    /// Where it was told that all are, this one among them; nobody where it is alone.
    told: BTreeMap<u64, String>,
    doors: Mutex<BTreeMap<u32, Arc<dyn Door>>>,
    peers: OnceLock<Peers>,
    met: OnceLock<Arc<Met>>,
}

/// What is done for other nodes: by a shard's replica, whatever it agrees on, or by the controller.
pub(crate) trait Door: std::fmt::Debug + Send + Sync {
    fn answer(&self, from: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>>;

    /// What is to be done as the process of a node has ended.
    fn gone(&self, _node: u64) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    /// Has these nodes have the shard and some of them vote, if this is a replica that leads.
    fn follow(&self, _wanted: Membership) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    /// Who votes, and who is to, if this is a replica.
    fn membership(&self) -> Option<Membership> {
        None
    }

    /// Who leads, as far as is known here, if this is a replica.
    fn leader(&self) -> Option<u64> {
        None
    }
}

impl<S: Apply> Door for Receiver<S> {
    fn answer(&self, from: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        Self::answer(self, from.node, from.incarnation, request).boxed()
    }

    fn gone(&self, node: u64) -> BoxFuture<'static, ()> {
        Self::gone(self, node).boxed()
    }

    fn follow(&self, wanted: Membership) -> BoxFuture<'static, ()> {
        let receiver = self.clone();
        async move {
            match timeout(PATIENCE, receiver.follow(&wanted)).await {
                // The next look sees what it is by then.
                Ok(Ok(()) | Err(cluster::Error::Changing)) | Err(_) => {}
                Ok(Err(why)) => tracing::warn!(%why, "who votes is not changed"),
            }
        }
        .boxed()
    }

    fn membership(&self) -> Option<Membership> {
        Some(Self::membership(self))
    }

    fn leader(&self) -> Option<u64> {
        Self::leader(self)
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
        let asked = self.company.peers.get().filter(|_| !self.company.is_outdated());
        let asked = asked.map(|peers| peers.ask(to, priority, self.number, request));
        async move {
            let Some(asked) = asked else {
                let why = "this node does not talk yet, or not any more".to_owned();
                return Err(Unreached { to, why });
            };
            let answer = asked.await.map_err(|why| Unreached { to, why: why.to_string() })?;
            Ok(Answered { incarnation: answer.from.incarnation, answer: answer.body })
        }
        .boxed()
    }
}

/// Serves the doors.
struct Reception {
    company: Arc<Company>,
    met: Arc<Met>,
    /// Whether this node knows of a cluster that was founded.
    is_founded: Box<dyn Fn() -> bool + Send + Sync>,
    runtime: Handle,
}

impl Handler for Reception {
    fn handle(&self, from: Peer, shard: u32, request: Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        // One that has forgotten what others know votes and acknowledges no more, however long it takes to end.
        let is_outdated = self.company.is_outdated();
        match self.company.doors().get(&shard).filter(|_| !is_outdated) {
            Some(door) => door.answer(from, &request),
            // No answer can be read out of it.
            None => std::future::ready(Vec::new()).boxed(),
        }
    }

    fn admits(&self, peer: Peer, hello: &Bytes) -> bool {
        !(self.is_founded)() || self.met.admits(peer, &Member::starts(hello))
    }

    fn connected(&self, peer: Peer, hello: Bytes) -> bool {
        let Some(is_new) = self.met.meets(peer, &Member::starts(&hello), (self.is_founded)())
        else {
            return false;
        };
        if is_new {
            self.runtime.spawn(keep(Arc::clone(&self.met)));
        }
        true
    }

    fn gone(&self, peer: Peer) -> BoxFuture<'static, ()> {
        tracing::info!(node = peer.node, "another broker has closed, or its process is gone");
        let all: Vec<_> = self.company.doors().values().map(|door| door.gone(peer.node)).collect();
        join_all(all).map(drop).boxed()
    }
}

impl Company {
    /// Of a node in a cluster, or of one that is alone.
    pub(super) fn new(seat: Option<&Seat>, founds: bool, in_doubt: Vec<u32>) -> Arc<Self> {
        let node = node_of(seat);
        let told = seat.map(|seat| seat.members.clone()).unwrap_or_default();
        let rack = seat.and_then(|seat| seat.rack.clone());
        let (doors, peers, met) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        Arc::new(Self { node, rack, founds, in_doubt, told, doors, peers, met })
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
        let is_dirty = is_dirty || self.in_doubt.contains(&number);
        let may_be_lost = !self.founds;
        let (founds, is_anew, basis) = (self.founds, false, Basis::default());
        Begin { number, carrier, founds, is_dirty, may_be_lost, is_anew, basis, testimony }
    }

    /// From here on the shard's replica answers others.
    pub(super) fn admit<S: Apply>(&self, number: u32, group: &Group<S>) {
        self.doors().insert(number, Arc::new(group.receiver()));
    }

    /// From here on other nodes ask here for what only the controller may do.
    pub(super) fn serve(&self, desk: Arc<dyn Door>) {
        self.open_door(CONTROLLER, desk);
    }

    /// From here on what other nodes ask at the door of this number is done there.
    pub(super) fn open_door(&self, number: u32, door: Arc<dyn Door>) {
        self.doors().insert(number, door);
    }

    /// The nodes that are connected now and this one, with the rack of each that names one.
    pub(super) fn racks(&self) -> Racks {
        let told = |other: Connected| {
            (other.peer.node, Member::told(&other.hello).and_then(|member| member.rack))
        };
        let others = self.connected().into_iter().map(told);
        others.chain([(self.node, self.rack.clone())]).collect()
    }

    /// Nodes that are connected now.
    pub(super) fn others(&self) -> Vec<u64> {
        self.connected().into_iter().map(|other| other.peer.node).collect()
    }

    /// The nodes that have a shard, be they there or not, as this one knows.
    pub(super) fn nodes_of(&self, shard: u32) -> Vec<u64> {
        let door = self.doors().get(&shard).cloned();
        let all = door.and_then(|door| door.membership());
        all.map_or(Vec::new(), |all| all.nodes.into_keys().collect())
    }

    /// A node of some shard that is away, or does not know changes of this level.
    pub(super) fn who_lacks(&self, level: u32) -> Option<u64> {
        let knows = |other: Connected| {
            Member::told(&other.hello)
                .is_some_and(|member| member.level >= level)
                .then_some(other.peer.node)
        };
        let mut know: BTreeSet<u64> = self.connected().into_iter().filter_map(knows).collect();
        know.insert(self.node);
        let doors = self.all_doors();
        let nodes = doors.iter().filter_map(|(_, door)| door.membership());
        let nodes: BTreeSet<u64> =
            nodes.flat_map(|all| all.voters.into_iter().chain(all.nodes.into_keys())).collect();
        nodes.difference(&know).next().copied()
    }

    /// Asks another node at a door: once, and behind what is urgent.
    pub(super) fn ask(
        &self,
        node: u64,
        door: u32,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Bytes, peer::Error>> + Send + use<> {
        let peers = self.peers.get();
        let asked = peers.map(|peers| peers.ask(node, Priority::Bulk, door, vec![request.into()]));
        async move {
            let asked = asked.ok_or(peer::Error::Unreachable { node })?;
            Ok(asked.await?.body)
        }
    }

    /// From here on other nodes ask here for an operator's sake.
    pub(super) fn obey(&self, operators: Arc<dyn Door>) {
        self.open_door(OPERATORS, operators);
    }

    /// From here on other nodes ask here for what repairs something of theirs.
    pub(super) fn give(&self, giver: Arc<dyn Door>) {
        self.open_door(REPAIR, giver);
    }

    /// Asks a node for what only the controller may do: once.
    pub(super) fn ask_controller(
        &self,
        node: u64,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Bytes, peer::Error>> + Send + use<> {
        self.ask(node, CONTROLLER, request)
    }

    /// Nodes that this one ever met, be they of the cluster still or not.
    pub(super) fn met(&self) -> BTreeSet<u64> {
        self.met.get().map(|met| met.nodes()).unwrap_or_default()
    }

    /// Whether a node is connected.
    pub(super) fn has(&self, node: u64) -> bool {
        self.connected().iter().any(|other| other.peer.node == node)
    }

    /// Begins to talk with the others, as this incarnation.
    pub(super) fn meet(
        self: &Arc<Self>,
        listener: TcpListener,
        (cluster, incarnation): (u128, u64),
        (member, starts): (Member, &Starts),
        members: Arc<Members>,
        (met, is_founded): (Met, Box<dyn Fn() -> bool + Send + Sync>),
        runtime: &Handle,
    ) -> Result<Task, Failed> {
        let (node, hello, limits) = (self.node, member.hello(starts), Limits::default());
        let options = Options { cluster, node, incarnation, hello, limits };
        let met = Arc::new(met);
        self.met.set(Arc::clone(&met)).expect("it meets them once");
        let (company, with) = (Arc::clone(self), runtime.clone());
        let reception = Arc::new(Reception { company, met, is_founded, runtime: with });
        let peers = Peers::start(listener, options, reception, runtime)
            .map_err(|why| Failed::Peers(Arc::new(why)))?;
        peers.set_addresses(self.told.clone());
        self.peers.set(peers).expect("it meets them once");
        members.set(BTreeMap::from([(self.node, member.clone())]));
        Ok(Task::spawn(runtime, Arc::clone(self).look(member, members)))
    }

    /// Has clients told of who is there.
    async fn look(self: Arc<Self>, own: Member, members: Arc<Members>) {
        let mut here = BTreeMap::new();
        loop {
            sleep(LOOK).await;
            let told = |other: Connected| Some((other.peer.node, Member::told(&other.hello)?));
            let mut now: BTreeMap<_, _> = self.connected().into_iter().filter_map(told).collect();
            now.insert(self.node, own.clone());
            if now != here {
                for node in
                    now.keys().filter(|node| !here.contains_key(node) && **node != self.node)
                {
                    tracing::info!(node, "another broker is here");
                }
                for node in here.keys().filter(|node| !now.contains_key(node)) {
                    tracing::warn!(node, "another broker is away");
                }
                members.set(now.clone());
                here = now;
            }
        }
    }

    /// The members, as this node was told at its start.
    pub(super) fn told(&self) -> &BTreeMap<u64, String> {
        &self.told
    }

    /// From here on the others are there, and nobody else is heard.
    pub(super) fn reach(&self, all: BTreeMap<u64, String>) {
        if let Some(peers) = self.peers.get() {
            peers.set_addresses(all);
        }
    }

    /// Whether another node knows of a later incarnation of this one, which has forgotten that.
    pub(super) fn is_outdated(&self) -> bool {
        self.peers.get().is_some_and(Peers::is_outdated)
    }

    /// What went over the connections to the others, and what was refused; nothing where it is alone.
    pub(super) fn counters(&self) -> Option<(usize, peer::Counters)> {
        self.peers.get().map(|peers| (peers.connected().len(), peers.counters()))
    }

    /// All doors, by their numbers.
    pub(super) fn all_doors(&self) -> Vec<(u32, Arc<dyn Door>)> {
        self.doors().iter().map(|(number, door)| (*number, Arc::clone(door))).collect()
    }

    fn connected(&self) -> Vec<Connected> {
        self.peers.get().map(Peers::connected).unwrap_or_default()
    }

    /// From here on nobody is answered.
    pub(super) fn part(&self) {
        self.doors().clear();
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<dyn Door>>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Others for Company {
    fn here(&self) -> Vec<u64> {
        self.connected().into_iter().map(|other| other.peer.node).collect()
    }

    fn ask(&self, node: u64, request: Vec<u8>) -> BoxFuture<'static, Option<Bytes>> {
        let peers = self.peers.get();
        let asked =
            peers.map(|peers| peers.ask(node, Priority::Bulk, REPAIR, vec![request.into()]));
        async move {
            let answer = timeout(REPAIR_PATIENCE, asked?).await.ok()?.ok()?;
            // One that is older knows of no such door.
            Some(answer.body).filter(|body| !body.is_empty())
        }
        .boxed()
    }
}

/// Has it durable who was met: tried again where that fails, as for want of room.
async fn keep(met: Arc<Met>) {
    loop {
        let keeps = Arc::clone(&met);
        match spawn_blocking(move || keeps.keep()).await {
            Ok(Err(why)) => tracing::error!(%why, "that a broker was met is not kept yet"),
            // The runtime ends.
            Ok(Ok(())) | Err(_) => return,
        }
        sleep(KEEPS_AGAIN).await;
    }
}

/// The id of the node that has this seat, or none.
pub(super) fn node_of(seat: Option<&Seat>) -> u64 {
    seat.map_or(ALONE, |seat| seat.node)
}

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
