//! What is damaged is healed by what another replica has: the very run, and nothing else.

use std::sync::Arc;

use plimsoll_server::chapter::{Broken, Error, Piece, Run, Shelf, Survey};
use plimsoll_server::shard::{Item, Opening, Settings, State};
use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::{Access, Crash, Dir};
use twox_hash::XxHash3_64;

use super::log::{
    Log, OF_SMALL, SETTINGS, SHARD, SMALL_ENDS, acts, batches, files, opens, partition, read_all,
    shelf as opened, small,
};
use super::mended::keyed;

/// Two chapters of three partitions, settled.
fn settled(log: &Log) -> (Arc<SimDir>, State) {
    let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(SMALL_ENDS));
    let shelf = opened(&disk);
    while state.ended().len() > 0 {
        log.settle_next(&shelf, &mut state).unwrap();
    }
    (disk, state)
}

fn flip(disk: &SimDir, file: u64, at: u64) {
    let name = format!("{file:08}.chapter");
    let file = disk.open(&name, Access::default()).unwrap();
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, at).unwrap(), 1);
    file.write_at(&[byte[0] ^ 1], at).unwrap();
}

/// A run of a partition, its number, its file, and where the table of that is.
fn run_of(disk: &SimDir, opening: Opening, chapter: u64) -> (u64, u64, Run) {
    let found = files(disk).into_iter().find_map(|(file, read, runs)| {
        let is_it = |run: &Run| (run.opening, run.chapter) == (opening, chapter);
        let number = runs.iter().position(is_it)?;
        Some((file, read.footer().runs_at + number as u64 * 128, runs[number]))
    });
    found.unwrap()
}

/// Heals a run by what this one gives.
fn heal(shelf: &Shelf, broken: &Broken, peer: &Shelf) -> Result<bool, Error> {
    let mut healing = shelf.begin_healing(broken.clone())?;
    loop {
        let given = peer.give(broken.opening(), broken.chapter(), healing.next_block())?;
        let sent = given.unwrap().encode().concat().into();
        if healing.take(&Piece::decode(&sent).unwrap())? {
            return shelf.heal(healing);
        }
    }
}

fn reads_all(log: &Log, shelf: &Shelf, at: Opening) {
    let all: Vec<_> = log.batches(at).into_iter().map(|batch| batch.bytes).collect();
    assert_eq!(read_all(shelf, at, 0, 1).unwrap(), all);
}

/// Each has a bad block of its own, and all of them the same records again.
#[test]
fn three_replicas_with_different_bad_blocks_all_heal() {
    let log = small();
    let disks = [(); 3].map(|()| settled(&log).0);
    let openings = OF_SMALL.map(|opening| opening());
    for (disk, at) in disks.iter().zip(&openings) {
        let (file, _, run) = run_of(disk, *at, 1);
        flip(disk, file, run.place + run.bytes / 2);
    }
    let shelves = disks.each_ref().map(opened);
    for (nth, shelf) in shelves.iter().enumerate() {
        read_all(shelf, openings[nth], 0, 1).unwrap_err();
        assert_eq!(shelf.wounded().into_iter().collect::<Vec<_>>(), [openings[nth]]);
        let broken = shelf.broken(openings[nth]);
        assert_eq!(broken.len(), 1);
        assert!(heal(shelf, &broken[0], &shelves[(nth + 1) % 3]).unwrap());
        assert!(shelf.broken(openings[nth]).is_empty());
        assert!(shelf.wounded().is_empty());
    }
    for (disk, shelf) in disks.iter().zip(&shelves) {
        openings.iter().for_each(|at| reads_all(&log, shelf, *at));
        let survey = Survey::of(&**disk, SHARD).unwrap();
        assert!(survey.strays.is_empty(), "{:?}", survey.strays);
        // What was healed is there after a power cut, with a roll-up and without.
        let cut = Arc::new(disk.power_cut(7));
        cut.remove("roll-up").unwrap();
        let shelf = opened(&cut);
        openings.iter().for_each(|at| reads_all(&log, &shelf, *at));
    }
}

