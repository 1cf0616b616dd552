//! ApiVersions, Metadata, DescribeCluster and DescribeLogDirs: what there is, and where.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::once::once;
use super::patience::Patience;
use super::problem::Problem;
use super::session::{Broker, Session, kafka_id};
use crate::broker::{DataShard, Node};
use crate::control::{Topic, TopicSettings, check_name};
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    ApiVersionsResponse, ClusterBroker, DescribeClusterResponse, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribedLogDir, LogDirPartition, LogDirTopic, MetadataBroker,
    MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataTopic,
};
use crate::kafka::value::Uuid;
use crate::shard::{Opening, PartitionId, TopicId};

pub(super) fn api_versions() -> ApiVersionsResponse {
    ApiVersionsResponse::of_the_band(ErrorCode::None)
}

/// Since this version topics are asked for by their ids too.
const BY_ID_SINCE: i16 = 12;

/// Topics that are asked for by name, and are not there, are made, unless that is off.
pub(super) async fn metadata(
    session: Session,
    request: MetadataRequest,
    version: i16,
) -> MetadataResponse {
    let MetadataRequest { topics, allow_auto_topic_creation, .. } = request;
    let may_create = allow_auto_topic_creation && session.node.options.auto_create;
    let topics = match topics {
        None => all(&session),
        Some(asked) => {
            let mut found = Vec::new();
            for MetadataRequestTopic { topic_id, name } in
                once(asked, |one| (one.topic_id, one.name.clone()))
            {
                found.push(match name {
                    Some(name) if topic_id == Uuid::ZERO => one(&session, name, may_create).await,
                    None if version >= BY_ID_SINCE => with_id(&session, topic_id),
                    name => refused(ErrorCode::InvalidRequest, name.unwrap_or_default()),
                });
            }
            found
        }
    };
    let brokers = session.brokers().into_iter().map(|broker| {
        let Broker { id: node_id, host, port, rack } = broker;
        MetadataBroker { node_id, host, port, rack }
    });
    MetadataResponse {
        brokers: brokers.collect(),
        cluster_id: Some(session.node.cluster_id().to_owned()),
        controller_id: session.id_of(session.node.controller()),
        topics,
        ..MetadataResponse::default()
    }
}

fn all(session: &Session) -> Vec<MetadataTopic> {
    let catalog = session.node.topics.catalog();
    let topics = catalog.topics().filter(|(_, topic)| !topic.is_deleted);
    let leaders = leaders(session);
    topics.map(|(id, topic)| told(&leaders, id, topic)).collect()
}

/// Who leads a shard of records, and who has it.
struct Led {
    shard: Arc<DataShard>,
    leader_id: i32,
    replicas: Vec<i32>,
}

/// The same for all partitions of a shard: found out once.
fn leaders(session: &Session) -> BTreeMap<u32, Led> {
    let led = |shard: &Arc<DataShard>| {
        let leader_id = session.id_of(session.node.leader_of(shard));
        let replicas = session.replicas(shard).into_iter().map(kafka_id).collect();
        (shard.number, Led { shard: Arc::clone(shard), leader_id, replicas })
    };
    session.node.topics.shards().iter().map(led).collect()
}

fn refused(error_code: ErrorCode, name: String) -> MetadataTopic {
    MetadataTopic { error_code, name: Some(name), ..MetadataTopic::default() }
}

fn with_id(session: &Session, topic_id: Uuid) -> MetadataTopic {
    let catalog = session.node.topics.catalog();
    let id = TopicId(topic_id.0);
    match catalog.topic(id).filter(|topic| !topic.is_deleted) {
        Some(topic) => told(&leaders(session), id, topic),
        None => {
            let error_code = ErrorCode::UnknownTopicId;
            MetadataTopic { error_code, topic_id, ..MetadataTopic::default() }
        }
    }
}

