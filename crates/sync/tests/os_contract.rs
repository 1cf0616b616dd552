//! `OsDir` passes the contract on the filesystem of the temporary directory. `mounted.rs` in
//! plimsoll-lab runs it on ext4 and xfs as well.

use std::sync::{Arc, Mutex};
#[cfg(target_os = "linux")]
use std::{fs, path::Path};

#[cfg(target_os = "linux")]
use plimsoll_sync::SyncMethod;
use plimsoll_sync::{Dir, Error, OsDir};

#[test]
fn os_dir_keeps_the_contract() {
    let scratch = Mutex::new(Vec::new());
    plimsoll_sync::contract::check(&|| {
        let tmp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dir: Arc<dyn Dir> = Arc::new(OsDir::open(tmp.path()).unwrap());
        scratch.lock().unwrap().push(tmp);
        dir
    });
}

#[test]
#[cfg(target_os = "linux")]
fn os_dir_keeps_the_contract_in_memory() {
    let scratch = Mutex::new(Vec::new());
    if tempfile::tempdir_in("/dev/shm").is_err() {
        return;
    }
    plimsoll_sync::contract::check(&|| {
        let tmp = tempfile::tempdir_in("/dev/shm").unwrap();
        let dir: Arc<dyn Dir> = Arc::new(OsDir::open(tmp.path()).unwrap());
        scratch.lock().unwrap().push(tmp);
        dir
    });
}

#[test]
fn a_directory_in_a_directory_keeps_the_contract() {
    let scratch = Mutex::new(Vec::new());
    plimsoll_sync::contract::check(&|| {
        let tmp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dir = OsDir::open(tmp.path()).unwrap().create_dir("inner").unwrap();
        scratch.lock().unwrap().push(tmp);
        dir
    });
}

/// Where the filesystem can; that ext4, xfs and btrfs can is tested in plimsoll-lab.
#[test]
#[cfg(target_os = "linux")]
fn punched_blocks_go_back_to_the_filesystem() {
    use std::os::unix::fs::MetadataExt;
    for root in [Path::new(env!("CARGO_TARGET_TMPDIR")), Path::new("/dev/shm")] {
        let Ok(tmp) = tempfile::tempdir_in(root) else { continue };
        let dir = OsDir::open(tmp.path()).unwrap();
        let file = dir.create("a", SyncMethod::Fsync.access()).unwrap();
        file.write_sync_at(&[1; 1 << 20], 0, SyncMethod::Fsync).unwrap();
        let taken_bytes = || fs::metadata(tmp.path().join("a")).unwrap().blocks() * 512;
        let before = taken_bytes();
        if file.punch(1 << 18, 1 << 19).unwrap() {
            file.sync(SyncMethod::Fsync).unwrap();
            assert_eq!(before - taken_bytes(), 1 << 19, "{}", root.display());
        }
    }
}

#[test]
fn whether_a_lock_is_held_can_be_asked_without_making_or_taking_it() {
    let tmp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = OsDir::open(tmp.path()).unwrap();
    dir.check_unlocked("lock").unwrap();
    assert!(dir.list().unwrap().is_empty());
    let lock = dir.lock("lock").unwrap();
    let asked = dir.check_unlocked("lock").unwrap_err();
    let Error::Locked { holder, .. } = asked else { panic!("{asked}") };
    assert_eq!(holder, Some(std::process::id()));
    drop(lock);
    dir.check_unlocked("lock").unwrap();
    dir.lock("lock").unwrap();
}

/// Found by the counts of the lab: a library's name for the one stood for the other, and every write
/// to a file that was to sync data committed the file's times as well.
#[test]
#[cfg(target_os = "linux")]
fn o_dsync_waits_for_data_and_o_sync_for_all() {
    let tmp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = OsDir::open(tmp.path()).unwrap();
    for (method, flags) in [
        (SyncMethod::None, 0),
        (SyncMethod::ODsync, libc::O_DSYNC),
        (SyncMethod::OSync, libc::O_SYNC),
    ] {
        let _file = dir.create(method.name(), method.access()).unwrap();
        let opened = flags_of_open(&tmp.path().join(method.name()));
        assert_eq!(opened & libc::O_SYNC, flags, "{}", method.name());
    }
}

/// The flags that the kernel has for a file that this process has open.
#[cfg(target_os = "linux")]
fn flags_of_open(path: &Path) -> i32 {
    let path = path.canonicalize().unwrap();
    let mut links = fs::read_dir("/proc/self/fd").unwrap().map(|link| link.unwrap());
    let link = links.find(|link| fs::read_link(link.path()).is_ok_and(|to| to == path)).unwrap();
    let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(link.file_name())).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    i32::from_str_radix(flags.trim(), 8).unwrap()
}
