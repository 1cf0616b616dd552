//! The log against a model, on a simulated disk: random operations, faults and crashes, all of it from
//! one seed.
//!
//! The model is a list of records and three numbers. What must hold, whatever happens: what `open`
//! returns is a prefix of what was appended, whole batches only, with everything that was
//! acknowledged at a level that survives the crash; and what was cut off stays away.
//!
//! `PLIMSOLL_SEEDS=100000 cargo test --release -p plimsoll-log --test simulation` runs more seeds;
//! `PLIMSOLL_SEED=7` runs one, and tells its story.
#![cfg(not(shuttle))]
#![expect(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a campaign that tells its story; indexes are small"
)]

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_log::{
    Ack, Clock, Error, Event, Log, Observer, Options, Policy, Retain, Ring, SegmentState, Tail,
    View,
};
use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, SimDir, Tear};
use plimsoll_sync::{Crash, Dir, System};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// How the disk may misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// It loses power, and nothing else.
    Good,
    /// Operations fail, and say so.
    Failing,
    /// It says that it did what it did not do.
    Lying,
}

#[derive(Debug, Default)]
struct Model {
    /// Payloads of records 1, 2, …
    records: Vec<Vec<u8>>,
    /// For each record, how many of its batch follow.
    more: Vec<usize>,
    /// The last record acknowledged as written, and as durable.
    written: u64,
    durable: u64,
    /// What retention may have taken, and what it has.
    may_be_gone: u64,
    is_gone: u64,
}

struct World {
    rng: Pcg64Mcg,
    seed: u64,
    disk: Disk,
    dirs: Vec<Arc<SimDir>>,
    options: Options,
    clock: Clock,
    log: Option<Log>,
    model: Model,
    shm: Option<tempfile::TempDir>,
    rings: u64,
    talks: bool,
    small_disk: bool,
    is_over: bool,
}

/// Tells what the log does.
struct Teller;

impl Observer for Teller {
    fn observe(&self, event: Event<'_>) {
        println!("    {event:?}");
    }
}

/// What the seeds of a run did, so that a run that tests nothing is noticed.
#[derive(Debug, Default)]
struct Tally {
    operations: u64,
    records: u64,
    crashes: u64,
    opens: u64,
    faults: u64,
    failovers: u64,
    torn_tails: u64,
    refused: u64,
}

