//! okaywal: every commit is synced, and shared by those who come meanwhile.

use std::io;
use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use okaywal::{Configuration, Entry, EntryId, LogManager, SegmentReader, WriteAheadLog};

use crate::engine::{Engine, Setup};
use crate::task::Level;

#[derive(Debug)]
pub(super) struct OkayWal {
    log: WriteAheadLog,
    found: Found,
}

/// Records and bytes that recovery went through: okaywal reads everything when it opens.
#[derive(Debug, Clone, Default)]
struct Found(Arc<Mutex<(u64, u64)>>);

impl LogManager for Found {
    fn recover(&mut self, entry: &mut Entry<'_>) -> io::Result<()> {
        let chunks = entry.read_all_chunks()?; // with their checksums
        let mut found = self.0.lock().expect("nobody panics with it");
        for chunk in chunks.into_iter().flatten() {
            *found = (found.0 + 1, found.1 + chunk.len() as u64);
        }
        Ok(())
    }

    /// Keeps nothing: the file is used again.
    fn checkpoint_to(
        &mut self,
        _last: EntryId,
        _entries: &mut SegmentReader,
        _log: &WriteAheadLog,
    ) -> io::Result<()> {
        Ok(())
    }
}

impl OkayWal {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        // A log that is to be read must not be checkpointed, as that empties it.
        let segment_mib: u32 = if setup.keep { 1300 } else { 64 };
        let found = Found::default();
        let log = Configuration::default_for(&setup.dir)
            .preallocate_bytes(segment_mib << 20)
            .checkpoint_after_bytes(u64::from(segment_mib) * (1 << 20) / 100 * 95)
            .open(found.clone())?;
        ensure!(setup.level != Level::Interval, "okaywal syncs always");
        Ok(Self { log, found })
    }
}

impl Engine for OkayWal {
    fn append(&self, _appender: usize, record: &[u8]) -> Result<()> {
        let mut entry = self.log.begin_entry()?;
        entry.write_chunk(record)?;
        entry.commit()?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn read(&self) -> Result<(u64, u64)> {
        Ok(*self.found.0.lock().expect("nobody panics with it"))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.log.shutdown()?)
    }

    fn abandon(self: Box<Self>) {
        std::mem::forget(self);
    }
}
