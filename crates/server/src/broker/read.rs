//! [`Read`]: what is read of a partition, from memory, from the log, or from chapters where it is settled.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::data::DataShard;
use super::error::Failed;
use super::lately::Run;
use super::mender::Mender;
use super::reading::Reading;
use crate::kafka;
use crate::shard::{Batch, Fetched, Held, Opening, Partition, fetch};

/// What is settled while it is looked at is found with the next look.
const LOOKS_MAX: u32 = 4;
/// Bytes of the log that are read at once for a partition that is behind the tail.
const AHEAD_BYTES: usize = 1 << 20;

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) batches: Vec<Bytes>,
    pub(crate) bytes: usize,
    /// There is more, which did not fit, or is not in memory.
    pub(crate) has_more: bool,
    /// There is nothing, up to the end that was asked for: a fence gave these offsets up, or their records were
    /// compacted away.
    pub(crate) is_void: bool,
    /// Of the batches those that hold more than twice their bytes.
    pub(crate) thin: Vec<Range<usize>>,
}

impl Read {
    /// These batches too, behind the others.
    fn take(&mut self, batches: Vec<Bytes>, thin: Vec<Range<usize>>) {
        let before = self.batches.len();
        self.bytes += batches.iter().map(Bytes::len).sum::<usize>();
        self.batches.extend(batches);
        self.thin.extend(thin.into_iter().map(|some| some.start + before..some.end + before));
    }
}

impl DataShard {
    /// Reads batches. Waits for the disk, on another thread, only where none are in memory. What begins in a chapter goes on
    /// in the log, as far as there is room.
    ///
    /// What is damaged here is asked of another node.
    pub(crate) async fn read(self: &Arc<Self>, reading: Reading) -> Result<Read, Failed> {
        self.read_with(reading, Some(&self.mender)).await
    }

    /// The same, of what is here alone.
    pub(super) async fn read_alone(self: &Arc<Self>, reading: Reading) -> Result<Read, Failed> {
        self.read_with(reading, None).await
    }

    async fn read_with(
        self: &Arc<Self>,
        reading: Reading,
        mender: Option<&Mender>,
    ) -> Result<Read, Failed> {
        let mut read = Read::default();
        match self.read_on(reading, &mut read, mender).await {
            // What was found before it is good.
            Err(_) if !read.batches.is_empty() => {
                read.has_more = true;
                Ok(read)
            }
            ended => ended.map(|()| read),
        }
    }

    /// Adds what is to be read.
    async fn read_on(
        self: &Arc<Self>,
        mut reading: Reading,
        read: &mut Read,
        mender: Option<&Mender>,
    ) -> Result<(), Failed> {
        // Of those that were needed none is forgotten before all are there.
        let mut found: Vec<Arc<Run>> = Vec::new();
        let mut looks = 0;
        loop {
            let fetched = match self.look(reading, &found) {
                Ok(fetched) => fetched,
                Err(unsettled) => {
                    let batches = self.read_chapters(reading, mender).await?;
                    // What was there of them was compacted: what comes next is in the log.
                    let end = batches.last().and_then(|last| Batch::read(last).ok()?.end());
                    let next = end.unwrap_or(unsettled);
                    let bytes: usize = batches.iter().map(Bytes::len).sum();
                    reading.bytes_max = reading.bytes_max.saturating_sub(bytes);
                    read.take(batches, Vec::new());
                    // More of the chapters did not fit.
                    read.has_more = end.is_some() && next < reading.end;
                    if read.has_more && (next < unsettled || reading.bytes_max == 0) {
                        return Ok(());
                    }
                    reading.from = next;
                    continue;
                }
            };
            let Fetched { batches, needs, has_more, is_void, thin } = fetched;
            match needs.filter(|_| batches.is_empty()) {
                Some(index) => match self.read_log(index).await {
                    Ok(run) => found.push(run),
                    Err(_) if looks < LOOKS_MAX => looks += 1,
                    Err(why) => return Err(why),
                },
                None => {
                    read.has_more = has_more || needs.is_some();
                    read.is_void = is_void && read.batches.is_empty();
                    // Of what comes first as much is given as there is in any case.
                    let bytes: usize = batches.iter().map(Bytes::len).sum();
                    if read.batches.is_empty() || bytes <= reading.bytes_max {
                        read.take(batches, thin);
                    } else {
                        read.has_more = true;
                    }
                    return Ok(());
                }
            }
        }
    }

