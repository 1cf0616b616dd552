//! OffsetCommit, OffsetFetch and OffsetDelete: how far groups have come.

use crate::kafka::error::ErrorCode;

message! {
    OffsetCommitRequest {
        2.. group_id: String,
        2.. generation_id: i32 = -1,
        2.. member_id: String,
        7.. group_instance_id: Option<String>,
        2..=4 retention_time_ms: i64 = -1,
        2.. topics: Vec<OffsetCommitTopic>,
    }

    OffsetCommitTopic {
        2.. name: String,
        2.. partitions: Vec<OffsetCommitPartition>,
    }

    OffsetCommitPartition {
        2.. partition_index: i32,
        2.. committed_offset: i64,
        6.. committed_leader_epoch: i32 = -1,
        /// Comes back in OffsetFetch as it went in.
        2.. committed_metadata: Option<String>,
    }

    OffsetCommitResponse {
        3.. throttle_time_ms: i32,
        2.. topics: Vec<OffsetCommittedTopic>,
    }

    OffsetCommittedTopic {
        2.. name: String,
        2.. partitions: Vec<OffsetCommittedPartition>,
    }

    OffsetCommittedPartition {
        2.. partition_index: i32,
        2.. error_code: ErrorCode,
    }

    OffsetFetchRequest {
        1.. group_id: String,
        /// None (from version 2 on): all that the group has committed.
        1.. topics: Option<Vec<OffsetFetchTopic>>,
    }

    OffsetFetchTopic {
        1.. name: String,
        1.. partition_indexes: Vec<i32>,
    }

    OffsetFetchResponse {
        3.. throttle_time_ms: i32,
        1.. topics: Vec<OffsetFetchedTopic>,
        2.. error_code: ErrorCode,
    }

    OffsetFetchedTopic {
        1.. name: String,
        1.. partitions: Vec<OffsetFetchedPartition>,
    }

    OffsetFetchedPartition {
        1.. partition_index: i32,
        /// -1: none was committed.
        1.. committed_offset: i64,
        5.. committed_leader_epoch: i32 = -1,
        1.. metadata: Option<String>,
        1.. error_code: ErrorCode,
    }

    OffsetDeleteRequest {
        0.. group_id: String,
        0.. topics: Vec<OffsetDeleteTopic>,
    }

    OffsetDeleteTopic {
        0.. name: String,
        0.. partitions: Vec<i32>,
    }

    OffsetDeleteResponse {
        0.. error_code: ErrorCode,
        0.. throttle_time_ms: i32,
        0.. topics: Vec<OffsetDeletedTopic>,
    }

    OffsetDeletedTopic {
        0.. name: String,
        0.. partitions: Vec<OffsetDeletedPartition>,
    }

    OffsetDeletedPartition {
        0.. partition_index: i32,
        0.. error_code: ErrorCode,
    }
}
