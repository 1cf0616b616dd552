//! Fetch: records, as soon as there are some.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::hints::Hints;
use super::nearest::{Readable, rack_of};
use super::offsets;
use super::session::{Located, READ_COMMITTED, Session, check_epoch};
use super::{Room, Told};
use crate::broker::{DataShard, Ends, Lies, Read, Reading};
use crate::kafka::band::Response;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    DivergingEpoch, FetchPartition, FetchRequest, FetchResponse, FetchTopic, FetchedPartition,
    FetchedTopic,
};
use crate::kafka::value::{Gathered, Uuid};
use crate::shard::{TopicId, let_go};

/// Since this version topics are named by their ids, and by nothing else.
const BY_ID_SINCE: i16 = 13;
/// The most that one answer holds, unless one batch is larger.
const BYTES_MAX: usize = 64 << 20;
/// Partitions that are read at once for one client.
const READS_MAX: usize = 8;
/// The preferred read replica of whoever is to read here.
const NOBODY: i32 = -1;
/// So long a client waits for room, though it would not wait for records: less than clients wait for an answer.
const ROOM_WAIT: Duration = Duration::from_secs(20);

/// A partition that is asked for, where it is.
struct Wanted {
    at: Located,
    from: i64,
    epoch: i32,
    /// Of the record before; below zero where the client does not say.
    last_epoch: i32,
    bytes_max: usize,
    isolation_level: i8,
    names_rack: bool,
    /// The node that the client is to ask instead, if there is one that is nearer to it.
    nearer: Option<i32>,
}

/// A topic that is asked for, and its partitions by their numbers.
struct WantedTopic {
    name: String,
    id: Uuid,
    partitions: Vec<(i32, Result<Wanted, ErrorCode>)>,
}

/// What was found, of all that is asked for.
#[derive(Default)]
struct Found {
    response: FetchResponse,
    bytes: usize,
    /// What was left of the bytes asked for where there is more, and it had no room in them: waiting does not
    /// fill it.
    left_bytes: usize,
    /// Batches of which an answer holds more than it sends, until they are copied: of which topic and
    /// partition of the response, and which of its batches.
    thin: Vec<(usize, usize, Range<usize>)>,
    /// A client is told at once.
    is_urgent: bool,
    /// There are records, and there was no room for any.
    has_no_room: bool,
    /// Some were left out, as they had less room than their first batch takes.
    has_left_out: bool,
    /// Shards that have records which are asked for and are not durable yet, and how far each was.
    waits_for_disk: BTreeMap<u32, u64>,
    /// The same of records that have fewer copies than their topics want: how many these are, and which entry had them.
    waits_for_copies: BTreeMap<(u32, usize), Option<u64>>,
}

/// Answers when there is as much as is asked for, something went wrong, or the time is over. What it reads
/// has room beside what others have read and not taken yet. Where it waits, it holds nothing.
pub(super) async fn fetch(session: Session, request: FetchRequest, version: i16) -> Told {
    if request.session_id != 0 {
        let error_code = ErrorCode::FetchSessionIdNotFound;
        return Response::from(FetchResponse { error_code, ..FetchResponse::default() }).into();
    }
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let begin = Instant::now();
    let (deadline, least) = (begin + wait, usize::try_from(request.min_bytes).unwrap_or(0));
    let room_deadline = deadline.max(begin + ROOM_WAIT);
    let (asked_bytes, mut needed_bytes) = (asked_bytes(&request), 0);
    let mut stop = session.stop.clone();
    let mut waited_for = None;
    loop {
        let wanted = locate(&session, &request, version);
        let notify = Arc::new(Notify::new());
        if !wait.is_zero() && least > 0 {
            // Told of what comes after this look.
            let all = wanted.iter().flat_map(|topic| &topic.partitions);
            for wanted in all.filter_map(|(_, wanted)| wanted.as_ref().ok()) {
                wanted.at.shard.replica.watch(wanted.at.opening, &notify);
                wanted.at.stays.watch(&notify);
            }
        }
        let for_records = || session.budget.for_records(asked_bytes, needed_bytes);
        let room = waited_for.take().or_else(|| for_records().now_or_never());
        let room_bytes = room.as_ref().map_or(0, Room::num_permits);
        let found = look(&wanted, room.as_ref().map(|_| room_bytes.min(asked_bytes))).await;
        let is_over = *stop.borrow() || stop.has_changed().is_err();
        let now = Instant::now();
        if room.is_some() && found.bytes > room_bytes.max(needed_bytes) {
            // A first batch that is larger: the next look has room for it.
            needed_bytes = found.bytes;
            continue;
        }
        if found.has_no_room && !found.is_urgent && now < room_deadline && !is_over {
            drop((found, wanted));
            let room = timeout_at(room_deadline, for_records());
            tokio::select! {
                room = room => waited_for = room.ok(),
                _ = stop.changed() => {}
            }
            continue;
        }
        let is_enough =
            found.bytes + found.left_bytes >= enough_bytes(least, asked_bytes, room_bytes);
        if is_enough || found.is_urgent || now >= deadline || is_over {
            return found.told(&session, room);
        }
        let mut durable = until_durable(&session, &found.waits_for_disk);
        let mut copied = until_copied(&session, &found.waits_for_copies);
        drop((found, wanted, room));
        tokio::select! {
            () = notify.notified() => {}
            _ = durable.next(), if !durable.is_empty() => {}
            _ = copied.next(), if !copied.is_empty() => {}
            () = tokio::time::sleep_until(deadline) => {}
            _ = stop.changed() => {}
        }
    }
}

