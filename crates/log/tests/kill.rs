//! `kill -9`: a real process appends, says what was acknowledged to it, and is killed at a random
//! moment. Everything acknowledged is found again; what is found is a prefix of what was appended, and
//! batches are whole. The next process goes on with the same log.
//!
//! The process is this test itself, started again with `PLIMSOLL_VICTIM` in its environment.
//! `PLIMSOLL_KILLS` says how many kills there are at each level, `PLIMSOLL_SEED` where the moments
//! come from.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_log::{Ack, Log, Options, Policy, Recovery, Retain, Ring};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const VICTIM: &str = "PLIMSOLL_VICTIM";
/// Segments that are kept, so that retention takes files all the time.
const KEPT_BYTES: u64 = 256 << 10;
/// A child shares our locks between fork and exec, so nobody here forks while a log is open here.
static FORK_OR_OPEN: Mutex<()> = Mutex::new(());

fn options(dir: &Path, level: &str) -> Options {
    let ring = match level {
        "buffered" => Ring::File(ring_path(dir)),
        _ => Ring::Memory,
    };
    let policy = Policy::Interval { max_age: Duration::from_millis(20), max_bytes: 16 << 10 };
    Options { segment_bytes: 64 << 10, ring_bytes: 32 << 10, policy, ring, ..Options::default() }
}

fn ring_path(dir: &Path) -> std::path::PathBuf {
    let name = dir.file_name().unwrap().to_str().unwrap();
    Path::new("/dev/shm").join(format!("plimsoll-kill-{name}"))
}

fn ack(level: &str) -> Ack {
    match level {
        "buffered" => Ack::Buffered,
        "written" => Ack::Written,
        "durable" => Ack::Durable,
        other => panic!("no level is called {other}"),
    }
}

/// What a record holds: its index, its place in its batch, how often it was cut and written again,
/// and bytes that follow from these.
fn payload(index: u64, batch: (u32, u32), run: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(index.to_le_bytes());
    bytes.extend(run.to_le_bytes());
    bytes.extend(batch.0.to_le_bytes());
    bytes.extend(batch.1.to_le_bytes());
    let mut filler = Pcg64Mcg::seed_from_u64(index ^ run << 32);
    let len = if filler.random_ratio(1, 50) { 2500 } else { filler.random_range(0..400) };
    bytes.extend((0..len).map(|_| filler.random::<u8>()));
    bytes
}

/// What the reader of a record learns: its batch and its run.
fn check(index: u64, bytes: &[u8]) -> ((u32, u32), u64) {
    assert!(bytes.len() >= 24, "record {index} has {} bytes", bytes.len());
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let run = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    let batch = (half(16), half(20));
    assert!(bytes == payload(index, batch, run), "record {index} is not what was appended");
    (batch, run)
}

