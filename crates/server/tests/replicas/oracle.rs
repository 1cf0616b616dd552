//! [`Oracle`]: what a life has shown so far, and what must therefore never be shown.
//!
//! It sees what each replica sends and applies, and what clients are told. It knows nothing of what replicas
//! have in memory, and does not ask the engine.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use bytes::Bytes;

use super::glance::Seen;
use super::world::{lock, must_sync};

/// How often something was seen in a life.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

#[derive(Debug, Default)]
pub(crate) struct Oracle(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Who acted as leader in a term.
    leaders: BTreeMap<u64, u64>,
    /// The last entry that was seen of a leader, by term.
    last: BTreeMap<u64, u64>,
    /// Hashes of the record and of the payload, by term and index.
    entries: BTreeMap<(u64, u64), (u64, u64)>,
    /// Hashes of payloads, by term and index.
    payloads: BTreeMap<(u64, u64), u64>,
    /// Term and hash of what was applied or acknowledged, by index, of each generation from when it began.
    committed: BTreeMap<u64, BTreeMap<u64, (u64, u64)>>,
    /// How many of these were acknowledged to a client.
    acknowledged: BTreeMap<u64, ()>,
    /// D, as far as any replica ever said.
    durable: Option<u64>,
    /// How many entries were guaranteed when a generation began.
    guaranteed: BTreeMap<u64, u64>,
    /// A replica that began dirty: its incarnation, and the goals it was told of: its own term when it asked,
    /// the leader's, the last index.
    goals: BTreeMap<u64, (u64, Vec<Goal>)>,
    broken: Option<String>,
    counts: Counts,
}

type Goal = (u64, u64, Option<u64>);

