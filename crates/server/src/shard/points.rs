//! [`Points`]: where a partition's batches lie in the log.
//!
//! One point for each entry that holds batches of the partition: its first one there. Who reads from
//! an offset finds the last point at or below it, and walks the entry from there. A place is a log
//! index and a number in the entry, never a place in a file: it stays right wherever segments rotate.
//!
//! Those of a chapter that has ended stay as they were until it is settled on this replica, whatever is deleted
//! meanwhile: they say what is in it. What is deleted by age or size is told from those of the open chapter
//! alone. So when a replica settles changes nothing that another could see.
//!
//! ```text
//! points      count u32, each: base offset i64 · max timestamp i64 · time u64 · index u64
//!                              bytes u32 · item u16 · zeros 2
//! ```

use std::collections::VecDeque;

use crate::cursor::{Cursor, Malformed};

/// The batches of a partition in one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Offset of the first.
    pub base_offset: i64,
    /// The largest timestamp in this chapter up to and with them: it never falls there, though timestamps may.
    pub max_timestamp: i64,
    /// When they were appended, in ms since 1970.
    pub time: u64,
    /// Log index of the entry.
    pub index: u64,
    /// Their size together.
    pub bytes: u32,
    /// Number of the first among the entry's items, from 0.
    pub item: u16,
}

/// The points of a partition, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Points {
    list: VecDeque<Point>,
    /// How many of them, the first, are of chapters that have ended.
    ended: usize,
    bytes: u64,
    /// Of those of the open chapter.
    open_bytes: u64,
}

impl Points {
    /// Notes a batch.
    pub(super) fn note(&mut self, mut point: Point) {
        self.bytes += u64::from(point.bytes);
        self.open_bytes += u64::from(point.bytes);
        if let Some(last) = self.list.range_mut(self.ended..).next_back() {
            point.max_timestamp = point.max_timestamp.max(last.max_timestamp);
            if last.index == point.index {
                last.max_timestamp = point.max_timestamp;
                last.bytes = last.bytes.saturating_add(point.bytes);
                return;
            }
        }
        self.list.push_back(point);
    }

    /// Where to begin to read from this offset: the last point at or below it, or else the first.
    pub(super) fn find(&self, offset: i64) -> Option<&Point> {
        let above = self.list.partition_point(|point| point.base_offset <= offset);
        self.list.get(above.saturating_sub(1))
    }

    /// The points from that one on.
    pub(super) fn from(&self, offset: i64) -> impl Iterator<Item = &Point> {
        let above = self.list.partition_point(|point| point.base_offset <= offset);
        self.list.range(above.saturating_sub(1)..)
    }

    /// The first point that holds a record with this timestamp or a later one.
    pub(super) fn find_time(&self, timestamp: i64) -> Option<&Point> {
        self.list.iter().find(|point| point.max_timestamp >= timestamp)
    }

    /// The first point of the open chapter that was appended at this time or later.
    pub(super) fn first_since(&self, time: u64) -> Option<&Point> {
        self.list.range(self.ended..).find(|point| point.time >= time)
    }

    /// The first point of the open chapter behind the oldest that have to go, so that the rest of the chapter has
    /// at least so many bytes.
    pub(super) fn first_within(&self, bytes: u64) -> Option<&Point> {
        let mut rest = self.open_bytes;
        self.list.range(self.ended..).find(|point| {
            let behind = rest.saturating_sub(u64::from(point.bytes));
            let stays = behind < bytes;
            rest = behind;
            stays
        })
    }

    /// The first point behind this log index.
    pub(super) fn first_after(&self, index: u64) -> Option<&Point> {
        self.list.get(self.list.partition_point(|point| point.index <= index))
    }

    pub(super) fn first(&self) -> Option<&Point> {
        self.list.front()
    }

    /// The first of the open chapter.
    pub(super) fn first_open(&self) -> Option<&Point> {
        self.list.get(self.ended)
    }

    /// Those in entries up to this log index.
    pub(super) fn up_to(&self, index: u64) -> impl Iterator<Item = &Point> {
        self.list.range(..self.list.partition_point(|point| point.index <= index))
    }

    /// The size of all batches.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The chapter ends: what is here is of it, or of one before.
    pub(super) fn end_chapter(&mut self) {
        (self.ended, self.open_bytes) = (self.list.len(), 0);
    }

    /// Forgets those in entries up to this log index, which a chapter has.
    pub(super) fn settle(&mut self, index: u64) {
        while let Some(first) = self.list.front().filter(|first| first.index <= index) {
            self.bytes = self.bytes.saturating_sub(u64::from(first.bytes));
            self.list.pop_front();
            self.ended = self.ended.saturating_sub(1);
        }
        if self.list.is_empty() {
            self.list.shrink_to_fit();
        }
    }

    /// Forgets those of the open chapter of which nothing is at or above this offset.
    pub(super) fn forget_before(&mut self, start: i64, next: i64) {
        let mut gone = self.ended;
        while let Some(first) = self.list.get(gone) {
            let end = self.list.get(gone + 1).map_or(next, |second| second.base_offset);
            if end > start {
                break;
            }
            self.bytes = self.bytes.saturating_sub(u64::from(first.bytes));
            self.open_bytes = self.open_bytes.saturating_sub(u64::from(first.bytes));
            gone += 1;
        }
        self.list.drain(self.ended..gone);
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let count = u32::try_from(self.list.len()).expect("fewer than 4 billion points");
        to.extend_from_slice(&count.to_le_bytes());
        for point in &self.list {
            to.extend_from_slice(&point.base_offset.to_le_bytes());
            to.extend_from_slice(&point.max_timestamp.to_le_bytes());
            to.extend_from_slice(&point.time.to_le_bytes());
            to.extend_from_slice(&point.index.to_le_bytes());
            to.extend_from_slice(&point.bytes.to_le_bytes());
            to.extend_from_slice(&point.item.to_le_bytes());
            to.extend_from_slice(&[0; 2]);
        }
    }

    /// Those up to `chapter_end` are of chapters that have ended.
    pub(super) fn decode(from: &mut Cursor<'_>, chapter_end: u64) -> Result<Self, Malformed> {
        const POINT_BYTES: usize = 40;
        let mut points = Self::default();
        let mut is_ended = true;
        for _ in 0..from.count(POINT_BYTES, "the count of points")? {
            let point = Point {
                base_offset: from.offset("a point's offset")?,
                max_timestamp: from.i64()?,
                time: from.u64()?,
                index: from.u64()?,
                bytes: from.u32()?,
                item: from.u16()?,
            };
            from.zeros(2, "a reserved byte of a point")?;
            let follows = points.list.back().is_none_or(|last| {
                last.base_offset < point.base_offset && last.index < point.index
            });
            if !follows {
                return Err(Malformed::Field("the next point", point.index));
            }
            // What ended with a chapter ends before what came behind it is noted.
            if point.index > chapter_end && is_ended {
                points.end_chapter();
                is_ended = false;
            }
            points.bytes += u64::from(point.bytes);
            points.open_bytes += u64::from(point.bytes);
            // As it is: in each chapter that has ended the largest timestamp began anew.
            points.list.push_back(point);
        }
        if is_ended {
            points.end_chapter();
        }
        Ok(points)
    }
}
