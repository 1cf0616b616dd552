//! What goes wrong on demand, and that it goes wrong as it does on Linux.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, Persistence, SimDir, Tear};
use plimsoll_sync::{Access, AlignedBuf, Allocation, Dir, Error, SyncMethod, System};

fn disk(capacity_bytes: Option<u64>) -> SimDir {
    SimDir::with(DiskOptions { system: System::Linux, capacity_bytes, ..DiskOptions::default() })
}

fn plain() -> Access {
    Access::default()
}

fn content(dir: &SimDir, name: &str) -> Vec<u8> {
    let file = dir.open(name, plain()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

const IS_FINAL: [Operation; 6] = [
    Operation::Write,
    Operation::Sync,
    Operation::Allocate,
    Operation::Punch,
    Operation::Truncate,
    Operation::SyncDir,
];

#[test]
fn every_operation_can_fail_with_any_error() {
    use Operation as On;
    type Call = fn(&SimDir) -> Result<(), Error>;
    let calls: [(On, Call); 13] = [
        (On::Create, |dir| dir.create("b", Access::default()).map(drop)),
        (On::Open, |dir| dir.open("a", Access::default()).map(drop)),
        (On::Read, |dir| dir.open("a", Access::default())?.read_at(&mut [0], 0).map(drop)),
        (On::Write, |dir| dir.open("a", Access::default())?.write_at(b"x", 0)),
        (On::Sync, |dir| dir.open("a", Access::default())?.sync(SyncMethod::Fsync).map(drop)),
        (On::Allocate, |dir| {
            dir.open("a", Access::default())?.allocate(0, 1, Allocation::Reserved)
        }),
        (On::Punch, |dir| dir.open("a", Access::default())?.punch(0, 1).map(drop)),
        (On::Truncate, |dir| dir.open("a", Access::default())?.truncate(0)),
        (On::Rename, |dir| dir.rename("a", "b")),
        (On::Remove, |dir| dir.remove("a")),
        (On::SyncDir, |dir| dir.sync()),
        (On::List, |dir| dir.list().map(drop)),
        (On::Lock, |dir| dir.lock("a").map(drop)),
    ];
    for (on, call) in calls {
        let dir = disk(None);
        dir.create("a", plain()).unwrap();
        dir.inject(Fault::new(on, FaultKind::Fail(ErrorKind::TimedOut)));
        assert_eq!(call(&dir).unwrap_err().kind(), Some(ErrorKind::TimedOut), "{on}");
        // Writes and syncs of a file, and syncs of the directory, are final when they fail.
        match call(&dir) {
            Ok(()) => assert!(!IS_FINAL.contains(&on), "{on}"),
            Err(Error::Latched { .. }) => assert!(IS_FINAL.contains(&on), "{on}"),
            Err(error) => panic!("{on} failed twice: {error}"),
        }
    }
}

#[test]
fn a_raw_error_reaches_the_caller_as_the_system_says_it() {
    let dir = disk(None);
    let file = dir.create("a", plain()).unwrap();
    dir.inject(Fault::new(Operation::Write, FaultKind::FailRaw(5)));
    match file.write_at(b"x", 0).unwrap_err() {
        Error::Io { source, .. } => assert_eq!(source.raw_os_error(), Some(5)),
        error => panic!("{error}"),
    }
}

#[test]
fn a_fault_happens_to_the_nth_operation_on_its_file_and_if_sticky_ever_after() {
    let dir = disk(None);
    let (a, b) = (dir.create("a", plain()).unwrap(), dir.create("b", plain()).unwrap());
    let fail = FaultKind::Fail(ErrorKind::Other);
    dir.inject(Fault::new(Operation::Read, fail).named("a").nth(2));
    dir.inject(Fault::new(Operation::Read, fail).named("b").nth(2).sticky());
    let reads =
        |file: &dyn plimsoll_sync::File| [(); 4].map(|()| file.read_at(&mut [0], 0).is_ok());
    assert_eq!(reads(&*a), [true, false, true, true]);
    assert_eq!(reads(&*b), [true, false, false, false]);
}

/// The younger of two that were due at once was spent without having happened, so a test that injected
/// two errors saw one.
#[test]
fn of_two_faults_that_are_due_at_once_the_younger_happens_next() {
    let dir = disk(None);
    let file = dir.create("a", plain()).unwrap();
    for kind in [ErrorKind::TimedOut, ErrorKind::StorageFull] {
        dir.inject(Fault::new(Operation::Read, FaultKind::Fail(kind)).nth(2));
    }
    let read = |_| file.read_at(&mut [0], 0).map_err(|error| error.kind()).err().flatten();
    let errors = [None, Some(ErrorKind::TimedOut), Some(ErrorKind::StorageFull), None];
    assert_eq!([0, 1, 2, 3].map(read), errors);
}

#[test]
fn the_latch_keeps_a_failed_sync_from_being_retried() {
    let dir = disk(None);
    let file = dir.create("a", plain()).unwrap();
    file.write_sync_at(b"old", 0, SyncMethod::Fsync).unwrap();
    dir.inject(Fault::new(Operation::Sync, FaultKind::FailRaw(5)));
    file.write_sync_at(b"new", 0, SyncMethod::Fsync).unwrap_err();
    let late = dir.open("a", plain()).unwrap();
    for handle in [&file, &late] {
        let retried = handle.sync(SyncMethod::Fsync);
        assert!(matches!(retried, Err(Error::Latched { .. })));
    }
    let steps = dir.history();
    let syncs = steps.iter().filter(|step| step.operation == Operation::Sync);
    assert_eq!(syncs.count(), 2, "the retries must not reach the disk");
    assert_eq!(content(&dir, "a"), b"new", "the cache has it");
}

/// What 50 power cuts may leave after each of 20 failures that differ in their seed.
fn left<T: Ord>(fail: impl Fn(u64) -> SimDir, found: impl Fn(&SimDir) -> T) -> BTreeSet<T> {
    let after = |seed| {
        let dir = fail(seed);
        (0..50).map(move |seed| dir.power_cut(seed)).collect::<Vec<_>>()
    };
    (0..20).flat_map(after).map(|dir| found(&dir)).collect()
}

/// The old bytes were certain: that a sync had failed meant that it had done nothing.
#[test]
fn after_a_failed_sync_the_old_and_the_new_bytes_may_be_there() {
    let failed = |seed| {
        let dir = disk(None);
        let file = dir.create("a", plain()).unwrap();
        file.write_sync_at(b"old", 0, SyncMethod::Fsync).unwrap();
        dir.inject(Fault::new(Operation::Sync, FaultKind::FailRaw(5)).seed(seed));
        file.write_sync_at(b"new", 0, SyncMethod::Fsync).unwrap_err();
        dir
    };
    let found = left(failed, |dir| content(dir, "a"));
    assert_eq!(found, BTreeSet::from([b"old".to_vec(), b"new".to_vec()]));
    // Whoever writes it again and syncs it may be certain.
    let mended = |seed| {
        let dir = failed(seed).crash(plimsoll_sync::Crash::Process, seed);
        dir.open("a", plain()).unwrap().write_sync_at(b"end", 0, SyncMethod::Fsync).unwrap();
        dir
    };
    assert_eq!(left(mended, |dir| content(dir, "a")), BTreeSet::from([b"end".to_vec()]));
}

#[test]
fn a_failed_directory_sync_may_lose_the_entry_and_closes_the_directory() {
    let dir = disk(None);
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::FailRaw(5)));
    dir.create("a", plain()).unwrap_err();
    assert_eq!(dir.list().unwrap(), ["a"], "the cache has it");
    assert!(matches!(dir.sync(), Err(Error::Latched { .. })));
    assert!((0..200).any(|seed| dir.power_cut(seed).list().unwrap().is_empty()));
    // The next process sees the entry, and can make it durable.
    let next = dir.crash(plimsoll_sync::Crash::Process, 1);
    assert_eq!(next.list().unwrap(), ["a"]);
    assert!((0..200).any(|seed| next.power_cut(seed).list().unwrap().is_empty()));
    next.sync().unwrap();
    assert!((0..200).all(|seed| next.power_cut(seed).list().unwrap() == ["a"]));
}

