//! FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup: a member's life in a group.

use bytes::Bytes;

use super::session::{Broker, Session};
use crate::broker::Asked;
use crate::groups::{Answer, Beat, Join, Joined, Leave, Leaver, Protocol, Refusal, Sync, Synced};
use crate::kafka::error::ErrorCode;
use crate::kafka::frame::Header;
use crate::kafka::message::{
    FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, JoinedMember, LeaveGroupRequest, LeaveGroupResponse,
    LeftMember, SyncGroupRequest, SyncGroupResponse,
};
use crate::random;

/// The kind of a coordinator of transactions.
const TRANSACTIONS: i8 = 1;
/// From this version on a member must have its id before it is one.
const NEEDS_ID_SINCE: i16 = 4;
/// From this version on several members leave at once.
const LEAVE_MANY_SINCE: i16 = 3;

/// Every group's coordinator is the leader of the groups' shard. There is none of transactions: this error ends every client's
/// attempt within a second.
pub(super) fn find(session: &Session, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
    if request.key_type == TRANSACTIONS {
        return FindCoordinatorResponse {
            error_code: ErrorCode::TransactionalIdAuthorizationFailed,
            error_message: Some("there are no transactions here".to_owned()),
            node_id: -1,
            port: -1,
            ..FindCoordinatorResponse::default()
        };
    }
    let Some(broker) = session.broker(session.node.coordinator()) else {
        return FindCoordinatorResponse {
            error_code: ErrorCode::CoordinatorNotAvailable,
            error_message: Some("no broker coordinates groups now".to_owned()),
            node_id: -1,
            port: -1,
            ..FindCoordinatorResponse::default()
        };
    };
    let Broker { id: node_id, host, port, .. } = broker;
    FindCoordinatorResponse { node_id, host, port, ..FindCoordinatorResponse::default() }
}

pub(super) async fn join(
    session: Session,
    header: Header,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let client = header.client_id.unwrap_or_default();
    let fresh = fresh_id(&client);
    let rebalance_ms = match request.rebalance_timeout_ms {
        -1 => request.session_timeout_ms,
        ms => ms,
    };
    let protocols = request
        .protocols
        .into_iter()
        .map(|protocol| Protocol { name: protocol.name, metadata: kept(&protocol.metadata) });
    let member = request.member_id.clone();
    let join = Join {
        group: request.group_id,
        member: request.member_id,
        instance: request.group_instance_id,
        client,
        host: session.peer.to_string(),
        session_ms: request.session_timeout_ms,
        rebalance_ms,
        protocol_type: request.protocol_type,
        protocols: protocols.collect(),
        needs_id: header.version >= NEEDS_ID_SINCE,
    };
    match session.node.groups.ask(Asked::Join(join, fresh)).await {
        Answer::Joined(joined) => told(joined),
        Answer::TakeId(member_id) => {
            let error_code = ErrorCode::MemberIdRequired;
            JoinGroupResponse { error_code, member_id, ..JoinGroupResponse::default() }
        }
        answer => {
            let error_code = code_of(&answer);
            JoinGroupResponse { error_code, member_id: member, ..JoinGroupResponse::default() }
        }
    }
}

fn told(joined: Joined) -> JoinGroupResponse {
    let members = joined.members.into_iter();
    let members = members.map(|(member_id, group_instance_id, metadata)| JoinedMember {
        member_id,
        group_instance_id,
        metadata,
    });
    JoinGroupResponse {
        generation_id: joined.generation,
        protocol_name: joined.protocol,
        leader: joined.leader,
        member_id: joined.member,
        members: members.collect(),
        ..JoinGroupResponse::default()
    }
}

/// An id that no member ever had.
fn fresh_id(client: &str) -> String {
    let id = random::hex();
    if client.is_empty() { id } else { format!("{client}-{id}") }
}

/// What outlives its request does not keep the request's bytes.
fn kept(slice: &Bytes) -> Bytes {
    Bytes::copy_from_slice(slice)
}

