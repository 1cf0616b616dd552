//! What a broker may show, and what it must: a page, whatever the broker is made of.
//!
//! It knows what clients sent, what they were told, and how the last run ended; nothing of logs, entries or
//! threads. Where the broker may do one thing or another the model holds all that it allows.
//!
//! Of a topic that is compacted, or was once, a record below D may be gone where a newer one of its key is there, or
//! where a tombstone of its key may be gone by now: itself or a newer one. So of each key the newest record is there,
//! and who reads to the end sees it. What was seen to be gone never comes back, and the offset before the end is
//! always there: who reads comes to the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::broker::{Cleanup, is_tombstone, key, timestamp};

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
    /// What its settings allowed at any time since it was made.
    may: Allowed,
    /// Whether it may be compacted now; both, where nobody was told.
    compacts: BTreeSet<bool>,
    pub(crate) partitions: BTreeMap<usize, Partition>,
    /// Epochs of its next partitions are above this one.
    epoch_floor: i64,
}

/// What may go of a partition though nobody deletes it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Allowed {
    /// Records of which a newer one of their key is there.
    has_compacted: bool,
    /// Tombstones, once they were compacted.
    tombstones_go: bool,
    /// The oldest, while the rest has so many bytes.
    retention_bytes: Option<u64>,
}

/// A partition, from its making to its end.
#[derive(Debug, Clone, Default)]
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
    /// Offsets whose records were compacted.
    compacted: BTreeSet<i64>,
    may: Allowed,
    /// D: all below was said to be durable.
    durable: i64,
    gaps: Vec<Range<i64>>,
    epoch: i64,
    /// Something was sent since the last fence.
    is_open: bool,
}

/// A record that was sent.
#[derive(Debug, Clone)]
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
    /// Each offset below the high watermark names a record, lies in a gap, or is one of these; and none does two of it.
    fn check_whole(&self, compacted: &BTreeSet<i64>) {
        let compacted = compacted.range(self.from..).map(|offset| *offset..offset + 1);
        let records = self.records.keys().map(|offset| *offset..offset + 1);
        let gaps = self.gaps.iter().filter(|gap| gap.end > self.from);
        let gaps = gaps.map(|gap| gap.start.max(self.from)..gap.end);
        let mut parts: Vec<_> = records.chain(gaps).chain(compacted).collect();
        parts.sort_unstable_by_key(|part| part.start);
        let follows = |end, part: &Range<i64>| (part.start == end).then_some(part.end);
        let end = parts.iter().try_fold(self.from, follows);
        assert_eq!(end, Some(self.committed), "records and gaps do not make a whole: {self:?}");
    }

    fn has_gap_at(&self, offset: i64) -> bool {
        self.gaps.iter().any(|gap| gap.contains(&offset))
    }

    /// Offsets that have been given away, and name nothing.
    fn holes(&self) -> impl Iterator<Item = i64> {
        let is_hole = |at: &i64| !self.records.contains_key(at) && !self.has_gap_at(*at);
        (self.from..self.committed).filter(is_hole)
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
    /// And those of them that were the newest of their key, tombstones.
    pub(crate) compacted: usize,
    pub(crate) tombstones: usize,
}

impl Gone {
    fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.expired += other.expired;
        self.compacted += other.compacted;
        self.tombstones += other.tombstones;
    }
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

    /// What is not there has these settings from here on; or what is there may have them too.
    pub(crate) fn allow(&mut self, name: &str, cleanup: Cleanup) {
        let topic = self.topics.get_mut(name).expect("a known name");
        if topic.partitions.is_empty() {
            topic.may = Allowed::default();
            topic.compacts.clear();
        }
        topic.may.also(cleanup);
        topic.compacts.insert(cleanup.compacts());
        let may = topic.may;
        topic.partitions.values_mut().for_each(|partition| partition.may = may);
    }

    /// It has these settings now: somebody was told so.
    pub(crate) fn set(&mut self, name: &str, cleanup: Cleanup) {
        self.topics.get_mut(name).expect("a known name").compacts = [cleanup.compacts()].into();
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
            let (epoch, may) = (topic.epoch_floor, topic.may);
            let made = || Partition { epoch, may, ..Partition::default() };
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
            gone.add(partition.start(start, may_lose, shown));
        }
        // One log holds them in their order, and what is left of it is a beginning.
        assert!(kept_to <= lost_from, "turn {lost_from} is lost, and {kept_to} is there");
        gone
    }

    fn offsets_of(&mut self, name: &str) -> impl Iterator<Item = &mut BTreeSet<Option<i64>>> {
        self.offsets.iter_mut().filter(move |((_, topic, _), _)| topic == name).map(|(_, of)| of)
    }
}

