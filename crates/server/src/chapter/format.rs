//! The bytes of a chapter's file. Equal on every replica: they are a function of the log.
//!
//! ```text
//! header 64    0 magic       8   "PLIMCHAP"
//!              8 version    u32  1
//!             12 shard      u32
//!             16 zeros      40
//!             56 checksum   u64  of all before it
//!
//! batches            of one run after the other, as they came from the log
//!
//! blocks, 56 each    of one run after the other: some batches that follow each other
//!              0 base offset    i64  of the first batch
//!              8 max timestamp  i64  the largest in its run, up to and with this block
//!             16 time           u64  when the first batch was appended, in ms since 1970
//!             24 log index      u64  of the entry with the first batch
//!             32 place          u64  of the first batch in its run
//!             40 item           u16  number of the first batch in its entry
//!             42 batches        u16
//!             44 bytes          u32
//!             48 hash           u64  of all of this, of the run, and of the batches
//!
//! runs, 128 each     sorted by topic, partition, opening and chapter
//!              0 topic id 16 · partition u32 · opening u32
//!             24 chapter        u64
//!             32 base offset    i64  of the first batch
//!             40 end offset     i64  behind the last
//!             48 max timestamp  i64
//!             56 first time     u64  when the first batch was appended
//!             64 last time      u64  when the last was
//!             72 place          u64  of its batches in the file
//!             80 bytes          u64
//!             88 first block    u64  the number of its first block in the file
//!             96 blocks         u32
//!            100 zeros           4
//!            104 hash           u64  of the hashes of its blocks
//!            112 compacted      u64  when it was compacted first, in ms since 1970; 0: it was not
//!            120 checksum       u64  of all before it
//!
//! fences, 32 each    the names of each 64th run, and of the last: which rows to look at for one
//!              0 topic id 16 · partition u32 · opening u32
//!             24 chapter        u64
//!
//! footer 128   0 magic       8   "PLIMCEND"
//!              8 version    u32  1
//!             12 runs       u32  how many
//!             16 first      u64  chapter
//!             24 last       u64  chapter
//!             32 first index u64  of the log: behind the end of the chapter before
//!             40 last index u64  of the log: the end of the last chapter
//!             48 time       u64  when the last chapter ended, in ms since 1970
//!             56 blocks     u64  how many
//!             64 blocks at  u64  their place in the file
//!             72 runs at    u64  theirs
//!             80 file bytes u64
//!             88 runs' hash u64  of the hashes of all runs
//!             96 fences' hash u64
//!            104 zeros      16
//!            120 checksum   u64  of all before it
//! ```
//!
//! Little-endian; the batches are Kafka's. All hashes and checksums are XXH3-64. The hash of a block begins with
//! that of the run it is of (topic to chapter), goes on with one batch after the other, each hashed with the hash
//! so far as its seed, and ends with its own fields, likewise. So a block that was verified is of that run, at
//! those offsets: neither bytes nor index are believed alone.
//!
//! A block ends where the next batch would make it larger than [`BLOCK_BYTES`]; a larger batch is one alone.

use twox_hash::XxHash3_64;

use crate::cursor::{Cursor, Malformed};
use crate::shard::{Batch, Opening};

const HEADER_MAGIC: [u8; 8] = *b"PLIMCHAP";
const FOOTER_MAGIC: [u8; 8] = *b"PLIMCEND";
/// The version of a file's format.
pub const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 64;
pub(super) const BLOCK_HEAD_BYTES: usize = 56;
pub(super) const RUN_BYTES: usize = 128;
pub(super) const FENCE_BYTES: usize = 32;
pub(super) const FOOTER_BYTES: usize = 128;
const CHECKSUM_BYTES: usize = 8;
/// Rows of the table between two fences.
pub(super) const FENCED_RUNS: u32 = 64;
/// Batches that are read and verified together have at most so many bytes, but for one that is larger.
pub const BLOCK_BYTES: usize = 32 << 10;

/// Some batches of a run that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Offset of the first batch.
    pub base_offset: i64,
    /// The largest timestamp in its run, up to and with this block.
    pub max_timestamp: i64,
    /// When the first batch was appended, in ms since 1970.
    pub time: u64,
    /// Log index of the entry with the first batch.
    pub index: u64,
    /// Place of the first batch in its run.
    pub place: u64,
    /// Number of the first batch in its entry.
    pub item: u16,
    /// How many batches.
    pub batches: u16,
    /// Their bytes.
    pub bytes: u32,
    /// Of all before, of the run, and of the batches.
    pub hash: u64,
}

