//! A ring in a file: what it gives back, and whose.
#![cfg(unix)]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_log::{Ack, Clock, Error, LOCK, Log, Options, Policy, Ring};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Crash, Dir};

use crate::common::{driven, expect, payload, read_all, scratch, small};
use crate::wrapped::{Call, Wrapped};

#[test]
fn a_ring_in_a_file_gives_back_what_only_it_had() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let dir = Arc::new(SimDir::new());
    let ring = Ring::File(shm.path().join("ring"));
    let options = |ring: &Ring| Options { threads: false, ring: ring.clone(), ..small() };
    let (log, _) = Log::open_in(dir.clone(), options(&ring)).unwrap();
    for index in 1..=20 {
        log.append(&payload(index)).unwrap();
        if index == 10 {
            log.wait(index, Ack::Written).unwrap().block().unwrap();
        }
    }
    // The process ends here, without a word.
    let left: Arc<dyn Dir> = Arc::new(dir.crash(Crash::Process, 1));
    kill(log, &shm.path().join("ring"));
    let (log, recovery) = Log::open_in(left, options(&ring)).unwrap();
    assert_eq!((recovery.last_index, recovery.replayed), (20, 10), "{recovery:?}");
    log.sync().unwrap();
    expect(&log, 1, 20);
}

/// Each millisecond a block of 4 KiB went to the disk, whatever few records it held, though the ring would outlive the process.
#[test]
#[expect(clippy::disallowed_methods, reason = "nothing tells that the writer has looked")]
fn what_outlives_the_process_goes_to_the_kernel_with_its_sync() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let policy = Policy::Interval { max_age: Duration::from_secs(3600), max_bytes: 1 << 20 };
    let ring = Ring::File(shm.path().join("ring"));
    let options = Options { policy, ring, ring_bytes: 1 << 20, ..Options::default() };
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), options).unwrap();
    for index in 1..=50 {
        log.append(&payload(index)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((log.stats().written, log.stats().last_index), (0, 50), "nobody waits for it");
    log.wait(20, Ack::Written).unwrap().block().unwrap();
    assert_eq!(log.stats().written, 50);
    // Who follows waits, and is not told of records an hour later.
    let mut follower = log.follow(51, Ack::Written).unwrap();
    log.append(&payload(51)).unwrap();
    assert_eq!(follower.next_record().unwrap().payload, payload(51));
    expect(&log, 1, 51);
    // Many are not gathered.
    let mut last = 51;
    while log.stats().written <= 51 {
        last = log.append(&[7; 4096]).unwrap();
    }
    log.wait(last, Ack::Durable).unwrap().block().unwrap();
    log.close().unwrap();
}

/// Records that were cut off, or that others replaced, once came back from a ring that had been left
/// aside.
#[test]
fn a_log_is_not_opened_without_the_ring_that_may_hold_its_newest_records() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let ring = Ring::File(shm.path().join("ring"));
    let with_ring = Options { ring, threads: false, ..small() };
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir.clone(), with_ring.clone()).unwrap();
    log.append(b"only in the ring").unwrap();
    let left: Arc<dyn Dir> = Arc::new(dir.crash(Crash::Process, 1));
    kill(log, &shm.path().join("ring"));
    let without = Options { threads: false, ..small() };
    let refused = Log::open_in(left.clone(), without.clone()).unwrap_err();
    assert!(refused.to_string().contains("open it with that ring"), "{refused}");
    let (log, recovery) = Log::open_in(left.clone(), with_ring).unwrap();
    assert_eq!(recovery.replayed, 1);
    log.close().unwrap();
    let (log, recovery) = Log::open_in(left, without).unwrap();
    assert_eq!(recovery.last_index, 1);
    log.close().unwrap();
}

/// The ring was made the log's before the log had a file; killed in between, it could never be opened.
#[test]
fn a_log_that_was_killed_while_it_was_made_is_made_with_the_same_ring() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let ring = Ring::File(shm.path().join("ring"));
    let options = |seed| {
        let clock = Clock::manual(seed);
        Options { threads: false, clock, ring: ring.clone(), ..small() }
    };
    let dir = Arc::new(SimDir::new());
    let made = Log::open_in(dir.clone(), options(0)).unwrap();
    drop(made);
    for operation in 0..dir.operations() {
        fs::remove_file(shm.path().join("ring")).ok();
        let dir = Arc::new(SimDir::new());
        dir.stop_at(operation);
        Log::open_in(dir.clone(), options(1)).err();
        let left = Arc::new(dir.crash(Crash::Process, 1));
        let (log, _) = Log::open_in(left, options(2)).unwrap();
        assert_eq!(log.append(b"one").unwrap(), 1, "operation {operation}");
    }
}

