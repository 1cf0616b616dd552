//! Batches of a stranger, with checksums that are right: each is refused, or it is written as it
//! was read, before and after it is stamped.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use plimsoll_server::kafka::batch::{Batch, HEADER_BYTES};

fuzz_target!(|input: (bool, Vec<u8>)| {
    let (mend, mut bytes) = input;
    if mend && bytes.len() >= HEADER_BYTES {
        let length = u32::try_from(bytes.len() - 12).unwrap();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = 2;
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    let all = Bytes::from(bytes);
    let mut rest = all.clone();
    while let Ok(Some(batch)) = Batch::take(&mut rest) {
        let end = all.len() - rest.len();
        assert_eq!(batch.pieces().concat(), all[end - batch.bytes()..end]);
    }
    let Ok(mut batch) = Batch::produced(Some(all), 8) else { return };
    batch.stamp(1 << 40, 3);
    batch.stamp_append_time(5);
    let mut stored = Bytes::from(batch.pieces().concat());
    assert_eq!(Batch::take(&mut stored), Ok(Some(batch)));
});
