//! [`Replicas`]: which brokers have the partitions of a topic that is to be.

use std::sync::Arc;

use super::problem::Problem;
use super::session::{Session, kafka_id};
use crate::broker::DataShard;
use crate::kafka::error::ErrorCode;

/// Who votes in the shards of records, ascending, each set once. While nodes come or go shards differ for a moment.
pub(super) struct Replicas(Vec<Vec<i32>>);

impl Replicas {
    pub(super) fn of(session: &Session) -> Self {
        let voters = |shard: &Arc<DataShard>| -> Vec<i32> {
            shard.group.voters().into_iter().map(kafka_id).collect()
        };
        let mut all: Vec<_> = session.node.topics.shards().iter().map(voters).collect();
        all.sort();
        all.dedup();
        Self(all)
    }

    /// How many replicas a partition has.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// The shards of partitions are chosen where their topic is made: who names brokers can be heeded where all shards have the
    /// same.
    pub(super) fn check<'a>(
        &self,
        mut named: impl Iterator<Item = &'a Vec<i32>>,
    ) -> Result<(), Problem> {
        let is_fit = |brokers: &Vec<i32>| {
            let mut brokers = brokers.clone();
            brokers.sort_unstable();
            self.0 == [brokers]
        };
        match named.all(is_fit) {
            true => Ok(()),
            false => Err(self.refuse(ErrorCode::InvalidReplicaAssignment)),
        }
    }

    pub(super) fn refuse(&self, code: ErrorCode) -> Problem {
        let message = match &self.0[..] {
            [one] => match &one[..] {
                [one] => {
                    format!(
                        "this cluster has one broker, number {one}: a partition has one replica"
                    )
                }
                all => format!(
                    "a partition has a replica on each of the brokers {all:?}: ask for {}, or for -1",
                    all.len()
                ),
            },
            _ if code == ErrorCode::InvalidReplicationFactor => {
                format!("a partition has {0} replicas: ask for {0}, or for -1", self.count())
            }
            _ => format!(
                "which {} replicas a partition has is not chosen here: name none, and move it once it is there",
                self.count()
            ),
        };
        Problem::new(code, message)
    }
}
