//! What a whole run says about a disk: sentences with figures. Pure.

use plimsoll_sync::Promise;

use crate::arm_result::{ArmResult, all_busy};
use crate::durability_profile::DurabilityProfile;
use crate::ladder::{Ladder, Rung};
use crate::result::ExperimentResult;
use crate::units;
use crate::usage::{Fit, Holds, Usage};
use crate::warning::{BEST_UNKNOWN, busy_stamp};

/// The conclusion of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conclusion {
    /// Its sentences, the most important first.
    pub sentences: Vec<String>,
    /// Whether the disk gives what the intended use asks; `None` if no use was named.
    pub fits: Option<Holds>,
}

impl Conclusion {
    /// Whether a limit was asked for, and the disk is not known to keep it.
    #[must_use]
    pub fn fails(&self) -> bool {
        matches!(self.fits, Some(Holds::No | Holds::Undecided))
    }

    /// Concludes from the `results` of one run, for somebody who wants to run `usage` there.
    #[must_use]
    pub fn of(results: &[ExperimentResult], usage: Option<&Usage>) -> Option<Self> {
        let profile = DurabilityProfile::of(results)?;
        let mut sentences = Vec::new();
        sentences.extend(durable_record(results, &profile));
        sentences.push(word_of_the_disk(&profile.ladder));
        sentences.extend(
            unsynced(results, &profile).map(|said| format!("What may stay unsynced: {said}.")),
        );
        sentences.extend(profile.group_commit.map(|group| {
            format!(
                "{} writers that share a sync make {:.0} records durable per second{}.",
                group.writers,
                group.records_per_s,
                busy_stamp(group.noisy)
            )
        }));
        let fit = Self::fit(results, usage);
        sentences.extend(fit.iter().map(|fit| fit.sentence.clone()));
        sentences.extend(busy(results));
        Some(Self { sentences, fits: fit.map(|fit| fit.holds) })
    }

    /// Whether the disk gives what the intended `usage` asks, if one was named.
    #[must_use]
    pub(crate) fn fit(results: &[ExperimentResult], usage: Option<&Usage>) -> Option<Fit> {
        let sync_cost = results.iter().find(|result| result.experiment == "sync-cost");
        Some(usage?.fit(sync_cost))
    }
}

fn durable_record(results: &[ExperimentResult], profile: &DurabilityProfile) -> Option<String> {
    let best = profile.best.get(Promise::Media.name())?;
    if !knows_best(results) {
        return Some(format!("What a durable 4 KiB record costs at best is {BEST_UNKNOWN}."));
    }
    let tail = best.p99_ns.map_or_else(String::new, |p99| format!(" / {} p99", units::time(p99)));
    Some(format!(
        "This disk makes a 4 KiB record durable in {} p50{tail} ({}, {}){}.",
        units::time(best.p50_ns),
        best.method,
        best.layout,
        busy_stamp(best.noisy)
    ))
}

/// Whether the best durable 4 KiB write can be told: not where all of them were measured on a busy
/// machine.
#[must_use]
pub(crate) fn knows_best(results: &[ExperimentResult]) -> bool {
    let of = results.iter().filter(|result| result.experiment == "sync-cost");
    let is_rival = |arm: &&ArmResult| {
        arm.valid && arm.promise == Promise::Media.name() && arm.payload_bytes == 4096
    };
    !all_busy(of.flat_map(|result| &result.arms).filter(is_rival))
}

/// How far the word of the disk was checked, and why that is all.
fn word_of_the_disk(ladder: &Ladder) -> String {
    let checked = checked(ladder.rung);
    let colon = if ladder.reasons.is_empty() { "" } else { ": " };
    format!("{} ({checked}{colon}{})", ladder.in_words(), ladder.reasons.join("; "))
}

/// How far a word was checked.
#[must_use]
pub(crate) const fn checked(rung: Rung) -> &'static str {
    match rung {
        Rung::Claimed => "checked no further than its claim",
        Rung::Sent => "checked as far as what the kernel sent",
        Rung::Plausible => "checked as far as what is plausible; no power cut was tried",
        Rung::Survived => "checked by power cuts",
    }
}

