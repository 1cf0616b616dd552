//! [`Members`]: who is in the cluster, as its clients see it: where each node is found.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::options::Seat;
use crate::control::LEVEL;
use crate::peer::HELLO_BYTES_MAX;
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
}

/// So many starts are told at most.
const STARTS_MAX: usize = 32;

/// What is told of a node in a greeting, to those that only hear it once.
#[derive(Serialize)]
struct Hello<'a> {
    #[serde(flatten)]
    member: &'a Member,
    /// The newest starts of its directory, this one last; none of a version that keeps none.
    starts: &'a [Begun],
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    starts: Vec<Begun>,
}

impl Member {
    /// The node that sits there.
    pub(super) fn of(seat: &Seat) -> Self {
        let (host, port) = seat.clients.clone();
        Self { host: Some(host), port, rack: seat.rack.clone(), ..Self::own() }
    }

    /// This node, wherever it is.
    #[must_use]
    pub fn own() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), level: LEVEL, ..Self::default() }
    }

    /// What a node tells others of itself when they meet; JSON. Of its starts as many as there is room for.
    pub(super) fn hello(&self, starts: &Starts) -> Bytes {
        let told = |most| {
            let hello = Hello { member: self, starts: starts.newest(most) };
            serde_json::to_vec(&hello).expect("a host, a port, a rack and numbers are JSON")
        };
        let fits = (0..=STARTS_MAX).rev().map(told).find(|told| told.len() <= HELLO_BYTES_MAX);
        fits.unwrap_or_else(|| told(0)).into()
    }

    /// What another told of its starts.
    pub(super) fn starts(hello: &[u8]) -> Vec<Begun> {
        serde_json::from_slice(hello).map_or(Vec::new(), |told: Told| told.starts)
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
        assert_eq!(Member::starts(older), []);
    }

    #[test]
    fn the_starts_that_a_greeting_has_no_room_for_are_not_told() {
        let dir = plimsoll_simdisk::SimDir::new();
        let mut starts = Starts::default();
        for incarnation in 1..=40 {
            starts = starts.add(&dir, incarnation, u64::MAX - incarnation).unwrap();
        }
        let member = Member { host: Some("a".to_owned()), ..Member::own() };
        let told = member.hello(&starts);
        assert_eq!(Member::starts(&told), starts.newest(32));
        assert_eq!(Member::told(&told), Some(member.clone()));
        let far = Member { rack: Some("r".repeat(3400)), ..member };
        let told = far.hello(&starts);
        assert!(told.len() <= HELLO_BYTES_MAX);
        let (few, all) = (Member::starts(&told), starts.newest(32));
        assert!(!few.is_empty() && few.len() < all.len() && all.ends_with(&few), "{few:?}");
    }
}