impl World {
    fn new(seed: u64, disk: Disk, talks: bool) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let policy = match rng.random_range(0..3) {
            0 => Policy::Never,
            1 => Policy::Always,
            _ => Policy::Interval {
                max_age: Duration::from_millis(rng.random_range(1..50)),
                max_bytes: rng.random_range(1..30_000),
            },
        };
        let small_disk = disk == Disk::Failing && rng.random_ratio(1, 4);
        let disk_options = DiskOptions {
            system: System::HERE,
            tear: if rng.random() { Tear::Bytes512 } else { Tear::Bytes4096 },
            capacity_bytes: small_disk.then_some(512 << 10),
            history_steps: if talks { 200 } else { 0 },
            ..DiskOptions::default()
        };
        let places = if rng.random_ratio(1, 4) { 2 } else { 1 };
        let dirs = (0..places).map(|_| Arc::new(SimDir::with(disk_options))).collect();
        let shm = rng.random_ratio(1, 8).then(|| tempfile::tempdir_in("/dev/shm").ok()).flatten();
        let clock = Clock::manual(seed);
        let options = Options {
            policy,
            segment_bytes: 64 << 10,
            ring_bytes: if rng.random() { 32 << 10 } else { 8 << 10 },
            tail: if rng.random_ratio(1, 4) { Tail::Pad } else { Tail::Rewrite },
            direct: rng.random_ratio(3, 4),
            threads: false,
            clock: clock.clone(),
            ..Options::default()
        };
        let model = Model::default();
        Self {
            rng,
            seed,
            disk,
            dirs,
            options,
            clock,
            log: None,
            model,
            shm,
            rings: 0,
            talks,
            small_disk,
            is_over: false,
        }
    }

    fn say(&self, text: &str) {
        if self.talks {
            println!("  {text}");
        }
    }

    fn ring_path(&self) -> Option<PathBuf> {
        self.shm.as_ref().map(|shm| shm.path().join(format!("ring-{}", self.rings)))
    }

    fn has_stopped(&self) -> bool {
        let Some(log) = &self.log else { return false };
        matches!(log.appended().wait_timeout(u64::MAX, Duration::ZERO), Err(Error::Stopped { .. }))
    }

    /// What survives a crash at least.
    fn must_be_there(&self, crash: Crash) -> u64 {
        let buffered_survives = self.shm.is_some() && crash == Crash::Process;
        match crash {
            // After a sync has failed and nothing helped, the kernel calls pages clean that the disk
            // has not got.
            _ if self.has_stopped() => self.model.durable,
            Crash::Process if buffered_survives && self.log.is_some() => {
                self.model.records.len() as u64
            }
            Crash::Process => self.model.written.max(self.model.durable),
            Crash::System | Crash::PowerCut => self.model.durable,
        }
    }

    fn run(&mut self, operations: u32, tally: &mut Tally) {
        self.open(0, tally);
        for _ in 0..operations {
            if !self.is_over {
                tally.operations += 1;
                self.step(tally);
            }
        }
        if !self.is_over {
            self.crash(Crash::PowerCut, tally);
            self.check_view();
        }
        tally.records += self.model.records.len() as u64;
    }

    fn step(&mut self, tally: &mut Tally) {
        let choice = self.rng.random_range(0..100);
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
            && log.last_index() > self.model.records.len() as u64
        {
            // The probe was accepted.
            self.model.records.push(Vec::new());
            self.model.more.push(0);
        }
        if stopped || self.dirs.iter().any(|dir| dir.is_down()) {
            self.say("the log has stopped, or the machine is down");
            let crash = if self.rng.random() { Crash::PowerCut } else { Crash::Process };
            self.crash(crash, tally);
        }
    }

    fn payload(&mut self) -> Vec<u8> {
        let longest = if self.rng.random_ratio(1, 20) { 3500 } else { 300 };
        let mut payload = vec![0; self.rng.random_range(0..longest)];
        self.rng.fill(&mut payload[..]);
        payload
    }

    fn ack(&mut self) -> Ack {
        [Ack::Buffered, Ack::Written, Ack::Durable][self.rng.random_range(0..3)]
    }

    fn append(&mut self, records: usize, ack: Ack) {
        let payloads: Vec<Vec<u8>> = (0..records).map(|_| self.payload()).collect();
        let bytes: usize = payloads.iter().map(|payload| payload.len() + 32).sum();
        if bytes as u64 > self.options.ring_bytes / 2 {
            return;
        }
        let Some(log) = &self.log else { return };
        let appended = log.append_batch_with(&payloads, ack);
        self.say(&format!("append {records} records, {bytes} bytes, {ack}: {appended:?}"));
        let before = self.model.records.len() as u64;
        let accepted = log.last_index() >= before + records as u64;
        if let Ok(indexes) = &appended {
            assert_eq!(*indexes.start(), before + 1, "seed {}", self.seed);
            match ack {
                Ack::Buffered => {}
                Ack::Written => self.model.written = *indexes.end(),
                Ack::Durable => self.model.durable = *indexes.end(),
            }
        }
        if accepted {
            self.model.more.extend((0..records).rev());
            self.model.records.extend(payloads);
        } else {
            assert!(appended.is_err(), "seed {}", self.seed);
        }
        if self.disk == Disk::Good && !self.dirs.iter().any(|dir| dir.is_down()) {
            assert!(appended.is_ok(), "seed {}: {appended:?}", self.seed);
        }
    }

    fn drive(&mut self) {
        let Some(log) = &self.log else { return };
        let driven = log.drive();
        let marks = (log.written().get(), log.durable().get());
        self.say(&format!("drive: {driven:?}, written and durable {marks:?}"));
        self.note_marks();
    }

    fn wait(&mut self) {
        let Some(log) = &self.log else { return };
        let index = log.last_index();
        let waited =
            if self.rng.random() { log.wait_written(index) } else { log.sync().map(|_| ()) };
        self.say(&format!("wait for {index}: {waited:?}"));
        self.note_marks();
    }

    /// What the marks say is an acknowledgement.
    fn note_marks(&mut self) {
        let Some(log) = &self.log else { return };
        self.model.written = self.model.written.max(log.written().get());
        self.model.durable = self.model.durable.max(log.durable().get());
        assert!(log.durable().get() <= log.written().get(), "seed {}", self.seed);
        assert!(log.written().get() <= log.last_index(), "seed {}", self.seed);
    }

    fn truncate_before(&mut self) {
        let Some(log) = &self.log else { return };
        let index = self.rng.random_range(1..=self.model.records.len() as u64 + 1);
        let kept = log.truncate_before(Retain::From(index));
        self.say(&format!("truncate before {index}: {kept:?}"));
        self.model.may_be_gone = self.model.may_be_gone.max(index - 1);
        if let Ok(first_index) = kept {
            assert!(first_index <= index.max(log.first_index()), "seed {}", self.seed);
            self.model.is_gone = first_index - 1;
        }
    }

    fn truncate_after(&mut self) {
        let Some(log) = &self.log else { return };
        let first = log.first_index() - 1;
        let last = self.model.records.len() as u64;
        let near = self.rng.random::<bool>();
        let index = if near { last.saturating_sub(5).max(first) } else { first };
        let index = self.rng.random_range(index..=last);
        // A cut through a batch makes its front a batch of its own.
        let cut = log.truncate_after(index);
        self.say(&format!("truncate after {index}: {cut:?}"));
        let model = &mut self.model;
        model.written = model.written.min(index);
        model.durable = model.durable.min(index);
        if cut.is_ok() {
            model.records.truncate(index as usize);
            model.more.truncate(index as usize);
            let mut end = model.more.len();
            // The batch that was cut through is whole as far as it goes.
            while end > 0
                && model.more[end - 1] > 0
                && (end == model.more.len() || model.more[end - 1] > model.more[end])
            {
                end -= 1;
            }
            for (place, more) in model.more[end..].iter_mut().rev().enumerate() {
                *more = place;
            }
            if index == 0 || log.durable().get() == index {
                model.durable = index;
                model.written = index;
            }
        } else {
            // Half of it may have happened, whatever became of batches.
            for more in model.more.iter_mut().skip(index as usize).chain([]) {
                *more = 0;
            }
            model.more.iter_mut().for_each(|more| *more = 0);
        }
    }

    fn read(&mut self) {
        let Some(log) = &self.log else { return };
        let first = log.first_index();
        let written = log.written().get();
        let from = self.rng.random_range(first..=written.max(first));
        if from > written {
            return;
        }
        let mut reader = log.read_from(from).unwrap();
        let mut next = from;
        loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    assert_eq!(record.index, next, "seed {}", self.seed);
                    let expected = &self.model.records[next as usize - 1];
                    assert!(record.payload == expected, "seed {}: record {next}", self.seed);
                    next += 1;
                }
                Ok(None) => break,
                Err(error) => {
                    let lies = self.disk == Disk::Lying;
                    let down = self.dirs.iter().any(|dir| dir.is_down());
                    let fault =
                        matches!(error, Error::Disk(_)) && (down || self.disk == Disk::Failing);
                    assert!(lies || fault, "seed {}: {error}", self.seed);
                    return;
                }
            }
        }
        assert_eq!(next, written + 1, "seed {}", self.seed);
        self.say(&format!("read {from} to {written}"));
    }

    fn close(&mut self, tally: &mut Tally) {
        let Some(log) = self.log.take() else { return };
        let last = log.last_index();
        let failovers = log.stats().failovers;
        tally.failovers += failovers;
        let closed = log.close();
        self.say(&format!("close: {closed:?}"));
        if closed.is_ok() {
            self.model.durable = last;
            self.model.written = last;
        }
        let stopped = matches!(closed, Err(Error::Stopped { .. }));
        let must = match closed {
            Ok(()) => last,
            Err(_) if stopped => self.model.durable,
            Err(_) => self.must_be_there(Crash::Process),
        };
        if self.dirs.iter().any(|dir| dir.is_down()) {
            return self.crash(Crash::Process, tally);
        }
        self.open(must, tally);
    }

    fn fault(&mut self, tally: &mut Tally) {
        let place = self.rng.random_range(0..self.dirs.len());
        let ahead = self.rng.random_range(1..30);
        if self.disk == Disk::Good {
            if self.rng.random_ratio(1, 3) {
                let dir = &self.dirs[place];
                dir.stop_at(dir.operations() + ahead);
                self.say(&format!("the machine will go down in {ahead} operations"));
            }
            return;
        }
        use Operation::{Allocate, Create, Read, Remove, Rename, Sync, SyncDir, Write};
        let fault = if self.disk == Disk::Lying {
            match self.rng.random_range(0..3) {
                0 => Fault::new(Write, FaultKind::LostWrite),
                1 => Fault::new(Sync, FaultKind::DropFlush),
                _ => Fault::new(SyncDir, FaultKind::DropFlush),
            }
        } else {
            let on = [Write, Write, Sync, Sync, SyncDir, Allocate, Create, Rename, Remove, Read];
            let on = on[self.rng.random_range(0..on.len())];
            match self.rng.random_range(0..4) {
                0 if on == Write => {
                    Fault::new(on, FaultKind::ShortWrite { bytes: self.rng.random_range(0..5000) })
                }
                1 if on != Read => Fault::new(on, FaultKind::Fail(std::io::ErrorKind::StorageFull)),
                _ => Fault::new(on, FaultKind::FailRaw(5)),
            }
        };
        let fault = fault.nth(self.rng.random_range(1..12));
        let fault = if self.rng.random_ratio(1, 10) { fault.sticky() } else { fault };
        self.say(&format!("fault in {place}: {fault:?}"));
        tally.faults += 1;
        self.dirs[place].inject(fault);
    }

    fn crash(&mut self, crash: Crash, tally: &mut Tally) {
        tally.crashes += 1;
        let must = self.must_be_there(crash);
        let seed = self.rng.random();
        self.say(&format!("crash: {crash:?}, at least {must} must be there"));
        self.dirs = self.dirs.iter().map(|dir| Arc::new(dir.crash(crash, seed))).collect();
        if let Some(path) = self.ring_path() {
            self.rings += 1;
            let next = self.ring_path().expect("there was one before");
            if crash == Crash::Process {
                std::fs::copy(&path, next).ok();
            }
            // What the old log does from here on goes to the old file.
            std::fs::remove_file(path).ok();
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
        let dirs = self.dirs.iter().map(|dir| Arc::clone(dir) as Arc<dyn Dir>).collect();
        let reports = View::of(dirs).and_then(|view| view.verify(&|_, _| {}));
        for report in reports.into_iter().flatten() {
            self.say(&format!(
                "on disk: {}/{} to {}, which ends at {}: {:?}",
                report.place, report.segment, report.last_index, report.records_end, report.state
            ));
        }
    }

    fn open(&mut self, must_be_there: u64, tally: &mut Tally) {
        for attempt in 0.. {
            tally.opens += 1;
            let dirs: Vec<Arc<dyn Dir>> =
                self.dirs.iter().map(|dir| Arc::clone(dir) as Arc<dyn Dir>).collect();
            let ring = self.ring_path().map_or(Ring::Memory, Ring::File);
            let observer = self.talks.then(|| Arc::new(Teller) as Arc<dyn Observer>);
            let opened = Log::open_in(dirs, Options { ring, observer, ..self.options.clone() });
            match opened {
                Ok((log, recovery)) => {
                    self.say(&format!("open: {recovery:?}"));
                    tally.torn_tails += u64::from(recovery.torn_tail.is_some());
                    self.log = Some(log);
                    return self.check(must_be_there);
                }
                Err(Error::Corrupt(wrong)) => {
                    assert_eq!(self.disk, Disk::Lying, "seed {}: {wrong}", self.seed);
                    tally.refused += 1;
                    self.say(&format!("refused: {wrong}"));
                    // The operator accepts the loss: begin anew.
                    self.dirs = self.dirs.iter().map(|_| Arc::new(SimDir::new())).collect();
                    self.rings += 1;
                    self.model = Model::default();
                    self.options.accept_loss = false;
                    return self.open(0, tally);
                }
                Err(error) => {
                    // A fault that was waiting, or no room to begin a segment.
                    let down = self.dirs.iter().any(|dir| dir.is_down());
                    assert!(down || self.disk != Disk::Good, "seed {}: {error}", self.seed);
                    self.say(&format!("open fails: {error:?}"));
                    if attempt > 5 {
                        // A full disk stays full.
                        assert!(self.small_disk, "seed {}: {error}", self.seed);
                        self.is_over = true;
                        return;
                    }
                    if self.talks {
                        for dir in &self.dirs {
                            for step in dir.history().iter().rev().take(30).rev() {
                                self.say(&format!("{step}"));
                            }
                        }
                        self.tell_disk();
                    }
                    let seed = self.rng.random();
                    let healed = |dir: &Arc<SimDir>| Arc::new(dir.crash(Crash::Process, seed));
                    self.dirs = self.dirs.iter().map(healed).collect();
                }
            }
        }
    }

    /// What a log that was just opened holds.
    fn check(&mut self, must_be_there: u64) {
        let seed = self.seed;
        let log = self.log.as_ref().expect("just opened");
        let (first, last) = (log.first_index(), log.last_index());
        let model = &mut self.model;
        let lies = self.disk == Disk::Lying;
        assert!(last <= model.records.len() as u64, "seed {seed}: {last} were never appended");
        assert!(
            lies || last >= must_be_there,
            "seed {seed}: {must_be_there} were acknowledged, {last} are there"
        );
        assert!(lies || first <= model.may_be_gone + 1, "seed {seed}: the log begins with {first}");
        assert!(
            lies || last < first || first > model.is_gone,
            "seed {seed}: {first} was truncated"
        );
        let whole = last == 0 || last < first || model.more[last as usize - 1] == 0;
        assert!(whole, "seed {seed}: half a batch at {last}");
        model.records.truncate(last as usize);
        model.more.truncate(last as usize);
        let on_disk = log.written().get();
        let mut next = first;
        let mut reader = log.read_from(first).unwrap();
        while let Some(record) = reader.next_record().unwrap_or_else(|error| {
            let down = self.dirs.iter().any(|dir| dir.is_down());
            assert!(self.disk == Disk::Failing || lies || down, "seed {seed}: {error}");
            next = on_disk + 1;
            None
        }) {
            assert_eq!(record.index, next, "seed {seed}");
            let expected = &self.model.records[next as usize - 1];
            assert!(record.payload == expected, "seed {seed}: record {next} is another one");
            next += 1;
        }
        assert_eq!(next, on_disk.max(first - 1) + 1, "seed {seed}: not all can be read");
        self.model.written = on_disk;
        self.model.durable = log.durable().get();
    }

    /// Somebody else who looks finds nothing wrong.
    fn check_view(&self) {
        if self.disk == Disk::Lying {
            return;
        }
        let dirs: Vec<Arc<dyn Dir>> =
            self.dirs.iter().map(|dir| Arc::clone(dir) as Arc<dyn Dir>).collect();
        let Ok(view) = View::of(dirs) else { return };
        let reports = view.verify(&|_, _| {});
        for report in reports.into_iter().flatten() {
            let corrupt = matches!(report.state, SegmentState::Corrupt(_));
            assert!(!corrupt, "seed {}: {report:?}", self.seed);
        }
    }
}

