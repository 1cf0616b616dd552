//! [`Batch`]: the fields of a record batch that a shard reads, and the two that it stamps.
//!
//! The format is Kafka's, drawn in `kafka/batch.rs`, where a batch is held against what it says when
//! it comes in. Here it is believed: apply reads each batch again, and must not take long.
#![expect(clippy::big_endian_bytes, reason = "Kafka's integers are big-endian")]

/// Bytes before the records.
const HEADER_BYTES: usize = 61;
/// Bytes that a stamp writes over: up to the magic.
const STAMPED_BYTES: usize = 16;

/// Attributes with which a timestamp is not the producer's.
const APPEND_TIME: u16 = 1 << 3;
const DELETE_HORIZON: u16 = 1 << 6;

/// What a shard knows of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Offset of its first record.
    pub base_offset: i64,
    /// The leader epoch that it was appended in.
    pub epoch: i32,
    /// How many offsets it takes: at least one.
    pub offsets: u32,
    /// The largest timestamp of its records that its header knows of, in ms since 1970; -1 if none.
    pub max_timestamp: i64,
    /// Where it stands among its producer's, if that one is idempotent.
    pub sequenced: Option<Sequenced>,
    /// Its size.
    pub bytes: u32,
}

/// Where a batch stands among those of an idempotent producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequenced {
    /// Who produced it.
    pub producer: i64,
    /// Raised by a producer that begins anew.
    pub epoch: i16,
    /// The sequence of its first record.
    pub first: i32,
}

/// Bytes that are no batch of magic 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes are no record batch of magic 2")]
pub struct NotABatch(pub usize);

impl Batch {
    /// The batch that these bytes are.
    pub fn read(bytes: &[u8]) -> Result<Self, NotABatch> {
        let error = NotABatch(bytes.len());
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(error)?;
        let length = u32::from_be_bytes(field(header, 8));
        let is_whole =
            u32::try_from(bytes.len()).is_ok_and(|all| all.checked_sub(12) == Some(length));
        let last_delta = i32::from_be_bytes(field(header, 23));
        let offsets = u32::try_from(last_delta).ok().map(|delta| delta + 1);
        let producer = i64::from_be_bytes(field(header, 43));
        let sequenced = (producer >= 0).then(|| Sequenced {
            producer,
            epoch: i16::from_be_bytes(field(header, 51)),
            first: i32::from_be_bytes(field(header, 53)),
        });
        let attributes = u16::from_be_bytes(field(header, 21));
        let is_overwritten = attributes & (APPEND_TIME | DELETE_HORIZON) != 0;
        let [first, largest] = [27, 35].map(|place| i64::from_be_bytes(field(header, place)));
        let is_possible = is_whole
            && header[16] == 2
            && sequenced.is_none_or(|sequenced| sequenced.epoch >= 0 && sequenced.first >= 0);
        let (true, Some(offsets)) = (is_possible, offsets) else { return Err(error) };
        Ok(Self {
            base_offset: i64::from_be_bytes(field(header, 0)),
            epoch: i32::from_be_bytes(field(header, 12)),
            offsets,
            // As in `kafka`: some clients give the last timestamp as the largest, or none.
            max_timestamp: largest.max(if is_overwritten { largest } else { first }),
            sequenced,
            bytes: length + 12,
        })
    }

    /// No batch has fewer bytes.
    pub(crate) const BYTES_MIN: usize = HEADER_BYTES;

    /// The batch with which these bytes begin, if one does, and what follows it.
    pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let length = u32::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
        let length = usize::try_from(length).ok()?.checked_add(12)?;
        let (batch, rest) = bytes.split_at_checked(length)?;
        Self::read(batch).ok().map(|_| (batch, rest))
    }

    /// The offset behind its last record, if offsets go that far.
    #[must_use]
    pub fn end(&self) -> Option<i64> {
        self.base_offset.checked_add(i64::from(self.offsets))
    }
}

impl Sequenced {
    /// The sequence of its last record: after the largest comes 0.
    #[must_use]
    pub fn last(&self, offsets: u32) -> i32 {
        sequence_after(self.first, offsets - 1)
    }
}

/// The sequence that stands so many after this one.
pub(super) fn sequence_after(sequence: i32, steps: u32) -> i32 {
    let end = i64::from(i32::MAX) + 1;
    let after = (i64::from(sequence) + i64::from(steps)) % end;
    i32::try_from(after).expect("below its modulus")
}

/// The first bytes of this batch with another base offset and epoch; the rest of it stays as it is.
#[must_use]
pub fn stamp(batch: &[u8], base_offset: i64, epoch: i32) -> Option<[u8; STAMPED_BYTES]> {
    let mut head: [u8; STAMPED_BYTES] = *batch.first_chunk()?;
    head[..8].copy_from_slice(&base_offset.to_be_bytes());
    head[12..].copy_from_slice(&epoch.to_be_bytes());
    Some(head)
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], place: usize) -> [u8; N] {
    *header[place..].first_chunk().expect("within the header")
}