/// What a run is called: whose, and of which chapter.
pub(super) type Key = (Opening, u64);

/// One partition's batches of a chapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Whose.
    pub opening: Opening,
    /// Of which chapter.
    pub chapter: u64,
    /// Offset of the first batch.
    pub base_offset: i64,
    /// The offset behind the last.
    pub end_offset: i64,
    /// The largest timestamp.
    pub max_timestamp: i64,
    /// When the first batch was appended, in ms since 1970.
    pub first_time: u64,
    /// When the last was: nothing in it is younger.
    pub last_time: u64,
    /// Place of the batches in the file.
    pub place: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of its first block in the file.
    pub first_block: u64,
    /// How many it has.
    pub blocks: u32,
    /// Of the hashes of its blocks: equal on every replica, unless it was compacted.
    pub hash: u64,
    /// When it was compacted first, in ms since 1970; 0 if it was not.
    pub compacted: u64,
}

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// How many runs.
    pub runs: u32,
    /// The first chapter of which it has runs.
    pub first_chapter: u64,
    /// The last.
    pub last_chapter: u64,
    /// The first log index behind the chapter before.
    pub first_index: u64,
    /// The log index of the entry that ended the last chapter.
    pub last_index: u64,
    /// When it was ended, in ms since 1970.
    pub time: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Their place.
    pub blocks_at: u64,
    /// The place of the runs.
    pub runs_at: u64,
    /// The size of the file.
    pub file_bytes: u64,
    /// Of the hashes of all runs.
    pub hash: u64,
    /// Of the fences.
    pub fences_hash: u64,
}

/// Of what range of the log the chapters of a file are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) first_chapter: u64,
    pub(super) last_chapter: u64,
    pub(super) first_index: u64,
    pub(super) last_index: u64,
    pub(super) time: u64,
}

impl Span {
    /// Of all that these files hold.
    pub(super) fn of<'a>(footers: &(impl Iterator<Item = &'a Footer> + Clone)) -> Self {
        let least = |of: fn(&Footer) -> u64| footers.clone().map(of).min().unwrap_or(0);
        let most = |of: fn(&Footer) -> u64| footers.clone().map(of).max().unwrap_or(0);
        Self {
            first_chapter: least(|footer| footer.first_chapter),
            last_chapter: most(|footer| footer.last_chapter),
            first_index: least(|footer| footer.first_index),
            last_index: most(|footer| footer.last_index),
            time: most(|footer| footer.time),
        }
    }
}

/// The first bytes of a file of this shard.
pub(super) fn header(shard: u32) -> [u8; HEADER_BYTES] {
    let mut to = Vec::with_capacity(HEADER_BYTES);
    to.extend_from_slice(&HEADER_MAGIC);
    to.extend_from_slice(&VERSION.to_le_bytes());
    to.extend_from_slice(&shard.to_le_bytes());
    seal(&to)
}

/// The shard of which a file with this header is.
pub(super) fn shard_of(header: &[u8; HEADER_BYTES]) -> Result<u32, Malformed> {
    let mut from = Cursor::new(sealed(header)?, "a chapter's header");
    begin(&mut from, HEADER_MAGIC)?;
    let shard = from.u32()?;
    from.zeros(40, "a reserved byte of a chapter")?;
    Ok(shard)
}

impl Block {
    /// Its hash: what [`hash_on`] has made of its batches, and what stands before it.
    pub(super) fn seal(self, of_batches: u64) -> Self {
        let fields = self.encode();
        let fields = &fields[..BLOCK_HEAD_BYTES - CHECKSUM_BYTES];
        Self { hash: XxHash3_64::oneshot_with_seed(of_batches, fields), ..self }
    }