/// How many bytes of records a client would take.
fn asked_bytes(request: &FetchRequest) -> usize {
    let bytes = |bytes| usize::try_from(bytes).unwrap_or(0);
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    let of_all = partitions.map(|asked| bytes(asked.partition_max_bytes));
    bytes(request.max_bytes).min(of_all.fold(0, usize::saturating_add)).min(BYTES_MAX)
}

/// With how many bytes a client is answered that wants so many at least. Who has less room than it asked
/// for has enough where half of that is full.
fn enough_bytes(least: usize, asked_bytes: usize, room_bytes: usize) -> usize {
    // Nobody gets more than that.
    let least = least.min(asked_bytes);
    if room_bytes < asked_bytes { least.min((room_bytes / 2).max(1)) } else { least }
}

impl Found {
    /// As a client is told; what its records do not need of the room is given back.
    fn told(mut self, session: &Session, room: Option<Room>) -> Told {
        if self.is_urgent {
            let mut hints = Hints::default();
            for topic in &mut self.response.responses {
                for partition in &mut topic.partitions {
                    let leader = || session.leader(&topic.topic, partition.partition_index);
                    partition.current_leader = hints.of(partition.error_code, leader);
                }
            }
            self.response.node_endpoints = hints.endpoints();
        }
        for (topic, partition, batches) in self.thin {
            let partition = &mut self.response.responses[topic].partitions[partition];
            let_go(&mut partition.records.0[batches]);
        }
        let room = room.filter(|_| self.bytes > 0).map(|mut room| {
            let rest = room.num_permits().saturating_sub(self.bytes);
            drop(room.split(rest));
            room
        });
        Told { response: self.response.into(), room }
    }
}

fn locate(session: &Session, request: &FetchRequest, version: i16) -> Vec<WantedTopic> {
    let catalog = session.node.topics.catalog();
    let rack = rack_of(request);
    let locate = |topic: &str, asked: &FetchPartition| {
        let at = session.locate(&catalog, topic, asked.partition)?;
        let bytes_max = usize::try_from(asked.partition_max_bytes).unwrap_or(0);
        let (from, epoch) = (asked.fetch_offset, asked.current_leader_epoch);
        let (last_epoch, isolation_level) = (asked.last_fetched_epoch, request.isolation_level);
        let nearer = rack.and_then(|rack| session.nearer(&at, rack));
        let names_rack = rack.is_some();
        Ok(Wanted { at, from, epoch, last_epoch, bytes_max, isolation_level, names_rack, nearer })
    };
    let name_of = |topic: &FetchTopic| {
        if version < BY_ID_SINCE {
            return Ok(topic.topic.clone());
        }
        let found = catalog.topic(TopicId(topic.topic_id.0)).filter(|topic| !topic.is_deleted);
        found.map(|topic| topic.name.clone()).ok_or(ErrorCode::UnknownTopicId)
    };
    let wanted = |topic: &FetchTopic| {
        let name = name_of(topic);
        let partitions = topic.partitions.iter().map(|asked| {
            let name = name.as_ref().map_err(|unknown| *unknown);
            (asked.partition, name.and_then(|name| locate(name, asked)))
        });
        let partitions = partitions.collect();
        WantedTopic { name: name.unwrap_or_default(), id: topic.topic_id, partitions }
    };
    request.topics.iter().map(wanted).collect()
}

/// Looks for records of at most so many bytes, or one batch that is larger; for none where there is no room.
async fn look(wanted: &[WantedTopic], room_bytes: Option<usize>) -> Found {
    let found = look_at_once(wanted, room_bytes, READS_MAX).await;
    // Nothing came before what was too large.
    let is_stuck = found.bytes == 0 && found.has_left_out;
    if is_stuck { look_at_once(wanted, room_bytes, 1).await } else { found }
}

