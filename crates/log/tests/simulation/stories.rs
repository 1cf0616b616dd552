//! Histories that once went wrong, each told again: small logs, driven by their calls, on a disk in
//! memory at a time that stands.

use std::io::ErrorKind;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use plimsoll_log::{Ack, Clock, Error, Log, Options, Policy, Retain, Ring};
use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, SimDir, Times};
use plimsoll_sync::{Access, Crash, Dir};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::points::dyn_dir;
use crate::{RARELY, story};

/// From here on a file can neither be removed nor get another name.
fn stays(dir: &SimDir, name: &str) {
    for on in [Operation::Remove, Operation::Rename] {
        dir.inject(Fault::new(on, FaultKind::FailRaw(5)).named(name).sticky());
    }
}

/// A segment failed, was replaced and could not be removed. Then retention took its replacement away: at
/// the next open the failed one, whose generation was older but whose number fitted, was the beginning of
/// the log.
#[test]
fn retention_does_not_bring_back_a_segment_that_was_replaced() {
    let options = Options { ring_bytes: 64 << 10, ..story(RARELY) };
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
    let append = |number: u8, ack| log.append_with(&[number; 7000], ack).unwrap();
    (1..=7).for_each(|number| assert!(append(number, Ack::Durable) > 0));
    (8..=11).for_each(|number| assert!(append(number, Ack::Written) > 0));
    let replaced = "00000000000000000009.seg";
    assert!(dir.list().unwrap().iter().any(|name| name == replaced));
    stays(&dir, replaced);
    dir.inject(Fault::new(Operation::Sync, FaultKind::FailRaw(5)));
    (12..=30).for_each(|number| assert!(append(number, Ack::Durable) > 0));
    assert_eq!(log.stats().failovers, 1);
    log.truncate_after(20).unwrap();
    let kept = log.truncate_before(Retain::From(18));
    assert!(kept.is_err(), "{kept:?}: the directory still holds the replaced one");
    let found = Arc::new(dir.crash(Crash::Process, 0));
    let (log, _) = Log::open_in(dyn_dir(&found), options).unwrap();
    let kept = log.truncate_before(Retain::From(18)).unwrap();
    assert!((2..=18).contains(&kept), "{kept}");
    let mut reader = log.read_from(kept).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!(u64::from(record.payload[0]), record.index);
    }
    assert_eq!(reader.next_index(), 21);
}

/// A new segment got its name, and what came after the rename failed. The log went on under an earlier
/// index, and nobody knew of the file; once retention had come past it, it was the log's beginning.
#[test]
fn a_segment_that_failed_as_it_got_its_name_does_not_stay_behind() {
    let options = story(RARELY);
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
    let append = |number: u8, ack| log.append_with(&[number; 3000], ack).unwrap();
    for number in 1..21 {
        append(number, if number < 17 { Ack::Durable } else { Ack::Written });
    }
    let next = "00000000000000000021.seg";
    dir.inject(Fault::new(Operation::Open, FaultKind::FailRaw(5)).named(next));
    for number in 21..90 {
        append(number, Ack::Durable);
    }
    assert_eq!(log.stats().failovers, 1, "the log went on from record 17");
    let kept = log.truncate_before(Retain::From(80)).unwrap();
    assert!(kept > 21);
    let found = Arc::new(dir.crash(Crash::Process, 0));
    let (log, _) = Log::open_in(dyn_dir(&found), options).unwrap();
    assert_eq!((log.first_index(), log.last_index()), (kept, 89));
}

/// A segment was begun, then the one before it failed, and the log went on under an earlier index; the
/// file could not be removed. After a power cut it had no link to say how old it was, and as it stood
/// between others it was taken for one of them: records that were durable could not be read.
#[test]
fn a_segment_that_failed_as_it_was_begun_does_not_hide_records() {
    let options = story(RARELY);
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
    let append = |number: u8, ack| log.append_with(&[number; 3000], ack).unwrap();
    for number in 1..23 {
        append(number, if number < 17 { Ack::Durable } else { Ack::Written });
    }
    let begun = "00000000000000000021.seg";
    assert!(dir.list().unwrap().iter().any(|name| name == begun));
    stays(&dir, begun);
    dir.inject(Fault::new(Operation::Sync, FaultKind::FailRaw(5)));
    for number in 23..90 {
        append(number, Ack::Durable);
    }
    assert_eq!(log.stats().failovers, 1);
    assert!(dir.list().unwrap().iter().any(|name| name == begun), "it could not be removed");
    for seed in 0..50 {
        let found = Arc::new(dir.power_cut(seed));
        let (log, _) = Log::open_in(dyn_dir(&found), options.clone()).unwrap();
        let mut reader = log.read_from(1).unwrap();
        while let Some(record) = reader.next_record().unwrap_or_else(|e| panic!("{seed}: {e}")) {
            assert_eq!(u64::from(record.payload[0]), record.index, "seed {seed}");
        }
        assert_eq!(reader.next_index(), 90, "seed {seed}");
    }
}

