//! Several replicas of a group in one thread: their disks, the network between them and the clock are made
//! up, and all that is drawn is drawn from one seed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use plimsoll_log::{Ack, Clock, Policy};
use plimsoll_server::cluster::{
    Apply, Basis, Begin, Group, Options, Recovered, Stop, Testimony, cut_from, draw_from,
};
use plimsoll_server::shard::Entry;
use plimsoll_simdisk::{DiskOptions, SimDir};
use plimsoll_sync::{Crash, Dir};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::machines::{Did, Ledgers, Machines, Saved};
use super::net::{Net, Up, Wire};
use super::oracle::Oracle;
use super::rot::Rotten;
use super::seeding::{Kept, Snapshot};
use super::trace::Trace;

/// How often the clock of a log goes on.
const TICK: Duration = Duration::from_millis(50);

/// What was applied, in order: term and payload of each entry.
pub(crate) type Applied = Arc<Mutex<Vec<(u64, Option<Bytes>)>>>;

/// Remembers what is applied.
pub(crate) struct Remembers {
    node: u64,
    generation: u64,
    applied: Applied,
    /// What the state machines make of it.
    machines: Arc<Mutex<Machines>>,
    ledgers: Arc<Ledgers>,
    net: Arc<Net>,
    has_ended: Arc<AtomicBool>,
}

impl Remembers {
    /// All that was applied, and what the state machines made of it.
    pub(crate) fn copy(&self) -> (Vec<(u64, Option<Bytes>)>, Saved) {
        (lock(&self.applied).clone(), lock(&self.machines).save())
    }
}

impl Apply for Remembers {
    type Answer = Did;

    fn apply(&mut self, index: u64, term: u64, payload: Option<&Bytes>) -> Result<Did, Stop> {
        if self.has_ended.load(Ordering::Relaxed) {
            return Err(Stop("it has ended".to_owned()));
        }
        let mut applied = lock(&self.applied);
        assert_eq!(index, applied.len() as u64, "entries are applied in order");
        self.net.trace.tell(format_args!("{} applies {index} of term {term}", self.node));
        self.net.oracle.applies((self.node, self.generation), index, term, payload);
        applied.push((term, payload.cloned()));
        drop(applied);
        let did = lock(&self.machines).apply(index, term, payload, &self.ledgers);
        Ok(did.unwrap_or_else(|how| {
            self.net.oracle.broken(format!("node {}: {how}", self.node));
            None
        }))
    }
}

/// What a node acknowledged, as memory that outlives its process has it.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Option<u64>>);

impl Memory {
    pub(crate) fn last(&self) -> Option<u64> {
        *lock(&self.0)
    }
}

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
    pub(crate) clock: Clock,
    pub(crate) incarnation: u64,
    /// In which it begins, at least.
    pub(crate) generation: u64,
    /// On what it goes on there, as was decided.
    pub(crate) basis: Basis,
    /// Its log is cut off before what is damaged, as was decided.
    pub(crate) cuts: bool,
    /// Of what its log has lost, as its start found, the last entry before.
    pub(crate) whole: Option<(u64, u64)>,
    pub(crate) group: Option<Arc<Group<Remembers>>>,
    pub(crate) applied: Applied,
    pub(crate) machines: Arc<Mutex<Machines>>,
    /// It may have forgotten: durable, until it votes again.
    pub(crate) is_doubtful: bool,
    /// D, as this incarnation last said.
    durable: Option<u64>,
    /// Records that its log had on its disk when it ended.
    synced: u64,
    /// Records that its log had at its start.
    pub(crate) found: u64,
    /// The snapshot that it has on its disk.
    pub(crate) kept: Kept,
    /// What its disk has lost since its start.
    pub(crate) rotten: Vec<Rotten>,
    has_ended: Arc<AtomicBool>,
    /// Clients that wait for it.
    pub(crate) clients: Vec<AbortHandle>,
}

impl Node {
    /// It has what another had, and was down meanwhile: it is in doubt, as it may have acknowledged more.
    pub(crate) fn is_given(&mut self, disk: Arc<SimDir>, snapshot: Option<Snapshot>) {
        (self.disk, self.memory) = (disk, Arc::default());
        self.kept = Arc::new(Mutex::new(snapshot));
        (self.is_doubtful, self.synced) = (true, 0);
        self.rotten.clear();
    }
}

