//! Ours.

use anyhow::Result;
use plimsoll_log::{Ack, Log, Options, Policy};

use crate::engine::{Engine, Setup};
use crate::task::Level;

pub(super) struct Plimsoll {
    log: Log,
    ack: Ack,
}

impl Plimsoll {
    pub(super) fn open(setup: &Setup, written: bool) -> Result<Self> {
        let policy = match setup.level {
            Level::Durable => Policy::Always,
            Level::Buffered => Policy::Never,
            Level::Interval => Policy::everysec(),
        };
        let (log, _) = Log::open(&setup.dir, Options { policy, ..Options::default() })?;
        Ok(Self { log, ack: if written { Ack::Written } else { policy.ack() } })
    }
}

impl Engine for Plimsoll {
    fn append(&self, _appender: usize, record: &[u8]) -> Result<()> {
        self.log.append_with(record, self.ack)?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.log.sync()?;
        Ok(())
    }

    fn syncs_itself(&self) -> bool {
        true
    }

    fn read(&self) -> Result<(u64, u64)> {
        let mut reader = self.log.read_from(self.log.first_index())?;
        let (mut records, mut bytes) = (0, 0);
        while let Some(record) = reader.next_record()? {
            records += 1;
            bytes += record.payload.len() as u64;
        }
        Ok((records, bytes))
    }

    fn says(&self) -> Option<String> {
        let stats = self.log.stats();
        Some(format!("{}, {}", stats.method, stats.layout))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.log.close()?)
    }

    fn abandon(self: Box<Self>) {
        std::mem::forget(self);
    }
}