/// The old names were certain likewise.
#[test]
fn after_a_failed_directory_sync_a_name_is_there_or_not() {
    type Call = fn(&SimDir) -> Result<(), Error>;
    let calls: [(Call, &[&str]); 3] = [
        (|dir| dir.create("b", Access::default()).map(drop), &["a", "a b"]),
        (|dir| dir.rename("a", "b"), &["a", "a b", "b"]),
        (|dir| dir.remove("a"), &["", "a"]),
    ];
    for (call, expected) in calls {
        let failed = |seed| {
            let dir = disk(None);
            dir.create("a", plain()).unwrap();
            dir.inject(Fault::new(Operation::SyncDir, FaultKind::FailRaw(5)).seed(seed));
            call(&dir).unwrap_err();
            dir
        };
        let found = left(failed, |dir| dir.list().unwrap().join(" "));
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        let renewed = |seed| {
            let dir = failed(seed).crash(plimsoll_sync::Crash::Process, seed);
            dir.sync().unwrap();
            dir
        };
        assert_eq!(left(renewed, |dir| dir.list().unwrap().join(" ")).len(), 1);
    }
}

/// With a journal names are there up to some operation and not beyond it, also where a sync failed.
#[test]
fn after_a_failed_commit_names_are_there_in_order() {
    let failed = |seed| {
        let persistence = Persistence::Journal;
        let dir = SimDir::with(DiskOptions { persistence, ..DiskOptions::default() });
        dir.inject(Fault::new(Operation::SyncDir, FaultKind::DropFlush).times(2));
        dir.inject(Fault::new(Operation::SyncDir, FaultKind::FailRaw(5)).nth(3).seed(seed));
        for name in ["a", "b"] {
            dir.create(name, plain()).unwrap();
        }
        dir.create("c", plain()).unwrap_err();
        dir
    };
    let found = left(failed, |dir| dir.list().unwrap().join(" "));
    assert_eq!(found.iter().collect::<Vec<_>>(), ["", "a", "a b", "a b c"]);
}

