//! Three replicas of a shard of records in one process, each with what leads it: one leaves, and another goes on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use plimsoll_log::{Ack, Policy};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::Dir;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::intended::Intended;
use super::layout::SHARED;
use super::leader::{Appended, Ask, ChapterSize, Leads};
use super::leadership::{Standing, lead_whenever};
use super::replica::{Applier, Replica};
use super::room::Room;
use super::task::Task;
use crate::cluster::{Answered, Begin, Carrier, Group, Options, Receiver, Recovered, Unreached};
use crate::control::{Change, TopicSettings};
use crate::kafka::batch::Producer;
use crate::kafka::compression::Compression;
use crate::kafka::records::Draft;
use crate::shard::{Answer, Entry, Opening, State, TopicId};

/// Long beside an election.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who waits longer asks again, and elsewhere.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Who hears whom: all that are in it.
#[derive(Debug, Default)]
struct Net(Mutex<BTreeMap<u64, Heard>>);

struct Heard(Receiver<Applier>);

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Heard")
    }
}

impl Net {
    fn find(&self, from: u64, to: u64) -> Option<Receiver<Applier>> {
        let heard = self.0.lock().unwrap();
        heard.get(&to).filter(|_| heard.contains_key(&from)).map(|heard| heard.0.clone())
    }
}

#[derive(Debug)]
struct Wire {
    from: u64,
    net: Arc<Net>,
}

impl Carrier for Wire {
    fn ask(
        &self,
        to: u64,
        _: bool,
        request: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<Answered, Unreached>> {
        let (from, net) = (self.from, Arc::clone(&self.net));
        Box::pin(async move {
            let lost = || Unreached { to, why: "it is away".to_owned() };
            let Some(receiver) = net.find(from, to) else {
                sleep(Duration::from_millis(20)).await;
                return Err(lost());
            };
            let answer = receiver.answer(from, 1, &Bytes::from(request.concat())).await;
            net.find(to, from).ok_or_else(lost)?;
            Ok(Answered { incarnation: 1, answer: Bytes::from(answer.concat()) })
        })
    }
}

struct One {
    asks: mpsc::UnboundedSender<Ask>,
    standing: watch::Receiver<Standing>,
    _task: Task,
    replica: Arc<Replica>,
    group: Arc<Group<Applier>>,
}

impl One {
    fn start(id: u64, net: &Arc<Net>, intended: &Arc<Intended>) -> Self {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let policy = Policy::Interval { max_age: Duration::from_millis(50), max_bytes: 1 << 20 };
        let options = Options {
            node: id,
            promise: Ack::Buffered,
            must_sync: |bytes| Entry::decode(bytes).is_ok_and(|entry| entry.must_be_durable),
            start: None,
            log: plimsoll_log::Options { policy, ..plimsoll_log::Options::default() },
            crew: None,
        };
        let begin = Begin {
            carrier: Arc::new(Wire { from: id, net: Arc::clone(net) }),
            founds: id == 1,
            ..Begin::alone()
        };
        let replica = Arc::new(Replica::new(State::default(), 1 << 20, 0));
        let recovered = Recovered::open(&dir, options).unwrap();
        let group = Arc::new(recovered.start_as(begin, Applier(Arc::clone(&replica))).unwrap());
        net.0.lock().unwrap().insert(id, Heard(group.receiver()));
        let leads = Leads {
            number: SHARED,
            group: Arc::clone(&group),
            replica: Arc::clone(&replica),
            intended: Arc::clone(intended),
            run: None,
            room: Arc::new(Room::new(&dir, 0)),
            chapter: ChapterSize { bytes: 1 << 30, age: PATIENCE },
            clock: || 1_000,
        };
        let (asks, asked) = mpsc::unbounded_channel();
        let (stands, standing) = watch::channel(Standing::default());
        let leading = lead_whenever(SHARED, Arc::clone(&group), leads, asked, stands);
        let task = Task::spawn(group.runtime(), leading);
        Self { asks, standing, _task: task, replica, group }
    }

