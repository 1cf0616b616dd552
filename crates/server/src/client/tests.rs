//! The client against a broker of a few lines.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::BytesMut;

use super::{Cluster, Connection, Error};
use crate::kafka::band::{Api, Request, Response};
use crate::kafka::error::ErrorCode;
use crate::kafka::frame::{self, Header};
use crate::kafka::message::*;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Answers what it is asked, until a question has no answer.
struct Broker {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Broker {
    fn start(
        answer: impl Fn(&Header, Request) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (connections, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(answer));
        let counted = connections.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = answer.clone();
                thread::spawn(move || serve(stream.unwrap(), &*answer));
            }
        });
        Self { addr, connections }
    }

    fn addr(&self) -> String {
        self.addr.to_string()
    }

    fn port(&self) -> i32 {
        self.addr.port().into()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&Header, Request) -> Option<Response>) {
    let mut received = BytesMut::new();
    loop {
        while let Some(frame) = frame::take(&mut received, 1 << 20).unwrap() {
            let (header, request) = Request::decode(frame).unwrap();
            let Some(response) = answer(&header, request) else { return };
            let pieces = response.encode(header.version, header.correlation_id);
            stream.write_all(&pieces.concat()).unwrap();
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(read) => received.extend_from_slice(&bytes[..read]),
        }
    }
}

/// Sends these bytes to whoever connects, whatever they say.
fn says(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // The question first: a connection that ends with bytes unread is reset.
            let asked = stream.read(&mut [0; 1024]).unwrap();
            assert!(asked > 0);
            stream.write_all(bytes).ok();
        }
    });
    addr
}

fn versions() -> Option<Response> {
    Some(ApiVersionsResponse::of_the_band(ErrorCode::None).into())
}

fn error(addr: &str) -> Error {
    Connection::open(addr, TIMEOUT).unwrap_err()
}

fn heartbeat() -> HeartbeatRequest {
    HeartbeatRequest::default()
}

/// A cluster whose partitions are led, and whose groups are coordinated, on these ports.
fn metadata(brokers: &[(i32, i32)], leader_id: i32) -> MetadataResponse {
    let broker = |(node_id, port): &(i32, i32)| MetadataBroker {
        node_id: *node_id,
        host: "127.0.0.1".to_owned(),
        port: *port,
        rack: None,
    };
    let partition = MetadataPartition { leader_id, ..MetadataPartition::default() };
    let name = "orders".to_owned();
    let topic =
        MetadataTopic { name: Some(name), partitions: vec![partition], ..MetadataTopic::default() };
    MetadataResponse {
        brokers: brokers.iter().map(broker).collect(),
        controller_id: leader_id,
        topics: vec![topic],
        ..MetadataResponse::default()
    }
}

fn listed(offset: i64) -> Option<Response> {
    let partitions = vec![ListedOffset { offset, ..ListedOffset::default() }];
    let topics = vec![ListedOffsetsTopic { name: "orders".to_owned(), partitions }];
    Some(ListOffsetsResponse { topics, ..ListOffsetsResponse::default() }.into())
}

#[test]
fn a_request_has_the_highest_version_that_both_speak() {
    for (theirs, expected) in [((0, 1), 1), ((0, 3), 3), ((2, 17), 3)] {
        let broker = Broker::start(move |header, request| match request.api() {
            Api::ApiVersions => {
                let (min_version, max_version) = theirs;
                let heartbeat = ApiVersion { api_key: 12, min_version, max_version };
                // One that we have never heard of.
                let other = ApiVersion { api_key: 77, min_version: 0, max_version: 1 };
                let api_keys = vec![heartbeat, other];
                Some(ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() }.into())
            }
            _ => {
                assert_eq!(header.client_id.as_deref(), Some("plimsoll"));
                let throttle_time_ms = header.version.into();
                let error_code = ErrorCode::UnknownMemberId;
                Some(HeartbeatResponse { throttle_time_ms, error_code }.into())
            }
        });
        let mut connection = Connection::open(&broker.addr(), TIMEOUT).unwrap();
        let answer = connection.call(heartbeat()).unwrap();
        assert_eq!(answer.error_code, ErrorCode::UnknownMemberId);
        assert_eq!(answer.throttle_time_ms, expected);
    }
}

#[test]
fn a_version_that_both_speak_is_missing_and_the_error_says_which_they_are() {
    let broker = Broker::start(|_, _| {
        let heartbeat = ApiVersion { api_key: 12, min_version: 4, max_version: 9 };
        let api_keys = vec![heartbeat];
        Some(ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() }.into())
    });
    let mut connection = Connection::open(&broker.addr(), TIMEOUT).unwrap();
    let addr = broker.addr();
    let said = connection.call(heartbeat()).unwrap_err().to_string();
    let versions = "speaks Heartbeat in versions 4 to 9, and this client in versions 0 to 3";
    assert_eq!(said, format!("{addr} {versions}"));
    let said = connection.call(ListGroupsRequest {}).unwrap_err().to_string();
    let versions = "does not speak ListGroups, and this client in versions 0 to 2";
    assert_eq!(said, format!("{addr} {versions}"));
}

#[test]
fn where_nobody_listens_nobody_is_reached() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let said = error(&closed).to_string();
    assert_eq!(said, format!("no broker can be reached at {closed}"));
    for addr in ["127.0.0.1", "", "127.0.0.1:x"] {
        assert!(matches!(error(addr), Error::Unreachable { .. }), "{addr}");
    }
}

