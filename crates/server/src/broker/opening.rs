//! How a [`Node`] is opened. It takes its place: directory, memory, socket. What the last run may have lost is judged before
//! anything is added to it, then fenced, or asked of the others. Only then do its shards take what is asked, and it meets the others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plimsoll_log::{Ack, Crew, CrewOptions, Policy, Ring};
use plimsoll_sync::{Dir, Lock, OsDir};
use tokio::sync::watch;
use tokio::time::timeout;

use super::acked::{self, Acked, testimony};
use super::ailing;
use super::chores::{greet, note_durable, rest, trust_once_clean, voting};
use super::company::{Company, Witnessed, listen, node_of};
use super::coordinator::{Asked, Coordinator};
use super::damaged::{self, Lost};
use super::data::{Found, Opened};
use super::decided::Decisions;
use super::deleting;
use super::desk::Desk;
use super::domains::Domains;
use super::error::{Failed, found};
use super::giver::Giver;
use super::kept;
use super::known::{Known, is_missing, is_unreadable, note_had};
use super::layout::{
    self, CONTROL, DURABLE, GROUPS, RECORDS, SHARDS, SHARED, cluster_id, is_founder, is_restored,
};
use super::leader::{Bounds, ChapterSize};
use super::leaders::Leaders;
use super::members::{Member, Members};
use super::memory::{RING_BYTES_MIN, forget_ring, has_ring, has_room, memory, ring, ring_left};
use super::met::Met;
use super::moving;
use super::neighbours::Neighbours;
use super::node::{Node, now};
use super::operators_door::OperatorsDoor;
use super::options::{Options, Promise};
use super::recovery::{Own, Recovery};
use super::registrar::Registrar;
use super::room::Room;
use super::scrubs::Scrubs;
use super::seeded::{Stage, put_in_place};
use super::task::Task;
use super::topics::{Control, Topics};
use crate::cluster::{self, Identity};
use crate::control::{Catalog, Topic};
use crate::groups::Answer;
use crate::random;
use crate::run::{Ends, Loss, Run, Start, Starts, Verdict};

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
        let mut place = Place::take(dir, options)?;
        let listener = place.listener.take();
        let (mut past, records) = place.begin()?;
        let serving = Serving::begin(&place, &mut past, records)?;
        let own = past.own(&place)?;
        let (mut verdict, in_doubt) = (past.said(&place), past.in_doubt(&place));
        let Serving { tasks, heard, topics, groups } = serving;
        let records = topics.shards.iter().map(|shard| (shard.number, shard.group.missed()));
        let shared = [(CONTROL, topics.group().missed()), (GROUPS, groups.group.missed())];
        let missed = shared.into_iter().chain(records).filter(|(_, missed)| *missed > 0);
        verdict.extend(missed.map(|(number, missed)| damaged::said_of_borne(number, missed)));
        let Place { lock, cluster_id, company, memory, promise, options, .. } = place;
        let leaders = Leaders::new(&company, &topics, &groups);
        let recovery = Recovery::new(&company, &topics, &groups, dir, own);
        let registrar = Registrar::new(&company, &topics, options.replication_factor);
        let scrubs = Scrubs::new(&company, &topics, &groups, options.scrub_every, now);
        let operators = OperatorsDoor {
            leaders: Arc::downgrade(&leaders),
            recovery: Arc::downgrade(&recovery),
            registrar: Arc::downgrade(&registrar),
            scrubs: Arc::downgrade(&scrubs),
        };
        company.obey(Arc::new(operators));
        let members = Arc::new(Members::alone(company.node()));
        let domains = Domains::new(&members, &topics, options.allows_one_domain);
        let mut node = Self {
            tasks,
            meeting: Vec::new(),
            company,
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
            begun: Instant::now(),
            cluster_id,
            promise,
            run: past.run,
            verdict,
            root: Arc::clone(dir),
            dir: path,
            seeding: Mutex::default(),
            lost: Arc::default(),
            failed: Arc::default(),
            memory,
            _lock: lock,
        };
        if let Some(listener) = listener {
            node.meeting = meet(&node, listener, in_doubt)?;
        }
        Ok(node)
    }
}

