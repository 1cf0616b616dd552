//! [`Lately`]: entries that were read from the log lately: who reads on needs the next of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::shard::Held;

/// Bytes that are kept, at most; the newest run is in any case.
const KEPT_BYTES: usize = 8 << 20;

/// Entries by their index, as one read found them.
pub(super) type Run = HashMap<u64, Held>;

/// The last runs, oldest first, and how many bytes each has.
#[derive(Debug, Default)]
pub(super) struct Lately(Mutex<VecDeque<(Arc<Run>, usize)>>);

impl Lately {
    /// A run with this entry.
    pub(super) fn find(&self, index: u64) -> Option<Arc<Run>> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let run = runs.iter().rev().find(|(run, _)| run.contains_key(&index));
        run.map(|(run, _)| Arc::clone(run))
    }

    /// Keeps what was read for an entry, unless somebody else has read that meanwhile. Where it is too much, what
    /// was read first goes, wherever in the log it lies: others read elsewhere.
    pub(super) fn keep(&self, index: u64, run: &Arc<Run>) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.iter().any(|(run, _)| run.contains_key(&index)) {
            return;
        }
        runs.push_back((Arc::clone(run), bytes_of(run)));
        let mut bytes: usize = runs.iter().map(|(_, bytes)| bytes).sum();
        while bytes > KEPT_BYTES && runs.len() > 1 {
            bytes -= runs.pop_front().map_or(0, |(_, bytes)| bytes);
        }
    }
}

fn bytes_of(run: &Run) -> usize {
    run.values().map(Held::held_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{Draft, Item};

    fn run(indexes: std::ops::Range<u64>) -> Arc<Run> {
        let held = || {
            let mut draft = Draft::new();
            draft.push(&Item::Advance);
            Held::new(draft.finish(0)).unwrap()
        };
        Arc::new(indexes.map(|index| (index, held())).collect())
    }

    /// What a reader that was ahead had left filled it, and one behind it read each entry again and again.
    #[test]
    fn who_reads_behind_where_others_read_finds_what_it_read() {
        let lately = Lately::default();
        let each = bytes_of(&run(0..1));
        let many = (KEPT_BYTES / each) as u64;
        lately.keep(1_000_000, &run(1_000_000..1_000_000 + many));
        lately.keep(1, &run(1..3));
        assert!(lately.find(2).is_some());
        assert!(lately.find(1_000_000).is_none(), "it was read before, and is too much");
        assert!(lately.find(3).is_none());
    }
}
