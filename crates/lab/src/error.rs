//! Why a run ended without a result, grouped by who can act on it.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::scratch::CannotRun;

/// Why a run ended without a result. The files that it wrote for measuring are removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing can be measured here. The text says why and what to do. No file was left behind.
    #[error(transparent)]
    CannotRun(#[from] CannotRun),

    /// The disk failed while it was measured. After a failed sync no figure of that file can be
    /// trusted, so the run ends.
    #[error("the disk failed while it was measured, so the run ended")]
    Disk(#[source] plimsoll_sync::Error),

    /// The filesystem filled up while it was measured. Free some room, and measure again.
    #[error("the filesystem filled up while it was measured; free some room and measure again")]
    Full(#[source] plimsoll_sync::Error),

    /// A result or a report could not be saved.
    #[error("{} could not be saved", path.display())]
    Save {
        /// Where it should have gone.
        path: PathBuf,
        /// Why it did not.
        source: plimsoll_sync::Error,
    },

    /// A broker that was started to be measured did not start, did not answer, or ended. The text says
    /// which one, and what it said last.
    #[error("{0}")]
    Broker(String),

    /// Somebody asked for the run to stop.
    #[error("interrupted: the scratch files are removed, results of finished experiments are kept")]
    Interrupted,
}

impl From<plimsoll_sync::Error> for Error {
    fn from(error: plimsoll_sync::Error) -> Self {
        match error.kind() {
            Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Self::Full(error),
            _ => Self::Disk(error),
        }
    }
}

/// What every step of a run returns.
pub type Result<T> = std::result::Result<T, Error>;
