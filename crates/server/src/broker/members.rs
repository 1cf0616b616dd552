//! [`Members`]: who is in the cluster, as its clients see it: where each node is found.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::options::Seat;
use crate::control::LEVEL;
use crate::run::{Begun, Starts};

/// The nodes that clients are told of, by their ids. It may change while the node runs.
#[derive(Debug)]
pub struct Members {
    here: u64,
    known: RwLock<BTreeMap<u64, Member>>,
}

/// Where a node is found, and what it runs. A later version may say more of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Member {
    /// The host that clients connect to. Of the node itself none need be known: its clients have found it.
    pub host: Option<String>,
    /// The port.
    pub port: u16,
    /// Where it stands, if that was said.
    pub rack: Option<String>,
    /// Its version of Plimsoll; one that is older than this says none.
    pub version: String,
    /// The highest level of changes that it knows.
    pub level: u32,
    /// The newest starts of its directory, this one last: incarnations, and what they drew; none of a version that keeps none.
    pub starts: Vec<Begun>,
}

/// So many are told at most: a greeting has room for them.
const STARTS_MAX: usize = 32;

impl Member {
    /// The node that sits there.
    pub(super) fn of(seat: &Seat, starts: &Starts) -> Self {
        let (host, port) = seat.clients.clone();
        let starts = starts.newest(STARTS_MAX).to_vec();
        Self { host: Some(host), port, rack: seat.rack.clone(), starts, ..Self::own() }
    }

    /// This node, wherever it is.
    #[must_use]
    pub fn own() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), level: LEVEL, ..Self::default() }
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
        let known = BTreeMap::from([(here, Member::own())]);
        Self { here, known: RwLock::new(known) }
    }

    /// This node.
    #[must_use]
    pub fn here(&self) -> u64 {
        self.here
    }

    /// From here on clients are told of these. Of this node they are told in any case.
    pub fn set(&self, mut known: BTreeMap<u64, Member>) {
        known.entry(self.here).or_insert_with(Member::own);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// All that are known, by their ids. Not to be held over an await.
    pub(crate) fn known(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Member>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_another_version_is_understood() {
        let older = br#"{"host":"a","port":9092,"rack":null}"#;
        let member = Member::told(older).unwrap();
        assert_eq!((member.host.as_deref(), member.port, member.level), (Some("a"), 9092, 0));
        let later =
            br#"{"host":"a","port":9092,"rack":"r","version":"9.0.0","level":9,"moon":"full"}"#;
        let member = Member::told(later).unwrap();
        assert_eq!(
            (member.rack.as_deref(), &*member.version, member.level),
            (Some("r"), "9.0.0", 9)
        );
        assert_eq!(Member::told(br#"{"port":9092}"#), None, "it says not where it is");
    }
}
