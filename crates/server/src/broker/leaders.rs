//! [`Leaders`]: which node leads which shard, and having another do so.
//!
//! Of each shard one of those that vote is [preferred](super::placement), so that a cluster's leaders are spread over its
//! nodes. Whoever leads and is not hands over once all has been well for a while. A node that is
//! about to be stopped hands over what it leads, and takes nothing; it says that it may be stopped once those that stay can go
//! on at once: a node that has just been started need not have yet what was acknowledged meanwhile.
//!
//! Every leader decides for itself, and asks whoever is to lead before anybody waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::company::Company;
use super::coordinator::Coordinator;
use super::data::DataShard;
use super::layout::{CONTROL, GROUPS};
use super::lead::{Lead, Leads};
use super::needed::{Needed, why_needed};
use super::operators::{self, Request, Said};
use super::placement::preferred;
use super::roll::Levels;
use super::topics::Topics;
use crate::cluster::{self, Apply, Group};

/// How often it is looked who leads.
const LOOK: Duration = Duration::from_secs(1);
/// For how long another must have been preferred, connected and well before it leads.
const CALM: Duration = Duration::from_secs(10);
/// How long one that did not take over is left alone.
const REST: Duration = Duration::from_secs(60);
/// How often a node that is about to be stopped tries to have another lead.
const TRIES: u32 = 3;
/// How long a node that is about to be stopped takes for all that it leads, at most.
const PARTS_WITHIN: Duration = Duration::from_secs(60);
/// How long a node that closes to open again waits until others have done so.
const TURN: Duration = Duration::from_secs(5);
/// For how long others must have been about to be stopped before that is told: one that closes to open again says the same, and is
/// soon back.
const LASTS: Duration = Duration::from_secs(10);
/// How long a node that drains waits for its disk and the others', for all shards together.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a node takes to drain, at most, but for some seconds where another does not answer, and what its disk takes to note what
/// was read: who asks for it waits longer.
pub const DRAINS_WITHIN: Duration = PARTS_WITHIN.saturating_add(PATIENCE);

/// A shard, as something that one node leads.
pub(super) trait Led: Send + Sync {
    fn number(&self) -> u32;
    fn leads(&self) -> bool;
    fn votes(&self) -> &dyn Votes;
    /// Whether another had better lead it, whoever is preferred.
    fn had_better_go(&self) -> bool {
        false
    }
    /// Has another node lead; it does on return.
    fn hand_over(&self, to: u64) -> BoxFuture<'_, cluster::Result<()>>;
}

/// What is asked of a group, whatever it agrees on.
pub(super) trait Votes {
    fn leader(&self) -> Option<u64>;
    fn voters(&self) -> Vec<u64>;
    /// Whether what is acknowledged is durable on a majority first.
    fn is_guarded(&self) -> bool;
    /// How many more voters may fail before it takes nothing, if that is known.
    fn spare(&self) -> Option<usize>;
    /// Whether fewer voters are well than should be.
    fn is_thin(&self) -> bool;
    /// Whether this node has damage in its log that nobody has given in seconds.
    fn is_damaged(&self) -> bool;
    /// Whether nothing is known to be wrong with a voter.
    fn is_well(&self, node: u64) -> bool;
    /// The voters that have what was committed a moment ago, where this node leads and knows.
    fn level(&self) -> Option<BTreeSet<u64>>;
    /// Done when all that is applied is durable, here and on a quorum.
    fn settled(&self) -> BoxFuture<'static, cluster::Result<()>>;
}

impl<S: Apply> Votes for Group<S> {
    fn leader(&self) -> Option<u64> {
        Self::leader(self)
    }

    fn voters(&self) -> Vec<u64> {
        Self::voters(self)
    }

    fn is_guarded(&self) -> bool {
        Self::is_guarded(self)
    }

    fn spare(&self) -> Option<usize> {
        Self::spare(self)
    }

    fn is_thin(&self) -> bool {
        Self::is_thin(self)
    }

    fn is_well(&self, node: u64) -> bool {
        !self.unwell().contains_key(&node)
    }

    fn is_damaged(&self) -> bool {
        Self::is_damaged(self)
    }

    fn level(&self) -> Option<BTreeSet<u64>> {
        Self::level(self)
    }

    fn settled(&self) -> BoxFuture<'static, cluster::Result<()>> {
        match self.applied() {
            Some(applied) => self.wait_durable(applied).boxed(),
            None => std::future::ready(Ok(())).boxed(),
        }
    }
}

impl Led for DataShard {
    fn number(&self) -> u32 {
        self.number
    }

