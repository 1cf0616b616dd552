//! The records of a batch, read one after the other, and written.
//!
//! ```text
//! length of what follows     varint
//! attributes, 0              i8
//! timestamp                  varint   ms, less the batch's base timestamp
//! offset                     varint   less the batch's base offset
//! length of the key          varint   -1: none
//! the key
//! length of the value        varint   -1: none
//! the value
//! headers                    varint
//!   length of its key        varint   and the key
//!   length of its value      varint   -1: none; and the value
//! ```
//!
//! A varint has the sign in its lowest bit, and seven bits a byte, the lowest first.
//!
//! Who stores or fetches never comes here (`batch.rs`), and who appends with what is not compressed
//! only. Here come those who must know a record: our own client, and whoever looks for a time.
//!
//! **Invariant:** whatever the bytes say, no memory is taken for it but that of decompressing,
//! which the caller bounds ([`Compression`]).

use bytes::Bytes;

use super::batch::{self, Batch, Header, Producer};
use super::compression::{self, Compression};

/// The most bytes of a varint.
const VARINT_BYTES_MAX: u32 = 10;

/// The records of a batch, decompressed.
#[derive(Debug, Clone)]
pub struct Records {
    header: Header,
    bytes: Bytes,
}

/// A record, as slices of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its offset.
    pub offset: i64,
    /// In milliseconds: its producer's, or that of appending, as the topic is set.
    pub timestamp: i64,
    /// Its key, if it has one.
    pub key: Option<&'a [u8]>,
    /// Its value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: Headers<'a>,
}

/// The headers of a record, in their order: keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers<'a> {
    left: i32,
    fields: Fields<'a>,
}

/// Why there are no records in a batch, or not those that it says.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// They were not decompressed.
    #[error(transparent)]
    Compressed(#[from] compression::Error),
    /// A field that goes on past the end of its record, or of the batch.
    #[error("{left} bytes are left for {what}")]
    Short {
        /// What ends too soon.
        what: &'static str,
        /// How many bytes there are.
        left: usize,
    },
    /// A number that its field cannot be.
    #[error("{what} of {value}")]
    Field {
        /// Which.
        what: &'static str,
        /// What it says.
        value: i64,
    },
    /// A number of more than 64 bits.
    #[error("a number of more than 64 bits for {what}")]
    Varint {
        /// Of what.
        what: &'static str,
    },
    /// Bytes behind the last field of a record, or behind the last record.
    #[error("{0} bytes are left over")]
    Left(usize),
}

/// The first record from this offset on with this timestamp or a later one: its offset and its timestamp. At most
/// so many bytes are decompressed.
pub fn first_since(
    batch: &Batch,
    from: i64,
    timestamp: i64,
    limit_bytes: usize,
) -> Result<Option<(i64, i64)>, Wrong> {
    let header = batch.header();
    if header.has_append_time() {
        let at = header.max_timestamp();
        let first = header.base_offset().max(from);
        return Ok((at >= timestamp && first <= header.last_offset()).then_some((first, at)));
    }
    for record in &Records::of(batch, limit_bytes)? {
        let record = record?;
        if record.offset >= from && record.timestamp >= timestamp {
            return Ok(Some((record.offset, record.timestamp)));
        }
    }
    Ok(None)
}

/// Looks at each record of a batch that is not compressed: as many as its header says, each in its place,
/// and nothing behind.
pub fn check(batch: &Batch) -> Result<(), batch::Wrong> {
    if batch.header().compression() != Compression::None {
        return Ok(());
    }
    let records = Records::of(batch, batch.bytes()).expect("they are not compressed");
    for (nth, record) in (0..).zip(&records) {
        if record.map_or(-1, |record| record.offset) != batch.header().base_offset() + nth {
            return Err(batch::Wrong::Record(nth));
        }
    }
    Ok(())
}

/// Looks whether each record of a batch has a key. One that is compressed is decompressed for that, unless it has more bytes
/// than these. How many that were, and what was found.
pub fn check_keys(batch: &Batch, limit_bytes: usize) -> (usize, Result<(), batch::Wrong>) {
    let records = match Records::of(batch, limit_bytes) {
        Ok(records) => records,
        Err(Wrong::Compressed(compression::Error::TooLarge { .. })) => {
            return (limit_bytes, Ok(()));
        }
        Err(_) => return (limit_bytes, Err(batch::Wrong::Record(0))),
    };
    (records.bytes.len(), have_keys(&records))
}

fn have_keys(records: &Records) -> Result<(), batch::Wrong> {
    for (seen, record) in (0..).zip(records) {
        match record {
            Ok(record) if record.key.is_none() => return Err(batch::Wrong::NoKey(seen)),
            Ok(_) => {}
            Err(_) => return Err(batch::Wrong::Record(seen)),
        }
    }
    Ok(())
}

/// What is left of a batch.
#[derive(Debug)]
pub enum Retained {
    /// All of it.
    All,
    /// These records.
    Some(Batch),
    /// Nothing.
    None,
}

