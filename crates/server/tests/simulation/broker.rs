//! [`Broker`]: a node on a simulated disk, and a client that tells what it was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_server::broker::{Failed, Node, Options};
use plimsoll_server::client::Error;
use plimsoll_server::kafka::band::Question;
use plimsoll_server::kafka::batch::{Batch, Producer};
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    AlterableConfig, AlterableResource, CreatableTopic, CreatePartitionsRequest,
    CreateTopicsRequest, DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
    DeleteTopicsRequest, FetchPartition, FetchRequest, FetchTopic, GrowingTopic,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, ListOffsetsPartition,
    ListOffsetsRequest, ListOffsetsTopic, OffsetCommitPartition, OffsetCommitRequest,
    OffsetCommitTopic, OffsetFetchRequest, OffsetFetchTopic, ProducePartition, ProduceRequest,
    ProduceTopic, TopicConfig,
};
use plimsoll_server::kafka::records::{Draft, Record, Records};
use plimsoll_simdisk::SimDir;

use crate::model::Shown;
use crate::served::Served;

/// Less than a client waits, and long beside a disk that works.
const TIMEOUT_MS: i32 = 20_000;
/// Of a disk that does not, what takes longer may as well be refused.
const FAULTY_TIMEOUT_MS: i32 = 100;
/// What an answer holds at most, of one partition.
const FETCH_BYTES: i32 = 1 << 20;

pub(crate) struct Broker {
    served: Served,
    /// Its disk fails, or goes down.
    pub(crate) is_faulty: bool,
    /// What of its chapters cannot be read.
    pub(crate) damage: Option<Damage>,
}

/// A run of a chapter that is not what was written.
#[derive(Debug, Clone)]
pub(crate) struct Damage {
    pub(crate) shard: u32,
    pub(crate) partition: usize,
    pub(crate) offsets: Range<i64>,
    /// Where it ends cannot be told: an offset behind it, with which no other run begins, may be of it.
    pub(crate) is_endless: bool,
    /// Topics of which somebody was told so.
    pub(crate) topics: BTreeSet<String>,
}

/// What is produced to one partition.
#[derive(Debug, Clone)]
pub(crate) struct Produced {
    pub(crate) topic: String,
    pub(crate) partition: usize,
    pub(crate) records: Vec<u64>,
    pub(crate) producer: Option<Producer>,
    pub(crate) compression: Compression,
}

/// What a topic is made with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub(crate) partitions: usize,
    pub(crate) is_durable: bool,
    pub(crate) cleanup: Cleanup,
}

/// What a topic is told to let go of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cleanup {
    /// `cleanup.policy`. Where it is empty all is as it is.
    pub(crate) policy: &'static str,
    pub(crate) delete_retention_ms: u64,
    pub(crate) retention_bytes: Option<u64>,
}

/// What one answer holds of a partition.
struct Fetched {
    records: Vec<(i64, u64)>,
    /// The offset behind the last.
    end: i64,
    bytes: u64,
}

impl Broker {
    pub(crate) fn start(disk: &Arc<SimDir>, options: Options) -> Result<Self, Failed> {
        let served = Served::start(disk, options)?;
        Ok(Self { served, is_faulty: false, damage: None })
    }

    pub(crate) fn node(&self) -> &Node {
        &self.served.node
    }

    /// Serves nobody any more.
    pub(crate) fn stop(self) -> Node {
        self.served.stop()
    }

    /// For how long a request is tried.
    fn timeout_ms(&self) -> i32 {
        if self.is_faulty { FAULTY_TIMEOUT_MS } else { TIMEOUT_MS }
    }

    /// The answer; `None` where the connection is of no use any more.
    fn ask<Q: Question>(&mut self, question: Q) -> Option<Q::Answer> {
        match self.served.client.call(question) {
            Ok(answer) => Some(answer),
            Err(error @ Error::TimedOut { .. }) => panic!("no answer: {error}"),
            Err(_broken) => None,
        }
    }

    /// Whether a topic is made.
    pub(crate) fn create(&mut self, name: &str, wanted: Wanted) -> bool {
        let flush = wanted.is_durable.then(|| ("flush.messages", "1".to_owned()));
        let configs = flush.into_iter().chain(wanted.cleanup.configs());
        let config = |(name, value): (&str, String)| TopicConfig {
            name: name.to_owned(),
            value: Some(value),
        };
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: i32::try_from(wanted.partitions).unwrap(),
            replication_factor: 1,
            configs: configs.map(config).collect(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: self.timeout_ms(),
            ..Default::default()
        };
        self.ask(request).is_some_and(|told| told.topics[0].error_code == ErrorCode::None)
    }

