//! What a log should hold: a list of records and how far they were acknowledged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use plimsoll_log::{Error, Log};
use plimsoll_sync::Crash;

use crate::Disk;

/// The records of a log, and what was said of them.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// The log begins behind this index.
    pub(crate) before: u64,
    /// Payloads of its records, in order.
    pub(crate) records: Vec<Vec<u8>>,
    /// For each record, how many of its batch follow.
    pub(crate) more: Vec<usize>,
    /// The last record acknowledged as written, and as durable.
    pub(crate) written: u64,
    pub(crate) durable: u64,
    /// The last record that a segment had when somebody last looked: what is behind it may be in a ring
    /// only.
    pub(crate) on_disk: u64,
    /// What retention may have taken, and what it has.
    pub(crate) may_be_gone: u64,
    pub(crate) is_gone: u64,
    /// A batch whose append has not returned.
    pub(crate) offered: Vec<Vec<u8>>,
    /// Where a truncation that has not returned cuts.
    pub(crate) cut_to: Option<u64>,
    /// Where one cut that failed: it may have happened.
    pub(crate) may_be_cut_to: Option<u64>,
    /// Its marks are promises as well.
    pub(crate) log: Weak<Log>,
}

/// The model, for the world and for whoever watches its disks.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<Mutex<Model>>);

impl Shared {
    pub(crate) fn of(model: Model) -> Self {
        Self(Arc::new(Mutex::new(model)))
    }

    /// Never held while the log works: whoever watches its disk needs it then.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Model> {
        self.0.try_lock().unwrap_or_else(|error| match error {
            std::sync::TryLockError::Poisoned(poisoned) => PoisonError::into_inner(poisoned),
            std::sync::TryLockError::WouldBlock => panic!("the model is held during a call"),
        })
    }
}

impl Model {
    /// A log that begins behind this index.
    pub(crate) fn behind(before: u64) -> Self {
        let (may_be_gone, is_gone) = (before, before);
        Self { before, may_be_gone, is_gone, written: before, durable: before, ..Self::default() }
    }

    /// The last record.
    pub(crate) fn last(&self) -> u64 {
        self.before + self.records.len() as u64
    }

    /// Where a record is in the lists, or as many as there are up to it.
    fn count_to(&self, index: u64) -> usize {
        usize::try_from(index.saturating_sub(self.before)).expect("there are few")
    }

    /// A log was opened or cut and holds records up to `last`: those are the log now.
    pub(crate) fn keep(&mut self, last: u64) {
        let count = self.count_to(last);
        self.records.truncate(count);
        self.more.truncate(count);
    }

    /// The batch that a cut went through is whole as far as it goes.
    pub(crate) fn end_batch(&mut self) {
        let more = &mut self.more;
        let mut end = more.len();
        while end > 0 && more[end - 1] > 0 && (end == more.len() || more[end - 1] > more[end]) {
            end -= 1;
        }
        for (place, more) in more[end..].iter_mut().rev().enumerate() {
            *more = place;
        }
    }

    /// What a crash at this moment must leave.
    pub(crate) fn promised(&self, crash: Crash, disk: Disk) -> u64 {
        let marks = self.log.upgrade().map(|log| (log.written(), log.durable()));
        let (written, durable) = marks.unwrap_or_default();
        let durable = durable.max(self.durable);
        let promised = match crash {
            // Between a sync that failed and the segment that replaces it, only memory has the rest.
            Crash::Process if disk == Disk::Good => written.max(self.written).max(durable),
            _ => durable,
        };
        self.cut_to.map_or(promised, |index| promised.min(index))
    }

    /// What a log that was just opened holds: a prefix, whole batches, at least `must`.
    pub(crate) fn check_ends(&self, log: &Log, must: u64, disk: Disk) {
        let (first, last) = (log.first_index(), log.last_index());
        let most = self.last() + self.offered.len() as u64;
        assert!(last <= most, "{last} were never appended");
        let whole = last <= self.before
            || last < first
            || Some(last) == self.cut_to
            || last == most
            || self.more.get(self.count_to(last) - 1) == Some(&0);
        assert!(whole, "half a batch at {last}");
        if disk == Disk::Lying {
            return;
        }
        assert!(last >= must, "{must} were acknowledged, {last} are there");
        assert!(first <= self.may_be_gone + 1, "the log begins with {first}");
        assert!(last < first || first > self.is_gone, "{first} was truncated");
    }

    /// Everything that the kernel has can be read, and is what was appended. Stops where a read fails
    /// and `may_fail`.
    pub(crate) fn check_records(&self, log: &Log, may_fail: impl Fn(&Error) -> bool) {
        let (mut next, end) = (log.first_index(), log.written());
        let mut reader = log.read_from(next).unwrap();
        loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    assert_eq!(record.index, next);
                    assert!(Some(record.payload) == self.payload(next), "{next} is another one");
                    next += 1;
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(may_fail(&error), "{error}");
                    return;
                }
            }
        }
        assert_eq!(next, end.max(log.first_index() - 1) + 1, "not all can be read");
    }

    pub(crate) fn payload(&self, index: u64) -> Option<&[u8]> {
        let at = self.count_to(index).checked_sub(1)?;
        let offered = || self.offered.get(at - self.records.len());
        self.records.get(at).or_else(offered).map(Vec::as_slice)
    }
}