/// Where a node is opened, what it has there that nobody else has meanwhile, and what was decided of it before.
struct Place<'a> {
    dir: &'a Arc<dyn Dir>,
    /// Where the others find it.
    listener: Option<TcpListener>,
    cluster_id: String,
    memory: Option<OsDir>,
    /// Of memory where its rings lie there.
    promise: Promise,
    options: Options,
    crew: Arc<Crew>,
    company: Arc<Company>,
    /// Shards that were in doubt when the last run ended, and why; a decision may lift that.
    doubts: BTreeMap<u32, &'static str>,
    /// Shards that were put in place just now, as another had them: their logs may end before what this node had durable.
    given: BTreeSet<u32>,
    decided: Decisions,
    /// Shards of which it cannot be read how far they were durable: before anything is noted anew.
    unread: Vec<u32>,
    acked: BTreeMap<u32, Arc<Acked>>,
    lock: Lock,
}

impl<'a> Place<'a> {
    fn take(dir: &'a Arc<dyn Dir>, options: Options) -> Result<Self, Failed> {
        if options.ring_bytes < RING_BYTES_MIN {
            return Err(Failed::SmallRing {
                ring_bytes: options.ring_bytes,
                least_bytes: RING_BYTES_MIN,
            });
        }
        let lock = dir.lock("lock").map_err(Failed::Directory)?;
        let seat = options.seat.as_ref();
        let cluster_id = cluster_id(&**dir, seat.map(|seat| seat.cluster.as_str()))?;
        let listener = seat.map(|seat| listen(seat.listen)).transpose()?;
        let founds = seat.is_none() || is_founder(&**dir)?;
        let node = node_of(seat);
        // Before anything is made in memory for it: the rings there are of the node that it is not.
        check_node(&**dir, node)?;
        if seat.is_some() && Starts::read(&**dir)?.is_refused() {
            return Err(Failed::WentBack { node, is_founded: true });
        }
        let memory = memory(&options, &**dir, &cluster_id, node)?;
        if let Some(memory) = &memory
            && Run::went_back(&**dir, memory)?
        {
            let is_alone = seat.is_none();
            return Err(Failed::Older { is_alone, rings: memory.path().display().to_string() });
        }
        // Rings outlive a directory that is lost while the system runs.
        if let (Some(_), Some(memory)) = (seat, &memory)
            && is_new(&**dir)?
            && has_ring(memory)
        {
            let rings = memory.path().display().to_string();
            return Err(Failed::RingsLeft { node, rings });
        }
        let in_place = put_in_place(dir, node, |number| forget(memory.as_ref(), number))?;
        let (doubts, given) = (in_place.in_doubt, in_place.now);
        let decided = Decisions::read(dir)?;
        let unread = SHARDS.into_iter().filter(|number| is_unreadable(&**dir, *number));
        // A start notes all of a kind at once: where one of them is there, others were.
        let missing = |number: &u32| {
            let is_of_kind = |of: &u32| SHARED.contains(of) == SHARED.contains(number);
            let mut kind = SHARDS.into_iter().filter(is_of_kind);
            is_missing(&**dir, *number) && kind.any(|of| !is_missing(&**dir, of))
        };
        let missing = SHARDS.into_iter().filter(|number| seat.is_some() && missing(number));
        let unread = unread.chain(missing).collect();
        let acked = match (seat, &memory) {
            (Some(_), Some(memory)) => acked::all(&**dir, memory, &decided)?,
            _ => BTreeMap::new(),
        };
        let in_doubt = doubts.keys().copied().filter(|number| !decided.lifts(*number));
        let company = Company::new(seat, founds, in_doubt.collect());
        let ring_bytes = ring_left(memory.as_ref()).unwrap_or(options.ring_bytes);
        let options = Options { ring_bytes, ..options };
        // A log each, and room for control and groups beside the records'.
        let crew = CrewOptions { threads: 3, ring_bytes: ring_bytes + (32 << 20) };
        let crew = Arc::new(Crew::start(crew).map_err(Failed::Threads)?);
        let has_rings = memory.as_ref().is_some_and(|memory| has_room(memory, &options));
        let promise = if has_rings { Promise::Memory } else { Promise::Kernel };
        Ok(Self {
            dir,
            listener,
            cluster_id,
            memory,
            promise,
            options,
            crew,
            company,
            doubts,
            given,
            decided,
            unread,
            acked,
            lock,
        })
    }

