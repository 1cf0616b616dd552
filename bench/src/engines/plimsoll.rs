//! Ours.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use plimsoll_log::{Ack, Log, Options, Policy, Ring};

use crate::engine::{Engine, Setup};
use crate::task::Level;

/// A ring on tmpfs, this process's own.
fn ring() -> PathBuf {
    PathBuf::from(format!("/dev/shm/plimsoll-bench-{}", std::process::id()))
}

pub(super) struct Plimsoll {
    log: Arc<Log>,
    ack: Ack,
    tasks: bool,
}

impl Plimsoll {
    pub(super) fn open(setup: &Setup, arm: &str) -> Result<Self> {
        let policy = match setup.level {
            Level::Durable => Policy::Always,
            Level::Buffered => Policy::Never,
            Level::Interval => Policy::everysec(),
        };
        let mut options = Options { policy, ..Options::default() };
        let mut ack = policy.ack();
        match arm {
            "plimsoll-written" => (options.direct, ack) = (false, Ack::Written),
            "plimsoll-tmpfs" => options.ring = Ring::File(ring()),
            _ => {}
        }
        let (log, _) = Log::open(&setup.dir, options)?;
        Ok(Self { log: Arc::new(log), ack, tasks: arm == "plimsoll-tasks" })
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

    fn tasks(&self) -> Option<&Arc<Log>> {
        self.tasks.then_some(&self.log)
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
        let log = Arc::into_inner(self.log).expect("no task is left");
        Ok(log.close()?)
    }

    fn abandon(self: Box<Self>) {
        std::fs::remove_file(ring()).ok();
        std::mem::forget(self);
    }
}
