//! [`let_go`]: topics that go, until their names are free.
//!
//! 1. The controller agrees that a topic is to go.
//! 2. The leader of each shard of records closes its partitions, and has what they hold go (`intended.rs`).
//! 3. The coordinator of groups forgets offsets in it, as these are kept by name.
//! 4. The controller frees the name, once its own replicas have nothing of it.
//!
//! Each looks at the catalog, which every node has: whoever leads goes on where another stopped.

use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::coordinator::{Asked, Coordinator};
use super::data::DataShard;
use super::error::Failed;
use super::leadership::LOOK;
use super::topics::Topics;
use crate::groups::Answer;

/// Goes on for as long as the node does.
pub(super) async fn let_go(topics: Arc<Topics>, groups: Arc<Coordinator>) {
    let mut changes = topics.intended().changes();
    let mut reshapes: Vec<_> = topics.shards.iter().map(|shard| shard.replica.reshapes()).collect();
    loop {
        changes.borrow_and_update();
        for reshapes in &mut reshapes {
            reshapes.borrow_and_update();
        }
        if let Err(why) = let_go_now(&topics, &groups).await {
            tracing::debug!(%why, "a topic goes later");
            sleep(LOOK).await;
        }
        if topics.deleted().is_empty() {
            // This task holds what tells it.
            changes.changed().await.ok();
            continue;
        }
        let reshaped = reshapes.iter_mut().map(|reshapes| Box::pin(reshapes.changed()));
        let changed = async {
            tokio::select! {
                _ = changes.changed() => {}
                _ = futures_util::future::select_all(reshaped) => {}
            }
        };
        // A leadership may begin, or another node do its part, and nobody tells of that here.
        timeout(LOOK, changed).await.ok();
    }
}

/// Does what this node is to do of it now.
async fn let_go_now(topics: &Topics, groups: &Coordinator) -> Result<(), Failed> {
    for (id, name) in topics.deleted() {
        if !topics.has_nothing_of(id) {
            continue;
        }
        let is_forgotten = if groups.leads() {
            let answer = groups.ask(Asked::TopicIsGone(name)).await;
            matches!(answer, Answer::Done)
        } else {
            !groups.has_offsets_in(&name)
        };
        // What a replica lacks may be what is to go first.
        let lacks = |shard: &Arc<DataShard>| shard.group.lack().is_some() || shard.group.is_dirty();
        let is_behind = groups.group.lack().is_some() || groups.group.is_dirty();
        if is_forgotten && topics.leads() && !is_behind && !topics.shards.iter().any(lacks) {
            topics.let_go(id).await?;
        }
    }
    Ok(())
}
