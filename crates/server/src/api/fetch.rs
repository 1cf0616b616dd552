//! Fetch: records, as soon as there are some.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::session::{Located, READ_COMMITTED, Session, check_epoch};
use crate::broker::{Ends, Read, Reading};
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    FetchPartition, FetchRequest, FetchResponse, FetchedPartition, FetchedTopic,
};
use crate::kafka::wire::Gathered;

/// The most that one answer holds, unless one batch is larger.
const BYTES_MAX: usize = 64 << 20;

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

/// Answers when there is as much as is asked for, something went wrong, or the time is over.
pub(super) async fn fetch(session: Session, request: FetchRequest) -> FetchResponse {
    if request.session_id != 0 {
        let error_code = ErrorCode::FetchSessionIdNotFound;
        return FetchResponse { error_code, ..FetchResponse::default() };
    }
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = Instant::now() + wait;
    let least = usize::try_from(request.min_bytes).unwrap_or(0);
    let mut stop = session.stop.clone();
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
        let found = look(&wanted, &request).await;
        let is_enough = found.has_error || found.bytes >= least;
        if is_enough || Instant::now() >= deadline || *stop.borrow() {
            return found.response;
        }
        let mut durable = until_durable(&session, &found.waits_for_disk);
        tokio::select! {
            () = notify.notified() => {}
            _ = durable.next(), if !durable.is_empty() => {}
            () = tokio::time::sleep_until(deadline) => {}
            _ = stop.changed() => return found.response,
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

async fn look(wanted: &[WantedTopic], request: &FetchRequest) -> Found {
    let mut left = usize::try_from(request.max_bytes).unwrap_or(0).min(BYTES_MAX);
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
    left: &mut usize,
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
    let room = (*bytes_max).min(*left);
    let mut read = Read::default();
    if *from < end && (room > 0 || is_first) {
        let reading = Reading { opening: *opening, from: *from, end, bytes_max: room };
        let storage = |_| (ErrorCode::KafkaStorageError, Some(ends));
        read = shard.read(reading).await.map_err(storage)?;
        // Only what comes first may be larger than what is asked for.
        if read.bytes > room && !is_first {
            read = Read::default();
        }
    }
    *left = left.saturating_sub(read.bytes);
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
