//! [`Manifest`]: which files are the chapters of a shard.
//!
//! ```text
//!  0 magic       8   "PLIMSHEL"
//!  8 version    u32  1
//! 12 shard      u32
//! 16 next file  u64  a number that no file of the shard had
//! 24 chapter    u64  the last that is settled
//! 32 end        u64  the log index of the entry that ended it
//! 40 files      u32  count, then each, in the order in which they came:
//!                    number u64 · bytes u64 · footer's checksum u64
//!                    runs that are gone: count u32, each: first u32 · last u32
//! .. checksum   u64  XXH3-64 of all before it
//! ```
//!
//! Little-endian. It is replaced as a whole, and has its name once it is durable ([`whole`]). A file that it does
//! not name is nobody's: of a chapter that was not settled, or of one that was freed. A run that is gone is never read
//! again: it stands here before its bytes are given back.

use std::io::ErrorKind;

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::Error;
use super::ranges::Ranges;
use crate::cursor::{Cursor, Malformed};
use crate::whole;

const MAGIC: [u8; 8] = *b"PLIMSHEL";
const VERSION: u32 = 1;
const FILE_BYTES: usize = 28;
/// Its name in the directory of the chapters.
pub const NAME: &str = "manifest";
/// No manifest is larger: 64 million files.
const BYTES_MAX: u64 = 3 << 29;

/// Which files are the chapters of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// A number that no file of the shard had.
    pub next_file: u64,
    /// How far the shard is settled.
    pub settled: Settled,
    /// The files, in the order in which they came.
    pub files: Vec<Named>,
}

/// How far a shard is settled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// The last chapter; 0 if there is none.
    pub chapter: u64,
    /// The log index of the entry that ended it.
    pub end: u64,
}

/// A file of chapters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its number.
    pub number: u64,
    /// Its size.
    pub bytes: u64,
    /// The checksum of its footer.
    pub checksum: u64,
    /// Which of its runs are not read any more.
    pub gone: Ranges,
}

impl Named {
    /// The name of the file.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(self.number)
    }
}

/// The name of the file with this number.
pub(super) fn name_of(number: u64) -> String {
    format!("{number:08}.chapter")
}

impl Manifest {
    /// The manifest of a shard; an empty one if there is none.
    pub fn read(dir: &dyn Dir, shard: u32) -> Result<Self, Error> {
        match whole::open(dir, NAME)? {
            Some(file) => Self::load(&*file, shard),
            None => Ok(Self::default()),
        }
    }

    /// The same, and changes nothing: of a directory that a node may have open.
    pub(crate) fn look(dir: &dyn Dir, shard: u32) -> Result<Self, Error> {
        Self::loaded(dir.open(NAME, SyncMethod::ORDINARY.access()), shard)
    }

    /// The same, past the page cache where there is a way.
    pub(super) fn past_cache(dir: &dyn Dir, shard: u32) -> Result<Self, Error> {
        Self::loaded(whole::open_past_cache(dir, NAME), shard)
    }

    fn loaded(
        opened: plimsoll_sync::Result<std::sync::Arc<dyn File>>,
        shard: u32,
    ) -> Result<Self, Error> {
        match opened {
            Ok(file) => Self::load(&*file, shard),
            Err(error) if error.kind() == Some(ErrorKind::NotFound) => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    fn load(file: &dyn File, shard: u32) -> Result<Self, Error> {
        let damaged = |why| Error::File { file: NAME.to_owned(), why };
        let length = file.len()?;
        if length > BYTES_MAX {
            return Err(damaged(Malformed::Field("the size of a manifest", length)));
        }
        let bytes = whole::read_at(file, 0, usize::try_from(length).unwrap_or(0))?;
        Self::decode(&bytes, shard).map_err(damaged)
    }

    /// Makes it the manifest of the shard. Durable on return.
    pub(crate) fn write(&self, dir: &dyn Dir, shard: u32) -> Result<(), Error> {
        let bytes = self.encode(shard);
        let fill = |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
        Ok(whole::create(dir, NAME, fill).map(drop)?)
    }

    /// What tells what it says of runs from all else. The next number is none of that: it is taken before a file is made
    /// of which nothing may come.
    pub(super) fn checksum(&self, shard: u32) -> u64 {
        let bytes = Self { next_file: 0, ..self.clone() }.encode(shard);
        u64::from_le_bytes(*bytes.last_chunk().expect("it ends with its checksum"))
    }

    /// The number of a file that is to be made. Nobody else gets it, whatever becomes of that file.
    pub(super) fn take_number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file - 1
    }

    /// These runs of a file are not read any more.
    pub(super) fn forget(&mut self, number: u64, runs: &Ranges) {
        if let Some(file) = self.files.iter_mut().find(|file| file.number == number) {
            file.gone.add(runs);
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self, shard: u32) -> Vec<u8> {
        let mut to = MAGIC.to_vec();
        to.extend_from_slice(&VERSION.to_le_bytes());
        to.extend_from_slice(&shard.to_le_bytes());
        for field in [self.next_file, self.settled.chapter, self.settled.end] {
            to.extend_from_slice(&field.to_le_bytes());
        }
        let count = u32::try_from(self.files.len()).expect("files are merged before that");
        to.extend_from_slice(&count.to_le_bytes());
        for file in &self.files {
            for field in [file.number, file.bytes, file.checksum] {
                to.extend_from_slice(&field.to_le_bytes());
            }
            file.gone.encode(&mut to);
        }
        let checksum = XxHash3_64::oneshot(&to);
        to.extend_from_slice(&checksum.to_le_bytes());
        to
    }

    /// The manifest of this shard that these bytes are.
    pub fn decode(bytes: &[u8], shard: u32) -> Result<Self, Malformed> {
        let (body, checksum) = bytes.split_last_chunk().ok_or(Malformed::Short("a manifest"))?;
        let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let mut from = Cursor::new(body, "a manifest");
        let magic: [u8; 8] = from.array()?;
        if magic != MAGIC {
            let magic = u64::from_le_bytes(magic);
            return Err(Malformed::Field("the first bytes of a manifest", magic));
        }
        let (version, of) = (from.u32()?, from.u32()?);
        if version != VERSION {
            return Err(Malformed::Field("the version of a manifest", u64::from(version)));
        }
        if of != shard {
            return Err(Malformed::Field("the shard of a manifest", u64::from(of)));
        }
        let next_file = from.raisable("the next file")?;
        let settled = Settled { chapter: from.u64()?, end: from.raisable("a log index")? };
        let mut files = Vec::new();
        for _ in 0..from.count(FILE_BYTES, "the count of files")? {
            let file = Named {
                number: from.u64()?,
                bytes: from.u64()?,
                checksum: from.u64()?,
                gone: Ranges::decode(&mut from)?,
            };
            if file.number >= next_file {
                return Err(Malformed::Field("the number of a file", file.number));
            }
            files.push(file);
        }
        from.end()?;
        Ok(Self { next_file, settled, files })
    }
}
