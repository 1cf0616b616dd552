//! DescribeConfigs and IncrementalAlterConfigs: every setting with its default, and where it comes from.

use std::sync::Arc;

use super::once::once;
use super::patience::Patience;
use super::problem::Problem;
use super::replicas::Replicas;
use super::session::Session;
use super::topics::check_settings;
use crate::broker::Node;
use crate::control::{SETTINGS, TopicSettings};
use crate::kafka::error::ErrorCode;
use crate::kafka::message::{
    AlterableConfig, AlterableResource, AlteredResource, ConfigSynonym, DescribeConfigsRequest,
    DescribeConfigsResource, DescribeConfigsResponse, DescribedConfig, DescribedConfigs,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use crate::shard::TopicId;

/// Kafka's numbers of resources.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// Kafka's numbers of where a value comes from.
const SET_FOR_TOPIC: i8 = 1;
const SET_AT_START: i8 = 4;
const DEFAULT: i8 = 5;
/// Kafka's numbers of what is done to a setting.
const SET: i8 = 0;
const DELETE: i8 = 1;
/// How fast replicas may move in Kafka: its tool that moves them sets these if it is asked to, and deletes them afterwards in any
/// case. Here nothing of a replica moves, so there are none to be deleted.
const THROTTLES: [&str; 5] = [
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
];

pub(super) fn describe(
    session: &Session,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    // Asked for with other keys it is answered again, with no more than those.
    let asked = once(&request.resources, |&asked| {
        (asked.resource_type, &asked.resource_name, &asked.configuration_keys)
    });
    let results = asked.into_iter().map(|resource| {
        let described = match resource.resource_type {
            TOPIC => topic(session, resource, request.include_synonyms),
            BROKER => broker(session, resource),
            _ => Err(Problem::new(ErrorCode::InvalidRequest, "topics and brokers have settings")),
        };
        let (resource_type, resource_name) =
            (resource.resource_type, resource.resource_name.clone());
        let (configs, problem) = match described {
            Ok(configs) => (configs, Problem::default()),
            Err(problem) => (Vec::new(), problem),
        };
        let Problem { code: error_code, message: error_message } = problem;
        DescribedConfigs { error_code, error_message, resource_type, resource_name, configs }
    });
    DescribeConfigsResponse { results: results.collect(), ..DescribeConfigsResponse::default() }
}

fn topic(
    session: &Session,
    resource: &DescribeConfigsResource,
    with_synonyms: bool,
) -> Result<Vec<DescribedConfig>, Problem> {
    let (_, settings) = find(session, &resource.resource_name)?;
    let described = SETTINGS.iter().map(|setting| {
        let name = setting.name.to_owned();
        let (value, is_set) = settings.value(setting);
        let synonym = |value: &str, source| {
            let (name, value) = (name.clone(), Some(value.to_owned()));
            ConfigSynonym { name, value, source }
        };
        let mut synonyms = Vec::new();
        if with_synonyms {
            synonyms.extend(is_set.then(|| synonym(value, SET_FOR_TOPIC)));
            synonyms.push(synonym(setting.default, DEFAULT));
        }
        let config_source = if is_set { SET_FOR_TOPIC } else { DEFAULT };
        let value = Some(value.to_owned());
        DescribedConfig { name, value, config_source, synonyms, ..DescribedConfig::default() }
    });
    Ok(asked_for(resource, described.collect()))
}

/// What the broker was started with. It is read-only: a file, the environment or a flag sets it.
fn broker(
    session: &Session,
    resource: &DescribeConfigsResource,
) -> Result<Vec<DescribedConfig>, Problem> {
    let here = session.here();
    if resource.resource_name != here.to_string() {
        let message = format!("this is broker {here}: each knows its own settings only");
        return Err(Problem::new(ErrorCode::InvalidRequest, message));
    }
    let replicas = Replicas::of(session).count();
    let options = &session.node.options;
    let described = [
        ("auto.create.topics.enable", options.auto_create.to_string()),
        ("default.replication.factor", replicas.to_string()),
        ("group.initial.rebalance.delay.ms", options.groups.initial_delay_ms.to_string()),
        ("group.max.session.timeout.ms", options.groups.session_ms_max.to_string()),
        ("group.max.size", options.groups.members_max.to_string()),
        ("group.min.session.timeout.ms", options.groups.session_ms_min.to_string()),
        ("log.dirs", session.node.dir().display().to_string()),
        ("min.insync.replicas", (replicas / 2 + 1).to_string()),
        ("num.partitions", options.partitions.to_string()),
        ("offset.metadata.max.bytes", options.groups.offset_metadata_bytes_max.to_string()),
    ];
    let described = described.into_iter().map(|(name, value)| DescribedConfig {
        name: name.to_owned(),
        value: Some(value),
        read_only: true,
        config_source: SET_AT_START,
        ..DescribedConfig::default()
    });
    Ok(asked_for(resource, described.collect()))
}

fn asked_for(
    resource: &DescribeConfigsResource,
    mut all: Vec<DescribedConfig>,
) -> Vec<DescribedConfig> {
    if let Some(keys) = &resource.configuration_keys {
        all.retain(|config| keys.contains(&config.name));
    }
    all
}

fn find(session: &Session, name: &str) -> Result<(TopicId, TopicSettings), Problem> {
    let catalog = session.node.topics.catalog();
    let found = catalog.find(name).map(|(id, topic)| (id, topic.settings.clone()));
    found.ok_or_else(Problem::no_topic)
}

pub(super) async fn alter(
    session: Session,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut response = IncrementalAlterConfigsResponse::default();
    for resource in request.resources {
        let altered = alter_one(&session, &resource, request.validate_only).await;
        let Problem { code: error_code, message: error_message } =
            altered.err().unwrap_or_default();
        let AlterableResource { resource_type, resource_name, .. } = resource;
        response.responses.push(AlteredResource {
            error_code,
            error_message,
            resource_type,
            resource_name,
        });
    }
    response
}

async fn alter_one(
    session: &Session,
    resource: &AlterableResource,
    validate_only: bool,
) -> Result<(), Problem> {
    let deletes_throttle = |config: &&AlterableConfig| {
        config.config_operation == DELETE && THROTTLES.contains(&&*config.name)
    };
    let configs = || resource.configs.iter().filter(|config| !deletes_throttle(config));
    if resource.resource_type == BROKER && configs().next().is_none() {
        return Ok(());
    }
    if resource.resource_type != TOPIC {
        let message = "only topics are altered; a broker's settings are given when it starts";
        return Err(Problem::new(ErrorCode::InvalidRequest, message));
    }
    session.check_controller(Patience::unless_said()).await?;
    let (id, mut settings) = find(session, &resource.resource_name)?;
    for config in configs() {
        let value = match config.config_operation {
            SET => config.value.as_deref(),
            DELETE => None,
            _ => {
                let message = "settings here are no lists: set or delete them";
                return Err(Problem::new(ErrorCode::InvalidConfig, message));
            }
        };
        settings.set(&config.name, value)?;
    }
    check_settings(session, &settings)?;
    if !validate_only {
        let alter = move |node: Arc<Node>| async move { node.topics.alter(id, settings).await };
        session.within(Patience::unless_said(), alter).await?;
    }
    Ok(())
}
