//! The interleavings of appenders, writer, syncer, preparer and waiters, under shuttle's schedulers:
//! no deadlock, no wake-up lost, and every promise kept in each of them.
//!
//! `RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p plimsoll-log --test
//! interleavings`; `PLIMSOLL_ITERATIONS` says how many schedules each test tries with each scheduler.
//! A failure prints the schedule, which `shuttle::replay` runs again.
//!
//! No time passes: the clock stands, and who waits for some time goes on once others had a chance.
//! Atomics are sequentially consistent, and the words of the ring are not scheduled one by one.
#![cfg(shuttle)]

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use plimsoll_log::{Ack, Clock, Error, Event, Log, Observer, Options, Policy, Retain};
use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::{Access, Crash, Dir, File, Lock, Result};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread;

/// Runs `test` in many schedules.
fn explore(test: fn()) {
    let wanted = std::env::var("PLIMSOLL_ITERATIONS").ok().map(|n| n.parse().unwrap());
    let iterations = wanted.unwrap_or(300);
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = shuttle::Config::default();
        config.stack_size = 1 << 18;
        shuttle::Runner::new(scheduler, config).run(test);
    };
    run(Box::new(RandomScheduler::new(iterations)));
    run(Box::new(PctScheduler::new(3, iterations)));
}

fn options(policy: Policy, threads: bool) -> Options {
    let (segment_bytes, ring_bytes) = (64 << 10, 8 << 10);
    let clock = Clock::manual(1);
    Options { policy, segment_bytes, ring_bytes, threads, clock, ..Options::default() }
}

/// Syncs in the background after this many bytes, since no time passes.
fn interval(max_bytes: u64) -> Policy {
    Policy::Interval { max_age: Duration::from_secs(1), max_bytes }
}

fn disk() -> Arc<SimDir> {
    Arc::new(SimDir::with(DiskOptions { history_steps: 0, ..DiskOptions::default() }))
}

fn open(dir: &Arc<SimDir>, policy: Policy) -> Arc<Log> {
    let dir = Arc::clone(dir) as Arc<dyn Dir>;
    Arc::new(Log::open_in(dir, options(policy, true)).unwrap().0)
}

/// What is found after a crash: indexes and payloads from the first record on.
fn found(dir: &Arc<SimDir>, crash: Crash, seed: u64) -> (u64, Vec<Vec<u8>>) {
    let left = Arc::new(dir.crash(crash, seed));
    let (log, _) = Log::open_in(left, options(interval(4096), false)).unwrap();
    let mut reader = log.read_from(log.first_index()).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push(record.payload.to_vec());
    }
    (log.first_index(), records)
}

fn close(log: Arc<Log>) -> plimsoll_log::Result<()> {
    Arc::into_inner(log).expect("nobody else has it").close()
}

fn appenders_of_every_level(policy: Policy) {
    let dir = disk();
    let log = open(&dir, policy);
    let threads: Vec<_> = [Ack::Buffered, Ack::Written, Ack::Durable, Ack::Durable]
        .into_iter()
        .map(|ack| {
            let (log, dir) = (Arc::clone(&log), Arc::clone(&dir));
            thread::spawn(move || {
                let mut appended = Vec::new();
                for number in 0..3 {
                    let payload = format!("{ack} {number}").into_bytes();
                    let index = log.append_with(&payload, ack).unwrap();
                    let crash = match ack {
                        Ack::Buffered => None,
                        Ack::Written => Some(Crash::Process),
                        Ack::Durable => Some(Crash::PowerCut),
                    };
                    if let Some(crash) = crash.filter(|_| number == 2) {
                        let (first, records) = found(&dir, crash, index);
                        let at = usize::try_from(index - first).unwrap();
                        assert_eq!(records.get(at), Some(&payload), "{ack} {index} {first}");
                    }
                    appended.push((index, payload));
                }
                appended
            })
        })
        .collect();
    let mut appended: Vec<_> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    appended.sort();
    close(log).unwrap();
    let (first, records) = found(&dir, Crash::PowerCut, 1);
    let records: Vec<_> = (first..).zip(records).collect();
    assert_eq!(records, appended, "each index once, and all of it durable");
}

