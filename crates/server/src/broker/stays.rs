//! [`Stays`]: the earlier stays of a partition, in other shards or in the same: where records lie that were written before it moved.
//!
//! They have ended, durably on a majority, before the next began. So whatever a replica has applied of one whose end it has
//! applied too is all that there ever will be, whoever leads there.

use std::sync::Arc;

use tokio::sync::Notify;

use super::data::DataShard;
use super::reading::Reading;
use super::topics::Topics;
use crate::control::{Catalog, Extent};
use crate::shard::{Gap, Opening, Partition, PartitionId};

/// Those that are known, the oldest first: mostly none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stays(Vec<Stay>);

/// A stay that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Stay {
    pub(crate) shard: Arc<DataShard>,
    pub(crate) opening: Opening,
    /// The first offset that was not deleted, as the catalog knows.
    start: i64,
    /// Where the next begins.
    end: i64,
}

/// This replica does not know all of a stay yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unknown;

/// Where an offset lies.
pub(crate) enum Lies<'a> {
    /// In a stay that has ended, which has records from there on.
    Earlier(&'a Stay),
    /// In one of which this replica does not know all yet.
    Unknown,
    /// In the last, or between two.
    Last,
}

/// Where a partition is, and was.
#[derive(Debug, Clone)]
pub(crate) struct Whereabouts {
    /// The shard in which it takes records.
    pub(crate) shard: Arc<DataShard>,
    pub(crate) opening: Opening,
    pub(crate) stays: Stays,
}

impl Topics {
    /// Where a partition is, unless its topic is being deleted.
    pub(crate) fn find(&self, catalog: &Catalog, topic: &str, number: u32) -> Option<Whereabouts> {
        let (partition, extents) = catalog.stays(topic, number)?;
        let last = extents.last().expect("a partition has an extent");
        Some(Whereabouts {
            shard: Arc::clone(self.shard(last.shard)),
            opening: Opening { partition, number: last.opening },
            stays: self.stays(partition, extents),
        })
    }

    fn stays(&self, partition: PartitionId, extents: &[Extent]) -> Stays {
        let pairs = extents.windows(2).map(|pair| Stay {
            shard: Arc::clone(self.shard(pair[0].shard)),
            opening: Opening { partition, number: pair[0].opening },
            start: pair[0].start,
            end: pair[1].start,
        });
        Stays(pairs.collect())
    }
}

impl Stays {
    /// Where the last begins, if there were others.
    pub(crate) fn end(&self) -> Option<i64> {
        self.0.last().map(|stay| stay.end)
    }

    /// The oldest offset that can be read of a partition whose last stay has this one.
    pub(crate) fn start(&self, own: i64) -> i64 {
        let left = self.0.iter().map(|stay| {
            stay.with(|partition| (partition.start(), partition.next())).map_or(
                // What this replica has not heard of is there.
                (stay.start, stay.end),
                |(start, next)| (start.max(stay.start), next),
            )
        });
        left.into_iter().find(|(start, end)| start < end).map_or(own, |(start, _)| start)
    }

    /// Where this offset lies.
    pub(crate) fn find(&self, offset: i64) -> Lies<'_> {
        for stay in self.0.iter().filter(|stay| offset < stay.end) {
            match stay.with(|partition| (partition.is_closed(), partition.next())) {
                Some((_, next)) if offset < next => return Lies::Earlier(stay),
                // Its log has lost the rest, and that was said.
                Some((true, _)) => {}
                Some((false, _)) | None => return Lies::Unknown,
            }
        }
        Lies::Last
    }

    /// All of them, the oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Stay> {
        self.0.iter()
    }

    /// The last leader epoch that is not above this one, and the offset at which it ended.
    ///
    /// # Errors
    /// [`Unknown`]: so far as this replica has applied a stay it may end, or not.
    pub(crate) fn end_of_epoch(&self, epoch: i32) -> Result<Option<(i32, i64)>, Unknown> {
        let known = |of: &Partition| of.is_closed().then(|| of.end_of_epoch(epoch));
        first_known(self.0.iter().rev().map(|stay| stay.with(known).flatten()))
    }

    /// The offset at which the oldest leader epoch that is known began.
    pub(crate) fn begin_of_epochs(&self) -> Option<i64> {
        self.0.iter().find_map(|stay| stay.with(Partition::begin_of_epochs))
    }

    /// Offsets that fences gave up in them.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let gaps = self.0.iter().filter_map(|stay| stay.with(|of| of.gaps().collect::<Vec<_>>()));
        gaps.flatten().collect()
    }

    /// The size of their records.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|stay| {
            stay.shard.shelf.bytes(stay.opening) + stay.with(Partition::bytes).unwrap_or(0)
        });
        bytes.sum()
    }

    /// Has a reader told once when one of them gets records here.
    pub(crate) fn watch(&self, reader: &Arc<Notify>) {
        self.0.iter().for_each(|stay| stay.shard.replica.watch(stay.opening, reader));
    }
}

/// The first that says something, of what stays say; of one that says nothing yet, none behind it is asked.
fn first_known<T>(all: impl Iterator<Item = Option<Option<T>>>) -> Result<Option<T>, Unknown> {
    for said in all {
        if let Some(known) = said.ok_or(Unknown)? {
            return Ok(Some(known));
        }
    }
    Ok(None)
}

impl Stay {
    /// The same of its records.
    pub(crate) fn reading(&self, reading: Reading) -> Reading {
        let next = self.with(Partition::next).unwrap_or(self.end);
        Reading { opening: self.opening, end: reading.end.min(next).min(self.end), ..reading }
    }

    /// Something of what this replica knows of it.
    pub(crate) fn with<T>(&self, of: impl FnOnce(&Partition) -> T) -> Option<T> {
        self.shard.replica.lock().state.partition(self.opening).map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the replica of an earlier stay was behind, its end so far was told as the end of an epoch: consumers took what came behind for
    /// truncated.
    #[test]
    fn what_a_stay_does_not_know_yet_no_older_one_says() {
        let told = |all: &[Option<Option<i64>>]| first_known(all.iter().copied());
        assert_eq!(told(&[Some(None), Some(Some(7)), None]), Ok(Some(7)));
        assert_eq!(told(&[Some(None), None, Some(Some(7))]), Err(Unknown));
        assert_eq!(told(&[Some(None), Some(None)]), Ok(None));
    }
}
