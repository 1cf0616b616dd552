//! D: up to where a quorum has the log on its disks; up to where so many voters have it; whether some are a quorum, and how many of
//! them it can spare. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// The last index that a majority of each set of voters has reported to be durable.
pub(crate) fn durable(voters: &[BTreeSet<u64>], reports: &BTreeMap<u64, u64>) -> Option<u64> {
    // What a majority has at least: as many have more as are fewer than half.
    least(voters, reports, |set| set.len() / 2)
}

/// The last index that so many of each set of voters have.
pub(crate) fn copied(
    voters: &[BTreeSet<u64>],
    matched: &BTreeMap<u64, u64>,
    copies: usize,
) -> Option<u64> {
    least(voters, matched, |_| copies.saturating_sub(1))
}

/// Whether these are a majority of each set of voters.
pub(crate) fn is_one(voters: &[BTreeSet<u64>], these: &BTreeSet<u64>) -> bool {
    voters.iter().all(|set| set.intersection(these).count() > set.len() / 2)
}

/// How many of these voters may be gone, whichever these are, and the others be a majority of each set still; 0 also where they are
/// none themselves.
pub(crate) fn spare(voters: &[BTreeSet<u64>], these: &BTreeSet<u64>) -> usize {
    let of =
        |set: &BTreeSet<u64>| set.intersection(these).count().saturating_sub(set.len() / 2 + 1);
    voters.iter().map(of).min().unwrap_or(0)
}

/// The least over all sets of what so many others of the set have more than.
fn least(
    voters: &[BTreeSet<u64>],
    has: &BTreeMap<u64, u64>,
    others: impl Fn(&BTreeSet<u64>) -> usize,
) -> Option<u64> {
    let of = |set: &BTreeSet<u64>| {
        let mut known: Vec<_> = set.iter().map(|node| has.get(node).copied()).collect();
        known.sort_unstable_by(|one, other| other.cmp(one));
        known.get(others(set)).copied().flatten()
    };
    voters.iter().map(of).min().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_every_set_has_it() {
        let three = [BTreeSet::from([1, 2, 3])];
        let joint = [BTreeSet::from([1]), BTreeSet::from([1, 2, 3])];
        let reports = |known: &[(u64, u64)]| known.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(durable(&three, &reports(&[(1, 9)])), None);
        assert_eq!(durable(&three, &reports(&[(1, 9), (3, 4)])), Some(4));
        assert_eq!(durable(&three, &reports(&[(1, 9), (2, 7), (3, 4)])), Some(7));
        assert_eq!(durable(&three, &reports(&[(1, 9), (8, 8)])), None, "who does not vote");
        assert_eq!(durable(&joint, &reports(&[(2, 9), (3, 9)])), None);
        assert_eq!(durable(&joint, &reports(&[(1, 3), (2, 9), (3, 9)])), Some(3));
        assert_eq!(durable(&joint[..1], &reports(&[(1, 3)])), Some(3));
        let four = [BTreeSet::from([1, 2, 3, 4])];
        assert_eq!(durable(&four, &reports(&[(1, 5), (2, 5)])), None, "two of four are none");
        assert_eq!(durable(&[], &BTreeMap::new()), None);
    }

    #[test]
    fn a_quorum_is_a_majority_of_every_set() {
        let joint = [BTreeSet::from([1, 2, 3]), BTreeSet::from([3, 4, 5, 6])];
        assert!(is_one(&joint[..1], &BTreeSet::from([1, 3])));
        assert!(!is_one(&joint[..1], &BTreeSet::from([1, 4, 5])), "who does not vote");
        assert!(!is_one(&joint, &BTreeSet::from([1, 3, 4])), "two of four are none");
        assert!(is_one(&joint, &BTreeSet::from([1, 3, 4, 5])));
    }

    #[test]
    fn a_quorum_spares_as_many_as_each_set_does() {
        let five = [BTreeSet::from([1, 2, 3, 4, 5])];
        assert_eq!(spare(&five, &BTreeSet::from([1, 2, 3, 4, 5])), 2);
        assert_eq!(spare(&five, &BTreeSet::from([1, 2, 3, 9])), 0, "who does not vote");
        assert_eq!(spare(&five, &BTreeSet::from([1])), 0, "these are none");
        let joint = [BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 4])];
        assert_eq!(spare(&joint[..1], &BTreeSet::from([1, 2, 3, 4])), 1);
        assert_eq!(spare(&joint, &BTreeSet::from([1, 2, 3, 4])), 0, "of two none");
        assert_eq!(spare(&[], &BTreeSet::from([1])), 0);
    }

    #[test]
    fn an_entry_is_copied_once_so_many_of_every_set_have_it() {
        let three = [BTreeSet::from([1, 2, 3])];
        let joint = [BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3, 4])];
        let matched = BTreeMap::from([(1, 9), (2, 7), (3, 4)]);
        assert_eq!(copied(&three, &matched, 1), Some(9));
        assert_eq!(copied(&three, &matched, 2), Some(7));
        assert_eq!(copied(&three, &matched, 3), Some(4));
        assert_eq!(copied(&three, &matched, 4), None, "there are three");
        assert_eq!(copied(&joint, &matched, 3), None, "the fourth has nothing yet");
        assert_eq!(copied(&joint, &matched, 2), Some(4));
    }
}
