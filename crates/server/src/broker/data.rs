//! [`DataShard`]: a shard of records: its group, its replica, and the door to its leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_log::{Ack, Crew};
use plimsoll_sync::Dir;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

use super::anew;
use super::compactor::Compactor;
use super::company::Company;
use super::damaged::{Lost, recover_as_decided};
use super::decided::Decided;
use super::ends;
use super::error::Failed;
use super::intended::Intended;
use super::keeper::{Keeper, covered};
use super::kept;
use super::known;
use super::lately::Lately;
use super::layout;
use super::leader::{Appended, Ask, Bounds, Leads};
use super::leadership::{
    Asks, Standing, Wishes, hand_over, is_read_here, lead_whenever, wait_to_begin,
    wait_until_it_leads,
};
use super::mender::{Mender, Others};
use super::neighbours::Neighbours;
use super::replica::{Applier, Replica, needs_from};
use super::room::Room;
use super::scrubber::Scrubber;
use super::seeded::Stage;
use super::settler::Settler;
use super::snapshot;
use super::task::Task;
use super::waiting::wait_for;
use crate::chapter::Shelf;
use crate::cluster::{self, Basis, Begin, Group, Recovered, Testimony};
use crate::run::{self, Mark, Run};
use crate::shard::{BATCH_OVERHEAD_BYTES, Entry, Fence, Item, Opening, Partition, Proposer, State};

/// A shard of records.
#[derive(Debug)]
pub(crate) struct DataShard {
    pub(crate) number: u32,
    asks: mpsc::UnboundedSender<Ask>,
    wishes: Wishes,
    /// They hold the group: they are before it, and so end before it.
    leader: Task,
    keeping: Task,
    /// What writes chapters, and what compacts them; each with what ends it.
    settling: (Task, Arc<ends::Ends>),
    compacting: (Task, Arc<ends::Ends>),
    _scrubbing: Task,
    _mending: Task,
    _warming: Task,
    pub(super) scrubber: Arc<Scrubber>,
    pub(super) mender: Arc<Mender>,
    pub(crate) group: Arc<Group<Applier>>,
    pub(crate) replica: Arc<Replica>,
    pub(crate) shelf: Arc<Shelf>,
    keeper: Arc<Keeper>,
    /// What this replica is: changed by the task that leads.
    standing: watch::Receiver<Standing>,
    room: Arc<Room>,
    pub(super) lately: Lately,
    /// When the next sync is due that a topic asked for by its age.
    due: Mutex<Option<Instant>>,
}

/// The offsets of a partition that clients ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) start: i64,
    /// C: below it all is acknowledged, or was fenced.
    pub(crate) committed: i64,
    /// Up to here records are shown: to C, unless a topic wants more copies of them.
    pub(crate) visible: i64,
    /// D: below it all is durable.
    pub(crate) durable: i64,
    pub(crate) epoch: i32,
}

/// A shard as it was found, to which nothing was added yet.
pub(super) struct Found {
    number: u32,
    recovered: Recovered,
    state: State,
    /// Up to where that makes the log dispensable.
    covered: Option<u64>,
    shelf: Arc<Shelf>,
    tail_bytes: usize,
    /// What was decided where it goes on after a loss.
    decided: Option<Decided>,
    /// What its disk had lost.
    lost: Option<Lost>,
    /// Whether its log was cut off as was decided.
    is_given_up: bool,
}

/// A shard whose engine runs, and that takes nothing yet.
pub(super) struct Opened {
    number: u32,
    group: Arc<Group<Applier>>,
    replica: Arc<Replica>,
    keeper: Arc<Keeper>,
    shelf: Arc<Shelf>,
    decided: Option<Decided>,
}

impl Found {
    /// Opens a shard in its directory. `forgets` is told before its log is another: what memory has of it is to go.
    pub(super) fn open(
        root: &Arc<dyn Dir>,
        number: u32,
        forgets: impl Fn(u32) -> Result<(), Failed>,
        promise: Ack,
        log: &plimsoll_log::Options,
        crew: Option<&Arc<Crew>>,
        (node, tail_bytes, decided): (u64, usize, Option<Decided>),
    ) -> Result<Self, Failed> {
        anew::opened(root, number, node, forgets, |is_anew| {
            let (log, crew) = (log.clone(), crew.cloned());
            Self::open_as(is_anew, root, number, promise, log, crew, (node, tail_bytes, decided))
        })
    }

