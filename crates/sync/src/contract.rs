//! The suite that every [`Dir`] and [`File`] must pass (feature `contract`).
//!
//! A clause says in its name what holds. What needs a power cut or an injected failure to be seen
//! is tested where those can be had, in plimsoll-simdisk.

#![cfg_attr(not(test), expect(clippy::unwrap_used, reason = "a clause that does not hold panics"))]

use std::io;
use std::sync::Arc;

use crate::{
    Access, AlignedBuf, Allocation, Dir, Error, File, Overwrite, Promise, SyncMethod, System,
    Through,
};

/// Runs every clause on a fresh, empty directory from `make`.
///
/// # Panics
/// With the name of the first clause that does not hold.
pub fn check(make: &dyn Fn() -> Arc<dyn Dir>) {
    for (name, clause) in CLAUSES {
        // The clause's own panic follows this line in the output of a test.
        #[expect(clippy::print_stderr, reason = "names the clause whose assertion fails")]
        {
            eprintln!("contract: {name}");
        }
        clause(&*make());
    }
}

type Clause = fn(&dyn Dir);

macro_rules! clauses {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as Clause)),*] };
}

const CLAUSES: &[(&str, Clause)] = clauses![
    a_created_file_is_empty_and_listed,
    create_refuses_a_name_that_is_taken,
    open_refuses_a_name_that_is_missing,
    names_stay_inside_the_directory,
    the_list_is_sorted,
    what_was_written_is_read_back,
    a_read_past_the_end_is_short,
    a_write_past_the_end_leaves_zeros_between,
    two_handles_see_one_file,
    truncate_cuts_and_grows_with_zeros,
    reserved_blocks_read_as_zeros_and_keep_what_was_there,
    zeroed_blocks_read_as_zeros,
    a_punched_range_reads_as_zeros_and_nothing_else_changes,
    a_hole_past_the_end_does_not_grow_the_file,
    a_hole_of_no_bytes_is_none,
    rename_replaces_and_moves,
    rename_refuses_a_name_that_is_missing,
    a_removed_file_is_gone_but_its_handle_goes_on,
    a_name_can_be_used_again_after_remove,
    a_lock_excludes_until_dropped,
    a_lock_outlives_its_file,
    directories_hold_directories_apart_from_files,
    a_directory_can_be_made_again_and_is_the_same,
    a_name_leads_to_a_file_or_to_a_directory,
    a_file_that_is_kept_in_place_is_written_as_any_other,
    every_method_keeps_its_promise_or_says_that_it_is_unsupported,
    only_calls_sync_what_was_written_before,
    a_hint_to_write_out_changes_nothing,
    a_method_needs_a_file_opened_for_it,
    direct_files_refuse_what_is_not_aligned_and_go_on,
    a_range_that_no_file_can_hold_is_refused_and_changes_nothing,
    a_new_file_under_an_old_name_starts_afresh,
    at_least_one_method_reaches_the_medium_or_none_claims_to,
];

const PLAIN: Access = Access { direct: false, through: Through::No };

fn a_created_file_is_empty_and_listed(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    assert!(file.is_empty().unwrap());
    assert_eq!(file.alignment(), 1);
    assert_eq!(dir.list().unwrap(), ["a"]);
    dir.sync().unwrap();
}

fn create_refuses_a_name_that_is_taken(dir: &dyn Dir) {
    dir.create("a", PLAIN).unwrap().write_at(b"kept", 0).unwrap();
    let error = dir.create("a", PLAIN).unwrap_err();
    assert_eq!(error.kind(), Some(io::ErrorKind::AlreadyExists));
    assert_eq!(content(&*dir.open("a", PLAIN).unwrap()), b"kept");
}

fn open_refuses_a_name_that_is_missing(dir: &dyn Dir) {
    assert_eq!(dir.open("a", PLAIN).unwrap_err().kind(), Some(io::ErrorKind::NotFound));
    assert_eq!(dir.remove("a").unwrap_err().kind(), Some(io::ErrorKind::NotFound));
}

fn names_stay_inside_the_directory(dir: &dyn Dir) {
    for name in ["", ".", "..", "a/b", "/a", "../a", "a/"] {
        assert!(matches!(dir.create(name, PLAIN), Err(Error::Name { .. })), "create {name:?}");
        assert!(matches!(dir.open(name, PLAIN), Err(Error::Name { .. })), "open {name:?}");
        assert!(matches!(dir.remove(name), Err(Error::Name { .. })), "remove {name:?}");
        assert!(matches!(dir.rename("a", name), Err(Error::Name { .. })), "rename to {name:?}");
        assert!(matches!(dir.lock(name), Err(Error::Name { .. })), "lock {name:?}");
        assert!(matches!(dir.create_dir(name), Err(Error::Name { .. })), "create_dir {name:?}");
        assert!(matches!(dir.open_dir(name), Err(Error::Name { .. })), "open_dir {name:?}");
    }
}

