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
use super::leader::{Appended, Ask, Bounds, ChapterSize, Leads};
use super::leadership::{Asks, Standing, Wishes, hand_over, lead_whenever};
use super::replica::{Applier, Replica};
use super::room::Room;
use super::task::Task;
use crate::cluster::{Answered, Begin, Carrier, Group, Options, Receiver, Recovered, Unreached};
use crate::control::{Change, TopicSettings};
use crate::kafka::batch::Producer;
use crate::kafka::compression::Compression;
use crate::kafka::records::Draft;
use crate::shard::{Answer, Entry, Opening, State, TopicId};

/// Of the shard.
const NUMBER: u32 = 2;
/// Long beside an election.
const PATIENCE: Duration = Duration::from_secs(60);
/// The kind of a message that asks another to take over, and where that stands: behind the generation and a version.
const TAKE_OVER: u8 = 6;
const KIND_AT: usize = 9;
/// What a log takes at most before it is durable.
const UNSYNCED_MAX: u64 = 64 << 10;
/// Who waits longer asks again, and elsewhere.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Who hears whom: all that are in it; and one that hears nobody any more from when it asks another to take over.
#[derive(Debug, Default)]
struct Net(Mutex<BTreeMap<u64, Heard>>, Mutex<Option<u64>>);

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
            let request = Bytes::from(request.concat());
            if request[KIND_AT] == TAKE_OVER && *net.1.lock().unwrap() == Some(from) {
                net.0.lock().unwrap().remove(&from);
                std::future::pending::<()>().await;
            }
            let answer = receiver.answer(from, 1, &request).await;
            net.find(to, from).ok_or_else(lost)?;
            Ok(Answered { incarnation: 1, answer: Bytes::from(answer.concat()) })
        })
    }
}

struct One {
    asks: mpsc::UnboundedSender<Ask>,
    wishes: Wishes,
    standing: watch::Receiver<Standing>,
    _task: Task,
    replica: Arc<Replica>,
    group: Arc<Group<Applier>>,
}

impl One {
    fn start(id: u64, net: &Arc<Net>, intended: &Arc<Intended>) -> Self {
        let policy = Policy::Interval { max_age: Duration::from_millis(50), max_bytes: 1 << 20 };
        Self::start_with(policy, id, net, intended)
    }

    fn start_with(policy: Policy, id: u64, net: &Arc<Net>, intended: &Arc<Intended>) -> Self {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
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
            number: NUMBER,
            group: Arc::clone(&group),
            replica: Arc::clone(&replica),
            intended: Arc::clone(intended),
            neighbours: Arc::default(),
            run: None,
            room: Arc::new(Room::new(&dir, 0)),
            bounds: Bounds {
                chapter: ChapterSize { bytes: 1 << 30, age: PATIENCE },
                unsynced: Some(UNSYNCED_MAX),
            },
            decided: None,
            clock: || 1_000,
        };
        let (asks, asked) = mpsc::unbounded_channel();
        let (wishes, wished) = mpsc::unbounded_channel();
        let asked = Asks::new(asked, wished);
        let (stands, standing) = watch::channel(Standing::default());
        let leading = lead_whenever(NUMBER, Arc::clone(&group), leads, asked, stands);
        let task = Task::spawn(group.runtime(), leading);
        Self { asks, wishes, standing, _task: task, replica, group }
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
    batch_of(number, number.to_string().as_bytes())
}

fn batch_of(number: i32, value: &[u8]) -> Bytes {
    let mut draft = Draft::default();
    draft.push(1_000, None, Some(value), &[]);
    let producer = Producer { id: 7, epoch: 0, base_sequence: number };
    draft.batch(Compression::None, Some(producer)).pieces().concat().into()
}

