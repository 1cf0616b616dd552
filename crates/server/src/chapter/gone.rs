//! [`Gone`]: which runs of a file are not read any more: deleted, or compacted into another file.

use crate::cursor::{Cursor, Malformed};

const RANGE_BYTES: usize = 8;

/// Numbers of runs, as ranges: those of a topic that was deleted stand side by side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gone(Vec<(u32, u32)>);

impl Gone {
    /// Whether a run is among them.
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

    /// These too.
    pub(super) fn add(&mut self, numbers: &[u32]) {
        let ranges = numbers.iter().map(|number| (*number, *number));
        let mut all: Vec<(u32, u32)> = self.0.drain(..).chain(ranges).collect();
        all.sort_unstable();
        for (first, last) in all {
            match self.0.last_mut().filter(|(_, end)| first <= end.saturating_add(1)) {
                Some((_, end)) => *end = last.max(*end),
                None => self.0.push((first, last)),
            }
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
        let mut gone = Self::default();
        for _ in 0..from.count(RANGE_BYTES, "the count of ranges")? {
            let (first, last) = (from.u32()?, from.u32()?);
            let follows = gone.0.last().is_none_or(|(_, end)| *end < first);
            if last < first || !follows {
                return Err(Malformed::Field("a range of runs", u64::from(first)));
            }
            gone.0.push((first, last));
        }
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_gone_in_whatever_order_they_went() {
        let mut gone = Gone::default();
        for numbers in [&[7_u32][..], &[3, 1], &[2], &[9, 8], &[7, u32::MAX]] {
            gone.add(numbers);
        }
        assert_eq!(gone.0, [(1, 3), (7, 9), (u32::MAX, u32::MAX)]);
        assert_eq!(gone.count(), 7);
        let there: Vec<u32> = (0..12).filter(|number| gone.has(*number)).collect();
        assert_eq!(there, [1, 2, 3, 7, 8, 9]);
        let mut bytes = Vec::new();
        gone.encode(&mut bytes);
        assert_eq!(Gone::decode(&mut Cursor::new(&bytes, "ranges")), Ok(gone));
    }
}
