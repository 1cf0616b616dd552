//! Opening a log again: what is found, and what it costs.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use plimsoll_log::{Ack, Error, Log, Options, Recovery, Retain, SegmentState, View};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Crash, Dir, OsDir};

use crate::common::{append_to, driven, expect, names, payload, read_all, scratch, small};
use crate::wrapped::{Call, Wrapped};

/// What the file held before it was recycled was reported as an unfinished write.
#[test]
fn a_log_that_was_closed_has_no_torn_tail_on_a_recycled_file_either() {
    for direct in [true, false] {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let options = || Options { direct, threads: false, ..small() };
        let open = || Log::open_in(dir.clone(), options()).unwrap();
        let append = |log: &Log, records| {
            let last = log.last_index() + records;
            (log.last_index() + 1..=last)
                .for_each(|at| assert_eq!(log.append(&payload(at)).unwrap(), at));
            log.sync().unwrap();
        };
        // The frames end anywhere in a block, and right behind a cut.
        for records in (0..300).step_by(37) {
            let (log, _) = open();
            append(&log, 600);
            log.truncate_before(Retain::From(log.last_index())).unwrap();
            append(&log, records);
            if records % 2 == 0 {
                log.truncate_after(log.last_index() - 1).unwrap();
                append(&log, records % 4);
            }
            let last = log.last_index();
            log.close().unwrap();
            let seen = View::of(dir.clone()).unwrap().verify(&|_, _| {}).unwrap();
            let newest = seen.last().unwrap();
            let context = format!("{direct}, {records}: {newest:?}");
            // A full segment may have no room to say that the log was closed.
            let is_full = newest.segment_bytes - newest.records_end < 8192;
            assert!(newest.state == SegmentState::Closed || is_full, "{context}");
            let (log, recovery) = open();
            assert_eq!(recovery.torn_tail, None, "{context}");
            assert!(recovery.clean || is_full, "{context}");
            assert_eq!(recovery.last_index, last);
            log.close().unwrap();
        }
    }
}

/// The segment before the newest one was read whole as long as only a mark said that it was durable.
#[test]
fn an_open_does_not_read_a_segment_that_the_newest_one_calls_durable() {
    let sim = Arc::new(SimDir::new());
    let dir: Arc<dyn Dir> = sim.clone();
    let open = || {
        let sizes = Options { segment_bytes: 16 << 20, ring_bytes: 1 << 20, ..Options::default() };
        Log::open_in(dir.clone(), Options { threads: false, ..sizes }).unwrap()
    };
    let (log, _) = open();
    while dir.list().unwrap().iter().filter(|name| name.ends_with(".seg")).count() < 2 {
        log.append_with(&[7; 500_000], Ack::Written).unwrap();
    }
    let last_index = log.last_index();
    log.close().unwrap();
    let before = sim.operations();
    let (log, recovery) = open();
    let took = sim.operations() - before;
    assert!(recovery.clean && log.last_index() == last_index, "{recovery:?}");
    assert!(took < 75, "{took} operations; 16 MiB alone are some 40");
}

/// Opening a log to read it wrote a segment's worth of zeros beside the reading.
#[test]
fn a_log_that_is_only_read_makes_no_file_ready_and_one_that_is_appended_to_does() {
    let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
    let spares = || {
        let names = dir.list().unwrap();
        names.into_iter().filter(|name| name.ends_with(".spare")).count()
    };
    let open = || Log::open_in(dir.clone(), small()).unwrap().0;
    let log = open();
    // More than a quarter of a segment, from which on the next one is wanted.
    (0..30).for_each(|_| assert!(log.append(&[7; 1000]).is_ok()));
    log.close().unwrap();
    let log = open();
    // Long enough for one to be begun, if one were.
    for _ in 0..100 {
        assert_eq!(read_all(&log).len(), 30);
        std::thread::yield_now();
        assert_eq!(spares(), 0);
    }
    log.append_with(b"one more", Ack::Durable).unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while spares() == 0 {
        assert!(Instant::now() < patience, "no file was made ready");
        std::thread::yield_now();
    }
    log.close().unwrap();
}

#[test]
fn a_second_process_is_refused_and_told_who_has_the_log() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    let refused = Log::open(dir.path(), small()).unwrap_err();
    let Error::Disk(plimsoll_sync::Error::Locked { holder, .. }) = refused else {
        panic!("{refused}")
    };
    assert_eq!(holder, Some(std::process::id()));
    drop(log);
    Log::open(dir.path(), small()).unwrap();
}

#[test]
fn a_dropped_log_loses_nothing_that_the_process_could_still_write() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=100 {
        log.append(&payload(index)).unwrap();
    }
    drop(log);
    let (log, recovery) = Log::open(dir.path(), small()).unwrap();
    assert_eq!(recovery.last_index, 100);
    expect(&log, 1, 100);
}

