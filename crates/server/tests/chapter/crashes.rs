//! A process that dies, a power cut and a failing disk, at each operation of a settle, of a merge and of a
//! compaction.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use plimsoll_server::chapter::{Error, MANIFEST, Manifest, Run, Settled, Shelf};
use plimsoll_server::shard::{Opening, State};
use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir, Step};
use plimsoll_sync::{Crash, Dir};

use super::log::{Log, OF_SMALL, ROLL_UP, SHARD, SMALL_ENDS, files, read_all, shelf, small};

const SEEDS: u64 = 8;
/// `EIO`, which has no kind.
const FAILURES: [FaultKind; 2] = [FaultKind::FailRaw(5), FaultKind::Fail(ErrorKind::StorageFull)];

/// What is done to a shelf.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    SettleFirst,
    SettleSecond,
    /// What is left of two files goes into one.
    Merge,
    /// A partition's runs of two files are written again in a third, though nothing of them goes.
    Compact,
}

const ACTS: [Act; 4] = [Act::SettleFirst, Act::SettleSecond, Act::Merge, Act::Compact];

impl Act {
    /// The disk before it, and the state that it is done with.
    fn before(self, log: &Log) -> (Arc<SimDir>, State) {
        let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(SMALL_ENDS));
        let settles = match self {
            Self::SettleFirst => 0,
            Self::SettleSecond => 1,
            Self::Merge | Self::Compact => 2,
        };
        for _ in 0..settles {
            log.settle_next(&shelf(&disk), &mut state).unwrap();
        }
        if self == Self::Merge {
            log.apply_next(&mut state);
        }
        (disk, state)
    }

    fn act(self, log: &Log, shelf: &Shelf, state: &State) -> Result<(), Error> {
        match self {
            Self::SettleFirst | Self::SettleSecond => log.settle_next(shelf, &mut state.clone()),
            Self::Merge => shelf.free(state),
            Self::Compact => shelf.compact(OF_SMALL[0](), 0, 1_000, || true).map(|_| ()),
        }
    }

    /// How far the shard is settled before it and after it.
    fn settled(self) -> [Settled; 2] {
        let settled = [(0, 0), (1, 7), (2, 9)].map(|(chapter, end)| Settled { chapter, end });
        match self {
            Self::SettleFirst => [settled[0], settled[1]],
            Self::SettleSecond => [settled[1], settled[2]],
            Self::Merge | Self::Compact => [settled[2], settled[2]],
        }
    }

    /// Whether this is the disk after it.
    fn is_done(self, disk: &SimDir) -> bool {
        if self == Self::Merge {
            // One of two tables that could not be read at first may be merged later, and apart.
            let bytes = |runs: &[Run]| runs.iter().map(|run| run.bytes).sum::<u64>();
            return files(disk).iter().all(|(_, chapter, live)| {
                let has_deleted = live.iter().any(|run| run.opening == OF_SMALL[1]());
                !has_deleted && 2 * bytes(live) >= bytes(&chapter.runs().unwrap())
            });
        }
        let files = Manifest::read(disk, SHARD).unwrap().files.len();
        files == [1, 2, 1, 3][self as usize]
    }
}

/// What a partition has on a shelf that is settled so far.
fn expected(log: &Log, state: &State, at: Opening, settled: Settled) -> Vec<Bytes> {
    let start = state.partition(at).map_or(i64::MAX, |partition| partition.start());
    let batches = log.batches(at).into_iter();
    let live = batches.filter(|batch| batch.index <= settled.end && batch.end > start);
    live.map(|batch| batch.bytes).collect()
}

/// What is there is what was before the act or after it, and all of it can be read.
fn look(disk: &Arc<SimDir>, log: &Log, act: Act, state: &State) -> bool {
    let shelf = shelf(disk);
    let settled = shelf.settled();
    assert!(act.settled().contains(&settled), "{settled:?}");
    read_and_compare(&shelf, log, state);
    let mut names: Vec<_> = files(disk)
        .iter()
        .map(|(_, chapter, runs)| {
            runs.iter().for_each(|run| assert_eq!(chapter.verify(run).unwrap(), run.bytes));
            chapter.name().to_owned()
        })
        .collect();
    names.sort();
    let mut found = disk.list().unwrap();
    found.sort();
    found.retain(|name| name != MANIFEST && !name.starts_with(ROLL_UP));
    assert_eq!(found, names, "files that the manifest does not name");
    let is_done = act.is_done(disk);
    assert!(matches!(act, Act::Merge | Act::Compact) || is_done == (settled == act.settled()[1]));
    is_done
}

