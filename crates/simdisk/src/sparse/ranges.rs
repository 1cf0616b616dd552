//! Which pages of a file have blocks: a set of page numbers, kept as ranges so that a reservation
//! of a terabyte costs a few bytes.
//!
//! Invariant: ranges are not empty, do not touch and are sorted.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Start to end, the end excluded.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&from, &to)) = self.ends.range(..=end).next_back()
            && to >= start
        {
            self.ends.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.ends.insert(start, end);
    }

    /// Takes out everything from `first` on.
    pub(crate) fn cut(&mut self, first: u64) {
        self.remove(first..u64::MAX);
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ends.range(..range.end).next_back()
            && end > range.start
        {
            self.ends.remove(&start);
            if end > range.end {
                self.ends.insert(range.end, end);
            }
            if start < range.start {
                self.ends.insert(start, range.start);
            }
        }
    }

    /// The ranges, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// The parts of the ranges that lie in `range`, in order.
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (from, to) = (range.start, range.end.max(range.start));
        let first = self.ends.range(..from).next_back().map(|(&start, &end)| start..end);
        let rest = self.ends.range(from..to).map(|(&start, &end)| start..end);
        let clipped = move |part: Range<u64>| part.start.max(from)..part.end.min(to);
        first.into_iter().chain(rest).map(clipped).filter(|part| !part.is_empty())
    }

    /// How many pages of `range` are in the set.
    pub(crate) fn count_in(&self, range: &Range<u64>) -> u64 {
        self.overlaps(range).map(|part| part.end - part.start).sum()
    }

    pub(crate) fn contains_all(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self.ends.range(..=range.start).next_back().is_some_and(|(_, &end)| end >= range.end)
    }

    /// How many pages are in the set.
    pub(crate) fn count(&self) -> u64 {
        self.ends.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_a_set_of_pages(steps in prop::collection::vec((0u64..40, 0u64..12, 0..3), 0..30)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (at, pages, step) in steps {
                match step {
                    0 => {
                        ranges.cut(at + 20);
                        set.retain(|&page| page < at + 20);
                    }
                    1 => {
                        ranges.remove(at..at + pages);
                        set.retain(|page| !(at..at + pages).contains(page));
                    }
                    _ => {
                        ranges.insert(at..at + pages);
                        set.extend(at..at + pages);
                    }
                }
                prop_assert_eq!(ranges.count(), set.len() as u64);
                for page in 0..60 {
                    prop_assert_eq!(ranges.contains_all(&(page..page + 1)), set.contains(&page));
                    let inside = set.range(page..page + 7).count() as u64;
                    prop_assert_eq!(ranges.count_in(&(page..page + 7)), inside);
                }
            }
        }
    }
}
