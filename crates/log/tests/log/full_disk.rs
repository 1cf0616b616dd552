//! A disk without room, of each kind: nothing accepted is lost, reads go on, retention makes room, and the
//! log never stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use plimsoll_log::{Ack, Error, Log, Options, Policy, Retain};
use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, FillsAt, Operation, Overwriting, SimDir};
use plimsoll_sync::{Access, Crash, Dir, SyncMethod};

use crate::common::{append_to, driven, expect, payload, small};

/// Every kind of disk, and each so large.
fn disks(capacity_bytes: u64) -> impl Iterator<Item = (String, Arc<SimDir>)> {
    let kinds = [
        Overwriting::InPlace,
        Overwriting::Elsewhere { in_place_on_request: false },
        Overwriting::Elsewhere { in_place_on_request: true },
        Overwriting::Memory,
    ];
    let fills = [FillsAt::Write, FillsAt::Sync];
    kinds.into_iter().flat_map(move |overwriting| {
        fills.map(|fills_at| {
            let options = DiskOptions {
                capacity_bytes: Some(capacity_bytes),
                overwriting,
                fills_at,
                history_steps: 0,
                ..DiskOptions::default()
            };
            let kind = format!("{overwriting:?}, {fills_at:?}, {} KiB", capacity_bytes >> 10);
            (kind, Arc::new(SimDir::with(options)))
        })
    })
}

/// Appends until there is no room.
fn fill(log: &Log, case: &str) {
    for _ in 0..20_000 {
        match log.append(&payload(log.last_index() + 1)) {
            Ok(_) => {}
            // Refused; or accepted, and not durable yet as was asked.
            Err(Error::OutOfSpace { .. } | Error::TimedOut { .. }) => return,
            Err(error) => panic!("{case}: {error:?}"),
        }
    }
    panic!("{case}: it never fills");
}

/// Somebody else takes what room there is.
fn take_all(dir: &SimDir) {
    let other = match dir.open("other", Access::default()) {
        Ok(other) => other,
        Err(_) => dir.create("other", Access::default()).unwrap(),
    };
    let mut at = other.len().unwrap();
    while other.write_at(&[1; 4096], at).is_ok() && other.sync(SyncMethod::ORDINARY).is_ok() {
        at += 4096;
    }
}

/// Whoever drives a log goes on driving it.
fn append_again(log: &Log, case: &str) {
    let next = log.last_index() + 1;
    let again = (0..50).find_map(|_| {
        log.drive().unwrap_or_else(|error| panic!("{case}: {error:?}"));
        log.append(&payload(next)).ok()
    });
    assert_eq!(again, Some(next), "{case}: {:?}", log.health());
}

#[test]
fn a_full_disk_refuses_records_and_cuts_and_keeps_what_it_accepted() {
    let disk = DiskOptions { capacity_bytes: Some(300 << 10), ..DiskOptions::default() };
    let dir = Arc::new(SimDir::with(disk));
    let options = driven();
    let (log, _) = Log::open_in(dir.clone(), options.clone()).unwrap();
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
    expect(&log, 1, last);
    let cut = log.truncate_after(last - 1);
    assert!(matches!(cut, Ok(()) | Err(Error::OutOfSpace { .. })), "{cut:?}");
    assert!(log.last_index() >= last - 1, "the log goes on: {}", log.last_index());
    // Retention makes room, without the log being opened again.
    log.truncate_before(Retain::From(last / 2)).unwrap();
    let next = log.append(b"there is room again").unwrap();
    log.sync().unwrap();
    log.close().unwrap();
    let (log, _) = Log::open_in(dir, options).unwrap();
    assert_eq!(log.last_index(), next);
}

