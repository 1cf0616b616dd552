//! [`Entry`]: what a shard agrees on at once, and [`Draft`], one that is being made.
//!
//! ```text
//!  0 version  u8   1
//!  1 flags    u8   1: nothing may be said of this entry before it is durable
//!  2 items    u16
//!  4 length   u32  of the whole entry
//!  8 time     u64  of the append, in ms since 1970; never below the entry's before it
//! 16 items
//!
//! item   0 kind     u8
//!        1 zeros    3
//!        4 length   u32  of the body
//!        8 body          see `item.rs`
//! ```
//!
//! Little-endian; the batches within are Kafka's. An entry has no checksum of its own: the log's frame
//! around it has one, and each batch has Kafka's.

use bytes::Bytes;

use super::batch::{Batch, stamp};
use super::item::Item;
use super::name::Opening;
use crate::cursor::{Cursor, Malformed};

/// Version of the format.
pub const VERSION: u8 = 1;
/// An entry is at most so large, or holds one item.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

const HEADER_BYTES: usize = 16;
const ITEM_HEADER_BYTES: usize = 8;
/// The opening, before a batch.
const OPENING_BYTES: usize = 24;
/// A ceiling, behind its opening.
const CEILING_BYTES: usize = 8;
/// Bytes of an entry beside its only batch, at most: with a ceiling before it and one behind.
pub const BATCH_OVERHEAD_BYTES: usize =
    HEADER_BYTES + 3 * (ITEM_HEADER_BYTES + OPENING_BYTES) + 2 * CEILING_BYTES;
const MUST_BE_DURABLE: u8 = 1;

/// What a shard agrees on at once.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// When it was appended, in ms since 1970, by the leader's clock.
    pub time: u64,
    /// Whether nothing may be said of it before it is durable.
    pub must_be_durable: bool,
    count: u16,
    items: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Reads the head of an entry; its items are read one by one.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "an entry");
        let [version, flags] = from.array()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of an entry", u64::from(version)));
        }
        if flags & !MUST_BE_DURABLE != 0 {
            return Err(Malformed::Field("the flags of an entry", u64::from(flags)));
        }
        let count = from.u16()?;
        let length = from.u32()?;
        if usize::try_from(length) != Ok(bytes.len()) {
            return Err(Malformed::Field("the length of an entry", u64::from(length)));
        }
        let time = from.u64()?;
        let must_be_durable = flags & MUST_BE_DURABLE != 0;
        Ok(Self { time, must_be_durable, count, items: from.rest() })
    }

    /// The item of an entry that begins at this place.
    pub(super) fn item_at(bytes: &'a [u8], place: usize) -> Result<Item<'a>, Malformed> {
        let from = bytes.get(place..).ok_or(Malformed::Short("an entry"))?;
        let (kind, body) = next_body(&mut Cursor::new(from, "an item"))?;
        Item::decode(kind, body)
    }

    /// Its items, in the order in which they are applied. After an error comes nothing.
    pub fn items(&self) -> impl Iterator<Item = Result<Item<'a>, Malformed>> + use<'a> {
        let mut from = Cursor::new(self.items, "an entry's items");
        let mut left = self.count;
        std::iter::from_fn(move || {
            if left == 0 {
                // Bytes behind the last item are reported once.
                let end = from.end().err();
                from = Cursor::new(&[], "an entry's items");
                return end.map(Err);
            }
            left -= 1;
            let item = next_body(&mut from).and_then(|(kind, body)| Item::decode(kind, body));
            if item.is_err() {
                left = 0;
                from = Cursor::new(&[], "an entry's items");
            }
            Some(item)
        })
    }
}

