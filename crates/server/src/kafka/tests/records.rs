//! Records: written and read by us and by a library, in each compression; and by strangers.

use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression as Theirs, Record as TheirRecord, RecordBatchDecoder, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::joined;
use crate::kafka::batch::{Batch, Producer};
use crate::kafka::compression::{Compression, Error};
use crate::kafka::records::{Draft, Record, Records, Wrong, first_since};

const LIMIT_BYTES: usize = 1 << 20;
const PRODUCER: Producer = Producer { id: 7, epoch: 1, base_sequence: 40 };

/// A record that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    /// No key twice: the library has a map of them.
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Owned {
    fn of(record: &Record<'_>) -> Self {
        let header = |(key, value): (&[u8], Option<&[u8]>)| {
            (str::from_utf8(key).unwrap().to_owned(), value.map(<[u8]>::to_vec))
        };
        Self {
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.map(header).collect(),
        }
    }

    fn of_theirs(record: &TheirRecord) -> Self {
        let headers = record.headers.iter();
        Self {
            timestamp: record.timestamp,
            key: record.key.as_ref().map(|key| key.to_vec()),
            value: record.value.as_ref().map(|value| value.to_vec()),
            headers: headers
                .map(|(key, value)| (key.to_string(), value.as_ref().map(|value| value.to_vec())))
                .collect(),
        }
    }

    fn theirs(&self, place: usize) -> TheirRecord {
        let headers = self.headers.iter();
        TheirRecord {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: PRODUCER.id,
            producer_epoch: PRODUCER.epoch,
            timestamp_type: TimestampType::Creation,
            offset: i64::try_from(place).unwrap(),
            sequence: PRODUCER.base_sequence + i32::try_from(place).unwrap(),
            timestamp: self.timestamp,
            key: self.key.clone().map(Bytes::from),
            value: self.value.clone().map(Bytes::from),
            headers: headers
                .map(|(key, value)| {
                    (StrBytes::from_string(key.clone()), value.clone().map(Bytes::from))
                })
                .collect::<IndexMap<_, _>>(),
        }
    }
}

fn theirs(compression: Compression) -> Theirs {
    match compression {
        Compression::None => Theirs::None,
        Compression::Gzip => Theirs::Gzip,
        Compression::Snappy => Theirs::Snappy,
        Compression::Lz4 => Theirs::Lz4,
        Compression::Zstd => Theirs::Zstd,
    }
}

fn drafted(records: &[Owned], compression: Compression) -> Batch {
    let mut draft = Draft::default();
    for record in records {
        let headers = record.headers.iter();
        let headers: Vec<_> =
            headers.map(|(key, value)| (key.as_bytes(), value.as_deref())).collect();
        draft.push(record.timestamp, record.key.as_deref(), record.value.as_deref(), &headers);
    }
    draft.batch(compression, Some(PRODUCER))
}

fn read(batch: &Batch) -> Vec<Owned> {
    let records = Records::of(batch, LIMIT_BYTES).unwrap();
    records.iter().map(|record| Owned::of(&record.unwrap())).collect()
}

fn owned() -> impl Strategy<Value = Owned> {
    let bytes = || option::of(vec(any::<u8>(), 0..40));
    let headers = proptest::collection::btree_map("[a-z]{0,4}", bytes(), 0..4);
    let timestamp = 1_700_000_000_000_i64 - 5000..1_700_000_000_000 + 5000;
    (timestamp, bytes(), bytes(), headers).prop_map(|(timestamp, key, value, headers)| Owned {
        timestamp,
        key,
        value,
        headers: headers.into_iter().collect(),
    })
}

fn compression() -> impl Strategy<Value = Compression> {
    proptest::sample::select(&Compression::ALL[..])
}

/// Records that follow each other by a millisecond.
fn plain(count: i64) -> Vec<Owned> {
    let record = |number| Owned {
        timestamp: 1000 + number,
        key: None,
        value: Some(format!("value {number}").into_bytes()),
        headers: Vec::new(),
    };
    (0..count).map(record).collect()
}

/// A batch of these compressed bytes, whose header is right.
fn of_bytes(compression: Compression, count: i32, bytes: impl Into<Bytes>) -> Batch {
    Batch::made(compression, (1000, 1000), count, None, bytes.into())
}

