//! [`Commits`]: what members were told of their groups, and what must therefore never be told or applied.
//!
//! Whoever leads in a term knows all that was agreed on before it. So what it tells is not older than what was told in that term
//! and in those before; of later ones it may not have heard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use plimsoll_server::groups::{Answer, Change, Committed, Joined, Store};

use super::coordinating::Asked;
use super::world::lock;

/// The only topic that members read.
pub(crate) const TOPIC: &str = "read";

#[derive(Debug, Default)]
pub(crate) struct Commits(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// How far a group said that it is in a partition, and was told so: the highest, by term.
    offsets: BTreeMap<(String, i32), BTreeMap<u64, i64>>,
    /// The highest generation that a member of a group was told of, by term.
    generations: BTreeMap<String, BTreeMap<u64, i32>>,
    /// What was told of a generation.
    rosters: BTreeMap<(String, i32), Roster>,
    /// Who was told that it reads a partition in a generation.
    readers: BTreeMap<(String, i32, u8), String>,
}

#[derive(Debug)]
struct Roster {
    leader: String,
    protocol: String,
    /// Those that were told of it.
    told: BTreeSet<String>,
    /// Those that its leader was told of, once it was.
    all: Option<BTreeSet<String>>,
}

impl Commits {
    /// A change is about to be applied: no offset goes back.
    pub(crate) fn applies(&self, store: &Store, change: &Change) -> Result<(), String> {
        let Change::Commit { group, offsets } = change else { return Ok(()) };
        for (at, committed) in offsets {
            let before = store.committed(group, &at.topic, at.partition).map(|it| it.offset);
            if before > Some(committed.offset) {
                return Err(format!(
                    "{group} was at {before:?} of {at:?}, and is at {committed:?}"
                ));
            }
        }
        Ok(())
    }

    /// A member is told something in a term.
    pub(crate) fn answers(&self, term: u64, asked: &Asked, answer: &Answer) -> Result<(), String> {
        let known = &mut *lock(&self.0);
        match (asked, answer) {
            (Asked::Join(join, _), Answer::Joined(joined)) => {
                known.joined(term, &join.group, joined)
            }
            (Asked::Sync(sync), Answer::Synced(synced)) => {
                for partition in &synced.assignment {
                    let at = (sync.group.clone(), sync.generation, *partition);
                    let first = known.readers.entry(at).or_insert_with(|| sync.member.clone());
                    if *first != sync.member {
                        return Err(format!("{first} reads {partition}, and so does {sync:?}"));
                    }
                }
                Ok(())
            }
            (Asked::Commit(commit), Answer::Each(each)) => {
                for ((at, committing), _) in
                    commit.offsets.iter().zip(each).filter(|(_, taken)| taken.is_ok())
                {
                    let terms = known.offsets.entry((commit.group.clone(), at.partition));
                    let told = terms.or_default().entry(term).or_default();
                    *told = committing.offset.max(*told);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What groups have come to, as whoever leads in a term knows it: nothing that was told is gone.
    pub(crate) fn reads(&self, term: u64, store: &Store) -> Result<(), String> {
        let known = lock(&self.0);
        for ((group, partition), terms) in &known.offsets {
            let found = store.committed(group, TOPIC, *partition).map(|it| it.offset);
            let told = highest(terms, term);
            if found < told {
                return Err(format!(
                    "{group} is at {found:?} of {partition}, and was told {told:?}"
                ));
            }
        }
        for (group, terms) in &known.generations {
            let found = store.group(group).map(|stored| stored.roster().generation);
            let told = highest(terms, term);
            if found < told {
                return Err(format!("{group} is in generation {found:?}, and was told {told:?}"));
            }
        }
        Ok(())
    }
}

impl Known {
    fn joined(&mut self, term: u64, group: &str, joined: &Joined) -> Result<(), String> {
        let Joined { generation, protocol, leader, member, members, .. } = joined;
        let terms = self.generations.entry(group.to_owned()).or_default();
        if let Some(told) = highest(terms, term).filter(|told| told > generation) {
            return Err(format!("{group} was in generation {told}, and is in {joined:?}"));
        }
        terms.insert(term, *generation);
        let roster =
            self.rosters.entry((group.to_owned(), *generation)).or_insert_with(|| Roster {
                leader: leader.clone(),
                protocol: protocol.clone(),
                told: BTreeSet::new(),
                all: None,
            });
        roster.told.insert(member.clone());
        let listed: BTreeSet<_> = members.iter().map(|(id, ..)| id.clone()).collect();
        if !listed.is_empty() {
            let first = roster.all.get_or_insert_with(|| listed.clone());
            if *first != listed {
                return Err(format!("{group} has {first:?}, and {joined:?}"));
            }
        }
        let is_listed = roster.all.as_ref().is_none_or(|all| roster.told.is_subset(all));
        if roster.leader == *leader && roster.protocol == *protocol && is_listed {
            return Ok(());
        }
        Err(format!("{group} has {roster:?}, and {joined:?}"))
    }
}

/// How far a group is in each partition.
pub(crate) fn offsets(store: &Store, group: &str) -> BTreeMap<i32, i64> {
    let stored = store.group(group).into_iter().flat_map(|group| group.offsets());
    stored.map(|(_, partition, Committed { offset, .. })| (partition, *offset)).collect()
}

/// The highest that was told in a term, or in one before it.
fn highest<T: Copy + Ord>(terms: &BTreeMap<u64, T>, term: u64) -> Option<T> {
    terms.range(..=term).map(|(_, told)| *told).max()
}
