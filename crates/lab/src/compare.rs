//! What changed between two runs, old and new. Pure.
//!
//! * Experiments are paired by name, their arms by name, and the measures of an arm by name.
//! * Two medians differ if the Mann–Whitney test over their *block* medians says so. Of a hundred
//!   comparisons five look different by chance, so the p values of all of them together are
//!   corrected ([`stats::benjamini_hochberg`]).
//! * Blocks of one run know nothing of what differs from run to run on an unchanged disk: where the
//!   files landed, what the neighbours did. What most arms did together shows how much that is
//!   ([`Drift`]), and a difference below it, or below [`SMALLEST`], is none.
//! * An invalid arm is not compared. One that was measured on a busy machine is, and a change of it
//!   is undecided: it never fails a check.
//! * Tails are compared by whether the intervals of p99 overlap. These are optimistic, because slow
//!   samples come in groups: a hint, and nothing fails by it.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::conditions::{self, Condition};
use crate::result::{ArmResult, ExperimentResult};
use crate::stats;
use crate::summary::Summary;
use crate::warning::Kind;

/// What the JSON says it is.
pub const FORMAT: &str = "plimsoll-lab-comparison";
/// Version of the JSON.
pub const VERSION: u32 = 1;
/// Smallest change of a median that counts, as a share. The lab measures medians to ± 5 %.
pub const SMALLEST: f64 = 0.05;

/// Fewer measures than this say nothing of what moved together.
const DRIFT_MEASURES: usize = 20;
/// Standard deviations of the spread of all changes within which one is no exception.
const DRIFT_DEVIATIONS: f64 = 3.0;
/// From a run to the next on one disk everything together moves by this at the most (25 %, as a
/// logarithm); what moved further has changed.
const DRIFT_MAX: f64 = 0.223;

/// How far the measures of two runs moved together, as logarithms of new over old.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Drift {
    /// The median change.
    pub centre: f64,
    /// How far changes lie from it, as a robust standard deviation.
    pub spread: f64,
}

impl Drift {
    /// Of the changes of all measures, or `None` if they are too few.
    fn of(changes: &[f64]) -> Option<Self> {
        let mut logarithms: Vec<f64> = changes.iter().map(|change| change.ln_1p()).collect();
        if logarithms.len() < DRIFT_MEASURES {
            return None;
        }
        let centre = median(&mut logarithms);
        let mut apart: Vec<f64> = logarithms.iter().map(|change| (change - centre).abs()).collect();
        // The median deviation of a normal distribution, times this, is its standard deviation.
        Some(Self { centre, spread: 1.4826 * median(&mut apart) })
    }

    /// The smallest change that is not the machine's, as a share.
    #[must_use]
    pub fn smallest(&self) -> f64 {
        (DRIFT_DEVIATIONS * self.spread + self.centre.abs().min(DRIFT_MAX)).exp_m1()
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Change of flushes or bytes per operation that is worth a word, as a share.
const WORTH_A_WORD: f64 = 0.1;
/// Fewer flushes per operation than this are somebody else's.
const FLUSHES_MIN: f64 = 0.05;
/// Fewer KiB per operation than this are somebody else's.
const KIB_MIN: f64 = 0.5;

/// Two runs, side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// [`FORMAT`].
    pub format: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// The slowdown that fails the comparison, as a share.
    pub fail_over: Option<f64>,
    /// What moved together between the runs; absent if there are too few measures to tell.
    pub drift: Option<Drift>,
    /// The smallest change that counts, as a share.
    pub smallest: f64,
    /// What both runs measured, in the order of the old one.
    pub rows: Vec<Row>,
    /// Experiments and arms (`experiment: arm`) that only the old run has.
    pub only_in_old: Vec<String>,
    /// Experiments and arms that only the new run has.
    pub only_in_new: Vec<String>,
    /// What else differs between the runs, so that a change need not be the disk's.
    pub conditions: Vec<Condition>,
}

/// One measure of one arm in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The experiment.
    pub experiment: String,
    /// The arm.
    pub arm: String,
    /// What was measured.
    pub measure: String,
    /// Whether it is the measure that leads its arm.
    pub leads: bool,
    /// What is said of the medians.
    pub verdict: Verdict,
    /// The old median.
    pub old_p50_ns: Option<u64>,
    /// The new median.
    pub new_p50_ns: Option<u64>,
    /// New over old, less one; seen or not.
    pub change: Option<f64>,
    /// The chance of block medians this different, if nothing differed.
    pub p: Option<f64>,
    /// The same, corrected for the number of comparisons.
    pub corrected_p: Option<f64>,
    /// The 99th percentiles, where the samples of both carry them.
    pub p99: Option<Tail>,
    /// Flushes per operation, old and new, if they changed by more than a tenth.
    pub flushes: Option<(f64, f64)>,
    /// KiB written per operation, old and new, if they changed by more than a tenth.
    pub device_kib: Option<(f64, f64)>,
    /// Where the arm's counts contradict its promise.
    pub invalid: Sides,
    /// Where the arm was measured on a busy machine.
    pub noisy: Sides,
}