#[test]
fn the_ring_of_another_log_is_refused() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let ring = Ring::File(shm.path().join("ring"));
    let options = Options { ring, ..small() };
    let (one, two) = (scratch(), scratch());
    Log::open(one.path(), options.clone()).unwrap().0.close().unwrap();
    let refused = Log::open(two.path(), options).unwrap_err();
    assert!(refused.to_string().contains("another log"), "{refused}");
}

/// Both wrote into it, and the first came upon records that it had never accepted.
#[test]
fn a_copy_of_a_log_that_is_open_does_not_get_its_ring() {
    let Some(memory) = Memory::new() else { return };
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir.clone(), memory.options(1)).unwrap();
    log.append_with(FIRST, Ack::Durable).unwrap();
    assert_eq!(log.append_with(b"old 2", Ack::Buffered).unwrap(), 2);
    // A copy of the directory, with the note of the ring in it.
    let copy = Arc::new(dir.crash(Crash::Process, 1));
    let refused = Log::open_in(copy, memory.options(2)).unwrap_err();
    let Error::Disk(plimsoll_sync::Error::Locked { path, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(*path, memory.path().canonicalize().unwrap());
    assert_eq!(log.append_with(b"old 3", Ack::Durable).unwrap(), 3);
    assert_eq!(payloads(&log), ALL[..3]);
    log.close().unwrap();
    let (log, _) = Log::open_in(dir, memory.options(3)).unwrap();
    assert_eq!(payloads(&log), ALL[..3]);
}

/// Rings in a directory in memory, if there is one.
struct Memory(tempfile::TempDir);

impl Memory {
    fn new() -> Option<Self> {
        tempfile::tempdir_in("/dev/shm").ok().map(Self)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("ring")
    }

    /// In the ring in this file.
    fn options(&self, seed: u64) -> Options {
        let ring = Ring::File(self.path());
        Options { ring, clock: Clock::manual(seed << 32), ..driven() }
    }

    /// The ring as it is now.
    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    /// The ring is as it was, whoever mapped the file meanwhile.
    fn put(&self, bytes: &[u8]) {
        put(&self.path(), bytes);
    }
}

fn put(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).ok();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// The process ends, without a word. It was ours, so its ring is another file from here on, which nobody
/// has open.
fn kill(log: Log, ring: &Path) {
    let bytes = fs::read(ring).unwrap();
    std::mem::forget(log);
    put(ring, &bytes);
}

const FIRST: &[u8] = b"first, durable";

/// A log whose process crashed: record 1 is durable, 2 to 4 are in the ring only.
fn crashed(memory: &Memory) -> Arc<SimDir> {
    let dir = Arc::new(SimDir::new());
    let (log, _) = Log::open_in(dir.clone(), memory.options(1)).unwrap();
    log.append_with(FIRST, Ack::Durable).unwrap();
    for old in [b"old 2", b"old 3", b"old 4"] {
        log.append_with(old, Ack::Buffered).unwrap();
    }
    let left = Arc::new(dir.crash(Crash::Process, 1));
    kill(log, &memory.path());
    left
}

fn payloads(log: &Log) -> Vec<String> {
    log.sync().unwrap();
    let text = |(_, bytes): (u64, Vec<u8>)| String::from_utf8(bytes).unwrap();
    read_all(log).into_iter().map(text).collect()
}

const ALL: [&str; 4] = ["first, durable", "old 2", "old 3", "old 4"];

/// Somebody who could not see the ring appended records of their own; with the ring its old records came
/// back behind these, and nobody was told.
#[test]
fn old_records_of_a_ring_do_not_come_back_behind_newer_ones() {
    let Some(memory) = Memory::new() else { return };
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let others =
        [driven(), Options { ring: Ring::File(elsewhere.path().join("ring")), ..driven() }];
    for (number, other) in others.into_iter().enumerate() {
        let dir = crashed(&memory);
        let ring = memory.bytes();
        fs::remove_file(memory.path()).unwrap();
        let (log, recovery) = Log::open_in(dir.clone(), other).unwrap();
        assert_eq!((recovery.last_index, recovery.replayed), (1, 0), "{number}");
        if number == 0 {
            let why = recovery.ring_ignored.expect("it is told");
            assert!(why.contains("is not here"), "{why}");
        }
        assert_eq!(log.append_with(b"newer 2", Ack::Durable).unwrap(), 2);
        log.close().unwrap();
        memory.put(&ring);
        let (log, recovery) = Log::open_in(dir.clone(), memory.options(2)).unwrap();
        assert_eq!((recovery.last_index, recovery.replayed), (2, 0), "{number}: {recovery:?}");
        assert!(recovery.ring_ignored.is_some(), "{number}: {recovery:?}");
        assert_eq!(payloads(&log), ["first, durable", "newer 2"]);
        // From here on the ring is this log's again.
        assert_eq!(log.append_with(b"newer 3", Ack::Buffered).unwrap(), 3);
        let left = Arc::new(dir.crash(Crash::Process, 1));
        kill(log, &memory.path());
        let (log, recovery) = Log::open_in(left, memory.options(3)).unwrap();
        assert_eq!((recovery.replayed, recovery.ring_ignored), (1, None), "{number}");
        assert_eq!(payloads(&log), ["first, durable", "newer 2", "newer 3"]);
        log.close().unwrap();
        fs::remove_file(memory.path()).unwrap();
    }
}

/// The same, where whoever came in between was killed at any moment, and where their own append was only
/// buffered.
#[test]
fn note_and_ring_agree_after_a_crash_at_any_operation_of_whoever_came_in_between() {
    let Some(memory) = Memory::new() else { return };
    let dir = crashed(&memory);
    let ring = memory.bytes();
    for crash in [Crash::Process, Crash::PowerCut] {
        let mut with_old = 0;
        for operation in 0.. {
            fs::remove_file(memory.path()).ok();
            let between = Arc::new(dir.crash(Crash::Process, 1));
            between.stop_at(operation);
            let opened = Log::open_in(between.clone(), driven());
            let mut is_durable = false;
            if let Ok((log, _)) = &opened {
                is_durable = log.append_with(b"newer 2", Ack::Durable).is_ok();
            }
            let is_over = !between.is_down();
            let left = Arc::new(between.crash(crash, operation));
            drop(opened);
            memory.put(&ring);
            let (log, recovery) = Log::open_in(left, memory.options(2)).unwrap();
            let found = payloads(&log);
            let case = format!("{crash:?} at {operation}: {found:?}, {recovery:?}");
            let is_old = found == ALL;
            with_old += u64::from(is_old);
            let newer = &["first, durable", "newer 2"];
            assert!(is_old || *found == newer[..1] || *found == newer[..], "{case}");
            assert!(!is_durable || found == newer, "{case}");
            // What is given up is given up with a word.
            assert!(is_old || recovery.ring_ignored.is_some(), "{case}");
            log.close().unwrap();
            if is_over {
                break;
            }
        }
        assert!(with_old > 0, "{crash:?}: the old ones are there until the note is gone");
    }
}

/// Each of those who have the ring may be killed as well, while it opens, and again, and while it closes.
#[test]
fn what_only_the_ring_has_survives_a_crash_at_any_operation_of_those_who_have_it() {
    let Some(memory) = Memory::new() else { return };
    let dir = crashed(&memory);
    let ring = memory.bytes();
    for operation in 0.. {
        memory.put(&ring);
        let mut left = Arc::new(dir.crash(Crash::Process, 1));
        let mut is_over = false;
        // The second is killed where it stands as well.
        for seed in [2, 3] {
            left.stop_at(operation);
            if let Ok((log, _)) = Log::open_in(left.clone(), memory.options(seed)) {
                log.close().ok();
            }
            is_over = !left.is_down();
            left = Arc::new(left.crash(Crash::Process, 1));
        }
        let (log, recovery) = Log::open_in(left, memory.options(4)).unwrap();
        assert_eq!(recovery.ring_ignored, None, "{operation}");
        assert_eq!(payloads(&log), ALL, "{operation}: {recovery:?}");
        log.close().unwrap();
        if is_over {
            return;
        }
    }
}

/// A cut was killed once its segment had its name, and before the ring had let go of what was cut off: the
/// ring then began behind a gap, and that was told as a loss.
#[test]
fn a_cut_that_is_killed_at_any_operation_leaves_the_log_as_it_was_or_cut() {
    let Some(memory) = Memory::new() else { return };
    let mut cuts = 0;
    for operation in 0.. {
        fs::remove_file(memory.path()).ok();
        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dir.clone(), memory.options(1)).unwrap();
        log.append_with(FIRST, Ack::Durable).unwrap();
        log.append_with(b"old 2", Ack::Durable).unwrap();
        log.append_with(b"old 3", Ack::Buffered).unwrap();
        dir.stop_at(dir.operations() + operation);
        let is_over = log.truncate_after(1).is_ok();
        let left = Arc::new(dir.crash(Crash::Process, 1));
        kill(log, &memory.path());
        let ring = memory.bytes();
        // And so may be whoever opens it then.
        for opening in 0.. {
            memory.put(&ring);
            let case = format!("{operation}, {opening}");
            let between = Arc::new(left.crash(Crash::Process, 1));
            between.stop_at(opening);
            let opened = Log::open_in(between.clone(), memory.options(2));
            let is_open = !between.is_down();
            let found = Arc::new(between.crash(Crash::Process, 1));
            if let Ok((log, _)) = opened {
                kill(log, &memory.path());
            }
            let (log, recovery) = Log::open_in(found, memory.options(3)).unwrap();
            let found = payloads(&log);
            let is_cut = found == ALL[..1];
            assert!(is_cut || found == ALL[..3], "{case}: {found:?}");
            assert_eq!(recovery.ring_ignored, None, "{case}: nothing was given up");
            cuts += u64::from(is_cut);
            log.close().unwrap();
            if is_open {
                break;
            }
        }
        if is_over {
            break;
        }
    }
    assert!(cuts > 1, "killed in between, too");
}

