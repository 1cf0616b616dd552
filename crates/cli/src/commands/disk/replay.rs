//! `plimsoll disk replay`: one crash state, mounted, and what it lost.

use std::io::{self, IsTerminal};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use plimsoll_simdisk::block::{Event, Fate, Loss, Mode, State, Timeline, Trace};
use plimsoll_simdisk::mounted::{
    Check, Error, Image, Owner, Owners, Program, Situation, Verdict, keeper,
};
use serde_json::json;

use super::options;
use crate::disk_args::ReplayArgs;
use crate::exit::Exit;
use crate::{interrupt, output};

/// Lost writes that are listed.
const SHOWN_MAX: usize = 20;

pub(super) fn run(args: &ReplayArgs) -> Result<Exit> {
    let trace = options::load(&args.trace)?;
    let timeline = Timeline::of(&trace.events, options::belief(&args.view));
    args.state.check(&trace, &timeline).map_err(anyhow::Error::msg)?;
    let owners = owners(&trace, &timeline, args.state.point, &args.view.mount_options);
    let losses = args.state.losses(&trace.events, &timeline);
    let pending = args.state.fates(&trace.events, &timeline);
    let last_mark = timeline.marks(args.state.point).last().map(|(_, text)| text.to_string());
    let kept = pending.iter().filter(|survivor| survivor.fate == Fate::Whole).count();
    if !args.json {
        output::text(&format!(
            "{}: {} pending writes, {kept} whole, {} lost or torn; last mark: {}\n",
            args.state,
            pending.len(),
            pending.len() - kept,
            last_mark.as_deref().unwrap_or("none")
        ))?;
        output::text(&listed(&trace, &timeline, &owners, &losses))?;
    }
    let platter = args.state.platter(&trace.base, &trace.events, &timeline);
    let options = &args.view.mount_options;
    let image = match Image::of_trace(&trace, &platter, options, false) {
        Ok(image) => image,
        Err(Error::NotMounted { source, .. }) => {
            Image::try_undamaged(&trace, options)?;
            output::text(&match args.json {
                true => {
                    format!("{}\n", json!({ "verdict": "not-mounted", "said": source.to_string() }))
                }
                false => format!("the kernel does not mount it: {source}\n"),
            })?;
            return Ok(Exit::CheckFailed);
        }
        Err(error) => return Err(error.into()),
    };
    let verdict = match &args.check {
        None => None,
        Some(line) => {
            let limit = Duration::from_secs(24 * 3600);
            let check = Check { program: Program::shell(line), limit, aloud: !args.json };
            let marks = timeline.marks(args.state.point);
            let situation = Situation { state: &args.state, marks };
            Some(check.run(&situation, &[], &interrupt::interrupted)?)
        }
    };
    if args.json {
        let lost: Vec<_> = losses.iter().map(|loss| of(&trace, &timeline, &owners, loss)).collect();
        let answer = json!({
            "state": args.state.to_string(),
            "trace": trace.id(),
            "verdict": verdict.as_ref().map(Verdict::name),
            "said": verdict.as_ref().map_or("", Verdict::said),
            "last_mark": last_mark,
            "pending": pending.len(),
            "lost": lost,
        });
        output::text(&format!("{}\n", serde_json::to_string_pretty(&answer)?))?;
    } else {
        output::text(&match &verdict {
            Some(verdict) => format!("the check says: {}\n", verdict.name()),
            None => "it mounts; nothing was checked (no --check)\n".to_owned(),
        })?;
    }
    if args.keep_mounted {
        keep(&image)?;
    }
    image.unmount()?;
    let is_failure = verdict.is_some_and(|verdict| verdict.is_failure());
    Ok(if is_failure { Exit::CheckFailed } else { Exit::Ok })
}

/// Until somebody has seen enough.
fn keep(image: &Image) -> Result<()> {
    let dir = image.directory();
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        let shell = std::env::var("SHELL").unwrap_or_else(|_unset| "/bin/sh".to_owned());
        output::news(&format!("{} is mounted as long as this shell runs", dir.display()));
        let status = Command::new(&shell).current_dir(dir).status();
        status.with_context(|| format!("start {shell}"))?;
        return Ok(());
    }
    output::news(&format!(
        "mounted; look at it with: nsenter --target {} --mount --pid sh -c 'cd {} && exec sh'\nCtrl-C unmounts it",
        keeper::number_outside(),
        dir.display()
    ));
    while !interrupt::interrupted() {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    Ok(())
}

/// Whose each place is, as the host saw the disk at that point.
fn owners(trace: &Trace, timeline: &Timeline, point: usize, options: &str) -> Owners {
    let seen = State { point, mode: Mode::Arrived };
    let platter = seen.platter(&trace.base, &trace.events, timeline);
    let image = Image::of_trace(trace, &platter, options, false);
    match (image, trace.about.filesystem.parse()) {
        (Ok(image), Ok(filesystem)) => Owners::of(&image, filesystem),
        _ => Owners::default(),
    }
}

/// Lost writes, one a line.
fn listed(trace: &Trace, timeline: &Timeline, owners: &Owners, losses: &[Loss]) -> String {
    let mut text = String::new();
    for loss in losses.iter().take(SHOWN_MAX) {
        let (what, owners) = whose(&trace.events, timeline, owners, loss);
        let names: Vec<String> = owners.iter().map(ToString::to_string).collect();
        text += &format!("  lost: {what}: {}\n", names.join("; ").replace('\n', "\\n"));
    }
    if losses.len() > SHOWN_MAX {
        text += &format!("  and {} more (all with --json)\n", losses.len() - SHOWN_MAX);
    }
    text
}

/// What a loss is, and of whom.
pub(super) fn whose(
    events: &[Event],
    timeline: &Timeline,
    owners: &Owners,
    loss: &Loss,
) -> (String, Vec<Owner>) {
    let arrived = timeline.requests()[loss.request as usize].arrived;
    match &events[arrived] {
        Event::Write { byte_offset, bytes } => {
            let (start, end) = loss.bytes.unwrap_or((0, u32::try_from(bytes.len()).unwrap_or(0)));
            let range = byte_offset + u64::from(start)..byte_offset + u64::from(end);
            let part = if loss.bytes.is_some() { "part of write" } else { "write" };
            let what = format!("{part} {} at disk byte {}", loss.request, range.start);
            (what, owners.locate(range))
        }
        Event::Discard { byte_offset, byte_count } => {
            let what = format!("discard {} at disk byte {byte_offset}", loss.request);
            (what, owners.locate(*byte_offset..byte_offset.saturating_add(*byte_count)))
        }
        Event::Flush | Event::Ended { .. } | Event::Mark(_) => (String::new(), Vec::new()),
    }
}

fn of(trace: &Trace, timeline: &Timeline, owners: &Owners, loss: &Loss) -> serde_json::Value {
    let (what, owners) = whose(&trace.events, timeline, owners, loss);
    let owners: Vec<_> = owners.iter().map(owner).collect();
    json!({ "request": loss.request, "what": what, "of": owners })
}

pub(super) fn owner(owner: &Owner) -> serde_json::Value {
    json!({
        "name": owner.name,
        "byte_offset": owner.byte_offset,
        "disk_byte_offset": owner.disk.start,
        "bytes": owner.disk.end - owner.disk.start,
    })
}
