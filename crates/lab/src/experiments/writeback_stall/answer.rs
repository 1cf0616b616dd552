//! From the results of the arms to sentences, and to a verdict on the article's claim. Pure.

use std::time::Duration;

use super::plan::{MIB, SYNC, SmallWrite, WRITE, WRITE_BYTES};
use crate::arm_result::{ArmResult, busy_mark_of};
use crate::claim::{Article, Claim, Holds};
use crate::counters::nanoseconds;
use crate::stats;
use crate::summary::Summary;
use crate::units;
use crate::verdict;
use crate::warning::busy_stamp;

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
    let pairs = pairs(small_writes, arms);
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

/// The control and the arm beside the random writer, of each size that has both.
fn pairs<'a>(
    small_writes: &[SmallWrite],
    arms: &'a [ArmResult],
) -> Vec<(&'a ArmResult, &'a ArmResult)> {
    let find = |torture: bool, write_bytes: u64| {
        let write = SmallWrite { torture, write_bytes };
        let arm = &arms[small_writes.iter().position(|&s| s == write)?];
        Some(arm).filter(|arm| arm.valid && arm.summaries[0].n > 0)
    };
    WRITE_BYTES.iter().filter_map(|&bytes| find(false, bytes).zip(find(true, bytes))).collect()
}

/// What random writes do to a small sync, for a line of a screen.
pub(super) fn in_short(small_writes: &[SmallWrite], arms: &[ArmResult]) -> Option<String> {
    let pairs = pairs(small_writes, arms);
    let (quiet, torture) = *pairs.first()?;
    Some(format!(
        "beside random writes a sync of {} takes {}, alone {}{}",
        units::bytes(torture.payload_bytes),
        units::time(middle(&torture.summaries[SYNC])?),
        units::time(middle(&quiet.summaries[SYNC])?),
        busy_mark_of(&[quiet, torture])
    ))
}

/// Why nothing can be said, if a control was not left in peace, or was slower than what it is the
/// control of: a clause that says what to do. Arms with the random writer always wait for a CPU.
fn unknown_because(pairs: &[(&ArmResult, &ArmResult)]) -> Option<String> {
    let controls: Vec<&ArmResult> = pairs.iter().map(|(quiet, _)| *quiet).collect();
    let slower = |(quiet, torture): &(&ArmResult, &ArmResult)| {
        let (quiet_sync, sync) = (&quiet.summaries[SYNC], &torture.summaries[SYNC]);
        let (quiet_ns, ns) = (middle(quiet_sync)?, middle(sync)?);
        let contradicts =
            units::ratio(quiet_ns, ns) >= WAITS && sync.differs_from(quiet_sync) == Some(true);
        contradicts.then(|| {
            format!(
                "a sync took {} in {} and only {} in {}, so something else held it up: measure again \
                 on a quiet machine",
                units::time(quiet_ns),
                quiet.name,
                units::time(ns),
                torture.name
            )
        })
    };
    verdict::disturbed(&controls).or_else(|| pairs.iter().find_map(slower))
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
        "{}: beside random writes{rate} a write takes {}; its sync {}{}.",
        units::bytes(torture.payload_bytes),
        part(WRITE)?,
        part(SYNC)?,
        busy_stamp(quiet.is_noisy() || torture.is_noisy())
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
    let verdict = match write_ns {
        ns if ns >= nanoseconds(LONG_STALL) => Holds::Holds,
        ns if ns >= nanoseconds(STALL) => Holds::InPart,
        _ => Holds::DoesNotHold,
    };
    let could_not_show = verdict == Holds::DoesNotHold && reached == Some(false);
    let too_little = could_not_show.then_some(
        "less was dirty than makes the kernel hold writers up: run it with --profile article",
    );
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
    let here = format!(
        "the slowest of {writes} writes took {}, the slowest sync {}{syncs}",
        units::time(write_ns),
        units::time(sync_ns)
    );
    let claim =
        "small writes stall behind random writeback (128.9 s for one, xfs in 2011)".to_owned();
    let claim = Claim::new(Article::TortureProgram, claim, here, verdict);
    Some(claim.unless(unknown_because(pairs)).unless(too_little.map(str::to_owned)))
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
    use crate::arm_result::Machine;
    use crate::warning::{Kind, Warning};

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
        let unknown =
            "not known here, because less was dirty than makes the kernel hold writers up: run";
        assert!(answer.contains(unknown) && !answer.contains("does not hold"), "{answer}");
        assert!(!answer.contains("what waits is the sync"), "{answer}");
    }

    /// "Does not hold here" was said of arms that were stamped as busy.
    #[test]
    fn a_busy_control_or_one_that_is_slower_than_its_torture_makes_no_verdict() {
        let small_writes = [false, true].map(|torture| SmallWrite { torture, write_bytes: PAGE });
        let quiet = |sync_ns| arm(small_writes[0], (2_000, 9_000), (sync_ns, 90_000_000), 1.0);
        let torture = arm(small_writes[1], (2_000, 9_000), (50_000, 90_000), 3500.0);
        let mut busy = quiet(50_000);
        busy.warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
        let why =
            ["quiet/4KiB was measured on a busy machine", "a sync took 4.00 ms in quiet/4KiB and"];
        for (control, why) in [busy, quiet(4_000_000)].into_iter().zip(why) {
            let arms = [control, torture.clone()];
            let said = answer(&small_writes, &arms, Some(3000 * MIB)).0.join("\n");
            assert!(said.contains(&format!("not known here, because {why}")), "{said}");
            assert!(!said.contains("hold here"), "{said}");
        }
    }
}
