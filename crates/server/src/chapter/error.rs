//! [`Error`]: why a chapter cannot be written or read.

use crate::cursor::Malformed;
use crate::shard::Opening;

/// Why a chapter cannot be written or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] plimsoll_sync::Error),
    /// The file is no chapter, or damaged where it says what it holds.
    #[error("{file} is damaged: {why}")]
    File {
        /// Its name.
        file: String,
        /// What does not fit.
        why: Malformed,
    },
    /// A run is damaged; others can be read.
    #[error("{file} is damaged in the run of {opening}, at offsets {from} to {last}")]
    Run {
        /// Name of the file.
        file: String,
        /// Whose records they are.
        opening: Opening,
        /// The first offset that cannot be read.
        from: i64,
        /// The last.
        last: i64,
    },
    /// A file that the manifest names is not there, or another has its name.
    #[error("{file} is missing, or is not the one that the manifest names")]
    Missing {
        /// Its name.
        file: String,
    },
    /// The manifest is not there, or an older one: what it does not name may be what was settled. Nothing is changed.
    #[error(
        "the manifest is missing, or an older one: chapter {chapter} was settled, and by it {named} is the last"
    )]
    Unsettled {
        /// The last that it knows; 0: none.
        named: u64,
        /// One that was settled.
        chapter: u64,
    },
    /// The log holds something else than the shard's state says.
    #[error("chapter {chapter} cannot be written: the log up to {index} is not what was applied")]
    NotPlanned {
        /// Which.
        chapter: u64,
        /// The log index where that showed.
        index: u64,
    },
    /// What another node gave to heal a run is not that run.
    #[error("what another node has of {opening} in chapter {chapter} is not what is damaged here")]
    Strange {
        /// Whose records they are.
        opening: Opening,
        /// The chapter.
        chapter: u64,
    },
    /// Its writing was stopped.
    #[error("it was stopped")]
    Stopped,
}
