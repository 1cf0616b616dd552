//! What the arms claim, proved at the block device: real filesystems on loop devices.
//!
//! These tests need root and loop devices. Elsewhere each says SKIPPED and why, and with
//! `realfs` in `PLIMSOLL_REQUIRE`, as in our CI, a skip is a failure.
//!
//! * here: the experiments, and what the lab refuses.
//! * `os_dir.rs`: the seam to the system; failed syncs, full disks.
//! * `mount.rs`: a filesystem for the time of a test.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skip must be seen")]

mod mount;
mod os_dir;

use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use mount::{Mounted, run, text, unmount};
use plimsoll_lab::experiment::Profile;
use plimsoll_lab::experiments;
use plimsoll_lab::ladder::{Grade, Ladder, Rung};
use plimsoll_lab::result::{ArmResult, ExperimentResult};
use plimsoll_lab::session::{Lab, Options};
use plimsoll_lab::warning::Kind;

#[test]
fn every_arm_does_what_it_says_on_ext4() {
    every_arm_does_what_it_says("ext4", &["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
}

#[test]
fn every_arm_does_what_it_says_on_xfs() {
    every_arm_does_what_it_says("xfs", &[]);
}

/// Requests that are no operation's: what a filesystem does by itself meanwhile, and what is on its
/// way when the counters are read. They are a few a run, however many operations there are.
const STRAYS: f64 = 4.0;

/// Whether there were as many for each operation, but for strays.
fn is_within(per_operation: f64, bounds: Range<f64>, operations: u64) -> bool {
    assert!(operations > 0, "nothing was counted");
    let operations = operations as f64;
    let (least, below) = (bounds.start * operations - STRAYS, bounds.end * operations + STRAYS);
    (least..below).contains(&(per_operation * operations))
}

fn every_arm_does_what_it_says(filesystem: &str, mkfs: &[&str]) {
    let Some(mounted) = Mounted::or_skip(filesystem, mkfs, "") else {
        return;
    };
    let result = sync_cost(mounted.path(), &[]);
    let mut overwritten = 0;
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
        let operations = arm.durable_operations;
        let flushed = |bounds| is_within(flushes, bounds, operations);
        match (arm.promise.as_str(), arm.method.as_str()) {
            // Whether a sync of nothing flushes is the filesystem's business.
            _ if arm.payload_bytes == 0 => assert!(flushes < 1.1, "{what}"),
            // Whatever else is dirty goes along.
            ("on stable media", "syncfs") => assert!(flushed(0.97..8.0), "{what}"),
            ("on stable media", _) => assert!(flushed(0.97..3.0), "{what}"),
            // The trap does sync; only in which order nobody knows.
            ("nothing", "io_uring") => assert!(flushed(0.97..3.0), "{what}"),
            ("nothing", "none") => assert!(flushed(0.0..0.05) && kib < 1.0, "{what}"),
            ("handed to the device", _) => assert!(flushed(0.0..0.05), "{what}"),
            other => panic!("{what}: {other:?}"),
        }
        let payload_kib = arm.payload_bytes as f64 / 1024.0;
        assert!(arm.method == "none" || kib >= 0.97 * payload_kib, "{what}");
        // Blocks that are written already need no journal commit: one write, nothing beside it.
        let data_only = arm.method.contains("dsync") || arm.method.contains("fdatasync");
        let plain_device = arm.promise == "handed to the device" || data_only;
        if arm.layout == "overwritten" && arm.payload_bytes == 4096 && plain_device {
            overwritten += 1;
            assert!(is_within(counts.device_writes, 0.97..1.2, operations), "{what}");
            assert!(is_within(kib / 16.0, 0.0..5.0 / 16.0, operations), "{what}: 16 KiB a commit");
        }
    }
    assert!(overwritten > 0);
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
            let flushed = |bounds| is_within(counts.flushes, bounds, arm.durable_operations);
            if arm.name == "never" {
                assert!(flushed(0.0..0.05), "{what}");
                assert!(!arm.values.contains_key("at_risk_ms"), "that is up to the kernel: {what}");
                continue;
            }
            // One, and where the journal has to commit that the file grew, one or two around its
            // commit: a loop device has no FUA.
            assert!(counts.flushes >= 0.97 && flushed(0.0..3.1), "{what}");
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
                let few = is_within(flushes, 0.0..3.0, arm.durable_operations);
                assert!(arm.valid && flushes >= 0.97 && few, "{what}");
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

/// What the experiment writes before it looks at the clock.
const FILES_A_SAMPLE: u64 = 100;

fn many_files_flush_as_their_promise_implies(filesystem: &str) {
    let Some(mounted) = Mounted::or_skip(filesystem, &[], "") else {
        return;
    };
    let result = measured("many-files", mounted.path(), &[], Duration::from_secs(3));
    assert_eq!(result.arms.len(), 12, "{:?}", result.unavailable);
    for arm in &result.arms {
        let counts = arm.per_operation.expect("a loop device is counted");
        let per_file = |bounds| is_within(counts.flushes, bounds, arm.durable_operations);
        let samples = arm.durable_operations / FILES_A_SAMPLE;
        let per_sample =
            |bounds| is_within(counts.flushes * FILES_A_SAMPLE as f64, bounds, samples);
        let synced = counts.flushes * FILES_A_SAMPLE as f64 >= 0.97;
        let what = format!("{filesystem}: {}: {counts:?}", arm.name);
        assert!(arm.valid, "{what}: {:?}", arm.warnings);
        match arm.name.as_str() {
            "write only" => assert!(per_sample(0.0..1.0) && counts.device_kib < 1.0, "{what}"),
            "one file, one fsync" => assert!(synced && per_sample(0.0..4.0), "{what}"),
            "all writes, then one syncfs" => {
                assert!(synced && per_sample(0.0..6.0), "{what}");
                assert!(counts.device_kib >= 4.0, "{what}");
            }
            // Together: they may share a commit and its flush.
            name if name.starts_with("io_uring") || name.starts_with("4 threads") => {
                assert!(synced && per_file(0.0..3.0), "{what}");
                // What an fsync of the trap missed stays in the cache.
                let least_kib = if name.contains("trap") { 3.0 } else { 4.0 };
                assert!(counts.device_kib >= least_kib, "{what}");
            }
            _ => {
                assert!(per_file(0.97..3.0), "{what}");
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
            // It flushes by itself: 0.06 to 0.22 times an operation of 64 to 4,928, whatever `logbsize`; who syncs does once.
            "without any sync" if filesystem == "xfs" => (0.0, 0.5),
            "without any sync" => (0.0, 0.05),
            _ => (0.97, 3.0),
        };
        assert!(is_within(counts.flushes, least..below, arm.durable_operations), "{what}");
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
    // Flushes arrive. Whether they cost more the more is cached is the host's affair, and a busy one
    // leaves it open.
    match honest.grade {
        Grade::ProtectedOrVirtualCache | Grade::HonestVolatileCache => {
            assert_eq!(honest.rung, Rung::Plausible, "{honest:?}");
        }
        Grade::Unknown => assert!(honest.unknown_because.is_some(), "{honest:?}"),
        _ => panic!("{honest:?}"),
    }
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

/// CI once found one still mounted, where a test had ended well: `umount` is refused while a file is open, if only in what
/// another test had forked and not run yet.
#[test]
fn what_is_busy_for_a_moment_is_unmounted_all_the_same() {
    let Some(mounted) = Mounted::or_skip_sized("ext4", 64 << 20) else { return };
    let at = text(mounted.path());
    let open = fs::File::create(mounted.path().join("open")).unwrap();
    let user = std::thread::spawn(move || {
        std::thread::park_timeout(Duration::from_millis(300));
        drop(open);
    });
    drop(mounted);
    assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains(&at));
    user.join().unwrap();
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
    unmount(Path::new(&merged)).unwrap();
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
    let session = Lab::check(options).unwrap().begin(None).unwrap();
    let mut results = Vec::new();
    session
        .run(&AtomicBool::new(false), &|_| {}, |result, _| {
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
        program: None,
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
