//! What a coordinator says: [`Answer`] to a request, and [`Step`], all that came of a call.

use bytes::Bytes;

use super::change::Change;
use super::request::Ticket;

/// All that came of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "tickets wait for their answers, and answers for changes"]
pub struct Step {
    /// To be agreed on and durable, in this order; then [`super::Groups::agreed`] is told the
    /// number.
    pub changes: Vec<(u64, Change)>,
    /// What may be said now.
    pub answers: Vec<(Ticket, Answer)>,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To a [`super::Join`]: all have joined.
    Joined(Joined),
    /// To a [`super::Join`]: come again with this member id (`MEMBER_ID_REQUIRED`).
    TakeId(String),
    /// To a [`super::Sync`].
    Synced(Synced),
    /// To a [`super::Beat`]: nothing has changed. To the deletion of a group: it is gone.
    Done,
    /// To a [`super::Leave`], a [`super::Commit`], a deletion of offsets: for each that was named,
    /// in that order, why not.
    Each(Vec<Result<(), Refusal>>),
    /// To any: no.
    Refused(Refusal),
}

/// A generation, as one of its members is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Its number.
    pub generation: i32,
    /// Such as `consumer`.
    pub protocol_type: String,
    /// How it assigns.
    pub protocol: String,
    /// Who assigns.
    pub leader: String,
    /// The id of the member that is told.
    pub member: String,
    /// Only to the leader: each member's id, instance and metadata.
    pub members: Vec<(String, Option<String>, Bytes)>,
}

/// What is assigned to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// As its leader wrote it.
    pub assignment: Bytes,
}

/// Why not, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// `INVALID_GROUP_ID`.
    #[error("the group has no name")]
    InvalidGroupId,
    /// `NOT_COORDINATOR`.
    #[error("this is no longer the group's coordinator")]
    NotCoordinator,
    /// `UNKNOWN_MEMBER_ID`.
    #[error("the group has no such member")]
    UnknownMemberId,
    /// `FENCED_INSTANCE_ID`.
    #[error("another has come under this instance's name")]
    FencedInstanceId,
    /// `ILLEGAL_GENERATION`.
    #[error("the group is in another generation")]
    IllegalGeneration,
    /// `REBALANCE_IN_PROGRESS`.
    #[error("the group is rebalancing: join again")]
    RebalanceInProgress,
    /// `INCONSISTENT_GROUP_PROTOCOL`.
    #[error("the members have no such protocol in common")]
    InconsistentGroupProtocol,
    /// `INVALID_SESSION_TIMEOUT`.
    #[error("sessions of this length are not allowed")]
    InvalidSessionTimeout,
    /// `GROUP_MAX_SIZE_REACHED`.
    #[error("the group has as many members, or bytes of members, as it may")]
    GroupMaxSizeReached,
    /// `POLICY_VIOLATION`: of groups, offsets, generations or protocols there are as many as there
    /// may be.
    #[error("there are as many as there may be")]
    PolicyViolation,
    /// `OFFSET_METADATA_TOO_LARGE`.
    #[error("the metadata is longer than it may be")]
    OffsetMetadataTooLarge,
    /// `GROUP_ID_NOT_FOUND`.
    #[error("there is no such group")]
    GroupIdNotFound,
    /// `NON_EMPTY_GROUP`.
    #[error("the group has members")]
    NonEmptyGroup,
    /// `GROUP_SUBSCRIBED_TO_TOPIC`.
    #[error("the group's members read this topic")]
    GroupSubscribedToTopic,
}
