//! A record batch: what a producer sends, what is stored, and what a consumer is sent, byte for
//! byte.
//!
//! ```text
//!  0  base offset                   i64   ours: stamped when the batch is appended
//!  8  length of what follows        i32
//! 12  leader epoch                  i32   ours: stamped when the batch is appended
//! 16  magic, 2                      i8
//! 17  CRC-32C of what follows       u32
//! 21  attributes                    i16   bits 0..=2 compression, 3 time of appending,
//!                                         4 transactional, 5 control, 6 delete horizon
//! 23  last offset delta             i32   records - 1; more, where some were compacted away
//! 27  base timestamp                i64   ms; that of the first record
//! 35  max timestamp                 i64   ms; the time of appending, where bit 3 says so
//! 43  producer id                   i64   -1: none
//! 51  producer epoch                i16
//! 53  base sequence                 i32
//! 57  records                       i32   0: its offsets name none, and readers pass over them
//! 61  the records, compressed together
//! ```
//!
//! What is checked is the header: a [`Batch`] is one whose length, magic, checksum, attributes and
//! counts agree. Of a batch that is produced the records are walked too (`records.rs`), but not
//! decompressed: a producer that lies about what it compressed is believed, and its consumers
//! suffer. The largest timestamp is the producer's word: clients are careless with it, and Kafka
//! corrects them where we would have to decompress.
//!
//! A batch holds its header as values and its records as a slice of the frame. What is stamped on
//! the header costs 61 new bytes, and no record is copied.

use bytes::{Buf, Bytes};

use super::compression::Compression;
use super::error::ErrorCode;
use super::wire::{Layout, Malformed, Reader, Wire, Writer};

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;
/// Bytes up to the length, and the length: what the length does not count.
const OVERHEAD_BYTES: usize = 12;
/// Bytes that the checksum does not cover.
const UNCHECKED_BYTES: usize = 21;
/// The fewest bytes of a record that is not compressed: six varints and its attributes.
const LEAST_RECORD_BYTES: usize = 7;
const MAGIC: i8 = 2;

/// The bits of the attributes that are the number of a [`Compression`].
const COMPRESSION: i16 = 0b111;
const APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
const DELETE_HORIZON: i16 = 1 << 6;
const UNUSED: i16 = !0b111_1111;

/// Produce allows zstd from this version on.
const ZSTD_SINCE: i16 = 7;

/// The header of a batch, but for what follows from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    base_offset: i64,
    leader_epoch: i32,
    crc: u32,
    attributes: i16,
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    count: i32,
}

/// Who sent a batch, and as which one, so that it is appended once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Producer {
    /// Which producer.
    pub id: i64,
    /// Its incarnation.
    pub epoch: i16,
    /// The number of the first record, counted by the producer for this partition.
    pub base_sequence: i32,
}

/// A batch whose header agrees with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    header: Header,
    records: Bytes,
}

/// Why bytes are not a batch, or not one that a producer may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Less than a batch: the rest may follow, where bytes are received.
    #[error("{0} bytes, where a batch goes on")]
    Short(usize),
    /// A length that no batch has.
    #[error("a length of {0}")]
    Length(i32),
    /// A format before that of Kafka 0.11.
    #[error("magic {0}: a format that is older than record batches")]
    OldMagic(i8),
    /// No format at all.
    #[error("magic {0}")]
    Magic(i8),
    /// Damaged under way, or by whoever made it.
    #[error("CRC-32C {said:08x}, where the bytes have {found:08x}")]
    Checksum {
        /// What the header says.
        said: u32,
        /// What it should say.
        found: u32,
    },
    /// Fewer records than none, more than offsets, or more than there are bytes for; of a produced batch none, or
    /// fewer than offsets.
    #[error("{count} records with a last offset delta of {last_offset_delta}")]
    Count {
        /// Records, as the header says.
        count: i32,
        /// Offsets, as the header says, less one.
        last_offset_delta: i32,
    },
    /// Bits that mean nothing.
    #[error("attributes {0:016b}")]
    Attributes(i16),
    /// A compression that there is not, or not yet in this version of Produce.
    #[error("compression {0}")]
    Compression(i16),
    /// A producer's number without its epoch or sequence.
    #[error("producer {id} in epoch {epoch} with sequence {base_sequence}")]
    Producer {
        /// Which producer.
        id: i64,
        /// Its incarnation.
        epoch: i16,
        /// The number of the first record.
        base_sequence: i32,
    },
    /// A produce without a batch, with two, or with a part of another.
    #[error("not exactly one batch")]
    NotOne,
    /// Below zero, or too large for the records; a produced batch has 0, as its offset is ours to
    /// give.
    #[error("a base offset of {0}")]
    BaseOffset(i64),
    /// Of the records of a produced batch the first, from 0, that is not there, or is none, or is not in
    /// its place; or something is behind the last.
    #[error("record {0} is none, or not in its place")]
    Record(i64),
    /// A record without a key, where one goes by its key.
    #[error("record {0} has no key, and cleanup.policy=compact goes by keys")]
    NoKey(i64),
    /// A produced batch that says when it was appended.
    #[error("the time of appending, which is the broker's to give")]
    AppendTime,
    /// A produced batch that ends transactions.
    #[error("control records, which are the broker's to write")]
    Control,
    /// A produced batch of a transaction: there are none.
    #[error("a transaction, which there is none of")]
    Transaction,
}

