//! [`PartitionId`]: which partition of which topic; [`Opening`]: which of its stays in a shard.

use std::fmt;

use crate::cursor::{Cursor, Malformed};

/// Names a topic for as long as it lives: one that is deleted and made again has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicId(pub [u8; 16]);

/// Names a partition, whatever its topic is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId {
    /// Its topic.
    pub topic: TopicId,
    /// Its number in the topic, from 0.
    pub number: u32,
}

/// A stay of a partition in a shard: it may leave for another and come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opening {
    /// Which partition.
    pub partition: PartitionId,
    /// Its number among the partition's stays, in whatever shards; it only grows.
    pub number: u32,
}

impl Opening {
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        self.partition.encode(to);
        to.extend_from_slice(&self.number.to_le_bytes());
    }

    pub(crate) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self { partition: PartitionId::decode(from)?, number: from.u32()? })
    }
}

impl PartitionId {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.topic.0);
        to.extend_from_slice(&self.number.to_le_bytes());
    }

    fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self { topic: TopicId(from.array()?), number: from.u32()? })
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.topic.0 {
            write!(f, "{byte:02x}")?;
        }
        write!(f, "/{}", self.number)
    }
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (opening {})", self.partition, self.number)
    }
}
