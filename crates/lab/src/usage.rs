//! What a disk is for, and what that asks of it: limits of known programs, and of one's own. Pure.

use std::time::Duration;

use plimsoll_sync::SyncMethod;

use crate::counters::nanoseconds;
use crate::layout::Layout;
use crate::result::ExperimentResult;
use crate::units;
use crate::writer::WriterSpec;

/// What somebody wants to run on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usage {
    /// etcd: its write-ahead log wants p99 of fdatasync under 10 ms
    /// (etcd documentation, "Hardware recommendations" and FAQ).
    Etcd,
    /// `PostgreSQL`: one commit is one fdatasync of an 8 KiB page in a recycled segment. It names
    /// no limit, so the answer says how many commits one connection can make.
    Postgres,
    /// One's own limit on the p99 of a plain durable append of 4 KiB.
    Within(Duration),
}

/// What a use asks, and whether the disk gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// The verdict in a sentence, with the figures.
    pub sentence: String,
    /// Whether the disk gives what is asked.
    pub holds: Holds,
}

/// Whether a disk gives what a use asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Too little was measured to say. This does not pass.
    Undecided,
    /// The use names no limit.
    NoLimit,
}

/// etcd's limit.
const ETCD_P99: Duration = Duration::from_millis(10);

impl Usage {
    /// Reads `etcd`, `postgres`, or a duration.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "etcd" => Ok(Self::Etcd),
            "postgres" | "postgresql" => Ok(Self::Postgres),
            limit => match humantime::parse_duration(limit) {
                Ok(limit) if limit > Duration::ZERO => Ok(Self::Within(limit)),
                _ => Err("etcd, postgres, or a limit of your own on p99, like 5ms".to_owned()),
            },
        }
    }

    /// Whether a disk fits this use, by its results of sync-cost.
    #[must_use]
    pub fn fit(&self, sync_cost: &ExperimentResult) -> Fit {
        let (spec, limit) = match self {
            Self::Etcd => (spec(SyncMethod::Fdatasync, Layout::Append, 4096), Some(ETCD_P99)),
            Self::Postgres => (spec(SyncMethod::Fdatasync, Layout::Overwritten, 8192), None),
            Self::Within(limit) => (spec(SyncMethod::ORDINARY, Layout::Append, 4096), Some(*limit)),
        };
        let arm = sync_cost.arms.iter().find(|arm| arm.name == spec.name());
        let Some(arm) = arm.filter(|arm| arm.valid) else {
            let sentence =
                format!("For {}: {} was not measured, or is INVALID.", self.name(), spec.name());
            let holds = if limit.is_some() { Holds::Undecided } else { Holds::NoLimit };
            return Fit { sentence, holds };
        };
        let summary = &arm.summaries[0];
        let busy = if arm.is_noisy() { ", on a busy machine" } else { "" };
        match (limit, summary.p99_ns, summary.p50_ns) {
            (Some(limit), Some(p99), _) => {
                let holds = p99 <= nanoseconds(limit);
                let sentence = format!(
                    "For {}: p99 of {} is {}{busy}, and should be under {}: {}.",
                    self.name(),
                    spec.name(),
                    units::time(p99),
                    units::time(nanoseconds(limit)),
                    if holds { "it is" } else { "it is NOT" }
                );
                Fit { sentence, holds: if holds { Holds::Yes } else { Holds::No } }
            }
            // p99 is never below the median.
            (Some(limit), None, Some(p50)) if p50 > nanoseconds(limit) => {
                let sentence = format!(
                    "For {}: p50 of {} is {}{busy}, and even p99 should be under {}: it is NOT.",
                    self.name(),
                    spec.name(),
                    units::time(p50),
                    units::time(nanoseconds(limit)),
                );
                Fit { sentence, holds: Holds::No }
            }
            (None, _, Some(p50)) => {
                let sentence = format!(
                    "For {}: one connection commits about {:.0} times a second ({} for {}); it names \
                     no limit.",
                    self.name(),
                    units::ratio(1_000_000_000, p50),
                    units::time(p50),
                    spec.name()
                );
                Fit { sentence, holds: Holds::NoLimit }
            }
            _ => {
                let sentence = format!(
                    "For {}: {} has too few samples ({}); give it a longer --budget.",
                    self.name(),
                    spec.name(),
                    summary.n
                );
                let holds = if limit.is_some() { Holds::Undecided } else { Holds::NoLimit };
                Fit { sentence, holds }
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Etcd => "etcd".to_owned(),
            Self::Postgres => "PostgreSQL".to_owned(),
            Self::Within(limit) => format!("a limit of {}", units::time(nanoseconds(*limit))),
        }
    }
}

const fn spec(method: SyncMethod, layout: Layout, payload_bytes: u64) -> WriterSpec {
    WriterSpec { method, layout, payload_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::ArmResult;
    use crate::summary::Summary;

    fn measured(name: &str, p50_ns: u64, p99_ns: Option<u64>) -> ExperimentResult {
        let mut result = ExperimentResult::empty();
        let summary = Summary { n: 2000, p50_ns: Some(p50_ns), p99_ns, ..Summary::default() };
        result.arms.push(ArmResult::of_summary(name, summary));
        result
    }

    #[test]
    fn etcd_wants_ten_milliseconds_at_p99() {
        let fits = Usage::Etcd.fit(&measured("fdatasync/append/4KiB", 50_000, Some(110_000)));
        assert_eq!(fits.holds, Holds::Yes, "{}", fits.sentence);
        let slow = Usage::Etcd.fit(&measured("fdatasync/append/4KiB", 50_000, Some(12_000_000)));
        assert_eq!(slow.holds, Holds::No);
        assert!(slow.sentence.contains("12.0 ms") && slow.sentence.contains("NOT"));
    }

    #[test]
    fn too_few_samples_decide_nothing() {
        let few = Usage::Etcd.fit(&measured("fdatasync/append/4KiB", 50_000, None));
        assert_eq!(few.holds, Holds::Undecided);
        assert!(few.sentence.contains("too few samples"), "{}", few.sentence);
        assert_eq!(Usage::Etcd.fit(&ExperimentResult::empty()).holds, Holds::Undecided);
    }

    /// A slow device gave so few samples in a second that no p99 was printed, and `--for 1ns`
    /// passed.
    #[test]
    fn a_median_beyond_the_limit_of_the_tail_decides_without_a_tail() {
        let slow = Usage::Etcd.fit(&measured("fdatasync/append/4KiB", 12_000_000, None));
        assert_eq!(slow.holds, Holds::No);
        assert!(slow.sentence.contains("p50") && slow.sentence.contains("NOT"));
    }

    #[test]
    fn postgres_names_no_limit() {
        let fit = Usage::Postgres.fit(&measured("fdatasync/overwritten/8KiB", 50_000, None));
        assert!(fit.sentence.contains("20000 times a second"), "{}", fit.sentence);
        assert_eq!(fit.holds, Holds::NoLimit);
    }

    #[test]
    fn a_limit_of_ones_own_needs_a_unit() {
        assert_eq!(Usage::parse("5ms"), Ok(Usage::Within(Duration::from_millis(5))));
        assert!(Usage::parse("5").is_err() && Usage::parse("mysql").is_err());
    }
}
