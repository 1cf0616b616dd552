//! Whose turn it is when there is no room.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use plimsoll_log::{Ack, Error, Log, Options, Policy};
use plimsoll_simdisk::SimDir;

use crate::common::small;
use crate::wrapped::Gate;

/// A record that needed half of the ring waited until all small ones happened to pause: whatever was small
/// went first, for as long as somebody had some.
#[test]
fn what_a_record_of_half_the_ring_waits_for_nothing_that_came_later_takes() {
    const SMALL: usize = 16;
    const RING_BYTES: u64 = 256 << 10;
    for policy in [Policy::everysec(), Policy::Always] {
        let gate = Arc::new(Gate::default());
        let dir = gate.wrap(Arc::new(SimDir::new()));
        let (log, _) = Log::open_in(
            dir,
            Options { policy, ring_bytes: RING_BYTES, segment_bytes: 1 << 20, ..small() },
        )
        .unwrap();
        let largest = usize::try_from(log.max_record_bytes()).unwrap();
        log.append_with(&[1; 100], Ack::Durable).unwrap();
        // Nothing leaves the ring any more, and more than half of it is taken.
        gate.shut_after(0, None);
        for _ in 0..2 {
            log.append_with(&vec![2; largest / 2 + 200], Ack::Buffered).unwrap();
        }
        let (is_served, all_tried) = (AtomicBool::new(false), Barrier::new(SMALL));
        thread::scope(|scope| {
            let (log, gate, is_served, all_tried) = (&log, &gate, &is_served, &all_tried);
            let large = scope.spawn(|| log.append_with(&vec![3; largest], Ack::Buffered).unwrap());
            // Once it waits, nothing small gets in any more.
            let before = loop {
                match log.try_append(&[4]) {
                    Ok(_) => thread::park_timeout(Duration::from_millis(1)),
                    Err(Error::WouldBlock { behind_bytes }) => {
                        assert!(behind_bytes + 100 < RING_BYTES, "there is room for what is small");
                        break log.last_index();
                    }
                    Err(error) => panic!("{error:?}"),
                }
            };
            let small = || {
                let refused =
                    (0..100).all(|_| matches!(log.try_append(&[4]), Err(Error::WouldBlock { .. })));
                all_tried.wait();
                gate.open();
                assert!(refused, "something small took the room that a large record waits for");
                // As fast as can be, and whatever it takes: the large one is not kept out by it.
                let served = (0..100_000).any(|_| {
                    log.append_with(&[5; 100], Ack::Buffered).unwrap();
                    is_served.load(SeqCst)
                });
                assert!(served, "{policy:?}: so much came later and went first");
            };
            let small: Vec<_> = (0..SMALL).map(|_| scope.spawn(small)).collect();
            assert!(large.join().unwrap() > before);
            is_served.store(true, SeqCst);
            small.into_iter().for_each(|small| small.join().unwrap());
        });
        log.close().unwrap();
    }
}

/// And what is small is not kept from a ring that has room for it by a large record that was served.
#[test]
fn large_records_and_small_ones_are_all_served_where_both_come_all_the_time() {
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), small()).unwrap();
    let largest = usize::try_from(log.max_record_bytes()).unwrap();
    thread::scope(|scope| {
        for thread in 0..6 {
            let (log, bytes) = (&log, if thread < 2 { largest } else { 100 });
            scope.spawn(move || {
                for _ in 0..40 {
                    log.append_with(&vec![7; bytes], Ack::Buffered).unwrap();
                }
            });
        }
    });
    assert_eq!(log.last_index(), 240);
    log.close().unwrap();
}
