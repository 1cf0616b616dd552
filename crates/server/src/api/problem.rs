//! [`Problem`]: why what was asked for is not done, as a client is told.

use crate::broker::{CONTROL, Failed, Refused};
use crate::control::{Impossible, InvalidSetting};
use crate::kafka::error::ErrorCode;

/// A code, which a client acts on, and words for people where there are some.
#[derive(Debug, Default)]
pub(super) struct Problem {
    pub(super) code: ErrorCode,
    pub(super) message: Option<String>,
}

impl Problem {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    pub(super) fn no_topic() -> Self {
        Self::new(ErrorCode::UnknownTopicOrPartition, "there is no such topic")
    }
}

impl From<ErrorCode> for Problem {
    fn from(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

impl From<Refused> for Problem {
    fn from(why: Refused) -> Self {
        Self::new(code_of(&why), why.to_string())
    }
}

impl From<InvalidSetting> for Problem {
    fn from(why: InvalidSetting) -> Self {
        Self::new(ErrorCode::InvalidConfig, why.to_string())
    }
}

/// What a client is told of a change that is not made.
pub(crate) fn code_of(refused: &Refused) -> ErrorCode {
    match refused {
        Refused::Impossible(impossible) => match impossible {
            Impossible::Exists(_) | Impossible::IdExists => ErrorCode::TopicAlreadyExists,
            Impossible::NoSuchTopic
            | Impossible::NoSuchPartition(_)
            | Impossible::Deleted(_)
            | Impossible::NotDeleted(_) => ErrorCode::UnknownTopicOrPartition,
            Impossible::NoSuchShard(_) => ErrorCode::InvalidReplicaAssignment,
            Impossible::TooManyPartitions(_) => ErrorCode::InvalidPartitions,
            Impossible::Exhausted | Impossible::Backwards(..) | Impossible::HasMoved(_) => {
                ErrorCode::UnknownServerError
            }
        },
        Refused::Full { .. } => ErrorCode::InvalidPartitions,
        Refused::Unknown => ErrorCode::RequestTimedOut,
        Refused::Lacking { .. } => ErrorCode::UnsupportedVersion,
        Refused::Failed(Failed::NotLeader { number: CONTROL }) => ErrorCode::NotController,
        Refused::Failed(Failed::NotLeader { .. }) => ErrorCode::NotLeaderOrFollower,
        Refused::Failed(_) => ErrorCode::KafkaStorageError,
    }
}
