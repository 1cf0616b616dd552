//! The seam to the system on real filesystems: its contract, failed syncs, and full disks.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use plimsoll_sync::{Access, Allocation, Dir, Error, OsDir, SyncMethod};

use crate::mount::Mounted;

#[test]
fn os_dir_keeps_the_contract_on_ext4_xfs_and_btrfs() {
    for filesystem in ["ext4", "xfs", "btrfs"] {
        let Some(mounted) = Mounted::or_skip(filesystem, &[], "") else {
            return;
        };
        let number = AtomicU32::new(0);
        plimsoll_sync::contract::check(&|| {
            let path = mounted.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
            fs::create_dir(&path).unwrap();
            Arc::new(OsDir::open(path).unwrap()) as Arc<dyn Dir>
        });
    }
}

#[test]
fn what_is_punched_is_room_again_on_ext4_xfs_and_btrfs() {
    for (filesystem, bytes) in [("ext4", 24 << 20), ("xfs", 320 << 20), ("btrfs", 160 << 20)] {
        let Some(mounted) = Mounted::or_skip_sized(filesystem, bytes) else {
            return;
        };
        let dir = OsDir::open(mounted.path()).unwrap();
        let file = dir.create("a", Access::default()).unwrap();
        // Each an extent of its own: of one that is punched in part btrfs keeps all.
        for piece in 0..8 {
            file.write_sync_at(&[1; 1 << 20], piece << 20, SyncMethod::Fsync).unwrap();
        }
        fill(&dir);
        assert!(file.punch(2 << 20, 4 << 20).unwrap(), "{filesystem}");
        file.sync(SyncMethod::Fsync).unwrap();
        let other = dir.create("b", Access::default()).unwrap();
        let written = other.write_sync_at(&vec![2; 2 << 20], 0, SyncMethod::Fsync);
        written.unwrap_or_else(|error| panic!("{filesystem}: {error}"));
        let mut found = vec![9; 8 << 20];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), found.len());
        let is =
            |range: std::ops::Range<usize>, byte| found[range].iter().all(|&found| found == byte);
        assert!(is(0..2 << 20, 1) && is(2 << 20..6 << 20, 0) && is(6 << 20..8 << 20, 1));
    }
}

/// Linux drops the pages of a failed sync and answers the next fsync with success. The image lies
/// on a filesystem that is too small for it, so that writing back fails for real.
#[test]
fn a_failed_fsync_stays_failed_though_the_kernel_forgives_it() {
    let Some(mounted) = Mounted::or_skip_within("ext4", 48 << 20) else {
        return;
    };
    let dir = OsDir::open(mounted.path()).unwrap();
    let file = dir.create("doomed", Access::default()).unwrap();
    let witness = fs::File::open(mounted.path().join("doomed")).unwrap();
    // The metadata first, so that only data is left to fail and the journal stays whole.
    file.allocate(0, 128 << 20, Allocation::Reserved).unwrap();
    file.sync(SyncMethod::Fsync).unwrap();
    for piece in 0..128 {
        file.write_at(&[1; 1 << 20], piece << 20).unwrap();
    }
    let first = file.sync(SyncMethod::Fsync).unwrap_err();
    assert!(matches!(first, Error::Io { .. }), "{first}");
    // The kernel reports to each descriptor, and then forgives.
    let told: Vec<bool> = (0..5).map(|_| fsync(&witness).is_ok()).collect();
    assert!(!told[0] && told[4], "this kernel does not forgive, {told:?}: see docs/durability.md");
    let again = file.sync(SyncMethod::Fsync).unwrap_err();
    assert!(matches!(again, Error::Latched { .. }), "{again}");
    let late = dir.open("doomed", Access::default()).unwrap();
    assert!(matches!(late.sync(SyncMethod::Fsync), Err(Error::Latched { .. })));
    assert!(matches!(late.write_at(b"more", 0), Err(Error::Latched { .. })));
}

#[expect(clippy::disallowed_methods, reason = "what happens without the latch")]
fn fsync(file: &fs::File) -> std::io::Result<()> {
    file.sync_all()
}

#[test]
fn a_full_filesystem_is_a_clear_error_and_latches_the_file() {
    let Some(mounted) = Mounted::or_skip_sized("ext4", 24 << 20) else {
        return;
    };
    let dir = OsDir::open(mounted.path()).unwrap();
    let file = dir.create("big", Access::default()).unwrap();
    let error = (0..64).find_map(|piece| file.write_at(&[1; 1 << 20], piece << 20).err()).unwrap();
    assert_eq!(error.kind(), Some(std::io::ErrorKind::StorageFull), "{error}");
    assert!(matches!(file.write_at(b"x", 0), Err(Error::Latched { .. })));
}

