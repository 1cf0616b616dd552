//! [`Members`]: who is in the cluster, as its clients see it: where each node is found.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::options::Seat;

/// The nodes that clients are told of, by their ids. It may change while the node runs.
#[derive(Debug)]
pub struct Members {
    here: u64,
    known: RwLock<BTreeMap<u64, Member>>,
}

/// Where a node is found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The host that clients connect to. Of the node itself none need be known: its clients have found it.
    pub host: Option<String>,
    /// The port.
    pub port: u16,
    /// Where it stands, if that was said.
    pub rack: Option<String>,
}

impl Member {
    /// The node that sits there.
    pub(super) fn of(seat: &Seat) -> Self {
        let (host, port) = seat.clients.clone();
        Self { host: Some(host), port, rack: seat.rack.clone() }
    }

    /// What a node tells others of itself when they meet; JSON.
    pub(super) fn hello(&self) -> Bytes {
        serde_json::to_vec(self).expect("a host, a port and a rack are JSON").into()
    }

    /// What another told.
    pub(super) fn told(hello: &[u8]) -> Option<Self> {
        serde_json::from_slice(hello).ok().filter(|member: &Self| member.host.is_some())
    }
}

impl Members {
    /// Of a node that knows of no other.
    #[must_use]
    pub fn alone(here: u64) -> Self {
        let known = BTreeMap::from([(here, Member::default())]);
        Self { here, known: RwLock::new(known) }
    }

    /// This node.
    #[must_use]
    pub fn here(&self) -> u64 {
        self.here
    }

    /// From here on clients are told of these. Of this node they are told in any case.
    pub fn set(&self, mut known: BTreeMap<u64, Member>) {
        known.entry(self.here).or_default();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// All that are known, by their ids. Not to be held over an await.
    pub(crate) fn known(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Member>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}
