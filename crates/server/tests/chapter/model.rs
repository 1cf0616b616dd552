//! Chapters against a plain list of what the log holds, over histories drawn from a seed.
//!
//! A log grows; replicas apply it, each at its own pace, settle its chapters at their own moments, keep
//! snapshots, free what these say is deleted, and are opened again, from a snapshot and what the disk has. One
//! state, which never settles anything, is what all of them are held against.
//!
//! The promises: each batch that is not deleted is read exactly once, in order, byte for byte, from the shelf and
//! then the log; what is deleted is not needed; a search by time comes out at or before the first batch that is
//! meant; nothing expires before its time; a run is the same on all replicas, and so is the state, but for where
//! the batches of chapters lie; no file is mostly dead once it was freed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_server::chapter::{Run, Shelf};
use plimsoll_server::shard::{
    Batch, Draft, Fence, Item, Open, Opening, Producers, Settings, State, Why,
};
use plimsoll_sync::{Crash, Dir};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::batch::opening;
use super::log::{Log, Logged, ROLL_UP, SETTINGS, expired, files, marked, shelf};
use super::replica::Replica;
use super::seeds::{is_replay, replayable, seeds};

#[test]
fn chapters_keep_the_promises() {
    let seeds = seeds(50);
    let mut total = Seen::default();
    for seed in seeds.clone() {
        let seen = replayable(seed, || History::new(seed).run());
        seen.0.iter().for_each(|(what, count)| total.note(what, *count));
    }
    println!("seeds {seeds:?}: {total:?}");
    // What tests nothing has not passed.
    if !is_replay() {
        let unseen = SEEN.iter().filter(|what| total.0.get(*what).is_none_or(|count| *count == 0));
        assert_eq!(unseen.collect::<Vec<_>>(), [&""; 0]);
    }
}

