//! [`Store`]: what the changes make, on every replica.
//!
//! Invariant: a generation never goes back, nor does its assignment, as long as its group is there.
//! A change that says otherwise is the leader's error or the disk's: the shard stops
//! ([`Backwards`]).

use std::collections::BTreeMap;

use super::change::Change;
use super::offset::Committed;
use super::request::TopicPartition;
use super::roster::Roster;

/// All groups that outlive a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Store {
    pub(super) groups: BTreeMap<String, Stored>,
}

/// What outlives a restart of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    pub(super) roster: Roster,
    pub(super) offsets: BTreeMap<String, BTreeMap<i32, Committed>>,
}

/// A generation that cannot come after the one before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("generation {found} of group {group:?} does not follow {last}")]
pub struct Backwards {
    /// Whose.
    pub group: String,
    /// The one before.
    pub last: i32,
    /// What came.
    pub found: i32,
}

impl Store {
    /// What is stored of a group.
    #[must_use]
    pub fn group(&self, id: &str) -> Option<&Stored> {
        self.groups.get(id)
    }

    /// All of them, by their names.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Stored)> {
        self.groups.iter().map(|(id, stored)| (id.as_str(), stored))
    }

    /// How far a group is in a partition (`OffsetFetch`): what was answered is here.
    #[must_use]
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<&Committed> {
        self.groups.get(group)?.offsets.get(topic)?.get(&partition)
    }

    /// Does what a change says.
    ///
    /// # Errors
    /// The change does not follow from those before it; the store is as it was.
    pub fn apply(&mut self, change: &Change) -> Result<(), Backwards> {
        match change {
            Change::Roster { group, roster } => {
                let stored = self.groups.entry(group.clone()).or_default();
                let (last, found) = (&stored.roster, roster);
                if (found.generation, found.is_assigned) < (last.generation, last.is_assigned) {
                    let (last, found) = (last.generation, found.generation);
                    return Err(Backwards { group: group.clone(), last, found });
                }
                stored.roster = roster.clone();
            }
            Change::Commit { group, offsets } => {
                let stored = self.groups.entry(group.clone()).or_default();
                for (at, committed) in offsets {
                    let topic = stored.offsets.entry(at.topic.clone()).or_default();
                    topic.insert(at.partition, committed.clone());
                }
            }
            Change::Forget { group, partitions } => {
                if let Some(stored) = self.groups.get_mut(group) {
                    for at in partitions {
                        stored.forget_one(at);
                    }
                }
            }
            Change::Expire { group, now, committed_by } => {
                if let Some(stored) = self.groups.get_mut(group) {
                    stored.expire(*now, *committed_by);
                    if stored.roster.members.is_empty() && stored.offsets.is_empty() {
                        self.groups.remove(group);
                    }
                }
            }
            Change::Delete { group } => {
                self.groups.remove(group);
            }
            Change::NoTopic { topic } => {
                for stored in self.groups.values_mut() {
                    stored.offsets.remove(topic);
                }
            }
        }
        Ok(())
    }
}

impl Stored {
    /// Its generation and members.
    #[must_use]
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// How far it is, by topic and partition (`OffsetFetch` of all).
    pub fn offsets(&self) -> impl Iterator<Item = (&str, i32, &Committed)> {
        let topics = self.offsets.iter();
        topics.flat_map(|(topic, partitions)| {
            partitions.iter().map(|(partition, at)| (topic.as_str(), *partition, at))
        })
    }

    /// Whether its offset in a partition is stored.
    pub(super) fn has(&self, topic: &str, partition: i32) -> bool {
        self.offsets.get(topic).is_some_and(|partitions| partitions.contains_key(&partition))
    }

    /// Of how many partitions offsets are stored.
    pub(super) fn offset_count(&self) -> usize {
        self.offsets.values().map(BTreeMap::len).sum()
    }

    fn forget_one(&mut self, at: &TopicPartition) {
        if let Some(partitions) = self.offsets.get_mut(&at.topic) {
            partitions.remove(&at.partition);
            if partitions.is_empty() {
                self.offsets.remove(&at.topic);
            }
        }
    }

    fn expire(&mut self, now: u64, committed_by: u64) {
        self.offsets.retain(|_, partitions| {
            partitions.retain(|_, committed| !committed.is_expired(now, committed_by));
            !partitions.is_empty()
        });
    }
}