#[test]
fn appenders_of_every_level_get_what_they_were_promised() {
    explore(|| appenders_of_every_level(interval(4096)));
    explore(|| appenders_of_every_level(Policy::Always));
    explore(|| appenders_of_every_level(Policy::Never));
}

/// Nobody asks for a sync: those in the background make room in the ring.
#[test]
fn a_full_ring_makes_appenders_wait_and_never_for_ever() {
    explore(|| {
        let dir = disk();
        let log = open(&dir, interval(4096));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    for _ in 0..8 {
                        log.append(&[7; 3000]).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(log.last_index(), 16);
        log.wait(16, Ack::Durable).unwrap().block().unwrap();
        close(log).unwrap();
        assert_eq!(found(&dir, Crash::PowerCut, 1).1.len(), 16);
    });
}

#[test]
fn rotation_and_retention_go_on_while_others_append_and_follow() {
    explore(|| {
        let dir = disk();
        let log = open(&dir, interval(4096));
        let appender = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                for number in 0..24_u8 {
                    let ack = if number % 5 == 0 { Ack::Durable } else { Ack::Buffered };
                    log.append_with(&[number; 3900], ack).unwrap();
                }
                log.sync().unwrap();
            })
        };
        let follower = {
            let mut follower = log.follow(1, Ack::Durable).unwrap();
            thread::spawn(move || {
                for number in 0..24_u8 {
                    match follower.next_record() {
                        Ok(record) => assert_eq!(record.payload, [number; 3900]),
                        // Retention was quicker.
                        Err(Error::OutOfRange { .. }) => return,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        };
        log.wait(1, Ack::Durable).and_then(|wait| wait.block()).ok();
        log.truncate_before(Retain::Bytes(64 << 10)).unwrap();
        appender.join().unwrap();
        log.truncate_before(Retain::Bytes(64 << 10)).unwrap();
        follower.join().unwrap();
        close(log).unwrap();
        let (first, records) = found(&dir, Crash::PowerCut, 1);
        assert!(first > 1, "two segments were filled");
        assert_eq!(first + records.len() as u64 - 1, 24);
    });
}

/// A thread reads and checks what the reader has not begun, and each waits for the other at times.
#[test]
fn a_reader_that_is_helped_gets_every_record_and_waits_for_none_for_ever() {
    explore(|| {
        let dir = disk();
        let (segment_bytes, ring_bytes) = (512 << 10, 128 << 10);
        let options = Options { segment_bytes, ring_bytes, ..options(interval(64 << 10), true) };
        let log = Arc::new(Log::open_in(dir.clone(), options).unwrap().0);
        for number in 0..24_u8 {
            log.append(&[number; 30_000]).unwrap();
        }
        log.sync().unwrap();
        let appender = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                for number in 24..28_u8 {
                    log.append_with(&[number; 30_000], Ack::Durable).unwrap();
                }
            })
        };
        let mut reader = log.read_from(1).unwrap();
        for number in 0..24_u8 {
            assert_eq!(reader.next_record().unwrap().unwrap().payload, [number; 30_000]);
        }
        // What is not needed any more ends by itself, whatever it is at.
        drop(reader);
        appender.join().unwrap();
        let mut reader = log.read_from(10).unwrap();
        for number in 9..28_u8 {
            assert_eq!(reader.next_record().unwrap().unwrap().payload, [number; 30_000]);
        }
        drop(reader);
        close(log).unwrap();
    });
}

/// A disk that takes its time to give a segment up, so that others come before it.
#[derive(Debug)]
struct Slow(Arc<SimDir>);

impl Slow {
    fn wait(name: &str) {
        if name.ends_with(".seg") {
            let turns = shuttle::rand::thread_rng().gen_range(0..200);
            (0..turns).for_each(|_| thread::yield_now());
        }
    }
}