    /// What stands for offsets that name no record: a batch without any, so that a reader's position comes to the end all
    /// the same. `None` where they are deleted.
    pub(crate) fn pass_over(&self, reading: Reading) -> Option<Bytes> {
        let Reading { opening, from, end, .. } = reading;
        let shard = self.replica.lock();
        let partition = shard.state.partition(opening).filter(|found| found.start() <= from)?;
        let epoch = partition.epoch_at(end - 1).unwrap_or(-1);
        let [header, _nothing] = kafka::batch::Batch::empty(from, end, epoch).pieces();
        Some(header)
    }

    /// Whether there is something to read.
    pub(crate) fn has(&self, reading: Reading) -> bool {
        let Ok(fetched) = self.look(reading, &[]) else { return true };
        !fetched.batches.is_empty() || fetched.needs.is_some()
    }

    async fn read_chapters(
        &self,
        reading: Reading,
        mender: Option<&Mender>,
    ) -> Result<Vec<Bytes>, Failed> {
        let Reading { opening, from, end, bytes_max } = reading;
        let (shelf, number) = (Arc::clone(&self.shelf), self.number);
        let read = move || shelf.read(opening, from, end, bytes_max);
        let read = tokio::task::spawn_blocking(read).await;
        let why = match read.map_err(|_ended| Failed::Offline { number })? {
            Ok(batches) => return Ok(batches),
            Err(why) => Failed::Chapters { number, why },
        };
        let Some(mender) = mender else { return Err(why) };
        mender.batches(reading).await.ok_or(why)
    }

    /// The offset of the first batch in a chapter from which on a record with this timestamp or a later one may be.
    pub(crate) async fn settled_at(
        &self,
        opening: Opening,
        start: i64,
        timestamp: i64,
    ) -> Result<Option<i64>, Failed> {
        if self.shelf.is_empty() {
            return Ok(None);
        }
        let (shelf, number) = (Arc::clone(&self.shelf), self.number);
        let found = move || shelf.offset_at(opening, start, timestamp);
        let found = tokio::task::spawn_blocking(found).await;
        let found = found.map_err(|_ended| Failed::Offline { number })?;
        found.map_err(|why| Failed::Chapters { number, why })
    }

    /// What is in memory, or in what was found. Where what comes first lies in a chapter, the first offset that does
    /// not.
    fn look(&self, reading: Reading, found: &[Arc<Run>]) -> Result<Fetched, i64> {
        let Reading { opening, from, end, bytes_max } = reading;
        // Of one state: settled between two, what comes first would be passed over for what is behind it.
        let shard = self.replica.lock();
        let unsettled = shard.state.partition(opening).map(Partition::unsettled);
        // It was on the shelf before the state let it go.
        if let Some(unsettled) = unsettled.filter(|offset| from < *offset)
            && self.shelf.has(opening, from)
        {
            return Err(unsettled);
        }
        let in_found = |index| found.iter().find_map(|run| run.get(&index));
        let find = |index| shard.tail.find(index).or_else(|| in_found(index));
        Ok(fetch(&shard.state, opening, from, end, bytes_max, find))
    }

    /// Entries of the log, with this one and some behind it.
    async fn read_log(&self, index: u64) -> Result<Arc<Run>, Failed> {
        if let Some(run) = self.lately.find(index) {
            return Ok(run);
        }
        let number = self.number;
        // The engine counts from 0.
        let entries = self.group.read_patiently(index - 1, AHEAD_BYTES).await;
        let entries = entries.map_err(|why| Failed::Shard { number, why })?;
        let held = entries.into_iter().filter_map(|(index, payload)| {
            Some((index + 1, Held::new(payload?).expect("what was applied is an entry")))
        });
        let run: Run = held.collect();
        if !run.contains_key(&index) {
            // It went, by retention, between two looks.
            return Err(Failed::Gone { number, index });
        }
        let run = Arc::new(run);
        self.lately.keep(index, &run);
        Ok(run)
    }
}
