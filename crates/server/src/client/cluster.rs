//! [`Cluster`]: which broker is asked what.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::error::Error;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    FindCoordinatorRequest, InitProducerIdRequest, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsTopic, ListedOffset, MetadataRequest, MetadataRequestTopic, MetadataResponse,
    MetadataTopic,
};

/// How long to wait before a coordinator that is not ready is asked for again.
const PAUSE: Duration = Duration::from_millis(100);

/// A cluster, reached through one of its brokers.
///
/// A broker that is said to lead, coordinate or control is asked at the address that it gives for
/// itself, by a connection of its own. Where there is one broker all is the one connection.
#[derive(Debug)]
pub struct Cluster {
    named: Connection,
    timeout: Duration,
    others: BTreeMap<String, Connection>,
    /// Where brokers are, by their numbers.
    brokers: BTreeMap<i32, String>,
    leaders: BTreeMap<(String, i32), i32>,
    controller: Option<i32>,
}

impl Cluster {
    /// Connects to a broker of it. Each call waits at most `timeout`.
    pub fn open(addr: &str, timeout: Duration) -> Result<Self, Error> {
        Ok(Self {
            named: Connection::open(addr, timeout)?,
            timeout,
            others: BTreeMap::new(),
            brokers: BTreeMap::new(),
            leaders: BTreeMap::new(),
            controller: None,
        })
    }

    /// The broker that was named: for what any broker answers.
    pub const fn any(&mut self) -> &mut Connection {
        &mut self.named
    }

    /// What the cluster says of these topics, or of all. Makes none.
    pub fn metadata(&mut self, topics: Option<&[String]>) -> Result<MetadataResponse, Error> {
        let metadata = self.named.call(MetadataRequest {
            topics: topics
                .map(|names| names.iter().map(|name| MetadataRequestTopic::named(name)).collect()),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        })?;
        self.brokers = metadata
            .brokers
            .iter()
            .map(|broker| (broker.node_id, address(&broker.host, broker.port)))
            .collect();
        self.controller = Some(metadata.controller_id).filter(|id| *id >= 0);
        for topic in &metadata.topics {
            for partition in &topic.partitions {
                let place = (topic.name.clone().unwrap_or_default(), partition.partition_index);
                self.leaders.insert(place, partition.leader_id);
            }
        }
        Ok(metadata)
    }

    /// What the cluster says of a topic, its partitions in their order; an error if it has none.
    pub fn topic(&mut self, name: &str) -> Result<MetadataTopic, Error> {
        let metadata = self.metadata(Some(&[name.to_owned()]))?;
        let topic = metadata.topics.into_iter().find(|topic| topic.name.as_deref() == Some(name));
        let mut topic = topic.unwrap_or_else(|| MetadataTopic {
            error_code: ErrorCode::UnknownTopicOrPartition,
            ..MetadataTopic::default()
        });
        let is_unknown = topic.error_code == ErrorCode::UnknownTopicOrPartition;
        let message = is_unknown.then(|| "there is no such topic".to_owned());
        Error::check(format!("topic {name}"), topic.error_code, message)?;
        topic.partitions.sort_by_key(|partition| partition.partition_index);
        Ok(topic)
    }

    /// The leader of a partition, as far as is known; asks if nothing is.
    pub fn leader(&mut self, topic: &str, partition: i32) -> Result<&mut Connection, Error> {
        let place = (topic.to_owned(), partition);
        if !self.leaders.contains_key(&place) {
            self.topic(topic)?;
        }
        let leader = self.leaders.get(&place).copied();
        let refused = |code| Error::Refused {
            what: format!("partition {partition} of {topic}"),
            code,
            message: None,
        };
        match leader {
            None => Err(refused(ErrorCode::UnknownTopicOrPartition)),
            Some(..0) => Err(refused(ErrorCode::LeaderNotAvailable)),
            Some(leader) => self.broker(leader),
        }
    }

    /// The leaders of a topic's partitions are asked for again when they are needed.
    pub fn forget_leaders(&mut self, topic: &str) {
        self.leaders.retain(|(of, _), _| of != topic);
    }

