//! What coordinates groups, as the broker's coordinator does (`src/broker/coordinator.rs`).
//!
//! The coordinator and its store are the broker's own; the loop around them is this one, by the clock of the simulation. What is
//! decided is agreed on, durable and applied, in that order; only then are those who wait for it answered. Nothing expires: a group that
//! is empty and has no offsets would be gone, and another of its name begins with the first generation, as in Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use plimsoll_server::cluster::Leadership;
use plimsoll_server::groups::{
    Answer, Beat, Commit, Groups, Join, Leave, Settings, Step, Sync, Ticket,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::commits::offsets;
use super::desk::{Reply, Told};
use super::leads::Leads;
use super::machines::of_groups;
use super::world::lock;

/// How long a group that was empty waits for more members.
const INITIAL_DELAY_MS: u32 = 100;
/// No session is shorter.
const SESSION_MS_MIN: i32 = 500;

/// What a coordinator is asked, and who waits for the answer.
pub(crate) enum Ask {
    Decides(Asked, Reply<Answer>),
    /// How far a group is: the offset of each partition.
    Reads(String, Reply<BTreeMap<i32, i64>>),
}

/// What it decides.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// With the id that the member gets if it has none.
    Join(Join, String),
    Sync(Sync),
    Beat(Beat),
    Leave(Leave),
    Commit(Commit),
}

/// One leadership of it.
struct Work<'a> {
    of: &'a Arc<Leads>,
    leadership: Leadership,
    groups: Groups,
    waiting: BTreeMap<Ticket, (Asked, Reply<Answer>)>,
    next_ticket: Ticket,
    /// Changes that are being agreed on: the number of each, if it is.
    on_its_way: FuturesOrdered<BoxFuture<'static, Option<u64>>>,
    reading: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Leads {
    /// Coordinates groups from what is stored.
    pub(super) async fn coordinates(
        self: &Arc<Self>,
        leadership: Leadership,
        asks: mpsc::UnboundedReceiver<Ask>,
    ) -> Option<()> {
        self.is_behind_d(leadership).await?;
        let settings = Settings {
            session_ms_min: SESSION_MS_MIN,
            initial_delay_ms: INITIAL_DELAY_MS,
            ..Settings::default()
        };
        let groups = {
            let store = &lock(&self.machines).groups;
            if let Err(how) = self.ledgers.commits.reads(leadership.term, store) {
                self.oracle.broken(format!("node {} begins with groups: {how}", self.node));
            }
            Groups::load(settings, store, self.now_ms())
        };
        let work = Work {
            of: self,
            leadership,
            groups,
            waiting: BTreeMap::new(),
            next_ticket: 0,
            on_its_way: FuturesOrdered::new(),
            reading: FuturesUnordered::new(),
        };
        work.coordinate(asks).await
    }
}

impl Work<'_> {
    async fn coordinate(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) -> Option<()> {
        loop {
            let alarm = self.alarm();
            tokio::select! {
                biased;
                Some(number) = self.on_its_way.next() => {
                    let answers = self.groups.agreed(number?);
                    self.answer(answers);
                }
                Some(()) = self.reading.next() => {}
                ask = asks.recv() => match ask? {
                    Ask::Decides(asked, reply) => {
                        let step = self.take(asked, reply);
                        self.carry_out(step).await?;
                    }
                    Ask::Reads(group, reply) => self.read(&group, reply),
                },
                () = sleep(alarm) => {
                    let step = self.groups.tick(self.of.now_ms());
                    self.carry_out(step).await?;
                }
            }
        }
    }

    fn alarm(&self) -> Duration {
        const LONG: Duration = Duration::from_secs(3600);
        let now = self.of.now_ms();
        let left = self.groups.next_deadline().map(|at| at.saturating_sub(now));
        left.map_or(LONG, Duration::from_millis)
    }

    fn take(&mut self, asked: Asked, reply: Reply<Answer>) -> Step {
        let (ticket, now) = (self.next_ticket, self.of.now_ms());
        self.next_ticket += 1;
        self.waiting.insert(ticket, (asked.clone(), reply));
        let groups = &mut self.groups;
        match asked {
            Asked::Join(join, fresh) => groups.join(join, fresh, ticket, now),
            Asked::Sync(sync) => groups.sync(sync, ticket, now),
            Asked::Beat(beat) => groups.beat(&beat, ticket, now),
            Asked::Leave(leave) => groups.leave(&leave, ticket, now),
            Asked::Commit(commit) => {
                groups.commit(commit, &lock(&self.of.machines).groups, ticket, now)
            }
        }
    }

    /// Has the changes agreed on in their order, and says what may be said now.
    async fn carry_out(&mut self, step: Step) -> Option<()> {
        for (number, change) in step.changes {
            let agreed = self.of.agree(self.leadership, of_groups(&change)).await?;
            self.on_its_way.push_back(Box::pin(async move { agreed.await.map(|_| number) }));
        }
        self.answer(step.answers);
        Some(())
    }

    fn answer(&mut self, answers: Vec<(Ticket, Answer)>) {
        let term = self.leadership.term;
        for (ticket, what) in answers {
            let (asked, reply) = self.waiting.remove(&ticket).expect("each is answered once");
            self.of.tell(term, &(&asked, &what));
            if let Err(how) = self.of.ledgers.commits.answers(term, &asked, &what) {
                self.of.oracle.broken(format!("node {} in term {term}: {how}", self.of.node));
            }
            // A member that is gone asks for nothing.
            drop(reply.send(Told { term, what }));
        }
    }

    fn read(&mut self, group: &str, reply: Reply<BTreeMap<i32, i64>>) {
        let read = {
            let store = &lock(&self.of.machines).groups;
            if let Err(how) = self.of.ledgers.commits.reads(self.leadership.term, store) {
                self.of.oracle.broken(format!("node {} shows groups: {how}", self.of.node));
            }
            offsets(store, group)
        };
        self.of.tell(self.leadership.term, &read);
        self.reading.push(self.of.shows(self.leadership, read, reply));
    }
}