/// A segment was begun, and a mark in it reached the disk before its link did. Then the log was cut before
/// it, and the power failed while the file was still there: it was taken for a younger segment whose link
/// was damaged, and all that its mark called durable for lost.
#[test]
fn a_segment_that_was_cut_off_before_its_link_was_durable_is_not_missed() {
    let options = Options { direct: false, ..story(RARELY) };
    let mut unsynced = 0;
    for bytes in (300..1500).step_by(100) {
        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
        let append = |ack| log.append_with(&vec![7; bytes], ack).unwrap();
        // Where the ring is full what is written is synced, and the link may be staged only.
        while log.stats().rotations == 0 {
            append(Ack::Buffered);
        }
        append(Ack::Written);
        let begun = dir.list().unwrap().into_iter().rfind(|name| name.ends_with(".seg")).unwrap();
        let first: u64 = begun.strip_suffix(".seg").unwrap().parse().unwrap();
        unsynced += u64::from(log.durable() + 1 == first);
        (0..9).for_each(|_| assert!(append(Ack::Written) > 0));
        log.truncate_after(3).unwrap();
        assert!(dir.list().unwrap().contains(&begun), "it is removed later");
        log.append_with(b"next", Ack::Written).unwrap();
        for seed in 0..20 {
            let found = Arc::new(dir.power_cut(seed));
            let (log, _) = Log::open_in(dyn_dir(&found), options.clone())
                .unwrap_or_else(|error| panic!("{bytes} bytes, seed {seed}: {error}"));
            assert!((3..=4).contains(&log.last_index()), "{bytes} bytes, seed {seed}");
        }
    }
    assert!(unsynced > 0, "no link was later than a mark");
}

/// A process was killed while it wrote a note. The next one, which had a note of its own to write, took
/// the file away before it came to removing it, and did not open.
#[test]
fn half_a_note_that_another_note_took_the_place_of_is_in_nobodys_way() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
    let ring = Ring::File(shm.path().join("ring"));
    let dir = Arc::new(SimDir::new());
    drop(dir.create("note.tmp", Access::default()).unwrap());
    let options = Options { ring, ..story(RARELY) };
    let (log, _) = Log::open_in(dyn_dir(&dir), options).unwrap();
    log.append(b"a record").unwrap();
    log.close().unwrap();
    assert!(!dir.list().unwrap().iter().any(|name| name == "note.tmp"));
}

/// A log was opened on a full disk and had no segment to go on in, so what an earlier cut had left was not
/// looked at. Then retention took what was older and younger, and what was stale was the log's beginning.
#[test]
fn a_log_that_is_opened_on_a_full_disk_knows_what_is_stale() {
    let options = story(RARELY);
    let full = |on| Fault::new(on, FaultKind::Fail(ErrorKind::StorageFull)).sticky();
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
    let append = || log.append_with(&[7; 3000], Ack::Durable);
    (1..=50).for_each(|_| assert!(append().is_ok()));
    let stale = "00000000000000000041.seg";
    stays(&dir, stale);
    log.truncate_after(25).unwrap();
    (26..=50).for_each(|_| assert!(append().is_ok()));
    // The last segment is sealed, and no other gets its name.
    dir.inject(full(Operation::Rename));
    while append().is_ok() {}
    let last = log.durable();
    let found = Arc::new(dir.crash(Crash::Process, 0));
    found.inject(full(Operation::Create));
    let (log, _) = Log::open_in(dyn_dir(&found), options.clone()).unwrap();
    assert!(log.health().is_err(), "it goes on in the last segment");
    assert!(found.list().unwrap().iter().any(|name| name == stale));
    let first = log.truncate_before(Retain::From(last)).unwrap();
    assert!(first > 41);
    let found = Arc::new(found.crash(Crash::Process, 0));
    let (log, _) = Log::open_in(dyn_dir(&found), options).unwrap();
    assert_eq!((log.first_index(), log.last_index()), (first, last));
}

