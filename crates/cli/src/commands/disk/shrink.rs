//! `plimsoll disk shrink`: the fewest lost writes that still do harm, and whose they were.

use anyhow::{Result, bail};
use plimsoll_simdisk::block::{Loss, Mode, State, Timeline, Trace, shrink};
use plimsoll_simdisk::mounted::{Error, Image, Situation, Verdict};
use serde_json::json;

use super::{options, progress, replay};
use crate::disk_args::{ShrinkArgs, quoted};
use crate::exit::Exit;
use crate::{interrupt, output};

pub(super) fn run(args: &ShrinkArgs) -> Result<Exit> {
    let trace = options::load(&args.trace)?;
    let timeline = Timeline::of(&trace.events, options::belief(&args.view));
    args.state.check(&trace, &timeline).map_err(anyhow::Error::msg)?;
    // What does not mount at all would seem to fail for any state.
    Image::try_undamaged(&trace, &args.view.mount_options)?;
    let losses = args.state.losses(&trace.events, &timeline);
    let before = losses.len();
    let bar = progress::bar(0, "states");
    let mut tried = 0_u64;
    let mut broken = None;
    let found = shrink(args.state.point, losses, |state| {
        if interrupt::interrupted() {
            return Err(Error::Interrupted);
        }
        tried += 1;
        bar.set_length(tried + 1);
        bar.set_position(tried);
        if let Mode::Without(losses) = &state.mode {
            bar.set_message(format!("; {} lost writes", losses.len()));
        }
        let verdict = verdict(args, &trace, &timeline, state)?;
        if let Verdict::Broken(said) = &verdict {
            broken.get_or_insert(said.clone());
        }
        Ok(harm(&verdict))
    });
    bar.finish_and_clear();
    let Some(found) = found? else {
        if let Some(said) = broken {
            bail!("{}: the check is broken: {said}", args.state);
        }
        let said = format!("{}: the check does not fail", args.state);
        if args.json {
            output::news(&said);
        } else {
            output::text(&format!("{said}\n"))?;
        }
        return Ok(Exit::CheckFailed);
    };
    let found = match &found.mode {
        Mode::Without(losses) if losses.is_empty() => State { mode: Mode::Arrived, ..found },
        _ => found,
    };
    let losses: Vec<Loss> = match &found.mode {
        Mode::Without(losses) => losses.clone(),
        _ => Vec::new(),
    };
    let owners = replay::owners(&trace, &timeline, found.point, &args.view.mount_options);
    if args.json {
        let of = |loss| replay::of(&trace, &timeline, &owners, loss);
        let answer = json!({
            "state": found.to_string(),
            "trace": trace.id(),
            "lost_before": before,
            "tried": tried,
            "lost": losses.iter().map(of).collect::<Vec<_>>(),
        });
        output::text(&format!("{}\n", serde_json::to_string_pretty(&answer)?))?;
        return Ok(Exit::Ok);
    }
    let text = if losses.is_empty() {
        "it fails though nothing is lost: the check, or the program, is wrong on what had arrived\n"
            .to_owned()
    } else {
        let lost = if losses.len() == 1 { "lost write" } else { "lost writes" };
        let mut text = format!("{} {lost}, of {before}, after {tried} states:\n", losses.len());
        text += &replay::listed(&trace, &timeline, &owners, &losses);
        text
    };
    output::text(&text)?;
    output::text(&format!(
        "  look at it: plimsoll disk replay {} {}{} --keep-mounted\n",
        quoted(&args.trace.to_string_lossy()),
        quoted(&found.to_string()),
        args.view
    ))?;
    Ok(Exit::Ok)
}

fn verdict(
    args: &ShrinkArgs,
    trace: &Trace,
    timeline: &Timeline,
    state: &State,
) -> Result<Verdict, Error> {
    let platter = state.platter(&trace.base, &trace.events, timeline);
    let image = match Image::of_trace(trace, &platter, &args.view.mount_options, false) {
        Ok(image) => image,
        Err(Error::NotMounted { source, .. }) => {
            return Ok(Verdict::NotMounted(source.to_string()));
        }
        Err(error) => return Err(error),
    };
    let situation = Situation { state, marks: timeline.marks(state.point) };
    let verdict = options::check(&args.check).run(&situation, &[], &interrupt::interrupted)?;
    image.unmount()?;
    Ok(verdict)
}

/// As what it fails, if it does. What is broken says nothing about the disk.
fn harm(verdict: &Verdict) -> Option<&'static str> {
    let fails = verdict.is_failure() && !matches!(verdict, Verdict::Broken(_));
    fails.then(|| verdict.name())
}
