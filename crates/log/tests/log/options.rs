//! Other options at each open.

use std::sync::Arc;

use plimsoll_log::{Ack, Clock, Error, Log, Options, Policy, Retain};
use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::Crash;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::common::{append_to, driven, expect, payload};

/// `open` failed once where sizes had changed since: what was left of the last segment was removed twice.
#[test]
fn a_log_opens_with_other_options_each_time_and_has_all_that_was_durable() {
    for seed in 0..60 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut dir =
            Arc::new(SimDir::with(DiskOptions { history_steps: 0, ..DiskOptions::default() }));
        // What must be there, and what may be.
        let (mut first, mut durable, mut last) = (1, 0, 0);
        for life in 0..12 {
            let policies = [Policy::Never, Policy::everysec(), Policy::Always];
            let options = Options {
                policy: policies[random.random_range(0..3)],
                segment_bytes: [64 << 10, 128 << 10, 68 << 10, 1 << 20][random.random_range(0..4)],
                ring_bytes: [4 << 10, 16 << 10, 256 << 10][random.random_range(0..3)],
                direct: random.random(),
                clock: Clock::manual(seed << 32 | life << 16),
                ..driven()
            };
            let case = format!("seed {seed}, life {life}: {options:?}");
            let (log, recovery) = match Log::open_in(dir.clone(), options) {
                Ok(opened) => opened,
                Err(error) => panic!("{case}: {error:?}"),
            };
            let found = recovery.last_index;
            assert!((durable..=last).contains(&found), "{case}: {durable}, {last}: {recovery:?}");
            assert_eq!(recovery.first_index, first, "{case}");
            if found > 0 {
                expect(&log, first, found);
            }
            append_to(&log, found + random.random_range(0..300));
            if random.random_ratio(1, 3) && log.last_index() > log.first_index() + 50 {
                let to = log.last_index() - random.random_range(0..50);
                log.truncate_after(to).unwrap();
                append_to(&log, to + random.random_range(0..100));
            }
            if random.random_ratio(1, 3) {
                let keep = log.last_index().saturating_sub(200);
                log.truncate_before(Retain::From(keep)).unwrap();
            }
            if random.random_ratio(1, 2) && log.last_index() >= log.first_index() {
                log.wait(log.last_index(), Ack::Written).unwrap().block().unwrap();
            }
            first = log.first_index();
            (durable, last) = (log.durable(), log.last_index());
            match random.random_range(0..3) {
                0 => {
                    log.close().unwrap();
                    durable = last;
                }
                1 => {
                    durable = log.written();
                    dir = Arc::new(dir.crash(Crash::Process, seed));
                    // The process ends here, without a word.
                    std::mem::forget(log);
                }
                _ => {
                    dir = Arc::new(dir.power_cut(seed * 100 + life));
                    std::mem::forget(log);
                }
            }
        }
    }
}

/// A file whose write or sync had failed was kept, and failed again where the next segment, or a cut, was
/// to begin in it.
#[test]
fn a_file_that_failed_is_not_used_again() {
    for on in [Operation::Write, Operation::Sync] {
        for policy in [Policy::everysec(), Policy::Always] {
            let dir = Arc::new(SimDir::new());
            let (log, _) = Log::open_in(dir.clone(), Options { policy, ..driven() }).unwrap();
            append_to(&log, 150);
            log.sync().unwrap();
            let newest = crate::common::names(&*dir, ".seg").pop().unwrap();
            // Twice: a write and its sync may be one call or two.
            dir.inject(Fault::new(on, FaultKind::FailRaw(5)).named(newest));
            append_to(&log, 400);
            log.sync().unwrap();
            let context = format!("{on}, {policy:?}: {:?}", log.stats());
            assert_eq!(log.stats().failovers, 1, "{context}");
            // What is taken away here is what later segments are made of.
            for _ in 0..4 {
                log.truncate_before(Retain::From(log.last_index())).unwrap();
                append_to(&log, log.last_index() + 300);
                log.truncate_after(log.last_index() - 10).unwrap();
            }
            log.sync().unwrap();
            assert_eq!(log.stats().failovers, 1, "{context}: a spurious one");
            let last = log.last_index();
            expect(&log, log.first_index(), last);
            log.close().unwrap();
            let (log, recovery) = Log::open_in(dir, Options { policy, ..driven() }).unwrap();
            assert_eq!(recovery.last_index, last);
            assert!(recovery.clean, "{context}");
            log.close().unwrap();
        }
    }
}

#[test]
fn a_log_that_is_made_begins_where_it_is_asked_to_and_one_that_exists_goes_on() {
    let dir = Arc::new(SimDir::new());
    let at = |first_index| Options { first_index, ..driven() };
    let (log, recovery) = Log::open_in(dir.clone(), at(1000)).unwrap();
    assert_eq!((recovery.first_index, recovery.last_index), (1000, 999));
    assert!(matches!(log.read_from(1), Err(Error::OutOfRange { first_index: 1000, .. })));
    assert_eq!(log.append(&payload(1000)).unwrap(), 1000);
    log.close().unwrap();
    let (log, _) = Log::open_in(dir.clone(), at(7)).unwrap();
    assert_eq!(log.append(&payload(1001)).unwrap(), 1001);
    expect(&log, 1000, 1000);
    log.truncate_after(999).unwrap();
    log.close().unwrap();
    let (log, _) = Log::open_in(dir, at(7)).unwrap();
    assert_eq!((log.first_index(), log.last_index()), (1000, 999), "also with no record left");
}