/// A cut ended in an empty segment that was too small for the next batch. Another one took its name, which
/// was not synced before: after a power cut nothing told that anything had been cut off, and it came back.
#[test]
fn a_cut_stays_where_an_empty_segment_is_replaced_by_a_larger_one() {
    let options = Options { ring_bytes: 512 << 10, ..story(RARELY) };
    for seed in 0..60 {
        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
        (1..=10).for_each(|_| assert!(log.append_with(&[7; 3000], Ack::Durable).is_ok()));
        log.truncate_after(5).unwrap();
        log.append_with(&[8; 100 << 10], Ack::Written).unwrap();
        let found = Arc::new(dir.power_cut(seed));
        let (log, _) = Log::open_in(dyn_dir(&found), options.clone()).unwrap();
        let mut reader = log.read_from(1).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            assert!(record.index <= 5 || record.payload[0] == 8, "{} is back", record.index);
        }
    }
}

/// A segment was begun and not synced when the process ended. The cache showed its link, which calls all
/// before it durable, so nothing else was read; the disk had no link. The log was opened empty. (Seed
/// 20,112 of failing disks.)
#[test]
fn a_segment_whose_link_only_the_cache_has_does_not_hide_those_before_it() {
    let options = Options { direct: false, ..story(RARELY) };
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
    let append = || log.append_with(&[7; 3000], Ack::Durable);
    (1..=40).for_each(|_| assert!(append().is_ok()));
    while log.drive().unwrap() {}
    // The next record begins a segment, whose first sync fails; and no other can be made.
    let next = "00000000000000000041.seg";
    dir.inject(Fault::new(Operation::Sync, FaultKind::FailRaw(5)).named(next).sticky());
    dir.inject(Fault::new(Operation::Create, FaultKind::FailRaw(5)).sticky());
    assert!(append().is_err());
    assert!(dir.list().unwrap().iter().any(|name| name == next));
    let found = Arc::new(dir.crash(Crash::Process, 0));
    let (log, recovery) = Log::open_in(dyn_dir(&found), options).unwrap();
    assert_eq!(log.last_index(), 40, "{recovery:?}");
}

/// A cut failed when its records were gone from memory, and the log stopped. Closing it said that all was
/// well, and noted an end that was not one.
#[test]
fn a_log_that_stopped_in_a_cut_does_not_close_as_if_nothing_were_wrong() {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), story(RARELY)).unwrap();
    (1..=10).for_each(|_| assert!(log.append_with(&[7; 3000], Ack::Durable).is_ok()));
    dir.inject(Fault::new(Operation::Rename, FaultKind::FailRaw(5)));
    assert!(matches!(log.truncate_after(5), Err(Error::Stopped { .. })));
    assert!(matches!(log.close(), Err(Error::Stopped { .. })));
    assert!(!dir.list().unwrap().iter().any(|name| name == "closed"));
}

/// What was cut off could not be removed, neither then nor at the next open, and its number fitted the
/// count. No open may take the note of the cut away before.
#[test]
fn the_note_of_a_cut_stays_as_long_as_what_was_cut_off() {
    let options = story(RARELY);
    let cut = "00000000000000000041.seg";
    let mut dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
    (1..=50).for_each(|_| assert!(log.append_with(&[7; 3000], Ack::Durable).is_ok()));
    stays(&dir, cut);
    log.truncate_after(20).unwrap();
    for _ in 0..3 {
        dir = Arc::new(dir.crash(Crash::Process, 0));
        assert!(dir.list().unwrap().iter().any(|name| name == cut));
        stays(&dir, cut);
        let opened = Log::open_in(dyn_dir(&dir), options.clone());
        assert_eq!(opened.map_or(20, |(log, _)| log.last_index()), 20);
    }
    let (log, _) = Log::open_in(Arc::new(dir.crash(Crash::Process, 0)), options).unwrap();
    assert_eq!(log.last_index(), 20);
}

