//! [`Leads`]: has a data shard agree on what producers sent, and on acts, whenever it leads.
//!
//! It runs beside the engine of the shard. What producers send while an entry is on its way waits,
//! and goes with the next one: one entry, and where it has to be durable one sync, serves all of
//! them. Entries follow each other while one is on its way only if there is much to send.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, sleep};

use super::decided::Decided;
use super::error::Failed;
use super::intended::{Carrier, Intended};
use super::lag::Lag;
use super::leadership::{self, Asks, Ended, LOOK, Lead, Next};
use super::neighbours::Neighbours;
use super::replica::{Applier, Replica};
use super::room::Room;
use super::throttle::{Pace, Throttle};
use crate::cluster::{self, Committed, Group, Leadership};
use crate::control::{coming, reconcile};
use crate::run::Run;
use crate::shard::{
    Answer, ENTRY_BYTES_MAX, Fence, Generation, Item, Opening, Partition, Proposal, Proposer,
    State, Submission, Why,
};

/// How often time is agreed on, so that what is past its retention goes.
const ADVANCE: Duration = Duration::from_secs(60);
/// What part of a chapter is settled early where the disk is full.
const SHARE_IN_NEED: u64 = 16;
/// Entries that are on their way at once.
const IN_FLIGHT_MAX: usize = 4;
/// Items of an act in one entry: far below what an entry may hold.
const ITEMS_MAX: usize = 1024;
/// So many offsets of a partition at most were given in entries that disks have lost: 19 hours of a million records a second, and few
/// enough that 130,000 such losses stay below 2^53. Who claims billions of records in a batch that is compressed can exceed it.
const OFFSETS_LOST_MAX: i64 = 1 << 36;

/// So long it is waited, silently, for what others say.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// What a leader is asked for.
#[derive(Debug)]
pub(crate) enum Ask {
    /// To append a batch.
    Append { connection: u64, opening: Opening, batch: Bytes, reply: oneshot::Sender<Appended> },
    /// To have acts agreed on; answered when they are applied and durable.
    Act { items: Vec<Item<'static>>, reply: Done },
}

/// What became of a batch, and of which entry it is.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) answer: Answer,
    /// The shard's index of the entry that it waited for, if it waited for one.
    pub(crate) index: Option<u64>,
    /// For how long nothing more is taken, as it stands now.
    pub(crate) pause: Duration,
}

impl Appended {
    /// It was not, by who does not lead.
    pub(super) const NOT_LEADER: Self =
        Self { answer: Answer::NotLeader, index: None, pause: Duration::ZERO };
}

/// Who waits for acts; told nothing where the shard has failed.
pub(crate) type Done = oneshot::Sender<Result<(), Failed>>;

/// What leads a shard of records, whenever this replica does.
pub(crate) struct Leads {
    pub(crate) number: u32,
    pub(crate) group: Arc<Group<Applier>>,
    pub(crate) replica: Arc<Replica>,
    pub(crate) intended: Arc<Intended>,
    pub(crate) neighbours: Arc<Neighbours>,
    /// Must know that more is to be acknowledged before it is, where that is before it is durable.
    pub(crate) run: Option<Arc<Run>>,
    pub(crate) room: Arc<Room>,
    pub(crate) bounds: Bounds,
    /// What was decided where it goes on after a loss.
    pub(crate) decided: Option<Decided>,
    pub(crate) clock: fn() -> u64,
}

/// What bounds what waits for disks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) chapter: ChapterSize,
    /// Bytes that a log takes at most before they are durable, where that is bounded.
    pub(crate) unsynced: Option<u64>,
}

/// When a chapter ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChapterSize {
    pub(crate) bytes: u64,
    pub(crate) age: Duration,
}

/// What an entry on its way is.
enum Sent {
    /// Of batches, or of the leader itself.
    Own,
    /// An act that somebody may wait for.
    Asked(Option<Done>),
    /// What control intends.
    Intended,
}

