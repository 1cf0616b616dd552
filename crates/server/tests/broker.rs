//! A broker on a simulated disk, and a client at its socket: what each promise is worth, told as stories.

#[path = "shared/served.rs"]
mod served;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_log::Policy;
use plimsoll_server::broker::{Failed, Node, Options};
use plimsoll_server::client::Connection;
use plimsoll_server::cluster;
use plimsoll_server::kafka::band::{Api, Request};
use plimsoll_server::kafka::batch::Batch;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::frame::Header;
use plimsoll_server::kafka::message::{
    AlterableConfig, AlterableResource, ApiVersionsRequest, CreatableTopic, CreateTopicsRequest,
    DeleteTopicsRequest, EpochPartition, EpochTopic, FetchPartition, FetchRequest, FetchTopic,
    FetchedPartition, IncrementalAlterConfigsRequest, JoinGroupProtocol, JoinGroupRequest,
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, MetadataRequest,
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, OffsetFetchRequest,
    OffsetFetchTopic, OffsetsForLeaderEpochRequest, ProducePartition, ProduceRequest, ProduceTopic,
    ProducedPartition, TopicConfig,
};
use plimsoll_server::kafka::records::{Draft, Records};
use plimsoll_server::net::{Counters, Limits, Listener};
use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::{Crash, Dir};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use served::Served as Broker;

const UNCOMMITTED: i8 = 0;
const COMMITTED: i8 = 1;
const LATEST: i64 = -1;

impl Broker {
    fn open(disk: &Arc<SimDir>, options: Options) -> Self {
        Self::start(disk, options).unwrap()
    }

    /// Ends in order.
    fn close(self) {
        self.stop().close().unwrap();
    }

    fn create(&mut self, name: &str, configs: &[(&str, &str)]) -> ErrorCode {
        self.create_many(name, 1, configs)
    }

    fn create_many(
        &mut self,
        name: &str,
        num_partitions: i32,
        configs: &[(&str, &str)],
    ) -> ErrorCode {
        let configs = configs.iter().map(|(name, value)| TopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        self.client.call(request).unwrap().topics[0].error_code
    }

    fn alter(&mut self, topic: &str, name: &str, value: &str) {
        const TOPIC: i8 = 2;
        let (name, value) = (name.to_owned(), Some(value.to_owned()));
        let configs = vec![AlterableConfig { name, config_operation: 0, value }];
        let resource_name = topic.to_owned();
        let resources = vec![AlterableResource { resource_type: TOPIC, resource_name, configs }];
        let request = IncrementalAlterConfigsRequest { resources, validate_only: false };
        assert_eq!(self.client.call(request).unwrap().responses[0].error_code, ErrorCode::None);
    }

    fn delete(&mut self, name: &str) {
        let request =
            DeleteTopicsRequest { topic_names: vec![name.to_owned()], timeout_ms: 20_000 };
        assert_eq!(self.client.call(request).unwrap().responses[0].error_code, ErrorCode::None);
    }

    fn commit(&mut self, topic: &str, committed_offset: i64) {
        let partition = OffsetCommitPartition { committed_offset, ..Default::default() };
        let topics =
            vec![OffsetCommitTopic { name: topic.to_owned(), partitions: vec![partition] }];
        let request =
            OffsetCommitRequest { group_id: "g".to_owned(), topics, ..Default::default() };
        let told = self.client.call(request).unwrap().topics[0].partitions[0].error_code;
        assert_eq!(told, ErrorCode::None);
    }

    fn committed(&mut self, topic: &str) -> i64 {
        let topics = vec![OffsetFetchTopic { name: topic.to_owned(), partition_indexes: vec![0] }];
        let request = OffsetFetchRequest { group_id: "g".to_owned(), topics: Some(topics) };
        self.client.call(request).unwrap().topics[0].partitions[0].committed_offset
    }

    /// Produces a record, and says what became of it.
    fn produce(&mut self, topic: &str, value: &str) -> ProducedPartition {
        let records = Some(one_record(value));
        let partition_data = vec![ProducePartition { index: 0, records }];
        let topic_data = vec![ProduceTopic { name: topic.to_owned(), partition_data }];
        let (transactional_id, acks, timeout_ms) = (None, -1, 20_000);
        let request = ProduceRequest { transactional_id, acks, timeout_ms, topic_data };
        self.client.call(request).unwrap().responses.remove(0).partition_responses.remove(0)
    }

    fn produced(&mut self, topic: &str, value: &str) -> i64 {
        let produced = self.produce(topic, value);
        assert_eq!(produced.error_code, ErrorCode::None, "{produced:?}");
        produced.base_offset
    }

    fn fetch(&mut self, topic: &str, from: i64, isolation_level: i8) -> FetchedPartition {
        let partition = FetchPartition {
            fetch_offset: from,
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        };
        let request = FetchRequest {
            isolation_level,
            topics: vec![FetchTopic { topic: topic.to_owned(), partitions: vec![partition] }],
            ..FetchRequest::default()
        };
        self.client.call(request).unwrap().responses.remove(0).partitions.remove(0)
    }

    /// Every offset and value.
    fn consume(&mut self, topic: &str, isolation_level: i8) -> Vec<(i64, String)> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let fetched = self.fetch(topic, from, isolation_level);
            assert_eq!(fetched.error_code, ErrorCode::None, "{fetched:?}");
            let mut bytes = fetched.records.0.concat().into();
            let before = all.len();
            while let Some(batch) = Batch::take(&mut bytes).unwrap() {
                from = batch.header().last_offset() + 1;
                let records = Records::of(&batch, 1 << 20).unwrap();
                for record in records.iter() {
                    let record = record.unwrap();
                    let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                    all.push((record.offset, value));
                }
            }
            if all.len() == before {
                return all;
            }
        }
    }

    fn latest(&mut self, topic: &str, isolation_level: i8) -> i64 {
        let partition = ListOffsetsPartition { timestamp: LATEST, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: topic.to_owned(), partitions: vec![partition] }];
        let request = ListOffsetsRequest { isolation_level, topics, ..Default::default() };
        self.client.call(request).unwrap().topics[0].partitions[0].offset
    }

    fn end_of_epoch(&mut self, topic: &str, leader_epoch: i32) -> (i32, i64) {
        let partition = EpochPartition { leader_epoch, ..EpochPartition::default() };
        let topics = vec![EpochTopic { topic: topic.to_owned(), partitions: vec![partition] }];
        let request = OffsetsForLeaderEpochRequest { topics, ..Default::default() };
        let end = self.client.call(request).unwrap().topics[0].partitions[0].clone();
        assert_eq!(end.error_code, ErrorCode::None);
        (end.leader_epoch, end.end_offset)
    }
}

