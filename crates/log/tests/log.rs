//! What a log does on a good disk: the promises of its public face.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use plimsoll_log::{
    Ack, Clock, Error, Log, Options, Policy, Recovery, Retain, Ring, SegmentReport, SegmentState,
    Tail, View,
};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Dir, OsDir};

fn small() -> Options {
    Options { segment_bytes: 64 << 10, ring_bytes: 32 << 10, ..Options::default() }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn payload(index: u64) -> Vec<u8> {
    let len = usize::try_from(index * 37 % 900).unwrap();
    (0..len as u64).map(|byte| (byte * 31 + index).to_le_bytes()[0]).collect()
}

fn read_all(log: &Log) -> Vec<(u64, Vec<u8>)> {
    let mut reader = log.read_from(log.first_index()).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push((record.index, record.payload.to_vec()));
    }
    records
}

fn expect(records: &[(u64, Vec<u8>)], first: u64, last: u64) {
    let indexes: Vec<u64> = records.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, (first..=last).collect::<Vec<_>>());
    assert!(records.iter().all(|(index, read)| *read == payload(*index)));
}

#[test]
fn what_was_appended_is_read_back_across_segments_and_after_reopening() {
    for policy in [Policy::Never, Policy::everysec(), Policy::Always] {
        let dir = scratch();
        let options = Options { policy, ..small() };
        let (log, recovery) = Log::open(dir.path(), options.clone()).unwrap();
        assert!(recovery.created);
        for index in 1..=1000 {
            assert_eq!(log.append(&payload(index)).unwrap(), index);
        }
        log.sync().unwrap();
        assert_eq!(log.durable().get(), 1000);
        assert!(log.stats().segments > 5, "{:?}", log.stats());
        expect(&read_all(&log), 1, 1000);
        log.close().unwrap();
        let (log, recovery) = Log::open(dir.path(), options).unwrap();
        assert_eq!((recovery.first_index, recovery.last_index), (1, 1000));
        assert!(recovery.clean && recovery.torn_tail.is_none(), "{recovery:?}");
        expect(&read_all(&log), 1, 1000);
        assert_eq!(log.append(&payload(1001)).unwrap(), 1001);
        log.close().unwrap();
    }
}

#[test]
fn many_appenders_get_an_index_each_and_all_of_it_is_durable() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), Options { policy: Policy::Always, ..small() }).unwrap();
    let indexes: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let append = |_| {
                        let index = log.append(b"a record").unwrap();
                        assert!(log.durable().get() >= index);
                        index
                    };
                    (0..200).map(append).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = indexes;
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=1600).collect::<Vec<_>>());
    assert!(log.stats().group_records.n <= 1600);
}

#[test]
fn a_reader_starts_anywhere() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    for from in [1, 2, 99, 500, 999, 1000] {
        let mut reader = log.read_from(from).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.index, record.payload), (from, &payload(from)[..]));
    }
    assert!(log.read_from(1001).unwrap().next_record().unwrap().is_none());
    assert!(matches!(log.read_from(1002), Err(Error::OutOfRange { .. })));
    assert!(matches!(log.read_from(0), Err(Error::OutOfRange { .. })));
}

#[test]
fn a_follower_sees_every_record_in_order_while_they_are_appended() {
    for level in [Ack::Written, Ack::Durable] {
        let dir = scratch();
        let (log, _) = Log::open(dir.path(), small()).unwrap();
        let mut follower = log.follow(1, level).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for index in 1..=2000 {
                    log.append(&payload(index)).unwrap();
                }
                log.sync().unwrap();
            });
            for index in 1..=2000 {
                let record = follower.next_record().unwrap();
                assert_eq!((record.index, record.payload), (index, &payload(index)[..]));
            }
        });
        assert!(follower.next_within(Duration::from_millis(1)).unwrap().is_none());
        log.close().unwrap();
        assert!(matches!(follower.next_record(), Err(Error::Closed)));
    }
}

