//! The engine's types, as they are used here: a payload is bytes that nobody in this room reads, a
//! term has one leader, and everything runs on tokio.

use std::any::Any;
use std::fmt;

use bytes::Bytes;
use openraft::impls::leader_id_std;
use openraft::type_config::alias;

openraft::declare_raft_types!(
    /// One leader a term, as Raft has it and as the proof of re-entry assumes: so a log id is a
    /// term and an index. What the engine's own order of (term, node) gains, fewer split votes,
    /// pre-vote gains too.
    pub(crate) Types:
        D = Payload,
        R = Answer,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = super::runtime::Runtime,
);

pub(crate) type Entry = alias::EntryOf<Types>;
pub(crate) type LogId = alias::LogIdOf<Types>;
pub(crate) type Vote = alias::VoteOf<Types>;
pub(crate) type LeaderId = alias::LeaderIdOf<Types>;
pub(crate) type Members = openraft::Membership<u64, openraft::BasicNode>;
pub(crate) type StoredMembers = alias::StoredMembershipOf<Types>;

/// The log id of this index and term.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(term.into(), index)
}

/// What a shard proposed. The engine carries it, and only the shard reads it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Payload(pub(crate) Bytes);

/// What applying an entry returned, on its way to whoever proposed it: the engine is not generic
/// over it.
pub(crate) struct Answer(pub(crate) Box<dyn Any + Send + Sync>);

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}
