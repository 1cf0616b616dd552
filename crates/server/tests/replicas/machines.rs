//! [`Machines`]: the state machines that the group carries, each the broker's own: a shard of records, groups of consumers, and
//! what topics there are to be.
//!
//! In the broker each has a log of its own. Here they share one, and so its faults. An entry of groups or of topics says so in its
//! first bytes, and must be durable before it counts; what is of none of them passes all of them by.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_server::control::{self, Catalog, Impossible};
use plimsoll_server::groups::{self, Store};
use plimsoll_server::shard::{Entry, State};

use super::commits::Commits;
use super::intents::{self, Intents};
use super::ledger::Ledger;

const GROUPS: &[u8] = b"sync groups:";
const TOPICS: &[u8] = b"sync topics:";

/// What entries make of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Machines {
    pub(crate) records: State,
    pub(crate) groups: Store,
    pub(crate) catalog: Catalog,
}

/// The same, as a snapshot has it. A catalog has no bytes: the broker keeps all of that log.
#[derive(Debug, Clone)]
pub(crate) struct Saved {
    records: State,
    groups: Vec<u8>,
    catalog: Catalog,
}

/// What was shown of each of them so far.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    pub(crate) records: Ledger,
    pub(crate) commits: Commits,
    pub(crate) intents: Intents,
}

/// What a change of topics says once it is applied, as in the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The first of the ids of producers that it gave away, if it did.
    pub(crate) first: i64,
    pub(crate) version: u64,
}

/// What applying an entry says, if it is of topics.
pub(crate) type Did = Option<Result<Agreed, Impossible>>;

impl Machines {
    /// The last entry that was applied, as the group counts.
    pub(crate) fn applied(&self) -> Option<u64> {
        self.records.applied().checked_sub(1)
    }

    /// Applies an entry, and holds it against what was shown. The shard counts from 1.
    pub(crate) fn apply(
        &mut self,
        index: u64,
        term: u64,
        payload: Option<&Bytes>,
        ledgers: &Ledgers,
    ) -> Result<Did, String> {
        let of_records = payload.filter(|payload| Entry::decode(payload).is_ok());
        if let Some(entry) = of_records {
            ledgers.records.applies(entry)?;
            let applied = self.records.apply(index + 1, entry, &mut Vec::new());
            return applied.map(|()| None).map_err(|why| why.to_string());
        }
        self.records.pass(index + 1, term).map_err(|why| why.to_string())?;
        let payload = payload.map_or(&[][..], |payload| payload);
        if let Some(change) = payload.strip_prefix(GROUPS) {
            let change = groups::Change::decode(change).map_err(|why| why.to_string())?;
            ledgers.commits.applies(&self.groups, &change)?;
            self.groups.apply(&change).map_err(|why| why.to_string())?;
        }
        match payload.strip_prefix(TOPICS) {
            Some(change) => self.intend(change).map(Some),
            None => Ok(None),
        }
    }

    fn intend(&mut self, change: &[u8]) -> Result<Result<Agreed, Impossible>, String> {
        let change = control::Change::decode(change).map_err(|why| why.to_string())?;
        let (first, before) = (self.catalog.next_producer(), self.catalog.version());
        let may_be = intents::may_be(&self.catalog, &change);
        let applied = self.catalog.apply(&change);
        let version = self.catalog.version();
        if applied.is_ok() != may_be || version != before + u64::from(may_be) {
            return Err(format!("{change:?} of version {before}: {applied:?}, {version}"));
        }
        Ok(applied.map(|()| Agreed { first, version }))
    }

    pub(crate) fn save(&self) -> Saved {
        let Self { records, groups, catalog } = self;
        Saved { records: records.clone(), groups: groups.encode(), catalog: catalog.clone() }
    }
}

impl Saved {
    pub(crate) fn load(self) -> Machines {
        let groups = Store::decode(&self.groups).expect("it was encoded");
        Machines { records: self.records, groups, catalog: self.catalog }
    }
}

impl Ledgers {
    /// Holds what a life has come to against all that was shown. How many records that a producer was told of are given up.
    pub(crate) fn settle(
        self: &Arc<Self>,
        machines: &Machines,
        log: impl Iterator<Item = Bytes>,
    ) -> Result<u64, String> {
        self.commits.reads(u64::MAX, &machines.groups)?;
        self.intents.sees(u64::MAX, &machines.catalog)?;
        self.records.settle(&machines.records, log)
    }
}

/// The entry that has groups changed.
pub(crate) fn of_groups(change: &groups::Change) -> Bytes {
    [GROUPS, &change.encode()].concat().into()
}

/// The entry that has topics changed.
pub(crate) fn of_topics(change: &control::Change) -> Bytes {
    [TOPICS, &change.encode()].concat().into()
}