/// On btrfs and on tmpfs a write or a sync is what fails first: the log stopped there, and what it had
/// accepted was lost.
#[test]
fn a_disk_that_is_full_at_a_write_or_a_sync_stops_nothing_and_loses_nothing() {
    let mut homeless = 0;
    for capacity_bytes in (300..420).step_by(28).map(|kib| kib << 10) {
        for policy in [Policy::everysec(), Policy::Always] {
            for (kind, dir) in disks(capacity_bytes) {
                let case = format!("{kind}, {policy:?}");
                let options = Options { policy, ..driven() };
                let (log, _) = Log::open_in(dir.clone(), options.clone()).unwrap();
                let mut first = 1;
                for round in 0..3 {
                    let case = format!("{case}, round {round}");
                    fill(&log, &case);
                    let last = log.last_index();
                    // What is durable stays so, and what is accepted may have to wait for room.
                    let synced = log.sync();
                    assert!(
                        matches!(synced, Ok(_) | Err(Error::OutOfSpace { .. })),
                        "{case}: {synced:?}"
                    );
                    let durable = log.durable();
                    assert!(synced.is_err() || durable == last, "{case}");
                    match log.health() {
                        Ok(()) => {}
                        Err(Error::OutOfSpace { last_index }) => {
                            homeless += 1;
                            assert_eq!(last_index, durable, "{case}");
                        }
                        Err(error) => panic!("{case}: {error:?}"),
                    }
                    let left = Arc::new(dir.power_cut(capacity_bytes + round));
                    let (found, recovery) = Log::open_in(left, options.clone())
                        .unwrap_or_else(|error| panic!("{case}: {error:?}"));
                    assert!(recovery.last_index >= durable, "{case}: {durable}, {recovery:?}");
                    if recovery.last_index > 0 {
                        expect(&found, first, recovery.last_index);
                    }
                    drop(found);
                    expect(&log, first, log.written());
                    first = log.truncate_before(Retain::From(last - last.min(100))).unwrap();
                    assert!(first > 1, "{case}: retention took nothing");
                    let next = last + 1;
                    append_again(&log, &case);
                    log.sync().unwrap_or_else(|error| panic!("{case}: {error:?}"));
                    log.health().unwrap();
                    expect(&log, first, next);
                }
                let last = log.last_index();
                log.close().unwrap_or_else(|error| panic!("{case}: {error:?}"));
                let (log, recovery) = Log::open_in(dir, options).unwrap();
                assert_eq!(recovery.last_index, last, "{case}");
                expect(&log, first, last);
            }
        }
    }
    assert!(homeless > 0, "no segment ever failed for want of room");
}

/// `probe.tmp`, the process in `lock`, a whole segment after a torn tail: where there was no room for these
/// the log could not be opened, so that retention could not make any.
#[test]
fn a_log_on_a_full_disk_opens_and_is_read_and_retention_makes_room() {
    for policy in [Policy::everysec(), Policy::Always] {
        for (kind, dir) in disks(360 << 10) {
            for (how, crash) in [
                ("killed", Some(Crash::Process)),
                ("cut off", Some(Crash::PowerCut)),
                ("closed", None),
            ] {
                let case = format!("{kind}, {policy:?}, {how}");
                let dir = Arc::new(dir.crash(Crash::Process, 0));
                let options = Options { policy, ..driven() };
                let (log, _) = Log::open_in(dir.clone(), options.clone()).unwrap();
                fill(&log, &case);
                take_all(&dir);
                let durable = log.durable();
                let left = match crash {
                    Some(crash) => {
                        let left = Arc::new(dir.crash(crash, 7));
                        std::mem::forget(log);
                        left
                    }
                    None => {
                        let closed = log.close();
                        assert!(matches!(closed, Ok(()) | Err(Error::OutOfSpace { .. })), "{case}");
                        // Another process, to which no file has failed.
                        Arc::new(dir.crash(Crash::Process, 7))
                    }
                };
                take_all(&left);
                let (log, recovery) = Log::open_in(left.clone(), options.clone())
                    .unwrap_or_else(|error| panic!("{case}: {error:?}"));
                let last = recovery.last_index;
                assert!(last >= durable, "{case}: {durable}, {recovery:?}");
                expect(&log, 1, last);
                // It may have a little room of its own left.
                fill(&log, &case);
                let last = log.last_index();
                let first = log.truncate_before(Retain::From(last)).unwrap();
                assert!(first > 1, "{case}");
                append_again(&log, &case);
                log.sync().unwrap();
                log.health().unwrap();
                log.close().unwrap_or_else(|error| panic!("{case}: {error:?}"));
                let (log, _) = Log::open_in(left, options).unwrap();
                expect(&log, first, last + 1);
            }
        }
    }
}

