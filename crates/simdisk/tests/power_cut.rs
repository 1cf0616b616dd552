//! What a power cut may take, and what it must leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, SimDir, Tear};
use plimsoll_sync::{
    Access, AlignedBuf, Allocation, Crash, Dir, File, Promise, SyncMethod, System, Through,
};

const SEEDS: u64 = 200;

const PLAIN: Access = Access { direct: false, through: Through::No };

fn disk(system: System, tear: Tear) -> SimDir {
    SimDir::with(DiskOptions { system, tear, ..DiskOptions::default() })
}

fn linux() -> SimDir {
    disk(System::Linux, Tear::Bytes4096)
}

fn content(dir: &SimDir, name: &str) -> Vec<u8> {
    let file = dir.open(name, PLAIN).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// Everything that a file may hold after a crash, over many seeds.
fn found(dir: &SimDir, crash: Crash, name: &str) -> BTreeSet<Vec<u8>> {
    let found = |seed| content(&dir.crash(crash, seed), name);
    (0..SEEDS).map(found).collect()
}

fn file_with(dir: &SimDir, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = dir.create(name, PLAIN).unwrap();
    file.write_sync_at(bytes, 0, SyncMethod::Fsync).unwrap();
    file
}

fn set<const N: usize>(outcomes: [&[u8]; N]) -> BTreeSet<Vec<u8>> {
    outcomes.into_iter().map(<[u8]>::to_vec).collect()
}

#[test]
fn unsynced_bytes_may_be_lost() {
    let dir = linux();
    let file = file_with(&dir, "a", b"old");
    file.write_at(b"new", 0).unwrap();
    assert_eq!(found(&dir, Crash::PowerCut, "a"), set([b"old", b"new"]));
    assert_eq!(found(&dir, Crash::System, "a"), set([b"old", b"new"]));
    assert_eq!(found(&dir, Crash::Process, "a"), set([b"new"]));
}

#[test]
fn every_method_keeps_its_promise_in_every_crash_and_no_more() {
    for system in [System::Linux, System::Apple, System::Windows] {
        for method in SyncMethod::ALL {
            let Some(promise) = method.promise(system) else {
                continue;
            };
            let dir = disk(system, Tear::Bytes4096);
            let medium = match system {
                System::Windows => SyncMethod::FlushFileBuffers,
                System::Apple => SyncMethod::FullFsync,
                _ => SyncMethod::Fsync,
            };
            let zeros = dir.create("a", PLAIN).unwrap();
            zeros.allocate(0, 4096, Allocation::Zeroed).unwrap();
            zeros.sync(medium).unwrap();
            let file = dir.open("a", method.access()).unwrap();
            let mut buf = AlignedBuf::zeroed(4096, 4096);
            buf.fill(7);
            assert_eq!(file.write_sync_at(&buf, 0, method).unwrap(), promise);
            for crash in [Crash::Process, Crash::System, Crash::PowerCut] {
                let outcomes = found(&dir, crash, "a");
                let kept = outcomes == BTreeSet::from([buf.to_vec()]);
                assert_eq!(kept, promise.survives(crash), "{method} after {crash:?}");
                assert!(kept || outcomes.len() == 2, "{method} after {crash:?}");
            }
        }
    }
}

#[test]
fn a_write_that_syncs_itself_covers_no_other() {
    let dir = linux();
    let file = file_with(&dir, "a", &[b'-'; 8192]);
    file.write_at(b"1", 0).unwrap();
    file.write_sync_at(b"2", 4096, SyncMethod::RwfDsync).unwrap();
    let firsts: BTreeSet<u8> = (0..SEEDS)
        .map(|seed| {
            let found = content(&dir.power_cut(seed), "a");
            assert_eq!(found[4096], b'2', "seed {seed}");
            found[0]
        })
        .collect();
    assert_eq!(firsts, BTreeSet::from([b'-', b'1']));
}

#[test]
fn a_call_covers_what_was_written_before_through_any_handle() {
    let dir = linux();
    let file = file_with(&dir, "a", &[b'-'; 8192]);
    let other = dir.open("a", PLAIN).unwrap();
    other.write_at(b"1", 0).unwrap();
    file.write_sync_at(b"2", 4096, SyncMethod::Fdatasync).unwrap();
    assert_eq!(found(&dir, Crash::PowerCut, "a").len(), 1);
}

#[test]
fn a_file_may_be_longer_than_what_reached_it_and_then_reads_as_zeros() {
    let dir = linux();
    let file = file_with(&dir, "a", b"");
    file.write_at(b"data", 0).unwrap();
    let expected = set([b"", b"data", b"\0\0\0\0"]);
    assert_eq!(found(&dir, Crash::PowerCut, "a"), expected);
}

#[test]
fn direct_writes_into_new_blocks_may_be_lost_in_a_crash_of_the_system() {
    for (allocation, outcomes) in [(Allocation::Reserved, 2), (Allocation::Zeroed, 1)] {
        let dir = linux();
        let plain = dir.create("a", PLAIN).unwrap();
        plain.allocate(0, 512, allocation).unwrap();
        plain.sync(SyncMethod::Fsync).unwrap();
        let file = dir.open("a", SyncMethod::Direct.access()).unwrap();
        let mut buf = AlignedBuf::zeroed(512, 512);
        buf.fill(7);
        file.write_at(&buf, 0).unwrap();
        let found = found(&dir, Crash::System, "a");
        assert!(found.contains(&buf.to_vec()));
        assert_eq!(found.len(), outcomes, "{allocation:?}");
    }
}

#[test]
fn what_a_system_crash_left_may_still_be_lost_to_a_power_cut() {
    let dir = linux();
    let file = file_with(&dir, "a", b"old");
    file.write_at(b"new", 0).unwrap();
    let after = (0..SEEDS)
        .map(|seed| dir.crash(Crash::System, seed))
        .find(|dir| content(dir, "a") == b"new")
        .unwrap();
    assert_eq!(found(&after, Crash::PowerCut, "a"), set([b"old", b"new"]));
    let file = after.open("a", PLAIN).unwrap();
    file.sync(SyncMethod::Fsync).unwrap();
    assert_eq!(found(&after, Crash::PowerCut, "a"), set([b"new"]));
}

#[test]
fn what_a_power_cut_left_is_durable() {
    let dir = linux();
    file_with(&dir, "a", b"old").write_at(b"newer", 0).unwrap();
    for seed in 0..SEEDS {
        let after = dir.power_cut(seed);
        let outcomes = found(&after.crash(Crash::Process, 0), Crash::PowerCut, "a");
        assert_eq!(outcomes, BTreeSet::from([content(&after, "a")]));
    }
}

#[test]
fn a_write_tears_at_512_bytes_only_on_a_disk_that_does() {
    for (tear, tears) in [(Tear::Bytes4096, false), (Tear::Bytes512, true)] {
        let dir = disk(System::Linux, tear);
        let file = file_with(&dir, "a", &[b'-'; 4096]);
        file.write_at(&[b'+'; 4096], 0).unwrap();
        let outcomes = found(&dir, Crash::PowerCut, "a");
        for bytes in &outcomes {
            let sectors = || bytes.chunks(512);
            assert!(sectors().all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        }
        assert_eq!(outcomes.len() > 2, tears);
        if tears {
            let torn = |wanted: fn(usize) -> u8| {
                let bytes: Vec<u8> = (0..8).flat_map(|sector| [wanted(sector); 512]).collect();
                outcomes.contains(&bytes)
            };
            assert!(torn(|sector| if sector < 3 { b'+' } else { b'-' }), "a prefix");
            assert!(torn(|sector| if sector < 3 { b'-' } else { b'+' }), "a suffix");
            assert!(
                outcomes.iter().any(|bytes| bytes[0] == bytes[4095] && bytes[0] != bytes[2048])
            );
        }
    }
}

#[test]
fn a_write_of_many_pages_tears_between_them() {
    let dir = linux();
    let file = file_with(&dir, "a", &[b'-'; 4 * 4096]);
    file.write_at(&[b'+'; 4 * 4096], 0).unwrap();
    let found = |seed| content(&dir.power_cut(seed), "a");
    let outcomes: BTreeSet<_> = (0..1000).map(found).collect();
    assert_eq!(outcomes.len(), 16, "every subset of four pages");
    assert!(outcomes.iter().all(|bytes| bytes.chunks(4096).all(|page| page == [page[0]; 4096])));
}

#[test]
fn until_a_hole_is_synced_each_page_of_it_is_as_it_was_or_zeros() {
    let dir = linux();
    let file = file_with(&dir, "a", &[b'-'; 6 * 4096]);
    // From the middle of a page to the middle of another, with four between.
    assert!(file.punch(2048, 5 * 4096).unwrap());
    let found = |seed| content(&dir.power_cut(seed), "a");
    let outcomes: BTreeSet<_> = (0..2000).map(found).collect();
    let mut middles = BTreeSet::new();
    for bytes in &outcomes {
        let parts: Vec<&[u8]> = bytes.chunks(2048).collect();
        assert_eq!(parts.len(), 12, "the length stays");
        assert!(parts.iter().all(|part| part == &[part[0]; 2048]));
        assert!(parts[0][0] == b'-' && parts[11][0] == b'-', "the neighbours stay");
        let middle = [2, 4, 6, 8].map(|part| {
            assert_eq!(parts[part], parts[part + 1], "a page does not tear");
            parts[part][0]
        });
        middles.insert(middle);
    }
    assert_eq!(middles.len(), 16, "every subset of four pages");
    assert!(outcomes.iter().any(|bytes| bytes[2048] == 0 && bytes[4096] != 0), "an edge alone");
    file.sync(SyncMethod::Fdatasync).unwrap();
    let mut expected = vec![b'-'; 6 * 4096];
    expected[2048..2048 + 5 * 4096].fill(0);
    for crash in [Crash::Process, Crash::System, Crash::PowerCut] {
        assert_eq!(self::found(&dir, crash, "a"), BTreeSet::from([expected.clone()]));
    }
}

/// Of a hole over half a disk no more is remembered than of a small one.
#[test]
fn a_large_hole_may_be_there_in_parts() {
    let dir = linux();
    let file = dir.create("a", PLAIN).unwrap();
    let len = 1 << 40;
    file.truncate(len).unwrap();
    let ends = [0, 4096, len / 2, len - 4096];
    for at in ends {
        file.write_at(&[1; 4096], at).unwrap();
    }
    file.sync(SyncMethod::Fsync).unwrap();
    assert!(file.punch(0, len).unwrap());
    let firsts = |seed| {
        let found = dir.power_cut(seed).open("a", PLAIN).unwrap();
        assert_eq!(found.len().unwrap(), len);
        ends.map(|at| {
            let mut byte = [9];
            assert_eq!(found.read_at(&mut byte, at).unwrap(), 1);
            byte[0]
        })
    };
    let outcomes: BTreeSet<[u8; 4]> = (0..1000).map(firsts).collect();
    for expected in [[0; 4], [1; 4], [0, 0, 1, 0], [1, 1, 0, 1]] {
        assert!(outcomes.contains(&expected), "{expected:?} of {outcomes:?}");
    }
}

/// The blocks are new, and the medium does not know of them, though it still knows of others there.
#[test]
fn a_direct_write_into_a_hole_may_be_lost_in_a_crash_of_the_system() {
    let dir = linux();
    let file = file_with(&dir, "a", &[b'-'; 4096]);
    assert!(file.punch(0, 4096).unwrap());
    let direct = dir.open("a", SyncMethod::Direct.access()).unwrap();
    let mut buf = AlignedBuf::zeroed(4096, 4096);
    buf.fill(b'+');
    direct.write_at(&buf, 0).unwrap();
    let outcomes = found(&dir, Crash::System, "a");
    assert_eq!(outcomes, set([&[0; 4096], &[b'-'; 4096], &[b'+'; 4096]]));
    file.sync(SyncMethod::Fsync).unwrap();
    assert_eq!(found(&dir, Crash::PowerCut, "a"), set([&[b'+'; 4096]]));
    // As little where the device has the hole, and may lose it.
    assert!(file.punch(0, 4096).unwrap());
    dir.inject(Fault::new(Operation::Sync, FaultKind::DropFlush));
    file.sync(SyncMethod::Fsync).unwrap();
    direct.write_at(&buf, 0).unwrap();
    let outcomes = found(&dir, Crash::System, "a");
    assert_eq!(outcomes, set([&[0; 4096], &[b'+'; 4096]]));
}

#[test]
fn what_was_cut_off_may_come_back_until_the_cut_is_synced() {
    let dir = linux();
    let file = file_with(&dir, "a", b"123456");
    file.truncate(2).unwrap();
    file.write_at(b"!", 4).unwrap();
    let outcomes = found(&dir, Crash::PowerCut, "a");
    assert!(outcomes.contains(&b"123456"[..]) && outcomes.contains(&b"12\0\0!"[..]));
    file.sync(SyncMethod::Fsync).unwrap();
    assert_eq!(found(&dir, Crash::PowerCut, "a"), set([b"12\0\0!"]));
}

#[test]
fn a_barrier_lets_nothing_overtake_what_came_before_it() {
    let dir = disk(System::Apple, Tear::Bytes512);
    let first = file_with(&dir, "first", b"-");
    let second = file_with(&dir, "second", b"-");
    for file in [&first, &second] {
        file.sync(SyncMethod::FullFsync).unwrap();
    }
    first.write_sync_at(b"1", 0, SyncMethod::BarrierFsync).unwrap();
    second.write_at(b"2", 0).unwrap();
    let mut states = BTreeSet::new();
    for seed in 0..SEEDS {
        let after = dir.power_cut(seed);
        states.insert((content(&after, "first")[0], content(&after, "second")[0]));
    }
    assert_eq!(states, BTreeSet::from([(b'-', b'-'), (b'1', b'-'), (b'1', b'2')]));
    second.sync(SyncMethod::FullFsync).unwrap();
    assert_eq!(found(&dir, Crash::PowerCut, "first"), set([b"1"]));
}

#[test]
fn entries_are_durable_when_the_call_returns() {
    let dir = linux();
    file_with(&dir, "a", b"1");
    dir.rename("a", "b").unwrap();
    dir.create("c", PLAIN).unwrap();
    dir.remove("c").unwrap();
    for seed in 0..SEEDS {
        let after = dir.power_cut(seed);
        assert_eq!(after.list().unwrap(), ["b"]);
        assert_eq!(content(&after, "b"), b"1");
    }
}

/// The lists of names that a power cut leaves in the middle of `call`, before it synced.
fn lists_in_the_middle_of(call: impl Fn(&SimDir)) -> BTreeSet<Vec<String>> {
    let dir = linux();
    file_with(&dir, "a", b"1");
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::PowerOff));
    call(&dir);
    assert!(dir.is_down());
    (0..SEEDS).map(|seed| dir.power_cut(seed).list().unwrap()).collect()
}

