//! Looking at a log that is not open here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_log::{Corruption, Error, Log, Options, Retain, SegmentReport, SegmentState, View};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Crash, Dir};

use crate::common::{append_to, driven, payload, scratch, small};
use crate::wrapped::{Call, Wrapped};

#[test]
fn somebody_else_can_look_at_a_log_that_is_open() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=500 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    let view = View::open(dir.path()).unwrap();
    let mut reader = view.read_from(1).unwrap();
    for index in 1..=500 {
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.index, record.payload), (index, &payload(index)[..]));
    }
    let end = reader.next_record().unwrap();
    assert!(end.is_none(), "{end:?}");
    for index in 501..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    for index in 501..=1000 {
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.index, record.payload), (index, &payload(index)[..]));
    }
    let reports = view.verify(&|_, _| {}).unwrap();
    assert_eq!(reports.last().unwrap().last_index, 1000);
}

#[test]
fn an_outline_says_what_verify_says_and_reads_only_the_newest_segment() {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir.clone(), small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.truncate_after(900).unwrap();
    log.close().unwrap();
    let view = View::of(dir).unwrap();
    let (outline, verified) = (view.outline().unwrap(), view.verify(&|_, _| {}).unwrap());
    let said = |reports: &[SegmentReport]| -> Vec<_> {
        let said = |report: &SegmentReport| {
            let range = (report.first_index, report.last_index, report.generation);
            (report.segment.clone(), range, report.segment_bytes, report.state.clone())
        };
        reports.iter().map(said).collect()
    };
    assert_eq!(said(&outline), said(&verified));
    let newest = outline.last().unwrap();
    assert_eq!(
        (newest.last_index, newest.durable, newest.generation),
        (900, 900, view.generation())
    );
}

#[test]
fn every_damaged_head_is_reported_not_only_the_first() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.close().unwrap();
    let reports = View::open(dir.path()).unwrap().verify(&|_, _| {}).unwrap();
    for number in [1, 3, reports.len() - 1] {
        let path = dir.path().join(&reports[number].segment);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let view = View::open(dir.path()).unwrap();
    for reports in [view.verify(&|_, _| {}).unwrap(), view.outline().unwrap()] {
        let is_corrupt = |report: &&SegmentReport| matches!(report.state, SegmentState::Corrupt(_));
        let damaged: Vec<_> =
            reports.iter().filter(is_corrupt).map(|report| &report.segment).collect();
        let expected = [1, 3, reports.len() - 1].map(|number| &reports[number].segment);
        assert_eq!(damaged, expected, "{reports:#?}");
    }
}

#[test]
fn no_flipped_bit_makes_a_look_panic_or_a_reader_lie() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=4 {
        log.append_batch(&[payload(index % 5 + 1), vec![7; 9]]).unwrap();
    }
    log.close().unwrap();
    let view = View::open(dir.path()).unwrap();
    let reports = view.verify(&|_, _| {}).unwrap();
    let read = |view: &View| {
        let mut records = Vec::new();
        let Ok(mut reader) = view.read_from(1) else { return records };
        while let Ok(Some(record)) = reader.next_record() {
            records.push((record.index, record.payload.to_vec()));
        }
        records
    };
    let whole = read(&view);
    let path = dir.path().join(&reports[0].segment);
    let bytes = std::fs::read(&path).unwrap();
    let end = usize::try_from(reports[0].records_end).unwrap() + 64;
    for at in (0..64).chain(4096..end).step_by(2) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at / 2 % 8);
        std::fs::write(&path, flipped).unwrap();
        let view = View::open(dir.path()).unwrap();
        let reports = view.verify(&|_, _| {}).unwrap();
        assert!(!reports.is_empty(), "byte {at}");
        assert_eq!(view.outline().unwrap(), reports, "byte {at}: there is but one segment");
        view.dump(&reports[0], |_| Ok::<_, Error>(())).unwrap();
        let read = read(&view);
        assert!(whole.starts_with(&read), "byte {at}");
        // What is not there is missed, unless nobody ever said that it was durable.
        let missed = matches!(reports[0].state, SegmentState::Corrupt(_) | SegmentState::Torn(_));
        assert!(missed || read.len() == whole.len(), "byte {at}: {reports:?}");
    }
}

