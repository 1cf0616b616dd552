//! From the trials of an arm to its values, and from all arms to the knee. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::{AT_RISK, MIB, Schedule, Syncer, Trial, When};
use crate::arm_result::ArmResult;
use crate::stats;
use crate::summary::Summary;
use crate::units;
use crate::verdict;

/// An interval that costs so many times as much as a smaller one was held up by something else.
const HELD_UP: u64 = 2;

/// The values of an arm whose trials wrote `written` bytes at the median, if 1 MiB with one sync at
/// the end takes `end_ns`.
pub(super) fn values(
    schedule: Schedule,
    trial: Trial,
    summaries: &[Summary],
    written: Option<u64>,
    end_ns: Option<u64>,
) -> BTreeMap<String, f64> {
    let ns = median(&summaries[0].block_p50_ns);
    let at_risk_ns = median(&summaries[AT_RISK].block_p50_ns);
    let values = [
        ("at_risk_bytes", Some(units::ratio(schedule.at_risk_bytes(trial.bytes), 1))),
        ("at_risk_ms", at_risk_ns.map(|ns| units::ratio(ns, 1_000_000))),
        ("throughput_mib_s", ns.map(|ns| units::ratio(1_000_000_000, ns))),
        ("cost_over_end", ns.zip(end_ns).map(|(ns, end_ns)| units::ratio(ns, end_ns))),
        ("trial_mib", written.map(|bytes| units::ratio(bytes, MIB))),
    ];
    let known = |(name, value): (&str, Option<f64>)| Some((name.to_owned(), value?));
    values.into_iter().filter_map(known).collect()
}

/// The time for 1 MiB, if a trial wrote `written` bytes in `time`.
pub(super) fn per_mib(time: Duration, written: u64) -> Duration {
    let ns = time.as_nanos() * u128::from(MIB) / u128::from(written.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

pub(super) fn median(sorted: &[u64]) -> Option<u64> {
    (!sorted.is_empty()).then(|| stats::quantile(sorted, 0.5))
}

/// What an interval costs, compared with one sync at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Price {
    /// Under 10 % more.
    Cheap,
    /// At least 10 % more, and the trials differ.
    Dear,
    /// Perhaps more: the trials do not differ, or there are too few of them.
    Unclear,
}

/// The price of an interval, from sorted times of trials with one sync at the end and with this
/// interval.
pub(super) fn price(end: &[u64], interval: &[u64]) -> Price {
    let (Some(end_ns), Some(ns)) = (median(end), median(interval)) else {
        return Price::Unclear;
    };
    let cheap = u128::from(ns) * 10 < u128::from(end_ns) * 11;
    match (cheap, stats::differ(end, interval)) {
        (true, Some(_)) => Price::Cheap,
        (false, Some(true)) => Price::Dear,
        (false, Some(false)) | (_, None) => Price::Unclear,
    }
}

/// Which of `sweep`, largest interval first, is the smallest that is cheap with no dear one above
/// it. A cheap interval below a dear one would be luck.
pub(super) fn knee(end: &[u64], sweep: &[&[u64]]) -> Option<usize> {
    let prices = sweep.iter().map(|interval| price(end, interval));
    let before_dear = prices.enumerate().take_while(|&(_, price)| price != Price::Dear);
    before_dear.filter(|&(_, price)| price == Price::Cheap).map(|(place, _)| place).last()
}

/// What is looked at for the knee of `sweep`: `end`, and all intervals down to the first dear one.
pub(super) fn looked_at<'a>(
    end: &'a ArmResult,
    sweep: &[(u64, &'a ArmResult)],
) -> Vec<&'a ArmResult> {
    let is_dear = |arm: &ArmResult| price(blocks(end), blocks(arm)) == Price::Dear;
    let first_dear = sweep.iter().position(|(_, arm)| is_dear(arm));
    let intervals = first_dear.map_or(sweep.len(), |first| first + 1);
    std::iter::once(end).chain(sweep[..intervals].iter().map(|(_, arm)| *arm)).collect()
}

/// The intervals that one of the threads syncs, with their valid arms, the largest first.
pub(super) fn sweep<'a>(
    schedules: &[Schedule],
    arms: &'a [ArmResult],
    syncer: Syncer,
) -> Vec<(u64, &'a ArmResult)> {
    let interval = |(schedule, arm): (&Schedule, &'a ArmResult)| match schedule.when {
        When::Every(bytes) if schedule.syncer == syncer && arm.valid => Some((bytes, arm)),
        _ => None,
    };
    schedules.iter().zip(arms).filter_map(interval).collect()
}

/// Why nothing can be said of a `sweep`, if what it would rest on was not left in peace, or if its
/// intervals contradict each other: a clause that says what to do.
pub(super) fn unknown_because(
    rests_on: &[&ArmResult],
    sweep: &[(u64, &ArmResult)],
) -> Option<String> {
    verdict::disturbed(rests_on).or_else(|| held_up(sweep))
}

