//! Consumers read from the nearest replica, and topics that want more copies than a majority get them: three brokers in one
//! process, each in a rack of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use plimsoll_server::client::Connection;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    DescribeClusterRequest, FetchPartition, FetchRequest, FetchTopic, FetchedPartition,
    ProducePartition, ProduceRequest, ProduceTopic,
};

use super::chapters::chapters_of;
use super::forwarded::{create, metadata, three_in, until};
use super::{Broker, UNCOMMITTED, one_record};

const RACKS: [Option<&str>; 3] = [Some("a"), Some("b"), Some("c")];
const NOBODY: i32 = -1;
const ANY_EPOCH: i32 = -1;

fn rack(node: u64) -> &'static str {
    RACKS[usize::try_from(node).unwrap() - 1].unwrap()
}

/// A consumer, as it asks one of the brokers.
struct Asks<'a> {
    rack: &'a str,
    from: i64,
    epoch: i32,
    wait_ms: i32,
}

impl Asks<'_> {
    fn of(self, client: &mut Connection, topic: &str) -> FetchedPartition {
        let partition = FetchPartition {
            fetch_offset: self.from,
            current_leader_epoch: self.epoch,
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        };
        let (topic, partitions) = (topic.to_owned(), vec![partition]);
        let request = FetchRequest {
            max_wait_ms: self.wait_ms,
            min_bytes: i32::from(self.wait_ms > 0),
            topics: vec![FetchTopic { topic, partitions, ..Default::default() }],
            rack_id: self.rack.to_owned(),
            ..FetchRequest::default()
        };
        client.call(request).unwrap().responses.remove(0).partitions.remove(0)
    }
}

fn ask(broker: &mut Broker, rack: &str, from: i64) -> FetchedPartition {
    Asks { rack, from, epoch: ANY_EPOCH, wait_ms: 0 }.of(&mut broker.client, "orders")
}

fn leader_of(broker: &mut Broker, topic: &str) -> Option<(u64, i32)> {
    let told = metadata(broker, topic, false);
    // One that has not heard of the topic yet names no partition.
    let partition = told.topics.first()?.partitions.first()?;
    Some((u64::try_from(partition.leader_id).ok()?, partition.leader_epoch))
}

/// Who leads and follows, and in which epoch, once the brokers agree on that.
fn led(brokers: &mut BTreeMap<u64, Broker>) -> (u64, u64, i32) {
    let mut known = None;
    until("all know who leads", || {
        let mut all = brokers.values_mut().map(|broker| leader_of(broker, "orders"));
        known = all.next().flatten();
        known.is_some() && all.all(|other| other == known)
    });
    let (leader, epoch) = known.unwrap();
    (leader, leader % 3 + 1, epoch)
}

/// Again where it was refused: a leader that no majority has answered for a moment says that it leads no more.
fn produce(leader: &mut Broker, number: u32) {
    until("it is taken", || {
        leader.produce("orders", &number.to_string()).error_code == ErrorCode::None
    });
}

