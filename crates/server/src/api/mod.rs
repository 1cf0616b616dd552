//! What requests do to a node, and what clients are answered. No sockets: a request comes as a value,
//! and its answer is a future.
//!
//! What a request does first happens as it is asked, in the order in which a connection's requests
//! came; what it waits for, it waits for in its future.
//!
//! | file | what |
//! | --- | --- |
//! | `replicas.rs` | which brokers have the partitions of a topic that is to be |
//! | `session.rs` | who asks, of which node |
//! | `budget.rs` | the memory that requests and answers take, of all clients together |
//! | `heavy.rs` | what may take a CPU for long, beside others |
//! | `once.rs` | what a request says twice is answered once |
//! | `hints.rs` | who leads a partition, beside the error that sends a client there |
//! | `patience.rs` | how long a client waits for what is done for it |
//! | `problem.rs` | why something is not done, as a client is told |
//! | `produce.rs` | Produce, InitProducerId |
//! | `fetch.rs` | Fetch, and its long poll |
//! | `nearest.rs` | from which replica a consumer reads |
//! | `offsets.rs` | ListOffsets, OffsetsForLeaderEpoch, DeleteRecords |
//! | `metadata.rs` | ApiVersions, Metadata, DescribeCluster, DescribeLogDirs |
//! | `topics.rs` | CreateTopics, DeleteTopics, CreatePartitions |
//! | `configs.rs` | DescribeConfigs, IncrementalAlterConfigs |
//! | `members.rs` | FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup |
//! | `groups.rs` | DescribeGroups, ListGroups, DeleteGroups |
//! | `placing.rs` | ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments |
//! | `commits.rs` | OffsetCommit, OffsetFetch, OffsetDelete |

mod budget;
mod commits;
mod configs;
mod fetch;
mod groups;
mod heavy;
mod hints;
mod members;
mod metadata;
mod nearest;
mod offsets;
mod once;
mod patience;
mod placing;
mod problem;
mod produce;
mod replicas;
mod session;
mod topics;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub(crate) use self::budget::{Budget, NoRoom, Room};
pub(crate) use self::session::{Connected, Session};
use crate::kafka::band::{Request, Response};
use crate::kafka::frame::Header;

/// The answer to a request; none to a Produce with `acks=0`.
pub(crate) type Answer = BoxFuture<'static, Option<Told>>;

/// What a client is told, and the room that its records take.
pub(crate) struct Told {
    pub(crate) response: Response,
    pub(crate) room: Option<Room>,
}

/// Does what a request asks.
pub(crate) fn answer(session: &Session, header: Header, request: Request) -> Answer {
    let session = session.clone();
    match request {
        Request::Produce(request) => produce::produce(session, request, header.version),
        Request::Fetch(request) => fetch::fetch(session, request, header.version).map(Some).boxed(),
        Request::ListOffsets(request) => later(offsets::list(session, request)),
        Request::Metadata(request) => later(metadata::metadata(session, request, header.version)),
        Request::OffsetCommit(request) => later(commits::commit(session, request)),
        Request::OffsetFetch(request) => now(commits::fetch(&session, &request)),
        Request::FindCoordinator(request) => now(members::find(&session, &request)),
        Request::JoinGroup(request) => later(members::join(session, header, request)),
        Request::Heartbeat(request) => later(members::beat(session, request)),
        Request::LeaveGroup(request) => later(members::leave(session, request, header.version)),
        Request::SyncGroup(request) => later(members::sync(session, request)),
        Request::DescribeGroups(request) => now(groups::describe(&session, &request)),
        Request::ListGroups(_) => now(groups::list(&session)),
        Request::ApiVersions(_) => now(metadata::api_versions()),
        Request::CreateTopics(request) => later(topics::create(session, request)),
        Request::DeleteTopics(request) => later(topics::delete(session, request)),
        Request::DeleteRecords(request) => later(offsets::delete_records(session, request)),
        Request::InitProducerId(request) => later(produce::init_producer_id(session, request)),
        Request::OffsetsForLeaderEpoch(request) => now(offsets::for_epochs(&session, &request)),
        Request::DescribeConfigs(request) => now(configs::describe(&session, &request)),
        Request::DescribeLogDirs(request) => now(metadata::log_dirs(&session, &request)),
        Request::CreatePartitions(request) => later(topics::grow(session, request)),
        Request::DeleteGroups(request) => later(groups::delete(session, request)),
        Request::IncrementalAlterConfigs(request) => later(configs::alter(session, request)),
        Request::ElectLeaders(request) => later(placing::elect(session, request)),
        Request::AlterPartitionReassignments(request) => later(placing::reassign(session, request)),
        Request::ListPartitionReassignments(request) => {
            now(placing::reassignments(&session, &request))
        }
        Request::OffsetDelete(request) => later(commits::delete(session, request)),
        Request::DescribeCluster(_) => now(metadata::cluster(&session)),
    }
}

fn now(response: impl Into<Response>) -> Answer {
    std::future::ready(Some(response.into().into())).boxed()
}

fn later<R: Into<Response>>(response: impl Future<Output = R> + Send + 'static) -> Answer {
    async move { Some(response.await.into().into()) }.boxed()
}

impl From<Response> for Told {
    fn from(response: Response) -> Self {
        Self { response, room: None }
    }
}
