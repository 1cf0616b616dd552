//! Where to begin in each partition of a topic.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use plimsoll_server::client::{Cluster, Error};

use crate::client_args::Start;

/// What ListOffsets calls the end, and the beginning.
pub(super) const END: i64 = -1;
pub(super) const BEGINNING: i64 = -2;

/// Where partitions have their first record at or behind a time, or where they begin or end.
pub(super) fn offsets(
    cluster: &mut Cluster,
    topic: &str,
    partitions: &[i32],
    timestamp: i64,
    isolation: i8,
) -> Result<BTreeMap<i32, i64>> {
    let listed = cluster.offsets(topic, partitions, timestamp, isolation)?;
    let checked = partitions.iter().map(|partition| {
        let what = format!("the offsets of partition {partition} of {topic}");
        let found = listed.iter().find(|listed| listed.partition_index == *partition);
        let found = found.with_context(|| format!("the broker says nothing of {what}"))?;
        Error::check(what, found.error_code, None)?;
        Ok((*partition, found.offset))
    });
    checked.collect()
}

impl Start {
    /// The offset in each partition. Where no record is so late, that is the end.
    pub(super) fn offsets(
        self,
        cluster: &mut Cluster,
        topic: &str,
        partitions: &[i32],
        isolation: i8,
    ) -> Result<BTreeMap<i32, i64>> {
        let mut ask = |timestamp| offsets(cluster, topic, partitions, timestamp, isolation);
        match self {
            Self::Earliest => ask(BEGINNING),
            Self::Latest => ask(END),
            Self::Offset(offset) => Ok(partitions.iter().map(|part| (*part, offset)).collect()),
            Self::Time(unix_ms) => {
                let mut found = ask(unix_ms)?;
                let ends = ask(END)?;
                for (partition, offset) in &mut found {
                    if *offset < 0 {
                        *offset = ends[partition];
                    }
                }
                Ok(found)
            }
        }
    }
}
