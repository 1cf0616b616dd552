//! One trial, in a process of its own: opens an engine, appends, answers.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::engine::{Engine, Setup};
use crate::meter::{Records, histogram, peak_kib, random_pool, record, times};
use crate::task::{Answer, Cell, Kind, Level, Task, Times};
use crate::{arms, engines, history, tasks};

/// Where nothing is synced, a clock costs as much as an append: it is read for one in so many.
const SAMPLED: u64 = 16;

pub(crate) fn work(task: &str) -> Result<()> {
    let task: Task = serde_json::from_str(task).context("the task is no JSON of ours")?;
    let mut answer = match task.cell.kind {
        Kind::Append => append(&task),
        Kind::Paced => paced(&task),
        Kind::Replay => replay(&task),
        Kind::History => history::measure(&task),
    }?;
    answer.peak_kib += peak_kib("self").unwrap_or(0);
    fs::write(&task.answer, serde_json::to_vec(&answer)?)?;
    Ok(())
}

fn open(task: &Task, level: Level, appenders: usize, keep: bool) -> Result<Box<dyn Engine>> {
    engines::open(&task.arm, &Setup { dir: task.dir.clone(), level, appenders, keep })
}

/// A raw arm stands for all appenders at once: their records go in one piece.
fn shape(task: &Task) -> (usize, usize) {
    let Cell { appenders, .. } = task.cell;
    if arms::named(&task.arm).is_some_and(|arm| arm.raw) { (1, appenders) } else { (appenders, 1) }
}

fn append(task: &Task) -> Result<Answer> {
    let (threads, at_once) = shape(task);
    let engine = open(task, task.cell.level, task.cell.appenders, false)?;
    let every = if task.cell.level == Level::Durable { 1 } else { SAMPLED };
    let begun = Instant::now();
    let (records, append) = match engine.tasks() {
        Some(log) => tasks::closed_loop(log, task)?,
        None => {
            beside_syncs(&*engine, task, || closed_loop(&*engine, task, threads, at_once, every))?
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let mut settled_seconds = seconds;
    let says = engine.says();
    if task.cell.level == Level::Interval {
        engine.sync()?;
        settled_seconds = begun.elapsed().as_secs_f64();
    }
    let peak_kib = engine.others_peak_kib();
    engine.abandon();
    Ok(Answer { records, seconds, settled_seconds, append, says, peak_kib, ..Answer::default() })
}

/// Appends of all threads until the time or the bytes are used up.
fn closed_loop(
    engine: &dyn Engine,
    task: &Task,
    threads: usize,
    at_once: usize,
    every: u64,
) -> Result<(u64, Times)> {
    let bytes = task.cell.record_bytes * at_once;
    let most = task.bytes_max / (threads * bytes) as u64;
    let time = Duration::from_secs_f64(task.seconds);
    let together = Barrier::new(threads);
    let pool = random_pool(bytes);
    let one = |appender: usize| -> Result<(u64, Histogram<u64>)> {
        let mut records = Records::new(&pool, bytes, appender);
        let mut took = histogram();
        let mut n = 0;
        together.wait();
        let begun = Instant::now();
        while n < most {
            let start = Instant::now();
            engine.append(appender, records.next())?;
            let end = Instant::now();
            record(&mut took, end - start);
            n += 1;
            if end - begun >= time {
                break;
            }
            for _ in 1..every {
                engine.append(appender, records.next())?;
                n += 1;
            }
        }
        Ok((n, took))
    };
    let one = &one;
    let all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|appender| scope.spawn(move || one(appender))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an appender panicked")).collect()
    });
    let mut took = histogram();
    let mut records = 0;
    for one in all {
        let (n, times) = one?;
        records += n * at_once as u64;
        took.add(&times)?;
    }
    Ok((records, times(&took)))
}

/// One appender at a rate, waiting for its time in a loop, so that a sleep does not blur the start.
fn paced(task: &Task) -> Result<Answer> {
    let engine = open(task, task.cell.level, 1, false)?;
    let pool = random_pool(task.cell.record_bytes);
    let mut records = Records::new(&pool, task.cell.record_bytes, 0);
    let (mut took, mut from_due) = (histogram(), histogram());
    let gap = Duration::from_nanos(1_000_000_000 / task.rate);
    let time = Duration::from_secs_f64(task.seconds);
    let begun = Instant::now();
    beside_syncs(&*engine, task, || {
        let mut due = begun;
        // Who cannot keep the pace gets twice the time.
        while due - begun < time && begun.elapsed() < time * 2 {
            let mut start = Instant::now();
            while start < due {
                std::hint::spin_loop();
                start = Instant::now();
            }
            engine.append(0, records.next())?;
            let end = Instant::now();
            record(&mut took, end - start);
            record(&mut from_due, end - due);
            due += gap;
        }
        Ok(())
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let (says, peak_kib) = (engine.says(), engine.others_peak_kib());
    engine.abandon();
    Ok(Answer {
        records: took.len(),
        seconds,
        settled_seconds: seconds,
        append: times(&took),
        from_due: Some(times(&from_due)),
        says,
        peak_kib,
        ..Answer::default()
    })
}

fn replay(task: &Task) -> Result<Answer> {
    let arm = arms::named(&task.arm).context("no such arm")?;
    let (level, threads) =
        if arm.syncs_always() { (Level::Durable, 64) } else { (Level::Buffered, 1) };
    let engine = open(task, level, threads, true)?;
    let begun = Instant::now();
    let (appended, _) = closed_loop(&*engine, task, threads, 1, SAMPLED)?;
    engine.sync()?;
    let seconds = begun.elapsed().as_secs_f64();
    engine.close()?;
    let mut others_kib = 0;
    let mut read = || -> Result<f64> {
        let begun = Instant::now();
        let engine = open(task, Level::Buffered, 1, true)?;
        let (records, bytes) = engine.read()?;
        let seconds = begun.elapsed().as_secs_f64();
        others_kib = engine.others_peak_kib().max(others_kib);
        ensure!(
            records == appended && bytes == appended * task.cell.record_bytes as u64,
            "{appended} records were appended and {records} ({bytes} B) read"
        );
        engine.close()?;
        Ok(seconds)
    };
    forget_pages(&task.dir)?;
    let cold_seconds = read()?;
    let warm_seconds = read()?;
    Ok(Answer {
        records: appended,
        seconds,
        cold_seconds: Some(cold_seconds),
        warm_seconds: Some(warm_seconds),
        peak_kib: others_kib,
        ..Answer::default()
    })
}

/// Runs `work` while a thread syncs each second, if that is wanted and the engine does not.
fn beside_syncs<T>(
    engine: &dyn Engine,
    task: &Task,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if task.cell.level != Level::Interval || engine.syncs_itself() {
        return work();
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let syncer = scope.spawn(|| -> Result<()> {
            let mut next = Instant::now() + Duration::from_secs(1);
            while !over.load(Ordering::Relaxed) {
                if Instant::now() >= next {
                    engine.sync()?;
                    next += Duration::from_secs(1);
                }
                thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        syncer.join().expect("the syncer panicked")?;
        done
    })
}

/// Drops the pages of all files in the directory, which must be durable.
fn forget_pages(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget_pages(&entry.path())?;
        } else if entry.file_type()?.is_file() {
            let file = fs::File::open(entry.path())?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}
