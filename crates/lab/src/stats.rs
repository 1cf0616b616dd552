//! Quantiles, their confidence intervals, and whether two series differ. Pure.
//!
//! No distribution is assumed and nothing is rejected as an outlier: latencies are skewed, have
//! several modes, and their outliers are the point.
//!
//! * The quantile `q` is the smallest sample that at least the share `q` of the samples do not
//!   exceed.
//! * Intervals come from order statistics: the number of samples below the true quantile is
//!   binomial (Conover, "Practical Nonparametric Statistics", §3.2).
//! * Two series are compared with the Mann–Whitney U test, as benchstat does.
//! * Of many comparisons one in twenty looks different by chance: their p values are corrected
//!   (Benjamini and Hochberg 1995).
//!
//! Samples that follow one another closely are not independent: a busy moment slows a hundred in a
//! row. So intervals of the median, and comparisons, are made from the medians of *blocks*, which
//! are short, run in random order and interleaved with those of the other arms.

/// The fewest blocks that are compared: with fewer, the normal approximation of U is poor.
pub(crate) const BLOCKS_TO_COMPARE: usize = 8;

/// How sure an interval is. A difference counts if its chance is below one less this.
pub(crate) const CONFIDENCE: f64 = 0.95;
/// Standard deviations that hold [`CONFIDENCE`] of a normal distribution.
const DEVIATIONS: f64 = 1.959_964;
/// So many samples must lie beyond a quantile before it is printed.
const BEYOND: f64 = 10.0;
/// The fewest samples that carry a median.
const MEDIAN_MIN: usize = 6;
/// Up to so many samples, ranks come from the exact binomial distribution.
const EXACT_UP_TO: usize = 1000;

/// The quantile `q` of sorted samples.
///
/// # Panics
/// If there are no samples, or `q` is not a share.
#[must_use]
pub(crate) fn quantile(sorted: &[u64], q: f64) -> u64 {
    assert!(!sorted.is_empty() && (0.0..=1.0).contains(&q), "{} samples, q {q}", sorted.len());
    let rank = (q * count(sorted.len())).ceil();
    sorted[index(rank).clamp(1, sorted.len()) - 1]
}

/// Whether `n` samples can carry the quantile `q`: ten of them must lie beyond it. A median needs
/// six, the fewest that give it an interval.
#[must_use]
pub(crate) fn carries(n: usize, q: f64) -> bool {
    if q <= 0.5 {
        return n >= MEDIAN_MIN;
    }
    // 0.999 has no exact binary form, so ten of ten thousand samples may look like fewer than ten.
    count(n) * (1.0 - q) >= BEYOND - 1e-6
}

/// The 95 % confidence interval of quantile `q`, or `None` if there are too few samples for one.
#[must_use]
pub(crate) fn quantile_interval(sorted: &[u64], q: f64) -> Option<(u64, u64)> {
    let n = sorted.len();
    let (below, above) = if n <= EXACT_UP_TO { exact_ranks(n, q)? } else { normal_ranks(n, q)? };
    Some((sorted[below - 1], sorted[above - 1]))
}

/// Ranks r < s such that the true quantile lies between the r-th and s-th sample.
fn exact_ranks(n: usize, q: f64) -> Option<(usize, usize)> {
    let tail = (1.0 - CONFIDENCE) / 2.0;
    // cumulative[k] = chance that at most k of n samples lie below the true quantile
    let mut cumulative = Vec::with_capacity(n + 1);
    let mut sum = 0.0;
    let mut log_choose = 0.0f64;
    for k in 0..=n {
        if k > 0 {
            log_choose += (count(n - k + 1) / count(k)).ln();
        }
        sum += (log_choose + count(k) * q.ln() + count(n - k) * (1.0 - q).ln()).exp();
        cumulative.push(sum);
    }
    let below = cumulative.iter().take_while(|&&chance| chance <= tail).count();
    let above = cumulative.iter().position(|&chance| chance >= 1.0 - tail)? + 1;
    (below >= 1 && above <= n).then_some((below, above))
}

fn normal_ranks(n: usize, q: f64) -> Option<(usize, usize)> {
    let (mean, deviation) = (count(n) * q, (count(n) * q * (1.0 - q)).sqrt());
    let below = (mean - DEVIATIONS * deviation).floor();
    let above = (mean + DEVIATIONS * deviation).ceil() + 1.0;
    (below >= 1.0 && above <= count(n)).then(|| (index(below), index(above)))
}

/// The two-sided chance that series this different come from one source, by the Mann–Whitney U
/// test with the normal approximation, corrected for ties and continuity.
#[must_use]
pub(crate) fn mann_whitney(a: &[u64], b: &[u64]) -> f64 {
    let (na, nb) = (count(a.len()), count(b.len()));
    let n = na + nb;
    let mut all: Vec<_> =
        a.iter().map(|&v| (v, true)).chain(b.iter().map(|&v| (v, false))).collect();
    all.sort_unstable();
    let mut rank_sum_a = 0.0;
    let mut ties = 0.0;
    let mut ranked = 0;
    for group in all.chunk_by(|x, y| x.0 == y.0) {
        let size = count(group.len());
        let mean_rank = count(ranked) + (size + 1.0) / 2.0;
        rank_sum_a += mean_rank * count(group.iter().filter(|sample| sample.1).count());
        ties += size.powi(3) - size;
        ranked += group.len();
    }
    let u = rank_sum_a - na * (na + 1.0) / 2.0;
    let variance = na * nb / 12.0 * ((n + 1.0) - ties / (n * (n - 1.0)));
    if variance.is_nan() || variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u - na * nb / 2.0).abs() - 0.5).max(0.0);
    erfc(distance / variance.sqrt() / std::f64::consts::SQRT_2)
}