    /// The batches in these bytes, if they are what it was made of, in a run of this chapter.
    pub(super) fn verify<'a>(
        &self,
        opening: Opening,
        chapter: u64,
        bytes: &'a [u8],
    ) -> Option<Vec<&'a [u8]>> {
        let batches = batches(bytes, self.batches)?;
        let of_batches =
            batches.iter().fold(hash_begin(opening, chapter), |hash, batch| hash_on(hash, batch));
        (self.seal(of_batches).hash == self.hash).then_some(batches)
    }

    pub(super) fn encode(&self) -> [u8; BLOCK_HEAD_BYTES] {
        let mut to = [0; BLOCK_HEAD_BYTES];
        to[..8].copy_from_slice(&self.base_offset.to_le_bytes());
        to[8..16].copy_from_slice(&self.max_timestamp.to_le_bytes());
        to[16..24].copy_from_slice(&self.time.to_le_bytes());
        to[24..32].copy_from_slice(&self.index.to_le_bytes());
        to[32..40].copy_from_slice(&self.place.to_le_bytes());
        to[40..42].copy_from_slice(&self.item.to_le_bytes());
        to[42..44].copy_from_slice(&self.batches.to_le_bytes());
        to[44..48].copy_from_slice(&self.bytes.to_le_bytes());
        to[48..].copy_from_slice(&self.hash.to_le_bytes());
        to
    }

    /// What stands there: it is to be believed only once its batches have its hash.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "a block");
        Ok(Self {
            base_offset: from.i64()?,
            max_timestamp: from.i64()?,
            time: from.u64()?,
            index: from.u64()?,
            place: from.u64()?,
            item: from.u16()?,
            batches: from.u16()?,
            bytes: from.u32()?,
            hash: from.u64()?,
        })
    }
}

impl Run {
    /// By what the runs of a file are sorted.
    pub(super) fn key(&self) -> Key {
        (self.opening, self.chapter)
    }

    /// What its hash has to be.
    pub(super) fn hash_of(blocks: &[Block]) -> u64 {
        let hashes: Vec<u8> = blocks.iter().flat_map(|block| block.hash.to_le_bytes()).collect();
        XxHash3_64::oneshot(&hashes)
    }

    pub(super) fn encode(&self) -> [u8; RUN_BYTES] {
        let mut to = Vec::with_capacity(RUN_BYTES);
        self.opening.encode(&mut to);
        to.extend_from_slice(&self.chapter.to_le_bytes());
        for field in [self.base_offset, self.end_offset, self.max_timestamp] {
            to.extend_from_slice(&field.to_le_bytes());
        }
        let places = [self.place, self.bytes, self.first_block];
        for field in [self.first_time, self.last_time].into_iter().chain(places) {
            to.extend_from_slice(&field.to_le_bytes());
        }
        to.extend_from_slice(&self.blocks.to_le_bytes());
        to.extend_from_slice(&[0; 4]);
        to.extend_from_slice(&self.hash.to_le_bytes());
        to.extend_from_slice(&self.compacted.to_le_bytes());
        seal(&to)
    }

    pub(super) fn decode(bytes: &[u8; RUN_BYTES]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(sealed(bytes)?, "a run");
        let opening = Opening::decode(&mut from)?;
        let chapter = from.u64()?;
        let (base_offset, end_offset) = (from.offset("a base offset")?, from.offset("an end")?);
        let run = Self {
            opening,
            chapter,
            base_offset,
            end_offset,
            max_timestamp: from.i64()?,
            first_time: from.u64()?,
            last_time: from.u64()?,
            place: from.raisable("the place of a run")?,
            bytes: from.raisable("the size of a run")?,
            first_block: from.u64()?,
            blocks: from.u32()?,
            hash: {
                from.zeros(4, "a reserved byte of a run")?;
                from.u64()?
            },
            compacted: from.u64()?,
        };
        if end_offset <= base_offset || run.blocks == 0 {
            return Err(Malformed::Field("the end of a run", end_offset.cast_unsigned()));
        }
        Ok(run)
    }
}

