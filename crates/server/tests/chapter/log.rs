//! [`Log`]: a shard's log in memory: applied, settled on a shelf, and read beside it.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_server::chapter::{Chapter, Error, Footer, Manifest, Plan, Run, Shelf, Writer};
use plimsoll_server::shard::{
    Batch, Draft, Entry, Held, Item, Open, Opening, Outcome, PartitionId, Producers, Sequenced,
    Settings, State, TopicId,
};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Dir};

use super::batch::batch;

/// The shard that all of it is of.
pub(crate) const SHARD: u32 = 3;

/// What a start reads in place of tables.
pub(crate) const ROLL_UP: &str = "roll-up";

pub(crate) const SETTINGS: Settings = Settings {
    retention_ms: None,
    retention_bytes: None,
    batch_bytes_max: 1 << 20,
    append_timestamps: false,
    compaction: None,
};

/// A shard's log. Its first index is 1.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// `None` where a leadership began.
    entries: Vec<Option<Held>>,
    terms: Vec<u64>,
}

/// A batch as it stands in the log.
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    pub(crate) index: u64,
    pub(crate) time: u64,
    pub(crate) bytes: Bytes,
    pub(crate) base: i64,
    pub(crate) end: i64,
    pub(crate) max_timestamp: i64,
}

impl Log {
    /// A leadership begins.
    pub(crate) fn lead(&mut self) {
        self.terms.push(self.terms.last().map_or(1, |term| term + 1));
        self.entries.push(None);
    }

    /// Adds an entry; returns its index.
    pub(crate) fn push(&mut self, draft: Draft, time: u64) -> u64 {
        self.terms.push(self.terms.last().copied().unwrap_or(1));
        self.entries.push(Some(Held::new(draft.finish(time)).unwrap()));
        self.last()
    }

    /// The index of its last entry.
    pub(crate) fn last(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(crate) fn find(&self, index: u64) -> Option<&Held> {
        self.entries.get(usize::try_from(index).ok()?.checked_sub(1)?)?.as_ref()
    }

    /// Applies the next entry to a state.
    pub(crate) fn apply_next(&self, state: &mut State) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let index = state.applied() + 1;
        match self.find(index) {
            Some(entry) => state.apply(index, entry.bytes(), &mut outcomes).unwrap(),
            None => state.pass(index, self.terms[usize::try_from(index - 1).unwrap()]).unwrap(),
        }
        outcomes
    }

    /// The state behind this entry.
    pub(crate) fn state_at(&self, index: u64) -> State {
        let mut state = State::default();
        while state.applied() < index {
            self.apply_next(&mut state);
        }
        state
    }

    /// Settles the oldest chapter that has ended.
    pub(crate) fn settle_next(&self, shelf: &Shelf, state: &mut State) -> Result<(), Error> {
        let ended = *state.ended().next().expect("a chapter has ended");
        let plan = Plan::of(state, ended, shelf.settled().end + 1);
        let from = plan.needs_from().unwrap_or(ended.end + 1);
        shelf.settle(plan, |writer| self.copy(writer, from, ended.end))?;
        state.settle(ended.end);
        Ok(())
    }

    /// Has the writer take these entries.
    pub(crate) fn copy(&self, mut writer: Writer, from: u64, end: u64) -> Result<Footer, Error> {
        for index in from..=end {
            if let Some(entry) = self.find(index) {
                writer.take(index, entry.bytes())?;
            }
        }
        writer.finish()
    }

    /// All batches of a partition.
    pub(crate) fn batches(&self, opening: Opening) -> Vec<Logged> {
        let all = (1..=self.last()).flat_map(|index| self.batches_at(index));
        all.filter(|(of, _)| *of == opening).map(|(_, batch)| batch).collect()
    }

    /// The batches in an entry.
    pub(crate) fn batches_at(&self, index: u64) -> Vec<(Opening, Logged)> {
        let Some(held) = self.find(index) else { return Vec::new() };
        let entry = Entry::decode(held.bytes()).unwrap();
        let batch = |item| match item {
            Ok(Item::Batch { opening, bytes }) => {
                let Batch { base_offset, max_timestamp, .. } = Batch::read(bytes).unwrap();
                let end = Batch::read(bytes).unwrap().end().unwrap();
                let (bytes, time) = (held.bytes().slice_ref(bytes), entry.time);
                let logged = Logged { index, time, bytes, base: base_offset, end, max_timestamp };
                Some((opening, logged))
            }
            _ => None,
        };
        entry.items().filter_map(batch).collect()
    }
}

/// A batch whose records tell it from others.
pub(crate) fn marked(records: u32, sequenced: Option<Sequenced>, timestamp: i64) -> Bytes {
    let mut bytes = batch(records, sequenced, timestamp).to_vec();
    let mark = timestamp.to_le_bytes().into_iter().chain([0xa5]).cycle();
    bytes[61..].iter_mut().zip(mark).for_each(|(byte, mark)| *byte = mark);
    Bytes::from(bytes)
}