/// Nothing is synced that nobody asks to be.
fn unsynced() -> Options {
    Options { flush: Policy::Never, ring_bytes: 4 << 20, ..Options::default() }
}

#[test]
fn what_was_produced_is_consumed_again_after_a_stop_and_a_start() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    assert_eq!(broker.create("orders", &[]), ErrorCode::None);
    assert_eq!(broker.create("orders", &[]), ErrorCode::TopicAlreadyExists);
    let values: Vec<String> = (0..50).map(|number| format!("order {number}")).collect();
    for (offset, value) in (0..).zip(&values) {
        assert_eq!(broker.produced("orders", value), offset);
    }
    let all: Vec<_> = (0..).zip(values).collect();
    assert_eq!(broker.consume("orders", UNCOMMITTED), all);
    broker.close();
    // The system was cut off afterwards: the last run said that it ended in order.
    let mut broker = Broker::open(&Arc::new(disk.crash(Crash::PowerCut, 1)), unsynced());
    assert!(broker.node.verdict().starts_with("nothing is lost"), "{}", broker.node.verdict());
    assert_eq!(broker.consume("orders", COMMITTED), all);
    assert_eq!(broker.produced("orders", "one more"), 50);
    broker.close();
}

/// One topic, two consumers: one sees what is acknowledged, the other what a power cut leaves.
#[test]
fn read_committed_sees_what_is_durable_and_read_uncommitted_what_is_acknowledged() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    let durable = [("plimsoll.read.committed", "durable")];
    assert_eq!(broker.create("audit", &durable), ErrorCode::None);
    // The first batch opens the partition, by a sync that is shared.
    broker.produced("audit", "first");
    broker.produced("audit", "second");
    assert_eq!((broker.latest("audit", UNCOMMITTED), broker.latest("audit", COMMITTED)), (2, 1));
    assert_eq!(broker.consume("audit", UNCOMMITTED).len(), 2);
    assert_eq!(broker.consume("audit", COMMITTED), [(0, "first".to_owned())]);
    let fetched = broker.fetch("audit", 2, UNCOMMITTED);
    assert_eq!((fetched.high_watermark, fetched.last_stable_offset), (2, 1));
    let kept = disk.crash(Crash::PowerCut, 3);
    drop(broker);
    let mut broker = Broker::open(&Arc::new(kept), unsynced());
    let left = broker.consume("audit", UNCOMMITTED);
    assert_eq!(left[0], (0, "first".to_owned()), "what read_committed saw is there");
    drop(broker);
}

