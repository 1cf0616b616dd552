//! What a broker may show, and what it must: a page, whatever the broker is made of.
//!
//! It knows what clients sent, what they were told, and how the last run ended; nothing of logs, entries or
//! threads. Where the broker may do one thing or another the model holds all that it allows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

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
    /// What was sent and may be there; with its turn, if it was sent once.
    sent: BTreeMap<u64, Option<u64>>,
    /// D: all below was said to be durable.
    durable: i64,
    gaps: Vec<Range<i64>>,
    epoch: i64,
    /// Something was sent since the last fence.
    is_open: bool,
}

/// What a broker shows of a partition.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
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
        let mut parts: Vec<_> = records.chain(self.gaps.iter().cloned()).collect();
        parts.sort_unstable_by_key(|part| part.start);
        let end = parts.iter().try_fold(0, |end, part| (part.start == end).then_some(part.end));
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
            let epoch = topic.epoch_floor;
            let made = || Partition { epoch, ..Partition::default() };
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

    /// A broker started, and this is all that it shows. Returns how many records are lost.
    pub(crate) fn started(
        &mut self,
        start: Start,
        all: &BTreeMap<(String, usize), Shown>,
    ) -> usize {
        let (mut lost_from, mut kept_to, mut count) = (u64::MAX, 0, 0);
        for ((name, number), shown) in all {
            let topic = self.topics.get_mut(name).expect("it may be there");
            let is_durable = topic.is_durable;
            let partition = topic.partitions.get_mut(number).expect("as many as there may be");
            let lost = partition.lose(shown);
            for (offset, sent) in &lost {
                let may = start.may_lose && !is_durable && *offset >= partition.durable;
                assert!(
                    may,
                    "{name}-{number}: {sent} at {offset} is lost, {start:?} {partition:?}"
                );
            }
            assert!(
                lost.is_empty() || !start.says_nothing_lost,
                "{name}-{number}: {lost:?} is lost"
            );
            count += lost.len();
            if !is_durable {
                let turn = |sent: &u64| partition.sent.get(sent).copied().flatten();
                lost_from = lost.values().filter_map(turn).min().unwrap_or(u64::MAX).min(lost_from);
                kept_to = shown.records.values().filter_map(turn).max().unwrap_or(0).max(kept_to);
            }
            partition.start(start, shown);
        }
        // One log holds them in their order, and what is left of it is a beginning.
        assert!(kept_to <= lost_from, "turn {lost_from} is lost, and {kept_to} is there");
        count
    }

    fn offsets_of(&mut self, name: &str) -> impl Iterator<Item = &mut BTreeSet<Option<i64>>> {
        self.offsets.iter_mut().filter(move |((_, topic, _), _)| topic == name).map(|(_, of)| of)
    }
}

impl Partition {
    /// A record is on its way.
    pub(crate) fn send(&mut self, record: u64, turn: u64) {
        self.is_open = true;
        self.sent.entry(record).and_modify(|turn| *turn = None).or_insert(Some(turn));
    }

    /// It was acknowledged, with this offset.
    pub(crate) fn acknowledge(&mut self, record: u64, offset: i64) {
        let before = self.named.insert(offset, record);
        assert!(before.is_none_or(|named| named == record), "{offset} names {record}, {before:?}");
        self.kept.insert(offset, record);
    }

    /// What is shown holds all that it must, and nothing else.
    pub(crate) fn look(&mut self, shown: &Shown) {
        for (offset, record) in &shown.records {
            let named = self.named.entry(*offset).or_insert(*record);
            assert_eq!(named, record, "offset {offset} names two records");
            assert!(self.sent.contains_key(record), "{record} at {offset} was gone: {self:?}");
        }
        let once: BTreeSet<_> = shown.records.values().collect();
        assert_eq!(once.len(), shown.records.len(), "a record is there twice: {shown:?}");
        let is_there = |(offset, record): (&i64, &u64)| shown.records.get(offset) == Some(record);
        assert!(self.kept.iter().all(is_there), "not all is there: {self:?} {shown:?}");
        shown.check_whole();
        assert!(shown.gaps.starts_with(&self.gaps), "a gap went: {:?} {shown:?}", self.gaps);
        assert!((self.durable..=shown.committed).contains(&shown.durable), "D: {shown:?} {self:?}");
        assert!(shown.epoch >= self.epoch, "the epoch goes back: {shown:?} {self:?}");
        self.kept.clone_from(&shown.records);
        (self.durable, self.epoch) = (shown.durable, shown.epoch);
        self.gaps.clone_from(&shown.gaps);
    }

    /// What must be there and is not. It was given up.
    fn lose(&mut self, shown: &Shown) -> BTreeMap<i64, u64> {
        let is_there = |offset: &i64| shown.records.contains_key(offset);
        let (kept, lost) =
            std::mem::take(&mut self.kept).into_iter().partition(|(at, _)| is_there(at));
        self.kept = kept;
        lost
    }

    fn start(&mut self, start: Start, shown: &Shown) {
        let has_new_gap = shown.gaps.len() > self.gaps.len();
        assert!(!has_new_gap || self.is_open, "a closed partition has a gap: {shown:?} {self:?}");
        assert!(!has_new_gap || !start.says_nothing_lost, "a gap where nothing is lost: {shown:?}");
        let has_turned = shown.epoch > self.epoch;
        assert!(!has_new_gap || has_turned, "a gap, and its epoch is the one before: {shown:?}");
        assert_eq!(shown.durable, shown.committed, "a start has all durable: {shown:?}");
        self.look(shown);
        self.is_open &= !start.has_fenced;
        // What is not there now does not come back.
        self.sent.retain(|record, _| shown.records.values().any(|there| there == record));
    }

    /// The broker ended in order.
    pub(crate) fn close(&mut self) {
        self.durable = self.kept.keys().next_back().map_or(self.durable, |last| last + 1);
    }
}
