//! One history: a log, its disks and a model of it; which steps it takes a seed draws.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use plimsoll_log::{
    Ack, Clock, Error, Event, Log, Observer, Options, Policy, Recovery, Ring, View,
};
use plimsoll_simdisk::{DiskOptions, Fault, FillsAt, Overwriting, Persistence, SimDir, Step, Tear};
use plimsoll_sync::{Crash, Dir, System};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Disk;
use crate::home::Home;
use crate::model::{Model, Shared};
use crate::points::{Counts, Points, nothing_is_wrong};
use crate::rings::{Rings, Sees};

pub(crate) struct World {
    pub(crate) rng: Pcg64Mcg,
    pub(crate) seed: u64,
    pub(crate) disk: Disk,
    pub(crate) dir: Arc<SimDir>,
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) log: Option<Arc<Log>>,
    pub(crate) model: Shared,
    pub(crate) points: Option<Arc<Mutex<Points>>>,
    pub(crate) home: Home,
    /// The log's directory on that disk, so that what has failed there stays so.
    pub(crate) log_dir: Option<Arc<dyn Dir>>,
    pub(crate) rings: Option<Rings>,
    pub(crate) talks: bool,
    pub(crate) small_disk: bool,
    /// Neither faults nor crashes are drawn.
    pub(crate) is_calm: bool,
    /// Hardly anything is synced, so that several segments wait for it.
    pub(crate) is_lazy: bool,
    pub(crate) is_over: bool,
}

/// Where bytes go that are written where others were.
pub(crate) const OVERWRITING: [Overwriting; 4] = [
    Overwriting::InPlace,
    Overwriting::Elsewhere { in_place_on_request: false },
    Overwriting::Elsewhere { in_place_on_request: true },
    Overwriting::Memory,
];

/// Tells what the log does.
struct Teller;

impl Observer for Teller {
    fn observe(&self, event: Event<'_>) {
        println!("    {event:?}");
    }
}

/// What the seeds of a run did, so that a run that tests nothing is noticed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) records: u64,
    pub(crate) crashes: u64,
    pub(crate) opens: u64,
    pub(crate) faults: u64,
    pub(crate) failovers: u64,
    pub(crate) torn_tails: u64,
    pub(crate) refused: u64,
}

impl World {
    pub(crate) fn new(seed: u64, disk: Disk, talks: bool) -> Self {
        let mut world = Self::busy(seed, disk, talks);
        world.is_lazy = seed % 4 == 2;
        world.draw_options();
        world
    }

