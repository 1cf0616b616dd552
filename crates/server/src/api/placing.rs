//! ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: who leads a partition, and who has it.
//!
//! All partitions of a shard are led by the same node, so one is asked for all of them. Every node has every shard.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use tokio::time::timeout;

use super::problem::Problem;
use super::session::{Located, Session};
use crate::broker::preferred;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ElectLeadersRequest,
    ElectLeadersResponse, ElectedPartition, ElectedTopic, ElectionResult,
    ListPartitionReassignmentsResponse, ReassignablePartition, ReassignedPartition,
    ReassignedTopic,
};

/// The kind of election after which the preferred replica leads.
const PREFERRED: i8 = 0;

/// Has whoever is preferred lead; no other kind of election is held.
pub(super) async fn elect(session: Session, request: ElectLeadersRequest) -> ElectLeadersResponse {
    let ElectLeadersRequest { election_type, topic_partitions, timeout_ms } = request;
    let asked_for_all = topic_partitions.is_none();
    let asked = topic_partitions.unwrap_or_else(|| all(&session));
    let patience = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    let (mut response, mut held) = (ElectLeadersResponse::default(), BTreeMap::new());
    for ElectedTopic { topic, partitions } in asked {
        let mut results = Vec::new();
        for partition_id in partitions {
            let at = session.locate(&session.node.topics.catalog(), &topic, partition_id);
            let Problem { code: error_code, message: error_message } = match at {
                Err(unknown) => unknown.into(),
                Ok(_) if election_type != PREFERRED => refused(),
                Ok(at) => {
                    let number = at.shard.number;
                    let Problem { code, message } = match held.entry(number) {
                        Entry::Occupied(held) => held.into_mut(),
                        Entry::Vacant(place) => {
                            let late = Problem::from(ErrorCode::RequestTimedOut);
                            let done = timeout(patience, elect_one(&session, &at)).await;
                            place.insert(done.unwrap_or(late))
                        }
                    };
                    Problem { code: *code, message: message.clone() }
                }
            };
            // Whoever asks for all is told of what was done.
            if !asked_for_all || error_code != ErrorCode::ElectionNotNeeded {
                results.push(ElectedPartition { partition_id, error_code, error_message });
            }
        }
        if !results.is_empty() {
            let result = ElectionResult { topic, partition_result: results };
            response.replica_election_results.push(result);
        }
    }
    response
}

fn all(session: &Session) -> Vec<ElectedTopic> {
    let catalog = session.node.topics.catalog();
    let topics = catalog.topics().filter(|(_, topic)| !topic.is_deleted);
    let all = topics.map(|(_, topic)| {
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        ElectedTopic { topic: topic.name.clone(), partitions: (0..count).collect() }
    });
    all.collect()
}

/// No problem where it leads now and did not before.
async fn elect_one(session: &Session, at: &Located) -> Problem {
    let (number, voters) = (at.shard.number, at.shard.group.voters());
    let leader = session.node.leader_of(&at.shard).id(session.node.members().here());
    let Some(to) = preferred(number, &voters) else {
        return ErrorCode::PreferredLeaderNotAvailable.into();
    };
    if leader == Some(to) {
        return Problem::new(ErrorCode::ElectionNotNeeded, "it leads already");
    }
    match session.node.leaders.move_to(number, to).await {
        Ok(()) => Problem::default(),
        Err(why) => Problem::new(ErrorCode::PreferredLeaderNotAvailable, why.to_string()),
    }
}

fn refused() -> Problem {
    let message = "a leader that may lack what was acknowledged is never elected: where a majority forgot, \
                   `plimsoll cluster recover` shows what is left, and asks";
    Problem::new(ErrorCode::InvalidRequest, message)
}

/// Refused: every node has all of it.
pub(super) fn reassign(
    session: &Session,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let catalog = session.node.topics.catalog();
    let one = |topic: &str, asked: ReassignablePartition| {
        let partition_index = asked.partition_index;
        let at = session.locate(&catalog, topic, partition_index).map_err(Problem::from);
        let problem = at.err().unwrap_or_else(|| match asked.replicas {
            None => Problem::new(ErrorCode::NoReassignmentInProgress, "none is under way"),
            Some(_) => {
                let message = "every partition is on all brokers of the cluster, and stays there";
                Problem::new(ErrorCode::InvalidReplicaAssignment, message)
            }
        });
        let Problem { code: error_code, message: error_message } = problem;
        ReassignedPartition { partition_index, error_code, error_message }
    };
    let responses = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|asked| one(&topic.name, asked));
        ReassignedTopic { partitions: partitions.collect(), name: topic.name }
    });
    let responses = responses.collect();
    AlterPartitionReassignmentsResponse { responses, ..<_>::default() }
}

/// None is ever under way.
pub(super) fn reassignments() -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse::default()
}
