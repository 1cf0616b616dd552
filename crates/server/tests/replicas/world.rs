//! Several replicas of a group in one thread: their disks, the network between them and the clock are made
//! up, and all that is drawn is drawn from one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use plimsoll_log::{Ack, Clock, Policy};
use plimsoll_server::cluster::{
    Answered, Apply, Begin, Carrier, Group, Options, Receiver, Recovered, Stop, Testimony,
    Unreached, draw_from,
};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Crash, Dir};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::time::{Instant, sleep, sleep_until};

/// What was applied, in order: term and payload of each entry.
pub(crate) type Applied = Arc<Mutex<Vec<(u64, Option<Bytes>)>>>;

/// Remembers what is applied.
pub(crate) struct Remembers(Applied);

impl Apply for Remembers {
    type Answer = u64;

    fn apply(&mut self, index: u64, term: u64, payload: Option<&Bytes>) -> Result<u64, Stop> {
        let mut applied = lock(&self.0);
        assert_eq!(index, applied.len() as u64, "entries are applied in order");
        applied.push((term, payload.cloned()));
        Ok(index)
    }
}

/// The network: who is up, and what is drawn for each message.
#[derive(Default)]
pub(crate) struct Net(Mutex<Wires>);

#[derive(Default)]
struct Wires {
    up: BTreeMap<u64, (u64, Receiver<Remembers>)>,
    /// Who does not hear whom.
    cut: BTreeSet<(u64, u64)>,
    arrives: BTreeMap<(u64, u64), Instant>,
    drawn: Option<Pcg64Mcg>,
    delay_ms: u64,
    messages: u64,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Net")
    }
}

impl Net {
    /// When a message that is sent now arrives; `None`: never. Those of one way keep their order.
    fn send(&self, from: u64, to: u64) -> Option<Instant> {
        let mut wires = lock(&self.0);
        wires.messages += 1;
        if wires.cut.contains(&(from, to)) {
            return None;
        }
        let most = wires.delay_ms;
        let drawn = wires.drawn.as_mut().expect("it is drawn from a seed");
        let delay = Duration::from_millis(drawn.random_range(0..=most));
        let after = wires.arrives.get(&(from, to)).copied();
        let at = after.into_iter().fold(Instant::now() + delay, Instant::max);
        wires.arrives.insert((from, to), at);
        Some(at)
    }

    fn at(&self, node: u64) -> Option<(u64, Receiver<Remembers>)> {
        lock(&self.0).up.get(&node).cloned()
    }

    /// Nothing comes from the one to the other any more, or comes again.
    pub(crate) fn cut(&self, from: u64, to: u64, is_cut: bool) {
        let mut wires = lock(&self.0);
        if is_cut {
            wires.cut.insert((from, to))
        } else {
            wires.cut.remove(&(from, to))
        };
    }

    /// Nobody hears this node, nor does it hear anybody; or all do again.
    pub(crate) fn isolate(&self, node: u64, others: impl IntoIterator<Item = u64>, is_cut: bool) {
        for other in others {
            self.cut(node, other, is_cut);
            self.cut(other, node, is_cut);
        }
    }

    /// How long a message takes at most.
    pub(crate) fn delay_ms(&self, delay_ms: u64) {
        lock(&self.0).delay_ms = delay_ms;
    }
}

/// One node's way into the network.
#[derive(Debug)]
struct Wire {
    from: u64,
    incarnation: u64,
    net: Arc<Net>,
}

