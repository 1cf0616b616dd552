//! A broker on a simulated disk, and a client at its socket: what each promise is worth, told as stories.

mod anew;
mod backup;
mod band;
mod bounds;
mod chapters;
mod damage;
mod disks;
mod forgotten;
mod forwarded;
mod full;
mod gate;
mod members;
mod moving;
mod nearest;
mod promises;
mod repeated;
mod seeded;
#[path = "../shared/served.rs"]
mod served;
mod settling;
mod spread;

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_log::Policy;
use plimsoll_server::broker::Options;
use plimsoll_server::kafka::batch::Batch;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    AlterableConfig, AlterableResource, CreatableTopic, CreateTopicsRequest,
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic, DeleteTopicsRequest,
    EpochPartition, EpochTopic, FetchPartition, FetchRequest, FetchTopic, FetchedPartition,
    IncrementalAlterConfigsRequest, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, OffsetFetchRequest,
    OffsetFetchTopic, OffsetsForLeaderEpochRequest, ProducePartition, ProduceRequest, ProduceTopic,
    ProducedPartition, TopicConfig,
};
use plimsoll_server::kafka::records::{Draft, Records};
use plimsoll_simdisk::SimDir;
use served::Served as Broker;

const UNCOMMITTED: i8 = 0;
const COMMITTED: i8 = 1;
const LATEST: i64 = -1;

impl Broker {
    fn open(disk: &Arc<SimDir>, options: Options) -> Self {
        Self::start(disk, options).unwrap()
    }

    /// Ends in order.
    fn close(self) {
        self.stop().close().unwrap();
    }

    fn create(&mut self, name: &str, configs: &[(&str, &str)]) -> ErrorCode {
        self.create_many(name, 1, configs)
    }

