//! [`Item`]: what an entry holds: batches, and acts on partitions and on the shard.
//!
//! ```text
//! at             topic id 16 · partition u32 · opening u32
//!
//! 1 batch        at · the batch, verbatim but for its stamp
//! 2 open         at · base epoch i32 · start offset i64 · settings · producers
//! 3 close        at
//! 4 ceiling      at · ceiling i64            -1: the partition is closed
//! 5 trim         at · start offset i64
//! 6 configure    at · settings
//! 7 advance                                  expires what is past its retention at the entry's time
//! 8 fence        why u32 · guaranteed u64 · given u64 · since u64   given: all ones if not known
//! 9 feature      level u32
//! 10 chapter end chapter u64
//! 11 expire      at · start offset i64       what lies in chapters is past its retention
//! 12 intended    version u64                 of the catalog that acts of this entry, and behind it, are of
//! 13 generation  number u64 · digest 16      it goes on after a loss: of the group's, what whoever decided it was shown
//!
//! settings       retention_ms u64 · retention_bytes u64    all ones: without end
//!                batch_bytes_max u32 · flags u32           1: timestamps are of the append, 2: compacted
//!                how long tombstones stay u64              only where it is compacted
//! ```

use super::name::Opening;
use super::producers::Producers;
use crate::cursor::{Cursor, Malformed};

/// A part of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// Records.
    Batch {
        /// Whose.
        opening: Opening,
        /// Kafka's record batch.
        bytes: &'a [u8],
    },
    /// A partition comes to stay in this shard.
    Open(Open),
    /// It leaves: nothing is appended to it here any more.
    Close {
        /// Which.
        opening: Opening,
    },
    /// Offsets below this one may be given away; `None`: none may, and none was beyond the next.
    Ceiling {
        /// Of which partition.
        opening: Opening,
        /// The first offset that may not.
        ceiling: Option<i64>,
    },
    /// Records below this offset are deleted. A stay that has ended is forgotten once it is told that all are, by the highest
    /// offset that there is.
    Trim {
        /// Of which partition.
        opening: Opening,
        /// The first offset that stays.
        start: i64,
    },
    /// A partition is told what it may do.
    Configure {
        /// Which.
        opening: Opening,
        /// What it may do from here on.
        settings: Settings,
    },
    /// What is past its retention at the entry's time expires.
    Advance,
    /// What was acknowledged before may be gone.
    Fence(Fence),
    /// What apply may do from here on: this, and all below.
    Feature(u32),
    /// The log up to here is a chapter. No batch follows in the same entry.
    ChapterEnd(u64),
    /// Records below this offset are past their retention, if the partition is still here.
    Expire {
        /// Of which partition.
        opening: Opening,
        /// The first offset that stays.
        start: i64,
    },
    /// What control has it do from here on is of this version of the catalog, or a later one.
    Intended(u64),
    /// A majority may have forgotten what it acknowledged, and the shard goes on. A fence stands before it.
    Generation(Generation),
}

/// After which loss a shard goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Generation {
    /// Which of its group this is; 0 if there was no such loss.
    pub number: u64,
    /// Of what whoever decided it was shown.
    pub digest: u128,
}

/// What a partition is told when it comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Which, and which of its stays: above all before.
    pub opening: Opening,
    /// Its leader epoch here begins at this one, above all before.
    pub base_epoch: i32,
    /// The offset of its first record here.
    pub start: i64,
    /// What it may do.
    pub settings: Settings,
    /// What its idempotent producers sent last, elsewhere.
    pub producers: Producers,
}

/// What a partition may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Batches expire so long after they were appended.
    pub retention_ms: Option<u64>,
    /// How large all batches together may become: the oldest expire while the rest has at least so many bytes.
    pub retention_bytes: Option<u64>,
    /// The largest batch.
    pub batch_bytes_max: u32,
    /// Timestamps are of the append, not the producer's.
    pub append_timestamps: bool,
    /// Of each key the newest record stays, and a tombstone for so many ms; `None`: all do.
    pub compaction: Option<u64>,
}

