//! [`Roll`]: what each node says of its replica of a shard, and what follows from that. Pure.
//!
//! ```text
//! a row
//!  0 version     u8   1; 2 where what is damaged of its log was not healed for seconds: then `whole` is there
//!  1 flags       u8   1: in doubt, 2: its vote was granted, 4: it leads,
//!                  8: it began anew, and has not caught up since,
//!                 16: it lacks what the others have let go of,
//!                 32: it leads, and takes nothing; of one that does not lead: its disk has lost something of it,
//!                 64: its log ends before that which it was decided to go on with,
//!                128: its log is damaged
//!  2 shard       u32
//!  6 node        u64
//! 14 incarnation u64
//! 22 generation  u64
//! 30 boot        16   of its system; 0 if it is not known
//! 46 vote        u64 term · u64 node
//! 62 last        u64 term · u64 index      of its log; 0: it is empty
//! 78 synced      u64  log index
//! 86 committed   u64  C, as far as it knows, or knew before its last end
//! 94 durable     u64  D, the same
//! 102 leader     u64  0: it knows of none
//! 110 voters     u32 count · u64 each
//! .. whole       u64 term · u64 index      in version 2: of the last entry before what is damaged
//! .. said        text what is known of its run before
//! ```
//!
//! Little-endian; text is length u16 · UTF-8. The [digest](Roll::digest) is of all rows, by their nodes. While nobody leads
//! nothing of them changes but by what also changes what should be decided.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use twox_hash::XxHash3_128;

use super::known::Known;
use super::lead::Leads;
use super::unmet::Unmet;
use crate::cluster::{Outline, spare};
use crate::cursor::{Cursor, Malformed, push_text};

const VERSION: u8 = 1;
const WITH_WHOLE: u8 = 2;
const SAID_BYTES_MAX: usize = 512;
const IN_DOUBT: u8 = 1;
const GRANTED: u8 = 2;
const LEADS: u8 = 4;
const ANEW: u8 = 8;
const LACKS: u8 = 16;
const REFUSES: u8 = 32;
const HAS_LESS: u8 = 64;
const IS_DAMAGED: u8 = 128;

/// Of each shard which voters have what was committed a moment ago, as its leader knows.
pub(super) type Levels = BTreeMap<u32, BTreeSet<u64>>;

/// What a node says of its replica of a shard. Indexes are the log's; 0 is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The number of the shard.
    pub shard: u32,
    /// Which node.
    pub node: u64,
    /// Which of its starts.
    pub incarnation: u64,
    /// After which loss its replica goes on.
    pub generation: u64,
    /// The boot of its system, as 32 hexadecimal digits; empty if that is not known.
    pub boot: String,
    /// Whether it may have forgotten what it acknowledged.
    pub is_in_doubt: bool,
    /// Whether it began anew, and has not caught up with a leader since: what it has says nothing of what it had.
    pub is_anew: bool,
    /// Whether it lacks what the others have let go of, and is to be given it.
    pub lacks: bool,
    /// Whether its log ends before that which it was decided to go on with after a loss: it does not campaign.
    pub has_less: bool,
    /// Whether its log is damaged, and not healed yet, or its disk has failed: it does not campaign either.
    pub is_damaged: bool,
    /// Term and index of the last entry before what is damaged of its log, if nobody has given that for seconds.
    pub whole: Option<(u64, u64)>,
    /// Whether its disk has lost something of it, and it is in doubt for that.
    pub has_lost: bool,
    /// Whether it leads, and takes nothing: too few of its voters take what it appends, or their disks have no room.
    pub refuses: bool,
    /// The term of its vote.
    pub vote_term: u64,
    /// For whom that was.
    pub voted_for: u64,
    /// Whether a quorum granted that vote.
    pub is_granted: bool,
    /// The term of the last entry of its log.
    pub last_term: u64,
    /// The index of that.
    pub last: u64,
    /// The last entry that is durable there.
    pub synced: u64,
    /// C, as far as it knows, or knew some seconds before its last end.
    pub committed: u64,
    /// D, the same: entries up to there are durable on a majority.
    pub durable: u64,
    /// Whether it leads.
    pub leads: bool,
    /// Who leads, as far as it knows; 0 if nobody.
    pub leader: u64,
    /// Who votes, as far as it knows.
    pub voters: Vec<u64>,
    /// What is known of its run before this one.
    pub said: String,
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
    /// Of these rows, to be named by whoever decides.
    pub digest: String,
    /// What each says.
    pub rows: Vec<Row>,
}