/// What histories met, and how often.
#[derive(Debug, Default)]
struct Seen(BTreeMap<&'static str, usize>);

/// What they have to.
const SEEN: [&str; 14] = [
    "batches",
    "offsets that name nothing",
    "settled",
    "settled with another waiting",
    "settled with nothing in it",
    "runs of many blocks",
    "runs that one has and another left out",
    "freed",
    "merged",
    "opened again",
    "ends of chapters that came by again",
    "expired",
    "reads across the end of the shelf",
    "searches that came out on the shelf",
];

impl Seen {
    fn note(&mut self, what: &'static str, count: usize) {
        assert!(SEEN.contains(&what));
        *self.0.entry(what).or_default() += count;
    }
}

struct History {
    random: Pcg64Mcg,
    log: Log,
    /// The state behind each entry, of one that settles nothing.
    truths: Vec<State>,
    /// All batches that there ever were.
    batches: BTreeMap<Opening, Vec<Logged>>,
    replicas: Vec<Replica>,
    /// The current stay of each partition.
    openings: Vec<Opening>,
    clock: u64,
    marks: i64,
    /// Each run, as the first that wrote it had it: the same on all replicas.
    runs: BTreeMap<(Opening, u64), Run>,
    seen: Seen,
}

const REPLICAS: usize = 3;
const PARTITIONS: u32 = 5;
const STEPS: usize = 150;

impl History {
    fn new(seed: u64) -> Self {
        let mut history = Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            log: Log::default(),
            truths: vec![State::default()],
            batches: BTreeMap::new(),
            replicas: (0..REPLICAS).map(|_| Replica::new()).collect(),
            openings: (0..PARTITIONS).map(|number| opening(number, 1)).collect(),
            clock: 1_000,
            marks: 0,
            runs: BTreeMap::new(),
            seen: Seen::default(),
        };
        history.lead();
        for at in history.openings.clone() {
            history.open(at, 0, 0);
        }
        history
    }

    fn run(mut self) -> Seen {
        for _ in 0..STEPS {
            let replica = self.random.random_range(0..REPLICAS);
            match self.random.random_range(0..100) {
                0..40 => self.append(),
                40..44 => self.move_or_delete(),
                44..46 => self.lose_a_tail(),
                46..62 => self.apply(replica),
                62..76 => drop(self.settle(replica)),
                76..82 => self.replicas[replica].take_snapshot(),
                82..88 => self.free(replica),
                88..92 => self.open_again(replica),
                92..95 => self.expire(replica),
                _ => self.check(replica),
            }
            self.look(replica);
        }
        for replica in 0..REPLICAS {
            while self.replicas[replica].state.applied() < self.log.last() {
                self.apply(replica);
            }
            while self.settle(replica) {}
            self.check(replica);
        }
        let [first, others @ ..] = &self.replicas[..] else { unreachable!() };
        for other in others {
            assert!(other.state == first.state, "both have settled all");
            assert!(other.state.encode() == first.state.encode());
        }
        let long = self.runs.values().filter(|run| run.blocks > 1).count();
        self.seen.note("runs of many blocks", long);
        self.seen
    }

    fn truth(&self) -> &State {
        self.truths.last().unwrap()
    }

    fn lead(&mut self) {
        self.log.lead();
        self.agree();
    }

    fn push(&mut self, draft: Draft) {
        if self.random.random_bool(0.7) {
            self.clock += self.random.random_range(0..400);
        }
        self.log.push(draft, self.clock);
        self.agree();
    }

    /// The last entry is agreed on.
    fn agree(&mut self) {
        let mut state = self.truth().clone();
        self.log.apply_next(&mut state);
        self.truths.push(state);
        for (opening, batch) in self.log.batches_at(self.log.last()) {
            let of = self.batches.entry(opening).or_default();
            let is_gap = of.last().is_some_and(|last| last.end < batch.base);
            self.seen.note("offsets that name nothing", usize::from(is_gap));
            of.push(batch);
            self.seen.note("batches", 1);
        }
    }

    fn open(&mut self, opening: Opening, base_epoch: i32, start: i64) {
        let ms = self.random.random_range(500..5_000);
        let bytes = self.random.random_range(1..30_000);
        let settings = Settings {
            retention_ms: Some(ms).filter(|_| self.random.random_bool(0.4)),
            retention_bytes: Some(bytes).filter(|_| self.random.random_bool(0.4)),
            ..SETTINGS
        };
        let producers = Producers::default();
        let mut draft = Draft::new();
        draft.push(&Item::Open(Open { opening, base_epoch, start, settings, producers }));
        self.push(draft);
    }

    /// An entry of batches, with acts between them; some end a chapter.
    fn append(&mut self) {
        let mut draft = Draft::new();
        let state = self.truth().clone();
        let of = |opening: &Opening| {
            let partition = state.partition(*opening).unwrap();
            (partition.next(), partition.ceiling())
        };
        let mut places: BTreeMap<_, _> = self.openings.iter().map(|at| (*at, of(at))).collect();
        for _ in 0..self.random.random_range(1..8) {
            let at = self.openings[self.random.random_range(0..self.openings.len())];
            let (next, ceiling) = places.get_mut(&at).unwrap();
            match self.random.random_range(0..100) {
                0..82 => {
                    let records = match self.random.random_range(0..100) {
                        0..80 => self.random.random_range(1..8),
                        80..97 => self.random.random_range(500..1_800),
                        _ => self.random.random_range(3_200..4_000),
                    };
                    let end = *next + i64::from(records);
                    if ceiling.is_none_or(|ceiling| ceiling < end) {
                        *ceiling = Some(end + self.random.random_range(0..20));
                        draft.push(&Item::Ceiling { opening: at, ceiling: *ceiling });
                    }
                    self.marks += 1;
                    // Mostly in order, as of producers whose clocks differ.
                    let timestamp = self.marks + self.random.random_range(0..30);
                    let epoch = state.partition(at).unwrap().epoch(state.turns());
                    let epoch = i32::try_from(epoch).unwrap();
                    draft.push_batch(at, *next, epoch, &marked(records, None, timestamp));
                    *next = end;
                }
                82..89 => {
                    // Often all of it goes, also what stands before it in this entry.
                    let lowest = if self.random.random_bool(0.3) { *next } else { 0 };
                    let start = self.random.random_range(lowest..=*next);
                    draft.push(&Item::Trim { opening: at, start });
                }
                89..94 => draft.push(&Item::Advance),
                _ => {
                    let start = self.random.random_range(0..=*next);
                    draft.push(&Item::Expire { opening: at, start });
                }
            }
        }
        if self.random.random_bool(0.2) {
            draft.push(&Item::ChapterEnd(state.chapter() + 1));
            if self.random.random_bool(0.2) {
                draft.push(&Item::Advance);
            }
        }
        self.push(draft);
    }

    /// A partition leaves; most come back. What it had goes sooner or later.
    fn move_or_delete(&mut self) {
        let number = self.random.random_range(0..self.openings.len());
        let at = self.openings[number];
        let (next, epoch) = {
            let partition = self.truth().partition(at).unwrap();
            (partition.next(), i32::try_from(partition.epoch(self.truth().turns())).unwrap())
        };
        let mut draft = Draft::new();
        draft.push(&Item::Close { opening: at });
        if self.random.random_bool(0.5) {
            draft.push(&Item::Expire { opening: at, start: next });
        }
        self.push(draft);
        let again = Opening { number: at.number + 1, ..at };
        self.openings[number] = again;
        self.open(again, epoch + 1, next);
    }

    /// What was given away may be gone: its offsets name nothing any more.
    fn lose_a_tail(&mut self) {
        self.lead();
        let (guaranteed, since) = (self.log.last(), self.clock);
        let fence = Fence { why: Why::UncleanStart, guaranteed, given: None, since };
        let mut draft = Draft::new();
        draft.push(&Item::Fence(fence));
        self.push(draft);
    }

    /// A replica applies some of what is agreed on.
    fn apply(&mut self, number: usize) {
        let replica = &mut self.replicas[number];
        let left = self.log.last() - replica.state.applied();
        for _ in 0..self.random.random_range(0..=left) {
            let comes_again = replica.apply_next(&self.log);
            self.seen.note("ends of chapters that came by again", usize::from(comes_again));
            if self.random.random_bool(0.02) {
                replica.state = State::decode(&replica.state.encode()).unwrap();
            }
        }
    }

    /// A replica settles the oldest chapter that it knows of. Whether there was one.
    fn settle(&mut self, number: usize) -> bool {
        let replica = &mut self.replicas[number];
        let Some(ended) = replica.state.ended().next().copied() else { return false };
        let waits = replica.state.ended().len() > 1;
        self.seen.note("settled with another waiting", usize::from(waits));
        let (before, needed) = (replica.shelf.size(), replica.log_from());
        let first = replica.state.partitions().filter_map(|(_, partition)| partition.needs_from());
        assert!(first.min().is_none_or(|first| first >= needed), "the log has let go of it");
        self.log.settle_next(&replica.shelf, &mut replica.state).unwrap();
        assert_eq!(replica.shelf.settled().end, ended.end);
        replica.settled_at = replica.state.applied();
        let is_empty = replica.shelf.size() == before;
        self.seen.note("settled", 1);
        self.seen.note("settled with nothing in it", usize::from(is_empty));
        self.compare_runs(number);
        true
    }

    /// Runs are the same, whoever wrote them and whenever.
    fn compare_runs(&mut self, number: usize) {
        let replica = &self.replicas[number];
        let mut held = BTreeSet::new();
        for (_, chapter, runs) in files(&replica.disk) {
            for run in runs {
                let key = (run.opening, run.chapter);
                assert!(held.insert(key), "{key:?} is there twice");
                assert_eq!(chapter.verify(&run).unwrap(), run.bytes);
                // Where it lies in the file is the file's own.
                let run = Run { place: 0, first_block: 0, ..run };
                assert_eq!(self.runs.entry(key).or_insert(run), &run);
            }
        }
        let settled = replica.shelf.settled().chapter;
        let others = self.runs.keys().filter(|(_, chapter)| *chapter == settled);
        let left_out = others.filter(|key| !held.contains(key)).count();
        self.seen.note("runs that one has and another left out", left_out);
    }

    /// A replica makes one of its snapshots durable, and lets go of what it says is deleted.
    fn free(&mut self, number: usize) {
        let replica = &mut self.replicas[number];
        if replica.snapshots.is_empty() {
            return;
        }
        let place = self.random.random_range(0..replica.snapshots.len());
        replica.snapshots.drain(..place);
        replica.durable = replica.snapshots[0].clone();
        let state = State::decode(&replica.durable.encode()).unwrap();
        let before = files(&replica.disk);
        replica.note_freed(&state);
        replica.shelf.free(&state).unwrap();

        let after = files(&replica.disk);
        let (mut live_runs, mut live_bytes) = (0, 0);
        for (file, _, runs) in &after {
            let live = runs.iter().filter(|run| {
                let key = (run.opening, run.chapter);
                !replica.freed.contains(&key)
            });
            let live: Vec<u64> = live.map(|run| run.bytes).collect();
            let bytes: u64 = live.iter().sum();
            let all: u64 = runs.iter().map(|run| run.bytes).sum();
            assert!(!live.is_empty() && 2 * bytes >= all, "{bytes} of {all} bytes live");
            live_runs += live.len();
            live_bytes += bytes;
            let is_new = before.iter().all(|(number, ..)| number != file);
            self.seen.note("merged", usize::from(is_new));
        }
        let size = replica.shelf.size();
        assert_eq!((size.files, size.runs, size.live_bytes), (after.len(), live_runs, live_bytes));
        self.seen.note("freed", before.len().saturating_sub(after.len()));
        self.compare_runs(number);
    }

    /// The process dies, or the power goes.
    fn open_again(&mut self, number: usize) {
        let replica = &mut self.replicas[number];
        let crash = match self.random.random_bool(0.5) {
            true => Crash::Process,
            false => Crash::PowerCut,
        };
        let settled = replica.shelf.settled();
        replica.disk = Arc::new(replica.disk.crash(crash, self.random.random()));
        let without_roll_up = Arc::new(replica.disk.crash(Crash::Process, 0));
        replica.shelf = shelf(&replica.disk);
        assert_eq!(replica.shelf.settled(), settled);
        without_roll_up.remove(ROLL_UP).ok();
        let from_tables = shelf(&without_roll_up);
        assert_eq!(replica.shelf.size(), from_tables.size());
        for at in self.batches.keys() {
            let says = |shelf: &Shelf| {
                let ends = self.batches[at].iter().map(|batch| shelf.has(*at, batch.base));
                (shelf.bytes(*at), ends.collect::<Vec<_>>())
            };
            assert_eq!(says(&replica.shelf), says(&from_tables), "{at}");
        }
        let expiring = |shelf: &Shelf| shelf.expiring(&replica.durable, self.clock);
        assert_eq!(expiring(&replica.shelf), expiring(&from_tables));
        replica.state = State::decode(&replica.durable.encode()).unwrap();
        replica.state.settle(settled.end);
        replica.snapshots.clear();
        replica.freed.clear();
        self.seen.note("opened again", 1);
        while self.replicas[number].state.applied() < self.replicas[number].settled_at {
            self.apply(number);
        }
    }

    /// Whoever knows all there is proposes what is past its retention on the shelf.
    fn expire(&mut self, number: usize) {
        while self.replicas[number].state.applied() < self.log.last() {
            self.apply(number);
        }
        let replica = &self.replicas[number];
        let now = self.clock;
        let expired = expired(&replica.shelf, &replica.state, now);
        let mut draft = Draft::new();
        for (opening, start) in expired {
            let partition = replica.state.partition(opening).unwrap();
            let settings = partition.settings();
            let all = &self.batches[&opening];
            let kept: usize =
                all.iter().filter(|b| b.base >= start).map(|batch| batch.bytes.len()).sum();
            let is_too_much = settings.retention_bytes.is_some_and(|most| kept as u64 >= most);
            let since = settings.retention_ms.map_or(0, |ms| now.saturating_sub(ms));
            let gone = all.iter().filter(|b| b.end > partition.start() && b.end <= start);
            for batch in gone {
                let Logged { base, time, .. } = batch;
                assert!(is_too_much || *time < since, "{opening}: {base} of {time} at {now}");
            }
            draft.push(&Item::Expire { opening, start });
            self.seen.note("expired", 1);
        }
        if !draft.is_empty() {
            self.push(draft);
        }
    }

    /// What a replica has is what the truth is, and one of its partitions can be read.
    fn look(&mut self, number: usize) {
        let replica = &self.replicas[number];
        let applied = usize::try_from(replica.state.applied()).unwrap();
        let mut truth = self.truths[applied].clone();
        truth.settle(replica.shelf.settled().end);
        assert!(replica.state == truth, "replica {number} is another at {applied}");
        assert!(replica.state.encode() == truth.encode());
        assert!(State::decode(&truth.encode()) == Ok(truth));
        let here: Vec<Opening> = replica.state.partitions().map(|(opening, _)| opening).collect();
        if let Some(last) = here.len().checked_sub(1) {
            let at = here[self.random.random_range(0..=last)];
            self.read(number, at);
        }
    }

    /// All partitions can be read.
    fn check(&mut self, number: usize) {
        let state = self.replicas[number].state.clone();
        for (at, partition) in state.partitions() {
            let (start, next) = (partition.start(), partition.next());
            self.read_range(number, at, start, next, usize::MAX);
            self.read(number, at);
            self.search(number, at);
        }
    }

    /// Reads a partition from somewhere to somewhere.
    fn read(&mut self, number: usize, at: Opening) {
        let (start, next) = {
            let partition = self.replicas[number].state.partition(at).unwrap();
            (partition.start(), partition.next())
        };
        let from = self.random.random_range(start..=next);
        let end =
            if self.random.random_bool(0.5) { next } else { self.random.random_range(from..=next) };
        let bytes_max = match self.random.random_range(0..3) {
            0 => 1,
            1 => self.random.random_range(100..100_000),
            _ => usize::MAX,
        };
        self.read_range(number, at, from, end, bytes_max);
    }

    fn read_range(&mut self, number: usize, at: Opening, from: i64, end: i64, bytes_max: usize) {
        let replica = &self.replicas[number];
        let applied = replica.state.applied();
        let all = self.batches.get(&at).into_iter().flatten();
        let within = all.filter(|b| b.index <= applied && b.end > from && b.end <= end);
        let mut expected = within;
        let (mut next, mut was_on_shelf) = (from, false);
        loop {
            let (read, is_on_shelf) = replica.read(&self.log, at, next, end, bytes_max);
            let bytes: usize = read.iter().map(Bytes::len).sum();
            assert!(read.len() <= 1 || bytes <= bytes_max, "{bytes} of {bytes_max} bytes");
            for batch in &read {
                let expected = expected.next().map(|batch| &batch.bytes);
                assert!(expected == Some(batch), "{at} at {next} is another");
                next = Batch::read(batch).unwrap().end().unwrap();
            }
            if read.is_empty() {
                break;
            }
            let is_across = was_on_shelf && !is_on_shelf;
            self.seen.note("reads across the end of the shelf", usize::from(is_across));
            was_on_shelf = is_on_shelf;
        }
        let left = expected.count();
        assert_eq!(left, 0, "{at} from {from} to {end} ends at {next}");
    }

    /// Looks for a timestamp, as a broker does.
    fn search(&mut self, number: usize, at: Opening) {
        let replica = &self.replicas[number];
        let partition = replica.state.partition(at).unwrap();
        let (start, applied) = (partition.start(), replica.state.applied());
        let timestamp = self.random.random_range(0..self.marks + 40);
        let all = self.batches.get(&at).into_iter().flatten();
        let live = |batch: &&Logged| batch.index <= applied && batch.end > start;
        let plain = all.filter(live).find(|batch| batch.max_timestamp >= timestamp);
        let on_shelf = replica.shelf.offset_at(at, start, timestamp).unwrap();
        let in_log = partition.point_at_time(timestamp).map(|point| point.base_offset.max(start));
        let found = on_shelf.or(in_log);
        if let Some(batch) = plain {
            let found = found.expect("there is one");
            assert!(found <= batch.base.max(start), "{at}: {found}, and it is at {}", batch.base);
        }
        assert!(found.is_none_or(|found| found >= start));
        let is_on_shelf = on_shelf.is_some_and(|offset| offset > start);
        self.seen.note("searches that came out on the shelf", usize::from(is_on_shelf));
    }
}
