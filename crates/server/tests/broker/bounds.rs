//! What is too large, too much, or no request at all.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use plimsoll_server::broker::{Node, Options};
use plimsoll_server::client::Connection;
use plimsoll_server::kafka::band::{Api, Request};
use plimsoll_server::kafka::batch::Batch;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::frame::Header;
use plimsoll_server::kafka::message::{
    ApiVersionsRequest, CreatableTopic, CreateTopicsRequest, DescribeConfigsRequest,
    DescribeConfigsResource, DescribeGroupsRequest, FetchPartition, FetchRequest, FetchTopic,
    JoinGroupProtocol, JoinGroupRequest, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsTopic, MetadataRequest, MetadataRequestTopic, OffsetCommitPartition,
    OffsetCommitRequest, OffsetCommitTopic, OffsetFetchRequest, OffsetFetchTopic, ProducePartition,
    ProduceRequest, ProduceTopic,
};
use plimsoll_server::kafka::records::Draft;
use plimsoll_server::net::{Counters, Limits, Listener};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Crash, Dir};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::forwarded::until;
use super::{Broker, UNCOMMITTED, one_record, unsynced};

/// A broker that holds its clients to these limits, and what it counts.
fn within(limits: Limits) -> (Broker, Arc<Counters>) {
    let disk: Arc<dyn Dir> = Arc::new(SimDir::new());
    let node = Node::open_in(&disk, PathBuf::from("data"), unsynced()).unwrap();
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let listener = node.runtime().block_on(Listener::bind(anywhere, limits)).unwrap();
    let counters = listener.counters();
    (Broker::serve(node, listener), counters)
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

/// The room of all connections together is taken by two that have sent no more than a length.
#[test]
fn a_request_that_a_bound_on_memory_held_says_for_how_long() {
    let limits = Limits { frame_bytes: 60 << 10, memory_bytes: 64 << 10, ..Limits::default() };
    let (mut broker, counters) = within(limits);
    let topics = Some(vec![MetadataRequestTopic::named(&"a-name".repeat(40)); 80]);
    let question = MetadataRequest { topics, ..MetadataRequest::default() };
    let heard = |counters: &Counters, bytes: u64| {
        while counters.received_bytes() < bytes {
            std::thread::yield_now();
        }
        // It stops to read, as it does at once, and goes on when there is room.
        std::thread::park_timeout(Duration::from_millis(50));
    };
    let before = counters.received_bytes();
    let greedy: Vec<_> = (1..=2)
        .map(|nth| {
            let mut greedy = TcpStream::connect(broker.client.addr()).unwrap();
            greedy.write_all(&[0, 0, 60 << 2, 0]).unwrap();
            heard(&counters, before + 4 * nth);
            greedy
        })
        .collect();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| broker.client.call(question.clone()).unwrap().throttle_time_ms);
        heard(&counters, before + 12);
        drop(greedy);
        assert!(held.join().unwrap() > 0);
    });
    assert_eq!(broker.client.call(question).unwrap().throttle_time_ms, 0);
    broker.close();
}

/// Few bytes ask for much: a thousand times in one request they would ask for gigabytes.
#[test]
fn what_is_asked_a_thousand_times_is_answered_once() {
    const TIMES: usize = 1_000;
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create_many("orders", 3, &[]);
    broker.commit("orders", 0);
    let names = || vec!["orders".to_owned(); TIMES];

    let topics = vec![MetadataRequestTopic::named("orders"); TIMES];
    let question = MetadataRequest { topics: Some(topics), ..MetadataRequest::default() };
    let topics = broker.client.call(question).unwrap().topics;
    assert_eq!((topics.len(), topics[0].partitions.len()), (1, 3));

    let (resource_type, resource_name) = (2, "orders".to_owned());
    let resource = DescribeConfigsResource { resource_type, resource_name, ..Default::default() };
    let resources = vec![resource; TIMES];
    let question = DescribeConfigsRequest { resources, ..Default::default() };
    assert_eq!(broker.client.call(question).unwrap().results.len(), 1);

    let question = DescribeGroupsRequest { groups: names(), ..Default::default() };
    assert_eq!(broker.client.call(question).unwrap().groups.len(), 1);

    let twice = OffsetFetchTopic { name: "orders".to_owned(), partition_indexes: vec![0; TIMES] };
    let topics = Some(vec![twice; 2]);
    let question = OffsetFetchRequest { group_id: "g".to_owned(), topics };
    let topics = broker.client.call(question).unwrap().topics;
    assert_eq!(topics.iter().map(|topic| topic.partitions.len()).sum::<usize>(), 1);
    broker.close();
}

