//! [`Node`]: all shards of a directory, opened and closed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use plimsoll_log::{Ack, Crew, CrewOptions, Policy, Ring};
use plimsoll_sync::{Dir, Lock, OsDir};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::ailing;
use super::chores::{greet, note_durable, rest, trust_once_clean};
use super::company::{Company, Door, Witnessed, listen, node_of};
use super::coordinator::{Asked, Coordinator};
use super::damaged::{self, Lost};
use super::data::{DataShard, Found, Opened};
use super::decided::Decisions;
use super::deleting;
use super::desk::Desk;
use super::domains::{Domains, DomainsOverview};
use super::error::Failed;
use super::giver::Giver;
use super::kept;
use super::layout::{
    CONTROL, DURABLE, GROUPS, RECORDS, SHARDS, SHARED, cluster_id, is_founder, is_restored,
};
use super::leader::{Bounds, ChapterSize};
use super::leaders::{Drained, Leaders};
use super::leadership::Leader;
use super::members::{Member, Members};
use super::memory::{RING_BYTES_MIN, forget_ring, has_room, memory, ring, ring_left};
use super::moving;
use super::neighbours::Neighbours;
use super::operators_door::OperatorsDoor;
use super::options::{Options, Promise};
use super::recovery::{Own, Recovery};
use super::registrar::Registrar;
use super::room::Room;
use super::scrubs::Scrubs;
use super::seeded::{Stage, put_in_place};
use super::task::Task;
use super::topics::{Control, Topics};
use crate::cluster::Lack;
use crate::control::{Catalog, Topic};
use crate::groups::Answer;
use crate::run::{Ends, Run, Start, Verdict};
use crate::{peer, random};

/// A node: alone, or one of a cluster. Dropping it is as a crash of the process, but that what was acknowledged is written if
/// that is possible; [`Node::close`] ends it in order.
#[derive(Debug)]
pub struct Node {
    /// They hold the shards: they are before these, and so end before them.
    tasks: [Task; 5],
    meeting: Vec<Task>,
    company: Arc<Company>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Coordinator>,
    pub(crate) leaders: Arc<Leaders>,
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) registrar: Arc<Registrar>,
    pub(crate) scrubs: Arc<Scrubs>,
    pub(crate) options: Options,
    domains: Arc<Domains>,
    members: Arc<Members>,
    heard: watch::Receiver<bool>,
    cluster_id: String,
    promise: Promise,
    run: Arc<Run>,
    verdict: String,
    root: Arc<dyn Dir>,
    dir: PathBuf,
    /// What is being given of shards, in words.
    seeding: Mutex<BTreeMap<u32, String>>,
    /// A shard in which this node votes, and has nothing of it.
    lost: Arc<OnceLock<u32>>,
    /// Why its disk counts as failed.
    failed: Arc<OnceLock<String>>,
    memory: Option<OsDir>,
    _lock: Lock,
}

impl Node {
    /// Opens a node in a directory, which is made if it is not there. On return it leads all its shards,
    /// and all that was acknowledged and is there is durable. Where the last run may have lost something
    /// that it acknowledged, a fence says so.
    ///
    /// Must not be called on a runtime: it waits for the disk.
    ///
    /// # Errors
    /// [`Failed`], which names what cannot be opened.
    pub fn open(path: &Path, options: Options) -> Result<Self, Failed> {
        let dir: Arc<dyn Dir> = Arc::new(OsDir::create_all(path).map_err(Failed::Directory)?);
        Self::open_in(&dir, path.to_owned(), options)
    }

