//! `plimsoll disk record`: a workload, once on each filesystem.

use std::fs;

use anyhow::{Context, Result};
use plimsoll_lab::units;
use plimsoll_simdisk::block::{Belief, Event, Timeline, Trace};
use plimsoll_simdisk::mounted::{Ended, Program, Rig};

use super::options;
use crate::disk_args::RecordArgs;
use crate::exit::Exit;
use crate::{interrupt, output};

pub(super) fn run(args: &RecordArgs) -> Result<Exit> {
    fs::create_dir_all(&args.output)
        .with_context(|| format!("create {}", args.output.display()))?;
    let mut exit = Exit::Ok;
    for filesystem in &args.fs {
        let mut how = options::rig_options(filesystem, &args.disk)?;
        how.trace_bytes_max = args.limit_bytes;
        let mut rig = Rig::start(how)?;
        output::news(&format!("{filesystem}: {}", args.command.join(" ")));
        let program = Program::new(args.command.clone());
        let (ended, point) = rig.run(&program, &[], args.limit, &interrupt::interrupted)?;
        let trace = rig.trace(point);
        let applied = rig.faults_applied();
        if ended == Ended::Stopped {
            rig.stop()?;
            output::news("interrupted: nothing is saved");
            return Ok(Exit::Interrupted);
        }
        // Saved first: a disk that cannot be taken down does not take the recording with it.
        let path = args.output.join(format!("{filesystem}.trace"));
        trace.save(&path)?;
        output::text(&format!("{}: {}\n", path.display(), summary(&trace)))?;
        for (fault, times) in applied {
            output::text(&format!("  fault: {fault}: {times} times\n"))?;
        }
        advise(&trace);
        rig.stop()?;
        match ended {
            Ended::Exited(0) | Ended::TimedOut | Ended::Stopped => {}
            Ended::Exited(code) => {
                output::news(&format!("{filesystem}: the workload ended with status {code}"));
                exit = Exit::OfCommand(u8::try_from(code).unwrap_or(1));
            }
            Ended::Signalled(signal) => {
                output::news(&format!("{filesystem}: signal {signal} ended the workload"));
                exit = Exit::OfCommand(u8::try_from(128 + signal).unwrap_or(1));
            }
        }
    }
    Ok(exit)
}

fn summary(trace: &Trace) -> String {
    let (mut writes, mut bytes, mut flushes, mut marks) = (0_u64, 0_u64, 0_u64, 0_u64);
    for event in &trace.events {
        match event {
            Event::Write { bytes: written, .. } => {
                writes += 1;
                bytes += written.len() as u64;
            }
            Event::Flush => flushes += 1,
            Event::Mark(_) => marks += 1,
            Event::Discard { .. } | Event::Ended { .. } => {}
        }
    }
    let bytes = units::bytes(bytes);
    format!("{writes} writes ({bytes}), {flushes} flushes, {marks} marks; {}", trace.about.ended)
}

/// What makes a recording useless.
fn advise(trace: &Trace) {
    let timeline = Timeline::of(&trace.events, Belief::default());
    if timeline.marks(trace.events.len()).is_empty() {
        output::news(
            "It said nothing: without marks a check knows nothing that must be there. See `plimsoll disk mark`.",
        );
    }
    if timeline.flushes().is_empty() {
        output::news("No flush arrived: on this recording anything may be lost.");
    }
}
