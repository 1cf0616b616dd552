//! What a reader of the chapters found (21b7270), and what a scrub finds: each told once.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_server::chapter::{Error, Reread, Shelf};
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::records::Draft;
use plimsoll_server::shard::{Item, State};
use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::{Access, Crash, Dir};

use super::between::Between;
use super::log::{
    Log, OF_SMALL, SETTINGS, SHARD, SMALL_ENDS, acts, batches, files, marked, opens, partition,
    read_all, shelf, small,
};

fn all_of(log: &Log, at: plimsoll_server::shard::Opening) -> Vec<Bytes> {
    log.batches(at).into_iter().map(|batch| batch.bytes).collect()
}

/// Each try left a file behind that nobody took away before the next start.
#[test]
fn a_chapter_that_cannot_be_named_leaves_no_file() {
    let log = small();
    let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(SMALL_ENDS));
    let shelf = shelf(&disk);
    let failing = Fault::new(Operation::Write, FaultKind::FailRaw(5)).times(3);
    disk.inject(failing.named("manifest.new"));
    for _ in 0..3 {
        log.settle_next(&shelf, &mut state).unwrap_err();
        let names = disk.list().unwrap();
        assert!(names.iter().all(|name| !name.ends_with(".chapter")), "{names:?}");
    }
    log.settle_next(&shelf, &mut state).unwrap();
    assert_eq!(shelf.size().files, 1);
}

/// An end waited for a chain of merges.
#[test]
fn once_it_ends_a_shelf_merges_nothing_more() {
    let log = small();
    let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(SMALL_ENDS));
    let shelf = shelf(&disk);
    log.settle_next(&shelf, &mut state).unwrap();
    log.settle_next(&shelf, &mut state).unwrap();
    let deleted = log.state_at(log.last());
    shelf.end();
    shelf.free(&deleted).unwrap();
    assert_eq!(shelf.size().files, 2);
    let at = OF_SMALL[0]();
    assert_eq!(read_all(&shelf, at, 0, 1).unwrap(), all_of(&log, at));
    // The next run goes on.
    drop(shelf);
    let shelf = super::log::shelf(&disk);
    shelf.free(&deleted).unwrap();
    assert_eq!(shelf.size().files, 1);
}

/// Chapters of so many records of one partition, one each.
fn of_small_chapters(count: i64) -> (Log, Arc<SimDir>, State) {
    let (mut log, at) = (Log::default(), partition(7, 0));
    log.lead();
    log.push(opens(&[at], SETTINGS), 1_000);
    let disk = Arc::new(SimDir::new());
    for number in 0..count {
        log.push(batches(&[(at, number, marked(1, None, number))]), 1_000);
        log.push(acts(&[Item::ChapterEnd(number.unsigned_abs() + 1)]), 1_000);
    }
    let mut state = log.state_at(log.last());
    let shelf = shelf(&disk);
    while state.ended().len() > 0 {
        log.settle_next(&shelf, &mut state).unwrap();
    }
    (log, disk, state)
}

/// Many partitions that are compacted took a file each, and a descriptor.
#[test]
fn sixteen_small_files_are_merged_though_all_of_them_lives() {
    for (count, left) in [(15, 15), (16, 1), (17, 1)] {
        let (log, disk, state) = of_small_chapters(count);
        let shelf = shelf(&disk);
        assert_eq!(shelf.size().files, usize::try_from(count).unwrap());
        shelf.free(&state).unwrap();
        assert_eq!(shelf.size().files, left);
        let at = partition(7, 0);
        assert_eq!(read_all(&shelf, at, 0, 1).unwrap(), all_of(&log, at));
    }
}

/// A batch of records with these keys.
pub(crate) fn keyed(keys: &[&str]) -> Vec<u8> {
    let mut draft = Draft::default();
    for key in keys {
        draft.push(1_000, Some(key.as_bytes()), Some(b"value"), &[]);
    }
    draft.batch(Compression::None, None).pieces().concat()
}

