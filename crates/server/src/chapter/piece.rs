//! [`Piece`]: a part of a run, as one replica gives it to another.
//!
//! ```text
//!   0 run      128   its row, as in the table of a file
//! 128 first    u32   the number of the first of these blocks in the run
//! 132 blocks   u32   count, then 56 each, as in a file
//!  .. batches        of these blocks, one after the other
//! ```
//!
//! Little-endian. Who gives it has verified it; who takes it believes nothing of that ([`super::heal`]).

use bytes::Bytes;

use super::error::Error;
use super::format::{BLOCK_HEAD_BYTES, Block, RUN_BYTES, Run};
use super::lookup::Lookup;
use super::shelf::Shelf;
use crate::cursor::{Cursor, Malformed};
use crate::shard::Opening;

/// Blocks that are given at once, at most.
const BLOCKS_MAX: u32 = 64;

/// Some blocks of a run that follow each other, and their batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub(super) run: Run,
    pub(super) first: u32,
    pub(super) blocks: Vec<Block>,
    pub(super) batches: Bytes,
}

impl Shelf {
    /// A piece of the run that a partition has in a chapter, from this block on; `None` if there is no such block. It was
    /// verified. Waits for the disk.
    ///
    /// # Errors
    /// It is damaged here too, or is not here.
    pub fn give(&self, opening: Opening, chapter: u32, from: u32) -> Result<Option<Piece>, Error> {
        let placed = Lookup::of(self.files_now()).find(opening, chapter)?;
        let (chapter, run) = (&placed.chapter, placed.run);
        let blocks = chapter.blocks(&run, from, BLOCKS_MAX)?;
        let read = chapter.verified(&run, &blocks, blocks.len());
        if self.read_books().has(placed.file, placed.number) {
            self.note(opening, read.as_ref().map(drop).map_err(Clone::clone))?;
        }
        let batches = Bytes::from(read?.concat());
        Ok((!blocks.is_empty()).then_some(Piece { run, first: from, blocks, batches }))
    }
}

impl Piece {
    /// Its bytes, those of the batches by reference.
    #[must_use]
    pub fn encode(&self) -> Vec<Bytes> {
        let bytes = RUN_BYTES + 8 + self.blocks.len() * BLOCK_HEAD_BYTES;
        let mut head = Vec::with_capacity(bytes);
        // Where it lies is nobody else's business, and differs.
        head.extend_from_slice(&Run { place: 0, first_block: 0, ..self.run }.encode());
        head.extend_from_slice(&self.first.to_le_bytes());
        let count = u32::try_from(self.blocks.len()).expect("a piece has few blocks");
        head.extend_from_slice(&count.to_le_bytes());
        self.blocks.iter().for_each(|block| head.extend_from_slice(&block.encode()));
        vec![head.into(), self.batches.clone()]
    }

    /// The piece that these bytes are; it shares them.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "a piece of a run");
        let run = Run::decode(&from.array()?)?;
        let first = from.u32()?;
        let count = from.count(BLOCK_HEAD_BYTES, "the number of blocks of a piece")?;
        let blocks = (0..count).map(|_| Block::decode(from.bytes(BLOCK_HEAD_BYTES)?));
        let blocks: Vec<Block> = blocks.collect::<Result<_, _>>()?;
        let batches = bytes.slice_ref(from.rest());
        let claimed = blocks.iter().map(|block| u64::from(block.bytes)).sum::<u64>();
        if claimed != batches.len() as u64 {
            return Err(Malformed::Field("the bytes of a piece", claimed));
        }
        Ok(Self { run, first, blocks, batches })
    }
}
