//! What can go wrong in a group, grouped by what the caller can do about it.

use std::io;
use std::sync::Arc;

use super::record::{NotAnEntry, from_log};

/// An operation of a group failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This replica does not lead, or not in that leadership any more. Nothing was proposed: find
    /// the leader, and ask there.
    #[error("this replica does not lead in term {term}; nothing was proposed")]
    NotLeader {
        /// The leadership that was asked for.
        term: u64,
    },

    /// Another was to lead in place of this replica, and does not: this one goes on.
    #[error("node {to} does not take over: {why}")]
    NotTaken {
        /// Which.
        to: u64,
        /// Why.
        why: String,
    },

    /// The leadership ended after the entry was in the log: it may be committed, now or later, or
    /// never. Who proposes it again must be able to tell that it is the same.
    #[error("leadership in term {term} ended; whether the entry is committed is not known")]
    Unknown {
        /// The leadership that ended.
        term: u64,
    },

    /// Nothing was proposed. Propose less at once.
    #[error("a payload of {bytes} bytes is too large; this group takes {max_bytes}")]
    TooLarge {
        /// What was asked for.
        bytes: usize,
        /// What is possible.
        max_bytes: u64,
    },

    /// What a disk has lost of a log is not healed yet. It is tried again.
    #[error("{why}")]
    NotHealed {
        /// Who has it not, or what is not known.
        why: String,
    },

    /// Another change of who votes is under way. Nothing was done.
    #[error("who votes is being changed just now: ask again in a moment")]
    Changing,

    /// The engine has stopped, or was closed; an entry that was under way may be committed or not.
    /// Close, mend what is named, open again.
    #[error("the engine has stopped: {why}")]
    Stopped {
        /// What it said.
        why: String,
    },

    /// Nobody knows what this replica promised: it must not vote or lead under this id again. Take
    /// the directory away, and let a new replica, with an id that was never used, take its place.
    #[error("the file 'identity' is lost: {why}; this replica cannot know what it promised")]
    IdentityLost {
        /// What was found.
        why: &'static str,
    },

    /// The directory is another node's.
    #[error("this directory is of node {found}, not of node {asked}")]
    OtherNode {
        /// Who it is.
        found: u64,
        /// Who was to be opened.
        asked: u64,
    },

    /// Two nodes led in one term, or a term went back: one of those that voted has forgotten that it did, so what was acknowledged
    /// may be lost. This replica takes nothing from either.
    #[error(
        "it voted for node {} in term {}, and is told that node {} leads in term {}: a node has forgotten its vote, as one does whose directory \
         went back to an earlier state, and records may be lost that this one still has",
        saved.1, saved.0, told.1, told.0
    )]
    TwoLeaders {
        /// What it voted: the term, and for whom.
        saved: (u64, u64),
        /// What it is told.
        told: (u64, u64),
    },

    /// Another version of Plimsoll wrote the file 'identity'. Nothing is changed. Use that one, or
    /// a newer.
    #[error("the file 'identity' has version {version}, which is not known here")]
    Version {
        /// The version that it names.
        version: u32,
    },

    /// A record of the log is whole and not an entry: another version wrote it, or this is a bug.
    #[error("record {} of the log is no entry: {source}", super::record::to_log(*index))]
    NotAnEntry {
        /// The entry that it should be.
        index: u64,
        /// Why it is none.
        source: NotAnEntry,
    },

    /// Entries are missing: at the log's beginning, of those that were never taken out of it, or at
    /// its end, where it stops before what was. The log was lost in part, or is another's.
    #[error(
        "the log has the entries from {first_index} up to, and without, {next_index}; \
         {wanted} is neither one of them nor the next"
    )]
    Gap {
        /// Where it begins.
        first_index: u64,
        /// What its next entry would be.
        next_index: u64,
        /// What comes after the last entry that was taken out.
        wanted: u64,
    },

    /// The log is empty, and this replica has voted, which it never does before its members are durable:
    /// the log was lost, or its first record was damaged before a later one called it durable. Nobody can
    /// elect a leader. Take the directory back from a copy.
    #[error(
        "the log has lost its first entry, the members, which was durable before this replica voted"
    )]
    MembersLost,

    /// The log failed.
    #[error("the log of the group failed")]
    Log(#[from] plimsoll_log::Error),

    /// A write or a sync failed, and others vote too: this replica acknowledges nothing any more, and another leads. Close,
    /// and open again: what the disk still has is read past the cache then.
    #[error("its disk has failed: {why}")]
    DiskFailed {
        /// What failed first.
        why: String,
    },

    /// The directory, or the file 'identity', failed.
    #[error("the directory of the group failed")]
    Disk(#[from] plimsoll_sync::Error),

    /// No thread for the engine.
    #[error("the engine's thread cannot be started")]
    Thread(#[source] Arc<io::Error>),
}

/// What operations return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The first entry that a disk has lost, if that is what it says.
    pub(crate) fn damaged_from(&self) -> Option<u64> {
        match self {
            Self::Log(plimsoll_log::Error::Corrupt(damage)) => from_log(*damage.records.start()),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    /// The engine knows no other errors of a disk.
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