    /// Shards that are in doubt since an earlier start still, and why.
    fn in_doubt(&self) -> impl Iterator<Item = (u32, &'static str)> {
        let doubts = self.doubts.iter().map(|(number, why)| (*number, *why));
        doubts.filter(|(number, _)| !self.decided.lifts(*number))
    }

    /// What memory knows of a shard whose entries are durable before they are acknowledged.
    fn acked(&self, number: u32) -> Option<Arc<Acked>> {
        self.acked.get(&number).cloned()
    }

    /// Whether neither what was noted says up to where a shard was durable, nor memory, nor what was decided, nor that it is in doubt already.
    fn is_untold(&self, number: u32) -> bool {
        let is_acked = self.acked(number).is_some_and(|acked| acked.last() > 0);
        let is_said = is_acked || self.decided.lifts(number) || self.doubts.contains_key(&number);
        // Not what the start misses: it misses none where all of its kind are gone.
        let is_noted = self.options.seat.is_none() || Known::read(&**self.dir, number).is_some();
        !is_noted && !is_said
    }

    /// Finds a shard of records, and has it go on as was decided.
    fn find(&self, number: u32) -> Result<Found, Failed> {
        let (dir, Self { options, company, .. }) = (self.dir, self);
        let (ring, ack) = match (&self.memory, self.promise) {
            (Some(memory), Promise::Memory) => {
                (Ring::File(memory.path().join(ring(number))), Ack::Buffered)
            }
            _ => (Ring::Memory, Ack::Written),
        };
        let held = (company.node(), options.tail_bytes, self.decided.of(number));
        let total_bytes = dir.space().map_or(u64::MAX, |space| space.total_bytes);
        let forgets = |number| forget(self.memory.as_ref(), number);
        let mut found = if number == DURABLE {
            let durable = self.acked(DURABLE).map_or(0, |acked| acked.last());
            let log = options.log(Ring::Memory, Policy::everysec(), total_bytes);
            let log = plimsoll_log::Options { durable, ..log };
            Found::open(dir, number, forgets, Ack::Durable, &log, Some(&self.crew), held)?
        } else {
            let log = options.log(ring, options.flush, total_bytes);
            Found::open(dir, number, forgets, ack, &log, None, held)?
        };
        // What was restored has no notes of its own yet.
        if number == DURABLE && self.is_untold(number) && !is_restored(&**dir)? {
            found.doubts(dir, company.node())?;
        }
        if let Some(decided) = self.decided.of(number)
            && found.rise(&**dir, decided)?
            && let Some(acked) = self.acked.get(&number)
        {
            // What it lacks as it goes on is not missed any more.
            acked.had_up_to(found.end());
        }
        Ok(found)
    }

