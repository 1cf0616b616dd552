//! What this kernel's filesystems say and keep when a sync fails: `docs/durability.md` has the table.
//!
//! `cargo test -p plimsoll-simdisk --features mounted --test failed_sync -- --nocapture` prints it.
//! What is asserted is what the log relies on; the rest is only shown.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skip must be seen")]
#![expect(clippy::disallowed_methods, reason = "it measures what the door to the disk must not do")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use plimsoll_simdisk::block::{Belief, Mode, State, Timeline, Trace};
use plimsoll_simdisk::mounted::{Filesystem, Image, Rig, RigOptions};
use plimsoll_sync::{AlignedBuf, Dir, OsDir, SyncMethod};

const PAGE: usize = 4096;
/// What the rules that fail data look for.
const NEW: &[u8; 8] = b"SIMFAULT";
const OLD: &[u8; 8] = b"OLDOLDOL";
const NEIGHBOUR: &[u8; 8] = b"NEIGHBOU";

/// A fault, and what it is called in the table.
const FAULTS: [(&str, &str); 7] = [
    ("data write EIO", "write EIO has=SIMFAULT"),
    ("data write ENOSPC", "write ENOSPC has=SIMFAULT"),
    ("data write ETIMEDOUT", "write ETIMEDOUT has=SIMFAULT"),
    ("journal write EIO", "write EIO nth=2"),
    ("journal writes EIO, all", "write EIO nth=2 sticky"),
    ("flush EIO", "flush EIO"),
    ("flushes EIO, all", "flush EIO sticky"),
];

fn rig_or_skip(filesystem: Filesystem) -> Option<Rig> {
    match Rig::start(RigOptions::new(filesystem)) {
        Ok(rig) => Some(rig),
        Err(error) => {
            let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|tier| tier == "realfs"), "{filesystem}: {error}");
            eprintln!("SKIPPED {filesystem}: {error}");
            None
        }
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn page(of: &[u8; 8]) -> Vec<u8> {
    of.repeat(PAGE / 8)
}

fn name(result: io::Result<()>) -> String {
    match result {
        Ok(()) => "0".to_owned(),
        Err(error) => match error.raw_os_error() {
            Some(5) => "EIO".to_owned(),
            Some(28) => "ENOSPC".to_owned(),
            Some(30) => "EROFS".to_owned(),
            Some(110) => "ETIMEDOUT".to_owned(),
            Some(117) => "EUCLEAN".to_owned(),
            _ => error.to_string(),
        },
    }
}

fn seen(read: io::Result<Vec<u8>>) -> String {
    match read {
        Ok(bytes) if bytes == page(NEW) || bytes == page(NEIGHBOUR) => "NEW".to_owned(),
        Ok(bytes) if bytes == page(OLD) => "OLD".to_owned(),
        Ok(bytes) if bytes.iter().all(|&byte| byte == 0) => format!("{} zeros", bytes.len()),
        Ok(bytes) => format!("{} mixed bytes", bytes.len()),
        Err(error) => name(Err(error)),
    }
}

fn direct(directory: &Path) -> io::Result<Vec<u8>> {
    let failed = |error: plimsoll_sync::Error| match error {
        plimsoll_sync::Error::Io { source, .. } => {
            io::Error::from_raw_os_error(source.raw_os_error().unwrap_or(0))
        }
        other => io::Error::other(other.to_string()),
    };
    let dir = OsDir::open(directory).map_err(failed)?;
    let file = dir.open("file", SyncMethod::Direct.access()).map_err(failed)?;
    let mut buf = AlignedBuf::zeroed(PAGE, PAGE);
    let read = file.read_at(&mut buf, 0).map_err(failed)?;
    Ok(buf[..read].to_vec())
}

