//! [`Life`]: what a group goes through, drawn from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use plimsoll_log::Ack;
use plimsoll_server::cluster::Outline;
use plimsoll_simdisk::{Fault, FaultKind, Operation};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::changes::Change;
use super::leads::Desks;
use super::machines::Machines;
use super::net::Weather;
use super::oracle::Counts;
use super::panics;
use super::world::{End, World, lock};

/// How seldom something may happen, and all is held against the rule.
const STEP_MS: u64 = 40;
/// For how long things go wrong.
const TROUBLED: Duration = Duration::from_secs(10);
/// Within what time a group that can agrees on something, once nothing goes wrong any more.
const AGREES_WITHIN: Duration = Duration::from_secs(60);
/// Within what time one that cannot would have.
const STAYS: Duration = Duration::from_secs(6);
/// `EIO`, which has no kind.
const EIO: i32 = 5;

pub(crate) struct Life {
    pub(super) world: World,
    pub(super) drawn: Pcg64Mcg,
    /// More than a minority may forget at once.
    pub(super) is_severe: bool,
    /// Of these one has the say, as far as is known.
    pub(super) configs: Vec<BTreeSet<u64>>,
    pub(super) target: BTreeSet<u64>,
    /// These are to have the log, and not to vote.
    pub(super) watchers: BTreeSet<u64>,
    /// All that have the log, as far as is known.
    pub(super) nodes: BTreeSet<u64>,
    pub(super) change: Option<Change>,
    /// When those that are down come up.
    pub(super) returns: BTreeMap<u64, Instant>,
    /// When those whose disk fails go down.
    pub(super) fails: BTreeMap<u64, Instant>,
    /// Entries that a disk has lost, be it for a while.
    pub(super) rotten: BTreeSet<u64>,
    pub(super) heals: Instant,
    pub(super) proposed: u64,
    /// Whom clients ask that wait for answers, the term in which each node leads them, and these clients.
    pub(super) desks: Desks,
    pub(super) led: BTreeMap<u64, (u64, u64)>,
    pub(super) clients: Vec<AbortHandle>,
    /// Whether some of them are members of groups, and whether some make topics.
    pub(super) has_members: bool,
    pub(super) has_topics: bool,
    pub(super) begun: Instant,
    /// Some of what clients ask for must be durable first.
    pub(super) syncs: Arc<AtomicBool>,
}

impl Life {
    /// Lives from a seed; what was seen, and what happened if that is kept.
    pub(crate) async fn live(seed: u64, is_traced: bool) -> (Counts, Vec<String>) {
        let mut drawn = Pcg64Mcg::seed_from_u64(seed ^ 0x6c69_6665);
        let promise = match drawn.random_range(0..6) {
            0..=2 => Ack::Buffered,
            3 | 4 => Ack::Written,
            _ => Ack::Durable,
        };
        let first = [1, 3, 3, 3, 5][drawn.random_range(0..5)];
        let mut world = World::traced(seed, promise, 1..=first, is_traced);
        world.ages_ms = &[200, 2000, 20_000];
        let voters: BTreeSet<_> = (1..=first).collect();
        let mut life = Self {
            world,
            is_severe: drawn.random_ratio(1, 2),
            drawn,
            configs: vec![voters.clone()],
            target: voters.clone(),
            watchers: BTreeSet::new(),
            nodes: if first == 1 { BTreeSet::from([1]) } else { voters },
            change: None,
            returns: BTreeMap::new(),
            fails: BTreeMap::new(),
            rotten: BTreeSet::new(),
            heals: Instant::now(),
            proposed: 0,
            syncs: Arc::new(AtomicBool::new(true)),
            desks: Desks::default(),
            led: BTreeMap::new(),
            clients: Vec::new(),
            has_members: false,
            has_topics: false,
            begun: Instant::now(),
        };
        let _told = Told(&life.world.net.clone());
        life.world.form().await;
        if first == 1 {
            life.alone().await;
        }
        life.producers_come();
        // Where nothing of theirs is there, more is ahead of D.
        let come = life.drawn.random_range(0..6);
        if [0, 1].contains(&come) {
            life.members_come();
        }
        if [1, 2].contains(&come) {
            life.topics_come();
        }
        let can_forget = life.world.promise != Ack::Durable;
        match life.drawn.random_range(0..8) {
            0 => {
                // Until what is acknowledged is in memory only.
                life.calm(Duration::from_secs(12)).await;
                life.troubles(TROUBLED).await;
            }
            1..=5 if can_forget && life.is_severe => {
                life.strikes().await;
                life.troubles(TROUBLED / 3).await;
            }
            _ => life.troubles(TROUBLED).await,
        }
        life.ends_well().await;
        let counts = life.world.oracle.counts();
        (counts, life.world.net.trace.lines())
    }