/// How a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Its process is killed; its memory on tmpfs stays.
    Killed,
    /// Its process is killed, and its memory on tmpfs is gone.
    Witnessless,
    /// It loses its power.
    PowerCut,
    /// Its disk failed, and then it lost its power.
    DiskFailed,
}

pub(crate) struct World {
    pub(crate) net: Arc<Net>,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) ledgers: Arc<Ledgers>,
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) drawn: Pcg64Mcg,
    pub(crate) promise: Ack,
    /// After how long a disk has what nobody waits for; a start of a node has one of these.
    pub(crate) ages_ms: &'static [u64],
    seed: u64,
}

impl World {
    /// Nodes with these numbers, of which none is up.
    pub(crate) fn new(seed: u64, promise: Ack, nodes: impl IntoIterator<Item = u64>) -> Self {
        Self::traced(seed, promise, nodes, false)
    }

    /// The same, and what happens is written down.
    pub(crate) fn traced(
        seed: u64,
        promise: Ack,
        nodes: impl IntoIterator<Item = u64>,
        is_traced: bool,
    ) -> Self {
        draw_from(seed);
        let oracle = Arc::<Oracle>::default();
        let net = Net::new(seed, promise, Trace::new(is_traced), Arc::clone(&oracle));
        let mut world = Self {
            net: Arc::new(net),
            oracle,
            ledgers: Arc::default(),
            nodes: BTreeMap::new(),
            drawn: Pcg64Mcg::seed_from_u64(seed),
            promise,
            ages_ms: &[2000],
            seed,
        };
        nodes.into_iter().for_each(|id| world.buy(id));
        world
    }

    /// A new node, with an empty disk.
    pub(crate) fn buy(&mut self, id: u64) {
        let history_steps = if self.net.trace.is_kept() { usize::MAX } else { 0 };
        let node = Node {
            id,
            disk: Arc::new(SimDir::with(DiskOptions { history_steps, ..DiskOptions::default() })),
            memory: Arc::default(),
            clock: Clock::manual(self.seed ^ id),
            incarnation: 0,
            generation: 0,
            basis: Basis::default(),
            cuts: false,
            whole: None,
            group: None,
            applied: Arc::default(),
            machines: Arc::default(),
            is_doubtful: false,
            durable: None,
            synced: 0,
            found: 0,
            kept: Kept::default(),
            rotten: Vec::new(),
            has_ended: Arc::default(),
            clients: Vec::new(),
        };
        self.nodes.insert(id, node);
    }

