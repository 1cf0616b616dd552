//! From the results of the arms to sentences, and to a verdict on the article's claim. Pure.

use std::time::Duration;

use super::plan::{MIB, SYNC, SmallWrite, WRITE, WRITE_BYTES};
use crate::claim::{Claim, Holds};
use crate::counters::nanoseconds;
use crate::result::ArmResult;
use crate::stats;
use crate::summary::Summary;
use crate::units;
use crate::warning::Kind;

/// A write that takes so long is stalled; one that takes the longer time is stalled as in the
/// article.
const STALL: Duration = Duration::from_millis(100);
const LONG_STALL: Duration = Duration::from_secs(1);

/// A sync that takes so many times as long waits for the random writes.
const WAITS: f64 = 2.0;

pub(super) fn answer(
    small_writes: &[SmallWrite],
    arms: &[ArmResult],
    held_up_from: Option<u64>,
) -> (Vec<String>, Option<Claim>) {
    let find = |torture: bool, write_bytes: u64| {
        let write = SmallWrite { torture, write_bytes };
        let arm = &arms[small_writes.iter().position(|&s| s == write)?];
        Some(arm).filter(|arm| arm.valid && arm.summaries[0].n > 0)
    };
    let pairs: Vec<(&ArmResult, &ArmResult)> =
        WRITE_BYTES.iter().filter_map(|&bytes| find(false, bytes).zip(find(true, bytes))).collect();
    let mut answer: Vec<String> =
        pairs.iter().filter_map(|(quiet, torture)| beside(quiet, torture)).collect();
    let dirty = arms.iter().filter_map(|arm| arm.values.get("dirty_mib_max")).copied();
    let dirty_mib = dirty.reduce(f64::max);
    let from_mib = held_up_from.map(|bytes| units::ratio(bytes, MIB));
    let reached = dirty_mib.zip(from_mib).map(|(dirty, from)| dirty >= from);
    if let (Some(dirty), Some(from), Some(reached)) = (dirty_mib, from_mib, reached) {
        let so = if reached {
            "so they were"
        } else {
            "so what stalled the article's write cannot show in this run"
        };
        answer.push(format!(
            "Up to {dirty:.0} MiB were dirty; the kernel holds writers up from about {from:.0} MiB on, \
             {so}."
        ));
    }
    let claim = claim(&pairs, reached);
    answer.extend(claim.as_ref().map(Claim::in_words));
    (answer, claim)
}

/// `4 KiB: beside random writes at 210 MiB/s the write takes …`
fn beside(quiet: &ArmResult, torture: &ArmResult) -> Option<String> {
    let part = |number: usize| {
        let (quiet, torture) = (&quiet.summaries[number], &torture.summaries[number]);
        let (quiet_ns, ns) = (middle(quiet)?, middle(torture)?);
        let same = match torture.differs_from(quiet) {
            Some(false) => ", no difference seen",
            Some(true) | None => "",
        };
        Some(format!(
            "{} (alone {}{same}), at most {} (alone {})",
            units::time(ns),
            units::time(quiet_ns),
            units::time(torture.max_ns?),
            units::time(quiet.max_ns?)
        ))
    };
    let rate = torture
        .values
        .get("writer_mib_s")
        .map_or_else(String::new, |rate| format!(" at {} MiB/s", units::figure(*rate)));
    Some(format!(
        "{}: beside random writes{rate} a write takes {}; its sync {}.",
        units::bytes(torture.payload_bytes),
        part(WRITE)?,
        part(SYNC)?
    ))
}

