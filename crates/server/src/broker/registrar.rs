//! [`Registrar`]: which nodes the cluster has.
//!
//! The control shard's own membership is the register: who votes there is a node of the cluster, and who is to come is a
//! learner there, with its address; both are durable on a majority, and every node knows them from its log. The other shards
//! follow it, each by whoever leads it: all nodes get their logs, and some of them vote ([placement](super::placement)). What a
//! node was started with counts where the register is of its founder alone: these become its first voters, once all are there.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};

use super::company::{Company, Door};
use super::layout::CONTROL;
use super::operators::{self, ADDRESS_BYTES_MAX, Request};
use super::placement::wanted;
use super::topics::Topics;
use crate::cluster::{self, Membership};

/// How often it is looked who waits to be taken in.
const REST: Duration = Duration::from_secs(1);
/// How soon a change is asked for again while another is under way.
const AGAIN: Duration = Duration::from_millis(50);
/// For how long a node is not reached that is taken to be away.
const AWAY: Duration = Duration::from_secs(1);
/// How long a change may take that the control shard agrees on.
const PATIENCE: Duration = Duration::from_secs(4);

/// Kafka's clients know nodes by 31 bits.
const NODE_MAX: u64 = i32::MAX as u64;

/// Why the register is as it was.
#[derive(Debug, thiserror::Error)]
pub enum NotChanged {
    /// It runs alone.
    #[error(
        "this broker is no node of a cluster: it was started without members. To have others come, stop it, and start it with \
         --node 1, --members of all that are to be there, and as --cluster-id the first 32 digits of the file `cluster` in its directory"
    )]
    Alone,
    /// Nobody leads the control shard, as far as this node has heard.
    #[error(
        "nobody leads shard 0 just now: try again in a moment, or see `plimsoll cluster status`"
    )]
    NoLeader,
    /// No node is found there.
    #[error("{0:?} is no HOST:PORT")]
    NoAddress(String),
    /// Clients would not take it.
    #[error("{0} is no number of a node: from 1 to {NODE_MAX}")]
    NoNumber(u64),
    /// The number is another's.
    #[error(
        "node {node} is found at {address} already: give the new one a number that no node had"
    )]
    Taken {
        /// Which number.
        node: u64,
        /// Where that is.
        address: String,
    },
    /// A node may have had it, and whoever has the directory of that could start it.
    #[error(
        "node {node} may have been there before, and a number is given once: take {next} or a higher one, or leave --node out"
    )]
    Had {
        /// Which number.
        node: u64,
        /// The lowest that none had, as far as is known.
        next: u64,
    },
    /// What is found there votes.
    #[error(
        "{address} is where node {node} is found, which votes: if it lost its disk, have it come under a number that no node \
         had, `plimsoll cluster join --node`"
    )]
    Votes {
        /// Which.
        node: u64,
        /// Where that is.
        address: String,
    },
    /// There is no such node.
    #[error("there is no node {node}; these are: {nodes:?}")]
    NoNode {
        /// Which was meant.
        node: u64,
        /// Those that there are.
        nodes: Vec<u64>,
    },
    /// It leads, or may.
    #[error(
        "node {0} is there, and may lead: have it hand over first, `plimsoll cluster drain --http` with its address"
    )]
    MayLead(u64),
    /// It leads, though it is about to be stopped: nobody else could.
    #[error(
        "node {node} leads shard {shard} still: have another that stays lead it first, which must not be drained itself \
         (`plimsoll cluster drain --undo`, then `plimsoll cluster move --shard {shard} --to`), or stop it"
    )]
    Leads {
        /// Which.
        node: u64,
        /// One that it leads.
        shard: u32,
    },
    /// Those that stay are too few.
    #[error(
        "of those that stay {away:?} do not answer: bring them back first, or too few would have what is agreed on"
    )]
    Away {
        /// Who does not answer.
        away: Vec<u64>,
    },
    /// Nobody would be left.
    #[error("node {0} is the only one")]
    Last(u64),
    /// The node that leads the control shard says why, or was not reached.
    #[error("{0}")]
    Said(String),
    /// The control shard has not agreed on it.
    #[error("it was not agreed on: {0}")]
    Group(#[from] cluster::Error),
    /// Or not yet.
    #[error("it was not agreed on within {} s: look at `plimsoll cluster status`", PATIENCE.as_secs())]
    Late,
}