impl Carrier for Wire {
    fn ask(
        &self,
        to: u64,
        _: bool,
        request: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<Answered, Unreached>> {
        let (from, own, net) = (self.from, self.incarnation, Arc::clone(&self.net));
        let lost = move || Unreached { to, why: "it was lost".to_owned() };
        let arrives = net.send(from, to);
        Box::pin(async move {
            let is_up = |net: &Net| net.at(from).is_some_and(|(incarnation, _)| incarnation == own);
            let Some(arrives) = arrives.filter(|_| is_up(&net)) else {
                sleep(Duration::from_millis(100)).await;
                return Err(lost());
            };
            sleep_until(arrives).await;
            let (incarnation, receiver) = net.at(to).ok_or_else(lost)?;
            let request = Bytes::from(request.concat());
            let answer = receiver.answer(from, own, &request).await;
            let is_same = net.at(to).is_some_and(|(now, _)| now == incarnation);
            let back = net.send(to, from).filter(|_| is_same).ok_or_else(lost)?;
            sleep_until(back).await;
            if !is_up(&net) {
                return Err(lost());
            }
            Ok(Answered { incarnation, answer: Bytes::from(answer.concat()) })
        })
    }
}

/// What a node acknowledged, as memory that outlives its process has it.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Option<u64>>);

impl Testimony for Memory {
    fn acknowledges(&self, index: u64) -> Result<(), String> {
        let mut last = lock(&self.0);
        *last = Some(index).max(*last);
        Ok(())
    }

    fn cuts(&self, from: u64) -> Result<(), String> {
        let mut last = lock(&self.0);
        *last = (*last).min(from.checked_sub(1));
        Ok(())
    }
}

/// A node: its disk, and its replica while it is up.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) disk: Arc<SimDir>,
    memory: Arc<Memory>,
    clock: Clock,
    pub(crate) incarnation: u64,
    pub(crate) group: Option<Arc<Group<Remembers>>>,
    pub(crate) applied: Applied,
    /// It may have forgotten: durable, until it votes again.
    pub(crate) is_doubtful: Arc<Mutex<bool>>,
}

/// How a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Its process is killed; its memory on tmpfs stays.
    Killed,
    /// It loses its power.
    PowerCut,
}

pub(crate) struct World {
    pub(crate) net: Arc<Net>,
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) drawn: Pcg64Mcg,
    promise: Ack,
}

impl World {
    /// Nodes with these numbers, of which none is up.
    pub(crate) fn new(seed: u64, promise: Ack, nodes: impl IntoIterator<Item = u64>) -> Self {
        draw_from(seed);
        let net = Net::default();
        {
            let mut wires = lock(&net.0);
            wires.drawn = Some(Pcg64Mcg::seed_from_u64(seed ^ 0x6e65_7400));
            wires.delay_ms = 3;
        }
        let node = |id| {
            let node = Node {
                id,
                disk: Arc::new(SimDir::new()),
                memory: Arc::default(),
                clock: Clock::manual(seed ^ id),
                incarnation: 0,
                group: None,
                applied: Arc::default(),
                is_doubtful: Arc::default(),
            };
            (id, node)
        };
        Self {
            net: Arc::new(net),
            nodes: nodes.into_iter().map(node).collect(),
            drawn: Pcg64Mcg::seed_from_u64(seed),
            promise,
        }
    }

    /// Starts a node. One that found its log shorter than what it acknowledged, or that lost its power, is dirty.
    pub(crate) async fn start(&mut self, id: u64, founds: bool) {
        let promise = self.promise;
        let net = Arc::clone(&self.net);
        let node = self.nodes.get_mut(&id).unwrap();
        node.incarnation += 1;
        let options = Options {
            node: id,
            promise,
            must_sync: |payload| payload.starts_with(b"sync"),
            start: None,
            log: plimsoll_log::Options {
                segment_bytes: 256 << 10,
                ring_bytes: 64 << 10,
                threads: false,
                clock: node.clock.clone(),
                policy: Policy::Interval { max_age: Duration::from_secs(2), max_bytes: 1 << 20 },
                ..plimsoll_log::Options::default()
            },
            crew: None,
        };
        let dir: Arc<dyn Dir> = Arc::clone(&node.disk) as _;
        let recovered = Recovered::open(&dir, options).unwrap();
        let last = recovered.recovery().last_index.checked_sub(1);
        let is_dirty = {
            let mut is_doubtful = lock(&node.is_doubtful);
            *is_doubtful |= last < *lock(&node.memory.0);
            *is_doubtful
        };
        let wire = Wire { from: id, incarnation: node.incarnation, net: Arc::clone(&net) };
        let testimony: Arc<dyn Testimony> = Arc::clone(&node.memory) as _;
        let begin = Begin {
            carrier: Arc::new(wire),
            founds,
            is_dirty,
            testimony: (promise != Ack::Durable).then_some(testimony),
        };
        node.applied = Applied::default();
        let state = Remembers(Arc::clone(&node.applied));
        let group = Arc::new(recovered.start_here(begin, state).await.unwrap());
        lock(&net.0).up.insert(id, (node.incarnation, group.receiver()));
        if is_dirty {
            let (group, is_doubtful) = (Arc::clone(&group), Arc::clone(&node.is_doubtful));
            tokio::spawn(async move {
                group.wait_clean().await;
                *lock(&is_doubtful) = false;
            });
        }
        let clock = node.clock.clone();
        let alive = Arc::downgrade(&group);
        tokio::spawn(async move {
            while alive.strong_count() > 0 {
                sleep(Duration::from_millis(10)).await;
                clock.advance(Duration::from_millis(10));
            }
        });
        node.group = Some(group);
    }

