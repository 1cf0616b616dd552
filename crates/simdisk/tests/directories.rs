//! Directories in directories: their names, too, must be synced, or all that is in them may be gone.

use std::io::ErrorKind;
use std::sync::Arc;

use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, Persistence, SimDir};
use plimsoll_sync::{Access, Crash, Dir, Error, SyncMethod, System};

const SEEDS: u64 = 200;

fn disk(persistence: Persistence) -> SimDir {
    SimDir::with(DiskOptions { system: System::Linux, persistence, ..DiskOptions::default() })
}

fn put(dir: &dyn Dir, name: &str, bytes: &[u8]) {
    let file = dir.create(name, SyncMethod::Fsync.access()).unwrap();
    file.write_sync_at(bytes, 0, SyncMethod::Fsync).unwrap();
}

fn content(dir: &dyn Dir, name: &str) -> Vec<u8> {
    let file = dir.open(name, Access::default()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// In how many of the seeds the directory is found, always with the file `kept` in it.
fn found(dir: &SimDir, crash: Crash, name: &str) -> u64 {
    let found = |&seed: &u64| match dir.crash(crash, seed).open_dir(name) {
        Ok(inner) => {
            assert_eq!(content(&*inner, "kept"), b"kept", "seed {seed}");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), Some(ErrorKind::NotFound), "seed {seed}: {error}");
            false
        }
    };
    (0..SEEDS).filter(found).count() as u64
}

/// A log synced its files and their names, and never the name of the directory that they lie in: the
/// flat disk could not show it.
#[test]
fn a_directory_whose_name_was_not_synced_may_be_gone_with_all_that_was() {
    let dir = disk(Persistence::Posix);
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::DropFlush));
    let inner = dir.create_dir("inner").unwrap();
    put(&*inner, "kept", b"kept");
    let left = found(&dir, Crash::PowerCut, "inner");
    assert!((1..SEEDS).contains(&left), "{left}");
    assert_eq!(found(&dir, Crash::System, "inner"), SEEDS, "the device has it");
    assert_eq!(found(&dir, Crash::Process, "inner"), SEEDS);
    dir.create_dir("inner").unwrap();
    assert_eq!(found(&dir, Crash::PowerCut, "inner"), SEEDS, "made again, and synced this time");
}

#[test]
fn with_a_journal_any_later_sync_of_a_name_makes_the_directory_durable() {
    let dir = disk(Persistence::Journal);
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::DropFlush));
    let inner = dir.create_dir("inner").unwrap();
    let exists = |seed: &u64| dir.power_cut(*seed).open_dir("inner").is_ok();
    let left = (0..SEEDS).filter(exists).count() as u64;
    assert!((1..SEEDS).contains(&left), "{left}");
    put(&*inner, "kept", b"kept");
    assert_eq!(found(&dir, Crash::PowerCut, "inner"), SEEDS);
}

/// The moments inside `create_dir`: before the entry, and after it but before the sync.
#[test]
fn whoever_made_a_directory_may_have_died_before_its_sync_and_the_next_one_makes_up_for_it() {
    for persistence in [Persistence::Posix, Persistence::Journal] {
        let dir = disk(persistence);
        dir.stop_at(1);
        dir.create_dir("inner").unwrap_err();
        let next = dir.crash(Crash::Process, 1);
        put(&*next.create_dir("inner").unwrap(), "kept", b"kept");
        assert_eq!(found(&next, Crash::PowerCut, "inner"), SEEDS, "{persistence:?}");
        let steps = next.history();
        let operations: Vec<Operation> = steps.iter().map(|step| step.operation).take(2).collect();
        assert_eq!(operations, [Operation::CreateDir, Operation::SyncDir]);
    }
}

#[test]
fn the_sync_of_one_directory_is_not_that_of_another() {
    let dir = disk(Persistence::Posix);
    let inner = dir.create_dir("inner").unwrap();
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::DropFlush).named("inner"));
    inner.create("a", Access::default()).unwrap();
    dir.create("b", Access::default()).unwrap();
    dir.sync().unwrap();
    let left = |seed: &u64| {
        let found = dir.power_cut(*seed);
        assert_eq!(found.list().unwrap(), ["b"]);
        !found.open_dir("inner").unwrap().list().unwrap().is_empty()
    };
    let left = (0..SEEDS).filter(left).count() as u64;
    assert!((1..SEEDS).contains(&left), "{left}");
    inner.sync().unwrap();
    let found = dir.power_cut(1).open_dir("inner").unwrap();
    assert_eq!(found.list().unwrap(), ["a"]);
}

#[test]
fn a_directory_that_could_not_be_synced_takes_no_more_names_and_its_parent_does() {
    let dir = disk(Persistence::Posix);
    let inner = dir.create_dir("inner").unwrap();
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::FailRaw(5)).named("inner"));
    inner.create("a", Access::default()).unwrap_err();
    for refused in [
        inner.create("b", Access::default()).map(|_| ()),
        inner.create_dir("c").map(|_| ()),
        inner.remove("a"),
    ] {
        assert!(matches!(refused, Err(Error::Latched { .. })), "{refused:?}");
    }
    dir.create("b", Access::default()).unwrap();
    dir.create_dir("c").unwrap();
}

#[test]
fn faults_and_the_history_know_a_file_by_the_directories_that_it_is_in() {
    let dir = disk(Persistence::Posix);
    let innermost = dir.create_dir("a").unwrap().create_dir("b").unwrap();
    dir.inject(Fault::new(Operation::Write, FaultKind::FailRaw(5)).named("a/b/file"));
    dir.create("file", Access::default()).unwrap().write_at(b"x", 0).unwrap();
    let file = innermost.create("old", Access::default()).unwrap();
    file.write_at(b"x", 0).unwrap();
    innermost.rename("old", "file").unwrap();
    file.write_at(b"x", 0).unwrap_err();
    let story: Vec<String> = dir.history().iter().map(ToString::to_string).collect();
    for line in
        ["create directory a:", "create directory a/b:", "sync directory a/b:", "rename a/b/old"]
    {
        assert!(story.iter().any(|step| step.contains(line)), "{line}: {story:#?}");
    }
}

#[test]
fn each_directory_has_a_lock_and_a_crash_of_its_holder_frees_it() {
    let dir = Arc::new(disk(Persistence::Posix));
    let inner = dir.create_dir("inner").unwrap();
    let held = (dir.lock("lock").unwrap(), inner.lock("lock").unwrap());
    let again = dir.open_dir("inner").unwrap();
    for _ in 0..2 {
        assert!(matches!(again.lock("lock"), Err(Error::Locked { .. })));
        again.remove("lock").unwrap();
    }
    let found = dir.crash(Crash::Process, 1);
    found.lock("lock").unwrap();
    found.open_dir("inner").unwrap().lock("lock").unwrap();
    drop(held);
    again.lock("lock").unwrap();
}
