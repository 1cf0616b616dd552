//! The band of the protocol that we speak: which APIs, in which versions, with which messages.
//!
//! It ends where every client that was tried has what it needs. Flexible versions are there where
//! clients learn of a new leader from an error: Produce, Fetch and Metadata (decision 0018). What a client is told and what is
//! served differ once: librdkafka before 2.11.1 stops compressing, without a word, where Produce is
//! not told from 0 on, and then sends 3 or later anyway.

use std::ops::RangeInclusive;

use super::message;
use super::wire::{Layout, Malformed, Reader, Wire, Writer};

/// One enum of messages, a variant for each API.
macro_rules! messages {
    ($(#[$what:meta])+ $messages:ident { $($api:ident($message:ident))+ }) => {
        $(#[$what])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $messages {
            $(#[doc = concat!("Of ", stringify!($api), ".")] $api(message::$message),)+
        }

        impl $messages {
            /// Of which API it is.
            #[must_use]
            pub const fn api(&self) -> Api {
                match self {
                    $(Self::$api(_) => Api::$api,)+
                }
            }

            pub(super) fn read(api: Api, from: &mut Reader) -> Result<Self, Malformed> {
                match api {
                    $(Api::$api => message::$message::read(from).map(Self::$api),)+
                }
            }

            pub(super) fn write(&self, to: &mut Writer) {
                match self {
                    $(Self::$api(message) => message.write(to),)+
                }
            }
        }

        $(
            impl From<message::$message> for $messages {
                fn from(message: message::$message) -> Self {
                    Self::$api(message)
                }
            }
        )+
    };
}

/// The APIs, and the messages of each.
macro_rules! band {
    ($($api:ident = $key:literal: told $told:expr, served $served:expr;
        $request:ident -> $response:ident)+) => {
        /// An API that is served.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Api {
            $(#[doc = concat!("Key ", $key, ".")] $api,)+
        }

        impl Api {
            /// All of them, in the order of their keys.
            pub const ALL: &[Self] = &[$(Self::$api,)+];

            /// What it is called by on the wire.
            #[must_use]
            pub const fn key(self) -> i16 {
                match self {
                    $(Self::$api => $key,)+
                }
            }

            /// The one with this key, if it is served.
            #[must_use]
            pub const fn with_key(key: i16) -> Option<Self> {
                match key {
                    $($key => Some(Self::$api),)+
                    _ => None,
                }
            }

            /// The versions that ApiVersions tells.
            #[must_use]
            pub const fn told(self) -> RangeInclusive<i16> {
                match self {
                    $(Self::$api => $told,)+
                }
            }

            /// The versions that are understood and answered.
            #[must_use]
            pub const fn served(self) -> RangeInclusive<i16> {
                match self {
                    $(Self::$api => $served,)+
                }
            }
        }

        messages! {
            /// What a client asks.
            Request { $($api($request))+ }
        }

        messages! {
            /// What a client is answered.
            Response { $($api($response))+ }
        }

        impl Response {
            /// Says for how long its request was held, because of a bound, before it was taken.
            pub(crate) fn held_for(&mut self, ms: i32) {
                match self {
                    $(Self::$api(response) => response.throttle_time_ms = ms,)+
                }
            }
        }

        $(
            impl Question for message::$request {
                type Answer = message::$response;

                fn answer(response: Response) -> Option<Self::Answer> {
                    match response {
                        Response::$api(response) => Some(response),
                        _ => None,
                    }
                }
            }
        )+

        /// A message of each kind, drawn with dice, or shown beside its bytes.
        #[cfg(test)]
        pub(super) mod drawn {
            use super::{Api, Request, Response, message};
            use crate::kafka::tests::sample::{Dice, Lines, Sample};

            pub(in crate::kafka) fn request(api: Api, dice: &mut Dice<'_>) -> Request {
                match api {
                    $(Api::$api => Request::$api(message::$request::sample(dice)),)+
                }
            }

            pub(in crate::kafka) fn response(api: Api, dice: &mut Dice<'_>) -> Response {
                match api {
                    $(Api::$api => Response::$api(message::$response::sample(dice)),)+
                }
            }

            pub(in crate::kafka) fn show_request(request: &Request, lines: &mut Lines) {
                match request {
                    $(Request::$api(request) => request.show(stringify!($request), lines),)+
                }
            }

            pub(in crate::kafka) fn show_response(response: &Response, lines: &mut Lines) {
                match response {
                    $(Response::$api(response) => response.show(stringify!($response), lines),)+
                }
            }
        }
    };
}

band! {
    Produce = 0: told 0..=10, served 3..=10; ProduceRequest -> ProduceResponse
    Fetch = 1: told 4..=16, served 4..=16; FetchRequest -> FetchResponse
    ListOffsets = 2: told 1..=5, served 1..=5; ListOffsetsRequest -> ListOffsetsResponse
    Metadata = 3: told 0..=12, served 0..=12; MetadataRequest -> MetadataResponse
    OffsetCommit = 8: told 2..=7, served 2..=7; OffsetCommitRequest -> OffsetCommitResponse
    OffsetFetch = 9: told 1..=5, served 1..=5; OffsetFetchRequest -> OffsetFetchResponse
    FindCoordinator = 10: told 0..=2, served 0..=2;
        FindCoordinatorRequest -> FindCoordinatorResponse
    JoinGroup = 11: told 0..=5, served 0..=5; JoinGroupRequest -> JoinGroupResponse
    Heartbeat = 12: told 0..=3, served 0..=3; HeartbeatRequest -> HeartbeatResponse
    LeaveGroup = 13: told 0..=3, served 0..=3; LeaveGroupRequest -> LeaveGroupResponse
    SyncGroup = 14: told 0..=3, served 0..=3; SyncGroupRequest -> SyncGroupResponse
    DescribeGroups = 15: told 0..=4, served 0..=4;
        DescribeGroupsRequest -> DescribeGroupsResponse
    ListGroups = 16: told 0..=2, served 0..=2; ListGroupsRequest -> ListGroupsResponse
    ApiVersions = 18: told 0..=3, served 0..=3; ApiVersionsRequest -> ApiVersionsResponse
    CreateTopics = 19: told 2..=4, served 2..=4; CreateTopicsRequest -> CreateTopicsResponse
    DeleteTopics = 20: told 1..=3, served 1..=3; DeleteTopicsRequest -> DeleteTopicsResponse
    DeleteRecords = 21: told 0..=1, served 0..=1; DeleteRecordsRequest -> DeleteRecordsResponse
    InitProducerId = 22: told 0..=4, served 0..=4;
        InitProducerIdRequest -> InitProducerIdResponse
    OffsetsForLeaderEpoch = 23: told 2..=3, served 2..=3;
        OffsetsForLeaderEpochRequest -> OffsetsForLeaderEpochResponse
    DescribeConfigs = 32: told 1..=2, served 1..=2;
        DescribeConfigsRequest -> DescribeConfigsResponse
    DescribeLogDirs = 35: told 1..=1, served 1..=1;
        DescribeLogDirsRequest -> DescribeLogDirsResponse
    CreatePartitions = 37: told 0..=1, served 0..=1;
        CreatePartitionsRequest -> CreatePartitionsResponse
    DeleteGroups = 42: told 0..=1, served 0..=1; DeleteGroupsRequest -> DeleteGroupsResponse
    ElectLeaders = 43: told 0..=1, served 0..=1; ElectLeadersRequest -> ElectLeadersResponse
    IncrementalAlterConfigs = 44: told 0..=0, served 0..=0;
        IncrementalAlterConfigsRequest -> IncrementalAlterConfigsResponse
    AlterPartitionReassignments = 45: told 0..=0, served 0..=0;
        AlterPartitionReassignmentsRequest -> AlterPartitionReassignmentsResponse
    ListPartitionReassignments = 46: told 0..=0, served 0..=0;
        ListPartitionReassignmentsRequest -> ListPartitionReassignmentsResponse
    OffsetDelete = 47: told 0..=0, served 0..=0; OffsetDeleteRequest -> OffsetDeleteResponse
    DescribeCluster = 60: told 0..=0, served 0..=0;
        DescribeClusterRequest -> DescribeClusterResponse
}

/// A request, and what answers it.
pub trait Question: Into<Request> {
    /// What answers it.
    type Answer;

    /// The answer in a response; `None` if it is that of another API.
    fn answer(response: Response) -> Option<Self::Answer>;
}

impl Api {
    /// How its messages lie in `version`.
    #[must_use]
    pub const fn layout(self, version: i16) -> Layout {
        let flexible = match self {
            Self::Produce | Self::Metadata => version >= 9,
            Self::Fetch => version >= 12,
            Self::ApiVersions => version >= 3,
            Self::InitProducerId => version >= 2,
            Self::DescribeCluster
            | Self::AlterPartitionReassignments
            | Self::ListPartitionReassignments => true,
            _ => false,
        };
        Layout { version, flexible }
    }
}