    fn open_as(
        is_anew: bool,
        root: &Arc<dyn Dir>,
        number: u32,
        promise: Ack,
        log: plimsoll_log::Options,
        crew: Option<Arc<Crew>>,
        (node, tail_bytes, decided): (u64, usize, Option<Decided>),
    ) -> Result<Self, Failed> {
        root.create_dir(&layout::shard(number)).map_err(Failed::Directory)?;
        let chapters = root.create_dir(&layout::chapters(number)).map_err(Failed::Directory)?;
        let (start, state) = snapshot::open(&**root, number, State::decode)?;
        let shelf = match is_anew {
            true => Ok(Shelf::anew(chapters, number)),
            false => Shelf::open_settled(chapters, number, state.settled_chapter()),
        };
        let shelf = Arc::new(shelf.map_err(|why| Failed::Chapters { number, why })?);
        let must_sync =
            |bytes: &[u8]| Entry::decode(bytes).is_ok_and(|entry| entry.must_be_durable);
        let covered = start.as_ref().and_then(|start| covered(start, needs_from(&state)));
        let options = cluster::Options { node, promise, must_sync, start, log, crew };
        let end = shelf.settled().end;
        if let Some(decided) = decided.filter(|_| !is_anew) {
            anew::check_decided(root, number, options.start.as_ref(), end, decided)?;
        }
        let (recovered, lost, is_given_up) =
            recover_as_decided(root, number, &options, (end, covered), decided)?;
        let lost = if is_anew { Some(Lost::All) } else { lost };
        let last = recovered.recovery().last_index;
        if last < end {
            return Err(Failed::Behind { number, last, end });
        }
        if !is_anew {
            shelf.remove_strays().map_err(|why| Failed::Chapters { number, why })?;
        }
        Ok(Self {
            number,
            recovered,
            state,
            covered,
            shelf,
            tail_bytes,
            decided: None,
            lost,
            is_given_up,
        })
    }

    /// What its disk had lost: the replica is in doubt.
    pub(super) fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// Whether its log was cut off as was decided: that it ends there says nothing of its disk.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// The number of the shard.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The last log index that was found.
    pub(super) fn end(&self) -> u64 {
        self.recovered.recovery().last_index
    }

    /// Nothing says any more up to where it was durable: it is in doubt, unless its log was closed in order, at the end of a run that was, or nobody
    /// else has it. Durable on return.
    pub(super) fn doubts(&mut self, root: &Arc<dyn Dir>, node: u64) -> Result<(), Failed> {
        // The log alone may be an earlier state of it.
        let run_is_clean = Mark::look(&**root).is_some_and(|mark| mark.state == run::State::Clean);
        let is_clean = self.recovered.recovery().clean && run_is_clean;
        let is_told = self.lost.is_some() || is_clean;
        if !is_told && anew::others_have(root, self.number, node)? {
            Stage::Forgot.write(&**root, self.number)?;
            self.lost = Some(Lost::Untold);
        }
        Ok(())
    }

    /// Goes on after a loss, as was decided; whether it had not yet. Durable on return.
    pub(super) fn rise(&mut self, root: &dyn Dir, decided: Decided) -> Result<bool, Failed> {
        let is_news = self.recovered.generation() < decided.generation;
        if is_news {
            // What this log had lost then is not missed by later starts either.
            let own = if decided.lifts { decided.ended.1 } else { u64::MAX };
            let forgets = known::forget_lost(root, self.number, (decided.guaranteed, own));
            forgets.map_err(Failed::Directory)?;
            kept::stays(root, self.number)?;
        }
        self.decided = Some(decided);
        let number = self.number;
        let risen = self.recovered.rise(decided.generation);
        risen.map(|()| is_news).map_err(|why| Failed::Shard { number, why })
    }

    /// The last log index that its recovery found; all up to it is durable on return. The runtime is one that
    /// may be waited on.
    pub(super) fn last_index(&self, runtime: &Handle) -> Result<u64, Failed> {
        let failed = |why| Failed::Shard { number: self.number, why };
        let durable = async { self.recovered.wait_durable().await.map_err(failed) };
        wait_for(runtime, || self.recovered.lacks_room().map(failed), durable)?;
        Ok(self.recovered.recovery().last_index)
    }

