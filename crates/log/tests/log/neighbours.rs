//! Neighbours who may write into the log's directory: what they put there is never followed, never waited
//! for, and never made to stop the process.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use plimsoll_log::{Error, Log, Retain, View};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Dir, OsDir};

use crate::common::{append_to, driven, expect, names, payload, scratch};

/// Whatever a log calls its own.
const NAMES: [&str; 12] = [
    "00000000000000000001.seg",
    "00000000000000000101.seg",
    "00000000000000000999.seg",
    "18446744073709551615.seg",
    "cutting",
    "ring",
    "closed",
    "second",
    "note.tmp",
    "probe.tmp",
    "0000000000000001.spare",
    "lock",
];
const KINDS: [&str; 5] = ["a link", "a link to nothing", "a directory", "a FIFO", "a device"];
/// What a link leads to.
const PRECIOUS: &[u8] = b"not the log's";

/// Puts it there; false if this user may not.
fn put(kind: &str, path: &Path, precious: &Path) -> bool {
    let run = |program: &str, args: &[&str]| {
        let status = Command::new(program).arg(path).args(args).status();
        status.is_ok_and(|status| status.success())
    };
    match kind {
        "a link" => symlink(precious, path).is_ok(),
        "a link to nothing" => symlink(path.with_extension("nothing"), path).is_ok(),
        "a directory" => fs::create_dir(path).is_ok(),
        "a FIFO" => run("mkfifo", &[]),
        "a device" => run("mknod", &["c", "1", "3"]),
        other => panic!("{other}"),
    }
}

/// A life of a log there: it may be refused, and what it acknowledges is kept.
fn live(dir: &Path) -> Result<(), Error> {
    let view = View::open(dir).and_then(|view| view.verify(&|_, _| {}));
    let (log, recovery) = Log::open(dir, driven())?;
    view?;
    let last = recovery.last_index;
    append_to(&log, last + 400);
    log.sync()?;
    log.truncate_after(last + 300)?;
    append_to(&log, last + 500);
    log.sync()?;
    log.truncate_before(Retain::From(last + 100))?;
    let first = log.first_index();
    let mut reader = log.read_from(first)?;
    for index in first..=last + 500 {
        let record = reader.next_record()?.expect("it is durable");
        assert_eq!((record.index, record.payload), (index, &payload(index)[..]));
    }
    log.close()
}

#[test]
fn what_a_neighbour_puts_there_is_never_followed_and_never_waited_for() {
    let (mut fine, mut refused) = (0, 0);
    for kind in KINDS {
        for name in NAMES {
            for is_new in [true, false] {
                let tmp = scratch();
                let precious = tmp.path().join("precious");
                fs::write(&precious, PRECIOUS).unwrap();
                let dir = tmp.path().join("log");
                fs::create_dir(&dir).unwrap();
                if !is_new {
                    live(&dir).unwrap();
                }
                let there = dir.join(name);
                fs::remove_file(&there).ok();
                if !put(kind, &there, &precious) {
                    continue;
                }
                let case = format!("{kind} called {name}, new: {is_new}");
                let (tell, told) = mpsc::channel();
                let living = thread::spawn(move || tell.send(live(&dir)).unwrap());
                let lived = match told.recv_timeout(Duration::from_secs(60)) {
                    Ok(lived) => lived,
                    Err(mpsc::RecvTimeoutError::Timeout) => panic!("{case}: it hangs"),
                    Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{case}: it panics"),
                };
                living.join().unwrap();
                match lived {
                    Ok(()) => fine += 1,
                    Err(error) => {
                        refused += 1;
                        println!("{case}: {error:?}");
                    }
                }
                assert_eq!(fs::read(&precious).unwrap(), PRECIOUS, "{case}");
                let nothing = there.with_extension("nothing");
                assert!(!nothing.exists(), "{case}: a link to nothing was followed");
            }
        }
    }
    assert!(fine > 0 && refused > 0, "{fine} fine, {refused} refused");
}

/// Of those that a log reads, each refusal names the file and says to take it away.
#[test]
fn a_note_that_is_a_link_is_refused_by_name() {
    for name in ["closed", "ring"] {
        let tmp = scratch();
        let dir = tmp.path().join("log");
        Log::open(&dir, driven()).unwrap().0.close().unwrap();
        fs::remove_file(dir.join(name)).ok();
        symlink("/etc/passwd", dir.join(name)).unwrap();
        let refused = Log::open(&dir, driven()).unwrap_err();
        let Error::Disk(plimsoll_sync::Error::NotAFile { path, found }) = &refused else {
            panic!("{refused:?}");
        };
        assert_eq!((path, *found), (&dir.join(name), "a link"));
        fs::remove_file(dir.join(name)).unwrap();
        Log::open(&dir, driven()).unwrap().0.close().unwrap();
    }
}