#[test]
fn recovery_of_a_new_log_finds_nothing() {
    let dir = scratch();
    let (_log, recovery) = Log::open(dir.path(), small()).unwrap();
    let expected = Recovery { created: true, first_index: 1, ..Recovery::default() };
    assert_eq!(recovery, expected);
    let names = OsDir::open(dir.path()).unwrap().list().unwrap();
    assert_eq!(names, ["00000000000000000001.seg", "lock", "probed"]);
}

/// A record that was too large for the empty segment that the log had been closed with made the
/// writer's thread panic, and buffered appends went on saying `Ok`.
#[test]
fn a_log_may_be_opened_with_larger_segments() {
    let dir = scratch();
    Log::open(dir.path(), small()).unwrap().0.close().unwrap();
    let larger = Options { segment_bytes: 1 << 20, ring_bytes: 512 << 10, ..Options::default() };
    let (log, _) = Log::open(dir.path(), larger.clone()).unwrap();
    log.append_with(&vec![7; 200_000], Ack::Durable).unwrap();
    log.close().unwrap();
    let (log, recovery) = Log::open(dir.path(), larger).unwrap();
    assert_eq!((recovery.first_index, recovery.last_index), (1, 1));
    log.append_with(&vec![7; 200_000], Ack::Durable).unwrap();
}

/// Numbers began anew at 1 where the damaged segment was the only one that was left.
#[test]
fn numbers_go_on_where_everything_was_lost() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=400 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    let first = log.truncate_before(Retain::From(400)).unwrap();
    assert!(first > 1);
    log.close().unwrap();
    let names = OsDir::open(dir.path()).unwrap().list().unwrap();
    let only = names.iter().find(|name| name.ends_with(".seg")).unwrap();
    let path = dir.path().join(only);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(Log::open(dir.path(), small()), Err(Error::Corrupt(_))));
    let accepting = Options { accept_loss: true, ..small() };
    let (log, recovery) = Log::open(dir.path(), accepting).unwrap();
    assert!(recovery.lost.is_some());
    assert_eq!(log.append(b"after the loss").unwrap(), first);
}

/// The name in the environment by which this test is started again, to be another process.
const OTHER: &str = "PLIMSOLL_OTHER_PROCESS";

/// Whoever took the file `lock` away, which looks like rubbish, let a second writer in.
#[test]
fn another_process_is_refused_also_where_the_lock_file_was_removed() {
    if let Some(path) = std::env::var_os(OTHER) {
        let refused = Log::open(path, small()).unwrap_err();
        assert!(matches!(refused, Error::Disk(plimsoll_sync::Error::Locked { .. })), "{refused:?}");
        return;
    }
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    append_to(&log, 10);
    let name = "open::another_process_is_refused_also_where_the_lock_file_was_removed";
    for _ in 0..2 {
        let refused = Log::open(dir.path(), small()).unwrap_err();
        assert!(matches!(refused, Error::Disk(plimsoll_sync::Error::Locked { .. })), "{refused:?}");
        let mut other = Command::new(std::env::current_exe().unwrap());
        let other = other.args(["--exact", name, "--test-threads=1"]).env(OTHER, dir.path());
        let output = other.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        std::fs::remove_file(dir.path().join(plimsoll_log::LOCK)).ok();
    }
    append_to(&log, 20);
    log.close().unwrap();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    expect(&log, 1, 20);
}

/// The name of the log's own directory was never synced, nor those of directories that were made for it.
#[test]
fn a_power_cut_does_not_take_the_directory_that_the_log_was_made_in() {
    let disk = SimDir::new();
    let above = disk.create_dir("above").unwrap();
    let dir = above.create_dir("log").unwrap();
    let (log, _) = Log::open_in(dir, driven()).unwrap();
    append_to(&log, 100);
    log.sync().unwrap();
    for seed in 0..100 {
        let left = disk.power_cut(seed).open_dir("above").and_then(|above| above.open_dir("log"));
        let (log, _) = Log::open_in(left.unwrap(), driven()).unwrap();
        expect(&log, 1, 100);
    }
}

#[test]
fn a_log_is_made_with_all_directories_above_it_that_are_missing() {
    let dir = scratch();
    let path = dir.path().join("one/two/./three");
    let (log, recovery) = Log::open(&path, driven()).unwrap();
    assert!(recovery.created);
    append_to(&log, 3);
    log.close().unwrap();
    expect(&Log::open(dir.path().join("one/two/three"), driven()).unwrap().0, 1, 3);
}

fn append_many(log: &Log, record: &[u8], records: u64) {
    for _ in 0..records {
        log.append_with(record, Ack::Buffered).unwrap();
    }
}

/// A directory that counts what is read of its files.
fn counting(dir: Arc<dyn Dir>) -> (Arc<dyn Dir>, Arc<AtomicU64>) {
    let bytes = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&bytes);
    let hear = move |call| {
        if let Call::Read(bytes) = call {
            counts.fetch_add(bytes, SeqCst);
        }
    };
    (Wrapped::dir(dir, hear), bytes)
}

