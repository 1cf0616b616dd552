//! Pairs what the runs of two states have in common (experiments, arms and measures, by name), and
//! collects the evidence for a change of each. Pure.

use super::comparison::{Row, Run, Runs, Sides, Tail, Verdict};
use super::together::TOGETHER_MEASURES;
use super::yardstick::{self, Spread};
use crate::arm_result::ArmResult;
use crate::result::ExperimentResult;
use crate::stats;
use crate::summary::Summary;
use crate::warning::Kind;

/// A change of flushes or bytes per operation by more than this share is mentioned.
const WORTH_A_WORD: f64 = 0.1;
/// Fewer flushes per operation than this are somebody else's.
const FLUSHES_MIN: f64 = 0.05;
/// Fewer KiB per operation than this are somebody else's.
const KIB_MIN: f64 = 0.5;

/// A row, and the evidence for a change, if there can be any.
pub(super) struct Compared {
    pub(super) row: Row,
    pub(super) evidence: Option<Evidence>,
}

/// What the runs and the blocks of a measure say.
pub(super) struct Evidence {
    /// Logarithm of new over old.
    pub(super) change: f64,
    /// The spread between the runs of each side; `None` if there is one run of each.
    pub(super) spread: Option<Spread>,
    /// The chance of blocks this different if nothing differs.
    pub(super) p_of_blocks: f64,
}

/// One row for each measure of which both sides have samples. What the device did belongs to the
/// arm as a whole, and is in its first row.
pub(super) fn rows(experiment: &str, old: &[InRun<'_>], new: &[InRun<'_>]) -> Vec<Compared> {
    let measures = names(old.iter().flat_map(|run| &run.arm.summaries).map(|s| &s.measure));
    let sides = |is: fn(&ArmResult) -> bool| Sides {
        old: old.iter().any(|run| is(run.arm)),
        new: new.iter().any(|run| is(run.arm)),
    };
    let is_noisy = |arm: &ArmResult| arm.warnings.iter().any(|w| w.kind == Kind::Noisy);
    let device = per_operation(old).zip(per_operation(new));
    let row = |(place, measure): (usize, &String)| {
        let (before, after) = (Medians::of(old, measure), Medians::of(new, measure));
        if before.summaries.is_empty() || after.summaries.is_empty() {
            return None;
        }
        let leads = place == 0;
        let device = device.filter(|_| leads);
        let row = Row {
            experiment: experiment.to_owned(),
            arm: old[0].arm.name.clone(),
            measure: measure.clone(),
            leads,
            verdict: Verdict::Unknown,
            runs: Runs { old: before.logarithms.len(), new: after.logarithms.len() },
            old_p50_ns: before.p50_ns(),
            new_p50_ns: after.p50_ns(),
            change: change(before.p50_ns(), after.p50_ns()),
            run_spread: None,
            smallest: None,
            p: None,
            corrected_p: None,
            p99: tail(&before.summaries, &after.summaries),
            flushes: device.and_then(|(old, new)| changed(old.0, new.0, FLUSHES_MIN)),
            device_kib: device.and_then(|(old, new)| changed(old.1, new.1, KIB_MIN)),
            invalid: sides(|arm| !arm.valid),
            noisy: sides(is_noisy),
        };
        if row.invalid.any() {
            let row = Row { verdict: Verdict::Invalid, ..row };
            return Some(Compared { row, evidence: None });
        }
        let evidence = evidence(&before, &after);
        Some(Compared { row, evidence })
    };
    measures.iter().enumerate().filter_map(row).collect()
}

/// A measure in the runs of one side.
struct Medians<'a> {
    summaries: Vec<&'a Summary>,
    /// The logarithm of the median of each run that has one.
    logarithms: Vec<f64>,
    /// The same without the moods of the runs.
    steady: Vec<f64>,
}

impl<'a> Medians<'a> {
    fn of(runs: &[InRun<'a>], measure: &str) -> Self {
        let of_run = |run: &InRun<'a>| {
            let summary = run.arm.summaries.iter().find(|s| s.measure == measure && s.n > 0)?;
            Some((summary, run.mood))
        };
        let found: Vec<(&Summary, f64)> = runs.iter().filter_map(of_run).collect();
        let told = |&(summary, mood): &(&Summary, f64)| Some((logarithm(summary)?, mood));
        let told: Vec<(f64, f64)> = found.iter().filter_map(told).collect();
        Self {
            summaries: found.iter().map(|found| found.0).collect(),
            logarithms: told.iter().map(|told| told.0).collect(),
            steady: told.iter().map(|told| told.0 - told.1).collect(),
        }
    }

    /// Their geometric mean.
    fn p50_ns(&self) -> Option<u64> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
        self.mean().map(|mean| mean.exp().round() as u64)
    }

    fn mean(&self) -> Option<f64> {
        let sum: f64 = self.logarithms.iter().sum();
        (!self.logarithms.is_empty()).then(|| sum / yardstick::number(self.logarithms.len()))
    }

    /// The medians of all blocks of all runs.
    fn blocks(&self) -> Vec<u64> {
        self.summaries.iter().flat_map(|summary| &summary.block_p50_ns).copied().collect()
    }
}