#[test]
fn retention_takes_whole_segments_and_readers_are_told() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    let mut slow = log.read_from(1).unwrap();
    let first = log.truncate_before(Retain::From(500)).unwrap();
    assert!((2..=500).contains(&first), "{first}");
    assert_eq!(log.first_index(), first);
    expect(&read_all(&log), first, 1000);
    assert!(matches!(slow.next_record(), Err(Error::OutOfRange { .. })));
    // Old files are used again, and nothing of theirs comes back.
    for index in 1001..=2000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    expect(&read_all(&log), first, 2000);
    let first = log.truncate_before(Retain::Bytes(128 << 10)).unwrap();
    assert!(log.stats().segments <= 2);
    log.close().unwrap();
    let (log, recovery) = Log::open(dir.path(), small()).unwrap();
    assert_eq!((recovery.first_index, recovery.last_index), (first, 2000));
    expect(&read_all(&log), first, 2000);
}

#[test]
fn retention_by_age_keeps_what_is_younger() {
    let clock = Clock::manual(7);
    let options = Options { clock: clock.clone(), threads: false, ..small() };
    let (log, _) = Log::open_in(vec![Arc::new(SimDir::new())], options).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
        clock.advance(Duration::from_secs(1));
    }
    log.sync().unwrap();
    let first = log.truncate_before(Retain::Age(Duration::from_secs(300))).unwrap();
    assert!((400..=701).contains(&first), "{first}");
    expect(&read_all(&log), first, 1000);
}

#[test]
fn what_is_cut_off_never_comes_back() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    let mut reader = log.read_from(1).unwrap();
    for cut in [900, 400, 399, 10] {
        log.truncate_after(cut).unwrap();
        assert_eq!((log.last_index(), log.durable().get()), (cut, cut));
        expect(&read_all(&log), 1, cut);
        assert!(matches!(log.wait_durable(cut + 1), Err(Error::OutOfRange { .. })));
    }
    assert!(matches!(log.truncate_after(2000), Ok(())), "there is nothing to cut");
    assert_eq!(log.append(b"another eleventh").unwrap(), 11);
    log.sync().unwrap();
    let mut seen = 0;
    while let Some(record) = reader.next_record().unwrap() {
        seen = record.index;
        let eleventh = record.index == 11;
        assert!(
            record.payload == if eleventh { b"another eleventh".to_vec() } else { payload(seen) }
        );
    }
    assert_eq!(seen, 11);
    log.close().unwrap();
    let (log, recovery) = Log::open(dir.path(), small()).unwrap();
    assert_eq!((recovery.last_index, recovery.torn_tail), (11, None));
    log.truncate_after(0).unwrap();
    assert_eq!((log.first_index(), log.last_index()), (1, 0));
    assert_eq!(log.append(&payload(1)).unwrap(), 1);
    log.close().unwrap();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    expect(&read_all(&log), 1, 1);
}

