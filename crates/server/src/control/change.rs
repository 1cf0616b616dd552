//! [`Change`]: what control agrees on, one at a time. Each is durable before it is answered.
//!
//! ```text
//! 0 version   u8   1
//! 1 kind      u8
//! 2 body
//!
//! 1 create    topic id 16 · name text · partitions · settings
//! 2 grow      topic id 16 · partitions             those that are added
//! 3 alter     topic id 16 · settings               all that are set from here on
//! 4 delete    topic id 16
//! 5 gone      topic id 16 · epoch i32              the highest that a partition of it had
//! 6 feature   level u32                        changes up to this level may be agreed on
//! 7 producers count u32                            so many ids are given away
//! 8 move      topic id 16 · moves                  these are to go into other shards
//! 9 moved     topic id 16 · arrivals               these have ended their stays, and go on there
//! 10 shed     topic id 16 · partition u32 · start i64    records below are gone, or are to go
//!
//! partitions  count u32, each the shard u32 in which it is to be
//! moves       count u32, each: partition u32 · shard u32
//! arrivals    count u32, each: partition u32 · shard u32 · opening u32 · base epoch i32 · start i64
//! settings    count u32, each: name text · value text, in the order of names
//! text        length u16 · UTF-8
//! ```
//!
//! Little-endian. The log's frame around it has a checksum.
//!
//! Who meets a kind that it does not know stops. So each has a level: 0 up to kind 7, 1 from 8 on. The controller has the
//! level agreed on first, and that only while every node is there and knows it.

use crate::cursor::{Cursor, Malformed, push_text};
use crate::shard::TopicId;

use super::names::{TOPIC_NAME_BYTES_MAX, check_name};
use super::settings::TopicSettings;

const VERSION: u8 = 1;
/// The highest level of changes that this version knows, and of what shards agree on for their sake.
pub const LEVEL: u32 = 1;
/// The most partitions of a topic.
pub const PARTITIONS_MAX: usize = 1_000_000;
/// The longest value of a setting.
pub const SETTING_BYTES_MAX: usize = 4096;
/// Of a partition that is placed, that is to move, and that has moved.
const SHARD_BYTES: usize = 4;
const MOVE_BYTES: usize = 8;
const ARRIVAL_BYTES: usize = 24;

/// Something that control agrees on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A topic is to be.
    Create {
        /// Never used before.
        id: TopicId,
        /// What it is called.
        name: String,
        /// The shard of each partition.
        shards: Vec<u32>,
        /// What was set for it.
        settings: TopicSettings,
    },
    /// A topic is to have more partitions.
    Grow {
        /// Which.
        id: TopicId,
        /// The shard of each that is added.
        shards: Vec<u32>,
    },
    /// Other settings hold.
    Alter {
        /// For which.
        id: TopicId,
        /// All that are set from here on.
        settings: TopicSettings,
    },
    /// A topic is to go.
    Delete {
        /// Which.
        id: TopicId,
    },
    /// It is gone from all shards.
    Gone {
        /// Which.
        id: TopicId,
        /// The highest leader epoch that a partition of it had.
        epoch: i32,
    },
    /// What may be agreed on from here on: this, and all below.
    Feature(u32),
    /// So many ids of idempotent producers are given away: never again to anybody else.
    Producers(u32),
    /// Partitions are to go on in other shards.
    Move {
        /// Of which topic.
        id: TopicId,
        /// Which, each with its shard.
        partitions: Vec<(u32, u32)>,
    },
    /// Partitions have ended their stays.
    Moved {
        /// Of which topic.
        id: TopicId,
        /// Which, and how they go on.
        arrivals: Vec<Arrival>,
    },
    /// Of a partition that was in several shards records go which are not in the last.
    Shed {
        /// Of which topic.
        id: TopicId,
        /// Which.
        partition: u32,
        /// The first offset that stays.
        start: i64,
    },
}