impl Dir for Slow {
    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.0.create(name, access)
    }
    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.0.open(name, access)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Self::wait(from);
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        Self::wait(name);
        self.0.remove(name)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn lock(&self, name: &str) -> Result<Lock> {
        self.0.lock(name)
    }
}

/// Retention once took away the segment that a cut had just begun, under the name of one that it was
/// removing.
#[test]
fn retention_beside_a_cut_takes_nothing_that_is_left() {
    explore(|| {
        let dir = disk();
        let slow: Arc<dyn Dir> = Arc::new(Slow(Arc::clone(&dir)));
        let log = Log::open_in(slow, options(interval(4096), true)).unwrap().0;
        let log = Arc::new(log);
        for _ in 0..40 {
            log.append(&[7; 3900]).unwrap();
        }
        log.sync().unwrap();
        let names = dir.list().unwrap();
        let begins = names.iter().filter_map(|name| name.strip_suffix(".seg")?.parse().ok());
        let begins: Vec<u64> = begins.collect();
        let (second, third) = (begins[1], begins[2]);
        let retains = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.truncate_before(Retain::From(third)).unwrap())
        };
        let last = second - 1;
        match log.truncate_after(last) {
            Ok(()) => {
                let index = log.append_with(b"after the cut", Ack::Durable).unwrap();
                assert_eq!(index, last + 1);
            }
            // Retention was quicker.
            Err(Error::OutOfRange { first_index, .. }) => assert!(first_index > last + 1),
            Err(error) => panic!("{error:?}"),
        }
        retains.join().unwrap();
        let (first, last) = (log.first_index(), log.last_index());
        close(log).unwrap();
        let (found_first, records) = found(&dir, Crash::PowerCut, 1);
        assert_eq!((found_first, records.len() as u64), (first, last + 1 - first));
    });
}

/// Counts failovers.
#[derive(Default)]
struct Failovers(AtomicUsize);

impl Observer for Failovers {
    fn observe(&self, event: Event<'_>) {
        if let Event::FailedOver { .. } = event {
            self.0.fetch_add(1, SeqCst);
        }
    }
}

/// What one attempt to go on left is just being removed when the next one gives its segment the same
/// name.
#[test]
fn retention_beside_failovers_takes_nothing_that_is_left() {
    explore(|| {
        let dir = disk();
        let failovers = Arc::new(Failovers::default());
        let observer: Arc<dyn Observer> = Arc::clone(&failovers) as _;
        let options = Options { observer: Some(observer), ..options(Policy::Always, true) };
        let slow: Arc<dyn Dir> = Arc::new(Slow(Arc::clone(&dir)));
        let log = Arc::new(Log::open_in(slow, options).unwrap().0);
        log.append(b"before").unwrap();
        // The segment fails, and twice the disk is too full for the name of the next one. Whether it has
        // that name nobody knows then: it is to be removed.
        let fails = Fault::new(Operation::Write, FaultKind::Fail(ErrorKind::Other));
        dir.inject(fails.named(format!("{:020}.seg", 1)));
        let full = Fault::new(Operation::Rename, FaultKind::Fail(ErrorKind::StorageFull));
        dir.inject(full.times(2));
        let retains = {
            let (log, failovers) = (Arc::clone(&log), Arc::clone(&failovers));
            thread::spawn(move || {
                while failovers.0.load(SeqCst) < 1 {
                    // What it cannot remove now it removes later.
                    log.truncate_before(Retain::From(1)).ok();
                    thread::yield_now();
                }
            })
        };
        log.append(b"goes to another segment").unwrap();
        assert_eq!(failovers.0.load(SeqCst), 1);
        retains.join().unwrap();
        let (first, records) = found(&dir, Crash::PowerCut, 1);
        assert_eq!((first, records.len()), (1, 2));
        log.health().unwrap();
        close(log).unwrap();
    });
}

