//! Produce and InitProducerId.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Answer;
use super::hints::Hints;
use super::patience::Patience;
use super::problem::Problem;
use super::session::{Located, Session};
use crate::broker::{Appended, Node};
use crate::kafka::band::Response;
use crate::kafka::batch::{self, Batch};
use crate::kafka::compression::Compression;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    InitProducerIdRequest, InitProducerIdResponse, ProducePartition, ProduceRequest,
    ProduceResponse, ProducedPartition, ProducedTopic,
};
use crate::kafka::records;
use crate::shard::{self, Misplaced, Refused};

/// Bytes to which one batch may be decompressed, to look for its keys. What has more is taken as it is.
const DECOMPRESSED_MAX: usize = 16 << 20;
/// The same of all batches of a request: others wait meanwhile.
const DECOMPRESSED_IN_ALL: usize = 32 << 20;
/// For so many bytes of those a batch counts at least: to begin takes its time.
const DECOMPRESSED_LEAST: usize = 64 << 10;

/// A batch that waits to be agreed on.
struct Submitted {
    at: Located,
    appended: oneshot::Receiver<Appended>,
    /// The time that its records got, if not their producer's.
    append_time: Option<u64>,
    /// How many voters must have it, where that is more than being committed takes.
    copies: Option<usize>,
}

/// A batch that was appended.
struct Taken {
    base_offset: i64,
    append_time: Option<u64>,
    /// Where its partition begins.
    start: i64,
    /// When its shard takes more, if not at once.
    takes_at: Option<Instant>,
}

/// Submits all batches as it is called; the future waits for them.
pub(super) fn produce(session: Session, request: ProduceRequest, version: i16) -> Answer {
    let ProduceRequest { transactional_id, acks, timeout_ms, topic_data } = request;
    let refused = match acks {
        _ if transactional_id.is_some() => Some(ErrorCode::TransactionalIdAuthorizationFailed),
        -1..=1 => None,
        _ => Some(ErrorCode::InvalidRequiredAcks),
    };
    let mut decompresses = DECOMPRESSED_IN_ALL;
    let mut submit = |topic: &str, partition: ProducePartition| match refused {
        Some(code) => Err(Problem::from(code)),
        None => submit(&session, topic, partition, version, acks != 0, &mut decompresses),
    };
    let submitted: Vec<(String, Vec<_>)> = topic_data
        .into_iter()
        .map(|topic| {
            let partitions = topic.partition_data.into_iter();
            let submitted = partitions
                .map(|partition| (partition.index, submit(&topic.name, partition)))
                .collect();
            (topic.name, submitted)
        })
        .collect();
    async move {
        // The broker's clock, not the client's: a negative timeout waits not at all.
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let deadline = Instant::now() + timeout;
        let (mut response, mut hints) = (ProduceResponse::default(), Hints::default());
        let mut takes_at = None;
        for (name, partitions) in submitted {
            let mut topic = ProducedTopic { name, ..ProducedTopic::default() };
            for (index, submitted) in partitions {
                let outcome = match submitted {
                    Ok(submitted) => match timeout_at(deadline, wait(submitted)).await {
                        Ok(outcome) => outcome,
                        Err(_elapsed) => Err(ErrorCode::RequestTimedOut.into()),
                    },
                    Err(problem) => Err(problem),
                };
                if let Ok(taken) = &outcome {
                    takes_at = takes_at.max(taken.takes_at);
                }
                let told = told(index, outcome);
                let leader = || session.leader(&topic.name, index);
                let current_leader = hints.of(told.error_code, leader);
                topic.partition_responses.push(ProducedPartition { current_leader, ..told });
            }
            response.responses.push(topic);
        }
        response.node_endpoints = hints.endpoints();
        // Kafka's clients send nothing more for so long.
        let pause = takes_at.map_or(Duration::ZERO, |at| at.duration_since(Instant::now()));
        response.throttle_time_ms = i32::try_from(pause.as_millis()).unwrap_or(i32::MAX);
        // Whoever asked for no answer gets none.
        (acks != 0).then(|| Response::from(response).into())
    }
    .boxed()
}

fn submit(
    session: &Session,
    topic: &str,
    partition: ProducePartition,
    version: i16,
    is_answered: bool,
    decompresses: &mut usize,
) -> Result<Submitted, Problem> {
    let at = session.locate(&session.node.topics.catalog(), topic, partition.index)?;
    if at.shard.has_failed() {
        return Err(ErrorCode::KafkaStorageError.into());
    }
    let copies = at.copies_wanted().filter(|_| is_answered);
    if let Some(copies) = copies
        && let Some(in_sync) = at.shard.lacks_copies(copies)
    {
        let message = format!("min.insync.replicas={copies}, and {in_sync} are in sync");
        return Err(Problem::new(ErrorCode::NotEnoughReplicas, message));
    }
    let verbatim = partition.records.clone();
    let wrong = |wrong: batch::Wrong| Problem::new(wrong.error_code(), wrong.to_string());
    let batch = Batch::produced(partition.records, version).map_err(wrong)?;
    records::check(&batch).map_err(wrong)?;
    if at.settings.is_compacted {
        check_keys(&batch, decompresses).map_err(wrong)?;
    }
    let append_time = at.settings.append_timestamps.then(|| session.node.now());
    let bytes = match append_time {
        Some(time) => stamped(batch, time),
        None => verbatim.expect("a batch was read from it"),
    };
    let room = at.shard.batch_bytes_max();
    if bytes.len() as u64 > room {
        let message = format!("a batch of {} bytes, where {room} have room", bytes.len());
        return Err(Problem::new(ErrorCode::MessageTooLarge, message));
    }
    if !at.shard.takes(bytes.len()) {
        let message = "the disk is full: delete topics or records, or give it more room";
        return Err(Problem::new(ErrorCode::KafkaStorageError, message));
    }
    let appended = at.shard.append(session.connection, at.opening, bytes);
    Ok(Submitted { at, appended, append_time, copies })
}

