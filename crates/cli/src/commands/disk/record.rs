//! `plimsoll disk record`: a workload, once on each filesystem.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use plimsoll_lab::units;
use plimsoll_simdisk::block::{Belief, Event, Timeline, Trace};
use plimsoll_simdisk::mounted::{Ended, Error, Findings, Preparation, Program, Refused, Rig};
use plimsoll_sync::{Dir as _, OsDir, SyncMethod};

use super::options;
use crate::disk_args::RecordArgs;
use crate::exit::Exit;
use crate::{interrupt, output};

pub(super) fn run(args: &RecordArgs) -> Result<Exit> {
    let preparation = options::preparation(&args.disk);
    preparation.check()?;
    options::mark_on(args.mark_on.as_deref())?;
    check_free(args)?;
    fs::create_dir_all(&args.output)
        .with_context(|| format!("create {}", args.output.display()))?;
    check_writable(args)?;
    let left = Mutex::new(args.fs.iter());
    let next = || left.lock().expect("nobody panics with it").next();
    // A namespace is of a thread: each has its disk at the same path.
    let work = || -> Result<Exit> {
        let mut exit = Exit::Ok;
        while let Some(filesystem) = next() {
            exit = later(exit, one(args, filesystem, &preparation)?);
        }
        Ok(exit)
    };
    std::thread::scope(|scope| {
        let count = usize::from(args.jobs).min(args.fs.len());
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let mut all = Ok(Exit::Ok);
        for thread in threads {
            let done = thread.join().expect("recording does not panic");
            all = both(all, done);
        }
        all
    })
}

/// Nothing is recorded over what is there, nor twice.
fn check_free(args: &RecordArgs) -> Result<()> {
    for (number, filesystem) in args.fs.iter().enumerate() {
        let path = path(args, filesystem);
        if args.fs[..number].contains(filesystem) {
            bail!("--fs names {filesystem} twice, and there is one {}", path.display());
        }
        // A link to nothing is there, too.
        let there = fs::symlink_metadata(&path);
        let path = path.display();
        if there.as_ref().is_ok_and(fs::Metadata::is_dir) {
            bail!("{path} is a directory, and no trace can take its place: give another with -o");
        }
        if there.is_ok() && !args.force {
            bail!(
                "{path} is there already: give another directory with -o, or replace it with --force"
            );
        }
    }
    Ok(())
}

/// Where no file can be made no recording can be saved, and that is better known before the workload has run.
fn check_writable(args: &RecordArgs) -> Result<()> {
    let shown = args.output.display();
    let cannot = || format!("no trace can be saved in {shown}: give another directory with -o");
    let dir = OsDir::open(&args.output).with_context(cannot)?;
    let access = SyncMethod::ORDINARY.access();
    let (unfinished, _file) = dir.create_unfinished("record", access).with_context(cannot)?;
    dir.remove(&unfinished).with_context(cannot)
}

/// Of two threads; where both failed the second error is said here, as only one can be returned.
fn both(one: Result<Exit>, other: Result<Exit>) -> Result<Exit> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(later(one, other)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(first), Err(second)) => {
            output::error(&second);
            Err(first)
        }
    }
}

/// Of two filesystems the one on which the workload did not end well; above all, that it was interrupted.
fn later(one: Exit, other: Exit) -> Exit {
    match (one, other) {
        (Exit::Interrupted, _) | (_, Exit::Ok) => one,
        _ => other,
    }
}

fn path(args: &RecordArgs, filesystem: &str) -> PathBuf {
    args.output.join(format!("{filesystem}.trace"))
}

/// What is left when somebody asks to stop is not recorded, and then this is no success.
fn one(args: &RecordArgs, filesystem: &str, preparation: &Preparation) -> Result<Exit> {
    let done = match interrupt::interrupted() {
        true => Err(Error::Interrupted.into()),
        false => recorded(args, filesystem, preparation),
    };
    match done {
        Err(error) if matches!(error.downcast_ref(), Some(Error::Interrupted)) => {
            output::news(&format!("{filesystem}: interrupted: nothing is saved"));
            Ok(Exit::Interrupted)
        }
        done => done.with_context(|| filesystem.to_owned()),
    }
}