/// Memory does not survive the system: a ring of another boot is a copy that somebody made.
#[test]
fn a_ring_or_a_note_of_another_boot_is_not_used() {
    let Some(memory) = Memory::new() else { return };
    // The boot stands in the fifth and sixth words of the ring.
    let dir = crashed(&memory);
    let mut ring = memory.bytes();
    ring[32] ^= 1;
    memory.put(&ring);
    let (log, recovery) = Log::open_in(dir, memory.options(2)).unwrap();
    assert_eq!(recovery.replayed, 0);
    assert!(recovery.ring_ignored.unwrap().contains("started since"));
    assert_eq!(payloads(&log), ["first, durable"]);
    log.close().unwrap();
    // The note begins with it. Nobody asks for a ring that the system took with it, nor speaks of it.
    fs::remove_file(memory.path()).unwrap();
    let dir = crashed(&memory);
    let note = dir.open("ring", Access::default()).unwrap();
    let mut digit = [0];
    note.read_at(&mut digit, 0).unwrap();
    note.write_at(if digit == *b"0" { b"1" } else { b"0" }, 0).unwrap();
    fs::remove_file(memory.path()).unwrap();
    let (log, recovery) = Log::open_in(dir, memory.options(2)).unwrap();
    assert_eq!((recovery.replayed, recovery.ring_ignored), (0, None));
    assert_eq!(payloads(&log), ["first, durable"]);
    log.close().unwrap();
}

