//! [`Cursor`]: reading fields of our formats from bytes that may be anything.
//!
//! Invariant: a count is held against the bytes that remain before anything is allocated for it.

/// Bytes that are no entry, or no state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They end within a field.
    #[error("the bytes end within {0}")]
    Short(&'static str),
    /// A field that cannot be.
    #[error("{0} cannot be {1}")]
    Field(&'static str, u64),
    /// A text that is none.
    #[error("{0} is not UTF-8")]
    Text(&'static str, #[source] std::str::Utf8Error),
    /// Something follows the last field.
    #[error("{0} bytes follow the last field of {1}")]
    Trailing(usize, &'static str),
    /// The checksum differs.
    #[error("the checksum is {found:016x}, not {expected:016x}")]
    Checksum {
        /// What stands there.
        expected: u64,
        /// What the bytes have.
        found: u64,
    },
}

/// What is left of some bytes.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    of: &'static str,
}

impl<'a> Cursor<'a> {
    /// Reads these bytes, which are called so in errors.
    pub(crate) fn new(bytes: &'a [u8], of: &'static str) -> Self {
        Self { rest: bytes, of }
    }

    /// All that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Short(self.of))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed::Short(self.of))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// An offset: from 0 on.
    pub(crate) fn offset(&mut self, what: &'static str) -> Result<i64, Malformed> {
        let offset = self.i64()?;
        if offset < 0 { Err(Malformed::Field(what, offset.cast_unsigned())) } else { Ok(offset) }
    }

    /// A number that can be raised for ever.
    pub(crate) fn raisable(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let number = self.u64()?;
        if number > u64::MAX / 2 { Err(Malformed::Field(what, number)) } else { Ok(number) }
    }

    /// How many things follow, each of at least so many bytes.
    pub(crate) fn count(&mut self, each: usize, what: &'static str) -> Result<usize, Malformed> {
        let count = self.u32()?;
        let fits = usize::try_from(count).ok().filter(|count| *count <= self.rest.len() / each);
        fits.ok_or(Malformed::Field(what, u64::from(count)))
    }

    /// Bytes that must be zero, so that they can mean something in a later version.
    pub(crate) fn zeros(&mut self, count: usize, what: &'static str) -> Result<(), Malformed> {
        match self.bytes(count)?.iter().find(|byte| **byte != 0) {
            Some(byte) => Err(Malformed::Field(what, u64::from(*byte))),
            None => Ok(()),
        }
    }

    pub(crate) fn end(&self) -> Result<(), Malformed> {
        match self.rest.len() {
            0 => Ok(()),
            rest => Err(Malformed::Trailing(rest, self.of)),
        }
    }
}

impl<'a> Cursor<'a> {
    /// A text of at most so many bytes, behind its length.
    pub(crate) fn text(&mut self, max: usize, what: &'static str) -> Result<&'a str, Malformed> {
        let length = self.u16()?;
        let bytes = Some(usize::from(length)).filter(|length| *length <= max);
        let bytes = self.bytes(bytes.ok_or(Malformed::Field(what, u64::from(length)))?)?;
        std::str::from_utf8(bytes).map_err(|error| Malformed::Text(what, error))
    }
}

/// Adds a text behind its length.
pub(crate) fn push_text(text: &str, to: &mut Vec<u8>) {
    let length = u16::try_from(text.len()).expect("texts are bounded before they are written");
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(text.as_bytes());
}
