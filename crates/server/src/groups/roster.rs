//! [`Roster`]: what is stored of a group's generation and its members.
//!
//! ```text
//! generation     i32   never goes back
//! assigned       u32   1: the assignments are the leader's; 0: it has not said yet
//! since          u64   when it became what it is, in ms since 1970
//! protocol type  text?
//! protocol       text? if there are members
//! leader         text? if there are members: one of them
//! members        u32   then each, by id:
//!                id text · instance text? · client text · host text
//!                session u32 · rebalance u32   in ms
//!                assignment bytes
//!                protocols u32, then each: name text · metadata bytes
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;

use super::fields::{put_bytes, put_count, put_optional, put_text};
use super::request::Protocol;
use crate::cursor::{Cursor, Malformed};

/// A generation of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roster {
    /// Its number.
    pub generation: i32,
    /// Whether its leader has assigned.
    pub is_assigned: bool,
    /// When it became what it is, in ms since 1970: of an empty group, when it became empty.
    pub since: u64,
    /// Such as `consumer`; none if it never had members.
    pub protocol_type: Option<String>,
    /// How it assigns; none if it has no members.
    pub protocol: Option<String>,
    /// Who assigns; none if it has no members.
    pub leader: Option<String>,
    /// The members, by their ids.
    pub members: BTreeMap<String, Seat>,
}

/// What is stored of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// The name that it keeps over restarts.
    pub instance: Option<String>,
    /// What the client calls itself.
    pub client: String,
    /// Where it is.
    pub host: String,
    /// How long it may be silent.
    pub session_ms: u32,
    /// How long it may take to come to a rebalance.
    pub rebalance_ms: u32,
    /// What it can do, what it likes best first.
    pub protocols: Vec<Protocol>,
    /// What is assigned to it.
    pub assignment: Bytes,
}

impl Seat {
    /// What it says of itself for a protocol.
    #[must_use]
    pub fn metadata(&self, protocol: &str) -> Option<&Bytes> {
        let found = self.protocols.iter().find(|offered| offered.name == protocol);
        found.map(|offered| &offered.metadata)
    }

    /// What it takes of its group's bytes, without what is assigned to it.
    pub(super) fn bytes(&self) -> usize {
        let own = self.client.len() + self.host.len();
        let instance = self.instance.as_ref().map_or(0, String::len);
        own + instance + protocols_bytes(&self.protocols)
    }

    fn encode(&self, to: &mut Vec<u8>) {
        put_optional(to, self.instance.as_deref());
        put_text(to, &self.client);
        put_text(to, &self.host);
        to.extend_from_slice(&self.session_ms.to_le_bytes());
        to.extend_from_slice(&self.rebalance_ms.to_le_bytes());
        put_bytes(to, &self.assignment);
        put_count(to, self.protocols.len());
        for Protocol { name, metadata } in &self.protocols {
            put_text(to, name);
            put_bytes(to, metadata);
        }
    }

    fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        const PROTOCOL_BYTES_MIN: usize = 8;
        let (instance, client, host) = (from.optional()?, from.name()?, from.name()?);
        let (session_ms, rebalance_ms) = (from.u32()?, from.u32()?);
        let assignment = from.blob()?;
        let mut protocols = Vec::new();
        for _ in 0..from.count(PROTOCOL_BYTES_MIN, "the count of protocols")? {
            protocols.push(Protocol { name: from.name()?, metadata: from.blob()? });
        }
        Ok(Self { instance, client, host, session_ms, rebalance_ms, protocols, assignment })
    }
}

/// Bytes of some protocols, with a few for each, so that empty ones are bounded too.
fn protocols_bytes(protocols: &[Protocol]) -> usize {
    const EACH: usize = 16;
    protocols.iter().map(|one| EACH + one.name.len() + one.metadata.len()).sum()
}

impl Roster {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.generation.to_le_bytes());
        to.extend_from_slice(&u32::from(self.is_assigned).to_le_bytes());
        to.extend_from_slice(&self.since.to_le_bytes());
        for name in [&self.protocol_type, &self.protocol, &self.leader] {
            put_optional(to, name.as_deref());
        }
        put_count(to, self.members.len());
        for (id, seat) in &self.members {
            put_text(to, id);
            seat.encode(to);
        }
    }

    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        const MEMBER_BYTES_MIN: usize = 4 + 4 + 4 + 4 + 8 + 4 + 4;
        let generation = from.i32()?;
        // Another comes after it.
        if !(0..i32::MAX).contains(&generation) {
            let found = u64::from(generation.cast_unsigned());
            return Err(Malformed::Field("a generation", found));
        }
        let is_assigned = from.flag("whether a group is assigned")?;
        let since = from.u64()?;
        let (protocol_type, protocol) = (from.optional()?, from.optional()?);
        let leader = from.optional()?;
        let mut members = BTreeMap::new();
        let count = from.count(MEMBER_BYTES_MIN, "the count of members")?;
        for number in 0..count {
            let id = from.name()?;
            if members.last_key_value().is_some_and(|(last, _)| *last >= id) {
                return Err(Malformed::Field("the place of a member's id", number as u64));
            }
            members.insert(id, Seat::decode(from)?);
        }
        let roster =
            Self { generation, is_assigned, since, protocol_type, protocol, leader, members };
        if !roster.is_whole() {
            return Err(Malformed::Field("members without leader or protocol", count as u64));
        }
        Ok(roster)
    }

    /// Whether its leader is a member and all of them know its protocol; neither is there without
    /// them.
    fn is_whole(&self) -> bool {
        let Self { leader, protocol, protocol_type, members, .. } = self;
        match (leader, protocol) {
            (None, None) => members.is_empty(),
            (Some(leader), Some(protocol)) => {
                let all_know_it = members.values().all(|seat| seat.metadata(protocol).is_some());
                protocol_type.is_some() && members.contains_key(leader) && all_know_it
            }
            _ => false,
        }
    }
}