async fn one(session: &Session, name: String, may_create: bool) -> MetadataTopic {
    let find = || {
        let catalog = session.node.topics.catalog();
        catalog.find(&name).map(|(id, topic)| told(&leaders(session), id, topic))
    };
    if let Some(topic) = find() {
        return topic;
    }
    if check_name(&name).is_err() {
        return refused(ErrorCode::InvalidTopicException, name);
    }
    if !may_create {
        return refused(ErrorCode::UnknownTopicOrPartition, name);
    }
    let partitions = session.node.options.partitions;
    let create = {
        let name = name.clone();
        move |node: Arc<Node>| async move {
            node.topics.create(&name, partitions, TopicSettings::default()).await
        }
    };
    let made = session.within(Patience::unless_said(), create).await;
    match (find(), made) {
        // Made by us, or by somebody else meanwhile.
        (Some(topic), _) => topic,
        // Whoever is the controller makes it, and only that one.
        (None, Err(Problem { code: ErrorCode::NotController, .. })) => {
            refused(ErrorCode::LeaderNotAvailable, name)
        }
        (None, Err(why)) => refused(why.code, name),
        (None, Ok(_)) => refused(ErrorCode::UnknownTopicOrPartition, name),
    }
}

fn told(leaders: &BTreeMap<u32, Led>, id: TopicId, topic: &Topic) -> MetadataTopic {
    let partitions = (0..).zip((0..).zip(&topic.partitions)).map(|(index, (number, extents))| {
        let last = extents.last().expect("a partition has an extent");
        let partition = PartitionId { topic: id, number };
        let opening = Opening { partition, number: last.opening };
        let led = &leaders[&last.shard];
        // A topic that is being made has its partitions in a moment.
        let leader_epoch = led.shard.ends(opening).map(|ends| ends.epoch);
        let is_led = led.leader_id >= 0 && leader_epoch.is_some();
        MetadataPartition {
            error_code: if is_led { ErrorCode::None } else { ErrorCode::LeaderNotAvailable },
            partition_index: index,
            leader_id: led.leader_id,
            leader_epoch: leader_epoch.unwrap_or(-1),
            replica_nodes: led.replicas.clone(),
            isr_nodes: led.replicas.clone(),
            offline_replicas: Vec::new(),
        }
    });
    let partitions = partitions.collect();
    let (name, topic_id) = (Some(topic.name.clone()), Uuid(id.0));
    MetadataTopic { name, topic_id, partitions, ..MetadataTopic::default() }
}

pub(super) fn cluster(session: &Session) -> DescribeClusterResponse {
    let brokers = session.brokers().into_iter().map(|broker| {
        let Broker { id: broker_id, host, port, rack } = broker;
        ClusterBroker { broker_id, host, port, rack }
    });
    DescribeClusterResponse {
        cluster_id: session.node.cluster_id().to_owned(),
        controller_id: session.id_of(session.node.controller()),
        brokers: brokers.collect(),
        ..DescribeClusterResponse::default()
    }
}

pub(super) fn log_dirs(
    session: &Session,
    request: &DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let catalog = session.node.topics.catalog();
    let all = || catalog.topics().filter(|(_, topic)| !topic.is_deleted);
    let asked: Vec<(String, Vec<i32>)> = match &request.topics {
        Some(topics) => {
            topics.iter().map(|topic| (topic.topic.clone(), topic.partitions.clone())).collect()
        }
        None => all()
            .map(|(_, topic)| {
                let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
                (topic.name.clone(), (0..count).collect())
            })
            .collect(),
    };
    let size = |name: &str, partition_index| {
        let at = session.locate(&catalog, name, partition_index).ok()?;
        let unsettled = at.shard.replica.lock().state.partition(at.opening)?.bytes();
        let bytes = at.shard.shelf.bytes(at.opening) + unsettled + at.stays.bytes();
        let partition_size = i64::try_from(bytes).unwrap_or(i64::MAX);
        Some(LogDirPartition { partition_index, partition_size, ..LogDirPartition::default() })
    };
    let topics = asked.into_iter().map(|(name, numbers)| {
        let partitions = numbers.into_iter().filter_map(|number| size(&name, number)).collect();
        LogDirTopic { name, partitions }
    });
    let topics = topics.filter(|topic| !topic.partitions.is_empty()).collect();
    let log_dir = session.node.dir().display().to_string();
    let result = DescribedLogDir { log_dir, topics, ..DescribedLogDir::default() };
    DescribeLogDirsResponse { results: vec![result], ..DescribeLogDirsResponse::default() }
}
