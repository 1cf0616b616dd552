//! What chapters do in the turns that matter, each told once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_server::chapter::{BLOCK_BYTES, Error, Plan, Settled};
use plimsoll_server::shard::{Item, Mismatch, Settings, State};
use plimsoll_simdisk::SimDir;

use super::log::{
    Log, Logged, OF_SMALL, SETTINGS, SMALL_ENDS, acts, batches, expired, files, marked, opens,
    partition, read_all, shelf, small,
};

/// A log of one partition with these settings.
fn of_one(settings: Settings) -> Log {
    let mut log = Log::default();
    log.lead();
    log.push(opens(&[partition(7, 0)], settings), 1_000);
    log
}

/// An entry with one record of it.
fn record(log: &mut Log, offset: i64, timestamp: i64, time: u64) {
    log.push(batches(&[(partition(7, 0), offset, marked(1, None, timestamp))]), time);
}

fn end_chapter(log: &mut Log, number: u64, time: u64) {
    log.push(acts(&[Item::ChapterEnd(number)]), time);
}

/// The chapters of a log, settled.
fn settled(log: &Log) -> (Arc<SimDir>, State) {
    let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(log.last()));
    let shelf = shelf(&disk);
    while state.ended().len() > 0 {
        log.settle_next(&shelf, &mut state).unwrap();
    }
    (disk, state)
}

/// A run's place came from what is left of it in the log, and its batches from the whole entry: the chapter could
/// not be written, ever.
#[test]
fn what_an_entry_deletes_of_itself_is_in_no_chapter() {
    let (mut log, at) = (of_one(SETTINGS), partition(7, 0));
    let mut entry = batches(&[(at, 0, marked(1, None, 1))]);
    entry.push(&Item::Trim { opening: at, start: 1 });
    entry.push_batch(at, 1, 0, &marked(2, None, 2));
    log.push(entry, 1_000);
    end_chapter(&mut log, 1, 1_000);
    let (disk, _) = settled(&log);
    let left = &log.batches(at)[1].bytes;
    assert_eq!(read_all(&shelf(&disk), at, 1, 1).unwrap(), [left]);
    assert_eq!(files(&disk)[0].2[0].base_offset, 1);
}

/// The records of an hour are one block where they are few. With the first of them all of them expired.
#[test]
fn a_run_expires_when_its_last_batch_does() {
    let mut log = of_one(Settings { retention_ms: Some(1_000), ..SETTINGS });
    record(&mut log, 0, 1, 1_000);
    record(&mut log, 1, 1, 1_900);
    end_chapter(&mut log, 1, 1_950);
    let (disk, state) = settled(&log);
    let shelf = shelf(&disk);
    assert_eq!(expired(&shelf, &state, 2_900), []);
    assert_eq!(expired(&shelf, &state, 2_901), [(partition(7, 0), 2)]);
}

/// Only as much goes as leaves what is to be kept, in chapters and behind them.
#[test]
fn the_oldest_runs_expire_while_the_rest_is_as_large_as_it_may_be() {
    let each = marked(1, None, 1).len() as u64;
    let mut log = of_one(Settings { retention_bytes: Some(2 * each), ..SETTINGS });
    for chapter in 1..=3 {
        record(&mut log, chapter - 1, 1, 1_000);
        end_chapter(&mut log, chapter.unsigned_abs(), 1_000);
    }
    let (disk, state) = settled(&log);
    assert_eq!(expired(&shelf(&disk), &state, 1_000), [(partition(7, 0), 1)]);
    record(&mut log, 3, 1, 1_000);
    let mut state = state;
    log.apply_next(&mut state);
    assert_eq!(expired(&shelf(&disk), &state, 1_000), [(partition(7, 0), 2)]);
}

/// In each chapter the largest timestamp begins anew; read from a snapshot, it ran on through all that waited.
#[test]
fn a_snapshot_of_chapters_that_wait_is_what_it_was_taken_of() {
    let mut log = of_one(SETTINGS);
    record(&mut log, 0, 900, 1_000);
    end_chapter(&mut log, 1, 1_000);
    record(&mut log, 1, 5, 1_000);
    end_chapter(&mut log, 2, 1_000);
    let state = log.state_at(log.last());
    assert_eq!(State::decode(&state.encode()), Ok(state));
}

/// A state that is older than the chapters forgot, when it was told of them, what had not ended yet for it. What
/// was left seemed to be too much, and went.
#[test]
fn what_is_settled_ahead_of_a_snapshot_changes_no_retention() {
    let each = marked(1, None, 1).len() as u64;
    let bytes = Settings { retention_bytes: Some(2 * each), ..SETTINGS };
    let ms = Settings { retention_ms: Some(500), ..SETTINGS };
    for settings in [bytes, ms] {
        let mut log = of_one(settings);
        for offset in 0..2 {
            record(&mut log, offset, 1, 1_000);
        }
        let snapshot = log.state_at(log.last());
        for offset in 2..4 {
            record(&mut log, offset, 1, 1_400);
        }
        log.push(acts(&[Item::Advance]), 1_600);
        end_chapter(&mut log, 1, 1_600);
        let (_, state) = settled(&log);
        assert_eq!(state.partition(partition(7, 0)).unwrap().start(), 2);

        let mut again = snapshot;
        again.settle(log.last());
        while again.applied() < log.last() {
            log.apply_next(&mut again);
        }
        again.settle(log.last());
        assert_eq!(again, state);
    }
}

