//! A partition goes on in another shard, and so under another leader: nobody who reads or writes it misses anything.

use std::collections::BTreeMap;

use bytes::Bytes;
use plimsoll_server::kafka::batch::Producer;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest, ReassignablePartition,
    ReassignableTopic,
};
use plimsoll_server::kafka::records::Draft;

use super::forwarded::{create, metadata, three, until};
use super::{
    Broker, COMMITTED, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, UNCOMMITTED,
    unsynced,
};

const TOPIC: &str = "orders";

type Brokers = BTreeMap<u64, Broker>;

/// A producer's batch with this number, and a timestamp that grows with it.
fn batch(number: i32) -> Bytes {
    let mut draft = Draft::default();
    draft.push(1_000 + i64::from(number), None, Some(number.to_string().as_bytes()), &[]);
    let producer = Producer { id: 77, epoch: 0, base_sequence: number };
    draft.batch(Compression::None, Some(producer)).pieces().concat().into()
}

/// Who leads the partition, as all say, and in which epoch.
fn leader(brokers: &mut Brokers) -> (u64, i32) {
    let mut found = Vec::new();
    until("all name one leader", || {
        found = brokers
            .values_mut()
            .map(|broker| {
                let told = metadata(broker, TOPIC, false);
                // One that has not heard of it yet names none.
                let partition = told.topics[0].partitions.first();
                partition.map_or((-1, -1), |told| (told.leader_id, told.leader_epoch))
            })
            .collect();
        found[0].0 > 0 && found.iter().all(|told| *told == found[0])
    });
    (u64::try_from(found[0].0).unwrap(), found[0].1)
}

fn produce(brokers: &mut Brokers, number: i32) -> i64 {
    let mut offset = -1;
    until("it is taken", || {
        let (leader, _) = leader(brokers);
        let told = brokers.get_mut(&leader).unwrap().produce_bytes(TOPIC, batch(number));
        let is_later = matches!(
            told.error_code,
            ErrorCode::NotLeaderOrFollower | ErrorCode::UnknownTopicOrPartition
        );
        assert!(told.error_code == ErrorCode::None || is_later, "{told:?}");
        offset = told.base_offset;
        told.error_code == ErrorCode::None
    });
    offset
}

fn reassign(broker: &mut Broker, replicas: Option<Vec<i32>>) -> ErrorCode {
    let partitions = vec![ReassignablePartition { partition_index: 0, replicas }];
    let topics = vec![ReassignableTopic { name: TOPIC.to_owned(), partitions }];
    let request = AlterPartitionReassignmentsRequest { topics, ..<_>::default() };
    broker.client.call(request).unwrap().responses[0].partitions[0].error_code
}

fn is_reassigned(broker: &mut Broker) -> bool {
    let request = ListPartitionReassignmentsRequest::default();
    broker.client.call(request).unwrap().topics.is_empty()
}

/// Has the partition led by that one.
fn move_to(brokers: &mut Brokers, to: u64) {
    let first = i32::try_from(to).unwrap();
    let replicas = [first].into_iter().chain((1..=3).filter(|id| *id != first)).collect();
    // Whoever is asked.
    until("it is agreed on", || {
        let told = reassign(brokers.get_mut(&1).unwrap(), Some(Vec::clone(&replicas)));
        assert!(matches!(told, ErrorCode::None | ErrorCode::NotController), "{told:?}");
        told == ErrorCode::None
    });
    until("it is done", || brokers.values_mut().all(is_reassigned));
    until("it is led there", || leader(brokers).0 == to);
}

