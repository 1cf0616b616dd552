//! Runs that are freed while somebody reads them: their blocks are given back, and nobody takes that for damage.

use std::sync::Arc;

use plimsoll_server::chapter::{Reread, Shelf};
use plimsoll_server::shard::{Item, Opening};
use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};

use super::between::Between;
use super::log::{Log, SETTINGS, SHARD, acts, batches, files, marked, opens, partition, read_all};

/// A batch that fills blocks of the filesystem: they are given back one by one.
const LARGE: u32 = 3_300;

/// Two partitions in one chapter, and then the first of them is deleted: just before the next read.
struct Race {
    log: Log,
    disk: Arc<SimDir>,
    between: Between,
    shelf: Arc<Shelf>,
}

fn freed() -> Opening {
    partition(7, 0)
}

fn kept() -> Opening {
    partition(7, 1)
}

impl Race {
    fn new() -> Self {
        let mut log = Log::default();
        log.lead();
        log.push(opens(&[freed(), kept()], SETTINGS), 1_000);
        let both = [(freed(), 0, marked(LARGE, None, 70)), (kept(), 0, marked(LARGE, None, 80))];
        log.push(batches(&both), 1_010);
        log.push(acts(&[Item::ChapterEnd(1)]), 1_020);
        let mut state = log.state_at(log.last());
        log.push(acts(&[Item::Trim { opening: freed(), start: i64::from(LARGE) }]), 1_030);
        let disk = Arc::new(SimDir::new());
        let between = Between::new(&disk);
        let shelf = Arc::new(Shelf::open(Arc::new(between.clone()), SHARD).unwrap());
        log.settle_next(&shelf, &mut state).unwrap();
        Self { log, disk, between, shelf }
    }

    fn free_before_next_read(&self) {
        let (shelf, state) = (Arc::clone(&self.shelf), self.log.state_at(self.log.last()));
        self.between.before_next_read(move || shelf.free(&state).unwrap());
    }

    /// It was met, nobody took it for damage, and the other is whole.
    fn check(&self) {
        assert!(self.between.has_happened());
        assert!(self.shelf.damaged().is_empty(), "{:?}", self.shelf.damaged());
        let all: Vec<_> = self.log.batches(kept()).into_iter().map(|batch| batch.bytes).collect();
        assert_eq!(read_all(&self.shelf, kept(), 0, 1).unwrap(), all);
    }
}

#[test]
fn who_reads_what_is_freed_meanwhile_finds_nothing() {
    let race = Race::new();
    race.free_before_next_read();
    assert!(race.shelf.read(freed(), 0, i64::MAX, 1).unwrap().is_empty());
    race.check();
}

/// The answer was that the storage failed: found by the simulation, once topics were compacted in it (seed 173).
#[test]
fn who_asks_for_a_time_of_what_is_freed_meanwhile_finds_none() {
    let race = Race::new();
    race.free_before_next_read();
    assert_eq!(race.shelf.offset_at(freed(), 0, 50).unwrap(), None);
    race.check();
}

#[test]
fn a_scrub_takes_nothing_for_damaged_that_is_freed_meanwhile() {
    let race = Race::new();
    race.free_before_next_read();
    let file = race.shelf.files()[0];
    let reread = race.shelf.scrub(file, 0, u64::MAX, &mut |_| true).unwrap();
    assert_eq!(reread, Reread::default());
    race.check();
}

/// The shelf had forgotten the run before the manifest could say so: the next call found nothing to free, and its room
/// came back with the next start.
#[test]
fn what_the_manifest_could_not_say_is_gone_is_freed_by_the_next_call() {
    let Race { log, disk, shelf, .. } = Race::new();
    let state = log.state_at(log.last());
    let failing = Fault::new(Operation::Write, FaultKind::FailRaw(5));
    disk.inject(failing.named("manifest.new"));
    shelf.free(&state).unwrap_err();
    assert_eq!(files(&disk)[0].2.len(), 2);
    shelf.free(&state).unwrap();
    let left = files(&disk).remove(0).2;
    assert_eq!(left.iter().map(|run| run.opening).collect::<Vec<_>>(), [kept()]);
    assert!(disk.history().iter().any(|step| step.operation == Operation::Punch));
    assert!(!shelf.has(freed(), 0));
}
