//! Disks without room: what each kind refuses, when, and what it does not lose.

use std::io::ErrorKind;
use std::sync::Arc;

use plimsoll_simdisk::{DiskOptions, FillsAt, Overwriting, SimDir};
use plimsoll_sync::{
    Access, AlignedBuf, Allocation, Crash, Dir, Error, File, Overwrite, SyncMethod, System,
};

const PAGE: u64 = 4096;
const PAGES: u64 = 16;
const ELSEWHERE: Overwriting = Overwriting::Elsewhere { in_place_on_request: true };
const FSYNC: SyncMethod = SyncMethod::Fsync;

fn disk(overwriting: Overwriting, fills_at: FillsAt) -> SimDir {
    SimDir::with(DiskOptions {
        system: System::Linux,
        capacity_bytes: Some(PAGES * PAGE),
        overwriting,
        fills_at,
        ..DiskOptions::default()
    })
}

fn pages(pages: u64, byte: u8) -> Vec<u8> {
    vec![byte; usize::try_from(pages * PAGE).unwrap()]
}

/// A file of so many synced pages of ones.
fn file_of(dir: &SimDir, name: &str, len: u64) -> Arc<dyn File> {
    let file = dir.create(name, Access::default()).unwrap();
    file.write_sync_at(&pages(len, 1), 0, FSYNC).unwrap();
    file
}