    /// As [`Node::open`], in this directory, which is called `path` where clients ask.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub fn open_in(dir: &Arc<dyn Dir>, path: PathBuf, options: Options) -> Result<Self, Failed> {
        if options.ring_bytes < RING_BYTES_MIN {
            return Err(Failed::SmallRing {
                ring_bytes: options.ring_bytes,
                least_bytes: RING_BYTES_MIN,
            });
        }
        let lock = dir.lock("lock").map_err(Failed::Directory)?;
        let seat = options.seat.clone();
        let wanted = seat.as_ref().map(|seat| seat.cluster.as_str());
        let cluster_id = cluster_id(&**dir, wanted)?;
        let listener = seat.as_ref().map(|seat| listen(seat.listen)).transpose()?;
        let founds = seat.is_none() || is_founder(&**dir)?;
        let node = node_of(seat.as_ref());
        let memory = memory(&options, &**dir, &cluster_id, node)?;
        // What the ring has of another log is none of this.
        let forgets = |number| {
            let memory = memory.as_ref().filter(|_| SHARED.contains(&number));
            memory.map_or(Ok(()), |memory| forget_ring(memory, number))
        };
        let whys = put_in_place(dir, node, forgets)?;
        let decided = Decisions::read(dir)?;
        let in_doubt = whys.keys().copied().filter(|number| !decided.lifts(*number));
        let in_doubt: Vec<u32> = in_doubt.collect();
        let company = Company::new(seat.as_ref(), founds, in_doubt.clone());
        let ring_bytes = ring_left(memory.as_ref()).unwrap_or(options.ring_bytes);
        let options = Options { ring_bytes, ..options };
        // A log each, and room for control and groups beside the records'.
        let crew = CrewOptions { threads: 3, ring_bytes: ring_bytes + (32 << 20) };
        let crew = Arc::new(Crew::start(crew).map_err(Failed::Threads)?);
        let rings = memory.as_ref().filter(|memory| has_room(memory, &options));
        let promise = if rings.is_some() { Promise::Memory } else { Promise::Kernel };
        let held = (company.node(), options.tail_bytes);
        let found = |number| {
            let (ring, ack) = match rings {
                Some(memory) => (Ring::File(memory.path().join(ring(number))), Ack::Buffered),
                None => (Ring::Memory, Ack::Written),
            };
            let mut found = if number == DURABLE {
                let log = options.log(Ring::Memory, Policy::everysec());
                Found::open(dir, number, forgets, Ack::Durable, &log, Some(&crew), held)?
            } else {
                let log = options.log(ring, options.flush);
                Found::open(dir, number, forgets, ack, &log, None, held)?
            };
            decided.of(number).map_or(Ok(()), |decided| found.rise(&**dir, decided))?;
            Ok(found)
        };
        let shared = SHARED.into_iter().map(found).collect::<Result<Vec<_>, Failed>>()?;
        // What was durable before it was acknowledged cannot be in doubt.
        let durable = found(DURABLE)?;
        let all = shared.iter().chain([&durable]);
        let mut damaged: BTreeMap<u32, Lost> =
            all.filter_map(|found| Some((found.number(), found.lost()?))).collect();
        let is_damaged = damaged.contains_key(&DURABLE);
        let yields = decided.yields(DURABLE);
        let durable = durable.begin(dir, &company, (is_damaged, yields), None)?;
        let mut ends = Ends::new();
        for found in &shared {
            let last = found.last_index(durable.runtime())?;
            ends.extend((last > 0).then_some((found.number(), last)));
        }
        let start = Start {
            data: &**dir,
            memory: memory.as_ref().map(|memory| memory as &dyn Dir),
            boot: plimsoll_sync::boot_id(),
            fresh_id: u128::from_le_bytes(random::bytes()),
            now_ms: now(),
        };
        // Before anything is added to it: a log that has grown since would hide what it has lost.
        let (run, verdict) = Run::begin_beside(start, &ends, &damaged.keys().copied().collect())?;
        let run = Arc::new(run);
        let loss = match &verdict {
            Verdict::MayHaveLost(loss) => Some(loss),
            Verdict::NothingLost(_) => None,
        };
        if loss.is_some() && SHARED.iter().all(|number| decided.lifts(*number)) {
            run.fenced(&ends, now())?;
        }
        decided.are_done(dir, &damaged)?;
        let mut opened = Vec::new();
        let mut forgot = Vec::new();
        for found in shared {
            let number = found.number();
            let loss = loss.filter(|_| !decided.lifts(number));
            let witnessed = Arc::new(Witnessed { run: Arc::clone(&run), number });
            let is_dirty = loss.is_some() || damaged.contains_key(&number);
            let begins = (is_dirty, decided.yields(number));
            let shard = found.begin(dir, &company, begins, Some(witnessed))?;
            match loss {
                Some(loss) if shard.is_alone() => {
                    shard.fence(loss.fence(number), now())?;
                    ends.insert(number, shard.durable());
                }
                // It is in doubt already, and for more.
                Some(_) if damaged.get(&number) == Some(&Lost::All) => {}
                // The others may have what this one has lost. From here on the doubt is that shard's own.
                Some(_) => {
                    Stage::Forgot.write(&**dir, number)?;
                    forgot.push(number);
                }
                None => {}
            }
            opened.push(shard);
        }
        let is_alone = durable.is_alone() && opened.iter().all(Opened::is_alone);
        if let Some(loss) = loss {
            // What was acknowledged after the backup was durable, and is not here.
            if is_alone && is_restored(&**dir)? {
                durable.fence(loss.fence(DURABLE), now())?;
            }
            run.fenced(&ends, now())?;
        }
        opened.push(durable);
        opened.sort_by_key(Opened::number);
        let room = Arc::new(Room::new(dir, options.reserve_bytes));
        let (bytes, age) = (room.for_chapter(options.chapter_bytes), options.chapter_age);
        let (chapter, every) = (ChapterSize { bytes, age }, options.scrub_every);
        let control = Control::open(dir, &crew, &company)?;
        damaged.extend(control.lost.map(|lost| (CONTROL, lost)));
        let intended = Arc::clone(&control.intended);
        let replicas = opened.iter().map(|shard| (shard.number(), shard.replica()));
        let neighbours = Arc::new(Neighbours::new(replicas));
        let intents = (&intended, &neighbours);
        let serve = |shard: Opened| {
            let run = SHARED.contains(&shard.number()).then(|| Arc::clone(&run));
            // The others' records are not agreed on before they are durable.
            let unsynced = run.is_some().then(|| options.unsynced_max(promise)).flatten();
            let bounds = Bounds { chapter, unsynced };
            Arc::new(shard.serve(run, &room, intents, &company, bounds, every, now))
        };
        let shards = opened.into_iter().map(serve).collect();
        let topics = Topics::new(control, shards, options.partitions_max, &company);
        let topics = Arc::new(topics);
        company.serve(Arc::new(Desk(Arc::downgrade(&topics))));
        company.give(Arc::new(Giver(Arc::downgrade(&topics))));
        let runtime = &topics.shard(SHARED[0]).group.runtime().clone();
        let watching = Task::spawn(runtime, Arc::clone(&room).watch());
        let resting = Task::spawn(
            runtime,
            rest(Arc::clone(dir), Arc::downgrade(&topics), Arc::clone(&run), now),
        );
        let groups = Coordinator::open(dir, &crew, &room, &company, options.groups.clone(), now)?;
        let groups = Arc::new(groups);
        damaged.extend(groups.lost.map(|lost| (GROUPS, lost)));
        // While others are taken in they are in some groups, and not in others: whoever leads knows what is intended.
        let is_sole = is_alone && topics.group().is_alone() && groups.group.is_alone();
        if is_sole {
            topics.check_intended()?;
            for shard in &topics.shards {
                shard.wait_to_lead()?;
            }
            topics.wait_until_all_done()?;
            forget_topics(&groups, &topics.catalog());
        }
        let letting_go = deleting::let_go(Arc::clone(&topics), Arc::clone(&groups));
        let letting_go = Task::spawn(groups.group.runtime(), letting_go);
        let moving = Task::spawn(runtime, moving::move_on(Arc::clone(&topics), neighbours));
        let (hears, heard) = watch::channel(topics.leads());
        let hearing = Task::spawn(runtime, Topics::hear(Arc::clone(&topics), hears));
        if is_sole {
            wait_until_gone(&topics);
        }
        let leaders = Leaders::new(&company, &topics, &groups);
        let anew = SHARDS.map(|number| Ok((number, began_anew(dir, number)?)));
        let anew = anew.into_iter().collect::<Result<Vec<_>, Failed>>()?;
        let anew = anew.into_iter().filter_map(|(number, is_so)| is_so.then_some(number)).collect();
        let mut doubts = whys.clone();
        doubts.extend(damaged.iter().map(|(number, lost)| (*number, lost.why())));
        let own = Own {
            incarnation: run.incarnation(),
            verdict: verdict.to_string(),
            doubts,
            anew,
            policy: options.on_majority_dirty,
            clock: now,
        };
        let recovery = Recovery::new(&company, &topics, &groups, dir, own);
        let registrar = Registrar::new(&company, &topics, options.replication_factor);
        let scrubs = Scrubs::new(&company, &topics, &groups, every, now);
        let operators = OperatorsDoor {
            leaders: Arc::downgrade(&leaders),
            recovery: Arc::downgrade(&recovery),
            registrar: Arc::downgrade(&registrar),
            scrubs: Arc::downgrade(&scrubs),
        };
        company.obey(Arc::new(operators));
        let members = Arc::new(Members::alone(company.node()));
        let domains = Domains::new(&members, &topics, options.allows_one_domain);
        let (mut meeting, lost) = (Vec::new(), Arc::<OnceLock<u32>>::default());
        let failed = Arc::<OnceLock<String>>::default();
        if let Some((seat, listener)) = seat.zip(listener) {
            let cluster = u128::from_str_radix(&cluster_id, 16);
            let cluster = cluster.map_err(|_why| Failed::Damaged("cluster".to_owned()))?;
            let whose = (cluster, run.incarnation());
            let (hello, members) = (Member::of(&seat), Arc::clone(&members));
            meeting.push(company.meet(listener, whose, hello, members, runtime)?);
            meeting.push(Task::spawn(runtime, Arc::clone(&registrar).keep()));
            let (of, and) = (Arc::downgrade(&topics), Arc::downgrade(&groups));
            let ailing = ailing::watch(of, and, Arc::clone(&failed));
            meeting.push(Task::spawn(groups.group.runtime(), ailing));
            let spread = Arc::clone(&leaders).spread(options.spreads_leaders);
            meeting.push(Task::spawn(runtime, spread));
            meeting.push(Task::spawn(runtime, Arc::clone(&recovery).watch()));
            meeting.push(Task::spawn(runtime, Arc::clone(&domains).watch()));
            for number in SHARDS {
                let (company, lost) = (Arc::clone(&company), Arc::clone(&lost));
                meeting.push(match number {
                    CONTROL => Task::spawn(runtime, greet(company, lost, number, topics.group())),
                    GROUPS => Task::spawn(runtime, greet(company, lost, number, &groups.group)),
                    of => Task::spawn(runtime, greet(company, lost, of, &topics.shard(of).group)),
                });
            }
            for number in [CONTROL, GROUPS, DURABLE] {
                let (topics, groups) = (Arc::downgrade(&topics), Arc::downgrade(&groups));
                let look = move || match number {
                    CONTROL => Some(topics.upgrade()?.group().outline()),
                    GROUPS => Some(groups.upgrade()?.group.outline()),
                    of => Some(topics.upgrade()?.shard(of).group.outline()),
                };
                meeting.push(Task::spawn(runtime, note_durable(Arc::clone(dir), number, look)));
            }
            let doubts = in_doubt.iter().chain(&forgot).chain(damaged.keys());
            let in_doubt: BTreeSet<u32> = doubts.copied().collect();
            for number in in_doubt {
                let dir = Arc::clone(dir);
                meeting.push(match number {
                    CONTROL => Task::spawn(runtime, trust_once_clean(dir, number, topics.group())),
                    GROUPS => Task::spawn(runtime, trust_once_clean(dir, number, &groups.group)),
                    of => Task::spawn(runtime, trust_once_clean(dir, of, &topics.shard(of).group)),
                });
            }
        }
        // What the run knows is what its marks say.
        let by = if damaged.is_empty() { "" } else { "by its marks " };
        let mut verdict = format!("{by}{verdict}");
        let going_on: Vec<String> =
            RECORDS.into_iter().filter(|of| decided.lifts(*of)).map(|of| of.to_string()).collect();
        if !going_on.is_empty() {
            let shards = going_on.join(", ");
            verdict += &format!("; after a loss it was decided that these shards go on: {shards}");
        }
        for number in &in_doubt {
            verdict += &format!("; shard {number} is in doubt: {}", whys[number]);
        }
        verdict.extend(damaged.iter().map(damaged::said));
        if !forgot.is_empty() {
            verdict += "; it asks the other brokers for them, and votes once it has caught up";
        }
        let (root, dir, seeding) = (Arc::clone(dir), path, Mutex::default());
        Ok(Self {
            topics,
            groups,
            leaders,
            recovery,
            registrar,
            scrubs,
            options,
            domains,
            members,
            heard,
            cluster_id,
            promise,
            run,
            verdict,
            tasks: [resting, watching, letting_go, moving, hearing],
            meeting,
            company,
            root,
            dir,
            seeding,
            lost,
            failed,
            memory,
            _lock: lock,
        })
    }

    /// What is known of the run before this one: a sentence.
    #[must_use]
    pub fn verdict(&self) -> &str {
        &self.verdict
    }

    /// The id of the cluster, given when the directory was made.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Who is in the cluster, as clients are told.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Where the nodes stand, and what follows from that.
    pub(crate) fn domains(&self) -> DomainsOverview {
        self.domains.overview()
    }

    /// Whether it has heard, since its start, of all topics that there were then: before that it says nothing of them.
    pub(crate) fn has_heard(&self) -> bool {
        *self.heard.borrow()
    }

    /// Waits until it has.
    pub(crate) fn until_heard(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut heard = self.heard.clone();
        // Who tells it ends with the node.
        async move { drop(heard.wait_for(|heard| *heard).await) }
    }

    /// Who leads the control shard.
    pub(crate) fn controller(&self) -> Leader {
        Leader::of(self.topics.group(), self.members.here(), self.topics.leads())
    }

    /// Who leads the groups' shard.
    pub(crate) fn coordinator(&self) -> Leader {
        Leader::of(&self.groups.group, self.members.here(), self.groups.leads())
    }

    /// Who leads a shard of records.
    pub(crate) fn leader_of(&self, shard: &DataShard) -> Leader {
        Leader::of(&shard.group, self.members.here(), shard.leads())
    }

    /// What an acknowledgement survives, where a topic does not ask for more.
    #[must_use]
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// The largest batch that any of its shards has room for, in bytes.
    #[must_use]
    pub fn batch_bytes_max(&self) -> u64 {
        self.topics.shards().iter().map(|shard| shard.batch_bytes_max()).min().unwrap_or(0)
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The time in ms since 1970.
    pub(crate) fn now(&self) -> u64 {
        now()
    }

    /// The runtime on which requests are best served: that of the shard which most are for, as this node is to lead it.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        let here = Some(self.company.node());
        let shared = SHARED.map(|number| self.topics.shard(number));
        let is_for_here = |shard: &&Arc<DataShard>| self.topics.preferred(shard) == here;
        shared.into_iter().find(is_for_here).unwrap_or(shared[0]).group.runtime()
    }

    /// Hands over all that it leads, and takes no more: it is about to be stopped. What is left to do is what nobody
    /// else can.
    pub async fn part(&self) -> Drained {
        self.leaders.part().await
    }

    /// The same; then all that it has is durable on a majority, and where its chapters were read is noted for the next start.
    pub(crate) async fn drain(self: &Arc<Self>) -> Drained {
        let drained = self.leaders.drain().await;
        let node = Arc::clone(self);
        let noted = move || node.topics.shards().iter().for_each(|shard| shard.shelf.remember());
        // It promises nothing.
        tokio::task::spawn_blocking(noted).await.ok();
        drained
    }

    /// Its directory.
    pub(crate) fn root(&self) -> &Arc<dyn Dir> {
        &self.root
    }

    /// Why this node is to end: it may not be the one that it is called, as it votes and has forgotten how; or its disk has
    /// failed. It is to be closed.
    #[must_use]
    pub fn lost(&self) -> Option<Failed> {
        let node = self.members.here();
        if let Some(why) = self.failed.get() {
            return Some(self.disk_failed(why));
        }
        let lost = self.lost.get().map(|number| Failed::Lost { node, number: *number });
        lost.or_else(|| self.company.is_outdated().then_some(Failed::WentBack { node }))
    }

    fn disk_failed(&self, why: &str) -> Failed {
        Failed::Disk { dir: self.dir.display().to_string(), why: why.to_owned() }
    }

    /// Whether no more is to be written than has to be.
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.topics.shards.iter().any(|shard| shard.is_full())
    }

    /// Shards that lack what their leaders have let go of: they must be seeded.
    pub(crate) fn lacks(&self) -> Vec<(u32, Lack)> {
        let groups = (GROUPS, self.groups.group.lack());
        let records = self.topics.shards.iter().map(|shard| (shard.number, shard.group.lack()));
        let all = std::iter::once(groups).chain(records);
        all.filter_map(|(number, lack)| Some((number, lack?))).collect()
    }

    /// Says of a shard how its seeding goes.
    pub(crate) fn say_seeding(&self, number: u32, said: String) {
        self.seeding.lock().unwrap_or_else(PoisonError::into_inner).insert(number, said);
    }

    /// How the seeding of a shard goes, if it is being seeded.
    pub(super) fn seeding(&self, number: u32) -> Option<String> {
        self.seeding.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// From here on what other nodes ask at the door of this number is done there.
    pub(crate) fn open_door(&self, number: u32, door: Arc<dyn Door>) {
        self.company.open_door(number, door);
    }

    /// Nodes that are connected now.
    pub(crate) fn others(&self) -> Vec<u64> {
        self.company.others()
    }

    /// How many other nodes are connected, and what went over all connections to them; nothing where it is alone.
    pub(crate) fn peer_counters(&self) -> Option<(usize, peer::Counters)> {
        self.company.counters()
    }

    /// Asks another node at a door.
    pub(crate) fn ask(
        &self,
        node: u64,
        door: u32,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Bytes, peer::Error>> + Send + use<> {
        self.company.ask(node, door, request)
    }

    /// Ends all shards; what was acknowledged is durable on return.
    ///
    /// # Errors
    /// The first that could not be made durable. [`Failed::Disk`]: it has ended as by a crash, and says nowhere that it
    /// ended in order.
    pub fn close(self) -> Result<(), Failed> {
        if let Some(why) = ailing::why_failed(&self.topics, &self.groups) {
            return Err(self.disk_failed(&why));
        }
        let Self { topics, groups, run, tasks, meeting, scrubs, company, memory, .. } = self;
        drop((tasks, meeting, scrubs));
        let groups = alone(groups, |groups| groups.group.runtime().clone()).close();
        let mut ends = Ends::new();
        let topics = alone(topics, |topics| topics.group().runtime().clone());
        for shard in topics.close()? {
            let number = shard.number;
            let shard = alone(shard, |shard| shard.group.runtime().clone());
            ends.insert(number, shard.close()?);
        }
        // Until here the others were answered: D comes from them.
        company.part();
        groups?;
        ends.retain(|number, _| SHARED.contains(number));
        run.close(&ends, now())?;
        if let Some(memory) = memory {
            // All that they had is durable. One that stays is opened as it is.
            SHARED.into_iter().for_each(|number| drop(memory.remove(&ring(number))));
        }
        Ok(())
    }
}

/// What nobody uses any more, once whoever wakes up just now has seen that.
fn alone<T>(mut shared: Arc<T>, runtime: impl Fn(&T) -> Handle) -> T {
    loop {
        match Arc::try_unwrap(shared) {
            Ok(one) => return one,
            Err(used) => shared = used,
        }
        runtime(&shared).block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }
}

/// Has offsets forgotten of topics that are not there, or are being deleted. If the groups are offline, or their disk is
/// full, the next start has it done.
fn forget_topics(groups: &Coordinator, catalog: &Catalog) {
    let gone: BTreeSet<String> = {
        let store = groups.store();
        let offsets = store.groups().flat_map(|(_, stored)| stored.offsets());
        let names = offsets.map(|(topic, ..)| topic);
        names.filter(|name| catalog.find(name).is_none()).map(str::to_owned).collect()
    };
    let runtime = groups.group.runtime();
    for topic in gone {
        let told = runtime.block_on(groups.ask(Asked::TopicIsGone(topic)));
        if !matches!(told, Answer::Done) {
            return;
        }
    }
}

/// Waits until the names of topics are free that were being deleted when the last run ended: not for long, as it goes on by
/// itself.
fn wait_until_gone(topics: &Topics) {
    const PATIENCE: Duration = Duration::from_secs(5);
    let is_deleted = |(_, topic): (_, &Topic)| topic.is_deleted;
    let gone = topics.intended().until(|catalog| !catalog.topics().any(is_deleted));
    topics.group().runtime().block_on(async { timeout(PATIENCE, gone).await.ok() });
}

/// Whether a shard began anew, and has not caught up since. The mark of a doubt that was ended in between says nothing, and goes.
fn began_anew(dir: &Arc<dyn Dir>, number: u32) -> Result<bool, Failed> {
    if Stage::read(&**dir, number)?.is_none() {
        return kept::caught_up(&**dir, number).map(|()| false);
    }
    kept::began_anew(&**dir, number)
}

/// The time in ms since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
