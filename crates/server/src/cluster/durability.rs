//! [`Durability`]: D, and how its leader comes to know it; and whether the group is guarded.
//!
//! Where a replica counts as having an entry before its disk has it, the engine's commit index is C. D is
//! found beside the engine: the leader asks every voter how far *its* log is durable there. A voter knows
//! that its log is the leader's up to an entry if it has an entry of the leader's own term behind it or
//! there: only that leader makes such, and whatever follows what it follows. So no answer depends on
//! what the engine remembers of a replica. A voter is asked one thing at a time, and counts by what it said last.
//!
//! **Guarded**: with no more healthy voters than a bare majority, one power cut beside the failure that
//! there is already would be a majority's. So what is committed is not called so before it is durable on a
//! quorum, until a while after all is well again; and for as long as whoever opened the group says that one failure may
//! take a majority. A voter is not healthy that is away, may have forgotten what it acknowledged, has no room for records,
//! or whose disk is slow: what the leader has had for longer than that disk may be behind is not durable there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
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
use super::level::{Level, Named};
use super::message::{Answer, AskDurable, Fitness, Request};
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
/// How finely it is noted where the log ended when.
const ENDS_MAX: u32 = 64;
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
    level: Mutex<AtLevel>,
    /// Of the voters, while this replica leads.
    unwell: Mutex<BTreeMap<u64, Unwell>>,
    /// No majority is there and has room for records.
    lacks_room: AtomicBool,
    /// What this leader appended seconds ago is not agreed on.
    is_stuck: AtomicBool,
}

/// Which other voters are level.
#[derive(Debug, Default)]
pub(crate) struct AtLevel {
    pub(crate) others: BTreeSet<u64>,
    /// The term in which that is by what was committed a moment ago; 0: none.
    pub(crate) known_in: u64,
}

/// What is wrong with a voter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwell {
    /// It was not heard lately.
    Away,
    /// It may have forgotten what it acknowledged, or knows of damage in its log.
    InDoubt,
    /// Its disk has no room for records: it takes none.
    Full,
    /// It has not got what its leader has had for a while.
    Behind,
    /// Its disk does not keep up.
    Slow,
}

impl fmt::Display for Unwell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Away => "away",
            Self::InDoubt => "in doubt, or its log is damaged",
            Self::Full => "no room on its disk",
            Self::Behind => "it has not caught up",
            Self::Slow => "its disk does not keep up",
        })
    }
}

