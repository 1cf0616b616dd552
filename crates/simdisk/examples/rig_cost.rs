//! What the mounted disk costs: crash images a second on one core, and how much slower a durable write is on
//! it than on the same filesystem over memory. Build it, then run it alone on the machine, as root:
//! `rig_cost [images|writes] [ext4|xfs|btrfs]... [WORKERS]...`. The figures of `docs/simdisk.md` come from here.

#![expect(clippy::print_stdout, reason = "its answer")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use plimsoll_simdisk::block::{Belief, Mode, State, Timeline, Trace};
use plimsoll_simdisk::mounted::{
    Explore, Filesystem, Image, Rig, RigOptions, Situation, Timings, Verdict, explore,
};
use plimsoll_sync::{Allocation, Dir, OsDir, SyncMethod};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const RECORDS: u64 = 3000;
const RECORD_BYTES: usize = 512;
const SAMPLES: usize = 1500;

fn main() -> Outcome<()> {
    let (mut filesystems, mut workers) = (Vec::new(), Vec::new());
    let (mut wants_images, mut wants_writes) = (true, true);
    for word in std::env::args().skip(1) {
        match (word.as_str(), word.parse::<usize>()) {
            ("images", _) => wants_writes = false,
            ("writes", _) => wants_images = false,
            (_, Ok(number)) => workers.push(number),
            (name, Err(_)) => filesystems.push(name.parse::<Filesystem>()?),
        }
    }
    if filesystems.is_empty() {
        filesystems = Filesystem::ALL.to_vec();
    }
    if workers.is_empty() {
        let cores = std::thread::available_parallelism()?.get();
        workers = vec![1, cores, 2 * cores];
    }
    for filesystem in filesystems {
        // A thread for each, because it has mounts of its own.
        std::thread::scope(|scope| {
            let measured = scope.spawn(|| {
                let mut done = Ok(());
                if wants_images {
                    done = images(filesystem, &workers);
                }
                if wants_writes {
                    done = done.and_then(|()| cost(filesystem));
                }
                done.map_err(|error| error.to_string())
            });
            measured.join().expect("it does not panic")
        })?;
    }
    Ok(())
}

/// Every twenty-fourth flush boundary of 3000 records of 512 bytes, checked record by record.
fn images(filesystem: Filesystem, workers: &[usize]) -> Outcome<()> {
    let rig = Rig::start(RigOptions::new(filesystem))?;
    let dir = OsDir::open(rig.directory())?;
    let method = SyncMethod::Fdatasync;
    let file = dir.create("log", method.access())?;
    for number in 1..=RECORDS {
        let at = (number - 1) * RECORD_BYTES as u64;
        file.write_sync_at(&record(number), at, method)?;
        rig.mark(&number.to_string())?;
    }
    let trace = rig.trace(rig.point());
    drop((file, dir));
    rig.stop()?;
    let timeline = Timeline::of(&trace.events, Belief::default());
    let points = timeline.flushes().iter().step_by(24);
    let states: Vec<State> =
        points.map(|&point| State { point, mode: Mode::Subset { seed: point as u64 } }).collect();
    let count = states.len() as f64;
    for &workers in workers {
        let busy_before = busy()?;
        let (took, timings, bad) = visited(&trace, &timeline, &states, workers)?;
        let cpu = busy()? - busy_before;
        let ms = |time: Duration| time.as_secs_f64() * 1000.0 / count;
        println!(
            "{filesystem}: {:.0} images/s, {workers} workers: {} images in {:.2} s, {bad} bad; ms each: \
             build {:.2}, attach {:.2}, mount {:.2}, check {:.2}, unmount {:.2}, CPU of the machine {:.2}",
            count / took.as_secs_f64(),
            states.len(),
            took.as_secs_f64(),
            ms(timings.build),
            ms(timings.attach),
            ms(timings.mount),
            ms(timings.check),
            ms(timings.unmount),
            ms(cpu),
        );
    }
    Ok(())
}