/// What is compressed is not looked into when it comes, and may say that two records have one offset. With the first,
/// of which a newer one was there, the other went too.
#[test]
fn of_two_records_that_claim_one_offset_none_goes_for_the_other() {
    const RECORDS_AT: usize = 61;
    let at = partition(7, 0);
    let mut claims = keyed(&["a", "b"]);
    // A record: its length, attributes, timestamp, offset, a byte each.
    let second = RECORDS_AT + 1 + usize::from(claims[RECORDS_AT] / 2);
    assert_eq!(claims[second + 3], 2, "the offset of the second, as a varint");
    claims[second + 3] = 0;
    let checksum = crc32c::crc32c(&claims[21..]);
    #[expect(clippy::big_endian_bytes, reason = "Kafka's integers are big-endian")]
    claims[17..21].copy_from_slice(&checksum.to_be_bytes());
    let mut log = Log::default();
    log.lead();
    log.push(opens(&[at], SETTINGS), 1_000);
    log.push(batches(&[(at, 0, claims.into())]), 1_000);
    log.push(batches(&[(at, 2, keyed(&["a"]).into())]), 1_000);
    log.push(batches(&[(at, 3, keyed(&["a"]).into())]), 1_000);
    log.push(acts(&[Item::ChapterEnd(1)]), 1_000);
    let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(log.last()));
    let shelf = shelf(&disk);
    log.settle_next(&shelf, &mut state).unwrap();
    shelf.compact(at, 0, 2_000, || true).unwrap();
    let mut left = all_of(&log, at);
    left.remove(1);
    assert_eq!(read_all(&shelf, at, 0, 1).unwrap(), left);
}

/// What is in memory is not on the disk: a read through the page cache finds nothing.
#[test]
fn a_scrub_finds_what_the_medium_has_lost_behind_the_page_cache() {
    let log = small();
    let disk = Arc::new(SimDir::new());
    let between = Between::new(&disk);
    let shelf = Shelf::open(Arc::new(between.clone()), SHARD).unwrap();
    let mut state = log.state_at(SMALL_ENDS);
    log.settle_next(&shelf, &mut state).unwrap();
    let medium = Arc::new(disk.crash(Crash::Process, 0));
    between.on_medium(&medium);
    let file = shelf.files()[0];
    assert_eq!(shelf.scrub(file, 0, u64::MAX, &mut |_| true).unwrap(), Reread::default());
    assert!(shelf.damaged().is_empty());

    let (_, chapter, runs) = files(&medium).remove(0);
    let run = runs[0];
    let on_medium = medium.open(chapter.name(), Access::default()).unwrap();
    let mut byte = [0];
    on_medium.read_at(&mut byte, run.place + 70).unwrap();
    on_medium.write_at(&[byte[0] ^ 1], run.place + 70).unwrap();
    // Run by run, and it does not stop at the one that is damaged.
    let mut next = Some(0);
    let (mut steps, mut found) = (0, 0);
    while let Some(from) = next {
        let reread = shelf.scrub(file, from, 1, &mut |_| true).unwrap();
        (next, found) = (reread.next, found + reread.damaged);
        steps += 1;
    }
    assert_eq!(found, 1);
    assert_eq!(steps, runs.len() - 1, "what is damaged counts for nothing");
    let damaged = shelf.damaged();
    let [Error::Run { file, opening, from, last }] = &damaged[..] else { panic!("{damaged:?}") };
    assert_eq!((file.as_str(), *opening), (chapter.name(), run.opening));
    assert_eq!((*from, *last), (run.base_offset, run.end_offset - 1));
    let said = damaged[0].to_string();
    let opening = run.opening.to_string();
    assert!(said.contains(chapter.name()) && said.contains(&opening), "{said}");

    // Once the cache has forgotten it whoever reads that run gets the error, and nobody else.
    let shelf = super::log::shelf(&medium);
    for at in OF_SMALL.map(|opening| opening()) {
        let read = read_all(&shelf, at, 0, 1);
        if at == run.opening {
            assert!(matches!(read, Err(Error::Run { .. })), "{read:?}");
        } else {
            let settled = log.batches(at).into_iter().filter(|batch| batch.index < 7);
            assert_eq!(read.unwrap(), settled.map(|batch| batch.bytes).collect::<Vec<_>>());
        }
    }
    assert_eq!(shelf.damaged().len(), 1);
}
