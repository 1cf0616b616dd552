//! [`Catalog`]: the topics, and what a change does to them.

use std::collections::{BTreeMap, BTreeSet};

use crate::shard::{Opening, PartitionId, TopicId};

use super::change::{Arrival, Change, PARTITIONS_MAX};
use super::settings::TopicSettings;

/// The topics of a cluster, after some change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    topics: BTreeMap<TopicId, Topic>,
    by_name: BTreeMap<String, TopicId>,
    /// Leader epochs begin at this one: no partition that is gone had as high a one.
    floor: i32,
    /// Changes up to it may be agreed on.
    level: u32,
    /// The next id of an idempotent producer.
    next_producer: i64,
    /// How many changes were done.
    version: u64,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// What it is called.
    pub name: String,
    /// What was set for it.
    pub settings: TopicSettings,
    /// Where each partition is, and was: the last takes what is appended.
    pub partitions: Vec<Vec<Extent>>,
    /// Those that are to go on in another shard, with it.
    pub moving: BTreeMap<u32, u32>,
    /// It is to go, and its name is free once it has gone.
    pub is_deleted: bool,
}

/// A stay of a partition in a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// In which.
    pub shard: u32,
    /// Its number among the partition's stays, from 1.
    pub opening: u32,
    /// The leader epoch that it begins with.
    pub base_epoch: i32,
    /// The offset that it begins with; of one that has ended, the first that was not deleted since.
    pub start: i64,
}

/// A change that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// The name is taken, or its topic has not gone yet.
    #[error("the topic {0} exists")]
    Exists(String),
    /// The id was used.
    #[error("the topic id exists")]
    IdExists,
    /// There is no such topic.
    #[error("there is no such topic")]
    NoSuchTopic,
    /// It is to go.
    #[error("the topic {0} is being deleted")]
    Deleted(String),
    /// It has not been deleted.
    #[error("the topic {0} is not being deleted")]
    NotDeleted(String),
    /// It would have too many partitions.
    #[error("a topic has at most {PARTITIONS_MAX} partitions, not {0}")]
    TooManyPartitions(usize),
    /// No leader epoch, or no id of a producer, is left.
    #[error("no leader epoch or producer id is left")]
    Exhausted,
    /// Features only go on.
    #[error("feature level {0} does not follow {1}")]
    Backwards(u32, u32),
    /// There is no such partition.
    #[error("there is no partition {0}")]
    NoSuchPartition(u32),
    /// There is no such shard of records.
    #[error("there is no shard {0} of records")]
    NoSuchShard(u32),
    /// Another stay than the last has ended, or it goes on below where it was.
    #[error("partition {0} has gone on already")]
    HasMoved(u32),
}

