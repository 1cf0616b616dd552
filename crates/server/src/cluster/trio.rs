//! Three replicas that hear each other, on simulated disks whose bytes rot: what tests of healing and of seeding begin with.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use plimsoll_log::{Ack, Dumped, Error as LogError, Kind, SegmentState, View};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Dir};
use tokio::time::{sleep, timeout};

use super::apply::Apply;
use super::error::Result;
use super::message::{Answer, Refusal, Request};
use super::record::to_log;
use super::{
    Answered, Basis, Begin, Carrier, Group, Options, Place, Receiver, Recovered, Stop, Unreached,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// More than a replica keeps in memory.
pub(crate) const ENTRIES: u64 = 14;

#[derive(Debug)]
pub(crate) struct Nothing;

impl Apply for Nothing {
    type Answer = ();

    fn apply(&mut self, _: u64, _: u64, _: Option<&Bytes>) -> std::result::Result<(), Stop> {
        Ok(())
    }
}

pub(crate) type Heard = BTreeMap<u64, Receiver<Nothing>>;

/// Those that hear each other, who asks, and who is not heard when it asks.
#[derive(Debug, Default, Clone)]
pub(crate) struct Net(pub(crate) Arc<Mutex<Heard>>, pub(crate) u64, pub(crate) Arc<AtomicU64>);

impl Net {
    pub(crate) fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carrier for Net {
    fn ask(
        &self,
        to: u64,
        _: bool,
        request: Vec<Bytes>,
    ) -> BoxFuture<'static, std::result::Result<Answered, Unreached>> {
        let (heard, from) = (self.heard().get(&to).cloned(), self.1);
        let heard = heard.filter(|_| self.2.load(Ordering::Relaxed) != from);
        Box::pin(async move {
            let away = || Unreached { to, why: "it is away".to_owned() };
            let answer = heard.ok_or_else(away)?.answer(from, 1, &request.concat().into());
            Ok(Answered { incarnation: 1, answer: answer.await.concat().into() })
        })
    }
}

/// After a loss: in this generation, of which it was decided what its leader must have.
pub(crate) fn start_decided(disk: Arc<SimDir>, node: u64, net: &Net, decided: (u64, Basis)) -> One {
    let one = start_after(disk, node, net, None, None, decided);
    net.heard().insert(node, one.group.receiver());
    one
}

#[derive(Debug)]
pub(crate) struct One {
    pub(crate) dir: Arc<SimDir>,
    pub(crate) group: Arc<Group<Nothing>>,
}

pub(crate) fn start(node: u64, net: &Net) -> One {
    let one = start_on(Arc::new(SimDir::new()), node, net, None);
    net.heard().insert(node, one.group.receiver());
    one
}

/// Starts on this disk, with what a snapshot covers that stands there. Nobody hears it yet.
pub(crate) fn start_on(disk: Arc<SimDir>, node: u64, net: &Net, start: Option<Place>) -> One {
    let covered = start.as_ref().map(Place::index);
    start_needing(disk, node, net, start, covered)
}

/// Starts on this disk, with a snapshot that covers so much of the log. Nobody hears it yet.
pub(crate) fn start_needing(
    disk: Arc<SimDir>,
    node: u64,
    net: &Net,
    start: Option<Place>,
    covered: Option<u64>,
) -> One {
    start_after(disk, node, net, start, covered, (0, Basis::default()))
}

/// The same, in this generation at least, on this basis.
fn start_after(
    disk: Arc<SimDir>,
    node: u64,
    net: &Net,
    start: Option<Place>,
    covered: Option<u64>,
    (generation, basis): (u64, Basis),
) -> One {
    let dir: Arc<dyn Dir> = Arc::clone(&disk) as _;
    let log =
        plimsoll_log::Options { segment_bytes: 5 << 20, keep_damaged: true, ..Default::default() };
    let (promise, must_sync) = (Ack::Buffered, |_: &[u8]| false);
    let options = Options { node, promise, must_sync, start, log, crew: None };
    let carrier = Arc::new(Net(Arc::clone(&net.0), node, Arc::clone(&net.2)));
    let begin = Begin { carrier, founds: node == 1, basis, ..Begin::alone() };
    let recovered = Recovered::open(&dir, options).unwrap();
    recovered.let_go_of_damage(covered).unwrap();
    recovered.bear_damage(|| Ok(true)).unwrap();
    recovered.rise(generation).unwrap();
    let group = recovered.start_as(begin, Nothing).unwrap();
    if let Some(covered) = covered {
        group.cover(covered);
    }
    One { dir: disk, group: Arc::new(group) }
}

impl One {
    pub(crate) async fn reaches(&self, index: u64) {
        let reached = async {
            // The log's last is the engine's next.
            while self.group.applied() < Some(index) || self.group.synced() <= index {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, reached).await.expect("it gets all of it");
    }

    pub(crate) async fn purges(&self, through: u64) -> Result<()> {
        let group = Arc::clone(&self.group);
        tokio::task::spawn_blocking(move || group.purge(through)).await.unwrap()
    }

    /// Ends in order. Nobody else has the group.
    pub(crate) async fn close(self, node: u64, net: &Net) -> Arc<SimDir> {
        net.heard().remove(&node);
        let group = Arc::into_inner(self.group).unwrap();
        tokio::task::spawn_blocking(move || group.close()).await.unwrap().unwrap();
        self.dir
    }

    /// Damages bytes of the frame of an entry, from there on.
    pub(crate) fn damage(&self, entry: u64, from: u64, bytes: &[u8]) {
        damage(&self.dir, entry, from, bytes);
    }

    pub(crate) fn read(&self, entry: u64) -> Result<Option<Bytes>> {
        Ok(self.group.read(entry, 1)?.swap_remove(0).1)
    }

    pub(crate) async fn until_healed(&self, entries: u64) {
        let healed = async {
            while self.group.healed() != (entries, 0) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, healed).await.expect("it is healed");
    }

    pub(crate) fn is_whole(&self) -> bool {
        let view = View::of(Arc::clone(&self.dir) as Arc<dyn Dir>).unwrap();
        let segments = view.verify(&|_, _| ()).unwrap();
        !segments.iter().any(|found| matches!(found.state, SegmentState::Corrupt(_)))
    }

    pub(crate) async fn act(&self, request: Request) -> std::result::Result<Answer, Refusal> {
        self.group.receiver().act(request).await
    }
}

pub(crate) fn damage(disk: &Arc<SimDir>, entry: u64, from: u64, bytes: &[u8]) {
    let view = View::of(Arc::clone(disk) as Arc<dyn Dir>).unwrap();
    let mut found = None;
    for segment in view.outline().unwrap() {
        let see = |dumped: Dumped<'_>| {
            if let Dumped::Frame { byte_offset, frame, .. } = dumped
                && (frame.kind, frame.index) == (Kind::Record, to_log(entry))
            {
                found = Some((segment.segment.clone(), byte_offset));
            }
            Ok::<(), LogError>(())
        };
        view.dump(&segment, see).unwrap();
    }
    let (name, at) = found.expect("it is there");
    disk.open(&name, Access::default()).unwrap().write_at(bytes, at + from).unwrap();
}

pub(crate) fn payload(number: u64) -> Bytes {
    vec![u8::try_from(number).unwrap(); 1 << 20].into()
}

pub(crate) async fn propose(group: &Group<Nothing>) -> u64 {
    let leadership = group.wait_to_lead().await.unwrap();
    let mut last = 0;
    for number in 0..ENTRIES {
        last = group.propose(leadership, payload(number)).await.unwrap().index;
    }
    last
}

/// Three that vote and have the same entries on their disks, and the last of them.
pub(crate) async fn three(net: &Net) -> ([One; 3], u64) {
    let nodes = [1, 2, 3].map(|node| start(node, net));
    let leader = &nodes[0].group;
    leader.wait_to_lead().await.unwrap();
    leader.add(2, "").await.unwrap();
    leader.add(3, "").await.unwrap();
    leader.set_voters([1, 2, 3]).await.unwrap();
    let last = propose(leader).await;
    for node in &nodes {
        node.reaches(last).await;
    }
    (nodes, last)
}

pub(crate) fn tell(story: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(story);
}
