//! CreateTopics, DeleteTopics and CreatePartitions. Answered once it is done, not once it is begun.

use std::sync::Arc;

use super::patience::Patience;
use super::problem::Problem;
use super::replicas::Replicas;
use super::session::Session;
use crate::broker::Node;
use crate::control::{TopicSettings, check_name};
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    CreatableTopic, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, CreatedTopic, DeleteTopicsRequest, DeleteTopicsResponse, DeletedTopic,
    GrowingTopic, GrownTopic, TopicConfig,
};

pub(super) async fn create(session: Session, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let CreateTopicsRequest { topics, timeout_ms, validate_only, .. } = request;
    let (mut response, patience) = (CreateTopicsResponse::default(), Patience::of(timeout_ms));
    for topic in topics {
        let name = topic.name.clone();
        let created = create_one(&session, topic, validate_only, patience).await;
        response.topics.push(match created {
            Ok(()) => CreatedTopic { name, ..CreatedTopic::default() },
            Err(Problem { code: error_code, message: error_message }) => {
                CreatedTopic { name, error_code, error_message }
            }
        });
    }
    response
}

async fn create_one(
    session: &Session,
    topic: CreatableTopic,
    validate_only: bool,
    patience: Patience,
) -> Result<(), Problem> {
    session.check_controller(patience).await?;
    check_name(&topic.name)
        .map_err(|why| Problem::new(ErrorCode::InvalidTopicException, why.to_string()))?;
    let partitions = partitions_of(session, &topic)?;
    let settings = settings_of(session, &topic.configs)?;
    if session.node.topics.catalog().find(&topic.name).is_some() {
        let exists = format!("the topic {} exists", topic.name);
        return Err(Problem::new(ErrorCode::TopicAlreadyExists, exists));
    }
    if !validate_only {
        let create = move |node: Arc<Node>| async move {
            node.topics.create(&topic.name, partitions, settings).await
        };
        session.within(patience, create).await?;
    }
    Ok(())
}

/// How many partitions a topic is to have; each has the replicas of its shard.
fn partitions_of(session: &Session, topic: &CreatableTopic) -> Result<u32, Problem> {
    let replicas = Replicas::of(session);
    if !topic.assignments.is_empty() {
        replicas.check(topic.assignments.iter().map(|of| &of.broker_ids))?;
        return u32::try_from(topic.assignments.len()).map_err(|_large| too_many());
    }
    let factor = topic.replication_factor;
    if factor != -1 && usize::try_from(factor).ok() != Some(replicas.count()) {
        return Err(replicas.refuse(ErrorCode::InvalidReplicationFactor));
    }
    match topic.num_partitions {
        -1 => Ok(session.node.options.partitions),
        number @ 1.. => u32::try_from(number).map_err(|_large| too_many()),
        _ => {
            let message = "a topic has at least one partition";
            Err(Problem::new(ErrorCode::InvalidPartitions, message))
        }
    }
}

fn too_many() -> Problem {
    Problem::new(ErrorCode::InvalidPartitions, "too many partitions")
}

fn settings_of(session: &Session, configs: &[TopicConfig]) -> Result<TopicSettings, Problem> {
    let mut settings = TopicSettings::default();
    for config in configs {
        settings.set(&config.name, config.value.as_deref())?;
    }
    check_settings(session, &settings)?;
    Ok(settings)
}

/// What a setting says holds on this broker.
pub(super) fn check_settings(session: &Session, settings: &TopicSettings) -> Result<(), Problem> {
    let (asked, most) = (settings.batch_bytes_max(), session.node.batch_bytes_max());
    if asked > most {
        let message = format!(
            "max.message.bytes of {asked}: a batch here has at most {most}, which is about half of the broker's ring"
        );
        return Err(Problem::new(ErrorCode::InvalidConfig, message));
    }
    check_knee(session, settings)
}

/// `plimsoll.flush=auto` means what the lab measured, which must have been given.
fn check_knee(session: &Session, settings: &TopicSettings) -> Result<(), Problem> {
    if !settings.flushes_at_the_knee() || session.node.options.knee.is_some() {
        return Ok(());
    }
    let message = "plimsoll.flush=auto needs a profile of this disk: run `plimsoll lab`, and give the \
                   broker its durability-profile.json by --profile";
    Err(Problem::new(ErrorCode::InvalidConfig, message))
}

pub(super) async fn delete(session: Session, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let mut response = DeleteTopicsResponse::default();
    let patience = Patience::of(request.timeout_ms);
    for name in request.topic_names {
        let error_code = match delete_one(&session, &name, patience).await {
            Ok(()) => ErrorCode::None,
            Err(problem) => problem.code,
        };
        response.responses.push(DeletedTopic { name, error_code });
    }
    response
}

async fn delete_one(session: &Session, name: &str, patience: Patience) -> Result<(), Problem> {
    session.check_controller(patience).await?;
    let id = session.node.topics.catalog().id(name);
    let id = id.ok_or_else(Problem::no_topic)?;
    session
        .within(patience, move |node: Arc<Node>| async move { node.topics.delete(id).await })
        .await
}

pub(super) async fn grow(
    session: Session,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let CreatePartitionsRequest { topics, timeout_ms, validate_only, .. } = request;
    let (mut response, patience) = (CreatePartitionsResponse::default(), Patience::of(timeout_ms));
    for topic in topics {
        let grown = grow_one(&session, &topic, validate_only, patience).await;
        let name = topic.name;
        response.results.push(match grown {
            Ok(()) => GrownTopic { name, ..GrownTopic::default() },
            Err(Problem { code: error_code, message: error_message }) => {
                GrownTopic { name, error_code, error_message }
            }
        });
    }
    response
}

async fn grow_one(
    session: &Session,
    topic: &GrowingTopic,
    validate_only: bool,
    patience: Patience,
) -> Result<(), Problem> {
    session.check_controller(patience).await?;
    let (id, there) = {
        let catalog = session.node.topics.catalog();
        let found = catalog.find(&topic.name).map(|(id, found)| (id, found.partitions.len()));
        found.ok_or_else(Problem::no_topic)?
    };
    let more = usize::try_from(topic.count).ok().and_then(|count| count.checked_sub(there));
    let more = more.filter(|more| *more > 0).and_then(|more| u32::try_from(more).ok());
    let more = more.ok_or_else(|| {
        let message = format!("the topic has {there} partitions, and can only have more");
        Problem::new(ErrorCode::InvalidPartitions, message)
    })?;
    if let Some(assignments) = &topic.assignments {
        Replicas::of(session).check(assignments.iter().map(|of| &of.broker_ids))?;
    }
    if !validate_only {
        session
            .within(patience, move |node| async move { node.topics.grow(id, more).await })
            .await?;
    }
    Ok(())
}
