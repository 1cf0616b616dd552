//! Kafka's error codes that we use, and what a client does when it is told one.

use std::fmt;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)+) => {
        /// A code in an answer. *Retriable*: the client tries again by itself, within its timeout.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)+
            /// One that we have no use for, as another broker may send it.
            Other(i16),
        }

        impl From<i16> for ErrorCode {
            fn from(code: i16) -> Self {
                match code {
                    $($code => Self::$name,)+
                    _ => Self::Other(code),
                }
            }
        }

        impl From<ErrorCode> for i16 {
            fn from(error: ErrorCode) -> Self {
                match error {
                    $(ErrorCode::$name => $code,)+
                    ErrorCode::Other(code) => code,
                }
            }
        }
    };
}

error_codes! {
    /// Goes on.
    #[default]
    None = 0,
    /// Gives up: we have failed in a way that has no code.
    UnknownServerError = -1,
    /// A consumer begins again where its `auto.offset.reset` says.
    OffsetOutOfRange = 1,
    /// A producer sends the batch again: a checksum was wrong.
    CorruptMessage = 2,
    /// Asks for metadata and tries again (retriable): also where a topic is being made.
    UnknownTopicOrPartition = 3,
    /// Gives up: a fetch of a negative size.
    InvalidFetchSize = 4,
    /// Asks for metadata and tries again (retriable): a partition has no leader now.
    LeaderNotAvailable = 5,
    /// Asks for metadata and tries the new leader (retriable).
    NotLeaderOrFollower = 6,
    /// Tries again (retriable): whether a produce took effect is not known.
    RequestTimedOut = 7,
    /// Gives up, or splits the batch: it is larger than the topic takes.
    MessageTooLarge = 10,
    /// Gives up: metadata of an offset is longer than a group takes.
    OffsetMetadataTooLarge = 12,
    /// Tries again (retriable): the coordinator reads its log.
    CoordinatorLoadInProgress = 14,
    /// Looks for a coordinator and tries again (retriable): there is none now.
    CoordinatorNotAvailable = 15,
    /// Looks for the coordinator and tries there (retriable).
    NotCoordinator = 16,
    /// Gives up: no topic may have that name.
    InvalidTopicException = 17,
    /// Gives up: a batch is larger than a segment.
    RecordListTooLarge = 18,
    /// Tries again (retriable): too few replicas are there for `acks=all`.
    NotEnoughReplicas = 19,
    /// Tries again (retriable): too few replicas had the batch; it may be there twice.
    NotEnoughReplicasAfterAppend = 20,
    /// Gives up: acks is not -1, 0 or 1.
    InvalidRequiredAcks = 21,
    /// A member joins again: the group has gone on to another generation.
    IllegalGeneration = 22,
    /// Gives up: members of the group share no protocol.
    InconsistentGroupProtocol = 23,
    /// Gives up: a group must have a name.
    InvalidGroupId = 24,
    /// A member joins again as a new one.
    UnknownMemberId = 25,
    /// Gives up: the session timeout is out of bounds.
    InvalidSessionTimeout = 26,
    /// A member joins again, and keeps its id: the group is being balanced.
    RebalanceInProgress = 27,
    /// Gives up: an offset cannot be committed at that size.
    InvalidCommitOffsetSize = 28,
    /// Gives up: the user may not, on this topic.
    TopicAuthorizationFailed = 29,
    /// Gives up: the user may not, on this group.
    GroupAuthorizationFailed = 30,
    /// Gives up: the user may not, on the cluster.
    ClusterAuthorizationFailed = 31,
    /// Gives up: a timestamp, or its type, is not one that a producer may set.
    InvalidTimestamp = 32,
    /// Speaks an older version: ApiVersions says which there are.
    UnsupportedVersion = 35,
    /// Gives up, or is content: the topic is there.
    TopicAlreadyExists = 36,
    /// Gives up: a topic cannot have so many partitions.
    InvalidPartitions = 37,
    /// Gives up: a topic cannot have so many replicas.
    InvalidReplicationFactor = 38,
    /// Gives up: partitions cannot be placed like this.
    InvalidReplicaAssignment = 39,
    /// Gives up: no configuration has that value.
    InvalidConfig = 40,
    /// Asks for metadata and tries the controller (retriable).
    NotController = 41,
    /// Gives up: the request contradicts itself.
    InvalidRequest = 42,
    /// Gives up: the format of the messages is too old for this.
    UnsupportedForMessageFormat = 43,
    /// Gives up: a policy forbids it.
    PolicyViolation = 44,
    /// A producer asks for a new epoch or stops: a batch is missing before this one.
    OutOfOrderSequenceNumber = 45,
    /// A producer is content: the batch was there before.
    DuplicateSequenceNumber = 46,
    /// A producer stops: another has its id by now.
    InvalidProducerEpoch = 47,
    /// A producer stops: there is no such transaction.
    InvalidTxnState = 48,
    /// A producer stops at once: no transactions here (this is what ends every client in a second).
    TransactionalIdAuthorizationFailed = 53,
    /// Tries again (retriable): the disk of the partition has failed.
    KafkaStorageError = 56,
    /// A producer asks for a new epoch: we do not know its id (any more).
    UnknownProducerId = 59,
    /// Tries again (retriable): partitions are being moved.
    ReassignmentInProgress = 60,
    /// Gives up: members are in the group.
    NonEmptyGroup = 68,
    /// Gives up, or is content: there is no such group.
    GroupIdNotFound = 69,
    /// A consumer fetches without a session.
    FetchSessionIdNotFound = 70,
    /// A consumer fetches without a session.
    InvalidFetchSessionEpoch = 71,
    /// Asks for metadata and tries again (retriable): it has an old leader epoch.
    FencedLeaderEpoch = 74,
    /// Asks for metadata and tries again (retriable): it has a leader epoch that we have not.
    UnknownLeaderEpoch = 75,
    /// Gives up: a compression that this version must not use, or that there is not.
    UnsupportedCompressionType = 76,
    /// Tries again (retriable): the leader does not know yet what is committed.
    OffsetNotAvailable = 78,
    /// A member joins again with the id that it was just given.
    MemberIdRequired = 79,
    /// Tries again (retriable): there is no leader to prefer.
    PreferredLeaderNotAvailable = 80,
    /// Gives up: the group has as many members as it may.
    GroupMaxSizeReached = 81,
    /// A member stops: another has its instance id.
    FencedInstanceId = 82,
    /// An operator's tool is content: the replica that is preferred leads.
    ElectionNotNeeded = 84,
    /// An operator's tool gives up: nothing is under way that it could give up.
    NoReassignmentInProgress = 85,
    /// Gives up: a member of the group is subscribed to the topic.
    GroupSubscribedToTopic = 86,
    /// A producer gives up: a batch breaks a rule, and would break it again.
    InvalidRecord = 87,
    /// Commits again later (retriable): the offset may change.
    UnstableOffsetCommit = 88,
    /// Waits and tries again (retriable): too many requests of that kind.
    ThrottlingQuotaExceeded = 89,
    /// A producer stops: another has its transactional id by now.
    ProducerFenced = 90,
    /// Asks for metadata and tries again (retriable): no topic has that id, or none any more.
    UnknownTopicId = 100,
}

/// In words, with the number that manuals know it by.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Other(code) = self {
            return write!(f, "error {code}");
        }
        for (place, letter) in format!("{self:?}").char_indices() {
            if place > 0 && letter.is_ascii_uppercase() {
                f.write_str(" ")?;
            }
            write!(f, "{}", letter.to_ascii_lowercase())?;
        }
        write!(f, " (error {})", i16::from(*self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_told_in_words() {
        let said = ErrorCode::NotLeaderOrFollower.to_string();
        assert_eq!(said, "not leader or follower (error 6)");
        assert_eq!(ErrorCode::Other(99).to_string(), "error 99");
    }

    #[test]
    fn a_code_comes_back_as_it_went() {
        for code in i16::MIN..=i16::MAX {
            assert_eq!(i16::from(ErrorCode::from(code)), code);
        }
    }
}