pub(crate) fn hash(what: impl Hash) -> u64 {
    // Its keys are always the same.
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Oracle {
    pub(crate) fn count(&self, what: &'static str) {
        *lock(&self.0).counts.entry(what).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> Counts {
        lock(&self.0).counts.clone()
    }

    /// A promise was broken. Told later: this may be a task of the engine's.
    pub(crate) fn broken(&self, how: String) {
        lock(&self.0).broken.get_or_insert(how);
    }

    /// # Panics
    /// If a promise was broken.
    pub(crate) fn check(&self) {
        let broken = lock(&self.0).broken.take();
        if let Some(how) = broken {
            panic!("{how}");
        }
    }

    /// One leader a term.
    pub(crate) fn leads(&self, node: u64, term: u64) {
        let mut known = lock(&self.0);
        let leader = *known.leaders.entry(term).or_insert(node);
        drop(known);
        if leader != node {
            self.broken(format!("nodes {leader} and {node} lead in term {term}"));
        }
    }

    /// A leader has this entry.
    pub(crate) fn has(&self, term: u64, index: u64) {
        let mut known = lock(&self.0);
        let last = known.last.entry(term).or_default();
        *last = index.max(*last);
    }

    /// The last entry that a leader has sent, by its term, as of now.
    pub(crate) fn sent(&self) -> BTreeMap<u64, u64> {
        lock(&self.0).last.clone()
    }

    /// A leader names the last entry of its log to one that asks how far it must come, and had sent so much when
    /// it was asked.
    pub(crate) fn names_last(
        &self,
        node: u64,
        (term, last): (u64, Option<u64>),
        sent: Option<u64>,
    ) {
        if last < sent {
            self.broken(format!(
                "node {node} names {last:?} as its last in term {term}, and had sent {sent:?}"
            ));
        }
    }

    /// One entry a term and index, on all nodes, for ever.
    pub(crate) fn sends(&self, node: u64, entry: &Seen) {
        let Seen { term, index, record, payload } = entry;
        let hashes = (hash(record), hash(payload));
        let mut known = lock(&self.0);
        let first = *known.entries.entry((*term, *index)).or_insert(hashes);
        let applied = *known.payloads.entry((*term, *index)).or_insert(hashes.1);
        drop(known);
        if first != hashes || applied != hashes.1 {
            self.broken(format!("node {node} sends another entry {index} of term {term}"));
        }
    }

    /// One entry an index that is committed.
    pub(crate) fn applies(
        &self,
        (node, generation): (u64, u64),
        index: u64,
        term: u64,
        payload: Option<&Bytes>,
    ) {
        let hash = hash(payload);
        let mut known = lock(&self.0);
        let first = *known.payloads.entry((term, index)).or_insert(hash);
        let before = known.committed.range(..generation).next_back();
        let before = before.and_then(|(_, committed)| committed.get(&index).copied());
        if before.is_some_and(|before| before != (term, hash)) {
            *known.counts.entry("an entry in the place of one that was lost").or_default() += 1;
        }
        let committed = known.committed.entry(generation).or_default();
        let committed = *committed.entry(index).or_insert((term, hash));
        drop(known);
        if first != hash {
            self.broken(format!("node {node} applies another entry {index} of term {term}"));
        }
        if committed != (term, hash) {
            let (before, _) = committed;
            self.broken(format!(
                "node {node} applies entry {index} of term {term}, where one of term {before} was committed"
            ));
        }
    }

    /// A client was told that its payload is committed there.
    pub(crate) fn acknowledges(&self, whose: (u64, u64), index: u64, term: u64, payload: &Bytes) {
        self.applies(whose, index, term, Some(payload));
        let mut known = lock(&self.0);
        let newest = known.committed.last_key_value().map(|(newest, _)| *newest);
        if Some(whose.1) < newest {
            // It was acknowledged before somebody decided, and is told now.
            *known.counts.entry("records acknowledged that may be lost").or_default() += 1;
            return;
        }
        known.acknowledged.insert(index, ());
        if must_sync(payload) {
            // A majority had it on its disks before it counted: no loss takes it.
            known.durable = known.durable.max(Some(index));
        }
        drop(known);
        self.count("a proposal acknowledged");
    }

    pub(crate) fn durable(&self, durable: Option<u64>) {
        let mut known = lock(&self.0);
        known.durable = durable.max(known.durable);
    }

    /// What was in memory is given up by rule, from this generation on: all up to D stays. A generation that goes on may
    /// have ended and begun, alone.
    pub(crate) fn loses_to_durable(&self, generation: u64) {
        let mut known = lock(&self.0);
        let next = known.durable.map_or(0, |durable| durable + 1);
        let mut committed =
            known.committed.last_entry().map_or_else(BTreeMap::new, |last| last.get().clone());
        committed.split_off(&next);
        known.guaranteed.insert(generation, next);
        known.committed.insert(generation, committed);
        let gone = known.acknowledged.split_off(&next).len() as u64;
        *known.counts.entry("records acknowledged that may be lost").or_default() += gone;
    }

    /// How many entries are guaranteed now: the next is not.
    pub(crate) fn guaranteed_now(&self) -> u64 {
        lock(&self.0).durable.map_or(0, |durable| durable + 1)
    }

    /// How many entries were guaranteed when a generation began.
    pub(crate) fn guaranteed(&self, generation: u64) -> u64 {
        lock(&self.0).guaranteed.get(&generation).copied().unwrap_or(0)
    }

    /// Whether nobody has decided anything since.
    pub(crate) fn is_newest(&self, generation: u64) -> bool {
        lock(&self.0).guaranteed.last_key_value().is_none_or(|(newest, _)| *newest <= generation)
    }

    /// The last index that a client was told of.
    pub(crate) fn last_acknowledged(&self) -> Option<u64> {
        lock(&self.0).acknowledged.last_key_value().map(|(index, ())| *index)
    }

    pub(crate) fn begins_dirty(&self, node: u64, incarnation: u64) {
        lock(&self.0).goals.insert(node, (incarnation, Vec::new()));
    }

    /// A leader told a replica how far it must come.
    pub(crate) fn names(&self, to: u64, incarnation: u64, goal: Goal) {
        if let Some((of, goals)) = lock(&self.0).goals.get_mut(&to)
            && *of == incarnation
        {
            goals.push(goal);
        }
    }

    /// Whether a replica that began dirty, and has applied so far, may vote.
    pub(crate) fn may_vote(&self, node: u64, incarnation: u64, applied: Option<u64>) -> bool {
        match lock(&self.0).goals.get(&node) {
            Some((of, goals)) if *of == incarnation => {
                let is_reached = |(own, term, last): &Goal| term >= own && applied >= *last;
                goals.iter().any(is_reached)
            }
            _ => true,
        }
    }
}
