//! What the log's hot paths take: `cargo run --release -p plimsoll-log --example hot_paths -- DIR PATH`.
//! One line for each figure; `docs/performance.md` says what they mean and how they were compared.
//!
//! ```text
//!   append  BYTES MIB       buffered appends of one thread, a sync a second, beside plain writes
//!   commit  BYTES THREADS   durable appends, each thread waiting for its own
//!   replay  BYTES MIB       reading it all back, checked, from the page cache
//!   history SEGMENTS        opening, the first read and the first append of a log of so many files
//!   cut     CUTS            cutting the last records off beside a thread that appends
//!   closed  MIB             opening a log with segments of so many MiB that was closed
//!   waits   PENDING         polling one of so many waits again
//!   large   THREADS         records of half the ring beside so many threads with small ones
//!   lookup  SEGMENTS KIB    records of 1000 B read at random, in so many segments of KIB each
//! ```
#![expect(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a program that prints figures of small numbers"
)]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use plimsoll_log::{Ack, Log, Options, Policy};
use plimsoll_sync::{AlignedBuf, Allocation, Dir, OsDir, SyncMethod};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, path, numbers @ ..] = &args[..] else {
        let usage = "usage: hot_paths DIR append|commit|replay|history|cut|closed|waits|large|lookup NUMBERS";
        return Err(usage.into());
    };
    let number =
        |at: usize| -> Outcome<u64> { Ok(numbers.get(at).ok_or("a number is missing")?.parse()?) };
    let dir = PathBuf::from(dir).join("hot-paths");
    std::fs::create_dir_all(&dir)?;
    let measured = match path.as_str() {
        "append" => append(&dir, number(0)? as usize, number(1)?),
        "commit" => commit(&dir, number(0)? as usize, number(1)? as usize),
        "replay" => replay(&dir, number(0)? as usize, number(1)?),
        "history" => history(&dir, number(0)?),
        "cut" => cut(&dir, number(0)?),
        "closed" => closed(&dir, number(0)?),
        "waits" => waits(&dir, number(0)?),
        "large" => large(&dir, number(0)? as usize),
        "lookup" => lookup(&dir, number(0)?, number(1)?),
        other => Err(format!("no path is called {other}").into()),
    };
    std::fs::remove_dir_all(&dir)?;
    measured
}

fn append(dir: &Path, payload: usize, mib: u64) -> Outcome<()> {
    let record = vec![7; payload];
    let (log, _) = Log::open(dir.join("log"), Options::default())?;
    let total = (mib << 20) / (payload as u64 + 24);
    // What fits into half a ring finds room in it, however slow the disk.
    let fits = ((16 << 20) / (payload as u64 + 32)).min(total);
    let mut alone = Vec::new();
    for _ in 0..fits / 64 {
        let begun = Instant::now();
        for _ in 0..64 {
            log.append(&record)?;
        }
        alone.push(begun.elapsed() / 64);
    }
    log.sync()?;
    let begun = Instant::now();
    for _ in 0..total {
        log.append(&record)?;
    }
    let accepted = begun.elapsed().as_secs_f64();
    log.sync()?;
    let durable = begun.elapsed().as_secs_f64();
    let bytes = total as f64 * payload as f64;
    println!(
        "append {payload} B: {:?} with room (p99 {:?}); sustained {:.2} M/s; durable {:.0} MB/s; \
         plain writes {:.0} MB/s",
        quantile(&mut alone, 0.5),
        quantile(&mut alone, 0.99),
        total as f64 / accepted / 1e6,
        bytes / durable / 1e6,
        plain(dir, mib)? / 1e6,
    );
    log.close()?;
    Ok(())
}

/// Bytes a second of writes of 1 MiB past the cache into files of 64 MiB whose blocks are reserved, one
/// thread, synced once a second and when a file is full: what the disk takes without a log.
fn plain(dir: &Path, mib: u64) -> Outcome<f64> {
    let os = OsDir::open(dir)?;
    let method = SyncMethod::DirectFdatasync;
    let block = AlignedBuf::zeroed(1 << 20, 4096);
    let begun = Instant::now();
    let mut synced = begun;
    for number in 0..mib.div_ceil(64) {
        let name = format!("plain-{number}");
        drop(os.create(&name, method.access())?);
        let file = os.open(&name, method.access())?;
        file.allocate(0, 64 << 20, Allocation::Reserved)?;
        for at in 0..64 {
            file.write_at(&block, at << 20)?;
            if synced.elapsed() > Duration::from_secs(1) {
                file.sync(method)?;
                synced = Instant::now();
            }
        }
        file.sync(method)?;
    }
    Ok((mib.div_ceil(64) << 26) as f64 / begun.elapsed().as_secs_f64())
}

