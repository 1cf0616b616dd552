//! The engines, a file each.

mod fjall;
mod okaywal;
mod plimsoll;
mod raft_engine;
mod raw;
mod redis;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;
mod walrus;

use anyhow::{Result, bail};

use crate::engine::{Engine, Setup};

/// Opens an engine by the name of its arm.
pub(crate) fn open(arm: &str, setup: &Setup) -> Result<Box<dyn Engine>> {
    std::fs::create_dir_all(&setup.dir)?;
    Ok(match arm {
        ours if ours.starts_with("plimsoll") => Box::new(plimsoll::Plimsoll::open(setup, ours)?),
        "fjall" => Box::new(fjall::Fjall::open(setup)?),
        "okaywal" => Box::new(okaywal::OkayWal::open(setup)?),
        "raft-engine" => Box::new(raft_engine::RaftEngine::open(setup)?),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(rocksdb::Rocks::open(setup)?),
        "sqlite" => Box::new(sqlite::Sqlite::open(setup)?),
        "walrus" => Box::new(walrus::Walrus::open(setup)?),
        "redis" => Box::new(redis::Redis::open(setup)?),
        "raw-dsync" | "raw-fdatasync" => Box::new(raw::Synced::open(setup, arm)?),
        "raw-memcpy" => Box::new(raw::Copied::new()),
        "raw-write" => Box::new(raw::Written::open(setup, false)?),
        "raw-direct" => Box::new(raw::Written::open(setup, true)?),
        other => bail!("there is no arm {other} in this program"),
    })
}
