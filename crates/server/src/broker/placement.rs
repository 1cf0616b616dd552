//! Which nodes vote in which shard, and which of them is to lead it: pure.
//!
//! Every node has every shard. Where there are more nodes than a shard has voters, the others get its log and do not vote: they
//! apply what is committed, and serve as well as any once one of the voters goes. Voters are spread over racks, and shards over
//! nodes (decision 0041).

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{DURABLE, GROUPS, SHARED};

/// The nodes of a cluster, and the rack of each that names one.
pub(super) type Racks = BTreeMap<u64, Option<String>>;

/// The place of a shard among the nodes: no two shards of records have the same where there are four nodes or more.
fn place_of(number: u32) -> usize {
    match SHARED.iter().position(|shared| *shared == number) {
        Some(place) => place + 1,
        None if number == DURABLE => SHARED.len() + 1,
        None => 0,
    }
}

/// The node that leads a shard where all is well: of the nodes of the cluster, ascending, if it is one of those that vote, and
/// of those otherwise.
pub(crate) fn preferred(number: u32, nodes: &[u64], voters: &[u64]) -> Option<u64> {
    let of = |all: &[u64]| all.get(place_of(number).checked_rem(all.len())?).copied();
    of(nodes).filter(|node| voters.contains(node)).or_else(|| of(voters))
}

/// Those that are to vote in a shard, if that can be said: of the nodes, of which these are `here`, where these vote now.
pub(super) fn wanted(
    number: u32,
    nodes: &BTreeSet<u64>,
    here: &Racks,
    voters: &BTreeSet<u64>,
    copies: usize,
) -> Option<BTreeSet<u64>> {
    let mut loads = Loads::new();
    if nodes.iter().all(|node| here.contains_key(node)) {
        let mut shards = SHARED.into_iter().chain([DURABLE, GROUPS]);
        return shards.find_map(|shard| {
            let placed = spread(shard, nodes, here, BTreeSet::new(), copies, &loads);
            placed.iter().for_each(|node| *loads.entry(*node).or_default() += 1);
            (shard == number).then_some(placed)
        });
    }
    // Where somebody is that is away is not known: who votes goes on to, and only who has gone is replaced.
    let stay: BTreeSet<u64> = voters & nodes;
    let there = nodes.iter().copied().filter(|node| here.contains_key(node));
    let there = there.chain(stay.iter().copied()).collect();
    let wanted = spread(number, &there, here, stay, copies, &loads);
    (wanted.len() >= copies.min(nodes.len())).then_some(wanted)
}

/// In how many shards each node votes.
type Loads = BTreeMap<u64, usize>;