fn commit(dir: &Path, payload: usize, threads: usize) -> Outcome<()> {
    let options = Options { policy: Policy::Always, ..Options::default() };
    let (log, _) = Log::open(dir.join("log"), options)?;
    let record = vec![7; payload];
    let (warm_up, time) = (Duration::from_millis(300), Duration::from_secs(2));
    let begun = Instant::now();
    let appender = || -> plimsoll_log::Result<Vec<Duration>> {
        let mut took = Vec::new();
        while begun.elapsed() < warm_up + time {
            let start = Instant::now();
            log.append(&record)?;
            if start > begun + warm_up {
                took.push(start.elapsed());
            }
        }
        Ok(took)
    };
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        let appenders: Vec<_> = (0..threads).map(|_| scope.spawn(appender)).collect();
        let taken = appenders.into_iter().map(|thread| thread.join().expect("it does not panic"));
        taken.collect::<plimsoll_log::Result<Vec<_>>>()
    })?
    .concat();
    println!(
        "commit {payload} B, {threads} threads: {:.1} k/s; p50 {:?} p99 {:?}; group p50 {}",
        took.len() as f64 / time.as_secs_f64() / 1e3,
        quantile(&mut took, 0.5),
        quantile(&mut took, 0.99),
        log.stats().group_records.p50,
    );
    log.close()?;
    Ok(())
}

fn waits(dir: &Path, pending: u64) -> Outcome<()> {
    let options = Options { policy: Policy::Never, threads: false, ..Options::default() };
    let (log, _) = Log::open(dir.join("log"), options)?;
    let context = &mut Context::from_waker(Waker::noop());
    let mut waits = Vec::new();
    for _ in 0..pending {
        let index = log.append(b"a record")?;
        let mut wait = log.watch(index, Ack::Durable)?;
        assert!(Pin::new(&mut wait).poll(context).is_pending());
        waits.push(wait);
    }
    let mut took = Vec::new();
    for wait in waits.iter_mut().step_by(16) {
        let begun = Instant::now();
        assert!(Pin::new(wait).poll(context).is_pending());
        took.push(begun.elapsed());
    }
    println!(
        "waits, {pending} pending: polled again p50 {:?} p99 {:?}",
        quantile(&mut took, 0.5),
        quantile(&mut took, 0.99)
    );
    Ok(())
}

fn large(dir: &Path, threads: usize) -> Outcome<()> {
    let (log, _) = Log::open(dir.join("log"), Options::default())?;
    let (record, is_over) = (vec![7; log.max_record_bytes() as usize], AtomicBool::new(false));
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    log.append(&[7; 100]).expect("the disk works");
                }
            });
        }
        let append = |_| {
            let begun = Instant::now();
            log.append(&record).map(|_| begun.elapsed())
        };
        let took: plimsoll_log::Result<Vec<_>> = (0..50).map(append).collect();
        is_over.store(true, Ordering::Relaxed);
        took
    })?;
    println!(
        "large, beside {threads} threads: {} MiB p50 {:?}, longest {:?}",
        record.len() >> 20,
        quantile(&mut took, 0.5),
        quantile(&mut took, 1.0)
    );
    Ok(())
}

fn replay(dir: &Path, payload: usize, mib: u64) -> Outcome<()> {
    // Through the cache, so that it is all in it afterwards.
    let options = Options { direct: false, ..Options::default() };
    let (log, _) = Log::open(dir.join("log"), options)?;
    let record = vec![7; payload];
    let total = (mib << 20) / payload as u64;
    for _ in 0..total {
        log.append(&record)?;
    }
    log.sync()?;
    let mut took = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        let mut reader = log.read_from(1)?;
        let (mut records, mut bytes) = (0, 0);
        while let Some(record) = reader.next_record()? {
            records += 1;
            bytes += record.payload.len() as u64;
        }
        took.push(begun.elapsed());
        assert_eq!((records, bytes), (total, total * payload as u64));
    }
    let took = quantile(&mut took, 0.5);
    let rate = (total * payload as u64) as f64 / took.as_secs_f64() / 1e9;
    println!("replay {mib} MiB of {payload} B: {took:?}, {rate:.2} GB/s");
    log.close()?;
    Ok(())
}

/// Makes the log in memory, where files take no more room than was written, and copies it with holes.
fn history(dir: &Path, segments: u64) -> Outcome<()> {
    let segment_bytes = 112 << 20;
    let options = || Options { segment_bytes, ..Options::default() };
    let made = PathBuf::from("/dev/shm/plimsoll-hot-paths");
    let (log, _) = Log::open(&made, options())?;
    let mut last = 0;
    for _ in 1..segments {
        // What is cut off ends a segment.
        last = *log.append_batch(&[[7; 100]; 64])?.end();
        log.append(b"cut off")?;
        log.truncate_after(last)?;
    }
    log.close()?;
    let dir = dir.join("log");
    std::fs::create_dir_all(&dir)?;
    for file in std::fs::read_dir(&made)? {
        let file = file?;
        let copy = dir.join(file.file_name());
        std::fs::copy(file.path(), &copy)?;
        if copy.extension().is_some_and(|extension| extension == "seg") {
            std::fs::OpenOptions::new().write(true).open(copy)?.set_len(segment_bytes)?;
        }
    }
    std::fs::remove_dir_all(&made)?;
    let (mut opened, mut read, mut appended) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..9 {
        let begun = Instant::now();
        let (log, _) = Log::open(&dir, options())?;
        opened.push(begun.elapsed());
        let begun = Instant::now();
        let index = 1 + (last.saturating_sub(1)) * round / 9;
        let mut reader = log.read_from(index)?;
        reader.next_record()?;
        read.push(begun.elapsed());
        for _ in 0..100 {
            let begun = Instant::now();
            log.append(&[7; 100])?;
            appended.push(begun.elapsed());
        }
        log.close()?;
    }
    println!(
        "history {segments} segments: open {:?}; first read {:?}; append {:?}",
        quantile(&mut opened, 0.5),
        quantile(&mut read, 0.5),
        quantile(&mut appended, 0.5),
    );
    Ok(())
}

