//! ListOffsets, OffsetsForLeaderEpoch and DeleteRecords.

use std::sync::Arc;

use super::heavy::heavy;
use super::once::once;
use super::patience::Patience;
use super::session::{Located, Session, check_epoch};
use crate::broker::{DataShard, Ends, Node, Reading};
use crate::kafka::batch::Batch;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeletedRecordsPartition,
    DeletedRecordsTopic, DivergingEpoch, EpochEnd, EpochEndTopic, EpochPartition,
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListedOffset,
    ListedOffsetsTopic, OffsetsForLeaderEpochRequest, OffsetsForLeaderEpochResponse,
};
use crate::kafka::records;
use crate::shard::{Item, Opening, Partition};

/// The next offset.
const LATEST: i64 = -1;
/// The first offset.
const EARLIEST: i64 = -2;
/// Bytes to which one batch may be decompressed, to find a timestamp in it.
const DECOMPRESSED_MAX: usize = 64 << 20;
/// Batches whose header names a later timestamp than their records have, before the search ends.
const MISLEADING_MAX: usize = 16;

pub(super) async fn list(session: Session, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let mut response = ListOffsetsResponse::default();
    // Each may take a while.
    for topic in once(&request.topics, |topic| &topic.name) {
        let mut partitions = Vec::new();
        for asked in once(&topic.partitions, |asked| asked.partition_index) {
            let partition_index = asked.partition_index;
            let listed = list_one(&session, &topic.name, asked, request.isolation_level).await;
            partitions.push(match listed {
                Ok(listed) => ListedOffset { partition_index, ..listed },
                Err(error_code) => {
                    ListedOffset { partition_index, error_code, ..ListedOffset::default() }
                }
            });
        }
        response.topics.push(ListedOffsetsTopic { name: topic.name.clone(), partitions });
    }
    response
}

async fn list_one(
    session: &Session,
    topic: &str,
    asked: &ListOffsetsPartition,
    isolation_level: i8,
) -> Result<ListedOffset, ErrorCode> {
    let (at, ends) = find(session, topic, asked.partition_index)?;
    check_epoch(asked.current_leader_epoch, ends.epoch)?;
    let leader_epoch = ends.epoch;
    let at_offset = |offset| ListedOffset { offset, leader_epoch, ..ListedOffset::default() };
    match asked.timestamp {
        LATEST => Ok(at_offset(at.end(ends, isolation_level))),
        EARLIEST => Ok(at_offset(ends.start)),
        timestamp @ 0.. => match at_time(&at, ends, timestamp).await? {
            Some((offset, timestamp)) => Ok(ListedOffset { timestamp, ..at_offset(offset) }),
            None => Ok(ListedOffset::default()),
        },
        _ => Err(ErrorCode::UnsupportedVersion),
    }
}

/// The first record with this timestamp or a later one: its offset and timestamp.
async fn at_time(
    at: &Located,
    ends: Ends,
    timestamp: i64,
) -> Result<Option<(i64, i64)>, ErrorCode> {
    for stay in at.stays.iter() {
        let ended = stay.with(|partition| partition.is_closed().then(|| partition.next()));
        // What has gone has no records; what is not here yet may have.
        let Some(ended) = ended else { continue };
        let end = ended.ok_or(ErrorCode::OffsetNotAvailable)?.min(ends.visible);
        let found = at_time_in(&stay.shard, stay.opening, (ends.start, end), timestamp).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    at_time_in(&at.shard, at.opening, (ends.start, ends.visible), timestamp).await
}

/// The same of one stay of the partition, between these offsets.
async fn at_time_in(
    shard: &Arc<DataShard>,
    opening: Opening,
    (first, end): (i64, i64),
    timestamp: i64,
) -> Result<Option<(i64, i64)>, ErrorCode> {
    // First in the log: what is settled in between is found in chapters then.
    let in_log = {
        let shard = shard.replica.lock();
        let partition = shard.state.partition(opening);
        let partition = partition.ok_or(ErrorCode::UnknownTopicOrPartition)?;
        partition.point_at_time(timestamp).map(|point| point.base_offset.max(first))
    };
    let settled = shard.settled_at(opening, first, timestamp).await;
    let settled = settled.map_err(|_failed| ErrorCode::KafkaStorageError)?;
    let Some(mut from) = settled.or(in_log) else { return Ok(None) };
    let mut misled = 0;
    while from < end && misled < MISLEADING_MAX {
        // One batch, whatever its size.
        let reading = Reading { opening, from, end, bytes_max: 1 };
        let read = shard.read(reading).await.map_err(|_failed| ErrorCode::KafkaStorageError)?;
        let Some(mut bytes) = read.batches.into_iter().next() else {
            // It has expired meanwhile, and what is left begins behind it.
            let start = shard.start(opening).ok_or(ErrorCode::UnknownTopicOrPartition)?;
            if start <= from {
                return Ok(None);
            }
            from = start;
            continue;
        };
        let batch = Batch::take(&mut bytes).ok().flatten().ok_or(ErrorCode::CorruptMessage)?;
        from = batch.header().last_offset() + 1;
        if batch.header().max_timestamp() < timestamp {
            continue;
        }
        // Of the first batch the first records may have been deleted.
        let find = move || records::first_since(&batch, first, timestamp, DECOMPRESSED_MAX);
        let found = heavy(find).await.ok_or(ErrorCode::NotLeaderOrFollower)?;
        if let Some(found) = found.map_err(|_wrong| ErrorCode::CorruptMessage)? {
            return Ok(Some(found));
        }
        misled += 1;
    }
    Ok(None)
}

fn find(session: &Session, topic: &str, number: i32) -> Result<(Located, Ends), ErrorCode> {
    let at = session.locate(&session.node.topics.catalog(), topic, number)?;
    let ends = at.ends()?;
    Ok((at, ends))
}

pub(super) fn for_epochs(
    session: &Session,
    request: &OffsetsForLeaderEpochRequest,
) -> OffsetsForLeaderEpochResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let partition = asked.partition;
            match end_of(session, &topic.topic, asked) {
                Ok((leader_epoch, end_offset)) => {
                    EpochEnd { partition, leader_epoch, end_offset, ..EpochEnd::default() }
                }
                Err(error_code) => EpochEnd { partition, error_code, ..EpochEnd::default() },
            }
        });
        EpochEndTopic { topic: topic.topic.clone(), partitions: partitions.collect() }
    });
    OffsetsForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }
}

