//! CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords: topics come, grow and go.

use crate::kafka::error::ErrorCode;

message! {
    CreateTopicsRequest {
        2.. topics: Vec<CreatableTopic>,
        2.. timeout_ms: i32 = 60_000,
        2.. validate_only: bool,
    }

    CreatableTopic {
        2.. name: String,
        /// -1: as many as the broker likes, or as there are assignments.
        2.. num_partitions: i32,
        /// -1: as many as the broker likes, or as there are assignments.
        2.. replication_factor: i16,
        2.. assignments: Vec<ReplicaAssignment>,
        2.. configs: Vec<TopicConfig>,
    }

    ReplicaAssignment {
        2.. partition_index: i32,
        2.. broker_ids: Vec<i32>,
    }

    TopicConfig {
        2.. name: String,
        2.. value: Option<String>,
    }

    CreateTopicsResponse {
        2.. throttle_time_ms: i32,
        2.. topics: Vec<CreatedTopic>,
    }

    CreatedTopic {
        2.. name: String,
        2.. error_code: ErrorCode,
        2.. error_message: Option<String>,
    }

    DeleteTopicsRequest {
        1.. topic_names: Vec<String>,
        1.. timeout_ms: i32,
    }

    DeleteTopicsResponse {
        1.. throttle_time_ms: i32,
        1.. responses: Vec<DeletedTopic>,
    }

    DeletedTopic {
        1.. name: String,
        1.. error_code: ErrorCode,
    }

    CreatePartitionsRequest {
        0.. topics: Vec<GrowingTopic>,
        0.. timeout_ms: i32,
        0.. validate_only: bool,
    }

    GrowingTopic {
        0.. name: String,
        /// How many it shall have together with those it has.
        0.. count: i32,
        0.. assignments: Option<Vec<PartitionAssignment>>,
    }

    PartitionAssignment {
        0.. broker_ids: Vec<i32>,
    }

    CreatePartitionsResponse {
        0.. throttle_time_ms: i32,
        0.. results: Vec<GrownTopic>,
    }

    GrownTopic {
        0.. name: String,
        0.. error_code: ErrorCode,
        0.. error_message: Option<String>,
    }

    DeleteRecordsRequest {
        0.. topics: Vec<DeleteRecordsTopic>,
        0.. timeout_ms: i32,
    }

    DeleteRecordsTopic {
        0.. name: String,
        0.. partitions: Vec<DeleteRecordsPartition>,
    }

    DeleteRecordsPartition {
        0.. partition_index: i32,
        /// Records before it go; -1: all that are committed.
        0.. offset: i64,
    }

    DeleteRecordsResponse {
        0.. throttle_time_ms: i32,
        0.. topics: Vec<DeletedRecordsTopic>,
    }

    DeletedRecordsTopic {
        0.. name: String,
        0.. partitions: Vec<DeletedRecordsPartition>,
    }

    DeletedRecordsPartition {
        0.. partition_index: i32,
        0.. low_watermark: i64,
        0.. error_code: ErrorCode,
    }
}