/// What the file held before it was recycled was reported as an unfinished write.
#[test]
fn a_log_that_was_closed_has_no_torn_tail_on_a_recycled_file_either() {
    let ends = [Tail::Pad, Tail::Rewrite].map(|tail| [true, false].map(|direct| (tail, direct)));
    for (tail, direct) in ends.into_iter().flatten() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let options = || Options { tail, direct, threads: false, ..small() };
        let open = || Log::open_in(vec![dir.clone()], options()).unwrap();
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
            let seen = View::of(vec![dir.clone()]).unwrap().verify(&|_, _| {}).unwrap();
            let newest = seen.last().unwrap();
            let context = format!("{tail:?}, {direct}, {records}: {newest:?}");
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

/// A pad that filled the last block left no room for the seal, which was written behind the segment's end.
#[test]
fn no_segment_is_longer_than_it_says_whatever_is_padded() {
    let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
    let options = Options { tail: Tail::Pad, threads: false, ..small() };
    let (log, _) = Log::open_in(vec![dir.clone()], options.clone()).unwrap();
    for index in 1..=600 {
        log.append_with(&payload(index), Ack::Durable).unwrap();
    }
    log.close().unwrap();
    let segments: Vec<_> =
        dir.list().unwrap().into_iter().filter(|name| name.ends_with(".seg")).collect();
    assert!(segments.len() > 20, "each record has a block of its own: {segments:?}");
    for name in segments {
        let bytes = dir.open(&name, Access::default()).unwrap().len().unwrap();
        assert_eq!(bytes, options.segment_bytes, "{name}");
    }
    let (log, recovery) = Log::open_in(vec![dir.clone()], options).unwrap();
    assert_eq!(recovery.torn_tail, None);
    assert_eq!(read_all(&log).len(), 600);
}

/// The segment before the newest one was read whole as long as only a mark said that it was durable.
#[test]
fn an_open_does_not_read_a_segment_that_the_newest_one_calls_durable() {
    let sim = Arc::new(SimDir::new());
    let dir: Arc<dyn Dir> = sim.clone();
    let open = || {
        let sizes = Options { segment_bytes: 16 << 20, ring_bytes: 1 << 20, ..Options::default() };
        Log::open_in(vec![dir.clone()], Options { threads: false, ..sizes }).unwrap()
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
    let open = || Log::open_in(vec![dir.clone()], small()).unwrap().0;
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
    expect(&read_all(&log), 1, 100);
}

#[test]
fn records_of_every_size_up_to_the_largest_are_kept_and_larger_ones_refused() {
    let dir = scratch();
    let options = Options { segment_bytes: 16 << 20, ring_bytes: 8 << 20, ..Options::default() };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    let largest = usize::try_from(log.max_record_bytes()).unwrap();
    let sizes = [0, 1, 7, 8, 4071, 4072, 4096, 1 << 20, (1 << 20) + 1, largest];
    for size in sizes {
        log.append_with(&vec![7; size], Ack::Durable).unwrap();
    }
    let refused = log.append(&vec![7; largest + 1]).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    let mut reader = log.read_from(1).unwrap();
    for size in sizes {
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!(record.payload.len(), size);
        assert!(record.payload.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn a_padded_tail_never_writes_a_block_with_durable_records_again() {
    let dir = scratch();
    let options = Options { tail: Tail::Pad, policy: Policy::Always, ..small() };
    let (log, _) = Log::open(dir.path(), options.clone()).unwrap();
    for index in 1..=40 {
        log.append(&payload(index)).unwrap();
    }
    assert!(log.stats().written_bytes >= 40 * 4096, "a block for each sync");
    log.close().unwrap();
    let (log, recovery) = Log::open(dir.path(), options).unwrap();
    assert_eq!(recovery.last_index, 40);
    expect(&read_all(&log), 1, 40);
}

#[test]
fn a_ring_in_a_file_gives_back_what_only_it_had() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let dir = Arc::new(SimDir::new());
    let ring = Ring::File(shm.path().join("ring"));
    let options = |ring: &Ring| Options { threads: false, ring: ring.clone(), ..small() };
    let (log, _) = Log::open_in(vec![dir.clone()], options(&ring)).unwrap();
    for index in 1..=20 {
        log.append(&payload(index)).unwrap();
        if index == 10 {
            log.wait_written(index).unwrap();
        }
    }
    // The process ends here, without a word.
    let left: Arc<dyn Dir> = Arc::new(dir.crash(plimsoll_sync::Crash::Process, 1));
    std::mem::forget(log);
    let (log, recovery) = Log::open_in(vec![left], options(&ring)).unwrap();
    assert_eq!((recovery.last_index, recovery.replayed), (20, 10), "{recovery:?}");
    log.sync().unwrap();
    expect(&read_all(&log), 1, 20);
}

/// Records that were cut off, or that others replaced, once came back from a ring that had been left
/// aside.
#[test]
fn a_log_is_not_opened_without_the_ring_that_may_hold_its_newest_records() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let ring = Ring::File(shm.path().join("ring"));
    let with_ring = Options { ring, threads: false, ..small() };
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(vec![dir.clone()], with_ring.clone()).unwrap();
    log.append(b"only in the ring").unwrap();
    let left: Arc<dyn Dir> = Arc::new(dir.crash(plimsoll_sync::Crash::Process, 1));
    std::mem::forget(log);
    let without = Options { threads: false, ..small() };
    let refused = Log::open_in(vec![left.clone()], without.clone()).unwrap_err();
    assert!(refused.to_string().contains("open it with that ring"), "{refused}");
    let (log, recovery) = Log::open_in(vec![left.clone()], with_ring).unwrap();
    assert_eq!(recovery.replayed, 1);
    log.close().unwrap();
    let (log, recovery) = Log::open_in(vec![left], without).unwrap();
    assert_eq!(recovery.last_index, 1);
    log.close().unwrap();
}

/// The ring was made the log's before the log had a file; killed in between, it could never be opened.
#[test]
fn a_log_that_was_killed_while_it_was_made_is_made_with_the_same_ring() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let ring = Ring::File(shm.path().join("ring"));
    let options = |seed| {
        let clock = Clock::manual(seed);
        Options { threads: false, clock, ring: ring.clone(), ..small() }
    };
    let dir = Arc::new(SimDir::new());
    let made = Log::open_in(vec![dir.clone()], options(0)).unwrap();
    drop(made);
    for operation in 0..dir.operations() {
        std::fs::remove_file(shm.path().join("ring")).ok();
        let dir = Arc::new(SimDir::new());
        dir.stop_at(operation);
        Log::open_in(vec![dir.clone()], options(1)).err();
        let left = Arc::new(dir.crash(plimsoll_sync::Crash::Process, 1));
        let (log, _) = Log::open_in(vec![left], options(2)).unwrap();
        assert_eq!(log.append(b"one").unwrap(), 1, "operation {operation}");
    }
}

#[test]
fn the_ring_of_another_log_is_refused() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let ring = Ring::File(shm.path().join("ring"));
    let options = Options { ring, ..small() };
    let (one, two) = (scratch(), scratch());
    Log::open(one.path(), options.clone()).unwrap().0.close().unwrap();
    let refused = Log::open(two.path(), options).unwrap_err();
    assert!(refused.to_string().contains("another log"), "{refused}");
}

#[test]
fn somebody_else_can_look_at_a_log_that_is_open() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=500 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    let view = View::open(dir.path()).unwrap();
    let mut reader = view.read_from(1).unwrap();
    for index in 1..=500 {
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.index, record.payload), (index, &payload(index)[..]));
    }
    let end = reader.next_record().unwrap();
    assert!(end.is_none(), "{end:?}");
    for index in 501..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    for index in 501..=1000 {
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.index, record.payload), (index, &payload(index)[..]));
    }
    let reports = view.verify(&|_, _| {}).unwrap();
    assert_eq!(reports.last().unwrap().last_index, 1000);
}

