//! `plimsoll topic`: topics are made, looked at, changed and deleted.

use anyhow::{Context, Result};
use plimsoll_server::client::{Cluster, Error};
use plimsoll_server::control::TopicSettings;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    AlterableConfig, AlterableResource, CreatableTopic, CreatePartitionsRequest,
    CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, DescribeConfigsResource,
    DescribedConfig, GrowingTopic, IncrementalAlterConfigsRequest, MetadataTopic, TopicConfig,
};
use serde_json::{Value, json};

use super::start::{BEGINNING, END, offsets};
use super::{BROKER_TIMEOUT_MS, head, promise, table, topic_move};
use crate::client_args::{AlterArgs, Asked, CreateArgs, NamedTopic, TopicCommand};
use crate::exit::Exit;
use crate::output;

/// What a resource is, as requests say it.
const OF_A_TOPIC: i8 = 2;
/// Where a setting comes from, as answers say it: it was not set.
const DEFAULT: i8 = 5;
/// What is done to a setting.
const SET: i8 = 0;
const DELETE: i8 = 1;

pub(crate) fn run(command: TopicCommand) -> Result<Exit> {
    match command {
        TopicCommand::Create(args) => create(&args)?,
        TopicCommand::List(asked) => list(&asked)?,
        TopicCommand::Describe(args) => describe(&args)?,
        TopicCommand::Alter(args) => alter(&args)?,
        TopicCommand::Move(args) => topic_move::run(&args)?,
        TopicCommand::Delete(args) => delete(&args)?,
    }
    Ok(Exit::Ok)
}

fn create(args: &CreateArgs) -> Result<()> {
    let NamedTopic { name, asked } = &args.topic;
    let config = |(name, value): &(String, String)| TopicConfig {
        name: name.clone(),
        value: Some(value.clone()),
    };
    let topic = CreatableTopic {
        name: name.clone(),
        num_partitions: args.partitions,
        replication_factor: -1,
        configs: args.config.iter().map(config).collect(),
        ..CreatableTopic::default()
    };
    let question = CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: BROKER_TIMEOUT_MS,
        ..CreateTopicsRequest::default()
    };
    let mut cluster = asked.open()?;
    let created = cluster.controller()?.call(question)?.topics.into_iter().next();
    let created = created.context("the broker says nothing of the topic")?;
    let is_new = !(args.if_not_exists && created.error_code == ErrorCode::TopicAlreadyExists);
    if is_new {
        Error::check(format!("topic {name}"), created.error_code, created.error_message)?;
    }
    let text = match is_new {
        true => {
            let partitions = u64::from(args.partitions.unsigned_abs());
            format!("topic {name} made, with {}\n", output::counted(partitions, "partition"))
        }
        false => format!("there is a topic {name} already; nothing was changed\n"),
    };
    asked.answer(&json!({ "topic": name, "created": is_new }), &text)
}

fn list(asked: &Asked) -> Result<()> {
    let mut topics = asked.open()?.metadata(None)?.topics;
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    let object = |topic: &MetadataTopic| {
        json!({
            "topic": topic.name,
            "partitions": topic.partitions.len(),
            "internal": topic.is_internal,
        })
    };
    let json: Value = topics.iter().map(object).collect();
    let mut rows = vec![head(["topic", "partitions"])];
    rows.extend(
        topics.iter().map(|topic| {
            [topic.name.clone().unwrap_or_default(), topic.partitions.len().to_string()]
        }),
    );
    let text = if topics.is_empty() { "no topics\n".to_owned() } else { table(&rows) };
    asked.answer(&json, &text)
}

fn describe(args: &NamedTopic) -> Result<()> {
    let NamedTopic { name, asked } = args;
    let mut cluster = asked.open()?;
    let topic = cluster.topic(name)?;
    let indexes: Vec<_> = topic.partitions.iter().map(|part| part.partition_index).collect();
    let starts = offsets(&mut cluster, name, &indexes, BEGINNING, 0)?;
    // What is asked for later is not behind it.
    let stable = offsets(&mut cluster, name, &indexes, END, 1)?;
    let ends = offsets(&mut cluster, name, &indexes, END, 0)?;
    let settings = settings(&mut cluster, name)?;
    let promise = promise(&settings);
    let set: Vec<_> = settings.iter().filter(|setting| is_set(setting)).collect();

    let mut rows =
        vec![head(["partition", "leader", "epoch", "start", "high watermark", "last stable"])];
    let mut partitions = Vec::new();
    for partition in &topic.partitions {
        let index = partition.partition_index;
        rows.push([
            index.to_string(),
            partition.leader_id.to_string(),
            partition.leader_epoch.to_string(),
            starts[&index].to_string(),
            ends[&index].to_string(),
            stable[&index].to_string(),
        ]);
        partitions.push(json!({
            "partition": index,
            "leader": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "start": starts[&index],
            "high_watermark": ends[&index],
            "last_stable_offset": stable[&index],
        }));
    }
    let object = |setting: &&DescribedConfig| (setting.name.clone(), json!(setting.value));
    let json = json!({
        "topic": name,
        "partitions": partitions,
        "settings": set.iter().map(object).collect::<serde_json::Map<_, _>>(),
        "promise": promise,
    });
    let counted = output::counted(indexes.len() as u64, "partition");
    let mut text = format!("topic      {name}, {counted}\n");
    if let Some(promise) = promise {
        text += &format!("promise    {promise}\n");
    }
    let words = |setting: &&DescribedConfig| {
        format!("{}={}", setting.name, setting.value.as_deref().unwrap_or("(hidden)"))
    };
    let set: Vec<_> = set.iter().map(words).collect();
    let set = if set.is_empty() { "all default".to_owned() } else { set.join(" ") };
    text += &format!("settings   {set}\n\n{}", table(&rows));
    asked.answer(&json, &text)
}