    /// The coordinator of a group. One that is not ready is waited for.
    pub fn coordinator(&mut self, group: &str) -> Result<&mut Connection, Error> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let question = FindCoordinatorRequest { key: group.to_owned(), key_type: 0 };
            let answer = self.named.call(question)?;
            let is_coming = matches!(
                answer.error_code,
                ErrorCode::CoordinatorNotAvailable | ErrorCode::CoordinatorLoadInProgress
            );
            if is_coming && Instant::now() < deadline {
                thread::park_timeout(PAUSE);
                continue;
            }
            let what = format!("the coordinator of group {group}");
            Error::check(what, answer.error_code, answer.error_message)?;
            let addr = address(&answer.host, answer.port);
            if self.brokers.is_empty() {
                self.metadata(Some(&[]))?;
            }
            self.brokers.insert(answer.node_id, addr);
            return self.broker(answer.node_id);
        }
    }

    /// What the batches of an idempotent producer are known again by, if they are sent twice: an id and an epoch. A broker
    /// that is not ready to give one, as Kafka's is not just after its start, is waited for.
    pub fn producer_id(&mut self) -> Result<(i64, i16), Error> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let question =
                InitProducerIdRequest { transaction_timeout_ms: i32::MAX, ..Default::default() };
            let answer = self.named.call(question)?;
            if answer.error_code == ErrorCode::CoordinatorLoadInProgress
                && Instant::now() < deadline
            {
                thread::park_timeout(PAUSE);
                continue;
            }
            Error::check("the id of a producer", answer.error_code, None)?;
            return Ok((answer.producer_id, answer.producer_epoch));
        }
    }

    /// The broker that makes and changes topics; the one that was named, if none is said to be it.
    pub fn controller(&mut self) -> Result<&mut Connection, Error> {
        if self.controller.is_none() {
            self.metadata(Some(&[]))?;
        }
        match self.controller {
            Some(controller) => self.broker(controller),
            None => Ok(&mut self.named),
        }
    }

    /// Where a topic's partitions have their first record at or behind a time in milliseconds; -1
    /// is the end, -2 the beginning. Isolation 0 counts what is acknowledged, 1 what is stable.
    /// The answer may be an error for some of them.
    pub fn offsets(
        &mut self,
        topic: &str,
        partitions: &[i32],
        timestamp: i64,
        isolation_level: i8,
    ) -> Result<Vec<ListedOffset>, Error> {
        let mut listed = Vec::with_capacity(partitions.len());
        for (partition, together) in self.by_leader(topic, partitions)? {
            let partitions = together.into_iter().map(|partition_index| ListOffsetsPartition {
                partition_index,
                timestamp,
                ..ListOffsetsPartition::default()
            });
            let partitions = partitions.collect();
            let topics = vec![ListOffsetsTopic { name: topic.to_owned(), partitions }];
            let question =
                ListOffsetsRequest { isolation_level, topics, ..ListOffsetsRequest::default() };
            let answer = self.leader(topic, partition)?.call(question)?;
            listed.extend(answer.topics.into_iter().flat_map(|topic| topic.partitions));
        }
        listed.sort_by_key(|offset| offset.partition_index);
        Ok(listed)
    }

    /// Partitions that have the same leader, beside one of them.
    pub fn by_leader(
        &mut self,
        topic: &str,
        partitions: &[i32],
    ) -> Result<Vec<(i32, Vec<i32>)>, Error> {
        let mut by_leader: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for partition in partitions {
            let leader = self.leader(topic, *partition)?.addr().to_owned();
            by_leader.entry(leader).or_default().push(*partition);
        }
        Ok(by_leader.into_values().map(|together| (together[0], together)).collect())
    }

    /// The numbers of all brokers.
    pub fn brokers(&mut self) -> Result<Vec<i32>, Error> {
        let metadata = self.metadata(Some(&[]))?;
        Ok(metadata.brokers.into_iter().map(|broker| broker.node_id).collect())
    }

    /// The broker with this number; the one that was named, if nobody has it.
    pub fn broker(&mut self, id: i32) -> Result<&mut Connection, Error> {
        let Some(addr) = self.brokers.get(&id) else { return Ok(&mut self.named) };
        if self.brokers.len() == 1 || addr == self.named.addr() {
            return Ok(&mut self.named);
        }
        if !self.others.contains_key(addr) {
            self.others.insert(addr.clone(), Connection::open(addr, self.timeout)?);
        }
        Ok(self.others.get_mut(addr).expect("it was just there"))
    }
}

/// `host:port`, in brackets where the host has colons itself.
fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