/// The same, with so many partitions read at once: who reads many that are on the disk waits for it less often.
async fn look_at_once(
    wanted: &[WantedTopic],
    room_bytes: Option<usize>,
    reads_max: usize,
) -> Found {
    let (mut left, mut found) = (room_bytes, Found::default());
    let topics = wanted.iter().map(|topic| FetchedTopic {
        topic: topic.name.clone(),
        topic_id: topic.id,
        partitions: Vec::with_capacity(topic.partitions.len()),
    });
    found.response.responses = topics.collect();
    let all = wanted.iter().enumerate();
    let all = all.flat_map(|(place, topic)| topic.partitions.iter().map(move |one| (place, one)));
    let mut all = all.collect::<Vec<_>>().into_iter();
    let mut next = all.next();
    let mut reads = FuturesOrdered::new();
    loop {
        while let Some((topic, (number, wanted))) = next.filter(|_| reads.len() < reads_max) {
            // Those that are read may leave some of their room.
            if left == Some(0) && !reads.is_empty() {
                break;
            }
            let is_first = found.bytes == 0 && reads.is_empty();
            let begun = match wanted {
                Ok(wanted) => begin(wanted, is_first, &mut left, &mut found),
                Err(code) => Err((*code, None)),
            };
            reads.push_back(async move { (topic, *number, ended(begun).await) });
            next = all.next();
        }
        let Some((topic, number, ended)) = reads.next().await else { return found };
        let fetched = ended.map(|ended| found.take(topic, ended, &mut left));
        let partition = match fetched {
            Ok(fetched) => FetchedPartition { partition_index: number, ..fetched },
            Err((code, ends)) => {
                // What is not here yet may come before the time is over.
                found.is_urgent |= code != ErrorCode::OffsetNotAvailable;
                refused(number, code, ends)
            }
        };
        found.response.responses[topic].partitions.push(partition);
    }
}

/// A partition that is read.
struct Begun<'a> {
    at: &'a Located,
    /// Where what is read lies.
    shard: &'a Arc<DataShard>,
    ends: Ends,
    /// What, and whether it may be larger than its room; nothing, where it is at its end, or there is no room.
    reading: Option<(Reading, bool)>,
    diverging_epoch: DivergingEpoch,
    /// Who is to be asked instead.
    nearer: Option<i32>,
}

type Refused = (ErrorCode, Option<Ends>);

/// One partition, in what room is left: that is taken until it is read.
fn begin<'a>(
    wanted: &'a Wanted,
    is_first: bool,
    left: &mut Option<usize>,
    found: &mut Found,
) -> Result<Begun<'a>, Refused> {
    let Wanted { at, from, epoch, last_epoch, bytes_max, isolation_level, .. } = wanted;
    let Located { shard, opening, .. } = at;
    // A sync that ends from here on is heard of.
    let durable = shard.durable();
    let copied = at.copies_wanted().map(|copies| (copies, shard.group.copied(copies)));
    let readable = at.readable(wanted.names_rack).map_err(|code| (code, None))?;
    let Readable { ends, follows } = readable;
    check_epoch(*epoch, ends.epoch).map_err(|code| (code, Some(ends)))?;
    let out_of_range = (ErrorCode::OffsetOutOfRange, Some(ends));
    if *from < ends.start {
        return Err(out_of_range);
    }
    let beyond = match follows {
        // The leader may have it.
        true => (ErrorCode::OffsetNotAvailable, Some(ends)),
        false => out_of_range,
    };
    if follows && *from > ends.committed {
        return Err(beyond);
    }
    if *last_epoch >= 0 {
        let ended = offsets::end_of_fetched(at, ends, *last_epoch);
        let ended = ended.map_err(|code| (code, Some(ends)))?.ok_or(beyond)?;
        if ended.epoch < *last_epoch || ended.end_offset < *from {
            // It has records that are not ours: it is told at once.
            found.is_urgent = true;
            return Ok(Begun {
                at,
                shard,
                ends,
                reading: None,
                diverging_epoch: ended,
                nearer: None,
            });
        }
    }
    if *from > ends.committed {
        return Err(beyond);
    }
    if let Some(nearer) = wanted.nearer.filter(|_| !follows) {
        found.is_urgent = true;
        let diverging_epoch = DivergingEpoch::default();
        return Ok(Begun { at, shard, ends, reading: None, diverging_epoch, nearer: Some(nearer) });
    }
    let end = at.end(ends, *isolation_level);
    if end < ends.visible {
        found.waits_for_disk.entry(shard.number).or_insert(durable);
    }
    if let Some((copies, copied)) = copied.filter(|_| ends.visible < ends.committed) {
        found.waits_for_copies.entry((shard.number, copies)).or_insert(copied);
    }
    let reading = Reading { opening: *opening, from: *from, end, bytes_max: *bytes_max };
    let (shard, reading) = match at.stays.find(*from) {
        Lies::Last => (shard, reading),
        Lies::Earlier(stay) => (&stay.shard, stay.reading(reading)),
        Lies::Unknown => return Err((ErrorCode::OffsetNotAvailable, Some(ends))),
    };
    let end = reading.end;
    found.has_no_room |= left.is_none() && *from < end && shard.has(reading);
    let room = left.map(|left| left.min(*bytes_max)).filter(|room| *room > 0 || is_first);
    let reading = room.filter(|_| *from < end).map(|room| {
        *left = left.map(|left| left.saturating_sub(room));
        (Reading { bytes_max: room, ..reading }, is_first)
    });
    let diverging_epoch = DivergingEpoch::default();
    Ok(Begun { at, shard, ends, reading, diverging_epoch, nearer: None })
}

