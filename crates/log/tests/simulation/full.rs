//! Disks that fill, of each kind: nothing that was accepted is lost, reads go on, a log on a full disk
//! opens, and once retention has removed some of it records are accepted again.

use std::cell::Cell;
use std::sync::Arc;

use plimsoll_log::{Ack, Clock, Error, Log, Options, Policy, Retain};
use plimsoll_simdisk::{DiskOptions, FillsAt, Overwriting, SimDir};
use plimsoll_sync::Crash;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::points::dyn_dir;
use crate::world::OVERWRITING;
use crate::{RARELY, each_seed, story};

const ROUNDS: u32 = 6;

/// What the seeds of a run did.
#[derive(Debug, Default, Clone, Copy)]
struct Filled {
    disks: u64,
    records: u64,
    refused: u64,
    opened_full: u64,
    came_back: u64,
}

/// What the record of an index holds.
fn payload(index: u64) -> Vec<u8> {
    vec![index as u8; (index * 379 % 3000) as usize]
}

/// A log on a disk that is too small for it.
struct Full {
    rng: Pcg64Mcg,
    dir: Arc<SimDir>,
    options: Options,
    log: Option<Log>,
    /// What is reserved is there when it is written.
    keeps_room: bool,
    talks: bool,
}

impl Full {
    fn new(seed: u64, talks: bool) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let disk = DiskOptions {
            capacity_bytes: Some([400 << 10, 512 << 10, 1 << 20][rng.random_range(0..3)]),
            overwriting: OVERWRITING[rng.random_range(0..OVERWRITING.len())],
            fills_at: if rng.random() { FillsAt::Write } else { FillsAt::Sync },
            history_steps: 0,
            ..DiskOptions::default()
        };
        let options = Options {
            ring_bytes: [8 << 10, 32 << 10, 64 << 10][rng.random_range(0..3)],
            direct: rng.random(),
            clock: Clock::manual(seed),
            ..story(if rng.random() { Policy::Always } else { RARELY })
        };
        if talks {
            println!("{disk:?}\n{options:?}");
        }
        let dir = Arc::new(SimDir::with(disk));
        let keeps_room =
            disk.overwriting == Overwriting::InPlace && disk.fills_at == FillsAt::Write;
        let mut full = Self { rng, dir, options, log: None, keeps_room, talks };
        full.open(0, 0);
        full
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("it is open")
    }

    fn say(&self, text: &str) {
        if self.talks {
            println!("  {text}");
        }
    }

    /// Opens what is there, which ends with one of these records.
    fn open(&mut self, least: u64, most: u64) {
        let (log, recovery) = Log::open_in(dyn_dir(&self.dir), self.options.clone())
            .unwrap_or_else(|error| panic!("a log on a full disk does not open: {error}"));
        self.say(&format!("{recovery:?}"));
        let last = log.last_index();
        assert!((least..=most).contains(&last), "{last} are there, of {least} to {most}");
        self.log = Some(log);
        self.read();
    }

    /// Every record that is written is what it was.
    fn read(&self) {
        let (log, mut next) = (self.log(), self.log().first_index());
        let mut reader = log.read_from(next).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            assert_eq!(record.index, next);
            assert!(record.payload == payload(next), "{next} is another one");
            next += 1;
        }
        assert!(next > log.written(), "{next} of {} cannot be read", log.written());
    }

    /// Appends until nothing more is accepted. Whether that came.
    fn fill(&mut self) -> bool {
        for _ in 0..2000 {
            let ack = [Ack::Buffered, Ack::Written, Ack::Durable][self.rng.random_range(0..3)];
            let next = self.log().last_index() + 1;
            match self.log().append_with(&payload(next), ack) {
                Ok(index) => assert_eq!(index, next),
                Err(error @ (Error::OutOfSpace { .. } | Error::TimedOut { .. })) => {
                    // Refused; or accepted, and not as far as was asked.
                    let is_accepted = matches!(error, Error::TimedOut { .. });
                    assert_eq!(self.log().last_index(), next - u64::from(!is_accepted));
                    self.say(&format!("full after {}", self.log().last_index()));
                    return true;
                }
                Err(error) => panic!("{error}"),
            }
        }
        false
    }

    /// Ends, one way or another, and begins again.
    fn begin_again(&mut self) {
        let log = self.log.take().expect("it is open");
        let (durable, last) = (log.durable(), log.last_index());
        match self.rng.random_range(0..3) {
            0 => {
                let closed = log.close();
                self.say(&format!("close: {closed:?}"));
                let least = if closed.is_ok() { last } else { durable };
                assert!(matches!(closed, Ok(()) | Err(Error::OutOfSpace { .. })), "{closed:?}");
                // A file that failed takes nothing more in this process.
                self.dir = Arc::new(self.dir.crash(Crash::Process, 0));
                self.open(least, last);
            }
            draw => {
                let crash = [Crash::Process, Crash::PowerCut][draw - 1];
                self.say(&format!("{crash:?}"));
                self.dir = Arc::new(self.dir.crash(crash, self.rng.random()));
                drop(log);
                self.open(durable, last);
            }
        }
    }

    /// Removes all but the newest segment. What is accepted next says that there is room again.
    fn make_room(&mut self) {
        let log = self.log();
        let first = log.truncate_before(Retain::From(log.durable())).unwrap();
        self.say(&format!("the log begins with {first} of {}", log.last_index()));
        for _ in 0..10 {
            log.drive().unwrap();
        }
        assert!(log.health().is_ok(), "there is room: {:?}", log.health());
        let next = log.last_index() + 1;
        log.append_with(&payload(next), Ack::Durable).unwrap();
        self.read();
    }
}

#[test]
fn a_disk_that_fills_loses_nothing_and_takes_records_again_once_there_is_room() {
    let filled = Cell::new(Filled::default());
    each_seed(100, |seed, talks| {
        let mut tally = filled.get();
        let mut full = Full::new(seed, talks);
        tally.disks += 1;
        for _ in 0..ROUNDS {
            tally.refused += u64::from(full.fill());
            full.read();
            if full.keeps_room {
                assert!(full.log().sync().is_ok(), "what was accepted has no room");
            }
            if full.rng.random() {
                full.begin_again();
                tally.opened_full += 1;
            }
            full.make_room();
            tally.came_back += 1;
        }
        tally.records += full.log().last_index();
        filled.set(tally);
    });
    println!("{:?}", filled.get());
    assert!(filled.get().refused > 0, "no disk was full");
}
