//! [`Desk`]: what the controller does for other nodes.

use std::sync::Weak;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};

use super::agreed::{Agreed, Refused};
use super::company::Door;
use super::controller::{Answer, Outcome, Request};
use super::topics::Topics;
use crate::peer::Peer;

/// Where other nodes ask. It does not keep the control shard from being closed.
#[derive(Debug)]
pub(super) struct Desk(pub(super) Weak<Topics>);

impl Desk {
    /// Does what a node asks for, if this one is the controller.
    pub(super) async fn answer(topics: Weak<Topics>, request: Bytes) -> Vec<Bytes> {
        let outcome = match Request::decode(&request) {
            Ok(Request::Look) => match topics.upgrade().filter(|topics| topics.leads()) {
                Some(_) => Outcome::Done { first: 0 },
                None => Outcome::NotController,
            },
            Ok(Request::Change(change)) => {
                // It may be a slice of a large frame.
                drop(request);
                outcome_of(Topics::decide(&topics, change).await)
            }
            Err(why) => {
                tracing::warn!(%why, "a node asks for what is not understood");
                return Vec::new();
            }
        };
        let catalog = topics.upgrade().map_or(0, |topics| topics.catalog().version());
        vec![Answer { catalog, outcome }.encode().into()]
    }
}

fn outcome_of(decided: Result<Agreed, Refused>) -> Outcome {
    let number = |number| u64::try_from(number).unwrap_or(u64::MAX);
    match decided {
        Ok(Agreed { first, .. }) => Outcome::Done { first },
        Err(why) if why.is_not_controller() => Outcome::NotController,
        Err(Refused::Impossible(why)) => Outcome::Impossible(why),
        Err(Refused::Full { there, max }) => {
            Outcome::Full { there: number(there), max: number(max) }
        }
        Err(Refused::Lacking { node }) => Outcome::Lacking { node },
        Err(Refused::Unknown | Refused::Failed(_)) => Outcome::Unknown,
    }
}

impl Door for Desk {
    fn answer(&self, _: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        Self::answer(Weak::clone(&self.0), request.clone()).boxed()
    }
}
