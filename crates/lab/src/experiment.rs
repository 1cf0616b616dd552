//! What an experiment is: a question, arms that are measured for it, and an answer in sentences.

use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_sync::{Availability, OsDir, SyncMethod};

use crate::arm_result::ArmResult;
use crate::claim::Claim;
use crate::counters::Counters;
use crate::environment::Environment;
use crate::error::Result;
pub use crate::least::Least;
use crate::least::OneBlock;
use crate::result::Unavailable;
use crate::runner::Watch;

/// A question about this disk.
pub trait Experiment: Debug + Sync {
    /// Its name, as commands take it.
    fn name(&self) -> &'static str;

    /// The question, in one line.
    fn question(&self) -> &'static str;

    /// Where the question comes from.
    fn source(&self) -> &'static str;

    /// How it is measured, how its tables are read, and how it can mislead.
    fn explanation(&self) -> &'static str;

    /// What a profile costs.
    fn cost(&self, profile: Profile) -> Cost;

    /// The names of the arms that a profile can have, on any system.
    fn arm_names(&self, profile: Profile) -> Vec<String>;

    /// Whether it runs where no experiment is named.
    fn runs_unasked(&self) -> bool {
        true
    }

    /// What it touches beside files in the directory, if anything: a clause for the announcement.
    fn touches_beside(&self) -> Option<&'static str> {
        None
    }

    /// Measures the arms that are wanted and can run here, and answers the question.
    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured>;
}

/// How thoroughly to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Enough for a first answer.
    Quick,
    /// All arms, with narrow intervals and tails.
    Full,
    /// The sizes and rates of the article that asked the question.
    Article,
}

/// What an experiment may take.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Time.
    pub budget: Duration,
    /// Most bytes on the disk at one time.
    pub disk_bytes: u64,
    /// What every arm measured once takes, whatever the budget.
    pub least: Least,
}

/// What an experiment works with.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// The directory to write in: nothing else is touched.
    pub dir: &'a OsDir,
    /// The program to start as a broker, if there is one: see [`crate::session::Options::program`].
    pub program: Option<&'a Path>,
    /// Which sync methods work there, and why the others do not.
    pub methods: &'a [(SyncMethod, Availability)],
    /// The kernel's counters.
    pub counters: &'a Counters,
    /// What the figures depend on.
    pub environment: &'a Environment,
    /// Why the machine was busy when the run began, if it was.
    pub busy_before: Option<&'a str>,
    /// How thoroughly.
    pub profile: Profile,
    /// Time for it.
    pub budget: Duration,
    /// When that began.
    pub begun: Instant,
    /// Draws the order of the arms and the bytes that are written.
    pub seed: u64,
    /// If not empty: only arms that one of these [`names`].
    pub only: &'a [String],
}

/// What an experiment found.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Parameters, as `name=value`.
    pub parameters: Vec<String>,
    /// The answer, in sentences.
    pub answer: Vec<String>,
    /// The same in a line, without a full stop; absent if there is no answer.
    pub in_short: Option<String>,
    /// What articles claim, and whether it holds here.
    pub claims: Vec<Claim>,
    /// What was measured.
    pub arms: Vec<ArmResult>,
    /// What could not be measured.
    pub unavailable: Vec<Unavailable>,
}

/// Whether `part` names `arm`: slashes separate the parts of a name, and `part` must begin where
/// one of them begins. So `fsync/append` does not name `o_direct+fsync/append`.
#[must_use]
pub fn names(part: &str, arm: &str) -> bool {
    arm.starts_with(part) || arm.contains(&format!("/{part}"))
}

impl Cost {
    /// Of so many arms.
    #[must_use]
    pub(crate) fn new(budget: Duration, disk_bytes: u64, arms: usize, block: OneBlock) -> Self {
        Self { budget, disk_bytes, least: Least::of(arms, block, disk_bytes) }
    }
}

impl Profile {
    /// The name that commands take.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
            Self::Article => "article",
        }
    }
}

impl Setup<'_> {
    /// What is left of the budget: what came before the first block has taken of it.
    #[must_use]
    pub fn budget_left(&self) -> Duration {
        self.budget.saturating_sub(self.begun.elapsed())
    }

    /// Whether the user wants this arm.
    #[must_use]
    pub fn wants(&self, arm: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| names(part, arm))
    }

    /// Whether a method works here.
    #[must_use]
    pub fn works(&self, method: SyncMethod) -> bool {
        let works = |(m, a): &(_, _)| *m == method && matches!(a, Availability::Works(_));
        self.methods.iter().any(works)
    }

    /// The methods that do not work here, with the reason.
    #[must_use]
    pub fn unavailable(&self) -> Vec<Unavailable> {
        let unavailable = |(method, availability): &(SyncMethod, Availability)| match availability {
            Availability::Works(_) => None,
            Availability::Unavailable { reason } => {
                Some(Unavailable { name: method.name().to_owned(), reason: reason.clone() })
            }
        };
        self.methods.iter().filter_map(unavailable).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--only fsync/append/4KiB` once ran `o_direct+fsync/append/4KiB` beside it; the two growing
    /// files broke each other's blocks into pieces, and each append cost a fifth more.
    #[test]
    fn an_arm_is_named_by_the_beginning_of_a_part() {
        assert!(names("fsync/append", "fsync/append/4KiB"));
        assert!(!names("fsync/append", "o_direct+fsync/append/4KiB"));
        assert!(names("append", "o_direct+fsync/append/4KiB"));
        assert!(names("io_uring", "io_uring+link/append/4KiB"));
        assert!(!names("4KiB", "fsync/clean"));
    }
}