impl Default for Durability {
    fn default() -> Self {
        let (known, wanted) = (watch::Sender::new(None), watch::Sender::new(None));
        let (calm_in, is_exposed, level, unwell) = Default::default();
        let (lacks_room, is_stuck) = Default::default();
        Self { known, wanted, calm_in, is_exposed, level, unwell, lacks_room, is_stuck }
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
    pub(crate) fn level(&self) -> MutexGuard<'_, AtLevel> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which voters are not well.
    pub(crate) fn unwell(&self) -> BTreeMap<u64, Unwell> {
        self.unwell.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether no majority has room for records.
    pub(crate) fn lacks_room(&self) -> bool {
        self.lacks_room.load(Ordering::Relaxed)
    }

    /// Whether this replica leads, and what it appended seconds ago is not agreed on.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// How the voters are, of each set of which a majority must agree; nothing where this replica does not lead.
    fn found(&self, unwell: BTreeMap<u64, Unwell>, voters: &[BTreeSet<u64>]) {
        let are = |set: &BTreeSet<u64>, how| {
            set.iter().filter(|voter| unwell.get(voter) == Some(&how)).count()
        };
        // Who is away takes none either; but that is no matter of room where none is full.
        let lacks = |set: &BTreeSet<u64>| {
            let full = are(set, Unwell::Full);
            full > 0 && full + are(set, Unwell::Away) >= set.len().div_ceil(2) && set.len() > 1
        };
        self.lacks_room.store(voters.iter().any(lacks), Ordering::Relaxed);
        let mut known = self.unwell.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != unwell {
            for (voter, why) in unwell.iter().filter(|(voter, why)| known.get(voter) != Some(why)) {
                match why {
                    // That is told by its connection, once and not by each shard.
                    Unwell::Away => tracing::debug!(voter, %why, "a voter is not well"),
                    _ => tracing::info!(voter, %why, "a voter is not well"),
                }
            }
            *known = unwell;
        }
    }
}

/// What a leader knows of the others.
#[derive(Debug, Default)]
struct Leading {
    term: u64,
    /// The last index of this leader's log that is durable at each.
    reports: BTreeMap<u64, u64>,
    /// Who was heard when, and how it was.
    heard: BTreeMap<u64, (Instant, Fitness)>,
    /// Since when it is heard without a break.
    since: BTreeMap<u64, Instant>,
    /// Where the log ended when, as far back as a disk may be behind.
    ends: VecDeque<(Instant, u64)>,
    asked: BTreeMap<u64, Instant>,
    under_way: BTreeSet<u64>,
    calm_since: Option<Instant>,
    level: Level,
    /// An end that its log had, which is to be agreed on.
    own: Named,
}

impl Leading {
    fn of(term: u64) -> Self {
        Self { term, ..Self::default() }
    }

    fn hear(&mut self, node: u64, answer: Option<(Option<u64>, Fitness)>, now: Instant) {
        self.under_way.remove(&node);
        let Some((through, how)) = answer else { return };
        let before = self.heard.insert(node, (now, how));
        if before.is_none_or(|(when, _)| now - when >= HEALTHY) {
            self.since.insert(node, now);
        }
        self.report(node, through);
    }

    /// So far a voter has this leader's log on its disk, be it less than it said before: a start may have cut off what was damaged, or
    /// another log been put in its place. None: nothing that it said holds any more.
    fn report(&mut self, node: u64, through: Option<u64>) {
        match through {
            Some(through) => drop(self.reports.insert(node, through)),
            None => drop(self.reports.remove(&node)),
        }
    }

    /// Whether another was heard lately, and votes.
    fn is_healthy(&self, voter: u64, now: Instant) -> bool {
        self.heard.get(&voter).is_some_and(|(when, how)| how.votes && now - *when < HEALTHY)
    }

    /// Notes where the log ends now.
    fn ends_at(&mut self, last: u64, slow_after: Option<Duration>, now: Instant) {
        let Some(slow_after) = slow_after else { return };
        let pause = slow_after / ENDS_MAX;
        if self.ends.back().is_none_or(|(when, end)| last > *end && now - *when >= pause) {
            self.ends.push_back((now, last));
        }
        // The newest that is old enough stands for all before it.
        while self.ends.get(1).is_some_and(|(when, _)| now - *when >= slow_after) {
            self.ends.pop_front();
        }
    }

    /// What is wrong with a voter that has the log up to this entry, if anything is.
    fn unwell(
        &self,
        voter: u64,
        has: Option<u64>,
        slow_after: Option<Duration>,
        now: Instant,
    ) -> Option<Unwell> {
        let Some((when, how)) = self.heard.get(&voter) else { return Some(Unwell::Away) };
        let old = self.ends.front().filter(|(when, _)| Some(now - *when) >= slow_after);
        let is_behind = |end: u64| self.reports.get(&voter).is_none_or(|report| *report < end);
        match how {
            _ if now - *when >= HEALTHY => Some(Unwell::Away),
            Fitness { votes: false, .. } => Some(Unwell::InDoubt),
            Fitness { has_room: false, .. } => Some(Unwell::Full),
            _ => {
                let (_, end) = old.filter(|(_, end)| slow_after.is_some() && is_behind(*end))?;
                // One that has just come back has on its disk what it had when it went.
                let has_come =
                    self.since.get(&voter).is_none_or(|since| Some(now - *since) < slow_after);
                let is_behind = has < Some(*end) || has_come;
                Some(if is_behind { Unwell::Behind } else { Unwell::Slow })
            }
        }
    }

    /// Whether what is committed must be durable before anybody hears of it.
    fn is_guarded(
        &mut self,
        unwell: &BTreeMap<u64, Unwell>,
        voters: &[BTreeSet<u64>],
        now: Instant,
    ) -> bool {
        let is_bare = |set: &BTreeSet<u64>| {
            let healthy = set.iter().filter(|voter| !unwell.contains_key(voter)).count();
            set.len() > 1 && healthy <= set.len() / 2 + 1
        };
        // Of two voters both are the majority: nothing would ever be well.
        let is_bare = voters.iter().any(|set| set.len() != 2 && is_bare(set));
        self.calm_since = if is_bare { None } else { self.calm_since.or(Some(now)) };
        voters.iter().any(|set| set.len() > 1)
            && self.calm_since.is_none_or(|since| now - since < CALM)
    }

    fn is_due(&self, node: u64, last: u64, every: Duration, now: Instant) -> bool {
        let is_behind = self.reports.get(&node).is_none_or(|report| *report < last);
        let every = if is_behind { every } else { SELDOM };
        let rested = self.asked.get(&node).is_none_or(|asked| now - *asked >= every);
        !self.under_way.contains(&node) && rested
    }
}

type Heard = (u64, u64, Option<(Option<u64>, Fitness)>);

/// Finds D while this replica leads, and how the voters are, until the group ends. Where an entry is durable before it counts only the
/// latter is of use.
pub(crate) async fn find<S: Apply>(
    node: u64,
    engine: Engine<S>,
    storage: Weak<Storage>,
    network: Network,
    durability: std::sync::Arc<Durability>,
) {
    let mut asks = FuturesUnordered::<BoxFuture<'static, Heard>>::new();
    let mut leading = Leading::default();
    let mut wanted = durability.wanted.subscribe();
    let mut rests = OFTEN;
    loop {
        let is_awaited = *wanted.borrow() > durability.known();
        let rest = if is_awaited { AT_ONCE } else { rests };
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
        rests = if storage.promise == Ack::Durable { SELDOM } else { OFTEN };
        let (vote, voters, nodes, committed, matched) = {
            let metrics = engine.metrics();
            let now = metrics.borrow_watched();
            if now.running_state.is_err() {
                return;
            }
            let leads = now.state == ServerState::Leader;
            let members = now.membership_config.membership();
            let voters = members.get_joint_config().clone();
            let nodes: BTreeSet<u64> = members.nodes().map(|(node, _)| *node).collect();
            storage.onlookers.see(&voters, nodes.len());
            let committed = now.local_committed.map(|last| last.index);
            let matched = now.replication.clone().filter(|_| leads).unwrap_or_default();
            (leads.then_some(now.vote), voters, nodes, committed, matched)
        };
        let last = storage.tail().last();
        let own = vote.zip(last).filter(|(vote, last)| vote.leader_id.term == last.leader_id.term);
        let Some((vote, last)) = own else {
            leading = Leading::default();
            *durability.level() = AtLevel::default();
            durability.calm_in.store(0, Ordering::Relaxed);
            durability.is_stuck.store(false, Ordering::Relaxed);
            durability.found(BTreeMap::new(), &[]);
            continue;
        };
        if leading.term != vote.leader_id.term {
            leading = Leading::of(vote.leader_id.term);
        }
        let is_whole = storage.is_whole();
        let own = from_log(storage.log.durable()).filter(|_| is_whole);
        leading.report(node, own.map(|own| own.min(last.index)));
        let durable = quorum::durable(&voters, &leading.reports).min(committed);
        durability.learn(durable);
        let now = Instant::now();
        let how = Fitness { votes: is_whole, has_room: !storage.disk.is_full() };
        leading.heard.insert(node, (now, how));
        leading.ends_at(last.index, storage.slow_after, now);
        let all = voters.iter().flatten().copied().collect::<BTreeSet<_>>();
        let has = |voter: &u64| {
            let matched = matched.get(voter).and_then(|last| Some(last.as_ref()?.index));
            if *voter == node { Some(last.index) } else { matched }
        };
        let of = |voter: &u64| {
            Some((*voter, leading.unwell(*voter, has(voter), storage.slow_after, now)?))
        };
        let unwell = all.iter().filter_map(of).collect();
        let is_calm = !leading.is_guarded(&unwell, &voters, now);
        durability.found(unwell, &voters);
        durability.calm_in.store(if is_calm { leading.term } else { 0 }, Ordering::Relaxed);
        leading.own.hears(last.index, committed);
        durability.is_stuck.store(leading.own.is_behind(committed), Ordering::Relaxed);
        leading.level.turn(committed, now);
        let is_level = |voter: &u64| {
            let is_healthy = *voter != node && leading.is_healthy(*voter, now);
            is_healthy && leading.level.is_reached(has(voter))
        };
        *durability.level() = AtLevel {
            others: voters.iter().flatten().copied().filter(is_level).collect(),
            known_in: if leading.level.is_known() { leading.term } else { 0 },
        };
        let syncs = *wanted.borrow_and_update() > durable;
        let every = if syncs { AT_ONCE } else { rests };
        // Who does not vote counts for nothing, and has to know D.
        for voter in nodes {
            if !leading.is_due(voter, last.index, every, now) {
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
                        (node, term, Some((through, how)))
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
) -> impl Future<Output = Option<(Option<u64>, Fitness)>> + Send + use<> {
    let asked = network.ask(to, &Request::Durable(ask));
    async move {
        match asked.await {
            Ok(Answer::Durable(through, how)) => Some((through, how)),
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
    let own_last = storage.tail().last()?;
    let end = own_last.index.min(asked.last.index);
    // The end of its log is known also where nothing of that is in memory, as behind a start.
    let term = match own_last.index == end {
        true => own_last.leader_id.term,
        false => storage.read(end..end + 1, 1).ok()?.pop()?.log_id.leader_id.term,
    };
    // Only that leader makes entries of that term, and all before one of them is as it has it.
    if term != asked.vote.leader_id.term || own != Some(asked.vote) {
        return None;
    }
    if asked.syncs {
        storage.log.wait(to_log(end), Ack::Durable).ok()?.await.ok()?;
    }
    from_log(storage.log.durable()).map(|durable| durable.min(end))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::cluster::trio::{Net, PATIENCE, payload, tell, three};

    /// All was green while a leader had nobody who took what it appended.
    #[test]
    fn a_leader_that_has_nothing_agreed_on_is_known_to_stand_still() {
        let net = Net::default();
        tell(async {
            let ([leader, other, last], _) = three(&net).await;
            let leadership = leader.group.leadership().unwrap();
            let are_full = Arc::new(AtomicBool::new(true));
            other.group.refuses_while(Arc::clone(&are_full));
            last.group.refuses_while(Arc::clone(&are_full));
            let proposed = leader.group.propose(leadership, payload(1));
            assert!(!leader.group.is_stuck());
            let stands = async |is_stuck: bool| {
                while leader.group.is_stuck() != is_stuck {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            let goes_on = async {
                timeout(PATIENCE, stands(true)).await.expect("it is known");
                are_full.store(false, Ordering::Relaxed);
            };
            let (proposed, ()) = tokio::join!(proposed, goes_on);
            proposed.unwrap();
            timeout(PATIENCE, stands(false)).await.expect("it goes on");
        });
        net.heard().clear();
    }

    const SLOW_AFTER: Option<Duration> = Some(Duration::from_secs(3));
    const WELL: Fitness = Fitness { votes: true, has_room: true };

    /// One that found damage said no more how far its disk has the log, and what it had said before went on counting for D.
    #[test]
    fn a_voter_counts_by_what_it_says_now_and_not_by_what_it_said() {
        let (mut leading, now) = (Leading::of(1), Instant::now());
        leading.hear(2, Some((Some(60), WELL)), now);
        leading.hear(3, Some((Some(60), WELL)), now);
        leading.hear(2, Some((None, WELL)), now);
        leading.hear(3, Some((Some(29), WELL)), now);
        // Who is not heard takes nothing back.
        leading.hear(3, None, now);
        assert_eq!(leading.reports, BTreeMap::from([(3, 29)]));
    }

    /// A leader whose log grows by an entry each 100 ms, and is durable on three disks `late` behind that: what it
    /// finds wrong with each after ten seconds.
    fn after_ten_seconds(late: [Duration; 3], how: [Fitness; 3]) -> Vec<Option<Unwell>> {
        let (mut leading, begun) = (Leading::of(1), Instant::now());
        let step = Duration::from_millis(100);
        let mut now = begun;
        for last in 0..100_u64 {
            now = begun + step * u32::try_from(last).unwrap();
            leading.ends_at(last, SLOW_AFTER, now);
            for (node, (late, how)) in (1..).zip(late.into_iter().zip(how)) {
                let behind = u64::try_from(late.as_millis() / step.as_millis()).unwrap();
                leading.hear(node, Some((last.checked_sub(behind), how)), now);
            }
        }
        assert!(leading.ends.len() < 3 * ENDS_MAX as usize, "{}", leading.ends.len());
        (1..=3).map(|node| leading.unwell(node, Some(99), SLOW_AFTER, now)).collect()
    }

    #[test]
    fn a_disk_that_takes_longer_is_well_until_it_does_not_keep_up() {
        let late = [0, 2_800, 3_500].map(Duration::from_millis);
        assert_eq!(after_ten_seconds(late, [WELL; 3]), [None, None, Some(Unwell::Slow)]);
    }

    #[test]
    fn one_that_is_full_or_in_doubt_is_not_well_however_fast_its_disk_is() {
        let (full, doubts) =
            (Fitness { has_room: false, ..WELL }, Fitness { votes: false, ..WELL });
        let found = after_ten_seconds([Duration::ZERO; 3], [WELL, full, doubts]);
        assert_eq!(found, [None, Some(Unwell::Full), Some(Unwell::InDoubt)]);
    }

    #[test]
    fn a_log_that_does_not_grow_makes_no_disk_slow() {
        let (mut leading, begun) = (Leading::of(1), Instant::now());
        leading.ends_at(7, SLOW_AFTER, begun);
        leading.hear(2, Some((Some(7), WELL)), begun + HEALTHY * 100);
        assert_eq!(leading.unwell(2, Some(7), SLOW_AFTER, begun + HEALTHY * 100), None);
        assert_eq!(leading.unwell(3, Some(7), SLOW_AFTER, begun), Some(Unwell::Away));
    }

    /// Of one that had just begun to be given what it lacked, or that had come back a moment ago, it was said that its disk does not keep up.
    #[test]
    fn of_one_that_has_not_got_the_log_nothing_is_said_of_its_disk() {
        let (mut leading, begun) = (Leading::of(1), Instant::now());
        leading.ends_at(7, SLOW_AFTER, begun);
        let now = begun + HEALTHY * 100;
        leading.hear(2, Some((Some(3), WELL)), now);
        assert_eq!(leading.unwell(2, Some(5), SLOW_AFTER, now), Some(Unwell::Behind));
        assert_eq!(leading.unwell(2, None, SLOW_AFTER, now), Some(Unwell::Behind));
        assert_eq!(leading.unwell(2, Some(7), SLOW_AFTER, now), Some(Unwell::Behind));
        let mut later = now;
        while Some(later - now) < SLOW_AFTER {
            later += HEALTHY / 2;
            leading.hear(2, Some((Some(3), WELL)), later);
        }
        assert_eq!(leading.unwell(2, Some(7), SLOW_AFTER, later), Some(Unwell::Slow));
    }

    #[test]
    fn acknowledgements_wait_for_disks_from_when_one_is_not_well_until_all_were_for_a_while() {
        let (mut leading, begun) = (Leading::of(1), Instant::now());
        let voters = [BTreeSet::from([1, 2, 3])];
        let mut is_guarded = |unwell: &[(u64, Unwell)], at| {
            leading.is_guarded(&unwell.iter().copied().collect(), &voters, begun + at)
        };
        assert!(is_guarded(&[], Duration::ZERO), "it has just begun");
        assert!(!is_guarded(&[], CALM));
        assert!(is_guarded(&[(3, Unwell::Slow)], CALM * 2));
        assert!(is_guarded(&[], CALM * 2 + HEALTHY));
        assert!(is_guarded(&[], CALM * 3));
        assert!(!is_guarded(&[], CALM * 4));
    }

    #[test]
    fn records_are_refused_where_no_majority_has_room() {
        let durability = Durability::default();
        let voters = [BTreeSet::from([1, 2, 3])];
        for (full, lacks) in [(&[3][..], false), (&[1, 3][..], true), (&[2][..], false)] {
            let unwell = full.iter().map(|voter| (*voter, Unwell::Full)).collect();
            durability.found(unwell, &voters);
            assert_eq!(durability.lacks_room(), lacks, "{full:?}");
        }
        durability.found(BTreeMap::from([(1, Unwell::Slow), (2, Unwell::Away)]), &voters);
        assert!(!durability.lacks_room());
        // Records were taken that nobody agreed on, and producers told after their timeout.
        durability.found(BTreeMap::from([(1, Unwell::Full), (2, Unwell::Away)]), &voters);
        assert!(durability.lacks_room());
    }
}
