//! What the engine does by its own settings where a replica forgets what it acknowledged, and what it does by ours.
//!
//! Each experiment is run twice, on the real engine and our log, with simulated disks and a clock that does not wait. As the engine
//! comes each of them loses what was acknowledged, or a replica: that is asserted too, so that an engine that mends it is noticed.
//! *As it comes* is with its defaults, and a replica that lost its power does not know of the rule of re-entry (`standing`). What is agreed
//! on last is in no replica's log on a disk, and a power cut takes some of that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::{Config, SnapshotPolicy};
use plimsoll_log::{Ack, Clock, Policy};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Crash, Dir};
use tokio::time::{sleep, timeout};

use super::apply::{Apply, Stop};
use super::settings::settings;
use super::{Answered, Begin, Carrier, Group, Options, Receiver, Recovered, Unreached, draw_from};

/// What is agreed on at first, durably; and then, from memory.
const DURABLE: usize = 20;
const FROM_MEMORY: usize = 50;

/// Longer than any of it takes that comes to an end.
const PATIENCE: Duration = Duration::from_secs(60);
/// From when on a group does not wait for disks any more that are well.
const UNTIL_NOT_GUARDED: Duration = Duration::from_secs(12);

/// How the engine is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    AsItComes,
    Ours,
}

impl Way {
    fn engine(self) -> Config {
        let ours = settings();
        match self {
            Self::Ours => ours,
            Self::AsItComes => Config {
                // Nothing here is long enough for a snapshot, and who campaigns is said at the start.
                snapshot_policy: SnapshotPolicy::Never,
                enable_elect: ours.enable_elect,
                ..Config::default()
            },
        }
    }

    /// Whether a replica that lost its power says that it may have forgotten something.
    fn has_rule(self) -> bool {
        self == Self::Ours
    }
}

/// What was applied, by its index: term and payload.
#[derive(Debug, Clone, Default)]
struct Applied(Arc<Mutex<BTreeMap<u64, (u64, Option<Bytes>)>>>);

impl Applied {
    fn all(&self) -> BTreeMap<u64, (u64, Option<Bytes>)> {
        lock(&self.0).clone()
    }

    fn payloads(&self) -> Vec<String> {
        let payloads = self.all().into_values().filter_map(|(_, payload)| payload);
        payloads.map(|payload| String::from_utf8(payload.to_vec()).unwrap()).collect()
    }
}

impl Apply for Applied {
    type Answer = ();

    fn apply(&mut self, index: u64, term: u64, payload: Option<&Bytes>) -> Result<(), Stop> {
        lock(&self.0).insert(index, (term, payload.cloned()));
        Ok(())
    }
}

type Heard = Arc<Mutex<BTreeMap<u64, (u64, Receiver<Applied>)>>>;

/// Reaches who is heard: that is neither away nor cut off.
#[derive(Debug, Clone)]
struct Wire {
    from: (u64, u64),
    heard: Heard,
}

impl Carrier for Wire {
    fn ask(
        &self,
        to: u64,
        _: bool,
        request: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<Answered, Unreached>> {
        let (heard, (node, incarnation)) = (lock(&self.heard), self.from);
        let is_heard = heard.get(&node).is_some_and(|(now, _)| *now == incarnation);
        let asked = heard.get(&to).filter(|_| is_heard).cloned();
        Box::pin(async move {
            sleep(Duration::from_millis(1)).await;
            let away = || Unreached { to, why: "it is away".to_owned() };
            let (of, receiver) = asked.ok_or_else(away)?;
            let answer = receiver.answer(node, incarnation, &request.concat().into()).await;
            Ok(Answered { incarnation: of, answer: answer.concat().into() })
        })
    }
}

struct Node {
    disk: Arc<SimDir>,
    incarnation: u64,
    group: Arc<Group<Applied>>,
    applied: Applied,
}

/// Three replicas, of which the first has led from the beginning.
struct Trio {
    way: Way,
    heard: Heard,
    nodes: BTreeMap<u64, Node>,
}

impl Trio {
    /// All of them have so much on their disks, and it does not wait for these any more.
    async fn found(way: Way) -> Self {
        let mut trio = Self { way, heard: Heard::default(), nodes: BTreeMap::new() };
        for id in [1, 2, 3] {
            trio.start(id, Arc::new(SimDir::new()), 1).await;
        }
        let first = Arc::clone(&trio.nodes[&1].group);
        first.wait_to_lead().await.unwrap();
        for id in [2, 3] {
            first.add(id, "").await.unwrap();
        }
        first.set_voters([1, 2, 3]).await.unwrap();
        trio.agree("durable", DURABLE).await;
        sleep(UNTIL_NOT_GUARDED).await;
        assert!(!first.is_guarded());
        trio
    }

