//! How far a measure moves from one run to the next on an unchanged disk: each change is held
//! against this. Pure. All values are logarithms, because what moves a time multiplies it.
//!
//! Some arms are moody and some are steady, and a few runs do not tell which is which: two runs
//! agree by luck now and then, and every change would stand out against them. So the variance of a
//! measure between its runs is drawn toward that of all measures, as if each had some more runs
//! like those of the others (empirical Bayes; Smyth, "Linear Models and Empirical Bayes Methods",
//! 2004, known as limma's moderated t). How many more runs is fitted, too: the more measures differ
//! in their moods, the fewer.
//!
//! What all measures of an experiment did together in a run is subtracted first (`pairing.rs`), as
//! it is no change of any single one.
//!
//! With one run of each state, nothing is known of how a measure moves between runs. Then the
//! changes of all measures have to serve, most of which are taken to be none: the yardstick is how
//! far they lie apart, within bounds, with the heavy tail that moody arms gave the runs that we
//! repeated (docs/comparing.md).

use serde::Serialize;

use super::student;

/// Fewer measures than this do not show how measures move.
pub(crate) const MEASURES_MIN: usize = 20;

/// The degrees of freedom of a yardstick that was not measured.
const FREEDOM: f64 = 5.0;
/// Bounds of fitted degrees of freedom: the tail is never so heavy that no change counts, and
/// measures that moved alike are not trusted without limit.
const FREEDOM_BOUNDS: (f64, f64) = (3.0, 12.0);
/// Bounds of the standard deviation from run to run, if it is guessed from one pair of runs: a pair
/// that is quieter was lucky, and in one that lies further apart the disk has changed.
const SPREAD_BOUNDS: (f64, f64) = (0.05, 0.12);
/// A lower standard deviation between runs than this is luck.
const SPREAD_MIN: f64 = 0.005;

/// What a measure's median does from run to run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Yardstick {
    /// Standard deviation of its logarithm, typically.
    pub spread: f64,
    /// Degrees of freedom: how much the typical one counts beside a measure's own runs.
    pub freedom: f64,
    /// Where it comes from.
    pub source: Source,
}

/// Where a yardstick comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// From the runs of each side.
    Runs,
    /// One run of each side: guessed from the changes of all measures, most taken to be none.
    Changes,
    /// Too few measures for that.
    BuiltIn,
}

/// The variance of a measure between runs of one state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    variance: f64,
    freedom: f64,
}

impl Spread {
    /// Within each side, both together; `None` if there is one run of each.
    #[must_use]
    pub fn within(sides: &[&[f64]]) -> Option<Self> {
        let freedom: usize = sides.iter().map(|side| side.len().saturating_sub(1)).sum();
        let squares = |side: &&[f64]| -> f64 {
            let mean = side.iter().sum::<f64>() / number(side.len().max(1));
            side.iter().map(|value| (value - mean).powi(2)).sum()
        };
        let squares: f64 = sides.iter().map(squares).sum();
        let freedom_number = number(freedom);
        (freedom > 0).then(|| Self { variance: squares / freedom_number, freedom: freedom_number })
    }
}

impl Yardstick {
    /// The yardstick if nothing can be measured: the upper bound of a guess.
    pub const BUILT_IN: Self =
        Self { spread: SPREAD_BOUNDS.1, freedom: FREEDOM, source: Source::BuiltIn };

    /// From the variances of measures between runs, or else from how far their changes lie apart.
    #[must_use]
    pub fn of(spreads: &[Spread], changes: &[f64]) -> Self {
        if spreads.len() >= MEASURES_MIN {
            Self::fitted(spreads)
        } else if spreads.is_empty() && changes.len() >= MEASURES_MIN {
            // The median deviation of a normal distribution, times this, is its standard deviation;
            // a change is the difference of two runs.
            let apart = 1.4826 * median(changes.iter().map(|change| change.abs()).collect());
            let spread = (apart / 2f64.sqrt()).clamp(SPREAD_BOUNDS.0, SPREAD_BOUNDS.1);
            Self { spread, freedom: FREEDOM, source: Source::Changes }
        } else {
            Self::BUILT_IN
        }
    }

    /// Fits the mean and the variance of the logarithms of variances (Smyth 2004, §6.2).
    fn fitted(spreads: &[Spread]) -> Self {
        let scaled = |spread: &Spread| {
            let half = spread.freedom / 2.0;
            spread.variance.max(SPREAD_MIN * SPREAD_MIN).ln() - student::digamma(half) + half.ln()
        };
        let logarithms: Vec<f64> = spreads.iter().map(scaled).collect();
        let n = number(spreads.len());
        let mean = logarithms.iter().sum::<f64>() / n;
        let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
        // Variances of so few runs differ by so much anyway; the rest is how much measures differ.
        let by_chance =
            spreads.iter().map(|spread| student::trigamma(spread.freedom / 2.0)).sum::<f64>() / n;
        let freedom = freedom_of(squares / (n - 1.0) - by_chance);
        let half = freedom / 2.0;
        let variance = (mean + student::digamma(half) - half.ln()).exp();
        Self { spread: variance.sqrt(), freedom, source: Source::Runs }
    }