/// What was lost, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// How it came.
    pub why: Why,
    /// Entries up to this log index are all here.
    pub guaranteed: u64,
    /// Entries up to this log index may have been acknowledged; `None` if that is not known.
    pub given: Option<u64>,
    /// When it was last known that nothing was lost, in ms since 1970.
    pub since: u64,
}

/// How a loss came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A start that could not prove that nothing was lost.
    UncleanStart,
    /// An operator said to go on without what was missing.
    Operator,
}

/// A bound without end.
const ENDLESS: u64 = u64::MAX;
const APPEND_TIMESTAMPS: u32 = 1;
const COMPACTED: u32 = 2;

impl Item<'_> {
    /// The number of its kind.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Batch { .. } => 1,
            Self::Open(_) => 2,
            Self::Close { .. } => 3,
            Self::Ceiling { .. } => 4,
            Self::Trim { .. } => 5,
            Self::Configure { .. } => 6,
            Self::Advance => 7,
            Self::Fence(_) => 8,
            Self::Feature(_) => 9,
            Self::ChapterEnd(_) => 10,
            Self::Expire { .. } => 11,
            Self::Intended(_) => 12,
            Self::Generation(_) => 13,
        }
    }

    /// Whether nothing may be said of it before it is durable: all but records, the passing of time, the ends of
    /// chapters, which are settled once they are durable, and ceilings, of which the leader knows whether it
    /// needs them at once.
    #[must_use]
    pub fn must_be_durable(&self) -> bool {
        let is_of_chapters = matches!(self, Self::ChapterEnd(_) | Self::Expire { .. });
        !is_of_chapters
            && !matches!(self, Self::Batch { .. } | Self::Advance | Self::Ceiling { .. })
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Batch { opening, bytes } => {
                opening.encode(to);
                to.extend_from_slice(bytes);
            }
            Self::Open(open) => open.encode(to),
            Self::Close { opening } => opening.encode(to),
            Self::Ceiling { opening, ceiling } => {
                opening.encode(to);
                to.extend_from_slice(&ceiling.unwrap_or(-1).to_le_bytes());
            }
            Self::Trim { opening, start } | Self::Expire { opening, start } => {
                opening.encode(to);
                to.extend_from_slice(&start.to_le_bytes());
            }
            Self::Configure { opening, settings } => {
                opening.encode(to);
                settings.encode(to);
            }
            Self::Advance => {}
            Self::Fence(fence) => fence.encode(to),
            Self::Feature(level) => to.extend_from_slice(&level.to_le_bytes()),
            Self::ChapterEnd(number) | Self::Intended(number) => {
                to.extend_from_slice(&number.to_le_bytes());
            }
            Self::Generation(generation) => generation.encode(to),
        }
    }
}

impl<'a> Item<'a> {
    pub(super) fn decode(kind: u8, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(body, "an item");
        let item = match kind {
            1 => {
                let opening = Opening::decode(&mut from)?;
                return Ok(Self::Batch { opening, bytes: from.rest() });
            }
            2 => Self::Open(Open::decode(&mut from)?),
            3 => Self::Close { opening: Opening::decode(&mut from)? },
            4 => {
                let opening = Opening::decode(&mut from)?;
                Self::Ceiling { opening, ceiling: decode_ceiling(&mut from)? }
            }
            5 => {
                let opening = Opening::decode(&mut from)?;
                Self::Trim { opening, start: from.offset("a start offset")? }
            }
            6 => {
                let opening = Opening::decode(&mut from)?;
                Self::Configure { opening, settings: Settings::decode(&mut from)? }
            }
            7 => Self::Advance,
            8 => Self::Fence(Fence::decode(&mut from)?),
            9 => Self::Feature(from.u32()?),
            10 => Self::ChapterEnd(from.u64()?),
            11 => {
                let opening = Opening::decode(&mut from)?;
                Self::Expire { opening, start: from.offset("a start offset")? }
            }
            12 => Self::Intended(from.u64()?),
            13 => Self::Generation(Generation::decode(&mut from)?),
            other => return Err(Malformed::Field("the kind of an item", u64::from(other))),
        };
        from.end()?;
        Ok(item)
    }
}

