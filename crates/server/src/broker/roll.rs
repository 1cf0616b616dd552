//! [`Roll`]: what follows from what each node says of its replica of a shard ([`Row`]). Pure.
//!
//! Its [digest](Roll::digest) is of all rows, by their nodes. While nobody leads nothing of them changes but by what also changes what should
//! be decided.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use twox_hash::XxHash3_128;

use super::lead::Leads;
use super::row::Row;
use super::unmet::Unmet;
use crate::cluster::spare;

/// Of each shard which voters have what was committed a moment ago, as its leader knows.
pub(super) type Levels = BTreeMap<u32, BTreeSet<u64>>;

/// Of which shards a log has been damaged for seconds, and with what of it can be gone on, if with any: term and index of the last entry.
pub(super) type Damage = BTreeMap<u32, Option<(u64, u64)>>;

/// A log is damaged, and longer than what would be gone on with: what of it can be gone on with is not known yet, or cannot be by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Undecidable {
    /// Whose.
    pub node: u64,
    /// Whether it was found just now: some seconds later it is known, or healed.
    pub is_new: bool,
}

/// How a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// A replica leads.
    Led,
    /// Nobody leads, and those that can vote are a majority: they will elect one.
    Electing,
    /// Those that answer are too few, whatever they remember.
    Unreached,
    /// A majority answers, and too few of them know that they forgot nothing, or none of them has the log that it was decided to go on with;
    /// or the longest logs are damaged, which nobody mends, and no majority votes for any other.
    Fenced,
}

/// All that is known of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Roll {
    /// The number of the shard.
    pub shard: u32,
    /// How it is.
    pub condition: Condition,
    /// Who leads.
    pub leader: Option<u64>,
    /// After which loss it goes on: the newest that any replica is of.
    pub generation: u64,
    /// Entries up to this log index are known to be durable on a majority; of a fenced shard, and to be in a log of one that
    /// answers.
    pub guaranteed: u64,
    /// D, as far as any of those that answer knows. Above what is guaranteed disks have lost what they had called durable.
    pub durable: u64,
    /// The last entry of the longest log of those that vote and answer: its term and index. A log that is damaged counts as far as that, once
    /// nobody has given it for seconds; before, only where all are damaged.
    pub best_tail: (u64, u64),
    /// C, as far as any of those that answer knows: more may have been acknowledged.
    pub committed: u64,
    /// Who votes.
    pub voters: Vec<u64>,
    /// Voters that do not answer.
    pub missing: Vec<u64>,
    /// Voters whose logs are damaged within what they have applied, and that the others are a majority without: they are not asked.
    pub unusable: Vec<u64>,
    /// Voters that answer, and say nothing of what it has: they began anew, and have not caught up with a leader since.
    pub empty: Vec<u64>,
    /// Nodes that do not answer, and have the shard without a vote.
    pub absent: Vec<u64>,
    /// Nodes that a founder waits for, which runs alone until all are there that it was started with.
    pub awaited: Vec<u64>,
    /// Voters that have what was committed a moment ago, as the leader says; `None` if it has led for too short a time to know, does not answer,
    /// or nobody leads.
    pub level: Option<BTreeSet<u64>>,
    /// How many more voters may fail before its leader takes nothing any more: those count that answer, are not in doubt, and are level where
    /// that is known. `None` where nobody leads, or the leader takes nothing now.
    pub spare: Option<usize>,
    /// Whether what is acknowledged is durable on a majority first, as the leader says; `None` where none does.
    pub is_guarded: Option<bool>,
    /// The topics that its leader refuses, as fewer brokers are in sync than they ask for.
    pub unmet: Option<Unmet>,
    /// Nodes that are about to be stopped, and lead nothing that another can lead.
    pub drained: BTreeSet<u64>,
    /// Why nothing can be decided of it, if it is fenced and that is so.
    pub undecidable: Option<Undecidable>,
    /// Of these rows, to be named by whoever decides.
    pub digest: String,
    /// What each says.
    pub rows: Vec<Row>,
}

