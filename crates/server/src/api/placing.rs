//! ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: who leads a partition, and who has it.
//!
//! All partitions of a shard are led by the same node, so one is asked for all of them. To reassign a partition is to name the
//! replicas of a shard, of which the first leads: there it goes on. Who does not know them says [`WHICHEVER`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::patience::Patience;
use super::problem::Problem;
use super::session::{Located, Session, kafka_id};
use crate::broker::{DURABLE, Node, SHARED};
use crate::control::Catalog;
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ElectLeadersRequest,
    ElectLeadersResponse, ElectedPartition, ElectedTopic, ElectionResult,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, ListedReassignments,
    OngoingPartition, OngoingTopic, ReassignablePartition, ReassignedPartition, ReassignedTopic,
    WHICHEVER,
};

/// The kind of election after which the preferred replica leads.
const PREFERRED: i8 = 0;

/// Has whoever is preferred lead; no other kind of election is held.
pub(super) async fn elect(session: Session, request: ElectLeadersRequest) -> ElectLeadersResponse {
    let ElectLeadersRequest { election_type, topic_partitions, timeout_ms } = request;
    let asked_for_all = topic_partitions.is_none();
    let asked = topic_partitions.unwrap_or_else(|| all(&session));
    let patience = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    let (mut response, mut held) = (ElectLeadersResponse::default(), BTreeMap::new());
    for ElectedTopic { topic, partitions } in asked {
        let mut results = Vec::new();
        for partition_id in partitions {
            let at = session.locate(&session.node.topics.catalog(), &topic, partition_id);
            let Problem { code: error_code, message: error_message } = match at {
                Err(unknown) => unknown.into(),
                Ok(_) if election_type != PREFERRED => refused(),
                Ok(at) => {
                    let number = at.shard.number;
                    let Problem { code, message } = match held.entry(number) {
                        Entry::Occupied(held) => held.into_mut(),
                        Entry::Vacant(place) => {
                            let late = Problem::from(ErrorCode::RequestTimedOut);
                            let done = timeout(patience, elect_one(&session, &at)).await;
                            place.insert(done.unwrap_or(late))
                        }
                    };
                    Problem { code: *code, message: message.clone() }
                }
            };
            // Whoever asks for all is told of what was done.
            if !asked_for_all || error_code != ErrorCode::ElectionNotNeeded {
                results.push(ElectedPartition { partition_id, error_code, error_message });
            }
        }
        if !results.is_empty() {
            let result = ElectionResult { topic, partition_result: results };
            response.replica_election_results.push(result);
        }
    }
    response
}

fn all(session: &Session) -> Vec<ElectedTopic> {
    let catalog = session.node.topics.catalog();
    let topics = catalog.topics().filter(|(_, topic)| !topic.is_deleted);
    let all = topics.map(|(_, topic)| {
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        ElectedTopic { topic: topic.name.clone(), partitions: (0..count).collect() }
    });
    all.collect()
}

/// No problem where it leads now and did not before.
async fn elect_one(session: &Session, at: &Located) -> Problem {
    let number = at.shard.number;
    let leader = session.node.leader_of(&at.shard).id(session.node.members().here());
    let Some(to) = session.node.topics.preferred(&at.shard) else {
        return ErrorCode::PreferredLeaderNotAvailable.into();
    };
    if leader == Some(to) {
        return Problem::new(ErrorCode::ElectionNotNeeded, "it leads already");
    }
    match session.node.leaders.move_to(number, to).await {
        Ok(()) => Problem::default(),
        Err(why) => Problem::new(ErrorCode::PreferredLeaderNotAvailable, why.to_string()),
    }
}

fn refused() -> Problem {
    let message = "a leader that may lack what was acknowledged is never elected: where a majority forgot, \
                   `plimsoll cluster recover` shows what is left, and asks";
    Problem::new(ErrorCode::InvalidRequest, message)
}

/// Has partitions go on in shards that the first of the named nodes is to lead.
pub(super) async fn reassign(
    session: Session,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let mut response = AlterPartitionReassignmentsResponse::default();
    for topic in request.topics {
        let partitions = reassign_topic(&session, &topic.name, topic.partitions).await;
        response.responses.push(ReassignedTopic { partitions, name: topic.name });
    }
    response
}