#[test]
fn retention_by_bytes_counts_the_files_as_large_as_they_are() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.close().unwrap();
    // It once divided by the size that new segments are to have, and kept one.
    let (log, _) = Log::open(dir.path(), Options::default()).unwrap();
    let first = log.truncate_before(Retain::Bytes(200 << 10)).unwrap();
    assert_eq!(log.stats().segments, 3);
    expect(&read_all(&log), first, 1000);
}

#[test]
fn an_outline_says_what_verify_says_and_reads_only_the_newest_segment() {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(vec![dir.clone()], small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.truncate_after(900).unwrap();
    log.close().unwrap();
    let view = View::of(vec![dir]).unwrap();
    let (outline, verified) = (view.outline().unwrap(), view.verify(&|_, _| {}).unwrap());
    let said = |reports: &[SegmentReport]| -> Vec<_> {
        let said = |report: &SegmentReport| {
            let range = (report.first_index, report.last_index, report.generation);
            (report.segment.clone(), range, report.segment_bytes, report.state.clone())
        };
        reports.iter().map(said).collect()
    };
    assert_eq!(said(&outline), said(&verified));
    let newest = outline.last().unwrap();
    assert_eq!(
        (newest.last_index, newest.durable, newest.generation),
        (900, 900, view.generation())
    );
}

#[test]
fn every_damaged_head_is_reported_not_only_the_first() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.close().unwrap();
    let reports = View::open(dir.path()).unwrap().verify(&|_, _| {}).unwrap();
    for number in [1, 3, reports.len() - 1] {
        let path = dir.path().join(&reports[number].segment);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let view = View::open(dir.path()).unwrap();
    for reports in [view.verify(&|_, _| {}).unwrap(), view.outline().unwrap()] {
        let is_corrupt = |report: &&SegmentReport| matches!(report.state, SegmentState::Corrupt(_));
        let damaged: Vec<_> =
            reports.iter().filter(is_corrupt).map(|report| &report.segment).collect();
        let expected = [1, 3, reports.len() - 1].map(|number| &reports[number].segment);
        assert_eq!(damaged, expected, "{reports:#?}");
    }
}

#[test]
fn no_flipped_bit_makes_a_look_panic_or_a_reader_lie() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=4 {
        log.append_batch(&[payload(index % 5 + 1), vec![7; 9]]).unwrap();
    }
    log.close().unwrap();
    let view = View::open(dir.path()).unwrap();
    let reports = view.verify(&|_, _| {}).unwrap();
    let read = |view: &View| {
        let mut records = Vec::new();
        let Ok(mut reader) = view.read_from(1) else { return records };
        while let Ok(Some(record)) = reader.next_record() {
            records.push((record.index, record.payload.to_vec()));
        }
        records
    };
    let whole = read(&view);
    let path = dir.path().join(&reports[0].segment);
    let bytes = std::fs::read(&path).unwrap();
    let end = usize::try_from(reports[0].records_end).unwrap() + 64;
    for at in (0..64).chain(4096..end).step_by(2) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at / 2 % 8);
        std::fs::write(&path, flipped).unwrap();
        let view = View::open(dir.path()).unwrap();
        let reports = view.verify(&|_, _| {}).unwrap();
        assert!(!reports.is_empty(), "byte {at}");
        assert_eq!(view.outline().unwrap(), reports, "byte {at}: there is but one segment");
        view.dump(&reports[0], |_| Ok::<_, Error>(())).unwrap();
        let read = read(&view);
        assert!(whole.starts_with(&read), "byte {at}");
        // What is not there is missed, unless nobody ever said that it was durable.
        let missed = matches!(reports[0].state, SegmentState::Corrupt(_) | SegmentState::Torn(_));
        assert!(missed || read.len() == whole.len(), "byte {at}: {reports:?}");
    }
}

