//! The rooms together, below the sockets: a catalog, a shard that follows it, its proposer, and a
//! group of one on a disk that forgets.

#[path = "shared/clients.rs"]
mod clients;

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use clients::batches;
use plimsoll_log::Ack;
use plimsoll_server::cluster::{Apply, Group, Leadership, Options, Stop};
use plimsoll_server::control::{Catalog, Change, Left, TopicSettings, reconcile};
use plimsoll_server::kafka;
use plimsoll_server::shard::{
    Answer, Entry, Fence, Held, Item, Opening, Proposal, Proposer, State, Submission, Tail,
    TopicId, Why, fetch,
};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Crash, Dir};

/// What entries make of a shard, and the newest of them.
struct Shard {
    state: State,
    tail: Tail,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Shard>>);

impl Apply for Shared {
    /// The entry's index in the shard, which counts from 1 as the log does.
    type Answer = u64;

    fn apply(&mut self, index: u64, term: u64, payload: Option<&Bytes>) -> Result<u64, Stop> {
        let mut shard = self.0.lock().unwrap();
        let index = index + 1;
        let stop = |why: &dyn std::fmt::Display| Stop(why.to_string());
        let held = match payload {
            None => {
                shard.state.pass(index, term).map_err(|why| stop(&why))?;
                None
            }
            Some(bytes) => {
                shard.state.apply(index, bytes, &mut Vec::new()).map_err(|why| stop(&why))?;
                Some(Held::new(bytes.clone()).map_err(|why| stop(&why))?)
            }
        };
        shard.tail.push(held);
        Ok(index)
    }
}

/// A broker of one shard, number 1, without its sockets.
struct Node {
    group: Group<Shared>,
    shared: Shared,
    leadership: Leadership,
    proposer: Proposer,
    catalog: Catalog,
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

impl Node {
    fn open(disk: &Arc<SimDir>) -> Self {
        let shard = Shard { state: State::default(), tail: Tail::new(1 << 20, 0) };
        let shared = Shared(Arc::new(Mutex::new(shard)));
        let log = plimsoll_log::Options {
            segment_bytes: 256 << 10,
            ring_bytes: 64 << 10,
            ..plimsoll_log::Options::default()
        };
        let must_sync =
            |bytes: &[u8]| Entry::decode(bytes).is_ok_and(|entry| entry.must_be_durable);
        let (promise, start) = (Ack::Written, None);
        let options = Options { node: 1, promise, must_sync, start, log, crew: None };
        let dir: Arc<dyn Dir> = Arc::clone(disk) as _;
        let (group, _) = Group::open(&dir, options, shared.clone()).unwrap();
        let leadership = wait(group.wait_to_lead()).unwrap();
        wait(group.wait_durable(group.applied().unwrap())).unwrap();
        let proposer = Proposer::new(&shared.0.lock().unwrap().state, 1000);
        let mut catalog = Catalog::default();
        let (name, settings) = ("orders".to_owned(), TopicSettings::default());
        let (id, shards) = (TopicId([9; 16]), vec![1, 1]);
        catalog.apply(&Change::Create { id, name, shards, settings }).unwrap();
        let mut node = Self { group, shared, leadership, proposer, catalog };
        let items = reconcile(&node.catalog, 1, &node.shard().state, &Left::new());
        node.act(&items);
        node
    }

    fn shard(&self) -> MutexGuard<'_, Shard> {
        self.shared.0.lock().unwrap()
    }

    fn orders(&self) -> Opening {
        self.catalog.place("orders", 0).unwrap().0
    }

    /// Goes on behind what may have been lost.
    fn fence(&mut self) {
        let fence = Fence { why: Why::UncleanStart, guaranteed: 0, given: None, since: 0 };
        self.act(&[Item::Fence(fence)]);
        let proposer = Proposer::new(&self.shard().state, 1000);
        self.proposer = proposer;
    }

