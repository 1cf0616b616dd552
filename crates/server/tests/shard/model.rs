//! A shard against a model that fits a page, over histories drawn from a seed.
//!
//! A leader proposes; some of it is agreed on, in order; leaders change and lose what was in flight;
//! the power goes and takes a tail that was acknowledged, which a fence names. A second replica applies
//! the same entries, and is now and then made anew from its snapshot.
//!
//! The promises: an offset that was given away never names another record; whatever is agreed on, and
//! not lost with the power, stays where it was said to be; a batch that is sent again is not appended
//! again; replicas are equal, bit by bit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use plimsoll_server::shard::{
    Answer, Batch, Fence, Held, Item, Open, Opening, Producers, Proposal, Proposer, Refused,
    Sequenced, Settings, State, Submission, Tail, Why, fetch,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::batch::{batch, opening};
use super::seeds::{is_replay, replayable, seeds};

#[test]
fn histories_keep_the_promises() {
    let seeds = seeds(200);
    let mut total = Seen::default();
    for seed in seeds.clone() {
        let seen = replayable(seed, || Run::new(seed).run());
        total.add(&seen);
    }
    println!("seeds {seeds:?}: {total:?}");
    // What tests nothing has not passed.
    if !is_replay() {
        let Seen { sent: _, records, repeated, lost, leaders, refused, closed, idle, fetched } =
            total;
        let seen = [records, repeated, lost, leaders, refused, closed, idle, fetched];
        assert!(seen.iter().all(|seen| *seen > 0));
    }
}

/// What histories met.
#[derive(Debug, Default)]
struct Seen {
    sent: u64,
    records: u64,
    repeated: u64,
    /// Batches that went with the power after they were acknowledged.
    lost: u64,
    leaders: u64,
    refused: u64,
    closed: u64,
    /// Entries that closed idle partitions.
    idle: u64,
    /// Batches that were read.
    fetched: u64,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.repeated += other.repeated;
        self.lost += other.lost;
        self.leaders += other.leaders;
        self.refused += other.refused;
        self.closed += other.closed;
        self.sent += other.sent;
        self.idle += other.idle;
        self.fetched += other.fetched;
    }
}

struct Run {
    random: Pcg64Mcg,
    state: State,
    replica: State,
    proposer: Proposer,
    /// Proposed, and not agreed on yet; `true`: durable before that.
    in_flight: VecDeque<(Bytes, bool)>,
    /// What waits for its answer, by ticket.
    tickets: BTreeMap<u64, Ticket>,
    /// Agreed on; `None` where a leadership began.
    log: Vec<Option<Bytes>>,
    /// So many of them are on the disk.
    durable: usize,
    clock: u64,
    /// The current stay of each partition.
    openings: Vec<Opening>,
    /// Each offset that was acknowledged, and the mark of its batch (its largest timestamp).
    given: BTreeMap<(u32, i64), i64>,
    /// What each producer sent to each partition, and sends next.
    sent: BTreeMap<(u32, i64), Sent>,
    marks: i64,
    seen: Seen,
}

/// Where a producer stands with a partition.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    epoch: i16,
    next: i32,
    /// Sequence, records and mark of its last batch in this epoch.
    last: Option<(i32, u32, i64)>,
}

/// A batch that was sent.
#[derive(Debug, Clone, Copy)]
struct Ticket {
    key: (u32, i64),
    mark: i64,
    is_again: bool,
}

const PARTITIONS: u32 = 3;

