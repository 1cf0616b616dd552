//! Damaged files: every byte of a log flipped, every length of its files tried, files taken away,
//! mixed up and replaced. The verdict is always clear: what is read is what was appended, and what a
//! mark calls durable is read or named as lost.
//!
//! A log that was closed has a note of its end, and misses whatever is not there any more. What nothing
//! that is left speaks of cannot be missed: without the note, as after a crash, a log without its newest
//! file looks like one that never had it; and one without its oldest file like one after retention.

mod fixture;

use std::sync::Arc;

use plimsoll_log::{Ack, Corruption, Damage, Error, Options, SegmentState, View};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Dir};
use twox_hash::XxHash3_64;

use fixture::{CLOSED, Fixture, SEGMENT_BYTES, Said, Verdict, disk, open, options, payload};

#[test]
fn the_fixtures_are_what_they_should_be() {
    let full = Fixture::full();
    assert_eq!(full.files.len(), 3);
    assert_eq!(full.judge("full", &full.dir, full.records.len() as u64), Verdict::Whole);
    let cut = Fixture::cut();
    assert_eq!(cut.files.len(), 4);
    assert_eq!(cut.judge("cut", &cut.dir, cut.records.len() as u64), Verdict::Whole);
    for (name, said) in full.files.iter().chain(&cut.files) {
        println!("{name} {} frames {} bytes", said.len(), said.last().unwrap().end);
    }
}

#[test]
fn every_flipped_byte_of_a_small_log_is_seen_or_does_not_matter() {
    for small in [Fixture::cut(), Fixture::cut().without_note()] {
        let counts = small.flip_bytes(|_, _| true);
        println!("{counts:?}");
        assert!(counts.corrupt > 0 && counts.corrupt_when_read > 0 && counts.whole > 0);
    }
}

#[test]
fn every_length_of_the_files_of_a_small_log_gets_a_verdict() {
    for small in [Fixture::cut(), Fixture::cut().without_note()] {
        let counts = small.shorten_files(|_, _| true);
        println!("{counts:?}");
        assert!(counts.corrupt > 0 && counts.corrupt_when_read > 0 && counts.whole > 0);
    }
}

/// The header, every head of a frame and what is no record, and some of what is in the records.
fn choose(full: &Fixture, file: &str, at: u64) -> bool {
    let in_head = |said: &Said| {
        let small = said.end - said.start < 128;
        (said.start..if small { said.end } else { said.start + 26 }).contains(&at)
    };
    at < 72 || at.is_multiple_of(397) || full.files[file].iter().any(in_head)
}

#[test]
fn flipped_bytes_of_full_segments_are_seen_when_they_are_read() {
    // Each place once, with the note or without it.
    for (odd, full) in [(0, Fixture::full()), (1, Fixture::full().without_note())] {
        let counts = full.flip_bytes(|file, at| at % 2 == odd && choose(&full, file, at));
        println!("{counts:?}");
        assert!(counts.corrupt > 0 && counts.corrupt_when_read > 0 && counts.whole > 0);
    }
}

#[test]
fn shortened_files_of_full_segments_get_a_verdict() {
    for (odd, full) in [(0, Fixture::full()), (1, Fixture::full().without_note())] {
        let counts = full.shorten_files(|file, at| at % 2 == odd && choose(&full, file, at));
        println!("{counts:?}");
        assert!(counts.corrupt > 0 && counts.corrupt_when_read > 0 && counts.whole > 0);
    }
}

