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
        drop(self.ends.split_off(&first));
        if let Some(mut last) = self.ends.last_entry() {
            *last.get_mut() = first.min(*last.get());
        }
    }

    pub(crate) fn contains_all(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self.ends.range(..=range.start).next_back().is_some_and(|(_, &end)| end >= range.end)
    }

    /// How many pages are in the set.
    pub(crate) fn count(&self) -> u64 {
        self.ends.iter().map(|(start, end)| end - start).sum()
    }

    /// The longest beginning of `range` that adds at most `spare` pages to the set: its end.
    pub(crate) fn fitting_end(&self, range: &Range<u64>, mut spare: u64) -> u64 {
        let mut at = range.start;
        if let Some((_, &end)) = self.ends.range(..=at).next_back() {
            at = at.max(end);
        }
        for (&start, &end) in self.ends.range(at..) {
            if start >= range.end || start - at > spare {
                break;
            }
            spare -= start - at;
            at = end;
        }
        at.saturating_add(spare).min(range.end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_beginning_fits_as_long_as_spare_pages_last() {
        let mut ranges = Ranges::default();
        ranges.insert(2..4);
        ranges.insert(6..7);
        assert_eq!(ranges.fitting_end(&(0..10), 0), 0);
        assert_eq!(ranges.fitting_end(&(0..10), 2), 4);
        assert_eq!(ranges.fitting_end(&(0..10), 5), 8);
        assert_eq!(ranges.fitting_end(&(2..4), 0), 4);
        assert_eq!(ranges.fitting_end(&(0..10), 99), 10);
    }

    proptest! {
        #[test]
        fn ranges_are_a_set_of_pages(steps in prop::collection::vec((0u64..40, 0u64..12, any::<bool>()), 0..30)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (at, pages, cut) in steps {
                if cut {
                    ranges.cut(at + 20);
                    set.retain(|&page| page < at + 20);
                } else {
                    ranges.insert(at..at + pages);
                    set.extend(at..at + pages);
                }
                prop_assert_eq!(ranges.count(), set.len() as u64);
                for page in 0..60 {
                    prop_assert_eq!(ranges.contains_all(&(page..page + 1)), set.contains(&page));
                    let end = ranges.fitting_end(&(page..60), 3);
                    let added = (page..end).filter(|page| !set.contains(page)).count();
                    prop_assert!(added <= 3 && (end == 60 || (added == 3 && !set.contains(&end))));
                }
            }
        }
    }
}
