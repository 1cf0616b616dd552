//! What append, open and read cost where the log has so many segments.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use plimsoll_log::{Ack, Log, Options, Policy};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::meter::{histogram, record, times};
use crate::task::{Answer, Task};

const READS: usize = 200;
const RECORD: [u8; 1000] = [7; 1000];

/// Segments as small as may be: how many there are counts, not what is in them, as what is sealed is
/// not read when a log is opened.
fn options() -> Options {
    Options {
        policy: Policy::Never,
        segment_bytes: 64 << 10,
        ring_bytes: 32 << 10,
        ..Options::default()
    }
}

/// Builds the log in memory (tmpfs), where syncs are free, and copies it to the disk.
fn build(task: &Task) -> Result<Duration> {
    let begun = Instant::now();
    let memory = tempfile::tempdir_in("/dev/shm")?;
    let (log, _) = Log::open(memory.path(), options())?;
    loop {
        for _ in 0..50 {
            log.append(&RECORD)?;
        }
        if log.stats().segments >= task.cell.segments {
            break;
        }
    }
    log.close()?;
    for entry in fs::read_dir(memory.path())? {
        let entry = entry?;
        fs::copy(entry.path(), task.dir.join(entry.file_name()))?;
    }
    rustix::fs::syncfs(fs::File::open(&task.dir)?)?;
    Ok(begun.elapsed())
}

pub(crate) fn measure(task: &Task) -> Result<Answer> {
    let building = build(task)?;

    let begun = Instant::now();
    let (log, _) = Log::open(&task.dir, options())?;
    let open_seconds = begun.elapsed().as_secs_f64();

    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut reads = histogram();
    for _ in 0..READS {
        let index = random.random_range(log.first_index()..=log.last_index());
        let begun = Instant::now();
        let mut reader = log.read_from(index)?;
        let found = reader.next_record()?.map(|record| record.index);
        record(&mut reads, begun.elapsed());
        anyhow::ensure!(found == Some(index), "record {index} is not there");
    }

    let mut appends = histogram();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs_f64(task.seconds) {
        let start = Instant::now();
        log.append_with(&RECORD, Ack::Durable)?;
        record(&mut appends, start.elapsed());
    }
    let records = log.last_index();
    log.close()?;
    Ok(Answer {
        records,
        seconds: building.as_secs_f64(),
        append: times(&appends),
        open_seconds: Some(open_seconds),
        first_read_seconds: Some(Duration::from_nanos(times(&reads).p50).as_secs_f64()),
        ..Answer::default()
    })
}
