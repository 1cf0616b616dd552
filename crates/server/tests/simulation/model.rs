//! What a broker may show, and what it must: a page, whatever the broker is made of.
//!
//! It knows what clients sent, what they were told, and how the last run ended; nothing of logs, entries or
//! threads. Where the broker may do one thing or another the model holds all that it allows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::broker::timestamp;

/// All that clients know of a broker.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) topics: BTreeMap<String, Topic>,
    /// What may be committed: by a group, of a partition.
    offsets: BTreeMap<(u32, String, usize), BTreeSet<Option<i64>>>,
}

/// A topic of some name, that is there or not.
#[derive(Debug, Default)]
pub(crate) struct Topic {
    /// How many partitions it may have; 0: it is not there.
    pub(crate) counts: BTreeSet<usize>,
    /// Its records are durable before they are acknowledged.
    pub(crate) is_durable: bool,
    /// How much of a partition is kept at least. Without it nothing is deleted that nobody asked for.
    pub(crate) retention_bytes: Option<u64>,
    pub(crate) partitions: BTreeMap<usize, Partition>,
    /// Epochs of its next partitions are above this one.
    epoch_floor: i64,
}

/// A partition, from its making to its end.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    /// Every record that somebody ever saw or was told of.
    named: BTreeMap<i64, u64>,
    /// Those of them that must be there.
    kept: BTreeMap<i64, u64>,
    /// What was sent and may be there.
    sent: BTreeMap<u64, Sent>,
    /// The first offset that was there.
    start: i64,
    /// All below it was deleted, and somebody was told so.
    deleted: i64,
    /// Offsets below which somebody wanted all deleted.
    trims: BTreeSet<i64>,
    retention_bytes: Option<u64>,
    /// D: all below was said to be durable.
    durable: i64,
    gaps: Vec<Range<i64>>,
    epoch: i64,
    /// Something was sent since the last fence.
    is_open: bool,
}

/// A record that was sent.
#[derive(Debug)]
struct Sent {
    /// When, if it was sent once.
    turn: Option<u64>,
    /// It is at none of the offsets from this one on.
    below: i64,
}

/// What a broker shows of a partition, from an offset on.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) from: i64,
    pub(crate) start: i64,
    /// Of the batches that hold the records.
    pub(crate) bytes: u64,
    /// All of them lie in chapters.
    pub(crate) is_settled: bool,
    pub(crate) records: BTreeMap<i64, u64>,
    pub(crate) committed: i64,
    pub(crate) durable: i64,
    pub(crate) epoch: i64,
    pub(crate) gaps: Vec<Range<i64>>,
}

impl Shown {
    /// Each offset below the high watermark names a record or lies in a gap, and none does both.
    fn check_whole(&self) {
        let records = self.records.keys().map(|offset| *offset..offset + 1);
        let gaps = self.gaps.iter().filter(|gap| gap.end > self.from);
        let gaps = gaps.map(|gap| gap.start.max(self.from)..gap.end);
        let mut parts: Vec<_> = records.chain(gaps).collect();
        parts.sort_unstable_by_key(|part| part.start);
        let follows = |end, part: &Range<i64>| (part.start == end).then_some(part.end);
        let end = parts.iter().try_fold(self.from, follows);
        assert_eq!(end, Some(self.committed), "records and gaps do not make a whole: {self:?}");
    }
}

/// What is known of how the last run ended, and what the start says of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// What was acknowledged and is not durable may be gone.
    pub(crate) may_lose: bool,
    /// It says that nothing is lost, of the run that clients know.
    pub(crate) says_nothing_lost: bool,
    /// It says that records may be lost, so what may be gone is behind a fence.
    pub(crate) has_fenced: bool,
}

/// How many records are gone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gone {
    pub(crate) lost: usize,
    /// By their partition's size.
    pub(crate) expired: usize,
}

impl Model {
    /// No topic of these names is there.
    pub(crate) fn new(names: &[&str]) -> Self {
        let none = || Topic { counts: [0].into(), ..Topic::default() };
        let topics = names.iter().map(|name| ((*name).to_owned(), none())).collect();
        Self { topics, ..Self::default() }
    }

    /// A topic shall have so many partitions: it may have, from here on.
    pub(crate) fn change(&mut self, name: &str, count: usize) {
        self.topics.get_mut(name).expect("a known name").counts.insert(count);
        if count == 0 {
            self.offsets_of(name).for_each(|possible| possible.extend([None]));
        }
    }