/// The process that is killed: two threads append, each says what it was promised.
#[test]
fn victim() {
    let Ok(spec) = std::env::var(VICTIM) else { return };
    let fields: Vec<&str> = spec.split(' ').collect();
    let [level, run, dir] = fields[..] else { panic!("{spec}") };
    let run: u64 = run.parse().unwrap();
    let (log, _) = Log::open(dir, options(Path::new(dir), level)).unwrap();
    let out = Mutex::new(std::io::stdout());
    // Written at once: what is in a buffer of ours dies with us.
    let say = |line: String| {
        let mut out = out.lock().unwrap();
        out.write_all(line.as_bytes()).unwrap();
        out.flush().unwrap();
    };
    say("\nopen\n".to_owned());
    // Indexes are given out under this lock, so that a record can hold its own.
    let turn = Mutex::new((Pcg64Mcg::seed_from_u64(run), 0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let mut guard = turn.lock().unwrap();
                    let (random, cuts) = &mut *guard;
                    let first = log.last_index() + 1;
                    if random.random_ratio(1, 80) && first > log.first_index() + 20 {
                        let cut = first - 1 - random.random_range(0..10);
                        say(format!("cutting {cut}\n"));
                        log.truncate_after(cut).unwrap();
                        say(format!("cut {cut}\n"));
                        *cuts += 1;
                        continue;
                    }
                    if random.random_ratio(1, 60) {
                        log.truncate_before(Retain::Bytes(KEPT_BYTES)).unwrap();
                    }
                    let count =
                        if random.random_ratio(1, 4) { random.random_range(2..6) } else { 1 };
                    let records: Vec<_> = (0..count)
                        .map(|number| payload(first + u64::from(number), (number, count), run))
                        .collect();
                    let last = *log.append_batch_with(&records, Ack::Buffered).unwrap().end();
                    if ack(level) == Ack::Buffered {
                        say(format!("ack {last}\n"));
                        continue;
                    }
                    let cuts_before = *cuts;
                    drop(guard);
                    // A cut by the other thread may be quicker.
                    let waited = log.wait(last, ack(level)).and_then(|wait| wait.block());
                    let guard = turn.lock().unwrap();
                    if guard.1 == cuts_before {
                        waited.unwrap();
                        say(format!("ack {last}\n"));
                    }
                }
            });
        }
    });
}

/// What a victim said before it died.
#[derive(Debug, Default)]
struct Heard {
    opened: bool,
    /// The last record that was acknowledged and not cut off since.
    acked: u64,
    /// A cut was begun and did not return.
    cutting: Option<u64>,
    acks: u64,
    /// Where it was cut, or was to be: only there may half a batch end a log.
    cuts: Vec<u64>,
    latest: VecDeque<String>,
}