    pub(super) fn count(&self, what: &'static str) {
        self.world.oracle.count(what);
    }

    pub(super) fn tell(&self, what: &str) {
        self.world.net.trace.tell(format_args!("{what}"));
    }

    pub(super) async fn step(&mut self) {
        // So that what ends does so in the midst of something.
        sleep(Duration::from_millis(self.drawn.random_range(1..STEP_MS))).await;
        panics::none();
        self.world.look();
        self.leads();
        self.rises().await;
        self.seeds().await;
        self.opens_again();
    }

    /// Who could not read at its start who votes is started again, once it can. It ends in order, so it forgets nothing: here once all that it
    /// has is durable (seed 31037, in which another might forget).
    fn opens_again(&mut self) {
        for id in self.world.up() {
            let group = self.world.group(id);
            let said = group.outline();
            if group.must_open_again() && said.synced >= said.last.1 {
                self.count("a replica that was opened again, as it could not read who votes");
                self.ends_anyhow(id, End::Killed);
            }
        }
    }

    async fn calm(&mut self, time: Duration) {
        let ends = Instant::now() + time;
        while Instant::now() < ends {
            self.step().await;
            self.clients(10);
        }
    }

    /// One voter becomes three. It may lose its power before.
    async fn alone(&mut self) {
        self.calm(Duration::from_secs(1)).await;
        if self.drawn.random_ratio(1, 2) {
            let how = self.draw_end();
            self.world.end(1, how);
            self.world.oracle.loses_to_durable(0);
            self.world.start(1, true).await;
            self.count("a sole voter that ended");
        }
        self.calm(Duration::from_secs(1)).await;
        self.target = BTreeSet::from([1, 2, 3]);
        for id in [2, 3] {
            self.world.buy(id);
            self.world.start(id, false).await;
        }
        let mut dies = self.drawn.random_ratio(1, 2);
        while self.configs != [self.target.clone()] {
            self.changes();
            self.step().await;
            self.clients(10);
            if dies && self.drawn.random_ratio(1, 10) {
                dies = false;
                self.count("a sole voter that ended while others got its log");
                self.world.end(1, End::PowerCut);
                self.world.oracle.loses_to_durable(0);
                self.world.lift(1);
                self.world.start(1, true).await;
            }
        }
        self.count("one that became three");
    }

    /// Things go wrong.
    async fn troubles(&mut self, time: Duration) {
        let ends = Instant::now() + time;
        while Instant::now() < ends {
            self.step().await;
            self.clients(8);
            self.reads();
            self.changes();
            self.comes_up(false).await;
            self.goes_down();
            if Instant::now() >= self.heals {
                self.world.net.heal();
            }
            if self.drawn.random_ratio(1, 10) {
                self.trouble().await;
            }
        }
    }

