//! What can go wrong, grouped by what the caller can do about it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::segment::damage::Damage;

/// An operation of a log failed.
///
/// Cloneable, because one failure is told to everybody who waited.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk, or the system, refused. Of a log that is open: nothing was accepted, and the log goes
    /// on. Of opening: nothing was lost; `Locked` inside names the process that has the log.
    #[error("the log's directory failed")]
    Disk(#[from] plimsoll_sync::Error),

    /// A write or a sync failed, and so did every way around it. Nothing more is accepted, and what
    /// was not yet durable may be lost. Reads go on. Close, mend the disk, open again.
    #[error("the log has stopped: nothing more is accepted, records after {durable} may be lost")]
    Stopped {
        /// Records up to this one are durable.
        durable: u64,
        /// What failed.
        source: Arc<Self>,
    },

    /// The log was closed.
    #[error("the log is closed")]
    Closed,

    /// This process was forked from the one that opened the log, and only that one may use it: its
    /// threads are not here. Nothing was done. Open the log here, once it is closed there.
    #[error("this process was forked from the one that has the log open, and cannot use it")]
    Forked,

    /// There is no room for another segment. Nothing was accepted; what was accepted before has its
    /// room. Free some, or truncate the log, and go on.
    #[error("no room on the disk for another segment; records up to {last_index} have theirs")]
    OutOfSpace {
        /// The last record that was accepted.
        last_index: u64,
    },

    /// The ring is full, and waiting was not asked for. Nothing was accepted. Try later.
    #[error("the ring is full: the disk is behind by {behind_bytes} bytes")]
    WouldBlock {
        /// Bytes that are not yet released.
        behind_bytes: u64,
    },

    /// More than a log with these options takes at once. Nothing was accepted.
    #[error("{bytes} bytes at once are too many; this log takes {max_bytes}")]
    TooLarge {
        /// What was asked for, heads of the frames included.
        bytes: u64,
        /// What is possible.
        max_bytes: u64,
    },

    /// There are no more indexes: only a log that was made to look so gets there. Nothing was accepted.
    #[error("record {last_index} is the last that a log can have")]
    Exhausted {
        /// The last record that was accepted.
        last_index: u64,
    },

    /// It did not happen in time. It still may.
    #[error("record {index} was not {state} in time; it still may be")]
    TimedOut {
        /// What was waited for.
        index: u64,
        /// `written` or `durable`.
        state: &'static str,
    },

    /// No such record: not yet appended, or gone.
    #[error("there is no record {index}: the log has {first_index} to {last_index}")]
    OutOfRange {
        /// What was asked for.
        index: u64,
        /// The oldest.
        first_index: u64,
        /// The newest.
        last_index: u64,
    },

    /// The record was cut off by `truncate_after` before it got where somebody waited for it to be, or
    /// after it was read.
    #[error("record {index} was truncated")]
    Truncated {
        /// What was waited for.
        index: u64,
    },

    /// Durable bytes have changed, or are gone. Nothing is cut. What is readable of such a
    /// log a [`crate::View`] reads, and `plimsoll log verify` says.
    #[error("{0}")]
    Corrupt(Box<Corruption>),

    /// Another version of Plimsoll wrote this. Nothing is changed. Use that one, or a newer.
    #[error(
        "{segment} has format version {version}, and this program knows only {}",
        crate::VERSION
    )]
    Version {
        /// The file.
        segment: String,
        /// The version that it names.
        version: u32,
    },

    /// Options that cannot be. Change them.
    #[error("{0}")]
    Options(String),
}

/// Where durable bytes are not what they should be, and which records that concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub segment: String,
    /// Where in it.
    pub byte_offset: u64,
    /// What is wrong there.
    pub damage: Damage,
    /// Records that were durable and cannot be read, as far as is known.
    pub records: RangeInclusive<u64>,
}

/// What operations return.
pub type Result<T> = std::result::Result<T, Error>;

impl std::fmt::Display for Corruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { segment, byte_offset, damage, records } = self;
        write!(f, "corruption in {segment} at byte offset {byte_offset}: {damage}; ")?;
        match (records.start(), records.end()) {
            (first, &u64::MAX) => write!(f, "records from {first} cannot be read there"),
            (first, last) if first == last => write!(f, "record {first} was durable and is lost"),
            (first, last) => write!(f, "records {first} to {last} were durable and are lost"),
        }
    }
}

impl Error {
    /// Corruption, as an error.
    pub(crate) fn corrupt(
        segment: impl Into<String>,
        byte_offset: u64,
        damage: Damage,
        records: RangeInclusive<u64>,
    ) -> Self {
        Self::Corrupt(Box::new(Corruption {
            segment: segment.into(),
            byte_offset,
            damage,
            records,
        }))
    }

    /// Whether the process, or the system, had no file descriptors left.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Disk(error) if error.is_out_of_descriptors())
    }

    /// Whether there was no room.
    pub(crate) fn is_out_of_space(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Disk(e) if matches!(e.kind(), Some(StorageFull | QuotaExceeded)))
            || matches!(self, Self::OutOfSpace { .. })
    }
}
