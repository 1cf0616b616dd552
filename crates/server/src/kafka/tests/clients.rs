//! What clients that nobody here wrote have really sent.

use bytes::Bytes;

use super::joined;
use crate::kafka::band::{Api, Request};
use crate::kafka::batch::Batch;
use crate::kafka::frame::{Header, Refused};
use crate::kafka::message::MetadataRequest;

struct Sent {
    client: &'static str,
    name: String,
    frame: Bytes,
}

fn sent() -> impl Iterator<Item = Sent> {
    let lines = include_str!("../../../testdata/kafka/clients.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let [client, api, version, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let frame = (0..hex.len()).step_by(2).map(byte).collect();
        Sent { client, name: format!("{api} {version}"), frame }
    })
}

#[test]
fn what_clients_send_is_read_and_would_be_sent_again() {
    for Sent { client, name, frame } in sent() {
        let (header, request) = match Request::decode(frame.clone()) {
            Ok(read) => read,
            Err(Refused::Negotiate { version, .. }) => {
                assert_eq!(name, format!("ApiVersions {version}"), "{client}");
                continue;
            }
            Err(refused) => panic!("{client}, {name}: {refused:?}"),
        };
        assert_eq!(name, format!("{:?} {}", header.api, header.version), "{client}");
        assert_eq!(joined(&request.encode(&header))[4..], frame, "{client}, {name}");
    }
}

#[test]
fn batches_of_clients_are_believed() {
    let mut batches = Vec::new();
    for Sent { client, frame, .. } in sent() {
        let Ok((header, Request::Produce(request))) = Request::decode(frame) else { continue };
        let records = request.topic_data[0].partition_data[0].records.clone();
        let batch = Batch::produced(records, header.version).unwrap();
        batches.push((client, batch.header().count(), batch.header().producer().is_some()));
    }
    let expected = [
        ("kcat-1.7.1", 2, true),
        ("kcat-1.7.1", 2, false),
        ("kcat-1.7.1", 2, false),
        ("kcat-1.7.1", 2, false),
        ("kcat-1.7.1", 2, false),
        ("kcat-1.7.1", 2, false),
        ("kafka-python-3.0.12", 1, true),
        ("confluent-kafka-2.16.1", 1, true),
        ("aiokafka-0.14.0", 1, true),
        ("kafkajs-2.2.4", 2, false), // its largest timestamp lies below that of its first record
        ("confluent-kafka-2.16.1", 1, true),
        ("java-4.3.1", 2, true),
    ];
    assert_eq!(batches, expected);
}

/// The list of topics has four bytes where one belongs, so that three are left: its `list_topics` never came to an end.
#[test]
fn all_topics_may_be_asked_for_as_librdkafka_does() {
    let header = Header { api: Api::Metadata, version: 12, correlation_id: 7, client_id: None };
    let asked = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let asked = Request::from(MetadataRequest { allow_auto_topic_creation: false, ..asked });
    let frame = joined(&asked.encode(&header))[4..].to_vec();
    let more = |bytes: &[u8]| Request::decode([&frame[..], bytes].concat().into());
    assert_eq!(more(&[1, 0, 0]).unwrap().1, asked);
    for other in [&[1][..], &[1, 0], &[1, 0, 0, 0]] {
        assert!(more(other).is_err(), "{other:?}");
    }
}
