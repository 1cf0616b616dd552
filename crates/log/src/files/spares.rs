//! [`Stock`]: files that are made ready ahead of the writer: room reserved, header durable.
//!
//! One is kept ready once a quarter of the active segment is used. It is also the reserve: when the disk
//! is full, what the ring holds still has room in it.
//!
//! A log that may be one of very many begins with a small segment, and each that is made ready is four
//! times as large as the one in use, up to the size that was asked for. Where a batch needs more, the
//! next one is as large as that.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use super::place::{Blocks, Layout, Place, Spare};
use crate::clock::Clock;
use crate::error::Result;
use crate::segment::format::{BLOCK_BYTES, SEGMENT_BYTES_MAX};
use crate::segment::header::Header;
use crate::segment::sparse::SparseIndex;
use crate::shim::{Mutex, Rank, Ranked, lock};

/// What names a file that is prepared and not yet a segment.
pub(crate) const SPARE: &str = ".spare";
/// Used files that are kept for later.
const USED_MAX: usize = 2;
/// How much larger each segment of a log is that begins with a small one.
const GROWTH: u64 = 4;
/// A segment that is filled in less is filled by large writes.
const BULK: Duration = Duration::from_secs(2);

/// How large segments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The first of a log.
    pub(crate) first: u64,
    /// Those of a log that is used much.
    pub(crate) full: u64,
}

#[derive(Debug)]
pub(crate) struct Stock {
    place: Arc<Place>,
    log_id: u128,
    clock: Clock,
    sizes: Sizes,
    state: Mutex<State>,
    /// Held while a file is made ready, which takes its time.
    preparing: Ranked<()>,
}

#[derive(Debug, Default)]
struct State {
    ready: Option<Spare>,
    /// Names of segments that retention took, to be used again.
    used: Vec<String>,
    /// Whether one should be ready.
    is_wanted: bool,
    /// Bytes of the largest batch that waits for a segment that has room for it.
    batch_bytes: u64,
    /// Size of the segment in use.
    in_use: u64,
    /// The segment in use is filled so fast that zeros in the next one are not worth their writing.
    is_bulk: bool,
}

impl Stock {
    pub(crate) fn new(place: Arc<Place>, log_id: u128, clock: Clock, sizes: Sizes) -> Self {
        let (state, preparing) = (Mutex::default(), Ranked::new(Rank::Preparing, ()));
        Self { place, log_id, clock, sizes, state, preparing }
    }

    /// A ready file that has room for frames of so many bytes, or a new one.
    ///
    /// # Errors
    /// The disk's; [`crate::Error::is_out_of_space`] where there is no room for it.
    pub(crate) fn take(&self, bytes: u64) -> Result<Spare> {
        if let Some(ready) = self.take_ready(bytes) {
            return Ok(ready);
        }
        // Somebody may be making one; then it is waited for.
        let _preparing = self.preparing.lock();
        match self.take_ready(bytes) {
            Some(ready) => Ok(ready),
            None => self.prepare(bytes, self.blocks()),
        }
    }

    /// The same for somebody who waits: no zeros are written into a new one.
    pub(crate) fn take_quickly(&self) -> Result<Spare> {
        if let Some(ready) = self.take_ready(0) {
            return Ok(ready);
        }
        let _preparing = self.preparing.lock();
        match self.take_ready(0) {
            Some(ready) => Ok(ready),
            None => self.prepare(0, Blocks::Quick),
        }
    }

    /// A file that was taken is not used.
    pub(crate) fn put_back(&self, spare: Spare) {
        let mut state = lock(&self.state);
        if state.ready.is_none() {
            state.ready = Some(spare);
            return;
        }
        drop(state);
        self.place.dir.remove(&spare.name).ok();
    }

    fn take_ready(&self, bytes: u64) -> Option<Spare> {
        lock(&self.state).ready.take_if(|ready| room(ready.header.segment_bytes) >= bytes)
    }

