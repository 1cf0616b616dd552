//! What a journal hides and the pessimist does not: both models are needed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, Persistence, SimDir};
use plimsoll_sync::{Access, Allocation, Crash, Dir, SyncMethod, System};

fn disk(persistence: Persistence) -> SimDir {
    SimDir::with(DiskOptions { system: System::Linux, persistence, ..DiskOptions::default() })
}

/// From here on nobody syncs this directory, whoever thinks so.
fn without_directory_syncs(dir: &SimDir) {
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::DropFlush).sticky());
}

/// Every set of names that a power cut may leave.
fn names(dir: &SimDir) -> BTreeSet<String> {
    (0..400).map(|seed| dir.power_cut(seed).list().unwrap().join(" ")).collect()
}

fn set<const N: usize>(outcomes: [&str; N]) -> BTreeSet<String> {
    outcomes.into_iter().map(str::to_owned).collect()
}

fn contents(dir: &SimDir, name: &str) -> BTreeSet<Vec<u8>> {
    let content = |seed| {
        let file = dir.power_cut(seed).open(name, Access::default()).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    (0..400).map(content).collect()
}

#[test]
fn a_missing_sync_of_the_directory_is_hidden_by_a_journal_and_seen_by_the_pessimist() {
    let after_a_synced_file = |persistence| {
        let dir = disk(persistence);
        without_directory_syncs(&dir);
        let file = dir.create("records", Access::default()).unwrap();
        file.write_sync_at(b"acknowledged", 0, SyncMethod::Fsync).unwrap();
        names(&dir)
    };
    assert_eq!(after_a_synced_file(Persistence::Posix), set(["", "records"]));
    assert_eq!(after_a_synced_file(Persistence::Journal), set(["records"]));

    let after_a_rename = |persistence| {
        let dir = disk(persistence);
        let file = dir.create("new", Access::default()).unwrap();
        file.write_sync_at(b"first", 0, SyncMethod::Fsync).unwrap();
        without_directory_syncs(&dir);
        dir.rename("new", "records").unwrap();
        file.write_sync_at(b"second, longer", 0, SyncMethod::Fsync).unwrap();
        names(&dir)
    };
    assert_eq!(after_a_rename(Persistence::Posix), set(["new", "new records", "records"]));
    assert_eq!(after_a_rename(Persistence::Journal), set(["records"]));
}

#[test]
fn names_survive_in_the_order_in_which_they_changed() {
    let after = |persistence| {
        let dir = disk(persistence);
        without_directory_syncs(&dir);
        dir.create("a", Access::default()).unwrap();
        dir.create("b", Access::default()).unwrap();
        dir.rename("a", "c").unwrap();
        names(&dir)
    };
    assert_eq!(after(Persistence::Journal), set(["", "a", "a b", "b c"]));
    assert!(after(Persistence::Posix).is_superset(&set(["", "a", "a b", "b c", "b", "c"])));
}

#[test]
fn a_length_does_not_survive_without_the_data_of_its_new_blocks() {
    let page = vec![7; 4096];
    let after = |persistence| {
        let dir = disk(persistence);
        let file = dir.create("a", Access::default()).unwrap();
        file.sync(SyncMethod::Fsync).unwrap();
        file.write_at(&page, 0).unwrap();
        contents(&dir, "a")
    };
    assert_eq!(after(Persistence::Journal), BTreeSet::from([vec![], page.clone()]));
    assert!(after(Persistence::Posix).contains(&vec![0; 4096]));
}

/// ext4 writes a length before the data where the block was there already.
#[test]
fn a_file_that_grows_inside_a_block_may_end_in_zeros() {
    let dir = disk(Persistence::Journal);
    let file = dir.create("a", Access::default()).unwrap();
    file.write_sync_at(&[7; 3], 0, SyncMethod::Fsync).unwrap();
    file.write_at(&[8; 3], 3).unwrap();
    assert!(contents(&dir, "a").contains(&vec![7, 7, 7, 0, 0, 0]));
}

#[test]
fn a_sync_of_what_was_overwritten_commits_no_journal() {
    let dir = disk(Persistence::Journal);
    let file = dir.create("a", Access::default()).unwrap();
    file.write_sync_at(&[7; 4096], 0, SyncMethod::Fsync).unwrap();
    without_directory_syncs(&dir);
    dir.create("b", Access::default()).unwrap();
    file.write_sync_at(&[8; 4096], 0, SyncMethod::Fdatasync).unwrap();
    assert_eq!(names(&dir), set(["a", "a b"]));
    file.write_sync_at(&[8; 1], 4096, SyncMethod::Fdatasync).unwrap();
    assert_eq!(names(&dir), set(["a b"]), "the file has grown");
}

#[test]
fn the_sync_of_a_hole_commits_the_journal() {
    let dir = disk(Persistence::Journal);
    let file = dir.create("a", Access::default()).unwrap();
    file.write_sync_at(&[7; 2 * 4096], 0, SyncMethod::Fsync).unwrap();
    without_directory_syncs(&dir);
    dir.create("b", Access::default()).unwrap();
    assert!(file.punch(0, 4096).unwrap());
    assert_eq!(names(&dir), set(["a", "a b"]));
    file.sync(SyncMethod::Fdatasync).unwrap();
    assert_eq!(names(&dir), set(["a b"]));
}

/// The commit took zeros for new blocks all at once, and with them those for an old one, over which the same
/// sync then put what had been written there before.
#[test]
fn zeros_over_old_blocks_and_new_ones_stay_over_what_was_written_before() {
    let dir = disk(Persistence::Journal);
    let file = dir.create("a", Access::default()).unwrap();
    file.write_sync_at(&[7; 4096], 0, SyncMethod::Fsync).unwrap();
    file.write_at(&[8; 4096], 0).unwrap();
    file.allocate(0, 2 * 4096, Allocation::Zeroed).unwrap();
    file.sync(SyncMethod::Fsync).unwrap();
    assert_eq!(contents(&dir, "a"), BTreeSet::from([vec![0; 2 * 4096]]));
}

#[test]
fn a_watched_disk_shows_every_moment_before_it_changes() {
    let dir = disk(Persistence::Posix);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watcher = Arc::clone(&seen);
    dir.watch(move |moment| {
        let found = moment.crash(Crash::Process, 0);
        let len = found.open("a", Access::default()).map_or(0, |file| file.len().unwrap());
        watcher.lock().unwrap().push((moment.number, moment.operation, len));
    });
    let file = dir.create("a", Access::default()).unwrap();
    file.write_at(b"123", 0).unwrap();
    file.read_at(&mut [0; 3], 0).unwrap();
    file.sync(SyncMethod::Fsync).unwrap();
    use Operation::{Create, Sync, SyncDir, Write};
    let expected = [(0, Create, 0), (1, SyncDir, 0), (2, Write, 0), (4, Sync, 3)];
    assert_eq!(*seen.lock().unwrap(), expected);
}