    /// It has exactly so many: somebody was told so, or sees it.
    pub(crate) fn is(&mut self, name: &str, count: usize) {
        let topic = self.topics.get_mut(name).expect("a known name");
        assert!(
            topic.counts.contains(&count),
            "{name}: {count} partitions, not {:?}",
            topic.counts
        );
        topic.counts = [count].into();
        if count == 0 {
            let epochs = topic.partitions.values().map(|partition| partition.epoch + 1);
            topic.epoch_floor = epochs.max().unwrap_or(0).max(topic.epoch_floor);
            topic.partitions.clear();
            self.offsets_of(name).for_each(|possible| *possible = [None].into());
        }
        let topic = self.topics.get_mut(name).expect("just there");
        for number in 0..count {
            let (epoch, retention_bytes) = (topic.epoch_floor, topic.retention_bytes);
            let made = || Partition { epoch, retention_bytes, ..Partition::default() };
            topic.partitions.entry(number).or_insert_with(made);
        }
    }

    /// A group commits an offset; it may be committed from here on, and is once that was answered.
    pub(crate) fn commit(&mut self, at: (u32, String, usize), offset: i64, is_answered: bool) {
        let possible = self.offsets.entry(at).or_insert_with(|| [None].into());
        if is_answered {
            possible.clear();
        }
        possible.insert(Some(offset));
    }

    /// What a group has committed is one of what it may have. At a start it is decided.
    pub(crate) fn committed(
        &mut self,
        at: &(u32, String, usize),
        offset: Option<i64>,
        start: bool,
    ) {
        let Some(possible) = self.offsets.get_mut(at) else { return assert_eq!(offset, None) };
        assert!(possible.contains(&offset), "{at:?} has committed {offset:?}, not {possible:?}");
        if start {
            *possible = [offset].into();
        }
    }

    pub(crate) fn committing(&self) -> Vec<(u32, String, usize)> {
        self.offsets.keys().cloned().collect()
    }

    /// A broker started, and this is all that it shows. Returns how many records are gone.
    pub(crate) fn started(&mut self, start: Start, all: &BTreeMap<(String, usize), Shown>) -> Gone {
        let (mut lost_from, mut kept_to, mut gone) = (u64::MAX, 0, Gone::default());
        for ((name, number), shown) in all {
            let topic = self.topics.get_mut(name).expect("it may be there");
            let is_durable = topic.is_durable;
            let partition = topic.partitions.get_mut(number).expect("as many as there may be");
            let lost = partition.lose(shown);
            let may_lose = start.may_lose && !is_durable;
            for (offset, sent) in &lost {
                let may = may_lose && *offset >= partition.durable;
                assert!(
                    may,
                    "{name}-{number}: {sent} at {offset} is lost, {start:?} {partition:?}"
                );
            }
            assert!(
                lost.is_empty() || !start.says_nothing_lost,
                "{name}-{number}: {lost:?} is lost"
            );
            gone.lost += lost.len();
            if !is_durable {
                let turn = |sent: &u64| partition.sent.get(sent)?.turn;
                lost_from = lost.values().filter_map(turn).min().unwrap_or(u64::MAX).min(lost_from);
                kept_to = shown.records.values().filter_map(turn).max().unwrap_or(0).max(kept_to);
            }
            gone.expired += partition.start(start, may_lose, shown);
        }
        // One log holds them in their order, and what is left of it is a beginning.
        assert!(kept_to <= lost_from, "turn {lost_from} is lost, and {kept_to} is there");
        gone
    }

    fn offsets_of(&mut self, name: &str) -> impl Iterator<Item = &mut BTreeSet<Option<i64>>> {
        self.offsets.iter_mut().filter(move |((_, topic, _), _)| topic == name).map(|(_, of)| of)
    }
}

impl Partition {
    /// A record is on its way.
    pub(crate) fn send(&mut self, record: u64, turn: u64) {
        self.is_open = true;
        let turn = Some(turn).filter(|_| !self.sent.contains_key(&record));
        self.sent.insert(record, Sent { turn, below: i64::MAX });
    }

    /// It was acknowledged, with this offset.
    pub(crate) fn acknowledge(&mut self, record: u64, offset: i64) {
        let before = self.named.insert(offset, record);
        assert!(before.is_none_or(|named| named == record), "{offset} names {record}, {before:?}");
        self.kept.insert(offset, record);
    }

    /// The offset behind the last record that must be there.
    pub(crate) fn end(&self) -> i64 {
        self.kept.keys().next_back().map_or(self.start.max(self.deleted), |last| last + 1)
    }

    /// What is below an offset is to be deleted: it may be, from here on, and is for good once that was answered.
    pub(crate) fn trim(&mut self, offset: i64, is_answered: bool) {
        self.trims.insert(offset);
        if is_answered {
            self.deleted = self.deleted.max(offset);
            self.kept = self.kept.split_off(&self.deleted);
        }
    }

