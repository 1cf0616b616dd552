//! What a comparison of two states says: its values, as the JSON has them. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::conditions::Condition;
use super::yardstick::Yardstick;
use crate::result::ExperimentResult;

/// What the JSON says it is.
pub(crate) const FORMAT: &str = "plimsoll-lab-comparison";
/// Version of the JSON that this program writes.
pub(crate) const VERSION: u32 = 2;

/// One run: a result of each experiment.
pub type Run = Vec<ExperimentResult>;

/// Two states, side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What the JSON says it is: `plimsoll-lab-comparison`.
    pub format: &'static str,
    /// Version of the JSON.
    pub version: u32,
    /// The slowdown that fails the comparison, as a share.
    pub fail_over: Option<f64>,
    /// How many runs there are of each.
    pub runs: Runs,
    /// How far a measure moves from one run to the next.
    pub yardstick: Yardstick,
    /// What the measures of each experiment did together: their median change, as a logarithm.
    /// Experiments with too few measures are absent.
    pub together: BTreeMap<String, f64>,
    /// The smallest change that a typical measure needs, alone, to be called, as a share: half of
    /// the measures need more, half less. Absent if nothing could be compared.
    pub smallest: Option<f64>,
    /// What both measured, in the order of the old state.
    pub rows: Vec<Row>,
    /// Experiments and arms (`experiment: arm`) that only the old runs have.
    pub only_in_old: Vec<String>,
    /// Experiments and arms that only the new runs have.
    pub only_in_new: Vec<String>,
    /// What else differs between the runs, so that a change need not be the disk's.
    pub conditions: Vec<Condition>,
}

/// How many runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Runs {
    /// Of the old state.
    pub old: usize,
    /// Of the new state.
    pub new: usize,
}

/// One measure of one arm in both states.
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
    /// Runs with a median of it.
    pub runs: Runs,
    /// The old median, or the geometric mean of the medians of several runs.
    pub old_p50_ns: Option<u64>,
    /// The new median.
    pub new_p50_ns: Option<u64>,
    /// New over old, less one, whether or not it is called.
    pub change: Option<f64>,
    /// How far it moves from run to run: the standard deviation of the logarithm of its median,
    /// from its own runs and the yardstick.
    pub run_spread: Option<f64>,
    /// The smallest change of this measure alone that would have been called, as a share.
    pub smallest: Option<f64>,
    /// The chance of such a change if nothing differs, by runs or by blocks, whichever is larger.
    pub p: Option<f64>,
    /// The same, corrected for the number of comparisons.
    pub corrected_p: Option<f64>,
    /// The 99th percentiles, where the samples of all runs carry them.
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

/// On which side something is so, in any of its runs.
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
    /// A run has two results of an experiment, and it is unclear which is meant.
    #[error("there are two results of {experiment} in {side}: name one file")]
    Twice {
        /// The experiment.
        experiment: String,
        /// `OLD` or `NEW`.
        side: &'static str,
    },
    /// The two have no experiment in common.
    #[error("nothing to compare: OLD has {old}, NEW has {new}")]
    NothingInCommon {
        /// Experiments of the old run.
        old: String,
        /// Experiments of the new run.
        new: String,
    },
}

impl Comparison {
    /// The rows that fail the check: called slower, beyond the limit, on a quiet machine.
    pub fn failed(&self) -> impl Iterator<Item = &Row> {
        self.beyond_limit().filter(|row| !row.noisy.any())
    }

    /// The rows that would fail it, had the machine been left in peace.
    pub fn undecided(&self) -> impl Iterator<Item = &Row> {
        self.beyond_limit().filter(|row| row.noisy.any())
    }

    fn beyond_limit(&self) -> impl Iterator<Item = &Row> {
        let limit = self.fail_over.unwrap_or(f64::INFINITY);
        let beyond = move |row: &&Row| row.change.is_some_and(|change| change > limit);
        self.rows.iter().filter(|row| row.verdict == Verdict::Slower).filter(beyond)
    }
}

impl Row {
    /// The arm, with the measure if it is not the leading one.
    #[must_use]
    pub fn name(&self) -> String {
        if self.leads { self.arm.clone() } else { format!("{}: {}", self.arm, self.measure) }
    }
}

impl Sides {
    /// Whether on any side.
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
