//! Who else may write in our directory: what lies there under our names and is not a file of ours.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use plimsoll_sync::{Access, Dir, Error, Held, OsDir, SyncMethod, Words};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// A directory and, beside it, a file that is none of its business.
fn dir_and_victim() -> (tempfile::TempDir, OsDir) {
    let tmp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(tmp.path().join("ours")).unwrap();
    fs::write(tmp.path().join("victim"), "somebody else's").unwrap();
    let dir = OsDir::open(tmp.path().join("ours")).unwrap();
    (tmp, dir)
}

/// Puts everything that is not a regular file into a directory, each under its name.
fn put_strangers(into: &Path) -> Vec<&'static str> {
    symlink("../victim", into.join("link")).unwrap();
    symlink("nowhere", into.join("dangling")).unwrap();
    symlink("/dev/null", into.join("device")).unwrap();
    fs::create_dir(into.join("directory")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(into.join("socket")).unwrap());
    // Not by a program: a fork beside it would hold the locks of other tests for a moment.
    mknodat(CWD, into.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    vec!["link", "dangling", "device", "directory", "socket", "fifo"]
}

/// A FIFO once hung its opener until somebody opened the other end, and a link led anywhere.
#[test]
fn what_is_not_a_regular_file_is_refused_by_its_kind_and_never_waited_for() {
    let (tmp, dir) = dir_and_victim();
    let names = put_strangers(dir.path());
    let (say, said) = mpsc::channel();
    std::thread::spawn(move || {
        for name in names {
            for access in [Access::default(), SyncMethod::ODsync.access()] {
                let opened = dir.open(name, access).map(|_| ());
                say.send((name, opened)).unwrap();
            }
            let locked = dir.lock(name).map(|_| ());
            say.send((name, locked)).unwrap();
            let asked = dir.check_unlocked(name);
            say.send((name, asked)).unwrap();
        }
    });
    for number in 0..24 {
        let patience = Duration::from_secs(20);
        let (name, refused) = said.recv_timeout(patience).expect("nothing may hang");
        let refused = refused.expect_err(name);
        assert!(matches!(refused, Error::NotAFile { .. }), "{number}: {name}: {refused}");
        let what = if matches!(name, "dangling" | "device") { "link" } else { name };
        assert!(refused.to_string().to_lowercase().contains(what), "{name}: {refused}");
    }
    assert_eq!(fs::read(tmp.path().join("victim")).unwrap(), b"somebody else's");
    assert!(!tmp.path().join("ours/nowhere").exists(), "nothing is made through a link");
}

#[test]
fn a_link_is_taken_away_or_replaced_and_what_it_leads_to_stays() {
    let (tmp, dir) = dir_and_victim();
    put_strangers(dir.path());
    dir.remove("link").unwrap();
    dir.create("new", Access::default()).unwrap().write_at(b"ours", 0).unwrap();
    dir.rename("new", "dangling").unwrap();
    assert_eq!(fs::read(dir.path().join("dangling")).unwrap(), b"ours");
    assert_eq!(fs::read(tmp.path().join("victim")).unwrap(), b"somebody else's");
    let taken = dir.create("device", Access::default()).unwrap_err();
    assert_eq!(taken.kind(), Some(std::io::ErrorKind::AlreadyExists), "{taken}");
}

/// What is opened so that it never waits must still wait for the disk when it is read and written.
#[test]
fn an_opened_file_is_an_ordinary_one() {
    let (_tmp, dir) = dir_and_victim();
    dir.create("file", Access::default()).unwrap();
    for method in [SyncMethod::Fsync, SyncMethod::ODsync, SyncMethod::DirectFsync] {
        let Ok(file) = dir.open("file", method.access()) else { continue };
        let fds = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| {
            let fd = fd.ok()?;
            fs::read_link(fd.path()).ok()?.ends_with("ours/file").then(|| fd.file_name())
        });
        let flags: Vec<u32> = fds.map(|fd| flags_of(fd.to_str().unwrap())).collect();
        assert_eq!(flags.len(), 1, "{method}");
        assert_eq!(flags[0] & 0o4000, 0, "{method}: O_NONBLOCK");
        assert_eq!(flags[0] & 0o40000 != 0, method.access().direct, "{method}: O_DIRECT");
        assert_eq!(flags[0] & 0o10000 != 0, method == SyncMethod::ODsync, "{method}: O_DSYNC");
        drop(file);
    }
}

/// The flags of an open file of this process, as the kernel has them.
fn flags_of(fd: &str) -> u32 {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    u32::from_str_radix(flags.trim(), 8).unwrap()
}

/// Only the file was locked once: without its name a second writer got a lock of another file.
#[test]
fn removing_the_lock_file_lets_nobody_in() {
    let (_tmp, dir) = dir_and_victim();
    let held = dir.lock("lock").unwrap();
    fs::remove_file(dir.path().join("lock")).unwrap();
    let other = OsDir::open(dir.path()).unwrap();
    for dir in [&dir, &other] {
        let refused = dir.lock("lock").unwrap_err();
        assert!(matches!(refused, Error::Locked { holder: None, .. }), "{refused}");
        let asked = dir.check_unlocked("lock").unwrap_err();
        assert!(matches!(asked, Error::Locked { .. }), "{asked}");
    }
    drop(held);
    other.check_unlocked("lock").unwrap();
    other.lock("lock").unwrap();
}

