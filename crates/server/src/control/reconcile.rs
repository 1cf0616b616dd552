//! [`reconcile`]: what is left to do in a shard.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::shard::{Item, Open, Opening, PartitionId, Producers, State, TopicId};

use super::catalog::{Catalog, Extent, Topic};

/// What is to be proposed to this shard, so that it becomes what the catalog intends.
///
/// It is asked again once what it said before was applied, and not while that is in flight: an entry
/// that acts on what is not there any more stops its shard. Once no shard has anything of a deleted
/// topic, it is [gone](crate::control::Change::Gone).
///
/// Whoever leads a shard may be behind with the catalog. A shard knows the newest version that it was told of: to an
/// older one nothing is to be done, or what was deleted would come back. And what it has, and the catalog does not know at
/// that version or a later one, is gone.
#[must_use]
pub fn reconcile(catalog: &Catalog, number: u32, shard: &State) -> Vec<Item<'static>> {
    let mut items = Vec::new();
    for (id, topic) in catalog.topics() {
        reconcile_live(id, topic, number, shard, &mut items);
    }
    let openings = shard.partitions().map(|(opening, _)| opening);
    let gone = openings.filter(|opening| catalog.topic(opening.partition.topic).is_none());
    let_go(gone, shard, &mut items);
    as_intended(catalog, shard, items)
}

/// As [`reconcile`], of some topics.
#[must_use]
pub fn reconcile_topics(
    ids: &BTreeSet<TopicId>,
    catalog: &Catalog,
    number: u32,
    shard: &State,
) -> Vec<Item<'static>> {
    let mut items = Vec::new();
    for id in ids {
        match catalog.topic(*id) {
            Some(topic) => reconcile_live(*id, topic, number, shard, &mut items),
            None => let_go(shard.partitions_of(*id), shard, &mut items),
        }
    }
    as_intended(catalog, shard, items)
}

/// Nothing, where the shard was told more already; or else what it is told, as of this version.
fn as_intended(
    catalog: &Catalog,
    shard: &State,
    mut items: Vec<Item<'static>>,
) -> Vec<Item<'static>> {
    let (version, told) = (catalog.version(), shard.intended());
    match version.cmp(&told) {
        Ordering::Less => items.clear(),
        Ordering::Equal => {}
        Ordering::Greater if items.is_empty() => {}
        Ordering::Greater => items.insert(0, Item::Intended(version)),
    }
    items
}

/// Has these go, which the catalog does not know any more. Of a shard that was never told a version none is: it may be the
/// catalog that has lost something.
fn let_go(gone: impl Iterator<Item = Opening>, shard: &State, items: &mut Vec<Item<'static>>) {
    if shard.intended() > 0 {
        gone.for_each(|opening| delete(shard, opening, items));
    }
}

fn reconcile_live(
    id: TopicId,
    topic: &Topic,
    number: u32,
    shard: &State,
    items: &mut Vec<Item<'static>>,
) {
    for (partition, extents) in (0..).zip(&topic.partitions) {
        let partition = PartitionId { topic: id, number: partition };
        let (last, earlier) = extents.split_last().expect("a partition has an extent");
        for extent in earlier.iter().filter(|extent| extent.shard == number) {
            let opening = Opening { partition, number: extent.opening };
            if topic.is_deleted {
                delete(shard, opening, items);
            }
        }
        if last.shard == number {
            let opening = Opening { partition, number: last.opening };
            match topic.is_deleted {
                true => delete(shard, opening, items),
                false => keep(shard, topic, opening, last, items),
            }
        }
    }
}

/// Has a partition open, with the settings that hold.
fn keep(
    shard: &State,
    topic: &Topic,
    opening: Opening,
    extent: &Extent,
    items: &mut Vec<Item<'static>>,
) {
    let settings = topic.settings.of_partition();
    match shard.partition(opening) {
        None => items.push(Item::Open(Open {
            opening,
            base_epoch: extent.base_epoch,
            start: extent.start,
            settings,
            producers: Producers::default(),
        })),
        Some(partition) if *partition.settings() != settings => {
            items.push(Item::Configure { opening, settings });
        }
        Some(_) => {}
    }
}

/// Has a partition closed, and what it holds freed.
fn delete(shard: &State, opening: Opening, items: &mut Vec<Item<'static>>) {
    let Some(partition) = shard.partition(opening) else { return };
    if !partition.is_closed() {
        items.push(Item::Close { opening });
    }
    // Behind the close nothing is appended: all that there is lies below this offset.
    items.push(Item::Trim { opening, start: i64::MAX });
}
