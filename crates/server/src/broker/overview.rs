//! What a node is doing, as values for whoever looks at it from outside.

use std::collections::BTreeMap;

use std::time::Duration;

use plimsoll_log::{Policy, Stats};
use serde::Serialize;

use super::data::DataShard;
use super::error::sentence;
use super::layout::{CONTROL, DURABLE, GROUPS};
use super::leadership::{Leader, why_failed};
use super::throttle::UNSETTLED_MAX;

use super::node::Node;
use super::options::{Promise, SMALL_RING_BYTES};
use super::stays::Whereabouts;
use super::unmet::Unmet;
use crate::cluster::{Apply, Group};
use crate::control::{FlushClass, SETTINGS, TopicSettings};

/// A shard, as it is now.
#[derive(Debug, Clone, Serialize)]
pub struct ShardOverview {
    /// Its number, that of its directory.
    pub number: u32,
    /// What it is for.
    pub holds: &'static str,
    /// Whether this node leads it.
    pub leads: bool,
    /// The node that leads it, if one does.
    pub leader: Option<u64>,
    /// The nodes whose replicas vote.
    pub voters: Vec<u64>,
    /// Whether the replica here may have forgotten what it acknowledged, and does not vote until it has that again.
    pub is_in_doubt: bool,
    /// Where it leads: what is acknowledged is durable on a majority first, as fewer voters are well than should be.
    pub is_guarded: bool,
    /// Whether it is guarded as a majority of its voters stands in one rack.
    pub is_exposed: bool,
    /// Where it leads: which voters are not well, and what is wrong with each.
    pub unwell: BTreeMap<u64, String>,
    /// Where it leads: how many more voters may fail before it takes nothing.
    pub spare: Option<usize>,
    /// Where it leads: the topics that it refuses, as fewer brokers are in sync than they ask for.
    pub unmet: Option<Unmet>,
    /// Why it takes nothing any more, if it does not. To follow is no reason.
    pub offline: Option<String>,
    /// How its seeding goes, where this replica lacks what its leader has let go of.
    pub seeding: Option<String>,
    /// C: so many entries are acknowledged.
    pub committed: u64,
    /// D: so many of them are durable.
    pub durable: u64,
    /// Bytes that are acknowledged and not durable, at most: what the log holds in its ring.
    pub at_risk_bytes: u64,
    /// Age of the oldest of them that was taken from the ring, in ms.
    pub at_risk_ms: u64,
    /// Bytes that the ring takes before producers wait.
    pub ring_bytes: u64,
    /// Bytes of the newest entries that are served from memory, in a shard of records.
    pub tail_bytes: Option<u64>,
    /// What of it is in chapters, in a shard of records.
    pub chapters: Option<ChaptersOverview>,
    /// Stretches of its log that were found damaged and are not healed yet.
    pub log_damaged: u64,
    /// Records of its log that were healed since the broker began, by what other brokers have.
    pub log_healed: u64,
    /// What its log has measured.
    #[serde(skip)]
    pub log: Stats,
}

/// The chapters of a shard, as they are now.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ChaptersOverview {
    /// The last that is settled; 0 if none is.
    pub settled: u64,
    /// How many have ended and wait to be settled.
    pub waiting: usize,
    /// Bytes of the entries since the last one ended.
    pub open_bytes: u64,
    /// Files.
    pub files: usize,
    /// Runs in them that can be read: of each partition one a chapter.
    pub runs: usize,
    /// Bytes of batches in these.
    pub live_bytes: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Runs that were found damaged since the broker began, and are not healed: who reads them gets what another broker
    /// has, or an error.
    pub damaged: usize,
    /// Runs that were healed since it began, by what other brokers have.
    pub healed: u64,
    /// When all of it had last been read again, since the broker began, in ms since 1970.
    pub scrub_ended_ms: Option<u64>,
    /// Bytes of batches that there were to be read then.
    pub scrub_bytes: Option<u64>,
}

/// A topic, as it is now.
#[derive(Debug, Clone, Serialize)]
pub struct TopicOverview {
    /// What it is called.
    pub name: String,
    /// How many partitions it has.
    pub partitions: usize,
    /// Records that were acknowledged, and can be read.
    pub records: i64,
    /// Of these, records that are not durable.
    pub at_risk_records: i64,
    /// Bytes of its batches.
    pub bytes: u64,
    /// What an acknowledgement of it survives, and when it is durable.
    pub promise: String,
}