    async fn start(&mut self, id: u64, disk: Arc<SimDir>, incarnation: u64) {
        let dir: Arc<dyn Dir> = Arc::clone(&disk) as _;
        let log = plimsoll_log::Options {
            threads: false,
            policy: Policy::Never,
            clock: Clock::manual(id),
            ..plimsoll_log::Options::default()
        };
        let must_sync = |payload: &[u8]| payload.starts_with(b"durable");
        let promise = Ack::Buffered;
        let options = Options { node: id, promise, must_sync, start: None, log, crew: None };
        let wire = Wire { from: (id, incarnation), heard: Arc::clone(&self.heard) };
        let begin = Begin {
            carrier: Arc::new(wire),
            founds: id == 1,
            is_dirty: incarnation > 1 && self.way.has_rule(),
            ..Begin::alone()
        };
        let applied = Applied::default();
        let recovered = Recovered::open(&dir, options).unwrap();
        let group = recovered.start_told(self.way.engine(), begin, applied.clone()).await;
        let group = Arc::new(group.unwrap());
        lock(&self.heard).insert(id, (incarnation, group.receiver()));
        self.nodes.insert(id, Node { disk, incarnation, group, applied });
    }

    /// It loses its power, and comes back with what its disk has.
    async fn power_cut(&mut self, id: u64) {
        self.cut_off(&[id]);
        let node = self.nodes.remove(&id).unwrap();
        let disk = Arc::new(node.disk.crash(Crash::PowerCut, 7));
        let incarnation = node.incarnation + 1;
        drop(node);
        self.start(id, disk, incarnation).await;
    }

    fn cut_off(&self, ids: &[u64]) {
        ids.iter().for_each(|id| drop(lock(&self.heard).remove(id)));
    }

    fn come_back(&self) {
        for (id, node) in &self.nodes {
            lock(&self.heard).insert(*id, (node.incarnation, node.group.receiver()));
        }
    }