fn read_and_compare(shelf: &Shelf, log: &Log, state: &State) {
    for at in OF_SMALL.map(|opening| opening()) {
        let start = state.partition(at).map_or(i64::MAX, |partition| partition.start());
        let read = read_all(shelf, at, start, 1 << 20).unwrap();
        assert_eq!(read, expected(log, state, at, shelf.settled()), "{at}");
    }
}

/// And what it was goes on: the act is done, and outlives a power cut.
fn go_on(disk: &Arc<SimDir>, log: &Log, act: Act, state: &State, seed: u64) {
    act.act(log, &shelf(disk), state).unwrap();
    assert!(look(&Arc::new(disk.power_cut(seed)), log, act, state));
}

#[test]
fn after_a_crash_at_any_moment_all_is_as_before_or_after() {
    let log = small();
    for act in ACTS {
        let (disk, state) = act.before(&log);
        let left = Arc::new(Mutex::new(Vec::new()));
        let leaves = Arc::clone(&left);
        let opened = shelf(&disk);
        disk.watch(move |moment| {
            let mut left = leaves.lock().unwrap();
            let what = format!("before {} {} {}", moment.number, moment.operation, moment.name);
            left.push((what.clone(), moment.crash(Crash::Process, 0), 0));
            for seed in 0..SEEDS {
                left.push((what.clone(), moment.crash(Crash::PowerCut, seed), seed));
            }
        });
        act.act(&log, &opened, &state).unwrap();
        let left = std::mem::take(&mut *left.lock().unwrap());
        let (mut done, mut undone) = (0, 0);
        for (what, disk, seed) in left {
            println!("{act:?}, {what}, seed {seed}");
            let disk = Arc::new(disk);
            let is_done = look(&disk, &log, act, &state);
            // What was found once is found again.
            let again = Arc::new(disk.power_cut(seed));
            assert_eq!(look(&again, &log, act, &state), is_done);
            go_on(&again, &log, act, &state, seed);
            if is_done { done += 1 } else { undone += 1 }
        }
        assert!(done > 0 && undone > 0, "{act:?}: {done} and {undone}");
        go_on(&disk, &log, act, &state, 0);
    }
}

/// The operations of an act, from the first that is its own.
fn steps(act: Act, log: &Log) -> Vec<Step> {
    let (disk, state) = act.before(log);
    let shelf = shelf(&disk);
    let first = disk.operations();
    act.act(log, &shelf, &state).unwrap();
    disk.history().into_iter().filter(|step| step.number >= first).collect()
}

#[test]
fn what_fails_with_the_disk_changes_nothing_and_is_done_later() {
    let log = small();
    for act in ACTS {
        let steps = steps(act, &log);
        let mut failed = 0;
        for (place, step) in steps.iter().enumerate() {
            for (kind, seed) in FAILURES.into_iter().zip(0..) {
                println!("{act:?}, {kind:?} at {step}");
                let (disk, state) = act.before(&log);
                let shelf = shelf(&disk);
                let before = steps[..place].iter().filter(|s| s.operation == step.operation);
                let nth = 1 + before.count() as u64;
                disk.inject(Fault::new(step.operation, kind).nth(nth).seed(seed));

                let acted = act.act(&log, &shelf, &state);
                // What a start reads only to be faster may fail once all else is done.
                assert!(acted.is_err() || act.is_done(&disk.power_cut(seed)));
                failed += usize::from(acted.is_err());
                read_and_compare(&shelf, &log, &state);
                // Either is on the disk, and what follows goes on from either.
                let after = Arc::new(disk.power_cut(seed));
                look(&after, &log, act, &state);
                go_on(&after, &log, act, &state, seed);
                let again = act.act(&log, &shelf, &state);
                read_and_compare(&shelf, &log, &state);
                // A directory whose sync failed takes no more until it is opened again.
                if step.operation == Operation::SyncDir {
                    continue;
                }
                again.unwrap();
                assert_eq!(shelf.settled(), act.settled()[1]);
                assert!(look(&Arc::new(disk.power_cut(seed)), &log, act, &state));
            }
        }
        assert!(failed > steps.len(), "{act:?}: {failed} of {}", 2 * steps.len());
    }
}

/// What cannot be read now can be later: no file is given up for it.
#[test]
fn a_disk_that_fails_for_a_while_spoils_nothing() {
    let log = small();
    let act = Act::Merge;
    let (disk, state) = act.before(&log);
    let shelf = shelf(&disk);
    disk.inject(Fault::new(Operation::Read, FaultKind::FailRaw(5)).times(3));
    for _ in 0..3 {
        act.act(&log, &shelf, &state).unwrap_err();
    }
    act.act(&log, &shelf, &state).unwrap();
    assert_eq!(shelf.size().files, 1);
}