/// What was acknowledged from it was lost without a word.
#[test]
fn a_ring_that_is_gone_while_the_system_runs_is_told() {
    let Some(memory) = Memory::new() else { return };
    let dir = crashed(&memory);
    fs::remove_file(memory.path()).unwrap();
    let (log, recovery) = Log::open_in(dir.clone(), memory.options(2)).unwrap();
    assert_eq!((recovery.last_index, recovery.replayed), (1, 0));
    assert!(recovery.ring_ignored.unwrap().contains("gone"));
    log.close().unwrap();
    // Of a log that was closed nothing is missed.
    fs::remove_file(memory.path()).unwrap();
    let (log, recovery) = Log::open_in(dir, memory.options(3)).unwrap();
    assert_eq!(recovery.ring_ignored, None);
    log.close().unwrap();
}

/// In a directory that all may write, anybody could have led a log to a file of theirs, or read along.
#[test]
fn a_ring_that_may_be_somebody_elses_is_refused_with_what_to_do() {
    let Some(memory) = Memory::new() else { return };
    let dir = crashed(&memory);
    let path = memory.path();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner's alone");
    let refused = |seed| {
        let error = Log::open_in(dir.clone(), memory.options(seed)).unwrap_err();
        let mut said = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            said = format!("{said}: {error}");
            source = error.source();
        }
        said
    };
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let said = refused(2);
    assert!(said.contains("others may write it") && said.contains("chmod"), "{said}");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    // A link to what would be taken.
    let real = path.with_extension("real");
    fs::copy(&path, &real).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&real, &path).unwrap();
    let said = refused(3);
    assert!(said.contains("a link") && said.contains("take it away"), "{said}");
    // One of another size.
    let ring = fs::read(&real).unwrap();
    memory.put(&ring[..ring.len() - 8]);
    let said = refused(4);
    assert!(said.contains("remove it"), "{said}");
    memory.put(&ring);
    let (log, recovery) = Log::open_in(dir.clone(), memory.options(5)).unwrap();
    assert_eq!((recovery.replayed, recovery.ring_ignored), (3, None), "nothing was harmed");
    assert_eq!(payloads(&log), ALL);
    log.close().unwrap();
}

