//! Several shards of records: who leads their partitions, and what each knows of itself after a start.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;

use plimsoll_log::Policy;
use plimsoll_server::broker::{Failed, Node, Options, Seat, ShardOverview, found, snapshot_of};
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_sync::OsDir;

use super::forwarded::{create, metadata, three, three_of, until};
use super::{Broker, CreatableTopic, CreateTopicsRequest, UNCOMMITTED, unsynced};

/// One broker led all of them.
#[test]
fn partitions_of_a_topic_are_led_by_all_three_brokers() {
    let root = tempfile::tempdir().unwrap();
    let mut brokers = three(root.path(), &unsynced());
    let first = brokers.get_mut(&1).unwrap();
    let create = |name: &str, num_partitions| CreatableTopic {
        name: name.to_owned(),
        num_partitions,
        replication_factor: 3,
        ..Default::default()
    };
    let topics = vec![create("orders", 6), create("one", 1), create("two", 1), create("three", 1)];
    let request = CreateTopicsRequest { topics, ..Default::default() };
    let made = first.client.call(request).unwrap();
    assert!(made.topics.iter().all(|topic| topic.error_code == ErrorCode::None), "{made:?}");
    let leaders = |broker: &mut Broker, topic| -> Vec<i32> {
        let found = metadata(broker, topic, false);
        found.topics[0].partitions.iter().map(|partition| partition.leader_id).collect()
    };
    until("each leads two", || {
        let mut led = leaders(first, "orders");
        led.sort_unstable();
        led == [1, 1, 2, 2, 3, 3]
    });
    until("each leads one topic of one partition", || {
        let mut led = ["one", "two", "three"].map(|topic| leaders(first, topic)[0]);
        led.sort_unstable();
        led == [1, 2, 3]
    });
    for topic in ["one", "two", "three"] {
        let leader = leaders(brokers.get_mut(&1).unwrap(), topic)[0];
        let leads = brokers.get_mut(&u64::try_from(leader).unwrap()).unwrap();
        assert_eq!(leads.produce(topic, topic).error_code, ErrorCode::None);
        assert_eq!(leads.consume(topic, UNCOMMITTED), [(0, topic.to_owned())]);
    }
    for (_, broker) in brokers {
        broker.close();
    }
}

/// What they waited for came over connections that ended with the first of them: each of the others waited for 3 s, and then kept nothing.
#[test]
fn a_broker_that_ends_keeps_the_state_of_all_its_shards() {
    let root = tempfile::tempdir().unwrap();
    let flush = Policy::everysec();
    let mut brokers = three(root.path(), &Options { allows_one_domain: true, flush, ..unsynced() });
    let topics = ["one", "two", "three"];
    for topic in topics {
        let made = create(brokers.get_mut(&1).unwrap(), topic, 3);
        assert_eq!(made, ErrorCode::None);
    }
    let of_records = |broker: &Broker| -> Vec<ShardOverview> {
        let shards = broker.node.shards().into_iter();
        shards.filter(|shard| [2, 4, 6].contains(&shard.number)).collect()
    };
    // What is guarded is durable before anybody hears of it.
    until("they acknowledge from memory", || {
        let led = brokers.values().flat_map(of_records).filter(|shard| shard.leads);
        led.filter(|shard| !shard.is_guarded).count() == topics.len()
    });
    for topic in topics {
        until("it is taken", || {
            let found = metadata(brokers.get_mut(&1).unwrap(), topic, false);
            let leader = u64::try_from(found.topics[0].partitions[0].leader_id).unwrap_or(1);
            brokers.get_mut(&leader).unwrap().produce(topic, topic).error_code == ErrorCode::None
        });
    }
    let committed = |broker: &Broker| -> Vec<u64> {
        of_records(broker).iter().map(|shard| shard.committed).collect()
    };
    let ends = brokers.values().map(committed).max().unwrap();
    until("all of it is there", || committed(&brokers[&3]) >= ends);
    brokers.remove(&3).unwrap().close();
    let dir = OsDir::open(root.path().join("3")).unwrap();
    for number in [2, 4, 6] {
        let state = snapshot_of(&dir, number).unwrap().expect("something was applied");
        let records = state.partitions().map(|(_, partition)| partition.next()).max();
        assert!(records >= Some(1), "shard {number}: {records:?}");
    }
    for (_, broker) in brokers {
        broker.close();
    }
}

/// What is known of a run is of all shards, and what it forgot of each: a run that dies in between has lost nothing of its own.
#[test]
fn a_replica_that_forgot_is_in_doubt_until_it_has_caught_up_whatever_ends_its_process() {
    let (root, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (root, memory) = (root.path(), memory.path());
    let cluster = found(&root.join("1")).unwrap();
    let seats = RefCell::new(BTreeMap::new());
    let open = |id: u64, seat: Seat| {
        let memory = Some(memory.join(id.to_string()));
        let options = Options { memory, seat: Some(seat), ..unsynced() };
        Node::open(&root.join(id.to_string()), options).unwrap()
    };
    let mut brokers = three_of(&cluster, |id, seat| {
        seats.borrow_mut().insert(id, seat.clone());
        open(id, seat)
    });
    until("it is taken", || {
        let leads = metadata(brokers.get_mut(&1).unwrap(), "votes", false);
        let leads = u64::try_from(leads.topics[0].partitions[0].leader_id).unwrap_or(1);
        let leads = brokers.get_mut(&leads).unwrap();
        leads.produce("votes", "1").error_code == ErrorCode::None
    });
    brokers.into_values().for_each(|broker| drop(broker.stop()));
    let second = || open(2, seats.borrow()[&2].clone());
    let in_doubt = |node: &Node| -> Vec<u32> {
        let shards = node.shards().into_iter().filter(|shard: &ShardOverview| shard.is_in_doubt);
        shards.map(|shard| shard.number).collect()
    };
    // As by a power cut.
    fs::remove_dir_all(memory.join("2")).unwrap();
    let node = second();
    assert!(node.verdict().starts_with("records may be lost"), "{}", node.verdict());
    assert_eq!(in_doubt(&node), [2, 4, 6]);
    drop(node);
    let node = second();
    assert!(node.verdict().starts_with("nothing is lost"), "{}", node.verdict());
    assert_eq!(in_doubt(&node), [2, 4, 6]);
}

/// It was told to remove its rings, as they were of another log: then it was a broker that never was.
#[test]
fn a_broker_that_lost_its_directory_does_not_come_back_though_its_rings_are_there() {
    let (root, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let cluster = found(&root.path().join("1")).unwrap();
    let members = [(1, "127.0.0.1:1".to_owned()), (2, "127.0.0.1:2".to_owned())];
    let seat = Seat {
        cluster,
        node: 2,
        members: members.into_iter().collect(),
        listen: "127.0.0.1:0".parse().unwrap(),
        clients: ("127.0.0.1".to_owned(), 3),
        rack: None,
    };
    let memory = Some(memory.path().to_owned());
    let options = Options { memory, seat: Some(seat), ..unsynced() };
    let own = root.path().join("2");
    drop(Node::open(&own, options.clone()).unwrap());
    drop(Node::open(&own, options.clone()).unwrap());
    fs::remove_dir_all(&own).unwrap();
    for _ in 0..2 {
        let lost = Node::open(&own, options.clone()).unwrap_err();
        assert!(matches!(lost, Failed::RingsLeft { node: 2, .. }), "{lost}");
    }
}