/// Acknowledged, and then the power went: what is left is a prefix, and no offset that was given away
/// names another record. A client that knows the old epoch learns where it ended.
#[test]
fn no_offset_names_two_records_over_power_cuts() {
    let (mut lost, mut fenced) = (0, 0);
    for seed in 0..12 {
        let disk = Arc::new(SimDir::new());
        let mut broker = Broker::open(&disk, unsynced());
        broker.create("orders", &[]);
        for number in 0..10 {
            assert_eq!(broker.produced("orders", &format!("before {number}")), number);
        }
        let kept = Arc::new(disk.crash(Crash::PowerCut, seed));
        drop(broker);
        let mut broker = Broker::open(&kept, unsynced());
        let verdict = broker.node.verdict().to_owned();
        assert!(verdict.starts_with("records may be lost"), "seed {seed}: {verdict}");
        let left = broker.consume("orders", UNCOMMITTED);
        assert!(!left.is_empty(), "seed {seed}: the first was durable");
        for (offset, value) in &left {
            assert_eq!(*value, format!("before {offset}"), "seed {seed}");
        }
        lost += 10 - left.len();
        let next = broker.produced("orders", "after");
        assert!(next >= 10, "seed {seed}: offset {next} was given away before");
        fenced += usize::from(next > 10);
        let all = broker.consume("orders", UNCOMMITTED);
        assert_eq!(all.last(), Some(&(next, "after".to_owned())), "seed {seed}");
        let (_, ended) = broker.end_of_epoch("orders", 1);
        assert_eq!(
            usize::try_from(ended).unwrap(),
            left.len(),
            "seed {seed}: where the epoch ended"
        );
        drop(broker);
    }
    assert!(lost > 0 && fenced > 0, "no power cut took anything");
}

#[test]
fn what_waits_for_the_disk_outlives_every_power_cut() {
    for seed in 0..8 {
        let disk = Arc::new(SimDir::new());
        let mut broker = Broker::open(&disk, unsynced());
        assert_eq!(broker.create("ledger", &[("flush.messages", "1")]), ErrorCode::None);
        broker.create("notes", &[]);
        for number in 0..6 {
            broker.produced("notes", "may go");
            assert_eq!(broker.produced("ledger", &number.to_string()), number);
        }
        let kept = Arc::new(disk.crash(Crash::PowerCut, seed));
        drop(broker);
        let mut broker = Broker::open(&kept, unsynced());
        let all: Vec<_> = (0..6).map(|number| (number, number.to_string())).collect();
        assert_eq!(broker.consume("ledger", COMMITTED), all, "seed {seed}");
        assert_eq!(broker.produced("ledger", "6"), 6, "it has no gap");
        drop(broker);
    }
}

/// A setting that is given later holds from then on, though the partition stays where it is.
#[test]
fn a_topic_that_is_told_to_wait_for_the_disk_later_does() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[("plimsoll.read.committed", "durable")]);
    broker.produced("orders", "0");
    broker.produced("orders", "1");
    assert_eq!(broker.latest("orders", COMMITTED), 1);
    broker.alter("orders", "flush.messages", "1");
    broker.produced("orders", "2");
    assert_eq!(broker.latest("orders", COMMITTED), 3);
    drop(broker);
}

#[test]
fn a_topic_that_is_made_again_begins_anew_with_a_higher_epoch() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.produced("orders", "old");
    let before = broker.end_of_epoch("orders", i32::MAX - 1);
    assert_eq!(before, (-1, -1), "no such epoch");
    let epoch = |broker: &Broker| broker.node.topic("orders").unwrap().partition[0].epoch;
    let old = epoch(&broker);
    broker.delete("orders");
    assert_eq!(broker.produce("orders", "gone").error_code, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(broker.create("orders", &[]), ErrorCode::None);
    assert!(epoch(&broker) > old, "{} after {old}", epoch(&broker));
    assert_eq!(broker.consume("orders", UNCOMMITTED), []);
    assert_eq!(broker.produced("orders", "new"), 0);
    broker.close();
}

