//! Logs of every version stay readable: `testdata/v1` was written by the first program that wrote
//! version 1, `testdata/v1-noted` by the first that noted where a log was closed, and both are never
//! changed. (Their segments are cut where they hold only zeros; one that ends early reads as if zeros
//! followed.)
//!
//! `PLIMSOLL_WRITE_GOLDEN=1` writes `testdata/vN-noted` of the version that this program writes, if it is
//! not there.
#![cfg(not(shuttle))]

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_log::{Ack, Clock, Error, Log, Options, Policy, SegmentState, VERSION, View};

/// The note of where a log ended.
const CLOSED: &str = "closed";

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn options() -> Options {
    Options {
        policy: Policy::Always,
        segment_bytes: 64 << 10,
        ring_bytes: 32 << 10,
        threads: false,
        clock: Clock::manual(1),
        ..Options::default()
    }
}

fn payload(index: u64) -> Vec<u8> {
    format!("record {index} ").repeat(1 + usize::try_from(index % 50).unwrap()).into_bytes()
}

/// Three segments: the first is cut through by `truncate_after`, the second is sealed, the third holds
/// a batch and was closed.
fn write(dir: &Path) {
    let (log, _) = Log::open(dir, options()).unwrap();
    for index in 1..=10 {
        log.append(&payload(index)).unwrap();
    }
    log.truncate_after(5).unwrap();
    for index in 6..=400 {
        log.append_with(&payload(index), Ack::Buffered).unwrap();
        log.wait(index, Ack::Written).unwrap().block().unwrap();
    }
    let batch: Vec<Vec<u8>> = (401..=405).map(payload).collect();
    log.append_batch(&batch).unwrap();
    log.close().unwrap();
}

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let (name, bytes) = (file.file_name(), fs::read(file.path()).unwrap());
        if name.to_str().unwrap().ends_with(".seg") {
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            fs::write(to.join(name), &bytes[..used]).unwrap();
        } else if name == CLOSED {
            fs::write(to.join(name), bytes).unwrap();
        }
    }
}

/// A copy of a golden log.
fn golden(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    copy(&testdata(name), dir.path());
    dir
}

/// Verifies it, reads it, and writes it on.
fn is_read_verified_and_written_on(name: &str) {
    let dir = golden(name);
    let view = View::open(dir.path()).unwrap();
    let reports = view.verify(&|_, _| {}).unwrap();
    let states: Vec<_> = reports.iter().map(|report| &report.state).collect();
    let (last, before) = states.split_last().unwrap();
    assert_eq!(**last, SegmentState::Closed, "{reports:?}");
    assert!(before.len() >= 2 && before.iter().all(|state| **state == SegmentState::Good));
    // Whatever it was, it is a log of today once it was closed.
    for last in [405, 406] {
        let (log, recovery) = Log::open(dir.path(), options()).unwrap();
        assert!(recovery.clean, "{recovery:?}");
        assert_eq!((recovery.first_index, recovery.last_index), (1, last));
        log.append(&payload(last + 1)).unwrap();
        let mut reader = log.read_from(1).unwrap();
        for index in 1..=last + 1 {
            let record = reader.next_record().unwrap().unwrap();
            assert_eq!((record.index, record.payload), (index, &payload(index)[..]));
        }
        log.close().unwrap();
        assert!(dir.path().join(CLOSED).exists());
    }
}

#[test]
fn logs_of_version_1_are_read_verified_and_written_on() {
    assert!(!testdata("v1").join(CLOSED).exists(), "nobody noted that it was closed");
    is_read_verified_and_written_on("v1");
}

#[test]
fn logs_of_today_are_read_verified_and_written_on() {
    let name = format!("v{VERSION}-noted");
    if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() && !testdata(&name).exists() {
        let tmp = tempfile::tempdir().unwrap();
        write(tmp.path());
        fs::create_dir_all(testdata(&name)).unwrap();
        copy(tmp.path(), &testdata(&name));
    }
    is_read_verified_and_written_on("v1-noted");
}

/// The note is read: it knows of records that no file has.
#[test]
fn a_log_of_today_without_its_newest_file_is_missed_and_one_of_version_1_is_not() {
    let newest = |dir: &Path| {
        let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|is| is == "seg")).max().unwrap()
    };
    let noted = golden("v1-noted");
    let gone = newest(noted.path());
    let first: u64 = gone.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    fs::remove_file(gone).unwrap();
    let refused = Log::open(noted.path(), options()).unwrap_err();
    let Error::Corrupt(lost) = refused else { panic!("{refused:?}") };
    assert_eq!(lost.records, first..=405);
    let old = golden("v1");
    fs::remove_file(newest(old.path())).unwrap();
    let (_, recovery) = Log::open(old.path(), options()).unwrap();
    assert_eq!(recovery.last_index, first - 1);
}

/// The first block of a segment says another version, and means it: its checksum is right.
fn write_version(segment: &Path, version: u32, checksum: bool) {
    let mut bytes = fs::read(segment).unwrap();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    if checksum {
        let sum = twox_hash::XxHash3_64::oneshot(&bytes[..56]);
        bytes[56..64].copy_from_slice(&sum.to_le_bytes());
    }
    fs::write(segment, bytes).unwrap();
}

#[test]
fn a_log_of_a_newer_version_is_refused_as_that_and_not_harmed() {
    for accept_loss in [false, true] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        write(dir.path());
        let newest = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
        let newest = newest.filter(|path| path.extension().is_some_and(|is| is == "seg")).max();
        let newest = newest.unwrap();
        write_version(&newest, VERSION + 1, true);
        let before = fs::read(&newest).unwrap();
        let refused = Log::open(dir.path(), Options { accept_loss, ..options() }).unwrap_err();
        let expected = VERSION + 1;
        assert!(matches!(refused, Error::Version { version, .. } if version == expected));
        let viewed = View::open(dir.path()).and_then(|view| view.verify(&|_, _| {}));
        assert!(matches!(viewed, Err(Error::Version { .. })), "{viewed:?}");
        assert_eq!(fs::read(&newest).unwrap(), before);
        // Bits that flipped there are damage.
        write_version(&newest, VERSION, true);
        write_version(&newest, VERSION + 1, false);
        let refused = Log::open(dir.path(), options()).unwrap_err();
        assert!(matches!(refused, Error::Corrupt(_)), "{refused:?}");
    }
}
