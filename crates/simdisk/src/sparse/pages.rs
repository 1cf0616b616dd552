//! Pages by number, shared between clones until they are written.
//!
//! Neighbours are kept together in groups, and groups are shared, too: a clone costs a counter, a first
//! write after it costs a group and the list of groups, and two clones are compared without a look
//! at what they share.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::page::{PAGE_BYTES, Page};

/// Pages in a group.
const GROUP: u64 = 128;

type Group = BTreeMap<u64, Arc<Page>>;

/// A sparse map of pages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pages {
    groups: Arc<BTreeMap<u64, Arc<Group>>>,
}

impl Pages {
    pub(crate) fn get(&self, number: u64) -> Option<&Arc<Page>> {
        self.groups.get(&(number / GROUP))?.get(&number)
    }

    /// A page to be written; zeros if it was not there.
    pub(crate) fn page_mut(&mut self, number: u64) -> &mut Arc<Page> {
        let group = Arc::make_mut(&mut self.groups).entry(number / GROUP).or_default();
        Arc::make_mut(group).entry(number).or_insert_with(|| Arc::new([0; PAGE_BYTES]))
    }

    /// Puts a whole page there; what there was before need not be copied for it.
    pub(crate) fn set(&mut self, number: u64, page: Arc<Page>) {
        let group = Arc::make_mut(&mut self.groups).entry(number / GROUP).or_default();
        Arc::make_mut(group).insert(number, page);
    }

    /// Takes pages away.
    pub(crate) fn remove(&mut self, numbers: Range<u64>) {
        let there: Vec<u64> = self.iter(numbers).map(|(number, _)| number).collect();
        if there.is_empty() {
            return; // and leave the groups shared
        }
        let groups = Arc::make_mut(&mut self.groups);
        for number in there {
            if let Some(group) = groups.get_mut(&(number / GROUP)) {
                Arc::make_mut(group).remove(&number);
            }
        }
    }

    /// Those of these numbers, in order.
    pub(crate) fn iter(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, &Arc<Page>)> {
        let groups = numbers.start / GROUP..=numbers.end / GROUP;
        // A range that ends before it begins is empty, and none for a map.
        let numbers = numbers.start..numbers.end.max(numbers.start);
        let groups = *groups.start()..=(*groups.end()).max(*groups.start());
        self.groups.range(groups).flat_map(move |(_, group)| {
            group.range(numbers.clone()).map(|(&number, page)| (number, page))
        })
    }

    /// Numbers of pages that the two do not share, in order. Their bytes may be the same.
    pub(crate) fn unshared(&self, other: &Self) -> Vec<u64> {
        let mut found = Vec::new();
        differing(&self.groups, &other.groups, |_, ours, theirs| {
            let none = Group::new();
            let ours = ours.map_or(&none, |group| &**group);
            let theirs = theirs.map_or(&none, |group| &**group);
            differing(ours, theirs, |number, _, _| found.push(number));
        });
        found
    }
}

/// Calls `each` for every key at which two maps do not hold the same allocation, in order.
fn differing<T>(
    ours: &BTreeMap<u64, Arc<T>>,
    theirs: &BTreeMap<u64, Arc<T>>,
    mut each: impl FnMut(u64, Option<&Arc<T>>, Option<&Arc<T>>),
) {
    if std::ptr::eq(ours, theirs) {
        return;
    }
    let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
    loop {
        let number = match (ours.peek(), theirs.peek()) {
            (None, None) => return,
            (Some((a, _)), Some((b, _))) => **a.min(b),
            (Some((number, _)), None) | (None, Some((number, _))) => **number,
        };
        let our = ours.next_if(|(at, _)| **at == number).map(|(_, value)| value);
        let their = theirs.next_if(|(at, _)| **at == number).map(|(_, value)| value);
        if our.map(Arc::as_ptr) != their.map(Arc::as_ptr) {
            each(number, our, their);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_are_a_map_whose_clones_do_not_change(
            steps in prop::collection::vec((0u64..700, 0u64..300, 1u8..4), 0..30),
            clone_at in 0usize..30,
        ) {
            let (mut pages, mut model) = (Pages::default(), BTreeMap::new());
            let (mut clone, mut clone_model) = (pages.clone(), model.clone());
            for (step, (number, count, value)) in steps.into_iter().enumerate() {
                if step == clone_at {
                    (clone, clone_model) = (pages.clone(), model.clone());
                }
                if count < 100 {
                    pages.remove(number..number + count);
                    model.retain(|&at, _| at < number || at >= number + count);
                } else if count < 200 {
                    pages.set(number, Arc::new([value; PAGE_BYTES]));
                    model.insert(number, value);
                } else {
                    Arc::make_mut(pages.page_mut(number)).fill(value);
                    model.insert(number, value);
                }
            }
            let all = |pages: &Pages| -> BTreeMap<u64, u8> {
                pages.iter(0..u64::MAX).map(|(number, page)| (number, page[9])).collect()
            };
            prop_assert_eq!(&all(&pages), &model);
            prop_assert_eq!(&all(&clone), &clone_model);
            for number in 0..1000 {
                prop_assert_eq!(pages.get(number).map(|page| page[0]), model.get(&number).copied());
            }
            let some: Vec<u64> = pages.iter(130..400).map(|(number, _)| number).collect();
            prop_assert_eq!(some, model.range(130..400).map(|(&at, _)| at).collect::<Vec<_>>());
            let unshared = pages.unshared(&clone);
            prop_assert!(unshared.is_sorted());
            for number in 0..1000 {
                let differs = model.get(&number) != clone_model.get(&number);
                prop_assert!(!differs || unshared.contains(&number), "page {}", number);
            }
        }
    }

    #[test]
    fn what_two_clones_share_is_not_a_difference() {
        let mut one = Pages::default();
        for number in 0..1000 {
            one.page_mut(number);
        }
        let mut other = one.clone();
        assert!(one.unshared(&other).is_empty());
        Arc::make_mut(other.page_mut(500))[0] = 1;
        other.remove(7..8);
        assert_eq!(one.unshared(&other), [7, 500]);
        assert_eq!(other.unshared(&one), [7, 500]);
    }
}
