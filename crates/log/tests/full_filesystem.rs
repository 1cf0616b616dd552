//! Logs on ext4, xfs, btrfs and tmpfs that are full to the last block: nothing accepted is lost, a log opens
//! there and is read, retention makes room, and appends come back.
//!
//! Needs root, FUSE and loop devices; elsewhere it says SKIPPED, and with `realfs` in `PLIMSOLL_REQUIRE`
//! that is a failure.
#![cfg(all(target_os = "linux", not(shuttle)))]
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it tells its figures, a skip must be seen, and it is others who fill the disk"
)]

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use plimsoll_log::{Ack, Error, Log, Options, Policy, Retain};
use plimsoll_simdisk::block::Keep;
use plimsoll_simdisk::mounted::{Filesystem, Rig, RigOptions};

/// What the log gets of the disk: room for one segment and for some.
const ROOMS_BYTES: [usize; 2] = [2 << 20, 6 << 20];

/// What others give back of it, where the log cannot.
const GIVEN_BACK_BYTES: u64 = 3 << 20;

fn skip(what: &str, why: &str) {
    let required = env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|tier| tier == "realfs"), "{what}: {why}");
    eprintln!("SKIPPED {what}: {why}");
}

fn options(policy: Policy) -> Options {
    Options { policy, segment_bytes: 1 << 20, ring_bytes: 256 << 10, ..Options::default() }
}

fn payload(index: u64) -> Vec<u8> {
    (0..index * 37 % 3000).map(|byte| (byte * 31 + index).to_le_bytes()[0]).collect()
}