/// A failed write had done nothing, to whoever read the file and to whoever found it.
#[test]
fn a_failed_write_may_have_written_a_part() {
    let access = [plain(), SyncMethod::Direct.access()];
    let read = access.map(|access| {
        let failed = |seed| {
            let dir = SimDir::with(DiskOptions { tear: Tear::Bytes512, ..DiskOptions::default() });
            let file = dir.create("a", access).unwrap();
            let mut buf = AlignedBuf::zeroed(1536, 512);
            buf.fill(1);
            file.write_at(&buf, 0).unwrap();
            file.sync(SyncMethod::Fsync).unwrap();
            dir.inject(Fault::new(Operation::Write, FaultKind::FailRaw(5)).seed(seed));
            buf.fill(2);
            file.write_at(&buf, 0).unwrap_err();
            dir
        };
        let sectors = |dir: &SimDir| {
            let bytes = content(dir, "a");
            [0, 1, 2].map(|sector| bytes[sector * 512])
        };
        let read: BTreeSet<[u8; 3]> = (0..60).map(|seed| sectors(&failed(seed))).collect();
        let found = left(failed, sectors);
        assert!(found.contains(&[1; 3]) && found.len() > read.len().min(2), "{found:?}");
        read
    });
    let [cached, direct] = read;
    assert_eq!(cached, BTreeSet::from([[1, 1, 1], [2, 1, 1], [2, 2, 1]]), "the first few");
    assert_eq!(direct.len(), 8, "any of them");
}