/// The disk fails under one of the shards.
#[test]
fn a_shard_whose_disk_failed_is_offline_and_the_others_go_on() {
    const EIO: i32 = 5;
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.create("ledger", &[("flush.messages", "1")]);
    broker.produced("ledger", "before");
    for name in disk.open_dir("shard-3").unwrap().list().unwrap() {
        for on in [Operation::Write, Operation::Sync] {
            let failing = Fault::new(on, FaultKind::FailRaw(EIO)).sticky();
            disk.inject(failing.named(format!("shard-3/{name}")));
        }
    }
    let failing = Fault::new(Operation::SyncDir, FaultKind::FailRaw(EIO)).sticky();
    disk.inject(failing.named("shard-3"));
    for _ in 0..2 {
        assert_eq!(broker.produce("ledger", "lost").error_code, ErrorCode::KafkaStorageError);
    }
    assert_eq!(broker.produced("orders", "1"), 0);
    assert_eq!(broker.create("late", &[]), ErrorCode::None);
    let before = vec![(0, "before".to_owned())];
    assert_eq!(broker.consume("ledger", UNCOMMITTED), before);
    let shards = broker.node.shards();
    let offline: Vec<_> = shards.iter().filter(|shard| shard.offline.is_some()).collect();
    assert_eq!(offline.iter().map(|shard| shard.number).collect::<Vec<_>>(), [3]);
    let why = offline[0].offline.as_ref().unwrap();
    assert!(why.contains("shard-3") && why.contains("os error 5"), "{why}");
    disk.stop_at(disk.operations());
    drop(broker.stop());
}

#[test]
fn a_full_disk_refuses_records_and_has_room_for_what_deletes_them() {
    let capacity_bytes = Some(512 << 20);
    let disk = DiskOptions { capacity_bytes, history_steps: 0, ..DiskOptions::default() };
    let mut broker = Broker::open(&Arc::new(SimDir::with(disk)), unsynced());
    broker.create("orders", &[]);
    broker.create("ledger", &[("flush.messages", "1")]);
    let much = "much ".repeat(100_000);
    let refused = (0..2_000).map(|_| broker.produce("orders", &much)).find(|it| it.base_offset < 0);
    let refused = refused.expect("the disk is full by now");
    assert_eq!(refused.error_code, ErrorCode::KafkaStorageError);
    assert!(refused.error_message.unwrap().starts_with("the disk is full"));
    assert_eq!(broker.produce("ledger", "1").error_code, ErrorCode::KafkaStorageError);
    let offline = |broker: &Broker| broker.node.shards().into_iter().filter_map(|it| it.offline);
    assert!(offline(&broker).all(|why| why == "its records are refused: the disk is full"));
    assert_eq!(offline(&broker).count(), 2);
    // All else is done.
    assert_eq!(broker.fetch("orders", 0, UNCOMMITTED).error_code, ErrorCode::None);
    broker.commit("orders", 1);
    assert_eq!(broker.create("late", &[]), ErrorCode::None);
    broker.delete("orders");
    let patience = Instant::now() + Duration::from_secs(60);
    while broker.produce("ledger", "1").error_code != ErrorCode::None {
        assert!(Instant::now() < patience, "what was deleted gives no room back");
        let pause = async { tokio::time::sleep(Duration::from_millis(20)).await };
        broker.node.runtime().block_on(pause);
    }
    assert_eq!(offline(&broker).count(), 0);
    broker.close();
}

/// It stood still without a word.
#[test]
fn a_start_on_a_full_disk_ends_and_says_so() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.produced("orders", "1");
    // Full from some operation on: most starts are refused a file at once, one would wait for room.
    let waited = (1..60).find(|nth| {
        let full = Arc::new(disk.crash(Crash::PowerCut, 1));
        for on in [Operation::Write, Operation::Allocate, Operation::Create] {
            let kind = FaultKind::Fail(std::io::ErrorKind::StorageFull);
            full.inject(Fault::new(on, kind).nth(*nth).sticky());
        }
        let why = Broker::start(&full, unsynced()).err().expect("so early a start needs room");
        matches!(
            why,
            Failed::Shard { why: cluster::Error::Log(plimsoll_log::Error::OutOfSpace { .. }), .. }
        )
    });
    assert!(waited.is_some());
    drop(broker);
}

