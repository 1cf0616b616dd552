//! [`Replica`]: what a data shard's entries have made here, and who waits for more.
//!
//! The engine applies on its thread; requests read here. Each holds the lock for as long as it
//! takes to look, never while it waits for anything.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::{Notify, watch};

use super::keeper::Kept;
use crate::cluster::{Apply, Stop};
use crate::shard::{Held, Opening, Outcome, State, Tail};

/// A data shard, as far as it is applied.
#[derive(Debug)]
pub(crate) struct Replica {
    shard: Mutex<Shard>,
    /// Bytes of entries that were applied.
    pub(super) applied_bytes: Arc<AtomicU64>,
    /// Something was deleted since somebody looked.
    pub(super) has_deleted: AtomicBool,
    /// How fast a chapter was settled last, where others waited; 0: none was yet.
    pub(super) settled_a_second: AtomicU64,
    /// A partition has come, has left, or is told something else.
    reshaped: watch::Sender<()>,
    /// A chapter has ended.
    pub(super) ended: Notify,
    /// The log index up to which the shard was settled when it was opened.
    settled: u64,
    waiting: Mutex<HashMap<Opening, Vec<Weak<Notify>>>>,
}

/// The partitions, and the newest entries.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) state: State,
    pub(crate) tail: Tail,
}

impl Replica {
    /// One in this state, which will hold so many bytes of the newest entries. What lies in chapters up to the
    /// log index `settled` is looked for there, though it comes by once more.
    pub(crate) fn new(mut state: State, tail_bytes: usize, settled: u64) -> Self {
        state.settle(settled);
        let tail = Tail::new(tail_bytes, state.applied());
        Self {
            shard: Mutex::new(Shard { state, tail }),
            applied_bytes: Arc::default(),
            has_deleted: AtomicBool::new(false),
            settled_a_second: AtomicU64::new(0),
            reshaped: watch::Sender::new(()),
            ended: Notify::new(),
            settled,
            waiting: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shard> {
        // A panic within it is a bug of apply, after which the engine has stopped.
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `reader` told once, when the partition gets records or goes, unless it has gone by then.
    pub(crate) fn watch(&self, opening: Opening, reader: &Arc<Notify>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let readers = waiting.entry(opening).or_default();
        if readers.len() == readers.capacity() {
            readers.retain(|reader| reader.strong_count() > 0);
        }
        readers.push(Arc::downgrade(reader));
    }

    /// Told from here on whenever a partition has come, has left, or is told something else.
    pub(super) fn reshapes(&self) -> watch::Receiver<()> {
        self.reshaped.subscribe()
    }

    /// Tells all who wait for a partition: they look again.
    pub(super) fn wake_all(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let readers = waiting.drain().flat_map(|(_, readers)| readers);
        readers.filter_map(|reader| reader.upgrade()).for_each(|reader| reader.notify_one());
    }

    /// Tells who waits for these partitions.
    fn wake(&self, outcomes: &[Outcome]) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_empty() {
            return;
        }
        for outcome in outcomes {
            let (Outcome::Appended { opening, .. } | Outcome::Closed { opening, .. }) = outcome
            else {
                continue;
            };
            let readers = waiting.remove(opening).into_iter().flatten();
            for reader in readers.filter_map(|reader| reader.upgrade()) {
                reader.notify_one();
            }
        }
    }
}

/// Applies the entries of a group to its replica.
#[derive(Debug)]
pub(crate) struct Applier(pub(crate) Arc<Replica>);

impl Apply for Applier {
    /// The entry's index in the shard, which counts from 1 as the log does.
    type Answer = u64;

    fn apply(&mut self, index: u64, term: u64, payload: Option<&Bytes>) -> Result<u64, Stop> {
        let index = index + 1;
        let bytes = payload.map_or(0, |payload| payload.len() as u64);
        self.0.applied_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut outcomes = Vec::new();
        {
            let mut shard = self.0.lock();
            let held = match payload {
                None => {
                    shard.state.pass(index, term).map_err(|why| Stop(why.to_string()))?;
                    None
                }
                Some(bytes) => {
                    let applied = shard.state.apply(index, bytes, &mut outcomes);
                    applied.map_err(|why| Stop(why.to_string()))?;
                    let held = Held::new(bytes.clone());
                    Some(held.map_err(|why| Stop(why.to_string()))?)
                }
            };
            shard.tail.push(held);
            for outcome in &outcomes {
                match outcome {
                    Outcome::ChapterEnd(ended) if ended.end <= self.0.settled => {
                        shard.state.settle(ended.end);
                    }
                    Outcome::ChapterEnd(_) => self.0.ended.notify_one(),
                    Outcome::Deleted => self.0.has_deleted.store(true, Ordering::Relaxed),
                    _ => {}
                }
            }
        }
        let reshapes = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::Opened(_)
                    | Outcome::Configured(_)
                    | Outcome::Closed { .. }
                    | Outcome::Deleted
            )
        };
        if outcomes.iter().any(reshapes) {
            self.0.reshaped.send_replace(());
        }
        self.0.wake(&outcomes);
        Ok(index)
    }
}

/// The first entry of the log that is still read beside a state, as the engine counts; `None`: no entry that is applied.
pub(super) fn needs_from(state: &State) -> Option<u64> {
    let first = state.needs_from();
    // The engine counts from 0.
    (first <= state.applied()).then(|| first.saturating_sub(1))
}

impl Kept for Applier {
    fn encode(&self) -> Vec<u8> {
        self.0.lock().state.encode()
    }

    fn needs_from(&self) -> Option<u64> {
        needs_from(&self.0.lock().state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{PartitionId, TopicId};

    /// Readers of several partitions kept each other in the lists of those that stayed idle.
    #[test]
    fn who_has_gone_is_forgotten_though_its_partitions_stay_idle() {
        let replica = Replica::new(State::default(), 0, 0);
        let openings = [0, 1].map(|number| {
            let partition = PartitionId { topic: TopicId([7; 16]), number };
            Opening { partition, number: 1 }
        });
        let stays = Arc::new(Notify::new());
        for _ in 0..1_000 {
            let reader = Arc::new(Notify::new());
            openings.iter().for_each(|opening| replica.watch(*opening, &reader));
        }
        replica.watch(openings[0], &stays);
        let waiting = replica.waiting.lock().unwrap();
        assert!(waiting.values().all(|readers| readers.len() < 10), "{waiting:?}");
        assert_eq!(Arc::weak_count(&stays), 1);
    }
}