fn lists<const N: usize>(lists: [&[&str]; N]) -> BTreeSet<Vec<String>> {
    let owned = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
    lists.into_iter().map(owned).collect()
}

#[test]
fn an_entry_that_is_not_synced_may_be_lost() {
    let created = lists_in_the_middle_of(|dir| {
        dir.create("b", PLAIN).unwrap_err();
    });
    assert_eq!(created, lists([&["a"], &["a", "b"]]));
    let removed = lists_in_the_middle_of(|dir| {
        dir.remove("a").unwrap_err();
    });
    assert_eq!(removed, lists([&["a"], &[]]));
}

#[test]
fn a_renamed_file_is_never_without_a_name() {
    let renamed = lists_in_the_middle_of(|dir| {
        dir.rename("a", "b").unwrap_err();
    });
    assert_eq!(renamed, lists([&["a"], &["a", "b"], &["b"]]));
}

#[test]
fn syncfs_makes_everything_durable() {
    let dir = linux();
    dir.inject(Fault::new(Operation::SyncDir, FaultKind::DropFlush).sticky());
    let (a, b) = (file_with(&dir, "a", b"-"), file_with(&dir, "b", b"-"));
    a.write_at(b"1", 0).unwrap();
    b.write_sync_at(b"2", 0, SyncMethod::Syncfs).unwrap();
    assert_eq!(found(&dir, Crash::PowerCut, "a"), set([b"1"]));
    assert_eq!(found(&dir, Crash::PowerCut, "b"), set([b"2"]));
}

#[test]
fn a_crash_takes_locks_and_files_without_names_and_leaves_the_original_alone() {
    let dir = linux();
    let _lock = dir.lock("lock").unwrap();
    let ghost = file_with(&dir, "ghost", b"1");
    dir.remove("ghost").unwrap();
    for crash in [Crash::Process, Crash::System, Crash::PowerCut] {
        let after = dir.crash(crash, 3);
        after.lock("lock").unwrap();
        assert!(after.open("ghost", PLAIN).is_err());
    }
    ghost.write_sync_at(b"still here", 0, SyncMethod::Fsync).unwrap();
    assert_eq!(ghost.len().unwrap(), 10);
    assert!(dir.lock("lock").is_err());
    assert_eq!(SyncMethod::Fsync.promise(System::Linux), Some(Promise::Media));
}