impl Roll {
    /// What follows from what these say of a shard.
    pub(super) fn of(shard: u32, rows: impl IntoIterator<Item = Row>) -> Self {
        let rows: BTreeMap<u64, Row> = rows.into_iter().map(|row| (row.node, row)).collect();
        let generation = rows.values().map(|row| row.generation).max().unwrap_or(0);
        // Who has the newest entry knows best who votes.
        let newest = rows.values().max_by_key(|row| (row.last_term, row.last));
        let voters = newest.map_or(Vec::new(), |row| row.voters.clone());
        let missing: Vec<u64> =
            voters.iter().filter(|voter| !rows.contains_key(voter)).copied().collect();
        let majority = voters.len() / 2 + 1;
        let answer: Vec<&Row> = voters.iter().filter_map(|voter| rows.get(voter)).collect();
        let (empty, here): (Vec<&Row>, Vec<&Row>) = answer.into_iter().partition(|row| row.is_anew);
        let empty = empty.into_iter().map(|row| row.node).collect();
        let sure = || here.iter().filter(|row| !row.is_in_doubt && row.generation == generation);
        // Of who has less one must lead that does not, and is not damaged.
        let has_less =
            sure().any(|row| row.has_less) && !sure().any(|row| !row.has_less && !row.is_damaged);
        // Damage alone is mended by others once they are there. If not, a decision gives up what is behind it.
        let is_elected = |row: &Row| {
            let votes = sure().filter(|voter| voter.end() <= row.end());
            !row.is_damaged && votes.count() >= majority
        };
        let stands_still = sure().all(|row| !row.is_damaged || row.damage_lasts)
            && !sure().any(|row| is_elected(row));
        // One that takes nothing, and that too few beside it answer for, is not led: it may not know that yet.
        let leads = |row: &&&Row| row.leads && !(row.refuses && here.len() < majority);
        let leader = here.iter().filter(leads).max_by_key(|row| row.vote_term);
        let condition = match leader {
            Some(_) => Condition::Led,
            None if here.len() < majority => Condition::Unreached,
            None if sure().count() >= majority && !has_less && !stands_still => Condition::Electing,
            None => Condition::Fenced,
        };
        let all = || rows.values();
        let is_unusable = |row: &&&Row| row.damage_lasts && row.usable().is_none();
        let unusable: Vec<u64> = here.iter().filter(is_unusable).map(|row| row.node).collect();
        let is_enough = here.len() - unusable.len() >= majority;
        let unusable = if is_enough { unusable } else { Vec::new() };
        let asked = || here.iter().filter(|row| !unusable.contains(&row.node));
        let usable = asked().filter_map(|row| row.usable()).max();
        let longest = asked().map(|row| row.end()).max();
        let best_tail = usable.or(longest).unwrap_or((0, 0));
        let durable = all().map(|row| row.durable).max().unwrap_or(0);
        let guaranteed = match condition {
            Condition::Fenced => durable.min(best_tail.1),
            _ => durable,
        };
        let roll = Self {
            shard,
            condition,
            undecidable: None,
            leader: leader.map(|row| row.node),
            generation,
            guaranteed,
            durable,
            best_tail,
            committed: all().map(|row| row.committed).max().unwrap_or(0),
            digest: format!("{:032x}", digest(all())),
            voters,
            missing,
            unusable,
            empty,
            absent: Vec::new(),
            awaited: Vec::new(),
            level: None,
            spare: None,
            is_guarded: None,
            unmet: None,
            drained: BTreeSet::new(),
            rows: rows.into_values().collect(),
        };
        Self { undecidable: roll.find_undecidable(), ..roll }.with_spare()
    }

    /// The same, where these nodes have the shard.
    pub(super) fn among(mut self, nodes: impl IntoIterator<Item = u64>) -> Self {
        let answers = |node: &u64| self.rows.iter().any(|row| row.node == *node);
        let is_absent = |node: &u64| !answers(node) && !self.voters.contains(node);
        self.absent = nodes.into_iter().filter(is_absent).collect();
        self
    }

    /// The same, where a founder waits for these.
    pub(super) fn awaiting(mut self, nodes: &BTreeSet<u64>) -> Self {
        let is_there = |node: &u64| self.rows.iter().any(|row| row.node == *node);
        self.awaited = nodes.iter().copied().filter(|node| !is_there(node)).collect();
        self
    }

