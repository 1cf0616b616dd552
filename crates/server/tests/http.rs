//! What an operator sees, asked of a node in a directory, over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use plimsoll_log::Policy;
use plimsoll_server::broker::{Node, Options};
use plimsoll_server::http::Http;
use plimsoll_server::kafka::band::{Request, Response};
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::frame::{Header, take};
use plimsoll_server::kafka::message::{
    CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, OffsetCommitPartition,
    OffsetCommitRequest, OffsetCommitTopic, ProducePartition, ProduceRequest, ProduceTopic,
    TopicConfig,
};
use plimsoll_server::kafka::records::Draft;
use plimsoll_server::net::{Limits, Listener};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A broker that is served.
struct Broker {
    node: Arc<Node>,
    kafka: SocketAddr,
    http: SocketAddr,
    stop: watch::Sender<bool>,
    served: Vec<JoinHandle<()>>,
}

impl Broker {
    /// Serves a directory. Nothing becomes durable by itself: a sync must be asked for.
    fn open(dir: &Path) -> Self {
        let never = Policy::Interval { max_age: Duration::from_secs(3600), max_bytes: 16 << 20 };
        let options = Options { flush: never, ring_bytes: 4 << 20, ..Options::default() };
        let node = Arc::new(Node::open(dir, options).unwrap());
        let runtime = node.runtime().clone();
        let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = runtime.block_on(Listener::bind(anywhere, Limits::default())).unwrap();
        let http = Http::bind(anywhere).unwrap();
        let http = http.advertise("broker.example".to_owned());
        let (stop, stopped) = watch::channel(false);
        let (kafka, address) = (listener.address().unwrap(), http.address().unwrap());
        let counters = listener.counters();
        let serving = listener.serve(Arc::clone(&node), stopped.clone());
        let answering = http.serve(Arc::clone(&node), counters, stopped);
        let served = vec![
            runtime.spawn(async move { answering.await.unwrap() }),
            runtime.spawn(async move { serving.await.unwrap() }),
        ];
        Self { node, kafka, http: address, stop, served }
    }

    fn client(&self) -> Client {
        Client { stream: TcpStream::connect(self.kafka).unwrap(), received: BytesMut::new() }
    }

    /// The status and the body of an answer.
    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    fn ask(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        read_answer(&mut stream)
    }

    fn close(self) {
        let Self { node, stop, served, .. } = self;
        stop.send(true).unwrap();
        let runtime = node.runtime().clone();
        for served in served {
            runtime.block_on(served).unwrap();
        }
        Arc::into_inner(node).expect("whoever served holds it no more").close().unwrap();
    }
}

fn read_answer(stream: &mut TcpStream) -> (u16, String) {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), body.to_owned())
}

/// A client that knows no more than is asked here.
struct Client {
    stream: TcpStream,
    received: BytesMut,
}

impl Client {
    fn ask(&mut self, version: i16, request: impl Into<Request>) -> Response {
        let request = request.into();
        let api = request.api();
        let client_id = Some("test".to_owned());
        let header = Header { api, version, correlation_id: 7, client_id };
        self.stream.write_all(&request.encode(&header).concat()).unwrap();
        let frame = loop {
            if let Some(frame) = take(&mut self.received, 1 << 20).unwrap() {
                break frame;
            }
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes).unwrap();
            assert!(read > 0, "the broker has closed the connection");
            self.received.extend_from_slice(&bytes[..read]);
        };
        Response::decode(api, version, frame).unwrap().1
    }

    fn create(&mut self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let configs = settings.iter().map(|(name, value)| TopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
        let Response::CreateTopics(created) = self.ask(4, request) else { panic!() };
        assert_eq!(created.topics[0].error_code, ErrorCode::None);
    }

    /// Appends a record; its offset.
    fn produce(&mut self, topic: &str, index: i32) -> Result<i64, ErrorCode> {
        let mut draft = Draft::default();
        draft.push(1_700_000_000_000, None, Some(b"a record"), &[]);
        let batch = draft.batch(Compression::None, None);
        let records = Some(Bytes::from(batch.pieces().concat()));
        let partition_data = vec![ProducePartition { index, records }];
        let topic_data = vec![ProduceTopic { name: topic.to_owned(), partition_data }];
        let request =
            ProduceRequest { acks: -1, timeout_ms: 5000, topic_data, transactional_id: None };
        let Response::Produce(produced) = self.ask(8, request) else { panic!() };
        let told = &produced.responses[0].partition_responses[0];
        match told.error_code {
            ErrorCode::None => Ok(told.base_offset),
            error => Err(error),
        }
    }
}