impl Wrong {
    /// What a producer is answered: what Kafka answers.
    #[must_use]
    pub const fn error_code(self) -> ErrorCode {
        match self {
            Self::Length(_) | Self::Magic(_) | Self::Checksum { .. } => ErrorCode::CorruptMessage,
            Self::Compression(_) => ErrorCode::UnsupportedCompressionType,
            Self::AppendTime => ErrorCode::InvalidTimestamp,
            Self::Transaction => ErrorCode::InvalidTxnState,
            Self::Short(_)
            | Self::OldMagic(_)
            | Self::Count { .. }
            | Self::Attributes(_)
            | Self::Producer { .. }
            | Self::NotOne
            | Self::BaseOffset(_)
            | Self::Record(_)
            | Self::NoKey(_)
            | Self::Control => ErrorCode::InvalidRecord,
        }
    }
}

impl Batch {
    /// The one batch of a partition in a produce request of this version, or why it is refused. Its
    /// records are not looked at yet: [`super::records::check`].
    pub fn produced(records: Option<Bytes>, version: i16) -> Result<Self, Wrong> {
        let mut records = records.unwrap_or_default();
        let batch = Self::take(&mut records)?.ok_or(Wrong::NotOne)?;
        if !records.is_empty() {
            return Err(Wrong::NotOne);
        }
        let header = &batch.header;
        let Header { count, last_offset_delta, .. } = *header;
        if count == 0 || last_offset_delta != count - 1 {
            return Err(Wrong::Count { count, last_offset_delta });
        }
        if header.base_offset != 0 {
            return Err(Wrong::BaseOffset(header.base_offset));
        }
        if header.compression() == Compression::Zstd && version < ZSTD_SINCE {
            return Err(Wrong::Compression(header.attributes & COMPRESSION));
        }
        for (bit, wrong) in [
            (APPEND_TIME, Wrong::AppendTime),
            (CONTROL, Wrong::Control),
            (TRANSACTIONAL, Wrong::Transaction),
            (DELETE_HORIZON, Wrong::Attributes(header.attributes)),
        ] {
            if header.attributes & bit != 0 {
                return Err(wrong);
            }
        }
        Ok(batch)
    }

