//! A run of experiments in a directory: checks before it, scratch files during it, saved results.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_sync::{Availability, Dir, SyncMethod};

use crate::counters::Counters;
use crate::device::Device;
use crate::environment::Environment;
use crate::error::Result;
use crate::experiment::{Experiment, Profile, Setup, names};
use crate::harness;
use crate::mount::Kind as Place;
use crate::result::{ArmResult, ExperimentResult, FORMAT, Harness, VERSION};
use crate::results_dir::ResultsDir;
use crate::runner::{Progress, Watch};
use crate::scratch::{self, CannotRun, Scratch};
use crate::units;
use crate::verdict;
use crate::warning::{Kind, Warning};

/// How long the machine is watched before anything is measured.
const WATCH: Duration = Duration::from_millis(300);

/// What to measure, where, and how thoroughly.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory to measure. Default: the current one, because its disk is the one in question.
    pub directory: PathBuf,
    /// Where results go. Default: `plimsoll-results` and the date, in the current directory.
    pub out: PathBuf,
    /// The experiments, in order.
    pub experiments: Vec<&'static dyn Experiment>,
    /// How thoroughly. Default: quick.
    pub profile: Profile,
    /// Time for all experiments together. Default: what the profile says.
    pub budget: Option<Duration>,
    /// Draws the order of the arms and the bytes that are written.
    pub seed: u64,
    /// If not empty: only arms that one of these names ([`names`]).
    pub only: Vec<String>,
}

/// A run that can be made here. Nothing has been written yet.
#[derive(Debug)]
pub struct Lab {
    options: Options,
    directory: PathBuf,
    scratch: PathBuf,
    environment: Environment,
    devices: Vec<Device>,
    budgets: Vec<Duration>,
    disk_bytes: u64,
}

/// A run with its scratch directory, which is removed when this is dropped.
#[derive(Debug)]
pub struct Session {
    lab: Lab,
    scratch: Scratch,
    results: ResultsDir,
    methods: Vec<(SyncMethod, Availability)>,
    counters: Counters,
    harness: Harness,
    warnings: Vec<Warning>,
}

impl Lab {
    /// Checks that the run can be made here. Writes nothing.
    pub fn check(mut options: Options) -> Result<Self> {
        let directory = scratch::directory(&options.directory)?;
        let (environment, devices) = Environment::of(&directory);
        narrow(&mut options)?;
        let costs = options.experiments.iter().map(|experiment| experiment.cost(options.profile));
        let disk = |experiment: &&dyn Experiment| {
            share_of_disk(*experiment, options.profile, &options.only)
        };
        let disk_bytes = options.experiments.iter().map(disk).max().unwrap_or(0);
        scratch::check_place(&environment, disk_bytes)?;
        let planned: Duration = costs.clone().map(|cost| cost.budget).sum();
        let share =
            options.budget.map_or(1.0, |budget| budget.as_secs_f64() / planned.as_secs_f64());
        let budgets = costs.map(|cost| cost.budget.mul_f64(share)).collect();
        let scratch = Scratch::planned(&directory);
        Ok(Self { options, directory, scratch, environment, devices, budgets, disk_bytes })
    }

    /// Where files are written while it runs.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Scratch directories that killed runs left beside it.
    #[must_use]
    pub fn leftovers(&self) -> Vec<PathBuf> {
        scratch::leftovers(&self.directory)
    }

    /// What will be written where, in a sentence or two.
    #[must_use]
    pub fn announcement(&self) -> String {
        let place = match (&self.environment.mount, self.environment.devices.is_empty()) {
            (Some(mount), false) => {
                format!(" ({} on {})", mount.filesystem, self.environment.devices_in_words())
            }
            (Some(mount), true) => format!(" ({})", mount.filesystem),
            (None, _) => String::new(),
        };
        format!(
            "Writing in {}{place}, up to {} at a time, written over and over and removed at the end; \
             nothing else is touched. Results: {}",
            self.scratch.display(),
            units::bytes(self.disk_bytes),
            self.options.out.display()
        )
    }

