//! [`Place`]: where a snapshot stands among the entries, and what the engine has to know there.
//!
//! ```text
//!  byte offset  bytes
//!            0      8  term of the last entry that is in it
//!            8      8  its index, as the engine counts
//!           16      8  term of the last entry with members
//!           24      8  its index
//!           32      …  the members, see `membership`
//! ```
//!
//! Little-endian.

use super::membership;
use super::record::to_log;
use super::types::{LogId, StoredMembers, log_id};

/// Where a snapshot of a state stands: the state comes with it, and the log goes on behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub(super) applied: LogId,
    pub(super) members: StoredMembers,
}

impl Place {
    /// The index of the last entry that is in it.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.applied.index
    }

    /// Term and index of the last entry that is in it, as the log counts.
    pub(crate) fn end(&self) -> (u64, u64) {
        (self.applied.leader_id.term, to_log(self.applied.index))
    }

    /// Since which entry it is so who votes, and whether that are others beside this node.
    pub(crate) fn others_since(&self, node: u64) -> (u64, bool) {
        let since = self.members.log_id().map_or(0, |since| since.index);
        (since, self.has_others(node))
    }

    /// Whether others vote beside this node.
    pub(crate) fn has_others(&self, node: u64) -> bool {
        self.members.membership().voter_ids().any(|voter| voter != node)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        // An entry with members is the first of every log.
        let since = self.members.log_id().unwrap_or(log_id(0, 0));
        for id in [self.applied, since] {
            to.extend_from_slice(&id.leader_id.term.to_le_bytes());
            to.extend_from_slice(&id.index.to_le_bytes());
        }
        membership::encode(self.members.membership(), &mut to);
        to
    }

    /// The place that these bytes are, if they are one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (ids, members) = bytes.split_first_chunk::<32>()?;
        let mut words = ids
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight bytes")));
        let mut id = || Some(log_id(words.next()?, words.next()?));
        let (applied, since) = (id()?, id()?);
        let has_next = applied.index <= u64::MAX / 2;
        if since > applied || since.index > applied.index || !has_next {
            return None;
        }
        let members = StoredMembers::new(Some(since), membership::decode(members)?);
        Some(Self { applied, members })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use openraft::BasicNode;

    use super::*;
    use crate::cluster::types::Members;

    #[test]
    fn a_place_comes_back_as_it_was_and_cut_short_or_without_a_next_is_none() {
        let alone = Members::from(BTreeMap::from([(1, BasicNode::new("here:1"))]));
        let members = StoredMembers::new(Some(log_id(3, 4)), alone);
        let place = Place { applied: log_id(7, 99), members };
        let bytes = place.encode();
        assert_eq!(Place::decode(&bytes), Some(place));
        for length in 0..bytes.len() {
            assert_eq!(Place::decode(&bytes[..length]), None);
        }
        let mut last = bytes.clone();
        last[8..16].fill(0xff);
        assert_eq!(Place::decode(&last), None, "no entry comes behind it");
        let mut backwards = bytes;
        backwards[8] = 3;
        assert_eq!(Place::decode(&backwards), None, "its members come after it");
    }
}