    /// Takes the first batch off `bytes`, without copying it; `None` if there are no bytes. Where
    /// it is not a batch, `bytes` stay.
    pub fn take(bytes: &mut Bytes) -> Result<Option<Self>, Wrong> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (header, length) = Header::read(bytes)?;
        header.check(&bytes[..length])?;
        let mut batch = bytes.split_to(length);
        batch.advance(HEADER_BYTES);
        Ok(Some(Self { header, records: batch }))
    }

    /// One without records: from this offset on up to `end` there is none, or up to as far as a batch goes. Kafka
    /// answers so where compaction has left nothing.
    ///
    /// # Panics
    /// If `end` is not behind the first.
    #[must_use]
    pub fn empty(base_offset: i64, end: i64, leader_epoch: i32) -> Self {
        assert!(0 <= base_offset && base_offset < end, "offsets from {base_offset} to {end}");
        let mut batch = Self::made(Compression::None, (-1, -1), 0, None, Bytes::new());
        let last = end - 1 - base_offset;
        batch.header.last_offset_delta = i32::try_from(last).unwrap_or(i32::MAX);
        batch.header.crc = batch.checksum();
        batch.stamp(base_offset, leader_epoch);
        batch
    }

    /// One of these records, as a producer sends it: its offset and epoch are the broker's to give.
    /// The timestamps are that of the first record, and the largest.
    pub(super) fn made(
        compression: Compression,
        (base_timestamp, max_timestamp): (i64, i64),
        count: i32,
        producer: Option<Producer>,
        records: Bytes,
    ) -> Self {
        let none = Producer { id: -1, epoch: -1, base_sequence: -1 };
        let producer = producer.unwrap_or(none);
        let header = Header {
            base_offset: 0,
            leader_epoch: -1,
            crc: 0,
            attributes: compression as i16,
            last_offset_delta: count - 1,
            base_timestamp,
            max_timestamp,
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            base_sequence: producer.base_sequence,
            count,
        };
        let mut batch = Self { header, records };
        batch.header.crc = batch.checksum();
        batch
    }

    /// Its header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes it has, with its header.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// Gives it its offset and the leader's epoch. The checksum does not cover them.
    ///
    /// # Panics
    /// If its records have no offsets there: whoever gives offsets looks first.
    pub fn stamp(&mut self, base_offset: i64, leader_epoch: i32) {
        self.header.base_offset = base_offset;
        self.header.leader_epoch = leader_epoch;
        assert!(self.header.has_offsets(), "{:?} has offsets", self.header);
    }

    /// All its records have this time, in milliseconds, as that of appending. The checksum covers
    /// it, and is computed again over all bytes.
    pub fn stamp_append_time(&mut self, timestamp: i64) {
        self.header.attributes |= APPEND_TIME;
        self.header.max_timestamp = timestamp;
        self.header.crc = self.checksum();
    }

    /// So many of its records, which are these bytes, with the largest timestamp among them. They keep their offsets,
    /// and it takes as many as before.
    pub(super) fn with_fewer(&self, count: i32, max_timestamp: i64, records: Vec<u8>) -> Self {
        let mut header = Header { count, ..self.header };
        if !header.has_append_time() {
            header.max_timestamp = max_timestamp;
        }
        let mut batch = Self { header, records: header.compression().compress(records).into() };
        batch.header.crc = batch.checksum();
        batch
    }

    /// The records, compressed as they are.
    pub(super) const fn records(&self) -> &Bytes {
        &self.records
    }

    /// What its checksum must be.
    fn checksum(&self) -> u32 {
        let checked = &self.header.encode(self.records.len())[UNCHECKED_BYTES..];
        crc32c::crc32c_append(crc32c::crc32c(checked), &self.records)
    }

    /// Its bytes: the header, and the records as they came.
    #[must_use]
    pub fn pieces(&self) -> [Bytes; 2] {
        [self.header.encode(self.records.len()), self.records.clone()]
    }
}