fn the_list_is_sorted(dir: &dyn Dir) {
    for name in ["b", "c", "a"] {
        dir.create(name, PLAIN).unwrap();
    }
    assert_eq!(dir.list().unwrap(), ["a", "b", "c"]);
}

fn what_was_written_is_read_back(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    let bytes: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
    file.write_at(&bytes, 0).unwrap();
    file.write_at(b"over", 5_000).unwrap();
    let mut expected = bytes;
    expected[5_000..5_004].copy_from_slice(b"over");
    assert_eq!(content(&*file), expected);
}

fn a_read_past_the_end_is_short(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    file.write_at(b"12345", 0).unwrap();
    let mut buf = [0; 8];
    assert_eq!(file.read_at(&mut buf, 3).unwrap(), 2);
    assert_eq!(&buf[..2], b"45");
    assert_eq!(file.read_at(&mut buf, 5).unwrap(), 0);
    assert_eq!(file.read_at(&mut buf, 1 << 40).unwrap(), 0);
}

fn a_write_past_the_end_leaves_zeros_between(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    file.write_at(b"end", 9_000).unwrap();
    let content = content(&*file);
    assert_eq!(content.len(), 9_003);
    assert!(content[..9_000].iter().all(|&byte| byte == 0));
}

fn two_handles_see_one_file(dir: &dyn Dir) {
    let first = dir.create("a", PLAIN).unwrap();
    let second = dir.open("a", PLAIN).unwrap();
    first.write_at(b"seen", 0).unwrap();
    assert_eq!(content(&*second), b"seen");
    second.truncate(2).unwrap();
    assert_eq!(first.len().unwrap(), 2);
}

fn truncate_cuts_and_grows_with_zeros(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    file.write_at(b"123456", 0).unwrap();
    file.truncate(3).unwrap();
    assert_eq!(content(&*file), b"123");
    file.truncate(5).unwrap();
    assert_eq!(content(&*file), b"123\0\0", "what was cut off must not come back");
}

fn reserved_blocks_read_as_zeros_and_keep_what_was_there(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    file.write_at(b"kept", 0).unwrap();
    match file.allocate(0, 10_000, Allocation::Reserved) {
        Ok(()) => {
            let content = content(&*file);
            assert_eq!(content.len(), 10_000);
            assert_eq!(&content[..4], b"kept");
            assert!(content[4..].iter().all(|&byte| byte == 0));
        }
        // Some filesystems cannot; they must say so and leave the file alone.
        Err(error) => {
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert_eq!(content(&*file), b"kept");
            file.write_at(b"on", 4).expect("a refusal must not close the latch");
        }
    }
}

fn zeroed_blocks_read_as_zeros(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    file.write_at(&[7; 100], 0).unwrap();
    file.allocate(10, 3_000_000, Allocation::Zeroed).unwrap();
    let content = content(&*file);
    assert_eq!(content.len(), 3_000_010);
    assert_eq!(content[..10], [7; 10]);
    assert!(content[10..].iter().all(|&byte| byte == 0));
}

/// Also through handles that are opened direct, or to be synced or mapped.
fn a_punched_range_reads_as_zeros_and_nothing_else_changes(dir: &dyn Dir) {
    // Whole blocks, and with edges; one block, part of one, parts of two, everything.
    let (block, len) = (8_192, 10 * 8_192);
    let ranges = [
        2 * block..4 * block,
        2 * block - 1..4 * block + 1,
        100..9 * block + 5_000,
        block..2 * block,
        5_000..5_003,
        block - 10..block + 10,
        0..len,
    ];
    let methods = [SyncMethod::None, SyncMethod::Direct, SyncMethod::ODsync, SyncMethod::Msync];
    for (number, method) in methods.into_iter().enumerate() {
        for (range, is_synced) in ranges.iter().flat_map(|range| [(range, false), (range, true)]) {
            let name = format!("{number} {range:?} {is_synced}");
            let plain = dir.create(&name, PLAIN).unwrap();
            let mut bytes: Vec<u8> = (1..=251).cycle().take(len).collect();
            plain.write_at(&bytes, 0).unwrap();
            if is_synced {
                supported(plain.sync(SyncMethod::Fsync));
            }
            let Some(file) = supported(dir.open(&name, method.access())) else { continue };
            if file.punch(range.start as u64, (range.end - range.start) as u64).unwrap() {
                bytes[range.clone()].fill(0);
            }
            assert!(content(&*file) == bytes, "{name} by {method}");
            bytes[range.start..][..3].copy_from_slice(b"new");
            plain.write_at(b"new", range.start as u64).unwrap();
            assert!(content(&*plain) == bytes, "{name} by {method}, written again");
        }
    }
}

