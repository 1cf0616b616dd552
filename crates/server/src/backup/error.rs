//! [`Error`]: why nothing is backed up, or restored; by what the caller can do about it.

use crate::broker::Failed;
use crate::cursor::Malformed;
use crate::{chapter, cluster};

/// Why nothing is backed up, or restored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// What is to be backed up is no broker's directory, or its first start is not done.
    #[error(
        "it is not the data directory of a broker, or the first start of that is not done: it has no {lacks}"
    )]
    NotABroker {
        /// What it does not have.
        lacks: String,
    },
    /// What is to be restored, or added to, is no backup.
    #[error("it is not a backup: it has no file 'backup'")]
    NotABackup,
    /// There is something else where a backup, or a broker's directory, is to be made.
    #[error(
        "it is not empty: there is '{found}'; name a directory that is empty, or not there yet"
    )]
    NotEmpty {
        /// A name.
        found: String,
    },
    /// The backup was begun, and no generation of it is whole.
    #[error(
        "the backup is not finished: run `plimsoll backup` once more, which goes on where it ended"
    )]
    Unfinished,
    /// The backup is of another broker.
    #[error("it is a backup of the broker {there}, and this one is {here}: each needs its own")]
    OtherBroker {
        /// Whose it is.
        there: String,
        /// Whose was to be added.
        here: String,
    },
    /// A file of the backup is not what was written there.
    #[error("the file '{file}' of the backup is damaged")]
    Damaged {
        /// Its name.
        file: String,
        /// What does not fit.
        #[source]
        why: Malformed,
    },
    /// Records of the log of a backup are not what was written there.
    #[error(
        "the log of shard {number} in the backup is damaged: it ends at entry {last}, not at {wanted}, or has others"
    )]
    OtherLog {
        /// Which shard.
        number: u32,
        /// Where it ends.
        last: u64,
        /// Where it should.
        wanted: u64,
    },
    /// The log of a shard, or its identity.
    #[error("shard {number}")]
    Shard {
        /// Which.
        number: u32,
        /// Why.
        #[source]
        why: cluster::Error,
    },
    /// The chapters of a shard.
    #[error("the chapters of shard {number}")]
    Chapters {
        /// Which.
        number: u32,
        /// Why.
        #[source]
        why: chapter::Error,
    },
    /// The snapshot of a shard.
    #[error(transparent)]
    Snapshot(#[from] Failed),
    /// The broker changed what was copied, as often as it was begun again.
    #[error(
        "the broker changes faster than it is copied: {what}; nothing is lost, and what was copied is kept: \
         run it once more, or when less is going on"
    )]
    TooFast {
        /// What changed.
        what: &'static str,
    },
    /// The node that was asked has no more than the one that asks.
    #[error("it has no more of it than this node has")]
    NoMore,
    /// What was asked for is not needed now.
    #[error("it is not needed now, or no other node leads")]
    NotNow,
    /// It was asked to stop.
    #[error("it was stopped")]
    Stopped,
    /// The disk.
    #[error(transparent)]
    Disk(#[from] plimsoll_sync::Error),
}

impl Error {
    /// Whether something is not what was written there.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use cluster::Error::{Gap, IdentityLost, Log, NotAnEntry};

        match self {
            Self::Damaged { .. } | Self::OtherLog { .. } | Self::Snapshot(Failed::Damaged(_)) => {
                true
            }
            Self::Chapters { why, .. } => {
                !matches!(why, chapter::Error::Disk(_) | chapter::Error::Stopped)
            }
            Self::Shard { why, .. } => matches!(
                why,
                Log(plimsoll_log::Error::Corrupt(_))
                    | NotAnEntry { .. }
                    | IdentityLost { .. }
                    | Gap { .. }
            ),
            _ => false,
        }
    }

    pub(crate) fn of_shard(number: u32) -> impl Fn(cluster::Error) -> Self {
        move |why| Self::Shard { number, why }
    }

    pub(crate) fn of_chapters(number: u32) -> impl Fn(chapter::Error) -> Self {
        move |why| match why {
            chapter::Error::Stopped => Self::Stopped,
            why => Self::Chapters { number, why },
        }
    }
}
