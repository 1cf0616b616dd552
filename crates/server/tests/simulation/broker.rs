//! [`Broker`]: a node on a simulated disk, and a client that tells what it was answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_server::broker::{Failed, Node, Options};
use plimsoll_server::client::Error;
use plimsoll_server::kafka::band::Question;
use plimsoll_server::kafka::batch::{Batch, Producer};
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    CreatableTopic, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    FetchPartition, FetchRequest, FetchTopic, GrowingTopic, InitProducerIdRequest,
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, OffsetFetchRequest,
    OffsetFetchTopic, ProducePartition, ProduceRequest, ProduceTopic, TopicConfig,
};
use plimsoll_server::kafka::records::{Draft, Records};
use plimsoll_simdisk::SimDir;

use crate::model::Shown;
use crate::served::Served;

/// Less than a client waits, and long beside a disk that works.
const TIMEOUT_MS: i32 = 20_000;
/// Of a disk that does not, what takes longer may as well be refused.
const FAULTY_TIMEOUT_MS: i32 = 100;

pub(crate) struct Broker {
    served: Served,
    /// Its disk fails, or goes down.
    pub(crate) is_faulty: bool,
}

/// What is produced to one partition.
#[derive(Debug, Clone)]
pub(crate) struct Produced {
    pub(crate) topic: String,
    pub(crate) partition: usize,
    pub(crate) records: Vec<u64>,
    pub(crate) producer: Option<Producer>,
}

impl Broker {
    pub(crate) fn start(disk: &Arc<SimDir>, options: Options) -> Result<Self, Failed> {
        Ok(Self { served: Served::start(disk, options)?, is_faulty: false })
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
    pub(crate) fn create(&mut self, name: &str, partitions: usize, is_durable: bool) -> bool {
        let configs = is_durable.then(|| TopicConfig {
            name: "flush.messages".to_owned(),
            value: Some("1".to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: i32::try_from(partitions).unwrap(),
            replication_factor: 1,
            configs: configs.into_iter().collect(),
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
        let seen = self.node().topic(topic)?.partition.get(partition)?.clone();
        let gaps = seen.gaps.iter().map(|gap| gap.from..gap.to).collect();
        let (mut records, mut from) = (BTreeMap::<i64, u64>::new(), 0);
        while from < seen.committed {
            let (fetched, end) = self.fetch(topic, partition, from)?;
            if end == from {
                break;
            }
            records.extend(fetched);
            from = end;
        }
        // What came after the first look.
        records.retain(|offset, _| *offset < seen.committed);
        let (committed, durable, epoch) = (seen.committed, seen.durable, seen.epoch);
        Some(Shown { records, committed, durable, epoch, gaps })
    }

    /// Records from an offset on, and where to go on.
    fn fetch(
        &mut self,
        topic: &str,
        partition: usize,
        from: i64,
    ) -> Option<(Vec<(i64, u64)>, i64)> {
        let partition = FetchPartition {
            partition: i32::try_from(partition).unwrap(),
            fetch_offset: from,
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        };
        let topics = vec![FetchTopic { topic: topic.to_owned(), partitions: vec![partition] }];
        let mut told = self.ask(FetchRequest { topics, ..FetchRequest::default() })?;
        let told = told.responses.remove(0).partitions.remove(0);
        if told.error_code != ErrorCode::None {
            return None;
        }
        let (mut bytes, mut all, mut end): (Bytes, _, _) =
            (told.records.0.concat().into(), vec![], from);
        while let Some(batch) = Batch::take(&mut bytes).unwrap() {
            end = batch.header().last_offset() + 1;
            for record in Records::of(&batch, 2 << 20).unwrap().iter() {
                let record = record.unwrap();
                all.push((record.offset, number(record.value.unwrap())));
            }
        }
        Some((all, end))
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

impl Produced {
    fn batch(&self) -> Bytes {
        let mut draft = Draft::default();
        for record in &self.records {
            draft.push(1_000, None, Some(&value(*record)), &[]);
        }
        draft.batch(Compression::None, self.producer).pieces().concat().into()
    }
}

/// What a record says: its number, and something behind it.
fn value(number: u64) -> Vec<u8> {
    let padding = match number % 32 {
        0 => 200_000,
        1..=4 => 5_000,
        rest => usize::try_from(rest).unwrap(),
    };
    let mut value = format!("{number} ").into_bytes();
    value.resize(value.len() + padding, b'.');
    value
}

/// The number of a record that says what it should.
fn number(bytes: &[u8]) -> u64 {
    let text = bytes.split(|byte| *byte == b' ').next().unwrap();
    let number = std::str::from_utf8(text).unwrap().parse().unwrap();
    assert!(bytes == value(number), "record {number} is not what was sent");
    number
}
