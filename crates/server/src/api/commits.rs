//! OffsetCommit, OffsetFetch and OffsetDelete: how far groups have come.

use std::collections::HashSet;

use super::members::told_of;
use super::session::Session;
use crate::broker::Asked;
use crate::groups::{Answer, Commit, Committing, Refusal, TopicPartition};
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommittedPartition, OffsetCommittedTopic,
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeletedPartition, OffsetDeletedTopic,
    OffsetFetchRequest, OffsetFetchResponse, OffsetFetchedPartition, OffsetFetchedTopic,
};

/// Durable on return, but for partitions that are not there.
pub(super) async fn commit(session: Session, request: OffsetCommitRequest) -> OffsetCommitResponse {
    let retention_ms = u64::try_from(request.retention_time_ms).ok();
    let mut offsets = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let at = place(&session, &topic.name, partition.partition_index);
            // Its place among those that are asked for, if it is one.
            partitions.push((partition.partition_index, at.is_some().then_some(offsets.len())));
            offsets.extend(at.map(|at| {
                let committing = Committing {
                    offset: partition.committed_offset,
                    epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata,
                    retention_ms,
                };
                (at, committing)
            }));
        }
        topics.push((topic.name, partitions));
    }
    let commit = Commit {
        group: request.group_id,
        generation: request.generation_id,
        member: request.member_id,
        instance: request.group_instance_id,
        offsets,
    };
    let answer = session.node.groups.ask(Asked::Commit(commit)).await;
    let topics = topics.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(partition_index, place)| {
            let error_code = code(&answer, place);
            OffsetCommittedPartition { partition_index, error_code }
        });
        OffsetCommittedTopic { name, partitions: partitions.collect() }
    });
    OffsetCommitResponse { topics: topics.collect(), ..OffsetCommitResponse::default() }
}

/// What became of the one at this place among those that were asked for; of one that is not there if it
/// has none.
fn code(answer: &Answer, place: Option<usize>) -> ErrorCode {
    let Some(place) = place else { return ErrorCode::UnknownTopicOrPartition };
    match answer {
        Answer::Each(each) => each.get(place).map_or(ErrorCode::UnknownServerError, told_of),
        answer => super::members::code_of(answer),
    }
}

/// The partition, if it is there.
fn place(session: &Session, topic: &str, number: i32) -> Option<TopicPartition> {
    session.locate(&session.node.topics.catalog(), topic, number).ok()?;
    Some(TopicPartition { topic: topic.to_owned(), partition: number })
}

pub(super) fn fetch(session: &Session, request: &OffsetFetchRequest) -> OffsetFetchResponse {
    if !session.node.groups.is_read_here() {
        return refused(request, ErrorCode::NotCoordinator);
    }
    let (store, catalog) = (session.node.groups.store(), session.node.topics.catalog());
    // Of a topic that is being deleted there is no offset any more.
    let is_there = |topic: &str| catalog.find(topic).is_some();
    let group = &request.group_id;
    let asked: Vec<(String, Vec<i32>)> = match &request.topics {
        Some(topics) => {
            topics.iter().map(|t| (t.name.clone(), t.partition_indexes.clone())).collect()
        }
        None => {
            let mut all: Vec<(String, Vec<i32>)> = Vec::new();
            let offsets = store.group(group).into_iter().flat_map(|group| group.offsets());
            for (topic, partition, _) in offsets.filter(|(topic, ..)| is_there(topic)) {
                match all.last_mut().filter(|(last, _)| last == topic) {
                    Some((_, partitions)) => partitions.push(partition),
                    None => all.push((topic.to_owned(), vec![partition])),
                }
            }
            all
        }
    };
    // What is committed has a text of its own, so that what is asked twice is answered once.
    let mut answered = HashSet::new();
    let topics = asked.iter().map(|(name, partitions)| {
        let once = partitions.iter().filter(|partition| answered.insert((name, **partition)));
        let partitions = once.map(|&partition_index| {
            let committed = store.committed(group, name, partition_index);
            let committed = committed.filter(|_| is_there(name));
            OffsetFetchedPartition {
                partition_index,
                committed_offset: committed.map_or(-1, |committed| committed.offset),
                committed_leader_epoch: committed.map_or(-1, |committed| committed.epoch),
                // Some clients take none for an error where nothing was committed.
                metadata: committed
                    .map_or(Some(String::new()), |committed| committed.metadata.clone()),
                error_code: ErrorCode::None,
            }
        });
        let partitions = partitions.collect();
        OffsetFetchedTopic { name: name.clone(), partitions }
    });
    OffsetFetchResponse { topics: topics.collect(), ..OffsetFetchResponse::default() }
}

/// Old clients look for the error at each partition.
fn refused(request: &OffsetFetchRequest, error_code: ErrorCode) -> OffsetFetchResponse {
    let mut answered = HashSet::new();
    let topics = request.topics.iter().flatten().map(|topic| {
        let mut once = topic.partition_indexes.clone();
        once.retain(|partition| answered.insert((&topic.name, *partition)));
        let partitions = once.into_iter().map(|partition_index| OffsetFetchedPartition {
            partition_index,
            committed_offset: -1,
            committed_leader_epoch: -1,
            metadata: Some(String::new()),
            error_code,
        });
        OffsetFetchedTopic { name: topic.name.clone(), partitions: partitions.collect() }
    });
    OffsetFetchResponse { topics: topics.collect(), error_code, ..OffsetFetchResponse::default() }
}

pub(super) async fn delete(session: Session, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    let mut wanted = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            wanted.push(TopicPartition { topic: topic.name.clone(), partition: *partition });
        }
    }
    let answer = session.node.groups.ask(Asked::Forget(request.group_id, wanted)).await;
    let each: Vec<Result<(), Refusal>> = match answer {
        Answer::Each(each) => each,
        answer => {
            let error_code = super::members::code_of(&answer);
            return OffsetDeleteResponse { error_code, ..OffsetDeleteResponse::default() };
        }
    };
    let mut each = each.iter();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let partitions = topic.partitions.into_iter().map(|partition_index| {
            let error_code = each.next().map_or(ErrorCode::UnknownServerError, told_of);
            OffsetDeletedPartition { partition_index, error_code }
        });
        let partitions = partitions.collect();
        topics.push(OffsetDeletedTopic { name: topic.name, partitions });
    }
    OffsetDeleteResponse { topics, ..OffsetDeleteResponse::default() }
}
