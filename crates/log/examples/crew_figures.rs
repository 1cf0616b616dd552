//! What many logs in a process cost: `crew_figures DIR`, on a quiet machine. Prints one line for each goal
//! of docs/crew.md.

#![expect(clippy::print_stdout, clippy::cast_precision_loss, reason = "it prints figures")]

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_log::{Ack, Crew, CrewOptions, Log, Options, Policy};

type Error = Box<dyn std::error::Error>;

/// Seconds that each rate is measured.
const SECONDS: u64 = 5;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = PathBuf::from(args.first().ok_or("usage: crew_figures DIR [one|many|idle|slow]...")?);
    std::fs::create_dir_all(&dir)?;
    let all = ["one", "many", "one", "many", "one", "many", "idle", "slow"].map(str::to_owned);
    let wanted = if args.len() > 1 { args[1..].to_vec() } else { all.to_vec() };
    for what in wanted {
        let path = dir.join("logs");
        std::fs::remove_dir_all(&path).ok();
        match what.as_str() {
            "one" => one(&path)?,
            "many" => many(&path)?,
            "idle" => idle(&path)?,
            "slow" => slow(&path)?,
            other => return Err(format!("no figure is called {other}").into()),
        }
        std::fs::remove_dir_all(&path).ok();
    }
    Ok(())
}

fn durable() -> Options {
    Options { policy: Policy::Always, ..Options::default() }
}

/// One log, 64 threads, durable records of 100 bytes.
fn one(path: &Path) -> Result<(), Error> {
    let (log, _) = Log::open(path, durable())?;
    let rate = rate(64, |_| &log);
    println!("one log, 64 threads, durable: {rate:.0} records/s");
    log.close()?;
    Ok(())
}

/// 64 logs, a thread each.
fn many(path: &Path) -> Result<(), Error> {
    let crew = Crew::start(CrewOptions::default())?;
    let logs = open(&crew, path, 64, &durable())?;
    let rate = rate(64, |thread| &logs[thread]);
    println!("64 logs, 64 threads, durable: {rate:.0} records/s");
    Ok(())
}

fn rate<'a>(threads: usize, log: impl Fn(usize) -> &'a Log) -> f64 {
    let begin = Barrier::new(threads);
    let counts = thread::scope(|scope| {
        let appenders: Vec<_> = (0..threads)
            .map(|thread| {
                let (log, begin) = (log(thread), &begin);
                scope.spawn(move || {
                    begin.wait();
                    let ends = Instant::now() + Duration::from_secs(SECONDS);
                    let mut count = 0_u64;
                    while Instant::now() < ends {
                        log.append_with(&[7; 100], Ack::Durable).expect("the disk works");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        appenders.into_iter().map(|appender| appender.join().expect("it appends")).sum::<u64>()
    });
    counts as f64 / SECONDS as f64
}

/// 1,000 logs that are open and do nothing.
fn idle(path: &Path) -> Result<(), Error> {
    let options = Options::default();
    let (before, threads) = (resident()?, thread_count()?);
    let crew = Crew::start(CrewOptions::default())?;
    let begun = Instant::now();
    let logs = open(&crew, path, 1000, &options)?;
    let made = begun.elapsed();
    for log in logs {
        log.append(b"a record")?;
        log.close()?;
    }
    drop(crew);
    let crew = Crew::start(CrewOptions::default())?;
    let begun = Instant::now();
    let logs = open(&crew, path, 1000, &options)?;
    let opened = begun.elapsed();
    let memory = resident()?.saturating_sub(before) / 1000;
    let disk = blocks(path)? / 1000;
    let threads = thread_count()? - threads;
    let cpu = cpu()?;
    wait(Duration::from_secs(10));
    let used = self::cpu()?.saturating_sub(cpu);
    println!(
        "1,000 logs idle: made in {made:.2?}, opened in {opened:.2?}, {threads} threads, {memory} bytes of \
         memory and {disk} of disk a log, {used:?} of CPU in 10 s"
    );
    drop(logs);
    Ok(())
}

/// 1,000 logs at a record a second each.
fn slow(path: &Path) -> Result<(), Error> {
    let crew = Crew::start(CrewOptions::default())?;
    let logs = open(&crew, path, 1000, &Options::default())?;
    let begun = Instant::now();
    let cpu = cpu()?;
    for second in 0..10_u64 {
        for (number, log) in (0..).zip(&logs) {
            let at = Duration::from_secs(second) + Duration::from_millis(number);
            wait(at.saturating_sub(begun.elapsed()));
            log.append(&[7; 100])?;
        }
    }
    let cores = (self::cpu()? - cpu).as_secs_f64() / begun.elapsed().as_secs_f64();
    // Since it was started: with opening the logs, which this thread did.
    let crews = crew_cpu()?.as_secs_f64() / begun.elapsed().as_secs_f64();
    println!(
        "1,000 logs at a record a second each: {cores:.3} cores, of which the crew's threads {crews:.3} \
         (the rest is who appends, a thread that sleeps a millisecond between two records)"
    );
    Ok(())
}

fn open(crew: &Crew, path: &Path, count: usize, options: &Options) -> Result<Vec<Log>, Error> {
    let open = |number| Ok(crew.open(path.join(format!("{number}")), options.clone())?.0);
    (0..count).map(open).collect()
}

fn wait(time: Duration) {
    if !time.is_zero() {
        thread::park_timeout(time);
    }
}

/// A field of /proc/self/status, in its unit.
fn status(field: &str) -> Result<u64, Error> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse()?)
}

fn resident() -> Result<u64, Error> {
    Ok(status("VmRSS:")? * 1024)
}

fn thread_count() -> Result<u64, Error> {
    status("Threads:")
}

/// CPU that this process has used.
fn cpu() -> Result<Duration, Error> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let threads = std::fs::read_dir("/proc/self/task")?;
    let mut ns = 0;
    for thread in threads {
        let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        ns += text.split_whitespace().next().unwrap_or("0").parse::<u64>()?;
    }
    drop(text);
    Ok(Duration::from_nanos(ns))
}

/// CPU of the crew's own threads.
fn crew_cpu() -> Result<Duration, Error> {
    let mut ns = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let path = thread?.path();
        if std::fs::read_to_string(path.join("comm"))?.trim() == "log-crew" {
            let text = std::fs::read_to_string(path.join("schedstat"))?;
            ns += text.split_whitespace().next().unwrap_or("0").parse::<u64>()?;
        }
    }
    Ok(Duration::from_nanos(ns))
}

/// Bytes of disk under a directory.
fn blocks(path: &Path) -> Result<u64, Error> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += metadata.blocks() * 512;
        if metadata.is_dir() {
            bytes += blocks(&entry.path())?;
        }
    }
    Ok(bytes)
}
