//! Many logs that share threads, memory and disk: each keeps its promises as if it were alone.
#![cfg(not(shuttle))]
#![expect(clippy::cast_possible_truncation, reason = "numbers are small")]

#[path = "log/wrapped.rs"]
#[expect(dead_code, reason = "its own tests use all of it")]
mod wrapped;

use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_log::{Ack, Crew, CrewOptions, Error, Log, Options, Policy};
use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::{Crash, Dir};

fn crew() -> Crew {
    Crew::start(CrewOptions::default()).unwrap()
}

/// What a log that was opened by itself has.
fn records(dir: &Arc<SimDir>) -> Vec<Vec<u8>> {
    let options = Options { threads: false, ..Options::default() };
    let (log, _) = Log::open_in(Arc::clone(dir) as Arc<dyn Dir>, options).unwrap();
    let mut reader = log.read_from(log.first_index()).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push(record.payload.to_vec());
    }
    records
}

#[test]
fn a_crew_of_no_thread_or_of_any_number_is_refused() {
    for threads in [0, 1025, usize::MAX] {
        let started = Crew::start(CrewOptions { threads, ..CrewOptions::default() });
        assert!(
            matches!(&started, Err(Error::Options(why)) if why.contains("threads")),
            "{threads}"
        );
    }
}

#[test]
fn each_log_of_a_crew_keeps_its_own_promises() {
    let crew = crew();
    let dirs: Vec<_> = (0..20).map(|_| Arc::new(SimDir::new())).collect();
    thread::scope(|scope| {
        for (number, dir) in dirs.iter().enumerate() {
            let crew = &crew;
            scope.spawn(move || {
                let policy = match number % 3 {
                    0 => Policy::Always,
                    1 => Policy::Never,
                    _ => Policy::everysec(),
                };
                let options = Options { policy, ..Options::default() };
                let (log, _) = crew.open_in(Arc::clone(dir) as Arc<dyn Dir>, options).unwrap();
                for record in 0..50_u8 {
                    let ack = [Ack::Buffered, Ack::Written, Ack::Durable][record as usize % 3];
                    let index = log.append_with(&[number as u8, record], ack).unwrap();
                    let crash = match ack {
                        Ack::Buffered => continue,
                        Ack::Written => Crash::Process,
                        Ack::Durable => Crash::PowerCut,
                    };
                    let found = records(&Arc::new(dir.crash(crash, index)));
                    assert_eq!(found.get(record as usize), Some(&vec![number as u8, record]));
                }
                log.close().unwrap();
            });
        }
    });
    for (number, dir) in dirs.iter().enumerate() {
        let found = records(&Arc::new(dir.power_cut(1)));
        let expected: Vec<_> = (0..50).map(|record| vec![number as u8, record]).collect();
        assert_eq!(found, expected, "log {number}");
    }
}

/// Nobody asks for it: the policy does, and a crew comes by for many logs at once.
#[test]
fn buffered_records_become_durable_by_the_policy() {
    let crew = crew();
    let max_age = Duration::from_millis(200);
    let options =
        Options { policy: Policy::Interval { max_age, max_bytes: 1 << 20 }, ..Options::default() };
    let dirs: Vec<_> = (0..50).map(|_| Arc::new(SimDir::new())).collect();
    let open = |dir: &Arc<SimDir>| {
        crew.open_in(Arc::clone(dir) as Arc<dyn Dir>, options.clone()).unwrap().0
    };
    let logs: Vec<_> = dirs.iter().map(open).collect();
    for round in 1..=3 {
        let (tell, told) = mpsc::channel();
        for log in &logs {
            let index = log.append(b"a record").unwrap();
            let tell = tell.clone();
            let call = move |how: plimsoll_log::Result<()>| tell.send(how.is_ok()).unwrap();
            log.watch(index, Ack::Durable).unwrap().then(call);
        }
        drop(tell);
        assert_eq!(told.iter().filter(|good| *good).count(), 50, "round {round}");
    }
    for dir in &dirs {
        assert_eq!(records(&Arc::new(dir.power_cut(3))).len(), 3);
    }
}

