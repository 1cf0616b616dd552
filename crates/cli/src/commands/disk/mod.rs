//! `plimsoll disk`: power cuts, faults and slowness under real filesystems. A file for each command.

use anyhow::Result;

use crate::disk_args::DiskCommand;
use crate::exit::Exit;
#[cfg(target_os = "linux")]
use crate::{interrupt, output};

mod doctor;

#[cfg(target_os = "linux")]
mod cycle;
#[cfg(target_os = "linux")]
mod explore;
#[cfg(target_os = "linux")]
mod junit;
#[cfg(target_os = "linux")]
mod look;
#[cfg(target_os = "linux")]
mod mark;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod page;
#[cfg(target_os = "linux")]
mod progress;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod replay;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod shrink;
#[cfg(target_os = "linux")]
mod why;
#[cfg(target_os = "linux")]
mod why_text;

#[cfg(target_os = "linux")]
pub(crate) fn run(command: DiskCommand) -> Result<Exit> {
    use plimsoll_simdisk::mounted::keeper::{self, Role};

    match command {
        DiskCommand::Doctor { json } => return doctor::run(json),
        DiskCommand::Mark { text } => return mark::run(&text),
        _ => {}
    }
    // Before any thread: from here on, whatever ends us ends all that we start.
    if let Role::Waited(code) = keeper::enter()? {
        return Ok(Exit::OfCommand(code));
    }
    // Pressed again it ends the process, and the kernel takes everything down.
    interrupt::on_interrupt(|| output::news("stopping; Ctrl-C again stops at once"))?;
    ended(match command {
        DiskCommand::Record(args) => record::run(&args),
        DiskCommand::Explore(args) => explore::run(&args),
        DiskCommand::Replay(args) => replay::run(&args),
        DiskCommand::Shrink(args) => shrink::run(&args),
        DiskCommand::Cycle(args) => cycle::run(&args),
        DiskCommand::Run(args) => run::run(&args),
        DiskCommand::Doctor { .. } | DiskCommand::Mark { .. } => unreachable!("done above"),
    })
}

/// What failed after Ctrl-C failed because of it, and is no answer.
#[cfg(target_os = "linux")]
fn ended(done: Result<Exit>) -> Result<Exit> {
    use plimsoll_simdisk::mounted::Error;

    match done {
        Err(error) if interrupt::interrupted() => {
            output::news(&match error.downcast_ref::<Error>() {
                Some(Error::Interrupted) => "interrupted".to_owned(),
                _ => format!("interrupted: {error:#}"),
            });
            Ok(Exit::Interrupted)
        }
        done => done,
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run(command: DiskCommand) -> Result<Exit> {
    match command {
        DiskCommand::Doctor { json } => doctor::run(json),
        _ => anyhow::bail!("{}", NOT_HERE),
    }
}

/// Why there is no mounted disk on this system.
#[cfg(not(target_os = "linux"))]
const NOT_HERE: &str = "disks are mounted with FUSE and loop devices, which only Linux has";

// Where nothing is run, nothing ends as it did, and nothing was left untested.
#[cfg(not(target_os = "linux"))]
const _: (fn(u8) -> Exit, Exit) = (Exit::OfCommand, Exit::Untested);

/// What works here, by trying.
#[cfg(target_os = "linux")]
use plimsoll_simdisk::mounted::tiers;

/// What a tier is, where nothing is mounted.
#[cfg(not(target_os = "linux"))]
fn tiers() -> Vec<plimsoll_simdisk::Tier> {
    let names = ["ext4", "xfs", "btrfs", "attribution"];
    names.map(|name| plimsoll_simdisk::Tier::skipped(name, NOT_HERE)).into()
}