/// All of the newest segment was read: 68 MB for three records, 1.09 GB where segments have 1 GiB.
#[test]
fn opening_a_log_that_was_closed_reads_no_more_than_256_kib() {
    const MOST: u64 = 256 << 10;
    // Size of a segment, of a record, and how many of them.
    for (segment_bytes, record_bytes, records) in [
        (64 << 10, 0, 0),
        (64 << 10, 100, 400),
        (64 << 10, 9000, 40),
        (64 << 20, 1000, 3),
        (64 << 20, 1000, 20_000),
        (64 << 20, 300_000, 190),
        (1 << 30, 1000, 3),
        (1 << 30, 1 << 20, 130),
    ] {
        let ring_bytes = if segment_bytes == 64 << 10 { 32 << 10 } else { 4 << 20 };
        let options = || Options { segment_bytes, ring_bytes, ..driven() };
        let case = format!("{records} of {record_bytes} in {segment_bytes}");
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dir.clone(), options()).unwrap();
        let record = vec![7; record_bytes];
        append_many(&log, &record, records);
        log.close().unwrap();
        // Also once it was opened and closed, with a few more or none.
        for more in [0, 0, 2] {
            let (counted, read) = counting(Arc::clone(&dir));
            let (log, recovery) = Log::open_in(counted, options()).unwrap();
            let bytes = read.load(SeqCst);
            assert!(bytes <= MOST, "{case}: {bytes} bytes");
            assert!(recovery.clean, "{case}: {recovery:?}");
            append_many(&log, &record, more);
            log.close().unwrap();
        }
        let (log, recovery) = Log::open_in(dir, options()).unwrap();
        assert_eq!(recovery.last_index, records + 2, "{case}");
        if records > 0 {
            let mut reader = log.read_from(records / 2).unwrap();
            assert_eq!(reader.next_record().unwrap().unwrap().index, records / 2, "{case}");
        }
    }
}

/// What is not read at open is not forgotten: where the end of a closed log is damaged it is never shorter.
/// (`bad_input` does that byte by byte to short segments.)
#[test]
fn damage_to_the_end_of_a_long_closed_log_is_corruption_and_never_a_shorter_log() {
    for (record_bytes, records) in [(1000, 3000), (100_000, 30), (700_000, 4)] {
        let options = || Options { segment_bytes: 4 << 20, ring_bytes: 2 << 20, ..driven() };
        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dir.clone(), options()).unwrap();
        append_many(&log, &vec![7; record_bytes], records);
        log.close().unwrap();
        let segments = names(&*dir, ".seg");
        let newest = segments.last().unwrap();
        let view = View::of(dir.clone()).unwrap();
        let end = view.outline().unwrap().last().unwrap().records_end;
        let (mut refused, mut met) = (0, 0);
        let mut judge = |case: String, damage: &dyn Fn(&SimDir)| {
            let left = Arc::new(dir.crash(Crash::Process, 0));
            damage(&left);
            let (log, recovery) = match Log::open_in(left, options()) {
                Err(Error::Corrupt(_)) => {
                    refused += 1;
                    return;
                }
                opened => opened.unwrap_or_else(|error| panic!("{case}: {error:?}")),
            };
            assert_eq!(recovery.last_index, records, "{case}");
            let mut reader = log.read_from(1).unwrap();
            let read = loop {
                match reader.next_record() {
                    Ok(Some(record)) => {
                        assert!(record.payload.iter().all(|byte| *byte == 7), "{case}");
                    }
                    Ok(None) => panic!("{case}: nobody misses what is damaged"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(read, Error::Corrupt(_)), "{case}: {read:?}");
            met += 1;
        };
        for back in [1, 8, 60, 500, 5000, 50_000, 140_000, 400_000, 2_000_000] {
            let Some(at) = end.checked_sub(back).filter(|at| *at > 5000) else { continue };
            judge(format!("{record_bytes}: flipped {back} before the end"), &|dir| {
                let file = dir.open(newest, Access::default()).unwrap();
                let mut byte = [0];
                file.read_at(&mut byte, at).unwrap();
                file.write_at(&[!byte[0]], at).unwrap();
            });
            judge(format!("{record_bytes}: cut {back} before the end"), &|dir| {
                dir.open(newest, Access::default()).unwrap().truncate(at).unwrap();
            });
        }
        judge(format!("{record_bytes}: the newest is gone"), &|dir| dir.remove(newest).unwrap());
        judge(format!("{record_bytes}: all are gone"), &|dir| {
            segments.iter().for_each(|name| dir.remove(name).unwrap());
        });
        assert!(
            refused >= 2 && met > 0,
            "{record_bytes}: {refused} refused, {met} met by a reader"
        );
    }
}