/// Where batches do not fill what it takes to the byte, a client that wanted all of it waited each time, however
/// much there was.
#[test]
fn a_fetch_that_can_have_no_more_is_not_made_to_wait_for_it() {
    const MOST: i32 = 10_000;
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("orders", &[]);
    for _ in 0..10 {
        broker.produced("orders", &".".repeat(3_000));
    }
    let partition = FetchPartition { partition_max_bytes: MOST, ..FetchPartition::default() };
    let topics = vec![FetchTopic {
        topic: "orders".to_owned(),
        partitions: vec![partition],
        ..Default::default()
    }];
    for min_bytes in [MOST, 2 * MOST] {
        let (max_wait_ms, topics) = (50_000, topics.clone());
        let begun = Instant::now();
        let request = FetchRequest { max_wait_ms, min_bytes, topics, ..FetchRequest::default() };
        let fetched = broker.client.call(request).unwrap().responses.remove(0).partitions.remove(0);
        let bytes = fetched.records.0.concat().len();
        assert!((9_000..10_000).contains(&bytes), "{bytes}");
        assert!(begun.elapsed() < Duration::from_secs(40), "it waited for what cannot come");
    }
}

/// It has no reader: what stood behind it was not read either.
#[test]
fn a_batch_whose_records_are_none_is_refused() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("orders", &[]);
    let whole = one_record("value");
    // The checksum is right; the length of the record, its offset and its value are not.
    for (at, byte) in [(61, 0), (61, 0x7f), (64, 2), (66, 0x7f)] {
        let mut bytes = whole.to_vec();
        bytes[at] = byte;
        let checksum = crc32c::crc32c(&bytes[21..]);
        (&mut bytes[17..21]).put_u32(checksum);
        let told = broker.produce_bytes("orders", bytes.into());
        assert_eq!(told.error_code, ErrorCode::InvalidRecord, "byte {at}: {told:?}");
    }
    assert_eq!(broker.produce_bytes("orders", whole).error_code, ErrorCode::None);
}

#[test]
fn a_setting_that_cannot_hold_is_refused() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    let most = broker.node.batch_bytes_max();
    let [fits, more] = [most, most + 1].map(|bytes| bytes.to_string());
    assert_eq!(broker.create("more", &[("max.message.bytes", &more)]), ErrorCode::InvalidConfig);
    assert_eq!(broker.create("fits", &[("max.message.bytes", &fits)]), ErrorCode::None);
    assert_eq!(
        broker.produce("fits", &".".repeat(usize::try_from(most).unwrap() - 100)).error_code,
        ErrorCode::None
    );
}

/// Two of them had all the room there was, and nobody else was heard for half a minute.
#[test]
fn who_announces_much_and_sends_nothing_holds_up_nobody() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("orders", &[]);
    let silent: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(broker.client.addr()).unwrap();
            // A length of 100 MiB, and of what follows four bytes.
            stream.write_all(&[6, 0x40, 0, 0, 0, 0, 0, 7]).unwrap();
            stream
        })
        .collect();
    let begun = Instant::now();
    broker.produced("orders", "1");
    broker.produced("orders", &".".repeat(500_000));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(silent);
}

