//! [`compact`]: of each key of a partition the newest record, in what is settled of it.
//!
//! Runs are *dirty* until they were compacted once, and *clean* then; clean ones come before dirty ones. A record goes
//! where a newer one of its key lies in a dirty run. Offsets stay, and so do batches, with fewer records. A
//! tombstone stays for a while after its run was compacted first: who had read an older record of its key by then
//! still meets it. A record without a key has no newer one, and stays.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_sync::File;
use twox_hash::XxHash3_128;

use super::error::Error;
use super::format::{self, Block, Footer, HEADER_BYTES, Run, Span};
use super::reader::Chapter;
use super::writer::finish;
use crate::kafka::batch::Batch;
use crate::kafka::records::{Record, Records, Retained, retain};
use crate::{random, shard};

/// Bytes to which one batch may be decompressed. What would be larger stays as it is.
const DECOMPRESSED_MAX: usize = 64 << 20;
/// Keys that are in memory at once: about 50 MB. Where there are more, the runs are read more than once.
const KEYS_MAX: usize = 1 << 20;
/// Bytes that are written at once.
const PIECE_BYTES: usize = 1 << 20;

/// A run, and the file that it is in.
pub(super) type Found = (Arc<Chapter>, Run);

/// What a compaction goes by.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    /// In ms since 1970.
    pub(super) now: u64,
    /// Tombstones go whose run was compacted first before this time.
    pub(super) tombstones_before: u64,
    /// Whether it is to go on: it may take long.
    pub(super) goes_on: &'a dyn Fn() -> bool,
}

impl Rules<'_> {
    fn go_on(&self) -> Result<(), Error> {
        if (self.goes_on)() { Ok(()) } else { Err(Error::Stopped) }
    }
}

/// Writes what is left of a partition's runs into an empty file: of all that are dirty, and of those clean ones that
/// lose something. Returns which of the runs it takes the place of: `runs` are all of the partition, in their order.
/// Durable on return.
pub(super) fn compact(
    file: &Arc<dyn File>,
    shard: u32,
    runs: &[Found],
    rules: Rules<'_>,
) -> Result<(Footer, Vec<usize>), Error> {
    let stale = stale(runs, rules)?;
    file.write_at(&format::header(shard), 0)?;
    let mut to = Copy { file, place: HEADER_BYTES as u64, piece: Vec::new(), blocks: Vec::new() };
    let (mut kept, mut replaced) = (Vec::new(), Vec::new());
    for (number, (chapter, run)) in runs.iter().enumerate() {
        let of_run = within(&stale, run);
        if run.compacted != 0 && of_run.is_empty() {
            continue;
        }
        replaced.push(number);
        let compacted = if run.compacted == 0 { rules.now } else { run.compacted };
        kept.extend(to.copy(chapter, run, of_run, rules)?.map(|run| Run { compacted, ..run }));
    }
    to.flush()?;
    let span = Span::of(&replaced.iter().map(|number| runs[*number].0.footer()));
    let footer = finish(&**file, to.place, span, &to.blocks, &kept)?;
    Ok((footer, replaced))
}

/// The offsets of records that go, in their order.
fn stale(runs: &[Found], rules: Rules<'_>) -> Result<Vec<i64>, Error> {
    let [a, b, c, d, e, f, g, h, ..] = random::bytes();
    let seed = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let mut parts = 1;
    loop {
        match stale_in_parts(runs, rules, seed, parts)? {
            Some(stale) => return Ok(stale),
            None => parts *= 4,
        }
    }
}

/// The same, the keys of each so many'th part of them in memory at once; `None` if these are too many. Where some
/// records could not be looked at no tombstone goes: an older record of its key may be among them.
fn stale_in_parts(
    runs: &[Found],
    rules: Rules<'_>,
    seed: u64,
    parts: u128,
) -> Result<Option<Vec<i64>>, Error> {
    let (mut stale, mut tombstones, mut is_all) = (Vec::new(), Vec::new(), true);
    for part in 0..parts {
        let of_part = |key: &[u8]| {
            let hash = XxHash3_128::oneshot_with_seed(seed, key);
            (hash % parts == part).then_some(hash)
        };
        let mut newest: HashMap<u128, i64> = HashMap::new();
        for (chapter, run) in runs.iter().filter(|(_, run)| run.compacted == 0) {
            each_record(chapter, run, rules, |record| {
                // One more than there may be says that there are too many.
                if let Some(key) = record.key.and_then(of_part)
                    && (newest.len() <= KEYS_MAX || newest.contains_key(&key))
                {
                    newest.insert(key, record.offset);
                }
            })?;
            if newest.len() > KEYS_MAX {
                return Ok(None);
            }
        }
        for (chapter, run) in runs {
            let is_over = run.compacted != 0 && run.compacted < rules.tombstones_before;
            is_all &= each_record(chapter, run, rules, |record| {
                let Some(key) = record.key.and_then(of_part) else { return };
                if newest.get(&key).is_some_and(|offset| *offset > record.offset) {
                    stale.push(record.offset);
                } else if is_over && record.value.is_none() {
                    tombstones.push(record.offset);
                }
            })?;
        }
    }
    if is_all {
        stale.extend(tombstones);
    }
    stale.sort_unstable();
    Ok(Some(stale))
}

