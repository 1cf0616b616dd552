//! Numbers, texts, bytes and arrays as Kafka writes them.
//!
//! ```text
//!              before flexible versions          in them
//! bool, i8     1 byte                            the same
//! i16 i32 i64  2, 4, 8 bytes, big-endian         the same
//! String       length i16, UTF-8                 length + 1 as varint, UTF-8
//! Bytes        length i32, bytes                 length + 1 as varint, bytes
//! Vec          count i32, items                  count + 1 as varint, items
//! Option       length or count -1: none          0: none
//! a struct     its fields                        its fields, count of tags, and of each tag its
//!                                                number, its length and its field
//! ```
//!
//! A [`Reader`] is handed bytes by strangers. It holds every length and every count against the
//! bytes that remain before it allocates, and the counts of one message together against
//! [`ITEMS_MAX`]. Texts are copied, so that whoever keeps a name does not keep a frame; [`Bytes`]
//! are slices of the frame, and keep it.
#![expect(clippy::big_endian_bytes, reason = "Kafka's wire is big-endian; no file of ours is")]

use std::ops::RangeBounds;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::error::ErrorCode;

/// What stands before a frame.
pub(super) const FRAME_LENGTH_BYTES: usize = 4;

/// How many items all arrays of one message may have together.
pub const ITEMS_MAX: usize = 1 << 20;

/// Which fields a message has, and which of the two forms its lengths have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The version of the message.
    pub version: i16,
    /// Whether lengths are varints, and structs end with tags.
    pub flexible: bool,
}

impl Layout {
    /// That of the headers, and of what stands in a record batch.
    pub(super) const PLAIN: Self = Self { version: 0, flexible: false };

    /// Whether a field that these versions have is there.
    pub fn has(self, versions: impl RangeBounds<i16>) -> bool {
        versions.contains(&self.version)
    }

    /// Whether it is there in its place, not behind the others with a tag.
    pub(super) fn places(self, tag: Option<u32>, versions: impl RangeBounds<i16>) -> bool {
        tag.is_none() && self.has(versions)
    }
}

/// A value with a form on the wire.
pub trait Wire: Sized {
    /// The fewest bytes it takes: what a count of such values is held against.
    fn least_bytes(layout: Layout) -> usize;

    /// Takes it off the front of what is left.
    fn read(from: &mut Reader) -> Result<Self, Malformed>;

    /// Appends it.
    fn write(&self, to: &mut Writer);
}

/// Why bytes are not the message that they should be. Nothing can be answered: the sender and we do
/// not mean the same bytes, and the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A value that goes on past the end.
    #[error("{wanted} bytes are asked for where {left} are left")]
    Short {
        /// At least so many.
        wanted: usize,
        /// What there is.
        left: usize,
    },
    /// A length or count that no value has.
    #[error("a length of {0}")]
    Length(i32),
    /// None, where there must be a value.
    #[error("null, where a value must be")]
    Null,
    /// A varint of more than 32 bits.
    #[error("a varint of more than 32 bits")]
    Varint,
    /// A text in another encoding.
    #[error("a text that is not UTF-8")]
    Text,
    /// More items than a message may have.
    #[error("more than {ITEMS_MAX} items in one message")]
    Items,
    /// Bytes behind the last field.
    #[error("{0} bytes are left over")]
    Left(usize),
}

/// Takes values off the front of a frame.
#[derive(Debug)]
pub struct Reader {
    bytes: Bytes,
    layout: Layout,
    items_left: usize,
}

impl Reader {
    /// Reads from the front of `bytes`.
    #[must_use]
    pub const fn new(bytes: Bytes, layout: Layout) -> Self {
        Self { bytes, layout, items_left: ITEMS_MAX }
    }

    /// What is read from here on has this layout.
    pub(super) const fn lay_out(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// The layout of what is read.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Ok if nothing is left.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Malformed::Left(self.bytes.len())) }
    }

    /// The next `length` bytes, not copied.
    pub fn slice(&mut self, length: usize) -> Result<Bytes, Malformed> {
        self.demand(length)?;
        Ok(self.bytes.split_to(length))
    }

    /// Passes over the tags that end a struct.
    pub(super) fn skip_tags(&mut self) -> Result<(), Malformed> {
        self.tags(|_tag, _from| Ok(false))
    }