    /// Finds all shards of records, judges what the last run may have lost of them, and has their engines begin: behind a fence where
    /// that is this node's alone, and in doubt where the others may have it. They serve nothing yet.
    fn begin(&self) -> Result<(Past, Vec<Opened>), Failed> {
        let (dir, Self { company, decided, .. }) = (self.dir, self);
        let find = |number| self.find(number);
        let shared = SHARED.into_iter().map(find).collect::<Result<Vec<_>, Failed>>()?;
        // What was durable before it was acknowledged cannot be in doubt.
        let durable = self.find(DURABLE)?;
        let all = shared.iter().chain([&durable]);
        let damaged: BTreeMap<u32, Lost> =
            all.filter_map(|found| Some((found.number(), found.lost()?))).collect();
        let begins = (damaged.contains_key(&DURABLE), decided.basis(DURABLE));
        let durable = durable.begin(dir, company, begins, testimony(self.acked(DURABLE)))?;
        let mut ends = Ends::new();
        for found in &shared {
            let last = found.last_index(durable.runtime())?;
            ends.extend((last > 0).then_some((found.number(), last)));
        }
        // Before anything is added to it: a log that has grown since would hide what it has lost.
        let given_up = shared.iter().filter(|found| found.is_given_up()).map(Found::number);
        let known = damaged.keys().copied().chain(given_up).chain(self.given.iter().copied());
        let (run, verdict) = self.judge(&ends, &known.collect())?;
        let mut past = Past { run, verdict, damaged, forgot: Vec::new() };
        past.note_had(self)?;
        let loss = past.loss().cloned();
        if loss.is_some() && SHARED.iter().all(|number| decided.lifts(*number)) {
            past.run.fenced(&ends, now())?;
        }
        decided.are_done(dir, |number| past.damaged.contains_key(&number))?;
        let mut opened = Vec::new();
        for found in shared {
            let number = found.number();
            let loss = loss.as_ref().filter(|_| !decided.lifts(number));
            let witnessed = Arc::new(Witnessed { run: Arc::clone(&past.run), number });
            let is_dirty = loss.is_some() || past.damaged.contains_key(&number);
            let begins = (is_dirty, decided.basis(number));
            let shard = found.begin(dir, company, begins, Some(witnessed))?;
            match loss {
                Some(loss) if shard.is_alone() => {
                    shard.fence(loss.fence(number), now())?;
                    ends.insert(number, shard.durable());
                }
                // It is in doubt already, and for more.
                Some(_) if past.damaged.get(&number) == Some(&Lost::All) => {}
                // The others may have what this one has lost. From here on the doubt is that shard's own.
                Some(_) => {
                    Stage::Forgot.write(&**dir, number)?;
                    past.forgot.push(number);
                }
                None => {}
            }
            opened.push(shard);
        }
        if let Some(loss) = loss {
            let is_alone = durable.is_alone() && opened.iter().all(Opened::is_alone);
            // What was acknowledged after the backup was durable, and is not here.
            if is_alone && is_restored(&**dir)? {
                durable.fence(loss.fence(DURABLE), now())?;
            }
            past.run.fenced(&ends, now())?;
        }
        opened.push(durable);
        opened.sort_by_key(Opened::number);
        Ok((past, opened))
    }

    /// Begins a run, beside shards of which it is known why they may end too early, and judges the one before.
    fn judge(&self, ends: &Ends, known: &BTreeSet<u32>) -> Result<(Arc<Run>, Verdict), Failed> {
        let start = Start {
            data: &**self.dir,
            memory: self.memory.as_ref().map(|memory| memory as &dyn Dir),
            boot: plimsoll_sync::boot_id(),
            fresh_id: u128::from_le_bytes(random::bytes()),
            now_ms: now(),
            drawn: random::word(),
        };
        let (run, verdict) = Run::begin_beside(start, ends, known)?;
        Ok((Arc::new(run), verdict))
    }
}

/// What the last run has left.
struct Past {
    run: Arc<Run>,
    verdict: Verdict,
    /// What the disk has lost of shards.
    damaged: BTreeMap<u32, Lost>,
    /// Shards that may have forgotten what they acknowledged, and that others vote in too.
    forgot: Vec<u32>,
}

impl Past {
    fn loss(&self) -> Option<&Loss> {
        match &self.verdict {
            Verdict::MayHaveLost(loss) => Some(loss),
            Verdict::NothingLost(_) => None,
        }
    }