impl Row {
    /// A node's, of what its replica says of itself and it knew before.
    pub(super) fn of(
        (shard, node, incarnation): (u32, u64, u64),
        boot: Option<u128>,
        outline: Outline,
        known: Known,
        said: &str,
    ) -> Self {
        let (vote_term, voted_for, is_granted) = outline.vote;
        let (last_term, last) = outline.last;
        Self {
            shard,
            node,
            incarnation,
            generation: outline.generation,
            boot: boot.map_or(String::new(), |boot| format!("{boot:032x}")),
            is_in_doubt: outline.is_dirty,
            is_anew: false,
            lacks: false,
            has_less: outline.has_less,
            is_damaged: outline.is_damaged,
            whole: outline.whole,
            has_lost: false,
            refuses: false,
            vote_term,
            voted_for,
            is_granted,
            last_term,
            last,
            synced: outline.synced,
            committed: outline.committed.max(known.committed),
            durable: outline.durable.max(known.durable),
            leads: outline.leader == Some(node),
            leader: outline.leader.unwrap_or(0),
            voters: outline.voters,
            said: cut(said).to_owned(),
        }
    }

    /// What is decided on: what is durable may grow while somebody looks, as what is given and what is free may, and what is said
    /// is for people.
    pub(super) fn told(&self) -> Self {
        Self {
            said: String::new(),
            synced: 0,
            lacks: false,
            has_lost: false,
            refuses: false,
            ..self.clone()
        }
    }

    /// Term and index of the last entry of its log.
    pub(super) fn end(&self) -> (u64, u64) {
        (self.last_term, self.last)
    }

    /// The same of what can be led with after a loss: of a log that is damaged what lies before that, once nobody has given it for seconds.
    fn usable(&self) -> Option<(u64, u64)> {
        if self.is_damaged { self.whole } else { Some(self.end()) }
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let doubt = flag(self.is_in_doubt, IN_DOUBT);
        to.extend_from_slice(&[
            // Where there is nothing more to say, brokers of before read it too.
            if self.whole.is_some() { WITH_WHOLE } else { VERSION },
            doubt
                | flag(self.is_granted, GRANTED)
                | flag(self.leads, LEADS)
                | flag(self.is_anew, ANEW)
                | flag(self.lacks, LACKS)
                | flag(if self.leads { self.refuses } else { self.has_lost }, REFUSES)
                | flag(self.has_less, HAS_LESS)
                | flag(self.is_damaged, IS_DAMAGED),
        ]);
        to.extend_from_slice(&self.shard.to_le_bytes());
        for field in [self.node, self.incarnation, self.generation] {
            to.extend_from_slice(&field.to_le_bytes());
        }
        let boot = u128::from_str_radix(&self.boot, 16).unwrap_or(0);
        to.extend_from_slice(&boot.to_le_bytes());
        let fields = [self.vote_term, self.voted_for, self.last_term, self.last, self.synced];
        for field in fields.into_iter().chain([self.committed, self.durable, self.leader]) {
            to.extend_from_slice(&field.to_le_bytes());
        }
        let voters = u32::try_from(self.voters.len()).expect("few vote");
        to.extend_from_slice(&voters.to_le_bytes());
        to.extend(self.voters.iter().flat_map(|voter| voter.to_le_bytes()));
        if let Some((term, index)) = self.whole {
            to.extend_from_slice(&term.to_le_bytes());
            to.extend_from_slice(&index.to_le_bytes());
        }
        push_text(cut(&self.said), to);
    }

    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let [version, flags] = from.array()?;
        if !matches!(version, VERSION | WITH_WHOLE) {
            return Err(Malformed::Field("the version of a row", version.into()));
        }
        let has = |flag| flags & flag != 0;
        let (shard, node, incarnation) = (from.u32()?, from.u64()?, from.u64()?);
        let generation = from.raisable("a generation")?;
        let boot = Some(u128::from_le_bytes(from.array()?)).filter(|boot| *boot != 0);
        let (vote_term, voted_for) = (from.u64()?, from.u64()?);
        let (last_term, last) = (from.u64()?, from.raisable("a log index")?);
        let synced = from.raisable("a log index")?;
        let committed = from.raisable("a log index")?;
        let durable = from.raisable("a log index")?;
        let leader = from.u64()?;
        let count = from.count(8, "the count of voters")?;
        let voters = (0..count).map(|_| from.u64()).collect::<Result<Vec<_>, _>>()?;
        let whole = match version {
            VERSION => None,
            _ => Some((from.u64()?, from.raisable("a log index")?)),
        };
        let said = from.text(SAID_BYTES_MAX, "what is said")?.to_owned();
        Ok(Self {
            shard,
            node,
            incarnation,
            generation,
            boot: boot.map_or(String::new(), |boot| format!("{boot:032x}")),
            is_in_doubt: has(IN_DOUBT),
            is_anew: has(ANEW),
            lacks: has(LACKS),
            has_less: has(HAS_LESS),
            is_damaged: has(IS_DAMAGED),
            whole,
            has_lost: has(REFUSES) && !has(LEADS),
            refuses: has(REFUSES) && has(LEADS),
            vote_term,
            voted_for,
            is_granted: has(GRANTED),
            last_term,
            last,
            synced,
            committed,
            durable,
            leads: has(LEADS),
            leader,
            voters,
            said,
        })
    }
}

