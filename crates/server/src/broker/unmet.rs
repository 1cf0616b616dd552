//! [`Unmet`]: topics whose producers are refused, as fewer brokers are in sync than `min.insync.replicas` asks for.
//!
//! Looked for when somebody asks: of each topic it is one look at a setting, and partitions are gone through only of topics that
//! some shard refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::control::Topic;

/// Topics that are named: more are counted.
pub(super) const NAMED_MAX: usize = 3;

/// Topics that the leader of a shard refuses: their producers get `NOT_ENOUGH_REPLICAS`, unless they want no answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmet {
    /// How many brokers are in sync, the leader included.
    pub in_sync: u64,
    /// How many topics it refuses.
    pub topics: u64,
    /// Some of them.
    pub named: Vec<String>,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { in_sync, topics, named } = self;
        let what = if *topics == 1 { "topic" } else { "topics" };
        let more = match topics.saturating_sub(named.len() as u64) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        write!(
            f,
            "producers to {what} {}{more} get NOT_ENOUGH_REPLICAS: min.insync.replicas asks for more than the {in_sync} in sync",
            named.join(", ")
        )
    }
}

/// Of each shard the topics that it refuses, where these are the shards, and how many are in sync there, that refuse who asks
/// for so many copies.
pub(super) fn unmet<'a>(
    topics: impl Iterator<Item = &'a Topic>,
    refusing: impl Fn(usize) -> BTreeMap<u32, usize>,
) -> BTreeMap<u32, Unmet> {
    // Topics ask for few different numbers.
    let mut known = BTreeMap::<usize, BTreeMap<u32, usize>>::new();
    let mut unmet = BTreeMap::<u32, Unmet>::new();
    for topic in topics {
        let copies = topic.settings.copies();
        let shards = known.entry(copies).or_insert_with(|| refusing(copies));
        let mut left: BTreeSet<u32> = shards.keys().copied().collect();
        let mut partitions = topic.partitions.iter();
        while !left.is_empty()
            && let Some(extents) = partitions.next()
        {
            let shard = extents.last().expect("a partition has an extent").shard;
            if !left.remove(&shard) {
                continue;
            }
            let of = unmet.entry(shard).or_default();
            of.in_sync = shards[&shard] as u64;
            of.topics += 1;
            if of.named.len() < NAMED_MAX {
                of.named.push(topic.name.clone());
            }
        }
    }
    unmet
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::control::{Catalog, Change, TopicSettings};
    use crate::shard::TopicId;

    fn catalog(topics: &[(&str, Option<&str>, &[u32])]) -> Catalog {
        let mut catalog = Catalog::default();
        for (number, (name, copies, shards)) in (1..).zip(topics) {
            let mut settings = TopicSettings::default();
            if let Some(copies) = copies {
                settings.set("min.insync.replicas", Some(copies)).unwrap();
            }
            let (id, name, shards) = (TopicId([number; 16]), (*name).to_owned(), shards.to_vec());
            catalog.apply(&Change::Create { id, name, shards, settings }).unwrap();
        }
        catalog
    }

    /// Nobody was told but the producers.
    #[test]
    fn topics_that_ask_for_more_copies_than_are_in_sync_are_counted_by_shard_and_a_few_are_named() {
        let names = ["a", "b", "c", "d", "e"];
        let mut topics = vec![("two", Some("2"), &[2, 4][..]), ("any", None, &[2, 2])];
        topics.extend(names.map(|name| (name, Some("3"), &[2, 4, 2][..])));
        topics.push(("elsewhere", Some("3"), &[6]));
        let catalog = catalog(&topics);
        let asked = Cell::new(0);
        let refusing = |copies| {
            asked.set(asked.get() + 1);
            if copies > 2 { BTreeMap::from([(2, 2), (3, 1)]) } else { BTreeMap::new() }
        };
        let found = unmet(catalog.topics().map(|(_, topic)| topic), refusing);
        assert_eq!(asked.get(), 3, "once for each number of copies");
        assert_eq!(found.keys().collect::<Vec<_>>(), [&2], "only shards that refuse somebody");
        assert_eq!(
            (found[&2].topics, &found[&2].named[..]),
            (5, &["a", "b", "c"].map(str::to_owned)[..])
        );
        assert_eq!(
            found[&2].to_string(),
            "producers to topics a, b, c and 2 more get NOT_ENOUGH_REPLICAS: min.insync.replicas asks for more than the 2 in sync"
        );
        let one = Unmet { in_sync: 2, topics: 1, named: vec!["a".to_owned()] };
        assert!(one.to_string().starts_with("producers to topic a get NOT_ENOUGH_REPLICAS: "));
    }
}
