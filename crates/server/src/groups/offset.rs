//! [`Committed`]: what is stored of a committed offset.
//!
//! ```text
//! offset    i64
//! epoch     i32   of the leader, -1 if unknown
//! time      u64   of the commit, in ms since 1970
//! kept      u64   until when, in ms since 1970; 2^64 - 1: as long as the coordinator likes
//! metadata  text?
//! ```

use super::fields::put_optional;
use crate::cursor::{Cursor, Malformed};

/// How far a group was in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the last record that was read, -1 if unknown.
    pub epoch: i32,
    /// When it was committed, in ms since 1970.
    pub time: u64,
    /// Until when it is kept, if that was said.
    pub kept_until: Option<u64>,
    /// As it was committed.
    pub metadata: Option<String>,
}

/// Bytes of one, at least.
pub(super) const COMMITTED_BYTES_MIN: usize = 8 + 4 + 8 + 8 + 4;

impl Committed {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.offset.to_le_bytes());
        to.extend_from_slice(&self.epoch.to_le_bytes());
        to.extend_from_slice(&self.time.to_le_bytes());
        to.extend_from_slice(&self.kept_until.unwrap_or(u64::MAX).to_le_bytes());
        put_optional(to, self.metadata.as_deref());
    }

    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (offset, epoch) = (from.i64()?, from.i32()?);
        let (time, kept) = (from.u64()?, from.u64()?);
        let kept_until = (kept != u64::MAX).then_some(kept);
        Ok(Self { offset, epoch, time, kept_until, metadata: from.optional()? })
    }

    /// Whether it may go: its time was said and is over, or else it was committed at or before
    /// that.
    pub(super) fn is_expired(&self, now: u64, committed_by: u64) -> bool {
        self.kept_until.map_or(self.time <= committed_by, |until| until <= now)
    }
}
