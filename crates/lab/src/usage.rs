//! What a disk is for, and what that asks of it: limits of known programs, and of one's own. Pure.

use std::time::Duration;

use plimsoll_sync::{Promise, SyncMethod};

use crate::arm_result::ArmResult;
use crate::counters::nanoseconds;
use crate::layout::Layout;
use crate::result::ExperimentResult;
use crate::units;
use crate::warning::busy_stamp;
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
    /// One's own limit on the p99 of a plain durable append of 4 KiB, or where that was not run, of
    /// the durable write that was run and is most like it.
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

    /// Whether a disk fits this use, by its results of sync-cost, if that was run. A limit that
    /// nothing was measured for is not kept.
    #[must_use]
    pub fn fit(&self, sync_cost: Option<&ExperimentResult>) -> Fit {
        let wanted = match self {
            Self::Etcd => spec(SyncMethod::Fdatasync, Layout::Append, 4096),
            Self::Postgres => spec(SyncMethod::Fdatasync, Layout::Overwritten, 8192),
            Self::Within(_) => spec(SyncMethod::ORDINARY, Layout::Append, 4096),
        }
        .name();
        let Some(sync_cost) = sync_cost else {
            return self.not_known("sync-cost was not run: run it");
        };
        let run = sync_cost.arms.iter().find(|arm| arm.name == wanted);
        let arm = match self {
            // What a program does is judged on nothing else; a limit of one's own is.
            Self::Within(_) => run.or_else(|| nearest(&sync_cost.arms)),
            Self::Etcd | Self::Postgres => run,
        };
        let Some(arm) = arm else {
            return self.not_known(&format!("{wanted} was not run: run sync-cost with it"));
        };
        if !arm.valid {
            return self.not_known(&format!(
                "{} is INVALID: what the device counted contradicts what it promises",
                arm.name
            ));
        }
        let instead =
            if run.is_some() { String::new() } else { format!(" ({wanted} was not run)") };
        match self.limit() {
            Some(limit) => self.held_against(arm, nanoseconds(limit), &instead),
            None => self.commits(arm),
        }
    }

    /// Holds the p99 of an arm against a limit.
    fn held_against(&self, arm: &ArmResult, limit_ns: u64, instead: &str) -> Fit {
        let summary = &arm.summaries[0];
        // p99 is never below the median.
        let (quantile, ns) = match (summary.p99_ns, summary.p50_ns) {
            (Some(p99), _) => ("p99", p99),
            (None, Some(p50)) if p50 > limit_ns => ("p50", p50),
            _ => return self.too_few(arm),
        };
        let found = format!("{quantile} of {} is {}", arm.name, units::time(ns));
        if ns <= limit_ns {
            let (head, busy) = (self.head(), busy_stamp(arm.is_noisy()));
            let sentence = format!("{head}{instead}: {found}{busy}: it is under the limit.");
            return Fit { sentence, holds: Holds::Yes };
        }
        if arm.is_noisy() {
            return self.not_known(&format!(
                "{found}, on a busy machine: stop what else runs, and measure again"
            ));
        }
        let sentence = format!("{}{instead}: {found}: it is NOT under the limit.", self.head());
        Fit { sentence, holds: Holds::No }
    }

    /// How often a connection can commit.
    fn commits(&self, arm: &ArmResult) -> Fit {
        let Some(p50) = arm.p50_ns() else { return self.too_few(arm) };
        let sentence = format!(
            "{}: one connection commits about {:.0} times a second ({} for {}{}); it names no limit.",
            self.head(),
            units::ratio(1_000_000_000, p50),
            units::time(p50),
            arm.name,
            busy_stamp(arm.is_noisy())
        );
        Fit { sentence, holds: Holds::NoLimit }
    }

    fn too_few(&self, arm: &ArmResult) -> Fit {
        self.not_known(&format!(
            "{} has too few samples ({}): give it a longer --budget",
            arm.name, arm.summaries[0].n
        ))
    }

    fn not_known(&self, because: &str) -> Fit {
        let sentence = format!("{}: not known here, because {because}.", self.head());
        let holds = if self.limit().is_some() { Holds::Undecided } else { Holds::NoLimit };
        Fit { sentence, holds }
    }

    /// `For etcd, a limit of 10.0 ms on p99`
    fn head(&self) -> String {
        let limit = self.limit().map(|limit| units::time(nanoseconds(limit)));
        match (self, limit) {
            (Self::Etcd, Some(limit)) => format!("For etcd, a limit of {limit} on p99"),
            (_, Some(limit)) => format!("For a limit of {limit} on p99"),
            (_, None) => "For PostgreSQL".to_owned(),
        }
    }

    fn limit(&self) -> Option<Duration> {
        match self {
            Self::Etcd => Some(ETCD_P99),
            Self::Postgres => None,
            Self::Within(limit) => Some(*limit),
        }
    }
}

/// The arm that is most like a plain durable append of 4 KiB: by its method, its layout, its size.
fn nearest(arms: &[ArmResult]) -> Option<&ArmResult> {
    let durable = |arm: &&ArmResult| {
        arm.valid && arm.payload_bytes > 0 && arm.promise == Promise::Media.name()
    };
    let plain = [SyncMethod::ORDINARY, SyncMethod::Fdatasync].map(SyncMethod::name);
    arms.iter().filter(durable).min_by_key(|arm| {
        let is_other = !plain.contains(&arm.method.as_str());
        (is_other, arm.layout != Layout::Append.name(), arm.payload_bytes != 4096)
    })
}