    /// Ends a node.
    pub(crate) fn end(&mut self, id: u64, how: End) {
        let seed = self.drawn.random();
        lock(&self.net.0).up.remove(&id);
        let node = self.nodes.get_mut(&id).unwrap();
        let crash = match how {
            End::Killed => Crash::Process,
            End::PowerCut => Crash::PowerCut,
        };
        node.disk = Arc::new(node.disk.crash(crash, seed));
        // What goes on of it writes to the disk that was: nobody sees it any more.
        node.group = None;
        if how == End::PowerCut {
            // Nothing proves that it forgot nothing.
            *lock(&node.is_doubtful) = true;
        }
    }

    pub(crate) fn group(&self, id: u64) -> &Arc<Group<Remembers>> {
        self.nodes[&id].group.as_ref().expect("it is up")
    }

    /// Makes all nodes voters of a group that the first of them founds.
    pub(crate) async fn form(&mut self) {
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for id in &ids {
            self.start(*id, *id == ids[0]).await;
        }
        let first = Arc::clone(self.group(ids[0]));
        first.wait_to_lead().await.unwrap();
        for id in &ids[1..] {
            first.add(*id, "").await.unwrap();
        }
        first.set_voters(ids).await.unwrap();
    }

    /// The node that leads, if one does that is up, once it knows all that was committed before.
    pub(crate) fn leads(&self) -> Option<u64> {
        let leads = |node: &&Node| node.group.as_ref().is_some_and(|g| g.leadership().is_some());
        let term = |node: &Node| node.group.as_ref().and_then(|g| Some(g.leadership()?.term));
        self.nodes.values().filter(leads).max_by_key(|node| term(node)).map(|node| node.id)
    }

    /// Waits until one does.
    pub(crate) async fn leader(&self) -> u64 {
        for _ in 0..10_000 {
            if let Some(id) = self.leads() {
                return id;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody leads after a hundred seconds");
    }

    /// Has this agreed on by whoever leads, as often as it takes; its index.
    pub(crate) async fn agree(&self, payload: &str) -> u64 {
        loop {
            let leader = self.group(self.leader().await);
            let Some(leadership) = leader.leadership() else { continue };
            let payload = Bytes::copy_from_slice(payload.as_bytes());
            if let Ok(committed) = leader.propose(leadership, payload).await {
                return committed.index;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// What a node has applied.
    pub(crate) fn payloads(&self, id: u64) -> Vec<String> {
        let applied = lock(&self.nodes[&id].applied);
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        applied.iter().filter_map(|(_, payload)| payload.as_ref().map(text)).collect()
    }

    /// Waits until all that are up have applied as much.
    pub(crate) async fn settle(&self, index: u64) {
        for _ in 0..10_000 {
            let mut up = self.nodes.values().filter_map(|node| node.group.as_ref());
            if up.all(|group| group.applied() >= Some(index)) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("not everybody has applied {index} after a hundred seconds");
    }
}

/// Runs a story in one thread, whose clock goes on when nothing else does.
pub(crate) fn run<T>(story: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(story)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