/// With what was read of it.
async fn ended(begun: Result<Begun<'_>, Refused>) -> Result<(Begun<'_>, Read), Refused> {
    let begun = begun?;
    let Some((reading, _)) = begun.reading else { return Ok((begun, Read::default())) };
    let read = begun.shard.read(reading).await;
    let mut read = read.map_err(|_why| (ErrorCode::KafkaStorageError, Some(begun.ends)))?;
    if read.is_void
        && let Some(empty) = begun.shard.pass_over(reading)
    {
        read.bytes = empty.len();
        read.batches.push(empty);
    }
    Ok((begun, read))
}

impl Found {
    /// What was read of a partition.
    fn take(
        &mut self,
        topic: usize,
        (begun, mut read): (Begun<'_>, Read),
        left: &mut Option<usize>,
    ) -> FetchedPartition {
        let Begun { at, ends, reading, diverging_epoch, nearer, .. } = begun;
        if let Some((Reading { bytes_max: room, .. }, is_first)) = reading {
            // Only what comes first may be larger than what is asked for.
            if read.bytes > room && !is_first {
                read = Read { has_more: true, ..Read::default() };
                self.has_left_out = true;
            }
            if read.has_more {
                self.left_bytes += room.saturating_sub(read.bytes);
            }
            // One that is larger takes of the others' room.
            *left = left.map(|left| (left + room).saturating_sub(read.bytes));
        }
        let partition = self.response.responses[topic].partitions.len();
        self.bytes += read.bytes;
        self.thin.extend(read.thin.into_iter().map(|batches| (topic, partition, batches)));
        FetchedPartition {
            high_watermark: ends.visible,
            last_stable_offset: at.end(ends, READ_COMMITTED),
            log_start_offset: ends.start,
            preferred_read_replica: nearer.unwrap_or(NOBODY),
            records: Gathered(read.batches),
            diverging_epoch,
            ..FetchedPartition::default()
        }
    }
}

fn refused(number: i32, error_code: ErrorCode, ends: Option<Ends>) -> FetchedPartition {
    FetchedPartition {
        partition_index: number,
        error_code,
        high_watermark: ends.map_or(-1, |ends| ends.visible),
        log_start_offset: ends.map_or(-1, |ends| ends.start),
        ..FetchedPartition::default()
    }
}

/// Done when more of these shards is durable than was.
fn until_durable(
    session: &Session,
    shards: &BTreeMap<u32, u64>,
) -> FuturesUnordered<BoxFuture<'static, ()>> {
    let wait = |(number, durable): (&u32, &u64)| -> BoxFuture<'static, ()> {
        let shard = session.node.topics.shard(*number);
        // The engine counts from 0: this is the entry behind the last that was durable.
        let more = shard.group.watch_durable(*durable);
        Box::pin(async move {
            // Where the log has stopped, whoever waits finds the time over.
            if more.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    };
    shards.iter().map(wait).collect()
}

/// Done when more of these shards has as many copies as is wanted than had.
fn until_copied(
    session: &Session,
    shards: &BTreeMap<(u32, usize), Option<u64>>,
) -> FuturesUnordered<BoxFuture<'static, ()>> {
    let wait = |((number, copies), copied): (&(u32, usize), &Option<u64>)| {
        session.node.topics.shard(*number).group.watch_copied(*copies, *copied).boxed()
    };
    shards.iter().map(wait).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that asks for no more than it wants at least was answered with half of that.
    #[test]
    fn who_has_the_room_it_asked_for_waits_for_all_it_wants() {
        const MIB: usize = 1 << 20;
        assert_eq!(enough_bytes(MIB, MIB, MIB), MIB);
        assert_eq!(enough_bytes(MIB, 64 * MIB, MIB), MIB / 2, "there will not be more");
        assert_eq!(enough_bytes(1, 64 * MIB, MIB), 1);
        assert_eq!(enough_bytes(2 * MIB, MIB, MIB), MIB, "it wants more than it takes");
        assert_eq!(enough_bytes(0, 64 * MIB, MIB), 0, "who does not wait");
        assert_eq!(enough_bytes(MIB, MIB, 0), 1, "there is no room");
    }
}
