//! What was written stays readable, byte for byte.

use std::sync::Arc;

use plimsoll_server::chapter::{BLOCK_BYTES, Footer, MANIFEST, Manifest, Piece, Run, Settled};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::Dir;

use super::log::{OF_SMALL, ROLL_UP, SHARD, bytes_of, files, read_all, shelf, small};
use super::testdata::golden;

/// Both chapters, settled; and as they are once most is deleted.
fn settled() -> Arc<SimDir> {
    let (log, disk) = (small(), Arc::new(SimDir::new()));
    let (shelf, mut state) = (shelf(&disk), log.state_at(super::log::SMALL_ENDS));
    log.settle_next(&shelf, &mut state).unwrap();
    log.settle_next(&shelf, &mut state).unwrap();
    disk
}

fn written_as_ever(disk: &SimDir, file: &str, golden_file: &str) {
    let bytes = bytes_of(disk, file);
    assert_eq!(bytes, golden(&format!("chapter/testdata/{golden_file}"), &bytes), "{golden_file}");
}

#[test]
fn a_chapter_is_written_and_read_as_ever() {
    let disk = settled();
    written_as_ever(&disk, "00000000.chapter", "chapter.v1");
    let (_, chapter, runs) = &files(&disk)[0];
    let [a, b, c] = OF_SMALL.map(|opening| opening());
    let Footer { runs: count, first_chapter, last_chapter, .. } = *chapter.footer();
    let Footer { first_index, last_index, time, blocks, .. } = *chapter.footer();
    assert_eq!((count, first_chapter, last_chapter), (3, 1, 1));
    assert_eq!((first_index, last_index, time, blocks), (1, 7, 1_050, 4));
    assert_eq!(chapter.shard(), SHARD);
    let fields = |run: &Run| {
        let offsets = (run.base_offset, run.end_offset);
        let times = (run.max_timestamp, run.first_time, run.last_time);
        (run.opening, run.chapter, offsets, times, run.blocks)
    };
    let found: Vec<_> = runs.iter().map(fields).collect();
    let expected = [
        (a, 1, (0, 4), (80, 1_010, 1_040), 1),
        // Its second batch is a block of its own.
        (b, 1, (0, 3_301), (90, 1_010, 1_030), 2),
        (c, 1, (0, 3), (61, 1_020, 1_040), 1),
    ];
    assert_eq!(found, expected);
    assert!(runs[1].bytes > BLOCK_BYTES as u64);
    runs.iter().for_each(|run| assert_eq!(chapter.verify(run).unwrap(), run.bytes));
}

#[test]
fn a_manifest_is_written_and_read_as_ever() {
    let disk = settled();
    written_as_ever(&disk, MANIFEST, "manifest.v1");
    let manifest = Manifest::read(&*disk, SHARD).unwrap();
    let Manifest { next_file, settled, files } = &manifest;
    assert_eq!((*next_file, *settled), (2, Settled { chapter: 2, end: 9 }));
    let names: Vec<String> = files.iter().map(|file| file.name()).collect();
    assert_eq!(names, ["00000000.chapter", "00000001.chapter"]);
    for file in files {
        assert_eq!(file.bytes, bytes_of(&disk, &file.name()).len() as u64);
    }
    assert_eq!(manifest.encode(SHARD), bytes_of(&disk, MANIFEST));
}

#[test]
fn a_roll_up_is_written_as_ever_and_as_from_tables() {
    let disk = settled();
    written_as_ever(&disk, ROLL_UP, "roll-up.v1");
    disk.remove(ROLL_UP).unwrap();
    shelf(&disk);
    written_as_ever(&disk, ROLL_UP, "roll-up.v1");
}

/// What is left of two chapters, in one file: runs are as they were.
#[test]
fn what_is_merged_is_written_and_read_as_ever() {
    let (log, disk) = (small(), settled());
    let before: Vec<Run> = files(&disk).into_iter().flat_map(|(.., runs)| runs).collect();
    let shelf = shelf(&disk);
    shelf.free(&log.state_at(log.last())).unwrap();
    written_as_ever(&disk, "00000002.chapter", "merged.v1");
    let [(2, chapter, runs)] = &files(&disk)[..] else { panic!("it is not one file") };
    assert_eq!((chapter.footer().first_chapter, chapter.footer().last_chapter), (1, 2));
    let [a, b, c] = OF_SMALL.map(|opening| opening());
    let named: Vec<_> = runs.iter().map(|run| (run.opening, run.chapter)).collect();
    assert_eq!(named, [(a, 1), (a, 2), (c, 1)]);
    for run in runs {
        let was = before.iter().find(|b| (b.opening, b.chapter) == (run.opening, run.chapter));
        let was = was.unwrap();
        assert_eq!(*run, Run { place: run.place, first_block: run.first_block, ..*was });
        assert_eq!(chapter.verify(run).unwrap(), run.bytes);
    }
    for opening in [a, c] {
        let written: Vec<_> = log.batches(opening).into_iter().map(|batch| batch.bytes).collect();
        assert_eq!(read_all(&shelf, opening, 0, 1).unwrap(), written);
    }
    assert!(!shelf.has(b, 0));
}

#[test]
fn a_piece_of_a_run_is_given_as_ever() {
    let shelf = shelf(&settled());
    let piece = shelf.give(OF_SMALL[0](), 1, 0).unwrap().unwrap();
    let bytes = piece.encode().concat();
    assert_eq!(bytes, golden("chapter/testdata/piece.v1", &bytes));
    assert_eq!(Piece::decode(&bytes.clone().into()).unwrap().encode().concat(), bytes);
}
