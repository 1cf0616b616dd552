//! [`Failed`]: what a node cannot go on without, by what the caller can do about it.

use std::io::ErrorKind;

use crate::shard::Opening;
use crate::{chapter, cluster, run};

/// A node cannot be opened, or goes on without something.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failed {
    /// The directory is of another cluster.
    #[error("this directory is of the cluster {found}, not of {wanted}")]
    OtherCluster {
        /// Whose it is.
        found: String,
        /// Which one was asked for.
        wanted: String,
    },

    /// A cluster is founded in a new directory only.
    #[error("something is in {0} already; a cluster is founded in a directory that is new")]
    Founded(String),

    /// The others count on a vote that this directory has forgotten.
    #[error(
        "node {node} votes in shard {number} of its cluster, and has nothing of it here: its disk was lost, or this is \
         another directory; it has forgotten what it voted, so it does not come back under its number: `plimsoll \
         cluster join` has another come in its place"
    )]
    Lost {
        /// The number under which it was started.
        node: u64,
        /// A shard in which that votes.
        number: u32,
    },

    /// The directory is new, and memory is not.
    #[error(
        "this directory is new, but {rings} has what a broker {node} of this cluster acknowledged: if that has its directory on a disk \
         that is not mounted, mount it; if it is lost, have another come in its place (`plimsoll cluster join`); if there never \
         was more, or it was removed from the cluster, remove {rings}"
    )]
    RingsLeft {
        /// The number under which it was started.
        node: u64,
        /// Where its rings are.
        rings: String,
    },

    /// The node has forgotten starts that others know of.
    #[error(
        "the others know of a start of node {node} that this directory does not: {}",
        if *is_founded {
            "it is a new one, its disk went back to an earlier state, or it is a copy; it may have forgotten what it voted, so it \
             does not come back under its number: `plimsoll cluster join` has another come in its place"
        } else {
            "it is a new one, as far as it knows. If what it had is lost, it does not come back under its number: `plimsoll \
             cluster join` has another come in its place; if it was started in another directory before the cluster was \
             founded, by mistake, start the others again as well"
        }
    )]
    WentBack {
        /// The number under which it was started.
        node: u64,
        /// Whether others vote, as far as it knows.
        is_founded: bool,
    },

    /// The directory has forgotten runs that memory knows of.
    #[error(
        "memory ({rings}) knows of a run of this directory that it does not know itself: it went back to an earlier state, as a copy or a \
         snapshot of its volume does, or another copy was started. What was acknowledged since is not in it, {}",
        if *is_alone {
            "nor what was durable: put the directory back as the last run left it; or, to go on without that, remove what memory has"
        } else {
            "nor what it voted, so it does not come back under its number: `plimsoll cluster join` has another come in its place"
        }
    )]
    Older {
        /// Whether it is no node of a cluster.
        is_alone: bool,
        /// Where memory is.
        rings: String,
    },

    /// The file with the id is gone, and what was kept under that is there.
    #[error(
        "the directory has shards, and no file 'cluster', which says whose they are: put it back, from another broker of the \
         cluster, where it is the same, or from a copy of this directory. Nothing was changed"
    )]
    NoId,

    /// A write or a sync failed. What is not durable may be lost here; the others have it.
    #[error(
        "{why}: the disk under {dir} counts as failed, and this broker leads nothing and acknowledges nothing any more; \
         started again it reads past the cache what the disk has, and gets from the others what that lacks: if this \
         happens again, replace the disk"
    )]
    Disk {
        /// Where.
        dir: String,
        /// What failed first.
        why: String,
    },

    /// Other nodes cannot be talked to.
    #[error("other brokers cannot be talked to")]
    Peers(#[source] std::sync::Arc<std::io::Error>),

    /// A shard cannot be opened, or has stopped.
    #[error("shard {number}")]
    Shard {
        /// Which.
        number: u32,
        /// Why.
        #[source]
        why: cluster::Error,
    },
    /// A shard has stopped, and said why.
    #[error("shard {number} is offline")]
    Offline {
        /// Which.
        number: u32,
    },
    /// Another replica leads a shard, or nobody does: ask there. What was asked for may be done all the same.
    #[error(
        "shard {number} is not led here: another leads it, or nobody does (`plimsoll cluster status`)"
    )]
    NotLeader {
        /// Which.
        number: u32,
    },
    /// Topics were durable, and their changes are not in the log any more.
    #[error("shard 0 has lost changes: it does not know of {opening}, which is in shard {number}")]
    Forgotten {
        /// Where something of one is.
        number: u32,
        /// What is there.
        opening: Opening,
    },
    /// Changes were durable that are not in the log of control any more.
    #[error("shard 0 has lost changes: shard {number} was told of later ones")]
    Outdated {
        /// Which was.
        number: u32,
    },
    /// An entry was asked for that is not in the log any more.
    #[error("entry {index} is not in the log of shard {number} any more")]
    Gone {
        /// Which.
        number: u32,
        /// The entry.
        index: u64,
    },
    /// The chapters of a shard cannot be opened, written or read.
    #[error("the chapters of shard {number}")]
    Chapters {
        /// Which.
        number: u32,
        /// Why.
        #[source]
        why: chapter::Error,
    },
    /// The log ends before what was noted to be durable, and no other broker is known to have the rest.
    #[error(
        "the log of shard {number} ends at entry {end}, and by known-{number} entries up to {durable} were durable here: the disk has lost what it said \
         was durable, and by what is left of the log no other broker votes that could give it back: restore a backup, or, where others \
         have the cluster, have another come in its place, with an empty directory and another number (`plimsoll cluster join`), and once that \
         votes `plimsoll cluster remove` this one"
    )]
    TooShort {
        /// Which.
        number: u32,
        /// The last entry of its log.
        end: u64,
        /// The last that was noted to be durable.
        durable: u64,
    },
    /// The log ends before its chapters do: the disk lost what it had said was durable.
    #[error(
        "the log of shard {number} ends at entry {last}, and its chapters at {end}: the disk has lost what it \
         said was durable"
    )]
    Behind {
        /// Which.
        number: u32,
        /// The last entry of its log.
        last: u64,
        /// The last that a chapter holds.
        end: u64,
    },
    /// It was decided after a loss to go on with less than this broker has in its snapshot, or it missed such a decision.
    #[error(
        "it was decided after a loss to go on with the entries of shard {number} up to {least}, and state-{number} has what others may not have, of those up to {has}"
    )]
    Ahead {
        /// Which.
        number: u32,
        /// The last entry that is in what it has.
        has: u64,
        /// The last that is gone on with.
        least: u64,
    },
    /// The same, and what it has more is in chapters.
    #[error(
        "it was decided after a loss to go on with the entries of shard {number} up to {least}, and this broker has chapters of those up to {settled}, which may          be the last copy of their records: keep this directory, and have another broker come in its place, with an empty directory and another number          (`plimsoll cluster join`), and once that votes `plimsoll cluster remove` this one"
    )]
    AheadForGood {
        /// Which.
        number: u32,
        /// The last entry that is in its chapters.
        settled: u64,
        /// The last that is gone on with.
        least: u64,
    },
    /// What the log goes on from is not there.
    #[error(
        "the log of shard {number} begins at entry {first}, and state-{number}, which has what came before it, is not there: \
         if it was moved away, put it back"
    )]
    NoSnapshot {
        /// Which.
        number: u32,
        /// The first entry of its log.
        first: u64,
    },
    /// The directory failed.
    #[error("the data directory")]
    Directory(#[source] plimsoll_sync::Error),
    /// A file of the directory is not what was written there.
    #[error("the file '{0}' of the data directory is not what a broker wrote there{way}", way = way_on(.0))]
    Damaged(String),
    /// A restore into the directory was begun, and not finished.
    #[error(
        "a restore into the data directory was begun, and is not finished: remove what is there, and run \
         `plimsoll restore` once more"
    )]
    Unrestored,
    /// What the last run left, and what this one notes of itself.
    #[error("the marks of the run")]
    Run(#[from] run::Error),
    /// A ring in which an entry may not have room.
    #[error("rings of {ring_bytes} bytes are too small; they have {least_bytes} at least")]
    SmallRing {
        /// What was asked for.
        ring_bytes: u64,
        /// The smallest that are taken.
        least_bytes: u64,
    },
    /// The threads that the logs share cannot be started.
    #[error("the threads of the logs cannot be started")]
    Threads(#[source] plimsoll_log::Error),
}

impl Failed {
    /// Whether the directory lacks, has damaged, or cannot read, what other brokers of its cluster may have whole.
    #[must_use]
    pub fn lacks_what_others_have(&self) -> bool {
        match self {
            Self::Directory(why)
            | Self::Chapters { why: chapter::Error::Disk(why), .. }
            | Self::Shard { why: cluster::Error::Log(plimsoll_log::Error::Disk(why)), .. } => {
                why.is_of_the_device()
            }
            Self::Damaged(_)
            | Self::Behind { .. }
            | Self::Ahead { .. }
            | Self::NoSnapshot { .. }
            | Self::Forgotten { .. }
            | Self::Outdated { .. } => true,
            Self::Shard { why, .. } => {
                why.damaged_from().is_some() || matches!(why, cluster::Error::Gap { .. })
            }
            Self::Chapters { why, .. } => {
                use chapter::Error::{File, Missing, Unsettled};
                matches!(why, File { .. } | Missing { .. } | Unsettled { .. })
            }
            _ => false,
        }
    }
}

/// What can be done about a file that is damaged, where that is not said elsewhere.
fn way_on(file: &str) -> &'static str {
    if file.starts_with("loss-") {
        return ": move it elsewhere, and start again: the others say once more what was decided, or it is decided anew";
    }
    ""
}

