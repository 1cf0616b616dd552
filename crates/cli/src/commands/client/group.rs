//! `plimsoll group`: consumer groups are looked at, set back, and deleted.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use plimsoll_server::client::{Cluster, Error, Member};
use plimsoll_server::kafka::message::{
    ConsumerAssignment, DeleteGroupsRequest, DescribeGroupsRequest, DescribedGroup,
    DescribedMember, ListGroupsRequest, ListedGroup, OffsetFetchRequest,
};
use serde_json::{Value, json};

use super::start::{BEGINNING, END, offsets};
use super::{dash, head, table};
use crate::client_args::{Asked, GroupCommand, NamedGroup, ResetArgs};
use crate::exit::Exit;
use crate::output;

/// A topic and a partition of it.
pub(super) type Place = (String, i32);

/// What a group that was never heard of is in.
const DEAD: &str = "Dead";

pub(crate) fn run(command: GroupCommand) -> Result<Exit> {
    match command {
        GroupCommand::List(asked) => list(&asked)?,
        GroupCommand::Describe(args) => describe(&args)?,
        GroupCommand::Reset(args) => reset(&args)?,
        GroupCommand::Delete(args) => delete(&args)?,
    }
    Ok(Exit::Ok)
}

fn list(asked: &Asked) -> Result<()> {
    let mut cluster = asked.open()?;
    let mut groups = Vec::new();
    for broker in cluster.brokers()? {
        let listed = cluster.broker(broker)?.call(ListGroupsRequest {})?;
        Error::check(format!("groups of broker {broker}"), listed.error_code, None)?;
        groups.extend(listed.groups);
    }
    groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    let object = |group: &ListedGroup| json!({ "group": group.group_id, "protocol_type": group.protocol_type });
    let json: Value = groups.iter().map(object).collect();
    let names = groups.iter().map(|group| format!("{}\n", group.group_id));
    let text = if groups.is_empty() { "no groups\n".to_owned() } else { names.collect() };
    asked.answer(&json, &text)
}

/// How far a group is in a partition, and who reads it.
struct Progress {
    committed: Option<i64>,
    end: i64,
    member: Option<String>,
}

impl Progress {
    /// Nothing is committed: where it would go on is the consumer's to say.
    fn lag(&self) -> Option<i64> {
        self.committed.map(|committed| (self.end - committed).max(0))
    }
}

fn describe(args: &NamedGroup) -> Result<()> {
    let NamedGroup { name, asked } = args;
    let mut cluster = asked.open()?;
    let group = described(&mut cluster, name)?;
    let committed = committed(&mut cluster, name)?;
    let assigned = assigned(&group.members);
    let progress = progress(&mut cluster, &committed, &assigned)?;

    let mut rows = vec![head(["topic", "partition", "committed", "end", "lag", "member"])];
    let mut partitions = Vec::new();
    for ((topic, partition), progress) in &progress {
        rows.push([
            topic.clone(),
            partition.to_string(),
            dash(progress.committed),
            progress.end.to_string(),
            dash(progress.lag()),
            dash(progress.member.as_ref()),
        ]);
        partitions.push(json!({
            "topic": topic,
            "partition": partition,
            "committed": progress.committed,
            "end": progress.end,
            "lag": progress.lag(),
            "member": progress.member,
        }));
    }
    let member = |member: &DescribedMember| {
        json!({
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.client_host,
        })
    };
    let json = json!({
        "group": name,
        "state": group.group_state,
        "protocol_type": group.protocol_type,
        "members": group.members.iter().map(member).collect::<Vec<_>>(),
        "partitions": partitions,
    });
    let state = group.group_state.to_lowercase();
    let counted = output::counted(group.members.len() as u64, "member");
    let mut text = format!("group    {name}, {state}, {counted}\n");
    for member in &group.members {
        let DescribedMember { member_id, client_id, client_host, .. } = member;
        text += &format!("member   {member_id} ({client_id} at {client_host})\n");
    }
    match progress.is_empty() {
        true => text += "offsets  none committed\n",
        false => text += &format!("\n{}", table(&rows)),
    }
    asked.answer(&json, &text)
}

/// The group; an error if there is none.
fn described(cluster: &mut Cluster, name: &str) -> Result<DescribedGroup> {
    let question = DescribeGroupsRequest { groups: vec![name.to_owned()], ..Default::default() };
    let groups = cluster.coordinator(name)?.call(question)?.groups;
    let group = groups.into_iter().next().context("the broker says nothing of the group")?;
    Error::check(format!("group {name}"), group.error_code, None)?;
    if group.group_state == DEAD {
        bail!("there is no group {name}");
    }
    Ok(group)
}