/// Each look once read the whole newest segment.
#[test]
fn whoever_waits_at_the_end_of_anothers_log_reads_little_each_time_and_misses_nothing() {
    let dir = Arc::new(SimDir::new());
    let options = Options { segment_bytes: 8 << 20, ring_bytes: 4 << 20, ..Options::default() };
    let (log, _) = Log::open_in(dir.clone(), options).unwrap();
    for index in 1..=4000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    let view = View::of(dir.clone()).unwrap();
    let mut reader = view.read_from(1).unwrap();
    while reader.next_record().unwrap().is_some() {}
    let before = dir.operations();
    assert!(reader.next_record().unwrap().is_none());
    let operations = dir.operations() - before;
    assert!(operations < 20, "{operations}");
    for index in 4001..=4010 {
        log.append(&payload(index)).unwrap();
        log.sync().unwrap();
        assert_eq!(reader.next_record().unwrap().unwrap().index, index);
        assert!(reader.next_record().unwrap().is_none());
    }
}

/// The rest of the batch was once walked for each of its records.
#[test]
fn a_batch_is_walked_once_however_many_records_it_has() {
    let dir = Arc::new(SimDir::new());
    let options = Options { segment_bytes: 4 << 20, ring_bytes: 2 << 20, ..Options::default() };
    let (log, _) = Log::open_in(dir.clone(), options).unwrap();
    let batch: Vec<_> = (1..=1000).map(payload).collect();
    log.append_batch(&batch).unwrap();
    log.close().unwrap();
    let mut reader = View::of(dir.clone()).unwrap().read_from(1).unwrap();
    let before = dir.operations();
    for index in 1..=1000 {
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.index, record.payload), (index, &payload(index)[..]));
    }
    let operations = dir.operations() - before;
    assert!(operations < 20, "{operations}");
}

/// A log that nobody closed, without the segments of these numbers; and all of its segments.
fn without(gone: &[usize]) -> (Arc<SimDir>, Vec<SegmentReport>) {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir.clone(), small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    let dir = Arc::new(dir.crash(Crash::Process, 0));
    let reports = View::of(dir.clone()).unwrap().verify(&|_, _| {}).unwrap();
    gone.iter().for_each(|&number| dir.remove(&reports[number].segment).unwrap());
    (dir, reports)
}

/// Reads from a record on: the last one that was read, and what was missing then.
fn read_on(view: &View, from: u64) -> (u64, Option<Corruption>) {
    let mut last = from - 1;
    let lost = view.read_from(from).and_then(|mut reader| {
        while let Some(record) = reader.next_record()? {
            assert_eq!((record.index, record.payload), (last + 1, &payload(last + 1)[..]));
            last += 1;
        }
        Ok(())
    });
    match lost {
        Ok(()) => (last, None),
        Err(Error::Corrupt(lost)) => (last, Some(*lost)),
        Err(other) => panic!("{other:?}"),
    }
}

/// The second one was once taken for the log's end.
#[test]
fn every_hole_is_found_by_whoever_reads_towards_it_or_into_it() {
    let (dir, reports) = without(&[1, 3]);
    let view = View::of(dir.clone()).unwrap();
    for hole in [1, 3] {
        let (first, last) = (reports[hole].first_index, reports[hole].last_index);
        for from in [reports[hole - 1].first_index, first, last] {
            let (read, lost) = read_on(&view, from);
            let lost = lost.unwrap_or_else(|| panic!("{from} to {read}, and no word of {first}"));
            assert_eq!((read, &lost.records), (from.max(first) - 1, &(first..=last)), "{lost}");
        }
    }
    assert_eq!(read_on(&view, reports[4].first_index), (1000, None));
    let Err(Error::Corrupt(first)) = Log::open_in(dir, small()) else { panic!("it opens") };
    assert_eq!(*first.records.start(), reports[1].first_index);
    for said in [view.verify(&|_, _| {}).unwrap(), view.outline().unwrap()] {
        for hole in [1, 3] {
            let names = |report: &SegmentReport| match &report.state {
                SegmentState::Corrupt(lost) => *lost.records.start() == reports[hole].first_index,
                _ => false,
            };
            assert!(said.iter().any(names), "{hole}: {said:#?}");
        }
    }
}

/// What is left says where the younger of two begins, and not where the older one did.
#[test]
fn a_hole_of_two_segments_is_found_by_whoever_reads_towards_it() {
    let (dir, reports) = without(&[2, 3]);
    let view = View::of(dir).unwrap();
    for from in [1, reports[1].first_index, reports[2].first_index, reports[3].first_index] {
        let (read, lost) = read_on(&view, from);
        let lost = lost.unwrap_or_else(|| panic!("{from} to {read}, and nothing is missed"));
        assert!(read < reports[2].first_index || read == from - 1, "{from} to {read}: {lost}");
    }
}