/// What was opened, if it is there.
pub(super) fn found<T>(opened: plimsoll_sync::Result<T>) -> Result<Option<T>, Failed> {
    match opened {
        Ok(found) => Ok(Some(found)),
        Err(why) if why.kind() == Some(ErrorKind::NotFound) => Ok(None),
        Err(why) => Err(Failed::Directory(why)),
    }
}

/// An error with its causes.
pub(crate) fn sentence(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said += &format!(": {error}");
        cause = error.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_broker_is_named_only_where_something_is_lost_or_damaged() {
        let gap = cluster::Error::Gap { first_index: 9, next_index: 12, wanted: 0 };
        let denied = ErrorKind::PermissionDenied.into();
        let directory = Failed::Directory(plimsoll_sync::Error::io("open", "shard-2", denied));
        let disk = ErrorKind::StorageFull.into();
        let disk = chapter::Error::Disk(plimsoll_sync::Error::io("read", "manifest", disk));
        let unreadable = std::io::Error::from_raw_os_error(5);
        let unreadable = plimsoll_sync::Error::io("read", "state-2", unreadable);
        for lost in [
            #[cfg(unix)]
            Failed::Directory(unreadable),
            Failed::Damaged("state-2".to_owned()),
            Failed::NoSnapshot { number: 2, first: 9 },
            Failed::Shard { number: 2, why: gap },
            Failed::Behind { number: 2, last: 3, end: 4 },
        ] {
            assert!(lost.lacks_what_others_have(), "{lost}");
        }
        for other in [directory, Failed::Chapters { number: 2, why: disk }, Failed::Unrestored] {
            assert!(!other.lacks_what_others_have(), "{other}");
        }
    }
}