fn bytes_of(dir: &SimDir, name: &str) -> Vec<u8> {
    let file = dir.open(name, Access::default()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn put(dir: &SimDir, name: &str, bytes: &[u8]) {
    if dir.list().unwrap().iter().any(|there| there == name) {
        dir.remove(name).unwrap();
    }
    dir.create(name, Access::default()).unwrap().write_at(bytes, 0).unwrap();
}

#[test]
fn a_middle_file_that_is_gone_is_missed_and_named() {
    let full = Fixture::full();
    let names: Vec<_> = full.files.keys().cloned().collect();
    let dir = full.damaged(|dir| dir.remove(&names[1]).unwrap());
    let Error::Corrupt(wrong) = open(&dir, options()).unwrap_err() else { panic!() };
    let first = |name: &str| name[..20].parse::<u64>().unwrap();
    assert_eq!(wrong.records, first(&names[1])..=first(&names[2]) - 1, "{wrong}");
    assert_eq!(full.judge("the middle is gone", &dir, 0), Verdict::Corrupt);
}

#[test]
fn what_is_left_of_missing_ends_is_read_to_its_end() {
    for full in [Fixture::full(), Fixture::full().without_note()] {
        let names: Vec<_> = full.files.keys().cloned().collect();
        let newest = [&names[1..], &names[2..], &names[..]];
        let newest = newest.into_iter().filter(|_| !full.is_noted);
        for gone in [&names[..1], &names[..2]].into_iter().chain(newest) {
            let dir = full.damaged(|dir| gone.iter().for_each(|name| dir.remove(name).unwrap()));
            let left = names.iter().filter(|name| !gone.contains(name));
            let durable = left.map(|name| full.durable_of(name)).max().unwrap_or(0);
            assert_eq!(full.judge(&format!("without {gone:?}"), &dir, durable), Verdict::Whole);
        }
    }
}

/// A log that had been closed and lost its newest file, or all of them, opened as a shorter or a new one.
#[test]
fn newest_files_that_are_gone_are_missed_by_the_note_of_the_end() {
    let full = Fixture::full();
    let names: Vec<_> = full.files.keys().cloned().collect();
    let last = full.records.len() as u64;
    let first = |name: &str| name[..20].parse::<u64>().unwrap();
    for gone in [&names[2..], &names[1..], &names[..]] {
        let dir = full.damaged(|dir| gone.iter().for_each(|name| dir.remove(name).unwrap()));
        let Error::Corrupt(wrong) = open(&dir, options()).unwrap_err() else { panic!() };
        assert_eq!(wrong.records, first(&gone[0])..=last, "{wrong}");
        assert_eq!(*viewed(&full, &dir).unwrap_err().records.start(), first(&gone[0]));
        assert_eq!(full.judge(&format!("without {gone:?}"), &dir, last), Verdict::Corrupt);
    }
}

/// The note is a help, and no record hangs on it.
#[test]
fn a_note_of_the_end_that_is_damaged_says_nothing_and_harms_nothing() {
    let cut = Fixture::cut();
    let last = cut.records.len() as u64;
    let note = bytes_of(&cut.dir, CLOSED);
    for at in 0..note.len() {
        let mut flipped = note.clone();
        flipped[at] ^= 1 << (at % 8);
        for (what, bytes) in [("flipped", &flipped[..]), ("cut", &note[..at])] {
            let dir = cut.damaged(|dir| put(dir, CLOSED, bytes));
            assert_eq!(cut.judge(&format!("{what} at {at}"), &dir, last), Verdict::Whole);
        }
    }
    let long = [&note[..], &vec![7; 1 << 20]].concat();
    let dir = cut.damaged(|dir| put(dir, CLOSED, &long));
    assert_eq!(cut.judge("far too long", &dir, last), Verdict::Whole);
}

/// The end of another log, or of this one before it was cut, is none of this one's business.
#[test]
fn a_note_of_another_end_is_not_believed() {
    let cut = Fixture::cut();
    let last = cut.records.len() as u64;
    let other = Fixture::full();
    let foreign = bytes_of(&other.dir, CLOSED);
    let dir = cut.damaged(|dir| put(dir, CLOSED, &foreign));
    assert_eq!(cut.judge("the end of another log", &dir, last), Verdict::Whole);
    // Closed, opened, cut off, and the old note is back.
    let old = bytes_of(&cut.dir, CLOSED);
    let dir = cut.damaged(|_| ());
    let (log, _) = open(&dir, options()).unwrap();
    log.truncate_after(last - 3).unwrap();
    log.close().unwrap();
    put(&dir, CLOSED, &old);
    let (_, recovery) = open(&dir, options()).unwrap();
    assert_eq!((recovery.last_index, recovery.torn_tail), (last - 3, None));
}

#[test]
fn files_that_are_mixed_up_zeroed_or_of_another_log_give_no_wrong_record() {
    let full = Fixture::full();
    let other = Fixture::new(99, |log, records| {
        for index in 1..=120 {
            records.push(payload(index, 9, 1200));
            log.append_with(&records[records.len() - 1], Ack::Durable).unwrap();
        }
    });
    let names: Vec<_> = full.files.keys().cloned().collect();
    let bytes: Vec<_> = names.iter().map(|name| bytes_of(&full.dir, name)).collect();
    let foreign: Vec<_> = other.files.keys().map(|name| bytes_of(&other.dir, name)).collect();
    let odd = [2, 1 << 62, 1 << 63, (1 << 63) + 1, u64::MAX].map(|odd| format!("{odd:020}.seg"));
    // What is left of the marks is what is in files that were left alone.
    let mut cases = 0;
    let mut judge = |case: String, touched: &[&String], change: &dyn Fn(&SimDir)| {
        let alone = names.iter().filter(|name| !touched.contains(name));
        let durable = alone.map(|name| full.durable_of(name)).max().unwrap_or(0);
        cases += 1;
        full.judge(&case, &full.damaged(change), durable)
    };
    for (number, name) in names.iter().enumerate() {
        let len = bytes[number].len();
        let half = [&bytes[number][..len / 2], &vec![0; len - len / 2]].concat();
        let mut headless = bytes[number].clone();
        headless[..4096].fill(0);
        let contents = [("nothing", vec![]), ("zeros", vec![0; len]), ("half", half)];
        for (what, content) in contents.into_iter().chain([("no header", headless)]) {
            judge(format!("{what} in {name}"), &[name], &|dir| put(dir, name, &content));
        }
        for (at, content) in foreign.iter().enumerate() {
            let verdict = judge(format!("{name} of another log ({at})"), &[name], &|dir| {
                put(dir, name, content);
            });
            assert_ne!(verdict, Verdict::Whole, "{name} of another log ({at})");
        }
        for (from, content) in bytes.iter().enumerate().filter(|(from, _)| *from != number) {
            judge(format!("file {from} in place of {name}"), &[name], &|dir| {
                put(dir, name, content);
            });
        }
        for swapped in &names[number + 1..] {
            judge(format!("{name} and {swapped} swapped"), &[name, swapped], &|dir| {
                dir.rename(name, "x").unwrap();
                dir.rename(swapped, name).unwrap();
                dir.rename("x", swapped).unwrap();
            });
        }
        for odd in &odd {
            judge(format!("{name} called {odd}"), &[name], &|dir| dir.rename(name, odd).unwrap());
            let content = &bytes[number];
            judge(format!("{name} also called {odd}"), &[], &|dir| put(dir, odd, content));
            judge(format!("zeros called {odd}"), &[], &|dir| put(dir, odd, &[0; 65536]));
        }
    }
    for junk in ["x", "probe.tmp", "0000000000000000.spare", "lock.seg", "1.seg"] {
        let verdict = judge(format!("junk called {junk}"), &[], &|dir| put(dir, junk, b"junk"));
        assert_eq!(verdict, Verdict::Whole, "junk called {junk}");
    }
    println!("{cases} cases");
}

/// Changes a byte of a file.
fn flip(dir: &SimDir, name: &str, at: u64) {
    let file = dir.open(name, Access::default()).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ 0xff], at).unwrap();
}