#[test]
fn a_node_that_is_well_says_so_and_names_its_shards() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    for (path, word) in [("/health", "ok"), ("/ready", "ready")] {
        let health = broker.json(path);
        assert_eq!(health["status"], word);
        let numbers: Vec<_> = health["shards"].as_array().unwrap().iter().collect();
        assert_eq!(numbers.len(), 6);
        assert!(numbers.iter().all(|shard| shard["is_offline"] == false));
    }
    broker.close();
}

#[test]
fn a_topic_shows_what_is_acknowledged_what_is_durable_and_what_that_promises() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let mut client = broker.client();
    client.create("fast", 2, &[("retention.ms", "60000")]);
    client.create("safe", 1, &[("flush.messages", "1")]);
    for offset in 0..3 {
        assert_eq!(client.produce("fast", 1), Ok(offset));
        assert_eq!(client.produce("safe", 0), Ok(offset));
    }
    let fast = broker.json("/topics/fast");
    let partition = &fast["partition"][1];
    assert_eq!((&partition["start"], &partition["committed"]), (&0.into(), &3.into()));
    assert!(
        partition["durable"].as_i64().unwrap() < 3,
        "nothing has asked for a sync: {partition}"
    );
    assert_eq!(fast["records"], 3);
    assert!(
        fast["promise"]
            .as_str()
            .unwrap()
            .ends_with("may take what is younger than twice 3600000 ms"),
        "{fast}"
    );
    let of = |name: &str| {
        let settings = fast["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["name"] == name).unwrap().clone()
    };
    let (retention, flush) = (of("retention.ms"), of("flush.ms"));
    assert_eq!((&retention["value"], &retention["source"]), (&"60000".into(), &"topic".into()));
    assert_eq!(flush["source"], "default");

    let safe = broker.json("/topics/safe");
    assert_eq!(safe["partition"][0]["durable"], 3, "{safe}");
    assert!(safe["promise"].as_str().unwrap().contains("a power cut takes nothing"), "{safe}");
    assert_eq!(broker.json("/topics").as_array().unwrap().len(), 2);
    let (status, body) = broker.get("/topics/none");
    assert_eq!(status, 404, "{body}");
    assert!(body.contains("there is no topic"), "{body}");
    broker.close();
}

#[test]
fn a_wait_ends_when_the_record_is_so_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let mut client = broker.client();
    client.create("t", 1, &[]);
    let path = |query: &str| format!("/topics/t/0/wait?{query}");
    assert_eq!(broker.get(&path("offset=0&level=acknowledged&timeout_ms=0")).0, 408);
    // A record that comes while somebody waits for it.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| broker.get(&path("offset=0&level=acknowledged")));
        client.produce("t", 0).unwrap();
        let (status, body) = waits.join().unwrap();
        assert_eq!(status, 200, "{body}");
        assert!(body.contains("\"is\": \"acknowledged\""), "{body}");
    });
    // The first record of a partition is durable with its ceiling; the next waits for nobody.
    assert_eq!(client.produce("t", 0), Ok(1));
    // It is acknowledged, and nobody asks the disk.
    let (status, body) = broker.get(&path("offset=1&level=durable&timeout_ms=0"));
    assert_eq!(status, 408, "{body}");
    assert!(body.contains("offset 1 is not durable yet"), "{body}");
    std::thread::scope(|scope| {
        let patient = scope.spawn(|| broker.get(&path("offset=1&level=durable")).0);
        let asks = scope.spawn(|| broker.get(&path("offset=1&level=durable&sync=true")).0);
        assert_eq!(
            (patient.join().unwrap(), asks.join().unwrap()),
            (200, 200),
            "one sync for both"
        );
    });
    assert_eq!(broker.get(&path("offset=1&timeout_ms=0")).0, 200);
    for (query, status) in [("offset=-1", 400), ("", 400), ("offset=0&level=safe", 400)] {
        assert_eq!(broker.get(&path(query)).0, status, "{query}");
    }
    assert_eq!(broker.get("/topics/t/1/wait?offset=0").0, 404);
    assert_eq!(broker.get("/topics/none/0/wait?offset=0").0, 404);
    broker.close();
}