impl Header {
    /// The offset of its first record.
    #[must_use]
    pub const fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// The epoch of the leader that appended it.
    #[must_use]
    pub const fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// The largest timestamp of its records that the header knows of, or the time of appending; in
    /// milliseconds. Not below that of the first record: `KafkaJS` gives that of the last one as
    /// the largest, and older versions of sarama give none.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        if self.attributes & (APPEND_TIME | DELETE_HORIZON) != 0 {
            return self.max_timestamp;
        }
        self.max_timestamp.max(self.base_timestamp)
    }

    /// How many records the batch holds. It takes as many offsets, or more where it was compacted; what is stored holds
    /// at least one.
    #[must_use]
    pub const fn count(&self) -> i32 {
        self.count
    }

    /// The offset of its last record.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// Who sent it, if it says so.
    #[must_use]
    pub fn producer(&self) -> Option<Producer> {
        let Self { producer_id: id, producer_epoch: epoch, base_sequence, .. } = *self;
        (id >= 0).then_some(Producer { id, epoch, base_sequence })
    }

    /// The checksum of all behind itself: the same as long as its time is not stamped.
    #[must_use]
    pub const fn crc(&self) -> u32 {
        self.crc
    }

    /// Whether its timestamp is that of appending.
    #[must_use]
    pub const fn has_append_time(&self) -> bool {
        self.attributes & APPEND_TIME != 0
    }

    /// Whether its records are the broker's notes of transactions, and no consumer's.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// How its records are compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.named_compression().expect("it was checked")
    }

    /// What the timestamps of its records count from.
    pub(super) const fn base_timestamp(&self) -> i64 {
        self.base_timestamp
    }

    fn named_compression(&self) -> Option<Compression> {
        let number = self.attributes & COMPRESSION;
        Compression::ALL.into_iter().find(|compression| *compression as i16 == number)
    }

    /// The header at the front of `bytes`, not yet believed, and how many of them the batch has:
    /// all are there.
    fn read(bytes: &Bytes) -> Result<(Self, usize), Wrong> {
        let short = |_| Wrong::Short(bytes.len());
        let mut from = Reader::new(bytes.clone(), Layout::PLAIN);
        let base_offset = Wire::read(&mut from).map_err(short)?;
        let said = i32::read(&mut from).map_err(short)?;
        let length = usize::try_from(said).map_err(|_negative| Wrong::Length(said))?;
        let leader_epoch = Wire::read(&mut from).map_err(short)?;
        match i8::read(&mut from).map_err(short)? {
            MAGIC => {}
            old @ 0..MAGIC => return Err(Wrong::OldMagic(old)),
            other => return Err(Wrong::Magic(other)),
        }
        let length = length.saturating_add(OVERHEAD_BYTES);
        if length < HEADER_BYTES {
            return Err(Wrong::Length(said));
        }
        if length > bytes.len() {
            return Err(Wrong::Short(bytes.len()));
        }
        let header = Self::rest(base_offset, leader_epoch, &mut from).map_err(short)?;
        Ok((header, length))
    }

    /// What stands behind the magic.
    fn rest(base_offset: i64, leader_epoch: i32, from: &mut Reader) -> Result<Self, Malformed> {
        Ok(Self {
            base_offset,
            leader_epoch,
            crc: Wire::read(from)?,
            attributes: Wire::read(from)?,
            last_offset_delta: Wire::read(from)?,
            base_timestamp: Wire::read(from)?,
            max_timestamp: Wire::read(from)?,
            producer_id: Wire::read(from)?,
            producer_epoch: Wire::read(from)?,
            base_sequence: Wire::read(from)?,
            count: Wire::read(from)?,
        })
    }

    /// Holds what it says against the bytes of the whole batch, and against itself.
    fn check(&self, batch: &[u8]) -> Result<(), Wrong> {
        let found = crc32c::crc32c(&batch[UNCHECKED_BYTES..]);
        if found != self.crc {
            return Err(Wrong::Checksum { said: self.crc, found });
        }
        self.check_attributes()?;
        self.check_count(batch.len() - HEADER_BYTES)?;
        if !self.has_offsets() {
            return Err(Wrong::BaseOffset(self.base_offset));
        }
        self.check_producer()
    }

    fn check_attributes(&self) -> Result<(), Wrong> {
        if self.attributes & UNUSED != 0 {
            return Err(Wrong::Attributes(self.attributes));
        }
        match self.named_compression() {
            Some(_) => Ok(()),
            None => Err(Wrong::Compression(self.attributes & COMPRESSION)),
        }
    }

    fn check_count(&self, records_bytes: usize) -> Result<(), Wrong> {
        let Self { count, last_offset_delta, .. } = *self;
        let room = if self.compression() == Compression::None {
            records_bytes / LEAST_RECORD_BYTES
        } else {
            i32::MAX as usize
        };
        let least = usize::from(records_bytes > 0 || self.compression() != Compression::None);
        let fits = usize::try_from(count).is_ok_and(|count| (least..=room).contains(&count));
        // Of a batch that was compacted some records are not there any more; their offsets are.
        if fits && last_offset_delta >= (count - 1).max(0) {
            Ok(())
        } else {
            Err(Wrong::Count { count, last_offset_delta })
        }
    }

    fn has_offsets(&self) -> bool {
        let last = self.base_offset.checked_add(i64::from(self.last_offset_delta));
        self.base_offset >= 0 && last.is_some()
    }

    fn check_producer(&self) -> Result<(), Wrong> {
        match self.producer() {
            Some(Producer { id, epoch, base_sequence }) if epoch < 0 || base_sequence < 0 => {
                Err(Wrong::Producer { id, epoch, base_sequence })
            }
            _ => Ok(()),
        }
    }

    fn encode(&self, records_bytes: usize) -> Bytes {
        let length = HEADER_BYTES - OVERHEAD_BYTES + records_bytes;
        let mut to = Writer::new(Layout::PLAIN);
        self.base_offset.write(&mut to);
        i32::try_from(length).expect("it was an i32").write(&mut to);
        self.leader_epoch.write(&mut to);
        MAGIC.write(&mut to);
        self.crc.write(&mut to);
        self.attributes.write(&mut to);
        self.last_offset_delta.write(&mut to);
        self.base_timestamp.write(&mut to);
        self.max_timestamp.write(&mut to);
        self.producer_id.write(&mut to);
        self.producer_epoch.write(&mut to);
        self.base_sequence.write(&mut to);
        self.count.write(&mut to);
        to.into_bytes()
    }
}
