//! The big file, and the thread that writes random pages of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use plimsoll_sync::{AlignedBuf, File, SyncMethod};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::plan::{MIB, PAGE, payload_len};
use crate::error::{Error, Result};
use crate::layout::noise;
use crate::units;

/// The big file is prepared in pieces of this size. Each is synced, so that a request to stop is
/// soon noticed.
const PIECE_BYTES: u64 = 64 * MIB;

/// The big file.
#[derive(Debug)]
pub(super) struct BigFile {
    pub(super) file: Arc<dyn File>,
    pages: u64,
    push: Option<(u64, SyncMethod)>,
    payload: AlignedBuf,
    seed: u64,
}

impl BigFile {
    /// Writes the file in order, a page at a time, and syncs it.
    pub(super) fn prepare(
        file: Arc<dyn File>,
        bytes: u64,
        push: Option<(u64, SyncMethod)>,
        seed: u64,
        cancel: &AtomicBool,
        progress: &dyn Fn(),
    ) -> Result<Self> {
        let mut payload = AlignedBuf::zeroed(payload_len(PAGE), file.alignment());
        noise(&mut payload, seed);
        let mut byte_offset = 0;
        while byte_offset < bytes {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let until = bytes.min(byte_offset + PIECE_BYTES);
            while byte_offset < until {
                file.write_at(&payload, byte_offset)?;
                byte_offset += PAGE;
            }
            file.sync(SyncMethod::ORDINARY)?;
            progress();
        }
        Ok(Self { file, pages: bytes / PAGE, push, payload, seed })
    }

    /// Writes random pages until told to stop, and at least one: then it sends that it is at work.
    /// Returns how many MiB it wrote per second.
    pub(super) fn torture(
        &self,
        block: u64,
        at_work: Sender<()>,
        stop: &AtomicBool,
    ) -> plimsoll_sync::Result<f64> {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed.wrapping_add(block));
        let started = Instant::now();
        let mut written = 0;
        let mut at_work = Some(at_work);
        while written == 0 || !stop.load(Ordering::Relaxed) {
            let page = rng.random_range(0..self.pages);
            self.file.write_at(&self.payload, page * PAGE)?;
            written += 1;
            if let Some(at_work) = at_work.take() {
                // Whoever waited for it may be gone.
                at_work.send(()).ok();
            }
            if let Some((_, method)) = self.push.filter(|(pages, _)| written % pages == 0) {
                self.file.sync(method)?;
            }
        }
        Ok(units::ratio(written * PAGE, MIB) / started.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sync::{Access, Dir, OsDir};

    use super::*;

    #[test]
    fn preparing_the_big_file_notices_that_it_should_stop() {
        let tmp = tempfile::tempdir().unwrap();
        let file = OsDir::open(tmp.path()).unwrap().create("big", Access::default()).unwrap();
        let cancel = AtomicBool::new(false);
        let told = std::cell::Cell::new(0);
        let progress = || {
            told.set(told.get() + 1);
            cancel.store(true, Ordering::Relaxed);
        };
        let bytes = 8 * 1024 * MIB;
        let prepared = BigFile::prepare(Arc::clone(&file), bytes, None, 1, &cancel, &progress);
        assert!(matches!(prepared, Err(Error::Interrupted)));
        assert_eq!((told.get(), file.len().unwrap()), (1, PIECE_BYTES));
    }
}
