//! RocksDB: a store whose WAL is the log.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use rocksdb::{DB, Options, WriteBatchIterator, WriteOptions};

use crate::engine::{Engine, Setup};
use crate::task::Level;

pub(super) struct Rocks {
    db: DB,
    next: AtomicU64,
    durable: bool,
}

/// Counts what a batch of the WAL holds.
#[derive(Default)]
struct Counted {
    records: u64,
    bytes: u64,
}

impl WriteBatchIterator for Counted {
    fn put(&mut self, _key: Box<[u8]>, value: Box<[u8]>) {
        self.records += 1;
        self.bytes += value.len() as u64;
    }

    fn delete(&mut self, _key: Box<[u8]>) {}
}

impl Rocks {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        let mut options = Options::default();
        options.create_if_missing(true);
        // The memtable is never flushed: what touches the disk is the WAL.
        options.set_write_buffer_size(4 << 30);
        options.set_max_total_wal_size(8 << 30);
        options.set_wal_ttl_seconds(3600); // so that the WAL can be read after an open
        options.set_disable_auto_compactions(true);
        let db = DB::open(&options, &setup.dir)?;
        if db.latest_sequence_number() == 0 {
            // The binding's iterator over updates skips the first; this one may be skipped.
            db.put(b"first", b"")?;
        }
        Ok(Self { db, next: AtomicU64::new(1), durable: setup.level == Level::Durable })
    }
}

impl Engine for Rocks {
    fn append(&self, _appender: usize, record: &[u8]) -> Result<()> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let mut options = WriteOptions::default();
        options.set_sync(self.durable);
        Ok(self.db.put_opt(index.to_be_bytes(), record, &options)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn read(&self) -> Result<(u64, u64)> {
        let mut counted = Counted::default();
        for batch in self.db.get_updates_since(0)? {
            batch?.1.iterate(&mut counted);
        }
        Ok((counted.records, counted.bytes))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn abandon(self: Box<Self>) {
        std::mem::forget(self);
    }
}
