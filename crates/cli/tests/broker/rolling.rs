//! Three brokers as processes, that are stopped and started one after the other, or told who is to lead: a producer that tries
//! again what every client tries again meets no error, and nothing is lost or there twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_server::client;
use plimsoll_server::kafka::batch::Producer as Identity;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{ProducePartition, ProduceRequest, ProduceTopic};
use plimsoll_server::kafka::records::Draft;
use serde_json::Value;

use super::cluster::{Cluster, in_time, run};
use super::serving::{Broker, plimsoll, text};

const TIMEOUT: Duration = Duration::from_secs(10);
const TOPIC: &str = "rolled";

/// Writes numbers, one at a time, from 0 on.
struct Writer {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicI32>,
    thread: JoinHandle<Duration>,
}

impl Writer {
    fn start(addrs: Vec<String>) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicI32>::default());
        let (ends, counts) = (Arc::clone(&stop), Arc::clone(&done));
        let thread = thread::spawn(move || {
            let mut producer = Producer { addrs, turn: 0, cluster: None };
            let (id, epoch) = in_time("an id", || producer.cluster()?.producer_id().map_err(said));
            let (mut longest, mut last) = (Duration::ZERO, Instant::now());
            while !ends.load(Ordering::SeqCst) {
                let number = counts.load(Ordering::SeqCst);
                let identity = Identity { id, epoch, base_sequence: number };
                in_time("a record", || producer.send(number, identity));
                counts.store(number + 1, Ordering::SeqCst);
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            longest
        });
        Self { stop, done, thread }
    }

    /// Until so many more are acknowledged.
    fn wait_for(&self, more: i32) {
        let least = self.done.load(Ordering::SeqCst) + more;
        in_time("it goes on", || match self.done.load(Ordering::SeqCst) {
            done if done >= least => Ok(()),
            done => Err(format!("{done} of {least}")),
        });
    }

    /// How many are acknowledged, and how long it took from one to the next at most.
    fn end(self) -> (i32, Duration) {
        self.stop.store(true, Ordering::SeqCst);
        let longest = self.thread.join().unwrap();
        (self.done.load(Ordering::SeqCst), longest)
    }
}

/// What tries again what may be tried again, and nothing else.
struct Producer {
    addrs: Vec<String>,
    turn: usize,
    cluster: Option<client::Cluster>,
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where an error is mapped")]
fn said(why: client::Error) -> String {
    why.to_string()
}

impl Producer {
    /// The next broker, where none is connected.
    fn cluster(&mut self) -> Result<&mut client::Cluster, String> {
        if self.cluster.is_none() {
            self.turn += 1;
            let addr = &self.addrs[self.turn % self.addrs.len()];
            self.cluster = Some(client::Cluster::open(addr, TIMEOUT).map_err(said)?);
        }
        Ok(self.cluster.as_mut().expect("it was just there"))
    }

    fn send(&mut self, number: i32, identity: Identity) -> Result<(), String> {
        let mut draft = Draft::default();
        draft.push(1_000, None, Some(number.to_string().as_bytes()), &[]);
        let records = draft.batch(Compression::None, Some(identity)).pieces().concat();
        let partition = ProducePartition { index: 0, records: Some(records.into()) };
        let topic = ProduceTopic { name: TOPIC.to_owned(), partition_data: vec![partition] };
        let question = ProduceRequest {
            transactional_id: None,
            acks: -1,
            timeout_ms: 5_000,
            topic_data: vec![topic],
        };
        let asked = self.cluster()?.leader(TOPIC, 0).and_then(|leader| leader.call(question));
        let answer = match asked {
            Ok(answer) => answer,
            // The broker is gone, or knows of no leader: another may.
            Err(why) => {
                self.cluster = None;
                return Err(said(why));
            }
        };
        match answer.responses[0].partition_responses[0].error_code {
            ErrorCode::None | ErrorCode::DuplicateSequenceNumber => Ok(()),
            code @ (ErrorCode::NotLeaderOrFollower
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::RequestTimedOut
            | ErrorCode::NotEnoughReplicas) => {
                self.cluster()?.forget_leaders(TOPIC);
                Err(format!("{code:?}"))
            }
            code => panic!("no client tries that again: {code:?}"),
        }
    }
}

/// Every number up to the last is there, once and in its place.
fn check(broker: &Broker, count: i32) {
    let found = in_time("all is there", || run(broker, "consume rolled --from earliest", ""));
    let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
}

fn begin(cluster: &Cluster) -> (Vec<Option<Broker>>, Writer) {
    let brokers: Vec<_> = (1..=3).map(|node| Some(cluster.start(node))).collect();
    in_time("a topic", || {
        run(brokers[0].as_ref().unwrap(), "topic create rolled --partitions 1", "")
            .or_else(|why| if why.contains("exists") { Ok(String::new()) } else { Err(why) })
    });
    in_time("three copies", || {
        let found = metadata(brokers[0].as_ref().unwrap())?;
        (found.1 == 3).then_some(()).ok_or_else(|| format!("{found:?}"))
    });
    let addrs = brokers.iter().flatten().map(|broker| broker.addr.clone()).collect();
    let writer = Writer::start(addrs);
    writer.wait_for(50);
    (brokers, writer)
}

/// Who leads the topic, and how many have it.
fn metadata(broker: &Broker) -> Result<(i32, usize), String> {
    let mut cluster = client::Cluster::open(&broker.addr, TIMEOUT).map_err(said)?;
    let topic = cluster.topic(TOPIC).map_err(said)?;
    let partition = &topic.partitions[0];
    Ok((partition.leader_id, partition.replica_nodes.len()))
}

#[test]
fn a_rolling_restart_fails_no_request_that_is_not_tried_again() {
    let cluster = Cluster::found();
    let (mut brokers, writer) = begin(&cluster);
    for node in 1..=3 {
        // Stopped in order: it hands over first.
        let stopped = brokers[node - 1].take().unwrap();
        assert_eq!(stopped.stop(), Some(0));
        writer.wait_for(50);
        brokers[node - 1] = Some(cluster.start(node));
        let at = brokers[node - 1].as_ref().unwrap();
        in_time("it is back", || {
            let leader = metadata(at)?.0;
            (leader > 0).then_some(()).ok_or_else(|| "it knows of no leader".to_owned())
        });
        // What it acknowledged to whoever led while it was closing was taken for more than it had made durable.
        let news = at.news();
        assert!(news.contains("the last run ended in order"), "{news}");
        writer.wait_for(50);
    }
    let (count, longest) = writer.end();
    println!("{count} records, the longest gap {longest:?}");
    check(brokers[0].as_ref().unwrap(), count);
    for broker in brokers.into_iter().flatten() {
        assert_eq!(broker.stop(), Some(0));
    }
}

#[test]
fn an_operator_says_who_leads_and_a_node_that_drains_leads_nothing() {
    let cluster = Cluster::found();
    let (brokers, writer) = begin(&cluster);
    let brokers: Vec<Broker> = brokers.into_iter().flatten().collect();
    let operate = |args: &[&str], http: &str| {
        let output = plimsoll(args).args(["--http", http]).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    for to in [3, 1, 2] {
        in_time("it leads", || {
            let to = to.to_string();
            // Whoever is asked tells the leader.
            let moved =
                operate(&["cluster", "move", "--shard", "2", "--to", &to], &brokers[0].http);
            if moved.0 == Some(0) { Ok(()) } else { Err(moved.2) }
        });
        // A third may hear of it a moment later.
        in_time("clients are told", || {
            let leader = metadata(&brokers[0])?.0;
            (leader == to).then_some(()).ok_or_else(|| format!("{leader} leads"))
        });
        writer.wait_for(20);
    }
    let (code, _, said) =
        operate(&["cluster", "move", "--shard", "2", "--to", "9"], &brokers[0].http);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("node 9 has no vote in shard 2"), "{said}");
    let (code, _, said) =
        operate(&["cluster", "move", "--shard", "7", "--to", "1"], &brokers[0].http);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("there is no shard 7"), "{said}");