/// As versions before did it: the file, and nothing else.
#[test]
fn who_locks_the_file_alone_excludes_and_is_excluded() {
    let (_tmp, dir) = dir_and_victim();
    let path = dir.path().join("lock");
    let open = || fs::File::options().write(true).create(true).truncate(false).open(&path).unwrap();
    let older = open();
    older.try_lock().unwrap();
    assert!(matches!(dir.lock("lock"), Err(Error::Locked { .. })));
    assert!(matches!(dir.check_unlocked("lock"), Err(Error::Locked { .. })));
    drop(older);
    let held = dir.lock("lock").unwrap();
    assert!(open().try_lock().is_err());
    drop(held);
    open().try_lock().unwrap();
}

#[test]
fn a_lock_that_was_refused_leaves_nothing_locked() {
    let (_tmp, dir) = dir_and_victim();
    let older = fs::File::create(dir.path().join("lock")).unwrap();
    older.try_lock().unwrap();
    dir.lock("lock").unwrap_err();
    drop(older);
    dir.lock("lock").unwrap();
}

/// Every program that was started beside it held a copy of the lock for a moment, and longer where it
/// inherited descriptors, so that a log that was closed could not be opened again.
#[test]
fn a_lock_that_was_dropped_is_free_though_a_child_has_a_copy() {
    let (_tmp, dir) = dir_and_victim();
    let held = dir.lock("lock").unwrap();
    let copies = copies_of_what_is_open_in(dir.path());
    assert!(copies.len() >= 2, "the directory's and the file's");
    drop(held);
    dir.check_unlocked("lock").unwrap();
    dir.lock("lock").unwrap();
}

/// What a child has that was forked now.
fn copies_of_what_is_open_in(path: &Path) -> Vec<OwnedFd> {
    let mut copies = Vec::new();
    // Listed first: a directory that is read while it grows may show the copies too.
    let open: Vec<_> = fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap).collect();
    for fd in open {
        if fs::read_link(fd.path()).is_ok_and(|at| at.starts_with(path)) {
            let number = fd.file_name().to_str().unwrap().parse().unwrap();
            let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
            copies.push(pidfd_getfd(process, number, PidfdGetfdFlags::empty()).unwrap());
        }
    }
    copies
}

/// A second opener once changed what the first relied on.
#[test]
fn words_of_a_file_are_one_openers_until_they_are_dropped_though_a_child_has_a_copy() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = shm.path().join("ring");
    let (words, _) = Words::of_file(&path, 512).unwrap();
    for count in [512, 1024] {
        let refused = Words::of_file(&path, count).unwrap_err();
        assert!(matches!(&refused, Error::Locked { path: named, .. } if *named == path));
        let said = refused.to_string();
        assert!(said.contains("close it there, or use another"), "{said}");
    }
    let copies = copies_of_what_is_open_in(shm.path());
    assert_eq!(copies.len(), 1);
    drop(words);
    assert_eq!(Words::of_file(&path, 512).unwrap().1, Held::Words);
}

/// Who made the file has not given it its size yet.
#[test]
fn an_empty_file_of_words_that_somebody_has_locked_stays_empty() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = shm.path().join("ring");
    let other = fs::File::create(&path).unwrap();
    other.try_lock().unwrap();
    assert!(matches!(Words::of_file(&path, 512), Err(Error::Locked { .. })));
    assert_eq!(other.metadata().unwrap().len(), 0);
    drop(other);
    assert_eq!(Words::of_file(&path, 512).unwrap().1, Held::Nothing);
}

#[test]
fn directories_are_made_with_their_parents_and_nothing_is_changed_that_was_there() {
    let tmp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = tmp.path().join("a/b/c");
    let made = OsDir::create_all(&path).unwrap();
    made.create("file", Access::default()).unwrap().write_at(b"kept", 0).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let again = OsDir::create_all(&path).unwrap();
    assert_eq!((again.path(), again.list().unwrap()), (&*path, vec!["file".to_owned()]));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    // A directory that a link leads to is where it leads.
    symlink("a/b", tmp.path().join("link")).unwrap();
    let through = OsDir::create_all(tmp.path().join("link/c")).unwrap();
    assert_eq!(through.list().unwrap(), ["file"]);
    let blocked = OsDir::create_all(path.join("file/d")).unwrap_err();
    assert_eq!(blocked.kind(), Some(std::io::ErrorKind::AlreadyExists), "{blocked}");
}

/// What was to be done in a directory was done in the one that had its path by then.
#[test]
#[expect(clippy::disallowed_methods, reason = "somebody else renames it")]
fn a_directory_that_is_renamed_is_still_the_one_that_was_opened() {
    let (tmp, dir) = dir_and_victim();
    let (ours, moved) = (tmp.path().join("ours"), tmp.path().join("moved"));
    fs::rename(&ours, &moved).unwrap();
    fs::create_dir(&ours).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(ours.join(name), "another's").unwrap();
    }
    dir.create("a", Access::default()).unwrap().write_at(b"ours", 0).unwrap();
    dir.rename("a", "b").unwrap();
    assert_eq!(dir.open("b", Access::default()).unwrap().len().unwrap(), 4);
    assert_eq!(dir.list().unwrap(), ["b"]);
    dir.create_dir("below").unwrap().create("d", Access::default()).unwrap();
    drop(dir.lock("lock").unwrap());
    dir.remove("b").unwrap();
    let names = |path: &Path| {
        let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&ours), ["a", "b", "c"]);
    assert_eq!(names(&moved), ["below", "lock"]);
    assert_eq!(names(&moved.join("below")), ["d"]);
}