#[test]
fn a_log_that_fails_does_not_hold_up_the_others() {
    let crew = crew();
    let (bad, good) = (Arc::new(SimDir::new()), Arc::new(SimDir::new()));
    let options = Options { policy: Policy::Always, ..Options::default() };
    let (broken, _) = crew.open_in(Arc::clone(&bad) as Arc<dyn Dir>, options.clone()).unwrap();
    let (log, _) = crew.open_in(Arc::clone(&good) as Arc<dyn Dir>, options).unwrap();
    for on in [Operation::Write, Operation::Create] {
        bad.inject(Fault::new(on, FaultKind::FailRaw(5)).sticky());
    }
    assert!(matches!(broken.append(b"lost"), Err(Error::Stopped { .. })));
    assert!(broken.health().is_err() && log.health().is_ok());
    for _ in 0..100 {
        log.append(b"kept").unwrap();
    }
    drop(broken);
    log.close().unwrap();
    assert_eq!(records(&good).len(), 100);
}

/// What one log holds of the rings' bytes another one waits for; and gets, as it is made durable then.
#[test]
fn rings_of_a_crew_share_one_budget() {
    let crew = Crew::start(CrewOptions { threads: 2, ring_bytes: 1 << 20 }).unwrap();
    let forever = Duration::from_secs(3600);
    let policy = Policy::Interval { max_age: forever, max_bytes: 1 << 40 };
    let options = Options { policy, ring_bytes: 4 << 20, ..Options::default() };
    let open = || crew.open_in(Arc::new(SimDir::new()), options.clone()).unwrap().0;
    let (first, second) = (open(), open());
    for _ in 0..3 {
        first.append(&[1; 300 << 10]).unwrap();
    }
    let refused = second.try_append(&[2; 300 << 10]);
    assert!(matches!(refused, Err(Error::WouldBlock { .. })), "{refused:?}");
    second.try_append(&[2; 10 << 10]).expect("a log has a little in any case");
    second.sync().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| second.append(&[2; 300 << 10]).unwrap());
        first.sync().unwrap();
        assert_eq!(waits.join().unwrap(), 2);
    });
}

/// A wait for the kernel waited until the sync was due, as nobody told the crew that somebody waits.
#[test]
fn whoever_waits_for_the_kernel_does_not_wait_for_the_sync() {
    let crew = crew();
    let max_age = Duration::from_secs(3600);
    let policy = Policy::Interval { max_age, max_bytes: 1 << 20 };
    let options = Options { policy, ..Options::default() };
    let (log, _) = crew.open_in(Arc::new(SimDir::new()), options).unwrap();
    let index = log.append(b"a record").unwrap();
    log.wait(index, Ack::Written).unwrap().block_for(Duration::from_secs(60)).unwrap();
    assert!(log.durable() < index, "nobody asked for that");
}

/// By bytes only: a timer that no clock reaches ended the thread that set it.
#[test]
fn an_age_without_end_ends_no_thread() {
    let crew = Crew::start(CrewOptions { threads: 1, ..CrewOptions::default() }).unwrap();
    let policy = Policy::Interval { max_age: Duration::MAX, max_bytes: 1 << 20 };
    let options = Options { policy, ..Options::default() };
    let (log, _) = crew.open_in(Arc::new(SimDir::new()), options).unwrap();
    let index = log.append_with(b"written", Ack::Written).unwrap();
    log.wait(index, Ack::Durable).unwrap().block_for(Duration::from_secs(60)).unwrap();
    log.close().unwrap();
}

/// It was refused for ever: only appends that wait asked for a segment with room for it.
#[test]
fn a_large_record_that_is_only_tried_comes_in_after_a_while() {
    let crew = crew();
    let (log, _) = crew.open_in(Arc::new(SimDir::new()), Options::default()).unwrap();
    let ends = Instant::now() + Duration::from_secs(60);
    while let Err(error) = log.try_append(&[7; 300 << 10]) {
        assert!(matches!(error, Error::WouldBlock { .. }) && Instant::now() < ends, "{error}");
        thread::yield_now();
    }
}