    /// All shards that are in doubt, since this start or an earlier one.
    fn in_doubt(&self, place: &Place<'_>) -> BTreeSet<u32> {
        let earlier = place.in_doubt().map(|(number, _)| number);
        earlier.chain(self.forgot.iter().chain(self.damaged.keys()).copied()).collect()
    }

    /// What the roll is told of this node.
    fn own(&self, place: &Place<'_>) -> Result<Own, Failed> {
        let mut doubts = place.doubts.clone();
        doubts.extend(self.damaged.iter().map(|(number, lost)| (*number, lost.why())));
        let mut anew = BTreeSet::new();
        for number in SHARDS {
            anew.extend(began_anew(place.dir, number)?.then_some(number));
        }
        let mut lost: BTreeSet<u32> = self.damaged.keys().chain(&anew).copied().collect();
        if self.loss().is_some_and(|loss| loss.doubt.is_of_the_disk()) {
            lost.extend(SHARED);
        }
        let had = SHARDS.map(|number| (number, self.had(place, number)));
        Ok(Own {
            incarnation: self.run.incarnation(),
            verdict: self.verdict.to_string(),
            doubts,
            had: had.into(),
            lost,
            anew,
            policy: place.options.on_majority_dirty,
            clock: now,
        })
    }

    /// What this start knows of what was acknowledged, and is lost, the next one would not: it holds until that is had again, or decided.
    fn note_had(&self, place: &Place<'_>) -> Result<(), Failed> {
        let mut doubts = self.in_doubt(place);
        doubts.extend(self.loss().iter().flat_map(|_| SHARED));
        for number in RECORDS.into_iter().filter(|number| doubts.contains(number)) {
            let had = self.had(place, number);
            note_had(&**place.dir, number, had).map_err(Failed::Directory)?;
        }
        Ok(())
    }

    /// Up to where this node had a shard, durably or acknowledged, by what it knows from before. What was decided since counts.
    fn had(&self, place: &Place<'_>, number: u32) -> u64 {
        let known = Known::read(&**place.dir, number).unwrap_or_default();
        let had = if place.decided.lifts(number) { 0 } else { known.had };
        let noted = known.own.max(had);
        let acked = place.acked(number).map_or(0, |acked| acked.last());
        let given = self.loss().and_then(|loss| loss.given.as_ref()?.get(&number).copied());
        let given = given.filter(|_| !place.decided.lifts(number)).unwrap_or(0);
        noted.max(acked).max(given)
    }

    /// A sentence of all that is known of it.
    fn said(&self, place: &Place<'_>) -> String {
        // What the run knows is what its marks say, and of what its disk has lost they know nothing.
        let is_some_lost = self.damaged.values().any(|lost| *lost != Lost::Untold);
        let mut said = match (&self.verdict, is_some_lost) {
            (Verdict::NothingLost(_), true) => "not all that was durable is there".to_owned(),
            (verdict, _) => verdict.to_string(),
        };
        let going_on = RECORDS.into_iter().filter(|number| place.decided.lifts(*number));
        let going_on: Vec<String> = going_on.map(|number| number.to_string()).collect();
        if !going_on.is_empty() {
            let shards = going_on.join(", ");
            said += &format!("; after a loss it was decided that these shards go on: {shards}");
        }
        for (number, why) in place.in_doubt() {
            said += &format!("; but shard {number} is in doubt since an earlier start: {why}");
        }
        said.extend(self.damaged.iter().map(damaged::said));
        if !self.forgot.is_empty() {
            said += "; it asks the other brokers for them, and votes once it has caught up";
        }
        let untold = self.damaged.iter().filter(|(_, lost)| **lost == Lost::Untold);
        let unread: BTreeSet<u32> =
            place.unread.iter().chain(untold.map(|(number, _)| number)).copied().collect();
        for number in unread {
            let noted = layout::known(number);
            let untold = match self.damaged.get(&number) {
                _ if SHARED.contains(&number) => {
                    format!("after a loss less of shard {number} may be called durable than was")
                }
                Some(Lost::Untold) => {
                    format!("nothing says whether the end of shard {number} is there")
                }
                Some(_) => format!("shard {number} may have lost more than that"),
                None if place.acked(number).is_some_and(|acked| acked.last() > 0) => {
                    format!("memory knows what was acknowledged of shard {number}")
                }
                None => format!("what the disk lost of the end of shard {number} is not missed"),
            };
            said += &format!("; {noted} is not there, or cannot be read: {untold}");
        }
        said
    }
}

