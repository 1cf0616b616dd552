//! Random messages, held against the library that is used most. It is fed what we wrote, never what
//! a stranger did.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestKind, ResponseKind};
use proptest::collection::vec;
use proptest::prelude::*;

use super::golden::goldens;
use super::sample::Dice;
use super::{joined, served};
use crate::kafka::band::{Api, Request, Response, drawn};
use crate::kafka::frame::Header;
use crate::kafka::wire::{Reader, Writer};

/// The library reads it, and writes the same bytes again.
fn agrees_on_request(api: Api, version: i16, body: &Bytes) {
    let key = ApiKey::try_from(api.key()).unwrap();
    let mut rest = body.clone();
    let read = RequestKind::decode(key, &mut rest, version).unwrap();
    assert!(rest.is_empty(), "{api:?} {version}: {read:?} leaves {rest:?}");
    let mut written = BytesMut::new();
    read.encode(&mut written, version).unwrap();
    assert_eq!(written, body, "{api:?} {version}: {read:?}");
}

fn agrees_on_response(api: Api, version: i16, body: &Bytes) {
    let key = ApiKey::try_from(api.key()).unwrap();
    let mut rest = body.clone();
    let read = ResponseKind::decode(key, &mut rest, version).unwrap();
    assert!(rest.is_empty(), "{api:?} {version}: {read:?} leaves {rest:?}");
    let mut written = BytesMut::new();
    read.encode(&mut written, version).unwrap();
    assert_eq!(written, body, "{api:?} {version}: {read:?}");
}

/// Versions whose lists and names must not be null, where later ones' may.
fn without_null(request: &mut Request, version: i16) {
    match request {
        Request::Metadata(request) => {
            if version == 0 {
                request.topics.get_or_insert_default();
            }
            if version < 10 {
                for topic in request.topics.iter_mut().flatten() {
                    topic.name.get_or_insert_default();
                }
            }
        }
        Request::OffsetFetch(request) if version == 1 => {
            request.topics.get_or_insert_default();
        }
        _ => {}
    }
}

fn without_null_names(response: &mut Response, version: i16) {
    if let Response::Metadata(response) = response
        && version < 12
    {
        for topic in &mut response.topics {
            topic.name.get_or_insert_default();
        }
    }
}

proptest! {
    // Each case draws one message of each version.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_request_is_what_the_library_thinks(bytes in vec(any::<u8>(), 0..2000)) {
        for (api, version) in served() {
            let layout = api.layout(version);
            let mut request = drawn::request(api, &mut Dice::new(layout, &bytes));
            without_null(&mut request, version);
            let mut to = Writer::new(layout);
            request.write(&mut to);
            let body = joined(&to.pieces());
            agrees_on_request(api, version, &body);
            let mut from = Reader::new(body, layout);
            prop_assert_eq!(Request::read(api, &mut from).unwrap(), request);
            prop_assert_eq!(from.finish(), Ok(()));
        }
    }

    #[test]
    fn any_response_is_what_the_library_thinks(bytes in vec(any::<u8>(), 0..2000)) {
        for (api, version) in served() {
            let layout = api.layout(version);
            let mut response = drawn::response(api, &mut Dice::new(layout, &bytes));
            without_null_names(&mut response, version);
            let mut to = Writer::new(layout);
            response.write(&mut to);
            let body = joined(&to.pieces());
            agrees_on_response(api, version, &body);
            let mut from = Reader::new(body.clone(), layout);
            let again = Response::read(api, &mut from).unwrap();
            prop_assert_eq!(from.finish(), Ok(()));
            // Records that were gathered come back in one piece.
            let mut to = Writer::new(layout);
            again.write(&mut to);
            prop_assert_eq!(joined(&to.pieces()), body);
        }
    }
}

/// The library reads our headers too: whether they have tags is decided by API and version.
#[test]
fn headers_are_what_the_library_thinks() {
    use kafka_protocol::messages::{RequestHeader, ResponseHeader};
    use kafka_protocol::protocol::Decodable;

    for (api, version) in served() {
        let header = Header { api, version, correlation_id: 5, client_id: Some("me".to_owned()) };
        let request = drawn::request(api, &mut Dice::new(api.layout(version), &[]));
        let mut frame = joined(&request.encode(&header)).slice(4..);
        let key = ApiKey::try_from(api.key()).unwrap();
        let read = RequestHeader::decode(&mut frame, key.request_header_version(version)).unwrap();
        assert_eq!((read.request_api_key, read.request_api_version), (api.key(), version));
        assert_eq!((read.correlation_id, read.client_id.as_deref()), (5, Some("me")));
        assert!(RequestKind::decode(key, &mut frame, version).is_ok() && frame.is_empty());

        let response = drawn::response(api, &mut Dice::new(api.layout(version), &[]));
        let mut frame = joined(&response.encode(version, 6)).slice(4..);
        let read =
            ResponseHeader::decode(&mut frame, key.response_header_version(version)).unwrap();
        assert_eq!(read.correlation_id, 6);
        assert!(ResponseKind::decode(key, &mut frame, version).is_ok() && frame.is_empty());
    }
}

/// So that no golden byte is only our own opinion.
#[test]
fn golden_bytes_are_what_the_library_thinks() {
    for golden in goldens() {
        let (api, version) = (golden.api, golden.version);
        let flexible = api.layout(version).flexible;
        if golden.is_request {
            let body = 4 + 2 + 2 + 4 + 2 + "plimsoll".len() + usize::from(flexible);
            agrees_on_request(api, version, &golden.frame.slice(body..));
        } else {
            let body = 4 + 4 + usize::from(flexible && api != Api::ApiVersions);
            agrees_on_response(api, version, &golden.frame.slice(body..));
        }
    }
}
