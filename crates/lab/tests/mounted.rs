//! What the arms claim, proved at the block device: real filesystems on loop devices.
//!
//! These tests need root and loop devices. Elsewhere each says SKIPPED and why, and with
//! `realfs` in `PLIMSOLL_REQUIRE`, as in our CI, a skip is a failure.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skip must be seen")]

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_lab::experiment::Profile;
use plimsoll_lab::experiments;
use plimsoll_lab::ladder::{Grade, Ladder, Rung};
use plimsoll_lab::result::{ArmResult, ExperimentResult};
use plimsoll_lab::session::{Lab, Options};
use plimsoll_lab::warning::Kind;
use plimsoll_sync::{Access, Allocation, Dir, Error, OsDir, SyncMethod};

/// Room for the quick profile, with a tenth to spare. Sparse: what is not written costs nothing.
const IMAGE_BYTES: u64 = 1 << 30;

#[test]
fn every_arm_does_what_it_says_on_ext4() {
    every_arm_does_what_it_says("ext4", &["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
}

#[test]
fn every_arm_does_what_it_says_on_xfs() {
    every_arm_does_what_it_says("xfs", &[]);
}

fn every_arm_does_what_it_says(filesystem: &str, mkfs: &[&str]) {
    let Some(mounted) = Mounted::or_skip(filesystem, mkfs, "") else {
        return;
    };
    let result = sync_cost(mounted.path(), &[]);
    for arm in &result.arms {
        let counts = arm.per_operation.expect("a loop device is counted");
        let (flushes, kib) = (counts.flushes, counts.device_kib);
        let what = format!("{filesystem}: {}: {counts:?}", arm.name);
        if filesystem == "xfs" && arm.method == "syncfs" {
            // Found by this test: where only data is dirty, xfs writes it and sends no flush.
            assert!(kib >= 4.0, "{what}");
            continue;
        }
        assert!(arm.valid, "{what}: {:?}", arm.warnings);
        match (arm.promise.as_str(), arm.method.as_str()) {
            // Whether a sync of nothing flushes is the filesystem's business.
            _ if arm.payload_bytes == 0 => assert!(flushes < 1.1, "{what}"),
            // Whatever else is dirty goes along.
            ("on stable media", "syncfs") => assert!((0.97..8.0).contains(&flushes), "{what}"),
            ("on stable media", _) => assert!((0.97..3.0).contains(&flushes), "{what}"),
            // The trap does sync; only in which order nobody knows.
            ("nothing", "io_uring") => assert!((0.97..3.0).contains(&flushes), "{what}"),
            ("nothing", "none") => assert!(flushes < 0.05 && kib < 1.0, "{what}"),
            ("handed to the device", _) => assert!(flushes < 0.05, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
        let payload_kib = arm.payload_bytes as f64 / 1024.0;
        assert!(arm.method == "none" || kib >= 0.97 * payload_kib, "{what}");
        // Blocks that are written already need no journal commit: one write, nothing beside it.
        let data_only = arm.method.contains("dsync") || arm.method.contains("fdatasync");
        let plain_device = arm.promise == "handed to the device" || data_only;
        if arm.layout == "overwritten" && arm.payload_bytes == 4096 && plain_device {
            assert!((0.97..1.2).contains(&counts.device_writes), "{what}");
            assert!(kib < 5.0, "{what}");
        }
    }
    for method in ["io_uring+link", "io_uring+drain", "io_uring+rwf_dsync", "o_direct+o_dsync"] {
        for layout in ["append", "fallocated", "zero-filled", "overwritten"] {
            let name = format!("{method}/{layout}/4KiB");
            assert!(result.arms.iter().any(|arm| arm.name == name), "{name} was not measured");
        }
    }
}

#[test]
fn every_interval_flushes_with_each_sync_and_never_without_on_ext4_and_xfs() {
    for filesystem in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::or_skip(filesystem, &[], "") else {
            return;
        };
        let budget = Duration::from_secs(3);
        let result = measured("sync-interval", mounted.path(), &[], budget);
        let never = result.arms.iter().filter(|arm| arm.name == "never").count();
        assert!(never == 1 && result.arms.len() == 20, "{filesystem}: {result:?}");
        for arm in &result.arms {
            let counts = arm.per_operation.expect("a loop device is counted");
            let what = format!("{filesystem}: {}: {counts:?}: {:?}", arm.name, arm.warnings);
            assert!(arm.valid, "{what}");
            // The journal's timer may commit once meanwhile.
            let (syncs, stray) = (arm.durable_operations as f64, 2.5);
            let flushes = counts.flushes * syncs;
            if arm.name == "never" {
                assert!(flushes < stray, "{what}");
                assert!(!arm.values.contains_key("at_risk_ms"), "that is up to the kernel: {what}");
                continue;
            }
            // One, and where the journal has to commit that the file grew, one or two around its
            // commit: a loop device has no FUA.
            assert!((0.97 * syncs..3.1 * syncs + stray).contains(&flushes), "{what}");
            // What an interval holds reaches the device with its sync.
            let intervals = if arm.name.ends_with("/background") { 2.0 } else { 1.0 };
            let interval_kib = arm.values["at_risk_bytes"] / intervals / 1024.0;
            assert!(counts.device_kib >= 0.97 * interval_kib, "{interval_kib} KiB: {what}");
            assert!(interval_kib >= 4.0 && arm.values["at_risk_ms"] > 0.0, "{what}");
        }
    }
}

#[test]
fn a_sync_beside_random_writeback_still_flushes_on_ext4_and_xfs() {
    for filesystem in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::or_skip(filesystem, &[], "") else {
            return;
        };
        let budget = Duration::from_millis(1);
        let result = measured("writeback-stall", mounted.path(), &[], budget);
        let arm = |name: &str| result.arms.iter().find(|arm| arm.name == name).unwrap();
        for (quiet, torture) in [("quiet/4KiB", "torture/4KiB"), ("quiet/1MiB", "torture/1MiB")] {
            let (quiet, torture) = (arm(quiet), arm(torture));
            for arm in [quiet, torture] {
                let flushes = arm.per_operation.expect("a loop device is counted").flushes;
                let what = format!("{filesystem}: {}: {flushes}: {:?}", arm.name, arm.warnings);
                assert!(arm.valid && (0.97..3.0).contains(&flushes), "{what}");
                assert!(arm.values.contains_key("dirty_mib_max"), "{what}");
                assert!(!arm.series.as_ref().unwrap().dirty.is_empty(), "{what}");
            }
            assert!(
                torture.values["writer_mib_s"] > 0.0 && !quiet.values.contains_key("writer_mib_s")
            );
            let kib = |arm: &ArmResult| arm.per_operation.unwrap().device_kib;
            assert!(kib(torture) > kib(quiet), "{filesystem}: the random writes reach the device");
        }
    }
}

#[test]
fn many_files_flush_as_their_promise_implies_on_ext4() {
    many_files_flush_as_their_promise_implies("ext4");
}

#[test]
fn many_files_flush_as_their_promise_implies_on_xfs() {
    many_files_flush_as_their_promise_implies("xfs");
}

fn many_files_flush_as_their_promise_implies(filesystem: &str) {
    let Some(mounted) = Mounted::or_skip(filesystem, &[], "") else {
        return;
    };
    let result = experiment("many-files", mounted.path(), &[]);
    assert_eq!(result.arms.len(), 12, "{:?}", result.unavailable);
    for arm in &result.arms {
        let counts = arm.per_operation.expect("a loop device is counted");
        let per_file = counts.flushes;
        let per_sample = counts.flushes * 100.0;
        let what = format!("{filesystem}: {}: {counts:?}", arm.name);
        assert!(arm.valid, "{what}: {:?}", arm.warnings);
        match arm.name.as_str() {
            "write only" => assert!(per_sample < 1.0 && counts.device_kib < 1.0, "{what}"),
            "one file, one fsync" => assert!((0.97..4.0).contains(&per_sample), "{what}"),
            "all writes, then one syncfs" => {
                assert!((0.97..6.0).contains(&per_sample), "{what}");
                assert!(counts.device_kib >= 4.0, "{what}");
            }
            // Together: they may share a commit and its flush.
            name if name.starts_with("io_uring") || name.starts_with("4 threads") => {
                assert!(per_sample >= 0.97 && per_file < 3.0, "{what}");
                // What an fsync of the trap missed stays in the cache.
                let least_kib = if name.contains("trap") { 3.0 } else { 4.0 };
                assert!(counts.device_kib >= least_kib, "{what}");
            }
            _ => {
                assert!((0.97..3.0).contains(&per_file), "{what}");
                assert!(counts.device_kib >= 4.0, "{what}");
            }
        }
    }
    let refused = result.unavailable.iter().find(|arm| arm.name.contains("200 B")).unwrap();
    assert!(refused.reason.contains("EINVAL"), "{refused:?}");
}

#[test]
fn replacing_a_file_flushes_for_each_sync_that_is_left_on_ext4() {
    replacing_a_file_flushes_for_each_sync_that_is_left("ext4");
}

#[test]
fn replacing_a_file_flushes_for_each_sync_that_is_left_on_xfs() {
    replacing_a_file_flushes_for_each_sync_that_is_left("xfs");
}

fn replacing_a_file_flushes_for_each_sync_that_is_left(filesystem: &str) {
    let Some(mounted) = Mounted::or_skip(filesystem, &[], "") else {
        return;
    };
    let result = experiment("durable-rename", mounted.path(), &[]);
    assert_eq!(result.arms.len(), 6, "{:?}", result.unavailable);
    for arm in &result.arms {
        let counts = arm.per_operation.expect("a loop device is counted");
        let what = format!("{filesystem}: {}: {counts:?}", arm.name);
        assert!(arm.valid, "{what}: {:?}", arm.warnings);
        let (least, below) = match arm.name.as_str() {
            "full dance" | "full dance with fdatasync" => (1.95, 5.0),
            "without any sync" => (0.0, 0.05),
            _ => (0.97, 3.0),
        };
        assert!((least..below).contains(&counts.flushes), "{what}");
        let content_synced = arm.method != "none";
        assert!(!content_synced || counts.device_kib >= 3.9, "{what}");
    }
}

#[test]
fn a_filesystem_without_barriers_invalidates_every_arm_that_promises_media() {
    let Some(mounted) = Mounted::or_skip("ext4", &[], "barrier=0") else {
        return;
    };
    let result = sync_cost(mounted.path(), &["fdatasync/append/4KiB", "o_direct/append/4KiB"]);
    let of = |method: &str| result.arms.iter().find(|arm| arm.method == method).unwrap();
    let synced = of("fdatasync");
    assert!(!synced.valid && synced.has(Kind::PromiseContradicted), "{:?}", synced.warnings);
    let cause = synced.warnings.iter().find(|warning| warning.kind.invalidates()).unwrap();
    assert!(cause.text.contains("without barriers"), "{cause}");
    assert!(of("o_direct").valid, "it promises no flush");
    assert!(result.has_invalid_arm());
    assert!(result.answer.iter().all(|sentence| !sentence.contains("durable 4 KiB")), "{result:?}");
}

#[test]
fn a_device_set_to_write_through_is_reported_as_getting_no_flushes() {
    let Some(mounted) = Mounted::or_skip("ext4", &[], "") else {
        return;
    };
    let name = mounted.device.rsplit('/').next().unwrap();
    fs::write(format!("/sys/block/{name}/queue/write_cache"), "write through").unwrap();
    let result = sync_cost(mounted.path(), &["fdatasync/append/4KiB"]);
    // A loop device is lent again: leave it as it was.
    fs::write(format!("/sys/block/{name}/queue/write_cache"), "write back").unwrap();
    assert!(result.arms[0].has(Kind::NoFlushSent), "{:?}", result.arms[0]);
}

#[test]
fn the_ladder_grades_known_disks_as_what_they_are() {
    let Some(mounted) = Mounted::or_skip("ext4", &[], "") else {
        return;
    };
    let honest = ladder(mounted.path());
    assert_eq!(honest.rung, Rung::Plausible, "{honest:?}");
    // Flushes arrive. Whether they cost more the more is cached is the host's affair: on a busy one
    // the loop device looked like an honest volatile cache.
    let grades = [Grade::ProtectedOrVirtualCache, Grade::HonestVolatileCache];
    assert!(grades.contains(&honest.grade), "{honest:?}");
    let name = mounted.device.rsplit('/').next().unwrap();
    fs::write(format!("/sys/block/{name}/queue/write_cache"), "write through").unwrap();
    let through = ladder(mounted.path());
    fs::write(format!("/sys/block/{name}/queue/write_cache"), "write back").unwrap();
    assert_eq!(through.grade, Grade::NoFlushReachesTheDevice, "{through:?}");
    assert!(through.reasons.iter().any(|why| why.contains("write_cache")), "{through:?}");
    let Some(mounted) = Mounted::or_skip("ext4", &[], "barrier=0") else {
        return;
    };
    let without = ladder(mounted.path());
    assert_eq!((without.rung, without.grade), (Rung::Claimed, Grade::NoFlushReachesTheDevice));
    assert!(without.reasons.iter().any(|why| why.contains("barriers")), "{without:?}");
}

fn ladder(directory: &Path) -> Ladder {
    let budget = Duration::from_secs(1);
    let cost = measured("sync-cost", directory, &["fsync/append/4KiB"], budget);
    let flush = measured("cache-flush", directory, &[], budget);
    Ladder::of(&cost.environment.clone(), &[cost, flush])
}

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
    ring.take_back(0..words).unwrap();
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

#[test]
fn a_disk_that_is_too_full_is_refused_and_nothing_is_left_behind() {
    let Some(mounted) = Mounted::or_skip_sized("ext4", 64 << 20) else {
        return;
    };
    let before = names(mounted.path());
    let refused = Lab::check(options(mounted.path(), &[])).unwrap_err().to_string();
    assert!(refused.contains("tenth") && refused.contains("--dir"), "{refused}");
    assert_eq!(names(mounted.path()), before);
}

#[test]
fn a_read_only_filesystem_is_refused_with_its_cure() {
    let Some(mounted) = Mounted::or_skip("ext4", &[], "ro") else {
        return;
    };
    let refused = Lab::check(options(mounted.path(), &[])).unwrap_err().to_string();
    assert!(refused.contains("read-only") && refused.contains("remount"), "{refused}");
}

#[test]
fn an_overlay_is_refused_with_its_cure() {
    let Some(mounted) = Mounted::or_skip_sized("ext4", 64 << 20) else { return };
    let at = |name: &str| mounted.path().join(name);
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(at(name)).unwrap();
    }
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| text(&at(name)));
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let merged = text(&at("merged"));
    run("mount", &["-t", "overlay", "overlay", "-o", &layers, &merged]).unwrap();
    let refused = Lab::check(options(&at("merged"), &[])).map(|_lab| ()).map_err(|e| e.to_string());
    run("umount", &[&merged]).unwrap();
    let refused = refused.unwrap_err();
    assert!(refused.contains("overlay") && refused.contains("volume"), "{refused}");
}

