//! A run of experiments in a directory: checks before it, scratch files during it, saved results.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_sync::{Availability, Dir, SyncMethod};

use crate::arm_result::ArmResult;
use crate::counters::Counters;
use crate::environment::Environment;
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Profile, Setup, names};
use crate::harness;
use crate::least::{PIECE_BYTES, Speed};
use crate::leftovers::{self, Leftover};
use crate::mount::Kind as Place;
use crate::quiet::Before;
use crate::result::{ExperimentResult, FORMAT, Harness, VERSION};
use crate::results_dir::ResultsDir;
use crate::runner::{Progress, Watch};
use crate::scratch::{self, CannotRun, Scratch};
use crate::shares::Shares;
use crate::units;
use crate::warning::{Kind, Warning};

/// How long it is waited at most until others leave the machine in peace.
pub const PATIENCE: Duration = Duration::from_secs(30);

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
    /// The `plimsoll` program, for experiments that start brokers. Without it their arms are unavailable.
    pub program: Option<PathBuf>,
}

/// A run that can be made here. Nothing has been written yet.
#[derive(Debug)]
pub struct Lab {
    options: Options,
    directory: PathBuf,
    scratch: PathBuf,
    environment: Environment,
    counters: Counters,
    costs: Vec<Cost>,
    disk_bytes: u64,
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// What is being measured.
    pub experiment: &'static dyn Experiment,
    /// How far that is.
    pub progress: Progress,
    /// For how long it has been measured.
    pub elapsed: Duration,
    /// How long it may take.
    pub budget: Duration,
    /// How long those after it may take.
    pub after: Duration,
}

/// A run with its scratch directory, which is removed when this is dropped.
#[derive(Debug)]
pub struct Session {
    lab: Lab,
    scratch: Scratch,
    results: ResultsDir,
    methods: Vec<(SyncMethod, Availability)>,
    before: Option<Before>,
    shares: Shares,
    harness: Harness,
    warnings: Vec<Warning>,
}

impl Lab {
    /// Checks that the run can be made here. Writes nothing.
    pub fn check(mut options: Options) -> Result<Self> {
        let directory = scratch::directory(&options.directory)?;
        let (environment, devices) = Environment::of(&directory);
        narrow(&mut options)?;
        let cost = |&experiment: &&'static dyn Experiment| {
            wanted(experiment, options.profile, &options.only)
        };
        let costs: Vec<Cost> = options.experiments.iter().map(cost).collect();
        let disk_bytes = costs.iter().map(|cost| cost.disk_bytes).max().unwrap_or(0);
        let disk_bytes = disk_bytes.max(PIECE_BYTES);
        scratch::check_place(&environment, disk_bytes)?;

        let (scratch, counters) = (Scratch::planned(&directory), Counters::new(devices));
        Ok(Self { options, directory, scratch, environment, counters, costs, disk_bytes })
    }

    /// Watches the machine for a second, and waits while others keep it busy, but no longer than
    /// `patience`. `told` is why it is not quiet and how much patience is left, after every look that
    /// found it busy. Writes nothing.
    pub fn watch(
        &self,
        patience: Duration,
        cancel: &AtomicBool,
        told: &mut dyn FnMut(&str, Duration),
    ) -> Result<Before> {
        Before::wait(&self.counters, self.environment.cpus, patience, cancel, told)
    }

    /// Where files are written while it runs.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Directories that may be there while it runs: the one where files are written, and the one in memory
    /// that brokers have.
    #[must_use]
    pub fn scratches(&self) -> [PathBuf; 2] {
        let in_memory = Scratch::twin_in(Path::new(scratch::SHARED_MEMORY), &self.scratch);
        [self.scratch.clone(), in_memory]
    }

    /// Scratch directories that killed runs left beside it.
    #[must_use]
    pub fn leftovers(&self) -> Vec<Leftover> {
        leftovers::clean(&self.directory, true)
            .map_or_else(|_| Vec::new(), |cleaned| cleaned.removed)
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
        let beside: Vec<String> = self
            .options
            .experiments
            .iter()
            .filter_map(|experiment| {
                Some(format!("{} {}; ", experiment.name(), experiment.touches_beside()?))
            })
            .collect();
        let beside = beside.concat();
        format!(
            "Writing in {}{place}, up to {} at a time, written over and over and removed at the end; \
             {beside}nothing else is touched. Results: {}",
            self.scratch.display(),
            units::bytes(self.disk_bytes),
            self.options.out.display()
        )
    }

    /// Makes the scratch directory and the one for results, and finds out which methods work. What was
    /// seen `before`, if anybody watched, is kept with the results.
    pub fn begin(self, before: Option<Before>) -> Result<Session> {
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
        let mut warnings = place_warnings(&self.environment);
        warnings.extend(before.iter().flat_map(Before::warnings));
        let harness = harness::measure();
        let shares = Shares::of(&self.costs, self.options.budget, Speed::of(scratch.dir())?);
        Ok(Session { scratch, results, methods, before, shares, harness, warnings, lab: self })
    }
}

