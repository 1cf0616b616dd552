//! ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: who leads a partition, and who has it.

use crate::kafka::error::ErrorCode;

/// In AlterPartitionReassignments, behind the one that is to lead and in the place of the other replicas: those that it leads with.
/// Only our own programs say so: no broker has this number.
pub const WHICHEVER: i32 = -1;

message! {
    ElectLeadersRequest {
        1.. election_type: i8,
        /// None: all.
        0.. topic_partitions: Option<Vec<ElectedTopic>>,
        0.. timeout_ms: i32 = 60_000,
    }

    ElectedTopic {
        0.. topic: String,
        0.. partitions: Vec<i32>,
    }

    ElectLeadersResponse {
        0.. throttle_time_ms: i32,
        1.. error_code: ErrorCode,
        0.. replica_election_results: Vec<ElectionResult>,
    }

    ElectionResult {
        0.. topic: String,
        0.. partition_result: Vec<ElectedPartition>,
    }

    ElectedPartition {
        0.. partition_id: i32,
        0.. error_code: ErrorCode,
        0.. error_message: Option<String>,
    }

    AlterPartitionReassignmentsRequest {
        0.. timeout_ms: i32 = 60_000,
        0.. topics: Vec<ReassignableTopic>,
    }

    ReassignableTopic {
        0.. name: String,
        0.. partitions: Vec<ReassignablePartition>,
    }

    ReassignablePartition {
        0.. partition_index: i32,
        /// None: what is under way is given up.
        0.. replicas: Option<Vec<i32>>,
    }

    AlterPartitionReassignmentsResponse {
        0.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
        0.. error_message: Option<String>,
        0.. responses: Vec<ReassignedTopic>,
    }

    ReassignedTopic {
        0.. name: String,
        0.. partitions: Vec<ReassignedPartition>,
    }

    ReassignedPartition {
        0.. partition_index: i32,
        0.. error_code: ErrorCode,
        0.. error_message: Option<String>,
    }

    ListPartitionReassignmentsRequest {
        0.. timeout_ms: i32 = 60_000,
        /// None: all.
        0.. topics: Option<Vec<ListedReassignments>>,
    }

    ListedReassignments {
        0.. name: String,
        0.. partition_indexes: Vec<i32>,
    }

    ListPartitionReassignmentsResponse {
        0.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
        0.. error_message: Option<String>,
        0.. topics: Vec<OngoingTopic>,
    }

    OngoingTopic {
        0.. name: String,
        0.. partitions: Vec<OngoingPartition>,
    }

    OngoingPartition {
        0.. partition_index: i32,
        0.. replicas: Vec<i32>,
        0.. adding_replicas: Vec<i32>,
        0.. removing_replicas: Vec<i32>,
    }
}
