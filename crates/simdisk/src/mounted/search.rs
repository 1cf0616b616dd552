//! A search: power cuts of one trace, each checked, and what was found kept beside the trace.
//!
//! [`explore()`] visits states and forgets. A search plans which, leaves out those whose answer is known
//! from an earlier run of the same [`Question`], writes each [`Finding`] down as it comes, and goes on there
//! after it was stopped.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::check::{Check, Situation};
use super::error::{Error, Result};
use super::explore::{Explore, Visit, explore};
use super::finding::{Finding, Standing};
use super::findings::Findings;
use super::fingerprint;
use super::image::Image;
use super::page::Page;
use super::processes::Program;
use super::question::Question;
use super::tested::{Summary, Tested, Untested};
use crate::block::{Belief, Mode, Plan, State, Timeline, Trace, Wanted};

/// How long a check is tried on the undamaged disk: a shell knows sooner whether there is such a program.
const TRIAL_MAX: Duration = Duration::from_secs(10);

/// What is asked of a trace.
#[derive(Debug)]
pub struct SearchOptions<'a> {
    /// Which states.
    pub wanted: &'a Wanted,
    /// What is believed of the disk beyond what it recorded.
    pub belief: Belief,
    /// A line for the shell that checks a state; see [`Check`].
    pub check: &'a str,
    /// After so long a check is killed, and counts as broken.
    pub check_limit: Duration,
    /// More options for the mount.
    pub mount_options: &'a str,
    /// Threads that work on it. [`SearchOptions::workers_usual`] suits most.
    pub workers: usize,
    /// Whether to begin anew though the same was asked before.
    pub fresh: bool,
}

impl SearchOptions<'_> {
    /// Two a processor: about half of the time a worker waits for the kernel's own threads.
    #[must_use]
    pub fn workers_usual() -> usize {
        2 * std::thread::available_parallelism().map_or(1, usize::from)
    }
}

/// Power cuts of one trace, and what was found of them so far.
#[derive(Debug)]
pub struct Search<'a> {
    trace: &'a Trace,
    options: SearchOptions<'a>,
    timeline: Timeline,
    plan: Plan,
    findings: Findings,
}

impl<'a> Search<'a> {
    /// Plans a search of the trace that lies at `path`, and takes over what is known: for `a.trace` from
    /// `a.states.jsonl` beside it, which nobody else may be writing. Results of another question that are
    /// there get a number ([`Findings::aside`]).
    ///
    /// Mounts the undamaged disk once: what does not mount at all would be found thousands of times.
    pub fn open(path: &Path, trace: &'a Trace, options: SearchOptions<'a>) -> Result<Self> {
        let refused = |reason| Error::Unavailable { what: "a search", reason };
        options.wanted.check().map_err(refused)?;
        if trace.about.end_only {
            let kept =
                "`cycle` kept only what was pending at its end: `replay` and `shrink` can see that";
            return Err(refused(kept.to_owned()));
        }
        let timeline = Timeline::of(&trace.events, options.belief);
        let plan = Plan::new(&trace.events, &timeline, options.wanted);
        Image::try_undamaged(trace, options.mount_options)?;
        let mut findings = Findings::open(path, question(trace, &options), options.fresh)?;
        findings.keep_of(&plan);
        Ok(Self { trace, options, timeline, plan, findings })
    }