impl Session {
    /// About how long the experiments will take.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.shares.sum()
    }

    /// How long they may take instead, if the budget is too short to measure every arm once on this
    /// disk.
    #[must_use]
    pub fn overrun(&self) -> Option<Duration> {
        self.shares.overrun()
    }

    /// Whether others kept the machine busy when it began: then all of it may take longer.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.busy_because.is_some())
    }

    /// Where results are saved.
    #[must_use]
    pub fn results(&self) -> &Path {
        self.results.path()
    }

    /// Runs one experiment after the other. Each result is saved before the next one begins, and
    /// given to `done`, which says whether to go on. `progress` is told how far it has come.
    pub fn run(
        &self,
        cancel: &AtomicBool,
        progress: &dyn Fn(Standing),
        mut done: impl FnMut(ExperimentResult, &Path) -> ControlFlow<()>,
    ) -> Result<()> {
        let begun = Instant::now();
        for (number, &experiment) in self.lab.options.experiments.iter().enumerate() {
            let (budget, after) = self.shares.at(number, begun.elapsed());
            let begun = Instant::now();
            let told = |so_far| {
                let elapsed = begun.elapsed();
                progress(Standing { experiment, progress: so_far, elapsed, budget, after });
            };
            told(Progress::Preparing);
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
        let begun = Instant::now();
        let setup = Setup {
            dir: self.scratch.dir(),
            program: options.program.as_deref(),
            methods: &self.methods,
            counters: &self.lab.counters,
            environment: &self.lab.environment,
            busy_before: self.before.as_ref().and_then(|before| before.busy_because.as_deref()),
            profile: options.profile,
            budget,
            begun,
            seed: options.seed,
            only: &options.only,
        };
        let started_at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
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
            in_short: measured.in_short,
            claims: measured.claims,
            before: self.before.clone(),
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
        for name in dir.list()?.iter().filter(|name| *name != scratch::LOCK) {
            dir.remove(name)?;
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

/// Warnings that many arms share, as one line each.
fn run_warnings(arms: &[ArmResult]) -> Vec<Warning> {
    let with = |kind: Kind| {
        let has = |arm: &&ArmResult| arm.warnings.iter().any(|w| w.kind == kind);
        arms.iter().filter(has).count()
    };
    let mut warnings = Vec::new();
    let contradicts = |arm: &&ArmResult| arm.warnings.iter().any(|w| w.kind.invalidates());
    let invalid = arms.iter().filter(contradicts).count();
    if invalid > 0 {
        let text = format!(
            "{invalid} of {} arms are INVALID: what the device counted contradicts what they \
             promise; do not use their figures",
            arms.len()
        );
        warnings.push(Warning::new(Kind::PromiseContradicted, text));
    }
    let guarded = with(Kind::Guarded);
    if guarded > 0 {
        let text = format!(
            "{guarded} of {} arms had blocks that are left out, as their brokers were guarded and waited for \
             disks; an arm without any other is INVALID",
            arms.len()
        );
        warnings.push(Warning::new(Kind::Guarded, text));
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

/// About what the wanted arms of an experiment cost.
fn wanted(experiment: &dyn Experiment, profile: Profile, only: &[String]) -> Cost {
    let cost = experiment.cost(profile);
    let arms = experiment.arm_names(profile);
    if only.is_empty() || arms.is_empty() {
        return cost;
    }
    let wanted = arms.iter().filter(|arm| only.iter().any(|part| names(part, arm))).count();
    // Arms differ in size; four times an equal share is enough for the largest.
    let share = cost.disk_bytes / arms.len() as u64;
    let disk_bytes = share.saturating_mul(4 * wanted as u64).min(cost.disk_bytes);
    let least = cost.least.of_part(wanted as u64, arms.len() as u64);
    Cost { disk_bytes, least, ..cost }
}
