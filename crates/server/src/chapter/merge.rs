//! [`merge`]: what is left of some files, copied into one.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_sync::{Allocation, File, SyncMethod};

use super::error::Error;
use super::format::{self, Footer, HEADER_BYTES, Run, Span};
use super::reader::Chapter;
use super::writer::finish;

/// Bytes behind which the disk is waited for: others wait behind no more of them.
const WINDOW_BYTES: u64 = 8 << 20;
/// Bytes behind which it is told to begin, so that it writes while what follows is read.
const PIECE_BYTES: u64 = 1 << 20;

/// Writes these runs into an empty file, in their order: sorted as a file's are. What is written was verified, and each
/// stays as it was, with its hash. Durable on return.
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
    let (mut place, mut unsynced, mut not_begun) = (HEADER_BYTES as u64, 0, 0);
    for (chapter, run) in from {
        let merged = Run { place, first_block: blocks.len() as u64, ..*run };
        let mut write = |at: u64, bytes: &Bytes| -> Result<(), Error> {
            file.write_at(bytes, place + at)?;
            unsynced += bytes.len() as u64;
            not_begun += bytes.len() as u64;
            if unsynced >= WINDOW_BYTES {
                file.sync(SyncMethod::ORDINARY)?;
                (unsynced, not_begun) = (0, 0);
            } else if not_begun >= PIECE_BYTES {
                file.start_write_out()?;
                not_begun = 0;
            }
            Ok(())
        };
        let mut failed = None;
        let of_run = chapter.read_while(run, &mut |at, bytes| match write(at, bytes) {
            Ok(()) => goes_on(bytes.len() as u64),
            Err(why) => {
                failed = Some(why);
                false
            }
        });
        if let Some(why) = failed {
            return Err(why);
        }
        blocks.extend(of_run?);
        place += run.bytes;
        runs.push(merged);
    }
    let span = Span::of(&from.iter().map(|(chapter, _)| chapter.footer()));
    finish(&**file, blocks_at, span, &blocks, &runs)
}