    /// Has its engine begin.
    pub(super) fn begin(
        self,
        root: &Arc<dyn Dir>,
        company: &Arc<Company>,
        (is_dirty, basis): (bool, Basis),
        testimony: Option<Arc<dyn Testimony>>,
    ) -> Result<Opened, Failed> {
        let Self { number, recovered, state, covered, shelf, tail_bytes, decided, lost, .. } = self;
        let failed = |why| Failed::Shard { number, why };
        let replica = Arc::new(Replica::new(state, tail_bytes, shelf.settled().end));
        let begin = Begin { basis, ..company.begin(number, is_dirty, testimony) };
        let begin = if lost == Some(Lost::All) { begin.anew() } else { begin };
        let group = recovered.start_as(begin, Applier(Arc::clone(&replica))).map_err(failed)?;
        if let Some(covered) = covered {
            group.cover(covered);
        }
        company.admit(number, &group);
        let applied_bytes = Arc::clone(&replica.applied_bytes);
        let keeper = Keeper::new(root, number, applied_bytes, Some(Arc::clone(&shelf)));
        let (group, keeper) = (Arc::new(group), Arc::new(keeper));
        Ok(Opened { number, group, replica, keeper, shelf, decided })
    }
}

impl Opened {
    /// The number of the shard.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// What its entries have made here.
    pub(super) fn replica(&self) -> Arc<Replica> {
        Arc::clone(&self.replica)
    }

    /// Whether nobody else votes in its group.
    pub(super) fn is_alone(&self) -> bool {
        self.group.is_alone()
    }

    /// Goes on behind what may be gone, as its leader. Durable on return.
    pub(super) fn fence(&self, fence: Fence, now: u64) -> Result<(), Failed> {
        let leadership = wait_to_begin(self.number, &self.group)?;
        let act = {
            let state = &self.replica.lock().state;
            Proposer::new(state, now).act(state, now, &[Item::Fence(fence)])
        };
        let act = act.expect("a fence is something to agree on");
        let failed = |why| Failed::Shard { number: self.number, why };
        let fence = async {
            let proposed = self.group.propose(leadership, act.bytes).await;
            proposed.map(drop).map_err(failed)
        };
        wait_for(self.group.runtime(), || self.group.lacks_room().map(failed), fence)
    }

    /// Where its engine runs.
    pub(super) fn runtime(&self) -> &Handle {
        self.group.runtime()
    }

    /// The last log index that is durable, as the shard counts.
    pub(super) fn durable(&self) -> u64 {
        durable(&self.group)
    }

    /// Takes what is asked from here on. `run` is told that there is something to acknowledge again, where that is
    /// before it is durable.
    pub(super) fn serve(
        self,
        run: Option<Arc<Run>>,
        room: &Arc<Room>,
        (intended, neighbours): (&Arc<Intended>, &Arc<Neighbours>),
        company: &Arc<Company>,
        bounds: Bounds,
        scrub_every: Option<Duration>,
        clock: fn() -> u64,
    ) -> DataShard {
        let Self { number, group, replica, keeper, shelf, decided } = self;
        let (asks, asked) = mpsc::unbounded_channel();
        let leads = Leads {
            number,
            group: Arc::clone(&group),
            replica: Arc::clone(&replica),
            intended: Arc::clone(intended),
            neighbours: Arc::clone(neighbours),
            run,
            room: Arc::clone(room),
            bounds,
            decided,
            clock,
        };
        group.refuses_while(room.shortness());
        let (stands, standing) = watch::channel(Standing::default());
        let (wishes, wished) = mpsc::unbounded_channel();
        let asked = Asks::new(asked, wished);
        let leading = lead_whenever(number, Arc::clone(&group), leads, asked, stands);
        let leader = Task::spawn(group.runtime(), leading);
        // What was deleted, and not freed by the end of the last run.
        if !shelf.is_empty() {
            keeper.keep_soon();
        }
        let keeping = Arc::clone(&keeper).keep(Arc::clone(&group), Arc::clone(room));
        let keeping = Task::spawn(group.runtime(), keeping);
        let (settler_ends, compactor_ends) = <(Arc<ends::Ends>, Arc<ends::Ends>)>::default();
        let settler = Arc::new(Settler {
            number,
            shelf: Arc::clone(&shelf),
            replica: Arc::clone(&replica),
            keeper: Arc::clone(&keeper),
            room: Arc::clone(room),
            asks: asks.downgrade(),
            clock,
            ends: Arc::clone(&settler_ends),
        });
        let settling = Task::spawn(group.runtime(), settler.settle(Arc::clone(&group)));
        let compactor = Arc::new(Compactor {
            number,
            shelf: Arc::clone(&shelf),
            replica: Arc::clone(&replica),
            keeper: Arc::clone(&keeper),
            room: Arc::clone(room),
            clock,
            ends: Arc::clone(&compactor_ends),
        });
        let compacting = Task::spawn(group.runtime(), compactor.compact());
        let cold = Arc::clone(&shelf);
        let warming = Task::spawn(group.runtime(), async move {
            // A panic there was printed there.
            spawn_blocking(move || cold.warm()).await.ok();
        });
        let others = Arc::clone(company) as Arc<dyn Others>;
        let mender = Arc::new(Mender::new(number, Arc::clone(&shelf), others));
        let mending = Task::spawn(group.runtime(), Arc::clone(&mender).mend());
        let chapters = Some((Arc::clone(&shelf), Arc::clone(&mender)));
        let log = Arc::downgrade(&group);
        let scrubber = Arc::new(Scrubber::new(
            number,
            chapters,
            Some(Arc::clone(&keeper)),
            log,
            scrub_every,
            clock,
        ));
        let scrubbing = Task::spawn(group.runtime(), Arc::clone(&scrubber).keep());
        DataShard {
            number,
            asks,
            wishes,
            leader,
            keeping,
            settling: (settling, settler_ends),
            compacting: (compacting, compactor_ends),
            _scrubbing: scrubbing,
            _mending: mending,
            _warming: warming,
            scrubber,
            mender,
            group,
            replica,
            shelf,
            keeper,
            standing,
            room: Arc::clone(room),
            lately: Lately::default(),
            due: Mutex::new(None),
        }
    }
}

