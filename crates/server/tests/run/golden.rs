//! The bytes of a mark, and of a list of starts, as they were when they were made: what was written stays readable.
//!
//! `PLIMSOLL_WRITE_GOLDEN=1` writes them anew: only for a new version of the format.

use std::fs;
use std::path::Path;

use plimsoll_server::run::{Mark, Starts, State};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Dir, SyncMethod};

use super::{begin, ends, memory};

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

#[test]
fn the_starts_of_a_directory_are_written_and_read_as_ever() {
    let (data, memory) = (SimDir::new(), memory());
    for _ in 0..3 {
        drop(begin(&data, &memory, &ends([])));
    }
    let file = data.open("starts", SyncMethod::ORDINARY.access()).unwrap();
    let mut bytes = vec![0; 4096];
    let length = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(length);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/testdata/starts.v1");
    if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() {
        fs::write(&path, &bytes).unwrap();
    }
    let golden = fs::read(&path).unwrap();
    assert_eq!(bytes, golden);
    let starts = Starts::decode(&golden).unwrap();
    assert_eq!(starts.newest(9), [(1, 9), (2, 9), (3, 9)]);
    assert_eq!((starts.newest(1), starts.is_refused()), (&[(3, 9)][..], false));
}
