//! [`Marks`]: how far the records of a log have come.
//!
//! Invariant, asserted where a mark advances: `durable` ≤ `written` ≤ `appended`.

use std::ops::Deref;

use super::watermark::Watermark;
use crate::error::Error;

/// How far the records of a log have come.
#[derive(Debug)]
pub(crate) struct Marks {
    /// The last record that was accepted.
    pub(crate) appended: Apart<Watermark>,
    /// The last that the kernel has.
    pub(crate) written: Watermark,
    /// The last that is covered by a good sync.
    pub(crate) durable: Watermark,
}

impl Marks {
    /// Of a log that was opened with durable records up to one, and others behind it in its ring.
    pub(crate) fn new(durable: u64, appended: u64) -> Self {
        assert!(durable <= appended, "what is durable was appended");
        Self {
            appended: Apart(Watermark::new("appended", appended)),
            written: Watermark::new("written", durable),
            durable: Watermark::new("durable", durable),
        }
    }

    /// Records up to this one are with the kernel.
    pub(crate) fn reach_written(&self, index: u64) {
        assert!(index <= self.appended.get(), "record {index} was written and never appended");
        self.written.advance(index);
    }

    /// Records up to this one are durable.
    pub(crate) fn reach_durable(&self, index: u64) {
        assert!(index <= self.written.get(), "record {index} is durable and was never written");
        self.durable.advance(index);
    }

    /// What came after this record was cut off. First the marks that are behind, so that the order
    /// among them holds at every moment.
    pub(crate) fn set_back(&self, index: u64) {
        for mark in self.all() {
            mark.set_back(index);
        }
    }

    /// How often the log was cut: as `appended` says, which goes back last. Who reads this before it looks
    /// for a record is told when that one is cut off.
    pub(crate) fn cuts(&self) -> u64 {
        self.appended.cuts()
    }

    /// Whether a record was cut off since the log had been cut so often.
    pub(crate) fn is_cut_off(&self, index: u64, since: u64) -> bool {
        self.appended.is_cut_off(index, since)
    }

    /// They will not move any more.
    pub(crate) fn close(&self, error: &Error) {
        for mark in self.all() {
            mark.close(error);
        }
    }

    fn all(&self) -> [&Watermark; 3] {
        [&self.durable, &self.written, &self.appended]
    }
}

/// What every append writes, in cache lines of its own: it would slow down whoever reads its
/// neighbours, and every record passes the writer.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "never written")]
    fn what_is_durable_was_written() {
        Marks::new(0, 10).reach_durable(1);
    }
}