    /// The scale for a measure with this spread of its own, in so many runs.
    #[must_use]
    pub fn scale(&self, own: Option<Spread>, old_runs: usize, new_runs: usize) -> Scale {
        let own = own.unwrap_or(Spread { variance: 0.0, freedom: 0.0 });
        let freedom = self.freedom + own.freedom;
        let variance = (self.freedom * self.spread.powi(2) + own.freedom * own.variance) / freedom;
        let runs = 1.0 / number(old_runs.max(1)) + 1.0 / number(new_runs.max(1));
        Scale { run_spread: variance.sqrt(), error: (variance * runs).sqrt(), freedom }
    }
}

/// The degrees of freedom of whose half [`student::trigamma`] is this.
fn freedom_of(trigamma: f64) -> f64 {
    let (mut low, mut high) = FREEDOM_BOUNDS;
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        // It falls with the degrees of freedom.
        if student::trigamma(middle / 2.0) > trigamma { low = middle } else { high = middle }
    }
    high
}

/// What a change of one measure is held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Standard deviation of the logarithm of its median from run to run.
    pub run_spread: f64,
    /// The standard deviation of a change.
    error: f64,
    freedom: f64,
}

impl Scale {
    /// The chance that a change goes so far beyond what counts as none, if there is none.
    #[must_use]
    pub fn chance(&self, beyond: f64) -> f64 {
        if beyond <= 0.0 { 1.0 } else { 2.0 * student::beyond(beyond / self.error, self.freedom) }
    }

    /// How far beyond a change has to go for its chance to be below this.
    #[must_use]
    pub fn reach(&self, chance: f64) -> f64 {
        self.error * student::exceeded_by(chance / 2.0, self.freedom)
    }
}

/// The median; of an even number the upper one.
///
/// # Panics
/// If there are no values.
#[must_use]
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "counts of runs and measures are small")]
#[must_use]
pub(crate) fn number(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spreads of as many measures, of which a share is so much moodier.
    fn spreads(variance: f64, moodier: f64) -> Vec<Spread> {
        // Quantiles of chi squared with four degrees of freedom, over four, roughly.
        let quantiles = [0.13, 0.27, 0.4, 0.55, 0.72, 0.92, 1.15, 1.45, 1.9, 2.9];
        let of = |(n, q): (usize, &f64)| {
            let variance = if n % 5 == 0 { variance * moodier } else { variance };
            Spread { variance: variance * q, freedom: 4.0 }
        };
        quantiles
            .iter()
            .cycle()
            .take(10 * quantiles.len())
            .enumerate()
            .map(|(n, q)| (n / 10, q))
            .map(of)
            .collect()
    }

    #[test]
    fn steady_measures_trust_each_other_and_moody_ones_do_not() {
        let alike = Yardstick::of(&spreads(0.01, 1.0), &[]);
        assert!((alike.spread - 0.1).abs() < 0.01, "{alike:?}");
        assert!((alike.freedom - FREEDOM_BOUNDS.1).abs() < 0.1, "{alike:?}");
        let moody = Yardstick::of(&spreads(0.01, 100.0), &[]);
        assert!(moody.freedom < 5.0, "{moody:?}");
        assert_eq!((alike.source, moody.source), (Source::Runs, Source::Runs));
    }

    #[test]
    fn a_measures_own_runs_count_the_more_the_more_they_are() {
        let yardstick = Yardstick { spread: 0.1, freedom: 4.0, source: Source::Runs };
        let own = |freedom| Some(Spread { variance: 0.0, freedom });
        let spread = |own| yardstick.scale(own, 3, 3).run_spread;
        assert!((spread(None) - 0.1).abs() < 1e-9);
        assert!((spread(own(4.0)) - 0.1 / 2f64.sqrt()).abs() < 1e-9);
        assert!(spread(own(400.0)) < 0.011);
    }

    #[test]
    fn more_runs_reach_smaller_changes() {
        let yardstick = Yardstick { spread: 0.1, freedom: 4.0, source: Source::Runs };
        let scale = |runs: usize| {
            let freedom = number(2 * runs - 2);
            let own = (runs > 1).then_some(Spread { variance: 0.01, freedom });
            yardstick.scale(own, runs, runs)
        };
        let reach = |runs| scale(runs).reach(0.001);
        assert!(reach(1) > 2.0 * reach(3) && reach(3) > 1.5 * reach(8));
        assert!((scale(3).chance(reach(3)) - 0.001).abs() < 1e-6);
        assert!((scale(3).chance(0.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn one_pair_of_runs_is_a_guess_within_bounds() {
        let changes = |size: f64| -> Vec<f64> {
            (0..40).map(|n| if n % 2 == 0 { size } else { -size }).collect()
        };
        let guessed = |size| Yardstick::of(&[], &changes(size));
        assert!((guessed(0.1).spread - 0.1048).abs() < 0.001);
        assert_eq!(guessed(0.1).source, Source::Changes);
        assert!((guessed(0.0).spread - SPREAD_BOUNDS.0).abs() < 1e-12, "luck");
        assert!((guessed(1.0).spread - SPREAD_BOUNDS.1).abs() < 1e-12, "changes");
        assert_eq!(Yardstick::of(&[], &[0.1; 19]), Yardstick::BUILT_IN);
    }

    #[test]
    fn runs_of_both_sides_speak_of_one_spread() {
        let spread = Spread::within(&[&[1.0, 3.0], &[10.0, 12.0, 14.0]]).unwrap();
        assert!(
            (spread.variance - 10.0 / 3.0).abs() < 1e-12 && (spread.freedom - 3.0).abs() < 1e-12
        );
        assert_eq!(Spread::within(&[&[1.0], &[2.0]]), None);
    }
}
