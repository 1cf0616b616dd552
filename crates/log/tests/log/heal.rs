//! What a disk has lost of durable records comes back from somebody who has them.

use std::sync::{Arc, Mutex};

use plimsoll_log::{Ack, Dumped, Error, Kind, Log, Options, SegmentState, View};
use plimsoll_simdisk::{Fault, FaultKind, Moment, Operation, SimDir};
use plimsoll_sync::{Access, Crash, Dir};

use super::common::{append_to, driven, expect, names, payload, small};

const FIRST: &str = "00000000000000000001.seg";
const LAST: u64 = 400;

/// A log of three segments at least, all of it durable.
fn filled(dir: &Arc<SimDir>) -> Log {
    let (log, _) = Log::open_in(Arc::clone(dir) as Arc<dyn Dir>, driven()).unwrap();
    for last in (10..=LAST).step_by(10) {
        append_to(&log, last);
        log.sync().unwrap();
    }
    assert!(log.stats().segments >= 3);
    log
}

fn bytes_of(dir: &SimDir, name: &str) -> Vec<u8> {
    let file = dir.open(name, Access::default()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn overwrite(dir: &SimDir, name: &str, at: u64, bytes: &[u8]) {
    dir.open(name, Access::default()).unwrap().write_at(bytes, at).unwrap();
}

fn flip(dir: &SimDir, name: &str, at: u64) {
    let byte = bytes_of(dir, name)[usize::try_from(at).unwrap()];
    overwrite(dir, name, at, &[byte ^ 0x10]);
}

/// Where the frame of a record begins in its segment.
fn place_of(dir: &Arc<SimDir>, index: u64) -> u64 {
    let view = View::of(Arc::clone(dir) as Arc<dyn Dir>).unwrap();
    let mut place = None;
    for segment in view.outline().unwrap() {
        view.dump(&segment, |dumped| {
            if let Dumped::Frame { byte_offset, frame, .. } = dumped
                && (frame.kind, frame.index) == (Kind::Record, index)
            {
                place = Some(byte_offset);
            }
            Ok::<(), Error>(())
        })
        .unwrap();
    }
    place.expect("it is there")
}

fn heal(log: &Log, index: u64) -> Result<(), Error> {
    log.heal(index, |index| Some(payload(index)))
}

#[test]
fn every_flipped_byte_of_a_sealed_segment_behind_its_link_is_healed_to_what_it_was() {
    let dir = Arc::new(SimDir::new());
    let log = filled(&dir);
    let before = bytes_of(&dir, FIRST);
    let end = before.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    let seal = end - end % 8 - 200;
    for at in (4096 + 80..seal).step_by(211) {
        flip(&dir, FIRST, at);
        let damaged = log.find_damage(1).unwrap();
        assert!(damaged.len() <= 1, "{at}: {damaged:?}");
        heal(&log, 1).unwrap();
        assert_eq!(log.find_damage(1).unwrap(), []);
        // What a mark said nobody else knows: another says less in its place.
        if !damaged.is_empty() {
            let after = bytes_of(&dir, FIRST);
            assert!(
                before == after,
                "{at}: {:?}",
                before.iter().zip(&after).position(|(a, b)| a != b)
            );
        }
        expect(&log, 1, LAST);
        overwrite(&dir, FIRST, 0, &before);
    }
}

#[test]
fn blocks_that_are_gone_are_healed_whatever_stood_in_them() {
    for (bytes, left) in [(512, 0), (4096, 0), (512, 0xa5), (4096, 0x5a)] {
        let dir = Arc::new(SimDir::new());
        let log = filled(&dir);
        let before = bytes_of(&dir, FIRST);
        for nth in [2_u64, 3, 7, 11] {
            overwrite(&dir, FIRST, nth * 4096, &vec![left; bytes]);
        }
        let damaged = log.find_damage(1).unwrap();
        assert!(damaged.len() >= 3, "{damaged:?}");
        heal(&log, damaged[0].clone().min().unwrap()).unwrap();
        expect(&log, 1, LAST);
        assert_eq!(bytes_of(&dir, FIRST).len(), before.len());
        // Another look from outside says so too, and so does the next open.
        log.close().unwrap();
        let view = View::of(Arc::clone(&dir) as Arc<dyn Dir>).unwrap();
        let is_whole = |state: &SegmentState| !matches!(state, SegmentState::Corrupt(_));
        assert!(view.verify(&|_, _| ()).unwrap().iter().all(|segment| is_whole(&segment.state)));
        let (log, recovery) = Log::open_in(Arc::clone(&dir) as Arc<dyn Dir>, driven()).unwrap();
        assert!(recovery.clean);
        expect(&log, 1, LAST);
    }
}

#[test]
fn what_is_not_the_record_that_was_appended_is_refused_and_nothing_is_changed() {
    let dir = Arc::new(SimDir::new());
    let log = filled(&dir);
    // Of the same length, where the head of its frame survives.
    let at = place_of(&dir, 30) + 24;
    flip(&dir, FIRST, at + 5);
    let before = bytes_of(&dir, FIRST);
    let refuses = |record: &dyn Fn(u64) -> Option<Vec<u8>>| {
        let refused = log.heal(30, record).unwrap_err();
        assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
        assert!(bytes_of(&dir, FIRST) == before && names(&*dir, ".spare").len() <= 1);
    };
    refuses(&|_| None);
    refuses(&|_| Some(vec![7; payload(30).len()]));
    refuses(&|_| Some(payload(31)));
    // Of another length, where nothing of it does.
    overwrite(&dir, FIRST, at - 24, &[0xff; 24]);
    let before = bytes_of(&dir, FIRST);
    let refused = log.heal(30, |_| Some(payload(31))).unwrap_err();
    assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
    assert!(bytes_of(&dir, FIRST) == before);
    heal(&log, 30).unwrap();
    expect(&log, 1, LAST);
}

/// All of a segment had to be given, and of some of it nobody has anything any more, nor needs it.
#[test]
fn what_is_given_is_healed_beside_what_is_not() {
    let dir = Arc::new(SimDir::new());
    let log = filled(&dir);
    flip(&dir, FIRST, place_of(&dir, 10) + 30);
    let left = bytes_of(&dir, FIRST);
    flip(&dir, FIRST, place_of(&dir, 30) + 30);
    assert_eq!(log.find_damage(30).unwrap(), [10..=10, 30..=30]);
    log.heal(30, |index| (index > 10).then(|| payload(index))).unwrap();
    assert!(bytes_of(&dir, FIRST) == left);
    assert_eq!(log.find_damage(30).unwrap(), [10..=10]);
    heal(&log, 10).unwrap();
    expect(&log, 1, LAST);
}

#[test]
fn a_reader_that_stands_before_damage_goes_on_once_it_is_healed() {
    let dir = Arc::new(SimDir::new());
    let log = filled(&dir);
    flip(&dir, FIRST, place_of(&dir, 20) + 30);
    let mut reader = log.read_from(1).unwrap();
    for _ in 1..20 {
        reader.next_record().unwrap().unwrap();
    }
    assert!(matches!(reader.next_record(), Err(Error::Corrupt(_))));
    heal(&log, 20).unwrap();
    assert_eq!(reader.next_record().unwrap().unwrap().payload, payload(20));
    assert_eq!(reader.next_record().unwrap().unwrap().index, 21);
}

/// It met damage before its place, of which it had not asked for anything, and read nothing up to where the log knows a place by
/// heart: a replica could not be copied because of a record that everybody had let go of.
#[test]
fn a_reader_that_begins_behind_damage_reads_on_and_one_that_begins_in_it_says_so() {
    let dir = Arc::new(SimDir::new());
    let log = filled(&dir);
    let view = || View::of(Arc::clone(&dir) as Arc<dyn Dir>).unwrap();
    // A head, a payload; then a whole block.
    flip(&dir, FIRST, place_of(&dir, 20) + 9);
    flip(&dir, FIRST, place_of(&dir, 23) + 30);
    let gone = (place_of(&dir, 40) / 4096 + 1) * 4096;
    overwrite(&dir, FIRST, gone, &[0xa5; 4096]);
    let damaged = log.find_damage(1).unwrap();
    assert_eq!(damaged[..2], [20..=20, 23..=23]);
    assert!(damaged.len() == 3 && damaged[2].clone().count() > 1, "{damaged:?}");
    let is_damaged = |index: &u64| damaged.iter().any(|records| records.contains(index));
    for from in 1..=damaged[2].end() + 20 {
        let (mut reader, mut of_view) =
            (log.read_from(from).unwrap(), view().read_from(from).unwrap());
        for reader in [&mut reader, &mut of_view] {
            match reader.next_record() {
                Ok(found) => assert_eq!(found.unwrap().payload, payload(from)),
                Err(Error::Corrupt(of)) => {
                    assert!(is_damaged(&from) && of.records.contains(&from), "{from}: {of}");
                }
                Err(why) => panic!("{from}: {why}"),
            }
            assert_eq!(reader.next_index() == from, is_damaged(&from), "{from}");
        }
    }
    let mut reader = log.read_from(damaged[2].end() + 1).unwrap();
    for index in damaged[2].end() + 1..=LAST {
        assert_eq!(reader.next_record().unwrap().unwrap().payload, payload(index));
    }
    heal(&log, 20).unwrap();
    expect(&log, 1, LAST);
}

#[test]
fn the_segment_that_is_written_is_sealed_before_it_is_healed_and_appends_go_on() {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(Arc::clone(&dir) as Arc<dyn Dir>, small()).unwrap();
    append_to(&log, 40);
    log.sync().unwrap();
    flip(&dir, FIRST, place_of(&dir, 20) + 30);
    assert_eq!(log.find_damage(20).unwrap(), [20..=20]);
    heal(&log, 20).unwrap();
    append_to(&log, 300);
    log.sync().unwrap();
    expect(&log, 1, 300);
    log.close().unwrap();
    let (log, _) = Log::open_in(dir as Arc<dyn Dir>, small()).unwrap();
    expect(&log, 1, 300);
}

#[test]
fn a_crash_at_any_moment_of_healing_leaves_the_damaged_segment_or_the_whole_one() {
    let dir = Arc::new(SimDir::new());
    let log = filled(&dir);
    flip(&dir, FIRST, place_of(&dir, 20) + 30);
    // The disk itself has it so.
    dir.open(FIRST, Access::default()).unwrap().sync(plimsoll_sync::SyncMethod::Fsync).unwrap();
    let found = Arc::new(Mutex::new((0, 0)));
    let watched = Arc::clone(&found);
    dir.watch(move |moment: &Moment<'_>| {
        for (crash, seed) in [
            (Crash::Process, 0),
            (Crash::System, 1),
            (Crash::PowerCut, 2),
            (Crash::PowerCut, 3),
            (Crash::PowerCut, 4),
        ] {
            let left = Arc::new(moment.crash(crash, seed)) as Arc<dyn Dir>;
            let counts = Arc::clone(&watched);
            // This thread holds the locks of the log that heals.
            let look = move || {
                let (log, _) = Log::open_in(left, driven()).unwrap();
                assert!(log.last_index() >= LAST);
                let mut reader = log.read_from(1).unwrap();
                let mut counts = counts.lock().unwrap();
                for index in 1..=LAST {
                    match reader.next_record() {
                        Ok(record) => assert_eq!(record.unwrap().payload, payload(index)),
                        Err(Error::Corrupt(_)) if index == 20 => {
                            counts.0 += 1;
                            heal(&log, 20).unwrap();
                            expect(&log, 1, log.last_index());
                            return;
                        }
                        Err(error) => panic!("record {index}: {error}"),
                    }
                }
                counts.1 += 1;
            };
            std::thread::spawn(look).join().unwrap();
        }
    });
    heal(&log, 20).unwrap();
    // Moments after it, too.
    append_to(&log, LAST + 1);
    log.sync().unwrap();
    let (damaged, whole) = *found.lock().unwrap();
    assert!(damaged >= 9 && whole >= 9, "{damaged} {whole}");
}

#[test]
fn a_disk_that_fails_or_is_full_while_healing_leaves_the_log_as_it_was() {
    for (on, kind) in [
        (Operation::Write, FaultKind::Fail(std::io::ErrorKind::StorageFull)),
        (Operation::Sync, FaultKind::Fail(std::io::ErrorKind::Other)),
        (Operation::Rename, FaultKind::Fail(std::io::ErrorKind::Other)),
        (Operation::Create, FaultKind::Fail(std::io::ErrorKind::StorageFull)),
    ] {
        let dir = Arc::new(SimDir::new());
        let log = filled(&dir);
        flip(&dir, FIRST, place_of(&dir, 20) + 30);
        dir.inject(Fault::new(on, kind));
        assert!(matches!(heal(&log, 20), Err(Error::Disk(_))), "{on:?}");
        assert!(matches!(log.read_from(20).unwrap().next_record(), Err(Error::Corrupt(_))));
        append_to(&log, LAST + 50);
        log.sync().unwrap();
        heal(&log, 20).unwrap();
        expect(&log, 1, LAST + 50);
    }
}

#[test]
fn a_check_reads_all_that_is_full_and_says_what_of_it_is_damaged() {
    let dir = Arc::new(SimDir::new());
    let log = filled(&dir);
    let (mut next, mut segments) = (1, 0);
    while let Some(checked) = log.check(next).unwrap() {
        assert_eq!((*checked.records.start(), &checked.damaged[..]), (next, &[][..]));
        assert!(checked.bytes > 4096);
        (next, segments) = (checked.records.end() + 1, segments + 1);
    }
    assert_eq!(segments + 1, log.stats().segments, "all but the one that is written");
    // That one too, once another follows.
    assert_eq!(log.check(next).unwrap(), None);
    log.seal().unwrap();
    let at = place_of(&dir, LAST);
    let head = log.check(next).unwrap().unwrap();
    assert_eq!((head.records, &head.damaged[..]), (next..=LAST, &[][..]));
    flip(&dir, &format!("{next:020}.seg"), at + 30);
    assert_eq!(log.check(LAST).unwrap().unwrap().damaged, [LAST..=LAST]);
    heal(&log, LAST).unwrap();
    let segments = log.stats().segments;
    log.seal().unwrap();
    assert_eq!(log.stats().segments, segments, "nothing was appended since");
    expect(&log, 1, LAST);
    let at = place_of(&dir, 5);
    flip(&dir, FIRST, at + 30);
    let found = log.check(1).unwrap().unwrap();
    assert_eq!(found.damaged, [5..=5]);
    heal(&log, 5).unwrap();
    assert_eq!(log.check(1).unwrap().unwrap().damaged, []);
    // Where it begins nothing of it can be healed by record.
    overwrite(&dir, FIRST, 0, &[0x5a; 64]);
    let found = log.check(1).unwrap().unwrap();
    assert_eq!(found.damaged, [found.records]);
}

/// One byte of the segment that was written last kept a log from being opened, or had all behind it cut off.
#[test]
fn durable_records_that_are_damaged_at_an_open_are_kept_with_what_is_behind_them() {
    let [crashed, closed] = [false, true].map(|closes| {
        let written = Arc::new(SimDir::new());
        let log = filled(&written);
        append_to(&log, LAST + 30);
        log.sync().unwrap();
        if closes {
            log.close().unwrap();
            return written;
        }
        Arc::new(written.crash(Crash::Process, 0))
    });
    assert!(kept_of(&crashed) > 20);
    // It is read from near its end, so what is damaged before that is found by who reads it.
    assert!(kept_of(&closed) > 10);
}

/// In how many places a log was opened with something damaged in the segment that was written last.
fn kept_of(written: &SimDir) -> u64 {
    let name = names(written, ".seg").pop().unwrap();
    let bytes = bytes_of(written, &name);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    let open = |dir: &SimDir, keep_damaged| {
        // What is opened is its own.
        let dir = Arc::new(dir.crash(Crash::Process, 0));
        let options = Options { keep_damaged, ..driven() };
        let opened = Log::open_in(Arc::clone(&dir) as Arc<dyn Dir>, options);
        opened.map(|(log, recovery)| (log, recovery, dir))
    };
    let (mut kept, mut at_the_end) = (0, 0);
    for at in (4096 + 80..end).step_by(37) {
        let dir = written.crash(Crash::Process, 0);
        flip(&dir, &name, at);
        let Err(Error::Corrupt(lost)) = open(&dir, false) else { continue };
        let (log, recovery, dir) = match open(&dir, true) {
            Ok(opened) => opened,
            // Where nothing behind it can be read the log ends nowhere.
            Err(Error::Corrupt(still)) if still == lost => {
                at_the_end += 1;
                continue;
            }
            Err(why) => panic!("{at}: {why}"),
        };
        kept += 1;
        assert_eq!((&recovery.lost, recovery.damaged.as_ref()), (&None, Some(&*lost)), "{at}");
        let last = recovery.last_index;
        assert!(last >= *lost.records.end(), "{at}: {last}, {lost}");
        let damaged = log.find_damage(*lost.records.start()).unwrap();
        // Where it is a mark no record is.
        let first = damaged.first().map_or(*lost.records.start(), |records| *records.start());
        assert!(damaged.len() <= 1 && first == *lost.records.start(), "{at}: {damaged:?}, {lost}");
        if damaged.is_empty() {
            expect(&log, 1, last);
        }
        heal(&log, *lost.records.start()).unwrap();
        expect(&log, 1, last);
        append_to(&log, last + 3);
        log.close().unwrap();
        let (log, recovery) = Log::open_in(dir as Arc<dyn Dir>, driven()).unwrap();
        assert_eq!((recovery.last_index, recovery.lost), (last + 3, None), "{at}");
        expect(&log, 1, last + 3);
    }
    assert!(at_the_end < kept, "{kept}, {at_the_end}");
    kept
}

/// Whoever read the log from its beginning stopped there, for ever: no record was missing that anybody could have given.
#[test]
fn a_reader_goes_on_behind_a_mark_that_is_damaged() {
    let dir = Arc::new(SimDir::new());
    let log = filled(&dir);
    let view = View::of(Arc::clone(&dir) as Arc<dyn Dir>).unwrap();
    let mut marks = Vec::new();
    let segment = view.outline().unwrap().remove(0);
    view.dump(&segment, |dumped| {
        if let Dumped::Frame { byte_offset, frame, .. } = dumped
            && frame.kind == Kind::Mark
        {
            marks.push(byte_offset);
        }
        Ok::<(), Error>(())
    })
    .unwrap();
    assert!(marks.len() > 2);
    for at in marks {
        flip(&dir, FIRST, at + 8);
        expect(&log, 1, LAST);
        assert_eq!(log.find_damage(1).unwrap(), []);
    }
}

/// Of a small log, of which each record was synced, nothing in it says so: one damaged byte took all behind it for a write that was not finished.
#[test]
fn records_that_somebody_else_knows_to_be_durable_are_lost_and_not_unfinished() {
    const LAST: u64 = 8;
    let written = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(Arc::clone(&written) as Arc<dyn Dir>, driven()).unwrap();
    append_to(&log, LAST);
    log.sync().unwrap();
    let damaged = |indexes: &[u64]| {
        let dir = Arc::new(written.crash(Crash::Process, 0));
        let places: Vec<_> = indexes.iter().map(|index| place_of(&dir, *index)).collect();
        places.into_iter().for_each(|place| flip(&dir, FIRST, place + 3));
        dir as Arc<dyn Dir>
    };
    let open = |dir, durable, keep_damaged| {
        Log::open_in(dir, Options { durable, keep_damaged, ..driven() })
    };
    let (_, unfinished) = open(damaged(&[2]), 0, true).unwrap();
    assert!(unfinished.torn_tail.is_some());
    assert_eq!((unfinished.last_index, unfinished.lost), (1, None));
    for (indexes, first) in [(&[2][..], 2), (&[LAST], LAST), (&[1, 2, LAST], 1)] {
        let Err(Error::Corrupt(lost)) = open(damaged(indexes), LAST, false) else { panic!() };
        assert_eq!(lost.records, first..=LAST);
    }
    let (log, kept) = open(damaged(&[1, 2, 5]), LAST, true).unwrap();
    assert_eq!((kept.last_index, kept.lost, kept.torn_tail), (LAST, None, None));
    heal(&log, 2).unwrap();
    expect(&log, 1, LAST);
    // The end itself cannot be kept so, and what is not durable by anybody's word is unfinished still.
    let Err(Error::Corrupt(lost)) = open(damaged(&[1, LAST]), LAST, true) else { panic!() };
    assert_eq!(lost.records, LAST..=LAST);
    let (_, unfinished) = open(damaged(&[1, LAST]), LAST - 1, true).unwrap();
    assert_eq!(unfinished.last_index, LAST - 1);
    // Of what is gone the caller's word is all that is left.
    let empty = || Arc::new(SimDir::new()) as Arc<dyn Dir>;
    let Err(Error::Corrupt(lost)) = open(empty(), LAST, true) else { panic!() };
    assert_eq!(lost.records, 1..=LAST);
}

/// The log ended there, with a whole segment behind it: the hunt for what can be read went no further than its own (a trial).
#[test]
fn the_last_records_of_a_segment_that_another_follows_are_kept_though_they_are_damaged() {
    let written = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(Arc::clone(&written) as Arc<dyn Dir>, driven()).unwrap();
    append_to(&log, LAST - 1);
    // Nothing in it says that this is durable, nor what the one before the last ends with.
    log.append_with(&payload(LAST), Ack::Written).unwrap();
    let segments = View::of(Arc::clone(&written) as Arc<dyn Dir>).unwrap().outline().unwrap();
    let [.., name, next] = &names(&*written, ".seg")[..] else { panic!() };
    let last = segments.last().unwrap().first_index - 1;
    assert!(next.contains(&(last + 1).to_string()));
    // Its last byte, its head, and all from the one before it on.
    let (before, place) = (place_of(&written, last - 1), place_of(&written, last));
    for (from, bytes, first) in [(place + 30, 1, last), (place, 1, last), (before, 4096, last - 1)]
    {
        let dir = Arc::new(written.crash(Crash::Process, 0));
        flip(&dir, name, from);
        overwrite(&dir, name, from + 1, &vec![0xa5; bytes - 1]);
        let open = |keep_damaged| {
            let options = Options { durable: LAST, keep_damaged, ..driven() };
            Log::open_in(Arc::clone(&dir) as Arc<dyn Dir>, options)
        };
        let Err(Error::Corrupt(lost)) = open(false) else { panic!("{from}") };
        assert_eq!(*lost.records.start(), first);
        let (log, kept) = open(true).unwrap();
        assert_eq!((kept.last_index, kept.lost, kept.torn_tail), (LAST, None, None));
        assert_eq!(log.find_damage(last).unwrap(), [first..=last]);
        heal(&log, last).unwrap();
        expect(&log, 1, LAST);
        log.close().unwrap();
        let (log, recovery) = open(false).unwrap();
        assert!(recovery.clean);
        expect(&log, 1, LAST);
    }
}
