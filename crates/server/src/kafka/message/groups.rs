//! DescribeGroups, ListGroups and DeleteGroups: groups, seen from outside.

use bytes::Bytes;

use crate::kafka::error::ErrorCode;

message! {
    DescribeGroupsRequest {
        0.. groups: Vec<String>,
        3.. include_authorized_operations: bool,
    }

    DescribeGroupsResponse {
        1.. throttle_time_ms: i32,
        0.. groups: Vec<DescribedGroup>,
    }

    DescribedGroup {
        0.. error_code: ErrorCode,
        0.. group_id: String,
        0.. group_state: String,
        0.. protocol_type: String,
        0.. protocol_data: String,
        0.. members: Vec<DescribedMember>,
        3.. authorized_operations: i32 = i32::MIN,
    }

    DescribedMember {
        0.. member_id: String,
        4.. group_instance_id: Option<String>,
        0.. client_id: String,
        0.. client_host: String,
        0.. member_metadata: Bytes,
        0.. member_assignment: Bytes,
    }

    ListGroupsRequest {}

    ListGroupsResponse {
        1.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
        0.. groups: Vec<ListedGroup>,
    }

    ListedGroup {
        0.. group_id: String,
        0.. protocol_type: String,
    }

    DeleteGroupsRequest {
        0.. groups_names: Vec<String>,
    }

    DeleteGroupsResponse {
        0.. throttle_time_ms: i32,
        0.. results: Vec<DeletedGroup>,
    }

    DeletedGroup {
        0.. group_id: String,
        0.. error_code: ErrorCode,
    }
}