/// Whether two series of block medians differ, or `None` if there are too few blocks to say.
#[must_use]
pub(crate) fn differ(a: &[u64], b: &[u64]) -> Option<bool> {
    (a.len().min(b.len()) >= BLOCKS_TO_COMPARE).then(|| mann_whitney(a, b) < 1.0 - CONFIDENCE)
}

/// The p values corrected for their number, in the order given. Of those below a share, at most
/// that share is there by chance. If nothing at all differs, that share is the chance that any is
/// below it (Benjamini and Hochberg, "Controlling the False Discovery Rate", 1995).
#[must_use]
pub(crate) fn benjamini_hochberg(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut least = 1.0f64;
    for (rank, &place) in order.iter().enumerate().rev() {
        least = least.min(p_values[place] * count(p_values.len()) / count(rank + 1));
        corrected[place] = least;
    }
    corrected
}

/// The complementary error function, with an error below 1.2e-7 (Press et al., "Numerical Recipes",
/// §6.2).
fn erfc(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + x.abs() / 2.0);
    let polynomial = COEFFICIENTS.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let tail = t * (polynomial - x * x).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

#[expect(clippy::cast_precision_loss, reason = "counts of samples are far below 2^52")]
fn count(n: usize) -> f64 {
    n as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks are whole and at least zero"
)]
fn index(rank: f64) -> usize {
    rank as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let sorted = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(quantile(&sorted, 0.5), 5);
        assert_eq!(quantile(&sorted, 0.9), 9);
        assert_eq!(quantile(&sorted, 0.91), 10);
        assert_eq!(quantile(&sorted, 0.0), 1);
        assert_eq!(quantile(&sorted, 1.0), 10);
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        assert!(carries(10_000, 0.999) && !carries(9_999, 0.999));
        assert!(carries(1_000, 0.99) && !carries(999, 0.99));
        assert!(carries(6, 0.5) && !carries(5, 0.5));
    }

    #[test]
    fn median_interval_matches_the_binomial_table() {
        // Ranks from the binomial distribution with p = 1/2: of ten the 2nd and 9th, of twenty the
        // 6th and 15th; five samples cannot carry an interval, six can.
        let sorted: Vec<u64> = (1..=20).collect();
        assert_eq!(quantile_interval(&sorted[..10], 0.5), Some((2, 9)));
        assert_eq!(quantile_interval(&sorted, 0.5), Some((6, 15)));
        assert_eq!(quantile_interval(&sorted[..5], 0.5), None);
        assert_eq!(quantile_interval(&sorted[..6], 0.5), Some((1, 6)));
    }

    #[test]
    fn exact_and_normal_ranks_agree_where_they_meet() {
        for q in [0.5, 0.9, 0.99] {
            let (exact, normal) = (exact_ranks(1000, q).unwrap(), normal_ranks(1000, q).unwrap());
            assert!(exact.0.abs_diff(normal.0) <= 2 && exact.1.abs_diff(normal.1) <= 2, "{q}");
        }
    }

    #[test]
    fn mann_whitney_agrees_with_scipy() {
        // scipy.stats.mannwhitneyu, two-sided, asymptotic: U = 2, p = 0.012592.
        let (a, b) = ([3, 4, 2, 6, 2, 5], [9, 7, 5, 10, 6, 8]);
        let p = mann_whitney(&a, &b);
        assert!((p - 0.012_592).abs() < 1e-6, "{p}");
    }

    #[test]
    fn one_source_does_not_differ_from_itself() {
        let blocks: Vec<u64> = (100..130).collect();
        assert_eq!(differ(&blocks, &blocks), Some(false));
        assert_eq!(differ(&[7; 20], &[7; 20]), Some(false));
    }

    #[test]
    fn a_shift_shows_and_too_few_blocks_say_nothing() {
        let quick: Vec<u64> = (100..120).collect();
        let slow: Vec<u64> = (140..160).collect();
        assert_eq!(differ(&quick, &slow), Some(true));
        assert_eq!(differ(&quick[..7], &slow), None);
    }

    #[test]
    fn p_values_are_corrected_as_defined() {
        // Sorted: 5 × 0.005/1, 0.01/2, 0.03/3, 0.04/4, 0.8/5; from the end, never growing.
        let corrected = benjamini_hochberg(&[0.01, 0.04, 0.03, 0.005, 0.8]);
        for (ours, by_hand) in corrected.iter().zip([0.025, 0.05, 0.05, 0.025, 0.8]) {
            assert!((ours - by_hand).abs() < 1e-12, "{corrected:?}");
        }
        assert!(benjamini_hochberg(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn correction_never_makes_a_difference_surer(p in prop::collection::vec(0.0f64..1.0, 1..60)) {
            let corrected = benjamini_hochberg(&p);
            for (p, corrected) in p.iter().zip(&corrected) {
                prop_assert!(*corrected >= p - 1e-12 && *corrected <= 1.0);
            }
        }

        #[test]
        fn comparison_is_symmetric(
            a in prop::collection::vec(0u64..50, 8..40),
            b in prop::collection::vec(0u64..50, 8..40),
        ) {
            let (ab, ba) = (mann_whitney(&a, &b), mann_whitney(&b, &a));
            prop_assert!((ab - ba).abs() < 1e-9 && (0.0..=1.0 + 1e-6).contains(&ab));
        }

        #[test]
        fn an_interval_holds_its_quantile(
            mut samples in prop::collection::vec(0u64..1000, 20..300),
            q in 0.1f64..0.9,
        ) {
            samples.sort_unstable();
            if let Some((low, high)) = quantile_interval(&samples, q) {
                let middle = quantile(&samples, q);
                prop_assert!(low <= middle && middle <= high);
            }
        }
    }
}
