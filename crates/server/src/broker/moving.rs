//! [`move_on`]: partitions that go on in other shards.
//!
//! 1. The controller agrees that a partition is to go on in another shard.
//! 2. The leader of the one in which it is closes it (`intended.rs`): from then on that takes no records of it, durably.
//! 3. The controller's replica of that shard then knows where the stay ended. It agrees that the partition goes on from there,
//!    with a leader epoch above all before.
//! 4. The leader of the other shard opens it, once its node's replica of the first knows what its producers sent last.
//!
//! What was written before stays where it is, and is read there, until it is deleted or too old; then the controller forgets
//! that stay. Each looks at the catalog, which every node has: whoever leads goes on where another stopped.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::agreed::Refused;
use super::leadership::LOOK;
use super::neighbours::Neighbours;
use super::topics::Topics;
use crate::control::{Arrival, Catalog, Change, Topic};
use crate::shard::{Opening, PartitionId, TopicId};

/// How often it is looked whether a stay that has ended has nothing left.
const SHEDS: Duration = Duration::from_secs(10);
/// By how much the leader epoch rises beside what is known of it: a node that has not heard of the move may tell of a later one
/// of the shard that was left.
const EPOCHS_APART: i64 = 1000;

/// Goes on for as long as the node does.
pub(super) async fn move_on(topics: Arc<Topics>, neighbours: Arc<Neighbours>) {
    let mut changes = topics.intended().changes();
    let mut reshapes = neighbours.reshapes();
    let mut shed = Instant::now();
    loop {
        changes.borrow_and_update();
        let mut all = topics.arrivals();
        if shed.elapsed() >= SHEDS {
            shed = Instant::now();
            all.extend(topics.sheds());
        }
        for change in all {
            if let Err(why) = topics.agree_here(change).await {
                tracing::debug!(%why, "a partition moves later");
            }
        }
        let is_moving = topics.is_moving();
        let told = async {
            tokio::select! {
                _ = changes.changed() => {}
                () = reshapes.changed(), if is_moving => {}
            }
        };
        // A leadership may begin, and nobody tells of that here.
        timeout(if is_moving { LOOK } else { SHEDS }, told).await.ok();
    }
}

impl Topics {
    /// Has partitions of a topic go on in other shards; they are about to, on return.
    pub(crate) async fn move_partitions(
        &self,
        id: TopicId,
        partitions: Vec<(u32, u32)>,
    ) -> Result<(), Refused> {
        self.change(Change::Move { id, partitions }).await.map(drop)
    }

    /// Has records below this offset go that were written in an earlier stay; they are gone on return, as this node has heard.
    pub(crate) async fn shed(&self, of: PartitionId, start: i64) -> Result<(), Refused> {
        let (id, partition) = (of.topic, of.number);
        self.change(Change::Shed { id, partition, start }).await?;
        Ok(self.until_done(id).await?)
    }

    fn is_moving(&self) -> bool {
        self.leads() && self.catalog().topics().any(|(_, topic)| !topic.moving.is_empty())
    }

    /// Those that are to move, and have ended their stays.
    fn arrivals(&self) -> Vec<Change> {
        if !self.leads() {
            return Vec::new();
        }
        let catalog = self.catalog();
        let moving =
            catalog.topics().filter(|(_, topic)| !topic.is_deleted && !topic.moving.is_empty());
        let changes = moving.map(|(id, topic)| {
            let all = topic.moving.iter();
            let arrivals = all.filter_map(|(number, to)| self.arrival(id, topic, *number, *to));
            Change::Moved { id, arrivals: arrivals.collect() }
        });
        let is_some = |change: &Change| matches!(change, Change::Moved { arrivals, .. } if !arrivals.is_empty());
        changes.filter(is_some).collect()
    }

    fn arrival(&self, topic: TopicId, of: &Topic, number: u32, to: u32) -> Option<Arrival> {
        let last = *of.partitions.get(usize::try_from(number).ok()?)?.last()?;
        let partition = PartitionId { topic, number };
        let shard = self.shard(last.shard).replica.lock();
        let ended = shard.state.partition(Opening { partition, number: last.opening })?;
        let epoch = ended.epoch(shard.state.turns()).saturating_add(EPOCHS_APART);
        ended.is_closed().then(|| Arrival {
            partition: number,
            shard: to,
            opening: last.opening.saturating_add(1),
            base_epoch: i32::try_from(epoch).unwrap_or(i32::MAX),
            start: ended.next(),
        })
    }

    /// First stays of partitions of which nothing is left, or nothing would be if their stays were one.
    fn sheds(&self) -> Vec<Change> {
        if !self.leads() {
            return Vec::new();
        }
        let catalog: &Catalog = &self.catalog();
        let live = catalog.topics().filter(|(_, topic)| !topic.is_deleted);
        let all = live.flat_map(|(id, topic)| {
            let numbers = (0..).zip(&topic.partitions).filter(|(_, extents)| extents.len() > 1);
            numbers.filter_map(move |(number, _)| self.shed_of(id, topic, number))
        });
        all.collect()
    }

    fn shed_of(&self, id: TopicId, topic: &Topic, number: u32) -> Option<Change> {
        let extents = topic.partitions.get(usize::try_from(number).ok()?)?;
        let [first, second, ..] = &extents[..] else { return None };
        let partition = PartitionId { topic: id, number };
        let bytes = |at: &crate::control::Extent| {
            let opening = Opening { partition, number: at.opening };
            let shard = self.shard(at.shard);
            let unsettled = shard.replica.lock().state.partition(opening)?.bytes();
            Some(shard.shelf.bytes(opening) + unsettled)
        };
        // All of them are here, or this node is behind.
        let later = extents[1..].iter().map(bytes).sum::<Option<u64>>()?;
        let is_empty = {
            let shard = self.shard(first.shard).replica.lock();
            let ended = shard.state.partition(Opening { partition, number: first.opening })?;
            ended.is_closed() && ended.start() == ended.next()
        };
        let kept = topic.settings.of_partition().retention_bytes;
        let is_over = kept.is_some_and(|kept| later >= kept);
        let shed = Change::Shed { id, partition: number, start: second.start };
        (is_empty || is_over).then_some(shed)
    }
}
