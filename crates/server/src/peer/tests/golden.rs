//! The bytes of greetings and frames, as they were when they were made: versions will run together.
//!
//! `PLIMSOLL_WRITE_GOLDEN=1` writes them anew: only for a new version of a format.

use std::fs;
use std::path::Path;

use bytes::Bytes;

use super::format::{frame, greeting, lane, messages, received};
use crate::peer::frame::decode;
use crate::peer::greeting::{self, Greeting, Kind};

fn golden(name: &str, now: &[u8]) -> Bytes {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/peer/testdata").join(name);
    if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() {
        fs::write(&path, now).unwrap();
    }
    fs::read(&path).unwrap().into()
}

#[test]
fn a_frame_is_written_and_read_as_ever() {
    let now = frame(&lane(), 3, &messages());
    let golden = golden("frame.v1", &now);
    assert_eq!(now, golden);
    assert_eq!(decode(&golden, &lane(), 3), Ok(received(&messages())));
}

#[test]
fn greetings_are_written_and_read_as_ever() {
    let dialled = Greeting { kind: Kind::Dialled, ..greeting() };
    let verdict = Greeting { kind: Kind::Verdict, reason: 4, hello: Bytes::new(), ..greeting() };
    let nonces = [[1; 16], [2; 16]];
    let all = [
        ("greeting-dialler.v1", greeting(), &nonces[..0]),
        ("greeting-dialled.v1", dialled, &nonces[..1]),
        ("greeting-verdict.v1", verdict, &nonces[..2]),
    ];
    for (name, said, nonces) in all {
        let seed = greeting::seed(nonces);
        let golden = golden(name, &said.encode(seed));
        assert_eq!(said.encode(seed), golden, "{name}");
        assert_eq!(Greeting::decode(&golden, seed), Ok(said), "{name}");
    }
}
