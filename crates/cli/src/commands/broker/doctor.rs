//! `plimsoll broker doctor`: what acknowledgements would survive in a directory. It changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use plimsoll_lab::environment::{Kind, Mount};
use plimsoll_server::broker::{Options, SHARDS, cluster_in};
use plimsoll_sync::{Error, OsDir, space};
use serde::Serialize;

use crate::exit::Exit;
use crate::output;
use crate::serve_args::NO_MEMORY;

/// Below so much a broker runs out of disk soon: a segment for each shard, and one that follows.
const LITTLE_BYTES: u64 = 1 << 30;

/// What was found of one thing.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    said: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    /// It works, and somebody may want it otherwise.
    Note,
    /// It does not work, or keeps nothing.
    Bad,
}

pub(super) fn run(dir: &Path, memory: &Path, json: bool) -> Result<Exit> {
    let place = nearest(dir)?;
    let mut findings = vec![filesystem(&place), room(&place), rings(memory)];
    findings.extend(open_files());
    findings.extend(last_run(dir, memory));
    if json {
        output::text(&format!("{}\n", serde_json::to_string_pretty(&findings)?))?;
    } else {
        for finding in &findings {
            output::answer(&line(finding, output::colour()))?;
        }
    }
    let is_bad = findings.iter().any(|finding| finding.state == State::Bad);
    Ok(if is_bad { Exit::CheckFailed } else { Exit::Ok })
}

fn line(finding: &Finding, colours: bool) -> String {
    let (word, colour) = match finding.state {
        State::Good => ("GOOD", 32),
        State::Note => ("NOTE", 33),
        State::Bad => ("BAD", 31),
    };
    let word = format!("{word:<5}");
    let word = if colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word };
    // What was found may name files of anybody; only our colour is for the terminal.
    format!("{:<12} {word} {}\n", finding.what, output::plain(&finding.said))
}

/// The directory, or the nearest above it that is there, free of links.
fn nearest(dir: &Path) -> Result<PathBuf> {
    let dir = std::path::absolute(dir).context("the current directory is gone")?;
    let there = dir.ancestors().find_map(|dir| dir.canonicalize().ok());
    there.with_context(|| format!("nothing of {} is there", dir.display()))
}

fn mount_of(place: &Path) -> Option<Mount> {
    let mountinfo = fs::read("/proc/self/mountinfo").ok()?;
    Mount::of(place, &String::from_utf8_lossy(&mountinfo))
}

/// What keeps the data.
fn filesystem(place: &Path) -> Finding {
    let what = "filesystem";
    let Some(mount) = mount_of(place) else {
        let said = "this system does not say which it is".to_owned();
        return Finding { what, state: State::Note, said };
    };
    let name = &mount.filesystem;
    let (state, said) = match mount.kind() {
        Kind::Local => (State::Good, "on a device of this machine".to_owned()),
        Kind::Memory => (State::Bad, "in memory: nothing is durable there".to_owned()),
        Kind::Overlay => (State::Note, "the layer of a container: it goes with it".to_owned()),
        Kind::Network => (State::Note, "another machine says what is durable".to_owned()),
        Kind::Fuse => (State::Note, "a process says what is durable".to_owned()),
        Kind::Kernel => (State::Bad, "a view into the kernel: nothing is kept there".to_owned()),
    };
    Finding { what, state, said: format!("{name}, {said}") }
}