impl Generation {
    pub(super) fn encode(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.number.to_le_bytes());
        to.extend_from_slice(&self.digest.to_le_bytes());
    }

    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let number = from.raisable("a generation")?;
        Ok(Self { number, digest: from.array().map(u128::from_le_bytes)? })
    }
}

impl Open {
    fn encode(&self, to: &mut Vec<u8>) {
        self.opening.encode(to);
        to.extend_from_slice(&self.base_epoch.to_le_bytes());
        to.extend_from_slice(&self.start.to_le_bytes());
        self.settings.encode(to);
        self.producers.encode(to);
    }

    fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let opening = Opening::decode(from)?;
        let base_epoch = from.i32()?;
        if base_epoch < 0 {
            return Err(Malformed::Field("a base epoch", u64::from(base_epoch.cast_unsigned())));
        }
        Ok(Self {
            opening,
            base_epoch,
            start: from.offset("a start offset")?,
            settings: Settings::decode(from)?,
            producers: Producers::decode(from)?,
        })
    }
}

impl Settings {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.retention_ms.unwrap_or(ENDLESS).to_le_bytes());
        to.extend_from_slice(&self.retention_bytes.unwrap_or(ENDLESS).to_le_bytes());
        to.extend_from_slice(&self.batch_bytes_max.to_le_bytes());
        let flags = if self.append_timestamps { APPEND_TIMESTAMPS } else { 0 };
        let flags = if self.compaction.is_some() { flags | COMPACTED } else { flags };
        to.extend_from_slice(&flags.to_le_bytes());
        to.extend(self.compaction.into_iter().flat_map(u64::to_le_bytes));
    }

    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let bound = |value| Some(value).filter(|value| *value != ENDLESS);
        let retention_ms = bound(from.u64()?);
        let retention_bytes = bound(from.u64()?);
        let batch_bytes_max = from.u32()?;
        let flags = from.u32()?;
        if flags & !(APPEND_TIMESTAMPS | COMPACTED) != 0 {
            return Err(Malformed::Field("a partition's flags", u64::from(flags)));
        }
        let append_timestamps = flags & APPEND_TIMESTAMPS != 0;
        let compaction = if flags & COMPACTED == 0 { None } else { Some(from.u64()?) };
        Ok(Self { retention_ms, retention_bytes, batch_bytes_max, append_timestamps, compaction })
    }
}

impl Fence {
    fn encode(&self, to: &mut Vec<u8>) {
        Self::encode_last(Some(self), to);
    }

    fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Self::decode_last(from)?.ok_or(Malformed::Field("a fence's reason", 0))
    }

    /// A fence, or zeros in the place of none.
    pub(super) fn encode_last(fence: Option<&Self>, to: &mut Vec<u8>) {
        let why = match fence.map(|fence| fence.why) {
            None => 0_u32,
            Some(Why::UncleanStart) => 1,
            Some(Why::Operator) => 2,
        };
        to.extend_from_slice(&why.to_le_bytes());
        let fields = fence.map_or([0; 3], |fence| {
            [fence.guaranteed, fence.given.unwrap_or(ENDLESS), fence.since]
        });
        for field in fields {
            to.extend_from_slice(&field.to_le_bytes());
        }
    }

    pub(super) fn decode_last(from: &mut Cursor<'_>) -> Result<Option<Self>, Malformed> {
        let why = match from.u32()? {
            0 => {
                from.zeros(24, "a field of no fence")?;
                return Ok(None);
            }
            1 => Why::UncleanStart,
            2 => Why::Operator,
            other => return Err(Malformed::Field("a fence's reason", u64::from(other))),
        };
        let guaranteed = from.u64()?;
        let given = Some(from.u64()?).filter(|index| *index != ENDLESS);
        Ok(Some(Self { why, guaranteed, given, since: from.u64()? }))
    }
}

fn decode_ceiling(from: &mut Cursor<'_>) -> Result<Option<i64>, Malformed> {
    match from.i64()? {
        -1 => Ok(None),
        ceiling if ceiling < 0 => Err(Malformed::Field("a ceiling", ceiling.cast_unsigned())),
        ceiling => Ok(Some(ceiling)),
    }
}
