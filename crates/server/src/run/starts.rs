//! [`Starts`]: what the starts of this directory drew; the file `starts` in it.
//!
//! ```text
//!  byte offset  bytes
//!            0      8  "PLIMSBEG"
//!            8      4  version: 1
//!           12      4  1: others have refused this directory; else 0
//!           16      4  count, at most 4096: the oldest go
//!           20      4  zeros
//!           24     16  each, ascending: incarnation u64 · what that start drew u64, never 0
//!            …      8  XXH3-64 of all before
//! ```
//!
//! Little-endian. A directory that went back to an earlier state counts its next start as the one that it forgot was counted,
//! and the one behind that higher: it is by what that start drew that it is told from one that remembers it, and by all that
//! starts drew that every later one is.

use std::io::ErrorKind;

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::Result;
use crate::cursor::{Cursor, Malformed};
use crate::whole;

/// The file.
const STARTS: &str = "starts";
const MAGIC: [u8; 8] = *b"PLIMSBEG";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 24;
const START_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;
const STARTS_MAX: usize = 4096;

/// An incarnation, and what that start drew.
pub type Begun = (u64, u64);

/// The starts of a directory, as far as it knows of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Starts {
    /// Incarnations, ascending, and what they drew.
    drew: Vec<Begun>,
    is_refused: bool,
}

impl Starts {
    /// Those of a directory; none if it is new, of a version that kept none, or what it kept is damaged.
    ///
    /// # Errors
    /// It cannot be read just now.
    pub fn read(dir: &dyn Dir) -> Result<Self> {
        let file = match dir.open(STARTS, SyncMethod::ORDINARY.access()) {
            Err(why) if why.kind() == Some(ErrorKind::NotFound) => return Ok(Self::default()),
            opened => opened?,
        };
        let mut bytes = vec![0; HEAD_BYTES + STARTS_MAX * START_BYTES + CHECKSUM_BYTES + 1];
        let length = file.read_at(&mut bytes, 0)?;
        Ok(Self::decode(&bytes[..length]).unwrap_or_else(|why| {
            tracing::warn!(%why, "the file 'starts' is damaged: what earlier starts drew is not known");
            Self::default()
        }))
    }

    /// Adds one. Durable on return.
    pub(crate) fn add(mut self, dir: &dyn Dir, incarnation: u64, drawn: u64) -> Result<Self> {
        self.drew.retain(|(earlier, _)| *earlier < incarnation);
        self.drew.push((incarnation, drawn));
        self.drew.drain(..self.drew.len().saturating_sub(STARTS_MAX));
        self.write(dir)?;
        Ok(self)
    }

    /// Others have refused the directory: it is not to be begun with any more. Durable on return.
    pub(crate) fn refuse(dir: &dyn Dir) -> Result<()> {
        Self { is_refused: true, ..Self::read(dir)? }.write(dir)
    }

    /// Whether others have refused the directory.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The newest, so many at most, ascending.
    #[must_use]
    pub fn newest(&self, most: usize) -> &[Begun] {
        &self.drew[self.drew.len().saturating_sub(most)..]
    }

    /// The incarnation of the last; 0 if none is known.
    pub(super) fn last(&self) -> u64 {
        self.drew.last().map_or(0, |(incarnation, _)| *incarnation)
    }

    /// Whether it is known that this start was none of this directory.
    pub(super) fn lack(&self, then: Begun) -> bool {
        lack(&self.drew, then)
    }

    fn write(&self, dir: &dyn Dir) -> Result<()> {
        let bytes = self.encode();
        let fill = |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
        Ok(whole::create(dir, STARTS, fill).map(drop)?)
    }

    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.drew.len()).expect("they are bounded");
        let mut bytes =
            Vec::with_capacity(HEAD_BYTES + self.drew.len() * START_BYTES + CHECKSUM_BYTES);
        bytes.extend_from_slice(&MAGIC);
        for word in [VERSION, u32::from(self.is_refused), count, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for (incarnation, drawn) in &self.drew {
            bytes.extend_from_slice(&incarnation.to_le_bytes());
            bytes.extend_from_slice(&drawn.to_le_bytes());
        }
        let checksum = XxHash3_64::oneshot(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The starts that these bytes are.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, Malformed> {
        let short = Malformed::Field("the length of a list of starts", bytes.len() as u64);
        let (body, checksum) = bytes.split_last_chunk().ok_or(short)?;
        let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let mut from = Cursor::new(body, "a list of starts");
        if from.array()? != MAGIC {
            return Err(Malformed::Field("the first byte of a list of starts", u64::from(body[0])));
        }
        let version = from.u32()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of a list of starts", version.into()));
        }
        let is_refused = match from.u32()? {
            0 => false,
            1 => true,
            other => return Err(Malformed::Field("whether it is refused", other.into())),
        };
        let count = from.u32()?;
        if count as usize > STARTS_MAX {
            return Err(Malformed::Field("the count of starts", count.into()));
        }
        from.zeros(4, "a byte before the starts")?;
        let mut drew: Vec<Begun> = Vec::new();
        for _ in 0..count {
            let (incarnation, drawn) = (from.raisable("an incarnation")?, from.u64()?);
            if drawn == 0 || drew.last().is_some_and(|(last, _)| *last >= incarnation) {
                return Err(Malformed::Field("the next start", incarnation));
            }
            drew.push((incarnation, drawn));
        }
        from.end()?;
        Ok(Self { drew, is_refused })
    }
}

/// Whether these starts of a directory, ascending, reach back to that one, and it is none of them.
pub(crate) fn lack(starts: &[Begun], then: Begun) -> bool {
    starts.first().is_some_and(|first| first.0 <= then.0) && !starts.contains(&then)
}
