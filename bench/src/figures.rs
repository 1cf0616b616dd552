//! From trials to figures: the median of the rounds with the least and the most of them, and whether the
//! flushes around them were slow.

use std::collections::BTreeMap;

use crate::result::{Saved, Trial};
use crate::task::Answer;

/// A flush that costs this many times the run's median is a slow one.
const SLOW: f64 = 3.0;

/// What rounds say of one thing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) rounds: usize,
    /// Rounds whose flush was slow just before or just after.
    pub(crate) slow: usize,
}

/// Trials by cell and arm.
pub(crate) struct Figures<'a> {
    by: BTreeMap<(String, String), Vec<&'a Trial>>,
    flush_us: f64,
}

impl<'a> Figures<'a> {
    pub(crate) fn new(saved: &'a Saved) -> Self {
        let mut by: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for trial in &saved.trials {
            by.entry((trial.cell.name(), trial.arm.clone())).or_default().push(trial);
        }
        let mut flushes: Vec<f64> =
            saved.trials.iter().map(|trial| trial.conditions.flush_us_before).collect();
        Self { by, flush_us: median(&mut flushes).unwrap_or(0.0) }
    }

    /// The median cost of a flush in the run.
    pub(crate) fn flush_us(&self) -> f64 {
        self.flush_us
    }

    /// Whether the flushes around a trial were slow.
    pub(crate) fn was_slow(&self, trial: &Trial) -> bool {
        let Trial { conditions, .. } = trial;
        conditions.flush_us_before.max(conditions.flush_us_after) > SLOW * self.flush_us
    }

    pub(crate) fn trials(&self, cell: &str, arm: &str) -> &[&'a Trial] {
        self.by.get(&(cell.to_owned(), arm.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// A figure of the answers of an arm in a cell; `None` if it has none.
    pub(crate) fn of(
        &self,
        cell: &str,
        arm: &str,
        what: impl Fn(&Answer) -> Option<f64>,
    ) -> Option<Figure> {
        let trials = self.trials(cell, arm);
        let found = |trial: &&&Trial| trial.answer.as_ref().and_then(&what).is_some();
        let slow = trials.iter().filter(found).filter(|trial| self.was_slow(trial)).count();
        figure(trials.iter().filter_map(|trial| what(trial.answer.as_ref()?)).collect(), slow)
    }

    /// How one arm stands to another in the same cell, round by round.
    pub(crate) fn ratio(
        &self,
        cell: &str,
        (ours, theirs): (&str, &str),
        what: impl Fn(&Answer) -> Option<f64>,
    ) -> Option<Figure> {
        let of = |arm, round| {
            let trial = self.trials(cell, arm).iter().find(|trial| trial.round == round)?;
            what(trial.answer.as_ref()?)
        };
        let rounds = self.trials(cell, ours).iter().map(|trial| trial.round);
        figure(rounds.filter_map(|round| Some(of(ours, round)? / of(theirs, round)?)).collect(), 0)
    }
}

fn figure(mut values: Vec<f64>, slow: usize) -> Option<Figure> {
    let median = median(&mut values)?;
    let (min, max) = (*values.first()?, *values.last()?);
    Some(Figure { median, min, max, rounds: values.len(), slow })
}

/// The median, the values sorted; of an even number the mean of the two in the middle.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len().checked_sub(1)? / 2;
    Some((values[middle] + values[values.len() / 2]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut []), None);
    }
}