impl DataShard {
    /// Whether its disk or its engine has failed: nothing is taken any more, what is in memory or can
    /// be read is served.
    pub(crate) fn has_failed(&self) -> bool {
        *self.standing.borrow() == Standing::Failed
    }

    /// Whether records are read here: this replica leads, or it has failed, and there is no other.
    pub(crate) fn is_read_here(&self) -> bool {
        is_read_here(*self.standing.borrow(), &self.group)
    }

    /// Whether this replica leads.
    pub(super) fn leads(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Leads(_))
    }

    /// Has another node lead; it does on return.
    pub(super) async fn hand_over(&self, to: u64) -> cluster::Result<()> {
        hand_over(&self.wishes, to).await
    }

    /// Waits until it leads, on a thread that is not a runtime's.
    pub(super) fn wait_to_lead(&self) -> Result<(), Failed> {
        wait_until_it_leads(self.number, &self.group, self.standing.clone())
    }

    /// Done when this replica does not lead any more, or has failed.
    pub(crate) fn until_it_follows(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut standing = self.standing.clone();
        async move {
            let follows = |standing: &Standing| !matches!(standing, Standing::Leads(_));
            // Where nobody changes it any more it has ended.
            standing.wait_for(follows).await.ok();
        }
    }

    /// Done when it has failed, or ended.
    pub(super) async fn until_it_fails(&self) {
        let mut standing = self.standing.clone();
        standing.wait_for(|standing| *standing == Standing::Failed).await.ok();
    }

    /// Whether a batch of so many bytes may be appended, by the room on the disks. Where only this one is full it may for a
    /// while: another node is about to lead.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        let has_room = self.room.takes(bytes) || !self.room.is_spent() && self.had_better_go();
        has_room && !self.group.lacks_room_elsewhere()
    }

    /// Whether the disk has no room for records.
    pub(super) fn is_full(&self) -> bool {
        self.room.is_short()
    }

    /// Whether this replica leads, and too few disks have room for records.
    pub(super) fn lacks_room_elsewhere(&self) -> bool {
        self.group.lacks_room_elsewhere()
    }

    /// How many brokers are in sync, where this replica leads and these are fewer than so many copies take, and than being committed
    /// does not: who asks for as many is refused.
    pub(crate) fn lacks_copies(&self, copies: usize) -> Option<usize> {
        // Who is about to lead does not know yet.
        let in_sync = self.is_read_here().then(|| self.group.in_sync())?;
        (in_sync < copies && self.group.is_above_majority(copies)).then_some(in_sync)
    }

    /// Whether this replica leads, and refuses records: its disk has no room for them, or too few others have.
    pub(super) fn refuses(&self) -> bool {
        self.leads() && (self.is_full() || self.lacks_room_elsewhere())
    }

    /// Whether another node had better lead it: its disk has no room for records, and another's has.
    pub(super) fn had_better_go(&self) -> bool {
        let is_well_elsewhere = || {
            let (voters, unwell) = (self.group.voters(), self.group.unwell());
            // What is known of this one may be older than what is known of the room.
            let mut others = voters.into_iter().filter(|voter| *voter != self.group.node());
            self.leads() && others.any(|voter| !unwell.contains_key(&voter))
        };
        self.room.is_short() && is_well_elsewhere()
    }

    /// The largest batch that an entry has room for.
    pub(crate) fn batch_bytes_max(&self) -> u64 {
        self.group.max_payload_bytes().saturating_sub(BATCH_OVERHEAD_BYTES as u64)
    }

    /// Has a batch wait for the next entry.
    pub(crate) fn append(
        &self,
        connection: u64,
        opening: Opening,
        batch: Bytes,
    ) -> oneshot::Receiver<Appended> {
        let (reply, appended) = oneshot::channel();
        let ask = Ask::Append { connection, opening, batch, reply };
        if let Err(mpsc::error::SendError(Ask::Append { reply, .. })) = self.asks.send(ask) {
            // Who asked is told.
            reply.send(Appended::NOT_LEADER).ok();
        }
        appended
    }

    /// Has acts agreed on, if there are any; they are applied and durable on return.
    pub(crate) async fn act(&self, items: Vec<Item<'static>>) -> Result<(), Failed> {
        if items.is_empty() {
            return Ok(());
        }
        let (reply, done) = oneshot::channel();
        let offline = || Failed::Offline { number: self.number };
        self.asks.send(Ask::Act { items, reply }).map_err(|_closed| offline())?;
        done.await.map_err(|_gone| offline())?
    }

    /// The last log index that is durable, as the shard counts.
    pub(crate) fn durable(&self) -> u64 {
        durable(&self.group)
    }

    /// Waits until an entry is durable, by the shard's index, and asks for that.
    pub(crate) async fn wait_durable(&self, index: u64) -> Result<(), Failed> {
        let Some(index) = index.checked_sub(1) else { return Ok(()) };
        let failed = |why| Failed::Shard { number: self.number, why };
        self.group.wait_durable(index).await.map_err(failed)
    }

    /// The oldest offset of a partition that can be read; `None` if it is not here.
    pub(crate) fn start(&self, opening: Opening) -> Option<i64> {
        self.replica.lock().state.partition(opening).map(Partition::start)
    }

    /// The offsets of a partition; `None` if it is not here.
    pub(crate) fn ends(&self, opening: Opening) -> Option<Ends> {
        let durable = self.durable();
        let shard = self.replica.lock();
        let partition = shard.state.partition(opening)?;
        Some(Ends::of(partition, shard.state.turns(), durable))
    }

    /// The same, where records are shown once so many voters have them.
    pub(crate) fn ends_with(&self, opening: Opening, copies: usize) -> Option<Ends> {
        // The engine counts from 0.
        let copied = self.group.copied(copies).map_or(0, |index| index + 1);
        let ends = self.ends(opening)?;
        let shard = self.replica.lock();
        let visible = shard.state.partition(opening)?.end_at(copied);
        Some(Ends { visible: visible.clamp(ends.start, ends.committed), ..ends })
    }

    /// Has a sync of all that is applied begin in so many milliseconds at the latest.
    pub(crate) fn sync_within(self: &Arc<Self>, ms: u64) {
        let at = Instant::now() + Duration::from_millis(ms);
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.is_some_and(|due| due <= at) {
            return;
        }
        *due = Some(at);
        drop(due);
        let shard = Arc::downgrade(self);
        self.group.runtime().spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            let Some(shard) = shard.upgrade() else { return };
            {
                let mut due = shard.due.lock().unwrap_or_else(PoisonError::into_inner);
                if *due != Some(at) {
                    return;
                }
                *due = None;
            }
            let synced = shard.group.applied().map(|applied| shard.group.wait_durable(applied));
            drop(shard);
            if let Some(synced) = synced
                && let Err(why) = synced.await
            {
                tracing::error!(%why, "a sync failed");
            }
        });
    }

    /// Takes no more, has all that was taken agreed on or refused, and makes it durable, with its state.
    /// Returns the last log index.
    pub(super) fn close(self) -> Result<u64, Failed> {
        self.shelf.end();
        let Self { number, group, asks, leader, keeper, keeping, settling, compacting, .. } = self;
        drop(asks);
        leader.join();
        // What one of them waits for may be what the other does.
        [&compacting, &settling].iter().for_each(|(_, ends)| ends.tell());
        for (task, ends) in [compacting, settling] {
            ends.come();
            task.join();
        }
        self.shelf.remember();
        let (kept, group) = keeper.close(keeping, group);
        let last = group.close().map_err(|why| Failed::Shard { number, why })?;
        kept.map(|()| last)
    }
}

/// The engine counts from 0, the shard from 1.
fn durable(group: &Group<Applier>) -> u64 {
    group.durable().map_or(0, |index| index + 1)
}

impl Ends {
    fn of(partition: &Partition, turns: u64, durable: u64) -> Self {
        Self {
            start: partition.start(),
            committed: partition.next(),
            visible: partition.next(),
            durable: partition.end_at(durable).max(partition.start()),
            epoch: i32::try_from(partition.epoch(turns)).unwrap_or(i32::MAX),
        }
    }
}