/// Records that are looked up by their index, each by a reader of its own, as `bench/src/history.rs` does.
fn lookup(dir: &Path, segments: u64, kib: u64) -> Outcome<()> {
    let options = || Options {
        policy: Policy::Never,
        segment_bytes: kib << 10,
        ring_bytes: (kib << 9).min(32 << 20),
        ..Options::default()
    };
    let made = PathBuf::from("/dev/shm/plimsoll-hot-paths");
    let (log, _) = Log::open(&made, options())?;
    while log.stats().segments < segments {
        log.append(&[7; 1000])?;
    }
    // Half of the newest.
    for _ in 0..kib / 2 {
        log.append(&[7; 1000])?;
    }
    log.close()?;
    let dir = dir.join("log");
    std::fs::create_dir_all(&dir)?;
    for file in std::fs::read_dir(&made)? {
        let file = file?;
        std::fs::copy(file.path(), dir.join(file.file_name()))?;
    }
    std::fs::remove_dir_all(&made)?;
    let (log, _) = Log::open(&dir, options())?;
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut took = Vec::new();
    for _ in 0..1000 {
        let index = random.random_range(log.first_index()..=log.last_index());
        let begun = Instant::now();
        let mut reader = log.read_from(index)?;
        let found = reader.next_record()?.map(|record| record.index);
        took.push(begun.elapsed());
        assert_eq!(found, Some(index), "a record is found");
    }
    let all: Duration = took.iter().sum();
    println!(
        "lookup in {segments} segments of {kib} KiB: p50 of the first 200 {:?}, of 1000 {:?}; mean {:?}",
        quantile(&mut took[..200].to_vec(), 0.5),
        quantile(&mut took, 0.5),
        all / 1000,
    );
    log.close()?;
    Ok(())
}

/// Cuts ten records off, again and again, while a thread appends 1 KiB as fast as it can.
fn cut(dir: &Path, cuts: u64) -> Outcome<()> {
    let (log, _) = Log::open(dir.join("log"), Options::default())?;
    let over = AtomicBool::new(false);
    let (mut took, mut appends) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let appender = scope.spawn(|| {
            let mut took = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                log.append(&[7; 1024])?;
                took.push(begun.elapsed());
                // Not as fast as the ring fills.
                while begun.elapsed() < Duration::from_micros(20) {
                    std::hint::spin_loop();
                }
            }
            Ok::<_, plimsoll_log::Error>(took)
        });
        for _ in 0..cuts {
            std::thread::park_timeout(Duration::from_millis(30));
            let last = log.last_index().saturating_sub(10);
            let begun = Instant::now();
            log.truncate_after(last)?;
            took.push(begun.elapsed());
        }
        over.store(true, Ordering::Relaxed);
        appends = appender.join().expect("it appends")?;
        Ok::<_, plimsoll_log::Error>(())
    })?;
    let longest = appends.iter().max().copied().unwrap_or_default();
    println!(
        "cut: p50 {:?}, p99 {:?}, longest {:?}; appends meanwhile: p99.9 {:?}, longest {longest:?}",
        quantile(&mut took, 0.5),
        quantile(&mut took, 0.99),
        quantile(&mut took, 1.0),
        quantile(&mut appends, 0.999),
    );
    log.close()?;
    Ok(())
}

/// Opens and closes a log whose newest segment is nearly full.
fn closed(dir: &Path, mib: u64) -> Outcome<()> {
    let options = Options { segment_bytes: mib << 20, ..Options::default() };
    let (log, _) = Log::open(dir.join("log"), options.clone())?;
    for _ in 0..mib * 900 {
        log.append(&[7; 1000])?;
    }
    log.close()?;
    let mut took = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        let (log, recovery) = Log::open(dir.join("log"), options.clone())?;
        took.push(begun.elapsed());
        assert!(recovery.clean, "{recovery:?}");
        log.close()?;
    }
    let (p50, longest) = (quantile(&mut took, 0.5), quantile(&mut took, 1.0));
    println!("open a closed log of {mib} MiB segments: p50 {p50:?}, longest {longest:?}");
    Ok(())
}

fn quantile(took: &mut [Duration], share: f64) -> Duration {
    took.sort_unstable();
    took[((took.len() - 1) as f64 * share) as usize]
}
