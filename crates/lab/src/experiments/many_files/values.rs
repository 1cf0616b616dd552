//! From the results of the arms to the values that compare them. Pure.

use super::way::{BASELINE, Way};
use crate::arm_result::ArmResult;
use crate::stats;
use crate::summary::Summary;
use crate::units;

/// A value of the arm whose fsyncs are not tied to their writes: how many completed before their
/// own write did, in all samples.
pub(super) const TOO_EARLY: &str = "fsyncs_before_their_write";

/// The median of the samples. Each is of many files, so it is told even if there are too few
/// samples for a table.
#[must_use]
pub(super) fn median(summary: &Summary) -> Option<u64> {
    let blocks = &summary.block_p50_ns;
    (!blocks.is_empty()).then(|| stats::quantile(blocks, 0.5))
}

pub(super) fn total(arm: &ArmResult) -> Option<u64> {
    median(arm.summaries.first()?)
}

/// The valid arm of a way.
pub(super) fn find(arms: &[(Way, ArmResult)], way: Way) -> Option<&ArmResult> {
    arms.iter().find(|(found, arm)| *found == way && arm.valid).map(|(_, arm)| arm)
}

/// Adds to each arm how many times as fast as the baseline it is.
pub(super) fn with_speedup(mut arms: Vec<(Way, ArmResult)>) -> Vec<(Way, ArmResult)> {
    let Some(baseline) = find(&arms, BASELINE).and_then(total) else { return arms };
    for (_, arm) in &mut arms {
        if let Some(total) = total(arm) {
            arm.values.insert("speedup".to_owned(), units::ratio(baseline, total));
        }
    }
    arms
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use plimsoll_sync::{Promise, System};

    use super::super::way::{RECORD_BYTES, TRAP};
    use super::*;
    use crate::arm_result::Machine;
    use crate::layout::Layout;

    pub(in super::super) fn arm(way: Way, total_us: u64) -> (Way, ArmResult) {
        let promise = way.method().promise(System::Linux).unwrap_or(Promise::Nothing);
        let mut values = BTreeMap::new();
        if way == TRAP {
            values.insert(TOO_EARLY.to_owned(), 3.0);
        }
        let block_p50_ns = vec![total_us * 1000; 20];
        let summary = Summary { n: 20, block_p50_ns, ..Summary::default() };
        let arm = ArmResult {
            name: way.name(),
            method: way.method().name().to_owned(),
            layout: Layout::Append.name().to_owned(),
            promise: promise.name().to_owned(),
            payload_bytes: RECORD_BYTES as u64,
            blocks: 20,
            durable_operations: 2000,
            valid: true,
            summaries: vec![summary],
            per_operation: None,
            values,
            machine: Machine::default(),
            attribution: None,
            series: None,
            warnings: Vec::new(),
        };
        (way, arm)
    }

    #[test]
    fn a_speedup_needs_something_to_compare_with() {
        let arms = with_speedup(vec![arm(Way::Syncfs, 10)]);
        assert!(!arms[0].1.values.contains_key("speedup"));
        let arms = with_speedup(vec![arm(BASELINE, 40), arm(Way::Syncfs, 10)]);
        assert!((arms[1].1.values["speedup"] - 4.0).abs() < 1e-9);
    }
}
