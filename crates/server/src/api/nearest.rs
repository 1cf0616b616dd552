//! From which replica a consumer reads: the leader's, or one that is nearer (KIP-392).
//!
//! A consumer that says in which rack it is asks the leader first. If that stands in another rack, and a replica in the
//! consumer's rack is level with it, the leader names that replica and gives no records; from then on the consumer asks there.
//! A replica that follows gives what it has applied. What it does not have yet is not available; where it is in doubt, hears no
//! leader, or is behind, it sends the consumer back.
//!
//! Those that name no rack are served by leaders only, as they may have come to the wrong broker.

use super::session::{Located, Session, kafka_id};
use crate::broker::Ends;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::FetchRequest;

/// The rack that a consumer says that it is in.
pub(super) fn rack_of(request: &FetchRequest) -> Option<&str> {
    Some(&*request.rack_id).filter(|rack| !rack.is_empty())
}

/// The offsets of a partition, for somebody who reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Readable {
    pub(super) ends: Ends,
    /// Another replica leads, and may have more.
    pub(super) follows: bool,
}

impl Located {
    /// The offsets of the partition, where its records are read here by who names a rack, or does not.
    pub(super) fn readable(&self, names_rack: bool) -> Result<Readable, ErrorCode> {
        let refused = match self.ends() {
            Ok(ends) => return Ok(Readable { ends, follows: false }),
            Err(code) => code,
        };
        // How many copies there are only the leader knows.
        let is_near = names_rack
            && refused == ErrorCode::NotLeaderOrFollower
            && !self.shard.has_failed()
            && self.copies_wanted().is_none()
            && self.shard.group.follows_closely();
        // One that was just opened need not be known here yet.
        let ends = self.shard.ends(self.opening).filter(|_| is_near);
        let ends = ends.map(|ends| self.with_stays(ends));
        ends.map(|ends| Readable { ends, follows: true }).ok_or(refused)
    }
}

impl Session {
    /// The node from which a consumer in a rack is to read, if it is another than this, which leads.
    pub(super) fn nearer(&self, at: &Located, rack: &str) -> Option<i32> {
        let members = self.node.members();
        let known = members.known();
        let is_in = |id: &u64| {
            let member = known.get(id)?;
            (member.rack.as_deref() == Some(rack)).then_some(member)
        };
        if is_in(&members.here()).is_some() {
            return None;
        }
        let is_near = |id: &&u64| {
            is_in(id).is_some_and(|member| member.host.is_some()) && at.shard.group.is_level(**id)
        };
        let near: Vec<_> = known.keys().filter(is_near).collect();
        // Consumers of several partitions are spread over those that are as near.
        let number = usize::try_from(at.opening.partition.number).unwrap_or(0);
        let one = **near.get(number.checked_rem(near.len())?)?;
        at.copies_wanted().is_none().then(|| kafka_id(one))
    }
}
