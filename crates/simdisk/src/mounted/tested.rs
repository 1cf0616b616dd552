//! [`Tested`]: what the states that were visited put to the test. [`Untested`]: why that is nothing.
//!
//! A check that passes says something only of what could have failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::finding::{Finding, Standing};
use super::findings::Findings;
use crate::block::{Mode, State};

/// What some states put to the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tested {
    /// How many they are.
    pub states: usize,
    /// Those with a mark before the power cut: a promise that could be broken.
    pub marked: usize,
    /// Those at which writes were pending.
    pub pending: usize,
    /// Those that lost some of what was pending, or all.
    pub lost: usize,
    /// Those that kept some pending writes and lost others, as if they had been reordered.
    pub reordered: usize,
    /// Those in which a part of a write is there.
    pub torn: usize,
    /// Disks that differ in a byte.
    pub disks: usize,
}

impl Tested {
    /// Counts.
    #[must_use]
    pub fn of(findings: &Findings) -> Self {
        let mut tested = Self::default();
        let mut disks = BTreeSet::new();
        for finding in findings.found.values() {
            let of = finding.pending;
            tested.states += 1;
            tested.marked += usize::from(finding.last_mark.is_some());
            tested.pending += usize::from(of.lost + of.kept + of.torn > 0);
            tested.lost += usize::from(of.lost + of.torn > 0);
            tested.reordered += usize::from(of.lost > 0 && of.kept + of.torn > 0);
            tested.torn += usize::from(of.torn > 0);
            disks.insert(&finding.disk);
        }
        Self { disks: disks.len(), ..tested }
    }
}

impl fmt::Display for Tested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { marked, lost, reordered, torn, disks, .. } = self;
        let different = if *disks == 1 { "disk" } else { "different disks" };
        write!(
            f,
            "{marked} had a mark before the cut (a promise that could be broken), {lost} lost pending \
             writes ({reordered} of them kept others), {torn} tore a write; {disks} {different}"
        )
    }
}

/// What a search found, in a few numbers: what is kept beside the trace as `.summary.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Hash of the trace.
    pub trace: String,
    /// How many states there are to visit.
    pub planned: usize,
    /// How many of those that were visited ended how.
    pub counts: BTreeMap<String, usize>,
    /// What they put to the test.
    pub tested: Tested,
    /// Why that is nothing, if it is.
    pub untested: Option<String>,
}

/// Why a search that found no failure shows nothing. Its text says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Untested {
    /// There is no state of a mode that was asked for, though there was room for one.
    Mode {
        /// Which.
        mode: String,
        /// What tears, in bytes.
        tear_bytes: u32,
    },
    /// There is no state of this mode, and no room for one: others took all.
    NoRoom(String),
    /// It is one state, as no more were asked for.
    OneState,
    /// The check ran on none of so many.
    Unchecked(usize),
    /// So many states are one disk.
    OneDisk(usize),
    /// No mark and nothing pending: no cut could do harm.
    NothingAtStake,
}

impl Untested {
    /// Of a search that is at its end; `None` if something failed, or could have.
    #[must_use]
    pub fn of(findings: &Findings) -> Option<Self> {
        if findings.bad().next().is_some() {
            return None;
        }
        let question = &findings.question;
        let is_there = |mode: &&String| findings.found.values().any(|found| is_of(found, mode));
        if let Some(mode) = question.modes.iter().find(|mode| !is_there(mode)) {
            let (mode, tear_bytes) = (mode.clone(), question.tear_bytes);
            let is_full = findings.found.len() >= question.states;
            return Some(if is_full {
                Self::NoRoom(mode)
            } else {
                Self::Mode { mode, tear_bytes }
            });
        }
        let tested = Tested::of(findings);
        if findings.count(Standing::Passed) == 0 {
            return Some(Self::Unchecked(tested.states));
        }
        if tested.states == 1 && question.states == 1 {
            return Some(Self::OneState);
        }
        if tested.disks == 1 {
            return Some(Self::OneDisk(tested.states));
        }
        (tested.marked == 0 && tested.pending == 0).then_some(Self::NothingAtStake)
    }
}

impl fmt::Display for Untested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode { mode, tear_bytes } if mode == "torn" => write!(
                f,
                "this tested nothing of mode torn: no write that was pending could tear at {tear_bytes} \
                 bytes; {}leave --modes out, or record larger writes",
                if *tear_bytes > 512 { "tear smaller (--tear 512), " } else { "" }
            ),
            Self::Mode { mode, .. } => write!(
                f,
                "this tested nothing of mode {mode}: there was nothing pending to choose from; leave \
                 --modes out, or record a workload that writes more"
            ),
            Self::Unchecked(states) => write!(
                f,
                "this tested nothing: none of {states} states could be mounted, so the check never ran; \
                 tear at 4096 bytes, or believe the disk"
            ),
            Self::NoRoom(mode) => write!(
                f,
                "this tested nothing of mode {mode}: the other modes took all states that were asked for; ask \
                 for more with --states"
            ),
            Self::OneState => {
                write!(f, "this tested nothing: it is one state; ask for more with --states")
            }
            Self::OneDisk(1) => write!(
                f,
                "this tested nothing: there is one state and no other; leave --modes out, or record a \
                 workload that writes to {{dir}} and syncs"
            ),
            Self::OneDisk(states) => write!(
                f,
                "this tested nothing: all {states} states are one and the same disk; record a workload \
                 that writes to {{dir}} and syncs"
            ),
            Self::NothingAtStake => write!(
                f,
                "this tested nothing: no state had a mark before it and none had a pending write, so \
                 there was nothing to lose; have the workload mark what it promises (`plimsoll disk \
                 mark`), and record it again"
            ),
        }
    }
}