    fn busy(seed: u64, disk: Disk, talks: bool) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let small_disk = disk == Disk::Failing && rng.random_ratio(1, 4);
        let disk_options = DiskOptions {
            system: System::HERE,
            persistence: if seed.is_multiple_of(3) {
                Persistence::Journal
            } else {
                Persistence::Posix
            },
            tear: if rng.random() { Tear::Bytes512 } else { Tear::Bytes4096 },
            capacity_bytes: small_disk.then_some(512 << 10),
            overwriting: OVERWRITING[rng.random_range(0..OVERWRITING.len())],
            fills_at: if rng.random() { FillsAt::Write } else { FillsAt::Sync },
            history_steps: if talks { 200 } else { 0 },
            ..DiskOptions::default()
        };
        let dir = Arc::new(SimDir::with(disk_options));
        let rings = rng.random_ratio(1, 8).then(Rings::new).flatten();
        let clock = Clock::manual(seed);
        let first_index = [1, 1, 1000][rng.random_range(0..3)];
        let options =
            Options { threads: false, clock: clock.clone(), first_index, ..Options::default() };
        Self {
            rng,
            seed,
            disk,
            dir,
            options,
            clock,
            log: None,
            model: Shared::of(Model::behind(first_index - 1)),
            points: None,
            home: if seed % 5 == 3 { Home::Inside } else { Home::Root },
            log_dir: None,
            rings,
            talks,
            small_disk,
            is_calm: false,
            is_lazy: false,
            is_over: false,
        }
    }

    /// Whoever opens a log may want it otherwise than the one before.
    fn draw_options(&mut self) {
        let has_ring = self.rings.as_ref().is_some_and(Rings::has_any);
        let rng = &mut self.rng;
        let policy = match rng.random_range(0..3) {
            _ if self.is_lazy => {
                let forever = Duration::from_secs(3600);
                Policy::Interval { max_age: forever, max_bytes: 1 << 30 }
            }
            0 => Policy::Never,
            1 => Policy::Always,
            _ => Policy::Interval {
                max_age: Duration::from_millis(rng.random_range(1..50)),
                max_bytes: rng.random_range(1..30_000),
            },
        };
        self.options.policy = policy;
        self.options.segment_bytes = [64 << 10, 64 << 10, 128 << 10][rng.random_range(0..3)];
        if !has_ring {
            // Some are larger than a segment, and so are some batches.
            let sizes = [8 << 10, 32 << 10, 64 << 10, 256 << 10];
            self.options.ring_bytes = sizes[rng.random_range(0..4)];
        }
        self.options.direct = rng.random_ratio(3, 4);
    }

    /// A world whose disks do what they are told, until somebody injects a fault.
    pub(crate) fn calm(seed: u64, talks: bool) -> Self {
        let mut world = Self::new(seed, Disk::Failing, talks);
        let options = DiskOptions {
            persistence: if seed.is_multiple_of(3) {
                Persistence::Journal
            } else {
                Persistence::Posix
            },
            history_steps: 1_000_000,
            ..DiskOptions::default()
        };
        world.dir = Arc::new(SimDir::with(options));
        world.small_disk = false;
        world.home = Home::Root;
        world.is_calm = true;
        world
    }

    pub(crate) fn inject(&self, fault: Fault) {
        self.dir.inject(fault);
    }

    /// Runs, cuts the power and checks. Returns what the disk had done until then.
    pub(crate) fn run_calm(&mut self, steps: u32, tally: &mut Tally) -> Vec<Step> {
        let dir = Arc::clone(&self.dir);
        self.run(steps, tally);
        dir.history()
    }

    pub(crate) fn tell_options(&self) {
        self.say(&format!("seed {}: {:?}", self.seed, self.options));
    }

    pub(crate) fn say(&self, text: &str) {
        if self.talks {
            println!("  {text}");
        }
    }

    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock()
    }

    /// From here on every moment is a crash point. Not with a ring in a file, which a copy of the disk
    /// does not have.
    pub(crate) fn watch(&mut self) {
        self.rings = None;
        let (model, options) = (self.model.clone(), self.options.clone());
        let points = Points::new(self.seed, self.disk, self.small_disk, self.home, options, model);
        self.points = Some(Arc::new(Mutex::new(points)));
    }

    pub(crate) fn points(&self) -> Counts {
        let points = self.points.as_ref().expect("it was watched");
        points.lock().unwrap_or_else(PoisonError::into_inner).counts
    }

    /// It has stopped, or a segment failed and there is no room for another.
    pub(crate) fn is_unwell(&self) -> bool {
        let Some(log) = &self.log else { return false };
        log.health().is_err()
    }

    /// What survives a crash at least.
    pub(crate) fn must_be_there(&self, crash: Crash) -> u64 {
        let must = self.promised(crash);
        self.model().may_be_cut_to.map_or(must, |index| must.min(index))
    }

    fn promised(&self, crash: Crash) -> u64 {
        let has_ring = self.rings.as_ref().is_some_and(|rings| !rings.is_hidden());
        // Under `never` what was written is not in the ring any more.
        let is_lost = self.is_unwell() && (!has_ring || self.options.policy == Policy::Never);
        match crash {
            // After a sync has failed and nothing helped, the kernel calls pages clean that the disk
            // has not got.
            _ if is_lost => self.model().durable,
            Crash::Process if has_ring && self.log.is_some() => self.model().last(),
            Crash::Process => {
                let model = self.model();
                model.written.max(model.durable)
            }
            Crash::System | Crash::PowerCut => self.model().durable,
        }
    }

    pub(crate) fn run(&mut self, operations: u32, tally: &mut Tally) {
        self.open(self.options.first_index - 1, tally);
        for _ in 0..operations {
            if !self.is_over {
                tally.operations += 1;
                self.step(tally);
            }
        }
        if !self.is_over {
            self.crash(Crash::PowerCut, tally);
            // Somebody else who looks finds nothing wrong.
            if self.disk != Disk::Lying {
                nothing_is_wrong(&self.dir, self.home);
            }
        }
        tally.records += self.model().last();
    }

    fn step(&mut self, tally: &mut Tally) {
        let choice = match self.rng.random_range(0..100) {
            // A drive, a wait, a read: something written instead.
            50..70 | 78..84 if self.is_lazy => 0,
            choice => choice,
        };
        match choice {
            0..37 => {
                let ack = self.ack();
                self.append(1, ack);
            }
            37..47 => {
                let (records, ack) = (self.rng.random_range(2..8), self.ack());
                self.append(records, ack);
            }
            // More than one write takes, so that some are under way while others are staged.
            47..50 => {
                for _ in 0..self.rng.random_range(4..24) {
                    let records = self.rng.random_range(1..16);
                    self.append(records, Ack::Buffered);
                }
            }
            50..62 => self.drive(),
            62..70 => self.wait(),
            70..74 => self.truncate_before(),
            // A disk that lies may bring back what was cut off; that it is told apart from what
            // came later is not promised.
            74..78 if self.disk == Disk::Lying => {}
            74..78 => self.truncate_after(),
            78..84 => self.read(),
            84..88 => self.close(tally),
            88.. if self.is_calm => {
                let ack = self.ack();
                self.append(1, ack);
            }
            88..94 => self.fault(tally),
            _ => {
                let crash = [Crash::Process, Crash::System, Crash::PowerCut];
                let crash = crash[self.rng.random_range(0..3)];
                self.crash(crash, tally);
            }
        }
        let advance = Duration::from_micros(self.rng.random_range(0..20_000));
        self.clock.advance(advance);
        let stopped = self.log.as_ref().is_some_and(|log| {
            matches!(log.try_append(b""), Err(Error::Stopped { .. } | Error::Closed))
        });
        if let Some(log) = &self.log
            && log.last_index() > self.model().last()
        {
            // The probe was accepted.
            let mut model = self.model();
            model.records.push(Vec::new());
            model.more.push(0);
        }
        if stopped || self.dir.is_down() {
            self.say("the log has stopped, or the machine is down");
            let crash = if self.rng.random() { Crash::PowerCut } else { Crash::Process };
            self.crash(crash, tally);
        }
    }

    pub(crate) fn crash(&mut self, crash: Crash, tally: &mut Tally) {
        tally.crashes += 1;
        let must = self.must_be_there(crash);
        {
            let is_unwell = self.is_unwell();
            let mut model = self.model();
            model.on_disk = match crash {
                Crash::Process if !is_unwell => model.written.max(model.durable),
                _ => model.durable,
            };
        }
        let seed = self.rng.random();
        self.say(&format!("crash: {crash:?}, at least {must} must be there"));
        self.go_to(self.dir.crash(crash, seed));
        if let Some(rings) = &mut self.rings {
            rings.crash(crash);
        }
        if let Some(log) = self.log.take() {
            tally.failovers += log.stats().failovers;
        }
        if self.talks {
            self.tell_disk();
        }
        self.open(must, tally);
    }

    /// What is on the disk, for whoever follows a seed.
    fn tell_disk(&self) {
        let Ok(dir) = self.home.of(&self.dir) else { return };
        let reports = View::of(dir).and_then(|view| view.verify(&|_, _| {}));
        for report in reports.into_iter().flatten() {
            self.say(&format!(
                "on disk: {} to {}, which ends at {}: {:?}",
                report.segment, report.last_index, report.records_end, report.state
            ));
        }
    }

    pub(crate) fn open(&mut self, must_be_there: u64, tally: &mut Tally) {
        {
            let mut model = self.model();
            model.log = Weak::new();
            model.written = must_be_there;
            model.durable = model.durable.min(must_be_there);
            model.may_be_cut_to = None;
        }
        self.draw_options();
        let mut must_be_there = self.draw_ring(must_be_there);
        self.try_foreign_ring();
        for attempt in 0.. {
            tally.opens += 1;
            if let Some(points) = &self.points {
                Points::watch(points, &self.dir);
            }
            let ring = self.rings.as_ref().map_or(Ring::Memory, Rings::ring);
            let opened = self.open_with(ring);
            match opened {
                Ok((log, recovery)) => {
                    self.say(&format!("open: {recovery:?}"));
                    tally.torn_tails += u64::from(recovery.torn_tail.is_some());
                    let log = Arc::new(log);
                    self.model().log = Arc::downgrade(&log);
                    self.log = Some(log);
                    return self.check(must_be_there);
                }
                Err(Error::Corrupt(wrong)) => {
                    assert_eq!(self.disk, Disk::Lying, "{wrong}");
                    tally.refused += 1;
                    self.say(&format!("refused: {wrong}"));
                    // The operator accepts the loss: begin anew.
                    self.go_to(SimDir::new());
                    if let Some(rings) = &mut self.rings {
                        rings.begin_anew();
                    }
                    let before = self.options.first_index - 1;
                    *self.model() = Model::behind(before);
                    return self.open(before, tally);
                }
                Err(error) => {
                    // A fault that was waiting, or no room to begin a segment.
                    let down = self.dir.is_down();
                    assert!(down || self.disk != Disk::Good, "{error:?}");
                    self.say(&format!("open fails: {error:?}"));
                    if format!("{error:?}").contains("sync") {
                        // The kernel has forgotten what that sync should have made durable.
                        must_be_there = must_be_there.min(self.model().durable);
                    }
                    if attempt > 5 {
                        // A full disk stays full.
                        assert!(self.small_disk, "{error}");
                        self.is_over = true;
                        return;
                    }
                    if self.talks {
                        for step in self.dir.history().iter().rev().take(30).rev() {
                            self.say(&format!("{step}"));
                        }
                        self.tell_disk();
                    }
                    let seed = self.rng.random();
                    self.go_to(self.dir.crash(Crash::Process, seed));
                }
            }
        }
    }

    /// What is left of a disk takes its place.
    fn go_to(&mut self, disk: SimDir) {
        self.dir = Arc::new(disk);
        self.log_dir = None;
    }

    fn open_with(&mut self, ring: Ring) -> plimsoll_log::Result<(Log, Recovery)> {
        let observer = self.talks.then(|| Arc::new(Teller) as Arc<dyn Observer>);
        let options = Options { ring, observer, ..self.options.clone() };
        let dir = match &self.log_dir {
            Some(dir) => Arc::clone(dir),
            None => Arc::clone(self.log_dir.insert(self.home.made(&self.dir)?)),
        };
        Log::open_in(dir, options)
    }

    /// Now and then an opener cannot see the ring, or is given another, and goes on without it; and
    /// sometimes the ring is there again for the next one. What only it had is given up then, and never
    /// comes back.
    fn draw_ring(&mut self, must_be_there: u64) -> u64 {
        let Some(rings) = &mut self.rings else { return must_be_there };
        let sees = rings.draw(&mut self.rng);
        if sees == Sees::Its {
            return must_be_there;
        }
        self.say(&format!("of its ring the opener sees: {sees:?}"));
        must_be_there.min(self.model().on_disk)
    }

    /// A ring that another log needs is refused, and nothing has happened then.
    fn try_foreign_ring(&mut self) {
        let Some(rings) = &self.rings else { return };
        if !self.rng.random_ratio(1, 8) {
            return;
        }
        let ring = rings.foreign(&self.options);
        let opened = self.open_with(ring.clone());
        self.say("a ring of another log is tried");
        assert!(opened.is_err(), "the log takes another's ring");
        if self.disk == Disk::Good && !self.dir.is_down() {
            assert!(matches!(opened, Err(Error::Options(_))), "{opened:?}");
        }
        Rings::forget_foreign(&ring);
    }

    /// What a log that was just opened holds.
    fn check(&mut self, must_be_there: u64) {
        let log = self.log.as_ref().expect("just opened");
        let last = log.last_index();
        self.model().check_ends(log, must_be_there, self.disk);
        self.model().keep(last);
        let down = || self.dir.is_down();
        let may_fail = |_: &Error| self.disk != Disk::Good || down();
        self.model().check_records(log, may_fail);
        let mut model = self.model();
        model.written = log.written();
        model.durable = log.durable();
    }
}