fn settings(cluster: &mut Cluster, topic: &str) -> Result<Vec<DescribedConfig>> {
    let resource = DescribeConfigsResource {
        resource_type: OF_A_TOPIC,
        resource_name: topic.to_owned(),
        configuration_keys: None,
    };
    let question = DescribeConfigsRequest { resources: vec![resource], include_synonyms: false };
    let described = cluster.any().call(question)?.results.into_iter().next();
    let described = described.context("the broker says nothing of the settings")?;
    let what = format!("settings of {topic}");
    Error::check(what, described.error_code, described.error_message)?;
    Ok(described.configs)
}

fn is_set(setting: &DescribedConfig) -> bool {
    setting.config_source != DEFAULT
}

/// What the topic promises, where the broker is a Plimsoll whose settings all mean something to us.
fn promise(described: &[DescribedConfig]) -> Option<String> {
    if !described.iter().any(|setting| setting.name.starts_with("plimsoll.")) {
        return None;
    }
    let mut settings = TopicSettings::default();
    for setting in described.iter().filter(|setting| is_set(setting)) {
        settings.set(&setting.name, setting.value.as_deref()).ok()?;
    }
    Some(promise::words(&settings))
}

fn alter(args: &AlterArgs) -> Result<()> {
    let NamedTopic { name, asked } = &args.topic;
    let mut cluster = asked.open()?;
    let set = |(name, value): &(String, String)| (name.clone(), SET, Some(value.clone()));
    let delete = |name: &String| (name.clone(), DELETE, None);
    let changes = args.config.iter().map(set).chain(args.delete_config.iter().map(delete));
    let configs: Vec<_> = changes
        .map(|(name, config_operation, value)| AlterableConfig { name, config_operation, value })
        .collect();
    let mut done = Vec::new();
    if !configs.is_empty() {
        done.push(output::counted(configs.len() as u64, "setting"));
        change_settings(&mut cluster, name, configs)?;
    }
    if let Some(count) = args.partitions {
        let grown = grow(&mut cluster, name, count);
        if let Some(settings) = done.first() {
            grown.with_context(|| format!("{settings} changed; then"))?;
        } else {
            grown?;
        }
        done.push(format!("now {}", output::counted(count.unsigned_abs().into(), "partition")));
    }
    let json = json!({
        "topic": name,
        "set": args.config.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "deleted": args.delete_config,
        "partitions": args.partitions,
    });
    asked.answer(&json, &format!("topic {name} changed: {}\n", done.join(", ")))
}

fn change_settings(
    cluster: &mut Cluster,
    topic: &str,
    configs: Vec<AlterableConfig>,
) -> Result<()> {
    let resource =
        AlterableResource { resource_type: OF_A_TOPIC, resource_name: topic.to_owned(), configs };
    let question =
        IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let altered = cluster.controller()?.call(question)?.responses.into_iter().next();
    let altered = altered.context("the broker says nothing of the settings")?;
    let what = format!("settings of {topic}");
    Ok(Error::check(what, altered.error_code, altered.error_message)?)
}

fn grow(cluster: &mut Cluster, topic: &str, count: i32) -> Result<()> {
    let growing = GrowingTopic { name: topic.to_owned(), count, assignments: None };
    let question = CreatePartitionsRequest {
        topics: vec![growing],
        timeout_ms: BROKER_TIMEOUT_MS,
        validate_only: false,
    };
    let grown = cluster.controller()?.call(question)?.results.into_iter().next();
    let grown = grown.context("the broker says nothing of the partitions")?;
    Ok(Error::check(format!("partitions of {topic}"), grown.error_code, grown.error_message)?)
}

fn delete(args: &NamedTopic) -> Result<()> {
    let NamedTopic { name, asked } = args;
    let question =
        DeleteTopicsRequest { topic_names: vec![name.clone()], timeout_ms: BROKER_TIMEOUT_MS };
    let deleted = asked.open()?.controller()?.call(question)?.responses.into_iter().next();
    let deleted = deleted.context("the broker says nothing of the topic")?;
    Error::check(format!("topic {name}"), deleted.error_code, None)?;
    asked.answer(&json!({ "topic": name, "deleted": true }), &format!("topic {name} deleted\n"))
}