    async fn trouble(&mut self) {
        let Some(node) = self.draw(&self.world.up()) else { return };
        match self.drawn.random_range(0..124) {
            0..36 => {
                let how = self.draw_end();
                self.ends(node, how);
            }
            36..42 if self.is_severe => {
                let up = self.world.up();
                let how = self.draw_end();
                self.count("a majority that ended at once");
                for id in up.iter().take(up.len() / 2 + 1) {
                    self.ends(*id, how);
                }
            }
            42..46 if self.is_severe => self.all_end().await,
            46..54 => {
                self.count("a node that was cut off");
                self.tell(&format!("{node} is cut off"));
                let others: Vec<_> = self.world.nodes.keys().copied().collect();
                self.world.net.isolate(node, others, true);
                self.draw_heals();
            }
            54..60 => {
                let all: Vec<_> = self.world.nodes.keys().copied().collect();
                let Some(other) = self.draw(&all) else { return };
                self.count("a way that was cut");
                self.tell(&format!("{other} does not hear {node}"));
                self.world.net.cut(node, other, true);
                self.draw_heals();
            }
            60..70 => {
                let delay_ms = [1, 3, 20, 150][self.drawn.random_range(0..4)];
                let lost = [0, 0, 10, 100][self.drawn.random_range(0..4)];
                let late = [0, 0, 5, 30][self.drawn.random_range(0..4)];
                self.count("another weather");
                self.world.net.becomes(Weather { delay_ms, lost, late });
            }
            70..76 => {
                self.count("a node whose messages were held");
                let time = Duration::from_millis(self.drawn.random_range(100..3000));
                self.tell(&format!("{node} is held for {time:?}"));
                self.world.net.hold(node, time);
            }
            76..82 if self.may_forget(node) && !self.fails.contains_key(&node) => {
                self.count("a disk that failed");
                let on = [Operation::Write, Operation::Sync][self.drawn.random_range(0..2)];
                let kinds = [FaultKind::FailRaw(EIO), FaultKind::Fail(ErrorKind::StorageFull)];
                let fault = Fault::new(on, kinds[self.drawn.random_range(0..2)])
                    .nth(self.drawn.random_range(1..4))
                    .seed(self.drawn.random());
                self.tell(&format!("the disk of {node} will fail: {fault:?}"));
                self.world.nodes[&node].disk.inject(fault);
                let ends = Duration::from_millis(self.drawn.random_range(20..1500));
                self.fails.insert(node, Instant::now() + ends);
            }
            82..90 => {
                let (Some(leader), Some(to)) = (self.world.leads(), self.draw(&self.voters()))
                else {
                    return;
                };
                self.hands_over(leader, to);
            }
            90..96 if self.is_settled() => {
                self.other_target().await;
            }
            96..98 => {
                self.count("a node that was taken for gone");
                self.is_seen_gone(node);
            }
            98..100 => {
                self.count("a clock that jumped");
                let by = Duration::from_secs(self.drawn.random_range(1..100_000));
                self.tell(&format!("the clock of {node} goes {by:?} ahead"));
                self.world.nodes[&node].clock.advance(by);
            }
            100..112 => self.rots(node).await,
            112..124 => self.lets_go(node),
            _ => {}
        }
    }

    pub(super) fn hands_over(&mut self, leader: u64, to: u64) {
        self.count("a leadership handed over");
        self.tell(&format!("{leader} hands over to {to}"));
        let group = Arc::clone(self.world.group(leader));
        let handed = async move { drop(group.hand_over(to).await) };
        let client = tokio::spawn(handed).abort_handle();
        self.world.nodes.get_mut(&leader).unwrap().clients.push(client);
    }

    /// Whether this one may forget, and a majority that did not is left.
    fn may_forget(&self, node: u64) -> bool {
        let is_left = |id: &u64| {
            let of = &self.world.nodes[id];
            // One that was killed may turn out to have less than was in its ring.
            let is_out = of.group.is_none() && self.world.promise == Ack::Buffered;
            *id != node && !of.is_doubtful && !is_out && !self.fails.contains_key(id)
        };
        let is_majority =
            |set: &BTreeSet<u64>| set.iter().filter(|id| is_left(id)).count() > set.len() / 2;
        self.is_severe
            || self.world.promise == Ack::Durable
            || self.configs.iter().chain([&self.target]).all(is_majority)
    }

    fn ends(&mut self, node: u64, how: End) {
        // With what is in the ring only a process forgets.
        let forgets = how != End::Killed || self.world.promise == Ack::Buffered;
        if !forgets || self.may_forget(node) {
            self.ends_anyhow(node, how);
        }
    }