/// A log was closed and opened again, and the first block of what came then was lost to a power cut, and
/// a later one was not. What says where the log ended must be gone by then: whoever believes it looks
/// at nothing behind, and writes there.
#[test]
fn what_was_lost_behind_a_clean_end_does_not_come_back() {
    let options = Options { direct: false, ..story(RARELY) };
    for seed in 0..40 {
        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
        log.append(&[1; 200]).unwrap();
        log.close().unwrap();
        let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
        (0..60).for_each(|_| assert!(log.append_with(&[2; 200], Ack::Written).is_ok()));
        let dir = Arc::new(dir.power_cut(seed));
        let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
        let next = log.last_index() + 1;
        for index in next..next + 20 {
            assert_eq!(log.append_with(&[3; 200], Ack::Durable).unwrap(), index);
            let found = Arc::new(dir.power_cut(seed));
            let (log, _) = Log::open_in(dyn_dir(&found), options.clone()).unwrap();
            assert_eq!(log.last_index(), index, "seed {seed}: what was cut off came back");
        }
    }
}

/// A ring was given up by an opener who had another, and came back in the place of that one: its records had
/// others in their place by then.
#[test]
fn a_ring_that_was_given_up_is_not_taken_for_the_one_that_followed() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
    let (first, second, away) = ("first", "second", "away");
    let path = |name| shm.path().join(name);
    let with = |name| Options { ring: Ring::File(path(name)), ..story(RARELY) };
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), with(first)).unwrap();
    log.append_with(b"durable", Ack::Durable).unwrap();
    (2..=4).for_each(|_| assert!(log.append_with(b"given up", Ack::Buffered).is_ok()));
    let dir = Arc::new(dir.crash(Crash::Process, 0));
    std::fs::copy(path(first), path(away)).unwrap();
    std::fs::remove_file(path(first)).unwrap();
    let (log, recovery) = Log::open_in(dyn_dir(&dir), with(second)).unwrap();
    assert_eq!((log.last_index(), recovery.replayed), (1, 0));
    log.append_with(b"in its place", Ack::Durable).unwrap();
    let dir = Arc::new(dir.crash(Crash::Process, 0));
    std::fs::remove_file(path(second)).unwrap();
    std::fs::copy(path(away), path(second)).unwrap();
    let (log, recovery) = Log::open_in(dyn_dir(&dir), with(second)).unwrap();
    assert_eq!((log.last_index(), recovery.replayed), (2, 0));
    assert!(recovery.ring_ignored.is_some());
}

/// A clock was ahead once. What was begun then was younger than anything, and retention by age kept it, and
/// all behind it, until the clock had caught up.
#[test]
fn a_clock_that_was_ahead_does_not_keep_segments_for_ever() {
    let (ahead, clock) = (Clock::manual(1), Clock::manual(2));
    ahead.advance(Duration::from_secs(1_000_000));
    let dir = Arc::new(SimDir::new());
    for (clock, records) in [(ahead, 25), (clock.clone(), 60)] {
        let options = Options { clock, ..story(RARELY) };
        let (log, _) = Log::open_in(dyn_dir(&dir), options).unwrap();
        (0..records).for_each(|_| assert!(log.append(&[7; 3000]).is_ok()));
        log.close().unwrap();
    }
    clock.advance(Duration::from_secs(7200));
    let options = Options { clock, ..story(RARELY) };
    let (log, _) = Log::open_in(dyn_dir(&dir), options).unwrap();
    let first = log.truncate_before(Retain::Age(Duration::from_secs(3600))).unwrap();
    assert!(first > 60, "what is two hours old is kept: {first}");
}

/// The disk was too full for the note that names the ring, and the one that stood was of another, or none
/// stood: the log opened all the same, and what was accepted then was not found after a crash.
#[test]
fn a_ring_that_cannot_be_noted_is_not_used() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
    let ring = Ring::File(shm.path().join("ring"));
    let options = Options { ring, ..story(RARELY) };
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
    log.append(b"a record").unwrap();
    log.close().unwrap();
    let full = FaultKind::Fail(ErrorKind::StorageFull);
    dir.inject(Fault::new(Operation::Write, full).named("note.tmp").sticky());
    let opened = Log::open_in(dyn_dir(&dir), options).map(drop);
    assert!(matches!(opened, Err(Error::Disk(_))), "{opened:?}");
    // Whoever makes room needs no ring.
    let (log, _) = Log::open_in(dyn_dir(&dir), story(RARELY)).unwrap();
    assert_eq!(log.last_index(), 1);
}