    let (code, said, why) = operate(&["cluster", "drain"], &brokers[1].http);
    assert_eq!(code, Some(0), "{said}{why}");
    assert!(said.contains("shard 2 is led by node"), "{said}");
    writer.wait_for(20);
    let status = plimsoll(&["broker", "status", "--json", "--http", &brokers[1].http]).output();
    let status: Value = serde_json::from_slice(&status.unwrap().stdout).unwrap();
    let leads = status["shards"].as_array().unwrap().iter().filter(|shard| shard["leads"] == true);
    assert_eq!(leads.count(), 0, "{status}");
    let (code, _, said) =
        operate(&["cluster", "move", "--shard", "2", "--to", "2"], &brokers[0].http);
    assert_eq!(code, Some(2));
    assert!(said.contains("it is about to be stopped"), "{said}");
    assert_eq!(operate(&["cluster", "drain", "--undo"], &brokers[1].http).0, Some(0));
    in_time("it may lead again", || {
        let moved = operate(&["cluster", "move", "--shard", "2", "--to", "2"], &brokers[0].http);
        if moved.0 == Some(0) { Ok(()) } else { Err(moved.2) }
    });
    writer.wait_for(20);
    let (count, longest) = writer.end();
    println!("{count} records, the longest gap {longest:?}");
    check(&brokers[0], count);
}

#[test]
fn three_brokers_become_one_and_a_producer_and_consumers_go_on() {
    let cluster = Cluster::found();
    let (mut brokers, writer) = begin(&cluster);
    for node in [3, 2] {
        let goes = brokers[node - 1].take().unwrap();
        let first = brokers[0].as_ref().unwrap();
        in_time("it hands over", || {
            let drained = plimsoll(&["cluster", "drain", "--http", &goes.http]).output().unwrap();
            let said = text(&drained.stdout) + &text(&drained.stderr);
            if drained.status.success() { Ok(()) } else { Err(said) }
        });
        in_time("it goes", || {
            let node = node.to_string();
            let removed = plimsoll(&["cluster", "remove", "--node", &node, "--http", &first.http]);
            let removed = { removed }.output().unwrap();
            if removed.status.success() { Ok(()) } else { Err(text(&removed.stderr)) }
        });
        assert_eq!(goes.stop(), Some(0));
        writer.wait_for(50);
        let found = in_time("it is read", || run(first, "consume rolled --from earliest", ""));
        let count = found.lines().count();
        assert!(count >= 100, "{count}");
        let expected = (0..count).map(|number| number.to_string());
        assert!(found.lines().eq(expected), "{found}");
    }
    let status = plimsoll(&["cluster", "status", "--json", "--http"])
        .arg(&brokers[0].as_ref().unwrap().http)
        .output()
        .unwrap();
    let rolls: Vec<Value> = serde_json::from_slice(&status.stdout).unwrap();
    assert!(rolls.iter().all(|roll| roll["voters"] == serde_json::json!([1])), "{rolls:?}");
    let (count, longest) = writer.end();
    println!("{count} records, the longest gap {longest:?}");
    check(brokers[0].as_ref().unwrap(), count);
    // It is one when it comes back, too.
    assert_eq!(brokers[0].take().and_then(Broker::stop), Some(0));
    check(&cluster.start(1), count);
}