impl Topic {
    /// Whether a batch may be refused, or taken, that has a record without a key: what is compacted takes none.
    pub(crate) fn may_answer(&self, records: &[u64], is_refused: bool) -> bool {
        let lacks_key = records.iter().any(|record| key(*record).is_none());
        match is_refused {
            true => lacks_key && self.compacts.contains(&true),
            false => !lacks_key || self.compacts.contains(&false),
        }
    }
}

impl Allowed {
    fn also(&mut self, cleanup: Cleanup) {
        self.has_compacted |= cleanup.compacts();
        // Nobody lives that long.
        self.tombstones_go |= cleanup.delete_retention_ms < 3_600_000;
        let expires = cleanup.policy.contains("delete");
        let bytes = cleanup.retention_bytes.filter(|_| expires).into_iter();
        self.retention_bytes = bytes.chain(self.retention_bytes).min();
    }
}

impl Partition {
    /// Whether it is compacted, or was once.
    pub(crate) fn has_been_compacted(&self) -> bool {
        self.may.has_compacted
    }

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
        // It may be sent again though the first is compacted.
        if !self.compacted.contains(&offset) {
            self.kept.insert(offset, record);
        }
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
        let is_compacted = |at| self.may.has_compacted && !shown.records.contains_key(&at);
        let has_gone = told.is_some_and(|(at, time)| {
            let is_before = first.is_none_or(|(first, _)| at < first);
            let is_of_then = time >= timestamp_ms && is_compacted(at);
            (start..shown.start).contains(&at) || (is_before && is_of_then)
        });
        assert!(
            told == first || has_come || has_gone,
            "the first of {timestamp_ms} or later is {first:?}, not {told:?}: {shown:?}"
        );
    }

    /// What is shown holds all that it must, and nothing else. Returns how many records are gone.
    pub(crate) fn look(&mut self, shown: &Shown) -> Gone {
        for (offset, record) in &shown.records {
            let named = self.named.entry(*offset).or_insert(*record);
            assert_eq!(named, record, "offset {offset} names two records");
            let is_sent = self.sent.get(record).is_some_and(|sent| *offset < sent.below);
            let is_back = self.compacted.contains(offset);
            assert!(is_sent && !is_back, "{record} at {offset} was gone: {self:?}");
        }
        let once: BTreeSet<_> = shown.records.values().collect();
        assert_eq!(once.len(), shown.records.len(), "a record is there twice: {shown:?}");
        let mut gone = self.compact(shown);
        let is_there = |(offset, record): (&i64, &u64)| shown.records.get(offset) == Some(record);
        let kept = || self.kept.range(shown.from..);
        assert!(kept().all(is_there), "not all is there: {self:?} {shown:?}");
        shown.check_whole(&self.compacted);
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
            return gone;
        }
        let is_wanted = shown.start == 0 || self.trims.contains(&shown.start);
        // There may have been more by then, and was compacted since.
        let is_enough = |bytes| shown.bytes >= bytes || self.may.has_compacted;
        let has_enough = self.may.retention_bytes.is_some_and(is_enough);
        assert!(is_wanted || has_enough, "too much is deleted: {shown:?} {self:?}");
        if !is_wanted {
            gone.expired = self.kept.range(..shown.start).count();
        }
        self.start = shown.start;
        self.kept.clone_from(&shown.records);
        gone
    }

    /// What is not there, and was not deleted, was compacted; and may be.
    fn compact(&mut self, shown: &Shown) -> Gone {
        let mut gone = Gone::default();
        let newly = |at: &i64| self.may.has_compacted && !self.compacted.contains(at);
        let holes: Vec<i64> = shown.holes().filter(newly).collect();
        for at in holes {
            assert!(at < shown.durable, "{at} is gone before it is settled: {self:?} {shown:?}");
            assert!(at + 1 < shown.committed, "nobody comes to the end: {self:?} {shown:?}");
            // Of what nobody ever saw it is known only that it was sent.
            let may_go = match self.named.get(&at) {
                Some(record) => self.may_be_compacted(at, *record, shown),
                None => self.unseen(at).next().is_some(),
            };
            assert!(may_go, "{:?} at {at} is gone: {self:?} {shown:?}", self.named.get(&at));
            let is_last = |record| !Self::is_replaced(at, record, shown);
            gone.tombstones += usize::from(self.kept.remove(&at).is_some_and(is_last));
            gone.compacted += 1;
            self.compacted.insert(at);
        }
        gone
    }

    /// Whether this record may be gone beside what is there.
    fn may_be_compacted(&self, at: i64, record: u64, shown: &Shown) -> bool {
        let deletes = |other: u64| is_of_one_key(record, other) && is_tombstone(other);
        let was_there = |(at, other): (&i64, &u64)| {
            deletes(*other) && *at < shown.committed && !shown.has_gap_at(*at)
        };
        let is_deleted = || self.named.range(at..).any(was_there) || self.unseen(at).any(deletes);
        Self::is_replaced(at, record, shown) || (self.may.tombstones_go && is_deleted())
    }

    /// Whether a newer record of its key is there.
    fn is_replaced(at: i64, record: u64, shown: &Shown) -> bool {
        let mut newer = shown.records.range(at + 1..);
        newer.any(|(_, newer)| is_of_one_key(record, *newer))
    }

    /// Records of which nobody knows where they are; they may be behind this offset.
    fn unseen(&self, at: i64) -> impl Iterator<Item = u64> {
        let seen: BTreeSet<u64> = self.named.values().copied().collect();
        let unseen = self.sent.iter().filter(move |(record, _)| !seen.contains(record));
        unseen.filter(move |(_, sent)| sent.below > at).map(|(record, _)| *record)
    }

    /// What must be there and is not, and was not deleted. It was given up.
    fn lose(&mut self, shown: &Shown) -> BTreeMap<i64, u64> {
        let holes: BTreeSet<i64> = shown.holes().filter(|_| self.may.has_compacted).collect();
        let is_there = |offset: &i64| {
            let has_gone = *offset < shown.start || holes.contains(offset);
            has_gone || shown.records.contains_key(offset)
        };
        let (kept, lost) =
            std::mem::take(&mut self.kept).into_iter().partition(|(at, _)| is_there(at));
        self.kept = kept;
        lost
    }

    fn start(&mut self, start: Start, may_lose: bool, shown: &Shown) -> Gone {
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
        let gone = self.look(shown);
        self.is_open &= !start.has_fenced;
        // What is not there now does not come back, but for what has expired.
        let there: BTreeSet<&u64> = shown.records.values().collect();
        self.sent.retain(|record, sent| {
            if !there.contains(record) {
                sent.below = sent.below.min(shown.start);
            }
            sent.below > 0
        });
        gone
    }

    /// What must be there at these offsets is taken for shown: nobody can read it.
    pub(crate) fn assume(&self, offsets: Range<i64>, shown: &mut Shown) {
        let from = offsets.start.max(shown.from);
        let assumed = self.kept.range(from..offsets.end.max(from));
        shown.records.extend(assumed.map(|(offset, record)| (*offset, *record)));
        // There may be enough of it to expire what is before.
        shown.bytes = u64::MAX;
    }

    /// The broker ended in order.
    pub(crate) fn close(&mut self) {
        self.durable = self.kept.keys().next_back().map_or(self.durable, |last| last + 1);
    }
}

fn is_of_one_key(one: u64, other: u64) -> bool {
    key(one).is_some() && key(one) == key(other)
}