/// The leadership of a shard.
struct Leader<'a> {
    shard: &'a Leads,
    leadership: Leadership,
    proposer: Proposer,
    replies: HashMap<u64, oneshot::Sender<Appended>>,
    next_ticket: u64,
    acts: VecDeque<(Vec<Item<'static>>, Option<Done>)>,
    on_its_way: FuturesOrdered<BoxFuture<'static, cluster::Result<Committed<u64>>>>,
    /// What each of them is, and its bytes.
    sent: VecDeque<(Sent, usize)>,
    /// What control intends.
    carrier: Carrier,
    /// The last chapter whose end was proposed.
    chapter: u64,
    throttle: Throttle,
    lag: Lag,
}

impl Lead for Leads {
    type Ask = Ask;

    fn refuse(&self, ask: Ask) {
        // Who does not wait any more misses nothing.
        match ask {
            Ask::Append { reply, .. } => {
                reply.send(Appended::NOT_LEADER).ok();
            }
            Ask::Act { reply, .. } => {
                reply.send(Err(Failed::NotLeader { number: self.number })).ok();
            }
        }
    }

    /// Consumers that had read what is lost must find the fence, not an end below what they read.
    async fn prepare(&mut self, leadership: Leadership) -> Result<(), Ended> {
        self.fence_loss(leadership).await
    }

    async fn lead(&mut self, leadership: Leadership, asks: &mut Asks<Ask>) -> Result<(), Ended> {
        let mut leader = Leader::new(self, leadership);
        let ended = leader.lead(asks).await;
        if ended.as_ref().err().is_none_or(Ended::is_lost) {
            leader.resign();
        }
        // Where it has failed, readers look again, and are told.
        self.replica.wake_all();
        ended
    }

    fn follows(&self) {
        self.replica.wake_all();
    }
}

impl Leads {
    /// Before anything else is agreed on after a loss, all are told of it. Durable on a quorum on return.
    async fn fence_loss(&self, leadership: Leadership) -> Result<(), Ended> {
        let number = self.group.generation();
        let fenced = self.replica.lock().state.generation().number;
        if fenced >= number {
            return Ok(());
        }
        if let Some(run) = &self.run {
            let (run, now) = (Arc::clone(run), (self.clock)());
            spawn_blocking(move || run.busy(now)).await.map_or(Ok(()), |busy| busy)?;
        }
        let decided = self.decided.filter(|decided| decided.generation == number);
        // Of a loss that nobody came to tell of it is not known any more what it took.
        if decided.is_none_or(|decided| decided.lost_durable) || fenced + 1 < number {
            self.give_up_ceilings(leadership).await?;
        }
        let fence = Fence {
            why: Why::Operator,
            guaranteed: decided.map_or(0, |decided| decided.guaranteed),
            // More may have been acknowledged than anybody is left to say.
            given: None,
            since: decided.map_or_else(self.clock, |decided| decided.at_ms),
        };
        let digest = decided.map_or(0, |decided| decided.digest);
        let generation = Generation { number, digest };
        self.agree(leadership, &[Item::Fence(fence), Item::Generation(generation)]).await?;
        tracing::warn!(shard = self.number, generation = number, "it goes on after a loss");
        Ok(())
    }

    /// What is gone may have said how far offsets were given: the fence that follows is to jump in every partition that takes
    /// records, and in those whose opening has gone, so far that none that was given is given again.
    async fn give_up_ceilings(&self, leadership: Leadership) -> Result<(), Ended> {
        let mut heard = self.intended.heard();
        loop {
            tokio::select! {
                // It is held here, and so goes on.
                _ = heard.wait_for(|heard| *heard) => break,
                why = self.until_lost(leadership) => return Err(why.into()),
                () = sleep(SILENT_MAX) => tracing::warn!(
                    shard = self.number,
                    "it goes on after a loss once this node has heard from the controller what topics there are"
                ),
            }
        }
        let catalog = self.intended.catalog();
        let comes = coming(None, &catalog, self.number, &self.replica.lock().state);
        let mut left = self.neighbours.left(&comes);
        let begun = Instant::now();
        // Its replicas of other shards say it once they have applied what they have.
        while left.len() < comes.len() && begun.elapsed() < SILENT_MAX {
            tokio::select! {
                () = sleep(LOOK) => left = self.neighbours.left(&comes),
                why = self.until_lost(leadership) => return Err(why.into()),
            }
        }
        let items = reconcile(&catalog, self.number, &self.replica.lock().state, &left);
        let is_of_opens = |item: &Item<'_>| matches!(item, Item::Open(_) | Item::Intended(_));
        let opens: Vec<Item<'static>> = items.into_iter().filter(is_of_opens).collect();
        for some in opens.chunks(ITEMS_MAX) {
            self.agree(leadership, some).await?;
        }
        let raised = |(opening, partition): (Opening, &Partition)| {
            let given = partition.ceiling().unwrap_or(partition.next());
            let ceiling = Some(given.saturating_add(OFFSETS_LOST_MAX));
            (!partition.is_closed()).then_some(Item::Ceiling { opening, ceiling })
        };
        let ceilings: Vec<Item<'static>> =
            self.replica.lock().state.partitions().filter_map(raised).collect();
        for some in ceilings.chunks(ITEMS_MAX) {
            self.agree(leadership, some).await?;
        }
        Ok(())
    }