/// It reads from the log and from chapters there: no entries are kept in memory.
#[test]
fn a_consumer_reads_from_the_replica_in_its_rack_and_is_never_told_that_what_comes_does_not_exist()
{
    let root = tempfile::tempdir().unwrap();
    let options = plimsoll_server::broker::Options { spreads_leaders: false, ..chapters_of(1500) };
    let mut brokers = three_in(root.path(), &options, RACKS);
    let first = brokers.get_mut(&1).unwrap();
    assert_eq!(create(first, "orders", 3), ErrorCode::None);
    let (leader, near, epoch) = led(&mut brokers);
    let told = metadata(brokers.get_mut(&near).unwrap(), "orders", false);
    let racks = told.brokers.iter().map(|broker| broker.rack.as_deref());
    assert!(racks.eq(RACKS), "{told:?}");
    let described = brokers.get_mut(&near).unwrap().client.call(DescribeClusterRequest::default());
    assert!(described.unwrap().brokers.iter().map(|broker| broker.rack.as_deref()).eq(RACKS));
    (0..40).for_each(|number| produce(brokers.get_mut(&leader).unwrap(), number));
    let produced = brokers.get_mut(&leader).unwrap().consume("orders", UNCOMMITTED);
    let end = i64::try_from(produced.len()).unwrap();
    // The leader names it once that is level, and gives nothing itself.
    until("it is sent there", || {
        let sent = ask(brokers.get_mut(&leader).unwrap(), rack(near), 0);
        assert_eq!((sent.error_code, sent.high_watermark), (ErrorCode::None, end));
        let is_sent = sent.preferred_read_replica == i32::try_from(near).unwrap();
        assert_eq!(sent.records.0.is_empty(), is_sent);
        is_sent
    });
    for others in ["", rack(leader), "elsewhere"] {
        let here = ask(brokers.get_mut(&leader).unwrap(), others, 0);
        assert_eq!((here.preferred_read_replica, here.records.0.is_empty()), (NOBODY, false));
    }
    let follower = brokers.get_mut(&near).unwrap();
    until("it has all", || ask(follower, rack(near), 0).high_watermark == end);
    let lost = follower.fetch("orders", 0, UNCOMMITTED);
    assert_eq!(lost.error_code, ErrorCode::NotLeaderOrFollower, "it names no rack");
    assert_eq!(follower.consume_as(rack(near), "orders"), produced);
    follower.until_settled(1);
    assert_eq!(follower.consume_as(rack(near), "orders"), produced, "from chapters");
    // What it does not have may come; what is before its begin does not.
    assert_eq!(ask(follower, rack(near), end + 1).error_code, ErrorCode::OffsetNotAvailable);
    assert_eq!(ask(follower, rack(near), end).error_code, ErrorCode::None);
    for (asked, code) in [(epoch, ErrorCode::None), (epoch + 1, ErrorCode::UnknownLeaderEpoch)] {
        let asks = Asks { rack: rack(near), from: 0, epoch: asked, wait_ms: 0 };
        assert_eq!(asks.of(&mut follower.client, "orders").error_code, code);
    }
    // It waits for what comes, also where that is not the next record.
    let addr = follower.client.addr().to_owned();
    let waits = [end, end + 1].map(|from| {
        let addr = addr.clone();
        thread::spawn(move || {
            let mut client = Connection::open(&addr, super::forwarded::PATIENCE).unwrap();
            let asks = Asks { rack: rack(near), from, epoch: ANY_EPOCH, wait_ms: 60_000 };
            asks.of(&mut client, "orders")
        })
    });
    (40..42).for_each(|number| produce(brokers.get_mut(&leader).unwrap(), number));
    for waits in waits {
        let came = waits.join().unwrap();
        assert_eq!((came.error_code, came.records.0.is_empty()), (ErrorCode::None, false));
    }
    let beyond = ask(brokers.get_mut(&leader).unwrap(), "", end + 1000);
    assert_eq!(beyond.error_code, ErrorCode::OffsetOutOfRange, "the leader knows");
    // Once nobody leads it sends its readers away.
    for gone in [1, 2, 3].into_iter().filter(|id| *id != near) {
        drop(brokers.remove(&gone).unwrap().stop());
    }
    let left = brokers.get_mut(&near).unwrap();
    until("it refuses", || ask(left, rack(near), 0).error_code == ErrorCode::NotLeaderOrFollower);
    drop(brokers.remove(&near).unwrap().stop());
}

/// Sends a record, and is not told what became of it.
fn send(broker: &mut Broker, topic: &str, value: &str) {
    let partition_data = vec![ProducePartition { index: 0, records: Some(one_record(value)) }];
    let topic_data = vec![ProduceTopic { name: topic.to_owned(), partition_data }];
    let request = ProduceRequest { transactional_id: None, acks: 0, timeout_ms: 1000, topic_data };
    broker.client.send(request).unwrap();
}