/// Combinations are subsets.
fn is_of(finding: &Finding, mode: &str) -> bool {
    let named = finding.state.parse::<State>().map(|state| match state.mode {
        Mode::Durable => "durable",
        Mode::Arrived => "arrived",
        Mode::Subset { .. } | Mode::Without(_) => "subset",
        Mode::Torn { .. } => "torn",
    });
    named == Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Micros;
    use super::super::question::Question;
    use super::super::question::tests::question;
    use super::*;
    use crate::block::Toll;

    const NONE: Toll = Toll { lost: 0, kept: 0, torn: 0 };
    const SOME: Toll = Toll { lost: 1, kept: 2, torn: 0 };

    /// Of states: whether there is a mark, what became of what was pending, and which disk it is.
    fn findings(modes: &[&str], states: &[(bool, Toll, &str)]) -> Findings {
        let dir = tempfile::tempdir().unwrap();
        let modes = modes.iter().map(|&mode| mode.to_owned()).collect();
        let asked = Question { modes, ..question(1) };
        let mut findings = Findings::open(&dir.path().join("a.trace"), asked, true).unwrap();
        for (number, &(marked, pending, disk)) in states.iter().enumerate() {
            let finding = Finding {
                number,
                state: "point=3,mode=subset,seed=1".to_owned(),
                verdict: "ok".to_owned(),
                said: String::new(),
                last_mark: marked.then(|| "7".to_owned()),
                pending,
                disk: disk.to_owned(),
                micros: Micros::default(),
            };
            findings.add(finding).unwrap();
        }
        findings
    }

    #[test]
    fn what_could_have_failed_is_counted() {
        let all_lost = Toll { lost: 3, ..NONE };
        let torn = Toll { torn: 1, ..NONE };
        let states = [
            (false, NONE, "a"),
            (true, all_lost, "a"),
            (true, SOME, "b"),
            (true, torn, "c"),
            (false, Toll { kept: 1, ..NONE }, "b"),
        ];
        let findings = findings(&[], &states);
        let tested = Tested::of(&findings);
        let wanted =
            Tested { states: 5, marked: 3, pending: 4, lost: 3, reordered: 1, torn: 1, disks: 3 };
        assert_eq!(tested, wanted);
        assert_eq!(Untested::of(&findings), None);
        assert_eq!(
            tested.to_string(),
            "3 had a mark before the cut (a promise that could be broken), 3 lost pending writes \
             (1 of them kept others), 1 tore a write; 3 different disks"
        );
    }

    /// Each of these was `ok, 0 lost`, and ended with 0.
    #[test]
    fn what_could_not_have_failed_is_no_pass() {
        let of = |modes: &[&str], states: &[_]| Untested::of(&findings(modes, states));
        let lively = [(true, SOME, "a"), (true, SOME, "b")];
        assert_eq!(of(&[], &lively), None);
        assert_eq!(of(&["subset"], &lively), None);
        let torn = Untested::Mode { mode: "torn".to_owned(), tear_bytes: 4096 };
        assert!(torn.to_string().contains("--tear 512"));
        let torn = Some(torn);
        assert_eq!(of(&["torn"], &[]), torn);
        assert_eq!(of(&["subset", "torn"], &lively), torn, "half of what was asked");
        let few = [lively[0]; 9];
        assert_eq!(of(&["subset", "torn"], &few), Some(Untested::NoRoom("torn".to_owned())));
        let still = [(true, NONE, "a"), (false, NONE, "a")];
        assert_eq!(of(&[], &still), Some(Untested::OneDisk(2)));
        let one = Untested::of(&findings(&[], &still[..1])).unwrap();
        assert!(!one.to_string().contains("--states"), "9 were asked for: {one}");
        let safe = [(false, NONE, "a"), (false, NONE, "b")];
        assert_eq!(of(&[], &safe), Some(Untested::NothingAtStake));
        let promised = [(true, NONE, "a"), (false, NONE, "b")];
        assert_eq!(of(&[], &promised), None, "a write-through cache has nothing pending");
        assert_eq!(of(&[], &[]), Some(Untested::Unchecked(0)));
    }

    #[test]
    fn what_failed_was_tested() {
        let mut findings = findings(&[], &[(true, NONE, "a")]);
        assert_eq!(Untested::of(&findings), Some(Untested::OneDisk(1)));
        let bad = Finding { verdict: "lost".to_owned(), ..findings.found[&0].clone() };
        findings.add(bad).unwrap();
        assert_eq!(Untested::of(&findings), None);
    }
}