/// The last epoch that is not above the one that is asked for, and where it ended; -1 and -1 if none is
/// known.
fn end_of(session: &Session, topic: &str, asked: &EpochPartition) -> Result<(i32, i64), ErrorCode> {
    let (at, ends) = find(session, topic, asked.partition)?;
    check_epoch(asked.current_leader_epoch, ends.epoch)?;
    if asked.leader_epoch == ends.epoch {
        return Ok((ends.epoch, ends.committed));
    }
    let end = end_of_epoch(&at, asked.leader_epoch)?;
    Ok(end.filter(|_| asked.leader_epoch < ends.epoch).unwrap_or((-1, -1)))
}

/// The last epoch that is not above this one, in whatever stay, and where it ended.
fn end_of_epoch(at: &Located, epoch: i32) -> Result<Option<(i32, i64)>, ErrorCode> {
    let own = {
        let shard = at.shard.replica.lock();
        shard.state.partition(at.opening).and_then(|partition| partition.end_of_epoch(epoch))
    };
    match own {
        Some(own) => Ok(Some(own)),
        None => at.stays.end_of_epoch(epoch).map_err(|_unknown| ErrorCode::OffsetNotAvailable),
    }
}

/// Where the epoch ended that a client fetched last, as Kafka says it to who fetches: if all that are known
/// are above it, its records have expired up to where the first of those begins. `None` where it has not
/// begun here.
///
/// # Errors
/// [`ErrorCode::OffsetNotAvailable`] where this replica has not heard of all of an earlier stay.
pub(super) fn end_of_fetched(
    at: &Located,
    ends: Ends,
    epoch: i32,
) -> Result<Option<DivergingEpoch>, ErrorCode> {
    if epoch >= ends.epoch {
        let end_offset = ends.committed;
        return Ok((epoch == ends.epoch).then_some(DivergingEpoch { epoch, end_offset }));
    }
    let own = {
        let shard = at.shard.replica.lock();
        shard.state.partition(at.opening).map(Partition::begin_of_epochs)
    };
    let Some(own) = own else { return Ok(None) };
    // All stays are known here once this is.
    let ended = end_of_epoch(at, epoch)?;
    let begin = || (epoch, at.stays.begin_of_epochs().unwrap_or(own).max(ends.start));
    let (epoch, end_offset) = ended.unwrap_or_else(begin);
    Ok(Some(DivergingEpoch { epoch, end_offset }))
}

pub(super) async fn delete_records(
    session: Session,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let mut response = DeleteRecordsResponse::default();
    let patience = Patience::of(request.timeout_ms);
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let partition_index = asked.partition_index;
            partitions.push(match trim(&session, &topic.name, asked, patience).await {
                Ok(low_watermark) => DeletedRecordsPartition {
                    partition_index,
                    low_watermark,
                    ..DeletedRecordsPartition::default()
                },
                Err(error_code) => {
                    DeletedRecordsPartition { partition_index, low_watermark: -1, error_code }
                }
            });
        }
        response.topics.push(DeletedRecordsTopic { name: topic.name.clone(), partitions });
    }
    response
}

/// Where the partition begins then.
async fn trim(
    session: &Session,
    topic: &str,
    asked: &DeleteRecordsPartition,
    patience: Patience,
) -> Result<i64, ErrorCode> {
    let (at, ends) = find(session, topic, asked.partition_index)?;
    let is_only_compacted = {
        let catalog = session.node.topics.catalog();
        catalog.find(topic).is_some_and(|(_, topic)| topic.settings.is_only_compacted())
    };
    if is_only_compacted {
        return Err(ErrorCode::PolicyViolation);
    }
    let start = if asked.offset == LATEST { ends.committed } else { asked.offset };
    if !(0..=ends.committed).contains(&start) {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    if start > ends.start {
        // Deleted with the topic in the meantime, the shard has nothing to trim.
        let trim = Item::Trim { opening: at.opening, start };
        let shard = Arc::clone(&at.shard);
        let (partition, last) = (at.opening.partition, at.stays.end());
        let act = move |node: Arc<Node>| async move {
            if last.is_some() {
                node.topics.shed(partition, start).await?;
            }
            if last.is_none_or(|last| last < start) {
                shard.act(vec![trim]).await?;
            }
            Ok(())
        };
        session.within(patience, act).await.map_err(|why| why.code)?;
    }
    find(session, topic, asked.partition_index)?.0.start()
}
