//! Disks that fail, are full, or are slow.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_server::broker::Failed;
use plimsoll_server::cluster;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::DeleteTopicsRequest;
use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::{Crash, Dir};

use super::{Broker, UNCOMMITTED, unsynced};

/// The disk fails under one of the shards.
#[test]
fn a_shard_whose_disk_failed_is_offline_and_the_others_go_on() {
    const EIO: i32 = 5;
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.create("ledger", &[("flush.messages", "1")]);
    broker.produced("ledger", "before");
    for name in disk.open_dir("shard-3").unwrap().list().unwrap() {
        for on in [Operation::Write, Operation::Sync] {
            let failing = Fault::new(on, FaultKind::FailRaw(EIO)).sticky();
            disk.inject(failing.named(format!("shard-3/{name}")));
        }
    }
    let failing = Fault::new(Operation::SyncDir, FaultKind::FailRaw(EIO)).sticky();
    disk.inject(failing.named("shard-3"));
    for _ in 0..2 {
        assert_eq!(broker.produce("ledger", "lost").error_code, ErrorCode::KafkaStorageError);
    }
    assert_eq!(broker.produced("orders", "1"), 0);
    assert_eq!(broker.create("late", &[]), ErrorCode::None);
    let before = vec![(0, "before".to_owned())];
    assert_eq!(broker.consume("ledger", UNCOMMITTED), before);
    let shards = broker.node.shards();
    let offline: Vec<_> = shards.iter().filter(|shard| shard.offline.is_some()).collect();
    assert_eq!(offline.iter().map(|shard| shard.number).collect::<Vec<_>>(), [3]);
    let why = offline[0].offline.as_ref().unwrap();
    assert!(why.contains("shard-3") && why.contains("os error 5"), "{why}");
    disk.stop_at(disk.operations());
    drop(broker.stop());
}

#[test]
fn a_full_disk_refuses_records_and_has_room_for_what_deletes_them() {
    let capacity_bytes = Some(512 << 20);
    let disk = DiskOptions { capacity_bytes, history_steps: 0, ..DiskOptions::default() };
    let mut broker = Broker::open(&Arc::new(SimDir::with(disk)), unsynced());
    broker.create("orders", &[]);
    broker.create("ledger", &[("flush.messages", "1")]);
    let much = "much ".repeat(100_000);
    let refused = (0..2_000).map(|_| broker.produce("orders", &much)).find(|it| it.base_offset < 0);
    let refused = refused.expect("the disk is full by now");
    assert_eq!(refused.error_code, ErrorCode::KafkaStorageError);
    assert!(refused.error_message.unwrap().starts_with("the disk is full"));
    assert_eq!(broker.produce("ledger", "1").error_code, ErrorCode::KafkaStorageError);
    let offline = |broker: &Broker| broker.node.shards().into_iter().filter_map(|it| it.offline);
    assert!(offline(&broker).all(|why| why == "its records are refused: the disk is full"));
    assert_eq!(offline(&broker).count(), 4, "all shards of records");
    // All else is done.
    assert_eq!(broker.fetch("orders", 0, UNCOMMITTED).error_code, ErrorCode::None);
    broker.commit("orders", 1);
    assert_eq!(broker.create("late", &[]), ErrorCode::None);
    broker.delete("orders");
    let patience = Instant::now() + Duration::from_secs(60);
    while broker.produce("ledger", "1").error_code != ErrorCode::None {
        assert!(Instant::now() < patience, "what was deleted gives no room back");
        let pause = async { tokio::time::sleep(Duration::from_millis(20)).await };
        broker.node.runtime().block_on(pause);
    }
    assert_eq!(offline(&broker).count(), 0);
    broker.close();
}

/// It stood still without a word.
#[test]
fn a_start_on_a_full_disk_ends_and_says_so() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.produced("orders", "1");
    // Full from some operation on: most starts are refused a file at once, one would wait for room.
    let waited = (1..60).find(|nth| {
        let full = Arc::new(disk.crash(Crash::PowerCut, 1));
        for on in [Operation::Write, Operation::Allocate, Operation::Create] {
            let kind = FaultKind::Fail(std::io::ErrorKind::StorageFull);
            full.inject(Fault::new(on, kind).nth(*nth).sticky());
        }
        let why = Broker::start(&full, unsynced()).err().expect("so early a start needs room");
        matches!(
            why,
            Failed::Shard { why: cluster::Error::Log(plimsoll_log::Error::OutOfSpace { .. }), .. }
        )
    });
    assert!(waited.is_some());
    drop(broker);
}

/// The first entry of a log names who agrees on the others. A first start died before it had that, and the
/// next, on a disk that is full, waited for ever to write it.
#[test]
fn a_second_first_start_on_a_full_disk_ends_and_says_so() {
    let waits = |stop| {
        let disk = Arc::new(SimDir::new());
        disk.stop_at(stop);
        drop(Broker::start(&disk, unsynced()));
        let full = Arc::new(disk.crash(Crash::System, stop));
        for on in [Operation::Write, Operation::Allocate, Operation::Create] {
            let kind = FaultKind::Fail(std::io::ErrorKind::StorageFull);
            full.inject(Fault::new(on, kind).nth(9).sticky());
        }
        let Err(Failed::Shard { number, why }) = Broker::start(&full, unsynced()) else {
            return false;
        };
        // The first that begins.
        number == 3 && matches!(why, cluster::Error::Log(plimsoll_log::Error::OutOfSpace { .. }))
    };
    let all = (340..400).step_by(10).map(|stop| thread::spawn(move || waits(stop)));
    let all: Vec<_> = all.collect();
    let waited: Vec<bool> = all.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(waited.contains(&true));
}

/// The deletion took longer than its client waited, and the group went on where it was in the topic that
/// was deleted.
#[test]
fn offsets_of_a_topic_that_is_deleted_late_are_forgotten() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.commit("orders", 7);
    assert_eq!(broker.committed("orders"), 7);
    // The disk does nothing until it is let go.
    let (let_go, held) = mpsc::channel::<()>();
    disk.watch(move |_| held.recv().unwrap_or_default());
    let request = DeleteTopicsRequest { topic_names: vec!["orders".to_owned()], timeout_ms: 100 };
    let told = broker.client.call(request).unwrap().responses[0].error_code;
    assert_eq!(told, ErrorCode::RequestTimedOut);
    drop(let_go);
    let patience = Instant::now() + Duration::from_secs(20);
    while broker.node.topic("orders").is_some() {
        assert!(Instant::now() < patience, "the topic is still there");
        thread::yield_now();
    }
    broker.create("orders", &[]);
    while broker.committed("orders") != -1 {
        assert!(Instant::now() < patience, "the offset of the topic before is still there");
        thread::yield_now();
    }
    broker.close();
}