/// Fills a filesystem until not even a block more goes in.
fn fill(dir: &OsDir) {
    let path = dir.path().join("filler");
    let mut piece = 1 << 20;
    while piece >= 4096 {
        let file = fs::File::options().append(true).create(true).open(&path).unwrap();
        if (&file).write_all(&vec![1; piece]).and_then(|()| fsync(&file)).is_err() {
            piece /= 2;
        }
    }
}

/// A disk that copies on write needs room to overwrite what it has: a log there died on a full one.
#[test]
fn a_file_that_is_kept_in_place_is_overwritten_on_a_full_btrfs() {
    let Some(mounted) = Mounted::or_skip_sized("btrfs", 160 << 20) else {
        return;
    };
    let dir = OsDir::open(mounted.path()).unwrap();
    assert_eq!(dir.overwrite(), plimsoll_sync::Overwrite::Elsewhere);
    let file_of = |name: &str, in_place: bool| {
        let file = dir.create(name, Access::default()).unwrap();
        if in_place {
            assert!(file.keep_in_place().unwrap());
        }
        file.allocate(0, 8 << 20, Allocation::Reserved).unwrap();
        // The half of it is written already: over blocks with bytes, and into those without.
        file.write_at(&[1; 4 << 20], 0).unwrap();
        file.sync(SyncMethod::Fsync).unwrap();
        file
    };
    let kept = file_of("kept", true);
    let copied = file_of("copied", false);
    assert!(!copied.keep_in_place().unwrap(), "it is not empty any more");
    fill(&dir);
    let overwrite = |file: &dyn plimsoll_sync::File| {
        (0..8 << 4).try_for_each(|piece| {
            file.write_at(&[7; 1 << 16], piece << 16)?;
            file.sync(SyncMethod::Fsync).map(|_| ())
        })
    };
    overwrite(&*kept).unwrap();
    let mut bytes = vec![0; 8 << 20];
    assert_eq!(kept.read_at(&mut bytes, 0).unwrap(), bytes.len());
    assert!(bytes.iter().all(|&byte| byte == 7));
    let full = overwrite(&*copied).unwrap_err();
    assert_eq!(full.kind(), Some(std::io::ErrorKind::StorageFull), "{full}");
}

/// A store into a page that tmpfs has no room for is a SIGBUS: it must be an error before.
#[test]
fn memory_that_was_given_back_to_a_tmpfs_that_is_full_by_then_is_an_error() {
    let Some(mounted) = Mounted::or_skip_within("ext4", 64 << 20) else {
        return;
    };
    let tmpfs = mounted.below.as_ref().unwrap();
    let words = 8 << 20 >> 3;
    let (ring, _) = plimsoll_sync::Words::of_file(&tmpfs.join("ring"), words).unwrap();
    assert_eq!(ring.give_back(0..words).unwrap(), 8 << 20);
    ring.take_back(0..words).unwrap();
    ring.give_back(0..words).unwrap();
    fill(&OsDir::open(tmpfs).unwrap());
    let full = ring.take_back(0..words).unwrap_err();
    assert_eq!(full.kind(), Some(std::io::ErrorKind::StorageFull), "{full}");
    fs::remove_file(tmpfs.join("filler")).unwrap();
    // On a busy machine tmpfs was seen to be full for a moment longer. Why is not known.
    let begun = Instant::now();
    while let Err(error) = ring.take_back(0..words) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        std::thread::yield_now();
    }
    ring[0].store(7, Ordering::Relaxed);
}

/// The number of the process in `lock` once needed a block, and a full disk has none.
#[test]
fn a_directory_on_a_full_filesystem_can_be_locked() {
    for (filesystem, bytes) in [("ext4", 24 << 20), ("xfs", 320 << 20), ("btrfs", 160 << 20)] {
        for there_already in [true, false] {
            let Some(mounted) = Mounted::or_skip_sized(filesystem, bytes) else {
                return;
            };
            let dir = OsDir::open(mounted.path()).unwrap();
            if there_already {
                dir.create("lock", Access::default()).unwrap();
            }
            fill(&dir);
            let lock = dir.lock("lock");
            let lock = lock.unwrap_or_else(|error| panic!("{filesystem}: {error}"));
            assert!(matches!(dir.lock("lock"), Err(Error::Locked { .. })), "{filesystem}");
            assert!(matches!(dir.check_unlocked("lock"), Err(Error::Locked { .. })));
            drop(lock);
            dir.check_unlocked("lock").unwrap();
        }
    }
}