/// What is said of two medians.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The new one is larger.
    Slower,
    /// The new one is smaller.
    Faster,
    /// No difference was seen. That is not: there is none.
    Same,
    /// There are too few blocks, or samples, to say.
    Unknown,
    /// One of the two contradicts its promise.
    Invalid,
}

/// Two 99th percentiles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tail {
    /// The old one.
    pub old_ns: u64,
    /// The new one.
    pub new_ns: u64,
    /// New over old, less one.
    pub change: f64,
    /// Whether their intervals are apart; `None` if one of them has none.
    pub differs: Option<bool>,
}

/// In which of the runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sides {
    /// In the old one.
    pub old: bool,
    /// In the new one.
    pub new: bool,
}

/// Why two sets of results cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotCompare {
    /// Which of the two is meant cannot be known.
    #[error("there are two results of {experiment} in {side}: name one file")]
    Twice {
        /// The experiment.
        experiment: String,
        /// `OLD` or `NEW`.
        side: &'static str,
    },
    /// They ask different questions.
    #[error("nothing to compare: OLD has {old}, NEW has {new}")]
    NothingInCommon {
        /// Experiments of the old run.
        old: String,
        /// Experiments of the new run.
        new: String,
    },
}

/// Compares two runs. A change of `fail_over` (a share) to the worse is too much, if given.
pub fn compare(
    old: &[ExperimentResult],
    new: &[ExperimentResult],
    fail_over: Option<f64>,
) -> Result<Comparison, CannotCompare> {
    once_each(old, "OLD")?;
    once_each(new, "NEW")?;
    let mut comparison = Comparison {
        format: FORMAT,
        version: VERSION,
        fail_over,
        drift: None,
        smallest: SMALLEST,
        rows: Vec::new(),
        only_in_old: Vec::new(),
        only_in_new: Vec::new(),
        conditions: Vec::new(),
    };
    let (pairs, only_in_old, only_in_new) = pair(old, new, |result| &result.experiment);
    if pairs.is_empty() {
        let names = |side: &[ExperimentResult]| {
            side.iter().map(|result| result.experiment.as_str()).collect::<Vec<_>>().join(", ")
        };
        return Err(CannotCompare::NothingInCommon { old: names(old), new: names(new) });
    }
    comparison.only_in_old = only_in_old;
    comparison.only_in_new = only_in_new;
    for (old, new) in pairs {
        comparison.add(old, new);
    }
    comparison.judge();
    Ok(comparison)
}

impl Comparison {
    /// What makes the check fail: seen in a valid arm on a quiet machine, and beyond the limit.
    pub fn failed(&self) -> impl Iterator<Item = &Row> {
        self.beyond_limit().filter(|row| !row.noisy.any())
    }

    /// What would, had the machine been left in peace.
    pub fn undecided(&self) -> impl Iterator<Item = &Row> {
        self.beyond_limit().filter(|row| row.noisy.any())
    }

    fn beyond_limit(&self) -> impl Iterator<Item = &Row> {
        let limit = self.fail_over.unwrap_or(f64::INFINITY);
        let beyond = move |row: &&Row| row.change.is_some_and(|change| change > limit);
        self.rows.iter().filter(|row| row.verdict == Verdict::Slower).filter(beyond)
    }

    fn add(&mut self, old: &ExperimentResult, new: &ExperimentResult) {
        let name = &old.experiment;
        let (arms, only_in_old, only_in_new) = pair(&old.arms, &new.arms, |arm| &arm.name);
        let of_experiment = |arm: String| format!("{name}: {arm}");
        self.only_in_old.extend(only_in_old.into_iter().map(of_experiment));
        self.only_in_new.extend(only_in_new.into_iter().map(of_experiment));
        self.rows.extend(arms.into_iter().flat_map(|(old, new)| rows(name, old, new)));
        for condition in conditions::that_differ(old, new) {
            // The same of all experiments, most likely; once is enough.
            if !self.conditions.contains(&condition) {
                self.conditions.push(condition);
            }
        }
    }