/// Reads with a view: how many records, and what then.
fn viewed(fixture: &Fixture, dir: &Arc<SimDir>) -> Result<u64, Corruption> {
    let view = View::of(Arc::clone(dir) as Arc<dyn Dir>).unwrap();
    let mut reader = view.read_from(1);
    fixture.read("viewed", 1, || {
        let record = reader.as_mut().map_err(|error| error.clone())?.next_record()?;
        Ok(record.map(|record| (record.index, record.payload.to_vec())))
    })
}

/// The reader of files took a batch without its last record for one that is still being written, and
/// ended there without a word.
#[test]
fn a_view_calls_a_damaged_batch_lost_and_not_late() {
    let cut = Fixture::cut();
    let name = cut.files.keys().next().unwrap();
    // Behind the link there is the batch of 1 and 2.
    let second = cut.files[name][2];
    let dir = cut.damaged(|dir| flip(dir, name, second.start));
    let wrong = viewed(&cut, &dir).unwrap_err();
    assert_eq!(*wrong.records.start(), 1, "{wrong}");
}

/// Records that were cut off stand in the file before the cut. Both the reader of files and
/// `accept_loss` read them again once the file after the cut was lost; half of a batch even where
/// its end was known.
#[test]
fn what_was_cut_off_stays_away_when_the_file_behind_the_cut_is_lost() {
    let cut = Fixture::cut();
    let name = cut.files.keys().next_back().unwrap();
    let first: u64 = name[..20].parse().unwrap();
    let dir = cut.damaged(|dir| flip(dir, name, 0));
    assert_eq!(*viewed(&cut, &dir).unwrap_err().records.start(), first);
    let accept = Options { accept_loss: true, ..options() };
    let (log, recovery) = open(&dir, accept).unwrap();
    assert_eq!(recovery.last_index, first - 1, "{recovery:?}");
    assert_eq!(cut.read_log("accepted", &log), Ok(first - 1));
}