/// The article's claim, and what was found here. `reached` says whether enough was dirty for the
/// claim to show.
fn claim(pairs: &[(&ArmResult, &ArmResult)], reached: Option<bool>) -> Option<Claim> {
    let slowest = |number: usize| {
        pairs.iter().filter_map(|(_, torture)| torture.summaries[number].max_ns).max()
    };
    let (write_ns, sync_ns) = (slowest(WRITE)?, slowest(SYNC)?);
    let writes: usize = pairs.iter().map(|(_, torture)| torture.summaries[WRITE].n).sum();
    let (verdict, dirty) = if write_ns >= nanoseconds(LONG_STALL) {
        (Holds::Holds, "")
    } else if write_ns >= nanoseconds(STALL) {
        (Holds::InPart, "")
    } else if reached == Some(false) {
        (Holds::Undecided, ", with less dirty than what makes the kernel hold writers up")
    } else {
        (Holds::DoesNotHold, "")
    };
    let waiting = |(quiet, torture): &(&ArmResult, &ArmResult)| {
        let (quiet, torture) = (&quiet.summaries[SYNC], &torture.summaries[SYNC]);
        let factor = units::ratio(middle(torture)?, middle(quiet)?);
        (factor >= WAITS && torture.differs_from(quiet) != Some(false)).then_some(factor)
    };
    let syncs = match pairs.iter().filter_map(waiting).reduce(f64::max) {
        Some(factor) if write_ns < nanoseconds(STALL) => {
            format!(
                ", what waits is the sync, {} times as long at the median",
                units::figure(factor)
            )
        }
        Some(factor) => format!(", syncs take up to {} times as long", units::figure(factor)),
        None => String::new(),
    };
    // Arms with the random writer always wait for a CPU; the control shows whether others use it.
    let noisy = |(quiet, _): &(&ArmResult, &ArmResult)| {
        quiet.warnings.iter().any(|warning| warning.kind == Kind::Noisy)
    };
    let but = if pairs.iter().any(noisy) {
        "; but the machine was busy, also for the control: measure again on a quiet one"
    } else {
        ""
    };
    let here = format!(
        "the slowest of {writes} writes took {}{dirty}, the slowest sync {}{syncs}{but}",
        units::time(write_ns),
        units::time(sync_ns)
    );
    let claim = "small writes stall behind random writeback (128.9 s for one, xfs in 2011)";
    Some(Claim { article: 2, claim: claim.to_owned(), claimed_ns: None, here, verdict })
}

/// The median of the samples, or that of the blocks if there are too few samples.
fn middle(summary: &Summary) -> Option<u64> {
    let blocks = &summary.block_p50_ns;
    summary.p50_ns.or_else(|| (!blocks.is_empty()).then(|| stats::quantile(blocks, 0.5)))
}

#[cfg(test)]
mod tests {
    use plimsoll_sync::Promise;

    use super::super::plan::PAGE;
    use super::*;
    use crate::result::Machine;

    /// An arm whose writes and syncs take so long, at the median and at most.
    fn arm(
        write: SmallWrite,
        write_ns: (u64, u64),
        sync_ns: (u64, u64),
        dirty_mib: f64,
    ) -> ArmResult {
        let summary = |(p50, max): (u64, u64)| Summary {
            n: 100,
            p50_ns: Some(p50),
            max_ns: Some(max),
            block_p50_ns: (0..10).map(|block| p50 + block).collect(),
            ..Summary::default()
        };
        let values = [("writer_mib_s", 200.0), ("dirty_mib_max", dirty_mib)];
        ArmResult {
            name: write.name(),
            method: "fsync".to_owned(),
            layout: "overwritten".to_owned(),
            promise: Promise::Media.name().to_owned(),
            payload_bytes: write.write_bytes,
            blocks: 10,
            durable_operations: 100,
            valid: true,
            summaries: [sync_ns, write_ns, sync_ns].map(summary).into(),
            per_operation: None,
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
            machine: Machine::default(),
            attribution: None,
            series: None,
            warnings: Vec::new(),
        }
    }

    fn answer_of(write_max_ns: u64, sync_ns: u64, dirty_mib: f64) -> String {
        let small_writes = [false, true].map(|torture| SmallWrite { torture, write_bytes: PAGE });
        let quiet = arm(small_writes[0], (2_000, 9_000), (50_000, 90_000), 1.0);
        let torture = arm(small_writes[1], (2_000, write_max_ns), (sync_ns, 80_000_000), dirty_mib);
        answer(&small_writes, &[quiet, torture], Some(3000 * MIB)).0.join("\n")
    }

    #[test]
    fn writes_that_do_not_stall_beside_syncs_that_do_are_told_apart() {
        let answer = answer_of(700_000, 4_000_000, 3500.0);
        assert!(answer.contains("does not hold here"), "{answer}");
        assert!(answer.contains("what waits is the sync, 80 times as long"), "{answer}");
        assert!(answer.contains("alone 2.00 µs, no difference seen"), "{answer}");
        assert!(answer.contains("at 200 MiB/s"), "{answer}");
    }

    #[test]
    fn a_stall_of_seconds_is_the_articles() {
        let answer = answer_of(128_930_500_000, 2_600_000_000, 3500.0);
        assert!(answer.contains("here the slowest of 100 writes took 129 s"), "{answer}");
        assert!(answer.ends_with(": holds here."), "{answer}");
        assert!(answer_of(200_000_000, 50_000, 3500.0).contains("holds here in part"));
    }

    #[test]
    fn what_could_not_show_is_not_said_to_be_absent() {
        let answer = answer_of(700_000, 60_000, 300.0);
        assert!(answer.contains("cannot show in this run"), "{answer}");
        assert!(
            answer.contains("not decided here") && !answer.contains("does not hold"),
            "{answer}"
        );
        assert!(!answer.contains("what waits is the sync"), "{answer}");
    }
}