    /// Verdicts need all p values.
    fn judge(&mut self) {
        let tested = |row: &Row| row.p.and(row.change);
        let changes: Vec<f64> = self.rows.iter().filter_map(tested).collect();
        self.drift = Drift::of(&changes);
        self.smallest = self.drift.map_or(SMALLEST, |drift| drift.smallest().max(SMALLEST));
        let smallest = self.smallest;
        let p_values: Vec<f64> = self.rows.iter().filter_map(|row| row.p).collect();
        let compared = self.rows.iter_mut().filter(|row| row.p.is_some());
        for (row, corrected) in compared.zip(stats::benjamini_hochberg(&p_values)) {
            row.corrected_p = Some(corrected);
            row.verdict = match row.change {
                Some(change)
                    if corrected < 1.0 - stats::CONFIDENCE
                        && change.ln_1p().abs() >= smallest.ln_1p() =>
                {
                    if change > 0.0 {
                        Verdict::Slower
                    } else {
                        Verdict::Faster
                    }
                }
                _ => Verdict::Same,
            };
        }
    }
}

/// What both have, by name, and the names that only one has.
fn pair<'a, T>(
    old: &'a [T],
    new: &'a [T],
    name: impl Fn(&T) -> &String,
) -> (Vec<(&'a T, &'a T)>, Vec<String>, Vec<String>) {
    let missing = |from: &[T], item: &&T| from.iter().all(|other| name(other) != name(item));
    let names = |items: &[T], from: &[T]| {
        items.iter().filter(|item| missing(from, item)).map(|item| name(item).clone()).collect()
    };
    let pairs =
        old.iter().filter_map(|o| Some((o, new.iter().find(|n| name(n) == name(o))?))).collect();
    (pairs, names(old, new), names(new, old))
}

fn once_each(results: &[ExperimentResult], side: &'static str) -> Result<(), CannotCompare> {
    let mut seen = BTreeSet::new();
    match results.iter().find(|result| !seen.insert(&result.experiment)) {
        Some(again) => Err(CannotCompare::Twice { experiment: again.experiment.clone(), side }),
        None => Ok(()),
    }
}

/// One row for each measure that both have samples of. What the device did is the arm's, and stands
/// in its first row.
fn rows(experiment: &str, old: &ArmResult, new: &ArmResult) -> Vec<Row> {
    let is_noisy = |arm: &ArmResult| arm.warnings.iter().any(|w| w.kind == Kind::Noisy);
    let per_operation = |arm: &ArmResult| arm.per_operation.map(|p| (p.flushes, p.device_kib));
    let device = per_operation(old).zip(per_operation(new));
    let row = |(place, old_summary): (usize, &Summary)| {
        let new_summary = new.summaries.iter().find(|s| s.measure == old_summary.measure)?;
        if old_summary.n == 0 || new_summary.n == 0 {
            return None;
        }
        let leads = place == 0;
        let row = Row {
            experiment: experiment.to_owned(),
            arm: old.name.clone(),
            measure: old_summary.measure.clone(),
            leads,
            verdict: Verdict::Unknown,
            old_p50_ns: old_summary.p50_ns,
            new_p50_ns: new_summary.p50_ns,
            change: change(old_summary.p50_ns, new_summary.p50_ns),
            p: None,
            corrected_p: None,
            p99: tail(old_summary, new_summary),
            flushes: device
                .filter(|_| leads)
                .and_then(|(old, new)| changed(old.0, new.0, FLUSHES_MIN)),
            device_kib: device
                .filter(|_| leads)
                .and_then(|(old, new)| changed(old.1, new.1, KIB_MIN)),
            invalid: Sides { old: !old.valid, new: !new.valid },
            noisy: Sides { old: is_noisy(old), new: is_noisy(new) },
        };
        if row.invalid.any() {
            return Some(Row { verdict: Verdict::Invalid, ..row });
        }
        let (before, after) = (&old_summary.block_p50_ns, &new_summary.block_p50_ns);
        let enough = stats::differ(before, after).is_some() && row.change.is_some();
        Some(Row { p: enough.then(|| stats::mann_whitney(before, after)), ..row })
    };
    old.summaries.iter().enumerate().filter_map(row).collect()
}

