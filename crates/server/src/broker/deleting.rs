//! [`let_go`]: topics that go, until their names are free.
//!
//! 1. The controller agrees that a topic is to go.
//! 2. The leader of each shard of records closes its partitions, and has what they hold go (`intended.rs`).
//! 3. The controller, once its own replicas have nothing of it, has the coordinator of groups forget offsets in it, as these are kept by
//!    name. It asks that node: its own replica of their offsets may be behind.
//! 4. The controller frees the name.
//!
//! Each looks at the catalog, which every node has: whoever leads goes on where another stopped. A coordinator forgets once it knows
//! itself that the topic goes: from then on it takes no offsets for its name. Another that coordinates after it may be behind, and take some.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::time::{sleep, timeout};

use super::company::{Company, Door};
use super::coordinator::{Asked, Coordinator};
use super::data::DataShard;
use super::error::Failed;
use super::leadership::LOOK;
use super::topics::Topics;
use crate::groups::Answer;
use crate::peer::Peer;
use crate::shard::TopicId;

/// Where a coordinator is asked to forget a topic: no shard has this number.
const FORGETTING: u32 = u32::MAX - 5;
const VERSION: u8 = 1;
/// How long its answer is waited for before it is asked again.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it tries.
const HELD: Duration = Duration::from_secs(1);

/// Goes on for as long as the node does.
pub(super) async fn let_go(topics: Arc<Topics>, groups: Arc<Coordinator>, company: Arc<Company>) {
    let (of, and) = (Arc::downgrade(&topics), Arc::downgrade(&groups));
    company.open_door(FORGETTING, Arc::new(Forgetting { topics: of, groups: and }));
    let mut changes = topics.intended().changes();
    let mut reshapes: Vec<_> = topics.shards.iter().map(|shard| shard.replica.reshapes()).collect();
    loop {
        changes.borrow_and_update();
        for reshapes in &mut reshapes {
            reshapes.borrow_and_update();
        }
        if let Err(why) = let_go_now(&topics, &groups, &company).await {
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

/// Does what this node is to do of it now, if it is the controller.
async fn let_go_now(
    topics: &Topics,
    groups: &Coordinator,
    company: &Company,
) -> Result<(), Failed> {
    // What a replica lacks may be what is to go first.
    let lacks = |shard: &Arc<DataShard>| shard.group.lack().is_some() || shard.group.is_dirty();
    for id in topics.deleted() {
        let is_done = topics.has_nothing_of(id) && !topics.shards.iter().any(lacks);
        if topics.leads() && is_done && is_forgotten(topics, groups, company, id).await {
            topics.let_go(id).await?;
        }
    }
    Ok(())
}

/// Whether whoever coordinates now has forgotten all offsets in a topic.
async fn is_forgotten(
    topics: &Topics,
    groups: &Coordinator,
    company: &Company,
    id: TopicId,
) -> bool {
    if groups.leads() {
        return forget(topics, groups, id).await;
    }
    let Some(coordinator) = groups.group.leader().filter(|leader| *leader != company.node()) else {
        return false;
    };
    let request = [&[VERSION][..], &id.0].concat();
    let answer = timeout(PATIENCE, company.ask(coordinator, FORGETTING, request)).await;
    matches!(answer, Ok(Ok(answer)) if answer[..] == [VERSION, 1])
}

/// Forgets offsets in a topic that goes, as far as this node knows, if it coordinates; whether they are.
async fn forget(topics: &Topics, groups: &Coordinator, id: TopicId) -> bool {
    match name_of(topics, id) {
        Some(name) => forget_name(groups, name).await,
        None => false,
    }
}

/// Of a topic that goes, as far as this node knows.
fn name_of(topics: &Topics, id: TopicId) -> Option<String> {
    let catalog = topics.catalog();
    catalog.topic(id).filter(|topic| topic.is_deleted).map(|topic| topic.name.clone())
}

async fn forget_name(groups: &Coordinator, name: String) -> bool {
    groups.leads() && matches!(groups.ask(Asked::TopicIsGone(name)).await, Answer::Done)
}

/// Where other nodes ask. It keeps groups from being closed for [`HELD`] at most.
#[derive(Debug)]
struct Forgetting {
    topics: Weak<Topics>,
    groups: Weak<Coordinator>,
}

impl Door for Forgetting {
    fn answer(&self, from: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        let (topics, groups) = (self.topics.upgrade(), self.groups.upgrade());
        let topic = match request.split_first() {
            Some((&VERSION, id)) => id.try_into().ok().map(TopicId),
            _ => None,
        };
        async move {
            let Some(id) = topic else {
                tracing::warn!(node = from.node, "a node asks for what is not understood");
                return Vec::new();
            };
            let name = topics.and_then(|topics| name_of(&topics, id));
            let is_forgotten = match groups.zip(name) {
                Some((groups, name)) => {
                    timeout(HELD, forget_name(&groups, name)).await.unwrap_or(false)
                }
                None => false,
            };
            vec![Bytes::copy_from_slice(&[VERSION, u8::from(is_forgotten)])]
        }
        .boxed()
    }
}
