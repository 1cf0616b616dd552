//! Fetch, ListOffsets and OffsetsForLeaderEpoch: what consumers read, and from where.

use crate::kafka::error::ErrorCode;
use crate::kafka::message::{CurrentLeader, NodeEndpoint};
use crate::kafka::value::{Gathered, Uuid};

message! {
    FetchRequest {
        4..=14 replica_id: i32 = -1,
        4.. max_wait_ms: i32,
        4.. min_bytes: i32,
        4.. max_bytes: i32 = i32::MAX,
        4.. isolation_level: i8,
        7.. session_id: i32,
        7.. session_epoch: i32 = -1,
        4.. topics: Vec<FetchTopic>,
        7.. forgotten_topics_data: Vec<ForgottenTopic>,
        11.. rack_id: String,
        /// Of a broker that follows; -1 and -1 of a consumer.
        15.. @1 replica_state: ReplicaState,
    }

    ReplicaState {
        15.. replica_id: i32 = -1,
        15.. replica_epoch: i64 = -1,
    }

    FetchTopic {
        4..=12 topic: String,
        13.. topic_id: Uuid,
        4.. partitions: Vec<FetchPartition>,
    }

    FetchPartition {
        4.. partition: i32,
        9.. current_leader_epoch: i32 = -1,
        4.. fetch_offset: i64,
        /// The leader epoch of the record before; -1 is none.
        12.. last_fetched_epoch: i32 = -1,
        5.. log_start_offset: i64 = -1,
        4.. partition_max_bytes: i32,
    }

    ForgottenTopic {
        7..=12 topic: String,
        13.. topic_id: Uuid,
        7.. partitions: Vec<i32>,
    }

    FetchResponse {
        4.. throttle_time_ms: i32,
        7.. error_code: ErrorCode,
        7.. session_id: i32,
        4.. responses: Vec<FetchedTopic>,
        /// Where the leaders are that partitions name.
        16.. @0 node_endpoints: Vec<NodeEndpoint>,
    }

    FetchedTopic {
        4..=12 topic: String,
        13.. topic_id: Uuid,
        4.. partitions: Vec<FetchedPartition>,
    }

    FetchedPartition {
        4.. partition_index: i32,
        4.. error_code: ErrorCode,
        4.. high_watermark: i64,
        4.. last_stable_offset: i64 = -1,
        5.. log_start_offset: i64 = -1,
        4.. aborted_transactions: Option<Vec<AbortedTransaction>>,
        11.. preferred_read_replica: i32 = -1,
        /// Whole batches, from the one that holds the offset that was asked for.
        4.. records: Gathered,
        /// Where the records that the client has, and ours, begin to be others.
        12.. @0 diverging_epoch: DivergingEpoch,
        12.. @1 current_leader: CurrentLeader,
    }

    DivergingEpoch {
        12.. epoch: i32 = -1,
        12.. end_offset: i64 = -1,
    }

    AbortedTransaction {
        4.. producer_id: i64,
        4.. first_offset: i64,
    }

    ListOffsetsRequest {
        1.. replica_id: i32 = -1,
        2.. isolation_level: i8,
        1.. topics: Vec<ListOffsetsTopic>,
    }

    ListOffsetsTopic {
        1.. name: String,
        1.. partitions: Vec<ListOffsetsPartition>,
    }

    ListOffsetsPartition {
        1.. partition_index: i32,
        4.. current_leader_epoch: i32 = -1,
        /// The first offset at or behind it; -1 the next one, -2 the first one.
        1.. timestamp: i64,
    }

    ListOffsetsResponse {
        2.. throttle_time_ms: i32,
        1.. topics: Vec<ListedOffsetsTopic>,
    }

    ListedOffsetsTopic {
        1.. name: String,
        1.. partitions: Vec<ListedOffset>,
    }

    ListedOffset {
        1.. partition_index: i32,
        1.. error_code: ErrorCode,
        1.. timestamp: i64 = -1,
        1.. offset: i64 = -1,
        4.. leader_epoch: i32 = -1,
    }

    OffsetsForLeaderEpochRequest {
        /// -1: a consumer.
        3.. replica_id: i32 = -2,
        2.. topics: Vec<EpochTopic>,
    }

    EpochTopic {
        2.. topic: String,
        2.. partitions: Vec<EpochPartition>,
    }

    EpochPartition {
        2.. partition: i32,
        2.. current_leader_epoch: i32 = -1,
        2.. leader_epoch: i32,
    }

    OffsetsForLeaderEpochResponse {
        2.. throttle_time_ms: i32,
        2.. topics: Vec<EpochEndTopic>,
    }

    EpochEndTopic {
        2.. topic: String,
        2.. partitions: Vec<EpochEnd>,
    }

    EpochEnd {
        2.. error_code: ErrorCode,
        2.. partition: i32,
        2.. leader_epoch: i32 = -1,
        2.. end_offset: i64 = -1,
    }
}