/// It was told to try again for ever, where no file can be made any more: only appends that wait had the log
/// say so.
#[test]
fn an_append_that_is_only_tried_is_told_that_there_will_be_no_segment() {
    let (crew, dir) = (crew(), Arc::new(SimDir::new()));
    let (log, _) = crew.open_in(Arc::clone(&dir) as Arc<dyn Dir>, Options::default()).unwrap();
    dir.inject(Fault::new(Operation::Create, FaultKind::FailRaw(5)).sticky());
    let ends = Instant::now() + Duration::from_secs(60);
    let why = loop {
        match log.try_append(&[7; 300 << 10]) {
            Ok(_) => {}
            Err(Error::WouldBlock { .. }) => assert!(Instant::now() < ends, "nobody says why"),
            Err(why) => break why,
        }
        thread::yield_now();
    };
    assert!(matches!(why, Error::Stopped { .. }), "{why:?}");
}

#[test]
fn a_log_outlives_the_crew_that_opened_it() {
    let crew = crew();
    let dir = Arc::new(SimDir::new());
    let (log, _) = crew.open_in(Arc::clone(&dir) as Arc<dyn Dir>, Options::default()).unwrap();
    drop(crew);
    let index = log.append(b"still there").unwrap();
    log.wait(index, Ack::Durable).unwrap().block_for(Duration::from_secs(20)).unwrap();
    drop(log);
    assert_eq!(records(&dir).len(), 1);
}

/// On a real disk, from many threads at once, until segments have grown.
#[test]
fn logs_of_a_crew_grow_on_a_real_disk() {
    let tmp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let crew = crew();
    let options = Options { segment_bytes: 4 << 20, ..Options::default() };
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..4_u8 {
            let (crew, options, path) =
                (&crew, options.clone(), tmp.path().join(number.to_string()));
            scope.spawn(move || {
                let (log, _) = crew.open(&path, options.clone()).unwrap();
                let small = path.join("00000000000000000001.seg").metadata().unwrap().len();
                assert_eq!(small, 256 << 10);
                for record in 0..9000_u32 {
                    log.append(&[&record.to_le_bytes()[..], &[number; 996]].concat()).unwrap();
                }
                log.append(&vec![number; 3 << 20]).unwrap();
                log.close().unwrap();
                let (log, recovery) = crew.open(&path, options).unwrap();
                assert!(recovery.clean, "{recovery:?}");
                let mut reader = log.read_from(1).unwrap();
                for record in 0..9000_u32 {
                    let found = reader.next_record().unwrap().unwrap();
                    assert_eq!(found.payload[..4], record.to_le_bytes());
                }
                assert_eq!(reader.next_record().unwrap().unwrap().payload.len(), 3 << 20);
            });
        }
    });
    println!("took {:?}", begun.elapsed());
}

/// A disk whose writes and syncs wait for as long as somebody holds it.
#[derive(Debug, Default)]
struct Held(Mutex<bool>, Condvar);

impl Held {
    fn hang(self: &Arc<Self>, dir: &Arc<SimDir>) -> Arc<dyn Dir> {
        let held = Arc::clone(self);
        wrapped::Wrapped::dir(Arc::clone(dir) as Arc<dyn Dir>, move |call| {
            let hangs = matches!(call, wrapped::Call::Write | wrapped::Call::Sync);
            let held_now = held.0.lock().unwrap();
            drop(held.1.wait_while(held_now, |is_held| hangs && *is_held).unwrap());
        })
    }

    fn set(&self, is_held: bool) {
        *self.0.lock().unwrap() = is_held;
        self.1.notify_all();
    }
}

