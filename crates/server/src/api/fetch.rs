//! Fetch: records, as soon as there are some.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::session::{Located, READ_COMMITTED, Session, check_epoch};
use super::{Room, Told};
use crate::broker::{Ends, Read, Reading};
use crate::kafka::band::Response;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    FetchPartition, FetchRequest, FetchResponse, FetchedPartition, FetchedTopic,
};
use crate::kafka::wire::Gathered;

/// The most that one answer holds, unless one batch is larger.
const BYTES_MAX: usize = 64 << 20;
/// So long a client waits for room at least, whatever it says: less than clients wait for an answer.
const ROOM_WAIT: Duration = Duration::from_secs(20);

/// A partition that is asked for, where it is.
struct Wanted {
    at: Located,
    from: i64,
    epoch: i32,
    bytes_max: usize,
    isolation_level: i8,
}

/// What was found, of all that is asked for.
struct Found {
    response: FetchResponse,
    bytes: usize,
    /// A client is told at once.
    has_error: bool,
    /// Shards that have records which are asked for and are not durable yet.
    waits_for_disk: Vec<u32>,
}

/// Answers when there is as much as is asked for, something went wrong, or the time is over. What it reads
/// has room beside what others have read and not taken yet; where there is none in time, it reads nothing.
pub(super) async fn fetch(session: Session, request: FetchRequest) -> Told {
    if request.session_id != 0 {
        let error_code = ErrorCode::FetchSessionIdNotFound;
        return Response::from(FetchResponse { error_code, ..FetchResponse::default() }).into();
    }
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = Instant::now() + wait;
    let least = usize::try_from(request.min_bytes).unwrap_or(0);
    let mut stop = session.stop.clone();
    let (asked_bytes, mut needed_bytes) = (asked_bytes(&request), 0);
    loop {
        let wanted = locate(&session, &request);
        let notify = Arc::new(Notify::new());
        if !wait.is_zero() && least > 0 {
            // Told of what comes after this look.
            for wanted in
                wanted.iter().flat_map(|(_, all)| all).filter_map(|(_, w)| w.as_ref().ok())
            {
                wanted.at.shard.replica.watch(wanted.at.opening, &notify);
            }
        }
        let room = session.budget.for_records(asked_bytes, needed_bytes);
        let room = timeout_at(deadline.max(Instant::now() + ROOM_WAIT), room).await.ok();
        let room_bytes = room.as_ref().map(Room::num_permits);
        let found = look(&wanted, room_bytes.map(|bytes| bytes.min(asked_bytes))).await;
        if room_bytes.is_some_and(|room| found.bytes > room.max(needed_bytes)) {
            // A first batch that is larger: the next look has room for it, or all there can be.
            needed_bytes = found.bytes;
            continue;
        }
        let is_enough = found.has_error || found.bytes >= least;
        if is_enough || Instant::now() >= deadline || *stop.borrow() {
            let room = room.and_then(|room| kept(room, found.bytes));
            return Told { response: found.response.into(), room };
        }
        drop(room);
        let mut durable = until_durable(&session, &found.waits_for_disk);
        tokio::select! {
            () = notify.notified() => {}
            _ = durable.next(), if !durable.is_empty() => {}
            () = tokio::time::sleep_until(deadline) => {}
            _ = stop.changed() => return Response::from(found.response).into(),
        }
    }
}

type WantedTopic = (String, Vec<(i32, Result<Wanted, ErrorCode>)>);

fn locate(session: &Session, request: &FetchRequest) -> Vec<WantedTopic> {
    let catalog = session.node.topics.catalog();
    let locate = |topic: &str, asked: &FetchPartition| {
        let at = session.locate(&catalog, topic, asked.partition)?;
        let bytes_max = usize::try_from(asked.partition_max_bytes).unwrap_or(0);
        let (from, epoch) = (asked.fetch_offset, asked.current_leader_epoch);
        Ok(Wanted { at, from, epoch, bytes_max, isolation_level: request.isolation_level })
    };
    let topics = request.topics.iter();
    topics
        .map(|topic| {
            let partitions = topic.partitions.iter();
            let wanted = partitions.map(|asked| (asked.partition, locate(&topic.topic, asked)));
            (topic.topic.clone(), wanted.collect())
        })
        .collect()
}