/// Looks at the records of a run. Those of a batch that cannot be read are not looked at: it stays as it is. Whether
/// there was none.
fn each_record(
    chapter: &Chapter,
    run: &Run,
    rules: Rules<'_>,
    mut see: impl FnMut(&Record<'_>),
) -> Result<bool, Error> {
    let mut is_all = true;
    chapter.walk(run, |_block, batches| {
        rules.go_on()?;
        for batch in batches {
            let Some(records) = read(batch).and_then(|b| Records::of(&b, DECOMPRESSED_MAX).ok())
            else {
                is_all = false;
                continue;
            };
            // All of them, or none; and none of which two have one offset.
            let mut last = -1;
            let is_good = records.iter().all(|record| {
                let offset = record.map_or(-1, |record| record.offset);
                std::mem::replace(&mut last, offset) < offset
            });
            match is_good {
                true => records.iter().flatten().for_each(|record| see(&record)),
                false => is_all = false,
            }
        }
        Ok(())
    })?;
    Ok(is_all)
}

fn read(batch: &Bytes) -> Option<Batch> {
    Batch::take(&mut batch.clone()).ok().flatten()
}

/// Those of these offsets that are in a run.
fn within<'a>(stale: &'a [i64], run: &Run) -> &'a [i64] {
    let first = stale.partition_point(|offset| *offset < run.base_offset);
    let end = stale.partition_point(|offset| *offset < run.end_offset);
    &stale[first..end]
}

/// A file that runs are copied to.
struct Copy<'a> {
    file: &'a Arc<dyn File>,
    /// Behind all that was copied.
    place: u64,
    /// What was copied last, and is not written.
    piece: Vec<u8>,
    blocks: Vec<Block>,
}

impl Copy<'_> {
    /// Copies what is left of a run, block by block. `None` if nothing is.
    fn copy(
        &mut self,
        chapter: &Chapter,
        run: &Run,
        stale: &[i64],
        rules: Rules<'_>,
    ) -> Result<Option<Run>, Error> {
        let begin = hash_begin(run);
        let (place, first_block) = (self.place, self.blocks.len());
        let mut left = Run { place, first_block: first_block as u64, bytes: 0, ..*run };
        left.max_timestamp = i64::MIN;
        chapter.walk(run, |block, batches| {
            rules.go_on()?;
            let kept: Vec<Bytes> =
                batches.iter().filter_map(|batch| without(batch, stale)).collect();
            let heads = kept.iter().map(|batch| shard::Batch::read(batch).expect("it is one"));
            let Some(first) = heads.clone().next() else { return Ok(()) };
            let largest = heads.map(|head| head.max_timestamp).max();
            left.max_timestamp = left.max_timestamp.max(largest.unwrap_or(i64::MIN));
            let bytes = kept.iter().map(Bytes::len).sum::<usize>();
            let block = Block {
                base_offset: first.base_offset,
                max_timestamp: left.max_timestamp,
                place: left.bytes,
                batches: u16::try_from(kept.len()).expect("no more than there were"),
                bytes: u32::try_from(bytes).expect("what was compressed again is below 4 GiB"),
                ..*block
            };
            let hash = kept.iter().fold(begin, |hash, batch| format::hash_on(hash, batch));
            self.blocks.push(block.seal(hash));
            left.bytes += bytes as u64;
            for batch in kept {
                self.push(&batch)?;
            }
            Ok(())
        })?;
        let blocks = &self.blocks[first_block..];
        let Some(first) = blocks.first() else { return Ok(None) };
        left.base_offset = first.base_offset;
        left.blocks = u32::try_from(blocks.len()).expect("no more than there were");
        left.hash = Run::hash_of(blocks);
        Ok(Some(left))
    }

    fn push(&mut self, batch: &[u8]) -> Result<(), Error> {
        self.piece.extend_from_slice(batch);
        self.place += batch.len() as u64;
        if self.piece.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.file.write_at(&self.piece, self.place - self.piece.len() as u64)?;
        self.piece.clear();
        Ok(())
    }
}

fn hash_begin(run: &Run) -> u64 {
    format::hash_begin(run.opening, run.chapter)
}

/// What is left of a batch without these offsets; `None` if nothing is.
fn without(bytes: &Bytes, stale: &[i64]) -> Option<Bytes> {
    let head = shard::Batch::read(bytes).expect("it was verified");
    let end = head.end().unwrap_or(i64::MAX);
    let first = stale.partition_point(|offset| *offset < head.base_offset);
    let stale = &stale[first..];
    if stale.first().is_none_or(|offset| *offset >= end) {
        return Some(bytes.clone());
    }
    let keep = |record: &Record<'_>| stale.binary_search(&record.offset).is_err();
    let left = read(bytes).map(|batch| retain(&batch, DECOMPRESSED_MAX, keep));
    match left {
        Some(Ok(Retained::None)) => None,
        Some(Ok(Retained::Some(batch))) => Some(Bytes::from(batch.pieces().concat())),
        _ => Some(bytes.clone()),
    }
}