/// An append that waits was cut off before its wait began, and waited for ever, or for the record that got
/// its index later.
#[test]
fn a_cut_ends_the_wait_for_what_it_cut_and_for_nothing_else() {
    explore(|| {
        let dir = disk();
        let log = open(&dir, interval(4096));
        log.append_with(b"stays", Ack::Durable).unwrap();
        let waiters: Vec<_> = [Ack::Written, Ack::Durable]
            .into_iter()
            .map(|ack| {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    for _ in 0..3 {
                        match log.append_with(b"may be cut", ack) {
                            Ok(_) | Err(Error::Truncated { .. } | Error::OutOfRange { .. }) => {}
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                })
            })
            .collect();
        let mut follower = log.follow(1, Ack::Durable).unwrap();
        let follower = thread::spawn(move || {
            assert_eq!(follower.next_record().unwrap().payload, b"stays");
            loop {
                match follower.next_record() {
                    Ok(record) => assert_eq!(record.payload, b"may be cut"),
                    // What it was about to read was cut off; or the log was closed.
                    Err(Error::Closed | Error::Truncated { .. } | Error::OutOfRange { .. }) => {
                        return;
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
        log.truncate_after(1).unwrap();
        log.truncate_after(1).unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        let last = log.last_index();
        log.sync().unwrap();
        close(log).unwrap();
        follower.join().unwrap();
        let (first, records) = found(&dir, Crash::PowerCut, 1);
        assert_eq!((first, records.len() as u64, &records[0][..]), (1, last, &b"stays"[..]));
    });
}

/// One write or one sync fails, whichever the schedule makes it.
#[test]
fn a_failed_write_or_sync_is_gone_around_and_nothing_acknowledged_is_lost() {
    explore(|| {
        let dir = disk();
        let log = open(&dir, interval(4096));
        let mut random = shuttle::rand::thread_rng();
        let on = if random.gen_bool(0.5) { Operation::Sync } else { Operation::Write };
        let fault = Fault::new(on, FaultKind::Fail(ErrorKind::Other));
        dir.inject(fault.nth(random.gen_range(1..8)));
        let threads: Vec<_> = [Ack::Buffered, Ack::Written, Ack::Durable]
            .into_iter()
            .map(|ack| {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    for number in 0..4_u8 {
                        log.append_with(&[number; 1500], ack).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let last = log.sync().unwrap();
        assert_eq!(found(&dir, Crash::PowerCut, 1).1.len() as u64, last);
        // The last thing that `close` writes may be what fails.
        close(log).ok();
        assert_eq!(found(&dir, Crash::PowerCut, 2).1.len() as u64, 12);
    });
}

/// The disk is gone: everybody who waits is told, nobody waits for ever.
#[test]
fn when_the_log_stops_everybody_is_told() {
    explore(|| {
        let dir = disk();
        let log = open(&dir, interval(4096));
        log.append_with(b"before", Ack::Durable).unwrap();
        let nth = shuttle::rand::thread_rng().gen_range(1..6);
        dir.inject(Fault::new(Operation::Write, FaultKind::PowerOff).nth(nth));
        let threads: Vec<_> = [Ack::Buffered, Ack::Written, Ack::Durable, Ack::Durable]
            .into_iter()
            .map(|ack| {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    let mut acked = 0;
                    for _ in 0..6 {
                        match log.append_with(&[7; 3000], ack) {
                            Ok(index) if ack == Ack::Durable => acked = index,
                            Ok(_) => {}
                            Err(Error::Stopped { .. }) => break,
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                    acked
                })
            })
            .collect();
        let mut follower = log.follow(1, Ack::Durable).unwrap();
        let follower = thread::spawn(move || {
            while let Ok(record) = follower.next_record() {
                assert!(record.index > 0);
            }
        });
        let acked = threads.into_iter().map(|thread| thread.join().unwrap()).max();
        let stopped = close(log);
        follower.join().unwrap();
        assert!(stopped.is_err() || !dir.is_down());
        let left = found(&dir, Crash::PowerCut, 3).1.len() as u64;
        assert!(left >= acked.unwrap().max(1), "{left} of {acked:?}");
    });
}
