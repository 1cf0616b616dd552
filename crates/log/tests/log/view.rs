//! Looking at a log that is not open here.

use std::sync::Arc;

use plimsoll_log::{Error, Log, Options, SegmentReport, SegmentState, View};
use plimsoll_simdisk::SimDir;

use crate::common::{payload, scratch, small};

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
