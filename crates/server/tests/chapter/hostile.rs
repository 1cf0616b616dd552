//! Bytes that are no chapter and no manifest: an error, never a panic, and no memory for what they claim.

use std::sync::Arc;

use plimsoll_server::chapter::{Chapter, MANIFEST, Manifest, Shelf};
use plimsoll_server::shard::Item;
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Dir};
use proptest::prelude::*;
use twox_hash::XxHash3_64;

use super::log::{
    Log, OF_SMALL, SETTINGS, SHARD, acts, batches, bytes_of, marked, opens, partition, shelf,
};

const FILE: &str = "00000000.chapter";
const BLOCK_BYTES: usize = 56;
const RUN_BYTES: usize = 128;
const FOOTER_BYTES: usize = 128;
/// Of the disk in memory itself, and of what is opened.
const MEMORY_BYTES: u64 = 1 << 20;

/// A chapter of two runs, and its manifest.
fn written() -> [Vec<u8>; 2] {
    let [a, b] = [partition(7, 0), partition(7, 1)];
    let mut log = Log::default();
    log.lead();
    log.push(opens(&[a, b], SETTINGS), 1_000);
    log.push(batches(&[(a, 0, marked(2, None, 70)), (b, 0, marked(1, None, 90))]), 1_010);
    log.push(batches(&[(b, 1, marked(3_300, None, 50)), (a, 2, marked(1, None, 65))]), 1_030);
    log.push(acts(&[Item::ChapterEnd(1)]), 1_050);
    let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(log.last()));
    log.settle_next(&shelf(&disk), &mut state).unwrap();
    [bytes_of(&disk, FILE), bytes_of(&disk, MANIFEST)]
}

fn disk_with(files: &[(&str, &[u8])]) -> Arc<SimDir> {
    let disk = SimDir::new();
    for (name, bytes) in files {
        disk.create(name, Access::default()).unwrap().write_at(bytes, 0).unwrap();
    }
    Arc::new(disk)
}

/// Asks all that can be asked of a chapter, whatever it is. Whether any of it is an error.
fn ask_all(bytes: &[u8]) -> bool {
    let disk = disk_with(&[(FILE, bytes)]);
    let mut is_wrong = false;
    let ask = || {
        let chapter = Chapter::open(FILE, disk.open(FILE, Access::default()).unwrap());
        let Ok(chapter) = chapter else { return true };
        let mut is_wrong = chapter.runs().is_err();
        for number in 0..chapter.footer().runs.min(4) {
            let Ok(run) = chapter.run(number) else {
                is_wrong = true;
                continue;
            };
            is_wrong |= chapter.verify(&run).is_err();
            for place in [i64::MIN, -1, 0, 1, run.end_offset - 1, i64::MAX] {
                is_wrong |= chapter.offset_at(&run, place).is_err();
                for bytes_max in [0, 1, usize::MAX] {
                    is_wrong |= chapter.read(&run, place, i64::MAX, bytes_max).is_err();
                    is_wrong |= chapter.read(&run, place, place, bytes_max).is_err();
                }
            }
        }
        is_wrong
    };
    let taken = allocation_counter::measure(|| is_wrong = ask());
    let bound = MEMORY_BYTES + 4 * bytes.len() as u64;
    assert!(taken.bytes_max < bound, "{} bytes for {}", taken.bytes_max, bytes.len());
    is_wrong
}

/// Opens a shelf of these files and reads what it says that it has. Whether any of it is an error.
fn open_all(chapter: &[u8], manifest: &[u8]) -> bool {
    let disk = disk_with(&[(FILE, chapter), (MANIFEST, manifest)]);
    let mut is_wrong = false;
    let taken = allocation_counter::measure(|| {
        let opened = Shelf::open(Arc::clone(&disk) as Arc<dyn Dir>, SHARD);
        is_wrong = opened.is_err();
        let Ok(shelf) = opened else { return };
        for at in OF_SMALL.map(|opening| opening()) {
            is_wrong |= shelf.read(at, 0, i64::MAX, usize::MAX).is_err();
            is_wrong |= shelf.offset_at(at, 0, 60).is_err();
        }
    });
    let bound = MEMORY_BYTES + 4 * (chapter.len() + manifest.len()) as u64;
    assert!(taken.bytes_max < bound, "{} bytes", taken.bytes_max);
    is_wrong
}

/// Puts the checksum behind these bytes right.
fn seal(bytes: &mut [u8]) {
    let (body, checksum) = bytes.split_last_chunk_mut::<8>().unwrap();
    *checksum = XxHash3_64::oneshot(body).to_le_bytes();
}

