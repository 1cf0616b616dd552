//! Readers of one record here and one there, and readers of it all: what they are promised.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use plimsoll_log::{Error, Log, Options, Policy, Retain};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Dir};

/// Segments that are long enough for an index in their seal.
fn options() -> Options {
    let (segment_bytes, ring_bytes) = (512 << 10, 128 << 10);
    Options { policy: Policy::Never, segment_bytes, ring_bytes, ..Options::default() }
}

/// The shortest segments there are.
fn short() -> Options {
    Options { segment_bytes: 64 << 10, ring_bytes: 32 << 10, ..options() }
}

/// 1 KiB that say which record this is, and which state of the log it was written in.
fn payload(index: u64, state: u64) -> Vec<u8> {
    [index, state].into_iter().cycle().take(128).flat_map(u64::to_le_bytes).collect()
}

fn append(log: &Log, records: u64, state: u64) {
    for _ in 0..records {
        log.append(&payload(log.last_index() + 1, state)).unwrap();
    }
    log.sync().unwrap();
}

/// The state in which a record was written.
fn look_up(log: &Log, index: u64) -> Result<u64, Error> {
    let mut reader = log.read_from(index)?;
    let record = reader.next_record()?.expect("it was appended");
    let state = u64::from_le_bytes(record.payload[8..16].try_into().unwrap());
    assert_eq!((record.index, record.payload), (index, &payload(index, state)[..]));
    Ok(state)
}

#[test]
fn each_record_is_found_by_its_index_in_short_segments_and_in_long_ones() {
    for options in [short(), options()] {
        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dir, options).unwrap();
        append(&log, 2000, 1);
        for index in (1..=2000).rev().step_by(7) {
            assert_eq!(look_up(&log, index).unwrap(), 1);
        }
        log.close().unwrap();
    }
}

/// Each opened four files and read two of them from end to end.
#[test]
fn a_lookup_opens_what_it_needs_once_and_the_next_one_in_the_same_segment_nothing() {
    let dir = Arc::new(SimDir::new());
    let manual = Options { threads: false, ..options() };
    let (log, _) = Log::open_in(dir.clone(), manual).unwrap();
    append(&log, 2000, 1);
    let operations = |index| {
        let before = dir.operations();
        look_up(&log, index).unwrap();
        dir.operations() - before
    };
    // Its file, its header, the head of the next one, its seal, the record.
    assert!(operations(400) <= 8, "{}", operations(400));
    assert_eq!(operations(300), 1, "the record");
}

/// A file that is still open under the name of another would have given the records that were cut off.
#[test]
fn what_came_in_place_of_records_that_were_cut_off_is_read_and_never_those() {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir.clone(), short()).unwrap();
    append(&log, 500, 1);
    let firsts: Vec<u64> = dir
        .list()
        .unwrap()
        .iter()
        .filter_map(|name| name.strip_suffix(".seg")?.parse().ok())
        .collect();
    // Where a segment began one begins again, under the same name.
    for (state, &first) in (2..).zip(firsts.iter().skip(1).rev()) {
        let last = log.last_index();
        for index in first - 1..=last {
            look_up(&log, index).unwrap();
        }
        log.truncate_after(first - 1).unwrap();
        append(&log, last + 1 - first, state);
        for index in first..=last {
            assert_eq!(look_up(&log, index).unwrap(), state, "record {index}");
        }
        assert!(look_up(&log, first - 1).unwrap() < state);
    }
    log.close().unwrap();
}

#[test]
fn a_segment_that_was_read_and_used_again_is_never_read_as_the_old_one() {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir, short()).unwrap();
    for _ in 0..20 {
        append(&log, 300, 1);
        let (first, last) = (log.first_index(), log.last_index());
        for index in first..=last {
            look_up(&log, index).unwrap();
        }
        let kept = log.truncate_before(Retain::From(last - 100)).unwrap();
        assert!(kept > first);
        for index in first..kept {
            assert!(matches!(look_up(&log, index), Err(Error::OutOfRange { .. })), "{index}");
        }
        for index in kept..=last {
            look_up(&log, index).unwrap();
        }
    }
    log.close().unwrap();
}

