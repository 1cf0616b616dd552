//! `plimsoll topic move`: partitions go on under other brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use plimsoll_server::client::{Cluster, Error};
use plimsoll_server::kafka::message::{
    AlterPartitionReassignmentsRequest, ElectLeadersRequest, ElectedTopic,
    ListPartitionReassignmentsRequest, ListedReassignments, MetadataPartition,
    ReassignablePartition, ReassignableTopic, WHICHEVER,
};
use serde_json::json;

use super::BROKER_TIMEOUT_MS;
use crate::client_args::{MoveArgs, NamedTopic};
use crate::output;

/// How long it is waited until they are led there.
const PATIENCE: Duration = Duration::from_secs(60);
/// When it is said that it is waited for.
const SAID: Duration = Duration::from_secs(2);
/// How often an election is asked for.
const ELECTED: Duration = Duration::from_secs(2);
/// The kind of election after which the preferred replica leads.
const PREFERRED: i8 = 0;
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn run(args: &MoveArgs) -> Result<()> {
    let NamedTopic { name, asked } = &args.topic;
    let mut cluster = asked.open()?;
    let found = cluster.topic(name)?.partitions;
    let wanted: BTreeSet<i32> = args.partition.iter().copied().collect();
    for number in &wanted {
        if !found.iter().any(|partition| partition.partition_index == *number) {
            bail!("topic {name} has no partition {number}: they are 0 to {}", found.len() - 1);
        }
    }
    let brokers = cluster.brokers()?;
    if let Some(nobody) = args.to.iter().find(|to| !brokers.contains(to)) {
        bail!(
            "broker {nobody} is not there, of brokers there are {}; `plimsoll cluster status` says whether it is away, or was never one",
            brokers.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
        );
    }
    let is_wanted = |partition: &&MetadataPartition| {
        wanted.is_empty() || wanted.contains(&partition.partition_index)
    };
    let moved = found.iter().filter(is_wanted).zip(args.to.iter().copied().cycle());
    let moved: Moved = moved.map(|(partition, to)| (partition.partition_index, to)).collect();
    ask(&mut cluster, name, &moved)?;
    wait(&mut cluster, name, &moved)?;
    let leaders: Vec<_> =
        moved.iter().map(|(number, to)| json!({ "partition": number, "leader": to })).collect();
    let lines = moved
        .iter()
        .map(|(number, to)| format!("partition {number} of {name} is led by broker {to}\n"));
    let text: String = lines.collect();
    asked.answer(&json!({ "topic": name, "partitions": leaders }), &text)
}

/// Who is to lead each.
type Moved = BTreeMap<i32, i32>;

fn ask(cluster: &mut Cluster, name: &str, moved: &Moved) -> Result<()> {
    let partitions = moved.iter().map(|(number, to)| {
        let replicas = Some(vec![*to, WHICHEVER]);
        ReassignablePartition { partition_index: *number, replicas }
    });
    let partitions = partitions.collect();
    let question = AlterPartitionReassignmentsRequest {
        timeout_ms: BROKER_TIMEOUT_MS,
        topics: vec![ReassignableTopic { name: name.to_owned(), partitions }],
    };
    let answer = cluster.controller()?.call(question)?;
    Error::check(format!("topic {name}"), answer.error_code, answer.error_message)?;
    let topic = answer.responses.into_iter().next();
    for partition in topic.context("the broker says nothing of the topic")?.partitions {
        let what = format!("partition {} of {name}", partition.partition_index);
        Error::check(what, partition.error_code, partition.error_message)?;
    }
    Ok(())
}

/// Waits until none is on its way, and each is led as it was asked: whoever is to lead is elected, if it does not yet.
fn wait(cluster: &mut Cluster, name: &str, moved: &Moved) -> Result<()> {
    let (begun, mut is_said) = (Instant::now(), false);
    let partition_indexes: Vec<i32> = moved.keys().copied().collect();
    let asked = ListedReassignments { name: name.to_owned(), partition_indexes };
    let mut elected = None;
    loop {
        let topics = Some(vec![asked.clone()]);
        let question = ListPartitionReassignmentsRequest { topics, ..<_>::default() };
        let is_moved = cluster.controller()?.call(question)?.topics.is_empty();
        let leaders = cluster.topic(name)?.partitions;
        let lacks: Vec<(i32, i32)> = leaders
            .iter()
            .filter_map(|partition| {
                let to = moved.get(&partition.partition_index)?;
                (partition.leader_id != *to).then_some((partition.partition_index, *to))
            })
            .collect();
        match lacks.first() {
            None if is_moved => return Ok(()),
            _ if begun.elapsed() < PATIENCE => {
                if is_moved && elected.is_none_or(|at: Instant| at.elapsed() > ELECTED) {
                    elected = Some(Instant::now());
                    elect(cluster, name, &lacks)?;
                }
                if begun.elapsed() > SAID && !std::mem::replace(&mut is_said, true) {
                    output::news(&format!(
                        "it is agreed on; waiting until that is done, {} s at most in all…",
                        PATIENCE.as_secs()
                    ));
                }
                thread::park_timeout(LOOK);
            }
            Some((number, to)) => bail!(
                "partition {number} of {name} is not led by broker {to} yet; it is agreed on, and goes on: \
                 `plimsoll topic describe {name}` says who leads, `plimsoll cluster status` whether that broker is well"
            ),
            None => bail!(
                "it is agreed on, and not done yet; look later: `plimsoll topic describe {name}`"
            ),
        }
    }
}

/// Has those lead that are preferred. What is refused is asked for again.
fn elect(cluster: &mut Cluster, name: &str, lacks: &[(i32, i32)]) -> Result<()> {
    let partitions = lacks.iter().map(|(number, _)| *number).collect();
    let topic = ElectedTopic { topic: name.to_owned(), partitions };
    let question = ElectLeadersRequest {
        election_type: PREFERRED,
        topic_partitions: Some(vec![topic]),
        timeout_ms: BROKER_TIMEOUT_MS,
    };
    cluster.controller()?.call(question)?;
    Ok(())
}