/// A link in the place of the newest segment was passed over: the log ended before it, and gave its indexes
/// out again.
#[test]
fn what_is_no_file_and_has_the_name_of_one_that_a_log_looks_for_is_refused_by_name() {
    for kind in KINDS {
        for (name, is_moved) in [
            ("00000000000000000101.seg", false),
            ("newest", true),
            ("18446744073709551615.seg", false),
            ("cutting", false),
            ("second", false),
        ] {
            let tmp = scratch();
            let dir = tmp.path().join("log");
            let (log, _) = Log::open(&dir, driven()).unwrap();
            append_to(&log, 400);
            log.sync().unwrap();
            drop(log);
            let precious = tmp.path().join("precious");
            fs::write(&precious, PRECIOUS).unwrap();
            let mut there = dir.join(name);
            if is_moved {
                let segments = names(&OsDir::open(&dir).unwrap(), ".seg");
                there = dir.join(segments.last().unwrap());
                fs::remove_file(&precious).unwrap();
                fs::copy(&there, &precious).unwrap();
                fs::remove_file(&there).unwrap();
            }
            if !put(kind, &there, &precious) {
                continue;
            }
            let opened = Log::open(&dir, driven()).map(|_| ());
            for refused in [opened, View::open(&dir).map(|_| ())] {
                let Err(Error::Disk(plimsoll_sync::Error::NotAFile { path, found })) = &refused
                else {
                    panic!("{kind} called {name}: {refused:?}");
                };
                assert_eq!(path, &there);
                assert!(kind.starts_with(found), "{kind}: {found}");
            }
        }
    }
}

/// So it is on a disk that is not real.
#[test]
fn a_directory_that_is_called_as_a_segment_is_refused() {
    let dir = Arc::new(SimDir::new());
    drop(Log::open_in(dir.clone(), driven()).unwrap());
    dir.create_dir("00000000000000000101.seg").unwrap();
    let opened = Log::open_in(dir.clone(), driven()).map(|_| ());
    for refused in [opened, View::of(dir).map(|_| ())] {
        let Err(Error::Disk(plimsoll_sync::Error::NotAFile { path, .. })) = &refused else {
            panic!("{refused:?}");
        };
        assert!(path.ends_with("00000000000000000101.seg"));
    }
}

/// Its next segments went into whatever directory had the path by then, where another log was ruined by
/// them, and were missed here; all the while records were acknowledged as durable.
#[test]
#[expect(clippy::disallowed_methods, reason = "somebody else renames it")]
fn a_log_stays_in_its_directory_when_that_is_renamed_and_another_takes_its_place() {
    let tmp = scratch();
    let (path, moved) = (tmp.path().join("events"), tmp.path().join("moved"));
    let (log, _) = Log::open(&path, driven()).unwrap();
    append_to(&log, 10);
    fs::rename(&path, &moved).unwrap();
    let (other, _) = Log::open(&path, driven()).unwrap();
    append_to(&other, 10);
    append_to(&log, 400);
    log.sync().unwrap();
    assert!(log.stats().segments > 2);
    log.truncate_before(Retain::From(200)).unwrap();
    let first = log.first_index();
    expect(&log, first, 400);
    log.close().unwrap();
    append_to(&other, 400);
    other.close().unwrap();
    for (path, first) in [(&path, 1), (&moved, first)] {
        let (log, found) = Log::open(path, driven()).unwrap();
        assert!(found.clean, "{found:?}");
        expect(&log, first, 400);
    }
}

/// Its records were written and synced, and "all durable", in a file that was gone when it was closed.
#[test]
fn a_log_whose_segment_was_removed_does_not_close_as_if_nothing_were_wrong() {
    for removed in [0, 1, 2] {
        let dir = Arc::new(SimDir::new());
        let (log, _) = Log::open_in(dir.clone(), driven()).unwrap();
        append_to(&log, 300);
        let segments = names(&*dir, ".seg");
        assert_eq!(segments.len(), 3);
        dir.remove(&segments[removed]).unwrap();
        let told = log.close().unwrap_err();
        let named =
            matches!(&told, Error::Disk(error) if error.to_string().contains(&segments[removed]));
        assert!(named, "{told:?}");
        let found = Log::open_in(dir.clone(), driven());
        assert!(removed == 0 || matches!(found, Err(Error::Corrupt(_))), "{removed}: {found:?}");
    }
}