/// How many bytes of records a client would take.
fn asked_bytes(request: &FetchRequest) -> usize {
    let bytes = |bytes| usize::try_from(bytes).unwrap_or(0);
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    let of_all = partitions.map(|asked| bytes(asked.partition_max_bytes));
    bytes(request.max_bytes).min(of_all.fold(0, usize::saturating_add)).min(BYTES_MAX)
}

/// So much of a room; the rest is given back.
fn kept(mut room: Room, bytes: usize) -> Option<Room> {
    let rest = room.num_permits().saturating_sub(bytes);
    drop(room.split(rest));
    (bytes > 0).then_some(room)
}

/// Looks for records of at most so many bytes, or one batch that is larger; for none where there is no room.
async fn look(wanted: &[WantedTopic], room_bytes: Option<usize>) -> Found {
    let mut left = room_bytes;
    let mut found = Found {
        response: FetchResponse::default(),
        bytes: 0,
        has_error: false,
        waits_for_disk: Vec::new(),
    };
    for (name, partitions) in wanted {
        let mut topic = FetchedTopic { topic: name.clone(), ..FetchedTopic::default() };
        for (number, wanted) in partitions {
            let fetched = match wanted {
                Ok(wanted) => one(wanted, &mut left, &mut found).await,
                Err(code) => Err((*code, None)),
            };
            topic.partitions.push(match fetched {
                Ok(fetched) => FetchedPartition { partition_index: *number, ..fetched },
                Err((code, ends)) => {
                    found.has_error = true;
                    refused(*number, code, ends)
                }
            });
        }
        found.response.responses.push(topic);
    }
    found
}

/// One partition, in what room is left.
async fn one(
    wanted: &Wanted,
    left: &mut Option<usize>,
    found: &mut Found,
) -> Result<FetchedPartition, (ErrorCode, Option<Ends>)> {
    let Wanted { at, from, epoch, bytes_max, isolation_level } = wanted;
    let Located { shard, opening, .. } = at;
    let ends = shard.ends(*opening).ok_or((ErrorCode::UnknownTopicOrPartition, None))?;
    check_epoch(*epoch, ends.epoch).map_err(|code| (code, Some(ends)))?;
    if !(ends.start..=ends.committed).contains(from) {
        return Err((ErrorCode::OffsetOutOfRange, Some(ends)));
    }
    let end = at.end(ends, *isolation_level);
    if end < ends.committed {
        found.waits_for_disk.push(shard.number);
    }
    let is_first = found.bytes == 0;
    let mut read = Read::default();
    let room = left.map(|left| left.min(*bytes_max)).filter(|room| *room > 0 || is_first);
    if let Some(room) = room.filter(|_| *from < end) {
        let reading = Reading { opening: *opening, from: *from, end, bytes_max: room };
        let storage = |_| (ErrorCode::KafkaStorageError, Some(ends));
        read = shard.read(reading).await.map_err(storage)?;
        // Only what comes first may be larger than what is asked for.
        if read.bytes > room && !is_first {
            read = Read::default();
        }
    }
    *left = left.map(|left| left.saturating_sub(read.bytes));
    found.bytes += read.bytes;
    Ok(FetchedPartition {
        high_watermark: ends.committed,
        last_stable_offset: at.end(ends, READ_COMMITTED),
        log_start_offset: ends.start,
        records: Gathered(read.batches),
        ..FetchedPartition::default()
    })
}

fn refused(number: i32, error_code: ErrorCode, ends: Option<Ends>) -> FetchedPartition {
    FetchedPartition {
        partition_index: number,
        error_code,
        high_watermark: ends.map_or(-1, |ends| ends.committed),
        log_start_offset: ends.map_or(-1, |ends| ends.start),
        ..FetchedPartition::default()
    }
}

/// Done when more of these shards is durable than now.
fn until_durable(session: &Session, shards: &[u32]) -> FuturesUnordered<BoxFuture<'static, ()>> {
    let mut numbers = shards.to_vec();
    numbers.dedup();
    let wait = |number| -> BoxFuture<'static, ()> {
        let shard = session.node.topics.shard(number);
        // The engine counts from 0: this is the entry behind the last that is durable.
        let more = shard.group.watch_durable(shard.durable());
        Box::pin(async move {
            // Where the log has stopped, whoever waits finds the time over.
            if more.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    };
    numbers.into_iter().map(wait).collect()
}
