//! What the runs of two states have in common: their experiments, arms and measures paired by name,
//! and what speaks for a change of each. Pure.

use crate::compare::{Row, Run, Runs, Sides, Tail, Verdict};
use crate::result::{ArmResult, ExperimentResult};
use crate::stats;
use crate::summary::Summary;
use crate::warning::Kind;
use crate::yardstick::{self, Spread};

/// Change of flushes or bytes per operation that is worth a word, as a share.
const WORTH_A_WORD: f64 = 0.1;
/// Fewer flushes per operation than this are somebody else's.
const FLUSHES_MIN: f64 = 0.05;
/// Fewer KiB per operation than this are somebody else's.
const KIB_MIN: f64 = 0.5;

/// A row, and what speaks for a change, if anything can.
pub(crate) struct Compared {
    pub(crate) row: Row,
    pub(crate) evidence: Option<Evidence>,
}

/// What the runs and the blocks of a measure say.
pub(crate) struct Evidence {
    /// Logarithm of new over old.
    pub(crate) change: f64,
    /// Between the runs of each side; `None` if there is one of each.
    pub(crate) spread: Option<Spread>,
    /// The chance of blocks this different, if nothing differed.
    pub(crate) p_of_blocks: f64,
}

/// One row for each measure that both have samples of. What the device did is the arm's, and stands
/// in its first row.
pub(crate) fn rows(experiment: &str, old: &[&ArmResult], new: &[&ArmResult]) -> Vec<Compared> {
    let measures = names(old.iter().flat_map(|arm| &arm.summaries).map(|s| &s.measure));
    let sides = |is: fn(&ArmResult) -> bool| Sides {
        old: old.iter().any(|arm| is(arm)),
        new: new.iter().any(|arm| is(arm)),
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
            arm: old[0].name.clone(),
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
    /// Of the median of each run that has one.
    logarithms: Vec<f64>,
}

impl<'a> Medians<'a> {
    fn of(arms: &[&'a ArmResult], measure: &str) -> Self {
        let of_arm = |arm: &&'a ArmResult| arm.summaries.iter().find(|s| s.measure == measure);
        let summaries: Vec<&Summary> = arms.iter().filter_map(of_arm).filter(|s| s.n > 0).collect();
        let medians = summaries.iter().filter_map(|s| s.p50_ns.filter(|&ns| ns > 0));
        let logarithms = medians.map(|ns| crate::units::ratio(ns, 1).ln()).collect();
        Self { summaries, logarithms }
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
    // Whether there are enough of them to say anything.
    stats::differ(&before, &after)?;
    Some(Evidence {
        change,
        spread: Spread::within(&[&old.logarithms, &new.logarithms]),
        p_of_blocks: stats::mann_whitney(&before, &after),
    })
}

/// Flushes and KiB per operation, the mean of the runs that counted them.
fn per_operation(arms: &[&ArmResult]) -> Option<(f64, f64)> {
    let counted: Vec<_> = arms.iter().filter_map(|arm| arm.per_operation).collect();
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

/// The tails, if every run carries one. Of several runs: their median, and the hull of their
/// intervals.
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

/// Both, if they are apart by a tenth of the larger one and by more than somebody else's.
fn changed(old: f64, new: f64, least: f64) -> Option<(f64, f64)> {
    let apart = (new - old).abs();
    (apart > WORTH_A_WORD * old.max(new) && apart > least).then_some((old, new))
}

/// The names of what runs have, in the order of their coming.
fn names<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in all {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

pub(crate) fn experiments(runs: &[Run]) -> Vec<String> {
    names(runs.iter().flatten().map(|result| &result.experiment))
}

pub(crate) fn arms(results: &[&ExperimentResult]) -> Vec<String> {
    names(results.iter().flat_map(|result| &result.arms).map(|arm| &arm.name))
}

pub(crate) fn missing(names: &[String], from: &[String]) -> Vec<String> {
    names.iter().filter(|name| !from.contains(name)).cloned().collect()
}

pub(crate) fn of_experiment<'a>(runs: &'a [Run], name: &str) -> Vec<&'a ExperimentResult> {
    runs.iter().flatten().filter(|result| result.experiment == name).collect()
}

pub(crate) fn of_arm<'a>(results: &[&'a ExperimentResult], name: &str) -> Vec<&'a ArmResult> {
    let arm = |result: &&'a ExperimentResult| result.arms.iter().find(|arm| arm.name == name);
    results.iter().filter_map(arm).collect()
}
