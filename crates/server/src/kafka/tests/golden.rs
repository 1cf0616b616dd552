//! Each API in each version, request and response, as bytes that are written down: whoever changes
//! one changes the wire. `PLIMSOLL_WRITE_GOLDEN=1` writes down what is missing.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;

use bytes::Bytes;

use super::sample::{Dice, Lines, Sample};
use super::{joined, served};
use crate::kafka::band::{Api, Request, Response, drawn};
use crate::kafka::frame::Header;
use crate::kafka::wire::Layout;

/// A frame of a golden file, with its length.
pub(super) struct Golden {
    pub(super) api: Api,
    pub(super) version: i16,
    pub(super) is_request: bool,
    pub(super) frame: Bytes,
    text: String,
}

#[test]
fn what_is_written_down_is_read_and_written() {
    for golden in goldens() {
        let Golden { api, version, frame, .. } = &golden;
        let body = frame.slice(4..);
        let (text, again) = if golden.is_request {
            let (header, request) = Request::decode(body).unwrap();
            assert_eq!((header.api, header.version), (*api, *version));
            (show_request(&header, &request), request.encode(&header))
        } else {
            let (correlation_id, response) = Response::decode(*api, *version, body).unwrap();
            let again = response.encode(*version, correlation_id);
            (show_response(*version, correlation_id, &response), again)
        };
        assert_eq!(joined(&again), frame, "{api:?} {version}");
        assert_eq!(text, golden.text, "{api:?} {version}");
    }
}

/// All of them, from `testdata/kafka`.
pub(super) fn goldens() -> Vec<Golden> {
    let mut all = Vec::new();
    for api in Api::ALL {
        let mut expected: Vec<String> = Vec::new();
        for version in api.served() {
            expected.extend([format!("request {version}"), format!("response {version}")]);
        }
        let text = written_down(*api);
        let found: Vec<Golden> = text.split("\n\n").map(|part| parse(*api, part)).collect();
        let names =
            found.iter().map(|golden| format!("{} {}", kind(golden.is_request), golden.version));
        assert_eq!(names.collect::<Vec<_>>(), expected, "{api:?}");
        all.extend(found);
    }
    all
}

fn written_down(api: Api) -> String {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/kafka/{api:?}.txt"));
    if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() && !path.exists() {
        std::fs::write(&path, draw(api)).unwrap();
    }
    std::fs::read_to_string(path).unwrap()
}

/// `request 3`, then a line for each value: its bytes, and what they say.
fn parse(api: Api, part: &str) -> Golden {
    let (name, text) = part.split_once('\n').unwrap();
    let (kind, version) = name.split_once(' ').unwrap();
    let bytes = text.lines().flat_map(|line| {
        let hex = line.split_once(" |").unwrap().0.trim();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect::<Vec<_>>()
    });
    Golden {
        api,
        version: version.parse().unwrap(),
        is_request: kind == "request",
        frame: bytes.collect(),
        text: format!("{}\n", text.trim_end_matches('\n')),
    }
}

const fn kind(is_request: bool) -> &'static str {
    if is_request { "request" } else { "response" }
}

/// Each version, drawn.
fn draw(api: Api) -> String {
    let mut parts = Vec::new();
    for version in api.served() {
        let header =
            Header { api, version, correlation_id: 7, client_id: Some("plimsoll".to_owned()) };
        let request = draw_one(|bytes| {
            show_request(&header, &drawn::request(api, &mut Dice::new(api.layout(version), bytes)))
        });
        let response = draw_one(|bytes| {
            let response = drawn::response(api, &mut Dice::new(api.layout(version), bytes));
            show_response(version, 7, &response)
        });
        parts.push(format!("request {version}\n{request}"));
        parts.push(format!("response {version}\n{response}"));
    }
    parts.join("\n")
}

/// Of many drawings the one that shows most fields, in the fewest lines.
fn draw_one(show: impl Fn(&[u8]) -> String) -> String {
    let drawings = (1..2000_u64).map(|seed| {
        let mut state = seed;
        let dice: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            b"\0\x01\x02\x03\x05\x06abcdefghijklmnopqrstuv"[(state >> 33) as usize % 28]
        })
        .take(400)
        .collect();
        show(&dice)
    });
    drawings.max_by_key(|text| (fields(text), Reverse(text.lines().count()))).unwrap()
}

/// How many different fields have a value.
fn fields(text: &str) -> usize {
    let says = text.lines().map(|line| line.split_once(" |").unwrap().1);
    let fields = says.filter(|says| !says.ends_with("none") && !says.ends_with("None"));
    fields.map(|says| says.split(':').next()).collect::<BTreeSet<_>>().len()
}

fn show_request(header: &Header, request: &Request) -> String {
    let Header { api, version, correlation_id, client_id } = header;
    let frame = joined(&request.encode(header));
    let mut lines = Lines::new(Layout::PLAIN);
    lines.line(&frame[..4], "length");
    api.key().show("key", &mut lines);
    version.show("version", &mut lines);
    correlation_id.show("correlation id", &mut lines);
    client_id.show("client id", &mut lines);
    lines.layout = api.layout(*version);
    if lines.layout.flexible {
        lines.line(&[0], "tags: 0");
    }
    drawn::show_request(request, &mut lines);
    lines.text
}

fn show_response(version: i16, correlation_id: i32, response: &Response) -> String {
    let api = response.api();
    let frame = joined(&response.encode(version, correlation_id));
    let mut lines = Lines::new(Layout::PLAIN);
    lines.line(&frame[..4], "length");
    correlation_id.show("correlation id", &mut lines);
    lines.layout = api.layout(version);
    if lines.layout.flexible && api != Api::ApiVersions {
        lines.line(&[0], "tags: 0");
    }
    drawn::show_response(response, &mut lines);
    lines.text
}

#[test]
fn every_version_is_written_down() {
    assert_eq!(goldens().len(), 2 * served().count());
}
