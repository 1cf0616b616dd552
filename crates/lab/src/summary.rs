//! From the blocks of an arm to the distribution of one measure. Pure.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::runner::{Block, block_medians};
use crate::stats;

/// Significant decimal digits of saved distributions: values are kept to within 1 %.
const HISTOGRAM_DIGITS: u8 = 2;

/// The distribution of one measure of an arm. Times are nanoseconds. A percentile that the number
/// of samples cannot carry is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// What was measured.
    pub measure: String,
    /// How many samples.
    pub n: usize,
    /// The median.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50_ns: Option<u64>,
    /// Where the median lies with 95 % confidence, by order statistics of the block medians.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50_ci95_ns: Option<(u64, u64)>,
    /// The 90th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p90_ns: Option<u64>,
    /// The 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_ns: Option<u64>,
    /// Where the 99th percentile lies with 95 % confidence, by order statistics of the samples: an
    /// optimistic interval, because slow samples come in groups.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_ci95_ns: Option<(u64, u64)>,
    /// The 99.9th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p999_ns: Option<u64>,
    /// The fastest sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_ns: Option<u64>,
    /// The slowest sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_ns: Option<u64>,
    /// The median of each block, sorted. Comparisons are made from these.
    pub block_p50_ns: Vec<u64>,
    /// The distribution: a value in nanoseconds, to within 1 %, and how often it occurred.
    pub histogram: Vec<(u64, u64)>,
}

impl Summary {
    /// Summarises the samples of `measure`: the list `number` of each block.
    #[must_use]
    pub fn of(measure: &str, blocks: &[Block], number: usize) -> Self {
        let mut sorted: Vec<u64> =
            blocks.iter().flat_map(|block| &block.samples[number]).copied().collect();
        sorted.sort_unstable();
        let block_p50_ns = block_medians(blocks, number);
        let at = |q: f64| stats::carries(sorted.len(), q).then(|| stats::quantile(&sorted, q));
        let p99_ns = at(0.99);
        Self {
            measure: measure.to_owned(),
            n: sorted.len(),
            p50_ns: at(0.5),
            p50_ci95_ns: at(0.5).zip(stats::quantile_interval(&block_p50_ns, 0.5)).map(
                // Blocks differ in size, so the median of all samples may lie outside the interval.
                |(p50, (low, high))| (low.min(p50), high.max(p50)),
            ),
            p90_ns: at(0.9),
            p99_ns,
            p99_ci95_ns: p99_ns.and_then(|_| stats::quantile_interval(&sorted, 0.99)),
            p999_ns: at(0.999),
            min_ns: sorted.first().copied(),
            max_ns: sorted.last().copied(),
            block_p50_ns,
            histogram: histogram(&sorted),
        }
    }

    /// Whether the medians of two arms differ, as far as their blocks can say.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> Option<bool> {
        stats::differ(&self.block_p50_ns, &other.block_p50_ns)
    }
}

fn histogram(samples: &[u64]) -> Vec<(u64, u64)> {
    let mut histogram: Histogram<u64> =
        Histogram::new(HISTOGRAM_DIGITS).expect("two digits are allowed");
    for &sample in samples {
        histogram.record(sample).expect("it grows with its values");
    }
    histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(samples: &[Vec<u64>]) -> Vec<Block> {
        samples.iter().map(|samples| Block::from_samples(vec![samples.clone()])).collect()
    }

    #[test]
    fn percentiles_that_the_samples_cannot_carry_are_absent() {
        let summary = Summary::of("write", &blocks(&[(0..150).collect(), (0..150).collect()]), 0);
        assert_eq!(summary.n, 300);
        assert_eq!((summary.p50_ns, summary.p90_ns), (Some(74), Some(134)));
        assert_eq!((summary.p99_ns, summary.p999_ns, summary.p99_ci95_ns), (None, None, None));
        assert_eq!(summary.max_ns, Some(149));
        let json = serde_json::to_string(&summary).unwrap();
        assert!(json.contains("p50_ns") && !json.contains("p99"), "{json}");
    }

    #[test]
    fn nothing_measured_is_nothing_said() {
        let summary = Summary::of("write", &blocks(&[vec![]]), 0);
        assert_eq!((summary.n, summary.p50_ns, summary.max_ns), (0, None, None));
        assert!(summary.block_p50_ns.is_empty());
    }

    #[test]
    fn the_interval_of_the_median_is_of_blocks() {
        let slow_and_quick: Vec<Vec<u64>> = (0..10).map(|b| vec![100 + b; 50]).collect();
        let summary = Summary::of("write", &blocks(&slow_and_quick), 0);
        assert_eq!(summary.p50_ci95_ns, Some((101, 108)));
    }

    #[test]
    fn the_interval_holds_the_median_that_is_printed_with_it() {
        let mut samples: Vec<Vec<u64>> = (0..10).map(|_| vec![100; 3]).collect();
        samples.push(vec![900; 200]);
        let summary = Summary::of("write", &blocks(&samples), 0);
        let (low, high) = summary.p50_ci95_ns.unwrap();
        assert!((low..=high).contains(&summary.p50_ns.unwrap()), "{summary:?}");
    }

    #[test]
    fn the_histogram_keeps_every_sample_to_within_a_percent() {
        let summary =
            Summary::of("write", &blocks(&[vec![5, 1_000_000, 1_000_100, 77_777_777]]), 0);
        let total: u64 = summary.histogram.iter().map(|bucket| bucket.1).sum();
        assert_eq!(total, 4);
        let last = summary.histogram.last().unwrap().0;
        assert!(last.abs_diff(77_777_777) < 777_778, "{last}");
    }
}