fn sync_cost(directory: &Path, only: &[&str]) -> ExperimentResult {
    experiment("sync-cost", directory, only)
}

/// An experiment on a mounted filesystem, each arm measured once.
fn experiment(name: &str, directory: &Path, only: &[&str]) -> ExperimentResult {
    measured(name, directory, only, Duration::from_millis(1))
}

/// An experiment on a mounted filesystem.
fn measured(
    experiment: &str,
    directory: &Path,
    only: &[&str],
    budget: Duration,
) -> ExperimentResult {
    let experiments = vec![experiments::by_name(experiment).unwrap()];
    let options = Options { experiments, budget: Some(budget), ..options(directory, only) };
    let session = Lab::check(options).unwrap().begin().unwrap();
    let mut results = Vec::new();
    session
        .run(&AtomicBool::new(false), &|_, _, _| {}, |result, _| {
            results.push(result);
            ControlFlow::Continue(())
        })
        .unwrap();
    results.remove(0)
}

fn options(directory: &Path, only: &[&str]) -> Options {
    Options {
        directory: directory.to_owned(),
        // Each run has its own.
        out: directory.join(format!("results-{}", RUNS.fetch_add(1, Ordering::Relaxed))),
        experiments: vec![experiments::by_name("sync-cost").unwrap()],
        profile: Profile::Quick,
        budget: Some(Duration::from_millis(1)),
        seed: 1,
        only: only.iter().map(|&part| part.to_owned()).collect(),
    }
}