fn look_at_all(batch: &Batch) {
    for record in Records::of(batch, LIMIT_BYTES).iter().flatten().flatten() {
        record.headers.for_each(drop);
    }
}

fn refused(batch: &Batch) -> Wrong {
    match Records::of(batch, LIMIT_BYTES) {
        Err(wrong) => wrong,
        Ok(records) => records.iter().find_map(Result::err).expect("something is wrong"),
    }
}

proptest! {
    #[test]
    fn what_we_write_the_library_reads(
        records in vec(owned(), 1..20), compression in compression(),
    ) {
        let batch = drafted(&records, compression);
        let read = RecordBatchDecoder::decode(&mut joined(&batch.pieces())).unwrap();
        prop_assert_eq!(read.records.iter().map(Owned::of_theirs).collect::<Vec<_>>(), records);
        let first = &read.records[0];
        prop_assert_eq!((first.producer_id, first.producer_epoch), (PRODUCER.id, PRODUCER.epoch));
        prop_assert_eq!((first.sequence, first.offset), (PRODUCER.base_sequence, 0));
    }

    #[test]
    fn what_the_library_writes_we_read(
        records in vec(owned(), 1..20), compression in compression(),
    ) {
        let theirs_of: Vec<_> =
            records.iter().enumerate().map(|(place, record)| record.theirs(place)).collect();
        let mut bytes = BytesMut::new();
        let options = RecordEncodeOptions { version: 2, compression: theirs(compression) };
        RecordBatchEncoder::encode(&mut bytes, &theirs_of, &options).unwrap();
        let batch = Batch::produced(Some(bytes.freeze()), 8).unwrap();
        prop_assert_eq!(read(&batch), records);
    }

    #[test]
    fn a_drafted_batch_is_one_that_a_broker_takes(
        records in vec(owned(), 1..20), compression in compression(),
    ) {
        let batch = drafted(&records, compression);
        let taken = Batch::produced(Some(joined(&batch.pieces())), 8).unwrap();
        prop_assert_eq!(taken.header().producer(), Some(PRODUCER));
        let largest = records.iter().map(|record| record.timestamp).max().unwrap();
        prop_assert_eq!(taken.header().max_timestamp(), largest);
        prop_assert_eq!(&taken, &batch);
        prop_assert_eq!(read(&taken), records);
    }

    /// With a checksum that is right: whoever made them meant them.
    #[test]
    fn bytes_that_are_no_records_never_panic(
        bytes in vec(any::<u8>(), 0..200), count in 1..100_i32, compression in compression(),
    ) {
        let batch = of_bytes(compression, count, bytes);
        look_at_all(&batch);
        first_since(&batch, 0, i64::MAX, LIMIT_BYTES).ok();
    }

    #[test]
    fn records_that_are_damaged_before_they_are_compressed_never_panic(
        records in vec(owned(), 1..5), place in any::<prop::sample::Index>(),
        byte in any::<u8>(), compression in compression(),
    ) {
        let mut bytes = drafted(&records, Compression::None).records().to_vec();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let count = i32::try_from(records.len()).unwrap();
        let batch = of_bytes(compression, count, compression.compress(bytes));
        let read = Records::of(&batch, LIMIT_BYTES).unwrap();
        for record in read.iter().flatten() {
            prop_assert!((0..i64::from(count)).contains(&record.offset));
            record.headers.for_each(drop);
        }
    }

    #[test]
    fn what_is_compressed_and_damaged_never_panics(
        records in vec(owned(), 1..50), places in vec(any::<prop::sample::Index>(), 1..4),
        byte in any::<u8>(), compression in compression(),
    ) {
        let mut bytes = drafted(&records, compression).records().to_vec();
        for place in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let batch = of_bytes(compression, i32::try_from(records.len()).unwrap(), bytes);
        look_at_all(&batch);
    }
}

