//! Produce and InitProducerId: what producers send.

use bytes::Bytes;

use crate::kafka::error::ErrorCode;

message! {
    ProduceRequest {
        3.. transactional_id: Option<String>,
        3.. acks: i16,
        3.. timeout_ms: i32,
        3.. topic_data: Vec<ProduceTopic>,
    }

    ProduceTopic {
        3.. name: String,
        3.. partition_data: Vec<ProducePartition>,
    }

    ProducePartition {
        3.. index: i32,
        /// As they came, not looked at: [`Batch::produced`](crate::kafka::batch::Batch::produced).
        3.. records: Option<Bytes>,
    }

    /// Not sent at all where acks were 0.
    ProduceResponse {
        3.. responses: Vec<ProducedTopic>,
        3.. throttle_time_ms: i32,
        /// Where the leaders are that partitions name.
        10.. @0 node_endpoints: Vec<NodeEndpoint>,
    }

    ProducedTopic {
        3.. name: String,
        3.. partition_responses: Vec<ProducedPartition>,
    }

    ProducedPartition {
        3.. index: i32,
        3.. error_code: ErrorCode,
        3.. base_offset: i64,
        /// -1, unless the topic is stamped with the time of appending.
        3.. log_append_time_ms: i64 = -1,
        5.. log_start_offset: i64 = -1,
        8.. record_errors: Vec<RecordError>,
        8.. error_message: Option<String>,
        10.. @0 current_leader: CurrentLeader,
    }

    /// Who leads a partition; -1 where that is not said.
    CurrentLeader {
        0.. leader_id: i32 = -1,
        0.. leader_epoch: i32 = -1,
    }

    NodeEndpoint {
        0.. node_id: i32,
        0.. host: String,
        0.. port: i32,
        0.. rack: Option<String>,
    }

    RecordError {
        8.. batch_index: i32,
        8.. batch_index_error_message: Option<String>,
    }

    InitProducerIdRequest {
        0.. transactional_id: Option<String>,
        0.. transaction_timeout_ms: i32,
        3.. producer_id: i64 = -1,
        3.. producer_epoch: i16 = -1,
    }

    InitProducerIdResponse {
        0.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
        0.. producer_id: i64 = -1,
        0.. producer_epoch: i16,
    }
}