impl Footer {
    /// Of the hashes of its runs.
    pub(super) fn hash_of<'a>(runs: impl IntoIterator<Item = &'a Run>) -> u64 {
        let hashes: Vec<u8> = runs.into_iter().flat_map(|run| run.hash.to_le_bytes()).collect();
        XxHash3_64::oneshot(&hashes)
    }

    pub(super) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut to = Vec::with_capacity(FOOTER_BYTES);
        to.extend_from_slice(&FOOTER_MAGIC);
        to.extend_from_slice(&VERSION.to_le_bytes());
        to.extend_from_slice(&self.runs.to_le_bytes());
        let of_the_log = [self.first_index, self.last_index, self.time];
        let places = [self.blocks, self.blocks_at, self.runs_at, self.file_bytes];
        let hashes = [self.hash, self.fences_hash];
        let chapters = [self.first_chapter, self.last_chapter];
        for field in chapters.into_iter().chain(of_the_log).chain(places).chain(hashes) {
            to.extend_from_slice(&field.to_le_bytes());
        }
        seal(&to)
    }

    /// The footer of a file of so many bytes. What it says of places lies within the file.
    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES], file_bytes: u64) -> Result<Self, Malformed> {
        let mut from = Cursor::new(sealed(bytes)?, "a chapter's footer");
        begin(&mut from, FOOTER_MAGIC)?;
        let runs = from.u32()?;
        let mut next = || from.u64();
        let footer = Self {
            runs,
            first_chapter: next()?,
            last_chapter: next()?,
            first_index: next()?,
            last_index: next()?,
            time: next()?,
            blocks: next()?,
            blocks_at: next()?,
            runs_at: next()?,
            file_bytes: next()?,
            hash: next()?,
            fences_hash: next()?,
        };
        from.zeros(16, "a reserved byte of a chapter")?;
        let blocks_bytes = footer.blocks.checked_mul(BLOCK_HEAD_BYTES as u64);
        let runs_bytes = u64::from(runs) * RUN_BYTES as u64;
        let behind_runs = footer.fences() * FENCE_BYTES as u64 + FOOTER_BYTES as u64;
        let end_of = |at: u64, bytes: Option<u64>| at.checked_add(bytes?);
        let is_whole = footer.file_bytes == file_bytes
            && footer.blocks_at >= HEADER_BYTES as u64
            && end_of(footer.blocks_at, blocks_bytes) == Some(footer.runs_at)
            && end_of(footer.runs_at, Some(runs_bytes + behind_runs)) == Some(file_bytes)
            && footer.first_chapter <= footer.last_chapter;
        if !is_whole {
            return Err(Malformed::Field("the size of a chapter", file_bytes));
        }
        Ok(footer)
    }

    /// How many fences.
    pub(super) fn fences(&self) -> u64 {
        u64::from(self.runs).div_ceil(u64::from(FENCED_RUNS)) + u64::from(self.runs > 0)
    }

    /// Their place.
    pub(super) fn fences_at(&self) -> u64 {
        self.runs_at + u64::from(self.runs) * RUN_BYTES as u64
    }

    /// Bytes of the batches of all runs.
    pub(super) fn batches_bytes(&self) -> u64 {
        self.blocks_at - HEADER_BYTES as u64
    }

    /// What tells this file from all others.
    pub(super) fn checksum(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.encode();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

/// With what the hash of each block of a run begins.
pub(super) fn hash_begin(opening: Opening, chapter: u64) -> u64 {
    let mut identity = Vec::with_capacity(32);
    opening.encode(&mut identity);
    identity.extend_from_slice(&chapter.to_le_bytes());
    XxHash3_64::oneshot(&identity)
}

/// Takes the next batch into a hash.
pub(super) fn hash_on(hash: u64, batch: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(hash, batch)
}

/// The batches that these bytes are, if they are so many.
fn batches(mut bytes: &[u8], count: u16) -> Option<Vec<&[u8]>> {
    let mut batches = Vec::with_capacity(usize::from(count).min(bytes.len() / Batch::BYTES_MIN));
    for _ in 0..count {
        let (batch, rest) = Batch::split(bytes)?;
        batches.push(batch);
        bytes = rest;
    }
    bytes.is_empty().then_some(batches)
}

fn begin(from: &mut Cursor<'_>, magic: [u8; 8]) -> Result<(), Malformed> {
    let found: [u8; 8] = from.array()?;
    if found != magic {
        return Err(Malformed::Field("the first bytes of a chapter", u64::from_le_bytes(found)));
    }
    match from.u32()? {
        VERSION => Ok(()),
        version => Err(Malformed::Field("the version of a chapter", u64::from(version))),
    }
}

/// These bytes, zeros behind them, and their checksum at the end.
fn seal<const N: usize>(fields: &[u8]) -> [u8; N] {
    let mut to = [0; N];
    to[..fields.len()].copy_from_slice(fields);
    let (body, checksum) = to.split_at_mut(N - CHECKSUM_BYTES);
    checksum.copy_from_slice(&XxHash3_64::oneshot(body).to_le_bytes());
    to
}

/// What stands before the checksum, if it is its own.
fn sealed(bytes: &[u8]) -> Result<&[u8], Malformed> {
    let (body, checksum) = bytes.split_last_chunk().ok_or(Malformed::Short("a chapter"))?;
    let (expected, found) = (u64::from_le_bytes(*checksum), XxHash3_64::oneshot(body));
    if expected == found { Ok(body) } else { Err(Malformed::Checksum { expected, found }) }
}