impl Catalog {
    /// How many changes made it what it is.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The highest level of changes that every node knows.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// The topic of this name, unless it is being deleted.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(TopicId, &Topic)> {
        let id = *self.by_name.get(name)?;
        self.topic(id).filter(|topic| !topic.is_deleted).map(|topic| (id, topic))
    }

    /// The id of the topic of this name, also if it is being deleted.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<TopicId> {
        self.by_name.get(name).copied()
    }

    /// The topic with this id.
    #[must_use]
    pub fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.topics.get(&id)
    }

    /// All topics, also those that are being deleted.
    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &Topic)> {
        self.topics.iter().map(|(id, topic)| (*id, topic))
    }

    /// Whether there is this partition, also of a topic that is being deleted.
    #[must_use]
    pub fn knows(&self, partition: PartitionId) -> bool {
        let number = usize::try_from(partition.number).unwrap_or(usize::MAX);
        self.topic(partition.topic).is_some_and(|topic| number < topic.partitions.len())
    }

    /// Where a partition takes records, unless its topic is being deleted.
    #[must_use]
    pub fn place(&self, name: &str, number: u32) -> Option<(Opening, Extent)> {
        let (topic, found) = self.find(name)?;
        let extents = found.partitions.get(usize::try_from(number).ok()?)?;
        let last = *extents.last().expect("a partition has an extent");
        let partition = PartitionId { topic, number };
        Some((Opening { partition, number: last.opening }, last))
    }

    /// All stays of a partition, unless its topic is being deleted.
    #[must_use]
    pub fn stays(&self, name: &str, number: u32) -> Option<(PartitionId, &[Extent])> {
        let (topic, found) = self.find(name)?;
        let extents = found.partitions.get(usize::try_from(number).ok()?)?;
        Some((PartitionId { topic, number }, extents))
    }

    /// How many partitions take records in a shard.
    #[must_use]
    pub fn load(&self, shard: u32) -> usize {
        let live = self.topics.values().filter(|topic| !topic.is_deleted);
        let last = live.flat_map(|topic| topic.partitions.iter().filter_map(|of| of.last()));
        last.filter(|extent| extent.shard == shard).count()
    }

    /// The next id of an idempotent producer that nobody has.
    #[must_use]
    pub fn next_producer(&self) -> i64 {
        self.next_producer
    }

    /// Does a change, or says why it cannot be; then nothing was done. All replicas answer alike.
    pub fn apply(&mut self, change: &Change) -> Result<(), Impossible> {
        match change {
            Change::Create { id, name, shards, settings } => {
                if self.by_name.contains_key(name) {
                    return Err(Impossible::Exists(name.clone()));
                }
                if self.topics.contains_key(id) {
                    return Err(Impossible::IdExists);
                }
                let partitions = self.new_partitions(0, shards)?;
                let (name, settings) = (name.clone(), settings.clone());
                self.by_name.insert(name.clone(), *id);
                let (moving, is_deleted) = (BTreeMap::new(), false);
                self.topics.insert(*id, Topic { name, settings, partitions, moving, is_deleted });
            }
            Change::Grow { id, shards } => {
                let there = self.live(*id)?.partitions.len();
                let more = self.new_partitions(there, shards)?;
                self.live(*id)?.partitions.extend(more);
            }
            Change::Alter { id, settings } => self.live(*id)?.settings = settings.clone(),
            Change::Delete { id } => self.live(*id)?.is_deleted = true,
            Change::Gone { id, epoch } => {
                let topic = self.topics.get(id).ok_or(Impossible::NoSuchTopic)?;
                if !topic.is_deleted {
                    return Err(Impossible::NotDeleted(topic.name.clone()));
                }
                let above = epoch.checked_add(1).ok_or(Impossible::Exhausted)?;
                self.floor = self.floor.max(above);
                self.by_name.remove(&topic.name);
                self.topics.remove(id);
            }
            Change::Feature(level) => {
                if *level <= self.level {
                    return Err(Impossible::Backwards(*level, self.level));
                }
                self.level = *level;
            }
            Change::Move { id, partitions } => self.live(*id)?.set_out(partitions)?,
            Change::Moved { id, arrivals } => self.live(*id)?.arrive(arrivals)?,
            Change::Shed { id, partition, start } => self.live(*id)?.shed(*partition, *start)?,
            Change::Producers(count) => {
                let next = self.next_producer.checked_add(i64::from(*count));
                self.next_producer = next.ok_or(Impossible::Exhausted)?;
            }
        }
        self.version += 1;
        Ok(())
    }

    fn live(&mut self, id: TopicId) -> Result<&mut Topic, Impossible> {
        let topic = self.topics.get_mut(&id).ok_or(Impossible::NoSuchTopic)?;
        if topic.is_deleted {
            return Err(Impossible::Deleted(topic.name.clone()));
        }
        Ok(topic)
    }

    /// The first stay of each partition behind those that there are.
    fn new_partitions(&self, there: usize, shards: &[u32]) -> Result<Vec<Vec<Extent>>, Impossible> {
        let all = there.saturating_add(shards.len());
        if all > PARTITIONS_MAX {
            return Err(Impossible::TooManyPartitions(all));
        }
        let base_epoch = self.floor;
        let extent = |shard: &u32| Extent { shard: *shard, opening: 1, base_epoch, start: 0 };
        Ok(shards.iter().map(|shard| vec![extent(shard)]).collect())
    }
}

impl Topic {
    /// These are to go on elsewhere. One that is to be where it is stays; if it was about to go it may have ended its stay,
    /// and goes on there in another.
    fn set_out(&mut self, partitions: &[(u32, u32)]) -> Result<(), Impossible> {
        for (number, _) in partitions {
            self.last(*number)?;
        }
        for (number, shard) in partitions {
            if self.last(*number)?.shard != *shard || self.moving.contains_key(number) {
                self.moving.insert(*number, *shard);
            }
        }
        Ok(())
    }

    /// These go on there.
    fn arrive(&mut self, arrivals: &[Arrival]) -> Result<(), Impossible> {
        let mut numbers = BTreeSet::new();
        for arrival in arrivals {
            let last = self.last(arrival.partition)?;
            let follows = last.opening.checked_add(1) == Some(arrival.opening)
                && arrival.base_epoch > last.base_epoch
                && arrival.start >= last.start
                && numbers.insert(arrival.partition);
            if !follows {
                return Err(Impossible::HasMoved(arrival.partition));
            }
        }
        for Arrival { partition, shard, opening, base_epoch, start } in arrivals {
            self.extents(*partition)?.push(Extent {
                shard: *shard,
                opening: *opening,
                base_epoch: *base_epoch,
                start: *start,
            });
            self.moving.remove(partition);
        }
        Ok(())
    }

    /// Stays that ended at or below this offset are forgotten; of the first of the others records below it go. Of the last
    /// stay none do: that is for its shard to say.
    fn shed(&mut self, number: u32, start: i64) -> Result<(), Impossible> {
        let extents = self.extents(number)?;
        let ended = extents.windows(2).take_while(|pair| pair[1].start <= start).count();
        extents.drain(..ended);
        if let [first, _, ..] = &mut extents[..] {
            first.start = first.start.max(start);
        }
        Ok(())
    }

    fn last(&self, number: u32) -> Result<Extent, Impossible> {
        let place = usize::try_from(number).ok();
        let extents = place.and_then(|place| self.partitions.get(place));
        let last = extents.and_then(|extents| extents.last()).copied();
        last.ok_or(Impossible::NoSuchPartition(number))
    }

    fn extents(&mut self, number: u32) -> Result<&mut Vec<Extent>, Impossible> {
        let place = usize::try_from(number).ok();
        let extents = place.and_then(|place| self.partitions.get_mut(place));
        extents.ok_or(Impossible::NoSuchPartition(number))
    }
}
