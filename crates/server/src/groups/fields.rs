//! Fields of groups that a [`Cursor`] does not know: longer than its texts, or not there.
//!
//! ```text
//! bytes  u32 length · bytes
//! text   u32 length · UTF-8
//! text?  a text, or the length 0xffff_ffff for none
//! ```
//!
//! Invariant: a length is held against the bytes that remain before anything is allocated for it.

use bytes::Bytes;

use crate::cursor::{Cursor, Malformed};

const NONE: u32 = u32::MAX;

pub(super) fn put_count(to: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("Settings bound all counts and lengths below 4 GiB");
    to.extend_from_slice(&count.to_le_bytes());
}

pub(super) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_count(to, bytes.len());
    to.extend_from_slice(bytes);
}

pub(super) fn put_text(to: &mut Vec<u8>, text: &str) {
    put_bytes(to, text.as_bytes());
}

pub(super) fn put_optional(to: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => put_text(to, text),
        None => to.extend_from_slice(&NONE.to_le_bytes()),
    }
}

impl<'a> Cursor<'a> {
    /// A flag in four bytes, so that the others can mean something in a later version.
    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::Field(what, u64::from(other))),
        }
    }

    pub(super) fn blob(&mut self) -> Result<Bytes, Malformed> {
        let length = self.u32()?;
        self.counted(length).map(Bytes::copy_from_slice)
    }

    pub(super) fn name(&mut self) -> Result<String, Malformed> {
        let length = self.u32()?;
        self.name_of(length)
    }

    pub(super) fn optional(&mut self) -> Result<Option<String>, Malformed> {
        match self.u32()? {
            NONE => Ok(None),
            length => self.name_of(length).map(Some),
        }
    }

    fn name_of(&mut self, length: u32) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.counted(length)?);
        text.map(str::to_owned).map_err(|error| Malformed::Text("a name", error))
    }

    fn counted(&mut self, length: u32) -> Result<&'a [u8], Malformed> {
        self.bytes(usize::try_from(length).unwrap_or(usize::MAX))
    }
}