    fn create_many(
        &mut self,
        name: &str,
        num_partitions: i32,
        configs: &[(&str, &str)],
    ) -> ErrorCode {
        let configs = configs.iter().map(|(name, value)| TopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        self.client.call(request).unwrap().topics[0].error_code
    }

    fn alter(&mut self, topic: &str, name: &str, value: &str) {
        const TOPIC: i8 = 2;
        let (name, value) = (name.to_owned(), Some(value.to_owned()));
        let configs = vec![AlterableConfig { name, config_operation: 0, value }];
        let resource_name = topic.to_owned();
        let resources = vec![AlterableResource { resource_type: TOPIC, resource_name, configs }];
        let request = IncrementalAlterConfigsRequest { resources, validate_only: false };
        assert_eq!(self.client.call(request).unwrap().responses[0].error_code, ErrorCode::None);
    }

    fn delete(&mut self, name: &str) {
        let request =
            DeleteTopicsRequest { topic_names: vec![name.to_owned()], timeout_ms: 20_000 };
        assert_eq!(self.client.call(request).unwrap().responses[0].error_code, ErrorCode::None);
    }

    /// Deletes records below an offset, or all of them.
    fn trim(&mut self, topic: &str, below: i64) {
        assert_eq!(self.try_trim(topic, below), ErrorCode::None);
    }

    fn try_trim(&mut self, topic: &str, below: i64) -> ErrorCode {
        let offset = if below == i64::MAX { LATEST } else { below };
        let partition = DeleteRecordsPartition { partition_index: 0, offset };
        let topics =
            vec![DeleteRecordsTopic { name: topic.to_owned(), partitions: vec![partition] }];
        let request = DeleteRecordsRequest { topics, timeout_ms: 20_000 };
        self.client.call(request).unwrap().topics[0].partitions[0].error_code
    }

    fn commit(&mut self, topic: &str, committed_offset: i64) {
        assert_eq!(self.try_commit(topic, committed_offset), ErrorCode::None);
    }

    fn try_commit(&mut self, topic: &str, committed_offset: i64) -> ErrorCode {
        let partition = OffsetCommitPartition { committed_offset, ..Default::default() };
        let topics =
            vec![OffsetCommitTopic { name: topic.to_owned(), partitions: vec![partition] }];
        let request =
            OffsetCommitRequest { group_id: "g".to_owned(), topics, ..Default::default() };
        self.client.call(request).unwrap().topics[0].partitions[0].error_code
    }

    fn committed(&mut self, topic: &str) -> i64 {
        let topics = vec![OffsetFetchTopic { name: topic.to_owned(), partition_indexes: vec![0] }];
        let request = OffsetFetchRequest { group_id: "g".to_owned(), topics: Some(topics) };
        self.client.call(request).unwrap().topics[0].partitions[0].committed_offset
    }

    /// Produces a record, and says what became of it.
    fn produce(&mut self, topic: &str, value: &str) -> ProducedPartition {
        self.produce_bytes(topic, one_record(value))
    }

    fn produce_bytes(&mut self, topic: &str, batch: Bytes) -> ProducedPartition {
        self.produce_within(20_000, topic, batch)
    }

    fn produce_within(&mut self, timeout_ms: i32, topic: &str, batch: Bytes) -> ProducedPartition {
        let records = Some(batch);
        let partition_data = vec![ProducePartition { index: 0, records }];
        let topic_data = vec![ProduceTopic { name: topic.to_owned(), partition_data }];
        let (transactional_id, acks) = (None, -1);
        let request = ProduceRequest { transactional_id, acks, timeout_ms, topic_data };
        self.client.call(request).unwrap().responses.remove(0).partition_responses.remove(0)
    }

    fn produced(&mut self, topic: &str, value: &str) -> i64 {
        let produced = self.produce(topic, value);
        assert_eq!(produced.error_code, ErrorCode::None, "{produced:?}");
        produced.base_offset
    }

    fn fetch(&mut self, topic: &str, from: i64, isolation_level: i8) -> FetchedPartition {
        self.fetch_as("", topic, from, isolation_level)
    }

    /// As a consumer that is in this rack.
    fn fetch_as(
        &mut self,
        rack_id: &str,
        topic: &str,
        from: i64,
        isolation_level: i8,
    ) -> FetchedPartition {
        let partition = FetchPartition {
            fetch_offset: from,
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        };
        let request = FetchRequest {
            isolation_level,
            rack_id: rack_id.to_owned(),
            topics: vec![FetchTopic {
                topic: topic.to_owned(),
                partitions: vec![partition],
                ..Default::default()
            }],
            ..FetchRequest::default()
        };
        self.client.call(request).unwrap().responses.remove(0).partitions.remove(0)
    }

    /// Every offset and value.
    fn consume(&mut self, topic: &str, isolation_level: i8) -> Vec<(i64, String)> {
        let from = self.fetch(topic, LATEST, isolation_level).log_start_offset;
        self.consume_from("", topic, from, isolation_level)
    }

    /// The same, as a consumer that is in this rack.
    fn consume_as(&mut self, rack: &str, topic: &str) -> Vec<(i64, String)> {
        self.consume_from(rack, topic, 0, UNCOMMITTED)
    }

    fn consume_from(
        &mut self,
        rack: &str,
        topic: &str,
        mut from: i64,
        isolation_level: i8,
    ) -> Vec<(i64, String)> {
        let mut all = Vec::new();
        loop {
            let fetched = self.fetch_as(rack, topic, from, isolation_level);
            assert_eq!(fetched.error_code, ErrorCode::None, "{fetched:?}");
            let mut bytes = fetched.records.0.concat().into();
            let before = all.len();
            while let Some(batch) = Batch::take(&mut bytes).unwrap() {
                from = batch.header().last_offset() + 1;
                let records = Records::of(&batch, 1 << 20).unwrap();
                for record in records.iter() {
                    let record = record.unwrap();
                    let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                    all.push((record.offset, value));
                }
            }
            if all.len() == before {
                return all;
            }
        }
    }

    fn latest(&mut self, topic: &str, isolation_level: i8) -> i64 {
        let partition = ListOffsetsPartition { timestamp: LATEST, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: topic.to_owned(), partitions: vec![partition] }];
        let request = ListOffsetsRequest { isolation_level, topics, ..Default::default() };
        self.client.call(request).unwrap().topics[0].partitions[0].offset
    }

    fn end_of_epoch(&mut self, topic: &str, leader_epoch: i32) -> (i32, i64) {
        let partition = EpochPartition { leader_epoch, ..EpochPartition::default() };
        let topics = vec![EpochTopic { topic: topic.to_owned(), partitions: vec![partition] }];
        let request = OffsetsForLeaderEpochRequest { topics, ..Default::default() };
        let end = self.client.call(request).unwrap().topics[0].partitions[0].clone();
        assert_eq!(end.error_code, ErrorCode::None);
        (end.leader_epoch, end.end_offset)
    }
}

/// Nothing is synced that nobody asks to be.
fn unsynced() -> Options {
    Options { flush: Policy::Never, ring_bytes: 4 << 20, ..Options::default() }
}

fn one_record(value: &str) -> Bytes {
    let mut draft = Draft::default();
    draft.push(1_000, None, Some(value.as_bytes()), &[]);
    draft.batch(Compression::None, None).pieces().concat().into()
}