/// Looks for the keys of a batch, as far as the batches of its request may be decompressed.
fn check_keys(batch: &Batch, left: &mut usize) -> Result<(), batch::Wrong> {
    if batch.header().compression() == Compression::None {
        return records::check_keys(batch, batch.bytes()).1;
    }
    if *left == 0 {
        return Ok(());
    }
    let (looked, found) = records::check_keys(batch, DECOMPRESSED_MAX.min(*left));
    *left = left.saturating_sub(looked.max(DECOMPRESSED_LEAST));
    found
}

/// The batch, with the time at which it came.
fn stamped(mut batch: Batch, time: u64) -> Bytes {
    batch.stamp_append_time(i64::try_from(time).unwrap_or(i64::MAX));
    batch.pieces().concat().into()
}

async fn wait(submitted: Submitted) -> Result<Taken, Problem> {
    let Submitted { at, appended, append_time, copies } = submitted;
    let storage = || Problem::from(ErrorCode::KafkaStorageError);
    let not_leader = || Problem::from(ErrorCode::NotLeaderOrFollower);
    let Appended { answer, index, pause } = appended.await.map_err(|_gone| storage())?;
    let takes_at = (!pause.is_zero()).then(|| Instant::now() + pause);
    let base_offset = match answer {
        shard::Answer::Appended { base_offset, .. } | shard::Answer::Repeated { base_offset } => {
            base_offset
        }
        shard::Answer::Refused(refused) => return Err(told_of(refused)),
        shard::Answer::NotLeader if at.shard.has_failed() => return Err(storage()),
        // An idempotent producer sends it again, to whoever leads then.
        shard::Answer::NotLeader => return Err(not_leader()),
    };
    // It was stored before, and may be in memory alone where that does not do now.
    let must_be_durable = index.is_none() && !at.shard.group.acknowledges_at_once();
    if at.settings.waits_for_disk || must_be_durable {
        // In a shard of its own it is durable by now; a topic that was given this setting later is not
        // in one.
        let index = index.unwrap_or_else(|| at.shard.replica.lock().state.applied());
        let ended = at.shard.until_it_follows();
        tokio::select! {
            biased;
            durable = at.shard.wait_durable(index) => durable.map_err(|_failed| storage())?,
            // It may never be.
            () = ended => {
                return Err(if at.shard.has_failed() { storage() } else { not_leader() });
            }
        }
    }
    if let Some(copies) = copies {
        let index = index.unwrap_or_else(|| at.shard.replica.lock().state.applied());
        let ended = at.shard.until_it_follows();
        tokio::select! {
            biased;
            // The engine counts from 0, and this is the entry before.
            () = at.shard.group.watch_copied(copies, index.checked_sub(2)) => {}
            () = ended => {
                return Err(if at.shard.has_failed() { storage() } else { not_leader() });
            }
        }
    }
    if let Some(ms) = at.settings.flush_ms {
        at.shard.sync_within(ms);
    }
    // A topic that went meanwhile had the batch.
    let start = at.start()?;
    Ok(Taken { base_offset, append_time, start, takes_at })
}

fn told_of(refused: Refused) -> Problem {
    let code = match refused {
        Refused::NotHere => ErrorCode::NotLeaderOrFollower,
        Refused::TooLarge { .. } => ErrorCode::MessageTooLarge,
        Refused::NotABatch(_) => ErrorCode::CorruptMessage,
        Refused::Misplaced(Misplaced::OutOfOrder { .. }) => ErrorCode::OutOfOrderSequenceNumber,
        Refused::Misplaced(Misplaced::Fenced { .. }) => ErrorCode::InvalidProducerEpoch,
        Refused::NeedsCeiling(_) | Refused::Exhausted => ErrorCode::UnknownServerError,
    };
    Problem::new(code, refused.to_string())
}

fn told(index: i32, outcome: Result<Taken, Problem>) -> ProducedPartition {
    match outcome {
        Ok(Taken { base_offset, append_time, start, .. }) => ProducedPartition {
            index,
            base_offset,
            log_append_time_ms: append_time
                .map_or(-1, |time| i64::try_from(time).unwrap_or(i64::MAX)),
            log_start_offset: start,
            ..ProducedPartition::default()
        },
        Err(Problem { code, message }) => ProducedPartition {
            index,
            error_code: code,
            base_offset: -1,
            error_message: message,
            ..ProducedPartition::default()
        },
    }
}

/// An id that nobody had. Transactions are refused with the error that ends every client's attempt.
pub(super) async fn init_producer_id(
    session: Session,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |error_code| InitProducerIdResponse {
        error_code,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    };
    if request.transactional_id.is_some() {
        return refused(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    let draw = |node: Arc<Node>| async move { node.topics.producer().await };
    match session.within(Patience::unless_said(), draw).await {
        Ok(producer_id) => InitProducerIdResponse { producer_id, ..Default::default() },
        // Clients try again, at this broker or at another.
        Err(Problem { code: ErrorCode::NotController, .. }) => {
            refused(ErrorCode::CoordinatorLoadInProgress)
        }
        Err(why) => refused(why.code),
    }
}
