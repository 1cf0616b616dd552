//! [`Reading`]: reading a partition, from memory or from the log.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::data::DataShard;
use super::error::Failed;
use crate::shard::{Fetched, Held, Opening, fetch};

/// Bytes of the log that are read at once for a partition that is behind the tail.
const AHEAD_BYTES: usize = 1 << 20;

/// Bytes of entries that were read lately and are kept, at most.
const LATELY_BYTES: usize = 8 << 20;

/// Entries that were read from the log lately, oldest first: who reads on needs the next of them.
#[derive(Debug, Default)]
pub(super) struct Lately(Mutex<VecDeque<(u64, Held)>>);

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
        if let Some(held) = self.lately.find(index) {
            return Ok([(index, held)].into());
        }
        let (group, number) = (Arc::clone(&self.group), self.number);
        let read = move || {
            let failed = |why| Failed::Shard { number, why };
            // The engine counts from 0.
            let entries = group.read(index - 1, AHEAD_BYTES).map_err(failed)?;
            drop(group);
            let held = entries.into_iter().filter_map(|(index, payload)| {
                Some((index + 1, Held::new(payload?).expect("what was applied is an entry")))
            });
            let held: HashMap<_, _> = held.collect();
            match held.contains_key(&index) {
                true => Ok(held),
                // It went, by retention, between two looks.
                false => Err(Failed::Gone { number, index }),
            }
        };
        let read = tokio::task::spawn_blocking(read).await;
        let held = read.map_err(|_ended| Failed::Offline { number: self.number })??;
        self.lately.keep(&held);
        Ok(held)
    }
}

impl Lately {
    fn find(&self, index: u64) -> Option<Held> {
        let kept = self.lock();
        kept.iter().find(|(of, _)| *of == index).map(|(_, held)| held.clone())
    }

    /// Keeps what was read, instead of what was read before it.
    fn keep(&self, read: &HashMap<u64, Held>) {
        let mut kept = self.lock();
        kept.retain(|(index, _)| !read.contains_key(index));
        kept.extend(read.iter().map(|(index, held)| (*index, held.clone())));
        let mut bytes: usize = kept.iter().map(|(_, held)| held.held_bytes()).sum();
        while bytes > LATELY_BYTES {
            let Some((_, oldest)) = kept.pop_front() else { break };
            bytes -= oldest.held_bytes();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Held)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
