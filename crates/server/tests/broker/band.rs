//! Topics by their ids, and what newer versions say of leaders.

use std::sync::Arc;

use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    CurrentLeader, DivergingEpoch, FetchPartition, FetchRequest, FetchResponse, FetchTopic,
    FetchedPartition, MetadataRequest, MetadataRequestTopic, MetadataTopic,
};
use plimsoll_server::kafka::value::Uuid;
use plimsoll_simdisk::SimDir;
use plimsoll_sync::Crash;

use super::{Broker, unsynced};

impl Broker {
    fn described(&mut self, topic: MetadataRequestTopic) -> MetadataTopic {
        let question = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
        self.client.call(question).unwrap().topics.remove(0)
    }

    fn topic_id(&mut self, name: &str) -> Uuid {
        self.described(MetadataRequestTopic::named(name)).topic_id
    }

    /// Of one partition, by the id of its topic; waits, if there is nothing to tell at once.
    fn fetch_by_id(&mut self, topic_id: Uuid, partition: &FetchPartition) -> FetchResponse {
        let partitions = vec![FetchPartition { partition_max_bytes: 1 << 20, ..partition.clone() }];
        let topics = vec![FetchTopic { topic_id, partitions, ..FetchTopic::default() }];
        let (max_wait_ms, min_bytes) = (600_000, 1);
        let question = FetchRequest { max_wait_ms, min_bytes, topics, ..FetchRequest::default() };
        self.client.call(question).unwrap()
    }

    /// The leader epoch of the only partition.
    fn epoch(&self, topic: &str) -> i32 {
        let epoch = self.node.topic(topic).unwrap().partition[0].epoch;
        i32::try_from(epoch).unwrap()
    }

    /// Of who fetched a record of this epoch last, and goes on at this offset.
    fn fetch_after(&mut self, id: Uuid, epoch: i32, from: i64) -> FetchedPartition {
        let (fetch_offset, last_fetched_epoch) = (from, epoch);
        let asked =
            FetchPartition { fetch_offset, last_fetched_epoch, ..FetchPartition::default() };
        self.fetch_by_id(id, &asked).responses.remove(0).partitions.remove(0)
    }
}

#[test]
fn a_topic_is_described_by_its_id_until_it_is_deleted() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("orders", &[]);
    let by_id = |topic_id| MetadataRequestTopic { topic_id, name: None };
    let id = broker.topic_id("orders");
    assert_ne!(id, Uuid::ZERO);
    let found = broker.described(by_id(id));
    assert_eq!((found.error_code, found.topic_id), (ErrorCode::None, id));
    assert_eq!((found.name.as_deref(), found.partitions.len()), (Some("orders"), 1));

    // It has another one when it is made again: its records are others.
    broker.delete("orders");
    broker.create("orders", &[]);
    assert_ne!(broker.topic_id("orders"), id);
    let gone = broker.described(by_id(id));
    assert_eq!((gone.error_code, gone.name), (ErrorCode::UnknownTopicId, None));
    assert_eq!(gone.topic_id, id);

    // Kafka takes one or the other.
    let both = MetadataRequestTopic { topic_id: id, ..MetadataRequestTopic::named("orders") };
    assert_eq!(broker.described(both).error_code, ErrorCode::InvalidRequest);
    broker.close();
}

#[test]
fn records_are_fetched_by_the_id_of_their_topic() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("orders", &[]);
    broker.produced("orders", "0");
    let id = broker.topic_id("orders");
    let told = broker.fetch_by_id(id, &FetchPartition::default());
    assert_eq!((told.responses[0].topic_id, told.responses[0].topic.as_str()), (id, ""));
    let partition = &told.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.high_watermark), (ErrorCode::None, 1));
    assert!(partition.records.bytes() > 0);

    let none = FetchPartition { partition: 7, ..FetchPartition::default() };
    let told = broker.fetch_by_id(id, &none).responses.remove(0).partitions.remove(0);
    assert_eq!(told.error_code, ErrorCode::UnknownTopicOrPartition, "it has one");

    broker.delete("orders");
    broker.create("orders", &[]);
    let told = broker.fetch_by_id(id, &FetchPartition::default());
    assert_eq!(told.responses[0].topic_id, id);
    assert_eq!(told.responses[0].partitions[0].error_code, ErrorCode::UnknownTopicId);
    broker.close();
}