/// As Kafka writes it, and as it must stay.
#[test]
fn a_batch_is_these_bytes() {
    let mut draft = Draft::default();
    let headers = [(&b"h"[..], Some(&b"1"[..])), (b"n", None)];
    draft.push(1_700_000_000_000, Some(b"key"), Some(b"value"), &headers);
    draft.push(1_700_000_000_005, None, None, &[]);
    let batch = joined(&draft.batch(Compression::None, Some(PRODUCER)).pieces());
    let hex: String = batch.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            "0000000000000000", // base offset
            "0000004e",         // length
            "ffffffff",         // leader epoch
            "02",               // magic
            "63904e76",         // CRC-32C
            "0000",             // attributes
            "00000001",         // last offset delta
            "0000018bcfe56800", // base timestamp
            "0000018bcfe56805", // max timestamp
            "0000000000000007", // producer id
            "0001",             // producer epoch
            "00000028",         // base sequence
            "00000002",         // records
            "2a000000",         // record: length, attributes, timestamp, offset
            "066b6579",         // key
            "0a76616c7565",     // value
            "04",               // headers
            "0268",             // key
            "0231",             // value
            "026e",             // key
            "01",               // no value
            "0c000a02",         // record, 5 ms later
            "010100",           // no key, no value, no headers
        )
    );
}

#[test]
fn a_bomb_is_refused_at_the_limit() {
    for compression in &Compression::ALL[1..] {
        let bomb = compression.compress(vec![0; LIMIT_BYTES + 1]);
        assert!(bomb.len() < LIMIT_BYTES / 10, "{compression} makes it small");
        let batch = of_bytes(*compression, 1, bomb);
        let wrong = Records::of(&batch, LIMIT_BYTES).unwrap_err();
        let expected = format!("{compression} of more than the 1048576 bytes that are allowed");
        assert_eq!(wrong.to_string(), expected);
        assert!(matches!(wrong, Wrong::Compressed(Error::TooLarge { .. })));
        assert!(Records::of(&batch, LIMIT_BYTES + 1).is_ok(), "{compression} up to the limit");
    }
}

/// 4 GiB, says its first byte; there are six.
#[test]
fn snappy_that_says_more_than_it_can_hold_takes_no_memory() {
    let taken = allocation_counter::measure(|| {
        let lies = of_bytes(Compression::Snappy, 1, &b"\xff\xff\xff\x7f\0a"[..]);
        let wrong = Records::of(&lies, usize::MAX).unwrap_err();
        assert!(matches!(wrong, Wrong::Compressed(Error::Damaged { .. })), "{wrong}");
    });
    assert!(taken.bytes_max < 10_000, "{taken:?}");
}

/// Java's library cuts what it compresses into blocks, behind a header of its own.
#[test]
fn snappy_is_read_as_java_frames_it() {
    let records = plain(9);
    let bytes = drafted(&records, Compression::None).records().to_vec();
    let mut framed = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for block in bytes.chunks(50) {
        let block = Compression::Snappy.compress(block.to_vec());
        framed.extend([0, 0, 0, u8::try_from(block.len()).unwrap()]);
        framed.extend(block);
    }
    assert_eq!(read(&of_bytes(Compression::Snappy, 9, framed.clone())), records);
    for cut in (8..framed.len() - 1).rev() {
        let part = of_bytes(Compression::Snappy, 9, framed[..cut].to_vec());
        assert!(Records::of(&part, LIMIT_BYTES).is_err() || refused_later(&part), "{cut}");
    }
    let whole = of_bytes(Compression::Snappy, 9, framed);
    let wrong = Records::of(&whole, bytes.len() - 1).unwrap_err();
    assert!(matches!(wrong, Wrong::Compressed(Error::TooLarge { .. })), "over all blocks: {wrong}");
}

/// Cut between two blocks.
fn refused_later(batch: &Batch) -> bool {
    matches!(refused(batch), Wrong::Short { .. })
}

#[test]
fn compressed_bytes_that_follow_each_other_are_one() {
    let records = plain(4);
    let bytes = drafted(&records, Compression::None).records().to_vec();
    let (front, back) = bytes.split_at(20);
    for compression in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let both = [compression.compress(front.to_vec()), compression.compress(back.to_vec())];
        assert_eq!(read(&of_bytes(compression, 4, both.concat())), records, "{compression}");
        let cut = both.concat().len() - 5;
        let part = of_bytes(compression, 4, both.concat()[..cut].to_vec());
        let wrong = refused(&part);
        assert!(matches!(wrong, Wrong::Compressed(Error::Damaged { .. })), "{wrong}");
    }
}