    fn leads(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Leads(_))
    }

    fn append(&self, opening: Opening, batch: Bytes) -> oneshot::Receiver<Appended> {
        let (reply, appended) = oneshot::channel();
        self.asks.send(Ask::Append { connection: 1, opening, batch, reply }).unwrap();
        appended
    }
}

/// A producer's batch with this number.
fn batch(number: i32) -> Bytes {
    let mut draft = Draft::default();
    draft.push(1_000, None, Some(number.to_string().as_bytes()), &[]);
    let producer = Producer { id: 7, epoch: 0, base_sequence: number };
    draft.batch(Compression::None, Some(producer)).pieces().concat().into()
}

/// A topic with one partition, intended by now.
fn intended() -> (Arc<Intended>, Opening) {
    let intended = Arc::<Intended>::default();
    let (name, settings) = ("orders".to_owned(), TopicSettings::default());
    let create = Change::Create { id: TopicId([7; 16]), name, shards: vec![SHARED], settings };
    intended.apply(&create).unwrap();
    let (opening, _) = intended.catalog().place("orders", 0).unwrap();
    (intended, opening)
}

/// Sends a batch to whoever leads of these, as often as it takes, as a producer would; its offset.
async fn produce(nodes: &[&One], opening: Opening, number: i32) -> i64 {
    let produced = async {
        loop {
            for node in nodes.iter().filter(|node| node.leads()) {
                let Ok(Ok(appended)) = timeout(TIMEOUT, node.append(opening, batch(number))).await
                else {
                    continue;
                };
                match appended.answer {
                    Answer::Appended { base_offset, .. } | Answer::Repeated { base_offset } => {
                        return base_offset;
                    }
                    // Or its leader has not had it opened yet.
                    Answer::NotLeader | Answer::Refused(_) => {}
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, produced).await.expect("somebody leads, and takes it")
}

#[test]
fn another_leads_when_the_leader_is_away_and_nothing_acknowledged_is_lost() {
    let (intended, opening) = intended();
    let net = Arc::new(Net::default());
    let nodes = [1, 2, 3].map(|id| One::start(id, &net, &intended));
    let all: Vec<&One> = nodes.iter().collect();
    let story = async {
        let first = all[0];
        first.group.wait_to_lead().await.unwrap();
        first.group.add(2, "").await.unwrap();
        first.group.add(3, "").await.unwrap();
        first.group.set_voters([1, 2, 3]).await.unwrap();
        for number in 0..20 {
            assert_eq!(produce(&all, opening, number).await, i64::from(number));
        }
        // It is cut off, and does not know.
        let away = all.iter().position(|node| node.leads()).unwrap();
        let id = away as u64 + 1;
        let heard = net.0.lock().unwrap().remove(&id).unwrap();
        let waits = all[away].append(opening, batch(20));
        let others: Vec<&One> = all.iter().copied().filter(|node| !node.leads()).collect();
        for number in 20..40 {
            assert_eq!(produce(&others, opening, number).await, i64::from(number));
        }
        net.0.lock().unwrap().insert(id, heard);
        // Whoever waited there is told to look elsewhere, and it follows.
        let told = timeout(PATIENCE, waits).await.unwrap().unwrap();
        assert!(matches!(told.answer, Answer::NotLeader | Answer::Repeated { .. }), "{told:?}");
        let mut standing = all[away].standing.clone();
        let follows = standing.wait_for(|now| *now == Standing::Follows);
        timeout(PATIENCE, follows).await.unwrap().unwrap();
        for number in 40..60 {
            assert_eq!(produce(&all, opening, number).await, i64::from(number));
        }
        let is_even = async {
            let next = |node: &&One| {
                node.replica.lock().state.partition(opening).map(|partition| partition.next())
            };
            while !all.iter().all(|node| next(node) == Some(60)) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, is_even).await.expect("all have all of it");
        assert!(all.iter().all(|node| *node.standing.borrow() != Standing::Failed));
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(story);
    net.0.lock().unwrap().clear();
}
