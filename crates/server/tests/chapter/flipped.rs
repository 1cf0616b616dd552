//! Each byte of a chapter and of its manifest, flipped: what was written, or an error that says where.
//!
//! Of the records in large batches some bytes are taken; `PLIMSOLL_EVERY=1` takes all.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_server::chapter::{Chapter, Error, MANIFEST, Run, Shelf};
use plimsoll_server::shard::{Batch, Item, Opening};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Crash, Dir};

use super::log::{
    Log, Logged, ROLL_UP, SETTINGS, SHARD, acts, batches, bytes_of, files, marked, opens,
    partition, read_all, shelf,
};

const FILE: &str = "00000000.chapter";
const BLOCK_BYTES: u64 = 56;
const ROW_BYTES: u64 = 128;
const FOOTER_BYTES: u64 = 128;
const PATTERNS: [u8; 2] = [0xff, 0x01];

/// A chapter of three runs, one of five blocks.
struct Written {
    disk: SimDir,
    batches: BTreeMap<Opening, Vec<Logged>>,
    runs: Vec<Run>,
    /// Of each run, in their order: where its batches are, where its blocks are, and its row of the table.
    places: Vec<[Range<u64>; 3]>,
    fences: Range<u64>,
}

/// A large batch is a block alone.
const LARGE: u32 = 3_300;

fn written() -> Written {
    let [a, b, c] = [partition(7, 0), partition(7, 1), partition(9, 0)];
    let mut log = Log::default();
    log.lead();
    log.push(opens(&[a, b, c], SETTINGS), 1_000);
    let mut at = 0;
    for (number, records) in [1, LARGE, 2, LARGE, 1].into_iter().enumerate() {
        let time = 1_000 + 10 * number as u64;
        let timestamp = 100 + i64::try_from(number).unwrap();
        log.push(batches(&[(b, at, marked(records, None, timestamp))]), time);
        at += i64::from(records);
    }
    log.push(batches(&[(a, 0, marked(2, None, 70)), (c, 0, marked(1, None, 90))]), 1_100);
    log.push(batches(&[(a, 2, marked(1, None, 80))]), 1_110);
    log.push(acts(&[Item::ChapterEnd(1)]), 1_200);
    let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(log.last()));
    log.settle_next(&shelf(&disk), &mut state).unwrap();
    let (_, chapter, runs) = files(&disk).remove(0);
    let blocks_at = chapter.footer().blocks_at;
    let places = runs.iter().map(|run| {
        let first = blocks_at + run.first_block * BLOCK_BYTES;
        let blocks = first..first + u64::from(run.blocks) * BLOCK_BYTES;
        [run.place..run.place + run.bytes, blocks]
    });
    let rows = (0..).map(|number| {
        let row = chapter.footer().runs_at + number * ROW_BYTES;
        row..row + ROW_BYTES
    });
    let places = places.zip(rows).map(|([batches, blocks], row)| [batches, blocks, row]).collect();
    let file_bytes = chapter.footer().file_bytes;
    let fences = chapter.footer().runs_at + 3 * ROW_BYTES..file_bytes - FOOTER_BYTES;
    let batches = [a, b, c].map(|opening| (opening, log.batches(opening))).into();
    Written { disk: disk.crash(Crash::Process, 0), batches, runs, places, fences }
}

fn flip(disk: &SimDir, name: &str, at: u64, by: u8) {
    let file = disk.open(name, Access::default()).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ by], at).unwrap();
}

impl Written {
    fn flipped(&self, name: &str, at: u64, by: u8) -> Arc<SimDir> {
        let disk = self.disk.crash(Crash::Process, 0);
        flip(&disk, name, at, by);
        Arc::new(disk)
    }

    /// The run that this byte of the file is of.
    fn run_at(&self, at: u64) -> Option<usize> {
        self.places.iter().position(|places| places.iter().any(|place| place.contains(&at)))
    }

