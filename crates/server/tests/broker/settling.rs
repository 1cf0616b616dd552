//! Chapters that cannot be settled, or not kept in order: what producers, operators and the next start are told.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_server::broker::{Failed, Node};
use plimsoll_server::chapter::MANIFEST;
use plimsoll_server::http::Http;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::net::{Limits, Listener};
use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::{Access, Crash, Dir};
use tokio::sync::watch;

use super::chapters::chapters_of;
use super::gate::Gate;
use super::{Broker, UNCOMMITTED, one_record};

const CHAPTERS: &str = "chapters-2";

/// What `/health` answers: its status and its body.
fn health(broker: &Broker) -> String {
    let runtime = broker.node.runtime().clone();
    let http = Http::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = http.address().unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Limits::default());
    let counters = runtime.block_on(listener).unwrap().counters();
    let (stop, stopped) = watch::channel(false);
    let served = runtime.spawn(http.serve(Arc::clone(&broker.node), counters, stopped));
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    stop.send(true).unwrap();
    runtime.block_on(served).unwrap().unwrap();
    answer
}

#[test]
fn producers_wait_while_five_chapters_are_not_settled_and_go_on_then() {
    const WHY: &str = "its producers wait until chapters are settled";
    let gate = Gate::shut(Arc::new(SimDir::new()));
    let dir: Arc<dyn Dir> = Arc::new(gate.clone());
    let node = Node::open_in(&dir, PathBuf::from("data"), chapters_of(1500)).unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Limits::default());
    let listener = node.runtime().block_on(listener).unwrap();
    let mut broker = Broker::serve(node, listener);
    assert_eq!(broker.create("orders", &[]), ErrorCode::None);
    let much = "much ".repeat(100);
    let mut taken = 0;
    loop {
        let told = broker.produce_within(500, "orders", one_record(&much));
        if told.error_code != ErrorCode::None {
            assert_eq!(told.error_code, ErrorCode::RequestTimedOut, "{told:?}");
            break;
        }
        taken += 1;
        assert!(taken < 1000, "nobody waits for {:?}", broker.chapters());
    }
    assert_eq!((broker.chapters().waiting, broker.chapters().settled), (5, 0));
    let said = health(&broker);
    assert!(said.starts_with("HTTP/1.1 503") && said.contains(WHY), "{said}");
    // Whoever reads does not wait.
    assert!(broker.consume("orders", UNCOMMITTED).len() >= taken);

    gate.open();
    broker.until("producers go on", |broker| {
        broker.produce_within(500, "orders", one_record(&much)).error_code == ErrorCode::None
    });
    broker.until_settled(5);
    let said = health(&broker);
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    let all = broker.consume("orders", UNCOMMITTED);
    assert!(all.len() > taken && (0..).zip(&all).all(|(at, (offset, _))| at == *offset));
    broker.close();
}

/// A disk that loses what it said was durable: some of what is below the chapters is in nothing that is left.
#[test]
fn a_log_that_ends_before_its_chapters_is_refused_and_both_ends_are_told() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, chapters_of(1500));
    broker.create("orders", &[]);
    broker.produced("orders", "before");
    let before = Arc::new(disk.crash(Crash::Process, 0));
    for _ in 0..30 {
        broker.produced("orders", &"much ".repeat(100));
    }
    broker.until_settled(2);
    broker.close();
    // What was there before, and the chapters of later.
    let (from, to) = (disk.open_dir(CHAPTERS).unwrap(), before.open_dir(CHAPTERS).unwrap());
    for name in from.list().unwrap() {
        let file = from.open(&name, Access::default()).unwrap();
        let mut bytes = vec![0; file.len().unwrap().try_into().unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        to.create(&name, Access::default()).unwrap().write_at(&bytes, 0).unwrap();
    }
    let why = Broker::start(&before, chapters_of(1500)).err().expect("it lacks records");
    let Failed::Behind { number: 2, last, end } = why else { panic!("{why:?}") };
    assert!(last < end, "{last} {end}");
    let said = format!(
        "the log of shard 2 ends at entry {last}, and its chapters at {end}: the disk has lost what it said was \
         durable"
    );
    assert_eq!(why.to_string(), said);
}

/// Three chapters of two topics, one of which is most of them; and its manifest cannot be written so often.
fn with_a_large_topic(manifest_fails: u64) -> (Arc<SimDir>, Broker) {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, chapters_of(50_000));
    for topic in ["kept", "large"] {
        broker.create(topic, &[]);
    }
    for _ in 0..40 {
        broker.produced("large", &"much ".repeat(1000));
        broker.produced("kept", "more");
    }
    broker.until_settled(3);
    let failing = Fault::new(Operation::Write, FaultKind::FailRaw(5)).times(manifest_fails);
    disk.inject(failing.named(format!("{CHAPTERS}/{MANIFEST}.new")));
    broker.delete("large");
    (disk, broker)
}

fn has_failed(disk: &SimDir) -> bool {
    disk.history().iter().any(|step| step.error.is_some())
}

/// What failed was taken for a state that is not kept, and the run for one that did not end in order. The room came back
/// with the next deletion only.
#[test]
fn an_end_is_in_order_though_chapters_are_not_freed_and_the_next_start_frees_them() {
    let (disk, broker) = with_a_large_topic(1_000);
    broker.close();
    assert!(has_failed(&disk), "nobody tried to free anything");
    let mut broker = Broker::open(&Arc::new(disk.crash(Crash::PowerCut, 1)), chapters_of(50_000));
    assert!(broker.node.verdict().starts_with("nothing is lost"), "{}", broker.node.verdict());
    broker.until("room comes back", |broker| broker.chapters().file_bytes < 20_000);
    assert_eq!(broker.consume("kept", UNCOMMITTED).len(), 40);
    broker.close();
}

/// On a disk that was full when the topic was deleted nothing else followed that would have tried it again.
#[test]
fn what_could_not_be_freed_is_freed_later() {
    let (disk, mut broker) = with_a_large_topic(2);
    broker.until("it fails", |_| has_failed(&disk));
    assert!(broker.chapters().file_bytes > 100_000);
    broker.until("room comes back", |broker| broker.chapters().file_bytes < 20_000);
    assert_eq!(broker.consume("kept", UNCOMMITTED).len(), 40);
    broker.close();
}
