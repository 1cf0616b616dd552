//! [`Replica`]: one of those that apply the log of a history, each at its own pace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_server::chapter::Shelf;
use plimsoll_server::shard::{Held, Opening, Outcome, State, fetch};
use plimsoll_simdisk::SimDir;

use super::log::{Log, files, shelf};

/// One that settles.
pub(crate) struct Replica {
    pub(crate) disk: Arc<SimDir>,
    pub(crate) shelf: Shelf,
    pub(crate) state: State,
    /// Snapshots that it took, the newest last.
    pub(crate) snapshots: Vec<State>,
    /// The one that is durable.
    pub(crate) durable: State,
    /// How far it was when it last settled: what it left out was deleted by then, and nobody reads before.
    pub(crate) settled_at: u64,
    /// Runs that the shelf let go of.
    pub(crate) freed: BTreeSet<(Opening, u64)>,
}

impl Replica {
    pub(crate) fn new() -> Self {
        let disk = Arc::new(SimDir::new());
        let shelf = shelf(&disk);
        Self {
            disk,
            shelf,
            state: State::default(),
            snapshots: Vec::new(),
            durable: State::default(),
            settled_at: 0,
            freed: BTreeSet::new(),
        }
    }

    /// Whether what came by was settled already.
    pub(crate) fn apply_next(&mut self, log: &Log) -> bool {
        let settled = self.shelf.settled().end;
        let is_settled = |outcome: &Outcome| match outcome {
            Outcome::ChapterEnd(ended) => ended.end <= settled,
            _ => false,
        };
        let comes_again = log.apply_next(&mut self.state).iter().any(is_settled);
        if comes_again {
            self.state.settle(settled);
        }
        comes_again
    }

    pub(crate) fn take_snapshot(&mut self) {
        self.snapshots.push(self.state.clone());
    }

    /// The first entry that the log still has.
    pub(crate) fn log_from(&self) -> u64 {
        self.durable.needs_from().min(self.durable.applied() + 1)
    }

    /// Notes which runs a shelf lets go of by this state.
    pub(crate) fn note_freed(&mut self, state: &State) {
        let mut runs: BTreeMap<Opening, Vec<(u64, i64, bool)>> = BTreeMap::new();
        for (_, chapter, of_file) in files(&self.disk) {
            let is_known = chapter.footer().last_index <= state.applied();
            for run in of_file {
                let of = runs.entry(run.opening).or_default();
                of.push((run.chapter, run.end_offset, is_known));
            }
        }
        for (opening, mut runs) in runs {
            runs.sort_unstable();
            let start = state.partition(opening).map_or(i64::MAX, |partition| partition.start());
            runs.retain(|(chapter, ..)| !self.freed.contains(&(opening, *chapter)));
            let gone = runs.iter().take_while(|(_, end, is_known)| *is_known && *end <= start);
            self.freed.extend(gone.map(|(chapter, ..)| (opening, *chapter)));
        }
    }

    /// What comes next, as a broker reads it; and whether it was on the shelf.
    pub(crate) fn read(
        &self,
        log: &Log,
        at: Opening,
        from: i64,
        end: i64,
        bytes_max: usize,
    ) -> (Vec<Bytes>, bool) {
        let unsettled = self.state.partition(at).unwrap().unsettled();
        if from < unsettled && self.shelf.has(at, from) {
            return (self.shelf.read(at, from, end, bytes_max).unwrap(), true);
        }
        let find = |index: u64| -> Option<&Held> {
            assert!(index >= self.log_from(), "the log has let go of entry {index}");
            log.find(index)
        };
        let fetched = fetch(&self.state, at, from, end, bytes_max, find);
        assert_eq!(fetched.needs, None);
        (fetched.batches, false)
    }
}