    /// Starts a node. One that found its log shorter than what it acknowledged, or that lost its power, is dirty.
    pub(crate) async fn start(&mut self, id: u64, founds: bool) {
        let promise = self.promise;
        let net = Arc::clone(&self.net);
        let max_age =
            Duration::from_millis(self.ages_ms[self.drawn.random_range(0..self.ages_ms.len())]);
        let node = self.nodes.get_mut(&id).unwrap();
        node.incarnation += 1;
        let kept = lock(&node.kept).clone();
        let start = kept.as_ref().map(|kept| kept.place.clone());
        let mut options = Options {
            node: id,
            promise,
            must_sync,
            start,
            log: plimsoll_log::Options {
                segment_bytes: 256 << 10,
                ring_bytes: 64 << 10,
                threads: false,
                keep_damaged: true,
                // As a broker notes it of what waits for disks.
                durable: if promise == Ack::Durable { node.synced } else { 0 },
                clock: node.clock.clone(),
                policy: Policy::Interval { max_age, max_bytes: 1 << 20 },
                ..plimsoll_log::Options::default()
            },
            crew: None,
        };
        let mut recovered = self.recovered(id, &options);
        let node = self.nodes.get_mut(&id).unwrap();
        let is_as_decided = recovered.whole_and_last() == Some((node.basis.least, node.basis.own));
        if std::mem::take(&mut node.cuts) && is_as_decided {
            drop(recovered);
            let (_, first) = node.basis.least;
            cut_from(&(Arc::clone(&node.disk) as Arc<dyn Dir>), options.clone(), first).unwrap();
            node.memory.cuts(first).unwrap();
            node.synced = node.synced.min(first);
            net.oracle.count("a log that was cut off before what is damaged, as was decided");
            options.log.durable = options.log.durable.min(first);
            recovered = self.recovered(id, &options);
        }
        let node = self.nodes.get_mut(&id).unwrap();
        node.whole = recovered.whole_and_last().map(|(whole, _)| whole);
        recovered.rise(node.generation).unwrap();
        node.generation = recovered.generation();
        let records = recovered.recovery().last_index;
        assert!(records >= node.synced, "node {id} lost what it had synced: {records}");
        let has_less = records.checked_sub(1) < node.memory.last();
        // With a process only what is in the ring goes, and of the rest the witness says nothing.
        assert!(
            !has_less || promise == Ack::Buffered,
            "node {id} has {records} records, and said more"
        );
        node.is_doubtful |= has_less;
        let is_dirty = node.is_doubtful;
        let wire = Wire { from: id, incarnation: node.incarnation, net: Arc::clone(&net) };
        let testimony: Arc<dyn Testimony> = Arc::clone(&node.memory) as _;
        let begin = Begin {
            number: 0,
            is_anew: false,
            carrier: Arc::new(wire),
            founds,
            is_dirty,
            may_be_lost: false,
            basis: node.basis,
            testimony: (promise != Ack::Durable).then_some(testimony),
        };
        let covered = kept.as_ref().map(|kept| kept.place.index());
        let kept = kept.map(|kept| (kept.applied, kept.machines.load()));
        let (applied, machines) = kept.unwrap_or_default();
        node.applied = Arc::new(Mutex::new(applied));
        node.machines = Arc::new(Mutex::new(machines));
        if is_dirty {
            net.oracle.begins_dirty(id, node.incarnation);
            net.oracle.count("a start that is dirty");
        }
        let dirtiness = if is_dirty { "dirty" } else { "clean" };
        net.trace.tell(format_args!(
            "{id}.{} starts {dirtiness}, {records}, in generation {}",
            node.incarnation, node.generation
        ));
        let applied = Arc::clone(&node.applied);
        node.has_ended = Arc::default();
        let has_ended = Arc::clone(&node.has_ended);
        let generation = node.generation;
        let (machines, ledgers) = (Arc::clone(&node.machines), Arc::clone(&self.ledgers));
        let net_then = Arc::clone(&net);
        let state = Remembers {
            node: id,
            generation,
            applied,
            machines,
            ledgers,
            net: net_then,
            has_ended,
        };
        let group = Arc::new(recovered.start_here(begin, state).await.unwrap());
        if group.healed().1 > 0 {
            net.oracle.count("a start with a log that is damaged");
        }
        covered.into_iter().for_each(|covered| group.cover(covered));
        let (incarnation, applied) = (node.incarnation, Arc::clone(&node.applied));
        let (memory, alive) = (Arc::clone(&node.memory), Arc::downgrade(&group));
        let receiver = group.receiver();
        let up = Up { incarnation, receiver, applied, group: alive, memory, found: records };
        net.comes_up(id, up);
        let clock = node.clock.clone();
        let alive = Arc::downgrade(&group);
        tokio::spawn(async move {
            while alive.strong_count() > 0 {
                sleep(TICK).await;
                clock.advance(TICK);
            }
        });
        (node.durable, node.found) = (None, records);
        node.group = Some(group);
    }

    /// What a start finds of a log. Where it cannot go on with what its disk has lost, or does not see that anything is lost, that is there
    /// again: what the broker does then is not tested here.
    fn recovered(&mut self, id: u64, options: &Options) -> Recovered {
        let open = |disk: &Arc<SimDir>| {
            let recovered = Recovered::open(&(Arc::clone(disk) as Arc<dyn Dir>), options.clone())?;
            recovered.bear_damage(|| Ok(true)).map(|_| recovered)
        };
        let node = &self.nodes[&id];
        let has_all = |found: &Recovered| found.recovery().last_index >= node.synced;
        let copy = || Arc::new(node.disk.crash(Crash::Process, 0));
        if !node.rotten.is_empty() && !open(&copy()).is_ok_and(|found| has_all(&found)) {
            self.net.oracle.count("a start that could not go on with what its disk had lost");
            self.mends(id);
        }
        open(&self.nodes[&id].disk).unwrap()
    }

