//! A frame of a stranger, as a request, and as a response to whatever its first bytes name: it is
//! refused, or it says the same once it was written again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use plimsoll_server::kafka::band::{Api, Request, Response};

fuzz_target!(|bytes: &[u8]| {
    let frame = Bytes::copy_from_slice(bytes);
    if let Ok((header, request)) = Request::decode(frame.clone()) {
        let again = Bytes::from(request.encode(&header).concat()).slice(4..);
        assert_eq!(Request::decode(again), Ok((header, request)));
    }
    let [which, version, ..] = *bytes else { return };
    let api = Api::ALL[usize::from(which) % Api::ALL.len()];
    let version = i16::from(version % 16);
    if !api.served().contains(&version) {
        return;
    }
    if let Ok((id, response)) = Response::decode(api, version, frame.slice(2..)) {
        let again = Bytes::from(response.encode(version, id).concat()).slice(4..);
        assert_eq!(Response::decode(api, version, again), Ok((id, response)));
    }
});