/// A batch with those of its records alone for which `keep` holds, compressed as it was. At most so many bytes are
/// decompressed.
pub fn retain(
    batch: &Batch,
    limit_bytes: usize,
    mut keep: impl FnMut(&Record<'_>) -> bool,
) -> Result<Retained, Wrong> {
    let records = Records::of(batch, limit_bytes)?;
    let (mut kept, mut count, mut max_timestamp) = (Vec::new(), 0, i64::MIN);
    let mut all = records.iter();
    loop {
        let before = all.fields.0;
        let Some(record) = all.next() else { break };
        let record = record?;
        if keep(&record) {
            kept.extend_from_slice(&before[..before.len() - all.fields.0.len()]);
            max_timestamp = max_timestamp.max(record.timestamp);
            count += 1;
        }
    }
    Ok(match count {
        0 => Retained::None,
        _ if count == batch.header().count() => Retained::All,
        _ => Retained::Some(batch.with_fewer(count, max_timestamp, kept)),
    })
}

impl Records {
    /// Those of a batch. Where it is compressed, at most so many bytes come of it.
    pub fn of(batch: &Batch, limit_bytes: usize) -> Result<Self, Wrong> {
        let header = *batch.header();
        let bytes = header.compression().decompress(batch.records(), limit_bytes)?;
        Ok(Self { header, bytes })
    }

    /// One after the other. Behind the first that is wrong there is none.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { header: &self.header, left: self.header.count(), fields: Fields(&self.bytes) }
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = Result<Record<'a>, Wrong>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Gives records as they are read.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    header: &'a Header,
    left: i32,
    fields: Fields<'a>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<Record<'a>, Wrong>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let left = std::mem::take(&mut self.fields.0).len();
            return (left > 0).then_some(Err(Wrong::Left(left)));
        }
        self.left -= 1;
        let record = self.fields.record(self.header);
        if record.is_err() {
            (self.left, self.fields) = (0, Fields(&[]));
        }
        Some(record)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        Some(self.fields.header().expect("they were walked when the record was read"))
    }
}

/// Takes fields off the front of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn record(&mut self, header: &Header) -> Result<Record<'a>, Wrong> {
        let mut record = Fields(self.some("a record")?);
        record.bytes(1, "attributes")?;
        let timestamp = header.base_timestamp().wrapping_add(record.varint("a timestamp")?);
        let offset = record.offset(header)?;
        let key = record.optional("a key")?;
        let value = record.optional("a value")?;
        let headers = record.headers()?;
        Ok(Record {
            offset,
            timestamp: if header.has_append_time() { header.max_timestamp() } else { timestamp },
            key,
            value,
            headers,
        })
    }

    fn offset(&mut self, header: &Header) -> Result<i64, Wrong> {
        let value = self.varint("an offset")?;
        let offset = header.base_offset().saturating_add(value);
        if value >= 0 && offset <= header.last_offset() {
            Ok(offset)
        } else {
            Err(Wrong::Field { what: "an offset delta", value })
        }
    }

    /// The headers that end a record, each walked once.
    fn headers(&mut self) -> Result<Headers<'a>, Wrong> {
        let value = self.varint("a count of headers")?;
        let wrong = |_| Wrong::Field { what: "a count of headers", value };
        let left = u32::try_from(value).and_then(i32::try_from).map_err(wrong)?;
        let headers = Headers { left, fields: *self };
        for _ in 0..left {
            self.header()?;
        }
        if self.0.is_empty() { Ok(headers) } else { Err(Wrong::Left(self.0.len())) }
    }

    fn header(&mut self) -> Result<(&'a [u8], Option<&'a [u8]>), Wrong> {
        Ok((self.some("a header's key")?, self.optional("a header's value")?))
    }

    fn some(&mut self, what: &'static str) -> Result<&'a [u8], Wrong> {
        self.optional(what)?.ok_or(Wrong::Field { what, value: -1 })
    }

    fn optional(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, Wrong> {
        match self.varint(what)? {
            -1 => Ok(None),
            value => {
                let length = usize::try_from(value);
                let length = length.map_err(|_negative| Wrong::Field { what, value })?;
                self.bytes(length, what).map(Some)
            }
        }
    }

    fn bytes(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], Wrong> {
        let short = Wrong::Short { what, left: self.0.len() };
        let (taken, rest) = self.0.split_at_checked(length).ok_or(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self, what: &'static str) -> Result<i64, Wrong> {
        let mut value = 0;
        for place in 0..VARINT_BYTES_MAX {
            let byte = self.bytes(1, what)?[0];
            if place == VARINT_BYTES_MAX - 1 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(Wrong::Varint { what })
    }
}

/// Records that are to be a batch.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    bytes: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl Draft {
    /// Whether it has no record yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many records it has.
    #[must_use]
    pub const fn count(&self) -> i32 {
        self.count
    }

    /// How many bytes its records have before they are compressed.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a record.
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        if self.is_empty() {
            (self.base_timestamp, self.max_timestamp) = (timestamp, timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let mut record = vec![0];
        push_varint(timestamp.wrapping_sub(self.base_timestamp), &mut record);
        push_varint(self.count.into(), &mut record);
        push_optional(key, &mut record);
        push_optional(value, &mut record);
        push_length(headers.len(), &mut record);
        for (key, value) in headers {
            push_optional(Some(key), &mut record);
            push_optional(*value, &mut record);
        }
        push_optional(Some(&record), &mut self.bytes);
        self.count += 1;
    }

    /// The batch of them, as a producer sends it.
    ///
    /// # Panics
    /// If there are no records, or 2 GiB of them.
    #[must_use]
    pub fn batch(self, compression: Compression, producer: Option<Producer>) -> Batch {
        assert!(!self.is_empty(), "a batch has records");
        let timestamps = (self.base_timestamp, self.max_timestamp);
        let records = compression.compress(self.bytes).into();
        Batch::made(compression, timestamps, self.count, producer, records)
    }
}

fn push_varint(value: i64, to: &mut Vec<u8>) {
    let mut value = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while value >= 0x80 {
        to.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    to.push(value.to_le_bytes()[0]);
}

fn push_length(length: usize, to: &mut Vec<u8>) {
    push_varint(i64::try_from(length).expect("a slice is no longer"), to);
}

fn push_optional(bytes: Option<&[u8]>, to: &mut Vec<u8>) {
    match bytes {
        None => push_varint(-1, to),
        Some(bytes) => {
            push_length(bytes.len(), to);
            to.extend_from_slice(bytes);
        }
    }
}