/// The row of a table says whose a run is: damaged, it says so no more.
#[test]
fn a_row_that_is_damaged_is_healed_and_its_file_merged() {
    let log = small();
    let at = OF_SMALL[1]();
    let (disk, state) = settled(&log);
    let (file, row, _) = run_of(&disk, at, 1);
    let peer = opened(&settled(&log).0);
    flip(&disk, file, row + 40);
    let shelf = opened(&disk);
    assert!(shelf.wounded().is_empty());
    assert_eq!(shelf.scrub(file, 0, u64::MAX, &mut |_| true).unwrap().damaged, 1);
    assert_eq!(shelf.wounded().into_iter().collect::<Vec<_>>(), [at]);
    let broken = shelf.broken(at);
    assert_eq!(broken.len(), 1);
    assert!(heal(&shelf, &broken[0], &peer).unwrap());
    assert!(shelf.broken(at).is_empty());
    reads_all(&log, &shelf, at);
    // What looks from outside, and a start that reads tables, pass over the row.
    let survey = Survey::of(&*disk, SHARD).unwrap();
    assert!(survey.files.iter().all(|found| found.opened.is_ok()));
    disk.remove("roll-up").unwrap();
    let shelf = opened(&disk);
    reads_all(&log, &shelf, at);
    // And so does what merges its file, of which little lives once others are deleted.
    let deleted = log.state_at(log.last());
    shelf.free(&deleted).unwrap();
    assert!(!files(&disk).iter().any(|(number, ..)| *number == file));
    assert!(state.applied() < deleted.applied());
}

#[test]
fn what_is_not_the_run_that_is_damaged_heals_nothing() {
    let log = small();
    let at = OF_SMALL[0]();
    let (disk, _) = settled(&log);
    let (file, _, run) = run_of(&disk, at, 1);
    flip(&disk, file, run.place);
    let (shelf, peer) = (opened(&disk), opened(&settled(&log).0));
    shelf.read(at, 0, i64::MAX, 1).unwrap_err();
    let broken = shelf.broken(at).remove(0);
    let good = peer.give(at, 1, 0).unwrap().unwrap().encode().concat();
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1;
        let Ok(piece) = Piece::decode(&bad.into()) else { continue };
        let mut healing = shelf.begin_healing(broken.clone()).unwrap();
        healing.take(&piece).unwrap_err();
    }
    // Of another partition, of another chapter, and from elsewhere in the run.
    for (of, chapter) in [(OF_SMALL[2](), 1), (at, 2)] {
        let piece = peer.give(of, chapter, 0).unwrap().unwrap();
        shelf.begin_healing(broken.clone()).unwrap().take(&piece).unwrap_err();
    }
    assert!(peer.give(at, 1, run.blocks).unwrap().is_none());
    // Nothing of that is left, and the damaged run is as it was.
    let survey = Survey::of(&*disk, SHARD).unwrap();
    assert!(survey.strays.is_empty(), "{:?}", survey.strays);
    shelf.read(at, 0, i64::MAX, 1).unwrap_err();
    assert!(heal(&shelf, &broken, &peer).unwrap());
    reads_all(&log, &shelf, at);
}

/// Where a row is damaged nothing here says how long its run is: a peer could have any disk filled.
#[test]
fn a_peer_that_names_a_hostile_length_has_no_room_reserved() {
    let log = small();
    let at = OF_SMALL[1]();
    let (disk, _) = settled(&log);
    let of_partition: u64 = [1, 2].map(|chapter| run_of(&disk, at, chapter).2.bytes).iter().sum();
    let (file, row, _) = run_of(&disk, at, 1);
    let peer = opened(&settled(&log).0);
    flip(&disk, file, row + 40);
    let shelf = opened(&disk);
    shelf.scrub(file, 0, u64::MAX, &mut |_| true).unwrap();
    let broken = shelf.broken(at).remove(0);
    let good = peer.give(at, 1, 0).unwrap().unwrap().encode().concat();
    for bytes in [of_partition + 1, 1 << 40, i64::MAX as u64] {
        let mut bad = good.clone();
        // Its size, and the checksum of the row.
        bad[80..88].copy_from_slice(&bytes.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&bad[..120]);
        bad[120..128].copy_from_slice(&checksum.to_le_bytes());
        let piece = Piece::decode(&bad.into()).unwrap();
        let mut healing = shelf.begin_healing(broken.clone()).unwrap();
        let begun = disk.operations();
        let refused = healing.take(&piece).unwrap_err();
        assert!(matches!(refused, Error::Strange { chapter: 1, .. }), "{bytes}: {refused}");
        assert_eq!(disk.operations(), begun, "{bytes}: nothing was asked of the disk");
    }
    assert!(heal(&shelf, &broken, &peer).unwrap());
    reads_all(&log, &shelf, at);
}

