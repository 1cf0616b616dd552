//! [`Agreed`], [`Refused`]: what becomes of a change of what is intended.

use super::error::Failed;
use super::layout::CONTROL;
use crate::control::Impossible;

/// Ids of producers that are agreed on at once.
pub(super) const PRODUCERS: u32 = 1000;

/// A change that was agreed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The first of the ids of producers that it gave away, if it did.
    pub(super) first: i64,
    /// The catalog has it from this version on.
    pub(super) version: u64,
}

/// Why a change is not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// It cannot be.
    #[error(transparent)]
    Impossible(#[from] Impossible),
    /// There would be too many partitions.
    #[error("the broker has {there} partitions, and takes {max} at most")]
    Full {
        /// How many there are.
        there: usize,
        /// How many there may be.
        max: usize,
    },
    /// A node would stop at it.
    #[error(
        "node {node} is away, or runs a version that does not know of this yet: it can be done once all nodes are there, \
         and in a version that does"
    )]
    Lacking {
        /// Which.
        node: u64,
    },
    /// The controller was asked, and did not answer.
    #[error("it may be done, or be done later: the controller has not answered")]
    Unknown,
    /// A shard is offline.
    #[error(transparent)]
    Failed(#[from] Failed),
}

impl Refused {
    /// Whoever was asked is not the controller: nothing was done.
    pub(super) fn not_controller() -> Self {
        Failed::NotLeader { number: CONTROL }.into()
    }

    pub(super) fn is_not_controller(&self) -> bool {
        matches!(self, Self::Failed(Failed::NotLeader { number: CONTROL }))
    }
}
