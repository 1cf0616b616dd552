//! [`Finding`]: what was found of one crash state, and what that says of what was checked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::explore::Visit;
use super::image::Timings;
use crate::block::{Mode, State, Toll};

/// What was found of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its number in the plan.
    pub number: usize,
    /// Which state, as text.
    pub state: String,
    /// As [`super::Verdict::name`] says it.
    pub verdict: String,
    /// What the check said of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
    /// The last thing that the workload had said by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_mark: Option<String>,
    /// How many writes were pending, and what became of them.
    pub pending: Toll,
    /// The same for the same bytes, of one trace: a hash.
    pub disk: String,
    /// What it took.
    pub micros: Micros,
}

/// How long each step took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Micros {
    /// Putting the bytes in memory.
    pub build: u64,
    /// Attaching the loop device.
    pub attach: u64,
    /// Mounting, with whatever recovery the filesystem does.
    pub mount: u64,
    /// The check.
    pub check: u64,
    /// Unmounting and detaching.
    pub unmount: u64,
}

impl Micros {
    /// As whole microseconds.
    #[must_use]
    pub fn of(timings: &Timings) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            build: micros(timings.build),
            attach: micros(timings.attach),
            mount: micros(timings.mount),
            check: micros(timings.check),
            unmount: micros(timings.unmount),
        }
    }

    /// All of it.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let steps = [self.build, self.attach, self.mount, self.check, self.unmount];
        steps.into_iter().fold(0, u64::saturating_add)
    }
}

/// What a finding says of what was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It held.
    Passed,
    /// It could not be checked, and nobody is to blame.
    Apart,
    /// It counts against what was checked, or against the check.
    Failed,
}

impl Finding {
    /// With its number in the plan, which is not that of the visit.
    pub(super) fn new(
        number: usize,
        state: &State,
        visit: &Visit,
        last_mark: Option<&str>,
    ) -> Self {
        Self {
            number,
            state: state.to_string(),
            verdict: visit.verdict.name().to_owned(),
            said: visit.verdict.said().to_owned(),
            last_mark: last_mark.map(str::to_owned),
            pending: visit.pending,
            disk: format!("{:016x}", visit.disk),
            micros: Micros::of(&visit.timings),
        }
    }

    /// What it says of what was checked, on a disk that lies or does not.
    #[must_use]
    pub fn standing(&self, disk_lies: bool) -> Standing {
        match self.verdict.as_str() {
            "ok" => Standing::Passed,
            // On a disk that lies something may be lost, if that is noticed.
            "reported" if disk_lies => Standing::Passed,
            // Filesystems themselves survive neither; that is not the program's fault.
            "not-mounted" if disk_lies || tears_small(&self.state) => Standing::Apart,
            _ => Standing::Failed,
        }
    }
}

/// Whether a write was torn into less than most drives write at once.
fn tears_small(state: &str) -> bool {
    let mode = state.parse::<State>().map(|state| state.mode);
    matches!(mode, Ok(Mode::Torn { tear_bytes, .. }) if tear_bytes < 4096)
}