/// Three threads slept on, as the one that kept the time hung in the disk of one log.
#[test]
fn a_disk_that_hangs_does_not_keep_other_logs_from_being_synced() {
    let crew = crew();
    let max_age = Duration::from_millis(50);
    let policy = Policy::Interval { max_age, max_bytes: 1 << 20 };
    let options = Options { policy, ..Options::default() };
    // Every thread has found nothing to do by then.
    let (_tell, told) = mpsc::channel::<()>();
    assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
    let held = Arc::<Held>::default();
    let hanging = held.hang(&Arc::new(SimDir::new()));
    let (hangs, _) = crew.open_in(hanging, options.clone()).unwrap();
    let open = |_| crew.open_in(Arc::new(SimDir::new()), options.clone()).unwrap().0;
    let logs: Vec<Log> = (0..3).map(open).collect();
    held.set(true);
    hangs.append(b"never comes").unwrap();
    let append = |log: &Log| log.append(b"a record").unwrap();
    let indexes: Vec<_> = logs.iter().map(append).collect();
    let synced = logs.iter().zip(indexes).all(|(log, index)| {
        log.watch(index, Ack::Durable).unwrap().block_for(Duration::from_secs(20)).is_ok()
    });
    held.set(false);
    assert!(synced, "a healthy log was not synced");
}

/// Nothing ever made so much room, and whatever came behind it waited as well.
#[test]
fn a_record_that_is_larger_than_the_budget_is_refused() {
    let crew = Crew::start(CrewOptions { threads: 2, ring_bytes: 1 << 20 }).unwrap();
    let (log, _) = crew.open_in(Arc::new(SimDir::new()), Options::default()).unwrap();
    let largest = log.max_record_bytes();
    assert!((1 << 20..2 << 20).contains(&largest), "{largest}");
    let refused = log.append(&vec![1; largest as usize + 1]);
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    log.append(&vec![1; largest as usize]).unwrap();
    log.append(b"behind it").unwrap();
    log.close().unwrap();
}

/// An append waited until the sync was due, with an idle disk: what is granted was compared with the ring.
#[test]
fn who_waits_for_room_in_a_small_grant_gets_a_sync() {
    let crew = Crew::start(CrewOptions { threads: 2, ring_bytes: 0 }).unwrap();
    let policy = Policy::Interval { max_age: Duration::from_secs(3600), max_bytes: 1 << 30 };
    let options = Options { policy, ..Options::default() };
    let (log, _) = crew.open_in(Arc::new(SimDir::new()), options).unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        (0..200).for_each(|_| assert!(log.append(&[1; 1000]).is_ok()));
        tell.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(60)).expect("an append waits for an hour");
}

/// Only its threads gave it back, and a log without threads has none.
#[test]
fn a_log_that_is_driven_gives_its_share_back() {
    let crew = Crew::start(CrewOptions { threads: 1, ring_bytes: 4 << 20 }).unwrap();
    let open = |threads| {
        let options = Options { threads, ..Options::default() };
        crew.open_in(Arc::new(SimDir::new()), options).unwrap().0
    };
    let (driven, other) = (open(false), open(true));
    (0..16).for_each(|_| assert!(driven.append(&[1; 256 << 10]).is_ok()));
    driven.sync().unwrap();
    while driven.drive().unwrap() {}
    other.try_append(&[1; 80 << 10]).unwrap();
}

/// It hung for as long as the other log's records were allowed to be old.
#[test]
fn a_log_that_holds_what_others_want_is_synced_for_them() {
    let crew = Crew::start(CrewOptions { threads: 2, ring_bytes: 1 << 20 }).unwrap();
    let policy = Policy::Interval { max_age: Duration::from_secs(3600), max_bytes: 64 << 20 };
    let options = Options { policy, ..Options::default() };
    let open = || crew.open_in(Arc::new(SimDir::new()), options.clone()).unwrap().0;
    let (holds, wants) = (open(), open());
    (0..900).for_each(|_| assert!(holds.append(&[1; 1000]).is_ok()));
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        (0..400).for_each(|_| assert!(wants.append(&[1; 1000]).is_ok()));
        tell.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(60)).expect("nobody asks the other log");
}
