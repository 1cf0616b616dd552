//! [`Durability`]: D, and how its leader comes to know it; and whether the group is guarded.
//!
//! Where a replica counts as having an entry before its disk has it, the engine's commit index is C. D is
//! found beside the engine: the leader asks every voter how far *its* log is durable there. A voter knows
//! that its log is the leader's up to an entry if it has an entry of the leader's own term behind it or
//! there: only that leader makes such, and whatever follows what it follows. So no answer depends on
//! what the engine remembers of a replica, and one that came late is still true.
//!
//! **Guarded**: with no more healthy voters than a bare majority, one power cut beside the failure that
//! there is already would be a majority's. So what is committed is not called so before it is durable on a
//! quorum, until a while after all is well again; and for as long as whoever opened the group says that one failure may
//! take a majority.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use plimsoll_log::Ack;

use tokio::time::{Instant, sleep_until};

use super::apply::Apply;
use super::level::Level;
use super::message::{Answer, AskDurable, Request};
use super::network::Network;
use super::quorum;
use super::record::{from_log, to_log};
use super::state::Engine;
use super::storage::Storage;
use super::types::Vote;
use super::watch;

/// How often a voter is asked while somebody waits for D.
const AT_ONCE: Duration = Duration::from_millis(2);
/// How often while something is not durable there.
const OFTEN: Duration = Duration::from_millis(50);
/// How often otherwise.
const SELDOM: Duration = Duration::from_millis(250);
/// A voter that was not heard for so long is not healthy.
const HEALTHY: Duration = Duration::from_secs(1);
/// For how long all must have been well before the group is guarded no more.
const CALM: Duration = Duration::from_secs(10);

/// What is known of D at a replica.
#[derive(Debug)]
pub(crate) struct Durability {
    known: watch::Sender<Option<u64>>,
    /// Somebody waits for D to be here.
    wanted: watch::Sender<Option<u64>>,
    /// The term in which this replica leads and was found to need no guard; 0: none.
    calm_in: AtomicU64,
    /// One failure may take a majority of the voters: nothing is acknowledged from their memory.
    is_exposed: AtomicBool,
    /// The other voters that are level, where this replica leads.
    level: Mutex<BTreeSet<u64>>,
}

impl Default for Durability {
    fn default() -> Self {
        let (known, wanted) = (watch::Sender::new(None), watch::Sender::new(None));
        let (calm_in, is_exposed, level) = Default::default();
        Self { known, wanted, calm_in, is_exposed, level }
    }
}

impl Durability {
    /// D, as far as it is known here. It never goes back.
    pub(crate) fn known(&self) -> Option<u64> {
        *self.known.borrow()
    }

    pub(crate) fn learn(&self, durable: Option<u64>) {
        self.known.send_if_modified(|known| {
            let has_risen = durable > *known;
            *known = durable.max(*known);
            has_risen
        });
    }

    /// Waits until D is there; has all voters sync if `asks`.
    pub(crate) fn wait(&self, index: u64, asks: bool) -> impl Future<Output = bool> + Send + use<> {
        if asks {
            self.wanted.send_if_modified(|wanted| {
                let has_risen = Some(index) > *wanted;
                *wanted = Some(index).max(*wanted);
                has_risen
            });
        }
        let mut known = self.known.subscribe();
        async move { known.wait_for(|known| *known >= Some(index)).await.is_ok() }
    }

    /// Whether what is committed in a term must be durable before anybody hears of it: until it is known that
    /// it need not be.
    pub(crate) fn is_guarded(&self, term: u64) -> bool {
        self.is_thin(term) || self.is_exposed()
    }

    /// Whether that is so because fewer voters are well than should be.
    pub(crate) fn is_thin(&self, term: u64) -> bool {
        self.calm_in.load(Ordering::Relaxed) != term
    }

    /// Whether one failure may take a majority of the voters.
    pub(crate) fn is_exposed(&self) -> bool {
        self.is_exposed.load(Ordering::Relaxed)
    }