/// Partition `number` of topic `topic`.
pub(crate) fn partition(topic: u8, number: u32) -> Opening {
    Opening { partition: PartitionId { topic: TopicId([topic; 16]), number }, number: 1 }
}

/// The partitions of [`small`].
pub(crate) const OF_SMALL: [fn() -> Opening; 3] =
    [|| partition(7, 0), || partition(7, 1), || partition(9, 0)];

/// Two chapters of three partitions, and what then is deleted: the second of them, which is most of both, one
/// batch of it larger than a block.
pub(crate) fn small() -> Log {
    let [a, b, c] = OF_SMALL.map(|opening| opening());
    let sequenced = |first| Some(Sequenced { producer: 5, epoch: 0, first });
    let mut log = Log::default();
    log.lead();
    log.push(opens(&[a, b, c], SETTINGS), 1_000);
    log.push(batches(&[(a, 0, marked(2, None, 70)), (b, 0, marked(1, None, 90))]), 1_010);
    log.push(batches(&[(c, 0, marked(2, sequenced(0), 60))]), 1_020);
    log.push(batches(&[(b, 1, marked(3_300, None, 50)), (a, 2, marked(1, None, 65))]), 1_030);
    let mut last = batches(&[(c, 2, marked(1, sequenced(2), 61)), (a, 3, marked(1, None, 80))]);
    last.push(&Item::Close { opening: c });
    log.push(last, 1_040);
    log.push(acts(&[Item::ChapterEnd(1)]), 1_050);
    log.push(batches(&[(b, 3_301, marked(30, None, 95)), (a, 4, marked(2, None, 81))]), 1_060);
    log.push(acts(&[Item::ChapterEnd(2)]), 1_070);
    log.push(acts(&[Item::Trim { opening: b, start: 3_331 }]), 1_080);
    log
}

/// How many entries of [`small`] come before the deletion.
pub(crate) const SMALL_ENDS: u64 = 9;

/// An entry that opens these, and lets offsets below a million be given.
pub(crate) fn opens(openings: &[Opening], settings: Settings) -> Draft {
    let mut draft = Draft::new();
    for opening in openings {
        let (opening, producers) = (*opening, Producers::default());
        draft.push(&Item::Open(Open { opening, base_epoch: 0, start: 0, settings, producers }));
        draft.push(&Item::Ceiling { opening, ceiling: Some(1_000_000) });
    }
    draft
}

/// An entry of these batches, at these offsets.
pub(crate) fn batches(batches: &[(Opening, i64, Bytes)]) -> Draft {
    let mut draft = Draft::new();
    batches.iter().for_each(|(opening, base, bytes)| draft.push_batch(*opening, *base, 0, bytes));
    draft
}

pub(crate) fn acts(items: &[Item<'_>]) -> Draft {
    let mut draft = Draft::new();
    items.iter().for_each(|item| draft.push(item));
    draft
}

/// The shelf on this disk.
/// What is past its retention on a shelf, and from where on the rest is kept.
pub(crate) fn expired(shelf: &Shelf, state: &State, now: u64) -> Vec<(Opening, i64)> {
    shelf.expired(shelf.expiring(state, now))
}

pub(crate) fn shelf(disk: &Arc<SimDir>) -> Shelf {
    Shelf::open(Arc::clone(disk) as Arc<dyn Dir>, SHARD).unwrap()
}

/// All that a shelf gives of a partition, so many bytes at a time.
pub(crate) fn read_all(
    shelf: &Shelf,
    opening: Opening,
    mut from: i64,
    bytes_max: usize,
) -> Result<Vec<Bytes>, Error> {
    let mut all = Vec::new();
    loop {
        let read = shelf.read(opening, from, i64::MAX, bytes_max)?;
        let Some(last) = read.last() else { return Ok(all) };
        from = Batch::read(last).unwrap().end().unwrap();
        all.extend(read);
    }
}

/// The files that the manifest names, each with those of its runs that are not gone.
pub(crate) fn files(disk: &SimDir) -> Vec<(u64, Chapter, Vec<Run>)> {
    let files = Manifest::read(disk, SHARD).unwrap().files.into_iter().map(|named| {
        let file = disk.open(&named.name(), Access::default()).unwrap();
        let chapter = Chapter::open(&named.name(), file).unwrap();
        let runs = (0..).zip(chapter.runs().unwrap());
        let runs =
            runs.filter(|(number, _)| !named.gone.has(*number)).map(|(_, run)| run).collect();
        (named.number, chapter, runs)
    });
    files.collect()
}

/// The bytes of a file.
pub(crate) fn bytes_of(disk: &SimDir, name: &str) -> Vec<u8> {
    let file = disk.open(name, Access::default()).unwrap();
    let mut bytes = vec![0; file.len().unwrap().try_into().unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}
