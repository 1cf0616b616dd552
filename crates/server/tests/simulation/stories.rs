//! What the simulation found, told once.

use std::sync::Arc;

use plimsoll_log::Policy;
use plimsoll_server::broker::{Options, Promise};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::Crash;

use crate::broker::{Broker, Produced};
use crate::world::{copy, memory};

/// The broker refused to start: its ring in memory had another size than it was asked for, after a crash and
/// after an end in order as well, and it was told to remove the only copy of what was acknowledged.
#[test]
fn a_broker_that_is_given_another_ring_size_starts_and_has_what_its_ring_had() {
    let with = |memory: &tempfile::TempDir, ring_bytes| Options {
        memory: Some(memory.path().to_owned()),
        flush: Policy::Never,
        ring_bytes,
        ..Options::default()
    };
    let ring_bytes = |broker: &Broker| {
        let shards = broker.node.shards();
        shards.iter().find(|shard| shard.number == 2).expect("the shared shard").ring_bytes
    };
    let (disk, first) = (Arc::new(SimDir::new()), memory());
    let mut broker = Broker::start(&disk, with(&first, 8 << 20)).unwrap();
    if broker.node.promise() != Promise::Memory {
        return println!("SKIPPED: no tmpfs");
    }
    assert!(broker.create("orders", 1, false));
    let one =
        Produced { topic: "orders".to_owned(), partition: 0, records: vec![1, 2], producer: None };
    assert_eq!(broker.produce(&[one]), Some(vec![Ok(0)]));
    disk.stop_at(disk.operations());
    let second = memory();
    copy(first.path(), second.path());
    let disk = Arc::new(disk.crash(Crash::Process, 0));
    drop((broker.stop(), first));

    let mut broker = Broker::start(&disk, with(&second, 4 << 20)).unwrap();
    assert_eq!(ring_bytes(&broker), 8 << 20, "what it had is read as it was written");
    assert!(broker.node.verdict().starts_with("nothing is lost"), "{}", broker.node.verdict());
    assert_eq!(broker.look("orders", 0).unwrap().records, [(0, 1), (1, 2)].into());
    broker.stop().close().unwrap();

    let broker = Broker::start(&disk, with(&second, 4 << 20)).unwrap();
    assert_eq!(
        ring_bytes(&broker),
        4 << 20,
        "after an end in order it has the size that is asked for"
    );
    broker.stop().close().unwrap();
}