    /// Has whoever leads and is heard agree on so many.
    async fn agree(&self, what: &str, count: usize) {
        for number in 0..count {
            let agreed = async {
                while !self.agrees(&format!("{what} {number}")).await {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            agreed.await;
        }
    }

    async fn agrees(&self, payload: &str) -> bool {
        let heard: Vec<u64> = lock(&self.heard).keys().copied().collect();
        for id in heard {
            let group = &self.nodes[&id].group;
            let Some(leadership) = group.leadership() else { continue };
            if group.propose(leadership, Bytes::copy_from_slice(payload.as_bytes())).await.is_ok() {
                return true;
            }
        }
        false
    }

    fn payloads(&self, id: u64) -> Vec<String> {
        self.nodes[&id].applied.payloads()
    }

    /// Whether all three have applied these within a minute, and nothing else.
    async fn all_have(&self, expected: &[String]) -> bool {
        let have = async {
            while !self.nodes.keys().all(|id| self.payloads(*id) == expected) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, have).await.is_ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was acknowledged, in order.
fn said(parts: &[(&str, usize)]) -> Vec<String> {
    let of_part = |(what, count): &(&str, usize)| {
        let what = (*what).to_owned();
        (0..*count).map(move |number| format!("{what} {number}"))
    };
    parts.iter().flat_map(of_part).collect()
}

/// Runs a story in one thread, whose clock goes on when nothing else does; what the engine draws is drawn from the same seed.
fn tell<T>(story: impl Future<Output = T>) -> T {
    draw_from(1);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(story)
}

/// A: a follower loses its power while the leader lives. As it comes, the engine never sends it what it forgot.
#[test]
fn a_follower_that_forgot_is_sent_it_again() {
    let is_sent = |way| {
        tell(async move {
            let mut trio = Trio::found(way).await;
            trio.agree("memory", FROM_MEMORY).await;
            trio.power_cut(3).await;
            assert!(trio.payloads(3).len() < DURABLE + FROM_MEMORY, "it forgot nothing");
            trio.agree("after", 5).await;
            let all = said(&[("durable", DURABLE), ("memory", FROM_MEMORY), ("after", 5)]);
            trio.all_have(&all).await
        })
    };
    assert!(!is_sent(Way::AsItComes));
    assert!(is_sent(Way::Ours));
}

/// B: the leader loses its power and is back at once. As it comes, it goes on in its term, and gives log ids a second time that the others
/// know other payloads under.
#[test]
fn a_leader_that_forgot_does_not_go_on_in_its_term() {
    let goes_on = |way| {
        tell(async move {
            let mut trio = Trio::found(way).await;
            let term = trio.nodes[&1].group.leadership().unwrap().term;
            trio.agree("memory", FROM_MEMORY).await;
            let before = trio.nodes[&2].applied.all();
            trio.power_cut(1).await;
            trio.agree("after", 5).await;
            let all = said(&[("durable", DURABLE), ("memory", FROM_MEMORY), ("after", 5)]);
            let is_kept = trio.all_have(&all).await;
            let now = trio.nodes[&1].applied.all();
            let is_forked = before.iter().any(|(index, (term, payload))| {
                now.get(index).is_some_and(|(other, found)| other == term && found != payload)
            });
            let leadership = trio.nodes[&1].group.leadership();
            (is_kept, is_forked, leadership.is_some_and(|now| now.term == term))
        })
    };
    assert_eq!(goes_on(Way::AsItComes), (false, true, true));
    let (is_kept, is_forked, _) = goes_on(Way::Ours);
    assert!(is_kept && !is_forked);
}

/// C, and D: one lags, the other two agree, one of these loses its power, and the other is cut off. As it comes, the one that forgot has
/// the one that lags elected, and what was acknowledged is gone from both. By our rule nobody is, until the only whole copy is back.
#[test]
fn one_that_forgot_does_not_elect_one_that_lags() {
    let is_elected = |way| {
        tell(async move {
            let mut trio = Trio::found(way).await;
            trio.cut_off(&[2]);
            trio.agree("memory", FROM_MEMORY).await;
            trio.power_cut(3).await;
            trio.come_back();
            trio.cut_off(&[1]);
            sleep(PATIENCE).await;
            let leads = |id| trio.nodes[&id].group.leadership().is_some();
            let is_elected = leads(2) || leads(3);
            if is_elected {
                trio.agree("other", 5).await;
            }
            trio.come_back();
            sleep(PATIENCE).await;
            (is_elected, [1, 2, 3].map(|id| trio.payloads(id)))
        })
    };
    let all = said(&[("durable", DURABLE), ("memory", FROM_MEMORY)]);
    let (elects, found) = is_elected(Way::AsItComes);
    assert!(elects && found[1..].iter().all(|found| !found.starts_with(&all)), "{found:?}");
    let (elects, found) = is_elected(Way::Ours);
    assert!(!elects && found.iter().all(|found| *found == all), "{found:?}");
}

/// E: both followers lose their power while the leader lives. By our rule they are back without a vote.
#[test]
fn two_followers_that_forgot_come_back_while_the_leader_lives() {
    let come_back = |way| {
        tell(async move {
            let mut trio = Trio::found(way).await;
            let term = trio.nodes[&1].group.leadership().unwrap().term;
            trio.agree("memory", FROM_MEMORY).await;
            trio.power_cut(2).await;
            trio.power_cut(3).await;
            let agreed = timeout(PATIENCE, trio.agree("after", 5)).await;
            let all = said(&[("durable", DURABLE), ("memory", FROM_MEMORY), ("after", 5)]);
            let are_back = agreed.is_ok() && trio.all_have(&all).await;
            are_back && trio.nodes[&1].group.leadership().is_some_and(|now| now.term == term)
        })
    };
    assert!(!come_back(Way::AsItComes));
    assert!(come_back(Way::Ours));
}
