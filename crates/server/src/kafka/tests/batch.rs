//! Record batches: what is believed, what is refused with which code, what stamping changes.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

use super::joined;
use crate::kafka::batch::{Batch, HEADER_BYTES, Producer, Wrong};
use crate::kafka::error::ErrorCode;
use crate::kafka::records::Records;
use crate::kafka::wire::{Layout, Wire, Writer};

const NEWEST: i16 = 8;

/// Three records, as the library has a producer write them.
fn produced() -> Bytes {
    let records = [0, 1, 2].map(|number: i32| Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: 7,
        producer_epoch: 1,
        timestamp_type: TimestampType::Creation,
        offset: number.into(),
        sequence: 40 + number,
        timestamp: 1000 + i64::from(number),
        key: None,
        value: Some(Bytes::from_static(b"value")),
        headers: Default::default(),
    });
    let mut bytes = BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();
    bytes.freeze()
}

/// The same with other bytes at some place, and the checksum made right again.
fn with(place: usize, bytes: &[u8]) -> Bytes {
    let mut batch = produced().to_vec();
    batch[place..place + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c::crc32c(&batch[21..]);
    (&mut batch[17..21]).put_u32(crc);
    batch.into()
}

fn on_the_wire<T: Wire>(value: &T) -> Bytes {
    let mut to = Writer::new(Layout::PLAIN);
    value.write(&mut to);
    joined(&to.pieces())
}

fn refused(bytes: Bytes) -> (Wrong, i16) {
    let wrong = Batch::produced(Some(bytes), NEWEST).unwrap_err();
    (wrong, wrong.error_code().into())
}

fn library_reads(batch: &Batch) -> Vec<Record> {
    RecordBatchDecoder::decode(&mut joined(&batch.pieces())).unwrap().records
}

#[test]
fn a_batch_that_the_library_wrote_is_believed_and_stays_as_it_is() {
    let bytes = produced();
    let batch = Batch::produced(Some(bytes.clone()), NEWEST).unwrap();
    let header = batch.header();
    assert_eq!((header.count(), header.base_offset(), header.last_offset()), (3, 0, 2));
    assert_eq!(header.producer(), Some(Producer { id: 7, epoch: 1, base_sequence: 40 }));
    assert_eq!((header.max_timestamp(), header.has_append_time()), (1002, false));
    assert_eq!((joined(&batch.pieces()), batch.bytes()), (bytes.clone(), bytes.len()));
    assert!(bytes.as_ptr_range().contains(&batch.pieces()[1].as_ptr()), "records are not copied");
}

#[test]
fn a_batch_that_is_cut_anywhere_is_refused() {
    let bytes = produced();
    for cut in 0..bytes.len() {
        let mut part = bytes.slice(..cut);
        let expected = if cut == 0 { Ok(None) } else { Err(Wrong::Short(cut)) };
        assert_eq!(Batch::take(&mut part), expected);
        assert_eq!(part.len(), cut, "what is not a batch stays");
        assert_eq!(i16::from(Batch::produced(Some(part), NEWEST).unwrap_err().error_code()), 87);
    }
}

#[test]
fn a_bit_that_flips_anywhere_is_found_but_in_what_the_leader_stamps() {
    let bytes = produced();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[place] ^= 1 << bit;
            let believed = Batch::produced(Some(damaged.into()), NEWEST).is_ok();
            assert_eq!(believed, (12..16).contains(&place), "byte {place}, bit {bit}");
        }
    }
}

#[test]
fn a_refusal_has_the_code_that_kafka_answers() {
    assert_eq!(refused(Bytes::new()), (Wrong::NotOne, 87));
    assert_eq!(Batch::produced(None, NEWEST), Err(Wrong::NotOne));
    assert_eq!(refused(with(0, &[0, 0, 0, 0, 0, 0, 0, 5])), (Wrong::BaseOffset(5), 87));
    assert_eq!(refused(with(0, &[0xff; 8])), (Wrong::BaseOffset(-1), 87));
    assert_eq!(refused(with(8, &[0, 0, 0, 48])), (Wrong::Length(48), 2));
    assert_eq!(refused(with(8, &[0xff; 4])), (Wrong::Length(-1), 2));
    let (wrong, code) = refused(with(8, &[0x7f, 0xff, 0xff, 0xff]));
    assert!(matches!(wrong, Wrong::Short(_)) && code == 87);
    assert_eq!(refused(with(16, &[0])), (Wrong::OldMagic(0), 87));
    assert_eq!(refused(with(16, &[1])), (Wrong::OldMagic(1), 87));
    assert_eq!(refused(with(16, &[3])), (Wrong::Magic(3), 2));
    assert_eq!(refused(with(16, &[0xff])), (Wrong::Magic(-1), 2));
    assert_eq!(refused(with(21, &[0, 5])), (Wrong::Compression(5), 76));
    assert_eq!(refused(with(21, &[0, 0x80])), (Wrong::Attributes(0x80), 87));
    assert_eq!(refused(with(21, &[0, 0x40])), (Wrong::Attributes(0x40), 87));
    assert_eq!(refused(with(21, &[0, 8])), (Wrong::AppendTime, 32));
    assert_eq!(refused(with(21, &[0, 16])), (Wrong::Transaction, 48));
    assert_eq!(refused(with(21, &[0, 32])), (Wrong::Control, 87));
    let producer = |epoch, base_sequence| Wrong::Producer { id: 7, epoch, base_sequence };
    assert_eq!(refused(with(51, &[0xff; 2])), (producer(-1, 40), 87));
    assert_eq!(refused(with(53, &[0xff; 4])), (producer(1, -1), 87));
}

