//! `plimsoll disk explore`: thousands of power cuts of a recording.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use plimsoll_simdisk::block::{Plan, Trace, Wanted};
use plimsoll_simdisk::mounted::{Finding, Findings, Search, SearchOptions, Standing, unfollowed};

use super::{options, page, progress};
use crate::disk_args::{ExploreArgs, quoted};
use crate::exit::Exit;
use crate::{interrupt, output};

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
    let unknown = unfollowed(&args.check.check);
    if let Some(word) = &unknown {
        output::news(&format!(
            "--check: what `{}` stands for is not known, and may change: no earlier results are taken over. \
             Written out as a path it is known",
            output::plain(word)
        ));
    }
    let mut exit = Exit::Ok;
    for path in options::traces(&args.trace)? {
        let trace = options::load(&path).with_context(|| path.display().to_string())?;
        let (found, whole) = one(args, &wanted, &path, &trace)?;
        if found != Exit::Ok {
            exit = found;
        }
        if !whole {
            output::news(match unknown {
                None => "interrupted; the same command goes on from here",
                Some(_) => "interrupted; the same command begins anew",
            });
            return Ok(Exit::Interrupted);
        }
    }
    Ok(exit)
}

fn one(args: &ExploreArgs, wanted: &Wanted, path: &Path, trace: &Trace) -> Result<(Exit, bool)> {
    let search = Search::open(path, trace, asked(args, wanted));
    let mut search = search.with_context(|| path.display().to_string())?;
    let planned = search.plan().states.len();
    taken_over(path, search.findings(), planned);
    if args.json {
        for finding in search.findings().found.values() {
            print(finding)?;
        }
    }
    let bar = progress::bar(planned as u64, "states");
    bar.set_prefix(output::plain(&trace.about.filesystem));
    let known = search.findings().found.len();
    bar.set_position(known as u64);
    bar.reset_eta();
    let begun = Instant::now();
    let mut bad = search.findings().bad().count();
    let mut unheard = None;
    let whole = search.run(&interrupt::INTERRUPTED, |finding, standing| {
        bad += usize::from(standing == Standing::Failed);
        let said = if args.json { print(finding) } else { Ok(()) };
        bar.inc(1);
        if bad > 0 {
            bar.set_message(format!("; {bad} fail"));
        }
        match said {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                unheard = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    bar.finish_and_clear();
    if let Some(error) = unheard {
        return Err(error);
    }
    let findings = search.findings();
    page::write(&findings.page, trace, &args.view, findings, &search.page())?;
    if !args.json {
        let speed = whole.then_some((planned - known, begun.elapsed()));
        output::text(&summary(args, path, trace, search.plan(), findings, speed))?;
        output::news(&format!("page: {}", findings.page.display()));
    }
    Ok((verdict(findings), whole))
}

fn asked<'a>(args: &'a ExploreArgs, wanted: &'a Wanted) -> SearchOptions<'a> {
    SearchOptions {
        wanted,
        belief: options::belief(&args.view),
        check: &args.check.check,
        check_limit: args.check.check_limit,
        mount_options: &args.view.mount_options,
        workers: args.workers.map_or_else(SearchOptions::workers_usual, usize::from),
        fresh: args.fresh,
    }
}

fn print(finding: &Finding) -> Result<()> {
    Ok(output::text(&format!("{}\n", serde_json::to_string(finding)?))?)
}

/// That nothing was checked shows nothing.
fn verdict(findings: &Findings) -> Exit {
    match findings.bad().next() {
        None if findings.count(Standing::Passed) > 0 => Exit::Ok,
        _ => Exit::CheckFailed,
    }
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
        findings.question.trace,
        findings.question.kernel
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