#[test]
fn a_short_write_leaves_a_part_and_fails() {
    let dir = disk(None);
    let file = dir.create("a", plain()).unwrap();
    dir.inject(Fault::new(Operation::Write, FaultKind::ShortWrite { bytes: 3 }));
    let error = file.write_at(b"12345", 0).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::StorageFull));
    assert_eq!(content(&dir, "a"), b"123");
    assert!(matches!(file.write_at(b"45", 3), Err(Error::Latched { .. })));
}

#[test]
fn a_short_write_is_never_whole() {
    let dir = disk(None);
    let file = dir.create("a", plain()).unwrap();
    dir.inject(Fault::new(Operation::Write, FaultKind::ShortWrite { bytes: u64::MAX }));
    file.write_at(b"12345", 0).unwrap_err();
    assert_eq!(content(&dir, "a"), b"1234");
}

#[test]
fn a_lying_device_may_lose_what_it_said_it_had() {
    let dir = disk(None);
    let file = dir.create("a", plain()).unwrap();
    file.write_sync_at(b"old", 0, SyncMethod::Fsync).unwrap();
    dir.inject(Fault::new(Operation::Sync, FaultKind::DropFlush));
    file.write_sync_at(b"new", 0, SyncMethod::Fsync).unwrap();
    let found = |seed| content(&dir.power_cut(seed), "a");
    assert!((0..200).any(|seed| found(seed) == b"old"));
    assert!((0..200).any(|seed| found(seed) == b"new"));
    file.sync(SyncMethod::Fsync).unwrap();
    assert!((0..200).all(|seed| content(&dir.power_cut(seed), "a") == b"new"));
}

#[test]
fn a_lying_device_may_lose_a_new_name() {
    let dir = disk(None);
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::DropFlush));
    dir.create("a", plain()).unwrap();
    let lost = |seed: &u64| dir.power_cut(*seed).list().unwrap().is_empty();
    let losses = (0..200).filter(lost).count();
    assert!(losses > 0 && losses < 200, "{losses}");
}

#[test]
fn a_lost_write_is_seen_until_the_power_goes() {
    let dir = disk(None);
    let file = dir.create("a", plain()).unwrap();
    file.write_sync_at(b"old", 0, SyncMethod::Fsync).unwrap();
    dir.inject(Fault::new(Operation::Write, FaultKind::LostWrite));
    file.write_sync_at(b"longer", 0, SyncMethod::Fsync).unwrap();
    assert_eq!(content(&dir, "a"), b"longer");
    assert!((0..200).all(|seed| content(&dir.power_cut(seed), "a") == b"old\0\0\0"));
}

#[test]
fn a_full_disk_takes_what_fits_and_says_so() {
    let dir = disk(Some(3 * 4096));
    let file = dir.create("a", plain()).unwrap();
    let error = file.write_at(&[1; 5 * 4096], 100).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::StorageFull));
    assert_eq!(file.len().unwrap(), 3 * 4096);
    dir.remove("a").unwrap();
    let second = dir.create("b", plain()).unwrap();
    second
        .write_at(b"x", 0)
        .expect_err("the file is gone but for its handle, which keeps its blocks");
    drop((file, second));
    dir.create("c", plain()).unwrap().write_at(&[1; 3 * 4096], 0).unwrap();
}

#[test]
fn a_cut_and_a_crash_give_room_back() {
    let dir = disk(Some(2 * 4096));
    let file = dir.create("a", plain()).unwrap();
    file.write_at(&[1; 2 * 4096], 0).unwrap();
    file.truncate(4096).unwrap();
    file.write_at(&[2; 4096], 4096).unwrap();
    dir.remove("a").unwrap();
    for seed in 0..20 {
        let after = dir.power_cut(seed);
        let second = after.create("b", plain()).unwrap();
        second.write_at(&[1; 2 * 4096], 0).unwrap();
    }
    file.truncate(0).unwrap();
    let second = dir.create("b", plain()).unwrap();
    second.write_at(&[1; 2 * 4096], 0).unwrap();
}

