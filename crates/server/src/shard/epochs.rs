//! [`Epochs`]: where each leader epoch of a partition began and ended, and the gaps that fences left.
//!
//! An epoch is known from its first batch, or from the fence that began it. It ends where the next
//! offset stood when the next one began: after a fence that is below the offset at which the next
//! begins, and what lies between is a [`Gap`]: offsets that may have named records that are gone, and
//! name none any more.
//!
//! ```text
//! epochs      count u32, each: epoch i32 · start i64 · gap before it i64 (offsets)
//! ```

use crate::cursor::{Cursor, Malformed};

/// A leader epoch of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// Its number; never lower than one before it.
    pub number: i32,
    /// The offset of its first record.
    pub start: i64,
    /// How many offsets before it were given up.
    gap: i64,
}

/// Offsets that may have named records that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first.
    pub from: i64,
    /// The offset behind the last.
    pub to: i64,
}

/// The epochs of a partition, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Epochs {
    list: Vec<Epoch>,
}

impl Epochs {
    /// A batch of this epoch begins here.
    pub(super) fn note(&mut self, number: i32, start: i64) {
        if self.list.last().is_none_or(|last| last.number < number) {
            self.list.push(Epoch { number, start, gap: 0 });
        }
    }

    /// This epoch begins behind a gap.
    pub(super) fn fence(&mut self, number: i32, gap: Gap) {
        self.list.push(Epoch { number, start: gap.to, gap: gap.to - gap.from });
    }

    /// The last epoch that is not above this one, and the offset at which it ended: the next offset if
    /// none came after it. `None` if all that are known are above it.
    pub(super) fn end_of(&self, number: i32, next: i64) -> Option<(i32, i64)> {
        let after = self.list.partition_point(|epoch| epoch.number <= number);
        let found = self.list[..after].last()?;
        let end = self.list.get(after).map_or(next, |epoch| epoch.start - epoch.gap);
        Some((found.number, end))
    }

    /// The epoch that this offset was given in, or would be; one in a gap, that of the fence behind it.
    pub(super) fn at(&self, offset: i64) -> Option<i32> {
        let found = self.list.iter().rev().find(|epoch| epoch.start - epoch.gap <= offset);
        found.map(|epoch| epoch.number)
    }

    /// The offset at which the oldest that is known began: the next offset if none is.
    pub(super) fn begin(&self, next: i64) -> i64 {
        self.list.first().map_or(next, |epoch| epoch.start)
    }

    /// The gaps, the oldest first.
    pub(super) fn gaps(&self) -> impl Iterator<Item = Gap> + '_ {
        let fences = self.list.iter().filter(|epoch| epoch.gap > 0);
        fences.map(|epoch| Gap { from: epoch.start - epoch.gap, to: epoch.start })
    }

    /// Forgets the epochs that ended at or before this offset, but for the last that began.
    pub(super) fn forget_before(&mut self, start: i64) {
        let begun = self.list.partition_point(|epoch| epoch.start <= start);
        self.list.drain(..begun.saturating_sub(1));
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let count = u32::try_from(self.list.len()).expect("fewer than 4 billion epochs");
        to.extend_from_slice(&count.to_le_bytes());
        for epoch in &self.list {
            to.extend_from_slice(&epoch.number.to_le_bytes());
            to.extend_from_slice(&epoch.start.to_le_bytes());
            to.extend_from_slice(&epoch.gap.to_le_bytes());
        }
    }

    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        const EPOCH_BYTES: usize = 20;
        let mut list: Vec<Epoch> = Vec::new();
        for _ in 0..from.count(EPOCH_BYTES, "the count of epochs")? {
            let (number, start) = (from.i32()?, from.offset("an epoch's start")?);
            let gap = from.offset("an epoch's gap")?;
            let (above, behind) = list.last().map_or((-1, 0), |last| (last.number, last.start));
            if number <= above || start - gap < behind {
                return Err(Malformed::Field("an epoch", u64::from(number.cast_unsigned())));
            }
            list.push(Epoch { number, start, gap });
        }
        Ok(Self { list })
    }
}