/// The deletion took longer than its client waited, and the group went on where it was in the topic that
/// was deleted.
#[test]
fn offsets_of_a_topic_that_is_deleted_late_are_forgotten() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.commit("orders", 7);
    assert_eq!(broker.committed("orders"), 7);
    // The disk does nothing until it is let go.
    let (let_go, held) = mpsc::channel::<()>();
    disk.watch(move |_| held.recv().unwrap_or_default());
    let request = DeleteTopicsRequest { topic_names: vec!["orders".to_owned()], timeout_ms: 100 };
    let told = broker.client.call(request).unwrap().responses[0].error_code;
    assert_eq!(told, ErrorCode::RequestTimedOut);
    drop(let_go);
    let patience = Instant::now() + Duration::from_secs(20);
    while broker.node.topic("orders").is_some() {
        assert!(Instant::now() < patience, "the topic is still there");
        std::thread::yield_now();
    }
    broker.create("orders", &[]);
    while broker.committed("orders") != -1 {
        assert!(Instant::now() < patience, "the offset of the topic before is still there");
        std::thread::yield_now();
    }
    broker.close();
}

/// Each text is as long as it may be, and all together have no room in an entry; what comes next is
/// served.
#[test]
fn a_commit_that_is_too_large_for_an_entry_is_refused_and_ends_nothing() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create_many("orders", 1_100, &[]);
    let commit = |metadata_bytes, count| {
        let partitions = (0..count).map(|partition_index| OffsetCommitPartition {
            partition_index,
            committed_offset: 1,
            committed_metadata: Some("m".repeat(metadata_bytes)),
            ..OffsetCommitPartition::default()
        });
        let partitions = partitions.collect();
        let topics = vec![OffsetCommitTopic { name: "orders".to_owned(), partitions }];
        OffsetCommitRequest { group_id: "g".to_owned(), topics, ..OffsetCommitRequest::default() }
    };
    let code = |broker: &mut Broker, request: OffsetCommitRequest| {
        broker.client.call(request).unwrap().topics[0].partitions[0].error_code
    };
    assert_eq!(code(&mut broker, commit(4_000, 1_100)), ErrorCode::PolicyViolation);
    assert_eq!(code(&mut broker, commit(5_000, 1)), ErrorCode::OffsetMetadataTooLarge);
    assert_eq!(code(&mut broker, commit(5, 1)), ErrorCode::None);
    broker.close();
}

/// Requests with bytes that nobody would send, each on a connection of its own: the broker closes it or
/// answers, and serves the next.
#[test]
fn no_bytes_from_a_socket_end_the_broker() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.produced("orders", "before");
    let address = broker.client.addr().to_owned();
    let mut dice = Pcg64Mcg::seed_from_u64(7);
    let (mut answered, mut closed) = (0, 0);
    for round in 0..400 {
        let mut frame = any_request(&mut dice);
        for _ in 0..dice.random_range(1..4) {
            // The length stays: what follows it is read as it says.
            let at = dice.random_range(4..frame.len());
            frame[at] = dice.random();
        }
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream.write_all(&frame).unwrap();
        match stream.read(&mut [0; 64]) {
            Ok(0) => closed += 1,
            Ok(_) => answered += 1,
            // Such as a fetch that waits, or a join.
            Err(_) => {}
        }
        if round % 50 == 0 {
            broker.produced("orders", "between");
        }
    }
    assert!(answered > 20 && closed > 20, "{answered} answered, {closed} closed");
    assert_eq!(broker.consume("orders", UNCOMMITTED)[0], (0, "before".to_owned()));
    broker.close();
}

/// The room of all connections together is taken by one that has sent no more than a length.
#[test]
fn a_request_that_a_bound_on_memory_held_says_for_how_long() {
    let limits = Limits { frame_bytes: 60 << 10, memory_bytes: 64 << 10, ..Limits::default() };
    let disk = Arc::new(SimDir::new());
    let disk: Arc<dyn Dir> = disk;
    let node = Node::open_in(&disk, PathBuf::from("data"), unsynced()).unwrap();
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let listener = node.runtime().block_on(Listener::bind(anywhere, limits)).unwrap();
    let counters = listener.counters();
    let mut broker = Broker::serve(node, listener);
    let topics = Some(vec!["a-name".repeat(40); 60]);
    let question = MetadataRequest { topics, ..MetadataRequest::default() };
    let heard = |counters: &Counters, bytes: u64| {
        while counters.received_bytes() < bytes {
            std::thread::yield_now();
        }
        // It stops to read, as it does at once, and goes on when there is room.
        std::thread::park_timeout(Duration::from_millis(50));
    };
    let before = counters.received_bytes();
    let mut greedy = TcpStream::connect(broker.client.addr()).unwrap();
    greedy.write_all(&[0, 0, 60 << 2, 0]).unwrap();
    heard(&counters, before + 4);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| broker.client.call(question.clone()).unwrap().throttle_time_ms);
        heard(&counters, before + 8);
        drop(greedy);
        assert!(held.join().unwrap() > 0);
    });
    assert_eq!(broker.client.call(question).unwrap().throttle_time_ms, 0);
    broker.close();
}