fn a_hole_past_the_end_does_not_grow_the_file(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    let mut bytes = vec![7; 5_000];
    file.write_at(&bytes, 0).unwrap();
    for (at, len) in [(4_500, 1_000), (3_000, 1 << 30)] {
        if file.punch(at as u64, len).unwrap() {
            bytes[at..].fill(0);
        }
        assert!(content(&*file) == bytes, "{len} bytes at {at}");
    }
    for byte_offset in [5_000, 8_192, 1 << 30] {
        file.punch(byte_offset, 100_000).unwrap();
        assert!(content(&*file) == bytes, "at {byte_offset}");
    }
    file.truncate(10_000).unwrap();
    bytes.resize(10_000, 0);
    assert!(content(&*file) == bytes);
}

fn a_hole_of_no_bytes_is_none(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    file.write_at(b"kept", 0).unwrap();
    for byte_offset in [0, 2, 4, 10_000] {
        assert!(!file.punch(byte_offset, 0).unwrap());
    }
    file.write_at(b"!", 4).expect("it must not close the latch");
    assert_eq!(content(&*file), b"kept!");
}

fn rename_replaces_and_moves(dir: &dyn Dir) {
    dir.create("old", PLAIN).unwrap().write_at(b"new content", 0).unwrap();
    dir.create("taken", PLAIN).unwrap().write_at(b"gone", 0).unwrap();
    dir.rename("old", "taken").unwrap();
    assert_eq!(dir.list().unwrap(), ["taken"]);
    assert_eq!(content(&*dir.open("taken", PLAIN).unwrap()), b"new content");
}

fn rename_refuses_a_name_that_is_missing(dir: &dyn Dir) {
    dir.create("taken", PLAIN).unwrap();
    assert_eq!(dir.rename("a", "taken").unwrap_err().kind(), Some(io::ErrorKind::NotFound));
    assert_eq!(dir.list().unwrap(), ["taken"]);
}

fn a_removed_file_is_gone_but_its_handle_goes_on(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    dir.remove("a").unwrap();
    assert!(dir.list().unwrap().is_empty());
    file.write_at(b"ghost", 0).unwrap();
    assert_eq!(content(&*file), b"ghost");
}

fn a_name_can_be_used_again_after_remove(dir: &dyn Dir) {
    let first = dir.create("a", PLAIN).unwrap();
    dir.remove("a").unwrap();
    let second = dir.create("a", PLAIN).unwrap();
    first.write_at(b"first", 0).unwrap();
    assert!(second.is_empty().unwrap(), "two files shared a name, not their bytes");
}

fn a_lock_excludes_until_dropped(dir: &dyn Dir) {
    let lock = dir.lock("lock").unwrap();
    match dir.lock("lock").unwrap_err() {
        Error::Locked { holder, .. } => {
            assert!(holder.is_none_or(|pid| pid == std::process::id()), "{holder:?}");
        }
        error => panic!("{error}"),
    }
    drop(lock);
    dir.lock("lock").unwrap();
}

/// A file is easily removed by somebody who tidies up, and then a second one could be locked beside it.
fn a_lock_outlives_its_file(dir: &dyn Dir) {
    let lock = dir.lock("lock").unwrap();
    dir.remove("lock").unwrap();
    assert!(matches!(dir.lock("lock"), Err(Error::Locked { .. })));
    drop(lock);
    dir.lock("lock").unwrap();
}