/// The reader of files asked the link what was durable, and took its absence for the log's end.
#[test]
fn a_view_believes_marks_behind_a_damaged_link() {
    let full = Fixture::full();
    let name = full.files.keys().next_back().unwrap();
    let first: u64 = name[..20].parse().unwrap();
    let dir = full.damaged(|dir| flip(dir, name, 4096));
    let wrong = viewed(&full, &dir).unwrap_err();
    assert_eq!(*wrong.records.start(), first, "{wrong}");
}

/// One file of another log made all others foreign, if it was the oldest.
#[test]
fn one_foreign_file_among_ours_is_the_foreign_one() {
    let full = Fixture::full();
    let other = Fixture::new(99, |log, records| {
        records.push(b"another log".to_vec());
        log.append_with(b"another log", Ack::Durable).unwrap();
    });
    let name = full.files.keys().next().unwrap();
    let foreign = bytes_of(&other.dir, name);
    let dir = full.damaged(|dir| put(dir, name, &foreign));
    let Error::Corrupt(wrong) = open(&dir, options()).unwrap_err() else { panic!() };
    assert_eq!((&wrong.segment, *wrong.records.start()), (name, 1), "{wrong}");
}

/// `verify` called a log closed whose last records were zeros, though a mark behind them says that
/// they were durable.
#[test]
fn zeros_in_front_of_a_mark_are_lost_records_to_verify_as_to_open() {
    let full = Fixture::full();
    let (name, said) = full.files.iter().next_back().unwrap();
    // The last record, in front of the mark that `close` wrote.
    let (start, end) = (said[said.len() - 2].start, said[said.len() - 2].end);
    let dir = full.damaged(|dir| {
        let zeros = vec![0; usize::try_from(end - start).unwrap()];
        dir.open(name, Access::default()).unwrap().write_at(&zeros, start).unwrap();
    });
    let verdict = full.judge("zeros in front of a mark", &dir, full.durable_of(name));
    assert_eq!(verdict, Verdict::Corrupt);
}

