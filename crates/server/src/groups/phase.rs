//! [`Phase`]: what a group is doing.

use std::fmt;

/// What a group is doing, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has no members.
    Empty,
    /// It waits for its members to join.
    PreparingRebalance,
    /// It waits for its leader to assign.
    CompletingRebalance,
    /// All is assigned.
    Stable,
    /// It is not there.
    Dead,
}

impl fmt::Display for Phase {
    /// As Kafka writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        })
    }
}