    /// Whether it has so many partitions now.
    pub(crate) fn grow(&mut self, name: &str, partitions: usize) -> bool {
        let count = i32::try_from(partitions).unwrap();
        let topic = GrowingTopic { name: name.to_owned(), count, assignments: None };
        let request = CreatePartitionsRequest {
            topics: vec![topic],
            timeout_ms: self.timeout_ms(),
            ..Default::default()
        };
        self.ask(request).is_some_and(|told| told.results[0].error_code == ErrorCode::None)
    }

    /// Whether it lets go of something else from here on.
    pub(crate) fn alter(&mut self, name: &str, cleanup: Cleanup) -> bool {
        const TOPIC: i8 = 2;
        let config = |(name, value): (&str, String)| AlterableConfig {
            name: name.to_owned(),
            config_operation: 0,
            value: Some(value),
        };
        let configs = cleanup.configs().into_iter().map(config).collect();
        let resource_name = name.to_owned();
        let resources = vec![AlterableResource { resource_type: TOPIC, resource_name, configs }];
        let told = self.ask(IncrementalAlterConfigsRequest { resources, validate_only: false });
        told.is_some_and(|told| told.responses[0].error_code == ErrorCode::None)
    }

    /// Whether it is gone.
    pub(crate) fn delete(&mut self, name: &str) -> bool {
        let request = DeleteTopicsRequest {
            topic_names: vec![name.to_owned()],
            timeout_ms: self.timeout_ms(),
        };
        self.ask(request).is_some_and(|told| told.responses[0].error_code == ErrorCode::None)
    }

    pub(crate) fn producer(&mut self) -> Option<i64> {
        let told = self.ask(InitProducerIdRequest::default())?;
        (told.error_code == ErrorCode::None).then_some(told.producer_id)
    }

    /// The offset of the first record of each, or why there is none. Nothing, if there is no answer.
    pub(crate) fn produce(&mut self, all: &[Produced]) -> Option<Vec<Result<i64, ErrorCode>>> {
        let topic = |one: &Produced| ProduceTopic {
            name: one.topic.clone(),
            partition_data: vec![ProducePartition {
                index: i32::try_from(one.partition).unwrap(),
                records: Some(one.batch()),
            }],
        };
        let topic_data = all.iter().map(topic).collect();
        let (transactional_id, acks, timeout_ms) = (None, -1, self.timeout_ms());
        let request = ProduceRequest { transactional_id, acks, timeout_ms, topic_data };
        let told = self.ask(request)?;
        let one = told.responses.iter().map(|topic| &topic.partition_responses[0]);
        let outcome = |code, offset| if code == ErrorCode::None { Ok(offset) } else { Err(code) };
        Some(one.map(|one| outcome(one.error_code, one.base_offset)).collect())
    }

    /// All that can be seen of a partition.
    pub(crate) fn look(&mut self, topic: &str, partition: usize) -> Option<Shown> {
        self.look_from(topic, partition, 0, FETCH_BYTES)
    }

    /// What can be seen of it from an offset on, or from its first, in answers of about so many bytes.
    pub(crate) fn look_from(
        &mut self,
        topic: &str,
        partition: usize,
        from: i64,
        bytes_max: i32,
    ) -> Option<Shown> {
        loop {
            let start = self.node().topic(topic)?.partition.get(partition)?.start;
            if from < start {
                let told = self.fetch(topic, partition, from, bytes_max);
                assert!(!matches!(told, Some(Ok(_))), "{topic}-{partition} begins at {start}");
            }
            let shown = self.see(topic, partition, from.max(start), bytes_max);
            // What expires while somebody looks is there no more, and the next look is whole.
            if self.node().topic(topic)?.partition.get(partition)?.start == start {
                return shown;
            }
        }
    }

