//! Cutting off the newest records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use plimsoll_log::{Ack, Clock, Error, Log, Options};
use plimsoll_simdisk::SimDir;

use crate::common::{append_to, driven, expect, payload, scratch, small};
use crate::wrapped::Gate;

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
        assert_eq!((log.last_index(), log.durable()), (cut, cut));
        expect(&log, 1, cut);
        assert!(matches!(log.wait(cut + 1, Ack::Durable), Err(Error::OutOfRange { .. })));
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
    expect(&log, 1, 1);
}

/// A cut to the last record of a segment puts the new one in the place of the next, by the same name.
/// What came behind that one was removed afterwards; a process killed in between left a log whose
/// first and last files fitted each other, and which had its cut-off records again.
#[test]
fn a_cut_between_two_segments_is_whole_at_every_moment() {
    let build = |stop: Option<u64>| {
        let dir = Arc::new(SimDir::new());
        let options = Options { threads: false, clock: Clock::manual(3), ..small() };
        let (log, _) = Log::open_in(dir.clone(), options).unwrap();
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
        let (log, recovery) = Log::open_in(Arc::new(left), options).unwrap();
        assert!(recovery.last_index >= cut, "stopped at {stop}: {recovery:?}");
        let last = recovery.last_index;
        log.sync().unwrap();
        expect(&log, 1, last);
        assert_eq!(log.append_with(&payload(last + 1), Ack::Durable).unwrap(), last + 1);
        expect(&log, 1, last + 1);
    }
}

/// A cut held up every appender, also those that wait for nothing, while it wrote a whole file.
#[test]
fn appends_to_memory_return_while_a_cut_is_at_the_disk() {
    let mut held_up = 0;
    for calls in 0.. {
        let gate = Arc::new(Gate::default());
        let dir = gate.wrap(Arc::new(SimDir::new()));
        let (log, _) = Log::open_in(dir, small()).unwrap();
        append_to(&log, 200);
        log.sync().unwrap();
        let (log, gate) = (&log, &*gate);
        let is_over = AtomicBool::new(false);
        let was_reached = thread::scope(|scope| {
            let is_over = &is_over;
            let cut = scope.spawn(move || {
                gate.shut_after(calls, Some(thread::current().id()));
                log.truncate_after(100).unwrap();
                is_over.store(true, SeqCst);
            });
            let was_reached = gate.is_reached_before(|| is_over.load(SeqCst));
            if was_reached {
                let (tell, told) = mpsc::channel();
                scope.spawn(move || {
                    let index = log.append_with(b"meanwhile", Ack::Buffered).unwrap();
                    tell.send(index).unwrap();
                });
                let returned = told.recv_timeout(Duration::from_secs(60));
                let is_held = !is_over.load(SeqCst);
                // Or the threads would be waited for.
                gate.open();
                let index = returned.unwrap_or_else(|_| panic!("call {calls} holds appends up"));
                assert!(is_held, "the cut was not over");
                assert!(index == 101 || index == 201, "{index}");
            }
            gate.open();
            cut.join().unwrap();
            was_reached
        });
        log.sync().unwrap();
        // What came while the records were being cut goes with them or stays behind them.
        let last = log.last_index();
        assert!(last == 100 || last == 101, "{last}");
        let mut reader = log.read_from(100).unwrap();
        assert_eq!(reader.next_record().unwrap().unwrap().payload, payload(100));
        if last == 101 {
            assert_eq!(reader.next_record().unwrap().unwrap().payload, b"meanwhile");
        }
        assert!(reader.next_record().unwrap().is_none());
        if !was_reached {
            break;
        }
        held_up += 1;
    }
    assert!(held_up >= 4, "{held_up}: the write, the sync, the note, the name");
}

/// A reader that was asked again only after others had come in place of what it had read went on with the
/// one behind them, and said nothing.
#[test]
fn a_reader_is_told_that_what_it_read_was_cut_off_and_others_have_come() {
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), driven()).unwrap();
    append_to(&log, 10);
    log.sync().unwrap();
    let mut reader = log.read_from(1).unwrap();
    let mut follower = log.follow(1, Ack::Durable).unwrap();
    let mut behind = log.read_from(1).unwrap();
    for index in 1..=10 {
        assert_eq!(reader.next_record().unwrap().unwrap().index, index);
        assert_eq!(follower.next_record().unwrap().index, index);
    }
    (1..=5).for_each(|_| assert!(behind.next_record().unwrap().is_some()));
    log.truncate_after(5).unwrap();
    append_to(&log, 12);
    log.sync().unwrap();
    for _ in 0..2 {
        let told = reader.next_record().unwrap_err();
        assert!(matches!(told, Error::Truncated { index: 10 }), "{told:?}");
        let told = follower.next_record().unwrap_err();
        assert!(matches!(told, Error::Truncated { index: 10 }), "{told:?}");
    }
    for index in 6..=12 {
        assert_eq!(behind.next_record().unwrap().unwrap().index, index, "it had read what stays");
    }
}