    /// From here on one failure may take a majority of the voters, or may not.
    pub(crate) fn expose(&self, is_exposed: bool) {
        self.is_exposed.store(is_exposed, Ordering::Relaxed);
    }

    /// The other voters that are level; nobody where this replica does not lead.
    pub(crate) fn level(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a leader knows of the others.
#[derive(Debug, Default)]
struct Leading {
    term: u64,
    /// The last index of this leader's log that is durable at each.
    reports: BTreeMap<u64, u64>,
    /// Who was heard when, and whether it votes.
    heard: BTreeMap<u64, (Instant, bool)>,
    asked: BTreeMap<u64, Instant>,
    under_way: BTreeSet<u64>,
    calm_since: Option<Instant>,
    level: Level,
}

impl Leading {
    fn of(term: u64) -> Self {
        Self { term, ..Self::default() }
    }

    fn hear(&mut self, node: u64, answer: Option<(Option<u64>, bool)>, now: Instant) {
        self.under_way.remove(&node);
        let Some((through, votes)) = answer else { return };
        self.heard.insert(node, (now, votes));
        if let Some(through) = through {
            let report = self.reports.entry(node).or_insert(through);
            *report = through.max(*report);
        }
    }

    /// Whether another was heard lately, and votes.
    fn is_healthy(&self, voter: u64, now: Instant) -> bool {
        self.heard.get(&voter).is_some_and(|(when, votes)| *votes && now - *when < HEALTHY)
    }

    /// Whether what is committed must be durable before anybody hears of it.
    fn is_guarded(&mut self, node: u64, voters: &[BTreeSet<u64>], now: Instant) -> bool {
        let is_healthy = |voter: &u64| *voter == node || self.is_healthy(*voter, now);
        let is_bare = |set: &BTreeSet<u64>| {
            let healthy = set.iter().filter(|voter| is_healthy(voter)).count();
            set.len() > 1 && healthy <= set.len() / 2 + 1
        };
        // Of two voters both are the majority: nothing would ever be well.
        let is_bare = voters.iter().any(|set| set.len() != 2 && is_bare(set));
        self.calm_since = if is_bare { None } else { self.calm_since.or(Some(now)) };
        voters.iter().any(|set| set.len() > 1)
            && self.calm_since.is_none_or(|since| now - since < CALM)
    }

    fn is_due(&self, node: u64, last: u64, syncs: bool, now: Instant) -> bool {
        let behind = self.reports.get(&node).is_none_or(|report| *report < last);
        let every = match behind {
            true if syncs => AT_ONCE,
            true => OFTEN,
            false => SELDOM,
        };
        let rested = self.asked.get(&node).is_none_or(|asked| now - *asked >= every);
        !self.under_way.contains(&node) && rested
    }
}

type Heard = (u64, u64, Option<(Option<u64>, bool)>);

/// Finds D while this replica leads, until the group ends.
pub(crate) async fn find<S: Apply>(
    node: u64,
    engine: Engine<S>,
    storage: Weak<Storage>,
    network: Network,
    durability: std::sync::Arc<Durability>,
) {
    let mut asks = FuturesUnordered::<BoxFuture<'static, Heard>>::new();
    let mut leading = Leading::default();
    // Where what counts as being here is durable, nobody waits for D: it is only looked who is level.
    let is_durable = storage.upgrade().is_some_and(|storage| storage.promise == Ack::Durable);
    let mut wanted = durability.wanted.subscribe();
    loop {
        let is_awaited = *wanted.borrow() > durability.known();
        let rest = match is_awaited {
            true => AT_ONCE,
            false if is_durable => SELDOM,
            false => OFTEN,
        };
        let look = Instant::now() + rest;
        tokio::select! {
            biased;
            Some((of, term, answer)) = asks.next() => {
                if term == leading.term {
                    leading.hear(of, answer, Instant::now());
                }
            }
            changed = wanted.changed() => if changed.is_err() { return },
            () = sleep_until(look) => {}
        }
        let Some(storage) = storage.upgrade() else { return };
        let (vote, voters, committed, matched) = {
            let metrics = engine.metrics();
            let now = metrics.borrow_watched();
            if now.running_state.is_err() {
                return;
            }
            let leads = now.state == ServerState::Leader;
            let members = now.membership_config.membership();
            let voters = members.get_joint_config().clone();
            storage.onlookers.see(&voters, members.nodes().count());
            let committed = now.local_committed.map(|last| last.index);
            let matched = now.replication.clone().filter(|_| leads).unwrap_or_default();
            (leads.then_some(now.vote), voters, committed, matched)
        };
        let last = storage.tail().last();
        let own = vote.zip(last).filter(|(vote, last)| vote.leader_id.term == last.leader_id.term);
        let Some((vote, last)) = own else {
            leading = Leading::default();
            durability.level().clear();
            durability.calm_in.store(0, Ordering::Relaxed);
            continue;
        };
        if leading.term != vote.leader_id.term {
            leading = Leading::of(vote.leader_id.term);
        }
        let is_whole = !storage.wounds.are_open();
        if let Some(own) = from_log(storage.log.durable()).filter(|_| is_whole) {
            leading.reports.insert(node, own.min(last.index));
        }
        let durable = quorum::durable(&voters, &leading.reports).min(committed);
        durability.learn(durable);
        let now = Instant::now();
        let is_calm = !leading.is_guarded(node, &voters, now);
        durability.calm_in.store(if is_calm { leading.term } else { 0 }, Ordering::Relaxed);
        leading.level.turn(committed, now);
        let is_level = |voter: &u64| {
            let has = matched.get(voter).and_then(|last| Some(last.as_ref()?.index));
            *voter != node && leading.is_healthy(*voter, now) && leading.level.is_reached(has)
        };
        *durability.level() = voters.iter().flatten().copied().filter(is_level).collect();
        let syncs = *wanted.borrow_and_update() > durable;
        for voter in voters.iter().flatten().copied().collect::<BTreeSet<_>>() {
            if !leading.is_due(voter, last.index, syncs, now) {
                continue;
            }
            let term = leading.term;
            leading.asked.insert(voter, now);
            if voter == node {
                if syncs
                    && is_whole
                    && let Ok(synced) = storage.log.wait(to_log(last.index), Ack::Durable)
                {
                    leading.under_way.insert(node);
                    asks.push(Box::pin(async move {
                        let through = synced.await.is_ok().then_some(last.index);
                        (node, term, Some((through, true)))
                    }));
                }
                continue;
            }
            leading.under_way.insert(voter);
            let asked = ask(&network, voter, AskDurable { vote, last, durable, syncs });
            asks.push(Box::pin(async move { (voter, term, asked.await) }));
        }
    }
}

fn ask(
    network: &Network,
    to: u64,
    ask: AskDurable,
) -> impl Future<Output = Option<(Option<u64>, bool)>> + Send + use<> {
    let asked = network.ask(to, &Request::Durable(ask));
    async move {
        match asked.await {
            Ok(Answer::Durable(through, votes)) => Some((through, votes)),
            _ => None,
        }
    }
}

/// Answers a leader: up to which entry of its log all is durable here.
pub(crate) async fn answer(
    storage: &Storage,
    own: Option<Vote>,
    asked: &AskDurable,
) -> Option<u64> {
    let end = storage.tail().last()?.index.min(asked.last.index);
    // Only that leader makes entries of that term, and all before one of them is as it has it.
    let entry = storage.read(end..end + 1, 1).ok()?.pop()?;
    if entry.log_id.leader_id.term != asked.vote.leader_id.term || own != Some(asked.vote) {
        return None;
    }
    if asked.syncs {
        storage.log.wait(to_log(end), Ack::Durable).ok()?.await.ok()?;
    }
    from_log(storage.log.durable()).map(|durable| durable.min(end))
}