    pub(super) fn ends_anyhow(&mut self, node: u64, how: End) {
        if self.world.nodes[&node].group.is_none() {
            return;
        }
        self.count(match how {
            End::Killed => "a process that was killed",
            End::Witnessless => "a witness that was lost",
            End::PowerCut => "a power cut",
            End::DiskFailed => "a node that ended with its disk",
        });
        self.fails.remove(&node);
        self.world.end(node, how);
        self.is_seen_gone(node);
        let returns = Duration::from_millis(self.drawn.random_range(0..3000));
        self.returns.insert(node, Instant::now() + returns);
    }

    /// Some of those that are up see that the process of a node is gone.
    fn is_seen_gone(&mut self, node: u64) {
        for sees in self.world.up().into_iter().filter(|sees| *sees != node) {
            if self.drawn.random_ratio(1, 2) {
                self.world.net.sees_gone(sees, node);
            }
        }
    }

    /// All lose their power; an operator may have them go on with what their disks have.
    async fn all_end(&mut self) {
        self.count("all that ended at once");
        for id in self.world.up() {
            self.ends(id, End::PowerCut);
        }
        if self.drawn.random_ratio(2, 3) {
            self.operator().await;
        }
    }

    fn goes_down(&mut self) {
        let now = Instant::now();
        let failed: Vec<_> =
            self.fails.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        // One that may not forget yet ends later.
        for id in failed {
            self.ends(id, End::DiskFailed);
        }
    }

