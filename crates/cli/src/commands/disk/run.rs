//! `plimsoll disk run`: something on a disk that fails, lies or is slow.

use anyhow::Result;
use plimsoll_simdisk::block::Keep;
use plimsoll_simdisk::mounted::{Ended, Program, Rig};

use super::options;
use crate::disk_args::RunArgs;
use crate::exit::Exit;
use crate::{interrupt, output};

pub(super) fn run(args: &RunArgs) -> Result<Exit> {
    let mut how = options::rig_options(&args.fs, &args.disk)?;
    how.interactive = true;
    how.keep = Keep::Nothing;
    let preparation = options::preparation(&args.disk);
    let mut rig = Rig::prepared(how, &preparation, &interrupt::interrupted)?;
    let program = Program::new(args.command.clone());
    let (ended, _) = rig.run(&program, &[], None, &interrupt::interrupted)?;
    for (fault, times) in rig.faults_applied() {
        output::news(&match times {
            0 => format!("fault: {fault}: it never happened"),
            1 => format!("fault: {fault}: once"),
            times => format!("fault: {fault}: {times} times"),
        });
    }
    // How the command ended is the answer, whatever becomes of its disk.
    if let Err(error) = rig.stop() {
        output::news(&format!("the disk: {:#}", anyhow::Error::from(error)));
    }
    if interrupt::interrupted() {
        output::news("interrupted: the command was ended, and its disk is gone");
        return Ok(Exit::Interrupted);
    }
    Ok(match ended {
        Ended::Exited(code) => Exit::OfCommand(u8::try_from(code).unwrap_or(1)),
        Ended::Signalled(signal) => Exit::OfCommand(u8::try_from(128 + signal).unwrap_or(1)),
        Ended::TimedOut | Ended::Stopped => Exit::Interrupted,
    })
}