/// Everything was durable, and closing the log said that the disk was full: for the note of its end, which
/// only spares the next open some reading.
#[test]
fn a_log_that_is_durable_closes_on_a_full_disk() {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), story(RARELY)).unwrap();
    log.append(b"a record").unwrap();
    let full = FaultKind::Fail(ErrorKind::StorageFull);
    dir.inject(Fault::new(Operation::Write, full).named("note.tmp").sticky());
    log.close().unwrap();
    let found = Arc::new(dir.power_cut(1));
    assert!(!found.list().unwrap().iter().any(|name| name == "note.tmp"));
    let (log, recovery) = Log::open_in(dyn_dir(&found), story(RARELY)).unwrap();
    assert!(recovery.clean && log.last_index() == 1, "{recovery:?}");
}

/// A record that was larger than a segment kept its mark on what may be accepted long after it was durable,
/// and the next segment was asked to have room for the small one only: behind a cut there was never
/// enough, and a log with threads waited for ever.
#[test]
fn small_records_are_accepted_after_one_that_was_larger_than_a_segment() {
    let options = Options { ring_bytes: 256 << 10, ..story(RARELY) };
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), options).unwrap();
    log.append_with(&[1; 100], Ack::Written).unwrap();
    log.append_with(&vec![2; 125_000], Ack::Written).unwrap();
    log.truncate_after(1).unwrap();
    for index in 2..100 {
        assert_eq!(log.append_with(&[3; 300], Ack::Written).unwrap(), index);
    }
}

/// No segment could be made ready, and nothing else failed: appends stopped short of the end of the one
/// there was, so the writer never came to need another, and nobody was told. A failure that passes is
/// waited out.
#[test]
fn a_directory_that_takes_no_more_files_is_told_of() {
    for threads in [false, true] {
        let options = Options {
            policy: Policy::Always,
            segment_bytes: 64 << 10,
            ring_bytes: 16 << 10,
            threads,
            ..Options::default()
        };
        let fails = || Fault::new(Operation::Create, FaultKind::FailRaw(5)).sticky();
        if threads {
            let dir = Arc::new(SimDir::new());
            let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
            (1..=3).for_each(|nth| dir.inject(Fault { nth, times: Times::Count(1), ..fails() }));
            for number in 0..40_u8 {
                log.append(&[number; 7000]).unwrap();
            }
            assert_eq!((log.durable(), log.stats().failovers), (40, 0));
        }

        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dyn_dir(&dir), options).unwrap();
        dir.inject(fails());
        let told = (0..40_u8).find_map(|number| log.append(&[number; 7000]).err());
        assert!(matches!(told, Some(Error::Stopped { .. })), "{told:?}");
        assert!(log.durable() >= 7, "what fitted is durable: {}", log.durable());
    }
}

/// Without threads of its own the log is worked by whoever waits. One who came while another was at it
/// waited for a thread that was not there.
#[test]
fn two_who_wait_in_a_log_without_threads_serve_each_other() {
    let options = Options { threads: false, policy: Policy::Always, ..Options::default() };
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), options).unwrap();
    for _ in 0..1000 {
        let together = Barrier::new(2);
        let append = || {
            together.wait();
            log.append(b"a record").unwrap();
        };
        thread::scope(|scope| drop([scope.spawn(append), scope.spawn(append)]));
    }
    assert_eq!(log.durable(), 2000);
}

/// The segment that was resumed had smaller buffers, and the next one took them over: a seal, which a
/// full segment of the new size needs, did not fit.
#[test]
fn segments_may_grow_from_one_open_to_the_next() {
    let dir = Arc::new(SimDir::new());
    let small = story(Policy::everysec());
    let large = Options { segment_bytes: 32 << 20, ..small.clone() };
    let (log, _) = Log::open_in(dyn_dir(&dir), small).unwrap();
    log.append(&[1; 100]).unwrap();
    log.close().unwrap();
    let (log, _) = Log::open_in(dyn_dir(&dir), large).unwrap();
    for number in 0..40_000_u32 {
        log.append(&[number as u8; 1000]).unwrap();
    }
    log.sync().unwrap();
    assert!(log.stats().rotations >= 2, "{:?}", log.stats());
    log.close().unwrap();
}

