//! First figures of the log against the raw limit of this disk: `cargo run --release -p plimsoll-log
//! --example first_figures DIR [SECONDS]`. Arms are interleaved in rounds; medians of the rounds.
//!
//! 1. A durable append of one appender, against one write and sync by the same method into a
//!    zero-filled file.
//! 2. A buffered append, closed loop and batches of one.
//! 3. Appends at 20,000 a second with a sync a second, while another thread writes a large file at
//!    random (article 2's torture), and without.
#![expect(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a program that prints figures of small numbers"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_log::{Ack, Log, Options, Policy};
use plimsoll_sync::{AlignedBuf, Allocation, Dir, OsDir, SyncMethod};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| ".".to_owned())).join("first-figures");
    let seconds: u64 = args.next().map_or(Ok(10), |seconds| seconds.parse())?;
    std::fs::create_dir_all(&dir)?;
    let measured = measure(&dir, Duration::from_secs(seconds));
    std::fs::remove_dir_all(&dir)?;
    measured
}

fn measure(dir: &Path, time: Duration) -> Outcome<()> {
    for payload in [100, 200, 1024, 4096] {
        durable(dir, payload, time)?;
    }
    for payload in [100, 1024, 4096] {
        buffered(dir, payload)?;
    }
    for torture in [false, true] {
        paced(dir, torture, time)?;
    }
    Ok(())
}

fn durable(dir: &Path, payload: usize, time: Duration) -> Outcome<()> {
    let (log, _) =
        Log::open(dir.join("log"), Options { policy: Policy::Always, ..Options::default() })?;
    let os = OsDir::open(dir)?;
    let method = SyncMethod::DirectRwfDsync;
    let name = "raw";
    drop(os.create(name, plimsoll_sync::Access::default())?);
    let file = os.open(name, method.access())?;
    file.allocate(0, 64 << 20, Allocation::Zeroed)?;
    file.sync(SyncMethod::DirectFdatasync)?;
    let bytes = payload.next_multiple_of(4096);
    let block = AlignedBuf::zeroed(bytes, 4096);
    let record = vec![7; payload];
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    let mut at = 0;
    while begun.elapsed() < time {
        for _ in 0..50 {
            let start = Instant::now();
            file.write_sync_at(&block, at, method)?;
            raw.push(start.elapsed());
            at = (at + bytes as u64) % (63 << 20);
        }
        for _ in 0..50 {
            let start = Instant::now();
            log.append(&record)?;
            ours.push(start.elapsed());
        }
    }
    let (raw_p50, ours_p50) = (quantile(&mut raw, 0.5), quantile(&mut ours, 0.5));
    println!(
        "durable {payload} B: raw p50 {raw_p50:?} p99 {:?}; log p50 {ours_p50:?} p99 {:?}; ratio {:.2} (n {})",
        quantile(&mut raw, 0.99),
        quantile(&mut ours, 0.99),
        ours_p50.as_secs_f64() / raw_p50.as_secs_f64(),
        ours.len()
    );
    log.close()?;
    os.remove(name)?;
    std::fs::remove_dir_all(dir.join("log"))?;
    Ok(())
}

fn buffered(dir: &Path, payload: usize) -> Outcome<()> {
    for policy in [Policy::everysec(), Policy::Never] {
        let (log, _) = Log::open(dir.join("log"), Options { policy, ..Options::default() })?;
        let record = vec![7; payload];
        let n = (512 << 20) / (payload as u32 + 24);
        // The first 100,000 fit into the ring: what an append costs where nothing is full.
        let fits = ((24 << 20) / (payload as u32 + 32)).min(100_000);
        let begun = Instant::now();
        for _ in 0..fits {
            log.append(&record)?;
        }
        let alone = begun.elapsed() / fits;
        let begun = Instant::now();
        for _ in 0..n {
            log.append(&record)?;
        }
        let took = begun.elapsed();
        log.sync()?;
        let synced = begun.elapsed();
        let stats = log.stats();
        println!(
            "buffered {payload} B, {policy:?}: {alone:?} an append into a ring with room; \
             {:.2} M/s sustained, {:.0} MB/s durable at the end; stalls {}, p50 {} p99 {} ns",
            f64::from(n) / took.as_secs_f64() / 1e6,
            f64::from(n) * payload as f64 / synced.as_secs_f64() / 1e6,
            stats.stall_ns.n,
            stats.append_ns.p50,
            stats.append_ns.p99,
        );
        log.close()?;
        std::fs::remove_dir_all(dir.join("log"))?;
    }
    Ok(())
}

fn paced(dir: &Path, torture: bool, time: Duration) -> Outcome<()> {
    let (log, _) = Log::open(dir.join("log"), Options::default())?;
    let over = AtomicBool::new(false);
    let tortured = dir.join("torture");
    let mut took = Vec::new();
    std::thread::scope(|scope| -> Outcome<()> {
        if torture {
            scope.spawn(|| write_at_random(&tortured, &over));
        }
        let record = [7; 1000];
        let begun = Instant::now();
        let mut next = begun;
        while begun.elapsed() < time {
            while Instant::now() < next {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            log.append_with(&record, Ack::Buffered)?;
            took.push(start.elapsed());
            next += Duration::from_micros(50);
        }
        over.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    let n = took.len();
    println!(
        "20,000 appends/s of 1000 B, a sync a second{}: p50 {:?} p99.9 {:?} max {:?} (n {n}); syncs {:?}",
        if torture { ", random writeback" } else { "" },
        quantile(&mut took, 0.5),
        quantile(&mut took, 0.999),
        quantile(&mut took, 1.0),
        log.stats().sync_ns,
    );
    log.close()?;
    std::fs::remove_dir_all(dir.join("log"))?;
    std::fs::remove_file(tortured).ok();
    Ok(())
}

/// Article 2's writer: 4 KiB here and there in a file of 4 GiB, buffered.
fn write_at_random(path: &Path, over: &AtomicBool) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).expect("a file in a directory of ours");
    let block = [7; 4096];
    let mut state = 7_u64;
    while !over.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        file.write_at(&block, (state >> 33) % (1 << 20) * 4096).expect("room on the disk");
    }
}

fn quantile(took: &mut [Duration], share: f64) -> Duration {
    took.sort_unstable();
    took[((took.len() - 1) as f64 * share) as usize]
}