/// So many of the nodes, with those that are `taken`: the one at the shard's place, and then one after the other in a rack that
/// has the fewest of them, of these one that votes in the fewest shards, of these the next.
fn spread(
    number: u32,
    nodes: &BTreeSet<u64>,
    racks: &Racks,
    mut taken: BTreeSet<u64>,
    copies: usize,
    loads: &Loads,
) -> BTreeSet<u64> {
    let mut left: Vec<u64> = nodes.iter().copied().collect();
    let first = place_of(number).checked_rem(left.len()).unwrap_or(0);
    left.rotate_left(first);
    if taken.is_empty() {
        taken.extend(left.first());
    }
    left.retain(|node| !taken.contains(node));
    let rack = |node: &u64| racks.get(node).and_then(Option::as_ref);
    while taken.len() < copies && !left.is_empty() {
        let cost = |at: &usize| {
            let node = &left[*at];
            let beside = taken.iter().filter(|other| rack(other) == rack(node)).count();
            // A rack that nobody named counts as one of its own.
            (rack(node).map_or(0, |_| beside), loads.get(node).copied().unwrap_or(0))
        };
        let next = (0..left.len()).min_by_key(cost).expect("some are left");
        taken.insert(left.remove(next));
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::super::layout::{RECORDS, SHARDS};
    use super::*;

    fn nodes(count: u64) -> BTreeSet<u64> {
        (1..=count).collect()
    }

    fn racks(of: &[(u64, &str)]) -> Racks {
        let rack = |rack: &str| (!rack.is_empty()).then(|| rack.to_owned());
        of.iter().map(|(node, name)| (*node, rack(name))).collect()
    }

    fn unnamed(count: u64) -> Racks {
        nodes(count).into_iter().map(|node| (node, None)).collect()
    }

    fn of(number: u32, count: u64) -> BTreeSet<u64> {
        wanted(number, &nodes(count), &unnamed(count), &nodes(count), 3).unwrap()
    }

    #[test]
    fn each_node_of_a_cluster_is_preferred_for_shards_that_others_are_not() {
        assert_eq!(SHARDS.map(|shard| preferred(shard, &[1], &[1]).unwrap()), [1; 6]);
        let records = |nodes: &[u64]| SHARED.map(|shard| preferred(shard, nodes, nodes).unwrap());
        assert_eq!(records(&[4, 6, 9]), [6, 9, 4]);
        assert_eq!(preferred(DURABLE, &[4, 6, 9], &[4, 6, 9]), Some(6));
        assert_eq!(preferred(2, &[], &[]), None);
        for count in 4..9 {
            let all: Vec<u64> = nodes(count).into_iter().collect();
            let leads = |number: &u32| {
                let voters: Vec<u64> = of(*number, count).into_iter().collect();
                preferred(*number, &all, &voters).unwrap()
            };
            let leaders: BTreeSet<u64> = RECORDS.iter().map(leads).collect();
            assert_eq!(leaders.len(), RECORDS.len(), "{count} nodes");
        }
        // While another votes in the place of the one that is to lead.
        assert_eq!(preferred(4, &[1, 2, 3, 4], &[1, 2, 4]), Some(4));
    }

    #[test]
    fn a_shard_has_as_many_voters_as_it_should_and_every_node_votes_somewhere() {
        for count in 1..7 {
            let mut all = BTreeSet::new();
            for number in RECORDS {
                let voters = of(number, count);
                assert_eq!(voters.len() as u64, count.min(3));
                all.extend(voters);
            }
            assert_eq!(all, nodes(count));
        }
        let five: [Vec<u64>; 5] =
            [2, 4, 6, DURABLE, GROUPS].map(|number| of(number, 5).into_iter().collect());
        let expected = [vec![2, 3, 4], vec![1, 3, 5], vec![1, 4, 5], vec![1, 2, 5], vec![1, 2, 3]];
        assert_eq!(five, expected);
    }

    #[test]
    fn voters_stand_in_as_many_racks_as_there_are() {
        let here = racks(&[(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c")]);
        for number in RECORDS {
            let voters = wanted(number, &nodes(5), &here, &nodes(5), 3).unwrap();
            assert!(voters.contains(&4) && voters.contains(&5), "{number}: {voters:?}");
        }
        let two = racks(&[(1, "a"), (2, "a"), (3, "b"), (4, "b")]);
        for number in RECORDS {
            let voters = wanted(number, &nodes(4), &two, &nodes(4), 3).unwrap();
            let in_a = voters.iter().filter(|node| **node < 3).count();
            assert!((1..=2).contains(&in_a), "{number}: {voters:?}");
        }
        // Those that share a rack take turns.
        let turns = racks(&[(1, "a"), (2, "b"), (3, "c"), (4, "a")]);
        let of = |number| wanted(number, &nodes(4), &turns, &nodes(4), 3).unwrap();
        assert_eq!([of(2), of(4)], [BTreeSet::from([2, 3, 4]), BTreeSet::from([1, 2, 3])]);
        let some = racks(&[(1, "a"), (2, "a"), (3, ""), (4, "")]);
        let voters = wanted(DURABLE, &nodes(4), &some, &nodes(4), 3).unwrap();
        assert_eq!(voters, BTreeSet::from([1, 3, 4]), "those that name none stand apart");
    }

    #[test]
    fn while_a_node_is_away_only_who_has_gone_is_replaced() {
        let mut here = unnamed(5);
        here.remove(&5);
        let votes = |of: &[u64]| -> BTreeSet<u64> { of.iter().copied().collect() };
        let said = |nodes: &[u64], voters: &[u64], here: &Racks| {
            wanted(2, &votes(nodes), here, &votes(voters), 3)
        };
        assert_eq!(said(&[1, 2, 3, 4, 5], &[1, 2, 5], &here), Some(votes(&[1, 2, 5])));
        assert_eq!(said(&[1, 2, 3, 4, 5], &[1, 2, 9], &here), Some(votes(&[1, 2, 3])));
        // Nobody is there who could take its place, or come.
        here.retain(|node, _| *node < 3);
        assert_eq!(said(&[1, 2, 5], &[1, 2, 9], &here), None);
        assert_eq!(said(&[1, 2, 3], &[1], &here), None);
        assert_eq!(said(&[1, 2], &[1, 2, 9], &here), Some(votes(&[1, 2])));
    }
}