/// Each look once read the whole newest segment.
#[test]
fn whoever_waits_at_the_end_of_anothers_log_reads_little_each_time_and_misses_nothing() {
    let dir = Arc::new(SimDir::new());
    let options = Options { segment_bytes: 8 << 20, ring_bytes: 4 << 20, ..Options::default() };
    let (log, _) = Log::open_in(vec![dir.clone()], options).unwrap();
    for index in 1..=4000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    let view = View::of(vec![dir.clone()]).unwrap();
    let mut reader = view.read_from(1).unwrap();
    while reader.next_record().unwrap().is_some() {}
    let before = dir.operations();
    assert!(reader.next_record().unwrap().is_none());
    let operations = dir.operations() - before;
    assert!(operations < 20, "{operations}");
    for index in 4001..=4010 {
        log.append(&payload(index)).unwrap();
        log.sync().unwrap();
        assert_eq!(reader.next_record().unwrap().unwrap().index, index);
        assert!(reader.next_record().unwrap().is_none());
    }
}

#[test]
fn interval_syncs_by_itself_and_the_lag_says_how_late_it_is() {
    let dir = scratch();
    let policy = Policy::Interval { max_age: Duration::from_millis(20), max_bytes: 1 << 20 };
    let (log, _) = Log::open(dir.path(), Options { policy, ..small() }).unwrap();
    log.append(b"one").unwrap();
    log.durable().wait(1).unwrap();
    assert_eq!(log.stats().lag_ns, 0);
}

#[test]
fn recovery_of_a_new_log_finds_nothing() {
    let dir = scratch();
    let (_log, recovery) = Log::open(dir.path(), small()).unwrap();
    let expected = Recovery { created: true, first_index: 1, ..Recovery::default() };
    assert_eq!(recovery, expected);
    let names = OsDir::open(dir.path()).unwrap().list().unwrap();
    assert_eq!(names, ["00000000000000000001.seg", "lock"]);
}

/// A cut to the last record of a segment puts the new one in the place of the next, by the same name.
/// What came behind that one was removed afterwards; a process killed in between left a log whose
/// first and last files fitted each other, and which had its cut-off records again.
#[test]
fn a_cut_between_two_segments_is_whole_at_every_moment() {
    let build = |stop: Option<u64>| {
        let dir = Arc::new(SimDir::new());
        let options = Options { threads: false, clock: Clock::manual(3), ..small() };
        let (log, _) = Log::open_in(vec![dir.clone()], options).unwrap();
        let mut seconds = Vec::new();
        for index in 1..=600 {
            let segments = log.stats().segments;
            log.append_with(&payload(index), Ack::Written).unwrap();
            if log.stats().segments > segments {
                seconds.push(index);
            }
        }
        log.sync().unwrap();
        assert!(seconds.len() >= 3, "{seconds:?}");
        let before = dir.operations();
        if let Some(stop) = stop {
            dir.stop_at(before + stop);
        }
        let cut = seconds[0] - 1;
        log.truncate_after(cut).ok();
        let left = dir.crash(plimsoll_sync::Crash::Process, 1);
        (cut, dir.operations() - before, left)
    };
    let (cut, operations, _) = build(None);
    for stop in 0..=operations {
        let (_, _, left) = build(Some(stop));
        let options = Options { threads: false, ..small() };
        let (log, recovery) = Log::open_in(vec![Arc::new(left)], options).unwrap();
        assert!(recovery.last_index >= cut, "stopped at {stop}: {recovery:?}");
        let last = recovery.last_index;
        log.sync().unwrap();
        expect(&read_all(&log), 1, last);
        assert_eq!(log.append_with(&payload(last + 1), Ack::Durable).unwrap(), last + 1);
        expect(&read_all(&log), 1, last + 1);
    }
}