/// Behind what may be gone there is nothing to send, and a consumer that stood there was answered at once, for
/// ever; then it waited for records that come behind the gap, and never came to the end.
#[test]
fn a_fetch_before_a_gap_passes_over_it_once_and_waits_for_records_then() {
    const WAIT: Duration = Duration::from_secs(1);
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("orders", &[]);
    broker.produced("orders", "1");
    broker.produced("orders", "2");
    let cut = Arc::new(disk.crash(Crash::PowerCut, 1));
    drop(broker);
    let mut broker = Broker::open(&cut, unsynced());
    assert!(broker.node.verdict().starts_with("records may be lost"));
    let gap = i64::try_from(broker.consume("orders", UNCOMMITTED).len()).unwrap();
    let end = broker.latest("orders", UNCOMMITTED);
    assert!(end > 2);
    let mut fetch = |fetch_offset| {
        let partition = FetchPartition {
            fetch_offset,
            partition_max_bytes: 10_000,
            ..FetchPartition::default()
        };
        let topics = vec![FetchTopic {
            topic: "orders".to_owned(),
            partitions: vec![partition],
            ..Default::default()
        }];
        let max_wait_ms = i32::try_from(WAIT.as_millis()).unwrap();
        let request = FetchRequest { max_wait_ms, min_bytes: 1, topics, ..FetchRequest::default() };
        let begun = Instant::now();
        let fetched = broker.client.call(request).unwrap().responses.remove(0).partitions.remove(0);
        assert_eq!(fetched.error_code, ErrorCode::None, "{fetched:?}");
        (Bytes::from(fetched.records.0.concat()), begun.elapsed())
    };
    for from in [gap, end - 1] {
        let (mut bytes, _) = fetch(from);
        let batch = Batch::take(&mut bytes).unwrap().unwrap();
        let header = batch.header();
        assert_eq!(
            (header.count(), header.base_offset(), header.last_offset()),
            (0, from, end - 1)
        );
        assert!(bytes.is_empty());
    }
    let (bytes, took) = fetch(end);
    assert!(bytes.is_empty() && took >= WAIT, "it was answered after {took:?}");
}

/// Nobody read from who waited for an answer, so nobody saw that it had gone: it held its place for as long as it had asked to wait, up to
/// 24 days.
#[test]
fn who_has_gone_gives_its_place_back_however_long_it_had_asked_to_wait() {
    let limits = Limits { connections: 4, stalled: Duration::from_secs(2), ..Limits::default() };
    let (mut broker, _) = within(limits);
    broker.create("orders", &[]);
    let partitions = vec![FetchPartition { partition_max_bytes: 1 << 20, ..<_>::default() }];
    let topics = vec![FetchTopic { topic: "orders".to_owned(), partitions, ..<_>::default() }];
    let (max_wait_ms, min_bytes) = (i32::MAX, i32::MAX);
    let request = FetchRequest { topics, max_wait_ms, min_bytes, ..FetchRequest::default() };
    let header = Header { api: Api::Fetch, version: 11, correlation_id: 1, client_id: None };
    let bytes = Request::from(request).encode(&header).concat();
    // Of one that had asked for more there is something left to read.
    for times in [1, 2, 3] {
        let mut stream = TcpStream::connect(broker.client.addr()).unwrap();
        stream.write_all(&bytes.repeat(times)).unwrap();
    }
    until("there is room for another", || {
        let mut another = TcpStream::connect(broker.client.addr()).unwrap();
        another.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff]).unwrap();
        another.read(&mut [0; 4]).is_ok_and(|bytes| bytes > 0)
    });
}

#[test]
fn of_a_partition_that_is_named_over_and_over_the_offset_is_listed_once() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("orders", &[]);
    broker.produced("orders", "1");
    let of = |timestamp| ListOffsetsPartition { timestamp, ..<_>::default() };
    let partitions = (0..1_000).map(of).collect();
    let topic = ListOffsetsTopic { name: "orders".to_owned(), partitions };
    let request = ListOffsetsRequest { topics: vec![topic.clone(), topic], ..<_>::default() };
    let told = broker.client.call(request).unwrap();
    assert_eq!((told.topics.len(), told.topics[0].partitions.len()), (1, 1));
    assert_eq!(told.topics[0].partitions[0].offset, 0);
}