/// With threads, and appenders of every level, while retention goes on beside them.
#[test]
fn appenders_on_a_disk_that_fills_again_and_again_lose_nothing() {
    for policy in [Policy::everysec(), Policy::Always] {
        for (kind, dir) in disks(400 << 10) {
            let case = format!("{kind}, {policy:?}");
            let options = Options { policy, ..small() };
            let (log, _) = Log::open_in(dir.clone(), options.clone()).unwrap();
            let (refused, over) = (AtomicU64::new(0), AtomicBool::new(false));
            thread::scope(|scope| {
                let (log, case, refused, over) = (&log, &case, &refused, &over);
                let appenders: Vec<_> = [Ack::Buffered, Ack::Written, Ack::Durable]
                    .into_iter()
                    .map(|ack| {
                        scope.spawn(move || {
                            let mut appended = 0;
                            while appended < 500 {
                                match log.append_with(&[7; 700], ack) {
                                    Ok(_) => appended += 1,
                                    Err(Error::OutOfSpace { .. }) => {
                                        refused.fetch_add(1, SeqCst);
                                        thread::park_timeout(Duration::from_millis(1));
                                    }
                                    Err(error) => panic!("{case}: {error:?}"),
                                }
                            }
                        })
                    })
                    .collect();
                scope.spawn(move || {
                    while !over.load(SeqCst) {
                        // Only when somebody was refused, or waits for what has no room, so that the disk
                        // does fill.
                        if refused.swap(0, SeqCst) > 0 || log.health().is_err() {
                            log.truncate_before(Retain::Bytes(128 << 10)).unwrap();
                        }
                        thread::park_timeout(Duration::from_millis(1));
                    }
                });
                let ended: Vec<_> = appenders.into_iter().map(|thread| thread.join()).collect();
                over.store(true, SeqCst);
                assert!(ended.iter().all(Result::is_ok), "{case}");
            });
            let last = log.last_index();
            assert!(last >= 1500, "{case}: {last}");
            // What was accepted last may still need room.
            let synced = (0..100).find_map(|_| {
                log.truncate_before(Retain::Bytes(64 << 10)).unwrap();
                log.sync().ok()
            });
            assert_eq!(synced, Some(last), "{case}: {:?}", log.health());
            let first = log.first_index();
            log.close().unwrap_or_else(|error| panic!("{case}: {error:?}"));
            let (log, recovery) = Log::open_in(dir, options).unwrap();
            assert_eq!((recovery.first_index, recovery.last_index), (first, last), "{case}");
            let mut reader = log.read_from(first).unwrap();
            for index in first..=last {
                let record = reader.next_record().unwrap().unwrap();
                assert_eq!((record.index, record.payload), (index, &[7; 700][..]), "{case}");
            }
        }
    }
}

/// A reserve of blocks for the log's own files keeps a cut possible, or it is refused as it is.
#[test]
fn a_cut_on_a_full_disk_happens_or_changes_nothing() {
    for (kind, dir) in disks(330 << 10) {
        let (log, _) = Log::open_in(dir.clone(), driven()).unwrap();
        fill(&log, &kind);
        let last = log.last_index();
        let written = log.written();
        let cut = log.truncate_after(written - 1);
        let expected = match cut {
            Ok(()) => written - 1,
            Err(Error::OutOfSpace { .. }) => last,
            Err(error) => panic!("{kind}: {error:?}"),
        };
        assert_eq!(log.last_index(), expected, "{kind}");
        log.truncate_before(Retain::From(written)).unwrap();
        let again = (0..50).find_map(|_| log.truncate_after(written - 2).ok());
        assert!(again.is_some(), "{kind}");
        append_to(&log, written + 10);
        log.sync().unwrap();
        let first = log.first_index();
        log.close().unwrap();
        let (log, _) = Log::open_in(dir, driven()).unwrap();
        expect(&log, first, written + 10);
    }
}

/// Where the note of a cut found no room the log stopped: by then the records were gone from memory.
#[test]
fn a_cut_for_whose_note_there_is_no_room_changes_nothing() {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir.clone(), driven()).unwrap();
    append_to(&log, 60);
    log.sync().unwrap();
    let full = FaultKind::Fail(std::io::ErrorKind::StorageFull);
    dir.inject(Fault::new(Operation::Create, full).named("cutting"));
    let cut = log.truncate_after(50);
    assert!(matches!(cut, Err(Error::OutOfSpace { .. })), "{cut:?}");
    log.health().unwrap();
    expect(&log, 1, 60);
    log.truncate_after(50).unwrap();
    append_to(&log, 70);
    log.sync().unwrap();
    log.close().unwrap();
    let (log, recovery) = Log::open_in(dir, driven()).unwrap();
    assert_eq!((recovery.first_index, recovery.last_index), (1, 70));
    expect(&log, 1, 70);
}

/// Three opens that failed once, for want of a descriptor, abandoned two healthy files and stopped the log.
#[test]
fn a_process_without_descriptors_stops_no_log() {
    for times in [1, 3, 40] {
        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dir.clone(), driven()).unwrap();
        append_to(&log, 60);
        for on in [Operation::Open, Operation::Create] {
            dir.inject(Fault::new(on, FaultKind::FailRaw(24)).times(times));
        }
        while log.last_index() < 400 {
            let next = log.last_index() + 1;
            match log.append(&payload(next)) {
                Ok(_) | Err(Error::Disk(_) | Error::TimedOut { .. }) => {}
                Err(error) => panic!("{times}, {next}: {error:?}"),
            }
        }
        log.health().unwrap();
        assert_eq!(log.stats().failovers, 0, "{times}: no file failed");
        expect(&log, 1, log.written());
        log.close().unwrap();
    }
}
