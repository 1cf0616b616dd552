//! [`Giver`]: what of this node's chapters repairs those of others.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::task::spawn_blocking;

use super::company::Door;
use super::data::DataShard;
use super::read::Read;
use super::repair::{Answer, Request, Wanted};
use super::topics::Topics;
use crate::peer::Peer;

/// Where other nodes ask. It does not keep the shards from being closed.
#[derive(Debug)]
pub(super) struct Giver(pub(super) Weak<Topics>);

impl Door for Giver {
    fn answer(&self, from: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        let request = Request::decode(request);
        let topics = Weak::clone(&self.0);
        async move {
            let Request { shard, wanted } = match request {
                Ok(request) => request,
                Err(why) => {
                    tracing::warn!(%why, node = from.node, "a node asks for what is not understood");
                    return Vec::new();
                }
            };
            let shard = topics.upgrade().and_then(|topics| {
                topics.shards.iter().find(|known| known.number == shard).cloned()
            });
            drop(topics);
            let answer = match shard {
                Some(shard) => give(shard, wanted).await,
                None => None,
            };
            answer.unwrap_or(Answer::Nothing).encode()
        }
        .boxed()
    }
}

/// What a shard has of that. What is damaged here too is nothing, and noted.
async fn give(shard: Arc<DataShard>, wanted: Wanted) -> Option<Answer> {
    match wanted {
        Wanted::Piece { opening, chapter, from } => {
            let shelf = Arc::clone(&shard.shelf);
            drop(shard);
            let given = spawn_blocking(move || shelf.give(opening, chapter, from)).await;
            given.ok()?.ok()?.map(Answer::Piece)
        }
        Wanted::Batches(reading) => {
            let Read { batches, .. } = shard.read_alone(reading).await.ok()?;
            (!batches.is_empty()).then_some(Answer::Batches(batches))
        }
    }
}