/// A request as a client sends it.
fn any_request(dice: &mut Pcg64Mcg) -> Vec<u8> {
    let topic = || "orders".to_owned();
    let requests: [(Api, i16, Request); 8] = [
        (
            Api::Metadata,
            8,
            MetadataRequest { topics: Some(vec![topic()]), ..Default::default() }.into(),
        ),
        (Api::ApiVersions, 3, ApiVersionsRequest::default().into()),
        (
            Api::ListOffsets,
            5,
            ListOffsetsRequest {
                topics: vec![ListOffsetsTopic {
                    name: topic(),
                    partitions: vec![Default::default()],
                }],
                ..Default::default()
            }
            .into(),
        ),
        (
            Api::Fetch,
            11,
            FetchRequest {
                topics: vec![FetchTopic { topic: topic(), partitions: vec![Default::default()] }],
                ..Default::default()
            }
            .into(),
        ),
        (
            Api::Produce,
            8,
            ProduceRequest {
                transactional_id: None,
                acks: 1,
                timeout_ms: 100,
                topic_data: vec![ProduceTopic {
                    name: topic(),
                    partition_data: vec![ProducePartition {
                        index: 0,
                        records: Some(one_record("a record")),
                    }],
                }],
            }
            .into(),
        ),
        (
            Api::JoinGroup,
            5,
            JoinGroupRequest {
                group_id: "g".to_owned(),
                session_timeout_ms: 6_000,
                rebalance_timeout_ms: 100,
                protocol_type: "consumer".to_owned(),
                protocols: vec![JoinGroupProtocol {
                    name: "range".to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            }
            .into(),
        ),
        (
            Api::OffsetCommit,
            7,
            OffsetCommitRequest {
                group_id: "g".to_owned(),
                topics: vec![OffsetCommitTopic {
                    name: topic(),
                    partitions: vec![Default::default()],
                }],
                ..Default::default()
            }
            .into(),
        ),
        (
            Api::CreateTopics,
            4,
            CreateTopicsRequest {
                topics: vec![CreatableTopic {
                    name: "another".to_owned(),
                    num_partitions: 1,
                    replication_factor: 1,
                    ..Default::default()
                }],
                ..Default::default()
            }
            .into(),
        ),
    ];
    let (api, version, request) = &requests[dice.random_range(0..requests.len())];
    let header = Header { api: *api, version: *version, correlation_id: 1, client_id: None };
    request.encode(&header).concat()
}

fn one_record(value: &str) -> Bytes {
    let mut draft = Draft::default();
    draft.push(1_000, None, Some(value.as_bytes()), &[]);
    draft.batch(Compression::None, None).pieces().concat().into()
}

/// Found by bytes from a socket: a topic of hundreds of thousands of partitions held up every producer
/// for as long as it was made, and took the memory that it liked.
#[test]
fn topics_of_many_partitions_hold_nobody_up_and_have_a_bound() {
    let disk = Arc::new(SimDir::new());
    let options = Options { partitions_max: 20_000, ..unsynced() };
    let mut broker = Broker::open(&disk, options);
    broker.create("orders", &[]);
    assert_eq!(broker.create_many("wide", 20_000, &[]), ErrorCode::InvalidPartitions);
    let address = broker.client.addr().to_owned();
    let making = std::thread::spawn(move || {
        let mut other = Connection::open(&address, Duration::from_secs(60)).unwrap();
        let topic = CreatableTopic {
            name: "wide".to_owned(),
            num_partitions: 19_000,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        other.call(request).unwrap().topics[0].error_code
    });
    let mut meanwhile = 0;
    while !making.is_finished() {
        broker.produced("orders", "meanwhile");
        meanwhile += 1;
    }
    assert_eq!(making.join().unwrap(), ErrorCode::None);
    assert!(meanwhile > 2, "only {meanwhile} records were taken meanwhile");
    broker.close();
}