/// What the disk holds once the machine is up again.
fn after(trace: &Trace, mode: Mode, name: &str) -> String {
    let timeline = Timeline::of(&trace.events, Belief::default());
    let state = State { point: trace.events.len(), mode };
    let platter = state.platter(&trace.base, &trace.events, &timeline);
    let filesystem = trace.about.filesystem.parse().unwrap();
    match Image::mount(&platter, filesystem, "", false) {
        Ok(image) => seen(std::fs::read(image.directory().join(name))),
        Err(error) => format!("not mounted: {error}"),
    }
}

#[derive(Debug)]
struct Row {
    syncs: [String; 3],
    opened_before: String,
    opened_after: String,
    cached: String,
    direct: String,
    later_write: String,
    /// Of another file, overwritten after the fault: its sync, and what is there after a power cut.
    neighbour: (String, String),
    after_crash: String,
    after_power_cut: String,
}

/// A page that was durable is overwritten, and the sync meets the fault.
fn measure(filesystem: Filesystem, rule: &str) -> Option<Row> {
    let rig = rig_or_skip(filesystem)?;
    let path = rig.directory().join("file");
    let beside = rig.directory().join("neighbour");
    let [writer, beside] = [&path, &beside].map(|path| {
        std::fs::write(path, page(OLD)).unwrap();
        let file = open(path);
        file.sync_all().unwrap();
        file
    });
    // So that nothing else is waiting to be written.
    settle(&rig);
    let other = open(&path);
    rig.set_faults(vec![rule.parse().unwrap()], 1);
    writer.write_all_at(&page(NEW), 0).unwrap();
    let syncs = [(); 3].map(|()| name(writer.sync_all()));
    let opened_before = name(other.sync_all());
    let opened_after = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => name(file.sync_all()),
        Err(error) => format!("open: {}", name(Err(error))),
    };
    let mut bytes = vec![0; PAGE];
    let cached = seen(writer.read_exact_at(&mut bytes, 0).map(|()| bytes));
    let neighbour = match beside.write_all_at(&page(NEIGHBOUR), 0) {
        Ok(()) => name(beside.sync_all()),
        Err(error) => format!("write {}", name(Err(error))),
    };
    let direct = seen(direct(rig.directory()));
    let trace = rig.trace(rig.point());
    let later_write = name(other.write_all_at(b"later", 2 * PAGE as u64));
    drop((writer, other, beside));
    // A filesystem that has shut itself down may say so again.
    drop(rig.stop());
    let after_crash = after(&trace, Mode::Arrived, "file");
    let after_power_cut = after(&trace, Mode::Durable, "file");
    let neighbour = (neighbour, after(&trace, Mode::Durable, "neighbour"));
    Some(Row {
        syncs,
        opened_before,
        opened_after,
        cached,
        direct,
        later_write,
        neighbour,
        after_crash,
        after_power_cut,
    })
}

fn settle(rig: &Rig) {
    let dir = OsDir::open(rig.directory()).unwrap();
    let file = dir.create("settle", SyncMethod::Syncfs.access()).unwrap();
    file.write_sync_at(b"settled", 0, SyncMethod::Syncfs).unwrap();
}

#[test]
fn a_failed_sync_is_told_once_and_never_trusted_again() {
    println!(
        "| filesystem | fault | fsync 1, 2, 3 | fd opened before | fd opened after | cached read | \
         direct read | later write | another file: fsync, after a power cut | after a crash | after a power cut |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for filesystem in Filesystem::ALL {
        for (fault, rule) in FAULTS {
            let Some(row) = measure(filesystem, rule) else { return };
            let syncs = row.syncs.join(", ");
            println!(
                "| {filesystem} | {fault} | {syncs} | {} | {} | {} | {} | {} | {}, {} | {} | {} |",
                row.opened_before,
                row.opened_after,
                row.cached,
                row.direct,
                row.later_write,
                row.neighbour.0,
                row.neighbour.1,
                row.after_crash,
                row.after_power_cut
            );
            // The log's assumption: what is not durable was never synced without an error.
            let told = row.syncs.iter().any(|sync| sync != "0");
            assert!(told || row.after_power_cut == "NEW", "{filesystem}, {fault}: {row:?}");
        }
    }
}