fn room(place: &Path) -> Finding {
    let what = "disk";
    let (state, said) = match space(place) {
        Ok(space) => {
            let is_little = space.free_bytes < LITTLE_BYTES;
            let state = if is_little { State::Note } else { State::Good };
            let said =
                format!("{} of {} MiB are free", mib(space.free_bytes), mib(space.total_bytes));
            (state, said)
        }
        Err(error) => (State::Note, format!("how much is free is not known: {error}")),
    };
    Finding { what, state, said }
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// Where what is acknowledged waits for the kernel.
fn rings(memory: &Path) -> Finding {
    let what = "rings";
    let note = |said: String| Finding { what, state: State::Note, said };
    let waits = "an acknowledgement waits for the kernel, and a crash of the broker takes nothing";
    if memory == Path::new(NO_MEMORY) {
        return note(waits.to_owned());
    }
    let name = memory.display();
    let Ok(place) = nearest(memory) else { return note(format!("{name} is not there: {waits}")) };
    let wanted = 2 * Options::default().ring_bytes;
    match space(&place) {
        Err(error) => note(format!("{name}: {error}: {waits}")),
        Ok(space) if space.free_bytes <= wanted => note(format!(
            "{name} has {} MiB free, and more than {} are wanted: {waits}",
            mib(space.free_bytes),
            mib(wanted)
        )),
        Ok(_) if mount_of(&place).is_some_and(|mount| mount.kind() != Kind::Memory) => {
            note(format!("{name} is not in memory: {waits}"))
        }
        Ok(space) => {
            let said = format!(
                "{name} has {} MiB free: an acknowledged record is in memory that outlives the broker",
                mib(space.free_bytes)
            );
            Finding { what, state: State::Good, said }
        }
    }
}

#[cfg(unix)]
fn open_files() -> Option<Finding> {
    // A few hundred connections, and what the logs have open.
    const FEW: u64 = 1024;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let (state, said) = match limit {
        None => (State::Good, "no limit".to_owned()),
        Some(limit) if limit < FEW => {
            (State::Note, format!("{limit} at most: few connections (ulimit -n)"))
        }
        Some(limit) => (State::Good, format!("{limit} at most, a connection takes one")),
    };
    Some(Finding { what: "open files", state, said })
}

#[cfg(not(unix))]
fn open_files() -> Option<Finding> {
    None
}

/// Whose the directory is, and how its last run ended.
fn last_run(dir: &Path, memory: &Path) -> Vec<Finding> {
    let what = "directory";
    let said = |state, said: String| vec![Finding { what, state, said }];
    let name = dir.display();
    let Ok(mut entries) = fs::read_dir(dir) else {
        return match dir.exists() {
            true => said(State::Bad, format!("{name} cannot be read, or is no directory")),
            false => said(State::Good, format!("{name} is not there: a start makes it")),
        };
    };
    let Ok(cluster) = fs::read(dir.join("cluster")) else {
        return match entries.next() {
            None => said(State::Good, format!("{name} is empty: a start makes a broker of it")),
            Some(_) => said(State::Note, format!("{name} has other files, and is no broker's yet")),
        };
    };
    let Some(cluster) = cluster_in(&cluster) else {
        let file = dir.join("cluster");
        return said(State::Bad, format!("{} is not what a broker wrote there", file.display()));
    };
    let whose = Finding {
        what,
        state: State::Good,
        said: format!("of the broker {cluster}; what lies in it is not read: a start does that"),
    };
    if dir.join("restored").exists() && !dir.join("run").exists() {
        let restored = "restored from a backup, and not started since".to_owned();
        return vec![whose, Finding { what: "last run", state: State::Note, said: restored }];
    }
    // One that was restored has a name of its own for what it has in memory.
    let restored = fs::read(dir.join("restored")).unwrap_or_default();
    let rings = memory.join(cluster_in(&restored).unwrap_or(cluster));
    vec![whose, end_of(dir, &rings)]
}

/// How the last run ended, as far as its directory tells.
fn end_of(dir: &Path, rings: &Path) -> Finding {
    let what = "last run";
    let running = OsDir::open(dir).and_then(|dir| dir.check_unlocked("lock"));
    let note = |said: String| Finding { what, state: State::Note, said };
    match running {
        Err(Error::Locked { .. }) => return note("it runs: a broker has the lock".to_owned()),
        Err(error) => return note(format!("whether it runs is not known: {error}")),
        Ok(()) => {}
    }
    let shards = SHARDS.into_iter().map(|number| format!("shard-{number}"));
    let (there, missing): (Vec<_>, Vec<_>) = shards.partition(|shard| dir.join(shard).is_dir());
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return note(format!(
            "{missing} is not there: the first start was cut off, or it was removed"
        ));
    }
    let open: Vec<_> =
        there.into_iter().filter(|shard| !dir.join(shard).join("closed").exists()).collect();
    if open.is_empty() {
        let said = "closed: everything was durable".to_owned();
        return Finding { what, state: State::Good, said };
    }
    let ring = match SHARDS.iter().any(|number| rings.join(format!("shard-{number}")).exists()) {
        true => "; a start looks in the ring, which is there, for what was acknowledged",
        false => "",
    };
    let open = open.join(", ");
    note(format!("it did not close {open}, as after a kill or a power cut{ring}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The colour was shown as the characters that it is made of.
    #[test]
    fn a_terminal_obeys_our_colour_and_nothing_that_was_found() {
        let said = "a\x1b[2Jb".to_owned();
        let finding = Finding { what: "disk", state: State::Good, said };
        assert_eq!(line(&finding, true), "disk         \x1b[32mGOOD \x1b[0m a\\u001b[2Jb\n");
        assert_eq!(line(&finding, false), "disk         GOOD  a\\u001b[2Jb\n");
    }
}