fn directories_hold_directories_apart_from_files(dir: &dyn Dir) {
    dir.create("a", PLAIN).unwrap().write_at(b"outer", 0).unwrap();
    let inner = dir.create_dir("inner").unwrap();
    inner.create("a", PLAIN).unwrap().write_at(b"inner", 0).unwrap();
    let innermost = inner.create_dir("innermost").unwrap();
    innermost.create("b", PLAIN).unwrap();
    assert_eq!(dir.list().unwrap(), ["a"], "directories are not listed");
    let refused = dir.refuse_strangers(&|name| name == "inner").unwrap_err();
    assert!(matches!(refused, Error::NotAFile { found: "a directory", .. }), "{refused}");
    dir.refuse_strangers(&|name| name == "a").unwrap();
    assert_eq!(inner.list().unwrap(), ["a"]);
    assert_eq!(innermost.list().unwrap(), ["b"]);
    assert_eq!(content(&*dir.open("a", PLAIN).unwrap()), b"outer");
    assert_eq!(content(&*inner.open("a", PLAIN).unwrap()), b"inner");
    inner.rename("a", "c").unwrap();
    inner.remove("c").unwrap();
    assert_eq!(dir.list().unwrap(), ["a"]);
    assert_eq!(inner.overwrite(), dir.overwrite());
    inner.sync().unwrap();
    let outer_lock = dir.lock("lock").unwrap();
    inner.lock("lock").expect("another directory has another lock");
    drop(outer_lock);
}

fn a_directory_can_be_made_again_and_is_the_same(dir: &dyn Dir) {
    let missing = dir.open_dir("inner").unwrap_err();
    assert_eq!(missing.kind(), Some(io::ErrorKind::NotFound), "{missing}");
    let first = dir.create_dir("inner").unwrap();
    first.create("a", PLAIN).unwrap().write_at(b"kept", 0).unwrap();
    for again in [dir.create_dir("inner").unwrap(), dir.open_dir("inner").unwrap()] {
        assert_eq!(content(&*again.open("a", PLAIN).unwrap()), b"kept");
    }
}

fn a_name_leads_to_a_file_or_to_a_directory(dir: &dyn Dir) {
    dir.create("file", PLAIN).unwrap().write_at(b"kept", 0).unwrap();
    for refused in [dir.create_dir("file").unwrap_err(), dir.open_dir("file").unwrap_err()] {
        assert_eq!(refused.kind(), Some(io::ErrorKind::NotADirectory), "{refused}");
    }
    dir.create_dir("inner").unwrap();
    let taken = dir.create("inner", PLAIN).unwrap_err();
    assert_eq!(taken.kind(), Some(io::ErrorKind::AlreadyExists), "{taken}");
    assert!(matches!(dir.open("inner", PLAIN), Err(Error::NotAFile { .. })));
    dir.remove("inner").unwrap_err();
    dir.rename("file", "inner").unwrap_err();
    assert_eq!(content(&*dir.open("file", PLAIN).unwrap()), b"kept");
    dir.open_dir("inner").unwrap();
}

fn a_file_that_is_kept_in_place_is_written_as_any_other(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    let kept = file.keep_in_place().unwrap();
    assert!(kept || dir.overwrite() != Overwrite::InPlace, "they are in place anyway");
    file.write_at(b"written", 0).unwrap();
    assert_eq!(content(&*file), b"written");
}

fn every_method_keeps_its_promise_or_says_that_it_is_unsupported(dir: &dyn Dir) {
    for (number, method) in SyncMethod::ALL.into_iter().enumerate() {
        let name = format!("file-{number}");
        dir.create(&name, PLAIN).unwrap();
        let Some(file) = supported(dir.open(&name, method.access())) else {
            continue;
        };
        let bytes = 4096usize.next_multiple_of(file.alignment());
        file.allocate(0, 2 * bytes as u64, Allocation::Zeroed).unwrap();
        let mut buf = AlignedBuf::zeroed(bytes, file.alignment());
        buf.fill(0xa5);
        for write in 0..2 {
            let byte_offset = write * bytes as u64;
            let Some(kept) = supported(file.write_sync_at(&buf, byte_offset, method)) else {
                break;
            };
            let promised = method.promise(System::HERE).expect("it worked, so it exists");
            let fell_back = method == SyncMethod::FullFsync && kept == Promise::Device;
            assert!(kept == promised || fell_back, "{method} kept {kept}, promised {promised}");
            assert!(content(&*file)[bytes * usize::from(write > 0)..][..bytes] == *buf, "{method}");
        }
    }
}

fn only_calls_sync_what_was_written_before(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    file.write_at(b"before", 0).unwrap();
    for method in SyncMethod::ALL {
        match file.sync(method) {
            Ok(kept) => {
                assert!(method.is_call(), "{method} covers only the write that it comes with");
                assert_ne!(kept, Promise::Nothing, "{method}");
            }
            Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "{method}: {error}"),
        }
    }
    file.write_at(b"after!", 0).unwrap();
}