impl Run {
    fn new(seed: u64) -> Self {
        let mut run = Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            state: State::default(),
            replica: State::default(),
            proposer: Proposer::new(&State::default(), 0),
            in_flight: VecDeque::new(),
            tickets: BTreeMap::new(),
            log: Vec::new(),
            durable: 0,
            clock: 1000,
            openings: (0..PARTITIONS).map(|number| opening(number, 1)).collect(),
            given: BTreeMap::new(),
            sent: BTreeMap::new(),
            marks: 0,
            seen: Seen::default(),
        };
        run.lead();
        for at in run.openings.clone() {
            run.open(at, 0, 0, Producers::default());
        }
        run
    }

    fn run(mut self) -> Seen {
        for _ in 0..300 {
            match self.random.random_range(0..100) {
                0..50 => self.send(),
                50..65 => self.propose(),
                65..82 => self.agree_on_some(),
                82..87 => self.sync(),
                87..91 => self.pass_time(),
                91..94 => self.lead(),
                94..96 => self.lose_power(),
                96..98 => self.move_away_and_back(),
                _ => self.check(),
            }
        }
        self.agree_on_all();
        self.check();
        assert!(self.tickets.is_empty(), "{:?} were never answered", self.tickets);
        self.seen
    }

    fn partition(&mut self) -> Opening {
        self.openings[self.random.random_range(0..self.openings.len())]
    }

    /// A producer sends what comes next, or what it sent before.
    fn send(&mut self) {
        let at = self.partition();
        // Some use a ceiling up fast.
        let most = if self.random.random_bool(0.2) { 400 } else { 5 };
        let records = self.random.random_range(1..most);
        let producer = self.random.random_range(-1..3);
        let key = (at.partition.number, producer);
        let sent = self.sent.get(&key).copied().unwrap_or_default();
        self.marks += 1;
        let again = sent.last.filter(|_| self.random.random_bool(0.2));
        let (first, records, mark) = again.unwrap_or((sent.next, records, self.marks));
        let epoch = sent.epoch;
        let sequenced = (producer >= 0).then_some(Sequenced { producer, epoch, first });
        let (next, last) = (first + records.cast_signed(), Some((first, records, mark)));
        self.sent.insert(key, Sent { epoch, next, last });
        self.seen.sent += 1;
        let ticket = self.seen.sent;
        self.tickets.insert(ticket, Ticket { key, mark, is_again: again.is_some() });
        let connection = (producer + 1).unsigned_abs();
        let batch = batch(records, sequenced, mark);
        self.proposer.submit(Submission { ticket, connection, opening: at, batch });
    }

    fn pass_time(&mut self) {
        let longest =
            if self.random.random_bool(0.1) { 2 * plimsoll_server::shard::IDLE_MS } else { 2000 };
        self.clock += self.random.random_range(0..longest);
        self.act(&[Item::Advance]);
        if let Some(proposal) = self.proposer.close_idle(&self.state, self.clock) {
            self.fly(proposal);
            self.seen.idle += 1;
        }
    }

    fn propose(&mut self) {
        let clock = self.clock.saturating_sub(self.random.random_range(0..50));
        let mut answers = Vec::new();
        if let Some(proposal) = self.proposer.draft(&self.state, clock, &mut answers) {
            self.fly(proposal);
        }
        self.answer(answers);
    }

    fn fly(&mut self, proposal: Proposal) {
        self.in_flight.push_back((proposal.bytes, proposal.must_be_durable));
    }

    fn agree_on_some(&mut self) {
        for _ in 0..self.random.random_range(0..=self.in_flight.len()) {
            self.agree();
        }
    }

    fn agree_on_all(&mut self) {
        self.propose();
        while !self.in_flight.is_empty() {
            self.agree();
        }
    }

    /// The oldest entry on its way is agreed on.
    fn agree(&mut self) {
        let (entry, must_be_durable) = self.in_flight.pop_front().unwrap();
        self.log.push(Some(entry));
        apply_last(&mut self.state, &self.log);
        if must_be_durable {
            self.sync();
        }
        self.acknowledge();
        let mut answers = Vec::new();
        self.proposer.applied(self.log.len() as u64, &mut answers);
        self.answer(answers);
    }

    /// Does what is not of producers, behind what they sent.
    fn act(&mut self, items: &[Item<'_>]) {
        self.propose();
        let proposal = self.proposer.act(&self.state, self.clock, items).unwrap();
        self.fly(proposal);
        self.agree_on_all();
    }

    fn answer(&mut self, answers: Vec<(u64, Answer)>) {
        for (ticket, answer) in answers {
            let Ticket { key, mark, is_again } =
                self.tickets.remove(&ticket).expect("one answer each");
            match answer {
                Answer::Appended { base_offset, .. } => {
                    assert_eq!(
                        self.given[&(key.0, base_offset)],
                        mark,
                        "it is not where it is said"
                    );
                }
                Answer::Repeated { base_offset } => {
                    assert!(is_again, "a batch that was not sent before is known");
                    assert_eq!(self.given[&(key.0, base_offset)], mark, "another has its place");
                    self.seen.repeated += 1;
                }
                // Some before it were lost: the producer begins anew, as clients do.
                Answer::Refused(Refused::Misplaced(_)) => {
                    let epoch = self.sent.get(&key).map_or(0, |sent| sent.epoch) + 1;
                    self.sent.insert(key, Sent { epoch, ..Sent::default() });
                    self.seen.refused += 1;
                }
                Answer::Refused(Refused::NotHere) | Answer::NotLeader => {}
                Answer::Refused(other) => panic!("{other}"),
            }
        }
    }

    /// Notes what the last entry gave away: to each offset one batch, for ever.
    fn acknowledge(&mut self) {
        let bytes = self.log.last().unwrap().as_ref().unwrap();
        for (at, batch) in batches(bytes) {
            for offset in batch.base_offset..batch.end().unwrap() {
                let place = (at.partition.number, offset);
                let before = self.given.insert(place, batch.max_timestamp);
                assert_eq!(before, None, "{place:?} names two records");
                self.seen.records += 1;
            }
        }
    }

    fn sync(&mut self) {
        self.durable = self.log.len();
        self.proposer.durable(self.durable as u64);
    }

    /// Another leads: what was on its way is gone, or some of it agreed on first.
    fn lead(&mut self) {
        self.agree_on_some();
        self.in_flight.clear();
        self.log.push(None);
        apply_last(&mut self.state, &self.log);
        self.durable = self.log.len();
        let next = Proposer::new(&self.state, self.clock);
        let mut answers = Vec::new();
        std::mem::replace(&mut self.proposer, next).resign(&mut answers);
        self.answer(answers);
        self.seen.leaders += 1;
    }

    /// What was agreed on and not durable goes, or some of it. The state is made from the log.
    fn lose_power(&mut self) {
        let kept = self.random.random_range(self.durable..=self.log.len());
        for bytes in self.log.drain(kept..).flatten() {
            self.seen.lost += batches(&bytes).len() as u64;
        }
        self.state = State::default();
        for end in 1..=self.log.len() {
            apply_last(&mut self.state, &self.log[..end]);
        }
        self.replica = State::default();
        self.in_flight.clear();
        self.lead();
        let (guaranteed, given, since) = (self.durable as u64, None, self.clock);
        self.act(&[Item::Fence(Fence { why: Why::UncleanStart, guaranteed, given, since })]);
        // What it knew of ceilings was before the fence.
        self.proposer = Proposer::new(&self.state, self.clock);
    }

    fn open(&mut self, at: Opening, base_epoch: i32, start: i64, producers: Producers) {
        let settings = Settings {
            retention_ms: Some(5000),
            retention_bytes: None,
            batch_bytes_max: 4096,
            append_timestamps: false,
            compaction: None,
        };
        self.act(&[Item::Open(Open { opening: at, base_epoch, start, settings, producers })]);
    }

    fn move_away_and_back(&mut self) {
        let number = self.random.random_range(0..self.openings.len());
        let at = self.openings[number];
        self.act(&[Item::Close { opening: at }]);
        let closed = self.state.partition(at).unwrap();
        let epoch = i32::try_from(closed.epoch(self.state.turns())).unwrap() + 1;
        let (next, producers) = (closed.next(), Producers::default());
        let again = Opening { number: at.number + 1, ..at };
        self.openings[number] = again;
        self.open(again, epoch, next, producers);
        self.seen.closed += 1;
    }

    /// The replica applies what it has not yet, and is then equal; what can be read is where it was.
    fn check(&mut self) {
        let applied = usize::try_from(self.replica.applied()).unwrap();
        for end in applied + 1..=self.log.len() {
            apply_last(&mut self.replica, &self.log[..end]);
            if self.random.random_bool(0.05) {
                self.replica = State::decode(&self.replica.encode()).unwrap();
            }
        }
        assert_eq!(self.replica, self.state);
        assert_eq!(self.replica.encode(), self.state.encode());
        self.read_all();
        let mut found = BTreeSet::new();
        for bytes in self.log.iter().flatten() {
            for (at, batch) in batches(bytes) {
                let place = (at.partition.number, batch.base_offset);
                assert_eq!(self.given[&place], batch.max_timestamp);
                assert!(found.insert(place), "{place:?} is there twice");
                let Some(partition) = self.state.partition(at) else { continue };
                if batch.base_offset >= partition.start() {
                    let point = partition.point_of(batch.base_offset).unwrap();
                    assert!(point.base_offset <= batch.base_offset);
                    let index = usize::try_from(point.index).unwrap();
                    let there = items(self.log[index - 1].as_ref().unwrap());
                    let there = &there[usize::from(point.item)..];
                    let first = there[0].expect("a point is at a batch");
                    assert_eq!((first.0, first.1.base_offset), (at, point.base_offset));
                    assert!(there.contains(&Some((at, batch))), "{place:?} is not there");
                }
            }
        }
    }
}