    /// Has items agreed on, before anybody is served.
    async fn agree(&self, leadership: Leadership, items: &[Item<'_>]) -> Result<(), Ended> {
        let act = {
            let (state, now) = (&self.replica.lock().state, (self.clock)());
            Proposer::new(state, now).act(state, now, items)
        };
        let Some(act) = act else { return Ok(()) };
        // One that nobody hears any more must be able to end.
        tokio::select! {
            agreed = self.group.propose(leadership, act.bytes) => drop(agreed?),
            why = self.until_lost(leadership) => return Err(why.into()),
        }
        Ok(())
    }

    /// Done once it does not lead in this leadership any more: why.
    async fn until_lost(&self, leadership: Leadership) -> cluster::Error {
        loop {
            sleep(LOOK).await;
            if let Err(why) = leadership::check(&self.group, leadership) {
                return why;
            }
        }
    }
}

impl<'a> Leader<'a> {
    /// Knows all that was agreed on before, as the state has it.
    fn new(shard: &'a Leads, leadership: Leadership) -> Self {
        let (proposer, chapter) = {
            let state = &shard.replica.lock().state;
            let mut proposer = Proposer::new(state, (shard.clock)());
            // The shard counts from 1.
            proposer.doubt(state, shard.group.durable().map_or(0, |durable| durable + 1));
            (proposer, state.chapter())
        };
        Self {
            shard,
            leadership,
            proposer,
            replies: HashMap::new(),
            next_ticket: 0,
            acts: VecDeque::new(),
            on_its_way: FuturesOrdered::new(),
            sent: VecDeque::new(),
            carrier: Carrier::new(&shard.intended, &shard.neighbours),
            chapter,
            throttle: Throttle::default(),
            lag: Lag::new(shard.bounds.unsynced),
        }
    }