    fn see(&mut self, topic: &str, partition: usize, begin: i64, bytes_max: i32) -> Option<Shown> {
        let shards = self.node().shards();
        let seen = self.node().topic(topic)?.partition.get(partition)?.clone();
        let shard = shards.iter().find(|shard| shard.number == seen.shard);
        let chapters = shard.and_then(|shard| shard.chapters);
        let is_settled = chapters.is_some_and(|all| all.waiting == 0 && all.open_bytes == 0);
        let gaps = seen.gaps.iter().map(|gap| gap.from..gap.to).collect();
        let (mut records, mut from, mut bytes) = (BTreeMap::<i64, u64>::new(), begin, 0);
        while from < seen.committed {
            let fetched = match self.fetch(topic, partition, from, bytes_max)? {
                Ok(fetched) => fetched,
                Err(ErrorCode::KafkaStorageError) => {
                    from = self.behind_damage(topic, partition, seen.shard, from)?;
                    continue;
                }
                Err(_refused) => return None,
            };
            if fetched.end == from {
                break;
            }
            for (offset, record) in fetched.records {
                let last = records.last_key_value().map(|(last, _)| *last);
                assert!(last < Some(offset), "{offset} comes behind {last:?}");
                records.insert(offset, record);
            }
            bytes += fetched.bytes;
            from = fetched.end;
        }
        // What came after the first look, and what stands in the batch that holds the first.
        records.retain(|offset, _| (begin..seen.committed).contains(offset));
        let (committed, epoch) = (seen.committed, seen.epoch);
        // What is compacted meanwhile became durable first.
        let durable = self.node().topic(topic)?.partition.get(partition)?.durable.min(committed);
        let start = seen.start;
        let from = begin;
        Some(Shown { from, start, records, bytes, is_settled, committed, durable, epoch, gaps })
    }

    /// Where to go on, if what comes next cannot be read, and nothing else is wrong.
    fn behind_damage(
        &mut self,
        topic: &str,
        partition: usize,
        shard: u32,
        from: i64,
    ) -> Option<i64> {
        let damage = self.damage.as_mut()?;
        let is_it = (damage.shard, damage.partition) == (shard, partition);
        if is_it && damage.is_endless && damage.offsets.end <= from {
            return Some(from + 1);
        }
        if !is_it || damage.offsets.end <= from {
            return None;
        }
        damage.topics.insert(topic.to_owned());
        Some(damage.offsets.end)
    }

    /// Records from the batch on that holds an offset, and where to go on; or why there are none.
    fn fetch(
        &mut self,
        topic: &str,
        partition: usize,
        from: i64,
        partition_max_bytes: i32,
    ) -> Option<Result<Fetched, ErrorCode>> {
        let partition = FetchPartition {
            partition: i32::try_from(partition).unwrap(),
            fetch_offset: from,
            partition_max_bytes,
            ..FetchPartition::default()
        };
        let topics = vec![FetchTopic {
            topic: topic.to_owned(),
            partitions: vec![partition],
            ..Default::default()
        }];
        let mut told = self.ask(FetchRequest { topics, ..FetchRequest::default() })?;
        let told = told.responses.remove(0).partitions.remove(0);
        if told.error_code != ErrorCode::None {
            return Some(Err(told.error_code));
        }
        let mut bytes: Bytes = told.records.0.concat().into();
        let mut fetched = Fetched { records: vec![], end: from, bytes: bytes.len() as u64 };
        while let Some(batch) = Batch::take(&mut bytes).unwrap() {
            let last = batch.header().last_offset();
            assert!(last >= fetched.end, "a batch that ends at {last}, from {from} on");
            fetched.end = last + 1;
            for record in Records::of(&batch, 2 << 20).unwrap().iter() {
                let record = record.unwrap();
                let number = number(&record);
                fetched.records.push((record.offset, number));
            }
        }
        Some(Ok(fetched))
    }

    /// The first offset that stays, once all below this one are deleted; or why they are not. Nothing, if there
    /// is no answer.
    pub(crate) fn delete_records(
        &mut self,
        topic: &str,
        partition: usize,
        offset: i64,
    ) -> Option<Result<i64, ErrorCode>> {
        let partition_index = i32::try_from(partition).unwrap();
        let partitions = vec![DeleteRecordsPartition { partition_index, offset }];
        let topics = vec![DeleteRecordsTopic { name: topic.to_owned(), partitions }];
        let told = self.ask(DeleteRecordsRequest { topics, timeout_ms: self.timeout_ms() })?;
        let told = &told.topics[0].partitions[0];
        let is_done = told.error_code == ErrorCode::None;
        Some(if is_done { Ok(told.low_watermark) } else { Err(told.error_code) })
    }

