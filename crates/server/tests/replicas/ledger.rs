//! [`Ledger`]: which record each offset names, and what producers were told.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;

use bytes::Bytes;
use plimsoll_server::shard::{Batch, Entry, Item, State};

use super::shard::OPENING;
use super::world::lock;

/// A record, or the first of a batch: whose, in which epoch, with which sequence.
pub(crate) type Name = (u64, i16, i32);

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Offsets that were applied anywhere: who read there saw this record.
    names: BTreeMap<i64, Name>,
    /// Offsets that producers were told of.
    told: BTreeMap<i64, Name>,
}

impl Ledger {
    /// An entry is applied at a node: no offset names two records, whatever was lost in between.
    pub(crate) fn applies(&self, entry: &Bytes) -> Result<(), String> {
        let names = &mut lock(&self.0).names;
        for (offset, name) in records(entry) {
            let first = *names.entry(offset).or_insert(name);
            if first != name {
                return Err(format!("offset {offset} named {first:?}, and names {name:?}"));
            }
        }
        Ok(())
    }

    /// A producer is told where its batch is.
    pub(crate) fn told(&self, first: Name, offsets: Range<i64>) -> Result<(), String> {
        let (producer, epoch, sequence) = first;
        let known = &mut *lock(&self.0);
        for (offset, sequence) in offsets.zip(sequence..) {
            let name = (producer, epoch, sequence);
            if known.names.get(&offset) != Some(&name) {
                let named = known.names.get(&offset);
                return Err(format!("{name:?} is said to be at {offset}, where {named:?} is"));
            }
            known.told.insert(offset, name);
        }
        Ok(())
    }

    /// Holds a log that was applied against all that was said: each record once, and what a producer was told of is
    /// there, or lies between offsets that a fence gave up. How many lie there.
    pub(crate) fn settle(
        &self,
        state: &State,
        log: impl Iterator<Item = Bytes>,
    ) -> Result<u64, String> {
        let (mut there, mut once) = (BTreeMap::new(), BTreeSet::new());
        for (offset, name) in log.flat_map(|entry| records(&entry)) {
            let (is_new, is_once) = (there.insert(offset, name).is_none(), once.insert(name));
            if !is_new || !is_once {
                return Err(format!("offset {offset}, {name:?}, is there twice"));
            }
        }
        let Some(partition) = state.partition(OPENING) else {
            return Err("no partition is open".to_owned());
        };
        let gaps: Vec<_> = partition.gaps().collect();
        let is_given_up = |offset| gaps.iter().any(|gap| (gap.from..gap.to).contains(&offset));
        if let Some(hole) = (0..partition.next())
            .find(|offset| !there.contains_key(offset) && !is_given_up(*offset))
        {
            return Err(format!("nothing is at {hole}, and no fence gave it up"));
        }
        let mut lost = 0;
        for (offset, name) in &lock(&self.0).told {
            match there.get(offset) {
                Some(found) if found == name => {}
                None if is_given_up(*offset) => lost += 1,
                found => return Err(format!("{name:?} was at {offset}, and {found:?} is")),
            }
        }
        Ok(lost)
    }
}

/// The records of an entry, each with its offset.
fn records(entry: &Bytes) -> Vec<(i64, Name)> {
    let Ok(entry) = Entry::decode(entry) else { return Vec::new() };
    let mut records = Vec::new();
    for item in entry.items() {
        let Ok(Item::Batch { bytes, .. }) = item else { continue };
        let batch = Batch::read(bytes).expect("what is agreed on is a batch");
        let first = batch.sequenced.expect("all producers are idempotent");
        let producer = u64::try_from(first.producer).expect("it is counted from 1");
        let offsets = batch.base_offset..batch.end().expect("offsets are few");
        records.extend(
            offsets.zip(first.first..).map(|(at, number)| (at, (producer, first.epoch, number))),
        );
    }
    records
}
