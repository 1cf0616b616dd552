//! [`Change`]: what the groups' shard agrees on.
//!
//! ```text
//!  0 version  u8   1
//!  1 kind     u8
//!  2 zeros    2
//!  4 length   u32  of the whole change
//!  8 body
//!
//! kind         body
//! 1 roster     group text · roster, see `roster.rs`
//! 2 commit     group text · offsets u32, then each, by partition:
//!              topic text · partition i32 · offset, see `offset.rs`
//! 3 forget     group text · partitions u32, then each, in order: topic text · partition i32
//! 4 expire     group text · now u64 · committed by u64   in ms since 1970
//! 5 delete     group text
//! 6 no topic   topic text
//! ```
//!
//! Little-endian. A change has no checksum of its own: the log's frame around it has one.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::{put_count, put_text};
use super::offset::{COMMITTED_BYTES_MIN, Committed};
use super::request::TopicPartition;
use super::roster::Roster;
use crate::cursor::{Cursor, Malformed};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;
const PARTITION_BYTES_MIN: usize = 4 + 4;

/// What becomes of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A group has this generation and these members.
    Roster {
        /// Which.
        group: String,
        /// What it has.
        roster: Roster,
    },
    /// A group is so far.
    Commit {
        /// Which.
        group: String,
        /// In each of these.
        offsets: BTreeMap<TopicPartition, Committed>,
    },
    /// How far a group was is forgotten.
    Forget {
        /// Which.
        group: String,
        /// In these.
        partitions: BTreeSet<TopicPartition>,
    },
    /// Offsets have been kept long enough; the group goes with the last if it has no members.
    Expire {
        /// Whose.
        group: String,
        /// What was to be kept until then goes.
        now: u64,
        /// What was committed by then goes, if it was not said how long to keep it.
        committed_by: u64,
    },
    /// The group goes, and its offsets.
    Delete {
        /// Which.
        group: String,
    },
    /// There is no such topic any more: offsets in it go.
    NoTopic {
        /// Its name.
        topic: String,
    },
}

impl Change {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = vec![VERSION, self.kind(), 0, 0, 0, 0, 0, 0];
        match self {
            Self::Roster { group, roster } => {
                put_text(&mut to, group);
                roster.encode(&mut to);
            }
            Self::Commit { group, offsets } => {
                put_text(&mut to, group);
                put_count(&mut to, offsets.len());
                for (partition, committed) in offsets {
                    encode_partition(partition, &mut to);
                    committed.encode(&mut to);
                }
            }
            Self::Forget { group, partitions } => {
                put_text(&mut to, group);
                put_count(&mut to, partitions.len());
                for partition in partitions {
                    encode_partition(partition, &mut to);
                }
            }
            Self::Expire { group, now, committed_by } => {
                put_text(&mut to, group);
                to.extend_from_slice(&now.to_le_bytes());
                to.extend_from_slice(&committed_by.to_le_bytes());
            }
            Self::Delete { group: name } | Self::NoTopic { topic: name } => {
                put_text(&mut to, name);
            }
        }
        let length = u32::try_from(to.len()).expect("a change is below 4 GiB");
        to[4..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        to
    }

    /// The change that these bytes are.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "a change");
        let [version, kind, zeros @ ..] = from.array::<4>()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of a change", u64::from(version)));
        }
        if zeros != [0, 0] {
            return Err(Malformed::Field(
                "a reserved byte of a change",
                u64::from(zeros[0] | zeros[1]),
            ));
        }
        let length = from.u32()?;
        if usize::try_from(length) != Ok(bytes.len()) {
            return Err(Malformed::Field("the length of a change", u64::from(length)));
        }
        let change = Self::decode_body(kind, &mut from)?;
        from.end()?;
        Ok(change)
    }

    fn decode_body(kind: u8, from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let name = from.name()?;
        Ok(match kind {
            1 => Self::Roster { group: name, roster: Roster::decode(from)? },
            2 => {
                let mut offsets = BTreeMap::new();
                let each = PARTITION_BYTES_MIN + COMMITTED_BYTES_MIN;
                for number in 0..from.count(each, "the count of offsets")? {
                    let partition = decode_partition(from)?;
                    let last = offsets.last_key_value().map(|(last, _)| last);
                    check_follows(last, &partition, number)?;
                    offsets.insert(partition, Committed::decode(from)?);
                }
                Self::Commit { group: name, offsets }
            }
            3 => {
                let mut partitions = BTreeSet::new();
                for number in 0..from.count(PARTITION_BYTES_MIN, "the count of partitions")? {
                    let partition = decode_partition(from)?;
                    check_follows(partitions.last(), &partition, number)?;
                    partitions.insert(partition);
                }
                Self::Forget { group: name, partitions }
            }
            4 => Self::Expire { group: name, now: from.u64()?, committed_by: from.u64()? },
            5 => Self::Delete { group: name },
            6 => Self::NoTopic { topic: name },
            _ => return Err(Malformed::Field("the kind of a change", u64::from(kind))),
        })
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Roster { .. } => 1,
            Self::Commit { .. } => 2,
            Self::Forget { .. } => 3,
            Self::Expire { .. } => 4,
            Self::Delete { .. } => 5,
            Self::NoTopic { .. } => 6,
        }
    }
}

fn encode_partition(at: &TopicPartition, to: &mut Vec<u8>) {
    put_text(to, &at.topic);
    to.extend_from_slice(&at.partition.to_le_bytes());
}

fn decode_partition(from: &mut Cursor<'_>) -> Result<TopicPartition, Malformed> {
    Ok(TopicPartition { topic: from.name()?, partition: from.i32()? })
}

fn check_follows(
    last: Option<&TopicPartition>,
    next: &TopicPartition,
    number: usize,
) -> Result<(), Malformed> {
    if last.is_none_or(|last| last < next) {
        return Ok(());
    }
    Err(Malformed::Field("the place of a partition", number as u64))
}