/// What the group has committed.
pub(super) fn committed(cluster: &mut Cluster, name: &str) -> Result<BTreeMap<Place, i64>> {
    let question = OffsetFetchRequest { group_id: name.to_owned(), topics: None };
    let answer = cluster.coordinator(name)?.call(question)?;
    let what = format!("offsets of group {name}");
    Error::check(&what, answer.error_code, None)?;
    let mut committed = BTreeMap::new();
    for topic in answer.topics {
        for partition in topic.partitions {
            Error::check(&what, partition.error_code, None)?;
            if partition.committed_offset >= 0 {
                let place = (topic.name.clone(), partition.partition_index);
                committed.insert(place, partition.committed_offset);
            }
        }
    }
    Ok(committed)
}

/// Who reads which partitions, as far as members are consumers that say so.
fn assigned(members: &[DescribedMember]) -> BTreeMap<Place, String> {
    let mut assigned = BTreeMap::new();
    for member in members {
        let Ok(assignment) = ConsumerAssignment::of(member.member_assignment.clone()) else {
            continue;
        };
        for topic in assignment.topics {
            for partition in topic.partitions {
                assigned.insert((topic.name.clone(), partition), member.member_id.clone());
            }
        }
    }
    assigned
}

fn progress(
    cluster: &mut Cluster,
    committed: &BTreeMap<Place, i64>,
    assigned: &BTreeMap<Place, String>,
) -> Result<BTreeMap<Place, Progress>> {
    let places: BTreeSet<&Place> = committed.keys().chain(assigned.keys()).collect();
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in places {
        by_topic.entry(topic).or_default().push(*partition);
    }
    let mut progress = BTreeMap::new();
    for (topic, partitions) in by_topic {
        for (partition, end) in offsets(cluster, topic, &partitions, END, 0)? {
            let place = (topic.to_owned(), partition);
            let committed = committed.get(&place).copied();
            let member = assigned.get(&place).cloned();
            progress.insert(place, Progress { committed, end, member });
        }
    }
    Ok(progress)
}

fn reset(args: &ResetArgs) -> Result<()> {
    let NamedGroup { name, asked } = &args.group;
    let topic = &args.topic;
    let mut cluster = asked.open()?;
    let partitions = cluster.topic(topic)?.partitions;
    let partitions: Vec<_> = partitions.iter().map(|part| part.partition_index).collect();
    let question = DescribeGroupsRequest { groups: vec![name.clone()], ..Default::default() };
    let group = cluster.coordinator(name)?.call(question)?.groups.into_iter().next();
    let members = group.map_or(0, |group| group.members.len());
    if members > 0 {
        let members = output::counted(members as u64, "member");
        bail!("group {name} has {members}: its offsets can be set when they have left");
    }
    let before = committed(&mut cluster, name)?;
    let starts = offsets(&mut cluster, topic, &partitions, BEGINNING, 0)?;
    let ends = offsets(&mut cluster, topic, &partitions, END, 0)?;
    let targets = args.start().offsets(&mut cluster, topic, &partitions, 0)?;
    for (partition, target) in &targets {
        let (start, end) = (starts[partition], ends[partition]);
        if !(start..=end).contains(target) {
            bail!(
                "partition {partition} of {topic} has offsets {start} to {end}, and not {target}"
            );
        }
    }
    if !args.dry_run {
        Member::new(name, topic).commit(&mut cluster, &targets)?;
    }
    let mut rows = vec![head(["partition", "committed", "now", "end"])];
    let mut changes = Vec::new();
    for (partition, target) in &targets {
        let was = before.get(&(topic.clone(), *partition)).copied();
        let end = ends[partition];
        rows.push([partition.to_string(), dash(was), target.to_string(), end.to_string()]);
        changes.push(json!({ "partition": partition, "was": was, "now": target, "end": end }));
    }
    let json = json!({
        "group": name,
        "topic": topic,
        "dry_run": args.dry_run,
        "partitions": changes,
    });
    let said = match args.dry_run {
        true => format!("group {name} would go on so in {topic}; nothing was changed:\n"),
        false => format!("group {name} goes on so in {topic}:\n"),
    };
    asked.answer(&json, &format!("{said}\n{}", table(&rows)))
}

fn delete(args: &NamedGroup) -> Result<()> {
    let NamedGroup { name, asked } = args;
    let question = DeleteGroupsRequest { groups_names: vec![name.clone()] };
    let deleted = asked.open()?.coordinator(name)?.call(question)?.results.into_iter().next();
    let deleted = deleted.context("the broker says nothing of the group")?;
    Error::check(format!("group {name}"), deleted.error_code, None)?;
    asked.answer(&json!({ "group": name, "deleted": true }), &format!("group {name} deleted\n"))
}
