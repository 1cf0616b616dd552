//! Load on a broker from bare connections, each with one request in flight: requests a second, and how
//! long each took. `echo` serves as the floor: it reads a request of the same size and answers as a
//! broker would, and does nothing else.
//!
//! ```text
//! cargo run --release -p plimsoll-server --example broker_load -- echo 127.0.0.1:19099
//! cargo run --release -p plimsoll-server --example broker_load -- produce ADDR CONNECTIONS PARTITIONS SECONDS
//! cargo run --release -p plimsoll-server --example broker_load -- synced ADDR CONNECTIONS PARTITIONS SECONDS
//! ```
//!
//! A record of 1 KiB a batch, acks=all, to the topic `load-PARTITIONS`, or `synced-PARTITIONS` with
//! `flush.messages=1`, which is made if it is not there.
//! Against the echo server give 0 partitions: nothing is asked of it but the produces.
#![expect(clippy::print_stdout, reason = "it is what it is for")]
#![expect(clippy::big_endian_bytes, reason = "Kafka's integers are big-endian")]

use std::time::{Duration, Instant};

use plimsoll_server::client::Connection;
use plimsoll_server::kafka::band::{Api, Request};
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::frame::Header;
use plimsoll_server::kafka::message::{
    CreatableTopic, CreateTopicsRequest, ProducePartition, ProduceRequest, ProduceTopic,
    TopicConfig,
};
use plimsoll_server::kafka::records::Draft;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const RECORD_BYTES: usize = 1024;
const VERSION: i16 = 8;
/// Bytes of the answer to a produce of one batch.
const ANSWER_BYTES: usize = 84;
const WARM_UP: Duration = Duration::from_secs(1);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match args[..] {
        ["echo", address] => runtime.block_on(echo(address)),
        [verb @ ("produce" | "synced"), address, connections, partitions, seconds] => {
            let topic = Topic {
                name: format!("{}-{partitions}", if verb == "produce" { "load" } else { verb }),
                partitions: partitions.parse().unwrap(),
            };
            if topic.partitions > 0 {
                topic.make(address, verb == "synced");
            }
            let (connections, seconds) = (connections.parse().unwrap(), seconds.parse().unwrap());
            runtime.block_on(load(address, connections, &topic, Duration::from_secs(seconds)));
        }
        _ => println!("echo ADDR | produce|synced ADDR CONNECTIONS PARTITIONS SECONDS"),
    }
}

struct Topic {
    name: String,
    partitions: i32,
}

impl Topic {
    fn make(&self, address: &str, is_durable: bool) {
        let mut connection = Connection::open(address, Duration::from_secs(30)).unwrap();
        let flush = TopicConfig { name: "flush.messages".to_owned(), value: Some("1".to_owned()) };
        let topic = CreatableTopic {
            name: self.name.clone(),
            num_partitions: self.partitions,
            replication_factor: 1,
            configs: is_durable.then_some(flush).into_iter().collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        let made = connection.call(request).unwrap();
        let code = made.topics[0].error_code;
        assert!(matches!(code, ErrorCode::None | ErrorCode::TopicAlreadyExists), "{made:?}");
    }
}

/// Answers each frame of whoever connects.
async fn echo(address: &str) {
    let listener = TcpListener::bind(address).await.unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let mut answer = [0; ANSWER_BYTES];
            let length = u32::try_from(ANSWER_BYTES - 4).unwrap();
            answer[..4].copy_from_slice(&length.to_be_bytes());
            let mut frame = vec![0; 4096];
            let mut have = 0;
            loop {
                let Ok(read @ 1..) = stream.read(&mut frame[have..]).await else { return };
                have += read;
                let wanted = 4 + u32::from_be_bytes(*frame.first_chunk().unwrap()) as usize;
                if have >= wanted {
                    have = 0;
                    stream.write_all(&answer).await.unwrap();
                }
            }
        });
    }
}

async fn load(address: &str, connections: usize, topic: &Topic, time: Duration) {
    let partitions = topic.partitions;
    let begun = Instant::now() + WARM_UP;
    let mut all = JoinSet::new();
    for number in 0..connections {
        let frames: Vec<Vec<u8>> = match partitions {
            0 => vec![frame(topic, 0)],
            _ => {
                let mine = (0..partitions).skip(number % connections).step_by(connections);
                let mine: Vec<i32> = mine.collect();
                let any = i32::try_from(number).unwrap() % partitions;
                let mine = if mine.is_empty() { vec![any] } else { mine };
                mine.into_iter().map(|partition| frame(topic, partition)).collect()
            }
        };
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        all.spawn(one(stream, frames, begun, begun + time));
    }
    let mut took: Vec<u32> = all.join_all().await.into_iter().flatten().collect();
    took.sort_unstable();
    // The place of so many of a thousand.
    let at = |share: usize| f64::from(took[(took.len() - 1) * share / 1000]) / 1000.0;
    println!(
        "{connections} connections, {partitions} partitions: {:.0} requests/s, p50 {:.1} us, p99 {:.1} us, \
         p99.9 {:.1} us, longest {:.1} us",
        took.len() as f64 / time.as_secs_f64(),
        at(500),
        at(990),
        at(999),
        at(1000)
    );
}

/// One connection; how long each request took, in ns, once the warm-up is over.
async fn one(
    mut stream: TcpStream,
    frames: Vec<Vec<u8>>,
    begun: Instant,
    end: Instant,
) -> Vec<u32> {
    let mut took = Vec::new();
    let mut answer = vec![0; 4096];
    for frame in frames.iter().cycle() {
        let sent = Instant::now();
        if sent >= end {
            break;
        }
        stream.write_all(frame).await.unwrap();
        let mut have = 0;
        while have < 4 || have < 4 + u32::from_be_bytes(*answer.first_chunk().unwrap()) as usize {
            let read = stream.read(&mut answer[have..]).await.unwrap();
            assert!(read > 0, "the broker has closed the connection");
            have += read;
        }
        if sent >= begun {
            took.push(u32::try_from(sent.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
    }
    took
}

/// A produce of one record, as it goes over the wire.
fn frame(topic: &Topic, partition: i32) -> Vec<u8> {
    let mut draft = Draft::default();
    draft.push(0, None, Some(&[b'x'; RECORD_BYTES]), &[]);
    let records = draft.batch(Compression::None, None).pieces().concat();
    let partition_data = vec![ProducePartition { index: partition, records: Some(records.into()) }];
    let topic_data = vec![ProduceTopic { name: topic.name.clone(), partition_data }];
    let request =
        ProduceRequest { transactional_id: None, acks: -1, timeout_ms: 30_000, topic_data };
    let header = Header { api: Api::Produce, version: VERSION, correlation_id: 7, client_id: None };
    Request::from(request).encode(&header).concat()
}