fn offset_at(broker: &mut Broker, timestamp: i64) -> i64 {
    let partition = ListOffsetsPartition { timestamp, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: TOPIC.to_owned(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { topics, ..Default::default() };
    broker.client.call(request).unwrap().topics[0].partitions[0].offset
}

fn values(from: i64, end: i64) -> Vec<(i64, String)> {
    (from..end).map(|offset| (offset, offset.to_string())).collect()
}

#[test]
fn a_partition_goes_on_under_another_leader_and_nobody_misses_a_record() {
    let root = tempfile::tempdir().unwrap();
    let mut brokers = three(root.path(), &unsynced());
    assert_eq!(create(brokers.get_mut(&1).unwrap(), TOPIC, 3), ErrorCode::None);
    for number in 0..5 {
        assert_eq!(produce(&mut brokers, number), i64::from(number));
    }
    let (first, old_epoch) = leader(&mut brokers);
    let second = first % 3 + 1;
    move_to(&mut brokers, second);
    let (_, new_epoch) = leader(&mut brokers);
    assert!(new_epoch > old_epoch, "{new_epoch} after {old_epoch}");
    // Sent again it is the same; and its producer goes on.
    assert_eq!(produce(&mut brokers, 4), 4);
    for number in 5..8 {
        assert_eq!(produce(&mut brokers, number), i64::from(number));
    }
    {
        let leads = brokers.get_mut(&second).unwrap();
        assert_eq!(leads.consume(TOPIC, UNCOMMITTED), values(0, 8));
        assert_eq!(leads.consume(TOPIC, COMMITTED), values(0, 8));
        assert_eq!(leads.end_of_epoch(TOPIC, old_epoch), (old_epoch, 5));
        assert_eq!(leads.end_of_epoch(TOPIC, new_epoch), (new_epoch, 8));
        for offset in 0..8 {
            assert_eq!(offset_at(leads, 1_000 + offset), offset);
        }
        let told = leads.fetch(TOPIC, 8, UNCOMMITTED);
        assert_eq!((told.error_code, told.log_start_offset), (ErrorCode::None, 0));
        // Of the stay before a part goes.
        leads.trim(TOPIC, 2);
        assert_eq!(leads.fetch(TOPIC, 1, UNCOMMITTED).error_code, ErrorCode::OffsetOutOfRange);
        assert_eq!(leads.consume(TOPIC, UNCOMMITTED), values(2, 8));
    }
    let follows = brokers.get_mut(&first).unwrap();
    assert_eq!(follows.produce(TOPIC, "x").error_code, ErrorCode::NotLeaderOrFollower);
    // Back, and so into a shard where it was.
    move_to(&mut brokers, first);
    assert_eq!(produce(&mut brokers, 8), 8);
    assert_eq!(brokers.get_mut(&first).unwrap().consume(TOPIC, UNCOMMITTED), values(2, 9));
    // What is deleted through all stays but the last.
    let leads = brokers.get_mut(&first).unwrap();
    leads.trim(TOPIC, 8);
    assert_eq!(leads.consume(TOPIC, UNCOMMITTED), values(8, 9));
    leads.trim(TOPIC, i64::MAX);
    assert_eq!(leads.consume(TOPIC, UNCOMMITTED), []);
    assert_eq!(produce(&mut brokers, 9), 9);
    let leads = brokers.get_mut(&first).unwrap();
    leads.delete(TOPIC);
    for (_, broker) in brokers {
        broker.close();
    }
}

/// What is asked of a broker that cannot be, or is so already.
#[test]
fn a_reassignment_names_all_brokers_and_whoever_leads_first() {
    let root = tempfile::tempdir().unwrap();
    let mut brokers = three(root.path(), &unsynced());
    assert_eq!(create(brokers.get_mut(&1).unwrap(), TOPIC, 3), ErrorCode::None);
    let broker = brokers.get_mut(&1).unwrap();
    for wrong in [vec![], vec![1], vec![1, 2], vec![1, 2, 9], vec![1, 1, 2], vec![-1, 1, 2, 3]] {
        let told = reassign(broker, Some(wrong.clone()));
        assert_eq!(told, ErrorCode::InvalidReplicaAssignment, "{wrong:?}");
    }
    assert_eq!(reassign(broker, None), ErrorCode::NoReassignmentInProgress);
    let same = metadata(broker, TOPIC, false).topics[0].partitions[0].replica_nodes.clone();
    assert_eq!(reassign(broker, Some(same)), ErrorCode::None);
    assert!(is_reassigned(broker));
    for (_, broker) in brokers {
        broker.close();
    }
}

/// Who does not know of moves stops at one: who is away may be such a one.
#[test]
fn the_first_move_needs_all_brokers() {
    let root = tempfile::tempdir().unwrap();
    let mut brokers = three(root.path(), &unsynced());
    assert_eq!(create(brokers.get_mut(&1).unwrap(), TOPIC, 3), ErrorCode::None);
    let (first, _) = leader(&mut brokers);
    let away = first % 3 + 1;
    let second = away % 3 + 1;
    brokers.remove(&away).unwrap().close();
    until("the others know that it is away", || {
        brokers.values_mut().all(|broker| metadata(broker, TOPIC, false).brokers.len() == 2)
    });
    let leads_first = |leader: u64| {
        let others = (1..=3).filter(|id| *id != leader);
        [leader].into_iter().chain(others).map(|id| i32::try_from(id).unwrap()).collect::<Vec<_>>()
    };
    // One of the two is preferred where it is.
    until("a move is refused", || {
        let told = [first, second]
            .map(|to| reassign(brokers.get_mut(&first).unwrap(), Some(leads_first(to))));
        told.contains(&ErrorCode::UnsupportedVersion)
    });
    assert!(brokers.values_mut().all(is_reassigned), "nothing of it was agreed on");
    for (_, broker) in brokers {
        broker.close();
    }
}
