//! [`Neighbours`]: the replicas of all shards of records of a node. What a partition left in one of them another has to know.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::replica::Replica;
use crate::control::{Coming, Left};

/// The replicas, by the numbers of their shards.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(BTreeMap<u32, Arc<Replica>>);

impl Neighbours {
    pub(super) fn new(replicas: impl IntoIterator<Item = (u32, Arc<Replica>)>) -> Self {
        Self(replicas.into_iter().collect())
    }

    /// What these partitions have left, as far as their stays have ended here. No replica may be held.
    pub(super) fn left(&self, coming: &[Coming]) -> Left {
        let left = coming.iter().filter_map(|Coming { ended, from, .. }| {
            let shard = self.0.get(from)?.lock();
            let partition = shard.state.partition(*ended)?;
            partition.is_closed().then(|| (*ended, partition.producers().clone()))
        });
        left.collect()
    }

    /// Told from here on, and once now, whenever a stay may have ended.
    pub(super) fn reshapes(&self) -> Reshapes {
        let mut all: Vec<_> = self.0.values().map(|replica| replica.reshapes()).collect();
        all.iter_mut().for_each(watch::Receiver::mark_changed);
        Reshapes(all)
    }
}

/// Whether partitions have come, gone, or ended their stays.
#[derive(Debug)]
pub(super) struct Reshapes(Vec<watch::Receiver<()>>);

impl Reshapes {
    /// Done when some have. Without replicas that is never.
    pub(super) async fn changed(&mut self) {
        let all = self.0.iter_mut().map(|one| Box::pin(one.changed()));
        let all: Vec<_> = all.collect();
        if all.is_empty() {
            return std::future::pending().await;
        }
        // Whoever changes it may have ended: then nothing changes any more.
        if let (Err(_), _, _) = futures_util::future::select_all(all).await {
            std::future::pending::<()>().await;
        }
    }
}