    /// Visits the states that are left and calls `each` with what was found of one, once it is written down;
    /// in no order, in the thread that calls. `each` may stop it all, as `stop` does.
    ///
    /// First the check is tried on the undamaged disk: if the shell does not find it, that is
    /// [`Error::CheckNotStarted`], and no state is visited.
    ///
    /// `Ok(false)` if it was stopped: another search of the same goes on there.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        mut each: impl FnMut(&Finding, Standing) -> ControlFlow<()>,
    ) -> Result<bool> {
        let Self { trace, options, timeline, plan, findings } = self;
        // What is left of the plan, with the numbers that it has there.
        let planned = plan.states.iter().enumerate();
        let left = planned.filter(|(number, _)| !findings.found.contains_key(number));
        let (numbers, states): (Vec<usize>, Vec<State>) =
            left.map(|(number, state)| (number, state.clone())).unzip();
        let limit = options.check_limit;
        let check = Check { program: Program::shell(options.check), limit, aloud: false };
        let how = Explore {
            trace,
            timeline,
            states: &states,
            workers: options.workers,
            mount_options: options.mount_options,
            read_only: false,
            stop,
        };
        let stopped = || stop.load(Ordering::Relaxed);
        if !states.is_empty() && !is_found(trace, timeline, &how, &check, &stopped)? {
            return Ok(false);
        }
        let asked = |situation: &Situation<'_>| check.run_again(situation, &stopped);
        let mut failed = None;
        let whole = explore(&how, &asked, |visit: Visit| {
            let state = &states[visit.number];
            let last_mark = timeline.marks(state.point).last().map(|(_, text)| &**text);
            let finding = Finding::new(numbers[visit.number], state, &visit, last_mark);
            let standing = findings.standing(&finding);
            match findings.add(finding) {
                Ok(finding) => each(finding, standing),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(whole), Err)
    }

    /// What was planned.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What was found so far, by this search and by earlier ones of the same.
    #[must_use]
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Why all that was planned, and visited, shows nothing.
    #[must_use]
    pub fn untested(&self) -> Option<Untested> {
        let whole = self.findings.found.len() == self.plan.states.len();
        whole.then(|| Untested::of(&self.findings)).flatten()
    }

    /// What was found so far, as one value for programs.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let findings = &self.findings;
        let counts = findings.counts().into_iter();
        Summary {
            trace: findings.question.trace.clone(),
            planned: self.plan.states.len(),
            counts: counts.map(|(name, count)| (name.to_owned(), count)).collect(),
            tested: Tested::of(findings),
            untested: self.untested().map(|why| why.to_string()),
        }
    }

    /// What was found so far, to be looked at.
    #[must_use]
    pub fn page(&self) -> Page {
        Page::of(self.trace, &self.timeline, &self.plan, &self.findings)
    }
}

/// Whether the check can be started, seen on the undamaged disk; `false` if that was stopped. What it finds
/// there is no answer to anything.
fn is_found(
    trace: &Trace,
    timeline: &Timeline,
    how: &Explore<'_>,
    check: &Check,
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<bool> {
    let check = Check { limit: check.limit.min(TRIAL_MAX), ..check.clone() };
    let state = State { point: 0, mode: Mode::Arrived };
    let tried = Image::on_undamaged(trace, how.mount_options, || {
        let situation = Situation { state: &state, marks: timeline.marks(0) };
        check.run(&situation, &[], stopped).map(drop)
    });
    match tried {
        Err(Error::Interrupted) => Ok(false),
        tried => tried.map(|()| true),
    }
}

fn question(trace: &Trace, options: &SearchOptions<'_>) -> Question {
    let SearchOptions { wanted, belief, .. } = options;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut check_files = fingerprint::of(options.check);
    if let Some(word) = fingerprint::unfollowed(options.check) {
        // Another question each time.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        check_files.push(format!("{word}: not known, asked at {} ns", now.as_nanos()));
    }
    Question {
        trace: trace.id(),
        filesystem: trace.about.filesystem.clone(),
        check: options.check.to_owned(),
        check_files,
        check_limit_ms: u64::try_from(options.check_limit.as_millis()).unwrap_or(u64::MAX),
        states: wanted.states,
        modes: wanted.modes.clone(),
        tear_bytes: wanted.tear_bytes,
        exhaustive_writes: wanted.exhaustive_writes,
        seed: wanted.seed,
        lying: belief.flushes_lie,
        faults: trace.about.faults.clone(),
        cache_bytes: belief.cache_bytes,
        mount_options: options.mount_options.to_owned(),
        kernel: kernel.trim().to_owned(),
        plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{About, Platter};

    #[test]
    fn what_no_answer_would_come_of_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |end_only, modes: Vec<String>| {
            let about = About { end_only, ..About::default() };
            let trace =
                Trace { about, base: Platter::new(1 << 20), events: vec![], aftermath: vec![] };
            let options = SearchOptions {
                wanted: &Wanted { modes, ..Wanted::default() },
                belief: Belief::default(),
                check: "true",
                check_limit: Duration::from_secs(1),
                mount_options: "",
                workers: 1,
                fresh: false,
            };
            Search::open(&dir.path().join("a.trace"), &trace, options).unwrap_err().to_string()
        };
        let modes = Wanted::default().modes;
        assert!(refused(true, modes).contains("pending at its end"));
        assert!(refused(false, vec!["lucky".to_owned()]).contains("lucky"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
