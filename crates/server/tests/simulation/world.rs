//! [`World`]: the lives of a broker on one disk, drawn from a seed, each held against the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_log::Policy;
use plimsoll_server::broker::{Options, Promise};
use plimsoll_server::chapter::{Chapter, Manifest};
use plimsoll_server::kafka::batch::Producer;
use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, Persistence, SimDir};
use plimsoll_sync::{Access, Crash, Dir};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tempfile::TempDir;

use crate::broker::{Broker, Produced};
use crate::model::{Model, Partition, Start};

const LIVES: u32 = 4;
const STEPS: u32 = 80;
/// Clients go after so many.
const REFUSALS: u32 = 6;
/// Longer than a request that says for how long it is tried.
const LONG: Duration = Duration::from_secs(1);
/// Files of chapters that a shard may have had.
const CHAPTERS: u32 = 60;
const TOPICS: [&str; 4] = ["orders", "notes", "audit", "ledger"];

/// What histories met.
pub(crate) type Seen = BTreeMap<String, u64>;

/// The disk fails, or is down: what was asked may be done or not.
pub(crate) struct Faulty;

pub(crate) struct World {
    pub(crate) rng: Pcg64Mcg,
    pub(crate) disk: Arc<SimDir>,
    /// What outlives a process, and no power cut.
    pub(crate) memory: TempDir,
    pub(crate) model: Model,
    pub(crate) knowledge: Knowledge,
    /// Something fails in this life, or the disk goes down.
    pub(crate) is_faulty: bool,
    /// It is more than that the disk goes down.
    pub(crate) has_failures: bool,
    /// What is written is not in memory any more in this life, though nobody has synced it.
    pub(crate) never_syncs: bool,
    /// Topics are made, grow and go in this life: each change makes all that came before it durable.
    pub(crate) has_changes: bool,
    /// Records are deleted in this life, which does the same.
    pub(crate) has_trims: bool,
    /// How many requests were made.
    pub(crate) turn: u64,
    /// Idempotent producers of this life, each of one partition.
    pub(crate) producers: BTreeMap<(String, usize), Producer>,
    /// What they sent last.
    pub(crate) last_sent: BTreeMap<(String, usize), Produced>,
    /// Ids that producers were given, ever.
    pub(crate) ids: BTreeSet<i64>,
    pub(crate) seen: Seen,
}

/// What is known of the last run that clients saw.
pub(crate) struct Knowledge {
    /// What it acknowledged may be in memory alone.
    is_in_memory: bool,
    /// Its system died, or its memory went.
    may_lose: bool,
    /// A start that failed came after it.
    is_retried: bool,
    ended: Ended,
}

impl Knowledge {
    /// A start has what is in memory, or does not.
    pub(crate) fn opens(&mut self, has_memory: bool) {
        self.may_lose |= self.is_in_memory && !has_memory;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Or there was none.
    Unknown,
    InOrder,
    /// Processes died, and what was in memory stayed.
    ProcessCrash,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let is_journal = rng.random_ratio(1, 3);
        let persistence = if is_journal { Persistence::Journal } else { Persistence::Posix };
        let options = DiskOptions { persistence, history_steps: 0, ..DiskOptions::default() };
        Self {
            rng,
            disk: Arc::new(SimDir::with(options)),
            memory: memory(),
            model: Model::new(&TOPICS),
            knowledge: Knowledge {
                is_in_memory: false,
                may_lose: false,
                is_retried: false,
                ended: Ended::Unknown,
            },
            is_faulty: false,
            has_failures: false,
            never_syncs: false,
            has_changes: true,
            has_trims: true,
            turn: 0,
            producers: BTreeMap::new(),
            last_sent: BTreeMap::new(),
            ids: BTreeSet::new(),
            seen: Seen::new(),
        }
    }

    pub(crate) fn live(mut self) -> Seen {
        for _ in 0..LIVES {
            self.life();
        }
        if self.rng.random_ratio(1, 2) {
            self.flip();
        }
        self.seen
    }

