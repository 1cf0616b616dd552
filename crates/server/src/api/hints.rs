//! [`Hints`]: who leads a partition, told beside the error that sends a client there, so that it need
//! not ask for metadata first.

use std::collections::BTreeMap;

use crate::kafka::error::ErrorCode;
use crate::kafka::message::{CurrentLeader, NodeEndpoint};

/// Who leads a partition, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaderHint {
    pub(super) node: i32,
    pub(super) epoch: i32,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) rack: Option<String>,
}

/// The leaders that an answer names: each of them once, however many partitions it leads.
#[derive(Debug, Default)]
pub(super) struct Hints {
    endpoints: BTreeMap<i32, NodeEndpoint>,
}

impl Hints {
    /// What a partition's answer says of its leader: something only where the client came to the wrong
    /// broker, or with an old epoch, and the leader is known.
    pub(super) fn of(
        &mut self,
        error: ErrorCode,
        leader: impl FnOnce() -> Option<LeaderHint>,
    ) -> CurrentLeader {
        let sends_on =
            matches!(error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
        let Some(LeaderHint { node, epoch, host, port, rack }) = sends_on.then(leader).flatten()
        else {
            return CurrentLeader::default();
        };
        let port = port.into();
        self.endpoints.insert(node, NodeEndpoint { node_id: node, host, port, rack });
        CurrentLeader { leader_id: node, leader_epoch: epoch }
    }

    /// Where they all are.
    pub(super) fn endpoints(self) -> Vec<NodeEndpoint> {
        self.endpoints.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::band::{Api, Response};
    use crate::kafka::message::{ProduceResponse, ProducedPartition, ProducedTopic};

    fn second() -> Option<LeaderHint> {
        let rack = Some("r".to_owned());
        Some(LeaderHint { node: 2, epoch: 9, host: "b".to_owned(), port: 9092, rack })
    }

    #[test]
    fn a_leader_is_told_where_an_error_sends_a_client_to_it() {
        let mut hints = Hints::default();
        let told = CurrentLeader { leader_id: 2, leader_epoch: 9 };
        assert_eq!(hints.of(ErrorCode::NotLeaderOrFollower, second), told);
        assert_eq!(hints.of(ErrorCode::FencedLeaderEpoch, second), told);
        assert_eq!(hints.endpoints().len(), 1, "each once");

        let mut hints = Hints::default();
        for error in [ErrorCode::None, ErrorCode::KafkaStorageError, ErrorCode::UnknownLeaderEpoch]
        {
            assert_eq!(hints.of(error, second), CurrentLeader::default());
        }
        assert_eq!(
            hints.of(ErrorCode::NotLeaderOrFollower, || None),
            CurrentLeader::default(),
            "nobody knows"
        );
        assert_eq!(hints.endpoints(), []);
    }

    /// As a producer of that version finds it, and one that is older does not.
    #[test]
    fn a_hint_of_a_produce_is_two_tags() {
        let mut hints = Hints::default();
        let error_code = ErrorCode::NotLeaderOrFollower;
        let current_leader = hints.of(error_code, second);
        let partition = ProducedPartition {
            error_code,
            base_offset: -1,
            current_leader,
            ..ProducedPartition::default()
        };
        let topic = ProducedTopic { name: "t".to_owned(), partition_responses: vec![partition] };
        let node_endpoints = hints.endpoints();
        let response = ProduceResponse { responses: vec![topic], node_endpoints, ..<_>::default() };
        let response = Response::from(response);
        let bytes = |version| response.encode(version, 0).concat();
        let leader = [1, 0, 9, 0, 0, 0, 2, 0, 0, 0, 9, 0];
        let broker = [1, 0, 14, 2, 0, 0, 0, 2, 2, b'b', 0, 0, 0x23, 0x84, 2, b'r', 0];
        let tagged = bytes(10);
        assert!(tagged.windows(leader.len()).any(|window| window == leader), "{tagged:?}");
        assert!(tagged.ends_with(&broker), "{tagged:?}");
        assert_eq!(bytes(9).len() + leader.len() + broker.len() - 2, tagged.len());
        let again = Response::decode(Api::Produce, 10, bytes::Bytes::from(tagged).slice(4..));
        assert_eq!(again, Ok((0, response)));
    }
}
