//! FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup: a member's life in a group.

use bytes::Bytes;

use crate::kafka::error::ErrorCode;
use crate::kafka::wire::{Layout, Malformed, Reader, Wire, Writer};

message! {
    FindCoordinatorRequest {
        0.. key: String,
        /// 0: of a group. 1: of transactions.
        1.. key_type: i8,
    }

    FindCoordinatorResponse {
        1.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
        1.. error_message: Option<String>,
        0.. node_id: i32,
        0.. host: String,
        0.. port: i32,
    }

    JoinGroupRequest {
        0.. group_id: String,
        0.. session_timeout_ms: i32,
        /// -1 in version 0: as long as the session's.
        1.. rebalance_timeout_ms: i32 = -1,
        0.. member_id: String,
        5.. group_instance_id: Option<String>,
        0.. protocol_type: String,
        0.. protocols: Vec<JoinGroupProtocol>,
    }

    JoinGroupProtocol {
        0.. name: String,
        /// A slice of the frame: whoever keeps it, copies it.
        0.. metadata: Bytes,
    }

    JoinGroupResponse {
        2.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
        0.. generation_id: i32 = -1,
        0.. protocol_name: String,
        0.. leader: String,
        0.. member_id: String,
        0.. members: Vec<JoinedMember>,
    }

    JoinedMember {
        0.. member_id: String,
        5.. group_instance_id: Option<String>,
        0.. metadata: Bytes,
    }

    SyncGroupRequest {
        0.. group_id: String,
        0.. generation_id: i32,
        0.. member_id: String,
        3.. group_instance_id: Option<String>,
        0.. assignments: Vec<SyncGroupAssignment>,
    }

    SyncGroupAssignment {
        0.. member_id: String,
        /// A slice of the frame: whoever keeps it, copies it.
        0.. assignment: Bytes,
    }

    /// What the bytes of a protocol's metadata are, where the protocol type is `consumer`.
    ConsumerSubscription {
        0.. version: i16,
        0.. topics: Vec<String>,
        0.. user_data: Option<Bytes>,
    }

    /// What the bytes of an assignment are, where the protocol type is `consumer`.
    ConsumerAssignment {
        0.. version: i16,
        0.. topics: Vec<AssignedTopic>,
        0.. user_data: Option<Bytes>,
    }

    AssignedTopic {
        0.. name: String,
        0.. partitions: Vec<i32>,
    }

    SyncGroupResponse {
        1.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
        0.. assignment: Bytes,
    }

    HeartbeatRequest {
        0.. group_id: String,
        0.. generation_id: i32,
        0.. member_id: String,
        3.. group_instance_id: Option<String>,
    }

    HeartbeatResponse {
        1.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
    }

    LeaveGroupRequest {
        0.. group_id: String,
        0..=2 member_id: String,
        3.. members: Vec<LeavingMember>,
    }

    LeavingMember {
        3.. member_id: String,
        3.. group_instance_id: Option<String>,
    }

    LeaveGroupResponse {
        1.. throttle_time_ms: i32,
        0.. error_code: ErrorCode,
        3.. members: Vec<LeftMember>,
    }

    LeftMember {
        3.. member_id: String,
        3.. group_instance_id: Option<String>,
        3.. error_code: ErrorCode,
    }
}

/// Bytes that the coordinator passes on, and never looks into.
macro_rules! passed_on {
    ($($name:ident)+) => {$(
        impl $name {
            /// Reads it; what a later version has behind it is passed over.
            pub fn of(bytes: Bytes) -> Result<Self, Malformed> {
                Self::read(&mut Reader::new(bytes, Layout::PLAIN))
            }

            /// Its bytes.
            #[must_use]
            pub fn bytes(&self) -> Bytes {
                let mut to = Writer::new(Layout::PLAIN);
                self.write(&mut to);
                to.pieces().concat().into()
            }
        }
    )+};
}

passed_on!(ConsumerSubscription ConsumerAssignment);