/// There is one operation for it, whether the disk can or not: a run visits the moment before.
#[test]
fn a_disk_that_cannot_punch_says_so_and_does_nothing() {
    for punches in [true, false] {
        let dir = SimDir::with(DiskOptions { punches, ..DiskOptions::default() });
        let file = dir.create("a", plain()).unwrap();
        file.write_sync_at(&[1; 3 * 4096], 0, SyncMethod::Fsync).unwrap();
        assert_eq!(file.punch(4096, 4096).unwrap(), punches);
        let byte = if punches { 0 } else { 1 };
        assert_eq!(content(&dir, "a")[4096..8192], [byte; 4096]);
        let steps: Vec<String> = dir.history().iter().map(ToString::to_string).collect();
        assert_eq!(steps[4], "#4 punch a 4096 bytes at 4096: done");
        file.write_sync_at(&[2; 4096], 4096, SyncMethod::Fsync).unwrap();
        assert_eq!(content(&dir.power_cut(1), "a")[4096..8192], [2; 4096]);
    }
}

#[test]
fn a_punch_that_fails_has_done_nothing_and_the_machine_stops_before_it() {
    for kind in [FaultKind::FailRaw(5), FaultKind::PowerOff] {
        let dir = disk(None);
        let file = dir.create("a", plain()).unwrap();
        file.write_sync_at(&[1; 2 * 4096], 0, SyncMethod::Fsync).unwrap();
        dir.inject(Fault::new(Operation::Punch, kind));
        file.punch(0, 2 * 4096).unwrap_err();
        assert!(matches!(file.write_at(b"x", 0), Err(Error::Latched { .. })));
        let found = dir.crash(plimsoll_sync::Crash::Process, 1);
        assert_eq!(content(&found, "a"), [1; 2 * 4096]);
    }
}

#[test]
fn reserved_blocks_are_there_when_the_disk_is_full() {
    let dir = disk(Some(4 * 4096));
    let (a, b) = (dir.create("a", plain()).unwrap(), dir.create("b", plain()).unwrap());
    a.allocate(0, 2 * 4096, Allocation::Reserved).unwrap();
    b.write_at(&[1; 2 * 4096], 0).unwrap();
    a.write_at(&[1; 2 * 4096], 0).unwrap();
    let error = a.allocate(0, 1 << 40, Allocation::Reserved).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::StorageFull));
    assert_eq!(a.len().unwrap(), 2 * 4096, "all or nothing");
}

#[test]
fn a_machine_that_is_down_does_nothing_more() {
    let dir = disk(None);
    let file = dir.create("a", plain()).unwrap();
    file.write_at(b"1", 0).unwrap();
    dir.stop_at(dir.operations());
    assert!(!dir.is_down());
    file.write_at(b"2", 0).unwrap_err();
    assert!(dir.is_down());
    assert!(file.sync(SyncMethod::Fsync).is_err() && file.len().is_err() && dir.list().is_err());
    let operations = dir.operations();
    dir.create("b", plain()).unwrap_err();
    assert_eq!(dir.operations(), operations);
    assert_eq!(content(&dir.crash(plimsoll_sync::Crash::Process, 0), "a"), b"1");
}

#[test]
fn every_moment_of_a_run_can_be_visited() {
    let workload = |dir: &SimDir| -> Result<(), Error> {
        let file = dir.create("tmp", plain())?;
        file.write_sync_at(b"whole", 0, SyncMethod::Fsync)?;
        dir.rename("tmp", "done")
    };
    let dir = disk(None);
    workload(&dir).unwrap();
    assert_eq!(dir.operations(), 6, "create, sync directory, write, sync, rename, sync directory");
    let mut done = 0;
    for stop in 0..=dir.operations() {
        for seed in 0..50 {
            let dir = disk(None);
            dir.stop_at(stop);
            let finished = workload(&dir).is_ok();
            let after = dir.power_cut(seed);
            let is_done = after.list().unwrap().contains(&"done".to_owned());
            assert!(is_done || !finished, "stopped at {stop}, seed {seed}");
            if is_done {
                done += 1;
                assert_eq!(content(&after, "done"), b"whole", "stopped at {stop}, seed {seed}");
            }
        }
    }
    assert!(done > 50, "also in the middle of the rename");
}

