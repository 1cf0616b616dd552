//! Idempotent producers: each sends a batch until it is told what became of it, to whoever says that it leads.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_server::kafka::batch::Producer;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::records::Draft;
use plimsoll_server::shard::{Answer, Refused};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::desk::Desk;
use super::ledger::Name;
use super::life::Life;
use super::machines::Ledgers;
use super::oracle::Oracle;
use super::shard::{Ask, Told};
use super::world::lock;

/// How many there are.
const PRODUCERS: u64 = 2;

pub(crate) struct Produces {
    id: u64,
    desk: Desk<Ask>,
    ledgers: Arc<Ledgers>,
    oracle: Arc<Oracle>,
    drawn: Pcg64Mcg,
    epoch: i16,
    next: i32,
    /// The generation in which it was told something last.
    told_in: u64,
}

impl Life {
    /// From here on there are producers.
    pub(super) fn producers_come(&mut self) {
        for id in 1..=PRODUCERS {
            let produces = Produces {
                id,
                desk: Arc::clone(&self.desks.records),
                ledgers: Arc::clone(&self.world.ledgers),
                oracle: Arc::clone(&self.world.oracle),
                drawn: Pcg64Mcg::seed_from_u64(self.drawn.random()),
                epoch: 0,
                next: 0,
                told_in: 0,
            };
            self.clients.push(tokio::spawn(produces.go_on()).abort_handle());
        }
    }
}

impl Produces {
    async fn go_on(mut self) {
        loop {
            sleep(Duration::from_millis(self.drawn.random_range(5..200))).await;
            let count = self.drawn.random_range(1..4);
            let batch = self.batch(count);
            let told = loop {
                if let Some(told) = self.sends(batch.clone()).await {
                    break told;
                }
            };
            let (name, generation) = ((self.id, self.epoch, self.next), told.generation);
            match told.answer {
                Answer::Appended { base_offset, .. } | Answer::Repeated { base_offset } => {
                    let offsets = base_offset..base_offset + i64::from(count);
                    self.told(name, offsets, generation);
                    self.next += count;
                }
                Answer::Refused(Refused::Misplaced(why)) => {
                    // It cannot know what of its own is lost. Another epoch begins anew.
                    if generation == self.told_in {
                        self.oracle.broken(format!("producer {name:?} lost nothing, and: {why}"));
                    }
                    self.oracle.count("a producer that began anew after a loss");
                    (self.epoch, self.next) = (self.epoch + 1, 0);
                }
                answer => unreachable!("{answer:?} is no end"),
            }
            self.told_in = generation;
        }
    }

    fn told(&self, name: Name, offsets: Range<i64>, generation: u64) {
        self.oracle.count("a batch that a producer was told of");
        if self.oracle.is_newest(generation)
            && let Err(how) = self.ledgers.records.told(name, offsets)
        {
            self.oracle.broken(how);
        }
    }

    /// What it was told by one that it asked; `None`: to ask again.
    async fn sends(&mut self, batch: Bytes) -> Option<Told> {
        let to = {
            let desk = lock(&self.desk);
            let which = self.drawn.random_range(0..desk.len().max(1));
            desk.values().nth(which).cloned()
        };
        let (reply, told) = oneshot::channel();
        let is_sent = to.is_some_and(|to| to.send(Ask { producer: self.id, batch, reply }).is_ok());
        if !is_sent {
            sleep(Duration::from_millis(self.drawn.random_range(10..60))).await;
            return None;
        }
        let patience = Duration::from_millis(self.drawn.random_range(100..1500));
        let told = timeout(patience, told).await;
        match told {
            Ok(Ok(told)) if matches!(told.answer, Answer::Refused(Refused::NotHere)) => None,
            Ok(Ok(told)) => Some(told),
            _ => {
                self.oracle.count("a batch that is sent again");
                None
            }
        }
    }

    fn batch(&self, count: i32) -> Bytes {
        let mut draft = Draft::default();
        for number in self.next..self.next + count {
            let value = format!("{}.{}.{number}", self.id, self.epoch);
            draft.push(1_000, None, Some(value.as_bytes()), &[]);
        }
        let id = i64::try_from(self.id).unwrap();
        let producer = Producer { id, epoch: self.epoch, base_sequence: self.next };
        draft.batch(Compression::None, Some(producer)).pieces().concat().into()
    }
}