/// How much may stay unsynced, or why that is not known; without a full stop. `None` if no interval was
/// measured. A knee that was found on a busy machine is none.
#[must_use]
pub(crate) fn unsynced(
    results: &[ExperimentResult],
    profile: &DurabilityProfile,
) -> Option<String> {
    let of = results.iter().find(|result| result.experiment == "sync-interval")?;
    // The others sync at the end, or never.
    let is_interval = |arm: &ArmResult| arm.valid && arm.name.contains('/');
    if !of.arms.iter().any(is_interval) {
        return None;
    }
    let Some(knee) = &profile.knee else {
        let why = of.answer.first()?.trim_end_matches('.');
        return Some(why.to_owned());
    };
    if knee.noisy {
        let why = "measured on a busy machine: stop what else runs, and measure again";
        return Some(format!("not known here, because {} was {why}", knee.arm));
    }
    let mib = knee.at_risk_bytes / f64::from(1 << 20);
    let ms =
        knee.at_risk_ms.map_or_else(String::new, |ms| format!(", or {} ms,", units::figure(ms)));
    let arm = &knee.arm;
    Some(format!("{} MiB{ms} at a time, for under 10 % ({arm})", units::figure(mib)))
}

/// How many of the arms were measured on a busy machine, and in which experiments all of several.
#[must_use]
pub(crate) fn busy(results: &[ExperimentResult]) -> Option<String> {
    let noisy = |result: &ExperimentResult| result.arms.iter().filter(|a| a.is_noisy()).count();
    let count: usize = results.iter().map(noisy).sum();
    let of: usize = results.iter().map(|result| result.arms.len()).sum();
    let all: Vec<&str> = results
        .iter()
        .filter(|result| !result.arms.is_empty() && noisy(result) == result.arms.len())
        .map(|result| result.experiment.as_str())
        .collect();
    let told = match all.split_last() {
        Some((last, [])) if count < of => format!(", in {last} all"),
        Some((last, others)) if count < of => format!(", in {} and {last} all", others.join(", ")),
        _ => String::new(),
    };
    let how_many = match count {
        1 if of == 1 => "The only arm was".to_owned(),
        _ if count == of => format!("All {of} arms were"),
        _ => format!("{count} of {of} arms were"),
    };
    (count > 0).then(|| {
        format!(
            "{how_many} measured on a busy machine{told}: stop what else runs, and measure \
             again before you rely on it."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

    fn sync_cost(p99_ns: u64) -> ExperimentResult {
        let summary =
            Summary { n: 2000, p50_ns: Some(50_000), p99_ns: Some(p99_ns), ..Summary::default() };
        let mut result = ExperimentResult::empty();
        "sync-cost".clone_into(&mut result.experiment);
        let mut arm = ArmResult::of_summary("fdatasync/append/4KiB", summary);
        (arm.method, arm.layout) = ("fdatasync".to_owned(), "append".to_owned());
        result.arms.push(arm);
        result
    }

    #[test]
    fn says_what_a_record_costs_how_far_the_disk_was_checked_and_whether_it_fits() {
        let concluded = Conclusion::of(&[sync_cost(110_000)], Some(&Usage::Etcd)).unwrap();
        let said = concluded.sentences.join("\n");
        assert!(said.contains("durable in 50.0 µs p50 / 110 µs p99"), "{said}");
        assert!(said.contains("is not known here, because what fdatasync/append/4KiB"), "{said}");
        assert!(said.contains("For etcd") && !said.contains("safe"), "{said}");
        assert_eq!(concluded.fits, Some(Holds::Yes));
        assert!(!concluded.fails());
    }

    #[test]
    fn a_disk_that_is_too_slow_for_its_use_does_not_fit() {
        let concluded = Conclusion::of(&[sync_cost(90_000_000)], Some(&Usage::Etcd)).unwrap();
        assert!(concluded.fails());
    }

    #[test]
    fn a_limit_that_could_not_be_decided_is_no_pass() {
        let mut few = sync_cost(0);
        few.arms[0].summaries[0].p99_ns = None;
        assert!(Conclusion::of(&[few.clone()], Some(&Usage::Etcd)).unwrap().fails());
        assert!(!Conclusion::of(&[few], Some(&Usage::Postgres)).unwrap().fails());
    }

    #[test]
    fn nothing_measured_concludes_nothing() {
        assert_eq!(Conclusion::of(&[], None), None);
    }

    /// `--only end` was said to let "writing 20 MiB with one sync at the end" stay unsynced.
    #[test]
    fn without_an_interval_nothing_is_said_of_what_may_stay_unsynced() {
        let mut interval = ExperimentResult {
            experiment: "sync-interval".to_owned(),
            answer: vec!["Writing 20 MiB with one sync at the end runs at 900 MiB/s.".to_owned()],
            arms: vec![arm("never", &[]), arm("end", &[])],
            ..ExperimentResult::empty()
        };
        let said = |interval: &ExperimentResult| {
            Conclusion::of(std::slice::from_ref(interval), None).unwrap().sentences.join("\n")
        };
        assert!(!said(&interval).contains("unsynced"), "{}", said(&interval));
        interval.arms.push(arm("4KiB/writer", &[]));
        "Every interval costs.".clone_into(&mut interval.answer[0]);
        let why = "What may stay unsynced: Every interval costs.";
        assert!(said(&interval).contains(why), "{}", said(&interval));
    }

    fn on_a_busy_machine(mut arm: ArmResult) -> ArmResult {
        arm.warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
        arm
    }

    fn arm(name: &str, values: &[(&str, f64)]) -> ArmResult {
        let summary = Summary { n: 2000, p50_ns: Some(50_000), ..Summary::default() };
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        ArmResult { values, ..ArmResult::of_summary(name, summary) }
    }

    /// All of five experiments and 98 of 103 arms of a sixth were busy, and "some of it" was said.
    #[test]
    fn what_was_measured_on_a_busy_machine_is_counted_and_stamped_where_it_is_said() {
        let mut cost = sync_cost(110_000);
        cost.arms = cost.arms.into_iter().map(on_a_busy_machine).collect();
        cost.arms.push(arm("fsync/append/8KiB", &[]));
        let result = |experiment: &str, arms: Vec<ArmResult>| ExperimentResult {
            experiment: experiment.to_owned(),
            arms: arms.into_iter().map(on_a_busy_machine).collect(),
            ..ExperimentResult::empty()
        };
        let knee = [("at_risk_bytes", 20.0 * 1_048_576.0), ("is_knee", 1.0)];
        let interval = result("sync-interval", vec![arm("20MiB/writer", &knee)]);
        let group = result("group-commit", vec![arm("shared/64", &[("records_per_s", 1000.0)])]);
        let said = Conclusion::of(&[cost, interval, group], None).unwrap().sentences.join("\n");
        for whole in [
            "durable in 50.0 µs p50 / 110 µs p99 (fdatasync, append), on a busy machine.",
            "What may stay unsynced: not known here, because 20MiB/writer was measured on a busy \
             machine: stop what else runs, and measure again.",
            "64 writers that share a sync make 1000 records durable per second, on a busy machine.",
            "3 of 4 arms were measured on a busy machine, in sync-interval and group-commit all: stop \
             what else runs, and measure again before you rely on it.",
        ] {
            assert!(said.contains(whole), "{said}");
        }
        let mut one = sync_cost(110_000);
        one.arms = one.arms.into_iter().map(on_a_busy_machine).collect();
        let said = Conclusion::of(&[one], None).unwrap().sentences.join("\n");
        assert!(said.contains("\nThe only arm was measured on a busy machine: stop"), "{said}");
        let best =
            "What a durable 4 KiB record costs at best is not known here: the machine was busy.";
        assert!(said.starts_with(best), "{said}");
        let quiet = Conclusion::of(&[sync_cost(110_000)], None).unwrap().sentences.join("\n");
        assert!(!quiet.contains("busy"), "{quiet}");
    }
}
