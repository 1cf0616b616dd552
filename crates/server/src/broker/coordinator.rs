//! [`Coordinator`]: the groups' shard, and what coordinates while this node leads it.
//!
//! Who is in a group is known to its coordinator only: a leadership begins with what is stored, and members join again.
//! What the pure coordinator decides is agreed on, durable, and applied, in that order; only then
//! are those who wait for it answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use plimsoll_log::{Ack, Crew};
use plimsoll_sync::Dir;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::acked::{Acked, testimony};
use super::anew;
use super::company::Company;
use super::damaged::{Lost, recover};
use super::error::Failed;
use super::keeper::{Keeper, Kept, covered};
use super::layout::{self, GROUPS as NUMBER};
use super::leadership::{
    self, Asks, Ended, LOOK, Lead, Next, Standing, Wishes, lead_whenever, wait_until_it_leads,
};
use super::options::small_log;
use super::room::Room;
use super::snapshot;
use super::task::Task;
use crate::cluster::{self, Apply, Committed, Group, Leadership, Stop};
use crate::groups::{
    Answer, Beat, Change, Commit, Groups, Join, Leave, Refusal, Settings, Step, Store, Sync,
    TopicPartition,
};

/// How often offsets are looked at that may have been kept long enough.
const EXPIRE: Duration = Duration::from_secs(300);

/// How long a client waits for a disk; as Kafka's `offsets.commit.timeout.ms`.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a coordinator is asked.
#[derive(Debug)]
pub(crate) enum Asked {
    /// With the id that the member gets if it has none.
    Join(Join, String),
    Sync(Sync),
    Beat(Beat),
    Leave(Leave),
    Commit(Commit),
    Forget(String, Vec<TopicPartition>),
    Delete(String),
    /// There is no such topic any more.
    TopicIsGone(String),
}

/// Bytes of an offset's entry beside its texts, at most.
const OFFSET_BYTES: usize = 64;

impl Asked {
    /// How large the change may become that it asks for, where nothing else bounds that.
    fn bytes(&self) -> usize {
        let offset = |at: &TopicPartition| at.topic.len() + OFFSET_BYTES;
        match self {
            Self::Commit(commit) => {
                let metadata = |text: &Option<String>| text.as_ref().map_or(0, String::len);
                let offsets = commit.offsets.iter();
                let bytes =
                    offsets.map(|(at, offset_of)| offset(at) + metadata(&offset_of.metadata));
                commit.group.len() + bytes.sum::<usize>()
            }
            Self::Forget(group, partitions) => {
                group.len() + partitions.iter().map(offset).sum::<usize>()
            }
            _ => 0,
        }
    }
}

/// The groups of a node.
#[derive(Debug)]
pub(crate) struct Coordinator {
    asks: mpsc::UnboundedSender<(Asked, oneshot::Sender<Answer>)>,
    wishes: Wishes,
    /// They hold the group: they are before it, and so end before it.
    task: Task,
    keeping: Task,
    pub(super) group: Arc<Group<Stores>>,
    store: Arc<RwLock<Store>>,
    groups: Arc<Mutex<Groups>>,
    standing: watch::Receiver<Standing>,
    pub(super) keeper: Arc<Keeper>,
    /// The first entry that its disk had lost, and that was cut off.
    pub(super) lost: Option<Lost>,
}

/// Applies what was agreed on.
#[derive(Debug)]
pub(crate) struct Stores {
    store: Arc<RwLock<Store>>,
    applied_bytes: Arc<AtomicU64>,
}

impl Apply for Stores {
    type Answer = ();

    fn apply(&mut self, _: u64, _: u64, payload: Option<&Bytes>) -> Result<(), Stop> {
        let Some(bytes) = payload else { return Ok(()) };
        self.applied_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let change = Change::decode(bytes).map_err(|why| Stop(why.to_string()))?;
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        store.apply(&change).map_err(|why| Stop(why.to_string()))
    }
}

impl Kept for Stores {
    fn encode(&self) -> Vec<u8> {
        read(&self.store).encode()
    }

    fn needs_from(&self) -> Option<u64> {
        None
    }
}