/// Threads that had nothing to do slept on when an appender played the writer itself: what it wrote
/// was not synced until something else happened.
#[test]
fn what_an_appender_wrote_itself_is_synced_in_the_background() {
    let dir = scratch();
    let policy = Policy::Interval { max_age: Duration::from_millis(20), max_bytes: 1 << 20 };
    let (log, _) = Log::open(dir.path(), Options { policy, ..small() }).unwrap();
    let mut follower = log.follow(1, Ack::Written).unwrap();
    // Long enough for the threads to sleep until they are woken.
    assert!(follower.next_within(Duration::from_millis(200)).unwrap().is_none());
    log.append_with(b"one", Ack::Written).unwrap();
    log.durable().wait_timeout(1, Duration::from_secs(60)).unwrap();
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

#[test]
fn a_full_disk_refuses_records_and_cuts_and_keeps_what_it_accepted() {
    let disk = plimsoll_simdisk::DiskOptions {
        capacity_bytes: Some(300 << 10),
        ..plimsoll_simdisk::DiskOptions::default()
    };
    let dir = Arc::new(SimDir::with(disk));
    let options = Options { threads: false, ..small() };
    let (log, _) = Log::open_in(vec![dir.clone()], options.clone()).unwrap();
    let mut last = 0;
    let refused = loop {
        match log.append(&payload(last + 1)) {
            Ok(index) => last = index,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::OutOfSpace { last_index } if last_index == last), "{refused}");
    assert!(last > 300, "{last}");
    log.sync().unwrap();
    expect(&read_all(&log), 1, last);
    let cut = log.truncate_after(last - 1);
    assert!(matches!(cut, Ok(()) | Err(Error::OutOfSpace { .. })), "{cut:?}");
    assert!(log.last_index() >= last - 1, "the log goes on: {}", log.last_index());
    // Retention makes room, without the log being opened again.
    log.truncate_before(Retain::From(last / 2)).unwrap();
    let next = log.append(b"there is room again").unwrap();
    log.sync().unwrap();
    log.close().unwrap();
    let (log, _) = Log::open_in(vec![dir], options).unwrap();
    assert_eq!(log.last_index(), next);
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

/// An append to such a log panicked.
#[test]
fn numbers_do_not_go_on_where_no_log_reaches() {
    let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
    drop(dir.create(&format!("{}.seg", u64::MAX), Access::default()).unwrap());
    let options = Options { accept_loss: true, threads: false, ..small() };
    let (log, recovery) = Log::open_in(vec![dir], options).unwrap();
    assert_eq!(recovery.last_index, (1 << 63) - 1, "{recovery:?}");
    let refused = log.append(b"one more");
    assert!(matches!(refused, Err(Error::Exhausted { .. })), "{refused:?}");
    log.close().unwrap();
}

#[test]
fn a_wait_with_a_timeout_asks_for_the_sync_and_does_not_do_the_work() {
    let dir = scratch();
    let (log, _) =
        Log::open(dir.path(), Options { policy: Policy::Never, ..Options::default() }).unwrap();
    let index = log.append(b"nobody would sync this").unwrap();
    log.wait_durable_timeout(index, Duration::from_secs(60)).unwrap();
    assert!(log.durable().get() >= index);
    let missing = log.wait_written_timeout(index + 1, Duration::from_secs(60)).unwrap_err();
    assert!(matches!(missing, Error::OutOfRange { .. }), "what nobody appended does not come");

    // Nobody drives this one: as if its disk hung.
    let options = Options { threads: false, policy: Policy::Never, ..small() };
    let (log, _) = Log::open_in(vec![Arc::new(SimDir::new())], options).unwrap();
    let index = log.append(b"late").unwrap();
    for wait in [Log::wait_written_timeout, Log::wait_durable_timeout] {
        let late = wait(&log, index, Duration::from_millis(1)).unwrap_err();
        assert!(matches!(late, Error::TimedOut { .. }), "{late:?}");
    }
    while log.drive().unwrap() {}
    assert_eq!(log.durable().get(), index, "it was asked for, and still may come");
    log.wait_durable_timeout(index, Duration::ZERO).unwrap();
}

/// A wait in slices waited for the next record of that index.
#[test]
fn a_wait_that_is_taken_up_again_knows_its_record() {
    let tmp = tempfile::tempdir().unwrap();
    let options = Options { policy: Policy::Never, ..small() };
    let (log, _) = Log::open(tmp.path(), options).unwrap();
    log.append_batch(&["stays", "goes"]).unwrap();
    let [stays, goes] = [1, 2].map(|index| log.waiting(index, Ack::Durable).unwrap());
    assert!(matches!(log.waiting(3, Ack::Durable), Err(Error::OutOfRange { index: 3, .. })));
    log.truncate_after(1).unwrap();
    assert_eq!(log.append_with(b"another", Ack::Durable).unwrap(), 2);
    log.wait_on(stays, Duration::from_secs(60)).unwrap();
    let told = log.wait_on(goes, Duration::from_secs(60));
    assert!(matches!(told, Err(Error::Truncated { index: 2 })), "{told:?}");
    log.wait_durable(2).unwrap();
}

/// A task that waits is woken, and nothing need be asked for beside it.
#[test]
fn a_task_awaits_its_record_and_is_told_of_a_cut() {
    struct Unparks(std::thread::Thread);
    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut wait = |log: &Log, waiting| loop {
        match log.poll_on(waiting, &mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => std::thread::park(),
        }
    };
    for policy in [Policy::Never, Policy::Always] {
        let tmp = tempfile::tempdir().unwrap();
        let (log, _) = Log::open(tmp.path(), Options { policy, ..small() }).unwrap();
        log.append_with(b"stays", Ack::Buffered).unwrap();
        wait(&log, log.waiting(1, Ack::Durable).unwrap()).unwrap();
        assert_eq!(log.durable().get(), 1);
        log.append_with(b"goes", Ack::Buffered).unwrap();
        let goes = log.waiting(2, Ack::Durable).unwrap();
        log.truncate_after(1).unwrap();
        assert_eq!(log.append_with(b"another", Ack::Durable).unwrap(), 2);
        let told = wait(&log, goes);
        assert!(matches!(told, Err(Error::Truncated { index: 2 })), "{told:?}");
        wait(&log, log.waiting(2, Ack::Written).unwrap()).unwrap();
    }
}

/// Long reads are read ahead by a thread: past frames that cross pieces, records larger than what is
/// read at once, ends of segments, and the end of a log that grows meanwhile.
#[test]
fn a_long_read_finds_every_record_while_the_log_grows() {
    let sizes = [100_usize, 1000, 70_000, 7, 140_000, 4096, 300_000, 0, 33_333];
    let record = |index: u64| -> Vec<u8> {
        let len = sizes[usize::try_from(index).unwrap() % sizes.len()];
        (0..len).map(|byte| (byte as u64 * 7 + index).to_le_bytes()[0]).collect()
    };
    let tmp = scratch();
    let options = Options {
        policy: Policy::Never,
        segment_bytes: 16 << 20,
        ring_bytes: 4 << 20,
        ..Options::default()
    };
    let (log, _) = Log::open(tmp.path(), options).unwrap();
    let (half, last) = (500, 1000);
    (1..=half).for_each(|index| assert_eq!(log.append(&record(index)).unwrap(), index));
    log.sync().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in half + 1..=last {
                log.append(&record(index)).unwrap();
            }
        });
        let mut follower = log.follow(1, Ack::Written).unwrap();
        for index in 1..=last {
            let read = follower.next_record().unwrap();
            assert_eq!((read.index, read.payload), (index, &*record(index)));
        }
        // From near the end, and back again.
        for from in [900, 3, 499] {
            let mut reader = log.read_from(from).unwrap();
            for index in from..=last {
                let read = reader.next_record().unwrap().unwrap();
                assert_eq!((read.index, read.payload), (index, &*record(index)));
            }
            assert!(reader.next_record().unwrap().is_none());
        }
    });
    assert!(log.stats().rotations > 1);
}