fn simulate(disk: Disk, seeds: u64) {
    let one: Option<u64> = env::var("PLIMSOLL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds: u64 = match (one, env::var("PLIMSOLL_SEEDS")) {
        (_, Ok(seeds)) => seeds.parse().expect("PLIMSOLL_SEEDS is a number"),
        (_, Err(_)) => seeds,
    };
    let all = one.map_or(0..seeds, |seed| seed..seed + 1);
    let mut tally = Tally::default();
    for seed in all {
        let mut world = World::new(seed, disk, one.is_some());
        world.say(&format!("seed {seed}: {:?}, {} directories", world.options, world.dirs.len()));
        world.run(120, &mut tally);
    }
    println!("{disk:?}: {seeds} seeds, {tally:?}");
}

#[test]
fn nothing_acknowledged_is_lost_to_crashes() {
    simulate(Disk::Good, 200);
}

#[test]
fn nothing_acknowledged_is_lost_to_failing_disks() {
    simulate(Disk::Failing, 200);
}

#[test]
fn a_disk_that_lies_may_lose_records_and_never_changes_one() {
    simulate(Disk::Lying, 200);
}

/// A new segment began in the first directory where an empty one in the second was not to be written
/// on. That one stayed, and after the next cut it was taken for the newest.
#[test]
fn an_empty_segment_in_the_second_directory_does_not_stay_behind() {
    World::new(79_171, Disk::Good, false).run(120, &mut Tally::default());
}