/// A node that may come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Joined {
    /// Its number.
    pub node: u64,
    /// Where each node is found, and where it is to be.
    pub members: BTreeMap<u64, String>,
}

/// Takes nodes in, and lets them go. It does not keep shards from being closed.
#[derive(Debug)]
pub(crate) struct Registrar {
    company: Arc<Company>,
    topics: Weak<Topics>,
    /// Voters of a shard, where there are so many nodes.
    copies: usize,
    /// Who chooses nodes, by what the register says, and has that agreed on: one after the other.
    turn: Mutex<()>,
    /// Whether others have voted since the node was opened: who was let go since is not to come back by itself.
    has_grown: AtomicBool,
}

impl Registrar {
    pub(super) fn new(company: &Arc<Company>, topics: &Arc<Topics>, copies: usize) -> Arc<Self> {
        let (company, topics) = (Arc::clone(company), Arc::downgrade(topics));
        let (turn, has_grown) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { company, topics, copies, turn, has_grown })
    }

    /// Has a node come that is to be found there, under this number or one that none had: durable on a majority on return.
    pub(crate) async fn join(
        &self,
        node: Option<u64>,
        address: &str,
    ) -> Result<Joined, NotChanged> {
        let node = match self.leader()? {
            None => self.enlist(node.unwrap_or(0), address).await?,
            Some(leader) => {
                let request =
                    Request::Join { node: node.unwrap_or(0), address: address.to_owned() };
                let said = operators::ask(&self.company, leader, request).await;
                let said = said.map_err(|why| NotChanged::Said(why.to_string()))?;
                let number = said.try_into().map(u64::from_le_bytes);
                number.map_err(|_other| NotChanged::Said("it answers no number".to_owned()))?
            }
        };
        let mut members = self.addresses(&self.register()?);
        members.insert(node, address.to_owned());
        Ok(Joined { node, members })
    }

    /// Has a node go: durable on a majority on return. The other shards follow.
    pub(crate) async fn remove(&self, node: u64) -> Result<(), NotChanged> {
        match self.leader()? {
            None => self.strike(node).await,
            Some(leader) => {
                let said = operators::ask(&self.company, leader, Request::Remove(node)).await;
                said.map(drop).map_err(|why| NotChanged::Said(why.to_string()))
            }
        }
    }

    /// What another node asks for, which believes that this one leads.
    pub(super) async fn answer(&self, request: Request) -> Result<Vec<u8>, String> {
        let answered = match (self.leader(), request) {
            (Ok(None), Request::Join { node, address }) => {
                self.enlist(node, &address).await.map(|node| node.to_le_bytes().to_vec())
            }
            (Ok(None), Request::Remove(node)) => self.strike(node).await.map(|()| Vec::new()),
            _ => Err(NotChanged::NoLeader),
        };
        answered.map_err(|why| why.to_string())
    }

    /// As the leader of the control shard. A number of 0 is for it to choose.
    async fn enlist(&self, node: u64, address: &str) -> Result<u64, NotChanged> {
        if !is_address(address) {
            return Err(NotChanged::NoAddress(address.to_owned()));
        }
        let _turn = self.turn().await?;
        let register = self.register()?;
        let known = self.addresses(&register);
        let next = self.had().last().map_or(1, |last| last + 1);
        let there = |(number, at): (&u64, &String)| (at == address).then_some(*number);
        let node = match (node, known.iter().find_map(there)) {
            (0, Some(node)) if register.voters.contains(&node) => {
                return Err(NotChanged::Votes { node, address: address.to_owned() });
            }
            (0, Some(taken)) => taken,
            (0, None) => next,
            (node, _) => node,
        };
        if node > NODE_MAX {
            return Err(NotChanged::NoNumber(node));
        }
        match known.get(&node) {
            Some(at) if at == address && register.nodes.contains_key(&node) => return Ok(node),
            // One that is to be of the first.
            Some(at) if at == address => {}
            Some(at) => return Err(NotChanged::Taken { node, address: at.clone() }),
            None if node < next => return Err(NotChanged::Had { node, next }),
            None => {}
        }
        let topics = self.topics.upgrade().ok_or(NotChanged::NoLeader)?;
        in_time(|| topics.group().enlist(node, address)).await?;
        tracing::info!(node, address, "a node may come");
        Ok(node)
    }

    /// As the leader of the control shard.
    async fn strike(&self, node: u64) -> Result<(), NotChanged> {
        let _turn = self.turn().await?;
        let Membership { voters, nodes } = self.register()?;
        if !nodes.contains_key(&node) {
            let doors = self.company.all_doors();
            let mut known = doors.iter().filter_map(|(_, door)| door.membership());
            if known.any(|other| other.nodes.contains_key(&node)) {
                // It was agreed on, and other shards are about to follow.
                return Ok(());
            }
            return Err(NotChanged::NoNode { node, nodes: nodes.into_keys().collect() });
        }
        if voters.len() > 1 {
            self.has_grown.store(true, Relaxed);
        }
        let here = self.here();
        let stay: BTreeSet<u64> = voters.iter().copied().filter(|voter| *voter != node).collect();
        if stay.is_empty() {
            return Err(NotChanged::Last(node));
        }
        let away: Vec<u64> = stay.difference(&here).copied().collect();
        if !away.is_empty() {
            return Err(NotChanged::Away { away });
        }
        if self.may_lead(node).await {
            return Err(NotChanged::MayLead(node));
        }
        // One that drains, and found nobody to lead, leads still. Let go, it would not hear that it is to hand over.
        let leads = |(shard, door): &(u32, Arc<dyn Door>)| {
            (door.leader() == Some(node) && here.contains(&node)).then_some(*shard)
        };
        if let Some(shard) = self.company.all_doors().iter().find_map(leads) {
            return Err(NotChanged::Leads { node, shard });
        }
        let topics = self.topics.upgrade().ok_or(NotChanged::NoLeader)?;
        in_time(|| topics.group().let_go(node)).await?;
        tracing::info!(node, "a node goes");
        Ok(())
    }

    async fn turn(&self) -> Result<MutexGuard<'_, ()>, NotChanged> {
        timeout(PATIENCE + AWAY, self.turn.lock()).await.map_err(|_late| NotChanged::Late)
    }

    /// Whether a node may lead something. This one does, and would not let itself go. Another says so; what it says counts, not that it was
    /// not reached just now: only one that stays away leads nothing.
    async fn may_lead(&self, node: u64) -> bool {
        if node == self.company.node() {
            return true;
        }
        let said = async {
            loop {
                match operators::ask(&self.company, node, Request::May).await {
                    Ok(_) => return true,
                    Err(said) if said.is_its_word => return false,
                    Err(_away) => sleep(AGAIN).await,
                }
            }
        };
        timeout(AWAY, said).await.unwrap_or_else(|_away| self.here().contains(&node))
    }

    /// Until the node ends: knows where the others are, and has the shards that it leads follow the register.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            self.look().await;
            sleep(REST).await;
        }
    }

    async fn look(&self) {
        let Ok(register) = self.register() else { return };
        let doors = self.company.all_doors();
        let mut where_all_are = self.addresses(&register);
        // Who is let go hears of it as long as some shard knows it.
        for membership in doors.iter().filter_map(|(_, door)| door.membership()) {
            for (node, address) in membership.nodes {
                where_all_are.entry(node).or_insert(address);
            }
        }
        self.company.reach(where_all_are);
        let racks = self.company.racks();
        let here = racks.keys().copied().collect();
        for (number, door) in doors {
            let Some(membership) = door.membership() else { continue };
            let (voters, nodes) = match number {
                CONTROL => {
                    let first = self.first(&register, &here);
                    let voters = first.unwrap_or_else(|| grown(&register, &here));
                    // Whoever is to come is known here alone.
                    let known = register.nodes.keys().copied();
                    (Some(voters.clone()), voters.into_iter().chain(known).collect())
                }
                _ => {
                    let nodes = register.voters.clone();
                    (wanted(number, &nodes, &racks, &membership.voters, self.copies), nodes)
                }
            };
            let is_there = |node: &u64| here.contains(node) || membership.voters.contains(node);
            let Some(voters) = voters.filter(|voters| voters.iter().all(is_there)) else {
                continue;
            };
            let addresses = self.addresses(&register);
            let at = |node: u64| (node, addresses.get(&node).cloned().unwrap_or_default());
            door.follow(Membership { voters, nodes: nodes.into_iter().map(at).collect() }).await;
        }
    }

    /// The first voters, where the register is of its founder alone and all are there, unless it is so again.
    fn first(&self, register: &Membership, here: &BTreeSet<u64>) -> Option<BTreeSet<u64>> {
        let told = self.company.told();
        if register.voters.len() > 1 {
            self.has_grown.store(true, Relaxed);
        }
        let has_grown = self.has_grown.load(Relaxed);
        let is_first = register.voters.len() == 1 && told.len() > 1 && !has_grown;
        let all: BTreeSet<u64> = told.keys().copied().collect();
        (is_first && all.is_subset(here)).then_some(all)
    }

    /// Where each node of the register is, as this one was told if it was; where that has nobody else yet, all that it was told.
    fn addresses(&self, register: &Membership) -> BTreeMap<u64, String> {
        let told = self.company.told();
        if register.voters.len() <= 1 && !self.has_grown.load(Relaxed) {
            let mut all = register.nodes.clone();
            all.extend(told.clone());
            return all;
        }
        let is_at = |(node, at): (&u64, &String)| (*node, told.get(node).unwrap_or(at).clone());
        register.nodes.iter().map(is_at).collect()
    }

    /// Those that are to be the first voters, and that this one waits for, which runs alone meanwhile.
    pub(super) fn awaited(&self) -> BTreeSet<u64> {
        let Ok(register) = self.register() else { return BTreeSet::new() };
        let is_founder = register.voters == [self.company.node()].into();
        let is_as_founded =
            self.topics.upgrade().is_some_and(|topics| topics.group().is_as_founded());
        if !is_founder || !is_as_founded {
            return BTreeSet::new();
        }
        self.company.told().keys().copied().filter(|node| *node != self.company.node()).collect()
    }

    /// Numbers that nodes have, or had, as far as this one knows: it was told of them at its start, it met them, or a shard knows them.
    fn had(&self) -> BTreeSet<u64> {
        let doors = self.company.all_doors();
        let agreed = doors.iter().filter_map(|(_, door)| door.membership());
        let agreed = agreed.flat_map(|all| all.voters.into_iter().chain(all.nodes.into_keys()));
        self.company.told().keys().copied().chain(self.company.met()).chain(agreed).collect()
    }

    /// The nodes that are connected, and this one.
    fn here(&self) -> BTreeSet<u64> {
        self.company.others().into_iter().chain([self.company.node()]).collect()
    }

    fn register(&self) -> Result<Membership, NotChanged> {
        if self.company.told().is_empty() {
            return Err(NotChanged::Alone);
        }
        Ok(self.topics.upgrade().ok_or(NotChanged::NoLeader)?.group().membership())
    }

    /// The other node that leads the control shard; none if this one does.
    fn leader(&self) -> Result<Option<u64>, NotChanged> {
        if self.company.told().is_empty() {
            return Err(NotChanged::Alone);
        }
        let topics = self.topics.upgrade().ok_or(NotChanged::NoLeader)?;
        if topics.leads() {
            return Ok(None);
        }
        let leader = topics.group().leader().filter(|leader| *leader != self.company.node());
        leader.map(Some).ok_or(NotChanged::NoLeader)
    }
}

/// Those that vote in the control shard, and those that are to, where they are there.
fn grown(register: &Membership, here: &BTreeSet<u64>) -> BTreeSet<u64> {
    let come = register.nodes.keys().copied().filter(|node| here.contains(node));
    register.voters.iter().copied().chain(come).collect()
}

fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    let is_found =
        parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<NonZeroU16>().is_ok());
    is_found && text.len() <= ADDRESS_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Does it once no other change is under way.
async fn in_time<F: Future<Output = cluster::Result<()>>>(
    mut change: impl FnMut() -> F,
) -> Result<(), NotChanged> {
    let changing = async {
        loop {
            match change().await {
                Err(cluster::Error::Changing) => sleep(AGAIN).await,
                changed => return changed,
            }
        }
    };
    match timeout(PATIENCE, changing).await {
        // Nothing was proposed.
        Ok(Err(cluster::Error::NotLeader { .. })) => Err(NotChanged::NoLeader),
        Ok(changed) => Ok(changed?),
        Err(_late) => Err(NotChanged::Late),
    }
}
