//! A broker's data, kept in another directory, and brought back.
//!
//! ```text
//! BACKUP/backup                          which generation is whole, and what it holds: see `head.rs`
//! BACKUP/chapters-N/00000001.chapter     runs of shard N: each once, whatever generation named it
//! BACKUP/rest-1, BACKUP/rest-2           two generations, by turns:
//!        rest-1/chapters-N/manifest      which runs are in it
//!        rest-1/state-N                  the snapshot of shard N
//!        rest-1/shard-N                  its log behind that, and its identity
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `take.rs` | [`backup()`]: from a broker's directory into a backup |
//! | `shard.rs` | one shard of it, in the order that fits together |
//! | `put.rs` | [`restore`]: from a backup into a directory for a broker |
//! | `look.rs` | [`Look`]: a backup looked at |
//! | `head.rs` | the file `backup`, drawn |
//! | `error.rs` | why it cannot be |
//!
//! The broker may be running, and is not asked: its files are read, no lock is taken, nothing is changed there. What is
//! copied is what a power cut could have left at some moment after the backup began. Three things make it so.
//!
//! **What a shard's files say of each other.** A broker writes them in this order: entries into the log, durably; a
//! chapter, and the manifest that names it; a snapshot; then its identity says what is purged, and only then the log
//! lets go; a manifest says what is gone once a snapshot does. They are read so that what is read later knows of all that
//! what was read before is based on:
//!
//! 1. identity: how far the log may have let go;
//! 2. the log, from there to its end: what is copied cannot go any more;
//! 3. the snapshot: it knows of all that let the log go;
//! 4. the manifest, and runs that lack: it knows of all that the snapshot takes for settled, and names all that was let go of;
//! 5. where the snapshot is by now, and the log once more, at least up to there and to the end of the last chapter: what made
//!    runs go is in it, and is applied again.
//!
//! Where something went before it was read, all but the runs that were copied is begun again.
//!
//! **What shards say of each other.** Control intends, and is durable before anybody acts on it; so control is read last, and has
//! the cause of all that was read before it. One change goes the other way: that a topic is *gone* is agreed on once no shard
//! has anything of it. So the logs are read on until none came while they were.
//!
//! **What a cluster has.** A replica is copied as it is: what is durable on that disk, which may be behind what is durable on a
//! majority, or in doubt. Where its files say so the report does (`doubts`). What is restored is a cluster of one: its log goes
//! on with an entry by which nobody else votes.
//!
//! **What is durable.** Files may hold entries that are not durable yet: so might a disk after a power cut. What the copy of a
//! log says of itself is written by that copy. Marks of the run are not copied, nor the ring, nor the witness: a start finds
//! logs without a mark, and fences off what may have been given away.

mod error;
mod head;
mod look;
mod put;
mod shard;
mod take;

pub use self::error::Error;
pub use self::head::NAME as HEAD;
pub use self::look::Look;
pub use self::put::restore;
pub(crate) use self::shard::{Source, Taken};
pub use self::take::backup;
pub(crate) use self::take::{looks_damaged, went};

use crate::chapter::Filled;

/// What is going on. Whoever is told says whether it is to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// So many bytes of runs are to be copied.
    Lacking(u64),
    /// So many of them were.
    Runs(u64),
    /// So many bytes of a log were.
    Log(u64),
}

/// Is told what is going on, and says whether it is to go on.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Progress) -> bool;

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whose it is.
    pub cluster: String,
    /// The cluster that what was restored is a replica of, where it is a cluster of its own now.
    pub came_from: Option<String>,
    /// When the backup was begun, in ms since 1970.
    pub begun_ms: u64,
    /// Why the broker that it was taken of may lack something that its cluster has; nothing of one that is alone.
    pub doubts: Vec<String>,
    /// Its shards.
    pub shards: Vec<ShardReport>,
}

/// What was copied of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardReport {
    /// Which.
    pub number: u32,
    /// The last entry of its log that is in it; 0 if there is none.
    pub last_index: u64,
    /// Entries that are in the log.
    pub log_entries: u64,
    /// Bytes of these.
    pub log_bytes: u64,
    /// The last chapter that is settled.
    pub chapter: u64,
    /// What of its runs was there, and what was copied.
    pub runs: Filled,
}
