//! Whether others keep the machine busy before anything is measured, and the wait until they do not.
//!
//! While nothing is measured, all that is counted is somebody else's. The limits are those of arms
//! ([`crate::verdict`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::arm_result::Machine;
use crate::counters::{Counters, Elapsed};
use crate::error::{Error, Result};
use crate::units;
use crate::verdict;
use crate::warning::{Kind, Warning};

/// How long one look takes.
const LOOK: Duration = Duration::from_secs(1);
/// How soon a request to stop is noticed.
const STEP: Duration = Duration::from_millis(50);
/// More writes and flushes than this in a look are somebody's who writes to the device.
const OTHERS_REQUESTS_MAX: u64 = 30;

/// What the machine did just before a run, while nothing was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// Why the figures of the run are in doubt: `others use 201 % of 2 CPUs`. Absent if the machine was
    /// quiet when the run began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busy_because: Option<String>,
    /// For how long quiet was waited for.
    pub waited_ms: u64,
    /// What the machine did in the last second before the run.
    pub machine: Machine,
    /// Writes and flushes of others that the device completed in that second; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub others_requests: Option<u64>,
}

impl Before {
    /// Looks until the machine is quiet, or until it was waited for it as long as `patience`. `told` is
    /// why it is not quiet and how much patience is left, after every look that found it busy.
    pub(crate) fn wait(
        counters: &Counters,
        cpus: usize,
        patience: Duration,
        cancel: &AtomicBool,
        told: &mut dyn FnMut(&str, Duration),
    ) -> Result<Self> {
        let mut look = || look(counters, cancel);
        settle(&mut look, cpus, patience, told)
    }

    /// That the machine was busy, and why, if it was.
    #[must_use]
    pub(crate) fn busy_in_words(&self) -> Option<String> {
        let because = self.busy_because.as_ref()?;
        let waited = match self.waited_ms {
            0 => String::new(),
            ms => format!(", also after waiting for {}", units::clock(Duration::from_millis(ms))),
        };
        Some(format!("the machine was busy when the run began ({because}{waited})"))
    }

    /// Reasons to distrust the run.
    #[must_use]
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if let Some(busy) = self.busy_in_words() {
            let text = format!("{busy}: stop what else runs, and measure again");
            warnings.push(Warning::new(Kind::Noisy, text));
        }
        if let Some(requests) = self.others_requests.filter(|&n| n > OTHERS_REQUESTS_MAX) {
            let text = format!(
                "before the run began, somebody else wrote to the device ({requests} writes and flushes \
                 in a second): flushes and bytes per operation are too high by that much; stop them and \
                 measure again"
            );
            warnings.push(Warning::new(Kind::OthersWrote, text));
        }
        warnings
    }
}

/// Looks again and again; see [`Before::wait`]. What a look sees, and how long it took, is its value.
fn settle(
    look: &mut dyn FnMut() -> Result<Elapsed>,
    cpus: usize,
    patience: Duration,
    told: &mut dyn FnMut(&str, Duration),
) -> Result<Before> {
    let mut waited = Duration::ZERO;
    loop {
        let seen = look()?;
        let machine = Machine::during(&seen);
        let busy_because = verdict::busy_with_others(&machine, cpus);
        let left = patience.saturating_sub(waited);
        if let Some(because) = &busy_because {
            told(because, left);
        }
        if busy_because.is_none() || left.is_zero() {
            return Ok(Before {
                busy_because,
                waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                machine,
                others_requests: seen.device.map(|counts| counts.writes + counts.flushes),
            });
        }
        waited += Duration::from_nanos(seen.wall_ns);
    }
}

/// Watches the machine for a moment, doing nothing.
#[expect(clippy::disallowed_methods, reason = "watching takes time, and waits for nothing")]
fn look(counters: &Counters, cancel: &AtomicBool) -> Result<Elapsed> {
    let before = counters.read();
    let begun = Instant::now();
    while begun.elapsed() < LOOK {
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        thread::sleep(STEP);
    }
    Ok(counters.since(&before))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Seconds in which others used so many percent of a CPU, and the last of them for ever.
    fn settled(others: &[u64], patience_s: u64) -> (Before, Vec<String>) {
        let mut seconds = others.iter().chain(others.last().into_iter().cycle());
        let mut look = || {
            let percent = seconds.next().expect("for ever");
            Ok(Elapsed {
                wall_ns: SECOND_NS,
                machine_cpu_ns: Some(SECOND_NS / 100 * percent),
                process_cpu_ns: Some(0),
                ..Elapsed::default()
            })
        };
        let mut told = Vec::new();
        let mut tell =
            |why: &str, left: Duration| told.push(format!("{why}, {} s", left.as_secs()));
        let before = settle(&mut look, 2, Duration::from_secs(patience_s), &mut tell).unwrap();
        (before, told)
    }

    #[test]
    fn a_quiet_machine_is_not_waited_for() {
        let (before, told) = settled(&[20], 30);
        assert_eq!((before.busy_because.clone(), before.waited_ms), (None, 0));
        assert!(told.is_empty() && before.warnings().is_empty());
        assert_eq!(before.machine.others_cpu_share, Some(0.2));
    }

    #[test]
    fn the_wait_ends_when_the_machine_is_quiet() {
        let (before, told) = settled(&[201, 150, 10], 30);
        assert_eq!((before.busy_because, before.waited_ms), (None, 2000));
        let said = ["others use 201 % of 2 CPUs, 30 s", "others use 150 % of 2 CPUs, 29 s"];
        assert_eq!(told, said);
    }

    #[test]
    fn patience_ends_and_the_run_is_stamped_with_what_was_seen_last() {
        let (before, told) = settled(&[201, 190], 30);
        assert_eq!((told.len(), before.waited_ms), (31, 30_000));
        let warning = &before.warnings()[0];
        assert_eq!(warning.kind, Kind::Noisy);
        let text =
            "busy when the run began (others use 190 % of 2 CPUs, also after waiting for 30s)";
        assert!(warning.text.contains(text), "{warning}");
    }

    #[test]
    fn without_patience_there_is_one_look_and_the_run_is_stamped() {
        let (before, told) = settled(&[201], 0);
        assert_eq!(told, ["others use 201 % of 2 CPUs, 0 s"]);
        assert!(before.warnings()[0].text.contains("(others use 201 % of 2 CPUs): stop"));
    }

    #[test]
    fn what_others_write_to_the_device_is_said() {
        let before = Before { others_requests: Some(31), ..settled(&[0], 0).0 };
        assert_eq!(before.warnings()[0].kind, Kind::OthersWrote);
        let few = Before { others_requests: Some(30), ..before };
        assert!(few.warnings().is_empty());
    }
}