/// Whoever looks a record up after a cut has returned does not get what was cut off, whatever other
/// readers opened meanwhile.
#[test]
fn lookups_beside_truncations_at_both_ends_find_what_is_there_at_the_time() {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir, short()).unwrap();
    append(&log, 300, 0);
    // From this record on nothing is older than this state.
    let cut = [AtomicU64::new(u64::MAX), AtomicU64::new(0)];
    let over = AtomicBool::new(false);
    let found = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (log, cut, over, found) = (&log, &cut, &over, &found);
            scope.spawn(move || {
                let mut number = reader;
                while !over.load(SeqCst) {
                    number = (number + 1) * 31 % 1009;
                    let oldest = cut[1].load(SeqCst);
                    let from = cut[0].load(SeqCst);
                    let (first, last) = (log.first_index(), log.last_index());
                    let index = first + number % (last + 1 - first).max(1);
                    let Ok(mut reader) = log.read_from(index) else { continue };
                    match reader.next_record() {
                        // The last: a cut reached below the record since the reader began.
                        Ok(None) | Err(Error::OutOfRange { .. } | Error::Truncated { .. }) => {}
                        Ok(Some(record)) => {
                            let state = record.payload[8..16].try_into().unwrap();
                            let state = u64::from_le_bytes(state);
                            assert_eq!(record.payload, &payload(index, state)[..]);
                            assert!(index < from || state >= oldest, "{index}: {state}");
                            found.fetch_add(1, SeqCst);
                        }
                        Err(error) => panic!("record {index}: {error}"),
                    }
                }
            });
        }
        for state in 1..=200 {
            let (first, last) = (log.first_index(), log.last_index());
            let after = last - (last - first) / 3;
            log.truncate_after(after).unwrap();
            // First the place, so that nobody holds an old one against a new state.
            cut[0].store(u64::MAX, SeqCst);
            cut[1].store(state, SeqCst);
            cut[0].store(after + 1, SeqCst);
            append(&log, 150, state);
            log.truncate_before(Retain::From(log.last_index() - 200)).unwrap();
        }
        over.store(true, SeqCst);
    });
    assert!(found.load(SeqCst) > 0);
    log.close().unwrap();
}

/// Two threads check then, and the one who reads has to meet what one of them found as if it had been
/// alone.
#[test]
fn damage_is_met_at_the_same_place_and_named_alike_whether_one_thread_checks_or_two() {
    let (segment_bytes, ring_bytes) = (6 << 20, 1 << 20);
    let long = |threads| Options { segment_bytes, ring_bytes, threads, ..options() };
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir.clone(), long(true)).unwrap();
    // What is damaged lies so far back that it is not read when the log opens.
    for _ in 0..13 {
        append(&log, 1000, 1);
    }
    log.close().unwrap();
    // How far it is read, and why no further.
    let read = |threads| {
        let (log, _) = Log::open_in(dir.clone(), long(threads)).unwrap();
        let mut reader = log.read_from(1).unwrap();
        let mut last = 0;
        let why = loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    assert_eq!(
                        (record.index, record.payload),
                        (last + 1, &payload(last + 1, 1)[..])
                    );
                    last = record.index;
                }
                Ok(None) => break None,
                Err(error) => break Some(format!("{error:?}")),
            }
        };
        let again = reader.next_record().map(|_| ()).map_err(|error| format!("{error:?}"));
        assert_eq!(again.err(), why, "it stays there");
        log.close().unwrap();
        (last, why)
    };
    assert_eq!(read(true), (13_000, None));
    let file = dir.open(&dir.list().unwrap()[0], Access::default()).unwrap();
    // In payloads, checksums, indexes, lengths and kinds.
    let in_frames = [500, 0, 8, 16, 18, 23].into_iter().cycle().take(12);
    for (number, in_frame) in (0_u64..).zip(in_frames) {
        let at = 4096 + 80 + (1300 + number * 350) * 1048 + in_frame;
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 0x41], at).unwrap();
        let alone = read(false);
        assert!(alone.0 < 6000 && alone.1.is_some(), "byte {at}: {alone:?}");
        assert_eq!(read(true), alone, "byte {at}");
        file.write_at(&byte, at).unwrap();
    }
}
