//! [`Members`]: who is in the cluster, as its clients see it: where each node is found.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The nodes that clients are told of, by their ids. It may change while the node runs.
#[derive(Debug)]
pub struct Members {
    here: u64,
    known: RwLock<BTreeMap<u64, Member>>,
}

/// Where a node is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// The host that clients connect to. Of the node itself none need be known: its clients have found it.
    pub host: Option<String>,
    /// The port.
    pub port: u16,
    /// Where it stands, if that was said.
    pub rack: Option<String>,
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
