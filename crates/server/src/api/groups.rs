//! DescribeGroups, ListGroups and DeleteGroups: groups, seen from outside.

use super::members::code_of;
use super::once::once;
use super::session::Session;
use crate::broker::Asked;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    DeleteGroupsRequest, DeleteGroupsResponse, DeletedGroup, DescribeGroupsRequest,
    DescribeGroupsResponse, DescribedGroup, DescribedMember, ListGroupsResponse, ListedGroup,
};

pub(super) fn describe(
    session: &Session,
    request: &DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    if !session.node.groups.is_read_here() {
        let refused = |id: &String| DescribedGroup {
            error_code: ErrorCode::NotCoordinator,
            group_id: id.clone(),
            ..DescribedGroup::default()
        };
        let groups = once(&request.groups, |id| *id).into_iter().map(refused).collect();
        return DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() };
    }
    let groups = session.node.groups.groups();
    let described = once(&request.groups, |id| *id).into_iter().map(|id| {
        let group = groups.describe(id);
        let members = group.members.into_iter().map(|member| DescribedMember {
            member_id: member.member,
            group_instance_id: member.instance,
            client_id: member.client,
            client_host: member.host,
            member_metadata: member.metadata,
            member_assignment: member.assignment,
        });
        DescribedGroup {
            group_id: id.clone(),
            group_state: group.phase.to_string(),
            protocol_type: group.protocol_type,
            protocol_data: group.protocol,
            members: members.collect(),
            ..DescribedGroup::default()
        }
    });
    DescribeGroupsResponse { groups: described.collect(), ..DescribeGroupsResponse::default() }
}

/// Those that this node coordinates: clients ask every broker.
pub(super) fn list(session: &Session) -> ListGroupsResponse {
    if !session.node.groups.is_read_here() {
        return ListGroupsResponse::default();
    }
    let groups = session.node.groups.groups();
    let listed = groups
        .list()
        .map(|listed| ListedGroup { group_id: listed.group, protocol_type: listed.protocol_type });
    ListGroupsResponse { groups: listed.collect(), ..ListGroupsResponse::default() }
}

pub(super) async fn delete(session: Session, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let mut response = DeleteGroupsResponse::default();
    for group_id in request.groups_names {
        let answer = session.node.groups.ask(Asked::Delete(group_id.clone())).await;
        response.results.push(DeletedGroup { group_id, error_code: code_of(&answer) });
    }
    response
}