/// New over old, less one.
fn change(old: Option<u64>, new: Option<u64>) -> Option<f64> {
    let (old, new) = (old.filter(|&ns| ns > 0)?, new?);
    Some(crate::units::ratio(new, old) - 1.0)
}

fn tail(old: &Summary, new: &Summary) -> Option<Tail> {
    let (old_ns, new_ns) = (old.p99_ns?, new.p99_ns?);
    let intervals = old.p99_ci95_ns.zip(new.p99_ci95_ns);
    Some(Tail {
        old_ns,
        new_ns,
        change: change(Some(old_ns), Some(new_ns))?,
        differs: intervals.map(|(old, new)| old.1 < new.0 || new.1 < old.0),
    })
}

/// Both, if they are apart by a tenth of the larger one and by more than somebody else's.
fn changed(old: f64, new: f64, least: f64) -> Option<(f64, f64)> {
    let apart = (new - old).abs();
    (apart > WORTH_A_WORD * old.max(new) && apart > least).then_some((old, new))
}

impl Row {
    /// The arm, with the measure if it is not the leading one.
    #[must_use]
    pub fn name(&self) -> String {
        if self.leads { self.arm.clone() } else { format!("{}: {}", self.arm, self.measure) }
    }
}

impl Sides {
    /// Whether in any.
    #[must_use]
    pub const fn any(self) -> bool {
        self.old || self.new
    }
}

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.old, self.new) {
            (true, true) => "OLD and NEW",
            (true, false) => "OLD",
            (false, true) => "NEW",
            (false, false) => "neither",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::result::PerOperation;
    use crate::warning::Warning;

    /// A real arm, to make others of.
    static TEMPLATE: LazyLock<ExperimentResult> = LazyLock::new(|| {
        let json = include_str!("../testdata/result-v1-sync-cost.json");
        let mut result = ExperimentResult::parse(json).unwrap();
        let arm = &mut result.arms[0];
        (arm.per_operation, arm.warnings, arm.summaries) = (None, Vec::new(), Vec::new());
        result
    });

    /// An arm with these medians of blocks.
    fn arm(name: &str, mut block_p50_ns: Vec<u64>) -> ArmResult {
        block_p50_ns.sort_unstable();
        let p50_ns = Some(stats::quantile(&block_p50_ns, 0.5));
        let summary = Summary {
            measure: "time".to_owned(),
            n: 2000,
            p50_ns,
            block_p50_ns,
            ..Summary::default()
        };
        ArmResult { name: name.to_owned(), summaries: vec![summary], ..TEMPLATE.arms[0].clone() }
    }

    fn result(arms: Vec<ArmResult>) -> ExperimentResult {
        ExperimentResult { arms, ..TEMPLATE.clone() }
    }

    fn blocks(around: u64) -> Vec<u64> {
        (0..20).map(|block| around + block).collect()
    }

    /// As many arms, each from a source of its own that is the same in every run: a median, and
    /// blocks that lie around it, now and then far off.
    fn run_of_one_disk(arms: u32, blocks: usize, rng: &mut Pcg64Mcg) -> ExperimentResult {
        let mut block = |around: f64| {
            let slow = if rng.random::<f64>() < 0.1 { 3.0 } else { 1.0 };
            let near: f64 = (0..6).map(|_| rng.random::<f64>() - 0.5).sum();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
            let ns = (around * slow * (1.0 + 0.3 * near).max(0.1)) as u64;
            ns
        };
        let arms = (0..arms).map(|number| {
            let around = 20_000.0 * f64::from(number + 1);
            arm(&format!("arm-{number}"), (0..blocks).map(|_| block(around)).collect())
        });
        result(arms.collect())
    }

    fn compared(old: ArmResult, new: ArmResult, fail_over: Option<f64>) -> Comparison {
        compare(&[result(vec![old])], &[result(vec![new])], fail_over).unwrap()
    }

    /// Two runs of one disk, minutes apart: the host had moved everything by a tenth.
    #[test]
    fn what_all_arms_did_together_is_the_machines_and_an_exception_is_not() {
        let names: Vec<String> = (0..40).map(|number| format!("arm-{number}")).collect();
        let run = |factor: &dyn Fn(usize) -> u64| {
            let arms = names.iter().enumerate();
            let around = |number| 1000 * factor(number);
            result(arms.map(|(number, name)| arm(name, blocks(around(number)))).collect())
        };
        let old = run(&|_| 100);
        let drifted = run(&|number| 108 + number as u64 % 5);
        let same = compare(std::slice::from_ref(&old), &[drifted], None).unwrap();
        assert!(same.rows.iter().all(|row| row.verdict == Verdict::Same), "{:?}", same.drift);
        let exception = run(&|number| if number == 7 { 200 } else { 108 + number as u64 % 5 });
        let one = compare(std::slice::from_ref(&old), &[exception], None).unwrap();
        let slower: Vec<&Row> =
            one.rows.iter().filter(|row| row.verdict == Verdict::Slower).collect();
        assert!(slower.len() == 1 && slower[0].arm == "arm-7", "{slower:?}");
        let thrice = compare(&[old], &[run(&|_| 300)], Some(0.1)).unwrap();
        assert_eq!(
            thrice.failed().count(),
            40,
            "no drift explains three times: {:?}",
            thrice.drift
        );
    }

    #[test]
    fn two_runs_of_one_disk_differ_at_most_by_chance() {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let (mut runs_with_any, mut by_chance, mut compared) = (0, 0, 0);
        for _ in 0..100 {
            let (old, new) =
                (run_of_one_disk(103, 20, &mut rng), run_of_one_disk(103, 20, &mut rng));
            let comparison = compare(&[old], &[new], Some(0.1)).unwrap();
            let called = |row: &&Row| row.verdict != Verdict::Same;
            let called = comparison.rows.iter().filter(called).count();
            runs_with_any += usize::from(called > 0);
            compared += comparison.rows.len();
            by_chance += comparison.rows.iter().filter(|row| row.p.unwrap() < 0.05).count();
        }
        // Without the correction one arm in twenty differs, so nearly every run would fail.
        assert!(
            by_chance > compared / 40 && by_chance < compared / 15,
            "{by_chance} of {compared}"
        );
        // With it one run in twenty has any: of a hundred, more than eleven have a chance of 0.4 %.
        assert!(runs_with_any <= 11, "{runs_with_any} of 100 runs");
    }

    #[test]
    fn a_real_change_is_found_among_a_hundred_arms_without_one() {
        let mut rng = Pcg64Mcg::seed_from_u64(8);
        let (old, mut new) =
            (run_of_one_disk(103, 20, &mut rng), run_of_one_disk(103, 20, &mut rng));
        let slower =
            arm("arm-50", new.arms[50].summaries[0].block_p50_ns.iter().map(|ns| ns * 2).collect());
        new.arms[50] = slower;
        let comparison = compare(&[old], &[new], Some(0.5)).unwrap();
        let failed: Vec<&str> = comparison.failed().map(|row| row.arm.as_str()).collect();
        assert_eq!(failed, ["arm-50"]);
    }

    #[test]
    fn faster_and_slower_are_told_apart_and_only_slower_fails() {
        let slower = compared(arm("a", blocks(1000)), arm("a", blocks(1300)), Some(0.1));
        assert_eq!(slower.rows[0].verdict, Verdict::Slower);
        assert!((slower.rows[0].change.unwrap() - 0.297).abs() < 0.01);
        assert_eq!((slower.failed().count(), slower.undecided().count()), (1, 0));
        let faster = compared(arm("a", blocks(1300)), arm("a", blocks(1000)), Some(0.1));
        assert_eq!(faster.rows[0].verdict, Verdict::Faster);
        assert_eq!(faster.failed().count(), 0);
    }

    #[test]
    fn a_slowdown_within_the_limit_or_without_one_does_not_fail() {
        for limit in [Some(0.5), None] {
            let comparison = compared(arm("a", blocks(1000)), arm("a", blocks(1300)), limit);
            assert_eq!(comparison.rows[0].verdict, Verdict::Slower);
            assert_eq!(comparison.failed().count(), 0);
        }
    }

    #[test]
    fn a_change_that_is_sure_and_too_small_to_matter_is_none() {
        let comparison = compared(arm("a", blocks(1000)), arm("a", blocks(1040)), Some(0.0));
        assert!(comparison.rows[0].corrected_p.unwrap() < 0.001);
        assert_eq!(comparison.rows[0].verdict, Verdict::Same);
        assert_eq!(comparison.failed().count(), 0);
    }

    #[test]
    fn a_change_on_a_busy_machine_is_undecided() {
        for busy_run in ["old", "new"] {
            let (mut old, mut new) = (arm("a", blocks(1000)), arm("a", blocks(1300)));
            let busy = if busy_run == "old" { &mut old } else { &mut new };
            busy.warnings.push(Warning::new(Kind::Noisy, "busy"));
            let comparison = compared(old, new, Some(0.1));
            assert_eq!((comparison.failed().count(), comparison.undecided().count()), (0, 1));
        }
    }

    #[test]
    fn an_invalid_arm_is_not_compared_and_takes_no_part_in_the_correction() {
        let invalid = ArmResult { valid: false, ..arm("a", blocks(1300)) };
        let comparison = compared(arm("a", blocks(1000)), invalid, Some(0.1));
        let row = &comparison.rows[0];
        assert_eq!((row.verdict, row.p, row.invalid.new), (Verdict::Invalid, None, true));
        assert_eq!(comparison.failed().count(), 0);
    }

    #[test]
    fn too_few_blocks_say_nothing() {
        let few = blocks(1000)[..7].to_vec();
        let comparison = compared(arm("a", few), arm("a", blocks(9000)), Some(0.1));
        assert_eq!(comparison.rows[0].verdict, Verdict::Unknown);
        assert_eq!(comparison.failed().count(), 0);
    }

    #[test]
    fn tails_differ_where_their_intervals_are_apart() {
        let with_p99 = |p99_ns, interval| {
            let mut arm = arm("a", blocks(1000));
            arm.summaries[0].p99_ns = Some(p99_ns);
            arm.summaries[0].p99_ci95_ns = interval;
            arm
        };
        let old = with_p99(2000, Some((1800, 2200)));
        let differs =
            |new: ArmResult| compared(old.clone(), new, None).rows[0].p99.unwrap().differs;
        assert_eq!(differs(with_p99(3000, Some((2900, 3100)))), Some(true));
        assert_eq!(differs(with_p99(1000, Some((900, 1100)))), Some(true));
        assert_eq!(differs(with_p99(2300, Some((2200, 2500)))), Some(false));
        assert_eq!(differs(with_p99(2300, None)), None);
    }

    #[test]
    fn flushes_and_bytes_are_told_when_they_change_by_more_than_a_tenth() {
        let counted = |flushes, device_kib| {
            let per_operation = Some(PerOperation { flushes, device_writes: 1.0, device_kib });
            ArmResult { per_operation, ..arm("a", blocks(1000)) }
        };
        let row = |old, new| compared(old, new, None).rows.remove(0);
        let doubled = row(counted(1.0, 8.0), counted(2.0, 8.5));
        assert_eq!((doubled.flushes, doubled.device_kib), (Some((1.0, 2.0)), None));
        let lost = row(counted(1.0, 8.0), counted(0.0, 4.0));
        assert_eq!((lost.flushes, lost.device_kib), (Some((1.0, 0.0)), Some((8.0, 4.0))));
        let nearly_nothing = row(counted(0.0, 0.0), counted(0.01, 0.2));
        assert_eq!((nearly_nothing.flushes, nearly_nothing.device_kib), (None, None));
    }

    #[test]
    fn what_only_one_run_has_is_named() {
        let old = [result(vec![arm("a", blocks(1)), arm("b", blocks(1))])];
        let mut other = result(vec![arm("x", blocks(1))]);
        other.experiment = "many-files".to_owned();
        let new = [other, result(vec![arm("b", blocks(1)), arm("c", blocks(1))])];
        let comparison = compare(&old, &new, None).unwrap();
        assert_eq!(comparison.rows.len(), 1);
        assert_eq!(comparison.only_in_old, ["sync-cost: a"]);
        assert_eq!(comparison.only_in_new, ["many-files", "sync-cost: c"]);
    }

    #[test]
    fn results_that_cannot_be_paired_are_refused() {
        let one = result(vec![arm("a", blocks(1))]);
        let other = ExperimentResult { experiment: "many-files".to_owned(), ..one.clone() };
        let refused = |old: &[ExperimentResult], new: &[ExperimentResult]| {
            compare(old, new, None).unwrap_err().to_string()
        };
        let nothing = refused(std::slice::from_ref(&one), &[other]);
        assert!(nothing.contains("sync-cost") && nothing.contains("many-files"), "{nothing}");
        let twice = refused(std::slice::from_ref(&one), &[one.clone(), one.clone()]);
        assert!(twice.contains("two results of sync-cost in NEW"), "{twice}");
    }
}