/// Half a kilobyte had a broker decompress 15 MiB, and as often as a request has room for it: others waited for half a minute.
#[test]
fn of_a_request_only_so_much_is_decompressed_to_look_for_keys() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("compact", &[("cleanup.policy", "compact")]);
    let mut draft = Draft::default();
    draft.push(1, None, Some(&vec![0; 15 << 20]), &[]);
    let records = Some(draft.batch(Compression::Zstd, None).pieces().concat().into());
    let partition_data = vec![ProducePartition { index: 0, records }; 5];
    let topic_data = vec![ProduceTopic { name: "compact".to_owned(), partition_data }];
    let request =
        ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data, ..ProduceRequest::default() };
    let told = broker.client.call(request).unwrap();
    let codes = told.responses[0].partition_responses.iter().map(|told| told.error_code);
    let none = ErrorCode::None;
    // The first is looked at, and so is the second; there is no room for all of the third.
    let expected = [ErrorCode::InvalidRecord, ErrorCode::InvalidRecord, none, none, none];
    assert!(codes.eq(expected), "{told:?}");
}

/// Clients that ask for all there is and take nothing: others read on, in smaller pieces.
#[test]
fn who_takes_no_records_leaves_room_for_who_does() {
    let limits =
        Limits { memory_bytes: 16 << 20, stalled: Duration::from_secs(3), ..Limits::default() };
    let (mut broker, _) = within(limits);
    let values: Vec<_> = (0..12).map(|number| number.to_string().repeat(800 << 10)).collect();
    broker.create("wide", &[("max.message.bytes", "2000000")]);
    for value in &values {
        broker.produced("wide", value);
    }
    let partition = FetchPartition { partition_max_bytes: i32::MAX, ..FetchPartition::default() };
    let topics = vec![FetchTopic {
        topic: "wide".to_owned(),
        partitions: vec![partition],
        ..Default::default()
    }];
    let request = FetchRequest { topics, max_bytes: i32::MAX, ..FetchRequest::default() };
    let header = Header { api: Api::Fetch, version: 11, correlation_id: 1, client_id: None };
    let bytes = Request::from(request.clone()).encode(&header).concat();
    let greedy: Vec<_> = (0..10)
        .map(|_| {
            let mut stream = TcpStream::connect(broker.client.addr()).unwrap();
            stream.write_all(&bytes).unwrap();
            stream
        })
        .collect();
    let told = broker.client.call(request).unwrap().responses[0].partitions[0].clone();
    let bytes: usize = told.records.0.iter().map(Bytes::len).sum();
    assert!((800 << 10..3 << 20).contains(&bytes), "{bytes} bytes of a share of 4 MiB");
    let all = broker.consume("wide", UNCOMMITTED);
    assert!(all.into_iter().map(|(_, value)| value).eq(values));
    drop(greedy);
    broker.close();
}

/// A request as a client sends it.
fn any_request(dice: &mut Pcg64Mcg) -> Vec<u8> {
    let topic = || "orders".to_owned();
    let requests: [(Api, i16, Request); 8] = [
        (
            Api::Metadata,
            9,
            MetadataRequest {
                topics: Some(vec![MetadataRequestTopic::named("orders")]),
                ..Default::default()
            }
            .into(),
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
                topics: vec![FetchTopic {
                    topic: topic(),
                    partitions: vec![Default::default()],
                    ..Default::default()
                }],
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

/// Which of them is newer than which could not be told.
#[test]
fn a_record_without_a_key_is_refused_where_the_newest_of_each_key_stays() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, unsynced());
    broker.create("table", &[("cleanup.policy", "compact,delete")]);
    broker.create("orders", &[]);
    for compression in Compression::ALL {
        let mut draft = Draft::default();
        draft.push(1_000, Some(b"a key"), Some(b"a value"), &[]);
        draft.push(1_000, None, Some(b"another"), &[]);
        let bytes: Bytes = draft.batch(compression, None).pieces().concat().into();
        let told = broker.produce_bytes("table", bytes.clone());
        assert_eq!(told.error_code, ErrorCode::InvalidRecord, "{compression}");
        assert!(told.error_message.unwrap().contains("record 1 has no key"));
        assert_eq!(broker.produce_bytes("orders", bytes).error_code, ErrorCode::None);
    }
    assert_eq!(broker.consume("table", UNCOMMITTED), []);
    broker.close();
}