    /// Makes one ready if it is time, and says so. `tell` is told how much more room there is, before
    /// anybody can take the file.
    ///
    /// # Errors
    /// As [`Stock::take`].
    pub(crate) fn keep_ready(&self, tell: impl FnOnce(u64)) -> Result<bool> {
        let _preparing = self.preparing.lock();
        if !self.is_due() {
            return Ok(false);
        }
        let batch_bytes = lock(&self.state).batch_bytes;
        let spare = self.prepare(batch_bytes, self.blocks())?;
        let mut state = lock(&self.state);
        state.batch_bytes = 0;
        let has = room(spare.header.segment_bytes);
        let smaller = state.ready.replace(spare);
        let had = smaller.as_ref().map_or(0, |smaller| room(smaller.header.segment_bytes));
        tell(has.saturating_sub(had));
        drop(state);
        if let Some(smaller) = smaller {
            self.place.dir.remove(&smaller.name)?;
        }
        Ok(true)
    }

    /// Whether it is time to make one ready.
    pub(crate) fn is_due(&self) -> bool {
        let state = lock(&self.state);
        match &state.ready {
            None => state.is_wanted,
            Some(ready) => room(ready.header.segment_bytes) < state.batch_bytes,
        }
    }

    /// A batch of so many bytes waits, and may need a segment of its own size.
    pub(crate) fn ask(&self, batch_bytes: u64) {
        let mut state = lock(&self.state);
        state.batch_bytes = state.batch_bytes.max(batch_bytes);
        state.is_wanted = true;
    }

    /// Looks at the segment in use, of which so much is filled after so long. `tell` is told how much
    /// room there is, here and in the file that is ready. Returns whether one should be ready and is not:
    /// whoever makes them is to be woken.
    pub(crate) fn look(
        &self,
        header: Header,
        filled: u64,
        took: Duration,
        tell: impl FnOnce(u64),
    ) -> bool {
        let segment_bytes = header.segment_bytes;
        let mut state = lock(&self.state);
        state.in_use = segment_bytes;
        state.is_wanted = room_from(segment_bytes, filled) < room(segment_bytes) / 4 * 3;
        let ready = state.ready.as_ref().map(|ready| room(ready.header.segment_bytes));
        let is_missing = state.is_wanted && ready.is_none();
        if is_missing {
            state.is_bulk = is_bulk(filled, segment_bytes, took);
        }
        tell(room_from(segment_bytes, filled) + ready.unwrap_or(0));
        is_missing
    }

