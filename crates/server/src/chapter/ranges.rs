//! [`Ranges`]: a set of numbers, as ranges: runs of a file that are not read any more, chapters that a partition is in.

use crate::cursor::{Cursor, Malformed};

const RANGE_BYTES: usize = 8;

/// Numbers, as ranges: runs of a topic that was deleted stand side by side, and who is in one chapter is mostly in
/// the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// Whether a number is among them.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= number);
        self.0[..after].last().is_some_and(|(_, last)| number <= *last)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// The least of them.
    pub(super) fn first(&self) -> Option<u32> {
        self.0.first().map(|(first, _)| *first)
    }

    /// The greatest.
    pub(super) fn last(&self) -> Option<u32> {
        self.0.last().map(|(_, last)| *last)
    }

    /// The one before which there are so many.
    pub(super) fn nth(&self, mut before: u64) -> Option<u32> {
        for (first, last) in &self.0 {
            let count = u64::from(last - first) + 1;
            if before < count {
                return Some(first + u32::try_from(before).expect("less than a range has"));
            }
            before -= count;
        }
        None
    }

    /// All of them, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Ranges, in their order: the first and the last of each.
    pub(super) fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// This one too.
    pub(super) fn insert(&mut self, number: u32) {
        // As they mostly come.
        if let Some((_, last)) = self.0.last_mut()
            && last.checked_add(1) == Some(number)
        {
            *last = number;
        } else if !self.has(number) {
            self.add(&Self(vec![(number, number)]));
        }
    }

    /// These too.
    pub(super) fn add(&mut self, others: &Self) {
        let mut all: Vec<(u32, u32)> = self.0.iter().chain(&others.0).copied().collect();
        all.sort_unstable();
        self.0.clear();
        for (first, last) in all {
            match self.0.last_mut().filter(|(_, end)| first <= end.saturating_add(1)) {
                Some((_, end)) => *end = last.max(*end),
                None => self.0.push((first, last)),
            }
        }
        self.0.shrink_to_fit();
    }

    /// This one no more.
    pub(super) fn remove(&mut self, number: u32) {
        let after = self.0.partition_point(|(first, _)| *first <= number);
        let Some(at) = after.checked_sub(1).filter(|at| number <= self.0[*at].1) else { return };
        let (first, last) = self.0.remove(at);
        if number < last {
            self.0.insert(at, (number + 1, last));
        }
        if first < number {
            self.0.insert(at, (first, number - 1));
        }
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let count = u32::try_from(self.0.len()).expect("ranges of numbers of 32 bits");
        to.extend_from_slice(&count.to_le_bytes());
        for (first, last) in &self.0 {
            to.extend_from_slice(&first.to_le_bytes());
            to.extend_from_slice(&last.to_le_bytes());
        }
    }

    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let count = from.count(RANGE_BYTES, "the count of ranges")?;
        let mut ranges: Vec<(u32, u32)> = Vec::with_capacity(count);
        for _ in 0..count {
            let (first, last) = (from.u32()?, from.u32()?);
            let follows = ranges.last().is_none_or(|(_, end)| *end < first);
            if last < first || !follows {
                return Err(Malformed::Field("a range of numbers", u64::from(first)));
            }
            ranges.push((first, last));
        }
        Ok(Self(ranges))
    }
}

impl FromIterator<u32> for Ranges {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut all = Self::default();
        all.add(&Self(numbers.into_iter().map(|number| (number, number)).collect()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u32]) -> Ranges {
        numbers.iter().copied().collect()
    }

    #[test]
    fn numbers_are_there_in_whatever_order_they_came() {
        let mut all = Ranges::default();
        for numbers in [&[7_u32][..], &[3, 1], &[2], &[9, 8], &[7, u32::MAX]] {
            all.add(&of(numbers));
        }
        assert_eq!(all.0, [(1, 3), (7, 9), (u32::MAX, u32::MAX)]);
        assert_eq!((all.count(), all.first(), all.last()), (7, Some(1), Some(u32::MAX)));
        let there: Vec<u32> = (0..12).filter(|number| all.has(*number)).collect();
        assert_eq!(there, [1, 2, 3, 7, 8, 9]);
        let by_place: Vec<u32> = (0..).map_while(|place| all.nth(place)).collect();
        assert_eq!(by_place, all.iter().collect::<Vec<_>>());
        let mut bytes = Vec::new();
        all.encode(&mut bytes);
        assert_eq!(Ranges::decode(&mut Cursor::new(&bytes, "ranges")), Ok(all));
    }

    /// Against a set that is known to be one.
    #[test]
    fn what_is_inserted_and_removed_is_as_in_a_set() {
        let (mut ranges, mut set) = (Ranges::default(), std::collections::BTreeSet::new());
        let mut drawn = 7_u32;
        for _ in 0..2_000 {
            drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (drawn >> 8) % 24;
            if drawn >> 31 == 0 {
                ranges.insert(number);
                set.insert(number);
            } else {
                ranges.remove(number);
                set.remove(&number);
            }
            assert!(ranges.iter().eq(set.iter().copied()));
            assert_eq!(ranges, set.iter().copied().collect());
        }
    }
}
