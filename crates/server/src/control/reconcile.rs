//! [`reconcile`]: what is left to do in a shard.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::shard::{Item, Open, Opening, PartitionId, Producers, State, TopicId};

use super::catalog::{Catalog, Extent, Topic};

/// What idempotent producers had sent last, of partitions whose stays in other shards have ended.
pub type Left = BTreeMap<Opening, Producers>;

/// A partition that comes from another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coming {
    /// The stay that begins.
    pub opening: Opening,
    /// The one before it.
    pub ended: Opening,
    /// In which shard that was.
    pub from: u32,
}

/// The partitions that are to come to this shard from others, and have not come: of these topics, or of all.
#[must_use]
pub fn coming(
    topics: Option<&BTreeSet<TopicId>>,
    catalog: &Catalog,
    number: u32,
    shard: &State,
) -> Vec<Coming> {
    let is_asked = |id: &TopicId| topics.is_none_or(|topics| topics.contains(id));
    let live = catalog.topics().filter(|(id, topic)| is_asked(id) && !topic.is_deleted);
    let all = live.flat_map(|(id, topic)| {
        (0..).zip(&topic.partitions).filter_map(move |(partition, extents)| {
            let [.., before, last] = &extents[..] else { return None };
            let partition = PartitionId { topic: id, number: partition };
            let opening = Opening { partition, number: last.opening };
            let ended = Opening { partition, number: before.opening };
            (last.shard == number).then_some(Coming { opening, ended, from: before.shard })
        })
    });
    all.filter(|coming| shard.partition(coming.opening).is_none()).collect()
}

/// What is to be proposed to this shard, so that it becomes what the catalog intends.
///
/// It is asked again once what it said before was applied, and not while that is in flight: an entry
/// that acts on what is not there any more stops its shard. Once no shard has anything of a deleted
/// topic, it is [gone](crate::control::Change::Gone).
///
/// Whoever leads a shard may be behind with the catalog. A shard knows the newest version that it was told of: to an
/// older one nothing is to be done, or what was deleted would come back. And what it has, and the catalog does not know at
/// that version or a later one, is gone.
///
/// A partition that comes from another shard comes once it is known what it has `left` there.
#[must_use]
pub fn reconcile(catalog: &Catalog, number: u32, shard: &State, left: &Left) -> Vec<Item<'static>> {
    let mut items = Vec::new();
    for (id, topic) in catalog.topics() {
        reconcile_live(id, topic, (number, shard, left), &mut items);
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
    left: &Left,
) -> Vec<Item<'static>> {
    let mut items = Vec::new();
    for id in ids {
        match catalog.topic(*id) {
            Some(topic) => reconcile_live(*id, topic, (number, shard, left), &mut items),
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

/// A shard, and what partitions that come to it have left in others.
type Here<'a> = (u32, &'a State, &'a Left);

fn reconcile_live(
    id: TopicId,
    topic: &Topic,
    (number, shard, left): Here<'_>,
    items: &mut Vec<Item<'static>>,
) {
    for (partition, extents) in (0..).zip(&topic.partitions) {
        let (last, earlier) = extents.split_last().expect("a partition has an extent");
        let partition = PartitionId { topic: id, number: partition };
        let at = |extent: &Extent| Opening { partition, number: extent.opening };
        for extent in earlier.iter().filter(|extent| extent.shard == number) {
            if !topic.is_deleted {
                keep_ended(shard, topic, at(extent), extent, items);
            }
        }
        if last.shard == number && !topic.is_deleted {
            let moves = topic.moving.contains_key(&partition.number);
            match shard.partition(at(last)) {
                Some(_) if moves => close(shard, at(last), items),
                Some(_) => configure(shard, topic, at(last), items),
                None => {
                    let producers = match earlier.last() {
                        // What has gone with its age leaves nothing.
                        None => Some(Producers::default()),
                        Some(before) => left.get(&at(before)).cloned(),
                    };
                    let settings = topic.settings.of_partition();
                    let (base_epoch, start) = (last.base_epoch, last.start);
                    items.extend(producers.map(|producers| {
                        let opening = at(last);
                        Item::Open(Open { opening, base_epoch, start, settings, producers })
                    }));
                }
            }
        }
    }
    let is_intended = |opening: &Opening| {
        let number_of = usize::try_from(opening.partition.number).ok();
        let extents = number_of.and_then(|place| topic.partitions.get(place));
        extents.is_some_and(|extents| {
            extents.iter().any(|at| at.shard == number && at.opening == opening.number)
        })
    };
    let here = shard.partitions_of(id);
    here.filter(|opening| topic.is_deleted || !is_intended(opening))
        .for_each(|opening| delete(shard, opening, items));
}

/// Has a stay that has ended kept as it is to be kept.
fn keep_ended(
    shard: &State,
    topic: &Topic,
    opening: Opening,
    extent: &Extent,
    items: &mut Vec<Item<'static>>,
) {
    let Some(partition) = shard.partition(opening) else { return };
    close(shard, opening, items);
    if partition.start() < extent.start && partition.start() < partition.next() {
        items.push(Item::Trim { opening, start: extent.start });
    }
    configure(shard, topic, opening, items);
}

fn configure(shard: &State, topic: &Topic, opening: Opening, items: &mut Vec<Item<'static>>) {
    let settings = topic.settings.of_partition();
    if shard.partition(opening).is_some_and(|partition| *partition.settings() != settings) {
        items.push(Item::Configure { opening, settings });
    }
}

fn close(shard: &State, opening: Opening, items: &mut Vec<Item<'static>>) {
    if shard.partition(opening).is_some_and(|partition| !partition.is_closed()) {
        items.push(Item::Close { opening });
    }
}

/// Has a partition closed, and what it holds freed.
fn delete(shard: &State, opening: Opening, items: &mut Vec<Item<'static>>) {
    close(shard, opening, items);
    // Behind the close nothing is appended: all that there is lies below this offset.
    items.push(Item::Trim { opening, start: i64::MAX });
}
