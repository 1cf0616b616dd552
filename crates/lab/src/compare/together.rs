//! What all measures of an experiment did together, and which changes count as none. Pure.

use std::collections::BTreeMap;

use super::yardstick;

/// The smallest change of a median that counts, as a share. The lab measures medians to ± 5 %.
pub(super) const SMALLEST: f64 = 0.05;
/// From one run to the next on one disk, all measures together move by at most this (25 %, as a
/// logarithm). If they moved further, the disk has changed.
pub(crate) const TOGETHER_MAX: f64 = 0.223;

/// Fewer measures than this do not show what an experiment did as a whole.
pub(super) const TOGETHER_MEASURES: usize = 8;

/// What all measures of an experiment did together: their median change, as a logarithm.
/// Experiments run one after the other, so each meets the machine in another mood.
pub(super) fn together<'a>(changes: impl Iterator<Item = (&'a str, f64)>) -> BTreeMap<String, f64> {
    let mut of_experiments: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (experiment, change) in changes {
        of_experiments.entry(experiment).or_default().push(change);
    }
    of_experiments
        .into_iter()
        .filter(|(_, changes)| changes.len() >= TOGETHER_MEASURES)
        .map(|(name, changes)| (name.to_owned(), yardstick::median(changes)))
        .collect()
}

/// The changes that count as none, as logarithms: those near zero, those near what all measures did
/// together, and all between the two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nothing {
    pub(super) centre: f64,
    fastest: f64,
    pub(super) slowest: f64,
}

impl Nothing {
    pub(super) fn of(together: Option<f64>) -> Self {
        let centre = together.unwrap_or(0.0).clamp(-TOGETHER_MAX, TOGETHER_MAX);
        let near = SMALLEST.ln_1p();
        Self { centre, fastest: centre.min(0.0) - near, slowest: centre.max(0.0) + near }
    }

    /// How far a change lies beyond those that count as none; at most zero if it is one of them.
    pub(super) fn beyond(self, change: f64) -> f64 {
        (change - self.slowest).max(self.fastest - change)
    }
}
