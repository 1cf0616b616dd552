//! [`Reading`]: what is asked for of a partition.

use crate::shard::Opening;

/// What is to be read of a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) opening: Opening,
    /// The first offset.
    pub(crate) from: i64,
    /// The offset behind the last.
    pub(crate) end: i64,
    /// At most so many bytes, but at least a batch.
    pub(crate) bytes_max: usize,
}
