//! [`merge`]: what is left of some files, copied into one.

use std::sync::Arc;

use plimsoll_sync::{Allocation, File};

use super::error::Error;
use super::format::{self, Footer, HEADER_BYTES, Run, Span};
use super::reader::Chapter;
use super::writer::finish;

/// Bytes that are copied at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Writes these runs into an empty file, in their order: sorted as a file's are. Each is verified before it is
/// copied, and stays as it was, with its hash. Durable on return.
///
/// # Errors
/// [`Error::Run`]: one of them is damaged. The file is not to be used.
pub(super) fn merge(
    file: &Arc<dyn File>,
    shard: u32,
    from: &[(Arc<Chapter>, Run)],
) -> Result<Footer, Error> {
    merge_while(file, shard, from, &mut |_bytes| true)
}

/// The same, as long as `goes_on` says when it is told of so many bytes more.
///
/// # Errors
/// And [`Error::Stopped`].
pub(super) fn merge_while(
    file: &Arc<dyn File>,
    shard: u32,
    from: &[(Arc<Chapter>, Run)],
    goes_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Footer, Error> {
    let bytes: u64 = from.iter().map(|(_, run)| run.bytes).sum();
    let blocks_at = HEADER_BYTES as u64 + bytes;
    file.allocate(0, blocks_at, Allocation::Reserved)?;
    file.write_at(&format::header(shard), 0)?;
    let (mut blocks, mut runs) = (Vec::new(), Vec::with_capacity(from.len()));
    let mut place = HEADER_BYTES as u64;
    for (chapter, run) in from {
        let of_run = chapter.whole(run)?;
        let merged = Run { place, first_block: blocks.len() as u64, ..*run };
        let mut copied = 0;
        while copied < run.bytes {
            let piece = PIECE_BYTES.min(run.bytes - copied);
            file.write_at(&chapter.piece(run, copied, piece)?, place + copied)?;
            copied += piece;
            if !goes_on(piece) {
                return Err(Error::Stopped);
            }
        }
        place += run.bytes;
        blocks.extend(of_run);
        runs.push(merged);
    }
    let span = Span::of(&from.iter().map(|(chapter, _)| chapter.footer()));
    finish(&**file, blocks_at, span, &blocks, &runs)
}