impl Run {
    /// Reads each partition as a consumer does, a little at a time, from a tail that has not all.
    fn read_all(&mut self) {
        let mut tail = Tail::new(self.random.random_range(500..5000), 0);
        let held = |bytes: &Bytes| Held::new(bytes.clone()).unwrap();
        let entries: Vec<Option<Held>> =
            self.log.iter().map(|entry| entry.as_ref().map(held)).collect();
        entries.iter().for_each(|entry| tail.push(entry.clone()));
        for (at, partition) in self.state.partitions() {
            let (mut from, end) = (partition.start(), partition.next());
            let mut wanted = self.batches_of(at, from);
            let mut from_log = BTreeSet::new();
            loop {
                let find = |index| match from_log.contains(&index) {
                    true => entries[usize::try_from(index).unwrap() - 1].as_ref(),
                    false => tail.find(index),
                };
                let read = fetch(&self.state, at, from, end, 300, find);
                for bytes in &read.batches {
                    let batch = Batch::read(bytes).unwrap();
                    assert_eq!(Some(batch), wanted.pop_front());
                    from = batch.end().unwrap();
                    self.seen.fetched += 1;
                }
                match read.needs {
                    Some(index) if read.batches.is_empty() => {
                        assert!(from_log.insert(index), "entry {index} was there");
                    }
                    _ if read.batches.is_empty() => break,
                    _ => {}
                }
            }
            assert_eq!(wanted, [], "{at} was not read to its end");
        }
    }

