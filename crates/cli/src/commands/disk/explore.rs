//! `plimsoll disk explore`: thousands of power cuts of a recording.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use plimsoll_simdisk::block::{Plan, State, Timeline, Trace, Wanted};
use plimsoll_simdisk::mounted::{Explore, Image, Visit, explore};

use super::findings::{Asked, Finding, Findings, Micros, Standing};
use super::{fingerprint, interrupt, options, page, progress};
use crate::disk_args::{ExploreArgs, quoted};
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
    let unfollowed = fingerprint::unfollowed(&args.check.check);
    if let Some(word) = &unfollowed {
        output::news(&format!(
            "--check: what `{}` stands for is not known, and may change: no earlier results are taken over. \
             Written out as a path it is known",
            output::plain(word)
        ));
    }
    let mut exit = Exit::Ok;
    for path in options::traces(&args.trace)? {
        let trace = options::load(&path).with_context(|| path.display().to_string())?;
        if trace.about.end_only {
            bail!(
                "{}: `cycle` kept only what was pending at its end: `replay` and `shrink` can see that",
                path.display()
            );
        }
        let (findings, whole) = one(args, &wanted, &path, &trace)?;
        if findings.bad().next().is_some() || findings.count(Standing::Passed) == 0 {
            exit = Exit::CheckFailed;
        }
        if !whole {
            output::news(match unfollowed {
                None => "interrupted; the same command goes on from here",
                Some(_) => "interrupted; the same command begins anew",
            });
            return Ok(Exit::Interrupted);
        }
    }
    Ok(exit)
}

fn one(
    args: &ExploreArgs,
    wanted: &Wanted,
    path: &Path,
    trace: &Trace,
) -> Result<(Findings, bool)> {
    let timeline = Timeline::of(&trace.events, options::belief(&args.view));
    let plan = Plan::new(trace.events.len(), &timeline, wanted);
    // What does not mount at all would be found thousands of times.
    Image::try_undamaged(trace, &args.view.mount_options)?;
    let mut findings = Findings::open(path, asked(args, wanted, trace), args.fresh)?;
    findings.keep_of(&plan);
    taken_over(path, &findings, plan.states.len());
    if args.json {
        for finding in findings.found.values() {
            output::text(&format!("{}\n", serde_json::to_string(finding)?))?;
        }
    }
    // What is left of the plan, with the numbers that it has there.
    let left: Vec<(usize, State)> = plan
        .states
        .iter()
        .enumerate()
        .filter(|(number, _)| !findings.found.contains_key(number))
        .map(|(number, state)| (number, state.clone()))
        .collect();
    let states: Vec<State> = left.iter().map(|(_, state)| state.clone()).collect();
    let check = options::check(&args.check);
    let bar = progress::bar(plan.states.len() as u64, "states");
    bar.set_prefix(output::plain(&trace.about.filesystem));
    bar.set_position(findings.found.len() as u64);
    bar.reset_eta();
    let how = Explore {
        trace,
        timeline: &timeline,
        states: &states,
        workers: workers(args),
        mount_options: &args.view.mount_options,
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
            bad += usize::from(findings.standing(&finding) == Standing::Failed);
            let kept = findings.add(finding).and_then(|line| match args.json {
                true => Ok(output::text(&format!("{line}\n"))?),
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
    page::save(&findings.page, &page::render(trace, &timeline, &plan, &findings))?;
    if !args.json {
        let speed = (states.len(), begun.elapsed());
        let speed = whole.then_some(speed);
        output::text(&summary(args, path, trace, &plan, &findings, speed))?;
        output::news(&format!("page: {}", findings.page.display()));
    }
    Ok((findings, whole))
}

/// What was there already.
fn taken_over(path: &Path, findings: &Findings, all: usize) {
    if let Some(aside) = &findings.aside {
        output::news(&format!(
            "{}: results of another question are kept as {} (what differs: {})",
            path.display(),
            aside.path.display(),
            aside.differs.join(", ")
        ));
    }
    if !findings.found.is_empty() {
        output::news(&format!(
            "{}: {} of {all} states are taken over from {}: the same trace, check, options and kernel; \
             --fresh begins anew",
            path.display(),
            findings.found.len(),
            findings.path.display()
        ));
    }
}

fn asked(args: &ExploreArgs, wanted: &Wanted, trace: &Trace) -> Asked {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut check_files = fingerprint::of(&args.check.check);
    if let Some(word) = fingerprint::unfollowed(&args.check.check) {
        // Another question each time.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        check_files.push(format!("{word}: not known, asked at {} ns", now.as_nanos()));
    }
    Asked {
        trace: trace.id(),
        filesystem: trace.about.filesystem.clone(),
        check: args.check.check.clone(),
        check_files,
        check_limit_ms: u64::try_from(args.check.check_limit.as_millis()).unwrap_or(u64::MAX),
        states: wanted.states,
        modes: wanted.modes.clone(),
        tear_bytes: wanted.tear_bytes,
        exhaustive_writes: wanted.exhaustive_writes,
        seed: wanted.seed,
        lying: args.view.lying,
        faults: trace.about.faults.clone(),
        cache_bytes: args.view.cache,
        mount_options: args.view.mount_options.clone(),
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

/// Two a processor unless asked otherwise: about half of the time a worker waits for the kernel's own threads.
fn workers(args: &ExploreArgs) -> usize {
    let usual = || 2 * std::thread::available_parallelism().map_or(1, usize::from);
    args.workers.map_or_else(usual, usize::from)
}

fn summary(
    args: &ExploreArgs,
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
    let apart = findings.count(Standing::Apart);
    if apart > 0 {
        text +=
            &format!("  {apart} did not mount and could not be checked: they count neither way\n");
    }
    if findings.count(Standing::Passed) == 0 && findings.bad().next().is_none() {
        text += "  no state could be checked: this shows nothing\n";
    }
    for finding in findings.bad().take(SHOWN_MAX) {
        let said: String = finding.said.chars().take(SAID_SHOWN_CHARS).collect();
        let said = said.replace('\n', "; ");
        text += &format!("  {}: {}: {said}\n", finding.verdict, finding.state);
    }
    if let Some(first) = findings.bad().next() {
        let (path, state) = (quoted(&path.to_string_lossy()), quoted(&first.state));
        let (view, check) = (&args.view, &args.check);
        text += &format!(
            "  look at it: plimsoll disk replay {path} {state}{view} --keep-mounted\n  \
             why:        plimsoll disk shrink {path} {state}{view}{check}\n",
        );
    }
    if !trace.about.faults.is_empty() {
        text += &format!("  recorded with faults: {}\n", trace.about.faults.join("; "));
    }
    text
}