/// How a partition goes on in another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Which.
    pub partition: u32,
    /// In which shard.
    pub shard: u32,
    /// The number of that stay: what follows the one that has ended.
    pub opening: u32,
    /// The leader epoch that it begins with, above all before.
    pub base_epoch: i32,
    /// The offset at which the last stay ended.
    pub start: i64,
}

impl Change {
    /// What everybody must know before this may be agreed on.
    #[must_use]
    pub fn level(&self) -> u32 {
        match self {
            Self::Move { .. } | Self::Moved { .. } | Self::Shed { .. } => 1,
            _ => 0,
        }
    }

    /// The topic that it is of, if it is of one.
    #[must_use]
    pub fn topic(&self) -> Option<TopicId> {
        match self {
            Self::Create { id, .. }
            | Self::Grow { id, .. }
            | Self::Alter { id, .. }
            | Self::Delete { id }
            | Self::Gone { id, .. }
            | Self::Move { id, .. }
            | Self::Moved { id, .. }
            | Self::Shed { id, .. } => Some(*id),
            Self::Feature(_) | Self::Producers(_) => None,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = vec![VERSION];
        match self {
            Self::Create { id, name, shards, settings } => {
                to.push(1);
                to.extend_from_slice(&id.0);
                push_text(name, &mut to);
                push_shards(shards, &mut to);
                push_settings(settings, &mut to);
            }
            Self::Grow { id, shards } => {
                to.push(2);
                to.extend_from_slice(&id.0);
                push_shards(shards, &mut to);
            }
            Self::Alter { id, settings } => {
                to.push(3);
                to.extend_from_slice(&id.0);
                push_settings(settings, &mut to);
            }
            Self::Delete { id } => {
                to.push(4);
                to.extend_from_slice(&id.0);
            }
            Self::Gone { id, epoch } => {
                to.push(5);
                to.extend_from_slice(&id.0);
                to.extend_from_slice(&epoch.to_le_bytes());
            }
            Self::Feature(level) => {
                to.push(6);
                to.extend_from_slice(&level.to_le_bytes());
            }
            Self::Producers(count) => {
                to.push(7);
                to.extend_from_slice(&count.to_le_bytes());
            }
            Self::Move { id, partitions } => {
                to.push(8);
                to.extend_from_slice(&id.0);
                push_count(partitions.len(), &mut to);
                for (partition, shard) in partitions {
                    to.extend_from_slice(&partition.to_le_bytes());
                    to.extend_from_slice(&shard.to_le_bytes());
                }
            }
            Self::Moved { id, arrivals } => {
                to.push(9);
                to.extend_from_slice(&id.0);
                push_count(arrivals.len(), &mut to);
                arrivals.iter().for_each(|arrival| arrival.encode(&mut to));
            }
            Self::Shed { id, partition, start } => {
                to.push(10);
                to.extend_from_slice(&id.0);
                to.extend_from_slice(&partition.to_le_bytes());
                to.extend_from_slice(&start.to_le_bytes());
            }
        }
        to
    }

    /// The change that these bytes are.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "a change");
        let [version, kind] = from.array()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of a change", u64::from(version)));
        }
        let change = match kind {
            1 => {
                let id = TopicId(from.array()?);
                let name = read_name(&mut from)?;
                let (shards, settings) = (read_shards(&mut from)?, read_settings(&mut from)?);
                Self::Create { id, name, shards, settings }
            }
            2 => Self::Grow { id: TopicId(from.array()?), shards: read_shards(&mut from)? },
            3 => Self::Alter { id: TopicId(from.array()?), settings: read_settings(&mut from)? },
            4 => Self::Delete { id: TopicId(from.array()?) },
            5 => {
                let id = TopicId(from.array()?);
                Self::Gone { id, epoch: read_epoch(&mut from)? }
            }
            6 => Self::Feature(from.u32()?),
            7 => Self::Producers(from.u32()?),
            8 => {
                let id = TopicId(from.array()?);
                let count = read_count(&mut from, MOVE_BYTES)?;
                let partitions = (0..count).map(|_| Ok((from.u32()?, from.u32()?)));
                Self::Move { id, partitions: partitions.collect::<Result<_, Malformed>>()? }
            }
            9 => {
                let id = TopicId(from.array()?);
                let count = read_count(&mut from, ARRIVAL_BYTES)?;
                let arrivals = (0..count).map(|_| Arrival::decode(&mut from));
                Self::Moved { id, arrivals: arrivals.collect::<Result<_, _>>()? }
            }
            10 => {
                let (id, partition) = (TopicId(from.array()?), from.u32()?);
                Self::Shed { id, partition, start: from.offset("the first offset that stays")? }
            }
            other => return Err(Malformed::Field("the kind of a change", u64::from(other))),
        };
        from.end()?;
        Ok(change)
    }
}

