//! [`Member`]: a consumer in a group, by Kafka's classic protocol.
//!
//! A member joins and is given partitions of its topic. It beats while it reads them, says how far it
//! came, and leaves. When others join or leave, it is refused as one of an older generation and joins
//! again. Where it leads the group it assigns by range, as Kafka's clients do unless told otherwise.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::error::Error;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    AssignedTopic, ConsumerAssignment, ConsumerSubscription, HeartbeatRequest, JoinGroupProtocol,
    JoinGroupRequest, JoinGroupResponse, JoinedMember, LeaveGroupRequest, LeavingMember,
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, SyncGroupAssignment,
    SyncGroupRequest,
};

/// Who does not beat for so long has gone.
const SESSION_MS: i32 = 30_000;
/// Who does not join again for so long when others do has gone.
const REBALANCE_MS: i32 = 20_000;
/// How often it beats.
const BEAT: Duration = Duration::from_secs(1);

/// A consumer of a topic in a group. It is in none before it joins.
#[derive(Debug)]
pub struct Member {
    group: String,
    topic: String,
    id: String,
    generation: i32,
    beaten: Instant,
}

impl Member {
    /// One that has not joined. What it commits is taken only while nobody is in the group.
    #[must_use]
    pub fn new(group: &str, topic: &str) -> Self {
        let (group, topic, id) = (group.to_owned(), topic.to_owned(), String::new());
        Self { group, topic, id, generation: -1, beaten: Instant::now() }
    }

    /// Whether this means that it is not one of the group's generation any more, and may join the next.
    #[must_use]
    pub const fn must_join(error: &Error) -> bool {
        matches!(
            error.code(),
            Some(
                ErrorCode::RebalanceInProgress
                    | ErrorCode::IllegalGeneration
                    | ErrorCode::UnknownMemberId
                    | ErrorCode::NotCoordinator
                    | ErrorCode::CoordinatorLoadInProgress
                    | ErrorCode::CoordinatorNotAvailable
            )
        )
    }

    /// Joins with all who are in the group, and waits for them. The partitions that it is given.
    pub fn join(&mut self, cluster: &mut Cluster) -> Result<Vec<i32>, Error> {
        let mut joined = self.ask_to_join(cluster)?;
        if joined.error_code == ErrorCode::MemberIdRequired {
            self.id = joined.member_id;
            joined = self.ask_to_join(cluster)?;
        }
        self.check(joined.error_code)?;
        (self.id, self.generation) = (joined.member_id, joined.generation_id);
        let assignments = match joined.leader == self.id {
            true => assign(cluster, &joined.members)?,
            false => Vec::new(),
        };
        let synced = cluster.coordinator(&self.group)?.call(SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            assignments,
            ..SyncGroupRequest::default()
        })?;
        self.check(synced.error_code)?;
        self.beaten = Instant::now();
        // Whoever is given nothing may be told so by no bytes at all.
        let given = ConsumerAssignment::of(synced.assignment).unwrap_or_default().topics;
        let ours = given.into_iter().filter(|given| given.name == self.topic);
        Ok(ours.flat_map(|given| given.partitions).collect())
    }

    fn ask_to_join(&self, cluster: &mut Cluster) -> Result<JoinGroupResponse, Error> {
        let topics = vec![self.topic.clone()];
        let subscription = ConsumerSubscription { topics, ..ConsumerSubscription::default() };
        let range = JoinGroupProtocol { name: "range".to_owned(), metadata: subscription.bytes() };
        cluster.coordinator(&self.group)?.call(JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: SESSION_MS,
            rebalance_timeout_ms: REBALANCE_MS,
            member_id: self.id.clone(),
            protocol_type: "consumer".to_owned(),
            protocols: vec![range],
            ..JoinGroupRequest::default()
        })
    }

    /// Says that it is there, if that is due.
    pub fn beat(&mut self, cluster: &mut Cluster) -> Result<(), Error> {
        if self.beaten.elapsed() < BEAT {
            return Ok(());
        }
        let beaten = cluster.coordinator(&self.group)?.call(HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            ..HeartbeatRequest::default()
        })?;
        self.beaten = Instant::now();
        self.check(beaten.error_code)
    }

    /// Commits where partitions are gone on with. Durable on return, where the broker is a Plimsoll.
    pub fn commit(
        &mut self,
        cluster: &mut Cluster,
        offsets: &BTreeMap<i32, i64>,
    ) -> Result<(), Error> {
        let partition = |(partition, offset): (&i32, &i64)| OffsetCommitPartition {
            partition_index: *partition,
            committed_offset: *offset,
            committed_metadata: Some(String::new()),
            ..OffsetCommitPartition::default()
        };
        let partitions = offsets.iter().map(partition).collect();
        let committed = cluster.coordinator(&self.group)?.call(OffsetCommitRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            topics: vec![OffsetCommitTopic { name: self.topic.clone(), partitions }],
            ..OffsetCommitRequest::default()
        })?;
        let answered = committed.topics.into_iter().flat_map(|topic| topic.partitions);
        let answered: BTreeMap<_, _> =
            answered.map(|partition| (partition.partition_index, partition.error_code)).collect();
        offsets.keys().try_for_each(|partition| {
            let unanswered = || format!("the offset of partition {partition}");
            let code = answered.get(partition);
            let code = code.ok_or_else(|| Error::Unanswered { what: unanswered() })?;
            self.check(*code)
        })
    }

    /// Leaves, so that its partitions are others' at once.
    pub fn leave(mut self, cluster: &mut Cluster) -> Result<(), Error> {
        let member_id = self.id.clone();
        let left = cluster.coordinator(&self.group)?.call(LeaveGroupRequest {
            group_id: self.group.clone(),
            member_id: member_id.clone(),
            members: vec![LeavingMember { member_id, group_instance_id: None }],
        })?;
        self.check(left.error_code)
    }

    fn check(&mut self, code: ErrorCode) -> Result<(), Error> {
        if code == ErrorCode::UnknownMemberId {
            self.id.clear();
        }
        Error::check(format!("group {}", self.group), code, None)
    }
}