    pub(crate) fn saw(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    /// From a start to an end.
    fn life(&mut self) {
        let options = self.options();
        self.has_changes = self.rng.random_ratio(1, 3);
        self.has_trims = self.has_changes || self.rng.random_ratio(1, 4);
        (self.is_faulty, self.has_failures) = (false, false);
        self.never_syncs = options.flush == Policy::Never;
        if self.rng.random_ratio(1, 3) {
            self.is_faulty = true;
            self.disk.stop_at(self.disk.operations() + self.rng.random_range(0..1200));
        } else if self.rng.random_ratio(1, 10) {
            self.fail();
        }
        let has_memory = options.memory.is_some();
        self.knowledge.opens(has_memory);
        let broker = match Broker::start(&self.disk, options) {
            Ok(broker) => broker,
            Err(why) => {
                assert!(self.is_faulty, "it does not start: {why:?}");
                self.saw("a start that failed");
                self.knowledge.is_in_memory |= has_memory;
                self.retry(has_memory);
                return self.crash();
            }
        };
        self.run(broker);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "time passes, of which nothing depends on how much"
    )]
    fn run(&mut self, mut broker: Broker) {
        broker.is_faulty = self.is_faulty;
        if self.start(&mut broker).is_err() {
            let has_memory = broker.node().promise() == Promise::Memory;
            self.retry(has_memory);
        } else {
            if self.rng.random_ratio(1, 5) {
                self.fail();
                broker.is_faulty = true;
            }
            let mut patience = REFUSALS;
            for _ in 0..self.rng.random_range(0..STEPS) {
                // Of what was not done nothing more is to be said. What has no timeout of its own, as the ids of
                // producers, takes long on a disk that fails: once is enough.
                let asked = Instant::now();
                if self.step(&mut broker).is_err() {
                    patience -= 1;
                    if patience == 0 || asked.elapsed() > LONG {
                        break;
                    }
                }
            }
            // What came last is what a crash takes.
            for _ in 0..self.rng.random_range(0..8) {
                let asked = Instant::now();
                if self.produce(&mut broker).is_err() && asked.elapsed() > LONG {
                    break;
                }
            }
            if self.has_failures {
                self.knowledge.ended = Ended::Unknown;
            }
            if self.rng.random_ratio(1, 4) {
                // What goes on in the background is met by the end too.
                thread::sleep(Duration::from_millis(self.rng.random_range(0..500)));
            }
            if self.has_trims && self.rng.random_ratio(1, 3) {
                self.trim(&mut broker).ok();
            }
            self.count_chapters(&broker);
            if self.rng.random_ratio(1, 3) {
                return self.close(broker);
            }
        }
        self.crash();
        drop(broker.stop());
    }

    /// A start failed, or showed not all: what is known is known of the run before it.
    fn retry(&mut self, has_memory: bool) {
        let known = &mut self.knowledge;
        known.is_retried = true;
        if !has_memory || self.has_failures || known.ended == Ended::InOrder {
            known.ended = Ended::Unknown;
        }
    }

    /// Drawn anew for each life.
    pub(crate) fn options(&mut self) -> Options {
        let flush = match self.rng.random_range(0..6) {
            0..=2 => Policy::Never,
            3 => Policy::everysec(),
            4 => Policy::Interval { max_age: Duration::from_millis(3), max_bytes: 64 << 20 },
            _ => Policy::Interval { max_age: Duration::from_secs(60), max_bytes: 100_000 },
        };
        let memory = self.rng.random_ratio(3, 4).then(|| self.memory.path().to_owned());
        let ring_bytes = (4 << 20) << self.rng.random_range(0..2);
        let tail_bytes = if self.rng.random_ratio(1, 4) { 0 } else { 1 << 20 };
        let chapter_bytes = match self.rng.random_range(0..4) {
            0 => 512 << 20,
            1 => 1,
            _ => self.rng.random_range(200..20_000),
        };
        Options { memory, flush, ring_bytes, tail_bytes, chapter_bytes, ..Options::default() }
    }

    /// Something of the disk fails from here on, for a while or for good.
    fn fail(&mut self) {
        const EIO: i32 = 5;
        (self.is_faulty, self.has_failures) = (true, true);
        self.saw("a disk that fails");
        if self.rng.random_ratio(1, 4) {
            return self.fail_chapters();
        }
        let full = FaultKind::Fail(std::io::ErrorKind::StorageFull);
        let faults: &[(Operation, FaultKind)] = match self.rng.random_range(0..4) {
            0 => &[(Operation::Sync, FaultKind::FailRaw(EIO))],
            1 => &[(Operation::Write, FaultKind::FailRaw(EIO))],
            2 => &[(Operation::SyncDir, FaultKind::FailRaw(EIO))],
            _ => {
                &[(Operation::Write, full), (Operation::Allocate, full), (Operation::Create, full)]
            }
        };
        let (nth, times) = (self.rng.random_range(1..30), self.rng.random_range(1..40));
        let (is_sticky, seed) = (self.rng.random_ratio(1, 4), self.rng.random());
        for (on, kind) in faults {
            let fault = Fault::new(*on, *kind).nth(nth).times(times).seed(seed);
            self.disk.inject(if is_sticky { fault.sticky() } else { fault });
        }
    }

    /// Files of chapters cannot be written, and all else can.
    fn fail_chapters(&mut self) {
        const EIO: i32 = 5;
        for shard in 2..=3 {
            for number in 0..CHAPTERS {
                let on = [Operation::Write, Operation::Sync][self.rng.random_range(0..2)];
                let fault = Fault::new(on, FaultKind::FailRaw(EIO)).seed(self.rng.random());
                let fault = fault.nth(self.rng.random_range(1..4));
                if self.rng.random_ratio(1, 3) {
                    let name = format!("chapters-{shard}/{number:08}.chapter");
                    self.disk.inject(fault.named(name));
                }
            }
        }
    }