fn evidence(old: &Medians<'_>, new: &Medians<'_>) -> Option<Evidence> {
    let change = new.mean()? - old.mean()?;
    let (before, after) = (old.blocks(), new.blocks());
    // Too few blocks say nothing.
    stats::differ(&before, &after)?;
    Some(Evidence {
        change,
        spread: Spread::within(&[&old.steady, &new.steady]),
        p_of_blocks: stats::mann_whitney(&before, &after),
    })
}

/// Flushes and KiB per operation, the mean of the runs that counted them.
fn per_operation(runs: &[InRun<'_>]) -> Option<(f64, f64)> {
    let counted: Vec<_> = runs.iter().filter_map(|run| run.arm.per_operation).collect();
    let mean = |values: f64| values / yardstick::number(counted.len());
    let flushes = counted.iter().map(|counted| counted.flushes).sum();
    let kib = counted.iter().map(|counted| counted.device_kib).sum();
    (!counted.is_empty()).then(|| (mean(flushes), mean(kib)))
}

/// New over old, less one.
fn change(old: Option<u64>, new: Option<u64>) -> Option<f64> {
    let (old, new) = (old.filter(|&ns| ns > 0)?, new?);
    Some(crate::units::ratio(new, old) - 1.0)
}

/// The tails, if every run has one. Of several runs it is the median tail, and an interval that
/// contains all of theirs.
fn tail(old: &[&Summary], new: &[&Summary]) -> Option<Tail> {
    let p99 = |side: &[&Summary]| -> Option<u64> {
        let mut of: Vec<u64> = side.iter().map(|summary| summary.p99_ns).collect::<Option<_>>()?;
        of.sort_unstable();
        Some(stats::quantile(&of, 0.5))
    };
    let hull = |side: &[&Summary]| -> Option<(u64, u64)> {
        let of: Vec<_> = side.iter().map(|summary| summary.p99_ci95_ns).collect::<Option<_>>()?;
        Some((of.iter().map(|i| i.0).min()?, of.iter().map(|i| i.1).max()?))
    };
    let (old_ns, new_ns) = (p99(old)?, p99(new)?);
    Some(Tail {
        old_ns,
        new_ns,
        change: change(Some(old_ns), Some(new_ns))?,
        differs: hull(old).zip(hull(new)).map(|(old, new)| old.1 < new.0 || new.1 < old.0),
    })
}

/// Both values, if they differ by more than a tenth of the larger one and by more than `least`,
/// which may be somebody else's.
fn changed(old: f64, new: f64, least: f64) -> Option<(f64, f64)> {
    let apart = (new - old).abs();
    (apart > WORTH_A_WORD * old.max(new) && apart > least).then_some((old, new))
}

/// Each name once, in the order in which they first appear.
fn names<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in all {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

pub(super) fn experiments(runs: &[Run]) -> Vec<String> {
    names(runs.iter().flatten().map(|result| &result.experiment))
}

pub(super) fn arms(results: &[&ExperimentResult]) -> Vec<String> {
    names(results.iter().flat_map(|result| &result.arms).map(|arm| &arm.name))
}

pub(super) fn missing(names: &[String], from: &[String]) -> Vec<String> {
    names.iter().filter(|name| !from.contains(name)).cloned().collect()
}

pub(super) fn of_experiment<'a>(runs: &'a [Run], name: &str) -> Vec<&'a ExperimentResult> {
    runs.iter().flatten().filter(|result| result.experiment == name).collect()
}

/// An arm in one run of a side.
pub(super) struct InRun<'a> {
    arm: &'a ArmResult,
    /// What everything in its experiment did in that run, as a logarithm.
    mood: f64,
}

pub(super) fn of_arm<'a>(
    results: &[&'a ExperimentResult],
    moods: &[f64],
    name: &str,
) -> Vec<InRun<'a>> {
    let arm = |(result, &mood): (&&'a ExperimentResult, &f64)| {
        let arm = result.arms.iter().find(|arm| arm.name == name)?;
        Some(InRun { arm, mood })
    };
    results.iter().zip(moods).filter_map(arm).collect()
}

/// For each run of a side, how far all measures of an experiment lay together from where they
/// usually lie: the median of their distances, as logarithms. Zero if there are too few measures to
/// say.
pub(super) fn moods(results: &[&ExperimentResult]) -> Vec<f64> {
    let mut apart: Vec<Vec<f64>> = vec![Vec::new(); results.len()];
    let first = results.iter().take(1).flat_map(|result| &result.arms);
    for (arm, summary) in first.flat_map(|arm| arm.summaries.iter().map(move |s| (arm, s))) {
        let in_run = |result: &&ExperimentResult| {
            let arm = result.arms.iter().find(|other| other.name == arm.name)?;
            logarithm(arm.summaries.iter().find(|other| other.measure == summary.measure)?)
        };
        // Only a measure that every run has says how runs differ.
        let Some(all) = results.iter().map(in_run).collect::<Option<Vec<f64>>>() else { continue };
        let mean = all.iter().sum::<f64>() / yardstick::number(all.len());
        apart.iter_mut().zip(all).for_each(|(apart, value)| apart.push(value - mean));
    }
    let mood = |apart: Vec<f64>| match apart.len() {
        0..TOGETHER_MEASURES => 0.0,
        _ => yardstick::median(apart),
    };
    apart.into_iter().map(mood).collect()
}

/// The logarithm of its median, if it has one.
fn logarithm(summary: &Summary) -> Option<f64> {
    summary.p50_ns.filter(|&ns| ns > 0).map(|ns| crate::units::ratio(ns, 1).ln())
}