/// A topic with all that is known of it.
#[derive(Debug, Clone, Serialize)]
pub struct TopicDetails {
    /// The topic.
    #[serde(flatten)]
    pub topic: TopicOverview,
    /// Every setting.
    pub settings: Vec<SettingOverview>,
    /// Every partition that is open.
    pub partition: Vec<PartitionOverview>,
}

/// A setting of a topic.
#[derive(Debug, Clone, Serialize)]
pub struct SettingOverview {
    /// Its name.
    pub name: &'static str,
    /// The value that holds.
    pub value: String,
    /// `topic` if it was set for this topic, otherwise `default`.
    pub source: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// A partition, as it is now.
#[derive(Debug, Clone, Serialize)]
pub struct PartitionOverview {
    /// Its number.
    pub number: u32,
    /// The shard that it is in.
    pub shard: u32,
    /// The one in which it is about to go on, if it is.
    pub moves_to: Option<u32>,
    /// The oldest offset that can be read.
    pub start: i64,
    /// C, the high watermark: all below is acknowledged.
    pub committed: i64,
    /// D: all below is durable.
    pub durable: i64,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Its leader epoch.
    pub epoch: i64,
    /// Offsets that fences gave up: they name no records.
    pub gaps: Vec<GapOverview>,
}

/// Offsets that name no records.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct GapOverview {
    /// The first.
    pub from: i64,
    /// The offset behind the last.
    pub to: i64,
}

/// A group of consumers, as it is now.
#[derive(Debug, Clone, Serialize)]
pub struct GroupOverview {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: String,
    /// How many members it has.
    pub members: usize,
    /// Of how many partitions it has committed offsets.
    pub partitions: usize,
    /// Records that it has not committed yet, over these partitions.
    pub lag: i64,
}

/// How many there are.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Totals {
    /// Topics.
    pub topics: usize,
    /// Partitions.
    pub partitions: usize,
    /// Groups of consumers.
    pub groups: usize,
}