fn read_name(from: &mut Cursor<'_>) -> Result<String, Malformed> {
    let name = from.text(TOPIC_NAME_BYTES_MAX, "a topic's name")?;
    match check_name(name) {
        Ok(()) => Ok(name.to_owned()),
        Err(_) => Err(Malformed::Field("the length of a topic's name", name.len() as u64)),
    }
}

impl Arrival {
    fn encode(&self, to: &mut Vec<u8>) {
        for number in [self.partition, self.shard, self.opening] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        to.extend_from_slice(&self.base_epoch.to_le_bytes());
        to.extend_from_slice(&self.start.to_le_bytes());
    }

    fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            partition: from.u32()?,
            shard: from.u32()?,
            opening: from.u32()?,
            base_epoch: read_epoch(from)?,
            start: from.offset("the offset at which a stay ended")?,
        })
    }
}

fn read_epoch(from: &mut Cursor<'_>) -> Result<i32, Malformed> {
    let epoch = from.i32()?;
    match epoch {
        0.. => Ok(epoch),
        _ => Err(Malformed::Field("a leader epoch", u64::from(epoch.cast_unsigned()))),
    }
}

fn push_count(count: usize, to: &mut Vec<u8>) {
    let count = u32::try_from(count).expect("a topic's partitions are bounded");
    to.extend_from_slice(&count.to_le_bytes());
}

/// How many partitions there are, of which each takes so many bytes.
fn read_count(from: &mut Cursor<'_>, each_bytes: usize) -> Result<usize, Malformed> {
    let count = from.count(each_bytes, "the count of partitions")?;
    match count {
        1..=PARTITIONS_MAX => Ok(count),
        _ => Err(Malformed::Field("the count of partitions", count as u64)),
    }
}

fn push_shards(shards: &[u32], to: &mut Vec<u8>) {
    push_count(shards.len(), to);
    for shard in shards {
        to.extend_from_slice(&shard.to_le_bytes());
    }
}

fn read_shards(from: &mut Cursor<'_>) -> Result<Vec<u32>, Malformed> {
    let count = read_count(from, SHARD_BYTES)?;
    (0..count).map(|_| from.u32()).collect()
}

fn push_settings(settings: &TopicSettings, to: &mut Vec<u8>) {
    let count = u32::try_from(settings.iter().len()).expect("there are few settings");
    to.extend_from_slice(&count.to_le_bytes());
    for (name, value) in settings.iter() {
        push_text(name, to);
        push_text(value, to);
    }
}

fn read_settings(from: &mut Cursor<'_>) -> Result<TopicSettings, Malformed> {
    let mut settings = TopicSettings::default();
    let mut last = String::new();
    for number in 0..from.count(4, "the count of settings")? {
        let name = from.text(SETTING_BYTES_MAX, "a setting's name")?;
        let value = from.text(SETTING_BYTES_MAX, "a setting's value")?;
        // What cannot be set is no change of ours; settings stand in order, each once.
        if name <= last.as_str() || settings.set(name, Some(value)).is_err() {
            return Err(Malformed::Field("setting number", number as u64));
        }
        name.clone_into(&mut last);
    }
    Ok(settings)
}