    /// Reads a run in all ways; returns how many of them failed, as they may where it is damaged.
    fn read(&self, shelf: &Shelf, run: &Run) -> usize {
        let all = &self.batches[&run.opening];
        let mut failed = 0;
        for (number, batch) in all.iter().enumerate() {
            for from in [batch.base, batch.end - 1] {
                for bytes_max in [1, 40_000, usize::MAX] {
                    let read = shelf.read(run.opening, from, i64::MAX, bytes_max);
                    let Some(read) = self.whole(run, read, &mut failed) else { continue };
                    assert!(!read.is_empty(), "nothing is at {from}");
                    let expected: Vec<Bytes> =
                        all[number..].iter().take(read.len()).map(|b| b.bytes.clone()).collect();
                    assert!(read == expected, "another is at {from}");
                }
            }
            for timestamp in [batch.max_timestamp, batch.max_timestamp + 1] {
                let first = all.iter().find(|batch| batch.max_timestamp >= timestamp);
                let found = shelf.offset_at(run.opening, 0, timestamp);
                let Some(found) = self.whole(run, found, &mut failed) else { continue };
                let Some(first) = first else { continue };
                let is_before = found.is_some_and(|found| found <= first.base);
                assert!(is_before, "{timestamp} is at {}, not {found:?}", first.base);
            }
        }
        failed
    }

