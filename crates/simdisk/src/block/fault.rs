//! What goes wrong with which request to the device, and when.
//!
//! The words are those of the disk in memory ([`crate::Fault`]), one seam lower: an operation is a request
//! to a device, and is found by where it goes on the disk and by what is in it, not by a file's name. What
//! both share is in `armed.rs`; how a fault is written as a line is in `fault_text.rs`.

use std::collections::BTreeSet;
use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::event::Errno;
use crate::armed::{Armed, Due, Times};

/// A request to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// What was written is to be durable.
    Flush,
    /// A range is no longer needed.
    Discard,
}

/// What the device does instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It answers with an error and stores nothing.
    Fail(Errno),
    /// `Write` and `Discard` only: it says that it is done, and stored nothing.
    LostWrite,
    /// `Flush` only: it says that it is done, and made nothing durable.
    DropFlush,
    /// `Write` only: it stores the bytes a few sectors away from where they belong.
    Misdirect,
    /// `Write` and `Read` only: one bit is wrong of what is stored, or of what is returned.
    Flip,
    /// `Read` only: reads of the range fail until it is written again.
    Unreadable,
}

/// What happens to which request. It is made of a line, such as `flush EIO nth=3`.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The operation.
    pub on: Operation,
    /// What happens.
    pub kind: FaultKind,
    /// Happens from the nth request on that matches, counted from 1.
    pub(super) nth: u64,
    /// And then so often.
    pub(super) times: Times,
    /// Of those with this probability, from 0 to 1.
    pub(super) chance: Option<f64>,
    /// Only to requests that touch these bytes of the disk; all of it for a flush.
    pub(super) range: Range<u64>,
    /// Only to writes that hold these bytes.
    pub(super) has: Vec<u8>,
    /// Only when the workload has said this.
    pub(super) after: Option<String>,
}

/// Faults that are in force, with what they have seen.
#[derive(Debug, Clone)]
pub struct Faults {
    armed: Armed<Fault>,
    /// What the workload said of what faults wait for.
    said: BTreeSet<String>,
    rng: Pcg64Mcg,
}

impl Faults {
    /// These faults, with a seed for what is left to chance: which bit, which sector, whether at all.
    #[must_use]
    pub fn new(faults: Vec<Fault>, seed: u64) -> Self {
        let armed = faults.into_iter().collect();
        Self { armed, said: BTreeSet::new(), rng: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// What the device does to a request, if not what it should.
    pub(crate) fn meet(
        &mut self,
        on: Operation,
        touched: &Range<u64>,
        payload: &[u8],
    ) -> Option<FaultKind> {
        let Self { armed, said, rng } = self;
        let is_awake = |fault: &Fault| fault.after.as_ref().is_none_or(|mark| said.contains(mark));
        let met = armed.meet(
            |fault| is_awake(fault) && fault.matches(on, touched, payload),
            |fault| fault.chance.is_none_or(|chance| rng.random_bool(chance)),
        );
        met.map(|fault| fault.kind)
    }

    /// The workload said something.
    pub(crate) fn mark(&mut self, text: &str) {
        if self.happened().any(|(fault, _)| fault.after.as_deref() == Some(text)) {
            self.said.insert(text.to_owned());
        }
    }

    /// Each fault, and how often it happened.
    pub fn happened(&self) -> impl Iterator<Item = (&Fault, u64)> {
        self.armed.happened()
    }

    /// What cannot be read until it is written again.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = Range<u64>> {
        let unreadable = self.happened().filter(|(fault, _)| fault.kind == FaultKind::Unreadable);
        unreadable.map(|(fault, _)| fault.range.clone())
    }

    /// Below `below`, by the seed.
    pub(crate) fn draw(&mut self, below: usize) -> usize {
        self.rng.random_range(0..below)
    }
}

impl Due for Fault {
    fn nth(&self) -> u64 {
        self.nth
    }

    fn times(&self) -> Times {
        self.times
    }
}

impl Fault {
    /// Whether the device says other than what it did or has. One that answers with an error does not lie.
    #[must_use]
    pub const fn lies(&self) -> bool {
        !matches!(self.kind, FaultKind::Fail(_))
    }

    fn matches(&self, on: Operation, touched: &Range<u64>, payload: &[u8]) -> bool {
        let in_range = on == Operation::Flush
            || (touched.start < self.range.end && self.range.start < touched.end);
        let has =
            self.has.is_empty() || payload.windows(self.has.len()).any(|window| window == self.has);
        // A place that cannot be read is a state of the disk: see `unreadable`.
        self.on == on && self.kind != FaultKind::Unreadable && in_range && has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(lines: &[&str]) -> Faults {
        Faults::new(lines.iter().map(|line| line.parse().unwrap()).collect(), 1)
    }

    #[test]
    fn a_fault_counts_what_it_matches_and_nothing_else() {
        let mut faults = faults(&["write EIO nth=2 times=2 range=4KiB..8KiB"]);
        let mut at =
            |start: u64| faults.meet(Operation::Write, &(start..start + 4096), &[]).is_some();
        assert!(!at(4096));
        assert!(!at(8192), "beyond the range");
        assert!(at(4096) && at(0x1800), "the second and third that touch it");
        assert!(!at(4096));
        assert!(faults.meet(Operation::Read, &(4096..8192), &[]).is_none());
    }

    #[test]
    fn a_pattern_tells_data_from_journal() {
        let mut faults = faults(&["write lost sticky has=DATA"]);
        assert_eq!(faults.meet(Operation::Write, &(0..8), b"..DATA.."), Some(FaultKind::LostWrite));
        assert_eq!(faults.meet(Operation::Write, &(0..8), b"..JRNL.."), None);
    }

    #[test]
    fn a_fault_sleeps_until_its_mark() {
        let mut faults = faults(&["flush dropped sticky after=loaded"]);
        assert_eq!(faults.meet(Operation::Flush, &(0..0), &[]), None);
        faults.mark("other");
        assert_eq!(faults.meet(Operation::Flush, &(0..0), &[]), None);
        faults.mark("loaded");
        assert_eq!(faults.meet(Operation::Flush, &(0..0), &[]), Some(FaultKind::DropFlush));
    }
}
