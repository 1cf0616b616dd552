//! fjall: a store whose journal is the log.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::engine::{Engine, Setup};
use crate::task::Level;

pub(super) struct Fjall {
    db: Database,
    log: Keyspace,
    next: AtomicU64,
    durable: bool,
}

impl Fjall {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        let db = Database::builder(&setup.dir).max_journaling_size(8 << 30).open()?;
        let log =
            db.keyspace("log", || KeyspaceCreateOptions::default().max_memtable_size(2 << 30))?;
        Ok(Self { db, log, next: AtomicU64::new(1), durable: setup.level == Level::Durable })
    }
}

impl Engine for Fjall {
    fn append(&self, _appender: usize, record: &[u8]) -> Result<()> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        self.log.insert(index.to_be_bytes(), record)?;
        if self.durable {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn read(&self) -> Result<(u64, u64)> {
        let (mut records, mut bytes) = (0, 0);
        for entry in self.log.iter() {
            let (_, record) = entry.into_inner()?;
            records += 1;
            bytes += record.len() as u64;
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