    /// What was read, unless it says that this run is damaged, and where; or its row of the table, which says where.
    fn whole<T>(&self, of: &Run, read: Result<T, Error>, failed: &mut usize) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(Error::File { file, .. }) => {
                assert_eq!(file, FILE);
                *failed += 1;
                None
            }
            Err(Error::Run { file, opening, from, last }) => {
                assert_eq!((file.as_str(), opening), (FILE, of.opening));
                assert!(of.base_offset <= from && from <= last && last < of.end_offset);
                *failed += 1;
                None
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// All of a file but the records, and some of these.
fn worth_a_flip(written: &Written, name: &str) -> Vec<u64> {
    let every: u64 = std::env::var("PLIMSOLL_EVERY").map_or(499, |every| every.parse().unwrap());
    let all = 0..bytes_of(&written.disk, name).len() as u64;
    let mut kept = Vec::new();
    let mut places = Vec::new();
    for run in &written.runs {
        let mut at = run.place;
        for batch in &written.batches[&run.opening] {
            let end = at + batch.bytes.len() as u64;
            places.push(at + 61..end);
            at = end;
        }
    }
    for at in all {
        let is_record = name == FILE && places.iter().any(|records| records.contains(&at));
        if !is_record || at % every == 0 {
            kept.push(at);
        }
    }
    kept
}

#[test]
fn a_flipped_byte_of_a_chapter_is_an_error_and_never_other_bytes() {
    let written = written();
    let (mut refused, mut damaged, mut rows, mut fences) = (0, 0, 0, 0);
    for (at, by) in
        worth_a_flip(&written, FILE).into_iter().flat_map(|at| PATTERNS.map(|by| (at, by)))
    {
        let disk = written.flipped(FILE, at, by);
        let opened = Shelf::open(Arc::clone(&disk) as Arc<dyn Dir>, SHARD);
        if written.fences.contains(&at) {
            // The table has all that they say.
            let shelf = opened.unwrap();
            assert!(written.runs.iter().all(|run| written.read(&shelf, run) == 0));
            fences += 1;
            continue;
        }
        let Some(run) = written.run_at(at) else {
            // What it says of itself: there is no telling what else is wrong.
            let Err(why) = opened else { panic!("byte {at} by {by:#x} is believed") };
            assert!(matches!(why, Error::File { .. } | Error::Missing { .. }), "{why}");
            refused += 1;
            continue;
        };
        let shelf = opened.unwrap_or_else(|why| panic!("byte {at} by {by:#x}: {why}"));
        let file = disk.open(FILE, Access::default()).unwrap();
        let chapter = Chapter::open(FILE, file).unwrap();
        if written.places[run][2].contains(&at) {
            // Without the roll-up it is not known what the shelf has.
            disk.remove(ROLL_UP).unwrap();
            let tables = Shelf::open(Arc::clone(&disk) as Arc<dyn Dir>, SHARD);
            assert!(matches!(tables, Err(Error::File { .. })), "byte {at} by {by:#x}");
            rows += 1;
        }
        for (number, of) in written.runs.iter().enumerate() {
            let failed = written.read(&shelf, of);
            if number == run {
                assert!(failed > 0, "byte {at} by {by:#x} is believed");
                let mut failed = 0;
                written.whole(of, chapter.verify(of), &mut failed);
                let is_row = written.places[run][2].contains(&at);
                assert_eq!(failed, usize::from(!is_row), "byte {at} by {by:#x} is verified");
            } else {
                assert_eq!(failed, 0, "byte {at} by {by:#x} damages another run");
                assert_eq!(chapter.verify(of).unwrap(), of.bytes);
            }
        }
        damaged += 1;
    }
    println!("{refused} refused, {damaged} damaged, of them {rows} in the table; {fences} fences");
    assert!(refused > 0 && damaged > rows && rows > 0 && fences > 0);
}

#[test]
fn a_flipped_byte_of_a_manifest_is_an_error() {
    let written = written();
    for at in worth_a_flip(&written, MANIFEST) {
        for by in PATTERNS {
            let disk = written.flipped(MANIFEST, at, by);
            let opened = Shelf::open(disk as Arc<dyn Dir>, SHARD);
            assert!(matches!(opened, Err(Error::File { .. })), "byte {at} by {by:#x}");
        }
    }
}

/// It says nothing that the tables do not.
#[test]
fn a_flipped_byte_of_a_roll_up_costs_a_start_its_time() {
    let written = written();
    for at in 0..bytes_of(&written.disk, ROLL_UP).len() as u64 {
        for by in PATTERNS {
            let disk = written.flipped(ROLL_UP, at, by);
            let shelf = shelf(&disk);
            assert!(written.runs.iter().all(|run| written.read(&shelf, run) == 0));
            assert_eq!(bytes_of(&disk, ROLL_UP), bytes_of(&written.disk, ROLL_UP), "byte {at}");
        }
    }
}

/// However much is asked for at once: one that asks for a megabyte would not have had the 999 kB before it.
#[test]
fn batches_before_and_behind_a_damaged_block_are_read() {
    let written = written();
    let of = written.runs[1];
    let all = &written.batches[&of.opening];
    let mut place = of.place;
    for damaged in all {
        let shelf = shelf(&written.flipped(FILE, place + 40, 0xff));
        place += damaged.bytes.len() as u64;
        for bytes_max in [1, 40_000, usize::MAX] {
            let (mut from, mut read) = (0, Vec::new());
            while let Some(next) = all.iter().find(|batch| batch.base >= from) {
                match shelf.read(of.opening, from, i64::MAX, bytes_max) {
                    Ok(found) => {
                        from = Batch::read(found.last().unwrap()).unwrap().end().unwrap();
                        read.extend(found);
                    }
                    Err(Error::Run { from: first, last, .. }) => {
                        assert_eq!(next.base, damaged.base, "{bytes_max} bytes at once");
                        assert_eq!((first, last + 1), (damaged.base, damaged.end));
                        from = damaged.end;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            let good = all.iter().filter(|batch| batch.base != damaged.base);
            assert!(read == good.map(|batch| batch.bytes.clone()).collect::<Vec<_>>());
        }
    }
}

/// What is merged with a damaged file stays as it was, and the rest of it goes on.
#[test]
fn a_damaged_file_is_left_and_the_others_are_merged() {
    let log = super::log::small();
    let disk = Arc::new(SimDir::new());
    let mut state = log.state_at(super::log::SMALL_ENDS);
    log.settle_next(&shelf(&disk), &mut state).unwrap();
    log.settle_next(&shelf(&disk), &mut state).unwrap();
    let place = files(&disk)[0].2[0].place;
    flip(&disk, FILE, place + 70, 0xff);
    let shelf = shelf(&disk);
    shelf.free(&log.state_at(log.last())).unwrap();
    let names: Vec<_> =
        files(&disk).iter().map(|(.., chapter, _)| chapter.name().to_owned()).collect();
    assert_eq!(names[0], FILE);
    // The second one was mostly dead too.
    assert_eq!(files(&disk)[1].2.len(), 1);
    let [a, _, c] = super::log::OF_SMALL.map(|opening| opening());
    assert!(read_all(&shelf, a, 0, 1).is_err());
    let expected: Vec<_> = log.batches(c).into_iter().map(|batch| batch.bytes).collect();
    assert_eq!(read_all(&shelf, c, 0, 1).unwrap(), expected);
    // The copy that was begun is gone, and not begun again.
    shelf.free(&log.state_at(log.last())).unwrap();
    let mut left = disk.list().unwrap();
    left.retain(|name| name != ROLL_UP);
    assert_eq!(left.len(), 3);
}
