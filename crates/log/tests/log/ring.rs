//! A ring in a file: what it gives back, and whose.

use std::sync::Arc;

use plimsoll_log::{Ack, Clock, Log, Options, Ring};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::Dir;

use crate::common::{expect, payload, scratch, small};

#[test]
fn a_ring_in_a_file_gives_back_what_only_it_had() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let dir = Arc::new(SimDir::new());
    let ring = Ring::File(shm.path().join("ring"));
    let options = |ring: &Ring| Options { threads: false, ring: ring.clone(), ..small() };
    let (log, _) = Log::open_in(dir.clone(), options(&ring)).unwrap();
    for index in 1..=20 {
        log.append(&payload(index)).unwrap();
        if index == 10 {
            log.wait(index, Ack::Written).unwrap().block().unwrap();
        }
    }
    // The process ends here, without a word.
    let left: Arc<dyn Dir> = Arc::new(dir.crash(plimsoll_sync::Crash::Process, 1));
    std::mem::forget(log);
    let (log, recovery) = Log::open_in(left, options(&ring)).unwrap();
    assert_eq!((recovery.last_index, recovery.replayed), (20, 10), "{recovery:?}");
    log.sync().unwrap();
    expect(&log, 1, 20);
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
    let (log, _) = Log::open_in(dir.clone(), with_ring.clone()).unwrap();
    log.append(b"only in the ring").unwrap();
    let left: Arc<dyn Dir> = Arc::new(dir.crash(plimsoll_sync::Crash::Process, 1));
    std::mem::forget(log);
    let without = Options { threads: false, ..small() };
    let refused = Log::open_in(left.clone(), without.clone()).unwrap_err();
    assert!(refused.to_string().contains("open it with that ring"), "{refused}");
    let (log, recovery) = Log::open_in(left.clone(), with_ring).unwrap();
    assert_eq!(recovery.replayed, 1);
    log.close().unwrap();
    let (log, recovery) = Log::open_in(left, without).unwrap();
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
    let made = Log::open_in(dir.clone(), options(0)).unwrap();
    drop(made);
    for operation in 0..dir.operations() {
        std::fs::remove_file(shm.path().join("ring")).ok();
        let dir = Arc::new(SimDir::new());
        dir.stop_at(operation);
        Log::open_in(dir.clone(), options(1)).err();
        let left = Arc::new(dir.crash(plimsoll_sync::Crash::Process, 1));
        let (log, _) = Log::open_in(left, options(2)).unwrap();
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