/// Which interval was held up by something else than its syncs, if one costs much more than a smaller
/// one.
fn held_up(sweep: &[(u64, &ArmResult)]) -> Option<String> {
    let pairs = sweep.iter().enumerate().flat_map(|(place, larger)| {
        sweep[place + 1..].iter().map(move |smaller| (larger, smaller))
    });
    let is_held_up = |&(&(_, larger), &(_, smaller)): &(&(u64, &ArmResult), &(u64, &ArmResult))| {
        let dearer = median(blocks(larger)).zip(median(blocks(smaller)));
        dearer.is_some_and(|(larger, smaller)| larger > smaller.saturating_mul(HELD_UP))
            && stats::differ(blocks(larger), blocks(smaller)) == Some(true)
    };
    let ((larger_bytes, larger), (smaller_bytes, smaller)) = pairs.into_iter().find(is_held_up)?;
    Some(format!(
        "every {} costs {:.2} times one sync at the end and every {} only {:.2} times, so something \
         else held trials up: measure again on a quiet machine",
        units::bytes(*larger_bytes),
        factor(larger)?,
        units::bytes(*smaller_bytes),
        factor(smaller)?
    ))
}

/// Marks the knee of each syncing thread for programs: its arm gets a value `is_knee`. A thread of which
/// nothing can be said has none.
pub(super) fn mark_knees(schedules: &[Schedule], arms: &mut [ArmResult]) {
    let mut marked = Vec::new();
    {
        let end = schedules.iter().position(|schedule| schedule.when == When::End);
        let Some(end) = end.map(|end| &arms[end]).filter(|end| end.valid) else {
            return;
        };
        for syncer in [Syncer::Writer, Syncer::Background] {
            let sweep = sweep(schedules, arms, syncer);
            let trials: Vec<&[u64]> = sweep.iter().map(|(_, arm)| blocks(arm)).collect();
            if unknown_because(&looked_at(end, &sweep), &sweep).is_none()
                && let Some(knee) = knee(blocks(end), &trials)
            {
                marked.push(sweep[knee].1.name.clone());
            }
        }
    }
    for arm in arms.iter_mut().filter(|arm| marked.contains(&arm.name)) {
        arm.values.insert("is_knee".to_owned(), 1.0);
    }
}

pub(super) fn blocks(arm: &ArmResult) -> &[u64] {
    &arm.summaries[0].block_p50_ns
}

pub(super) fn factor(arm: &ArmResult) -> Option<f64> {
    arm.values.get("cost_over_end").copied()
}

/// Ten trials around a time.
#[cfg(test)]
pub(super) fn trials(ns: u64) -> Vec<u64> {
    (0..10).map(|n| ns - 5 + n).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::KIB;
    use super::*;

    fn knee_of(end: u64, sweep: &[u64]) -> Option<usize> {
        let sweep: Vec<Vec<u64>> = sweep.iter().map(|&ns| trials(ns)).collect();
        let sweep: Vec<&[u64]> = sweep.iter().map(Vec::as_slice).collect();
        knee(&trials(end), &sweep)
    }

    #[test]
    fn the_knee_is_the_smallest_interval_that_costs_under_a_tenth() {
        assert_eq!(knee_of(1000, &[990, 1050, 1098, 1150, 4000]), Some(2));
        assert_eq!(knee_of(1000, &[1000, 1000]), Some(1));
        assert_eq!(knee_of(1000, &[1500, 3000]), None);
        assert_eq!(knee_of(1000, &[]), None);
    }

    #[test]
    fn a_cheap_interval_behind_a_dear_one_is_luck() {
        assert_eq!(knee_of(1000, &[1010, 1500, 1010]), Some(0));
        assert_eq!(knee_of(1000, &[1500, 1010]), None);
    }

    #[test]
    fn an_interval_is_dear_only_if_its_trials_say_so() {
        let wide: Vec<u64> = vec![500, 600, 900, 1000, 1150, 1200, 1300, 1400, 1500, 2000];
        let end: Vec<u64> = vec![500, 550, 900, 950, 1000, 1100, 1200, 1300, 1900, 2000];
        assert_eq!(price(&end, &wide), Price::Unclear);
        assert_eq!(price(&trials(1000), &trials(1050)), Price::Cheap);
        assert_eq!(price(&trials(1000), &trials(1200)), Price::Dear);
        // An unclear interval is no knee, and does not hide one.
        assert_eq!(knee(&end, &[&wide, &end]), Some(1));
        assert_eq!(knee(&end, &[&end, &wide]), Some(0));
    }

    #[test]
    fn too_few_trials_name_no_knee() {
        assert_eq!(price(&trials(1000)[..7], &trials(1000)[..7]), Price::Unclear);
        assert_eq!(knee(&trials(1000)[..7], &[&trials(1000)[..7]]), None);
        assert_eq!(price(&[], &[]), Price::Unclear);
    }

    #[test]
    fn a_trial_that_ended_early_is_scaled() {
        let ms = Duration::from_millis;
        assert_eq!(per_mib(ms(40), 2 * MIB), ms(20));
        assert_eq!(per_mib(ms(1), 4 * KIB), ms(256));
    }
}