/// All shards, once they take what is asked.
struct Serving {
    /// They hold the shards: they are before these, and so end before them.
    tasks: [Task; 5],
    heard: watch::Receiver<bool>,
    topics: Arc<Topics>,
    groups: Arc<Coordinator>,
}

impl Serving {
    /// Has control and groups begin too, and all of them serve. A node that is alone leads all on return.
    fn begin(place: &Place<'_>, past: &mut Past, records: Vec<Opened>) -> Result<Self, Failed> {
        let Place { dir, options, promise, crew, company, .. } = place;
        let is_alone = records.iter().all(Opened::is_alone);
        let room = Arc::new(Room::new(dir, options.reserve_bytes));
        let control = Control::open(dir, crew, company, place.acked(CONTROL))?;
        past.damaged.extend(control.lost.map(|lost| (CONTROL, lost)));
        let intended = Arc::clone(&control.intended);
        let replicas = records.iter().map(|shard| (shard.number(), shard.replica()));
        let neighbours = Arc::new(Neighbours::new(replicas));
        let bytes = room.for_chapter(options.chapter_bytes);
        let chapter = ChapterSize { bytes, age: options.chapter_age };
        let serve = |shard: Opened| {
            let run = SHARED.contains(&shard.number()).then(|| Arc::clone(&past.run));
            // The others' records are not agreed on before they are durable.
            let unsynced = run.is_some().then(|| options.unsynced_max(*promise)).flatten();
            let bounds = Bounds { chapter, unsynced };
            let intents = (&intended, &neighbours);
            Arc::new(shard.serve(run, &room, intents, company, bounds, options.scrub_every, now))
        };
        let shards = records.into_iter().map(serve).collect();
        let topics = Topics::new(control, shards, options.partitions_max, company);
        let topics = Arc::new(topics);
        company.serve(Arc::new(Desk(Arc::downgrade(&topics))));
        company.give(Arc::new(Giver(Arc::downgrade(&topics))));
        let runtime = topics.shard(SHARED[0]).group.runtime();
        let watching = Task::spawn(runtime, Arc::clone(&room).watch());
        let resting = rest(Arc::clone(dir), Arc::downgrade(&topics), Arc::clone(&past.run), now);
        let resting = Task::spawn(runtime, resting);
        let (settings, acked) = (options.groups.clone(), place.acked(GROUPS));
        let groups = Coordinator::open(dir, crew, &room, company, settings, acked, now)?;
        let groups = Arc::new(groups);
        past.damaged.extend(groups.lost.map(|lost| (GROUPS, lost)));
        // While others are taken in they are in some groups, and not in others: whoever leads knows what is intended.
        let is_sole = is_alone && topics.group().is_alone() && groups.group.is_alone();
        if is_sole {
            topics.check_intended()?;
            intended.has_heard();
            for shard in &topics.shards {
                shard.wait_to_lead()?;
            }
            topics.wait_until_all_done()?;
            forget_topics(&groups, &topics.catalog());
        }
        let letting_go =
            deleting::let_go(Arc::clone(&topics), Arc::clone(&groups), Arc::clone(company));
        let letting_go = Task::spawn(groups.group.runtime(), letting_go);
        let moving = Task::spawn(runtime, moving::move_on(Arc::clone(&topics), neighbours));
        if topics.leads() {
            intended.has_heard();
        }
        let hearing = Task::spawn(runtime, Topics::hear(Arc::clone(&topics)));
        if is_sole {
            wait_until_gone(&topics);
        }
        let tasks = [resting, watching, letting_go, moving, hearing];
        Ok(Self { tasks, heard: intended.heard(), topics, groups })
    }
}

