//! walrus-rust: topics over blocks of 10 MiB in files of 1 GB.

use anyhow::Result;
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus as Log};

use crate::engine::{Engine, Setup};
use crate::task::Level;

const TOPIC: &str = "log";
const READ_BYTES: usize = 4 << 20;

pub(super) struct Walrus {
    log: Log,
}

impl Walrus {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        // It is told where to write by the environment; `bench/run` or the harness has set it.
        let schedule = match setup.level {
            Level::Durable => FsyncSchedule::SyncEach,
            Level::Buffered => FsyncSchedule::NoFsync,
            Level::Interval => FsyncSchedule::Milliseconds(1000),
        };
        let reads = ReadConsistency::AtLeastOnce { persist_every: u32::MAX };
        Ok(Self { log: Log::with_consistency_and_schedule(reads, schedule)? })
    }
}

impl Engine for Walrus {
    fn append(&self, _appender: usize, record: &[u8]) -> Result<()> {
        Ok(self.log.append_for_topic(TOPIC, record)?)
    }

    /// It has no call for that: what it syncs, its own thread syncs.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn syncs_itself(&self) -> bool {
        true
    }

    fn read(&self) -> Result<(u64, u64)> {
        let (mut records, mut bytes) = (0, 0);
        loop {
            let entries = self.log.batch_read_for_topic(TOPIC, READ_BYTES, true)?;
            if entries.is_empty() {
                return Ok((records, bytes));
            }
            records += entries.len() as u64;
            bytes += entries.iter().map(|entry| entry.data.len() as u64).sum::<u64>();
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn abandon(self: Box<Self>) {
        std::mem::forget(self);
    }
}