/// A topic with one partition, intended by now.
fn intended() -> (Arc<Intended>, Opening) {
    let intended = Arc::<Intended>::default();
    let (name, settings) = ("orders".to_owned(), TopicSettings::default());
    let create = Change::Create { id: TopicId([7; 16]), name, shards: vec![NUMBER], settings };
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

/// Three that vote, of which the first leads.
async fn three(nodes: &[One; 3]) {
    let first = &nodes[0];
    first.group.wait_to_lead().await.unwrap();
    first.group.add(2, "").await.unwrap();
    first.group.add(3, "").await.unwrap();
    first.group.set_voters([1, 2, 3]).await.unwrap();
}

fn tell(story: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(story);
}

async fn until(node: &One, holds: impl FnMut(&Standing) -> bool) {
    let mut standing = node.standing.clone();
    timeout(PATIENCE, standing.wait_for(holds)).await.unwrap().unwrap();
}

/// Until all have so many records.
async fn until_all_have(nodes: &[&One], opening: Opening, count: i64) {
    let next = |node: &&One| {
        node.replica.lock().state.partition(opening).map(|partition| partition.next())
    };
    let is_even = async {
        while !nodes.iter().all(|node| next(node) == Some(count)) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, is_even).await.expect("all have all of it");
    assert!(nodes.iter().all(|node| *node.standing.borrow() != Standing::Failed));
}

#[test]
fn another_leads_when_the_leader_is_away_and_nothing_acknowledged_is_lost() {
    let (intended, opening) = intended();
    let net = Arc::new(Net::default());
    let nodes = [1, 2, 3].map(|id| One::start(id, &net, &intended));
    let all: Vec<&One> = nodes.iter().collect();
    tell(async {
        three(&nodes).await;
        for number in 0..20 {
            assert_eq!(produce(&all, opening, number).await, i64::from(number));
        }
        let away = all.iter().position(|node| node.leads()).unwrap();
        let id = away as u64 + 1;
        let heard = net.0.lock().unwrap().remove(&id).unwrap();
        let waits = all[away].append(opening, batch(20));
        let others: Vec<&One> = all.iter().copied().filter(|node| !node.leads()).collect();
        // Nobody tells it that another leads: it finds that nobody hears it, and whoever waits looks elsewhere.
        let told = timeout(PATIENCE, waits).await.unwrap().unwrap();
        assert_eq!(told.answer, Answer::NotLeader);
        until(all[away], |now| *now == Standing::Follows).await;
        assert!(!net.0.lock().unwrap().contains_key(&id));
        for number in 20..40 {
            assert_eq!(produce(&others, opening, number).await, i64::from(number));
        }
        net.0.lock().unwrap().insert(id, heard);
        for number in 40..60 {
            assert_eq!(produce(&all, opening, number).await, i64::from(number));
        }
        until_all_have(&all, opening, 60).await;
    });
    net.0.lock().unwrap().clear();
}

/// It leads in the same term again, and what it had not answered is on its way still.
#[test]
fn a_leader_that_nobody_hears_for_a_while_goes_on_where_it_was() {
    let (intended, opening) = intended();
    let net = Arc::new(Net::default());
    let nodes = [1, 2, 3].map(|id| One::start(id, &net, &intended));
    let all: Vec<&One> = nodes.iter().collect();
    tell(async {
        three(&nodes).await;
        for number in 0..20 {
            assert_eq!(produce(&all, opening, number).await, i64::from(number));
        }
        let leads = all.iter().position(|node| node.leads()).unwrap();
        let took: Vec<_> = {
            let mut heard = net.0.lock().unwrap();
            let others: Vec<u64> =
                heard.keys().copied().filter(|id| *id != leads as u64 + 1).collect();
            others.into_iter().map(|id| (id, heard.remove(&id).unwrap())).collect()
        };
        for number in 20..22 {
            let told = timeout(PATIENCE, all[leads].append(opening, batch(number))).await;
            assert_eq!(told.unwrap().unwrap().answer, Answer::NotLeader);
            until(all[leads], |now| *now == Standing::Follows).await;
        }
        net.0.lock().unwrap().extend(took);
        // What it did not answer is there once, if it is there.
        for number in 20..40 {
            assert_eq!(produce(&all, opening, number).await, i64::from(number));
        }
        until_all_have(&all, opening, 40).await;
    });
    net.0.lock().unwrap().clear();
}

#[test]
fn a_leadership_is_handed_over_and_everybody_who_waits_is_answered() {
    let (intended, opening) = intended();
    let net = Arc::new(Net::default());
    let nodes = [1, 2, 3].map(|id| One::start(id, &net, &intended));
    let all: Vec<&One> = nodes.iter().collect();
    tell(async {
        three(&nodes).await;
        for number in 0..20 {
            assert_eq!(produce(&all, opening, number).await, i64::from(number));
        }
        let from = all.iter().position(|node| node.leads()).unwrap();
        let to = (from + 1) % 3;
        // What it took before is answered by it, and what comes now by none, or by the other.
        let waiting = [20, 21, 22].map(|number| all[from].append(opening, batch(number)));
        let handed = timeout(PATIENCE, hand_over(&all[from].wishes, to as u64 + 1)).await.unwrap();
        handed.unwrap();
        assert_eq!(all[from].group.leader(), Some(to as u64 + 1));
        for (waits, number) in waiting.into_iter().zip(20_i64..) {
            let answer = timeout(PATIENCE, waits).await.unwrap().unwrap().answer;
            match answer {
                Answer::Appended { base_offset, .. } => assert_eq!(base_offset, number),
                other => panic!("{other:?}"),
            }
        }
        until(all[to], |now| matches!(now, Standing::Leads(_))).await;
        let late = hand_over(&all[from].wishes, 1).await;
        assert!(late.is_err(), "it leads no more");
        for number in 23..40 {
            assert_eq!(produce(&all, opening, number).await, i64::from(number));
        }
        until_all_have(&all, opening, 40).await;
        // To one that is away nothing is handed over: who leads goes on.
        let leads = all.iter().position(|node| node.leads()).unwrap();
        let gone = (leads + 1) % 3;
        let heard = net.0.lock().unwrap().remove(&(gone as u64 + 1)).unwrap();
        hand_over(&all[leads].wishes, gone as u64 + 1).await.unwrap_err();
        assert!(all[leads].leads());
        assert_eq!(produce(&[all[leads]], opening, 40).await, 40);
        net.0.lock().unwrap().insert(gone as u64 + 1, heard);
        until_all_have(&all, opening, 41).await;
    });
    net.0.lock().unwrap().clear();
}

/// The other did not take over within two seconds, and meanwhile it lost its lead. From then on it said that it leads, refused
/// whoever produced, and sent all who asked back to itself, until it led again.
#[test]
fn a_leader_that_lost_its_lead_while_it_handed_over_says_so() {
    let (intended, opening) = intended();
    let net = Arc::new(Net::default());
    let nodes = [1, 2, 3].map(|id| One::start(id, &net, &intended));
    let all: Vec<&One> = nodes.iter().collect();
    tell(async {
        three(&nodes).await;
        for number in 0..5 {
            assert_eq!(produce(&all, opening, number).await, i64::from(number));
        }
        let from = all.iter().position(|node| node.leads()).unwrap();
        let to = (from + 1) % 3;
        *net.1.lock().unwrap() = Some(from as u64 + 1);
        let handed = timeout(PATIENCE, hand_over(&all[from].wishes, to as u64 + 1)).await.unwrap();
        handed.unwrap_err();
        until(all[from], |now| *now == Standing::Follows).await;
        let told = timeout(PATIENCE, all[from].append(opening, batch(5))).await.unwrap().unwrap();
        assert_eq!(told.answer, Answer::NotLeader);
        let others: Vec<&One> = (0..3).filter(|at| *at != from).map(|at| all[at]).collect();
        for number in 5..10 {
            assert_eq!(produce(&others, opening, number).await, i64::from(number));
        }
    });
    net.0.lock().unwrap().clear();
}

/// Its log went on as if nothing was, until it took nothing more.
#[test]
fn a_producer_is_told_to_wait_before_a_log_takes_nothing_more_because_of_its_disk() {
    let (intended, opening) = intended();
    let net = Arc::new(Net::default());
    // It syncs nothing that nobody waits for.
    let one = One::start_with(Policy::Never, 1, &net, &intended);
    tell(async {
        one.group.wait_to_lead().await.unwrap();
        assert_eq!(produce(&[&one], opening, 0).await, 0);
        let kib = [b'.'; 1 << 10];
        let append = async |number| {
            let appended = one.append(opening, batch_of(number, &kib));
            timeout(PATIENCE, appended).await.unwrap().unwrap()
        };
        for number in 1..50 {
            assert_eq!(append(number).await.pause, Duration::ZERO);
        }
        // More than three quarters of 64 KiB are agreed on, and the disk takes nothing.
        sleep(Duration::from_secs(1)).await;
        let told = append(50).await;
        assert!(matches!(told.answer, Answer::Appended { .. }), "{told:?}");
        assert!(told.pause > Duration::ZERO);
        let all = one.group.applied().unwrap();
        timeout(PATIENCE, one.group.wait_durable(all)).await.unwrap().unwrap();
        assert_eq!(append(51).await.pause, Duration::ZERO);
    });
}