    /// Takes the tags that end a struct. Those that `read` has no use for are passed over; a value has
    /// exactly the bytes that are said.
    pub(super) fn tags(
        &mut self,
        mut read: impl FnMut(u32, &mut Self) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        if !self.layout.flexible {
            return Ok(());
        }
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let length = self.varint()? as usize;
            self.demand(length)?;
            let rest = self.bytes.split_off(length);
            if read(tag, self)? && !self.bytes.is_empty() {
                return Err(Malformed::Left(self.bytes.len()));
            }
            self.bytes = rest;
        }
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let left = self.bytes.len();
        let array = *self.bytes.first_chunk().ok_or(Malformed::Short { wanted: N, left })?;
        self.bytes.advance(N);
        Ok(array)
    }

    fn demand(&self, wanted: usize) -> Result<(), Malformed> {
        let left = self.bytes.len();
        if wanted <= left { Ok(()) } else { Err(Malformed::Short { wanted, left }) }
    }

    pub(super) fn varint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            if shift == 28 && byte > 0b1111 {
                return Err(Malformed::Varint);
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }

    /// The length of a text; `None` is null.
    fn text_length(&mut self) -> Result<Option<usize>, Malformed> {
        if self.layout.flexible { self.compact() } else { length(i16::read(self)?.into()) }
    }

    /// The length of bytes, or the count of an array; `None` is null.
    fn length(&mut self) -> Result<Option<usize>, Malformed> {
        if self.layout.flexible { self.compact() } else { length(i32::read(self)?) }
    }

    fn compact(&mut self) -> Result<Option<usize>, Malformed> {
        Ok(self.varint()?.checked_sub(1).map(|length| length as usize))
    }

    /// Believes a count of items only if what is left could hold them.
    fn believe<T: Wire>(&mut self, count: usize) -> Result<(), Malformed> {
        self.demand(count.saturating_mul(T::least_bytes(self.layout).max(1)))?;
        self.items_left = self.items_left.checked_sub(count).ok_or(Malformed::Items)?;
        Ok(())
    }
}

/// The length of a frame, if so much of it has come.
pub(super) fn frame_length(received: &[u8]) -> Option<i32> {
    received.first_chunk().map(|length| i32::from_be_bytes(*length))
}

fn length(said: i32) -> Result<Option<usize>, Malformed> {
    match said {
        -1 => Ok(None),
        _ => usize::try_from(said).map(Some).map_err(|_negative| Malformed::Length(said)),
    }
}

/// Appends values to a frame. Records are not copied: they come out as pieces of their own, to be
/// written one after the other.
#[derive(Debug)]
pub struct Writer {
    /// All bytes but the spliced ones.
    bytes: BytesMut,
    /// Bytes that belong in, each before the byte of `bytes` that has this place.
    spliced: Vec<(usize, Bytes)>,
    layout: Layout,
    errors: Vec<ErrorCode>,
}

impl Writer {
    /// An empty one.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self {
            bytes: BytesMut::with_capacity(128),
            spliced: Vec::new(),
            layout,
            errors: Vec::new(),
        }
    }

    /// One with room for the length of a frame, in the layout of headers.
    pub(super) fn of_a_frame() -> Self {
        let mut to = Self::new(Layout::PLAIN);
        to.bytes.put_bytes(0, FRAME_LENGTH_BYTES);
        to
    }

    /// The errors that were written, which are none any more.
    pub(super) fn take_errors(&mut self) -> Vec<ErrorCode> {
        std::mem::take(&mut self.errors)
    }

    /// What is written from here on has this layout.
    pub(super) const fn lay_out(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// The layout of what is written.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// What was written behind the room that [`Self::of_a_frame`] left, and its length there; in
    /// pieces.
    ///
    /// # Panics
    /// If that is more than a frame can have.
    #[must_use]
    pub(super) fn frame(mut self) -> Vec<Bytes> {
        let spliced: usize = self.spliced.iter().map(|(_, bytes)| bytes.len()).sum();
        let length = self.bytes.len() - FRAME_LENGTH_BYTES + spliced;
        let length = i32::try_from(length).expect("no frame is longer than 2 GiB");
        self.bytes[..FRAME_LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        self.pieces()
    }

    /// What was written, where nothing was spliced.
    pub(super) fn into_bytes(self) -> Bytes {
        assert!(self.spliced.is_empty(), "one piece");
        self.bytes.freeze()
    }

    /// What was written, in pieces, none of them empty.
    pub(super) fn pieces(self) -> Vec<Bytes> {
        let bytes = self.bytes.freeze();
        let mut pieces = Vec::with_capacity(1 + 2 * self.spliced.len());
        let mut from = 0;
        for (place, spliced) in self.spliced {
            pieces.extend([bytes.slice(from..place), spliced]);
            from = place;
        }
        pieces.push(bytes.slice(from..));
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }

    /// Appends bytes as they are, without copying them.
    pub fn splice(&mut self, bytes: Bytes) {
        self.spliced.push((self.bytes.len(), bytes));
    }

    /// Appends a few bytes, copied.
    pub(super) fn copy(&mut self, bytes: &[u8]) {
        self.bytes.put_slice(bytes);
    }

    pub(super) fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.put_u8(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.bytes.put_u8(value.to_le_bytes()[0]);
    }

    fn text_length(&mut self, length: Option<usize>) {
        if self.layout.flexible {
            return self.compact(length);
        }
        length
            .map_or(-1, |length| i16::try_from(length).expect("no text of ours is longer"))
            .write(self);
    }

    /// The length of bytes, or the count of an array; `None` is null.
    pub(super) fn count(&mut self, length: Option<usize>) {
        if self.layout.flexible {
            return self.compact(length);
        }
        length.map_or(-1, |length| i32::try_from(length).expect("nor any array")).write(self);
    }

    fn compact(&mut self, length: Option<usize>) {
        let said = length.map_or(0, |length| length + 1);
        self.varint(u32::try_from(said).expect("nor any array"));
    }
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Wire for $number {
            fn least_bytes(_: Layout) -> usize {
                size_of::<Self>()
            }

            fn read(from: &mut Reader) -> Result<Self, Malformed> {
                Ok(Self::from_be_bytes(from.array()?))
            }

            fn write(&self, to: &mut Writer) {
                to.bytes.put_slice(&self.to_be_bytes());
            }
        }
    )+};
}