    /// Leads until nobody can ask any more, or something says that it does not lead.
    async fn lead(&mut self, asks: &mut Asks<Ask>) -> Result<(), Ended> {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failed = std::pin::pin!(self.shard.group.until_disk_fails());
        let mut minutes = tokio::time::interval(ADVANCE);
        minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(committed) = self.on_its_way.next() => self.agreed(committed)?,
                next = asks.next() => match next {
                    Next::Ask(ask) => self.take(ask),
                    // What was asked before that is done.
                    Next::Wish => self.take_all(asks),
                    Next::Over => return Ok(()),
                },
                () = self.carrier.changed() => {}
                _ = minutes.tick() => self.advance().await?,
                () = self.throttle.paid() => {}
                _why = &mut failed => leadership::check(&self.shard.group, self.leadership)?,
                _ = looks.tick() => leadership::check(&self.shard.group, self.leadership)?,
            }
            if asks.is_wished() {
                self.propose_batches().await?;
                if asks.is_due(self.is_idle()) {
                    return Err(Ended::Wished);
                }
                continue;
            }
            self.end_chapter().await?;
            // Whoever else is ready to ask does so now, and goes with the same entry.
            tokio::task::yield_now().await;
            self.take_all(asks);
            self.propose().await?;
        }
    }

    /// Whether no batch waits, and nothing is on its way.
    fn is_idle(&self) -> bool {
        self.on_its_way.is_empty() && self.proposer.waiting_bytes() == 0
    }

    fn take_all(&mut self, asks: &mut Asks<Ask>) {
        while let Some(ask) = asks.try_next() {
            self.take(ask);
        }
    }

    fn take(&mut self, ask: Ask) {
        match ask {
            Ask::Append { connection, opening, batch, reply } => {
                let ticket = self.next_ticket;
                self.next_ticket += 1;
                self.replies.insert(ticket, reply);
                self.proposer.submit(Submission { ticket, connection, opening, batch });
            }
            Ask::Act { mut items, reply } => {
                while items.len() > ITEMS_MAX {
                    let rest = items.split_off(ITEMS_MAX);
                    self.acts.push_back((std::mem::replace(&mut items, rest), None));
                }
                self.acts.push_back((items, Some(reply)));
            }
        }
    }

    /// Has time agreed on, where it deletes something, and closes what was idle.
    async fn advance(&mut self) -> Result<(), Ended> {
        let now = (self.shard.clock)();
        let closing = {
            let shard = self.shard.replica.lock();
            if shard.state.is_due(now) {
                self.acts.push_back((vec![Item::Advance], None));
            }
            self.proposer.close_idle(&shard.state, now)
        };
        match closing {
            Some(closing) => self.send(closing, Sent::Own).await,
            None => Ok(()),
        }
    }

    /// Ends the chapter where it is large or old enough; and looks whether those that have ended are settled.
    async fn end_chapter(&mut self) -> Result<(), Ended> {
        let Leads { replica, room, bounds: Bounds { chapter, .. }, clock, .. } = self.shard;
        let (act, unsettled) = {
            let shard = replica.lock();
            let (state, now) = (&shard.state, clock());
            let ends = state.open_chapter().is_some_and(|(bytes, since)| {
                let age = Duration::from_millis(now.saturating_sub(since));
                let in_need = room.is_short() && bytes >= chapter.bytes / SHARE_IN_NEED;
                bytes >= chapter.bytes || age >= chapter.age || in_need
            });
            let next = state.chapter() + 1;
            let ends = ends && self.chapter < next;
            let act = ends.then(|| self.proposer.act(state, now, &[Item::ChapterEnd(next)]));
            self.chapter = if ends { next } else { self.chapter };
            (act.flatten(), state.ended().len())
        };
        self.keep_pace(unsettled);
        match act {
            Some(act) => self.send(act, Sent::Own).await,
            None => Ok(()),
        }
    }

    /// Takes records as fast as chapters are settled, and as the disks of a majority have them.
    fn keep_pace(&mut self, unsettled: usize) {
        let settled_a_second = self.shard.replica.settled_a_second.load(Ordering::Relaxed);
        let now = Instant::now();
        // The shard counts from 1.
        self.lag.durable(self.shard.group.durable().map_or(0, |durable| durable + 1), now);
        let pace = Pace::of(unsettled, settled_a_second).slower(self.lag.pace(now));
        self.throttle.turn(pace, unsettled, self.lag.bytes());
    }

    /// Proposes what waits, unless enough is on its way. Acts go one by one and batches between them, so
    /// that a topic of many partitions holds nobody up. What somebody asks for goes when nothing is on its way that has
    /// partitions go: one that acts on what is not there any more stops the shard.
    async fn propose(&mut self) -> Result<(), Ended> {
        self.propose_batches().await?;
        if self.on_its_way.len() > 1 {
            return Ok(());
        }
        let now = (self.shard.clock)();
        let (act, sent) = {
            let state = &self.shard.replica.lock().state;
            if let Some(items) = self.carrier.next(self.shard.number, state) {
                (self.proposer.act(state, now, &items), Sent::Intended)
            } else if self.carrier.is_idle()
                && let Some((mut items, reply)) = self.acts.pop_front()
            {
                items.retain(|item| is_of_what_is_here(item, state));
                (self.proposer.act(state, now, &items), Sent::Asked(reply))
            } else {
                return Ok(());
            }
        };
        match (act, sent) {
            (Some(act), sent) => self.send(act, sent).await,
            (None, Sent::Asked(reply)) => {
                answer_act(reply, Ok(()));
                Ok(())
            }
            (None, _) => unreachable!("what is intended is something to agree on"),
        }
    }

    async fn propose_batches(&mut self) -> Result<(), Ended> {
        while self.may_send() {
            let Some(draft) = self.draft() else { break };
            self.throttle.took(draft.bytes.len(), Instant::now());
            self.send(draft, Sent::Own).await?;
        }
        Ok(())
    }

    /// An entry of batches that wait, if any do.
    fn draft(&mut self) -> Option<Proposal> {
        if let Some(durable) = self.shard.group.durable() {
            // The shard counts from 1.
            self.proposer.durable(durable + 1);
        }
        let (mut answers, now) = (Vec::new(), (self.shard.clock)());
        let draft = self.proposer.draft(&self.shard.replica.lock().state, now, &mut answers);
        self.answer(answers, None);
        draft
    }

    fn may_send(&self) -> bool {
        match self.on_its_way.len() {
            _ if !self.throttle.takes(Instant::now()) => false,
            0 => true,
            IN_FLIGHT_MAX.. => false,
            // An entry that would be small waits for more, but not behind acts.
            _ => self.proposer.waiting_bytes() >= ENTRY_BYTES_MAX || !self.acts.is_empty(),
        }
    }

    /// Sends an entry on its way, behind all that were sent before.
    async fn send(&mut self, proposal: Proposal, sent: Sent) -> Result<(), Ended> {
        let Leads { group, run, clock, .. } = self.shard;
        if let Some(run) = run.as_ref().filter(|run| run.rests()) {
            let (run, now) = (Arc::clone(run), clock());
            let woken = spawn_blocking(move || run.busy(now)).await;
            woken.unwrap_or(Ok(()))?;
        }
        // Whatever becomes of it, who waits for it is told.
        self.sent.push_back((sent, proposal.bytes.len()));
        let committed = group.submit(self.leadership, proposal.bytes).await?;
        self.on_its_way.push_back(Box::pin(committed));
        Ok(())
    }

    /// The oldest entry on its way is applied.
    fn agreed(&mut self, committed: cluster::Result<Committed<u64>>) -> cluster::Result<()> {
        let index = committed?.answer;
        let mut answers = Vec::new();
        self.proposer.applied(index, &mut answers);
        self.answer(answers, Some(index));
        let Some((sent, bytes)) = self.sent.pop_front() else { return Ok(()) };
        self.lag.agreed(index, bytes as u64);
        match sent {
            Sent::Asked(reply) => answer_act(reply, Ok(())),
            Sent::Intended => self.carrier.applied(),
            Sent::Own => {}
        }
        Ok(())
    }

    fn answer(&mut self, answers: Vec<(u64, Answer)>, index: Option<u64>) {
        let pause = self.throttle.pause(Instant::now());
        for (ticket, answer) in answers {
            let reply = self.replies.remove(&ticket).expect("each ticket is answered once");
            // A connection that is gone asks for nothing.
            reply.send(Appended { answer, index, pause }).ok();
        }
    }

    /// Tells all who wait that another leads. What is on its way may be agreed on all the same.
    fn resign(self) {
        for reply in self.replies.into_values() {
            reply.send(Appended::NOT_LEADER).ok();
        }
        let sent = self.sent.into_iter().map(|(sent, _)| match sent {
            Sent::Asked(reply) => reply,
            Sent::Own | Sent::Intended => None,
        });
        for reply in sent.chain(self.acts.into_iter().map(|(_, reply)| reply)) {
            answer_act(reply, Err(Failed::NotLeader { number: self.shard.number }));
        }
    }
}

fn answer_act(reply: Option<Done>, answer: Result<(), Failed>) {
    // Who does not wait any more misses nothing.
    reply.and_then(|reply| reply.send(answer).ok());
}

/// Whether an act is on a partition that is there, or on none.
fn is_of_what_is_here(item: &Item<'_>, state: &State) -> bool {
    match item {
        Item::Close { opening } | Item::Trim { opening, .. } | Item::Configure { opening, .. } => {
            state.partition(*opening).is_some()
        }
        _ => true,
    }
}