    async fn comes_up(&mut self, at_once: bool) {
        let now = Instant::now();
        let due = self.returns.iter().filter(|(_, at)| at_once || **at <= now);
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.returns.remove(&id);
            self.world.start(id, false).await;
        }
    }

    /// Nothing goes wrong any more: who can agree does, and who cannot has no leader.
    async fn ends_well(&mut self) {
        self.tell("nothing goes wrong any more");
        self.fails.values_mut().for_each(|at| *at = Instant::now());
        self.goes_down();
        self.world.net.heal();
        self.world.net.becomes(Weather::FAIR);
        self.comes_up(true).await;
        if !self.agrees().await {
            self.count("a group that stays without a leader");
            for id in self.world.up() {
                let leader = self.world.group(id).outline().leader;
                assert_eq!(
                    leader,
                    None,
                    "node {id} names a leader who cannot lead: {:#?}",
                    self.said()
                );
            }
            self.operator().await;
            assert!(self.agrees().await, "they do not go on with their disks");
        }
        let last = self.world.oracle.last_acknowledged().expect("something was");
        self.reads_all();
        let ends = Instant::now() + AGREES_WITHIN;
        loop {
            self.step().await;
            self.goes_down();
            self.comes_up(true).await;
            self.changes();
            let is_well = |id: &u64| {
                let group = self.world.group(*id);
                let has_all = group.applied() >= Some(last) && group.durable() >= Some(last);
                has_all && !group.is_dirty() && group.healed().1 == 0
            };
            if self.is_settled() && self.wanted().iter().all(is_well) {
                break;
            }
            assert!(
                Instant::now() < ends,
                "not all came to {last}, clean, whole and durable: {:#?}",
                self.said()
            );
        }
        self.counts_healed();
        self.settles().await;
        self.count("a life that ended well");
    }

    /// What clients were told is so, at each that has the log.
    async fn settles(&mut self) {
        self.clients.drain(..).for_each(|client| client.abort());
        let ends = Instant::now() + AGREES_WITHIN;
        let next = |id: &u64| lock(&self.world.nodes[id].machines).applied();
        let wanted = self.wanted();
        while !wanted.iter().all(|id| Some(next(id)) == wanted.first().map(next)) {
            sleep(Duration::from_millis(100)).await;
            assert!(Instant::now() < ends, "they do not come to the same entry");
        }
        self.world.look();
        let states = wanted.iter().map(|id| lock(&self.world.nodes[id].machines).clone());
        let states: Vec<Machines> = states.collect();
        assert!(states.iter().all(|state| *state == states[0]), "{states:#?}");
        let node = &self.world.nodes[self.target.first().expect("somebody votes")];
        let log = lock(&node.applied).clone();
        let entries = log.into_iter().filter_map(|(_, payload)| payload);
        match self.world.ledgers.settle(&states[0], entries) {
            Ok(0) => {}
            Ok(_) => self.count("a fence that took what a producer was told of"),
            Err(how) => panic!("{how}"),
        }
    }

    /// Whether something new is agreed on.
    async fn agrees(&mut self) -> bool {
        let before = self.world.oracle.counts().get("a proposal acknowledged").copied();
        let began = Instant::now();
        loop {
            self.step().await;
            self.goes_down();
            self.comes_up(true).await;
            self.changes();
            self.clients(4);
            if self.world.oracle.counts().get("a proposal acknowledged").copied() > before {
                return true;
            }
            // One whose log is damaged, and longer than those of the others, is elected by nobody, and elects nobody; nor does one whose
            // disk has failed, and that ends later, as it may not forget yet.
            let elects = |id: &&u64| {
                let said = self.world.group(**id).outline();
                !said.is_dirty && !said.is_damaged
            };
            let can = |set: &BTreeSet<u64>| set.iter().filter(elects).count() > set.len() / 2;
            // Who has less than it was decided to go on with elects another.
            let leads = |id: &u64| {
                let is_up = self.world.nodes[id].group.is_some();
                is_up && elects(&id) && !self.world.group(*id).outline().has_less
            };
            let can = self.configs.iter().all(can) && self.configs.iter().flatten().any(leads);
            // Who leads with damage hands over once that has lasted for seconds, and is named for a moment still.
            let names_one = |id: &u64| self.world.group(*id).outline().leader.is_some();
            if began.elapsed() > STAYS && !can && !self.world.up().iter().any(names_one) {
                let is_damaged = |id: &u64| self.world.group(*id).is_damaged();
                if self.configs.iter().flatten().any(is_damaged) {
                    self.count("a damaged log that kept a group from electing a leader");
                }
                return false;
            }
            assert!(
                began.elapsed() < AGREES_WITHIN,
                "they can agree, and do not: {:#?}",
                self.said()
            );
        }
    }

    /// What those that are up say of themselves, and of their logs.
    pub(super) fn said(&self) -> Vec<(Outline, (u64, u64))> {
        let up = self.world.up().into_iter().map(|id| self.world.group(id));
        up.map(|group| (group.outline(), group.healed())).collect()
    }

    /// Whether those vote that are wanted, and nothing is changed.
    pub(super) fn is_settled(&self) -> bool {
        let is_as_wanted = self.configs == [self.target.clone()] && self.nodes == self.wanted();
        self.change.is_none() && is_as_wanted
    }

    /// All that are to have the log.
    pub(super) fn wanted(&self) -> BTreeSet<u64> {
        &self.target | &self.watchers
    }

    pub(super) fn voters(&self) -> Vec<u64> {
        self.target.iter().copied().collect()
    }

    pub(super) fn draw(&mut self, of: &[u64]) -> Option<u64> {
        let which = self.drawn.random_range(0..of.len().max(1));
        of.get(which).copied()
    }

    fn draw_end(&mut self) -> End {
        match self.drawn.random_range(0..36) {
            0..14 => End::Killed,
            14..18 => End::Witnessless,
            _ => End::PowerCut,
        }
    }

    fn draw_heals(&mut self) {
        self.heals = Instant::now() + Duration::from_millis(self.drawn.random_range(200..6000));
    }
}

/// Prints the end of a story that ended badly.
struct Told<'a>(&'a super::net::Net);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines = self.0.trace.lines();
            if let Some(path) = std::env::var_os("PLIMSOLL_TRACE") {
                std::fs::write(path, lines.join("\n")).expect("it can be written");
            }
            let from = lines.len().saturating_sub(100);
            lines[from..].iter().for_each(|line| println!("{line}"));
        }
    }
}
