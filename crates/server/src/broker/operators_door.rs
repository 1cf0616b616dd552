//! [`OperatorsDoor`]: who answers what another node asks for an operator's sake.

use std::sync::Weak;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};

use super::company::Door;
use super::leaders::Leaders;
use super::operators::{self, CLOSING, Request};
use super::recovery::Recovery;
use super::registrar::Registrar;
use super::scrubs::Scrubs;
use crate::peer::Peer;

/// Where other nodes ask. It does not hold what it asks.
#[derive(Debug)]
pub(super) struct OperatorsDoor {
    pub(super) leaders: Weak<Leaders>,
    pub(super) recovery: Weak<Recovery>,
    pub(super) registrar: Weak<Registrar>,
    pub(super) scrubs: Weak<Scrubs>,
}

impl Door for OperatorsDoor {
    fn answer(&self, _: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        let (leaders, recovery) = (self.leaders.upgrade(), self.recovery.upgrade());
        let (registrar, scrubs) = (self.registrar.upgrade(), self.scrubs.upgrade());
        let request = Request::decode(request);
        async move {
            let parts = (leaders, recovery, registrar, scrubs);
            let (Some(leaders), Some(recovery), Some(registrar), Some(scrubs)) = parts else {
                return vec![Bytes::from_static(&CLOSING)];
            };
            match request {
                Ok(request @ (Request::May | Request::Move { .. })) => {
                    let answer = leaders.answer(request).await;
                    vec![operators::encode(&answer.map(|()| Vec::new())).into()]
                }
                Ok(Request::Level) => {
                    let levels = operators::levels(&leaders.levels());
                    vec![operators::encode(&Ok(levels)).into()]
                }
                Ok(Request::Damage) => vec![operators::encode(&Ok(recovery.damage())).into()],
                Ok(Request::Leads) => {
                    let leads = leaders.leads(registrar.awaited());
                    vec![operators::encode(&Ok(leads.encode())).into()]
                }
                Ok(request @ (Request::Join { .. } | Request::Remove(_))) => {
                    vec![operators::encode(&registrar.answer(request).await).into()]
                }
                Ok(request @ (Request::Scrub { .. } | Request::StopScrub(_) | Request::Scrubs)) => {
                    vec![operators::encode(&scrubs.answer(&request)).into()]
                }
                Ok(request) => vec![operators::encode(&recovery.answer(request).await).into()],
                Err(why) => {
                    tracing::warn!(%why, "a node asks for what is not understood");
                    Vec::new()
                }
            }
        }
        .boxed()
    }
}