impl Node {
    /// All shards, by their numbers.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardOverview> {
        let small = SMALL_RING_BYTES;
        let mut shards = vec![
            self.of_group(CONTROL, "topics", self.topics.group(), self.controller(), small),
            self.of_group(GROUPS, "groups", &self.groups.group, self.coordinator(), small),
        ];
        let mut unmet = self.topics.unmet();
        for data in &self.topics.shards {
            let holds = match data.number {
                DURABLE => "records, durable first",
                _ => "records",
            };
            let (leader, ring_bytes) = (self.leader_of(data), self.options.ring_bytes);
            let mut shard = self.of_group(data.number, holds, &data.group, leader, ring_bytes);
            if data.has_failed() {
                let said = || "its leader has stopped".to_owned();
                shard.offline = shard.offline.or_else(|| Some(said()));
            }
            if data.is_full() {
                let said = || "its records are refused: the disk is full".to_owned();
                shard.offline = shard.offline.or_else(|| Some(said()));
            }
            if data.lacks_room_elsewhere() {
                let said =
                    || "its records are refused: no majority of its disks has room".to_owned();
                shard.offline = shard.offline.or_else(|| Some(said()));
            }
            if data.replica.lock().state.ended().len() > UNSETTLED_MAX {
                let said = || "its producers wait until chapters are settled".to_owned();
                shard.offline = shard.offline.or_else(|| Some(said()));
            }
            shard.unmet = unmet.remove(&data.number);
            shard.tail_bytes = Some(data.replica.lock().tail.held_bytes() as u64);
            shard.chapters = Some(data.chapters());
            shards.push(shard);
        }
        // What is known better was said.
        for shard in shards.iter_mut().filter(|shard| self.is_stuck(shard.number)) {
            let said = || "what this leader appended seconds ago is not agreed on yet".to_owned();
            shard.offline = shard.offline.take().or_else(|| Some(said()));
        }
        for shard in shards.iter_mut().filter(|shard| shard.offline.is_some()) {
            shard.spare = None;
        }
        shards
    }

    fn is_stuck(&self, number: u32) -> bool {
        let data = self.topics.shards.iter().find(|data| data.number == number);
        match (number, data) {
            (CONTROL, _) => self.topics.group().is_stuck(),
            (GROUPS, _) => self.groups.group.is_stuck(),
            (_, data) => data.is_some_and(|data| data.group.is_stuck()),
        }
    }

    fn of_group<S: Apply>(
        &self,
        number: u32,
        holds: &'static str,
        group: &Group<S>,
        leader: Leader,
        ring_bytes: u64,
    ) -> ShardOverview {
        let count = |index: Option<u64>| index.map_or(0, |index| index + 1);
        // D first: it is never beyond the C that is read after it.
        let durable = count(group.durable());
        let committed = count(group.committed());
        let (bytes, age) = group.at_risk();
        let at_risk = if committed > durable { (bytes, millis(age)) } else { (0, 0) };
        let nobody = || {
            let said = "nobody leads it, as far as this node has heard";
            // It may have been elected, and not have begun to lead.
            (leader == Leader::Unknown && !group.is_stuck()).then(|| said.to_owned())
        };
        let (log_healed, log_damaged) = group.healed();
        ShardOverview {
            number,
            holds,
            leads: leader == Leader::Here,
            leader: leader.id(self.members().here()),
            voters: group.voters(),
            is_in_doubt: group.is_dirty(),
            is_guarded: group.is_guarded(),
            is_exposed: group.is_exposed(),
            unwell: group.unwell().iter().map(|(node, why)| (*node, why.to_string())).collect(),
            spare: group.spare(),
            unmet: None,
            offline: why_failed(group)
                .map(|why| sentence(&why))
                .or_else(|| self.recovery.fenced(number).filter(|_| leader == Leader::Unknown))
                .or_else(nobody),
            seeding: self.seeding(number),
            committed,
            durable,
            at_risk_bytes: at_risk.0,
            at_risk_ms: at_risk.1,
            ring_bytes,
            tail_bytes: None,
            chapters: None,
            log_damaged,
            log_healed,
            log: group.log_stats(),
        }
    }

    /// When records of topics that do not ask for more are synced.
    #[must_use]
    pub fn flush(&self) -> Policy {
        self.options.flush
    }

    /// What a power cut would take of the records, in bytes, at most, and the age of the oldest in ms.
    /// As of [`Node::shards`], and cheaper.
    #[must_use]
    pub fn at_risk(&self) -> (u64, u64) {
        let shards = self.topics.shards.iter();
        let at_risk = shards.filter(|shard| shard.group.durable() < shard.group.committed());
        at_risk.fold((0, 0), |(sum, oldest), shard| {
            let (bytes, age) = shard.group.at_risk();
            (sum + bytes, oldest.max(millis(age)))
        })
    }

    /// How many topics, partitions and groups there are.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (mut topics, mut partitions) = (0, 0);
        for (_, topic) in self.topics.catalog().topics().filter(|(_, topic)| !topic.is_deleted) {
            topics += 1;
            partitions += topic.partitions.len();
        }
        Totals { topics, partitions, groups: self.groups.groups().list().count() }
    }

    /// All topics, by their names.
    #[must_use]
    pub fn topics(&self) -> Vec<TopicOverview> {
        let mut names: Vec<String> = {
            let catalog = self.topics.catalog();
            let live = catalog.topics().filter(|(_, topic)| !topic.is_deleted);
            live.map(|(_, topic)| topic.name.clone()).collect()
        };
        names.sort_unstable();
        // One at a time: whoever has work to do comes in between.
        names.iter().filter_map(|name| Some(self.topic(name)?.topic)).collect()
    }

    /// All that is known of a topic, if there is one of this name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<TopicDetails> {
        let (topic, places) = {
            let catalog = self.topics.catalog();
            let (_, topic) = catalog.find(name)?;
            let numbers = 0..u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
            let places: Vec<_> =
                numbers.filter_map(|number| self.topics.find(&catalog, name, number)).collect();
            (topic.clone(), places)
        };
        let partition = places.iter().filter_map(|place| {
            let moves_to = topic.moving.get(&place.opening.partition.number).copied();
            self.partition(place, moves_to)
        });
        let partition: Vec<_> = partition.collect();
        let sum = |of: fn(&PartitionOverview) -> i64| partition.iter().map(of).sum();
        let gone = |p: &PartitionOverview| p.gaps.iter().map(|gap| gap.to - gap.from).sum::<i64>();
        let overview = TopicOverview {
            name: name.to_owned(),
            partitions: topic.partitions.len(),
            records: sum(|p| p.committed - p.start) - partition.iter().map(gone).sum::<i64>(),
            at_risk_records: sum(|p| p.committed - p.durable),
            bytes: partition.iter().map(|partition| partition.bytes).sum(),
            promise: self.promise_of(&topic.settings),
        };
        let settings = SETTINGS.iter().map(|setting| {
            let (value, is_set) = topic.settings.value(setting);
            let source = if is_set { "topic" } else { "default" };
            let value = value.to_owned();
            SettingOverview { name: setting.name, value, source, meaning: setting.meaning }
        });
        Some(TopicDetails { topic: overview, settings: settings.collect(), partition })
    }

    fn partition(&self, place: &Whereabouts, moves_to: Option<u32>) -> Option<PartitionOverview> {
        let Whereabouts { shard, opening, stays } = place;
        let ends = shard.ends(*opening)?;
        let start = stays.start(ends.start);
        let (bytes, earlier) = (stays.bytes(), stays.gaps());
        let replica = shard.replica.lock();
        let partition = replica.state.partition(*opening)?;
        let gaps = earlier.into_iter().chain(partition.gaps());
        let gaps = gaps.map(|gap| GapOverview { from: gap.from, to: gap.to });
        Some(PartitionOverview {
            number: opening.partition.number,
            shard: shard.number,
            moves_to,
            start,
            committed: ends.committed,
            durable: ends.durable,
            bytes: shard.shelf.bytes(*opening) + partition.bytes() + bytes,
            epoch: i64::from(ends.epoch),
            gaps: gaps.filter(|gap| gap.to > start).collect(),
        })
    }

    /// All groups of consumers, by their names.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupOverview> {
        let listed: Vec<(String, String, usize)> = {
            let groups = self.groups.groups();
            let member_count = |name: &str| groups.describe(name).members.len();
            let listed = groups.list();
            listed
                .map(|one| (one.phase.to_string(), member_count(&one.group), one.group))
                .map(|(state, members, name)| (name, state, members))
                .collect()
        };
        let overview = |(name, state, members): (String, String, usize)| {
            let (partitions, lag) = self.progress_of(&name);
            GroupOverview { name, state, members, partitions, lag }
        };
        listed.into_iter().map(overview).collect()
    }

    /// Of how many partitions a group has committed offsets, and how many records lie behind them.
    fn progress_of(&self, group: &str) -> (usize, i64) {
        let committed: Vec<(String, i32, i64)> = {
            let store = self.groups.store();
            let offsets = store.group(group).into_iter().flat_map(|group| group.offsets());
            offsets.map(|(topic, number, at)| (topic.to_owned(), number, at.offset)).collect()
        };
        let behind = |(topic, number, offset): &(String, i32, i64)| {
            let number = u32::try_from(*number).ok()?;
            let placed = self.topics.find(&self.topics.catalog(), topic, number);
            let Whereabouts { shard, opening, stays } = placed?;
            let ends = shard.ends(opening)?;
            Some((ends.committed - (*offset).max(stays.start(ends.start))).max(0))
        };
        (committed.len(), committed.iter().filter_map(behind).sum())
    }

    /// What an acknowledgement of a topic survives, and when its records are durable: a sentence.
    fn promise_of(&self, settings: &TopicSettings) -> String {
        if settings.flush_class() == FlushClass::Durable {
            return "a record is acknowledged once it is durable: a power cut takes nothing that was \
                    acknowledged"
                .to_owned();
        }
        let held = match self.promise() {
            Promise::Memory => "is in memory that outlives the broker",
            Promise::Kernel => "is with the kernel",
        };
        let knee = self.options.knee.filter(|_| settings.flushes_at_the_knee());
        let knee = knee.and_then(|knee| u64::try_from(knee.as_millis()).ok());
        let soonest = settings.flush_ms().into_iter().chain(knee).min();
        let taken = match (soonest, self.options.flush) {
            (Some(ms), _) => format!("what is younger than {ms} ms and a sync"),
            (None, Policy::Interval { max_age, .. }) => {
                format!("what is younger than twice {} ms", max_age.as_millis())
            }
            (None, Policy::Never) => "all since the last full segment".to_owned(),
            (None, Policy::Always) => "nothing".to_owned(),
        };
        format!(
            "a record is acknowledged once it {held}: a crash of the broker takes nothing that was \
             acknowledged, a power cut may take {taken}"
        )
    }
}

fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

impl DataShard {
    fn chapters(&self) -> ChaptersOverview {
        let (settled, size) = (self.shelf.settled().chapter, self.shelf.size());
        let scrubbed = self.scrubber.last();
        let state = &self.replica.lock().state;
        ChaptersOverview {
            settled,
            waiting: state.ended().len(),
            open_bytes: state.open_chapter().map_or(0, |(bytes, _since)| bytes),
            files: size.files,
            runs: size.runs,
            live_bytes: size.live_bytes,
            file_bytes: size.file_bytes,
            damaged: self.shelf.damaged().len(),
            healed: self.mender.healed(),
            scrub_ended_ms: scrubbed.map(|scrubbed| scrubbed.ended_ms),
            scrub_bytes: scrubbed.map(|scrubbed| scrubbed.bytes),
        }
    }
}