    /// Keeps the file of a segment that is not part of the log any more, or removes it.
    pub(crate) fn give_back(&self, name: &str) -> Result<()> {
        let dir = &self.place.dir;
        // Where writes go elsewhere, an old file is worth no more than a new one.
        let keeps = self.place.layout == Layout::Zeroed && lock(&self.state).used.len() < USED_MAX;
        if !keeps {
            return Ok(dir.remove(name)?);
        }
        let spare = spare_name(self.clock.unique()?);
        match dir.rename(name, &spare) {
            Ok(()) => lock(&self.state).used.push(spare),
            // A write to it may still come, or the disk is too full for another name.
            Err(error)
                if matches!(
                    error.kind(),
                    Some(ErrorKind::ResourceBusy | ErrorKind::StorageFull)
                ) =>
            {
                dir.remove(name)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Removes what is ready and what was kept. The next open would do that as well.
    pub(crate) fn clear(&self) {
        let State { ready, used, .. } = std::mem::take(&mut *lock(&self.state));
        for name in ready.map(|ready| ready.name).into_iter().chain(used) {
            self.place.dir.remove(&name).ok();
        }
    }

    /// In the preparing turn, and under no other lock: it may write a whole file.
    fn prepare(&self, bytes: u64, blocks: Blocks) -> Result<Spare> {
        let _span = tracing::debug_span!("prepare").entered();
        let (segment_bytes, used) = {
            let mut state = lock(&self.state);
            (self.next_size(state.in_use, bytes), state.used.pop())
        };
        let header = Header { log_id: self.log_id, salt: self.clock.unique()?, segment_bytes };
        if let Some(name) = used {
            match self.place.prepare(name, header, Blocks::Used) {
                // Its last write or sync may have failed: then it takes no more, and is gone now.
                Err(error) if !error.is_out_of_space() => {
                    tracing::debug!(%error, "a file cannot be used again");
                }
                prepared => return prepared,
            }
        }
        self.place.prepare(spare_name(header.salt), header, blocks)
    }

    fn blocks(&self) -> Blocks {
        if lock(&self.state).is_bulk { Blocks::Quick } else { Blocks::Best }
    }

    fn next_size(&self, in_use: u64, bytes: u64) -> u64 {
        let Sizes { first, full } = self.sizes;
        let grown = in_use.saturating_mul(GROWTH).clamp(first.min(full), full);
        let mut size = grown;
        while room(size) < bytes && size < SEGMENT_BYTES_MAX {
            size = (size * 2).min(SEGMENT_BYTES_MAX);
        }
        size
    }
}

/// Room for frames in an empty segment.
pub(crate) fn room(segment_bytes: u64) -> u64 {
    // Behind the link and the first mark.
    room_from(segment_bytes, BLOCK_BYTES + 128)
}

/// Room for frames behind a byte offset: there is a mark in every block.
fn room_from(segment_bytes: u64, byte_offset: u64) -> u64 {
    let frames = SparseIndex::records_end(segment_bytes).saturating_sub(byte_offset);
    frames - frames / 128
}

/// Whether a segment of which so much was filled in this time is filled by large writes.
fn is_bulk(filled: u64, segment_bytes: u64, took: Duration) -> bool {
    took.as_nanos() * u128::from(segment_bytes) < BULK.as_nanos() * u128::from(filled)
}

pub(crate) fn spare_name(salt: u64) -> String {
    format!("{salt:016x}{SPARE}")
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
    use plimsoll_sync::Dir;

    use super::*;

    const FULL: u64 = 1 << 20;

    fn stock(dir: &Arc<SimDir>, first: u64) -> Stock {
        let place = Place::probe(Arc::clone(dir) as Arc<dyn Dir>, false).unwrap();
        Stock::new(Arc::new(place), 1, Clock::manual(1), Sizes { first, full: FULL })
    }

    /// The first segments of a busy log got zeros beside the records, because a segment had to be full
    /// before it was known how fast: who waited for a record waited for those too.
    #[test]
    fn a_quarter_of_a_segment_tells_how_fast_it_is_filled() {
        let quarter = |ms| is_bulk(16 << 20, 64 << 20, Duration::from_millis(ms));
        assert!(quarter(0) && quarter(499));
        assert!(!quarter(500) && !quarter(60_000));
    }

    #[test]
    fn segments_grow_to_the_size_that_was_asked_for_and_to_what_a_batch_needs() {
        let dir = Arc::new(SimDir::new());
        let stock = stock(&dir, 64 << 10);
        let mut sizes = Vec::new();
        for _ in 0..4 {
            let spare = stock.take(0).unwrap();
            sizes.push(spare.header.segment_bytes);
            stock.look(spare.header, 0, Duration::ZERO, |_| ());
        }
        assert_eq!(sizes, [64 << 10, 256 << 10, FULL, FULL]);
        assert_eq!(stock.take(FULL).unwrap().header.segment_bytes, 2 * FULL);
        assert_eq!(stock.take(3 * FULL).unwrap().header.segment_bytes, 4 * FULL);
    }

    /// A segment whose write had failed was kept, and what was to begin in it failed again: truncations
    /// were refused, and the log went on in a third file for nothing.
    #[test]
    fn a_file_that_failed_is_not_used_again() {
        let dir = Arc::new(SimDir::new());
        let stock = stock(&dir, FULL);
        let spare = stock.take(0).unwrap();
        dir.inject(Fault::new(Operation::Write, FaultKind::FailRaw(5)).named(&spare.name));
        assert!(spare.file.write_at(&[0; 4096], 4096).is_err());
        stock.give_back(&spare.name).unwrap();
        let next = stock.take(0).unwrap();
        next.file.write_at(&[0; 4096], 4096).unwrap();
        assert_eq!(dir.list().unwrap(), [next.name], "nothing of it is left");
    }

    #[test]
    fn a_spare_that_is_too_small_for_what_waits_gives_way() {
        let dir = Arc::new(SimDir::new());
        let stock = stock(&dir, 64 << 10);
        let mut has = 0;
        stock.ask(0);
        assert!(stock.keep_ready(|more| has += more).unwrap());
        assert_eq!(has, room(64 << 10));
        assert!(!stock.keep_ready(|more| has += more).unwrap());
        stock.ask(100 << 10);
        assert!(stock.keep_ready(|more| has += more).unwrap());
        assert_eq!(has, room(128 << 10));
        assert_eq!(dir.list().unwrap().len(), 1);
    }
}