numbers!(i8 i16 i32 u32 i64);

impl Wire for bool {
    fn least_bytes(_: Layout) -> usize {
        1
    }

    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        Ok(i8::read(from)? != 0)
    }

    fn write(&self, to: &mut Writer) {
        i8::from(*self).write(to);
    }
}

impl Wire for ErrorCode {
    fn least_bytes(_: Layout) -> usize {
        2
    }

    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        Ok(i16::read(from)?.into())
    }

    fn write(&self, to: &mut Writer) {
        if *self != Self::None {
            to.errors.push(*self);
        }
        i16::from(*self).write(to);
    }
}

impl Wire for String {
    fn least_bytes(layout: Layout) -> usize {
        Option::<Self>::least_bytes(layout)
    }

    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        Option::read(from)?.ok_or(Malformed::Null)
    }

    fn write(&self, to: &mut Writer) {
        to.text_length(Some(self.len()));
        to.bytes.put_slice(self.as_bytes());
    }
}

impl Wire for Option<String> {
    fn least_bytes(layout: Layout) -> usize {
        if layout.flexible { 1 } else { 2 }
    }

    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        let Some(length) = from.text_length()? else { return Ok(None) };
        let bytes = from.slice(length)?;
        let text = str::from_utf8(&bytes).map_err(|_not_utf8| Malformed::Text)?;
        Ok(Some(text.to_owned()))
    }

    fn write(&self, to: &mut Writer) {
        match self {
            Some(text) => text.write(to),
            None => to.text_length(None),
        }
    }
}

impl Wire for Bytes {
    fn least_bytes(layout: Layout) -> usize {
        Option::<Self>::least_bytes(layout)
    }

    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        Option::read(from)?.ok_or(Malformed::Null)
    }

    fn write(&self, to: &mut Writer) {
        to.count(Some(self.len()));
        to.splice(self.clone());
    }
}

impl Wire for Option<Bytes> {
    fn least_bytes(layout: Layout) -> usize {
        if layout.flexible { 1 } else { 4 }
    }

    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        from.length()?.map(|length| from.slice(length)).transpose()
    }

    fn write(&self, to: &mut Writer) {
        match self {
            Some(bytes) => bytes.write(to),
            None => to.count(None),
        }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn least_bytes(layout: Layout) -> usize {
        Option::<Self>::least_bytes(layout)
    }

    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        Option::read(from)?.ok_or(Malformed::Null)
    }

    fn write(&self, to: &mut Writer) {
        to.count(Some(self.len()));
        for item in self {
            item.write(to);
        }
    }
}

impl<T: Wire> Wire for Option<Vec<T>> {
    fn least_bytes(layout: Layout) -> usize {
        if layout.flexible { 1 } else { 4 }
    }

    fn read(from: &mut Reader) -> Result<Self, Malformed> {
        let Some(count) = from.length()? else { return Ok(None) };
        from.believe::<T>(count)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::read(from)?);
        }
        Ok(Some(items))
    }

    fn write(&self, to: &mut Writer) {
        match self {
            Some(items) => items.write(to),
            None => to.count(None),
        }
    }
}
