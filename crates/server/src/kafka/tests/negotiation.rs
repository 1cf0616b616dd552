//! What a client and we find out about each other first.

use bytes::{Bytes, BytesMut};

use super::joined;
use crate::kafka::band::{Api, Request, Response};
use crate::kafka::error::ErrorCode;
use crate::kafka::frame::{Header, Oversized, Refused, take};
use crate::kafka::message::{ApiVersionsRequest, ApiVersionsResponse};
use crate::kafka::wire::{Layout, Wire as _, Writer};

/// The band with which eight clients and seventeen tools passed, and what they were not tried with.
const BAND: [(i16, i16, i16); 29] = [
    (0, 0, 10),
    (1, 4, 16),
    (2, 1, 5),
    (3, 0, 12),
    (8, 2, 7),
    (9, 1, 5),
    (10, 0, 2),
    (11, 0, 5),
    (12, 0, 3),
    (13, 0, 3),
    (14, 0, 3),
    (15, 0, 4),
    (16, 0, 2),
    (18, 0, 3),
    (19, 2, 4),
    (20, 1, 3),
    (21, 0, 1),
    (22, 0, 4),
    (23, 2, 3),
    (32, 1, 2),
    (35, 1, 1),
    (37, 0, 1),
    (42, 0, 1),
    (43, 0, 1),
    (44, 0, 0),
    (45, 0, 0),
    (46, 0, 0),
    (47, 0, 0),
    (60, 0, 0),
];

#[test]
fn a_client_is_told_the_band_and_nothing_else() {
    let table = ApiVersionsResponse::of_the_band(ErrorCode::None).api_keys;
    let table = table.iter().map(|api| (api.api_key, api.min_version, api.max_version));
    assert_eq!(table.collect::<Vec<_>>(), BAND);
}

#[test]
fn all_that_is_told_is_served_but_three_versions_of_produce() {
    for api in Api::ALL {
        let told_only: Vec<i16> = api.told().filter(|v| !api.served().contains(v)).collect();
        let expected: &[i16] = if *api == Api::Produce { &[0, 1, 2] } else { &[] };
        assert_eq!(told_only, expected, "{api:?}");
        assert!(api.served().all(|version| api.told().contains(&version)), "{api:?}");
        assert_eq!(Api::with_key(api.key()), Some(*api));
    }
}

/// franz-go opens with ApiVersions 5, Java and kafka-python with 4. What the request says is not
/// read: nobody knows how it lies.
#[test]
fn a_client_that_is_newer_than_we_is_told_what_we_speak() {
    for version in [4, 5, i16::MAX, -1] {
        let refused = Request::decode(beginning(18, version)).unwrap_err();
        assert_eq!(refused, Refused::Negotiate { version, correlation_id: 9 });
    }
    let answer: Response = ApiVersionsResponse::of_the_band(ErrorCode::UnsupportedVersion).into();
    let frame = joined(&answer.encode(0, 9));
    assert_eq!(frame[..14], [0, 0, 0, 184, 0, 0, 0, 9, 0, 35, 0, 0, 0, 29]);
    assert_eq!(Response::decode(Api::ApiVersions, 0, frame.slice(4..)), Ok((9, answer)));
}

/// As much of a request as every version begins with, and what nobody can read.
fn beginning(key: i16, version: i16) -> Bytes {
    let mut to = Writer::new(Layout::PLAIN);
    key.write(&mut to);
    version.write(&mut to);
    9_i32.write(&mut to);
    to.splice(Bytes::from_static(b"???"));
    joined(&to.pieces())
}

#[test]
fn what_is_not_served_is_refused_before_it_is_read() {
    for (key, version) in
        [(0, 2), (0, 11), (1, 3), (1, 17), (3, 13), (4, 0), (17, 0), (60, 1), (999, 0)]
    {
        let refused = Request::decode(beginning(key, version)).unwrap_err();
        assert_eq!(refused, Refused::Unserved { key, version });
    }
}

#[test]
fn frames_are_cut_wherever_they_are_torn() {
    let api = Api::ApiVersions;
    let header = |correlation_id| Header { api, version: 0, correlation_id, client_id: None };
    let request: Request = ApiVersionsRequest::default().into();
    let sent = joined(&[request.encode(&header(1)), request.encode(&header(2))].concat());
    for cut in 0..=sent.len() {
        let mut received = BytesMut::new();
        let mut ids = Vec::new();
        for part in [&sent[..cut], &sent[cut..]] {
            received.extend_from_slice(part);
            while let Some(frame) = take(&mut received, 10).unwrap() {
                ids.push(Request::decode(frame).unwrap().0.correlation_id);
            }
        }
        assert_eq!((ids, received.len()), (vec![1, 2], 0));
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_by_its_length() {
    for (length, bytes) in [(11, [0, 0, 0, 11]), (-1, [0xff; 4]), (i32::MAX, [0x7f, 255, 255, 255])]
    {
        let refused = take(&mut BytesMut::from(&bytes[..]), 10);
        assert_eq!(refused, Err(Oversized { length, max_bytes: 10 }));
    }
}

#[test]
fn records_are_slices_of_the_frame() {
    use crate::kafka::message::{ProducePartition, ProduceRequest, ProduceTopic};

    let records = Some(Bytes::from_static(b"records"));
    let partition_data = vec![ProducePartition { index: 0, records: records.clone() }];
    let topic_data = vec![ProduceTopic { name: "t".to_owned(), partition_data }];
    let request: Request = ProduceRequest { topic_data, ..ProduceRequest::default() }.into();
    let header = Header { api: Api::Produce, version: 3, correlation_id: 1, client_id: None };
    let pieces = request.encode(&header);
    assert!(pieces.iter().any(|piece| piece.as_ptr() == records.as_ref().unwrap().as_ptr()));

    let frame = joined(&pieces).slice(4..);
    let (_, Request::Produce(read)) = Request::decode(frame.clone()).unwrap() else { panic!() };
    let read = read.topic_data[0].partition_data[0].records.clone().unwrap();
    assert!(frame.as_ptr_range().contains(&read.as_ptr()));
    assert_eq!(read, b"records"[..]);
}