    /// This was told to be the first record with this timestamp or a later one, just before a look at all.
    pub(crate) fn at_time(&self, timestamp_ms: i64, told: Option<(i64, i64)>, shown: &Shown) {
        let found = shown.records.iter().map(|(offset, record)| (*offset, timestamp(*record)));
        let first = found.into_iter().find(|(_, at)| *at >= timestamp_ms);
        // What came, or was deleted, between the two.
        let has_come = told.is_none() && first.is_some_and(|(at, _)| !self.kept.contains_key(&at));
        let start = self.start.max(self.deleted);
        let has_gone = told.is_some_and(|(at, _)| (start..shown.start).contains(&at));
        assert!(
            told == first || has_come || has_gone,
            "the first of {timestamp_ms} or later is {first:?}, not {told:?}: {shown:?}"
        );
    }

    /// What is shown holds all that it must, and nothing else. Returns how many records have expired.
    pub(crate) fn look(&mut self, shown: &Shown) -> usize {
        for (offset, record) in &shown.records {
            let named = self.named.entry(*offset).or_insert(*record);
            assert_eq!(named, record, "offset {offset} names two records");
            let is_sent = self.sent.get(record).is_some_and(|sent| *offset < sent.below);
            assert!(is_sent, "{record} at {offset} was gone: {self:?}");
        }
        let once: BTreeSet<_> = shown.records.values().collect();
        assert_eq!(once.len(), shown.records.len(), "a record is there twice: {shown:?}");
        let is_there = |(offset, record): (&i64, &u64)| shown.records.get(offset) == Some(record);
        let kept = || self.kept.range(shown.from..);
        assert!(kept().all(is_there), "not all is there: {self:?} {shown:?}");
        shown.check_whole();
        let gaps: Vec<_> = self.gaps.iter().filter(|gap| gap.end > shown.start).cloned().collect();
        assert!(shown.gaps.starts_with(&gaps), "a gap went: {gaps:?} {shown:?}");
        assert!((self.durable..=shown.committed).contains(&shown.durable), "D: {shown:?} {self:?}");
        assert!(shown.epoch >= self.epoch, "the epoch goes back: {shown:?} {self:?}");
        (self.durable, self.epoch) = (shown.durable, shown.epoch);
        self.gaps.extend_from_slice(&shown.gaps[gaps.len()..]);
        let is_back = shown.start < self.start.max(self.deleted);
        assert!(!is_back, "what was deleted comes back: {shown:?} {self:?}");
        if shown.from > shown.start {
            self.kept.extend(&shown.records);
            return 0;
        }
        let is_wanted = shown.start == 0 || self.trims.contains(&shown.start);
        let has_enough = self.retention_bytes.is_some_and(|bytes| shown.bytes >= bytes);
        assert!(is_wanted || has_enough, "too much is deleted: {shown:?} {self:?}");
        let gone = if is_wanted { 0 } else { self.kept.range(..shown.start).count() };
        self.start = shown.start;
        self.kept.clone_from(&shown.records);
        gone
    }

    /// What must be there and is not, and was not deleted. It was given up.
    fn lose(&mut self, shown: &Shown) -> BTreeMap<i64, u64> {
        let is_there = |offset: &i64| *offset < shown.start || shown.records.contains_key(offset);
        let (kept, lost) =
            std::mem::take(&mut self.kept).into_iter().partition(|(at, _)| is_there(at));
        self.kept = kept;
        lost
    }

    fn start(&mut self, start: Start, may_lose: bool, shown: &Shown) -> usize {
        let has_new_gap = shown.gaps.iter().any(|gap| !self.gaps.contains(gap));
        assert!(!has_new_gap || self.is_open, "a closed partition has a gap: {shown:?} {self:?}");
        assert!(!has_new_gap || !start.says_nothing_lost, "a gap where nothing is lost: {shown:?}");
        let has_turned = shown.epoch > self.epoch;
        assert!(!has_new_gap || has_turned, "a gap, and its epoch is the one before: {shown:?}");
        assert_eq!(shown.durable, shown.committed, "a start has all durable: {shown:?}");
        if may_lose {
            // That something has expired is lost as what came with it is.
            self.start = self.start.min(shown.start);
        }
        let expired = self.look(shown);
        self.is_open &= !start.has_fenced;
        // What is not there now does not come back, but for what has expired.
        let there: BTreeSet<&u64> = shown.records.values().collect();
        self.sent.retain(|record, sent| {
            if !there.contains(record) {
                sent.below = sent.below.min(shown.start);
            }
            sent.below > 0
        });
        expired
    }

    /// The broker ended in order.
    pub(crate) fn close(&mut self) {
        self.durable = self.kept.keys().next_back().map_or(self.durable, |last| last + 1);
    }
}