/// What a field of eight bytes may be set to.
const VALUES: [u64; 12] = [
    0,
    1,
    63,
    64,
    1 << 16,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

#[test]
fn what_was_written_is_no_error() {
    let [chapter, manifest] = written();
    assert!(!ask_all(&chapter) && !open_all(&chapter, &manifest));
}

#[test]
fn a_chapter_that_is_cut_short_or_longer_is_none() {
    let [mut chapter, manifest] = written();
    let whole = chapter.len();
    // The records of the large batch are all alike.
    let lengths = (0..1_000).chain((1_000..whole - 1_000).step_by(97)).chain(whole - 1_000..whole);
    for length in lengths {
        assert!(ask_all(&chapter[..length]), "{length} of {whole} bytes");
        assert!(open_all(&chapter[..length], &manifest), "{length} of {whole} bytes");
    }
    for more in [1, 8, BLOCK_BYTES, RUN_BYTES] {
        chapter.resize(whole + more, 0);
        assert!(ask_all(&chapter) && open_all(&chapter, &manifest), "{more} bytes more");
    }
}

#[test]
fn a_manifest_that_is_cut_short_or_longer_is_none() {
    let [_, mut manifest] = written();
    for length in 0..manifest.len() {
        assert!(Manifest::decode(&manifest[..length], SHARD).is_err(), "{length} bytes");
        let mut sealed = manifest[..length].to_vec();
        if length >= 8 {
            seal(&mut sealed);
            assert!(Manifest::decode(&sealed, SHARD).is_err(), "{length} bytes");
        }
    }
    manifest.push(0);
    seal(&mut manifest);
    assert!(Manifest::decode(&manifest, SHARD).is_err());
}

/// Who can write a checksum can write anything.
#[test]
fn a_field_that_claims_anything_takes_no_memory_and_panics_nowhere() {
    let [chapter, manifest] = written();
    let footer_at = chapter.len() - FOOTER_BYTES;
    let runs_at = footer_at - 2 * RUN_BYTES;
    let blocks_at = runs_at - 3 * BLOCK_BYTES;
    let set = |bytes: &mut [u8], place: usize, value: u64, width: usize| {
        bytes[place..place + width].copy_from_slice(&value.to_le_bytes()[..width]);
    };
    let mut errors = 0;
    let mut asked = 0;
    let mut ask = |chapter: &[u8]| {
        // The manifest names whatever it is.
        let mut manifest = manifest.clone();
        let footer_checksum = &chapter[chapter.len() - 8..];
        let place = manifest.len() - 20;
        manifest[place..place + 8].copy_from_slice(footer_checksum);
        seal(&mut manifest);
        asked += 1;
        errors += usize::from(ask_all(chapter) | open_all(chapter, &manifest));
    };
    for value in VALUES {
        for (width, place) in (0..FOOTER_BYTES - 8).step_by(4).flat_map(|p| [(4, p), (8, p)]) {
            if place + width <= FOOTER_BYTES - 8 {
                let mut forged = chapter.clone();
                set(&mut forged[footer_at..], place, value, width);
                seal(&mut forged[footer_at..]);
                ask(&forged);
            }
        }
        for (width, place) in (0..RUN_BYTES - 8).step_by(4).flat_map(|p| [(4, p), (8, p)]) {
            if place + width <= RUN_BYTES - 8 {
                let mut forged = chapter.clone();
                let run = &mut forged[runs_at + RUN_BYTES..footer_at];
                set(run, place, value, width);
                seal(run);
                ask(&forged);
            }
        }
        for place in (0..3 * BLOCK_BYTES).step_by(2) {
            let mut forged = chapter.clone();
            set(&mut forged[blocks_at..], place, value, 8.min(3 * BLOCK_BYTES - place));
            ask(&forged);
        }
    }
    println!("{errors} of {asked} are errors");
    assert!(0 < errors && errors < asked);
}

/// The block before it said that it was damaged up to the first offset of this one, less 1: there is none.
#[test]
fn a_block_whose_offset_is_the_lowest_there_is_panics_nowhere() {
    let [mut chapter, _] = written();
    let blocks_at = chapter.len() - FOOTER_BYTES - 2 * RUN_BYTES - 3 * BLOCK_BYTES;
    // The second run has two blocks.
    let second = blocks_at + 2 * BLOCK_BYTES;
    chapter[second..second + 8].copy_from_slice(&i64::MIN.to_le_bytes());
    chapter[second - 1] ^= 1;
    assert!(ask_all(&chapter));
}

#[test]
fn a_manifest_that_claims_anything_takes_no_memory_and_panics_nowhere() {
    let [chapter, manifest] = written();
    for value in VALUES {
        for place in (0..manifest.len() - 8).step_by(2) {
            let mut forged = manifest.clone();
            let width = 8.min(manifest.len() - 8 - place);
            forged[place..place + width].copy_from_slice(&value.to_le_bytes()[..width]);
            seal(&mut forged);
            open_all(&chapter, &forged);
        }
    }
    let mut forged = manifest;
    forged[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
    seal(&mut forged);
    assert!(Manifest::decode(&forged, SHARD).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_a_chapter_or_a_manifest_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600), place: usize, value: u8
    ) {
        prop_assert!(bytes.is_empty() || ask_all(&bytes));
        prop_assert!(Manifest::decode(&bytes, SHARD).is_err());
        let [mut chapter, mut manifest] = written();
        // Behind the records, where there is something to be misled by.
        let behind = chapter.len() - 1_000;
        let place = behind + place % 1_000;
        chapter[place] = value;
        let end = chapter.len().min(place + bytes.len());
        chapter[place..end].copy_from_slice(&bytes[..end - place]);
        ask_all(&chapter);
        let place = place % manifest.len();
        manifest[place] = value;
        open_all(&chapter, &manifest);
    }
}