/// Where each item of an entry begins. What stands in them is not looked at.
pub(super) fn item_places(bytes: &[u8]) -> Result<Vec<u32>, Malformed> {
    let entry = Entry::decode(bytes)?;
    let mut from = Cursor::new(entry.items, "an entry's items");
    let at_most = entry.items.len() / ITEM_HEADER_BYTES;
    let mut places = Vec::with_capacity(usize::from(entry.count).min(at_most));
    for _ in 0..entry.count {
        let place = bytes.len() - from.rest().len();
        places.push(u32::try_from(place).expect("an entry is below 4 GiB"));
        next_body(&mut from)?;
    }
    from.end()?;
    Ok(places)
}

/// The kind of the next item, and its body.
fn next_body<'a>(from: &mut Cursor<'a>) -> Result<(u8, &'a [u8]), Malformed> {
    let [kind] = from.array()?;
    from.zeros(3, "a reserved byte of an item")?;
    let length = from.u32()?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    Ok((kind, from.bytes(length)?))
}

/// An entry that is being made.
#[derive(Debug)]
pub struct Draft {
    /// The entry so far, its head still zeros.
    bytes: Vec<u8>,
    items: u16,
    must_be_durable: bool,
}

impl Draft {
    /// Begins an entry without items.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], items: 0, must_be_durable: false }
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Whether a batch of so many bytes may go in, and a ceiling before and behind it: what is alone
    /// always may.
    #[must_use]
    pub fn has_room(&self, batch_bytes: usize) -> bool {
        let with_it = self.bytes.len() - HEADER_BYTES + BATCH_OVERHEAD_BYTES + batch_bytes;
        self.items == 0 || (with_it <= ENTRY_BYTES_MAX && self.items < u16::MAX - 2)
    }

    /// Adds a batch, with its stamp. It must be one ([`Batch::read`]).
    pub fn push_batch(&mut self, opening: Opening, base_offset: i64, epoch: i32, batch: &[u8]) {
        debug_assert!(Batch::read(batch).is_ok(), "what is stamped is a batch");
        let head = stamp(batch, base_offset, epoch).expect("a batch has a header");
        self.bytes.reserve(ITEM_HEADER_BYTES + OPENING_BYTES + batch.len());
        self.add(1, |to| {
            opening.encode(to);
            to.extend_from_slice(&head);
            to.extend_from_slice(&batch[head.len()..]);
        });
    }

    /// Adds anything but a batch.
    pub fn push(&mut self, item: &Item<'_>) {
        self.add(item.kind(), |to| item.encode(to));
        self.must_be_durable |= item.must_be_durable();
    }

    /// Has nothing said of the entry before it is durable.
    pub fn make_durable(&mut self) {
        self.must_be_durable = true;
    }

    /// Whether nothing may be said of the entry before it is durable.
    #[must_use]
    pub fn must_be_durable(&self) -> bool {
        self.must_be_durable
    }

    /// The entry. It takes no more memory than it has bytes: a tail holds it for long.
    #[must_use]
    pub fn finish(mut self, time: u64) -> Bytes {
        let length = u32::try_from(self.bytes.len()).expect("an entry is below 4 GiB");
        let head = &mut self.bytes[..HEADER_BYTES];
        head[0] = VERSION;
        head[1] = if self.must_be_durable { MUST_BE_DURABLE } else { 0 };
        head[2..4].copy_from_slice(&self.items.to_le_bytes());
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[8..].copy_from_slice(&time.to_le_bytes());
        self.bytes.shrink_to_fit();
        Bytes::from(self.bytes)
    }

    /// Adds an item of this kind, whose body `encode` appends.
    fn add(&mut self, kind: u8, encode: impl FnOnce(&mut Vec<u8>)) {
        self.items = self.items.checked_add(1).expect("has_room was asked");
        let place = self.bytes.len();
        self.bytes.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
        encode(&mut self.bytes);
        let (head, body) = self.bytes[place..].split_at_mut(ITEM_HEADER_BYTES);
        let length = u32::try_from(body.len()).expect("an item is below 4 GiB");
        head[4..].copy_from_slice(&length.to_le_bytes());
    }
}