/// What each member is given, of the topics that it asks for.
fn assign(
    cluster: &mut Cluster,
    members: &[JoinedMember],
) -> Result<Vec<SyncGroupAssignment>, Error> {
    let mut subscribers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut given: BTreeMap<&str, Vec<AssignedTopic>> = BTreeMap::new();
    for member in members {
        given.insert(&member.member_id, Vec::new());
        let asked = ConsumerSubscription::of(member.metadata.clone()).unwrap_or_default();
        for topic in asked.topics {
            subscribers.entry(topic).or_default().push(&member.member_id);
        }
    }
    let names: Vec<_> = subscribers.keys().cloned().collect();
    for topic in cluster.metadata(Some(&names))?.topics {
        let Some(name) = &topic.name else { continue };
        let mut members = subscribers.remove(name).unwrap_or_default();
        members.sort_unstable();
        let shares = range(topic.partitions.len(), members.len());
        for (member, partitions) in members.into_iter().zip(shares) {
            let name = name.clone();
            given.entry(member).or_default().push(AssignedTopic { name, partitions });
        }
    }
    let assignment = |topics| ConsumerAssignment { topics, ..Default::default() }.bytes();
    let given = given.into_iter().map(|(member, topics)| SyncGroupAssignment {
        member_id: member.to_owned(),
        assignment: assignment(topics),
    });
    Ok(given.collect())
}

/// So many partitions in so many runs, the first of which may be longer by one.
fn range(partitions: usize, members: usize) -> impl Iterator<Item = Vec<i32>> {
    let numbers = move |member: usize| {
        let begin =
            |member: usize| member * (partitions / members) + member.min(partitions % members);
        let run = begin(member)..begin(member + 1);
        run.map(|number| i32::try_from(number).unwrap_or(i32::MAX)).collect()
    };
    (0..members).map(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_is_one_members_and_no_member_has_two_more_than_another() {
        for (partitions, members) in [(0, 1), (1, 1), (7, 3), (6, 3), (2, 5)] {
            let shares: Vec<_> = range(partitions, members).collect();
            let lengths = shares.iter().map(Vec::len);
            assert!(lengths.clone().max() <= lengths.clone().min().map(|least| least + 1));
            let all: Vec<_> = shares.concat();
            assert!(all.iter().copied().eq(0..i32::try_from(partitions).unwrap()), "{all:?}");
            assert_eq!(lengths.count(), members);
        }
        assert_eq!(range(7, 3).collect::<Vec<_>>(), [vec![0, 1, 2], vec![3, 4], vec![5, 6]]);
    }
}