/// Two billion offsets for a few bytes; or one more than 36 bytes have room for.
#[test]
fn records_that_have_no_bytes_are_not_counted() {
    for (count, last_offset_delta) in
        [(0, -1), (0, 2), (-1, -2), (3, 3), (4, 2), (6, 5), (i32::MAX, i32::MAX - 1)]
    {
        let mut lies = with(23, &on_the_wire(&last_offset_delta)).to_vec();
        lies[57..61].copy_from_slice(&on_the_wire(&count));
        let crc = crc32c::crc32c(&lies[21..]);
        (&mut lies[17..21]).put_u32(crc);
        assert_eq!(refused(lies.into()), (Wrong::Count { count, last_offset_delta }, 87));
    }
}

/// What a broker says of offsets that name no record. A producer may not.
#[test]
fn a_batch_without_records_is_read_and_not_produced() {
    let batch = Batch::empty(40, 50, 3);
    let mut bytes = joined(&batch.pieces());
    assert_eq!(bytes.len(), 61);
    let read = Batch::take(&mut bytes).unwrap().unwrap();
    let header = read.header();
    assert_eq!((header.count(), header.base_offset(), header.last_offset()), (0, 40, 49));
    assert_eq!((header.leader_epoch(), header.max_timestamp()), (3, -1));
    assert!(Records::of(&read, 0).unwrap().iter().next().is_none());
    assert!(library_reads(&batch).is_empty());
    assert_eq!(Batch::empty(0, i64::MAX, 0).header().last_offset(), i64::from(i32::MAX));
    let produced = joined(&Batch::empty(0, 3, -1).pieces());
    let wrong = Wrong::Count { count: 0, last_offset_delta: 2 };
    assert_eq!(refused(produced), (wrong, 87));
}

#[test]
fn one_batch_is_produced_and_many_are_read() {
    let two = [produced(), produced()].concat();
    assert_eq!(refused(two.clone().into()), (Wrong::NotOne, 87));
    let part = [&produced()[..], &produced()[..20]].concat();
    assert_eq!(refused(part.into()), (Wrong::NotOne, 87));

    let mut two = Bytes::from(two);
    assert_eq!(Batch::take(&mut two).unwrap().unwrap().header().count(), 3);
    assert_eq!(Batch::take(&mut two).unwrap().unwrap().header().count(), 3);
    assert_eq!(Batch::take(&mut two), Ok(None));
}

#[test]
fn zstd_is_for_those_who_may_know_it() {
    let zstd = with(21, &[0, 4]);
    let wrong = Batch::produced(Some(zstd.clone()), 6).unwrap_err();
    assert_eq!(
        (wrong, wrong.error_code()),
        (Wrong::Compression(4), ErrorCode::UnsupportedCompressionType)
    );
    assert!(Batch::produced(Some(zstd), 7).is_ok());
}

/// Where timestamps go back within a batch, `KafkaJS` 2.2.4 says that the largest is the last one;
/// older versions of sarama said -1. Kafka computes it again from the records, and refuses neither.
#[test]
fn a_largest_timestamp_that_is_not_the_largest_is_no_reason_to_refuse() {
    for said in [999_i64, -1] {
        let bytes = with(35, &on_the_wire(&said));
        let batch = Batch::produced(Some(bytes.clone()), NEWEST).unwrap();
        assert_eq!(batch.header().max_timestamp(), 1000, "that of the first record");
        assert_eq!(joined(&batch.pieces()), bytes, "the bytes stay");
    }
}

#[test]
fn stamping_an_offset_leaves_the_checksum() {
    let mut batch = Batch::produced(Some(produced()), NEWEST).unwrap();
    let crc = batch.header().crc();
    batch.stamp(1 << 40, 9);
    assert_eq!((batch.header().crc(), batch.header().last_offset()), (crc, (1 << 40) + 2));
    let records = library_reads(&batch);
    assert_eq!((records[2].offset, records[2].partition_leader_epoch), ((1 << 40) + 2, 9));
    let mut stored = joined(&batch.pieces());
    assert_eq!(stored[HEADER_BYTES..], produced()[HEADER_BYTES..]);
    assert_eq!(Batch::take(&mut stored), Ok(Some(batch)));
}

#[test]
#[should_panic(expected = "has offsets")]
fn a_batch_is_never_stamped_past_the_last_offset() {
    Batch::produced(Some(produced()), NEWEST).unwrap().stamp(i64::MAX - 1, 0);
}

#[test]
fn the_time_of_appending_is_that_of_all_records() {
    let mut batch = Batch::produced(Some(produced()), NEWEST).unwrap();
    batch.stamp(10, 9);
    batch.stamp_append_time(5);
    assert_eq!((batch.header().max_timestamp(), batch.header().has_append_time()), (5, true));
    for record in library_reads(&batch) {
        assert_eq!(record.timestamp_type, TimestampType::LogAppend);
    }
    let mut stored = joined(&batch.pieces());
    assert_eq!(Batch::take(&mut stored), Ok(Some(batch)));
}
