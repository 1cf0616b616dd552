//! ApiVersions, Metadata, DescribeCluster and DescribeLogDirs: what there is, and where.

use std::sync::Arc;

use super::once::once;
use super::patience::Patience;
use super::session::{NODE_ID, Session};
use crate::broker::Node;
use crate::control::{Topic, TopicSettings, check_name};
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    ApiVersionsResponse, ClusterBroker, DescribeClusterResponse, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribedLogDir, LogDirPartition, LogDirTopic, MetadataBroker,
    MetadataPartition, MetadataRequest, MetadataResponse, MetadataTopic,
};
use crate::shard::{Opening, PartitionId, TopicId};

pub(super) fn api_versions() -> ApiVersionsResponse {
    ApiVersionsResponse::of_the_band(ErrorCode::None)
}

/// Topics that are asked for by name, and are not there, are made, unless that is off.
pub(super) async fn metadata(session: Session, request: MetadataRequest) -> MetadataResponse {
    let MetadataRequest { topics, allow_auto_topic_creation, .. } = request;
    let may_create = allow_auto_topic_creation && session.node.options.auto_create;
    let topics = match topics {
        None => all(&session),
        Some(names) => {
            let mut found = Vec::new();
            for name in once(names, String::clone) {
                found.push(one(&session, name, may_create).await);
            }
            found
        }
    };
    let host = session.host.to_string();
    let broker = MetadataBroker { node_id: NODE_ID, host, port: session.port.into(), rack: None };
    MetadataResponse {
        brokers: vec![broker],
        cluster_id: Some(session.node.cluster_id().to_owned()),
        controller_id: NODE_ID,
        topics,
        ..MetadataResponse::default()
    }
}

fn all(session: &Session) -> Vec<MetadataTopic> {
    let catalog = session.node.topics.catalog();
    let topics = catalog.topics().filter(|(_, topic)| !topic.is_deleted);
    topics.map(|(id, topic)| told(session, id, topic)).collect()
}

async fn one(session: &Session, name: String, may_create: bool) -> MetadataTopic {
    let find = || {
        let catalog = session.node.topics.catalog();
        catalog.find(&name).map(|(id, topic)| told(session, id, topic))
    };
    if let Some(topic) = find() {
        return topic;
    }
    let refused = |error_code, name| MetadataTopic { error_code, name, ..MetadataTopic::default() };
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
        (None, Err(why)) => refused(why.code, name),
        (None, Ok(_)) => refused(ErrorCode::UnknownTopicOrPartition, name),
    }
}

fn told(session: &Session, id: TopicId, topic: &Topic) -> MetadataTopic {
    let partitions = (0..).zip((0..).zip(&topic.partitions)).map(|(index, (number, extents))| {
        let last = extents.last().expect("a partition has an extent");
        let partition = PartitionId { topic: id, number };
        let opening = Opening { partition, number: last.opening };
        let shard = session.node.topics.shard(last.shard);
        // A topic that is being made has its partitions in a moment.
        let leader_epoch = shard.ends(opening).map(|ends| ends.epoch);
        let is_led = !shard.has_failed() && leader_epoch.is_some();
        MetadataPartition {
            error_code: if is_led { ErrorCode::None } else { ErrorCode::LeaderNotAvailable },
            partition_index: index,
            leader_id: NODE_ID,
            leader_epoch: leader_epoch.unwrap_or(-1),
            replica_nodes: vec![NODE_ID],
            isr_nodes: vec![NODE_ID],
            offline_replicas: Vec::new(),
        }
    });
    let partitions = partitions.collect();
    MetadataTopic { name: topic.name.clone(), partitions, ..MetadataTopic::default() }
}

pub(super) fn cluster(session: &Session) -> DescribeClusterResponse {
    let (host, port) = (session.host.to_string(), session.port.into());
    DescribeClusterResponse {
        cluster_id: session.node.cluster_id().to_owned(),
        controller_id: NODE_ID,
        brokers: vec![ClusterBroker { broker_id: NODE_ID, host, port, rack: None }],
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
        let bytes = at.shard.shelf.bytes(at.opening) + unsettled;
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
