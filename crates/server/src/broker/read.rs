//! [`Reading`]: reading a partition, from memory or from the log.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::data::DataShard;
use super::error::Failed;
use crate::shard::{Fetched, Held, Opening, fetch};

/// Bytes of the log that are read at once for a partition that is behind the tail.
const AHEAD_BYTES: usize = 1 << 20;

/// Bytes of entries that were read lately and are kept, at most.
const LATELY_BYTES: usize = 8 << 20;

/// Entries that were read from the log lately, by their index: who reads on needs the next of them.
#[derive(Debug, Default)]
pub(super) struct Lately(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_index: BTreeMap<u64, Held>,
    bytes: usize,
}

/// What is to be read of a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) opening: Opening,
    /// The first offset.
    pub(crate) from: i64,
    /// The offset behind the last.
    pub(crate) end: i64,
    /// At most so many bytes, but at least a batch.
    pub(crate) bytes_max: usize,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) batches: Vec<Bytes>,
    pub(crate) bytes: usize,
}

impl DataShard {
    /// Reads batches. Waits for the disk, on another thread, only where none are in memory.
    pub(crate) async fn read(self: &Arc<Self>, reading: Reading) -> Result<Read, Failed> {
        let mut found: HashMap<u64, Held> = HashMap::new();
        loop {
            let Fetched { batches, needs } = self.look(reading, &found);
            match needs.filter(|_| batches.is_empty()) {
                Some(index) => found.extend(self.read_log(index).await?),
                None => {
                    let bytes = batches.iter().map(Bytes::len).sum();
                    return Ok(Read { batches, bytes });
                }
            }
        }
    }

    fn look(&self, reading: Reading, found: &HashMap<u64, Held>) -> Fetched {
        let Reading { opening, from, end, bytes_max } = reading;
        let shard = self.replica.lock();
        let find = |index| shard.tail.find(index).or_else(|| found.get(&index));
        fetch(&shard.state, opening, from, end, bytes_max, find)
    }

    /// Entries of the log, from this one on.
    async fn read_log(self: &Arc<Self>, index: u64) -> Result<HashMap<u64, Held>, Failed> {
        let found = self.lately.from(index);
        if !found.is_empty() {
            return Ok(found);
        }
        let (group, number) = (Arc::clone(&self.group), self.number);
        let lately = Arc::clone(&self.lately);
        let read = move || {
            let failed = |why| Failed::Shard { number, why };
            // The engine counts from 0.
            let entries = group.read(index - 1, AHEAD_BYTES).map_err(failed)?;
            drop(group);
            let held = entries.into_iter().filter_map(|(index, payload)| {
                Some((index + 1, Held::new(payload?).expect("what was applied is an entry")))
            });
            let held: HashMap<_, _> = held.collect();
            if !held.contains_key(&index) {
                // It went, by retention, between two looks.
                return Err(Failed::Gone { number, index });
            }
            lately.keep(&held);
            Ok(held)
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|_ended| Failed::Offline { number: self.number })?
    }
}

impl Lately {
    /// Those from this one on, without a hole, as many as are read at once; none if it is not here.
    fn from(&self, index: u64) -> HashMap<u64, Held> {
        let (kept, mut bytes) = (self.lock(), 0);
        let in_turn = kept.by_index.range(index..).zip(index..).take_while(|((of, held), next)| {
            let has_room = bytes < AHEAD_BYTES;
            bytes += held.held_bytes();
            *of == next && has_room
        });
        in_turn.map(|((of, held), _)| (*of, held.clone())).collect()
    }

    /// Keeps what was read. Who reads goes forward: where it is too much the first go.
    fn keep(&self, read: &HashMap<u64, Held>) {
        let mut kept = self.lock();
        for (index, held) in read {
            kept.bytes += held.held_bytes();
            if let Some(before) = kept.by_index.insert(*index, held.clone()) {
                kept.bytes -= before.held_bytes();
            }
        }
        while kept.bytes > LATELY_BYTES {
            let Some((_, first)) = kept.by_index.pop_first() else { break };
            kept.bytes -= first.held_bytes();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