    /// Ends a node.
    pub(crate) fn end(&mut self, id: u64, how: End) {
        let seed = self.drawn.random();
        self.net.goes_down(id);
        let node = self.nodes.get_mut(&id).unwrap();
        let group = node.group.take().expect("it is up");
        node.has_ended.store(true, Ordering::Relaxed);
        node.clients.drain(..).for_each(|client| client.abort());
        node.synced = group.log_stats().durable;
        let crash = match how {
            End::Killed | End::Witnessless => Crash::Process,
            End::PowerCut | End::DiskFailed => Crash::PowerCut,
        };
        self.net.trace.tell(format_args!("{id}.{} ends: {how:?}", node.incarnation));
        for step in node.disk.history() {
            self.net.trace.tell(format_args!("{id}.{} did {step}", node.incarnation));
        }
        node.disk = Arc::new(node.disk.crash(crash, seed));
        // What goes on of it writes to the disk and the memory that were: nobody sees it any more.
        let witnessed = node.memory.last();
        let witnessed = if how == End::Killed { witnessed } else { None };
        node.memory = Arc::new(Memory(Mutex::new(witnessed)));
        drop(group);
        // Of what is durable before it is acknowledged nothing can be forgotten.
        if how != End::Killed && self.promise != Ack::Durable {
            // Nothing proves that it forgot nothing.
            node.is_doubtful = true;
        }
    }

    /// An operator has a node that is down vote again, with what its disk has.
    pub(crate) fn lift(&mut self, id: u64) {
        let node = self.nodes.get_mut(&id).unwrap();
        (node.is_doubtful, node.memory) = (false, Arc::default());
    }

    /// Holds what each replica says of itself against the rule.
    pub(crate) fn look(&mut self) {
        for node in self.nodes.values_mut() {
            let Some(group) = &node.group else { continue };
            let (id, incarnation) = (node.id, node.incarnation);
            let (durable, committed) = (group.durable(), group.committed());
            assert!(durable <= committed, "node {id}: D {durable:?}, C {committed:?}");
            assert!(
                durable >= node.durable,
                "node {id}: D went from {:?} to {durable:?}",
                node.durable
            );
            let applied = (lock(&node.applied).len() as u64).checked_sub(1);
            assert!(applied <= committed, "node {id} applied {applied:?} of {committed:?}");
            node.durable = durable;
            self.oracle.durable(durable);
            let is_alone = group.voters() == [id];
            if node.is_doubtful && !group.is_dirty() {
                let has_evidence = is_alone || self.oracle.may_vote(id, incarnation, applied);
                assert!(has_evidence, "node {id} counts as clean by no evidence");
                if is_alone {
                    self.oracle.names(id, incarnation, (0, 0, None));
                }
                node.is_doubtful = false;
                self.oracle.count("a replica that re-entered");
            }
            if let Some(leadership) = group.leadership() {
                self.oracle.leads(id, leadership.term);
                assert!(!node.is_doubtful, "node {id} leads, and may have forgotten");
            }
        }
        self.oracle.check();
    }

    pub(crate) fn group(&self, id: u64) -> &Arc<Group<Remembers>> {
        self.nodes[&id].group.as_ref().expect("it is up")
    }

    /// Those that are up.
    pub(crate) fn up(&self) -> Vec<u64> {
        let up = self.nodes.values().filter(|node| node.group.is_some());
        up.map(|node| node.id).collect()
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

/// Whether a payload must be durable before it counts.
pub(crate) fn must_sync(payload: &[u8]) -> bool {
    payload.starts_with(b"sync") || Entry::decode(payload).is_ok_and(|entry| entry.must_be_durable)
}

/// Runs a story in one thread, whose clock goes on when nothing else does.
pub(crate) fn run<T>(story: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(story)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