/// What a replica compacted is not what another has, nor is what it did not.
#[test]
fn a_run_that_was_compacted_elsewhere_heals_nothing() {
    let at = partition(7, 0);
    let settings = Settings { compaction: Some(0), ..SETTINGS };
    let mut log = Log::default();
    log.lead();
    log.push(opens(&[at], settings), 1_000);
    log.push(batches(&[(at, 0, keyed(&["a", "b"]).into())]), 1_000);
    log.push(acts(&[Item::ChapterEnd(1)]), 1_000);
    log.push(batches(&[(at, 2, keyed(&["a"]).into())]), 1_000);
    log.push(acts(&[Item::ChapterEnd(2)]), 1_000);
    let settle = |is_compacted: bool| {
        let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(log.last()));
        let shelf = opened(&disk);
        while state.ended().len() > 0 {
            log.settle_next(&shelf, &mut state).unwrap();
        }
        assert!(!is_compacted || shelf.compact(at, 0, 5_000, || true).unwrap());
        (disk, shelf)
    };
    for is_compacted in [false, true] {
        let ((disk, damaged), (_, peer)) = (settle(is_compacted), settle(!is_compacted));
        let (file, _, run) = run_of(&disk, at, 1);
        assert_eq!(run.compacted != 0, is_compacted);
        flip(&disk, file, run.place);
        damaged.read(at, 0, i64::MAX, 1).unwrap_err();
        let broken = damaged.broken(at).remove(0);
        let refused = heal(&damaged, &broken, &peer).unwrap_err();
        assert!(matches!(refused, Error::Strange { chapter: 1, .. }), "{refused}");
        assert_eq!(damaged.wounded().len(), 1);
        // One that did as this one did has it.
        assert!(heal(&damaged, &broken, &settle(is_compacted).1).unwrap());
        assert!(damaged.broken(at).is_empty());
    }
}

#[test]
fn a_disk_that_fails_while_it_heals_leaves_the_damaged_run_or_the_healed_one() {
    let log = small();
    let at = OF_SMALL[0]();
    let peer = opened(&settled(&log).0);
    for (nth, on) in [Operation::Create, Operation::Allocate, Operation::Write, Operation::Sync]
        .into_iter()
        .enumerate()
    {
        let (disk, _) = settled(&log);
        let (file, _, run) = run_of(&disk, at, 1);
        flip(&disk, file, run.place);
        let shelf = opened(&disk);
        shelf.read(at, 0, i64::MAX, 1).unwrap_err();
        let broken = shelf.broken(at).remove(0);
        disk.inject(Fault::new(on, FaultKind::FailRaw(5)).times(1));
        heal(&shelf, &broken, &peer).unwrap_err();
        shelf.read(at, 0, i64::MAX, 1).unwrap_err();
        assert_eq!(Survey::of(&*disk, SHARD).unwrap().strays, [""; 0], "{on:?}");
        assert!(heal(&shelf, &broken, &peer).unwrap());
        reads_all(&log, &shelf, at);
        let crashed = Arc::new(disk.crash(Crash::Process, nth as u64));
        reads_all(&log, &opened(&crashed), at);
    }
}

#[test]
fn a_run_that_was_freed_while_it_was_healed_stays_gone() {
    let log = small();
    let at = OF_SMALL[1]();
    let (disk, _) = settled(&log);
    let (file, _, run) = run_of(&disk, at, 2);
    flip(&disk, file, run.place);
    let (shelf, peer) = (opened(&disk), opened(&settled(&log).0));
    shelf.read(at, 3_301, i64::MAX, 1).unwrap_err();
    let broken = shelf.broken(at).remove(0);
    let mut healing = shelf.begin_healing(broken).unwrap();
    while !healing.take(&peer.give(at, 2, healing.next_block()).unwrap().unwrap()).unwrap() {}
    shelf.free(&log.state_at(log.last())).unwrap();
    assert!(!shelf.heal(healing).unwrap());
    assert_eq!(read_all(&shelf, at, 0, 1).unwrap(), [] as [bytes::Bytes; 0]);
    assert!(shelf.wounded().is_empty());
}
