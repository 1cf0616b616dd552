//! Waiting until one record is as safe as somebody wants it.

use std::sync::Arc;

use tokio::sync::Notify;

use super::data::DataShard;
use super::node::Node;
use super::stays::{Lies, Whereabouts};
use crate::shard::Opening;

/// How safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// C: it is acknowledged.
    Acknowledged,
    /// D: a power cut leaves it.
    Durable,
}

/// A record that nobody needs to wait for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRecord {
    /// There is no such partition, or it went meanwhile.
    #[error("there is no partition {number} of a topic {topic:?}")]
    NoPartition {
        /// Of which topic.
        topic: String,
        /// Which.
        number: u32,
    },
    /// It was deleted: by its age, or by somebody.
    #[error("offset {offset} was deleted: the partition begins at {start}")]
    Deleted {
        /// Its offset.
        offset: i64,
        /// The oldest that can be read.
        start: i64,
    },
    /// A fence gave the offset up.
    #[error(
        "offset {offset} names no record: after a loss, offsets {from} to {last} were given up"
    )]
    GivenUp {
        /// The offset.
        offset: i64,
        /// The first that was.
        from: i64,
        /// The last that was.
        last: i64,
    },
    /// The shard has failed.
    #[error("shard {shard} is offline: {why}")]
    Offline {
        /// Which.
        shard: u32,
        /// Why.
        why: String,
    },
}

/// What has to happen before a record is safe enough.
enum Lacks {
    Nothing,
    /// It was not acknowledged yet.
    Record,
    /// The entry with this index of the shard is not durable yet.
    Disk(u64),
}

impl Node {
    /// Waits until the record with this offset is as safe as that, however long it takes. It asks for no
    /// sync unless `has_it_synced`: the record is durable when it would have been anyhow.
    ///
    /// # Errors
    /// [`NoRecord`]: there is nothing to wait for.
    pub async fn await_record(
        &self,
        topic: &str,
        number: u32,
        offset: i64,
        level: Level,
        has_it_synced: bool,
    ) -> Result<(), NoRecord> {
        loop {
            let gone = || NoRecord::NoPartition { topic: topic.to_owned(), number };
            let placed = self.topics.find(&self.topics.catalog(), topic, number);
            let Whereabouts { shard, opening, stays } = placed.ok_or_else(gone)?;
            let told = Arc::new(Notify::new());
            // Told of what comes after this look.
            shard.replica.watch(opening, &told);
            stays.watch(&told);
            let lacks = match stays.find(offset) {
                // An earlier stay ended durably. What comes before all of them was deleted.
                Lies::Earlier(stay) => lacks(&stay.shard, stay.opening, offset, level),
                Lies::Unknown => Some(Ok(Lacks::Record)),
                Lies::Last => lacks(&shard, opening, offset, level),
            };
            match lacks.ok_or_else(gone)?? {
                Lacks::Nothing => return Ok(()),
                Lacks::Record => told.notified().await,
                Lacks::Disk(index) => shard.await_disk(index, has_it_synced).await?,
            }
        }
    }
}

/// What a record lacks; `None` if the partition is not there.
fn lacks(
    shard: &DataShard,
    opening: Opening,
    offset: i64,
    level: Level,
) -> Option<Result<Lacks, NoRecord>> {
    let ends = shard.ends(opening)?;
    let replica = shard.replica.lock();
    let partition = replica.state.partition(opening)?;
    let start = partition.start();
    if offset < start {
        return Some(Err(NoRecord::Deleted { offset, start }));
    }
    if let Some(gap) = partition.gaps().find(|gap| (gap.from..gap.to).contains(&offset)) {
        let (from, last) = (gap.from, gap.to - 1);
        return Some(Err(NoRecord::GivenUp { offset, from, last }));
    }
    if offset >= ends.committed {
        return Some(Ok(Lacks::Record));
    }
    if level == Level::Acknowledged || offset < ends.durable {
        return Some(Ok(Lacks::Nothing));
    }
    let entry = partition.point_of(offset).map(|point| point.index);
    Some(Ok(entry.map_or(Lacks::Nothing, Lacks::Disk)))
}

impl DataShard {
    async fn await_disk(&self, index: u64, has_it_synced: bool) -> Result<(), NoRecord> {
        // The engine counts from 0.
        let index = index - 1;
        let durable = match has_it_synced {
            true => self.group.wait_durable(index).await,
            false => self.group.watch_durable(index).await,
        };
        durable.map_err(|why| NoRecord::Offline { shard: self.number, why: why.to_string() })
    }
}
