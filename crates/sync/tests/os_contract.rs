//! `OsDir` passes the contract on the filesystem of the temporary directory. `mounted.rs` in
//! plimsoll-lab runs it on ext4 and xfs as well.

use std::sync::{Arc, Mutex};

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