fn a_hint_to_write_out_changes_nothing(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    file.write_at(b"before", 0).unwrap();
    file.start_write_out().unwrap();
    file.write_at(b"after!", 6).unwrap();
    assert_eq!(content(&*file), b"beforeafter!");
}

fn a_method_needs_a_file_opened_for_it(dir: &dyn Dir) {
    let file = dir.create("a", PLAIN).unwrap();
    for method in [SyncMethod::ODsync, SyncMethod::DirectFsync] {
        let error = file.write_sync_at(b"x", 0, method).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    assert!(file.is_empty().unwrap(), "a refused write writes nothing");
}

fn direct_files_refuse_what_is_not_aligned_and_go_on(dir: &dyn Dir) {
    dir.create("a", PLAIN).unwrap();
    let Some(file) = supported(dir.open("a", SyncMethod::Direct.access())) else {
        return;
    };
    let alignment = file.alignment();
    if alignment == 1 {
        return;
    }
    let buf = AlignedBuf::zeroed(2 * alignment, alignment);
    for (bytes, byte_offset) in [(&buf[..alignment - 1], 0), (&buf[..alignment], 1)] {
        let error = file.write_at(bytes, byte_offset).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    file.write_at(&buf, 0).expect("a refused write must not close the latch");
}

/// pwritev2(2) and `io_uring` take a byte offset of all ones for "where the last write ended", and
/// once overwrote the beginning of a file with success.
fn a_range_that_no_file_can_hold_is_refused_and_changes_nothing(dir: &dyn Dir) {
    let too_large = Some(io::ErrorKind::FileTooLarge);
    for (number, method) in SyncMethod::ALL.into_iter().enumerate() {
        let name = format!("file-{number}");
        dir.create(&name, PLAIN).unwrap().write_at(b"precious", 0).unwrap();
        let Some(file) = supported(dir.open(&name, method.access())) else { continue };
        let buf = AlignedBuf::zeroed(4096, file.alignment());
        for byte_offset in [u64::MAX, u64::MAX - 4096, i64::MAX as u64] {
            let error = file.write_sync_at(&buf, byte_offset, method).unwrap_err();
            assert_eq!(error.kind(), too_large, "{method} at {byte_offset}: {error}");
            assert_eq!(file.write_at(&buf, byte_offset).unwrap_err().kind(), too_large);
        }
        for allocation in [Allocation::Zeroed, Allocation::Reserved] {
            let error = file.allocate(8, u64::MAX - 3, allocation).unwrap_err();
            assert_eq!(error.kind(), too_large, "{allocation:?}: {error}");
        }
        assert_eq!(file.punch(8, u64::MAX - 3).unwrap_err().kind(), too_large);
        assert_eq!(file.punch(i64::MAX as u64, 1).unwrap_err().kind(), too_large);
        assert_eq!(file.truncate(u64::MAX).unwrap_err().kind(), too_large);
        assert_eq!(content(&*file), b"precious", "{method}");
        file.truncate(4).expect("a refusal must not close the latch");
    }
}

fn a_new_file_under_an_old_name_starts_afresh(dir: &dyn Dir) {
    for _ in 0..3 {
        let file = dir.create("a", PLAIN).unwrap();
        file.write_at(b"new", 0).unwrap();
        dir.remove("a").unwrap();
        assert_eq!(content(&*file), b"new");
    }
}

fn at_least_one_method_reaches_the_medium_or_none_claims_to(dir: &dyn Dir) {
    let claims = SyncMethod::ALL.iter().any(|m| m.promise(System::HERE) == Some(Promise::Media));
    let works = crate::probe(dir)
        .unwrap()
        .into_iter()
        .any(|(_, availability)| availability == crate::Availability::Works(Promise::Media));
    assert_eq!(works, claims);
    assert!(dir.list().unwrap().is_empty(), "the probe cleans up");
}

/// The value, or `None` if it is not supported here. Any other failure fails the clause.
fn supported<T>(result: crate::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Unsupported { .. }) => None,
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

/// The whole file. Reads through an aligned buffer, as direct files want.
fn content(file: &dyn File) -> Vec<u8> {
    let len = usize::try_from(file.len().unwrap()).unwrap();
    let mut buf = AlignedBuf::zeroed(len.next_multiple_of(4096), 4096);
    let read = file.read_at(&mut buf, 0).unwrap();
    assert_eq!(read, len);
    buf[..read].to_vec()
}