/// A text that is not too long.
fn cut(said: &str) -> &str {
    let mut ends = (0..=SAID_BYTES_MAX.min(said.len())).rev();
    let end = ends.find(|end| said.is_char_boundary(*end)).unwrap_or(0);
    &said[..end]
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
        let stands_still =
            sure().all(|row| row.usable().is_some()) && !sure().any(|row| is_elected(row));
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
        let usable = here.iter().filter_map(|row| row.usable()).max();
        let longest = here.iter().map(|row| row.end()).max();
        let best_tail = usable.or(longest).unwrap_or((0, 0));
        let durable = all().map(|row| row.durable).max().unwrap_or(0);
        let guaranteed = match condition {
            Condition::Fenced => durable.min(best_tail.1),
            _ => durable,
        };
        Self {
            shard,
            condition,
            leader: leader.map(|row| row.node),
            generation,
            guaranteed,
            durable,
            best_tail,
            committed: all().map(|row| row.committed).max().unwrap_or(0),
            digest: format!("{:032x}", digest(all())),
            voters,
            missing,
            empty,
            absent: Vec::new(),
            awaited: Vec::new(),
            level: None,
            spare: None,
            is_guarded: None,
            unmet: None,
            drained: BTreeSet::new(),
            rows: rows.into_values().collect(),
        }
        .with_spare()
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

    /// Whether what is gone on with ends before a log that is damaged: a person decides that, as it may be there.
    pub(super) fn gives_up_damaged(&self) -> bool {
        self.rows.iter().any(|row| row.is_damaged && self.unused().contains_key(&row.node))
    }

    /// Whether a voter that does not answer may have what was guaranteed, as no log that can be gone on with has it: then a person decides.
    pub(super) fn may_be_away(&self) -> bool {
        let is_lacking =
            self.durable > self.best_tail.1 || self.rows.iter().any(|row| row.has_less);
        is_lacking && !self.missing.is_empty()
    }

    /// Nodes that vote, and answer for what they have.
    pub(super) fn here(&self) -> Vec<u64> {
        let is_here = |voter: &&u64| !self.missing.contains(voter) && !self.empty.contains(voter);
        self.voters.iter().filter(is_here).copied().collect()
    }
}

fn digest<'a>(rows: impl Iterator<Item = &'a Row>) -> u128 {
    let mut bytes = Vec::new();
    for row in rows {
        row.told().encode(&mut bytes);
    }
    XxHash3_128::oneshot(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::lead::Lead;

    fn row(node: u64, is_in_doubt: bool, last: (u64, u64)) -> Row {
        let outline = Outline {
            generation: 1,
            vote: (7, 2, true),
            last,
            synced: 4,
            committed: 9,
            durable: 5,
            leader: None,
            is_dirty: is_in_doubt,
            has_less: false,
            is_damaged: false,
            whole: None,
            voters: vec![1, 2, 3],
        };
        Row::of((2, node, 11), Some(77), outline, Known::of(8, 6, 6), "it was cut off")
    }

    #[test]
    fn a_row_is_read_as_it_was_written_and_no_other_bytes_are_one() {
        let mut bytes = Vec::new();
        let written = Row {
            is_anew: true,
            has_lost: true,
            has_less: true,
            is_damaged: true,
            ..row(3, true, (7, 20))
        };
        written.encode(&mut bytes);
        assert_eq!(bytes.len(), 110 + 4 + 3 * 8 + 2 + "it was cut off".len());
        let read = |bytes: &[u8]| {
            let mut from = Cursor::new(bytes, "a row");
            let row = Row::decode(&mut from)?;
            from.end().map(|()| row)
        };
        assert_eq!(read(&bytes), Ok(written));
        for refuses in [false, true] {
            let leads = Row { leads: true, leader: 3, refuses, ..row(3, false, (7, 20)) };
            let mut bytes = Vec::new();
            leads.encode(&mut bytes);
            assert_eq!(read(&bytes), Ok(leads));
        }
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end} bytes");
        }
        let lasts = Row { is_damaged: true, whole: Some((6, 19)), ..row(3, false, (7, 20)) };
        let mut bytes = Vec::new();
        lasts.encode(&mut bytes);
        assert_eq!((bytes[0], read(&bytes)), (WITH_WHOLE, Ok(lasts)));
        let long = Row { said: "é".repeat(400), ..row(3, true, (7, 20)) };
        let mut bytes = Vec::new();
        long.encode(&mut bytes);
        assert_eq!(read(&bytes).map(|row| row.said.len()), Ok(SAID_BYTES_MAX));
    }

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
        let lasts = Row { whole: Some((7, 9)), ..damaged.clone() };
        assert_eq!(condition(&[sure(1), lasts.clone()]), Condition::Fenced);
        assert_eq!(condition(&[sure(1), sure(2), lasts.clone()]), Condition::Electing);
        let also_damaged = Row { is_damaged: true, ..sure(2) };
        assert_eq!(condition(&[also_damaged.clone(), lasts.clone()]), Condition::Electing);
        let also_lasts = Row { whole: Some((7, 12)), ..also_damaged };
        let roll = Roll::of(2, [also_lasts, lasts.clone()]);
        assert_eq!((roll.condition, roll.best_tail), (Condition::Fenced, (7, 12)));
        assert_eq!((roll.is_best(2), roll.is_best(3)), (true, false));
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