#[test]
fn a_record_that_is_wrong_says_where() {
    let say = |count, bytes: &[u8]| {
        refused(&of_bytes(Compression::None, count, bytes.to_vec())).to_string()
    };
    assert_eq!(say(1, b""), "0 bytes are left for a record");
    assert_eq!(say(1, b"\x0e\0"), "1 bytes are left for a record");
    assert_eq!(say(1, b"\x01"), "a record of -1");
    assert_eq!(say(1, b"\x03"), "a record of -2");
    assert_eq!(say(1, b"\0"), "0 bytes are left for attributes");
    assert_eq!(say(1, b"\x06\0\0\x02"), "an offset delta of 1");
    assert_eq!(say(1, b"\x06\0\0\x01"), "an offset delta of -1");
    assert_eq!(say(1, b"\x08\0\0\0\x03"), "a key of -2");
    assert_eq!(say(1, b"\x08\0\0\0\x02"), "0 bytes are left for a key");
    assert_eq!(say(1, b"\x0c\0\0\0\x01\x01\x01"), "a count of headers of -1");
    assert_eq!(say(1, b"\x0e\0\0\0\x01\x01\x02\x01"), "a header's key of -1");
    assert_eq!(say(1, b"\x0e\0\0\0\x01\x01\0a"), "1 bytes are left over");
    assert_eq!(say(1, b"\x0c\0\0\0\x01\x01\0abc"), "3 bytes are left over");
    assert_eq!(say(2, b"\x0c\0\0\0\x01\x01\0"), "0 bytes are left for a record");
    assert_eq!(say(1, &[0xff; 11]), "a number of more than 64 bits for a record");
    assert_eq!(
        say(1, b"\x16\0\0\0\x01\x01\xff\xff\xff\xff\xff\x0f"),
        "a count of headers of -274877906944"
    );
}

#[test]
fn the_first_record_at_a_time_is_found_or_there_is_none() {
    for compression in Compression::ALL {
        let mut batch = drafted(&plain(5), compression);
        batch.stamp(50, 1);
        let since = |timestamp| first_since(&batch, 0, timestamp, LIMIT_BYTES).unwrap();
        assert_eq!(since(i64::MIN), Some((50, 1000)));
        assert_eq!(since(1003), Some((53, 1003)));
        assert_eq!(since(1004), Some((54, 1004)));
        assert_eq!(since(1005), None);
    }
}

/// `KafkaJS` says that the largest timestamp is the last one.
#[test]
fn a_record_at_a_time_is_found_whatever_the_header_says_of_its_times() {
    let mut records = plain(2);
    records[0].timestamp = 5000;
    let bytes = drafted(&records, Compression::None).records().clone();
    let batch = Batch::made(Compression::None, (5000, 1001), 2, None, bytes);
    assert_eq!(first_since(&batch, 0, 4000, LIMIT_BYTES).unwrap(), Some((0, 5000)));
}

/// A time was answered with an offset that had been deleted: in the first batch that is left.
#[test]
fn what_was_deleted_of_a_batch_is_not_the_first_at_a_time() {
    for compression in Compression::ALL {
        let mut batch = drafted(&plain(5), compression);
        batch.stamp(50, 1);
        let from = |from| first_since(&batch, from, 1001, LIMIT_BYTES).unwrap();
        assert_eq!((from(51), from(53)), (Some((51, 1001)), Some((53, 1003))));
        assert_eq!(from(55), None);
        batch.stamp_append_time(2000);
        let from = |from| first_since(&batch, from, 1001, LIMIT_BYTES).unwrap();
        assert_eq!((from(53), from(55)), (Some((53, 2000)), None));
    }
}

#[test]
fn the_time_of_appending_is_every_records() {
    let mut batch = drafted(&plain(3), Compression::Gzip);
    batch.stamp(10, 1);
    batch.stamp_append_time(77);
    assert!(read(&batch).iter().all(|record| record.timestamp == 77));
    assert_eq!(first_since(&batch, 0, 77, 0).unwrap(), Some((10, 77)), "without decompressing");
    assert_eq!(first_since(&batch, 0, 78, 0).unwrap(), None);
}