/// A segment with a link and a record, as somebody makes it who knows the format.
fn forged(first_index: u64, record: u64) -> Vec<u8> {
    const SALT: u64 = 7;
    let mut file = b"PLIMSEG\n".to_vec();
    file.extend([1_u32.to_le_bytes(), 4096_u32.to_le_bytes()].concat());
    file.extend([0; 16]);
    file.extend([SALT, SEGMENT_BYTES, 0].map(u64::to_le_bytes).concat());
    file.extend(XxHash3_64::oneshot(&file).to_le_bytes());
    file.resize(4096, 0);
    let link = [0, 1, 0, 0, 0, first_index - 1, 0].map(u64::to_le_bytes).concat();
    for (index, kind, payload) in [(first_index, 1_u32, link), (record, 2, b"forged!!".to_vec())] {
        let mut keyed = (file.len() as u64).to_le_bytes().to_vec();
        keyed.extend(index.to_le_bytes());
        keyed.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        keyed.extend((kind << 24).to_le_bytes());
        let head = keyed[8..].to_vec();
        keyed.extend(XxHash3_64::oneshot(&payload).to_le_bytes());
        file.extend(XxHash3_64::oneshot_with_seed(SALT, &keyed).to_le_bytes());
        file.extend([head, payload].concat());
    }
    file.resize(usize::try_from(SEGMENT_BYTES).unwrap(), 0);
    file
}

/// An append to a log that began near 2^64 overflowed its next index.
#[test]
fn a_log_near_the_end_of_numbers_is_refused_or_refuses_appends() {
    let end = 1_u64 << 63;
    for first_index in [end - 3, end - 2, end - 1, end] {
        let dir = Arc::new(disk());
        put(&dir, &format!("{first_index:020}.seg"), &forged(first_index, first_index));
        let mut last = first_index.min(end - 1);
        for _ in 0..3 {
            let (log, recovery) = open(&dir, options()).unwrap();
            assert_eq!(recovery.last_index, last);
            let batch = [b"more"; 3];
            let refused = log.append_batch_with(&batch, Ack::Durable).unwrap_err();
            assert!(matches!(refused, Error::Exhausted { last_index } if last_index == last));
            if last < end - 1 {
                last += 1;
                assert_eq!(log.append_with(b"one more", Ack::Durable).unwrap(), last);
            }
            log.close().unwrap();
        }
    }
    for first_index in [end + 1, end + 2, u64::MAX - 1, u64::MAX] {
        let dir = Arc::new(disk());
        put(&dir, &format!("{first_index:020}.seg"), &forged(first_index, first_index));
        let Error::Corrupt(wrong) = open(&dir, options()).unwrap_err() else { panic!() };
        assert_eq!(wrong.damage, Damage::Index(first_index), "{wrong}");
        let view = View::of(dir.clone() as Arc<dyn Dir>).unwrap();
        let reports = view.verify(&|_, _| {}).unwrap();
        assert_eq!(reports[0].state, SegmentState::Corrupt(*wrong));
    }
}

/// What replaced a segment without a valid link counted from that segment's number, which nobody
/// knew: the next open missed a segment. (Of a log that was closed it is known that the link is lost.)
#[test]
fn a_log_whose_last_segment_never_got_its_link_opens_again_and_again() {
    let full = Fixture::full().without_note();
    let name = full.files.keys().next_back().unwrap();
    let first: u64 = name[..20].parse().unwrap();
    let dir = full.damaged(|dir| {
        dir.open(name, Access::default()).unwrap().write_at(&vec![0; 60 << 10], 4096).unwrap();
    });
    for last in first - 1..first + 2 {
        let (log, recovery) = open(&dir, options()).unwrap();
        assert_eq!(recovery.last_index, last);
        log.append(b"one more").unwrap();
        log.close().unwrap();
    }
}