/// Who passed a fence, as nobody says any more what was there, is told where that began.
#[test]
fn who_fetched_what_a_power_cut_took_is_told_where_its_records_end() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    for number in 0..10 {
        broker.produced("orders", &number.to_string());
    }
    let old = broker.epoch("orders");
    let kept = Arc::new(disk.crash(Crash::PowerCut, 0));
    drop(broker);
    let mut broker = Broker::open(&kept, unsynced());
    let left = i64::try_from(broker.consume("orders", 0).len()).unwrap();
    let next = broker.produced("orders", "after");
    let new = broker.epoch("orders");
    assert!(left < 10 && next >= 10 && old < new, "{left} left, {next}, {old}, {new}");
    let id = broker.topic_id("orders");
    let none = DivergingEpoch::default();

    // The last record that it has is there, and it goes on over the gap.
    for (epoch, from) in [(old, left - 1), (old, left), (new, next), (-1, 10)] {
        let told = broker.fetch_after(id, epoch, from);
        assert_eq!(told.error_code, ErrorCode::None, "{epoch} {from}");
        assert_eq!(told.diverging_epoch, none, "{epoch} {from}");
        assert!(told.records.bytes() > 0, "{epoch} {from}");
    }
    // It has records that are gone, be they below what came after or above it, and is told at once.
    for from in [left + 1, next, next + 1, next + 2] {
        let told = broker.fetch_after(id, old, from);
        let ended = DivergingEpoch { epoch: old, end_offset: left };
        assert_eq!((told.error_code, told.diverging_epoch), (ErrorCode::None, ended), "{from}");
        assert_eq!((told.records.bytes(), told.high_watermark), (0, next + 1), "{from}");
    }
    // An epoch between the two had no record: the one before it is told.
    if old + 1 < new {
        let told = broker.fetch_after(id, old + 1, left);
        assert_eq!(told.diverging_epoch, DivergingEpoch { epoch: old, end_offset: left });
    }
    // Beyond the end of ours, in an epoch that has not begun, and before the beginning.
    let told = broker.fetch_after(id, new, next + 2);
    assert_eq!(told.diverging_epoch, DivergingEpoch { epoch: new, end_offset: next + 1 });
    assert_eq!(broker.fetch_after(id, new + 1, next).error_code, ErrorCode::OffsetOutOfRange);
    assert_eq!(broker.fetch_after(id, -1, next + 2).error_code, ErrorCode::OffsetOutOfRange);
    broker.trim("orders", next);
    assert_eq!(broker.fetch_after(id, old, left).error_code, ErrorCode::OffsetOutOfRange);
    // All of the old epoch has expired: who is where the rest begins may have had all of it.
    assert_eq!(broker.fetch_after(id, old, next).diverging_epoch, none);
    drop(broker);
}

#[test]
fn who_fetches_with_an_old_epoch_is_told_who_leads() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("orders", &[]);
    broker.produced("orders", "0");
    let id = broker.topic_id("orders");
    broker.delete("orders");
    broker.create("orders", &[]);
    assert_ne!(broker.topic_id("orders"), id);
    let id = broker.topic_id("orders");
    let epoch = broker.epoch("orders");
    let with = |current_leader_epoch| FetchPartition { current_leader_epoch, ..<_>::default() };
    let told = broker.fetch_by_id(id, &with(epoch - 1));
    let partition = &told.responses[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::FencedLeaderEpoch);
    assert_eq!(partition.current_leader, CurrentLeader { leader_id: 1, leader_epoch: epoch });
    let told: Vec<_> = told.node_endpoints.iter().map(|told| (told.node_id, told.port)).collect();
    let port = broker.client.addr().rsplit_once(':').unwrap().1.parse().unwrap();
    assert_eq!(told, [(1, port)]);

    // Who has a newer one knows more than we do.
    let told = broker.fetch_by_id(id, &with(epoch + 1));
    assert_eq!(told.responses[0].partitions[0].error_code, ErrorCode::UnknownLeaderEpoch);
    assert_eq!(told.node_endpoints, []);
    broker.close();
}