impl Coordinator {
    /// Opens the shard in its directory, and coordinates whenever it leads. Who is alone does on return.
    pub(crate) fn open(
        dir: &Arc<dyn Dir>,
        crew: &Arc<Crew>,
        room: &Arc<Room>,
        company: &Arc<Company>,
        settings: Settings,
        acked: Option<Arc<Acked>>,
        clock: fn() -> u64,
    ) -> Result<Self, Failed> {
        let failed = |why| Failed::Shard { number: NUMBER, why };
        dir.create_dir(&layout::shard(NUMBER)).map_err(Failed::Directory)?;
        let node = company.node();
        let found = |is_anew| {
            let (start, store) = snapshot::open(&**dir, NUMBER, Store::decode)?;
            let covered = start.as_ref().and_then(|start| covered(start, None));
            let options = cluster::Options {
                node,
                promise: Ack::Durable,
                must_sync: |_| true,
                start,
                log: small_log(acked.as_deref()),
                crew: Some(Arc::clone(crew)),
            };
            let (recovered, lost) = recover(dir, NUMBER, &options, 0, covered)?;
            Ok((recovered, if is_anew { Some(Lost::All) } else { lost }, (store, covered)))
        };
        let (recovered, lost, (store, covered)) =
            anew::opened(dir, NUMBER, node, |_| Ok(()), found)?;
        let store = Arc::new(RwLock::new(store));
        let applied_bytes = Arc::<AtomicU64>::default();
        let keeper = Arc::new(Keeper::new(dir, NUMBER, Arc::clone(&applied_bytes), None));
        let stores = Stores { store: Arc::clone(&store), applied_bytes };
        let begin = company.begin(NUMBER, lost.is_some(), testimony(acked));
        let begin = if lost == Some(Lost::All) { begin.anew() } else { begin };
        let group = recovered.start_as(begin, stores).map_err(failed)?;
        if let Some(covered) = covered {
            group.cover(covered);
        }
        company.admit(NUMBER, &group);
        let groups = Groups::load(settings.clone(), &read(&store), clock());
        let (group, groups) = (Arc::new(group), Arc::new(Mutex::new(groups)));
        let (asks, asked) = mpsc::unbounded_channel();
        let coordinates = Coordinates {
            group: Arc::clone(&group),
            store: Arc::clone(&store),
            groups: Arc::clone(&groups),
            settings,
            clock,
        };
        let (stands, standing) = watch::channel(Standing::default());
        let (wishes, wished) = mpsc::unbounded_channel();
        let asked = Asks::new(asked, wished);
        let leading = lead_whenever(NUMBER, Arc::clone(&group), coordinates, asked, stands);
        let task = Task::spawn(group.runtime(), leading);
        if group.is_alone() {
            wait_until_it_leads(NUMBER, &group, standing.clone())?;
        }
        let keeping = Arc::clone(&keeper).keep(Arc::clone(&group), Arc::clone(room));
        let keeping = Task::spawn(group.runtime(), keeping);
        Ok(Self { asks, wishes, task, keeping, group, store, groups, standing, keeper, lost })
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask(&self, asked: Asked) -> Answer {
        let (reply, answer) = oneshot::channel();
        if asked.bytes() as u64 > self.group.max_payload_bytes() {
            return Answer::Refused(Refusal::PolicyViolation);
        }
        // These wait for members, the others for a disk.
        let may_last = matches!(asked, Asked::Join(..) | Asked::Sync(_));
        // Where the task has ended, so has the answer.
        self.asks.send((asked, reply)).ok();
        let answer = match may_last {
            true => answer.await.ok(),
            false => tokio::time::timeout(PATIENCE, answer).await.ok().and_then(Result::ok),
        };
        // It may still be agreed on: who is told this looks for the coordinator, and asks again.
        answer.unwrap_or(Answer::Refused(Refusal::NotCoordinator))
    }

    /// Has another node coordinate; it does on return.
    pub(super) async fn hand_over(&self, to: u64) -> cluster::Result<()> {
        leadership::hand_over(&self.wishes, to).await
    }

    /// Whether this node coordinates.
    pub(crate) fn leads(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Leads(_))
    }

    /// Whether clients are told of groups here.
    pub(crate) fn is_read_here(&self) -> bool {
        leadership::is_read_here(*self.standing.borrow(), &self.group)
    }

    /// What is agreed on, as this node has heard.
    pub(crate) fn store(&self) -> RwLockReadGuard<'_, Store> {
        read(&self.store)
    }

    /// The groups as they are here and now.
    pub(crate) fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(self) -> Result<(), Failed> {
        let Self { group, asks, task, keeper, keeping, .. } = self;
        drop(asks);
        task.join();
        let (kept, group) = keeper.close(keeping, group);
        group.close().map_err(|why| Failed::Shard { number: NUMBER, why })?;
        kept
    }
}

fn read(store: &RwLock<Store>) -> RwLockReadGuard<'_, Store> {
    store.read().unwrap_or_else(PoisonError::into_inner)
}

/// What coordinates, whenever this node leads.
struct Coordinates {
    group: Arc<Group<Stores>>,
    store: Arc<RwLock<Store>>,
    groups: Arc<Mutex<Groups>>,
    settings: Settings,
    clock: fn() -> u64,
}