    fn act(&mut self, items: &[Item<'_>]) {
        let shared = self.shared.clone();
        let proposal = self.proposer.act(&shared.0.lock().unwrap().state, 1000, items);
        assert_eq!(self.agree(proposal), []);
    }

    /// Has what was drafted agreed on, and answers those who wait for it.
    fn agree(&mut self, proposal: Option<Proposal>) -> Vec<(u64, Answer)> {
        let mut answers = Vec::new();
        let Some(proposal) = proposal else { return answers };
        let committed = wait(self.group.propose(self.leadership, proposal.bytes)).unwrap();
        self.proposer.applied(committed.answer, &mut answers);
        if let Some(durable) = self.group.durable() {
            self.proposer.durable(durable + 1);
        }
        answers
    }

    /// Sends a batch of one record, and says what its producer is answered.
    fn produce(&mut self, sequence: i32) -> Answer {
        let (ticket, connection, opening) = (1, 1, self.orders());
        let batch = record(sequence);
        self.proposer.submit(Submission { ticket, connection, opening, batch });
        let shared = self.shared.clone();
        let mut answers = Vec::new();
        let state = &shared.0.lock().unwrap().state.clone();
        let proposal = self.proposer.draft(state, 1000, &mut answers);
        answers.extend(self.agree(proposal));
        let [(1, answer)] = &answers[..] else { panic!("{answers:?}") };
        answer.clone()
    }

    /// What was acknowledged is durable.
    fn sync(&mut self) {
        wait(self.group.wait_durable(self.group.applied().unwrap())).unwrap();
    }

    /// The offset and the sequence of all that a consumer reads.
    fn consume(&self) -> Vec<(i64, i32)> {
        let shard = self.shard();
        let next = shard.state.partition(self.orders()).unwrap().next();
        let find = |index| shard.tail.find(index);
        let read = fetch(&shard.state, self.orders(), 0, next, usize::MAX, find);
        assert_eq!(read.needs, None);
        let header = |mut bytes: Bytes| {
            let batch = kafka::batch::Batch::take(&mut bytes).unwrap().unwrap();
            let producer = batch.header().producer().unwrap();
            (batch.header().base_offset(), producer.base_sequence)
        };
        read.batches.into_iter().map(header).collect()
    }
}

/// A batch of one record of producer 5, as kafka-python would send it.
fn record(sequence: i32) -> Bytes {
    let mut batch = batches("kafka-python").remove(0).to_vec();
    number(&mut batch, sequence);
    batch.into()
}

/// Makes it idempotent: producer 5, epoch 0, and this sequence.
#[expect(clippy::big_endian_bytes, reason = "Kafka's integers are big-endian")]
fn number(batch: &mut [u8], sequence: i32) {
    batch[43..51].copy_from_slice(&5_i64.to_be_bytes());
    batch[51..53].copy_from_slice(&0_i16.to_be_bytes());
    batch[53..57].copy_from_slice(&sequence.to_be_bytes());
    let checksum = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&checksum.to_be_bytes());
}

fn appended(base_offset: i64) -> Answer {
    Answer::Appended { base_offset, time: 1000 }
}

#[test]
fn what_was_acknowledged_outlives_the_process_and_is_known_again() {
    let disk = Arc::new(SimDir::new());
    let mut node = Node::open(&disk);
    for sequence in 0..3 {
        assert_eq!(node.produce(sequence), appended(sequence.into()));
    }
    let all = vec![(0, 0), (1, 1), (2, 2)];
    assert_eq!(node.consume(), all);

    let mut node = Node::open(&Arc::new(disk.crash(Crash::Process, 0)));
    assert_eq!(node.consume(), all);
    // Its answer was lost with the process, so the producer sends it again.
    assert_eq!(node.produce(2), Answer::Repeated { base_offset: 2 });
    assert_eq!(node.produce(3), appended(3));
    assert_eq!(node.consume().len(), 4);
}

/// Acknowledged from the page cache, and then the power went: what was durable is there, and no offset
/// that was given away names another record.
#[test]
fn what_the_power_took_is_fenced_off() {
    let mut lost = 0;
    for seed in 0..20 {
        let disk = Arc::new(SimDir::new());
        let mut node = Node::open(&disk);
        node.produce(0);
        node.sync();
        for sequence in 1..4 {
            assert_eq!(node.produce(sequence), appended(sequence.into()));
        }
        let mut node = Node::open(&Arc::new(disk.crash(Crash::PowerCut, seed)));
        let left = node.consume();
        assert!(!left.is_empty(), "seed {seed}: what was durable is gone");
        assert!(left.iter().all(|(offset, sequence)| *offset == i64::from(*sequence)), "{left:?}");
        lost += 4 - left.len();

        node.fence();
        let partition = node.shard().state.partition(node.orders()).unwrap().clone();
        let gap = partition.gaps().next().expect("the partition was open");
        assert_eq!(gap.from, i64::try_from(left.len()).unwrap());
        assert!(gap.to >= 4, "seed {seed}: offsets below {} were given", gap.to);
        // The producer learns that something before it is missing, or goes on behind the gap.
        match node.produce(4) {
            Answer::Refused(_) => assert!(left.len() < 4),
            answer => assert_eq!(answer, appended(gap.to)),
        }
    }
    assert!(lost > 0, "no power cut took anything");
}