async fn reassign_topic(
    session: &Session,
    name: &str,
    asked: Vec<ReassignablePartition>,
) -> Vec<ReassignedPartition> {
    let (mut moves, mut outcomes) = (Vec::new(), Vec::new());
    let mut id = None;
    {
        let catalog = session.node.topics.catalog();
        let mut loads = Loads::default();
        for ReassignablePartition { partition_index, replicas } in asked {
            let to = session.locate(&catalog, name, partition_index).map_err(Problem::from);
            let to = to.and_then(|at| {
                let (of, topic) = catalog.find(name).ok_or_else(Problem::no_topic)?;
                id = Some(of);
                let number = at.opening.partition.number;
                let moves_to = topic.moving.get(&number).copied();
                let to = match replicas {
                    // Where it may have ended its stay it goes on in another.
                    None if moves_to.is_some() => at.shard.number,
                    None => {
                        return Err(Problem::new(
                            ErrorCode::NoReassignmentInProgress,
                            "none is under way",
                        ));
                    }
                    Some(replicas) => {
                        let is_durable = at.settings.waits_for_disk;
                        shard_for(session, &catalog, &mut loads, (&at, is_durable), &replicas)?
                    }
                };
                let is_there = to == moves_to.unwrap_or(at.shard.number);
                Ok((!is_there).then_some((number, to)))
            });
            moves.extend(to.as_ref().ok().copied().flatten());
            outcomes.push((partition_index, to));
        }
    }
    let moved = match id.filter(|_| !moves.is_empty()) {
        Some(id) => {
            let act =
                move |node: Arc<Node>| async move { node.topics.move_partitions(id, moves).await };
            session.within(Patience::unless_said(), act).await
        }
        None => Ok(()),
    };
    let outcomes = outcomes.into_iter().map(|(partition_index, to)| {
        let problem = match (to, &moved) {
            (Err(problem), _) => problem,
            (Ok(Some(_)), Err(why)) => Problem { code: why.code, message: why.message.clone() },
            (Ok(_), _) => Problem::default(),
        };
        let Problem { code: error_code, message: error_message } = problem;
        ReassignedPartition { partition_index, error_code, error_message }
    });
    outcomes.collect()
}

/// How many partitions come into each shard, counted once.
#[derive(Default)]
struct Loads(BTreeMap<u32, usize>);

impl Loads {
    fn of(&mut self, catalog: &Catalog, number: u32) -> &mut usize {
        self.0.entry(number).or_insert_with(|| catalog.load(number))
    }
}

/// The shard in which a partition goes on that is to have these replicas, the first of which leads: where it is, if that is so
/// there, or else one that has the fewest.
fn shard_for(
    session: &Session,
    catalog: &Catalog,
    loads: &mut Loads,
    (at, is_durable): (&Located, bool),
    replicas: &[i32],
) -> Result<u32, Problem> {
    let invalid = |message: String| Problem::new(ErrorCode::InvalidReplicaAssignment, message);
    // Those of a class are synced together.
    let of_its_class: &[u32] = if is_durable { &[DURABLE] } else { &SHARED };
    let there = of_its_class
        .iter()
        .map(|number| (*number, session.replicas(session.node.topics.shard(*number))));
    let there: Vec<(u32, Vec<u64>)> = there.collect();
    let fits = there.iter().filter(|(_, there)| are_those(there, replicas));
    let fits: Vec<u32> = fits.map(|(number, _)| *number).collect();
    if fits.contains(&at.shard.number) {
        return Ok(at.shard.number);
    }
    let fewest = fits.into_iter().min_by_key(|number| *loads.of(catalog, *number));
    let to = fewest.ok_or_else(|| {
        let there: Vec<_> = there.iter().map(|(_, replicas)| format!("{replicas:?}")).collect();
        let there = there.join(", ");
        invalid(match is_durable {
            true => format!(
                "topics with flush.messages=1 share a shard, and do not move: they have the replicas {there}, of which the \
                 first leads where all is well"
            ),
            false => format!(
                "partitions have these replicas, of which the first leads where all is well: {there}; name those of one, \
                 the first of them first"
            ),
        })
    })?;
    *loads.of(catalog, to) += 1;
    Ok(to)
}

/// Whether these are named, in whatever order behind the first.
fn are_those(replicas: &[u64], named: &[i32]) -> bool {
    let mut replicas: Vec<i32> = replicas.iter().copied().map(kafka_id).collect();
    let mut named = named.to_vec();
    if replicas.first() != named.first() {
        return false;
    }
    let is_whichever = named.get(1..) == Some(&[WHICHEVER]);
    replicas.sort_unstable();
    named.sort_unstable();
    is_whichever || replicas == named
}

/// Those that are about to go on in another shard.
pub(super) fn reassignments(
    session: &Session,
    request: &ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let catalog = session.node.topics.catalog();
    let live = catalog.topics().filter(|(_, topic)| !topic.is_deleted && !topic.moving.is_empty());
    let is_asked = |name: &str, number: i32| {
        request.topics.as_ref().is_none_or(|asked| {
            let of = |topic: &&ListedReassignments| topic.name == name;
            asked.iter().find(of).is_some_and(|topic| topic.partition_indexes.contains(&number))
        })
    };
    let topics = live.filter_map(|(_, topic)| {
        let partitions = topic.moving.iter().filter_map(|(number, to)| {
            let partition_index = i32::try_from(*number).ok()?;
            let replicas = session.replicas(session.node.topics.shard(*to));
            is_asked(&topic.name, partition_index).then(|| OngoingPartition {
                partition_index,
                replicas: replicas.into_iter().map(kafka_id).collect(),
                ..OngoingPartition::default()
            })
        });
        let partitions: Vec<_> = partitions.collect();
        let name = topic.name.clone();
        (!partitions.is_empty()).then_some(OngoingTopic { name, partitions })
    });
    ListPartitionReassignmentsResponse { topics: topics.collect(), ..<_>::default() }
}