static RUNS: AtomicU32 = AtomicU32::new(0);

fn names(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

trait Has {
    fn has(&self, kind: Kind) -> bool;
}

impl Has for ArmResult {
    fn has(&self, kind: Kind) -> bool {
        self.warnings.iter().any(|warning| warning.kind == kind)
    }
}

/// A filesystem on a loop device, gone when dropped.
struct Mounted {
    #[expect(dead_code, reason = "removed when dropped, after what lies in it is unmounted")]
    scratch: tempfile::TempDir,
    at: PathBuf,
    device: String,
    /// What the image lies on, if that was mounted for it.
    below: Option<PathBuf>,
}

impl Mounted {
    fn or_skip(filesystem: &str, mkfs: &[&str], options: &str) -> Option<Self> {
        Self::try_new(filesystem, IMAGE_BYTES, None, mkfs, options).map_err(|why| skip(&why)).ok()
    }

    /// A filesystem of this size.
    fn or_skip_sized(filesystem: &str, bytes: u64) -> Option<Self> {
        Self::try_new(filesystem, bytes, None, &[], "").map_err(|why| skip(&why)).ok()
    }

    /// A filesystem whose image has so little room that writing it fails.
    fn or_skip_within(filesystem: &str, room_bytes: u64) -> Option<Self> {
        Self::try_new(filesystem, IMAGE_BYTES, Some(room_bytes), &[], "")
            .map_err(|why| skip(&why))
            .ok()
    }

    fn try_new(
        filesystem: &str,
        bytes: u64,
        room_bytes: Option<u64>,
        mkfs: &[&str],
        options: &str,
    ) -> Result<Self, String> {
        // In memory where there is some, so that the disk of the machine is not in the counts.
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
        let scratch = tempfile::Builder::new().prefix("plimsoll-mounted-").tempdir_in(base);
        let scratch = scratch.map_err(|error| error.to_string())?;
        let root = scratch.path().to_owned();
        let at = root.join("mnt");
        let mut mounted = Self { scratch, at: at.clone(), device: String::new(), below: None };
        for directory in [&root.join("below"), &at] {
            fs::create_dir(directory).map_err(|error| error.to_string())?;
        }
        if let Some(room) = room_bytes {
            let size = format!("size={room}");
            run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &text(&root.join("below"))])?;
            mounted.below = Some(root.join("below"));
        }
        let image = root.join("below/image");
        let sized = fs::File::create(&image).and_then(|file| file.set_len(bytes));
        sized.map_err(|error| error.to_string())?;
        let force = if filesystem == "ext4" { "-F" } else { "-f" };
        let mut arguments = vec!["-q", force];
        arguments.extend(mkfs);
        let image = text(&image);
        arguments.push(&image);
        run(&format!("mkfs.{filesystem}"), &arguments)?;
        mounted.device = run("losetup", &["--find", "--show", &image])?.trim().to_owned();
        let options = if options.is_empty() { "defaults" } else { options };
        let mount = ["-t", filesystem, "-o", options, &mounted.device, &text(&at)];
        run("mount", &mount)?;
        Ok(mounted)
    }

    fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let complain = |done: Result<String, String>| {
            if let Err(error) = done {
                eprintln!("cleaning up after a mounted test: {error}");
            }
        };
        let at = &self.at;
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if mounts.contains(&text(at)) {
            complain(run("umount", &[&text(at)]));
        }
        if !self.device.is_empty() {
            complain(run("losetup", &["--detach", &self.device]));
        }
        if let Some(below) = &self.below {
            complain(run("umount", &[&text(below)]));
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn text(path: &Path) -> String {
    path.to_str().expect("our own paths are text").to_owned()
}

fn skip(why: &str) {
    assert!(
        !std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default().contains("realfs"),
        "PLIMSOLL_REQUIRE=realfs, but a filesystem cannot be mounted: {why}"
    );
    // Past the capture of the test harness, which hides what a passing test prints.
    let said = format!("\nSKIPPED (needs root, loop devices and mkfs): {why}\n");
    std::io::stderr().write_all(said.as_bytes()).ok();
}