fn run_and_kill(level: &str, run: u64, dir: &Path, after: Duration) -> Heard {
    let forking = FORK_OR_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--nocapture", "--test-threads=1"])
        .env(VICTIM, format!("{level} {run} {}", dir.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(forking);
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let (begun, hear) = std::sync::mpsc::channel();
    // The pipe is emptied all the time, so that the victim never waits for us.
    let listener = std::thread::spawn(move || {
        let mut heard = Heard::default();
        for line in lines.map_while(Result::ok) {
            let number = |word: &str| line.strip_prefix(word).and_then(|n| n.trim().parse().ok());
            heard.latest.push_back(line.clone());
            if heard.latest.len() > 12 {
                heard.latest.pop_front();
            }
            if line == "open" {
                heard.opened = true;
                begun.send(()).ok();
            } else if let Some(index) = number("ack ") {
                let index: u64 = index;
                heard.acked = heard.acked.max(index);
                heard.acks += 1;
            } else if let Some(cut) = number("cutting ") {
                heard.cutting = Some(cut);
                heard.cuts.extend(heard.cutting);
            } else if let Some(cut) = number("cut ") {
                let cut: u64 = cut;
                heard.cutting = None;
                // Durable on return, and all that is left.
                heard.acked = cut;
            }
        }
        heard
    });
    // Now and then it is killed while it opens the log.
    if !run.is_multiple_of(5) {
        hear.recv_timeout(Duration::from_secs(120)).ok();
    }
    // A moment, not a condition: this is what the test is about.
    let never = Mutex::new(());
    let (_guard, _) = Condvar::new().wait_timeout(never.lock().unwrap(), after).unwrap();
    victim.kill().unwrap();
    let status = victim.wait().unwrap();
    assert!(status.code().is_none(), "the victim ended by itself: {status}");
    listener.join().unwrap()
}

#[derive(Debug, Default)]
struct Figures {
    kills: u64,
    killed_opening: u64,
    acks: u64,
    cuts: u64,
    killed_cutting: u64,
    replayed: u64,
    torn: u64,
    segments_taken: u64,
}

fn campaign(level: &str) {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse().unwrap());
    let kills = number("PLIMSOLL_KILLS").unwrap_or(30);
    let seed = number("PLIMSOLL_SEED").unwrap_or(1);
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let begun = Instant::now();
    let mut figures = Figures::default();
    // What must be there, from the victims before; a cut that was not finished may have happened.
    let (mut acked, mut found) = (0, 0);
    for run in 1..=kills {
        // A few logs after each other: how a log begins is a matter of its own.
        let path = dir.path().join(format!("{level}-{}-{}", std::process::id(), run / 500));
        if run % 500 == 0 {
            acked = 0;
        }
        let longest = if random.random_ratio(1, 3) { 3_000 } else { 40_000 };
        let after = Duration::from_micros(random.random_range(0..longest));
        let heard = run_and_kill(level, run, &path, after);
        // A cut that returned made all that it left durable; what was said before it does not count.
        let any_cut = heard.cuts.len() > usize::from(heard.cutting.is_some());
        acked = if any_cut { heard.acked } else { acked.max(heard.acked) };
        // One that did not may have happened; what it would have left may not have been promised.
        acked = acked.min(heard.cutting.unwrap_or(u64::MAX));
        figures.kills += 1;
        figures.killed_opening += u64::from(!heard.opened);
        figures.acks += heard.acks;
        figures.cuts += heard.cuts.len() as u64;
        figures.killed_cutting += u64::from(heard.cutting.is_some());
        let case = format!("{level} seed {seed} kill {run}: {heard:?} after {found}");
        let mut ends = heard.cuts;
        ends.push(found);
        let recovery = inspect(level, &path, acked, &ends, &case);
        // What was found is durable now.
        acked = recovery.last_index;
        found = acked;
        figures.replayed += recovery.replayed;
        figures.torn += u64::from(recovery.torn_tail.is_some());
        figures.segments_taken += u64::from(recovery.first_index > 1);
        if run % 500 == 499 || run == kills {
            std::fs::remove_file(ring_path(&path)).ok();
        }
    }
    let mut out = std::io::stdout();
    writeln!(out, "{level}: {figures:?} in {:.0?}", begun.elapsed()).unwrap();
}

/// Opens the log and holds it against what was promised.
fn inspect(level: &str, dir: &Path, acked: u64, ends: &[u64], case: &str) -> Recovery {
    let _opening = FORK_OR_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (log, recovery) =
        Log::open(dir, options(dir, level)).unwrap_or_else(|error| panic!("{case}: {error:?}"));
    assert!(recovery.last_index >= acked, "{case}: {acked} was promised, {recovery:?}");
    assert_eq!(recovery.ring_ignored, None, "{case}");
    log.sync().unwrap();
    let mut reader = log.read_from(log.first_index()).unwrap();
    let mut expected = log.first_index();
    let mut whole = true;
    let mut before: Option<((u32, u32), u64)> = None;
    while let Some(record) = reader.next_record().unwrap_or_else(|e| panic!("{case}: {e:?}")) {
        assert_eq!(record.index, expected, "{case}");
        let (batch, run) = check(record.index, record.payload);
        // A cut may have shortened the batch before; the next one begins with its first record.
        if let Some(((number, count), of)) = before {
            let follows = (number + 1, count) == batch && of == run;
            assert!(batch.0 == 0 || follows, "{case}: record {expected} is {batch:?} of run {run}");
        }
        whole = batch.0 + 1 == batch.1;
        before = Some((batch, run));
        expected += 1;
    }
    assert_eq!(expected - 1, recovery.last_index, "{case}");
    // Only a cut ends a batch early, and then it ends exactly there.
    assert!(whole || ends.contains(&recovery.last_index), "{case}: half a batch, {recovery:?}");
    log.close().unwrap();
    recovery
}

#[test]
fn nothing_buffered_in_a_ring_of_a_file_is_lost_by_a_kill() {
    if Path::new("/dev/shm").is_dir() {
        campaign("buffered");
    }
}

#[test]
fn nothing_written_is_lost_by_a_kill() {
    campaign("written");
}

#[test]
fn nothing_durable_is_lost_by_a_kill() {
    campaign("durable");
}
