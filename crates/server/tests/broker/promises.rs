//! What is acknowledged, what is durable, and what an offset names.

use std::sync::Arc;

use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_simdisk::SimDir;
use plimsoll_sync::Crash;

use super::{Broker, COMMITTED, UNCOMMITTED, unsynced};

#[test]
fn what_was_produced_is_consumed_again_after_a_stop_and_a_start() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    assert_eq!(broker.create("orders", &[]), ErrorCode::None);
    assert_eq!(broker.create("orders", &[]), ErrorCode::TopicAlreadyExists);
    let values: Vec<String> = (0..50).map(|number| format!("order {number}")).collect();
    for (offset, value) in (0..).zip(&values) {
        assert_eq!(broker.produced("orders", value), offset);
    }
    let all: Vec<_> = (0..).zip(values).collect();
    assert_eq!(broker.consume("orders", UNCOMMITTED), all);
    broker.close();
    // The system was cut off afterwards: the last run said that it ended in order.
    let mut broker = Broker::open(&Arc::new(disk.crash(Crash::PowerCut, 1)), unsynced());
    assert!(broker.node.verdict().starts_with("nothing is lost"), "{}", broker.node.verdict());
    assert_eq!(broker.consume("orders", COMMITTED), all);
    assert_eq!(broker.produced("orders", "one more"), 50);
    broker.close();
}

/// One topic, two consumers: one sees what is acknowledged, the other what a power cut leaves.
#[test]
fn read_committed_sees_what_is_durable_and_read_uncommitted_what_is_acknowledged() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    let durable = [("plimsoll.read.committed", "durable")];
    assert_eq!(broker.create("audit", &durable), ErrorCode::None);
    // The first batch opens the partition, by a sync that is shared.
    broker.produced("audit", "first");
    broker.produced("audit", "second");
    assert_eq!((broker.latest("audit", UNCOMMITTED), broker.latest("audit", COMMITTED)), (2, 1));
    assert_eq!(broker.consume("audit", UNCOMMITTED).len(), 2);
    assert_eq!(broker.consume("audit", COMMITTED), [(0, "first".to_owned())]);
    let fetched = broker.fetch("audit", 2, UNCOMMITTED);
    assert_eq!((fetched.high_watermark, fetched.last_stable_offset), (2, 1));
    let kept = disk.crash(Crash::PowerCut, 3);
    drop(broker);
    let mut broker = Broker::open(&Arc::new(kept), unsynced());
    let left = broker.consume("audit", UNCOMMITTED);
    assert_eq!(left[0], (0, "first".to_owned()), "what read_committed saw is there");
    drop(broker);
}

/// Acknowledged, and then the power went: what is left is a prefix, and no offset that was given away
/// names another record. A client that knows the old epoch learns where it ended.
#[test]
fn no_offset_names_two_records_over_power_cuts() {
    let (mut lost, mut fenced) = (0, 0);
    for seed in 0..12 {
        let disk = Arc::new(SimDir::new());
        let mut broker = Broker::open(&disk, unsynced());
        broker.create("orders", &[]);
        for number in 0..10 {
            assert_eq!(broker.produced("orders", &format!("before {number}")), number);
        }
        let kept = Arc::new(disk.crash(Crash::PowerCut, seed));
        drop(broker);
        let mut broker = Broker::open(&kept, unsynced());
        let verdict = broker.node.verdict().to_owned();
        assert!(verdict.starts_with("records may be lost"), "seed {seed}: {verdict}");
        let left = broker.consume("orders", UNCOMMITTED);
        assert!(!left.is_empty(), "seed {seed}: the first was durable");
        for (offset, value) in &left {
            assert_eq!(*value, format!("before {offset}"), "seed {seed}");
        }
        lost += 10 - left.len();
        let next = broker.produced("orders", "after");
        assert!(next >= 10, "seed {seed}: offset {next} was given away before");
        fenced += usize::from(next > 10);
        let all = broker.consume("orders", UNCOMMITTED);
        assert_eq!(all.last(), Some(&(next, "after".to_owned())), "seed {seed}");
        let (_, ended) = broker.end_of_epoch("orders", 1);
        assert_eq!(
            usize::try_from(ended).unwrap(),
            left.len(),
            "seed {seed}: where the epoch ended"
        );
        drop(broker);
    }
    assert!(lost > 0 && fenced > 0, "no power cut took anything");
}

#[test]
fn what_waits_for_the_disk_outlives_every_power_cut() {
    for seed in 0..8 {
        let disk = Arc::new(SimDir::new());
        let mut broker = Broker::open(&disk, unsynced());
        assert_eq!(broker.create("ledger", &[("flush.messages", "1")]), ErrorCode::None);
        broker.create("notes", &[]);
        for number in 0..6 {
            broker.produced("notes", "may go");
            assert_eq!(broker.produced("ledger", &number.to_string()), number);
        }
        let kept = Arc::new(disk.crash(Crash::PowerCut, seed));
        drop(broker);
        let mut broker = Broker::open(&kept, unsynced());
        let all: Vec<_> = (0..6).map(|number| (number, number.to_string())).collect();
        assert_eq!(broker.consume("ledger", COMMITTED), all, "seed {seed}");
        assert_eq!(broker.produced("ledger", "6"), 6, "it has no gap");
        drop(broker);
    }
}

/// A setting that is given later holds from then on, though the partition stays where it is.
#[test]
fn a_topic_that_is_told_to_wait_for_the_disk_later_does() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[("plimsoll.read.committed", "durable")]);
    broker.produced("orders", "0");
    broker.produced("orders", "1");
    assert_eq!(broker.latest("orders", COMMITTED), 1);
    broker.alter("orders", "flush.messages", "1");
    broker.produced("orders", "2");
    assert_eq!(broker.latest("orders", COMMITTED), 3);
    drop(broker);
}

#[test]
fn a_topic_that_is_made_again_begins_anew_with_a_higher_epoch() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.produced("orders", "old");
    let before = broker.end_of_epoch("orders", i32::MAX - 1);
    assert_eq!(before, (-1, -1), "no such epoch");
    let epoch = |broker: &Broker| broker.node.topic("orders").unwrap().partition[0].epoch;
    let old = epoch(&broker);
    broker.delete("orders");
    assert_eq!(broker.produce("orders", "gone").error_code, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(broker.create("orders", &[]), ErrorCode::None);
    assert!(epoch(&broker) > old, "{} after {old}", epoch(&broker));
    assert_eq!(broker.consume("orders", UNCOMMITTED), []);
    assert_eq!(broker.produced("orders", "new"), 0);
    broker.close();
}