    /// The same, where leaders say this of the shards that they lead.
    pub(super) fn with_level(mut self, levels: &BTreeMap<u64, Levels>) -> Self {
        let said = self.leader.and_then(|leader| levels.get(&leader));
        self.level = said.and_then(|of| of.get(&self.shard)).cloned();
        self.with_spare()
    }

    /// The same, with what follows from it of how many more may fail. What is not heard is not counted.
    fn with_spare(mut self) -> Self {
        let is_sure = |row: &&Row| {
            let doubts = row.is_in_doubt || row.is_anew || row.generation < self.generation;
            !doubts && self.voters.contains(&row.node)
        };
        let counts = |row: &&Row| match &self.level {
            Some(level) => level.contains(&row.node),
            None => row.leads || !row.is_damaged && !row.lacks,
        };
        let sure = || self.rows.iter().filter(is_sure);
        let these = sure().filter(counts).map(|row| row.node).collect();
        let refuses = |row: &Row| row.refuses && self.leader == Some(row.node);
        // One that hears too few leads no more in a moment.
        let is_quorum = sure().count() > self.voters.len() / 2;
        let takes = self.leader.is_some() && is_quorum && !self.rows.iter().any(refuses);
        let voters = BTreeSet::from_iter(self.voters.iter().copied());
        self.spare = takes.then(|| spare(&[voters], &these));
        self
    }

    /// The same, where nodes say this of what they lead.
    pub(super) fn with_leads(mut self, leads: &BTreeMap<u64, Leads>) -> Self {
        let said = self.leader.and_then(|leader| leads.get(&leader)?.of.get(&self.shard));
        self.is_guarded = said.map(|lead| lead.is_guarded);
        // The leader knows whose disk is full.
        let known = said.and_then(|lead| lead.spare);
        self.spare = self.spare.map(|spare| known.unwrap_or(spare).min(spare));
        self.unmet = said.and_then(|lead| lead.unmet.clone());
        self
    }

    /// The same, where these nodes say that they are about to be stopped.
    pub(super) fn with_drained(mut self, drained: &BTreeSet<u64>) -> Self {
        let has = |node: &&u64| self.rows.iter().any(|row| row.node == **node);
        self.drained = drained.iter().filter(has).copied().collect();
        self
    }

    /// Nodes without a vote, or with a damaged log, whose logs are longer than that which is gone on with, and where they end.
    pub(super) fn unused(&self) -> BTreeMap<u64, (u64, u64)> {
        let others =
            self.rows.iter().filter(|row| row.is_damaged || !self.voters.contains(&row.node));
        let ends = others.map(|row| (row.node, (row.last_term, row.last)));
        ends.filter(|(_, end)| *end > self.best_tail).collect()
    }

    /// Whether a node has the log that is gone on with.
    pub(super) fn is_best(&self, node: u64) -> bool {
        // Where nobody says how much can be read of a log that is damaged, all of it counts.
        let here = self.here();
        let rows = || self.rows.iter().filter(|row| here.contains(&row.node));
        let is_any_usable = rows().any(|row| row.usable().is_some());
        let end = |row: &Row| if is_any_usable { row.usable() } else { Some(row.end()) };
        let mut of_node = rows().filter(|row| row.node == node);
        of_node.any(|row| end(row) >= Some(self.best_tail))
    }

    /// Whether the log of a voter is damaged, and goes on behind what would be gone on with: what it has there may be needed, so a person decides.
    pub(super) fn gives_up_damaged(&self) -> bool {
        let is_longer = |row: &Row| row.is_damaged && row.end() > self.best_tail;
        self.rows.iter().any(|row| self.voters.contains(&row.node) && is_longer(row))
    }

    /// Of a fenced shard, whether nothing is to be decided of it yet, or as it is.
    fn find_undecidable(&self) -> Option<Undecidable> {
        let here = self.here();
        let rows = || self.rows.iter().filter(|row| here.contains(&row.node));
        let is_any_usable = rows().any(|row| row.usable().is_some());
        let is_one = |row: &&Row| {
            let is_longer = !is_any_usable || row.end() > self.best_tail;
            row.usable().is_none() && is_longer
        };
        let row = rows().filter(is_one).min_by_key(|row| row.damage_lasts)?;
        let is_fenced = self.condition == Condition::Fenced;
        is_fenced.then_some(Undecidable { node: row.node, is_new: !row.damage_lasts })
    }

