//! [`reconcile`]: what is left to do in a shard.

use crate::shard::{Item, Open, Opening, PartitionId, Producers, State, TopicId};

use super::catalog::{Catalog, Extent, Topic};

/// What is to be proposed to this shard, so that it becomes what the catalog intends.
///
/// It is asked again once what it said before was applied, and not while that is in flight: an entry
/// that acts on what is not there any more stops its shard. Once no shard has anything of a deleted
/// topic, it is [gone](crate::control::Change::Gone).
#[must_use]
pub fn reconcile(catalog: &Catalog, number: u32, shard: &State) -> Vec<Item<'static>> {
    let topics = catalog.topics();
    topics.flat_map(|(id, topic)| reconcile_topic(id, topic, number, shard)).collect()
}

/// As [`reconcile`], of one topic.
#[must_use]
pub fn reconcile_topic(
    id: TopicId,
    topic: &Topic,
    number: u32,
    shard: &State,
) -> Vec<Item<'static>> {
    let mut items = Vec::new();
    for (partition, extents) in (0..).zip(&topic.partitions) {
        let partition = PartitionId { topic: id, number: partition };
        let (last, earlier) = extents.split_last().expect("a partition has an extent");
        for extent in earlier.iter().filter(|extent| extent.shard == number) {
            let opening = Opening { partition, number: extent.opening };
            if topic.is_deleted {
                delete(shard, opening, &mut items);
            }
        }
        if last.shard == number {
            let opening = Opening { partition, number: last.opening };
            match topic.is_deleted {
                true => delete(shard, opening, &mut items),
                false => keep(shard, topic, opening, last, &mut items),
            }
        }
    }
    items
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
