//! Records of a stranger, compressed or not, in a batch whose checksum is right: what is read of
//! them is bounded, and says the same once it was written again. Any bytes outlive each compression.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use plimsoll_fuzz::taken;
use plimsoll_server::kafka::batch::{Batch, HEADER_BYTES};
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::records::{Draft, Record, Records, Wrong, first_since};

const LIMIT_BYTES: usize = 256 << 10;
/// What compresses and decompresses may have a window of 8 MiB, and tables beside it.
const TAKEN_BYTES_MAX: u64 = 20 << 20;

fuzz_target!(|input: (u8, u8, u16, Vec<u8>)| {
    let (method, attributes, count, bytes) = input;
    let method = Compression::ALL[usize::from(method) % Compression::ALL.len()];
    let bytes = Bytes::from(bytes);
    outlives(method, &bytes);
    let (decompressed, most) = taken(|| method.decompress(&bytes, LIMIT_BYTES));
    assert!(most <= TAKEN_BYTES_MAX, "{most} bytes for {} of {method}", bytes.len());
    if let Ok(decompressed) = &decompressed {
        assert!(method == Compression::None || decompressed.len() <= LIMIT_BYTES);
    }
    let Some(batch) = batch(method, attributes, count, &bytes) else { return };
    drop(first_since(&batch, 5, LIMIT_BYTES));
    let Ok(records) = Records::of(&batch, LIMIT_BYTES) else { return };
    let Ok(read) = records.iter().collect::<Result<Vec<_>, _>>() else { return };
    again(&read, method);
});

/// A batch of these records, whose header is right.
fn batch(method: Compression, attributes: u8, count: u16, records: &[u8]) -> Option<Batch> {
    const LOG_APPEND_TIME: u8 = 1 << 3;
    let count = i32::from(count % 64) + 1;
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.extend(records);
    let length = u32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[16] = 2;
    bytes[22] = method as u8 | attributes & LOG_APPEND_TIME;
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[43..57].fill(0xff);
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    Batch::take(&mut bytes.into()).ok().flatten()
}

fn outlives(method: Compression, bytes: &Bytes) {
    let compressed = Bytes::from(method.compress(bytes.to_vec()));
    let again = method.decompress(&compressed, bytes.len());
    assert_eq!(again.unwrap(), bytes);
}

/// Keys, values, times and headers; offsets follow each other in a draft.
fn again(read: &[Record<'_>], method: Compression) {
    let mut draft = Draft::default();
    for record in read {
        let headers: Vec<_> = record.headers.collect();
        draft.push(record.timestamp, record.key, record.value, &headers);
    }
    let batch = draft.batch(method, None);
    let records = Records::of(&batch, usize::MAX >> 1).unwrap();
    let written: Result<Vec<_>, Wrong> = records.iter().collect();
    for (one, other) in read.iter().zip(written.unwrap()) {
        assert_eq!((one.timestamp, one.key, one.value), (other.timestamp, other.key, other.value));
        assert!(one.headers.eq(other.headers));
    }
}
