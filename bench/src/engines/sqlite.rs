//! SQLite as a log: a table, WAL mode, an insert a transaction.

use std::sync::{Mutex, MutexGuard};

use anyhow::Result;
use rusqlite::Connection;

use crate::engine::{Engine, Setup};
use crate::task::Level;

pub(super) struct Sqlite(Mutex<Connection>);

impl Sqlite {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        let connection = Connection::open(setup.dir.join("log.sqlite"))?;
        let synchronous = if setup.level == Level::Durable { "FULL" } else { "NORMAL" };
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};
             CREATE TABLE IF NOT EXISTS log (i INTEGER PRIMARY KEY, record BLOB NOT NULL);"
        ))?;
        Ok(Self(Mutex::new(connection)))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().expect("an appender panicked")
    }
}

impl Engine for Sqlite {
    fn append(&self, _appender: usize, record: &[u8]) -> Result<()> {
        let connection = self.connection();
        connection.prepare_cached("INSERT INTO log (record) VALUES (?1)")?.execute([record])?;
        Ok(())
    }

    /// A checkpoint syncs the WAL before it moves it.
    fn sync(&self) -> Result<()> {
        self.connection().query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()))?;
        Ok(())
    }

    fn read(&self) -> Result<(u64, u64)> {
        let connection = self.connection();
        let mut query = connection.prepare("SELECT record FROM log ORDER BY i")?;
        let mut rows = query.query([])?;
        let (mut records, mut bytes) = (0, 0);
        while let Some(row) = rows.next()? {
            records += 1;
            bytes += row.get_ref(0)?.as_blob()?.len() as u64;
        }
        Ok((records, bytes))
    }

    fn close(self: Box<Self>) -> Result<()> {
        let connection = self.0.into_inner().expect("an appender panicked");
        connection.close().map_err(|(_, error)| error)?;
        Ok(())
    }

    fn abandon(self: Box<Self>) {
        std::mem::forget(self);
    }
}