#[test]
fn whoever_waits_is_told_that_the_topic_went_or_that_the_broker_stops() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let mut client = broker.client();
    client.create("goes", 1, &[]);
    client.create("stays", 1, &[]);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| broker.get("/topics/goes/0/wait?offset=9&level=acknowledged"));
        let topic_names = vec!["goes".to_owned()];
        client.ask(3, DeleteTopicsRequest { topic_names, timeout_ms: 5000 });
        assert_eq!(waits.join().unwrap().0, 404);
    });
    let mut waits = TcpStream::connect(broker.http).unwrap();
    waits.write_all(b"GET /topics/stays/0/wait?offset=9 HTTP/1.1\r\nHost: [::1]\r\n\r\n").unwrap();
    // What is asked for later was taken later.
    broker.get("/health");
    drop(client);
    broker.close();
    let (status, body) = read_answer(&mut waits);
    assert!([0, 503].contains(&status), "{status} {body}");
}

/// A supervisor that got no answer took the broker for dead.
#[test]
fn whoever_asks_how_it_is_is_answered_however_many_others_say_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(broker.http).unwrap()).collect();
    let mut stream = TcpStream::connect(broker.http).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert_eq!(read_answer(&mut stream).0, 200);
    drop(silent);
    broker.close();
}

#[test]
fn metrics_count_what_clients_ask_and_what_they_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let mut client = broker.client();
    client.create("t", 3, &[]);
    for offset in 0..3 {
        assert_eq!(client.produce("t", 0), Ok(offset));
    }
    assert_eq!(client.produce("t", 7), Err(ErrorCode::UnknownTopicOrPartition));
    let (status, text) = broker.get("/metrics");
    assert_eq!(status, 200);
    for line in [
        "plimsoll_request_seconds_count{api=\"Produce\"} 4",
        "plimsoll_request_seconds_bucket{api=\"Produce\",le=\"+Inf\"} 4",
        "plimsoll_request_seconds_count{api=\"Fetch\"} 0",
        "plimsoll_errors_total{api=\"Produce\",code=\"3\",error=\"UnknownTopicOrPartition\"} 1",
        "plimsoll_connections 1",
        "plimsoll_topics 1",
        "plimsoll_partitions 3",
        "plimsoll_shard_offline{shard=\"2\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let shard = |name: &str| value(&format!("plimsoll_shard_{name}{{shard=\"2\"}}"));
    assert!(shard("committed_entries") > shard("durable_entries"));
    assert!(shard("at_risk_bytes") > 0.0 && shard("tail_bytes") > 0.0);
    assert!(value("plimsoll_received_bytes_total") > 100.0);
    // Every sample has a type, and belongs to the metric above it.
    let mut name = "";
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(comment) => name = comment.split(' ').nth(1).unwrap(),
            None => assert!(line.starts_with(name), "{line} stands below {name}"),
        }
    }
    broker.close();
}

#[test]
fn cardinality_does_not_grow_with_topics_and_clients() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let count = || broker.get("/metrics").1.lines().count();
    let mut client = broker.client();
    client.create("first", 1, &[]);
    client.produce("first", 0).unwrap();
    let before = count();
    for topic in 0..20 {
        client.create(&format!("t{topic}"), 2, &[]);
        broker.client().produce(&format!("t{topic}"), 0).unwrap();
    }
    // Quantiles of a shard's syncs come with its first sync.
    assert!(count() <= before + 16, "{before} lines, then {}", count());
    broker.close();
}

#[test]
fn the_page_is_drawn_without_a_script_and_runs_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let mut client = broker.client();
    client.create("orders", 1, &[]);
    client.produce("orders", 0).unwrap();
    client.produce("orders", 0).unwrap();
    commit(&mut client, "<script>alert(1)</script>", "orders", 1);
    let (status, page) = broker.get("/");
    assert_eq!(status, 200);
    for shown in ["A power cut would take at most", "orders", "Produce", "class=\"ship\""] {
        assert!(page.contains(shown), "{shown} is not on the page");
    }
    assert!(page.contains("&lt;script&gt;alert(1)"), "a name is shown as it is");
    assert!(!page.contains("<script>alert(1)"), "and obeyed never");
    let groups = broker.json("/groups");
    assert_eq!((&groups[0]["lag"], &groups[0]["members"]), (&1.into(), &0.into()));
    broker.close();
}

