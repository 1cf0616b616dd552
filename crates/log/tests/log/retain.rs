//! Retention: the oldest records go.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_log::{Clock, Error, Log, Options, Retain};
use plimsoll_simdisk::SimDir;

use crate::common::{append_to, driven, expect, payload, scratch, small};

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
    expect(&log, first, 1000);
    assert!(matches!(slow.next_record(), Err(Error::OutOfRange { .. })));
    // Old files are used again, and nothing of theirs comes back.
    for index in 1001..=2000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    expect(&log, first, 2000);
    let first = log.truncate_before(Retain::Bytes(128 << 10)).unwrap();
    assert!(log.stats().segments <= 2);
    log.close().unwrap();
    let (log, recovery) = Log::open(dir.path(), small()).unwrap();
    assert_eq!((recovery.first_index, recovery.last_index), (first, 2000));
    expect(&log, first, 2000);
}

#[test]
fn retention_by_age_keeps_what_is_younger() {
    let clock = Clock::manual(7);
    let options = Options { clock: clock.clone(), threads: false, ..small() };
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), options).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
        clock.advance(Duration::from_secs(1));
    }
    log.sync().unwrap();
    let first = log.truncate_before(Retain::Age(Duration::from_secs(300))).unwrap();
    assert!((400..=701).contains(&first), "{first}");
    expect(&log, first, 1000);
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
    expect(&log, first, 1000);
}

/// A segment that had been begun while the clock was ahead looked young for as long as that: nothing was
/// taken behind it, nor before it.
#[test]
fn a_clock_that_was_ahead_once_does_not_end_retention_by_age() {
    let dir = Arc::new(SimDir::new());
    let years = |years: u64| Duration::from_secs(years * 365 * 24 * 3600);
    // Each has random numbers of its own.
    let open_at = |seed, time: Duration| {
        let clock = Clock::manual(seed);
        clock.advance(time);
        let options = Options { clock: clock.clone(), ..driven() };
        (Log::open_in(dir.clone(), options).unwrap().0, clock)
    };
    let (log, clock) = open_at(1 << 20, years(1));
    append_to(&log, 300);
    clock.advance(years(10));
    append_to(&log, 600);
    log.close().unwrap();
    let (log, clock) = open_at(2 << 20, years(1) + Duration::from_secs(1));
    for last in 601..=1200 {
        append_to(&log, last);
        clock.advance(Duration::from_secs(1));
    }
    let all = log.first_index();
    assert_eq!(log.truncate_before(Retain::Age(years(1))).unwrap(), all, "all of it is young");
    let first = log.truncate_before(Retain::Age(Duration::from_secs(300))).unwrap();
    assert!((700..=901).contains(&first), "{first}: five minutes are 300 records");
    log.sync().unwrap();
    expect(&log, first, 1200);
    log.close().unwrap();
}