    /// About how long the experiments will take.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.budgets.iter().sum()
    }

    /// Makes the scratch directory and the one for results, and finds out which methods work.
    pub fn begin(self) -> Result<Session> {
        let scratch = Scratch::create(self.scratch.clone())?;
        let names: Vec<String> =
            self.options.experiments.iter().map(|e| format!("{}.json", e.name())).collect();
        let results = ResultsDir::create(&self.options.out, &names)?;
        let methods = plimsoll_sync::probe(scratch.dir()).map_err(|error| {
            CannotRun::because(
                &self.directory,
                &format!("a file cannot be written there: {}", chain(&error)),
            )
        })?;
        let counters = Counters::new(self.devices.clone());
        let mut warnings = place_warnings(&self.environment);
        warnings.extend(idle_warnings(&counters, self.environment.cpus));
        let harness = harness::measure();
        Ok(Session { scratch, results, methods, counters, harness, warnings, lab: self })
    }
}

impl Session {
    /// Runs one experiment after the other. Each result is saved before the next one begins, and
    /// given to `done`, which says whether to go on. `progress` is told how far an experiment has
    /// come, and how long those after it will take.
    pub fn run(
        &self,
        cancel: &AtomicBool,
        progress: &dyn Fn(&'static dyn Experiment, Progress, Duration),
        mut done: impl FnMut(ExperimentResult, &Path) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut after: Duration = self.lab.budgets.iter().sum();
        for (&experiment, &budget) in self.lab.options.experiments.iter().zip(&self.lab.budgets) {
            after = after.saturating_sub(budget);
            let told = |so_far| progress(experiment, so_far, after);
            let result = self.run_one(experiment, budget, &Watch { cancel, progress: &told })?;
            let path = result.save(self.results.path())?;
            if done(result, &path).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn run_one(
        &self,
        experiment: &'static dyn Experiment,
        budget: Duration,
        watch: &Watch<'_>,
    ) -> Result<ExperimentResult> {
        let options = &self.lab.options;
        let setup = Setup {
            dir: self.scratch.dir(),
            methods: &self.methods,
            counters: &self.counters,
            environment: &self.lab.environment,
            profile: options.profile,
            budget,
            seed: options.seed,
            only: &options.only,
        };
        let started_at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let begun = Instant::now();
        let measured = experiment.run(&setup, watch);
        let cleared = self.clear();
        // The first failure is the one to report.
        let measured = measured?;
        cleared?;
        let mut warnings = self.warnings.clone();
        warnings.extend(run_warnings(&measured.arms));
        Ok(ExperimentResult {
            format: FORMAT.to_owned(),
            version: VERSION,
            experiment: experiment.name().to_owned(),
            question: experiment.question().to_owned(),
            source: experiment.source().to_owned(),
            profile: options.profile.name().to_owned(),
            seed: options.seed,
            started_at,
            duration_ms: millis(begun.elapsed()),
            budget_ms: millis(budget),
            parameters: measured.parameters,
            answer: measured.answer,
            claims: measured.claims,
            harness: self.harness,
            arms: measured.arms,
            unavailable: measured.unavailable,
            warnings,
            environment: self.lab.environment.clone(),
        })
    }

    /// Removes what an experiment left, so that the next one finds room.
    fn clear(&self) -> Result<()> {
        let dir = self.scratch.dir();
        for name in dir.list()? {
            dir.remove(&name)?;
        }
        Ok(())
    }
}

/// Warnings about the place itself.
fn place_warnings(environment: &Environment) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |kind, text: &str| warnings.push(Warning::new(kind, text));
    match environment.mount.as_ref().map(|mount| mount.kind()) {
        Some(Place::Fuse) => warn(
            Kind::Place,
            "the filesystem is served by a process (FUSE): syncs are as good as that process",
        ),
        Some(_) if environment.devices.is_empty() => warn(
            Kind::FlushesNotCounted,
            "the device under the filesystem is not known: flushes and bytes cannot be counted, so \
             whether syncs reach the device is not checked",
        ),
        None => warn(
            Kind::FlushesNotCounted,
            "this system does not say what reaches the device: flushes are not counted",
        ),
        Some(_) => {}
    }
    warnings
}

/// Watches the machine while we do nothing: whatever is counted is somebody else's.
#[expect(clippy::disallowed_methods, reason = "watching takes time, and waits for nothing")]
fn idle_warnings(counters: &Counters, cpus: usize) -> Vec<Warning> {
    let before = counters.read();
    std::thread::sleep(WATCH);
    let idle = counters.since(&before);
    let mut warnings = verdict::check_noise(&idle, cpus);
    for warning in &mut warnings {
        warning.text = format!("before the run began, {}", warning.text);
    }
    if let Some(counts) = idle.device.filter(|counts| counts.writes + counts.flushes > 10) {
        let text = format!(
            "before the run began, somebody else wrote to the device ({} writes and {} flushes in {} \
             ms): flushes and bytes per operation are too high by that much; stop them and measure \
             again",
            counts.writes,
            counts.flushes,
            WATCH.as_millis()
        );
        warnings.push(Warning::new(Kind::OthersWrote, text));
    }
    warnings
}

/// Warnings that many arms share, as one line each.
fn run_warnings(arms: &[ArmResult]) -> Vec<Warning> {
    let with = |kind: Kind| {
        let has = |arm: &&ArmResult| arm.warnings.iter().any(|w| w.kind == kind);
        arms.iter().filter(has).count()
    };
    let mut warnings = Vec::new();
    let invalid = arms.iter().filter(|arm| !arm.valid).count();
    if invalid > 0 {
        let text = format!(
            "{invalid} of {} arms are INVALID: what the device counted contradicts what they \
             promise; do not use their figures",
            arms.len()
        );
        warnings.push(Warning::new(Kind::PromiseContradicted, text));
    }
    let few = arms.iter().filter(|arm| arm.summaries.iter().any(|s| s.n > 0 && s.p50_ns.is_none()));
    let few = few.count();
    if few > 0 {
        let text = format!(
            "{few} of {} arms have too few samples for a median; give the run a longer --budget",
            arms.len()
        );
        warnings.push(Warning::new(Kind::FewSamples, text));
    }
    let noisy = with(Kind::Noisy);
    if noisy > 0 {
        let cause = arms.iter().flat_map(|arm| &arm.warnings).find(|w| w.kind == Kind::Noisy);
        let cause = cause.map_or("", |warning| &warning.text);
        let text = format!(
            "{noisy} of {} arms were measured on a busy machine (for one: {cause}); distrust their \
             tails, and their medians where most arms are noisy",
            arms.len()
        );
        warnings.push(Warning::new(Kind::Noisy, text));
    }
    warnings
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Keeps each experiment once, and drops those that have none of the wanted arms.
fn narrow(options: &mut Options) -> Result<()> {
    let mut named: Vec<&'static dyn Experiment> = Vec::new();
    for &experiment in &options.experiments {
        if named.iter().all(|other| other.name() != experiment.name()) {
            named.push(experiment);
        }
    }
    let arms = |experiment: &dyn Experiment| experiment.arm_names(options.profile);
    for part in &options.only {
        let all: Vec<String> = named.iter().flat_map(|experiment| arms(*experiment)).collect();
        if !all.iter().any(|arm| names(part, arm)) {
            let near = nearest(part, &all);
            let reason = format!("no arm is named '{part}'; near it: {}", near.join(", "));
            return Err(
                CannotRun { what: "cannot measure", directory: "--only".into(), reason }.into()
            );
        }
    }
    if !options.only.is_empty() {
        let wanted = |arm: &String| options.only.iter().any(|part| names(part, arm));
        named.retain(|experiment| arms(*experiment).iter().any(wanted));
    }
    options.experiments = named;
    Ok(())
}

/// The three names that are most like `part`.
fn nearest<'a>(part: &str, all: &'a [String]) -> Vec<&'a str> {
    let mut all: Vec<&str> = all.iter().map(String::as_str).collect();
    all.sort_by(|a, b| strsim::jaro_winkler(b, part).total_cmp(&strsim::jaro_winkler(a, part)));
    all.truncate(3);
    all
}

/// About how much room the wanted arms of an experiment need.
fn share_of_disk(experiment: &dyn Experiment, profile: Profile, only: &[String]) -> u64 {
    let disk_bytes = experiment.cost(profile).disk_bytes;
    let arms = experiment.arm_names(profile);
    if only.is_empty() || arms.is_empty() {
        return disk_bytes;
    }
    let wanted = arms.iter().filter(|arm| only.iter().any(|part| names(part, arm))).count() as u64;
    // Arms differ in size; four times an equal share is enough for the largest.
    (disk_bytes / arms.len() as u64).saturating_mul(4 * wanted).min(disk_bytes)
}
