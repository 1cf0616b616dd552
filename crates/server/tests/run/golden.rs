//! The bytes of a mark, as they were when they were made: what was written stays readable.
//!
//! `PLIMSOLL_WRITE_GOLDEN=1` writes them anew: only for a new version of the format.

use std::fs;
use std::path::Path;

use plimsoll_server::run::{Mark, State};

use super::ends;

#[test]
fn a_mark_is_written_and_read_as_ever() {
    let mark = Mark {
        data: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        incarnation: 9,
        boot: Some(0xf0e0_d0c0_b0a0_9080_7060_5040_3020_1000),
        state: State::Quiesced,
        when_ms: 1_700_000_000_000,
        ends: ends([(0, 41), (3, u64::MAX), (u32::MAX, 0)]),
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/testdata/mark.v1");
    if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() {
        fs::write(&path, mark.encode(6)).unwrap();
    }
    let golden = fs::read(&path).unwrap();
    assert!(mark.encode(6) == golden[..], "{:02x?}", &mark.encode(6)[..128]);
    assert_eq!(Mark::decode(golden.as_slice().try_into().unwrap()), Ok((6, mark)));
}