/// The time that all processors together were not idle.
fn busy() -> Outcome<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    let of_all = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        of_all.split_whitespace().skip(1).take(8).map(str::parse).collect::<Result<_, _>>()?;
    // Of user, nice, system, idle, iowait, irq, softirq, steal; a tick is a hundredth of a second.
    let busy: u64 =
        ticks.iter().enumerate().filter(|(at, _)| !(3..5).contains(at)).map(|(_, t)| t).sum();
    Ok(Duration::from_millis(busy * 10))
}

fn visited(
    trace: &Trace,
    timeline: &Timeline,
    states: &[State],
    workers: usize,
) -> Outcome<(Duration, Timings, usize)> {
    let stop = AtomicBool::new(false);
    let how = Explore {
        trace,
        timeline,
        states,
        workers,
        mount_options: "",
        read_only: false,
        stop: &stop,
    };
    let mut sum = Timings::default();
    let mut bad = 0;
    let begun = Instant::now();
    explore(&how, &|situation| Ok(all_there(situation)), |visit| {
        sum.build += visit.timings.build;
        sum.attach += visit.timings.attach;
        sum.mount += visit.timings.mount;
        sum.check += visit.timings.check;
        sum.unmount += visit.timings.unmount;
        bad += usize::from(visit.verdict.is_failure());
        ControlFlow::Continue(())
    })?;
    Ok((begun.elapsed(), sum, bad))
}

fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(RECORD_BYTES / 8)
}

fn all_there(situation: &Situation<'_>) -> Verdict {
    let said: u64 = situation.last_mark().and_then(|mark| mark.parse().ok()).unwrap_or(0);
    let bytes = fs::read(situation.directory().join("log")).unwrap_or_default();
    let found = (1..).zip(bytes.chunks(RECORD_BYTES)).take_while(|(n, b)| *b == record(*n)).count();
    if found as u64 >= said { Verdict::Ok } else { Verdict::Lost(format!("{found} of {said}")) }
}

/// A durable 4 KiB write in three ways: on the rig, and on the same filesystem over memory.
fn cost(filesystem: Filesystem) -> Outcome<()> {
    let rig = Rig::start(RigOptions::new(filesystem))?;
    let on_rig = ways(rig.directory())?;
    let base = rig.trace(0).base;
    rig.stop()?;
    let image = Image::mount(&base, filesystem, "", false)?;
    let on_memory = ways(image.directory())?;
    image.unmount()?;
    for ((way, rig), (_, memory)) in on_rig.iter().zip(&on_memory) {
        println!("{filesystem}: {way}: p50 {memory} us over memory, {rig} us on the rig");
    }
    Ok(())
}

fn ways(dir: &Path) -> Outcome<Vec<(&'static str, u128)>> {
    let dir = OsDir::open(dir)?;
    let page = plimsoll_sync::AlignedBuf::zeroed(4096, 4096);
    let mut found = Vec::new();
    for (way, method, overwrite) in [
        ("append 4 KiB + fsync", SyncMethod::Fsync, false),
        ("overwrite 4 KiB + fdatasync", SyncMethod::Fdatasync, true),
        ("overwrite 4 KiB O_DIRECT|O_DSYNC", SyncMethod::DirectODsync, true),
    ] {
        let name = format!("{method}-{overwrite}");
        if overwrite {
            let file = dir.create(&name, SyncMethod::Fsync.access())?;
            file.allocate(0, SAMPLES as u64 * 4096, Allocation::Zeroed)?;
            file.sync(SyncMethod::Fsync)?;
        } else {
            drop(dir.create(&name, method.access())?);
        }
        let file = dir.open(&name, method.access())?;
        let mut times = Vec::with_capacity(SAMPLES);
        for number in 0..SAMPLES {
            let begun = Instant::now();
            file.write_sync_at(&page, number as u64 * 4096, method)?;
            times.push(begun.elapsed().as_micros());
        }
        times.sort_unstable();
        found.push((way, times[SAMPLES / 2]));
    }
    Ok(found)
}