/// Its snapshot could not have been read: chapters end one behind the other.
#[test]
fn an_entry_ends_one_chapter_and_has_no_batches_behind_it() {
    let log = of_one(SETTINGS);
    let why = |more: &dyn Fn(&mut plimsoll_server::shard::Draft)| {
        let mut entry = acts(&[Item::ChapterEnd(1)]);
        more(&mut entry);
        let mut state = log.state_at(log.last());
        let index = log.last() + 1;
        state.apply(index, &entry.finish(1_000), &mut Vec::new()).unwrap_err().why
    };
    assert_eq!(why(&|entry| entry.push(&Item::ChapterEnd(2))), Mismatch::Ended);
    let batch = marked(1, None, 1);
    assert_eq!(why(&|entry| entry.push_batch(partition(7, 0), 0, 0, &batch)), Mismatch::Ended);
}

#[test]
fn a_chapter_of_which_nothing_is_left_is_settled_without_a_file() {
    let (mut log, at) = (of_one(SETTINGS), partition(7, 0));
    record(&mut log, 0, 1, 1_000);
    end_chapter(&mut log, 1, 1_000);
    log.push(acts(&[Item::Trim { opening: at, start: 1 }]), 1_000);
    let (disk, _) = settled(&log);
    assert_eq!(shelf(&disk).settled(), Settled { chapter: 1, end: 4 });
    assert!(shelf(&disk).is_empty() && !shelf(&disk).has(at, 0));
}

/// Where the log is not what was applied nothing is settled, and it may be tried again.
#[test]
fn a_log_that_lacks_something_is_not_settled() {
    let log = small();
    let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(SMALL_ENDS));
    let shelf = shelf(&disk);
    let ended = *state.ended().next().unwrap();
    for missing in [3, 4, 5, 6] {
        let settled = shelf.settle(Plan::of(&state, ended, 1), |mut writer| {
            for index in (1..ended.end).filter(|index| *index != missing) {
                let Some(entry) = log.find(index) else { continue };
                writer.take(index, entry.bytes())?;
            }
            writer.finish()
        });
        assert!(matches!(settled, Err(Error::NotPlanned { chapter: 1, index: 7 })), "{settled:?}");
        assert!(shelf.is_empty());
    }
    log.settle_next(&shelf, &mut state).unwrap();
    // Once it is settled nobody writes it again.
    shelf.settle(Plan::of(&log.state_at(7), ended, 1), |_| unreachable!()).unwrap();
    assert_eq!(shelf.size().files, 1);
}

/// Each batch of this one is a block, and there are more of them than are looked at with one read.
#[test]
fn a_long_run_is_found_by_offset_and_by_time() {
    let (mut log, at) = (of_one(SETTINGS), partition(7, 0));
    let records = u32::try_from(BLOCK_BYTES / 20).unwrap() + 1;
    for number in 0..150_i64 {
        // They rise, and every tenth falls behind.
        let timestamp = if number % 10 == 9 { number - 9 } else { number };
        let base = number * i64::from(records);
        log.push(batches(&[(at, base, marked(records, None, timestamp))]), 1_000);
    }
    end_chapter(&mut log, 1, 1_000);
    let (disk, _) = settled(&log);
    let shelf = shelf(&disk);
    let written = log.batches(at);
    assert_eq!(files(&disk)[0].2[0].blocks, 150);
    for (number, Logged { base, end, bytes, .. }) in written.iter().enumerate() {
        for from in [*base, base + 1, end - 1] {
            assert_eq!(shelf.read(at, from, i64::MAX, 1).unwrap(), [bytes], "{from}");
        }
        let rest = shelf.read(at, *base, i64::MAX, usize::MAX).unwrap();
        let expected: Vec<_> = written[number..].iter().map(|batch| batch.bytes.clone()).collect();
        assert!(rest == expected, "from {base}");
        let timestamp = i64::try_from(number).unwrap();
        let first = written.iter().find(|batch| batch.max_timestamp >= timestamp);
        let first = first.map(|batch| batch.base);
        assert_eq!(shelf.offset_at(at, 0, timestamp).unwrap(), first, "{timestamp}");
    }
}

/// Entries of several partitions, more than are in memory at once while they are sorted.
#[test]
fn a_chapter_larger_than_a_window_is_written_whole() {
    let openings = [partition(7, 0), partition(7, 1), partition(7, 2)];
    let mut log = Log::default();
    log.lead();
    log.push(opens(&openings, SETTINGS), 1_000);
    let (records, mut mark) = (23_000, 0);
    for entry in 0..30 {
        let of_entry = openings.map(|at| {
            mark += 1;
            (at, entry * i64::from(records), marked(records, None, mark))
        });
        log.push(batches(&of_entry), 1_000);
    }
    end_chapter(&mut log, 1, 1_000);
    let (disk, _) = settled(&log);
    assert!(files(&disk)[0].1.footer().file_bytes > 18 << 20);
    for at in openings {
        let written: Vec<_> = log.batches(at).into_iter().map(|batch| batch.bytes).collect();
        assert!(read_all(&shelf(&disk), at, 0, 1 << 20).unwrap() == written);
    }
}

/// Files come and go meanwhile.
#[test]
fn who_reads_while_chapters_are_merged_reads_all() {
    let log = small();
    let (disk, mut state) = (Arc::new(SimDir::new()), log.state_at(SMALL_ENDS));
    let shelf = shelf(&disk);
    log.settle_next(&shelf, &mut state).unwrap();
    log.settle_next(&shelf, &mut state).unwrap();
    let [a, _, c] = OF_SMALL.map(|opening| opening());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !is_over.load(Ordering::Relaxed) || reads == 0 {
                for at in [a, c] {
                    let all: Vec<_> = log.batches(at).into_iter().map(|b| b.bytes).collect();
                    assert_eq!(read_all(&shelf, at, 0, 1).unwrap(), all);
                }
                reads += 1;
            }
        });
        shelf.free(&log.state_at(log.last())).unwrap();
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(shelf.size().files, 1);
}
