//! [`Mender`]: has what is damaged in the chapters of a shard healed by what other nodes have.
//!
//! Whoever finds something damaged, be it a reader, the scrubber or a merge, notes it on the shelf; here it is looked for again
//! past the page cache, asked of one node after the other, and put in its place (`chapter/heal.rs`). Until then
//! whoever reads it is given what another node reads there: committed, and each batch with its own checksum. What that
//! node compacted at another time may differ in what older records of a key are left, as it may where another leads.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::reading::Reading;
use super::repair::{Answer, Request, Wanted, are_of};
use crate::chapter::{Broken, Error, Shelf};
use crate::shard::Opening;

/// How often it is looked for something that is damaged.
const LOOK: Duration = Duration::from_millis(500);
/// The others may have settled by then what they have not yet.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The other nodes, which have replicas of the shard too.
pub(super) trait Others: Debug + Send + Sync {
    /// Those that can be asked now.
    fn here(&self) -> Vec<u64>;

    /// Asks one of them for what repairs; `None` if no answer came.
    fn ask(&self, node: u64, request: Vec<u8>) -> BoxFuture<'static, Option<Bytes>>;
}

/// Mends the shelf of a shard.
#[derive(Debug)]
pub(super) struct Mender {
    number: u32,
    shelf: Arc<Shelf>,
    others: Arc<dyn Others>,
    healed: AtomicU64,
    /// Why what is damaged of a partition was not healed when that was tried last.
    whys: Mutex<BTreeMap<Opening, String>>,
}

impl Mender {
    pub(super) fn new(number: u32, shelf: Arc<Shelf>, others: Arc<dyn Others>) -> Self {
        Self { number, shelf, others, healed: AtomicU64::new(0), whys: Mutex::default() }
    }

    /// How many runs it has healed.
    pub(super) fn healed(&self) -> u64 {
        self.healed.load(Ordering::Relaxed)
    }

    /// Why what is damaged of a partition is not healed; `None` if that was not tried since.
    pub(super) fn why_not(&self, opening: Opening) -> Option<String> {
        self.whys().get(&opening).cloned()
    }

    /// What is damaged counts as not tried yet.
    pub(super) fn tries_anew(&self) {
        self.whys().clear();
    }

    /// Mends for ever.
    pub(super) async fn mend(self: Arc<Self>) {
        loop {
            sleep(LOOK).await;
            if !self.mend_all().await {
                sleep(REST_AFTER_FAILURE).await;
            }
        }
    }

    /// Mends what is known to be damaged, where there is somebody to ask. Whether nothing is left of it that could be.
    async fn mend_all(&self) -> bool {
        let mut is_whole = true;
        let wounded = self.shelf.wounded();
        self.whys().retain(|opening, _| wounded.contains(opening));
        for opening in wounded {
            if self.others.here().is_empty() {
                self.whys().insert(opening, "no other broker is there to ask".to_owned());
                continue;
            }
            is_whole &= self.mend_one(opening).await;
        }
        is_whole
    }

    async fn mend_one(&self, opening: Opening) -> bool {
        let shelf = Arc::clone(&self.shelf);
        let Ok(broken) = spawn_blocking(move || shelf.broken(opening)).await else { return false };
        let mut why_not = None;
        for broken in broken {
            why_not = self.heal(&broken).await.err().or(why_not);
        }
        match why_not {
            None => self.shelf.is_mended(opening),
            Some(why) => {
                self.whys().insert(opening, why);
                return false;
            }
        }
        true
    }

    /// Heals a run by what the first node has that has it; or says why none does.
    async fn heal(&self, broken: &Broken) -> Result<(), String> {
        let (shard, opening, chapter) = (self.number, broken.opening(), broken.chapter());
        let mut whys = Vec::new();
        for node in self.others.here() {
            match self.heal_by(node, broken.clone()).await {
                Ok(true) => {
                    self.healed.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(shard, %opening, chapter, node, "a damaged run is healed");
                    return Ok(());
                }
                Ok(false) => whys.push(format!("node {node} has no such run, or does not answer")),
                Err(why) => {
                    tracing::warn!(shard, %opening, chapter, node, %why, "a damaged run is not healed");
                    whys.push(format!("by node {node}: {why}"));
                }
            }
        }
        Err(whys.join("; "))
    }

    fn whys(&self) -> MutexGuard<'_, BTreeMap<Opening, String>> {
        self.whys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn heal_by(&self, node: u64, broken: Broken) -> Result<bool, Error> {
        let (opening, chapter) = (broken.opening(), broken.chapter());
        let mut healing = None;
        let mut from = 0;
        loop {
            let wanted = Wanted::Piece { opening, chapter, from };
            let Some(Answer::Piece(piece)) = self.ask(node, wanted).await else {
                return Ok(false);
            };
            let (shelf, broken) = (Arc::clone(&self.shelf), broken.clone());
            let taken = spawn_blocking(move || {
                let mut healing = match healing {
                    Some(healing) => healing,
                    None => shelf.begin_healing(broken)?,
                };
                if !healing.take(&piece)? {
                    return Ok(Some(healing));
                }
                // Where it is gone by now there is nothing to heal.
                shelf.heal(healing).map(|_was_there| None)
            });
            match taken.await.unwrap_or(Err(Error::Stopped))? {
                None => return Ok(true),
                Some(begun) => {
                    from = begun.next_block();
                    healing = Some(begun);
                }
            }
        }
    }

    /// What another node reads there, if one has it.
    pub(super) async fn batches(&self, reading: Reading) -> Option<Vec<Bytes>> {
        for node in self.others.here() {
            let answer = self.ask(node, Wanted::Batches(reading)).await;
            if let Some(Answer::Batches(batches)) = answer
                && are_of(&batches, &reading)
            {
                return Some(batches);
            }
        }
        None
    }

    async fn ask(&self, node: u64, wanted: Wanted) -> Option<Answer> {
        let request = Request { shard: self.number, wanted }.encode();
        let answer = self.others.ask(node, request).await?;
        let answer = Answer::decode(&answer);
        answer.inspect_err(|why| tracing::warn!(%why, node, "what repairs is not understood")).ok()
    }
}
