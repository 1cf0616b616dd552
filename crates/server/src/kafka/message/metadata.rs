//! Metadata and DescribeCluster: brokers, topics, and who leads what.

use crate::kafka::error::ErrorCode;
use crate::kafka::value::Uuid;

/// What stands for "not asked for" where operations that a user may do are told.
const NOT_ASKED: i32 = i32::MIN;

message! {
    MetadataRequest {
        /// None: all topics. In version 0 an empty list says that, in later ones it means no topic.
        0.. topics: Option<Vec<MetadataRequestTopic>>,
        4.. allow_auto_topic_creation: bool = true,
        8..=10 include_cluster_authorized_operations: bool,
        8.. include_topic_authorized_operations: bool,
    }

    MetadataRequestTopic {
        /// Asked for by it from 12 on, where there is no name.
        10.. topic_id: Uuid,
        0.. name: Option<String>,
    }

    MetadataResponse {
        3.. throttle_time_ms: i32,
        0.. brokers: Vec<MetadataBroker>,
        2.. cluster_id: Option<String>,
        1.. controller_id: i32 = -1,
        0.. topics: Vec<MetadataTopic>,
        8..=10 cluster_authorized_operations: i32 = NOT_ASKED,
    }

    MetadataBroker {
        0.. node_id: i32,
        0.. host: String,
        0.. port: i32,
        1.. rack: Option<String>,
    }

    MetadataTopic {
        0.. error_code: ErrorCode,
        /// None (from 12 on): an id was asked for that no topic has.
        0.. name: Option<String>,
        10.. topic_id: Uuid,
        1.. is_internal: bool,
        0.. partitions: Vec<MetadataPartition>,
        8.. topic_authorized_operations: i32 = NOT_ASKED,
    }

    MetadataPartition {
        0.. error_code: ErrorCode,
        0.. partition_index: i32,
        0.. leader_id: i32,
        7.. leader_epoch: i32 = -1,
        0.. replica_nodes: Vec<i32>,
        0.. isr_nodes: Vec<i32>,
        5.. offline_replicas: Vec<i32>,
    }

    DescribeClusterRequest {
        0.. include_cluster_authorized_operations: bool,
    }

    DescribeClusterResponse {
        0.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
        0.. error_message: Option<String>,
        0.. cluster_id: String,
        0.. controller_id: i32 = -1,
        0.. brokers: Vec<ClusterBroker>,
        0.. cluster_authorized_operations: i32 = NOT_ASKED,
    }

    ClusterBroker {
        0.. broker_id: i32,
        0.. host: String,
        0.. port: i32,
        0.. rack: Option<String>,
    }
}

impl MetadataRequestTopic {
    /// The topic that is called so.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { topic_id: Uuid::ZERO, name: Some(name.to_owned()) }
    }
}