    fn leads(&self) -> bool {
        Self::leads(self)
    }

    fn votes(&self) -> &dyn Votes {
        &*self.group
    }

    fn had_better_go(&self) -> bool {
        Self::had_better_go(self)
    }

    fn hand_over(&self, to: u64) -> BoxFuture<'_, cluster::Result<()>> {
        Self::hand_over(self, to).boxed()
    }
}

impl Led for Coordinator {
    fn number(&self) -> u32 {
        GROUPS
    }

    fn leads(&self) -> bool {
        Self::leads(self)
    }

    fn votes(&self) -> &dyn Votes {
        &*self.group
    }

    fn hand_over(&self, to: u64) -> BoxFuture<'_, cluster::Result<()>> {
        Self::hand_over(self, to).boxed()
    }
}

impl Led for Topics {
    fn number(&self) -> u32 {
        CONTROL
    }

    fn leads(&self) -> bool {
        Self::leads(self)
    }

    fn votes(&self) -> &dyn Votes {
        self.group()
    }

    fn hand_over(&self, to: u64) -> BoxFuture<'_, cluster::Result<()>> {
        Self::hand_over(self, to).boxed()
    }
}

/// Why a shard is not led by whom it should be.
#[derive(Debug, thiserror::Error)]
pub enum NotLed {
    /// There is none.
    #[error("there is no shard {number}; these are: {numbers:?}")]
    NoShard {
        /// Which was meant.
        number: u32,
        /// Those that there are.
        numbers: Vec<u32>,
    },
    /// It is none of those that vote.
    #[error("node {to} has no vote in shard {number}; these have: {voters:?}")]
    NoVote {
        /// Which.
        to: u64,
        /// In which shard.
        number: u32,
        /// Who has one.
        voters: Vec<u64>,
    },
    /// Nobody leads, as far as this node has heard.
    #[error(
        "nobody leads shard {0} just now: try again in a moment, or see `plimsoll cluster status`"
    )]
    NoLeader(u32),
    /// A node says why, or was not reached.
    #[error(transparent)]
    Said(#[from] Said),
    /// It is led by whom it was led by.
    #[error(transparent)]
    Group(#[from] cluster::Error),
}

/// What a node that drains has done.
#[derive(Debug, Default, Serialize)]
pub struct Drained {
    /// Which shards are led by whom instead.
    pub handed: BTreeMap<u32, u64>,
    /// What it leads still, and why.
    pub kept: BTreeMap<u32, String>,
    /// Shards of which not all is durable on a majority, and why.
    pub unsynced: BTreeMap<u32, String>,
    /// Shards that would not go on at once without it, and why.
    pub needed: BTreeMap<u32, String>,
    /// Whether it was told to stay before it had drained.
    pub is_undone: bool,
}

/// The shards of a node. It does not keep them from being closed.
#[derive(Debug)]
pub(crate) struct Leaders {
    company: Arc<Company>,
    topics: Weak<Topics>,
    groups: Weak<Coordinator>,
    /// This node is about to be stopped.
    drains: AtomicBool,
    /// One shard is handed over at a time: who comes second would be told that this node does not lead, while it does still.
    giving: Mutex<()>,
}

impl Leaders {
    pub(super) fn new(
        company: &Arc<Company>,
        topics: &Arc<Topics>,
        groups: &Arc<Coordinator>,
    ) -> Arc<Self> {
        Arc::new(Self {
            company: Arc::clone(company),
            topics: Arc::downgrade(topics),
            groups: Arc::downgrade(groups),
            drains: AtomicBool::new(false),
            giving: Mutex::default(),
        })
    }

    /// All shards, unless they are being closed.
    fn all(&self) -> Vec<Arc<dyn Led>> {
        let (Some(topics), Some(groups)) = (self.topics.upgrade(), self.groups.upgrade()) else {
            return Vec::new();
        };
        let records = topics.shards().iter().map(|shard| Arc::clone(shard) as Arc<dyn Led>);
        let mut all: Vec<_> = records.collect();
        all.push(groups);
        all.push(topics);
        all
    }

    /// Has a node lead a shard, whoever leads it now. It does on return.
    pub(crate) async fn move_to(&self, number: u32, to: u64) -> Result<(), NotLed> {
        let all = self.all();
        if all.is_empty() {
            return Err(NotLed::NoLeader(number));
        }
        let Some(shard) = all.iter().find(|shard| shard.number() == number) else {
            let mut numbers: Vec<u32> = all.iter().map(|shard| shard.number()).collect();
            numbers.sort_unstable();
            return Err(NotLed::NoShard { number, numbers });
        };
        if shard.leads() {
            return self.give(&**shard, to).await;
        }
        match shard.votes().leader().filter(|leader| *leader != self.company.node()) {
            None => Err(NotLed::NoLeader(number)),
            Some(leader) if leader == to => Ok(()),
            Some(leader) => {
                operators::ask(&self.company, leader, Request::Move { number, to }).await?;
                Ok(())
            }
        }
    }

    /// As its leader.
    async fn give(&self, shard: &dyn Led, to: u64) -> Result<(), NotLed> {
        if to == self.company.node() {
            return Ok(());
        }
        let (number, voters) = (shard.number(), shard.votes().voters());
        if !voters.contains(&to) {
            return Err(NotLed::NoVote { to, number, voters });
        }
        operators::ask(&self.company, to, Request::May).await?;
        Ok(shard.hand_over(to).await?)
    }

    /// What another node asks for.
    pub(super) async fn answer(&self, request: Request) -> Result<(), String> {
        match request {
            Request::May if self.drains() => Err("it is about to be stopped".to_owned()),
            Request::May => Ok(()),
            // Who asked believes that this one leads: nobody else is asked.
            Request::Move { number, to } => {
                let shard = self.all().into_iter().find(|shard| shard.number() == number);
                let shard = shard.filter(|shard| shard.leads());
                let shard = shard.ok_or_else(|| NotLed::NoLeader(number).to_string())?;
                self.give(&*shard, to).await.map_err(|why| why.to_string())
            }
            _ => Err("that is asked elsewhere".to_owned()),
        }
    }

    /// Whether this node is about to be stopped: then it leads nothing that another can lead.
    pub(crate) fn drains(&self) -> bool {
        self.drains.load(Ordering::Relaxed)
    }

    /// It is not to be stopped after all.
    pub(crate) fn stay(&self) {
        self.drains.store(false, Ordering::Relaxed);
    }

    /// Hands over all that this node leads, to whoever can lead it, and takes nothing back. Not for long.
    pub(crate) async fn part(&self) -> Drained {
        self.drains.store(true, Ordering::Relaxed);
        let mut drained = Drained::default();
        let until = Instant::now() + PARTS_WITHIN;
        for shard in self.all().into_iter().filter(|shard| shard.leads()) {
            let given = timeout_at(until, self.until_given_away(&*shard)).await;
            let late = |_late| Err(format!("nobody else does after {} s", PARTS_WITHIN.as_secs()));
            match given.unwrap_or_else(late) {
                Ok(to) => drained.handed.extend(to.map(|to| (shard.number(), to))),
                Err(why) => drop(drained.kept.insert(shard.number(), why)),
            }
        }
        drained
    }

    /// The same, and waits until all that is here is durable on a majority, and the others can go on at once without it.
    pub(crate) async fn drain(&self) -> Drained {
        let mut drained = self.part().await;
        let shards = self.all();
        (drained.unsynced, drained.needed) = tokio::join!(unsynced(&shards), self.until_spared());
        // Meanwhile it may have been told to stay, and have been given something to lead.
        drained.is_undone = !self.drains();
        for shard in shards.iter().filter(|shard| shard.leads()) {
            drained
                .kept
                .entry(shard.number())
                .or_insert_with(|| "it was given it again".to_owned());
        }
        drained
    }

    /// Waits until no other is closed, or closes first, of those without which too few would be left beside this one; but not for
    /// long. For a node that closes to open again.
    pub(crate) async fn turn(&self) {
        self.drains.store(true, Ordering::Relaxed);
        let (own, until) = (self.company.node(), Instant::now() + TURN);
        while Instant::now() < until {
            let Some(voters) = self.topics.upgrade().map(|topics| topics.group().voters()) else {
                return;
            };
            let others = voters.iter().copied().filter(|voter| *voter != own);
            let asks = others.clone().map(async |node| {
                match operators::ask(&self.company, node, Request::May).await {
                    Ok(_) => true,
                    // Who goes as well goes by number.
                    Err(why) => why.is_its_word && node > own,
                }
            });
            let stay = join_all(asks).await.into_iter().filter(|stays| *stays).count();
            if stay >= others.count().min(voters.len() / 2 + 1) {
                return;
            }
            sleep(LOOK / 4).await;
        }
    }

    /// Of each shard that this node leads, which voters have what was committed a moment ago, where that is known.
    pub(super) fn levels(&self) -> Levels {
        let all = self.all().into_iter();
        all.filter_map(|shard| Some((shard.number(), shard.votes().level()?))).collect()
    }

    /// The same of every node that is connected and says so.
    pub(super) async fn all_levels(&self) -> BTreeMap<u64, Levels> {
        let asks = self.company.others().into_iter().map(async |node| {
            let answer = operators::ask(&self.company, node, Request::Level).await.ok()?;
            Some((node, operators::levels_in(&answer).ok()?))
        });
        let others = join_all(asks).await.into_iter().flatten();
        others.chain([(self.company.node(), self.levels())]).collect()
    }

    /// How each shard is that this node leads, which awaits these.
    pub(super) fn leads(&self, awaited: BTreeSet<u64>) -> Leads {
        let mut unmet = self.topics.upgrade().map(|topics| topics.unmet()).unwrap_or_default();
        let all = self.all().into_iter().filter(|shard| shard.leads());
        let lead = |shard: Arc<dyn Led>| {
            let (number, votes) = (shard.number(), shard.votes());
            let (is_guarded, spare) = (votes.is_guarded(), votes.spare());
            (number, Lead { is_guarded, spare, unmet: unmet.remove(&number) })
        };
        Leads { of: all.map(lead).collect(), awaited }
    }

    /// The same of every other node that is connected and says so.
    pub(super) async fn all_leads(&self) -> BTreeMap<u64, Leads> {
        let asks = self.company.others().into_iter().map(async |node| {
            let answer = operators::ask(&self.company, node, Request::Leads).await.ok()?;
            Some((node, Leads::decode(&answer).ok()?))
        });
        join_all(asks).await.into_iter().flatten().collect()
    }

    /// Waits until the others can go on at once without this node, but not for long: the shards that cannot, and why.
    async fn until_spared(&self) -> BTreeMap<u32, String> {
        let (begun, mut stays_since) = (Instant::now(), None);
        loop {
            let needed = self.needed().await;
            if needed.values().any(|needed| needed.may_pass) {
                stays_since = None;
            }
            let lasts = stays_since.get_or_insert_with(Instant::now).elapsed() >= LASTS;
            let is_over = needed.is_empty() || lasts || begun.elapsed() >= PATIENCE;
            if is_over || !self.drains() {
                let whys = needed.into_iter().map(|(number, Needed { why, .. })| (number, why));
                return whys.collect();
            }
            sleep(LOOK).await;
        }
    }

    /// Other nodes that are about to be stopped, as they say.
    async fn others_that_go(&self) -> BTreeSet<u64> {
        let asks = self.company.others().into_iter().map(async |node| {
            let asked = operators::ask(&self.company, node, Request::May).await;
            asked.is_err_and(|why| why.is_its_word).then_some(node)
        });
        join_all(asks).await.into_iter().flatten().collect()
    }

    /// All nodes that are.
    pub(super) async fn all_that_go(&self) -> BTreeSet<u64> {
        let mut all = self.others_that_go().await;
        all.extend(self.drains().then_some(self.company.node()));
        all
    }

    /// The shards that would not go on at once without this node, and why.
    async fn needed(&self) -> BTreeMap<u32, Needed> {
        let (levels, goes) = tokio::join!(self.all_levels(), self.others_that_go());
        let why = |shard: &Arc<dyn Led>| {
            let (leader, voters) = (shard.votes().leader(), shard.votes().voters());
            let level = leader.and_then(|leader| levels.get(&leader)?.get(&shard.number()));
            why_needed(self.company.node(), &voters, leader, level, &goes)
        };
        self.all().iter().filter_map(|shard| Some((shard.number(), why(shard)?))).collect()
    }

    /// Who leads it then, if that is known. A node that was just started, or a leadership that ends just now, may need a moment.
    async fn until_given_away(&self, shard: &dyn Led) -> Result<Option<u64>, String> {
        let mut whys = String::new();
        // Where nobody else votes, nobody will by then.
        let tries = if shard.votes().voters().len() > 1 { TRIES } else { 1 };
        for tried in 0..tries {
            if tried > 0 {
                sleep(LOOK).await;
            }
            {
                let _one = self.giving.lock().await;
                if !shard.leads() {
                    return Ok(self.other_leader(shard));
                }
                match self.give_away(shard).await {
                    Ok(to) => return Ok(Some(to)),
                    Err(why) => whys = why,
                }
            }
        }
        if shard.leads() { Err(whys) } else { Ok(self.other_leader(shard)) }
    }

    /// Who leads it, if that is another that is there.
    fn other_leader(&self, shard: &dyn Led) -> Option<u64> {
        let leader = shard.votes().leader()?;
        (leader != self.company.node() && self.company.has(leader)).then_some(leader)
    }

    /// To the one that is preferred among the others, or the next that takes it.
    async fn give_away(&self, shard: &dyn Led) -> Result<u64, String> {
        let here = self.company.node();
        let mut others: Vec<u64> =
            shard.votes().voters().into_iter().filter(|voter| *voter != here).collect();
        if others.is_empty() {
            return Err("nobody else votes on it".to_owned());
        }
        let first = shard.number() as usize % others.len();
        others.rotate_left(first);
        others.sort_by_key(|voter| !shard.votes().is_well(*voter));
        let mut whys = Vec::new();
        for to in others {
            match self.give(shard, to).await {
                Ok(()) => return Ok(to),
                Err(why) => whys.push(why.to_string()),
            }
        }
        Err(whys.join("; "))
    }

    /// Has every shard led by whoever is preferred, where this node leads it and all has been well for a while; where this node
    /// drains, or its disk is full, by any other. Until the node ends.
    pub(super) async fn spread(self: Arc<Self>, is_wanted: bool) {
        let mut due = BTreeMap::new();
        loop {
            sleep(LOOK).await;
            for shard in self.all() {
                let number = shard.number();
                if !shard.leads() {
                    due.remove(&number);
                } else if self.drains() || shard.had_better_go() || shard.votes().is_damaged() {
                    let _one = self.giving.lock().await;
                    drop(self.give_away(&*shard).await);
                } else if let Some(to) = self.better(&*shard).filter(|_| is_wanted) {
                    let now = Instant::now();
                    if *due.entry(number).or_insert(now + CALM) > now {
                        continue;
                    }
                    let _one = self.giving.lock().await;
                    match self.give(&*shard, to).await {
                        Ok(()) => drop(due.remove(&number)),
                        Err(why) => {
                            tracing::info!(shard = number, to, %why, "it does not lead yet");
                            due.insert(number, Instant::now() + REST);
                        }
                    }
                } else {
                    due.remove(&number);
                }
            }
        }
    }

    /// The node that is preferred, if it is another, is there, and nothing says that it should wait.
    fn better(&self, shard: &dyn Led) -> Option<u64> {
        let votes = shard.votes();
        let nodes = self.topics.upgrade()?.group().voters();
        let to = preferred(shard.number(), &nodes, &votes.voters())?;
        (to != self.company.node() && !votes.is_thin() && self.company.has(to)).then_some(to)
    }
}

/// Waits until all that is in these shards is durable on a majority, but not for long: those of which it is not, and why.
async fn unsynced(shards: &[Arc<dyn Led>]) -> BTreeMap<u32, String> {
    let each = shards.iter().map(async |shard| {
        let why = match timeout(PATIENCE, shard.votes().settled()).await {
            Ok(Ok(())) => return None,
            Ok(Err(why)) => why.to_string(),
            Err(_late) => format!("it is not after {} s", PATIENCE.as_secs()),
        };
        Some((shard.number(), why))
    });
    join_all(each).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard that never is durable on a majority.
    struct Stuck(u32);

    impl Led for Stuck {
        fn number(&self) -> u32 {
            self.0
        }

        fn leads(&self) -> bool {
            false
        }

        fn votes(&self) -> &dyn Votes {
            self
        }

        fn hand_over(&self, _: u64) -> BoxFuture<'_, cluster::Result<()>> {
            std::future::pending().boxed()
        }
    }

    impl Votes for Stuck {
        fn leader(&self) -> Option<u64> {
            None
        }

        fn voters(&self) -> Vec<u64> {
            vec![1, 2, 3]
        }

        fn is_guarded(&self) -> bool {
            false
        }

        fn spare(&self) -> Option<usize> {
            None
        }

        fn is_thin(&self) -> bool {
            true
        }

        fn is_damaged(&self) -> bool {
            false
        }

        fn is_well(&self, _: u64) -> bool {
            false
        }

        fn level(&self) -> Option<BTreeSet<u64>> {
            None
        }

        fn settled(&self) -> BoxFuture<'static, cluster::Result<()>> {
            std::future::pending().boxed()
        }
    }

    /// It waited for one after the other: longer than whoever had asked.
    #[test]
    fn a_node_that_drains_waits_for_the_disks_of_all_its_shards_at_once() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(async {
            let shards = (0..9).map(|number| Arc::new(Stuck(number)) as Arc<dyn Led>);
            let begun = Instant::now();
            let unsynced = unsynced(&shards.collect::<Vec<_>>()).await;
            assert!(begun.elapsed() <= PATIENCE + LOOK, "{:?}", begun.elapsed());
            assert_eq!(unsynced.len(), 9);
        });
    }
}