/// One leadership of it.
struct Work<'a> {
    of: &'a Coordinates,
    leadership: Leadership,
    replies: HashMap<u64, oneshot::Sender<Answer>>,
    next_ticket: u64,
    /// Changes that are being agreed on, each with its number.
    on_its_way: FuturesOrdered<BoxFuture<'static, (u64, cluster::Result<Committed<()>>)>>,
    last_now: u64,
}

impl Lead for Coordinates {
    type Ask = (Asked, oneshot::Sender<Answer>);

    fn refuse(&self, (_, reply): Self::Ask) {
        // Who does not wait any more misses nothing.
        reply.send(Answer::Refused(Refusal::NotCoordinator)).ok();
    }

    async fn lead(
        &mut self,
        leadership: Leadership,
        asked: &mut Asks<Self::Ask>,
    ) -> Result<(), Ended> {
        self.begin();
        let work = Work {
            of: self,
            leadership,
            replies: HashMap::new(),
            next_ticket: 0,
            on_its_way: FuturesOrdered::new(),
            last_now: 0,
        };
        // Who still waits is told that another coordinates: its answer is dropped.
        let ended = work.coordinate(asked).await;
        self.begin();
        ended
    }
}

impl Coordinates {
    /// From what is stored: nobody is known to be a member.
    fn begin(&self) {
        let groups = Groups::load(self.settings.clone(), &read(&self.store), (self.clock)());
        *self.groups.lock().unwrap_or_else(PoisonError::into_inner) = groups;
    }
}

impl Work<'_> {
    async fn coordinate(
        mut self,
        asked: &mut Asks<(Asked, oneshot::Sender<Answer>)>,
    ) -> Result<(), Ended> {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut expire = tokio::time::interval(EXPIRE);
        expire.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if asked.is_due(self.on_its_way.is_empty()) {
                return Err(Ended::Wished);
            }
            let alarm = self.alarm();
            tokio::select! {
                biased;
                Some((number, committed)) = self.on_its_way.next() => {
                    committed?;
                    let answers = self.groups().agreed(number);
                    self.answer(answers);
                }
                next = asked.next() => match next {
                    Next::Ask((ask, reply)) => {
                        let step = self.take(ask, reply);
                        self.carry_out(step).await?;
                    }
                    Next::Wish => {}
                    Next::Over => return Ok(()),
                },
                _ = looks.tick() => leadership::check(&self.of.group, self.leadership)?,
                () = tokio::time::sleep_until(alarm) => {
                    let now = self.now();
                    let step = self.groups().tick(now);
                    self.carry_out(step).await?;
                }
                _ = expire.tick() => {
                    let now = self.now();
                    let step = self.groups().expire(&read(&self.of.store), now);
                    self.carry_out(step).await?;
                }
            }
        }
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.of.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, which does not go back.
    fn now(&mut self) -> u64 {
        self.last_now = self.last_now.max((self.of.clock)());
        self.last_now
    }

    fn alarm(&mut self) -> Instant {
        const LONG: Duration = Duration::from_secs(3600);
        let now = self.now();
        let left = self.groups().next_deadline().map(|at| at.saturating_sub(now));
        Instant::now() + left.map_or(LONG, Duration::from_millis)
    }

    fn take(&mut self, asked: Asked, reply: oneshot::Sender<Answer>) -> Step {
        let (ticket, now) = (self.next_ticket, self.now());
        self.next_ticket += 1;
        self.replies.insert(ticket, reply);
        let mut groups = self.groups();
        let store = read(&self.of.store);
        match asked {
            Asked::Join(join, fresh) => groups.join(join, fresh, ticket, now),
            Asked::Sync(sync) => groups.sync(sync, ticket, now),
            Asked::Beat(beat) => groups.beat(&beat, ticket, now),
            Asked::Leave(leave) => groups.leave(&leave, ticket, now),
            Asked::Commit(commit) => groups.commit(commit, &store, ticket, now),
            Asked::Forget(group, partitions) => groups.forget(&group, partitions, ticket, now),
            Asked::Delete(group) => groups.delete(&group, ticket, now),
            Asked::TopicIsGone(topic) => groups.topic_is_gone(topic, ticket),
        }
    }

    /// Has the changes agreed on in their order, and says what may be said now.
    async fn carry_out(&mut self, step: Step) -> cluster::Result<()> {
        for (number, change) in step.changes {
            let committed = self.of.group.submit(self.leadership, change.encode().into()).await?;
            self.on_its_way.push_back(Box::pin(async move { (number, committed.await) }));
        }
        self.answer(step.answers);
        Ok(())
    }

    fn answer(&mut self, answers: Vec<(u64, Answer)>) {
        for (ticket, answer) in answers {
            let reply = self.replies.remove(&ticket).expect("each ticket is answered once");
            // A connection that is gone asks for nothing.
            reply.send(answer).ok();
        }
    }
}
