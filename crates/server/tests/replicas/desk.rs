//! [`Desk`]: where clients find those that lead, or believe so; and [`Caller`], who asks them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::oracle::Oracle;
use super::world::lock;

/// How often it is looked whether disks may be asked for something again.
const LOOK: Duration = Duration::from_millis(50);

/// Those that lead, or believe so, and take what is asked.
pub(crate) type Desk<A> = Arc<Mutex<BTreeMap<u64, mpsc::UnboundedSender<A>>>>;

/// What a client is told, and the term of whoever tells it.
#[derive(Debug)]
pub(crate) struct Told<T> {
    pub(crate) term: u64,
    pub(crate) what: T,
}

/// Where it goes. Dropped: what became of it is not known.
pub(crate) type Reply<T> = oneshot::Sender<Told<T>>;

/// A client: it asks whoever answered last, and another where that does not answer.
pub(crate) struct Caller<A> {
    desk: Desk<A>,
    at: Option<mpsc::UnboundedSender<A>>,
    /// The newest term that it was told something in. Who leads in an older one is not believed any more.
    term: u64,
    /// Whether anything may be asked of disks.
    syncs: Arc<AtomicBool>,
    pub(crate) drawn: Pcg64Mcg,
    pub(crate) oracle: Arc<Oracle>,
    /// How it is called that another leader answers.
    moved: &'static str,
}

impl<A> Caller<A> {
    pub(crate) fn new(
        desk: &Desk<A>,
        seed: u64,
        syncs: &Arc<AtomicBool>,
        oracle: &Arc<Oracle>,
        moved: &'static str,
    ) -> Self {
        Self {
            desk: Arc::clone(desk),
            at: None,
            term: 0,
            syncs: Arc::clone(syncs),
            drawn: Pcg64Mcg::seed_from_u64(seed),
            oracle: Arc::clone(oracle),
            moved,
        }
    }

    /// What it is told, if it is within so many ms. Otherwise it may have been done all the same.
    pub(crate) async fn ask<T>(
        &mut self,
        patience_ms: u64,
        question: impl FnOnce(Reply<T>) -> A,
    ) -> Option<T> {
        let to = self.at.take().or_else(|| {
            let desk = lock(&self.desk);
            let which = self.drawn.random_range(0..desk.len().max(1));
            desk.values().nth(which).cloned()
        });
        let (reply, told) = oneshot::channel();
        let to = to.filter(|to| to.send(question(reply)).is_ok());
        let told = match &to {
            Some(_) => timeout(Duration::from_millis(patience_ms), told).await.ok(),
            None => None,
        };
        match told {
            Some(Ok(Told { term, what })) if term >= self.term => {
                if term > self.term && self.term > 0 {
                    self.oracle.count(self.moved);
                }
                (self.term, self.at) = (term, to);
                Some(what)
            }
            _ => {
                self.rests(10..60).await;
                None
            }
        }
    }

    /// Rests for so many ms, and for as long as nothing is to be asked of disks.
    pub(crate) async fn rests(&mut self, ms: Range<u64>) {
        sleep(Duration::from_millis(self.drawn.random_range(ms))).await;
        while !self.syncs.load(Ordering::Relaxed) {
            sleep(LOOK).await;
        }
    }
}
