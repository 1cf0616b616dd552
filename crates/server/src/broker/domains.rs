//! [`Domains`]: whether one failure takes a majority of a shard's voters, as far as their racks say.
//!
//! What a majority acknowledged from memory is lost where that majority loses power at once. Voters that stand in one rack do.
//! So where a majority of them does, nothing is acknowledged from memory: acknowledgements wait for D, as in guarded mode,
//! unless the nodes were told that one domain is fine (decision 0035). A rack that nobody named is unknown, and counts as one
//! of its own: where none is named at all, that is said, and nothing is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;
use tokio::time::sleep;

use super::layout::SHARED;
use super::members::Members;
use super::topics::Topics;

/// How often it is looked where the voters stand. A leader is guarded for longer at its begin.
const LOOK: Duration = Duration::from_secs(1);

/// What the racks of a shard's voters say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Nobody else votes, or each majority of the voters stands in several racks, as far as these are known.
    Apart,
    /// No voter has named its rack.
    Unknown,
    /// A majority stands in this rack.
    Together(String),
}

/// Where the nodes stand, as operators are told.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DomainsOverview {
    /// The rack of each node of the cluster that has named one.
    pub(crate) racks: BTreeMap<u64, String>,
    /// What of that makes acknowledgements from memory worth less than they seem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warning: Option<String>,
}

/// The racks of all voters, and what follows from them for the shards that acknowledge from memory.
#[derive(Debug)]
pub(crate) struct Domains {
    members: Arc<Members>,
    topics: Weak<Topics>,
    /// It was said that one domain is fine.
    allows_one: bool,
    /// The last that each node named: one that is away stands where it stood.
    racks: Mutex<BTreeMap<u64, String>>,
}

/// What the racks of these voters say: pure.
pub(crate) fn spread(voters: &[u64], racks: &BTreeMap<u64, String>) -> Spread {
    if voters.len() < 2 {
        return Spread::Apart;
    }
    let mut counts = BTreeMap::<&str, usize>::new();
    for rack in voters.iter().filter_map(|voter| racks.get(voter)) {
        *counts.entry(rack).or_default() += 1;
    }
    let majority = voters.len() / 2 + 1;
    match counts.iter().find(|(_, count)| **count >= majority) {
        Some((rack, _)) => Spread::Together((*rack).to_owned()),
        None if counts.is_empty() => Spread::Unknown,
        None => Spread::Apart,
    }
}

/// Shards have other voters where there are many nodes, and while some come or go.
fn worst(of: &[Spread; SHARED.len()]) -> Spread {
    let found = |is: fn(&Spread) -> bool| of.iter().find(|spread| is(spread));
    let together = found(|spread| matches!(spread, Spread::Together(_)));
    together.or(found(|spread| *spread == Spread::Unknown)).unwrap_or(&of[0]).clone()
}

impl Domains {
    pub(super) fn new(members: &Arc<Members>, topics: &Arc<Topics>, allows_one: bool) -> Arc<Self> {
        let (members, topics) = (Arc::clone(members), Arc::downgrade(topics));
        Arc::new(Self { members, topics, allows_one, racks: Mutex::default() })
    }

    /// Until the node ends: keeps the shards that acknowledge from memory from doing so where a majority fails together.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut was = Spread::Apart;
        loop {
            let Some(spread) = self.look() else { return };
            if spread != was {
                if let Some(warning) = self.warning(&spread) {
                    tracing::warn!("{warning}");
                }
                was = spread;
            }
            sleep(LOOK).await;
        }
    }

    /// What it is now; `None` once the shards are closed.
    fn look(&self) -> Option<Spread> {
        let racks = self.racks();
        let topics = self.topics.upgrade()?;
        let groups = SHARED.map(|number| &topics.shard(number).group);
        let spreads = groups.map(|group| {
            let spread = spread(&group.voters(), &racks);
            group.expose(matches!(spread, Spread::Together(_)) && !self.allows_one);
            spread
        });
        Some(worst(&spreads))
    }

    fn racks(&self) -> BTreeMap<u64, String> {
        let mut racks = self.racks.lock().unwrap_or_else(PoisonError::into_inner);
        for (node, member) in
            self.members.known().iter().filter(|(_, member)| member.host.is_some())
        {
            match &member.rack {
                Some(rack) => racks.insert(*node, rack.clone()),
                None => racks.remove(node),
            };
        }
        racks.clone()
    }

    /// What is said of it.
    fn warning(&self, spread: &Spread) -> Option<String> {
        match spread {
            _ if self.allows_one => None,
            Spread::Apart => None,
            Spread::Unknown => Some(
                "no broker names its rack (--rack): if they share a host or a power supply, one power cut takes what is \
                 acknowledged from memory"
                    .to_owned(),
            ),
            Spread::Together(rack) => Some(format!(
                "a majority of the voters stands in rack {rack:?}: acknowledgements wait until a majority's disks have \
                 the records; place brokers in other racks, or say --allow-one-domain"
            )),
        }
    }

    /// As operators are told.
    pub(crate) fn overview(&self) -> DomainsOverview {
        let mut racks = self.racks();
        let Some(topics) = self.topics.upgrade() else {
            return DomainsOverview { racks: BTreeMap::new(), warning: None };
        };
        let voters = SHARED.map(|number| topics.shard(number).group.voters());
        // Whether they vote on records or not.
        let nodes = topics.group().voters();
        racks.retain(|node, _| nodes.contains(node));
        let warning = self.warning(&worst(&voters.map(|voters| spread(&voters, &racks))));
        DomainsOverview { racks, warning }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn racks(of: &[(u64, &str)]) -> BTreeMap<u64, String> {
        of.iter().map(|(node, rack)| (*node, (*rack).to_owned())).collect()
    }

    #[test]
    fn a_majority_in_one_rack_is_found_whoever_else_is_there() {
        let together = Spread::Together("a".to_owned());
        let three = |of| spread(&[1, 2, 3], &racks(of));
        assert_eq!(three(&[(1, "a"), (2, "a"), (3, "b")]), together);
        assert_eq!(three(&[(1, "a"), (3, "a")]), together, "wherever the second is");
        assert_eq!(three(&[(1, "a"), (2, "b"), (3, "c")]), Spread::Apart);
        assert_eq!(three(&[(1, "a"), (8, "a")]), Spread::Apart, "the eighth does not vote");
        assert_eq!(three(&[]), Spread::Unknown);
        assert_eq!(spread(&[1, 2], &racks(&[(1, "a"), (2, "a")])), together);
        assert_eq!(spread(&[1], &racks(&[(1, "a")])), Spread::Apart, "it is alone");
        let four = racks(&[(1, "a"), (2, "a"), (3, "b"), (4, "b")]);
        assert_eq!(spread(&[1, 2, 3, 4], &four), Spread::Apart, "two of four are no majority");
    }
}