pub(super) async fn sync(session: Session, request: SyncGroupRequest) -> SyncGroupResponse {
    let assignments = request.assignments.into_iter();
    let sync = Sync {
        group: request.group_id,
        generation: request.generation_id,
        member: request.member_id,
        instance: request.group_instance_id,
        assignments: assignments.map(|a| (a.member_id, kept(&a.assignment))).collect(),
    };
    match session.node.groups.ask(Asked::Sync(sync)).await {
        Answer::Synced(Synced { assignment }) => {
            SyncGroupResponse { assignment, ..SyncGroupResponse::default() }
        }
        answer => {
            let error_code = code_of(&answer);
            SyncGroupResponse { error_code, ..SyncGroupResponse::default() }
        }
    }
}

pub(super) async fn beat(session: Session, request: HeartbeatRequest) -> HeartbeatResponse {
    let beat = Beat {
        group: request.group_id,
        generation: request.generation_id,
        member: request.member_id,
        instance: request.group_instance_id,
    };
    let answer = session.node.groups.ask(Asked::Beat(beat)).await;
    HeartbeatResponse { error_code: code_of(&answer), ..HeartbeatResponse::default() }
}

pub(super) async fn leave(
    session: Session,
    request: LeaveGroupRequest,
    version: i16,
) -> LeaveGroupResponse {
    let is_many = version >= LEAVE_MANY_SINCE;
    let members: Vec<Leaver> = match is_many {
        true => {
            let members = request.members.into_iter();
            members.map(|m| Leaver { member: m.member_id, instance: m.group_instance_id }).collect()
        }
        false => vec![Leaver { member: request.member_id, instance: None }],
    };
    let leave = Leave { group: request.group_id, members: members.clone() };
    let each = match session.node.groups.ask(Asked::Leave(leave)).await {
        Answer::Each(each) => each,
        answer => {
            let error_code = code_of(&answer);
            return LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() };
        }
    };
    if !is_many {
        let error_code = each.first().map_or(ErrorCode::None, told_of);
        return LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() };
    }
    let members = members.into_iter().zip(&each).map(|(leaver, done)| LeftMember {
        member_id: leaver.member,
        group_instance_id: leaver.instance,
        error_code: told_of(done),
    });
    LeaveGroupResponse { members: members.collect(), ..LeaveGroupResponse::default() }
}

/// The code of an answer that is yes or no.
pub(super) fn code_of(answer: &Answer) -> ErrorCode {
    match answer {
        Answer::Refused(refusal) => ErrorCode::from(*refusal),
        Answer::Done => ErrorCode::None,
        other => unreachable!("{other:?} is not the answer to this"),
    }
}

/// The code of one of several.
pub(super) fn told_of(done: &Result<(), Refusal>) -> ErrorCode {
    done.as_ref().map_or_else(|refusal| ErrorCode::from(*refusal), |()| ErrorCode::None)
}

impl From<Refusal> for ErrorCode {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::InvalidGroupId => Self::InvalidGroupId,
            Refusal::NotCoordinator => Self::NotCoordinator,
            Refusal::UnknownMemberId => Self::UnknownMemberId,
            Refusal::FencedInstanceId => Self::FencedInstanceId,
            Refusal::IllegalGeneration => Self::IllegalGeneration,
            Refusal::RebalanceInProgress => Self::RebalanceInProgress,
            Refusal::InconsistentGroupProtocol => Self::InconsistentGroupProtocol,
            Refusal::InvalidSessionTimeout => Self::InvalidSessionTimeout,
            Refusal::GroupMaxSizeReached => Self::GroupMaxSizeReached,
            Refusal::PolicyViolation => Self::PolicyViolation,
            Refusal::OffsetMetadataTooLarge => Self::OffsetMetadataTooLarge,
            Refusal::GroupIdNotFound => Self::GroupIdNotFound,
            Refusal::NonEmptyGroup => Self::NonEmptyGroup,
            Refusal::GroupSubscribedToTopic => Self::GroupSubscribedToTopic,
        }
    }
}
