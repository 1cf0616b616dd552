//! What works here, found by trying, and why the rest does not.

use super::error::chain;
use super::filesystem::Filesystem;
use super::processes;
use super::rig::{Rig, RigOptions};
use crate::block::Event;
use crate::tier::Tier;

/// Tries each tier that mounts something. Takes a second or so.
#[must_use]
pub fn tiers() -> Vec<Tier> {
    let mut tiers: Vec<Tier> = Filesystem::ALL.into_iter().map(filesystem).collect();
    tiers.push(match processes::output("filefrag", &["-V"]) {
        Ok(_) => Tier::available("attribution", "filefrag names the files of lost writes"),
        Err(error) => {
            Tier::skipped("attribution", format!("{error}; on Debian it is in e2fsprogs"))
        }
    });
    tiers
}

/// A file is written and synced on a mounted disk, and the flush must arrive.
fn filesystem(filesystem: Filesystem) -> Tier {
    // A thread, because a namespace is for ever.
    let tried = std::thread::spawn(move || try_filesystem(filesystem)).join();
    match tried {
        Ok(Ok(seen)) => Tier::available(filesystem.name(), seen),
        Ok(Err(reason)) => Tier::skipped(filesystem.name(), reason),
        Err(_) => Tier::skipped(filesystem.name(), "trying it panicked, a bug of ours"),
    }
    .as_root()
}

#[expect(clippy::disallowed_methods, reason = "the sync is what is looked for")]
fn try_filesystem(filesystem: Filesystem) -> Result<String, String> {
    let rig = Rig::start(RigOptions::new(filesystem)).map_err(|error| chain(&error))?;
    let path = rig.directory().join("file");
    let written = std::fs::File::create(&path).and_then(|file| {
        use std::io::Write;
        (&file).write_all(b"durable?")?;
        file.sync_all()
    });
    let seen = rig.trace(rig.point());
    let stopped = rig.stop();
    written.map_err(|error| format!("a file cannot be synced on it: {error}"))?;
    stopped.map_err(|error| chain(&error))?;
    let flushes = seen.events.iter().filter(|event| matches!(event, Event::Flush)).count();
    match flushes {
        0 => Err("no flush arrived for an fsync".to_owned()),
        flushes => Ok(format!("mounted; {flushes} flush(es) arrived for one fsync")),
    }
}