    /// Offset and timestamp of the first record with this timestamp or a later one, if there is one; nothing, if
    /// there is no answer.
    pub(crate) fn at_time(
        &mut self,
        topic: &str,
        partition: usize,
        timestamp: i64,
    ) -> Option<Option<(i64, i64)>> {
        let partition_index = i32::try_from(partition).unwrap();
        let asked = ListOffsetsPartition { partition_index, timestamp, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: topic.to_owned(), partitions: vec![asked] }];
        let told = self.ask(ListOffsetsRequest { topics, ..ListOffsetsRequest::default() })?;
        let told = &told.topics[0].partitions[0];
        let found = Some((told.offset, told.timestamp)).filter(|_| told.offset >= 0);
        (told.error_code == ErrorCode::None).then_some(found)
    }

    /// Whether a group has committed an offset.
    pub(crate) fn commit(
        &mut self,
        group: u32,
        topic: &str,
        partition: usize,
        offset: i64,
    ) -> bool {
        let partition = OffsetCommitPartition {
            partition_index: i32::try_from(partition).unwrap(),
            committed_offset: offset,
            ..OffsetCommitPartition::default()
        };
        let topics =
            vec![OffsetCommitTopic { name: topic.to_owned(), partitions: vec![partition] }];
        let group_id = format!("group-{group}");
        let request = OffsetCommitRequest { group_id, topics, ..OffsetCommitRequest::default() };
        let told = self.ask(request);
        told.is_some_and(|told| told.topics[0].partitions[0].error_code == ErrorCode::None)
    }

    /// What a group has committed; nothing, if there is no answer.
    pub(crate) fn committed(
        &mut self,
        group: u32,
        topic: &str,
        partition: usize,
    ) -> Option<Option<i64>> {
        let partition_indexes = vec![i32::try_from(partition).unwrap()];
        let topics = vec![OffsetFetchTopic { name: topic.to_owned(), partition_indexes }];
        let request =
            OffsetFetchRequest { group_id: format!("group-{group}"), topics: Some(topics) };
        let told = self.ask(request)?.topics[0].partitions[0].clone();
        let is_told = told.error_code == ErrorCode::None;
        is_told.then(|| Some(told.committed_offset).filter(|offset| *offset >= 0))
    }
}

impl Cleanup {
    pub(crate) fn compacts(self) -> bool {
        self.policy.contains("compact")
    }

    /// All of them: what was set before and is not named stays.
    fn configs(self) -> Vec<(&'static str, String)> {
        if self.policy.is_empty() {
            return Vec::new();
        }
        let bytes = self.retention_bytes.map_or("-1".to_owned(), |bytes| bytes.to_string());
        vec![
            ("cleanup.policy", self.policy.to_owned()),
            ("delete.retention.ms", self.delete_retention_ms.to_string()),
            ("retention.bytes", bytes),
        ]
    }
}

impl Produced {
    fn batch(&self) -> Bytes {
        let mut draft = Draft::default();
        for record in &self.records {
            let (key, value) = (key(*record).map(|key| key.to_string()), value(*record));
            let name = record.to_string();
            let headers = [(&b"number"[..], Some(name.as_bytes()))];
            let key = key.as_deref().map(str::as_bytes);
            draft.push(timestamp(*record), key, value.as_deref(), &headers);
        }
        draft.batch(self.compression, self.producer).pieces().concat().into()
    }
}

/// When a record says that it was made: later ones are later, mostly.
pub(crate) fn timestamp(number: u64) -> i64 {
    i64::try_from(number / 10 + number * 7919 % 400).unwrap()
}

/// Its key: there are few, and a record has none at times.
pub(crate) fn key(number: u64) -> Option<u64> {
    let drawn = mixed(number) % 16;
    (drawn > 0).then_some(drawn % 10)
}

/// Whether it deletes what its key had.
pub(crate) fn is_tombstone(number: u64) -> bool {
    key(number).is_some() && (mixed(number) / 16).is_multiple_of(3)
}

/// What a record says: its number, and something behind it.
fn value(number: u64) -> Option<Vec<u8>> {
    let padding = match number % 32 {
        0 => 200_000,
        1..=4 => 5_000,
        rest => usize::try_from(rest).unwrap(),
    };
    let mut value = format!("{number} ").into_bytes();
    value.resize(value.len() + padding, b'.');
    (!is_tombstone(number)).then_some(value)
}

fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}

/// The number of a record that is byte for byte what was sent.
fn number(record: &Record<'_>) -> u64 {
    let mut headers = record.headers;
    let (name, value_of_name) = headers.next().expect("it has one");
    assert_eq!(name, b"number");
    let number = std::str::from_utf8(value_of_name.unwrap()).unwrap().parse().unwrap();
    let is_key = record.key == key(number).map(|key| key.to_string()).as_deref().map(str::as_bytes);
    let is_value = record.value == value(number).as_deref();
    let is_it = is_key && is_value && record.timestamp == timestamp(number);
    assert!(is_it && headers.next().is_none(), "record {number} is not what was sent: {record:?}");
    number
}
