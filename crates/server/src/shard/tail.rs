//! [`Tail`]: the newest entries of a shard, in memory by reference; [`fetch`]: reading a partition.
//!
//! What consumers read is what came in: a slice of an entry's bytes, counted by reference. It holds its entry for
//! as long as a client takes; what is less than half of one is therefore copied before it is sent. An entry is
//! kept whole or not at all, so that what is counted is what is held. Where its items begin is noted, so
//! that who reads the thousandth batch of an entry does not walk over those before it; nor is walked over
//! what lies behind a partition's last.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::batch::Batch;
use super::entry::{Entry, item_places};
use super::item::Item;
use super::name::Opening;
use super::points::Point;
use super::state::State;
use crate::cursor::Malformed;

/// An entry whose items can be found.
#[derive(Debug, Clone)]
pub struct Held {
    bytes: Bytes,
    /// Where each item begins.
    places: Vec<u32>,
}

/// The newest entries.
#[derive(Debug)]
pub struct Tail {
    /// One for each log index from the first on; `None` for an entry of the engine's own.
    entries: VecDeque<Option<Held>>,
    first_index: u64,
    bytes: usize,
    bytes_max: usize,
}

/// What was read of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Batches, each whole.
    pub batches: Vec<Bytes>,
    /// The log index of an entry that is needed to go on: it is not in the tail.
    pub needs: Option<u64>,
    /// The next batch did not fit in the bytes asked for.
    pub has_more: bool,
    /// No batch ends between where it was read from and the end, or begins there.
    pub is_void: bool,
    /// Those of an entry of which they are less than half: to be [copied](let_go).
    pub thin: Vec<Range<usize>>,
}

impl Held {
    /// Finds the items of an entry.
    pub fn new(bytes: Bytes) -> Result<Self, Malformed> {
        let places = item_places(&bytes)?;
        Ok(Self { bytes, places })
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<u32>() + size_of::<Self>()
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The batches of a partition that a point of it speaks of. Behind the last of them nobody looks.
    fn batches(&self, opening: Opening, point: &Point) -> impl Iterator<Item = Bytes> {
        let mut places = self.places.get(usize::from(point.item)..).unwrap_or_default().iter();
        let mut left = usize::try_from(point.bytes).unwrap_or(usize::MAX);
        std::iter::from_fn(move || {
            while left > 0 {
                let place = usize::try_from(*places.next()?).ok()?;
                match Entry::item_at(&self.bytes, place) {
                    Ok(Item::Batch { opening: of, bytes }) if of == opening => {
                        left = left.saturating_sub(bytes.len());
                        return Some(self.bytes.slice_ref(bytes));
                    }
                    _ => {}
                }
            }
            None
        })
    }
}

impl Tail {
    /// Of at most so many bytes; the first entry that it will hold comes after this log index.
    #[must_use]
    pub fn new(bytes_max: usize, applied: u64) -> Self {
        Self { entries: VecDeque::new(), first_index: applied + 1, bytes: 0, bytes_max }
    }

    /// Adds the next entry; the oldest go where there is no room.
    pub fn push(&mut self, entry: Option<Held>) {
        self.bytes += entry.as_ref().map_or(0, Held::held_bytes);
        self.entries.push_back(entry);
        while self.bytes > self.bytes_max {
            let oldest = self.entries.pop_front().expect("what has bytes has entries");
            self.bytes -= oldest.as_ref().map_or(0, Held::held_bytes);
            self.first_index += 1;
        }
    }

    /// An entry, if it is here.
    #[must_use]
    pub fn find(&self, index: u64) -> Option<&Held> {
        let place = usize::try_from(index.checked_sub(self.first_index)?).ok()?;
        self.entries.get(place)?.as_ref()
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }
}

/// Reads a partition from an offset on: whole batches, up to the offset `end` and so many bytes, but at
/// least one batch whatever its size. The first is the one that holds the offset, or the next behind it.
///
/// `find` gives an entry, from the tail or from what was read of the log; where it has none, reading ends
/// there, and says which is needed.
pub fn fetch<'a>(
    state: &State,
    opening: Opening,
    from: i64,
    end: i64,
    bytes_max: usize,
    mut find: impl FnMut(u64) -> Option<&'a Held>,
) -> Fetched {
    let mut fetched = Fetched::default();
    let Some(partition) = state.partition(opening) else { return fetched };
    let mut bytes = 0;
    let mut is_over = false;
    for point in partition.points_from(from) {
        if point.base_offset >= end {
            break;
        }
        let Some(entry) = find(point.index) else {
            fetched.needs = Some(point.index);
            break;
        };
        let (before, bytes_before) = (fetched.batches.len(), bytes);
        for slice in entry.batches(opening, point) {
            let batch = Batch::read(&slice).expect("what was applied is a batch");
            let batch_end = batch.end().expect("and has an end");
            if batch_end <= from {
                continue;
            }
            fetched.has_more = batch_end <= end && bytes + slice.len() > bytes_max && bytes > 0;
            is_over = batch_end > end || fetched.has_more;
            if is_over {
                break;
            }
            bytes += slice.len();
            fetched.batches.push(slice);
        }
        if bytes - bytes_before < entry.bytes.len() / 2 {
            fetched.thin.push(before..fetched.batches.len());
        }
        if is_over {
            break;
        }
    }
    fetched.is_void = fetched.batches.is_empty() && fetched.needs.is_none() && !is_over;
    fetched
}

/// Copies batches, so that whoever is slow to take them does not hold the rest of their entry.
pub fn let_go(batches: &mut [Bytes]) {
    let mut copied = BytesMut::with_capacity(batches.iter().map(Bytes::len).sum());
    for batch in batches {
        copied.extend_from_slice(batch);
        *batch = copied.split().freeze();
    }
}
