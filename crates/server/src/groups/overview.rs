//! How groups are described and listed: as they are here and now, agreed on or not.

use bytes::Bytes;

use super::group::{Group, State};
use super::phase::Phase;

/// A group, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub group: String,
    /// Such as `consumer`, or empty.
    pub protocol_type: String,
    /// What it is doing.
    pub phase: Phase,
}

/// A group, as it is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// What it is doing.
    pub phase: Phase,
    /// Such as `consumer`, or empty.
    pub protocol_type: String,
    /// How it assigns; empty unless it is stable.
    pub protocol: String,
    /// Its members, by their ids.
    pub members: Vec<DescribedMember>,
}

/// A member, as it is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedMember {
    /// Its id.
    pub member: String,
    /// The name that it keeps over restarts.
    pub instance: Option<String>,
    /// What the client calls itself.
    pub client: String,
    /// Where it is.
    pub host: String,
    /// What it said of itself; empty unless the group is stable.
    pub metadata: Bytes,
    /// What is assigned to it; empty unless the group is stable.
    pub assignment: Bytes,
}

impl Described {
    /// A group that is not there.
    pub(super) fn dead() -> Self {
        let (protocol_type, protocol) = (String::new(), String::new());
        Self { phase: Phase::Dead, protocol_type, protocol, members: Vec::new() }
    }
}

impl Group {
    pub(super) fn list(&self) -> Listed {
        let protocol_type = self.protocol_type.clone().unwrap_or_default();
        Listed { group: self.id.to_string(), protocol_type, phase: self.phase() }
    }

    pub(super) fn describe(&self) -> Described {
        let protocol = self.protocol.clone().filter(|_| self.state == State::Stable);
        let members = self.members.iter().map(|(id, member)| {
            let seat = &member.seat;
            let metadata = protocol.as_deref().and_then(|protocol| seat.metadata(protocol));
            DescribedMember {
                member: id.clone(),
                instance: seat.instance.clone(),
                client: seat.client.clone(),
                host: seat.host.clone(),
                metadata: metadata.cloned().unwrap_or_default(),
                assignment: protocol.as_ref().map_or_else(Bytes::new, |_| seat.assignment.clone()),
            }
        });
        let members = members.collect();
        let protocol_type = self.protocol_type.clone().unwrap_or_default();
        let protocol = protocol.unwrap_or_default();
        Described { phase: self.phase(), protocol_type, protocol, members }
    }
}
