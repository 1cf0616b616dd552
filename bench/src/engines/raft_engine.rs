//! raft-engine: a region is a log of its own, all of them in one stream of files.

use std::sync::Mutex;

use anyhow::Result;
use protobuf::descriptor::UninterpretedOption;
use raft_engine::{Config, Engine as Log, LogBatch, MessageExt, ReadableSize};

use crate::engine::{Engine, Setup};
use crate::task::Level;

/// The region whose entries only carry a sync.
const SYNCS: u64 = u64::MAX;

pub(super) struct RaftEngine {
    log: Log,
    durable: bool,
    regions: Vec<Mutex<Region>>,
    syncs: Mutex<Region>,
}

struct Region {
    id: u64,
    next: u64,
    batch: LogBatch,
}

/// An entry must be a protobuf message with an index. Of those that come with the library, this one
/// has a number and bytes, as raft's own entry has.
struct Entries;

impl MessageExt for Entries {
    type Entry = UninterpretedOption;

    fn index(entry: &Self::Entry) -> u64 {
        entry.get_positive_int_value()
    }
}

impl RaftEngine {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        let log = Log::open(Config {
            dir: setup.dir.to_string_lossy().into_owned(),
            batch_compression_threshold: ReadableSize(0),
            ..Config::default()
        })?;
        let region = |id| {
            let next = log.last_index(id).map_or(1, |last| last + 1);
            Mutex::new(Region { id, next, batch: LogBatch::default() })
        };
        let regions = (1..=setup.appenders as u64).map(region).collect();
        let syncs = region(SYNCS);
        Ok(Self { log, durable: setup.level == Level::Durable, regions, syncs })
    }

    fn write(&self, region: &Mutex<Region>, record: &[u8], sync: bool) -> Result<()> {
        let mut region = region.lock().expect("an appender panicked");
        let Region { id, next, batch } = &mut *region;
        let mut entry = UninterpretedOption::new();
        entry.set_positive_int_value(*next);
        entry.set_string_value(record.to_vec());
        batch.add_entries::<Entries>(*id, &[entry])?;
        *next += 1;
        self.log.write(batch, sync)?;
        Ok(())
    }
}

impl Engine for RaftEngine {
    fn append(&self, appender: usize, record: &[u8]) -> Result<()> {
        self.write(&self.regions[appender], record, self.durable)
    }

    fn sync(&self) -> Result<()> {
        self.write(&self.syncs, b"", true)
    }

    fn read(&self) -> Result<(u64, u64)> {
        let (mut records, mut bytes) = (0, 0);
        for region in self.log.raft_groups().into_iter().filter(|id| *id != SYNCS) {
            let (Some(first), Some(last)) =
                (self.log.first_index(region), self.log.last_index(region))
            else {
                continue;
            };
            let mut entries = Vec::new();
            for from in (first..=last).step_by(1024) {
                self.log.fetch_entries_to::<Entries>(
                    region,
                    from,
                    (from + 1024).min(last + 1),
                    None,
                    &mut entries,
                )?;
                records += entries.len() as u64;
                bytes +=
                    entries.iter().map(|entry| entry.get_string_value().len() as u64).sum::<u64>();
                entries.clear();
            }
        }
        Ok((records, bytes))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn abandon(self: Box<Self>) {
        std::mem::forget(self);
    }
}