#[test]
fn huge_offsets_cost_nothing_and_impossible_ones_are_refused() {
    let dir = disk(None);
    let open = || dir.open("a", plain()).unwrap();
    dir.create("a", plain()).unwrap();
    let huge = i64::MAX as u64;
    open().write_at(b"x", huge - 1).unwrap();
    open().truncate(1).unwrap();
    open().allocate(0, huge, Allocation::Zeroed).unwrap();
    open().sync(SyncMethod::Fsync).unwrap();
    open().allocate(1, huge - 1, Allocation::Reserved).unwrap();
    assert_eq!(dir.power_cut(1).open("a", plain()).unwrap().len().unwrap(), huge);
    assert_eq!(open().read_at(&mut [0; 9], u64::MAX).unwrap(), 0);
    type Call = fn(&dyn plimsoll_sync::File) -> Result<(), Error>;
    let calls: [Call; 5] = [
        |file| file.write_at(b"xx", u64::MAX),
        |file| file.write_at(b"xx", i64::MAX as u64 - 1),
        |file| file.truncate(u64::MAX),
        |file| file.allocate(u64::MAX, u64::MAX, Allocation::Zeroed),
        |file| file.allocate(1, u64::MAX, Allocation::Reserved),
    ];
    for (number, call) in calls.into_iter().enumerate() {
        let dir = disk(Some(1 << 20));
        let file = dir.create("a", plain()).unwrap();
        let error = call(&*file).unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::FileTooLarge), "call {number}: {error}");
        assert_eq!(file.len().unwrap(), 0);
    }
}

#[test]
fn a_direct_file_refuses_what_the_kernel_would_and_stays_open() {
    let dir = disk(None);
    let file = dir.create("a", SyncMethod::DirectODsync.access()).unwrap();
    let buf = AlignedBuf::zeroed(1024, 512);
    for (bytes, at) in [(&buf[..511], 0), (&buf[..512], 8), (&buf[8..520], 0)] {
        let error = file.write_at(bytes, at).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    let error = file.write_at(&buf[..511], u64::MAX).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::FileTooLarge), "{error}");
    file.write_at(&buf, 512).unwrap();
    assert_eq!(file.len().unwrap(), 1536);
}

#[test]
fn a_mapping_cannot_grow_a_file() {
    let dir = disk(None);
    let file = dir.create("a", plain()).unwrap();
    let error = file.write_sync_at(b"x", 0, SyncMethod::Msync).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    file.allocate(0, 1, Allocation::Reserved).unwrap();
    file.write_sync_at(b"x", 0, SyncMethod::Msync).unwrap();
}

#[test]
#[should_panic(expected = "can never happen")]
fn a_fault_that_cannot_happen_is_refused() {
    disk(None).inject(Fault::new(Operation::Read, FaultKind::LostWrite));
}

#[test]
fn after_a_failed_directory_sync_no_name_changes_any_more() {
    let dir = disk(None);
    dir.create("a", plain()).unwrap();
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::FailRaw(5)));
    dir.create("b", plain()).unwrap_err();
    let before = dir.list().unwrap();
    assert!(matches!(dir.create("c", plain()), Err(Error::Latched { .. })));
    assert!(matches!(dir.rename("a", "d"), Err(Error::Latched { .. })));
    assert!(matches!(dir.remove("a"), Err(Error::Latched { .. })));
    assert_eq!(dir.list().unwrap(), before);
}