/// What a look says while retention takes what is older than a record, and its files are used again, once
/// so many files were opened or read; `None` if the look is over before that.
fn look_beside_retention(
    moment: u64,
    keep_from: u64,
    look: impl Fn(&View) -> plimsoll_log::Result<Vec<SegmentReport>>,
) -> Option<Vec<SegmentReport>> {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir.clone(), driven()).unwrap();
    append_to(&log, 700);
    log.sync().unwrap();
    let calls = Arc::new(AtomicU64::new(u64::MAX / 2));
    let heard = Arc::clone(&calls);
    let view = View::of(Wrapped::dir(dir, move |call| {
        if matches!(call, Call::Open | Call::Read(_))
            && heard.fetch_add(1, Ordering::SeqCst) == moment
        {
            log.truncate_before(Retain::From(keep_from)).unwrap();
            append_to(&log, 1000);
            log.sync().unwrap();
        }
    }));
    let view = view.unwrap();
    calls.store(0, Ordering::SeqCst);
    let said = look(&view).unwrap_or_else(|error| panic!("{moment}: {error:?}"));
    (calls.load(Ordering::SeqCst) > moment).then_some(said)
}

/// It ended with an error of the disk, or told of damage where nothing but another segment was.
#[test]
fn retention_at_any_moment_of_a_look_is_no_damage_and_no_error() {
    let looks: [fn(&View) -> _; 2] = [|view| view.verify(&|_, _| {}), View::outline];
    // Only the oldest segment goes, or several do.
    for (look, keep_from) in looks.into_iter().flat_map(|look| [(look, 200), (look, 450)]) {
        let mut moments = 0;
        while let Some(said) = look_beside_retention(moments, keep_from, look) {
            for report in &said {
                let is_whole = match report.state {
                    SegmentState::Good | SegmentState::Closed | SegmentState::Open => true,
                    // Where the writer is.
                    SegmentState::Torn(_) => report.segment == said.last().unwrap().segment,
                    _ => false,
                };
                assert!(is_whole, "{moments}: {said:#?}");
            }
            for pair in said.windows(2) {
                assert_eq!(pair[0].last_index + 1, pair[1].first_index, "{moments}: {said:#?}");
            }
            assert!(said.last().unwrap().last_index >= 700, "{moments}: {said:#?}");
            moments += 1;
        }
        assert!(moments > 5, "{moments}");
    }
}

/// Something was damaged before a cut, and what had been cut off on purpose was called lost, in the segment
/// behind it, which was sound: marks that were older than the cut were believed.
#[test]
fn what_was_cut_off_is_not_called_lost_where_something_else_is_damaged() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    append_to(&log, 100);
    log.close().unwrap();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    log.truncate_after(60).unwrap();
    log.close().unwrap();
    let path = dir.path().join("00000000000000000001.seg");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5000..5004].copy_from_slice(b"XXXX");
    std::fs::write(&path, bytes).unwrap();
    let reports = View::open(dir.path()).unwrap().verify(&|_, _| {}).unwrap();
    let lost = |report: &SegmentReport| match &report.state {
        SegmentState::Corrupt(lost) => Some(lost.records.clone()),
        _ => None,
    };
    let lost: Vec<_> = reports.iter().filter_map(lost).collect();
    assert_eq!(lost.len(), 1, "{reports:?}");
    assert!(*lost[0].start() > 1 && *lost[0].end() == 60, "{lost:?}");
}

/// The same, where the link of the segment that cut is damaged as well: the one behind it has its own.
#[test]
fn what_was_cut_off_is_not_called_lost_behind_a_segment_without_a_link() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    append_to(&log, 100);
    log.close().unwrap();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    log.truncate_after(60).unwrap();
    append_to(&log, 70);
    log.truncate_after(65).unwrap();
    log.close().unwrap();
    for (name, at) in [("00000000000000000001.seg", 5000), ("00000000000000000061.seg", 4120)] {
        let path = dir.path().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at..at + 4].copy_from_slice(b"XXXX");
        std::fs::write(&path, bytes).unwrap();
    }
    let reports = View::open(dir.path()).unwrap().verify(&|_, _| {}).unwrap();
    let last_lost = |report: &SegmentReport| match &report.state {
        SegmentState::Corrupt(lost) => Some(*lost.records.end()),
        _ => None,
    };
    let lost: Vec<u64> = reports.iter().filter_map(last_lost).collect();
    assert_eq!(lost, [60, 65], "{reports:?}");
}
