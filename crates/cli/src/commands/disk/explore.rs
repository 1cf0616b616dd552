//! `plimsoll disk explore`: thousands of power cuts of a recording.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use plimsoll_simdisk::block::{Plan, State, Timeline, Trace, Wanted};
use plimsoll_simdisk::mounted::{Explore, Visit, explore};

use super::findings::{Asked, Finding, Findings, Micros};
use super::{interrupt, options, page, progress};
use crate::disk_args::ExploreArgs;
use crate::exit::Exit;
use crate::output;

/// Failing states that are printed; all are in the file.
const SHOWN_MAX: usize = 5;
/// Of what a check said of each.
const SAID_SHOWN_CHARS: usize = 160;

pub(super) fn run(args: &ExploreArgs) -> Result<Exit> {
    let wanted = Wanted {
        states: usize::try_from(args.states)?,
        modes: args.modes.clone(),
        tear_bytes: args.tear,
        exhaustive_writes: args.exhaustive,
        seed: args.seed,
    };
    wanted.check().map_err(anyhow::Error::msg)?;
    let mut is_bad = false;
    for path in options::traces(&args.trace)? {
        let trace = options::load(&path).with_context(|| path.display().to_string())?;
        let (findings, whole) = one(args, &wanted, &path, &trace)?;
        is_bad |= findings.bad().next().is_some();
        if !whole {
            output::news("interrupted; the same command goes on from here");
            return Ok(Exit::Interrupted);
        }
    }
    Ok(if is_bad { Exit::CheckFailed } else { Exit::Ok })
}

fn one(
    args: &ExploreArgs,
    wanted: &Wanted,
    path: &Path,
    trace: &Trace,
) -> Result<(Findings, bool)> {
    let timeline = Timeline::of(&trace.events, options::belief(args.lying, args.cache));
    let plan = Plan::new(trace.events.len(), &timeline, wanted);
    let asked = asked(args, wanted, trace);
    let mut findings = Findings::open(&path.with_extension("states.jsonl"), asked, args.fresh)?;
    // What is left of the plan, with the numbers that it has there.
    let left: Vec<(usize, State)> = plan
        .states
        .iter()
        .enumerate()
        .filter(|(number, _)| !findings.found.contains_key(number))
        .map(|(number, state)| (number, state.clone()))
        .collect();
    let states: Vec<State> = left.iter().map(|(_, state)| state.clone()).collect();
    if !findings.found.is_empty() {
        let (done, all) = (findings.found.len(), plan.states.len());
        output::news(&format!("{}: going on after {done} of {all} states", path.display()));
    }
    let check = options::check(&args.check);
    let bar = progress::bar(plan.states.len() as u64, "states");
    bar.set_prefix(trace.about.filesystem.clone());
    bar.set_position(findings.found.len() as u64);
    bar.reset_eta();
    let how = Explore {
        trace,
        timeline: &timeline,
        states: &states,
        workers: workers(args),
        mount_options: &args.mount_options,
        read_only: false,
        stop: &interrupt::INTERRUPTED,
    };
    let begun = Instant::now();
    let mut bad = findings.bad().count();
    let mut failed = None;
    let whole =
        explore(&how, &|situation| check.run(situation, &[], &interrupt::interrupted), |visit| {
            let (number, state) = &left[visit.number];
            let marks = timeline.marks(state.point);
            let last_mark = marks.last().map(|(_, text)| text.to_string());
            let finding = finding(*number, state, last_mark, &visit);
            bad += usize::from(findings.is_bad(&finding));
            let kept = findings.add(finding).and_then(|line| match args.json {
                true => Ok(output::answer(&format!("{line}\n"))?),
                false => Ok(()),
            });
            bar.inc(1);
            if bad > 0 {
                bar.set_message(format!("; {bad} fail"));
            }
            match kept {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(error);
    }
    let page_path = path.with_extension("html");
    page::save(&page_path, &page::render(trace, &timeline, &plan, &findings))?;
    if !args.json {
        let speed = (states.len(), begun.elapsed());
        output::answer(&summary(path, trace, &plan, &findings, whole.then_some(speed)))?;
        output::news(&format!("page: {}", page_path.display()));
    }
    Ok((findings, whole))
}

fn asked(args: &ExploreArgs, wanted: &Wanted, trace: &Trace) -> Asked {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Asked {
        trace: trace.id(),
        filesystem: trace.about.filesystem.clone(),
        check: args.check.check.clone(),
        states: wanted.states,
        modes: wanted.modes.clone(),
        tear_bytes: wanted.tear_bytes,
        exhaustive_writes: wanted.exhaustive_writes,
        seed: wanted.seed,
        lying: args.lying,
        faults: trace.about.faults.clone(),
        cache_bytes: args.cache,
        mount_options: args.mount_options.clone(),
        kernel: kernel.trim().to_owned(),
        plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn finding(number: usize, state: &State, last_mark: Option<String>, visit: &Visit) -> Finding {
    Finding {
        number,
        state: state.to_string(),
        verdict: visit.verdict.name().to_owned(),
        said: visit.verdict.said().to_owned(),
        last_mark,
        micros: Micros::of(&visit.timings),
    }
}

fn workers(args: &ExploreArgs) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    args.workers.map_or_else(processors, usize::from)
}

fn summary(
    path: &Path,
    trace: &Trace,
    plan: &Plan,
    findings: &Findings,
    speed: Option<(usize, Duration)>,
) -> String {
    let counts = findings.counts();
    let counts: Vec<String> = counts
        .iter()
        .filter(|(name, count)| *count > 0 || *name == "lost")
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let mut text = format!("{}: {}\n", path.display(), counts.join(", "));
    let of = plan.coverage;
    text += &format!(
        "  {} of {} flush boundaries, all combinations at {}, {} sampled; trace {}, kernel {}\n",
        of.boundaries,
        of.flushes,
        of.exhaustive,
        of.samples,
        findings.asked.trace,
        findings.asked.kernel
    );
    if let Some((states, took)) = speed.filter(|(states, _)| *states > 0) {
        let seconds = took.as_secs_f64().max(f64::EPSILON);
        let rate = states as f64 / seconds;
        text += &format!("  {states} states in {seconds:.1} s, {rate:.0} a second\n");
    }
    for finding in findings.bad().take(SHOWN_MAX) {
        let said: String = finding.said.chars().take(SAID_SHOWN_CHARS).collect();
        let said = said.replace('\n', "; ");
        text += &format!("  {}: {}: {said}\n", finding.verdict, finding.state);
    }
    if let Some(first) = findings.bad().next() {
        let (path, state) = (path.display(), &first.state);
        let lying = if findings.asked.lying { " --lying" } else { "" };
        text += &format!(
            "  look at it: plimsoll disk replay {path} '{state}'{lying} --keep-mounted\n  \
             why:        plimsoll disk shrink {path} '{state}'{lying} --check '{}'\n",
            findings.asked.check.replace('\'', "'\\''")
        );
    }
    if !trace.about.faults.is_empty() {
        text += &format!("  recorded with faults: {}\n", trace.about.faults.join("; "));
    }
    text
}
