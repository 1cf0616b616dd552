//! [`Intents`]: what clients were told of topics, and what must therefore be so from then on.
//!
//! As in `commits.rs`, whoever leads in a term knows what was told in it and before it. What was told is durable: its place in the
//! log is never another's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use plimsoll_server::control::{Catalog, Change, Setting, Topic};
use plimsoll_server::shard::TopicId;

use super::machines::Agreed;
use super::topics::SETTING;
use super::world::lock;

#[derive(Debug, Default)]
pub(crate) struct Intents(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The name of each topic that a client was told is made, and the term.
    made: BTreeMap<TopicId, (String, u64)>,
    /// Those that somebody wants to be deleted.
    to_go: BTreeSet<TopicId>,
    /// Those that are marked, and those that are gone, each with the term.
    marked: BTreeMap<TopicId, u64>,
    gone: BTreeMap<TopicId, u64>,
    /// With which leader epoch topics of a name began, by the place in the log.
    bases: BTreeMap<String, BTreeMap<u64, i32>>,
    /// Values that were set for a topic, each with the term, by the place in the log.
    values: BTreeMap<TopicId, BTreeMap<u64, (String, u64)>>,
    /// Versions of the catalog, likewise.
    versions: BTreeMap<u64, (u64, u64)>,
    /// Ids of producers that were given away: the first of each block, and the end.
    blocks: BTreeMap<i64, i64>,
}

impl Intents {
    /// Somebody is about to ask that a topic go.
    pub(crate) fn is_to_go(&self, id: TopicId) {
        lock(&self.0).to_go.insert(id);
    }

    /// Somebody is told that a change is agreed on, in a term, at an index.
    pub(crate) fn agreed(
        &self,
        (term, index): (u64, u64),
        change: &Change,
        agreed: Agreed,
        catalog: &Catalog,
    ) -> Result<(), String> {
        let known = &mut *lock(&self.0);
        let versions = known.versions.iter().map(|(at, (version, _))| (*at, *version)).collect();
        rises(&versions, index, agreed.version)
            .map_err(|how| format!("versions of the catalog: {how}"))?;
        known.versions.insert(index, (agreed.version, term));
        match change {
            Change::Create { id, name, .. } => {
                known.made.insert(*id, (name.clone(), term));
                // Another may lead by now, and have had it go.
                let base = catalog.topic(*id).and_then(base_epoch);
                if let Some(base) = base {
                    let bases = known.bases.entry(name.clone()).or_default();
                    rises(bases, index, base).map_err(|how| format!("epochs of {name}: {how}"))?;
                    bases.insert(index, base);
                }
            }
            Change::Alter { id, settings } => {
                let (value, _) = settings.value(setting());
                let values = known.values.entry(*id).or_default();
                values.insert(index, (value.to_owned(), term));
            }
            Change::Delete { id } => {
                known.marked.insert(*id, term);
            }
            Change::Gone { id, .. } => {
                known.gone.insert(*id, term);
            }
            Change::Producers(count) => {
                let end = agreed.first + i64::from(*count);
                let below = known.blocks.range(..end).next_back();
                if let Some((first, before)) = below.filter(|(_, before)| **before > agreed.first) {
                    let given = agreed.first..end;
                    return Err(format!("ids {first}..{before} were given, and {given:?} are"));
                }
                known.blocks.insert(agreed.first, end);
            }
            _ => {}
        }
        Ok(())
    }

    /// Topics as whoever leads in a term knows them: all that was told is so.
    pub(crate) fn sees(&self, term: u64, catalog: &Catalog) -> Result<(), String> {
        let known = lock(&self.0);
        for (id, (name, _)) in known.made.iter().filter(|(_, (_, made))| *made <= term) {
            let found = catalog.find(name).is_some_and(|(found, _)| found == *id);
            if !found && !known.to_go.contains(id) {
                return Err(format!("topic {name}, {id:?}, was made, and is not there"));
            }
        }
        let is_there = |id: &TopicId| catalog.topic(*id).is_some_and(|topic| !topic.is_deleted);
        if let Some((id, _)) = known.marked.iter().find(|(id, at)| **at <= term && is_there(id)) {
            return Err(format!("topic {id:?} was deleted, and is there"));
        }
        let is_left = |id: &TopicId| catalog.topic(*id).is_some();
        if let Some((id, _)) = known.gone.iter().find(|(id, at)| **at <= term && is_left(id)) {
            return Err(format!("topic {id:?} was gone, and is there"));
        }
        for (id, values) in &known.values {
            let Some(topic) = catalog.topic(*id) else { continue };
            let (found, is_set) = topic.settings.value(setting());
            let newest = values.iter().rfind(|(_, (_, at))| *at <= term);
            let Some((newest, (told, _))) = newest else { continue };
            let is_older = |(at, (value, _)): (&u64, &(String, u64))| value == found && at < newest;
            if !is_set || values.iter().any(is_older) {
                return Err(format!("{SETTING} of {id:?} was {told}, and is {found}"));
            }
        }
        let told = known.versions.values().filter(|(_, at)| *at <= term).map(|(it, _)| *it).max();
        let found = catalog.version();
        if told > Some(found) {
            return Err(format!("the catalog was at version {told:?}, and is at {found}"));
        }
        let given = known.blocks.last_key_value().map(|(_, end)| *end).filter(|_| term == u64::MAX);
        let next = catalog.next_producer();
        match given > Some(next) {
            true => Err(format!("ids up to {given:?} were given, and {next} is next")),
            false => Ok(()),
        }
    }
}

/// Whether a change can be, by rule.
pub(crate) fn may_be(catalog: &Catalog, change: &Change) -> bool {
    let topic = |id: &TopicId| catalog.topic(*id);
    match change {
        Change::Create { id, name, .. } => catalog.id(name).is_none() && topic(id).is_none(),
        Change::Grow { id, .. } | Change::Alter { id, .. } | Change::Delete { id } => {
            topic(id).is_some_and(|topic| !topic.is_deleted)
        }
        Change::Gone { id, .. } => topic(id).is_some_and(|topic| topic.is_deleted),
        _ => true,
    }
}

/// What is there rises from place to place, with this too.
fn rises<T: Copy + Ord + std::fmt::Debug>(
    there: &BTreeMap<u64, T>,
    index: u64,
    new: T,
) -> Result<(), String> {
    let before = there.range(..index).next_back().filter(|(_, before)| **before >= new);
    let behind = there.range(index + 1..).next().filter(|(_, behind)| **behind <= new);
    match before.or(behind) {
        Some(other) => Err(format!("{new:?} at {index}, and {other:?}")),
        None => Ok(()),
    }
}

fn base_epoch(topic: &Topic) -> Option<i32> {
    topic.partitions.iter().flatten().map(|extent| extent.base_epoch).min()
}

fn setting() -> &'static Setting {
    Setting::find(SETTING).expect("it stands in the table")
}