/// Takes every block that is left.
fn take_all(directory: &Path) {
    let path = directory.join("filler");
    let mut filler = OpenOptions::new().create(true).append(true).open(path).unwrap();
    for piece in [1 << 20, 64 << 10, 4096, 512] {
        let bytes = vec![0x5a; piece];
        // Twice, because what a filesystem holds back it may give when it has synced.
        for _ in 0..2 {
            while filler.write_all(&bytes).is_ok() {}
            match filler.sync_all() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Leaves some room and no more.
fn take_all_but(room_bytes: usize, directory: &Path) {
    let reserve = directory.join("reserve");
    let mut file = File::create(&reserve).unwrap();
    file.write_all(&vec![7; room_bytes]).unwrap();
    file.sync_all().unwrap();
    take_all(directory);
    // Another test's child may have this file open until its exec(2): removed alone, it would keep its blocks until then.
    file.set_len(0).unwrap();
    fs::remove_file(reserve).unwrap();
    // btrfs has the room once this is on the disk.
    File::open(directory).unwrap().sync_all().unwrap();
    assert!(Command::new("sync").arg("-f").arg(directory).status().unwrap().success());
}

/// Appends until there is no room: how many records were accepted.
fn fill(log: &Log, case: &str) -> u64 {
    let before = log.last_index();
    for index in before + 1..before + 1_000_000 {
        match log.append_with(&payload(index), Ack::Buffered) {
            Ok(_) => {}
            Err(Error::OutOfSpace { .. }) => return log.last_index() - before,
            Err(error) => panic!("{case}: {error:?}"),
        }
    }
    panic!("{case}: it never fills");
}

/// Every record from the first to `last` is read.
fn expect(log: &Log, last: u64, case: &str) {
    let first = log.first_index();
    let mut reader = log.read_from(first).unwrap();
    for index in first..=last {
        let record = reader.next_record().unwrap_or_else(|error| panic!("{case}: {error:?}"));
        let record = record.unwrap_or_else(|| panic!("{case}: {index} of {last} is not there"));
        assert_eq!((record.index, record.payload), (index, &payload(index)[..]), "{case}");
    }
}

/// Who filled the disk gives some of it back.
fn give_back(directory: &Path) {
    let filler = OpenOptions::new().write(true).open(directory.join("filler")).unwrap();
    let kept = filler.metadata().unwrap().len() - GIVEN_BACK_BYTES;
    filler.set_len(kept).unwrap();
    filler.sync_all().unwrap();
}

/// Retention makes room, soon, for what was accepted and for more. Of a log that is one segment or two
/// it may let nothing go (xfs may free what it did let go so late that others took it): then others have to.
fn comes_back(log: &Log, directory: &Path, case: &str) {
    let (before, last) = (log.first_index(), log.last_index());
    let first = log.truncate_before(Retain::From(log.durable().saturating_sub(300))).unwrap();
    if first == before {
        let segments = log.stats().segments;
        assert!(segments <= 2, "{case}: nothing of {segments} segments was let go");
        give_back(directory);
    }
    let appended = (0..3000).any(|_| {
        thread::park_timeout(Duration::from_millis(10));
        log.append_with(&payload(last + 1), Ack::Buffered).is_ok()
    });
    assert!(appended, "{case}: kept from {first}, and {:?}", log.health());
    let synced = log.wait(last + 1, Ack::Durable).unwrap().block_for(Duration::from_secs(30));
    synced.unwrap_or_else(|error| panic!("{case}: {error:?}, {:?}", log.health()));
    log.health().unwrap();
    expect(log, last + 1, case);
}

fn live(directory: &Path, policy: Policy, room_bytes: usize, case: &str) {
    take_all_but(room_bytes, directory);
    let path = directory.join("log");
    let (log, _) = Log::open(&path, options(policy)).unwrap();
    for round in 0..3 {
        let case = format!("{case}, round {round}");
        let accepted = fill(&log, &case);
        take_all(directory);
        // Where there is no room for what was accepted it waits for some.
        let synced = log.wait(log.last_index(), Ack::Durable).unwrap();
        let synced = synced.block_for(Duration::from_secs(1));
        let is_late = matches!(synced, Err(Error::TimedOut { .. })) && log.health().is_err();
        assert!(synced.is_ok() || is_late, "{case}: {synced:?}, {:?}", log.health());
        println!("{case}: {accepted} accepted, then {:?}, {:?}", log.health(), log.stats().layout);
        expect(&log, log.written(), &case);
        comes_back(&log, directory, &case);
    }
    log.close().unwrap();
    // It ends on a full disk, one way or the other, and opens there.
    for is_closed in [false, true] {
        let (log, _) =
            Log::open(&path, options(policy)).unwrap_or_else(|error| panic!("{case}: {error:?}"));
        fill(&log, case);
        take_all(directory);
        let (durable, last) = (log.durable(), log.last_index());
        let closed = if is_closed {
            Some(log.close())
        } else {
            drop(log);
            None
        };
        assert!(
            matches!(closed, None | Some(Ok(()) | Err(Error::OutOfSpace { .. }))),
            "{case}: {closed:?}"
        );
        let (log, recovery) = Log::open(&path, options(policy))
            .unwrap_or_else(|error| panic!("{case}: {is_closed}: {error:?}"));
        let least = if matches!(closed, Some(Ok(()))) { last } else { durable };
        assert!(recovery.last_index >= least, "{case}: {least}, {recovery:?}");
        expect(&log, recovery.last_index, case);
        fill(&log, case);
        comes_back(&log, directory, case);
        let last = log.last_index();
        log.close().unwrap_or_else(|error| panic!("{case}: {error:?}"));
        let (log, recovery) = Log::open(&path, options(policy)).unwrap();
        assert_eq!(recovery.last_index, last, "{case}");
        log.close().unwrap();
    }
}

/// The lives of a log on such a disk, and their names.
fn lives() -> impl Iterator<Item = (String, Policy, usize)> {
    let policies = [("everysec", Policy::everysec()), ("always", Policy::Always)];
    policies.into_iter().flat_map(|(name, policy)| {
        ROOMS_BYTES.map(|room| (format!("{name}, room of {} MiB", room >> 20), policy, room))
    })
}

fn on_a_disk(filesystem: Filesystem) {
    for (name, policy, room_bytes) in lives() {
        let options = RigOptions {
            disk_bytes: 320 << 20,
            keep: Keep::Nothing,
            ..RigOptions::new(filesystem)
        };
        match Rig::start(options) {
            Ok(rig) => live(rig.directory(), policy, room_bytes, &format!("{filesystem}, {name}")),
            Err(error) => return skip(filesystem.name(), &error.to_string()),
        }
    }
}

#[test]
fn a_log_on_a_full_ext4_loses_nothing_and_comes_back() {
    on_a_disk(Filesystem::Ext4);
}

#[test]
fn a_log_on_a_full_xfs_loses_nothing_and_comes_back() {
    on_a_disk(Filesystem::Xfs);
}

#[test]
fn a_log_on_a_full_btrfs_loses_nothing_and_comes_back() {
    on_a_disk(Filesystem::Btrfs);
}

/// A tmpfs, unmounted when dropped.
struct Tmpfs(PathBuf, #[expect(dead_code, reason = "removed after it")] tempfile::TempDir);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "{} stays mounted",
            self.0.display()
        );
    }
}

#[test]
fn a_log_on_a_full_tmpfs_loses_nothing_and_comes_back() {
    for (name, policy, room_bytes) in lives() {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let at = scratch.path().join("mnt");
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&at).output();
        match mounted {
            Ok(output) if output.status.success() => {}
            Ok(output) => return skip("tmpfs", &String::from_utf8_lossy(&output.stderr)),
            Err(error) => return skip("tmpfs", &error.to_string()),
        }
        let tmpfs = Tmpfs(at, scratch);
        live(&tmpfs.0, policy, room_bytes, &format!("tmpfs, {name}"));
    }
}