    /// Whether a voter that does not answer may have what was guaranteed, as no log that can be gone on with has it: then a person decides.
    pub(super) fn may_be_away(&self) -> bool {
        let is_lacking =
            self.durable > self.best_tail.1 || self.rows.iter().any(|row| row.has_less);
        is_lacking && !self.missing.is_empty()
    }

    /// Nodes that vote, and answer for what they have.
    pub(super) fn here(&self) -> Vec<u64> {
        let others = [&self.missing, &self.empty, &self.unusable];
        let is_here = |voter: &&u64| !others.iter().any(|others| others.contains(voter));
        self.voters.iter().filter(is_here).copied().collect()
    }
}

fn digest<'a>(rows: impl Iterator<Item = &'a Row>) -> u128 {
    let mut bytes = Vec::new();
    for row in rows {
        row.told().encode(&mut bytes);
        if let Some((term, index)) = row.whole {
            bytes.extend_from_slice(&term.to_le_bytes());
            bytes.extend_from_slice(&index.to_le_bytes());
        }
    }
    XxHash3_128::oneshot(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::lead::Lead;
    use crate::broker::row::tests::row;

    #[test]
    fn a_shard_is_fenced_where_a_majority_answers_and_too_few_of_them_forgot_nothing() {
        let sure = |node| row(node, false, (7, 20));
        let doubts = |node| row(node, true, (7, 10));
        let condition = |rows: &[Row]| Roll::of(2, rows.iter().cloned()).condition;
        assert_eq!(condition(&[doubts(1), doubts(2), doubts(3)]), Condition::Fenced);
        assert_eq!(condition(&[sure(1), doubts(2), doubts(3)]), Condition::Fenced);
        assert_eq!(condition(&[sure(1), doubts(2)]), Condition::Fenced);
        assert_eq!(condition(&[sure(1), sure(2)]), Condition::Electing);
        assert_eq!(condition(&[sure(1), sure(2), doubts(3)]), Condition::Electing);
        assert_eq!(condition(&[doubts(3)]), Condition::Unreached);
        assert_eq!(condition(&[]), Condition::Unreached);
        // Disks have lost what they had called durable.
        let short = [1, 2].map(|node| row(node, true, (7, 5)));
        let roll = Roll::of(2, short);
        assert_eq!((roll.guaranteed, roll.durable, roll.best_tail), (5, 6, (7, 5)));
        let leads = Row { leads: true, leader: 1, ..sure(1) };
        assert_eq!(condition(&[leads.clone(), doubts(2), doubts(3)]), Condition::Led);
        // It was elected as both others went, and had nothing agreed on any more: it was called led for a minute (a trial).
        let stuck = Row { refuses: true, ..leads };
        assert_eq!(condition(std::slice::from_ref(&stuck)), Condition::Unreached);
        assert_eq!(condition(&[stuck, sure(2)]), Condition::Led);
        // One of an older generation is heard by nobody.
        let old = Row { generation: 0, ..sure(2) };
        assert_eq!(condition(&[sure(1), old, doubts(3)]), Condition::Fenced);
        // It was decided to go on with what another has, which is away, or is not opened again yet.
        let less = |node| Row { has_less: true, ..sure(node) };
        assert_eq!(condition(&[less(1), less(2)]), Condition::Fenced);
        assert_eq!(condition(&[less(1), less(2), doubts(3)]), Condition::Fenced);
        assert_eq!(condition(&[less(1), less(2), sure(3)]), Condition::Electing);
        assert_eq!(condition(&[less(1), sure(3)]), Condition::Electing);
        // The one that has it does not campaign.
        let damaged = Row { is_damaged: true, ..row(3, false, (7, 21)) };
        assert_eq!(condition(&[less(1), less(2), damaged.clone()]), Condition::Fenced);
        assert_eq!(condition(&[sure(1), less(2), damaged.clone()]), Condition::Electing);
        // Nobody votes for one that has less, and what is damaged may be mended still.
        assert_eq!(condition(&[sure(1), damaged.clone()]), Condition::Electing);
        let lasts = Row { damage_lasts: true, whole: Some((7, 9)), ..damaged.clone() };
        assert_eq!(condition(&[sure(1), lasts.clone()]), Condition::Fenced);
        assert_eq!(condition(&[sure(1), sure(2), lasts.clone()]), Condition::Electing);
        let also_damaged = Row { is_damaged: true, ..sure(2) };
        assert_eq!(condition(&[also_damaged.clone(), lasts.clone()]), Condition::Electing);
        let also_lasts = Row { damage_lasts: true, whole: Some((7, 12)), ..also_damaged };
        let roll = Roll::of(2, [also_lasts, lasts.clone()]);
        assert_eq!((roll.condition, roll.best_tail), (Condition::Fenced, (7, 12)));
        assert_eq!((roll.is_best(2), roll.is_best(3)), (true, false));
        // What its state is ahead of nobody can go on with, and in less there may be too little.
        let within = Row { whole: None, ..lasts.clone() };
        let roll = Roll::of(2, [sure(1), within.clone()]);
        let is_not_yet = |node, is_new| Some(Undecidable { node, is_new });
        assert_eq!((roll.condition, roll.undecidable), (Condition::Fenced, is_not_yet(3, false)));
        let undecidable = |rows: [Row; 2]| Roll::of(2, rows).undecidable;
        assert_eq!(undecidable([doubts(1), damaged.clone()]), is_not_yet(3, true));
        assert_eq!(undecidable([doubts(1), lasts.clone()]), None);
        assert_eq!(undecidable([row(1, true, (7, 30)), damaged.clone()]), None, "it has more");
        // Where the others are a majority it is not asked.
        let roll = Roll::of(2, [doubts(1), doubts(2), within]);
        assert_eq!((roll.undecidable, roll.here(), roll.best_tail), (None, vec![1, 2], (7, 10)));
        assert_eq!((roll.unused().len(), roll.gives_up_damaged()), (1, true));
        // Nor where what all have is damaged.
        let all = [2, 3].map(|node| Row { node, whole: None, ..lasts.clone() });
        assert_eq!(undecidable(all), is_not_yet(2, false));
        // What is before the damage is gone on with where nobody has as much.
        let roll = Roll::of(2, [row(1, true, (7, 5)), lasts]);
        assert_eq!((roll.best_tail, roll.guaranteed, roll.durable), ((7, 9), 6, 6));
        assert_eq!(roll.unused(), BTreeMap::from([(3, (7, 21))]));
        let roll = Roll::of(2, [doubts(1), doubts(2), damaged.clone()]);
        assert_eq!((roll.best_tail, roll.unused()), ((7, 10), BTreeMap::from([(3, (7, 21))])));
        assert!(roll.gives_up_damaged(), "that is no clock's to decide");
        assert_eq!(Roll::of(2, [damaged]).best_tail, (7, 21));
        // One that is to be given all of it has nothing to go on with.
        let empty = Row { is_anew: true, ..row(3, true, (7, 30)) };
        assert_eq!(condition(&[doubts(1), doubts(2), empty.clone()]), Condition::Fenced);
        assert_eq!(condition(&[doubts(1), empty.clone()]), Condition::Unreached);
        let roll = Roll::of(2, [doubts(1), doubts(2), empty]);
        assert_eq!(
            (&roll.missing[..], &roll.empty[..], roll.here()),
            (&[][..], &[3][..], vec![1, 2])
        );
        let stranger = row(9, false, (1, 1));
        assert_eq!(condition(&[doubts(1), doubts(2), stranger]), Condition::Fenced);
    }

    /// That one more failure would stop it was for whoever looks to work out.
    #[test]
    fn a_led_shard_says_how_many_more_may_fail_of_those_that_are_heard_sure_and_level() {
        let sure = |node| row(node, false, (7, 20));
        let lead = || Row { leads: true, leader: 1, ..sure(1) };
        let spare = |rows: &[Row]| Roll::of(2, rows.iter().cloned()).spare;
        assert_eq!(spare(&[lead(), sure(2), sure(3)]), Some(1));
        assert_eq!(spare(&[lead(), sure(2)]), Some(0), "the third is not heard");
        assert_eq!(spare(&[lead(), sure(2), row(3, true, (7, 10))]), Some(0), "it is in doubt");
        assert_eq!(spare(&[lead(), sure(2), Row { is_anew: true, ..sure(3) }]), Some(0));
        assert_eq!(spare(&[lead(), sure(2), Row { generation: 0, ..sure(3) }]), Some(0));
        assert_eq!(spare(&[lead(), sure(2), Row { is_damaged: true, ..sure(3) }]), Some(0));
        assert_eq!(spare(&[lead(), sure(2), Row { lacks: true, ..sure(3) }]), Some(0));
        assert_eq!(spare(&[lead(), sure(2), sure(9)]), Some(0), "it has no vote");
        assert_eq!(spare(&[sure(1), sure(2), sure(3)]), None, "nobody leads");
        assert_eq!(spare(&[lead()]), None, "it leads no more in a moment");
        assert_eq!(spare(&[Row { refuses: true, ..lead() }, sure(2), sure(3)]), None);
        let level = |of: &[u64]| {
            let levels = Levels::from([(2, of.iter().copied().collect())]);
            let roll = Roll::of(2, [lead(), sure(2), sure(3)]);
            roll.with_level(&BTreeMap::from([(1, levels)])).spare
        };
        assert_eq!((level(&[1, 2, 3]), level(&[1, 3]), level(&[1])), (Some(1), Some(0), Some(0)));
    }

    #[test]
    fn what_a_leader_says_of_a_shard_is_believed_of_no_other() {
        let sure = |node| row(node, false, (7, 20));
        let led = Roll::of(2, [Row { leads: true, leader: 1, ..sure(1) }, sure(2)]);
        let lead = Lead { is_guarded: true, spare: Some(0), unmet: Some(Unmet::default()) };
        let says = |node, shard| {
            let of = BTreeMap::from([(shard, lead.clone())]);
            BTreeMap::from([(node, Leads { of, ..Leads::default() })])
        };
        let said = led.clone().with_leads(&says(1, 2));
        assert_eq!((said.is_guarded, said.unmet), (Some(true), Some(Unmet::default())));
        // A follower whose disk is full is level while nothing is written (an attacker).
        let level = BTreeMap::from([(1, Levels::from([(2, BTreeSet::from([1, 2, 3]))]))]);
        let three = Roll::of(2, [Row { leads: true, leader: 1, ..sure(1) }, sure(2), sure(3)]);
        let three = three.with_level(&level);
        assert_eq!(three.spare, Some(1));
        assert_eq!(three.with_leads(&says(1, 2)).spare, Some(0));
        for nothing in [says(2, 2), says(1, 3)] {
            let said = led.clone().with_leads(&nothing);
            assert_eq!((said.is_guarded, said.unmet), (None, None));
        }
    }

    #[test]
    fn what_is_known_is_the_most_that_anybody_knows() {
        let rows = [row(1, true, (7, 20)), row(2, true, (6, 30))];
        let roll = Roll::of(2, rows.clone());
        assert_eq!((roll.guaranteed, roll.committed, roll.best_tail), (6, 9, (7, 20)));
        assert_eq!((&roll.missing[..], roll.here()), (&[3][..], vec![1, 2]));
        assert_eq!(roll.clone().among([1, 2, 3, 4, 5]).absent, [4, 5]);
        let watch = [row(4, false, (7, 20)), row(5, false, (7, 21)), row(6, false, (6, 99))];
        assert!(!roll.may_be_away(), "as much as is known to be durable is here");
        let less = Row { has_less: true, ..rows[0].clone() };
        assert!(Roll::of(2, [less.clone(), rows[1].clone()]).may_be_away());
        assert!(!Roll::of(2, [less, rows[1].clone(), row(3, true, (7, 1))]).may_be_away());
        let short = [1, 2].map(|node| row(node, true, (7, 5)));
        assert!(Roll::of(2, short).may_be_away());
        let watched = Roll::of(2, rows.iter().cloned().chain(watch));
        assert_eq!(watched.unused(), BTreeMap::from([(5, (7, 21))]));
        // What a disk does meanwhile changes nothing of it; what one has forgotten does.
        let synced = Row { synced: 30, ..rows[0].clone() };
        assert_eq!(Roll::of(2, [synced, rows[1].clone()]).digest, roll.digest);
        let shorter = Row { last: 19, ..rows[0].clone() };
        assert_ne!(Roll::of(2, [shorter, rows[1].clone()]).digest, roll.digest);
        assert_ne!(Roll::of(2, [rows[0].clone()]).digest, roll.digest);
    }
}