/// What a node does for as long as it has a seat among others: it finds them, takes part in each shard as far as it may, and has
/// shards led where they should be.
fn meet(node: &Node, listener: TcpListener, in_doubt: BTreeSet<u32>) -> Result<Vec<Task>, Failed> {
    let Node { root, company, topics, groups, members, options, .. } = node;
    if is_missing(&**root, DURABLE) {
        // Before anything is acknowledged: a start that finds none has lost it. A disk that is full is asked again once there is something to note.
        drop(Known::default().write(&**root, DURABLE));
    }
    let cluster = u128::from_str_radix(&node.cluster_id, 16);
    let cluster = cluster.map_err(|_why| Failed::Damaged("cluster".to_owned()))?;
    let seat = options.seat.as_ref().expect("who listens for others has a seat");
    let (whose, hello) = ((cluster, node.run.incarnation()), (Member::of(seat), node.run.starts()));
    let runtime = topics.shard(SHARED[0]).group.runtime();
    let (of, and) = (Arc::downgrade(topics), Arc::downgrade(groups));
    let met = Met::open(root);
    let control = of.clone();
    // Where it is in doubt others voted, though its log may not say so yet.
    let is_in_doubt = in_doubt.contains(&CONTROL);
    let others_vote = move || control.upgrade().is_none_or(|topics| topics.group().others_vote());
    let is_founded = Box::new(move || is_in_doubt || others_vote());
    let ailing = ailing::watch(of.clone(), and.clone(), Arc::clone(&node.failed));
    let spread = Arc::clone(&node.leaders).spread(options.spreads_leaders);
    let mut meeting = vec![
        company.meet(listener, whose, hello, Arc::clone(members), (met, is_founded), runtime)?,
        Task::spawn(runtime, Arc::clone(&node.registrar).keep()),
        Task::spawn(groups.group.runtime(), ailing),
        Task::spawn(runtime, spread),
        Task::spawn(runtime, Arc::clone(&node.recovery).watch()),
        Task::spawn(runtime, Arc::clone(&node.domains).watch()),
    ];
    for number in SHARDS {
        let greeting = greet(company, &node.lost, number, voting(topics, groups, number));
        meeting.push(Task::spawn(runtime, greeting));
    }
    for number in [CONTROL, GROUPS, DURABLE] {
        let (topics, groups) = (of.clone(), and.clone());
        let look = move || Some(voting(&*topics.upgrade()?, &*groups.upgrade()?, number).outline());
        meeting.push(Task::spawn(runtime, note_durable(Arc::clone(root), number, look)));
    }
    for number in in_doubt {
        let trusted = trust_once_clean(Arc::clone(root), number, voting(topics, groups, number));
        meeting.push(Task::spawn(runtime, trusted));
    }
    Ok(meeting)
}

/// Whether no broker ever had a shard of records in this directory.
fn is_new(dir: &dyn Dir) -> Result<bool, Failed> {
    Ok(found(dir.open_dir(&layout::shard(SHARED[0])))?.is_none())
}

/// What memory has of another log of a shard is none of this one.
fn forget(memory: Option<&OsDir>, number: u32) -> Result<(), Failed> {
    let memory = memory.filter(|_| SHARED.contains(&number));
    memory.map_or(Ok(()), |memory| forget_ring(memory, number))
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

/// Whether all that is there is of this node.
fn check_node(dir: &dyn Dir, node: u64) -> Result<(), Failed> {
    for number in SHARDS {
        let Some(log) = found(dir.open_dir(&layout::shard(number)))? else { continue };
        // What of it cannot be read is told where it is opened.
        if let Ok(Some(Identity { node: found, .. })) = Identity::look(&*log)
            && found != node
        {
            let why = cluster::Error::OtherNode { found, asked: node };
            return Err(Failed::Shard { number, why });
        }
    }
    Ok(())
}
