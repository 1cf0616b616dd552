//! What works here, found by trying, and why the rest does not.

use super::filesystem::Filesystem;
use super::processes::{self};
use super::rig::{Rig, RigOptions};
use crate::block::Event;

/// One kind of test, and whether it can run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub purpose: &'static str,
    /// Whether it works.
    pub state: TierState,
}

/// Whether something works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierState {
    /// It was tried and works; with what was seen.
    Available(String),
    /// It cannot run, and why.
    Skipped(String),
}

impl Tier {
    /// Whether it works.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        matches!(self.state, TierState::Available(_))
    }
}

/// Tries each tier that mounts something. Takes a second or so.
#[must_use]
pub fn tiers() -> Vec<Tier> {
    let mut tiers: Vec<Tier> = Filesystem::ALL.into_iter().map(filesystem).collect();
    let state = match processes::output("filefrag", &["-V"]) {
        Ok(_) => TierState::Available("filefrag names them".to_owned()),
        Err(error) => TierState::Skipped(format!("{error}; on Debian it is in e2fsprogs")),
    };
    let name = "attribution".to_owned();
    tiers.push(Tier { name, purpose: "naming the files of lost writes", state });
    tiers
}

/// A file is written and synced on a mounted disk, and the flush must arrive.
fn filesystem(filesystem: Filesystem) -> Tier {
    // A thread, because a namespace is for ever.
    let tried = std::thread::spawn(move || try_filesystem(filesystem)).join();
    let state = match tried {
        Ok(Ok(seen)) => TierState::Available(seen),
        Ok(Err(reason)) => TierState::Skipped(reason),
        Err(_panicked) => {
            TierState::Skipped("trying it panicked, which is a bug of ours".to_owned())
        }
    };
    let purpose = "power cuts, faults and latency under a real filesystem";
    Tier { name: filesystem.name().to_owned(), purpose, state }
}

#[expect(clippy::disallowed_methods, reason = "the sync is what is looked for")]
fn try_filesystem(filesystem: Filesystem) -> Result<String, String> {
    let rig = Rig::start(RigOptions::new(filesystem)).map_err(|error| error.to_string())?;
    let path = rig.directory().join("file");
    let written = std::fs::File::create(&path).and_then(|file| {
        use std::io::Write;
        (&file).write_all(b"durable?")?;
        file.sync_all()
    });
    let seen = rig.trace(rig.point());
    let stopped = rig.stop();
    written.map_err(|error| format!("a file cannot be synced on it: {error}"))?;
    stopped.map_err(|error| error.to_string())?;
    let flushes = seen.events.iter().filter(|event| matches!(event, Event::Flush)).count();
    match flushes {
        0 => Err("no flush arrived for an fsync".to_owned()),
        flushes => Ok(format!("mounted; {flushes} flush(es) arrived for one fsync")),
    }
}