/// An append came before the ring had forgotten what was cut off: killed then, its next opener
/// found two records of one index, and gave up all that the ring had. The cut asserts it, under the
/// appenders' lock.
#[test]
fn a_ring_has_forgotten_what_was_cut_off_before_anything_is_appended() {
    let Some(memory) = Memory::new() else { return };
    let dir = Arc::new(SimDir::new());
    let cutter = Arc::new(OnceLock::<Arc<Log>>::new());
    let heard = Arc::clone(&cutter);
    // Where to cut is looked up once all before it is durable: what comes then is cut off.
    let hearing = Wrapped::dir(dir.clone(), move |call| {
        if let (Call::Read(_), Some(log)) = (call, heard.get()) {
            log.append_with(b"cut off", Ack::Buffered).unwrap();
        }
    });
    let log = Arc::new(Log::open_in(hearing, memory.options(1)).unwrap().0);
    log.append_with(FIRST, Ack::Durable).unwrap();
    log.append_with(b"cut off", Ack::Durable).unwrap();
    cutter.set(Arc::clone(&log)).unwrap();
    log.truncate_after(1).unwrap();
    assert!(log.stats().records > 2, "more was cut off");
    assert_eq!(log.append_with(b"newer 2", Ack::Buffered).unwrap(), 2);
    let left = Arc::new(dir.crash(Crash::Process, 1));
    let bytes = memory.bytes();
    std::mem::forget(log);
    memory.put(&bytes);
    let (log, recovery) = Log::open_in(left, memory.options(2)).unwrap();
    assert_eq!((recovery.replayed, recovery.ring_ignored), (1, None));
    assert_eq!(payloads(&log), ["first, durable", "newer 2"]);
}

/// The note named another path then, which was not there, and what only the ring had was given up.
#[test]
fn a_ring_whose_path_is_no_text_is_refused_before_anything_is_changed() {
    let Some(memory) = Memory::new() else { return };
    let name = OsStr::from_bytes(b"no-text-\xff");
    let (inside, odd) = (memory.0.path().join(name), memory.0.path().join("link"));
    fs::create_dir(&inside).unwrap();
    symlink(&inside, &odd).unwrap();
    for path in
        [inside.join("ring"), memory.0.path().join(OsStr::from_bytes(b"\xff")), odd.join("ring")]
    {
        let dir = Arc::new(SimDir::new());
        let options = Options { ring: Ring::File(path.clone()), ..driven() };
        let refused = Log::open_in(dir.clone(), options).unwrap_err();
        assert!(matches!(refused, Error::Options(_)), "{refused:?}");
        assert!(refused.to_string().contains("is not text"), "{refused}");
        assert!(!path.exists());
        assert_eq!(dir.list().unwrap(), [LOCK]);
    }
}

/// A ring never outlives a cut: what was cut off does not come back from it.
#[test]
fn what_was_cut_off_does_not_come_back_from_a_ring_at_any_operation() {
    let Some(memory) = Memory::new() else { return };
    for operation in 0.. {
        let dir = crashed(&memory);
        let (log, _) = Log::open_in(dir.clone(), memory.options(2)).unwrap();
        dir.stop_at(dir.operations() + operation);
        let cut = log.truncate_after(2);
        let appended = cut.is_ok().then(|| log.append_with(b"newer 3", Ack::Buffered).is_ok());
        let is_over = !dir.is_down();
        let left = Arc::new(dir.crash(Crash::Process, 1));
        kill(log, &memory.path());
        let (log, recovery) = Log::open_in(left, memory.options(3)).unwrap();
        let found = payloads(&log);
        let case = format!("{operation}: {found:?}, {recovery:?}");
        let after = ["first, durable", "old 2", "newer 3"];
        match appended {
            Some(true) => assert_eq!(found, after, "{case}"),
            Some(false) => assert_eq!(found, after[..2], "{case}"),
            None => assert!(found == ALL || found == after[..2], "{case}"),
        }
        log.close().unwrap();
        fs::remove_file(memory.path()).unwrap();
        if is_over {
            return;
        }
    }
}