/// Commits an offset of a group that has no members.
fn commit(client: &mut Client, group: &str, topic: &str, offset: i64) {
    let partition = OffsetCommitPartition {
        partition_index: 0,
        committed_offset: offset,
        ..OffsetCommitPartition::default()
    };
    let topic = OffsetCommitTopic { name: topic.to_owned(), partitions: vec![partition] };
    let group_id = group.to_owned();
    let request =
        OffsetCommitRequest { group_id, topics: vec![topic], ..OffsetCommitRequest::default() };
    let Response::OffsetCommit(told) = client.ask(7, request) else { panic!() };
    assert_eq!(told.topics[0].partitions[0].error_code, ErrorCode::None);
}

#[test]
fn a_name_that_somebody_else_may_own_is_not_answered() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let status = |host: &str| {
        let close = "Connection: close\r\n\r\n";
        broker.ask(&format!("GET /status HTTP/1.1\r\n{host}{close}")).0
    };
    assert_eq!(status("Host: broker.example:9093\r\n"), 200);
    assert_eq!(status("Host: evil.example\r\n"), 421);
    assert_eq!(status("Host: localhost\r\nHost: evil.example\r\n"), 421);
    assert_eq!(status(""), 421);
    // A page elsewhere may be shown nothing, but the request comes: it may not act.
    let from_elsewhere =
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n";
    let wait = "GET /topics/t/0/wait?offset=0&sync=true HTTP/1.1\r\n";
    assert_eq!(broker.ask(&format!("{wait}{from_elsewhere}")).0, 403);
    broker.close();
}

/// A page of another site can send a `POST`, but no header of its own choosing with it.
#[test]
fn a_command_is_only_taken_of_an_operators_tool() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let status = |method: &str, headers: &str| {
        let rest = format!("Host: localhost\r\n{headers}Connection: close\r\n\r\n");
        broker.ask(&format!("{method} /cluster/recover?digest=0 HTTP/1.1\r\n{rest}")).0
    };
    let operator = "X-Plimsoll: operator\r\n";
    assert_eq!(status("POST", ""), 403);
    assert_eq!(status("POST", "X-Plimsoll: somebody\r\n"), 403);
    assert_eq!(status("POST", &format!("{operator}Sec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(status("GET", operator), 404, "what is only looked at is never done");
    assert!(![403, 404, 405].contains(&status("POST", operator)));
    broker.close();
}

#[test]
fn what_is_no_question_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path());
    let rest = "Host: localhost\r\nConnection: close\r\n\r\n";
    for (request, status) in [
        ("GET /nothing HTTP/1.1\r\n", 404),
        ("GET /topics?x=1 HTTP/1.1\r\n", 400),
        ("DELETE /topics/t HTTP/1.1\r\n", 405),
        ("POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n", 404),
        ("POST /cluster/nothing HTTP/1.1\r\n", 404),
        ("POST /cluster/recover HTTP/1.1\r\n", 400),
    ] {
        let (found, body) = broker.ask(&format!("{request}{rest}"));
        assert_eq!(found, status, "{request}: {body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert!(body["error"].as_str().unwrap().len() > 10, "{body}");
    }
    // Heads that are too large, and what is no HTTP: closed, and the next is answered.
    let large = format!("GET / HTTP/1.1\r\nX: {}\r\n{rest}", "x".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\n{}{rest}", "X: y\r\n".repeat(1000));
    for hostile in [large.as_str(), many.as_str(), "\0\0\0\x12\0\x12\0\0", "GET\r\n\r\n"] {
        let mut stream = TcpStream::connect(broker.http).unwrap();
        stream.write_all(hostile.as_bytes()).ok();
        stream.shutdown(std::net::Shutdown::Write).ok();
        let (status, _) = read_answer(&mut stream);
        assert!([0, 400, 431].contains(&status), "{status}");
    }
    broker.json("/health");
    broker.close();
}
