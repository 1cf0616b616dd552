//! [`Carrier`]: how a replica's messages come to the others, and what they answer.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;

/// Carries the messages of one group from this replica to the others.
pub trait Carrier: Debug + Send + Sync + 'static {
    /// Asks the replica on a node. What is `urgent` does not wait behind what is much.
    fn ask(
        &self,
        to: u64,
        urgent: bool,
        request: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<Answered, Unreached>>;
}

/// What a replica answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Which start of its node answered.
    pub incarnation: u64,
    /// What it said.
    pub answer: Bytes,
}

/// No answer came. It may have been done all the same.
#[derive(Debug, Clone, thiserror::Error)]
#[error("node {to} cannot be reached: {why}")]
pub struct Unreached {
    /// Who was asked.
    pub to: u64,
    /// Why there is no answer.
    pub why: String,
}

/// The network of a replica that is alone. It reaches nobody, and says so: above all it grants no pre-vote,
/// which the engine's own default would.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Carrier for Nobody {
    fn ask(
        &self,
        to: u64,
        _: bool,
        _: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<Answered, Unreached>> {
        let why = "this node is alone".to_owned();
        Box::pin(std::future::ready(Err(Unreached { to, why })))
    }
}

/// The newest incarnation of each node that is known here. What an older one said is not heard any more: it
/// speaks of what may since have been forgotten.
#[derive(Debug, Default)]
pub(crate) struct Incarnations(Mutex<BTreeMap<u64, u64>>);

impl Incarnations {
    /// Whether this one is the newest that is known.
    pub(crate) fn is_current(&self, node: u64, incarnation: u64) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = known.entry(node).or_insert(incarnation);
        *newest = incarnation.max(*newest);
        *newest == incarnation
    }
}