#[test]
fn who_is_no_broker_is_known_by_the_first_answer() {
    let closes = "it closed the connection";
    for (answer, why) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], "a frame of 1213486160 bytes"),
        (b"", closes),
        (b"\x15\x03\x03\0\x02\x02\x50", "a frame of 352518912 bytes"),
        (b"\0\0\0\x05hello", "are left"),
        (b"\0\0\0\x0a\0\0\0\x07\0\0\0\0\0\0", "request 1 is answered as 7"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
    ] {
        let said = error(&says(answer)).to_string();
        assert!(said.contains("does not speak Kafka's protocol: "), "{said}");
        assert!(said.contains(why), "{said}, not {why}");
    }
}

#[test]
fn a_connection_that_ends_before_the_answer_is_closed() {
    let broker = Broker::start(|_, request| match request.api() {
        Api::ApiVersions => versions(),
        _ => None,
    });
    let mut connection = Connection::open(&broker.addr(), TIMEOUT).unwrap();
    let said = connection.call(heartbeat()).unwrap_err();
    assert!(matches!(said, Error::Closed { api: Api::Heartbeat, .. }), "{said}");
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let said = Connection::open(&addr, Duration::from_millis(20)).unwrap_err().to_string();
    assert_eq!(said, format!("{addr} did not answer ApiVersions within 20ms"));
}

#[test]
fn where_there_is_one_broker_all_is_one_connection() {
    // It calls itself something else, as one behind a proxy does.
    let broker = Broker::start(|_, request| match request.api() {
        Api::ApiVersions => versions(),
        Api::Metadata => Some(metadata(&[(5, 1)], 5).into()),
        Api::FindCoordinator => {
            let host = "127.0.0.1".to_owned();
            let port = 1;
            let answer = FindCoordinatorResponse { node_id: 5, host, port, ..Default::default() };
            Some(answer.into())
        }
        Api::ListOffsets => listed(7),
        _ => None,
    });
    let mut cluster = Cluster::open(&broker.addr(), TIMEOUT).unwrap();
    let offsets = cluster.offsets("orders", &[0], -1, 0).unwrap();
    assert_eq!(offsets[0].offset, 7);
    cluster.coordinator("shoppers").unwrap();
    cluster.controller().unwrap();
    assert_eq!(broker.connections(), 1);
}

#[test]
fn a_leader_on_another_address_is_asked_there() {
    let leader = Broker::start(|_, request| match request.api() {
        Api::ApiVersions => versions(),
        Api::ListOffsets => listed(9),
        _ => None,
    });
    let there = leader.port();
    let broker = Broker::start(move |_, request| match request.api() {
        Api::ApiVersions => versions(),
        Api::Metadata => Some(metadata(&[(1, 1), (2, there)], 2).into()),
        Api::ListOffsets => panic!("it does not lead"),
        _ => None,
    });
    let mut cluster = Cluster::open(&broker.addr(), TIMEOUT).unwrap();
    for _ in 0..3 {
        let offsets = cluster.offsets("orders", &[0], -2, 0).unwrap();
        assert_eq!(offsets[0].offset, 9);
    }
    assert_eq!((broker.connections(), leader.connections()), (1, 1));
}

#[test]
fn a_coordinator_that_is_not_ready_is_waited_for() {
    let asked = AtomicUsize::new(0);
    let broker = Broker::start(move |_, request| match request.api() {
        Api::ApiVersions => versions(),
        Api::FindCoordinator => {
            let error_code = match asked.fetch_add(1, Ordering::SeqCst) {
                0 => ErrorCode::CoordinatorNotAvailable,
                1 => ErrorCode::CoordinatorLoadInProgress,
                _ => ErrorCode::None,
            };
            Some(FindCoordinatorResponse { error_code, ..Default::default() }.into())
        }
        Api::Metadata => Some(metadata(&[(0, 1)], 0).into()),
        _ => None,
    });
    Cluster::open(&broker.addr(), TIMEOUT).unwrap().coordinator("shoppers").unwrap();
}

/// Kafka 4.3.1 answered so for some seconds after its start, and `plimsoll produce` ended.
#[test]
fn a_broker_that_has_no_producer_id_yet_is_waited_for() {
    let asked = AtomicUsize::new(0);
    let broker = Broker::start(move |_, request| match request.api() {
        Api::ApiVersions => versions(),
        Api::InitProducerId => {
            let error_code = match asked.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => ErrorCode::CoordinatorLoadInProgress,
                _ => ErrorCode::None,
            };
            Some(InitProducerIdResponse { error_code, producer_id: 7, ..Default::default() }.into())
        }
        _ => None,
    });
    let (id, _epoch) = Cluster::open(&broker.addr(), TIMEOUT).unwrap().producer_id().unwrap();
    assert_eq!(id, 7);
}

#[test]
fn a_topic_or_a_partition_that_is_not_there_is_an_error_that_names_it() {
    let broker = Broker::start(|_, request| match request {
        Request::ApiVersions(_) => versions(),
        Request::Metadata(request) => {
            assert!(!request.allow_auto_topic_creation, "asking makes no topic");
            Some(metadata(&[(0, 1)], -1).into())
        }
        _ => None,
    });
    let mut cluster = Cluster::open(&broker.addr(), TIMEOUT).unwrap();
    let said = cluster.topic("odours").unwrap_err().to_string();
    assert_eq!(said, "topic odours: there is no such topic");
    let said = cluster.leader("orders", 1).unwrap_err().to_string();
    assert_eq!(said, "partition 1 of orders: unknown topic or partition (error 3)");
    let said = cluster.leader("orders", 0).unwrap_err();
    assert_eq!(said.code(), Some(ErrorCode::LeaderNotAvailable));
}