fn content(dir: &SimDir, name: &str) -> Vec<u8> {
    let file = dir.open(name, Access::default()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn is_full<T: std::fmt::Debug>(done: plimsoll_sync::Result<T>) -> bool {
    done.unwrap_err().kind() == Some(ErrorKind::StorageFull)
}

#[test]
fn each_kind_of_disk_says_what_it_does() {
    for (overwriting, said) in [
        (Overwriting::InPlace, Overwrite::InPlace),
        (ELSEWHERE, Overwrite::Elsewhere),
        (Overwriting::Memory, Overwrite::Memory),
    ] {
        assert_eq!(disk(overwriting, FillsAt::Write).overwrite(), said);
    }
}

#[test]
fn in_place_and_in_memory_a_full_disk_is_overwritten_and_refuses_new_blocks_at_the_write() {
    for overwriting in [Overwriting::InPlace, Overwriting::Memory] {
        let dir = disk(overwriting, FillsAt::Write);
        let file = file_of(&dir, "a", PAGES);
        file.write_sync_at(&pages(PAGES, 2), 0, FSYNC).unwrap();
        let other = dir.create("b", Access::default()).unwrap();
        assert!(is_full(other.write_at(b"x", 0)));
        assert!(matches!(other.write_at(b"x", 0), Err(Error::Latched { .. })));
        assert_eq!(content(&dir.power_cut(1), "a"), pages(PAGES, 2));
    }
}

/// A log on btrfs accepted records into blocks that it had made ready, and the disk had no room to
/// overwrite them.
#[test]
fn elsewhere_zeros_that_were_written_ahead_do_not_help_on_a_full_disk() {
    let dir = disk(ELSEWHERE, FillsAt::Write);
    let file = dir.create("a", Access::default()).unwrap();
    file.allocate(0, PAGES * PAGE, Allocation::Zeroed).unwrap();
    file.sync(FSYNC).unwrap();
    assert!(is_full(file.write_at(b"record", 0)));
    for seed in 0..50 {
        assert_eq!(content(&dir.power_cut(seed), "a"), pages(PAGES, 0));
    }
}

#[test]
fn elsewhere_reserved_blocks_take_bytes_once() {
    let dir = disk(ELSEWHERE, FillsAt::Write);
    let file = dir.create("a", Access::default()).unwrap();
    file.allocate(0, PAGES * PAGE, Allocation::Reserved).unwrap();
    file.write_sync_at(&pages(PAGES, 1), 0, FSYNC).unwrap();
    assert!(is_full(file.write_at(b"record", 0)));
}

#[test]
fn elsewhere_the_room_of_old_bytes_comes_back_with_the_sync() {
    let dir = disk(ELSEWHERE, FillsAt::Write);
    let half = PAGES / 2;
    let file = file_of(&dir, "a", half);
    for byte in 2..10 {
        file.write_at(&pages(half, byte), 0).unwrap();
        let other = dir.create("other", Access::default()).unwrap();
        assert!(is_full(other.write_at(b"x", 0)), "the old bytes are held");
        dir.remove("other").unwrap();
        file.sync(FSYNC).unwrap();
        let other = dir.create("other", Access::default()).unwrap();
        other.write_at(&pages(half, 0), 0).unwrap();
        drop(other);
        dir.remove("other").unwrap();
    }
    // A sync of every write gives each back at once.
    let through = dir.open("a", SyncMethod::ODsync.access()).unwrap();
    for page in 0..half {
        through.write_at(&pages(1, 7), page * PAGE).unwrap();
    }
}

#[test]
fn a_file_that_is_kept_in_place_is_overwritten_on_a_full_disk_also_after_a_crash() {
    let dir = disk(ELSEWHERE, FillsAt::Write);
    let file = dir.create("a", Access::default()).unwrap();
    assert!(file.keep_in_place().unwrap());
    file.allocate(0, PAGES * PAGE, Allocation::Reserved).unwrap();
    file.write_sync_at(&pages(PAGES, 1), 0, FSYNC).unwrap();
    file.write_sync_at(&pages(PAGES, 2), 0, FSYNC).unwrap();
    for crash in [Crash::Process, Crash::System, Crash::PowerCut] {
        let found = dir.crash(crash, 1);
        let file = found.open("a", Access::default()).unwrap();
        assert!(file.keep_in_place().unwrap(), "it still is");
        file.write_sync_at(&pages(PAGES, 3), 0, FSYNC).unwrap();
        assert_eq!(content(&found, "a"), pages(PAGES, 3));
    }
}

#[test]
fn to_be_kept_in_place_is_granted_to_empty_files_and_where_the_disk_can() {
    let dir = disk(ELSEWHERE, FillsAt::Write);
    assert!(!file_of(&dir, "late", 1).keep_in_place().unwrap());
    let cannot = disk(Overwriting::Elsewhere { in_place_on_request: false }, FillsAt::Write);
    let file = cannot.create("a", Access::default()).unwrap();
    assert!(!file.keep_in_place().unwrap());
    file.write_sync_at(&pages(PAGES, 1), 0, FSYNC).unwrap();
    assert!(is_full(file.write_at(b"record", 0)));
}

#[test]
fn what_is_punched_gives_room_back_and_takes_it_again_when_it_is_written() {
    for overwriting in [Overwriting::InPlace, ELSEWHERE, Overwriting::Memory] {
        let dir = disk(overwriting, FillsAt::Write);
        let file = file_of(&dir, "a", PAGES);
        assert_eq!(dir.space().unwrap().free_bytes, 0);
        assert!(file.punch(2 * PAGE, 6 * PAGE).unwrap());
        assert_eq!(dir.space().unwrap().free_bytes, 6 * PAGE, "{overwriting:?}");
        file.sync(FSYNC).unwrap();
        for seed in 0..50 {
            assert_eq!(dir.power_cut(seed).space().unwrap().free_bytes, 6 * PAGE);
        }
        let other = file_of(&dir, "b", 5);
        file.write_at(&pages(1, 2), 3 * PAGE).expect("the last block");
        assert!(is_full(file.write_at(&pages(1, 2), 4 * PAGE)), "{overwriting:?}");
        // Twice is once.
        assert!(other.punch(0, 2 * PAGE).unwrap() && other.punch(0, 2 * PAGE).unwrap());
        assert_eq!(dir.space().unwrap().free_bytes, 2 * PAGE);
    }
}

/// On btrfs they are written like other bytes.
#[test]
fn elsewhere_the_edges_of_a_hole_need_room_and_whole_pages_none() {
    let dir = disk(ELSEWHERE, FillsAt::Write);
    let file = file_of(&dir, "a", PAGES);
    assert!(is_full(file.punch(PAGE - 1, PAGE + 2)));
    assert_eq!(content(&dir, "a"), pages(PAGES, 1));
    let found = dir.power_cut(1);
    let file = found.open("a", Access::default()).unwrap();
    assert!(file.punch(0, 2 * PAGE).unwrap());
    assert!(file.punch(PAGE / 2, PAGE / 2).unwrap(), "of a hole there is nothing to be zeroed");
    assert_eq!(found.space().unwrap().free_bytes, 2 * PAGE);
    // One of the two blocks; the old one of that page comes back with the sync.
    assert!(file.punch(2 * PAGE, 1).unwrap());
    assert_eq!(found.space().unwrap().free_bytes, PAGE);
    file.sync(FSYNC).unwrap();
    assert_eq!(found.space().unwrap().free_bytes, 2 * PAGE);
}

#[test]
fn a_disk_that_fills_at_the_sync_needs_no_room_for_what_was_punched_before() {
    for overwriting in [Overwriting::InPlace, ELSEWHERE] {
        let dir = disk(overwriting, FillsAt::Sync);
        let file = file_of(&dir, "a", PAGES - 2);
        file.write_at(&pages(1, 2), 0).unwrap();
        file.write_at(&pages(6, 2), (PAGES - 2) * PAGE).unwrap();
        assert!(file.punch((PAGES - 2) * PAGE, 5 * PAGE).unwrap());
        let other = file_of(&dir, "b", if overwriting == ELSEWHERE { 0 } else { 1 });
        file.sync(FSYNC).expect("its last page, and another for the first if it goes elsewhere");
        other.write_at(b"x", PAGE).unwrap();
        assert_eq!(other.sync(FSYNC).is_ok(), overwriting == ELSEWHERE);
    }
}

#[test]
fn a_disk_that_fills_at_the_sync_takes_the_write_and_loses_it() {
    for overwriting in [Overwriting::InPlace, ELSEWHERE] {
        let dir = disk(overwriting, FillsAt::Sync);
        let kept = file_of(&dir, "kept", PAGES - 4);
        let lost = dir.create("lost", Access::default()).unwrap();
        lost.write_at(&pages(5, 2), 0).unwrap();
        assert_eq!(content(&dir, "lost"), pages(5, 2), "the page cache has it");
        assert!(is_full(lost.sync(FSYNC)), "{overwriting:?}");
        assert!(matches!(lost.sync(FSYNC), Err(Error::Latched { .. })));
        // Somebody else's bytes that have no block take nobody's room.
        kept.write_sync_at(&pages(4, 3), 0, FSYNC).unwrap();
        for seed in 0..50 {
            let found = dir.power_cut(seed);
            let expected = [pages(4, 3), pages(PAGES - 8, 1)].concat();
            assert_eq!(content(&found, "kept"), expected);
            assert!(content(&found, "lost").iter().all(|&byte| byte == 0), "its sync failed");
        }
        drop(lost);
        dir.remove("lost").unwrap();
        file_of(&dir, "next", 4);
    }
}

#[test]
fn a_sync_of_the_whole_disk_needs_room_for_all_that_was_written() {
    let dir = disk(ELSEWHERE, FillsAt::Sync);
    let (a, b) = (file_of(&dir, "a", 6), file_of(&dir, "b", 6));
    a.write_at(&pages(4, 2), 0).unwrap();
    b.write_at(&pages(1, 2), 0).unwrap();
    assert!(is_full(a.sync(SyncMethod::Syncfs)));
    // What the first file lost needs no room any more, and the second has lost nothing.
    b.sync(SyncMethod::Syncfs).unwrap();
    for seed in 0..50 {
        let found = dir.power_cut(seed);
        assert_eq!(content(&found, "a"), pages(6, 1));
        assert_eq!(content(&found, "b"), [pages(1, 2), pages(5, 1)].concat());
    }
}

#[test]
fn what_cannot_be_delayed_is_refused_at_once() {
    let dir = disk(Overwriting::InPlace, FillsAt::Sync);
    file_of(&dir, "a", PAGES - 1);
    let reserved = dir.create("reserved", Access::default()).unwrap();
    assert!(is_full(reserved.allocate(0, 2 * PAGE, Allocation::Reserved)));
    dir.create("direct", Access::default()).unwrap();
    let direct = dir.open("direct", SyncMethod::Direct.access()).unwrap();
    let buf = AlignedBuf::zeroed(8192, 4096);
    assert!(is_full(direct.write_at(&buf, 0)));
    drop(direct);
    dir.remove("direct").unwrap();
    dir.create("through", Access::default()).unwrap();
    let through = dir.open("through", SyncMethod::ODsync.access()).unwrap();
    through.write_at(&pages(1, 1), 0).expect("the last block");
    assert!(is_full(through.write_at(&pages(1, 1), PAGE)), "the write waits for its sync");
}
