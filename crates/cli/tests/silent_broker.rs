//! A broker that says nothing of what it was asked: no command takes that for a yes.
#![cfg(unix)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use bytes::BytesMut;
use plimsoll_server::kafka::band::{Request, Response};
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::frame;
use plimsoll_server::kafka::message::*;

/// Answers with lists that are empty, but for where things are; a batch is taken, and not answered.
fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap(), addr));
        }
    });
    addr
}

fn serve(mut stream: TcpStream, addr: SocketAddr) {
    let mut received = BytesMut::new();
    loop {
        while let Some(frame) = frame::take(&mut received, 1 << 20).unwrap() {
            let (header, request) = Request::decode(frame).unwrap();
            let Some(response) = answer(&request, addr) else { return };
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

fn answer(request: &Request, addr: SocketAddr) -> Option<Response> {
    let (host, port) = (addr.ip().to_string(), i32::from(addr.port()));
    Some(match request {
        Request::ApiVersions(_) => ApiVersionsResponse::of_the_band(ErrorCode::None).into(),
        Request::Metadata(_) => {
            let partition = MetadataPartition { leader_id: 1, ..Default::default() };
            let partitions = vec![partition];
            let topic =
                MetadataTopic { name: Some("t".to_owned()), partitions, ..Default::default() };
            let broker = MetadataBroker { node_id: 1, host, port, ..Default::default() };
            MetadataResponse {
                brokers: vec![broker],
                controller_id: 1,
                topics: vec![topic],
                ..Default::default()
            }
            .into()
        }
        Request::FindCoordinator(_) => {
            FindCoordinatorResponse { node_id: 1, host, port, ..Default::default() }.into()
        }
        Request::InitProducerId(_) => InitProducerIdResponse::default().into(),
        Request::CreateTopics(_) => CreateTopicsResponse::default().into(),
        Request::DeleteTopics(_) => DeleteTopicsResponse::default().into(),
        Request::CreatePartitions(_) => CreatePartitionsResponse::default().into(),
        Request::IncrementalAlterConfigs(_) => IncrementalAlterConfigsResponse::default().into(),
        Request::DeleteGroups(_) => DeleteGroupsResponse::default().into(),
        Request::DescribeGroups(_) => DescribeGroupsResponse::default().into(),
        Request::OffsetFetch(_) => OffsetFetchResponse::default().into(),
        Request::ListOffsets(_) => ListOffsetsResponse::default().into(),
        _ => return None,
    })
}

#[test]
fn what_a_broker_says_nothing_of_is_not_said_to_be_done() {
    let addr = start();
    for (line, silent_on) in [
        ("topic create t", "the topic"),
        ("topic delete t", "the topic"),
        ("topic alter t --partitions 3", "the partitions"),
        ("topic alter t --config retention.ms=1", "the settings"),
        ("topic describe t", "the offsets of partition 0 of t"),
        ("consume t", "the offsets of partition 0 of t"),
        ("group describe g", "the group"),
        ("group delete g", "the group"),
        ("group reset g --topic t --to-latest", "the offsets of partition 0 of t"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(line.split(' '))
            .args(["--broker", &addr.to_string()])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert_eq!(said, format!("plimsoll: the broker says nothing of {silent_on}\n"), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn of_a_batch_that_was_not_answered_it_is_said_that_nobody_knows() {
    let addr = start();
    let mut producing = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["produce", "t", "--broker", &addr.to_string()])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    producing.stdin.take().unwrap().write_all(b"line\n").unwrap();
    let output = producing.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let unknown =
        "0 records acknowledged; then: whether a batch for partition 0 of t is there is not known";
    assert!(said.contains(unknown), "{said}");
}
