//! Crash points: at every moment of a run the disk is copied, crashed, opened and checked, and the run
//! goes on.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_log::{Ack, Clock, Error, Log, Options, Ring, SegmentState, View};
use plimsoll_simdisk::{Moment, SimDir};
use plimsoll_sync::{Crash, Dir};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::home::Home;
use crate::model::{Model, Shared};
use crate::{Disk, in_a_thread};

/// How many of each kind there were.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) points: u64,
    pub(crate) power_cuts: u64,
    pub(crate) system_crashes: u64,
    pub(crate) process_crashes: u64,
    pub(crate) torn_tails: u64,
    pub(crate) refused: u64,
    /// Points after which the log was written on, cut again and opened again.
    pub(crate) went_on: u64,
}

/// Draws what becomes of each moment.
#[derive(Debug)]
pub(crate) struct Points {
    rng: Pcg64Mcg,
    pub(crate) counts: Counts,
    disk: Disk,
    small_disk: bool,
    home: Home,
    options: Options,
    model: Shared,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.points += other.points;
        self.power_cuts += other.power_cuts;
        self.system_crashes += other.system_crashes;
        self.process_crashes += other.process_crashes;
        self.torn_tails += other.torn_tails;
        self.refused += other.refused;
        self.went_on += other.went_on;
    }
}

impl Points {
    pub(crate) fn new(
        seed: u64,
        disk: Disk,
        small_disk: bool,
        home: Home,
        options: Options,
        model: Shared,
    ) -> Self {
        let rng = Pcg64Mcg::seed_from_u64(!seed);
        let options = Options { ring: Ring::Memory, observer: None, threads: false, ..options };
        Self { rng, counts: Counts::default(), disk, small_disk, home, options, model }
    }

    /// Every moment of this directory from here on is a point.
    pub(crate) fn watch(points: &Arc<Mutex<Self>>, dir: &SimDir) {
        let points = Arc::clone(points);
        dir.watch(move |moment: &Moment<'_>| {
            // Apart from the log that is in the middle of a call, whose locks this thread holds.
            in_a_thread(|| {
                let mut points = points.lock().unwrap_or_else(PoisonError::into_inner);
                let (crash, seed) = points.draw();
                points.visit(moment.crash(crash, seed), crash, moment);
            });
        });
    }

    fn draw(&mut self) -> (Crash, u64) {
        let crash = match self.rng.random_range(0..8) {
            0 => Crash::Process,
            1 | 2 => Crash::System,
            _ => Crash::PowerCut,
        };
        (crash, self.rng.random())
    }

    fn visit(&mut self, mut found: SimDir, crash: Crash, moment: &Moment<'_>) {
        let model = self.model.clone();
        let model = model.lock();
        self.counts.points += 1;
        match crash {
            Crash::Process => self.counts.process_crashes += 1,
            Crash::System => self.counts.system_crashes += 1,
            Crash::PowerCut => self.counts.power_cuts += 1,
        }
        let mut must = model.promised(crash, self.disk);
        if crash != Crash::PowerCut && self.rng.random_ratio(1, 4) {
            // What the kernel or the device still had may go as well.
            let seed = self.rng.random();
            found = found.power_cut(seed);
            must = model.promised(Crash::PowerCut, self.disk);
        }
        let _where = Telling(format!(
            "in a copy crashed ({crash:?}) before operation {}, {} {}",
            moment.number, moment.operation, moment.name
        ));
        let found = Arc::new(found);
        if self.disk != Disk::Lying && self.rng.random_ratio(1, 16) {
            nothing_is_wrong(&found, self.home);
        }
        // Who keeps an account of that elsewhere is right, and may be behind.
        let is_cut = model.cut_to.or(model.may_be_cut_to).is_some();
        let known = if is_cut { 0 } else { must };
        let known = if self.rng.random() { 0 } else { self.rng.random_range(0..=known) };
        let Some(log) = self.open(&found, known) else { return };
        model.check_ends(&log, must, self.disk);
        // Of a disk that lied a reader may say what is missing.
        model.check_records(&log, |error| {
            self.disk == Disk::Lying && matches!(error, Error::Corrupt(_))
        });
        if self.disk != Disk::Lying && self.rng.random_ratio(1, 8) {
            self.go_on(&model, log, &found);
        }
    }

    fn open(&mut self, found: &Arc<SimDir>, durable: u64) -> Option<Log> {
        let clock = Clock::manual(self.rng.random());
        let options = Options { clock, durable, ..self.options.clone() };
        let dir = self.home.made(found).expect("a disk that was copied is a good one");
        match Log::open_in(dir, options) {
            Ok((log, recovery)) => {
                self.counts.torn_tails += u64::from(recovery.torn_tail.is_some());
                Some(log)
            }
            Err(Error::Corrupt(_)) if self.disk == Disk::Lying => {
                self.counts.refused += 1;
                None
            }
            Err(error) if self.small_disk && is_full(&error) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// A log that was recovered is as good as any: what is appended now survives a power cut, and what
    /// was cut off stays away.
    fn go_on(&mut self, model: &Model, log: Log, found: &Arc<SimDir>) {
        self.counts.went_on += 1;
        let before = log.last_index();
        let mut appended = 0_u64;
        for record in 0..self.rng.random_range(1..4_u8) {
            match log.append_with(&[record; 40], Ack::Durable) {
                Ok(_) => appended += 1,
                Err(_) if self.small_disk => break,
                Err(error) => panic!("{error}"),
            }
        }
        if self.rng.random() {
            // So that some of it has not been synced.
            log.append_with(&[99; 2000], Ack::Written).ok();
        }
        let seed = self.rng.random();
        let found = Arc::new(found.power_cut(seed));
        drop(log);
        let Some(log) = self.open(&found, before) else { return };
        assert!(log.last_index() >= before + appended, "what was appended after a crash is lost");
        assert!(log.last_index() <= before + appended + 1, "what was cut off came back");
        let mut reader = log.read_from(log.first_index()).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            let expected = match record.index.checked_sub(before + 1) {
                None => model.payload(record.index).map(<[u8]>::to_vec),
                Some(after) if after < appended => Some(vec![after as u8; 40]),
                Some(_) => Some(vec![99; 2000]),
            };
            assert!(Some(record.payload.to_vec()) == expected, "{} is another", record.index);
        }
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::OutOfSpace { .. })
        || matches!(error, Error::Disk(disk) if disk.kind() == Some(std::io::ErrorKind::StorageFull))
}

pub(crate) fn dyn_dir(dir: &Arc<SimDir>) -> Arc<dyn Dir> {
    Arc::clone(dir) as Arc<dyn Dir>
}

/// Somebody who only looks calls nothing corrupt.
pub(crate) fn nothing_is_wrong(dir: &Arc<SimDir>, home: Home) {
    let Ok(view) = home.of(dir).map_err(Error::from).and_then(View::of) else { return };
    for report in view.verify(&|_, _| {}).into_iter().flatten() {
        assert!(!matches!(report.state, SegmentState::Corrupt(_)), "{report:?}");
    }
}

/// Says where it was when a check fails.
struct Telling<T: fmt::Display>(T);

impl<T: fmt::Display> Drop for Telling<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0);
        }
    }
}
