//! `plimsoll disk explore`: thousands of power cuts of a recording.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use plimsoll_lab::report::page::save;
use plimsoll_simdisk::block::{Plan, Trace, Wanted};
use plimsoll_simdisk::mounted::{
    Finding, Findings, Search, SearchOptions, Standing, Tested, unfollowed,
};

use super::{junit, options, page, progress};
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
    if let Some(file) = &args.junit {
        junit::make_way(file)?;
    }
    let mut explored = Vec::new();
    for path in options::traces(&args.trace)? {
        let trace = options::load(&path).with_context(|| path.display().to_string())?;
        explored.push(one(args, &wanted, &path, &trace)?);
        if explored.last().is_some_and(|last| !last.is_whole) {
            break;
        }
    }
    let is_whole = explored.iter().all(|trace| trace.is_whole);
    let exit = explored.iter().map(|trace| trace.exit).fold(Exit::Ok, worse);
    say_all(args, &explored)?;
    if let Some(file) = &args.junit {
        let suites: Vec<_> = explored.into_iter().filter_map(|trace| trace.suite).collect();
        junit::write(file, &suites)?;
    }
    if !is_whole {
        output::news(match unknown {
            None => "interrupted; the same command goes on from here",
            Some(_) => "interrupted; the same command begins anew",
        });
        return Ok(Exit::Interrupted);
    }
    Ok(exit)
}

/// What became of a trace.
struct Explored {
    name: String,
    exit: Exit,
    /// It was not interrupted.
    is_whole: bool,
    /// Where it was asked for.
    suite: Option<junit::Suite>,
}

/// All traces in a line, where there are several.
fn say_all(args: &ExploreArgs, explored: &[Explored]) -> Result<()> {
    if explored.len() < 2 {
        return Ok(());
    }
    let named = |what: &str, is_meant: fn(&Explored) -> bool| {
        let names: Vec<_> = explored.iter().filter(|trace| is_meant(trace)).collect();
        let names: Vec<_> = names.iter().map(|trace| trace.name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{} {what} ({})", names.len(), names.join(", ")))
    };
    let parts = [
        named("FAILED", |trace| trace.exit == Exit::CheckFailed),
        named("tested nothing", |trace| trace.exit == Exit::Untested),
        named("interrupted", |trace| trace.exit == Exit::Ok && !trace.is_whole),
        named("passed", |trace| trace.exit == Exit::Ok && trace.is_whole),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let text = format!("{} traces: {}", explored.len(), parts.join(", "));
    if args.json {
        output::news(&text);
        return Ok(());
    }
    Ok(output::text(&format!("{text}\n"))?)
}

fn one(args: &ExploreArgs, wanted: &Wanted, path: &Path, trace: &Trace) -> Result<Explored> {
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
    let numbers = serde_json::to_string_pretty(&search.summary())?;
    save(&findings.summary, &(numbers + "\n"))
        .with_context(|| format!("save {}", findings.summary.display()))?;
    let untested = search.untested().map(|why| why.to_string());
    let speed = whole.then_some((planned - known, begun.elapsed()));
    let summary = summary(args, path, trace, &search, speed);
    if args.json {
        // What is printed is states and nothing else.
        untested.iter().for_each(|why| output::news(&format!("{}: {why}", path.display())));
    } else {
        output::text(&summary)?;
        output::news(&format!("page: {}", findings.page.display()));
    }
    let suite = || junit::Suite::of(path, findings, untested.as_deref(), whole, &summary);
    Ok(Explored {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        exit: verdict(findings, untested.is_some()),
        is_whole: whole,
        suite: args.junit.as_ref().map(|_| suite()),
    })
}

/// Of two traces a failure outweighs that the other tested nothing.
fn worse(one: Exit, other: Exit) -> Exit {
    let weight = |exit: &Exit| match exit {
        Exit::Ok => 0,
        Exit::Untested => 1,
        _ => 2,
    };
    std::cmp::max_by_key(one, other, weight)
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

fn verdict(findings: &Findings, is_untested: bool) -> Exit {
    match findings.bad().next() {
        Some(_) => Exit::CheckFailed,
        None if is_untested => Exit::Untested,
        None => Exit::Ok,
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
    search: &Search<'_>,
    speed: Option<(usize, Duration)>,
) -> String {
    let findings = search.findings();
    let counts = findings.counts();
    let counts: Vec<String> = counts
        .iter()
        .filter(|(name, count)| *count > 0 || *name == "lost")
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let mut text = format!("{}: {}\n", path.display(), counts.join(", "));
    text += &format!("  of these {}\n", Tested::of(findings));
    if let Some(why) = search.untested() {
        text += &format!("  {why}\n");
    }
    text += &visited(search.plan(), findings, args.states);
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
    text += &failures(args, path, findings);
    if !trace.about.faults.is_empty() {
        text += &format!("  recorded with faults: {}\n", trace.about.faults.join("; "));
    }
    text
}

/// What failed, and what to do about it.
fn failures(args: &ExploreArgs, path: &Path, findings: &Findings) -> String {
    let mut text = String::new();
    let bad: Vec<_> = findings.bad().collect();
    for finding in bad.iter().take(SHOWN_MAX) {
        let said = cut(&finding.said).replace('\n', "; ");
        text += &format!("  {}: {}: {said}\n", finding.verdict, finding.state);
    }
    if bad.len() > SHOWN_MAX {
        let more = bad.len() - SHOWN_MAX;
        text += &format!("  and {more} more, in {}\n", findings.path.display());
    }
    // What a broken check says is nothing about the disk, and fewer lost writes do not mend it.
    let is_broken = |finding: &Finding| finding.verdict == "broken";
    if let Some(first) = bad.iter().find(|finding| !is_broken(finding)) {
        let (path, state) = (quoted(&path.to_string_lossy()), quoted(&first.state));
        let (view, check) = (&args.view, &args.check);
        text += &format!(
            "  look at it: plimsoll disk replay {path} {state}{view} --keep-mounted\n  \
             why:        plimsoll disk shrink {path} {state}{view}{check}\n",
        );
    }
    let broken = bad.iter().filter(|finding| is_broken(finding)).count();
    if broken > 0 {
        text += &format!(
            "  the check is broken at {broken} of these states: that says nothing of what is left there\n"
        );
    }
    text
}

/// The beginning of what a check said, and that there is more.
fn cut(said: &str) -> String {
    match said.char_indices().nth(SAID_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &said[..end]),
        None => said.to_owned(),
    }
}

/// How much of what there is was visited.
fn visited(plan: &Plan, findings: &Findings, wanted: u64) -> String {
    let of = plan.covered(|number| findings.found.contains_key(&number));
    let (some, all) = (findings.found.len(), plan.states.len());
    let states = if some == all { all.to_string() } else { format!("{some} of {all}") };
    let mut fewer = String::new();
    if (all as u64) < wanted {
        fewer = format!(
            "  {wanted} states were asked for, and there are hardly any more that differ\n"
        );
    }
    format!(
        "  visited {states} states: both sides of {} of {} flushes, every combination of pending writes \
         at {} of them, {} states at random\n{fewer}  trace {}, kernel {}\n",
        of.boundaries,
        of.flushes,
        of.exhaustive,
        of.samples,
        findings.question.trace,
        findings.question.kernel
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_short_says_so() {
        let long = "é".repeat(SAID_SHOWN_CHARS);
        assert_eq!(cut(&long), long);
        assert_eq!(cut(&format!("{long}x")), format!("{long}…"));
    }
}