/// Two of the three stand in one rack, so that their leader is guarded too.
#[test]
fn a_record_that_wants_more_copies_than_a_majority_is_neither_acknowledged_nor_seen_before_it_has_them()
 {
    let root = tempfile::tempdir().unwrap();
    let options = plimsoll_server::broker::Options { spreads_leaders: false, ..super::unsynced() };
    let mut brokers = three_in(root.path(), &options, [Some("a"), Some("a"), Some("b")]);
    let first = brokers.get_mut(&1).unwrap();
    for (name, copies) in [("orders", "3"), ("two", "2"), ("four", "4")] {
        assert_eq!(create(first, name, 3), ErrorCode::None);
        first.alter(name, "min.insync.replicas", copies);
    }
    let (leader, ..) = led(&mut brokers);
    let (other, other_rack) = if leader == 3 { (1, "a") } else { (3, "b") };
    let lead = brokers.get_mut(&leader).unwrap();
    until("two in one rack are known", || {
        let shards = lead.node.shards();
        shards.iter().any(|shard| shard.number == 2 && shard.is_exposed && shard.is_guarded)
    });
    until("all three are in sync", || {
        lead.produce("orders", "0").error_code != ErrorCode::NotEnoughReplicas
    });
    let ends = lead.latest("orders", UNCOMMITTED);
    assert!(ends >= 1, "it was acknowledged, and is seen");
    assert_eq!(lead.produced("two", "0"), 0);
    let never = lead.produce("four", "0");
    assert_eq!(never.error_code, ErrorCode::NotEnoughReplicas, "there are three");
    assert!(never.error_message.unwrap().contains("min.insync.replicas=4"));
    // Nobody but the producers was told, nor that one more may fail.
    let unmet = |lead: &Broker, in_sync: u64, names: &[&str]| {
        let all: Vec<_> = lead.node.shards().into_iter().filter_map(|shard| shard.unmet).collect();
        // Each has one partition, and so one shard.
        let mut named: Vec<_> = all.iter().flat_map(|of| &of.named).collect();
        named.sort_unstable();
        let count: u64 = all.iter().map(|of| of.topics).sum();
        named == names && count == names.len() as u64 && all.iter().all(|of| of.in_sync == in_sync)
    };
    let spare = |lead: &Broker| -> BTreeSet<_> {
        lead.node.shards().into_iter().map(|shard| shard.spare).collect()
    };
    until("the one that asks for too many is named", || unmet(lead, 3, &["four"]));
    until("one more may fail", || spare(lead) == [Some(1)].into());
    let sent = ask(lead, other_rack, 0);
    assert_eq!(sent.preferred_read_replica, NOBODY, "only the leader knows how many have it");

    drop(brokers.remove(&other).unwrap().stop());
    let lead = brokers.get_mut(&leader).unwrap();
    send(lead, "orders", "unseen");
    send(lead, "two", "1");
    until("two have it", || lead.latest("two", UNCOMMITTED) == 2);
    until("it is known that one is away", || {
        lead.produce_within(100, "orders", one_record("late")).error_code
            == ErrorCode::NotEnoughReplicas
    });
    assert_eq!(lead.produced("two", "2"), 2, "those that ask for a majority go on");
    assert!(unmet(lead, 2, &["four", "orders"]), "{:?}", lead.node.shards());
    until("no more may fail", || spare(lead) == [Some(0)].into());
    assert_eq!(lead.latest("orders", UNCOMMITTED), ends);
    let unseen = ask(lead, "", ends);
    assert_eq!((unseen.error_code, unseen.high_watermark), (ErrorCode::None, ends));
    assert!(unseen.records.0.is_empty());
    lead.alter("orders", "min.insync.replicas", "2");
    assert!(lead.latest("orders", UNCOMMITTED) > ends, "a majority has it");
    assert!(unmet(lead, 2, &["four"]), "{:?}", lead.node.shards());
    for broker in brokers.into_values() {
        drop(broker.stop());
    }
}
