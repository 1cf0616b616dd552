//! What a whole run says about a disk, on one screen: sentences with figures. Pure.

use crate::durability_profile::DurabilityProfile;
use crate::ladder::Rung;
use crate::result::ExperimentResult;
use crate::units;
use crate::usage::{Fit, Holds, Usage};

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
        sentences.extend(durable_record(&profile));
        sentences.push(format!(
            "{} ({}: {})",
            profile.ladder.in_words(),
            match profile.ladder.rung {
                Rung::Claimed => "checked no further than its claim",
                Rung::Sent => "checked as far as what the kernel sent",
                Rung::Plausible => "checked as far as what is plausible; no power cut was tried",
                Rung::Survived => "checked by power cuts",
            },
            profile.ladder.reasons.join("; ")
        ));
        sentences.extend(unsynced(&profile));
        sentences.extend(profile.group_commit.map(|group| {
            format!(
                "{} writers that share a sync make {:.0} records durable per second.",
                group.writers, group.records_per_s
            )
        }));
        let sync_cost = results.iter().find(|result| result.experiment == "sync-cost");
        let fit: Option<Fit> = usage.zip(sync_cost).map(|(usage, result)| usage.fit(result));
        sentences.extend(fit.iter().map(|fit| fit.sentence.clone()));
        if profile.noisy {
            sentences.push(
                "Some of it was measured on a busy machine: see the warnings before you rely on it."
                    .to_owned(),
            );
        }
        Some(Self { sentences, fits: fit.map(|fit| fit.holds) })
    }
}

fn durable_record(profile: &DurabilityProfile) -> Option<String> {
    let best = profile.best.get(plimsoll_sync::Promise::Media.name())?;
    let tail = best.p99_ns.map_or_else(String::new, |p99| format!(" / {} p99", units::time(p99)));
    Some(format!(
        "This disk makes a 4 KiB record durable in {} p50{tail} ({}, {}).",
        units::time(best.p50_ns),
        best.method,
        best.layout
    ))
}

fn unsynced(profile: &DurabilityProfile) -> Option<String> {
    let knee = profile.knee.as_ref()?;
    let mib = knee.at_risk_bytes / f64::from(1 << 20);
    let ms =
        knee.at_risk_ms.map_or_else(String::new, |ms| format!(", or {} ms,", units::figure(ms)));
    Some(format!(
        "Leaving {} MiB unsynced{ms} at a time costs under 10 % ({}).",
        units::figure(mib),
        knee.arm
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::ArmResult;
    use crate::summary::Summary;

    fn sync_cost(p99_ns: u64) -> ExperimentResult {
        let summary =
            Summary { n: 2000, p50_ns: Some(50_000), p99_ns: Some(p99_ns), ..Summary::default() };
        let mut result = ExperimentResult::empty();
        "sync-cost".clone_into(&mut result.experiment);
        result.arms.push(ArmResult::of_summary("fdatasync/append/4KiB", summary));
        result
    }

    #[test]
    fn says_what_a_record_costs_how_far_the_disk_was_checked_and_whether_it_fits() {
        let concluded = Conclusion::of(&[sync_cost(110_000)], Some(&Usage::Etcd)).unwrap();
        let said = concluded.sentences.join("\n");
        assert!(said.contains("durable in 50.0 µs p50 / 110 µs p99"), "{said}");
        assert!(said.contains("Too little could be measured here to judge"), "{said}");
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
}