/// A file that had been a smaller segment was used again as it was, and counted as room for a large one: on a disk
/// that was full by then there was none.
#[test]
fn a_recycled_file_has_room_for_a_segment_of_today() {
    let dir = Arc::new(SimDir::new());
    let small = story(Policy::everysec());
    let (log, _) = Log::open_in(dyn_dir(&dir), small.clone()).unwrap();
    (0..30_u8).for_each(|number| assert!(log.append(&[number; 7000]).is_ok()));
    log.close().unwrap();
    let large = Options { segment_bytes: 1 << 20, ..small };
    let (log, _) = Log::open_in(dyn_dir(&dir), large).unwrap();
    assert!(log.truncate_before(Retain::From(30)).unwrap() > 16, "two files are kept to be used");
    (0..250_u8).for_each(|number| assert!(log.append(&[number; 7000]).is_ok()));
    assert!(log.stats().rotations >= 2, "{:?}", log.stats());
    let segments = dir.list().unwrap().into_iter().filter(|name| name.ends_with(".seg"));
    let lens = segments.map(|name| dir.open(&name, Access::default()).unwrap().len().unwrap());
    assert_eq!(lens.filter(|&len| len < 1 << 20).count(), 1, "the one that was resumed");
}

/// It said so, and did nothing where there was nothing to cut.
#[test]
fn a_cut_behind_the_last_record_makes_it_durable() {
    let options = Options { policy: Policy::Never, threads: false, ..Options::default() };
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), options).unwrap();
    let last = log.append(b"stays").unwrap();
    log.truncate_after(last).unwrap();
    assert_eq!(log.durable(), last);
}

/// Its front is written before the rest is staged; the write that syncs itself is the last one.
#[test]
fn a_record_larger_than_what_is_staged_is_durable_as_a_whole() {
    let options = Options {
        policy: Policy::Always,
        segment_bytes: 16 << 20,
        ring_bytes: 8 << 20,
        threads: false,
        clock: Clock::manual(1),
        ..Options::default()
    };
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dyn_dir(&dir), options.clone()).unwrap();
    let record: Vec<u8> = (0..3_500_000_u32).map(|byte| byte as u8).collect();
    log.append(b"small").unwrap();
    log.append(&record).unwrap();
    for seed in 0..20 {
        let found = Arc::new(dir.power_cut(seed));
        let (log, _) = Log::open_in(dyn_dir(&found), options.clone()).unwrap();
        assert_eq!(log.last_index(), 2, "seed {seed}");
        let mut reader = log.read_from(2).unwrap();
        assert!(reader.next_record().unwrap().unwrap().payload == record, "seed {seed}");
    }
}

/// Zeros follow what replaces a segment, so that old bytes of the file are not taken for a write.
#[test]
fn a_failover_that_fills_its_staging_to_the_last_byte_goes_on() {
    // Link and mark take 104 bytes of 8192.
    for payload_bytes in [8064, 8056, 8040, 8032] {
        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dyn_dir(&dir), story(RARELY)).unwrap();
        let index = log.append(&vec![7; payload_bytes]).unwrap();
        log.wait(index, Ack::Written).unwrap().block().unwrap();
        dir.inject(Fault::new(Operation::Sync, FaultKind::Fail(ErrorKind::Other)));
        log.wait(index, Ack::Durable).unwrap().block().unwrap();
        assert_eq!(log.stats().failovers, 1);
        log.close().unwrap();
        let found = Arc::new(dir.power_cut(1));
        let (log, recovery) = Log::open_in(dyn_dir(&found), story(RARELY)).unwrap();
        assert!(recovery.clean && log.last_index() == index, "{recovery:?}");
    }
}

/// What a large batch leaves at a segment's end was counted as room for those that follow: they were
/// accepted, and the full disk had no place for them.
#[test]
fn what_a_large_batch_leaves_at_a_segments_end_is_room_for_nobody() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    for case in 0..200 {
        let capacity_bytes = Some(rng.random_range(200..500) << 10);
        let disk = DiskOptions { capacity_bytes, history_steps: 0, ..DiskOptions::default() };
        let dir = Arc::new(SimDir::with(disk));
        let options = Options { ring_bytes: 64 << 10, ..story(RARELY) };
        let Ok((log, _)) = Log::open_in(dyn_dir(&dir), options) else { continue };
        let refused = loop {
            let bytes = rng.random_range(1_000..30_000);
            if let Err(error) = log.append(&vec![7; bytes]) {
                break error;
            }
        };
        assert!(matches!(refused, Error::OutOfSpace { .. }), "{case}: {refused}");
        log.sync().unwrap_or_else(|error| panic!("{case}: what it accepted has room: {error}"));
    }
}
