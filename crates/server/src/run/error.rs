//! What can go wrong with the evidence, grouped by what the caller can do about it.

use crate::cursor::Malformed;

/// The evidence cannot be read or kept.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither slot can be read: the incarnation is not known, and must not be used twice. Nothing
    /// is changed. Where another version wrote the file, use that; where it is damaged, and this
    /// broker is alone, take it away: the next start then says that all may be lost.
    #[error("the file 'run' cannot be read, in neither of its slots")]
    Unreadable(#[source] Malformed),

    /// The files have no room for so many. Nothing is changed.
    #[error("{count} shards are more than the {most} that a broker may have")]
    TooManyShards {
        /// How many there would be.
        count: usize,
        /// How many there may be.
        most: usize,
    },

    /// A file failed, for good: acknowledge nothing more, and start again.
    #[error("what a start must know cannot be kept")]
    Disk(#[from] plimsoll_sync::Error),
}

/// What operations return.
pub type Result<T> = std::result::Result<T, Error>;