    /// The batches of a stay that reach beyond an offset.
    fn batches_of(&self, opening: Opening, from: i64) -> VecDeque<Batch> {
        let all = self.log.iter().flatten().flat_map(|bytes| batches(bytes));
        let reaches =
            |(at, batch): &(Opening, Batch)| *at == opening && batch.end().unwrap() > from;
        all.filter(reaches).map(|(_, batch)| batch).collect()
    }
}

/// Applies the last of these.
fn apply_last(state: &mut State, log: &[Option<Bytes>]) {
    let index = log.len() as u64;
    match log.last().unwrap() {
        Some(bytes) => state.apply(index, bytes, &mut Vec::new()).unwrap(),
        None => {
            let term = log.iter().filter(|entry| entry.is_none()).count();
            state.pass(index, term as u64).unwrap();
        }
    }
}

fn batches(entry: &[u8]) -> Vec<(Opening, Batch)> {
    items(entry).into_iter().flatten().collect()
}

/// The batches among an entry's items, each at its number.
fn items(entry: &[u8]) -> Vec<Option<(Opening, Batch)>> {
    let items = plimsoll_server::shard::Entry::decode(entry).unwrap().items();
    let batch = |item| match item {
        Ok(Item::Batch { opening, bytes }) => Some((opening, Batch::read(bytes).unwrap())),
        _ => None,
    };
    items.map(batch).collect()
}