fn recorded(args: &RecordArgs, filesystem: &str, preparation: &Preparation) -> Result<Exit> {
    let mut how = options::rig_options(filesystem, &args.disk)?;
    how.trace_bytes_max = args.limit_bytes;
    how.write_back = args.writeback;
    how.mark_on = options::mark_on(args.mark_on.as_deref())?;
    let mut rig = Rig::prepared(how, preparation, &interrupt::interrupted)?;
    output::news(&format!("{filesystem}: {}", args.command.join(" ")));
    let program = Program::new(args.command.clone());
    let (ended, point) = rig.run(&program, &[], args.limit, &interrupt::interrupted)?;
    if ended == Ended::Stopped {
        rig.stop()?;
        return Err(Error::Interrupted.into());
    }
    let whole = if args.writeback { rig.write_back()? } else { point };
    let applied = rig.faults_applied();
    let trace = rig.trace_and_aftermath(whole);
    // Saved first: neither a disk that cannot be taken down nor earlier findings that cannot be moved take the
    // recording with them.
    let path = path(args, filesystem);
    trace.save(&path)?;
    let mut text = format!("{}: {}\n", path.display(), summary(&trace));
    for (fault, times) in applied {
        text += &format!("  fault: {fault}: {times} times\n");
    }
    output::text(&text)?;
    advise(filesystem, args, &trace, point, rig.refused());
    let aside = Findings::set_aside(&path).with_context(|| {
        format!("{} is saved, but what was found of the one before stays", path.display())
    })?;
    if let Some(aside) = aside {
        let aside = aside.display();
        output::news(&format!(
            "{filesystem}: what was found of the trace before is kept as {aside}"
        ));
    }
    rig.stop()?;
    Ok(match ended {
        Ended::Exited(0) | Ended::TimedOut | Ended::Stopped => Exit::Ok,
        Ended::Exited(code) => {
            output::news(&format!("{filesystem}: the workload ended with status {code}"));
            Exit::OfCommand(u8::try_from(code).unwrap_or(1))
        }
        Ended::Signalled(signal) => {
            output::news(&format!("{filesystem}: signal {signal} ended the workload"));
            Exit::OfCommand(u8::try_from(128 + signal).unwrap_or(1))
        }
    })
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

/// What makes a recording useless; up to `point` the workload ran.
fn advise(filesystem: &str, args: &RecordArgs, trace: &Trace, point: usize, refused: &Refused) {
    let say = |what: &str| output::news(&format!("{filesystem}: {what}"));
    let seen = |events: &[Event]| Timeline::of(events, Belief::default());
    let of_workload = seen(&trace.events[..point]);
    if refused.lines > 0 {
        say(&refused.to_string());
    }
    if of_workload.marks(point).is_empty() {
        say(match args.mark_on {
            Some(_) if refused.lines > 0 => {
                "So there are no marks, and without marks a check knows nothing that must be there."
            }
            Some(_) => {
                "No line matched --mark-on: without marks a check knows nothing that must be there. What buffers \
                 its output where that is no terminal is heard late, or never: try `stdbuf -oL`."
            }
            None => {
                "It said nothing: without marks a check knows nothing that must be there. See `plimsoll disk \
                 mark`, and --mark-on."
            }
        });
    }
    if of_workload.flushes().is_empty() {
        let is_synced = !seen(&trace.events).flushes().is_empty();
        say(match args.writeback {
            true if is_synced => {
                "No flush arrived while it ran, but with the sync at its end: before that anything may be lost."
            }
            true => {
                "No flush arrived, nor with the sync at its end: on this recording anything may be lost."
            }
            false => {
                "No flush arrived: on this recording anything may be lost. What was never written to the disk is \
                 in no state: --writeback has the kernel write it."
            }
        });
    }
}