const fn spec(method: SyncMethod, layout: Layout, payload_bytes: u64) -> WriterSpec {
    WriterSpec { method, layout, payload_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

    fn measured(name: &str, p50_ns: u64, p99_ns: Option<u64>) -> ExperimentResult {
        let mut result = ExperimentResult::empty();
        let summary = Summary { n: 2000, p50_ns: Some(p50_ns), p99_ns, ..Summary::default() };
        result.arms.push(ArmResult::of_summary(name, summary));
        result
    }

    #[test]
    fn etcd_wants_ten_milliseconds_at_p99() {
        let fits = Usage::Etcd.fit(Some(&measured("fdatasync/append/4KiB", 50_000, Some(110_000))));
        assert_eq!(fits.holds, Holds::Yes, "{}", fits.sentence);
        let slow =
            Usage::Etcd.fit(Some(&measured("fdatasync/append/4KiB", 50_000, Some(12_000_000))));
        assert_eq!(slow.holds, Holds::No);
        assert!(slow.sentence.contains("12.0 ms") && slow.sentence.contains("NOT"));
    }

    #[test]
    fn too_few_samples_decide_nothing() {
        let few = Usage::Etcd.fit(Some(&measured("fdatasync/append/4KiB", 50_000, None)));
        assert_eq!(few.holds, Holds::Undecided);
        assert!(few.sentence.contains("too few samples"), "{}", few.sentence);
        assert_eq!(Usage::Etcd.fit(Some(&ExperimentResult::empty())).holds, Holds::Undecided);
    }

    /// A slow device gave so few samples in a second that no p99 was printed, and `--for 1ns`
    /// passed.
    #[test]
    fn a_median_beyond_the_limit_of_the_tail_decides_without_a_tail() {
        let slow = Usage::Etcd.fit(Some(&measured("fdatasync/append/4KiB", 12_000_000, None)));
        assert_eq!(slow.holds, Holds::No);
        assert!(slow.sentence.contains("p50") && slow.sentence.contains("NOT"));
    }

    #[test]
    fn postgres_names_no_limit() {
        let fit = Usage::Postgres.fit(Some(&measured("fdatasync/overwritten/8KiB", 50_000, None)));
        assert!(fit.sentence.contains("20000 times a second"), "{}", fit.sentence);
        assert_eq!(fit.holds, Holds::NoLimit);
    }

    #[test]
    fn a_limit_of_ones_own_needs_a_unit() {
        assert_eq!(Usage::parse("5ms"), Ok(Usage::Within(Duration::from_millis(5))));
        assert!(Usage::parse("5").is_err() && Usage::parse("mysql").is_err());
    }

    /// `--only fdatasync/append/4KiB --for 5ms` was judged on fsync, which was not run.
    #[test]
    fn a_limit_of_ones_own_is_judged_on_what_was_run() {
        let limit = Usage::parse("5ms").unwrap();
        let fits = limit.fit(Some(&measured("fdatasync/append/4KiB", 50_000, Some(110_000))));
        let whole = "For a limit of 5.00 ms on p99 (fsync/append/4KiB was not run): p99 of \
                     fdatasync/append/4KiB is 110 µs: it is under the limit.";
        assert_eq!((fits.sentence.as_str(), fits.holds), (whole, Holds::Yes));
    }

    #[test]
    fn what_a_program_does_is_not_judged_on_another_way() {
        let other = measured("o_direct+o_dsync/overwritten/4KiB", 50_000, Some(110_000));
        let fit = Usage::Etcd.fit(Some(&other));
        let whole = "For etcd, a limit of 10.0 ms on p99: not known here, because \
                     fdatasync/append/4KiB was not run: run sync-cost with it.";
        assert_eq!((fit.sentence.as_str(), fit.holds), (whole, Holds::Undecided));
        let mut invalid = measured("fdatasync/append/4KiB", 50_000, Some(110_000));
        invalid.arms[0].valid = false;
        let fit = Usage::Etcd.fit(Some(&invalid));
        assert!(fit.sentence.contains("fdatasync/append/4KiB is INVALID"), "{}", fit.sentence);
    }

    /// `lab run cache-flush --for 5ms` said nothing of the limit, and passed.
    #[test]
    fn a_limit_without_sync_cost_does_not_pass() {
        let fit = Usage::parse("5ms").unwrap().fit(None);
        let whole = "For a limit of 5.00 ms on p99: not known here, because sync-cost was not run: \
                     run it.";
        assert_eq!((fit.sentence.as_str(), fit.holds), (whole, Holds::Undecided));
    }

    #[test]
    fn a_busy_machine_fails_no_disk_and_others_only_add_time() {
        let mut busy = measured("fdatasync/append/4KiB", 50_000, Some(12_000_000));
        busy.arms[0].warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
        let fit = Usage::Etcd.fit(Some(&busy));
        assert_eq!(fit.holds, Holds::Undecided);
        let whole = "For etcd, a limit of 10.0 ms on p99: not known here, because p99 of \
                     fdatasync/append/4KiB is 12.0 ms, on a busy machine: stop what else runs, and \
                     measure again.";
        assert_eq!(fit.sentence, whole);
        busy.arms[0].summaries[0].p99_ns = Some(9_000_000);
        let fit = Usage::Etcd.fit(Some(&busy));
        assert_eq!(fit.holds, Holds::Yes);
        let said = "is 9.00 ms, on a busy machine: it is under the limit.";
        assert!(fit.sentence.ends_with(said), "{}", fit.sentence);
    }
}
