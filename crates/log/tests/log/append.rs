//! What is appended is kept, in order, as far as it was asked for.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_log::{Ack, Clock, Error, Log, Options, Policy};
use plimsoll_simdisk::{DiskOptions, Overwriting, SimDir};
use plimsoll_sync::{Access, Dir};

use crate::common::{driven, expect, payload, scratch, small};
use crate::wrapped::Gate;

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
        assert_eq!(log.durable(), 1000);
        assert!(log.stats().segments > 5, "{:?}", log.stats());
        expect(&log, 1, 1000);
        log.close().unwrap();
        let (log, recovery) = Log::open(dir.path(), options).unwrap();
        assert_eq!((recovery.first_index, recovery.last_index), (1, 1000));
        assert!(recovery.clean && recovery.torn_tail.is_none(), "{recovery:?}");
        expect(&log, 1, 1000);
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
                        assert!(log.durable() >= index);
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

/// An append to such a log panicked.
#[test]
fn numbers_do_not_go_on_where_no_log_reaches() {
    let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
    drop(dir.create(&format!("{}.seg", u64::MAX), Access::default()).unwrap());
    let options = Options { accept_loss: true, threads: false, ..small() };
    let (log, recovery) = Log::open_in(dir, options).unwrap();
    assert_eq!(recovery.last_index, (1 << 63) - 1, "{recovery:?}");
    let refused = log.append(b"one more");
    assert!(matches!(refused, Err(Error::Exhausted { .. })), "{refused:?}");
    log.close().unwrap();
}

#[test]
fn interval_syncs_by_itself_and_the_lag_says_how_late_it_is() {
    let dir = scratch();
    let policy = Policy::Interval { max_age: Duration::from_millis(20), max_bytes: 1 << 20 };
    let (log, _) = Log::open(dir.path(), Options { policy, ..small() }).unwrap();
    log.append(b"one").unwrap();
    log.watch(1, Ack::Durable).unwrap().block().unwrap();
    assert_eq!(log.stats().lag_ns, 0);
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
    log.watch(1, Ack::Durable).unwrap().block_for(Duration::from_secs(60)).unwrap();
}

/// What is accepted and not durable was bound by the ring only, and its age by writes that return.
#[test]
fn appends_wait_at_twice_what_may_be_unsynced() {
    let max_bytes = 4096;
    let bytes = |max_age| Policy::Interval { max_age, max_bytes };
    let hour = Duration::from_secs(3600);
    let gate = Arc::new(Gate::default());
    let dir = gate.wrap(Arc::new(SimDir::new()));
    let options = Options { policy: bytes(hour), ..Options::default() };
    let (log, _) = Log::open_in(dir, options).unwrap();
    gate.shut_after(0, None);
    let refused = (0..1000).find_map(|_| log.try_append(&[1; 100]).err());
    assert!(matches!(refused, Some(Error::WouldBlock { .. })), "{refused:?}");
    let held = log.stats().ring_bytes;
    assert!((max_bytes..=2 * max_bytes).contains(&held), "{held}");
    gate.open();
    log.append(&[1; 100_000]).expect("what is larger goes alone");
    log.append(&[1; 100]).unwrap();

    let clock = Clock::manual(1);
    let policy = Policy::Interval { max_age: Duration::from_secs(1), max_bytes: 1 << 30 };
    let options = Options { policy, clock: clock.clone(), ..Options::default() };
    let gate = Arc::new(Gate::default());
    let (log, _) = Log::open_in(gate.wrap(Arc::new(SimDir::new())), options).unwrap();
    gate.shut_after(0, None);
    log.append(b"its write hangs").unwrap();
    assert!(gate.is_reached_before(|| false));
    clock.advance(Duration::from_secs(3));
    let refused = (0..1000).find_map(|_| log.try_append(b"younger").err());
    assert!(matches!(refused, Some(Error::WouldBlock { .. })), "{refused:?}");
    gate.open();
    log.append(b"once it is written").unwrap();
}

/// "Nothing was accepted" was said of a record that was, and that came twice when it was tried again.
#[test]
fn an_append_to_a_driven_log_says_whether_it_was_accepted() {
    let dir = Arc::new(SimDir::with(DiskOptions {
        capacity_bytes: Some(2 << 20),
        overwriting: Overwriting::Elsewhere { in_place_on_request: false },
        ..DiskOptions::default()
    }));
    let options = Options { policy: Policy::Always, ..driven() };
    let (log, _) = Log::open_in(dir.clone(), options).unwrap();
    log.append(b"one").unwrap();
    let other = dir.create("other", Access::default()).unwrap();
    let full = (0..512).find_map(|block| other.write_at(&[1; 4096], block << 12).err());
    assert!(full.is_some(), "there is room for more");
    let accepted = log.append(b"two").unwrap_err();
    assert!(matches!(accepted, Error::TimedOut { index: 2, .. }), "{accepted:?}");
    let refused = log.append(b"not accepted").unwrap_err();
    assert!(matches!(refused, Error::OutOfSpace { last_index: 2 }), "{refused:?}");
    drop(other);
    dir.remove("other").unwrap();
    dir.sync().unwrap();
    while log.drive().unwrap() {}
    assert_eq!(log.append(b"three").unwrap(), 3);
    assert_eq!(log.durable(), 3);
}
