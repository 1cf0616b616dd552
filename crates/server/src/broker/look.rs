//! What lies in the directory of a node, looked at from outside, whether a node runs there or not. Nothing is changed,
//! and no lock is taken.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use plimsoll_log::View;
use plimsoll_sync::Dir;

use super::error::Failed;
use super::layout::{self, CONTROL, RECORDS};
use super::snapshot::Snapshot;
use crate::cluster;
use crate::control::{Catalog, Change};
use crate::shard::{State, TopicId};

/// What topics are called, and were.
#[derive(Debug, Clone, Default)]
pub struct Names {
    catalog: Catalog,
    all: BTreeMap<TopicId, String>,
}

impl Names {
    /// What the topic with this id is called, or was before it was deleted.
    #[must_use]
    pub fn of(&self, id: TopicId) -> Option<&str> {
        self.all.get(&id).map(String::as_str)
    }

    /// The topic of this name that there is.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<TopicId> {
        self.catalog.find(name).map(|(id, _)| id)
    }
}

/// The shards of records, and where their chapters are, if there is a place for these.
///
/// # Errors
/// [`Failed::Directory`]: it cannot be read.
pub fn chapters_in(dir: &dyn Dir) -> Result<Vec<(u32, Option<Arc<dyn Dir>>)>, Failed> {
    let chapters = RECORDS.map(|number| {
        let found = match dir.open_dir(&layout::chapters(number)) {
            Err(error) if error.kind() == Some(ErrorKind::NotFound) => Ok(None),
            found => found.map(Some),
        };
        Ok((number, found.map_err(Failed::Directory)?))
    });
    chapters.into_iter().collect()
}

/// What the newest snapshot of a shard of records says, if there is one: it is durable.
///
/// # Errors
/// [`Failed::Damaged`]: it is none.
pub fn snapshot_of(dir: &dyn Dir, shard: u32) -> Result<Option<State>, Failed> {
    let Some(Snapshot { state, .. }) = Snapshot::look(dir, shard)? else { return Ok(None) };
    let state = State::decode(&state);
    state.map(Some).map_err(|_malformed| Failed::Damaged(layout::state(shard)))
}

/// What topics are called, as the log of the control shard has it: all of it, as none of it is ever let go of.
///
/// # Errors
/// [`Failed`]: there is no such log, or it cannot be read.
pub fn names_in(dir: &dyn Dir) -> Result<Names, Failed> {
    let damaged = || Failed::Damaged(layout::shard(CONTROL));
    let failed = |why: plimsoll_log::Error| Failed::Shard { number: CONTROL, why: why.into() };
    let log = dir.open_dir(&layout::shard(CONTROL)).map_err(Failed::Directory)?;
    let view = View::of(log).map_err(failed)?;
    let mut reader = view.read_from(view.first_index()).map_err(failed)?;
    let mut names = Names::default();
    while let Some(record) = reader.next_record().map_err(failed)? {
        let payload = cluster::payload(record.index, record.payload);
        let Some(payload) = payload.map_err(|_other| damaged())? else { continue };
        let change = Change::decode(&payload).map_err(|_malformed| damaged())?;
        // As where it is applied: what cannot be is none.
        if let (Ok(()), Change::Create { id, name, .. }) = (names.catalog.apply(&change), &change) {
            names.all.insert(*id, name.clone());
        }
    }
    Ok(names)
}