    /// All that a broker shows after its start is held against the model.
    pub(crate) fn start(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let verdict = broker.node().verdict().to_owned();
        let is_innocent = verdict.starts_with("nothing is lost");
        let in_memory = broker.node().promise() == Promise::Memory;
        let known = &self.knowledge;
        match known.ended {
            Ended::InOrder => assert!(is_innocent, "it ended in order: {verdict}"),
            Ended::ProcessCrash if in_memory => assert!(is_innocent, "a process died: {verdict}"),
            _ => {}
        }
        let start = Start {
            may_lose: known.may_lose,
            says_nothing_lost: is_innocent && !known.is_retried,
            has_fenced: !is_innocent,
        };
        let mut all = BTreeMap::new();
        for topic in broker.node().topics() {
            assert!(TOPICS.contains(&&*topic.name), "{topic:?}");
            self.model.is(&topic.name, topic.partitions);
            for number in 0..topic.partitions {
                let shown = self.unless_faulty(broker.look(&topic.name, number), "a look")?;
                all.insert((topic.name.clone(), number), shown);
            }
        }
        for name in TOPICS.into_iter().filter(|name| !all.contains_key(&((*name).to_owned(), 0))) {
            self.model.is(name, 0);
            self.forget(name);
        }
        let gone = self.model.started(start, &all);
        for at in self.model.committing() {
            let told = broker.committed(at.0, &at.1, at.2);
            let offset = self.unless_faulty(told, "an offset")?;
            self.model.committed(&at, offset, true);
        }
        self.saw(verdict.split(": ").next().unwrap_or_default());
        self.saw(if gone.lost > 0 { "records lost" } else { "no record lost" });
        self.saw_gone(gone);
        let ended = if in_memory { Ended::ProcessCrash } else { Ended::Unknown };
        self.knowledge =
            Knowledge { is_in_memory: in_memory, may_lose: false, is_retried: false, ended };
        self.producers.clear();
        Ok(())
    }

    /// How much of what was produced lies in chapters, and whether any was deleted again.
    fn count_chapters(&mut self, broker: &Broker) {
        for chapters in broker.node().shards().into_iter().filter_map(|shard| shard.chapters) {
            for (what, is_so) in [
                ("runs in chapters", chapters.runs > 0),
                ("chapters that waited at an end", chapters.waiting > 0),
                ("chapters that were freed", chapters.settled > chapters.files as u64),
            ] {
                if is_so {
                    self.saw(what);
                }
            }
        }
    }

    fn close(&mut self, broker: Broker) {
        match broker.stop().close() {
            Ok(()) => {
                self.saw("an end in order");
                let topics = self.model.topics.values_mut();
                topics.flat_map(|topic| topic.partitions.values_mut()).for_each(Partition::close);
                self.knowledge.is_in_memory = false;
                self.knowledge.ended = Ended::InOrder;
                self.verify();
            }
            Err(why) => {
                assert!(self.is_faulty, "it does not end: {why:?}");
                self.saw("an end that failed");
            }
        }
        self.crash();
    }

    /// All that is in chapters is what was written, and all that merges it says.
    fn verify(&mut self) {
        // Whoever reads a manifest makes it durable, on a disk that may fail.
        let disk = self.disk.crash(Crash::Process, 0);
        for shard in 2..=3 {
            let dir = disk.open_dir(&format!("chapters-{shard}")).unwrap();
            for named in Manifest::read(&*dir, shard).unwrap().files {
                let file = dir.open(&named.name(), Access::default()).unwrap();
                let chapter = Chapter::open(&named.name(), file).unwrap();
                let runs = (0..).zip(chapter.runs().unwrap());
                for (_, run) in runs.filter(|(number, _)| !named.gone.has(*number)) {
                    assert_eq!(chapter.verify(&run).unwrap(), run.bytes);
                    if run.compacted != 0 {
                        self.saw("a compacted run verified");
                    }
                }
                let is_merged = chapter.footer().first_chapter < chapter.footer().last_chapter;
                self.saw(if is_merged { "a merged file verified" } else { "a chapter verified" });
            }
        }
    }

    /// The process dies, or all of the system, or the power goes: nothing reaches the disk any more, and
    /// what is in memory stays as it is, if it stays.
    fn crash(&mut self) {
        self.disk.stop_at(self.disk.operations());
        let (what, crash, keeps_memory) = match self.rng.random_range(0..6) {
            0..=1 => ("a process crash", Crash::Process, true),
            2 => ("memory that went", Crash::Process, false),
            3..=4 => ("a system crash", Crash::System, false),
            _ => ("a power cut", Crash::PowerCut, false),
        };
        self.saw(what);
        self.disk = Arc::new(self.disk.crash(crash, self.rng.random()));
        let after = memory();
        let known = &mut self.knowledge;
        // A sync that failed may have lost what the kernel had.
        known.may_lose |= self.has_failures && (self.never_syncs || !known.is_in_memory);
        if keeps_memory {
            copy(self.memory.path(), after.path());
        } else {
            known.may_lose |= known.is_in_memory || crash != Crash::Process;
            known.is_in_memory = false;
            if known.ended == Ended::ProcessCrash {
                known.ended = Ended::Unknown;
            }
        }
        self.memory = after;
    }
}

/// A directory that outlives processes: on tmpfs, where there is one.
pub(crate) fn memory() -> TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { TempDir::new_in(shm).unwrap() } else { TempDir::new().unwrap() }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).unwrap();
        }
    }
}
