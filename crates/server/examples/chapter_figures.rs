//! What a shelf of very many small runs costs: how long it takes to open, what it keeps in memory, and how often the disk is
//! read for a partition that is in one chapter of many. Prints one JSON object.
//!
//! `cargo run --release -p plimsoll-server --example chapter_figures -- DIR 100000 200`, as root (it empties the page
//! cache) on Linux. With these it lays out 7 GB in a directory of its own in DIR, in some minutes, and removes it.
//! `--keep NAME` leaves it there as DIR/NAME, and measures it again where it is.
#![expect(clippy::print_stdout, reason = "it is what it is for")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use std::{env, fs};

use plimsoll_server::chapter::{Plan, Shelf};
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::records;
use plimsoll_server::shard::{Draft, Ended, Opening, PartitionId, Point, TopicId};
use plimsoll_sync::{Dir, OsDir};
use serde_json::{Value, json};

const SHARD: u32 = 2;
/// Batches of an entry: what a shard that is busy has in one.
const BATCHES: u32 = 1_000;
const FETCH_BYTES: usize = 1 << 20;

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["look", dir, partitions, is_cold] => {
            println!("{}", look(Path::new(dir), number(partitions), is_cold == "cold"));
        }
        [dir, partitions, chapters] => {
            let dir = Path::new(dir).join(format!("chapter-figures-{}", std::process::id()));
            println!("{}", measure(&dir, number(partitions), number(chapters)));
            fs::remove_dir_all(&dir).unwrap();
        }
        [dir, partitions, chapters, "--keep", name] => {
            println!(
                "{}",
                measure(&Path::new(dir).join(name), number(partitions), number(chapters))
            );
        }
        _ => panic!("usage: chapter_figures DIR PARTITIONS CHAPTERS [--keep NAME]"),
    }
}

fn number(word: &str) -> u32 {
    word.parse().expect("a number")
}

fn measure(dir: &Path, partitions: u32, chapters: u32) -> Value {
    assert!(chapters > 1 && partitions > 0, "there is nothing to be quiet beside");
    let begun = Instant::now();
    if !dir.join("manifest").exists() {
        lay_out(dir, partitions, chapters);
    }
    let laid_out_s = begun.elapsed().as_secs_f64();
    let cold = in_a_process(dir, partitions, "cold");
    // What it reads was read before.
    in_a_process(dir, partitions, "warm");
    let warm = in_a_process(dir, partitions, "warm");
    json!({
        "partitions": partitions, "chapters": chapters, "laid_out_s": laid_out_s,
        "cold": cold, "warm": warm,
    })
}

/// Each has a batch in each chapter, but for one, the last: that is in one alone.
fn lay_out(dir: &Path, partitions: u32, chapters: u32) {
    let shelf = shelf(dir);
    let batch = batch();
    let mut index = 0;
    for chapter in 1..=u64::from(chapters) {
        let first_index = index + 1;
        let with_the_quiet_one = u32::from(chapter == u64::from(chapters) / 2);
        let wanted = partitions + with_the_quiet_one;
        let end = index + u64::from(wanted.div_ceil(BATCHES)) + 1;
        let base_offset = i64::try_from(chapter - 1).unwrap();
        let runs = (0..wanted).map(|number| {
            let base_offset = if number == partitions { 0 } else { base_offset };
            let point = Point {
                base_offset,
                max_timestamp: 1000,
                time: chapter,
                index: first_index + u64::from(number / BATCHES),
                bytes: batch.len().try_into().unwrap(),
                item: (number % BATCHES).try_into().unwrap(),
            };
            (opening(number), vec![point])
        });
        let ended = Ended { chapter, end, time: chapter };
        let plan = Plan { ended, first_index, runs: runs.collect() };
        let settled = shelf.settle(plan, |mut writer| {
            for first in (0..wanted).step_by(BATCHES as usize) {
                let mut entry = Draft::new();
                for number in first..wanted.min(first + BATCHES) {
                    let base_offset = if number == partitions { 0 } else { base_offset };
                    entry.push_batch(opening(number), base_offset, 0, &batch);
                }
                writer.take(first_index + u64::from(first / BATCHES), &entry.finish(chapter))?;
            }
            writer.finish()
        });
        settled.unwrap();
        index = end;
    }
}

/// What a process of its own says: nothing of another's memory is in it.
fn in_a_process(dir: &Path, partitions: u32, how: &str) -> Value {
    if how == "cold" {
        forget();
    }
    let program = env::current_exe().unwrap();
    let mut child = Command::new(program);
    child.arg("look").arg(dir).args([&partitions.to_string(), how]);
    let said = child.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

fn look(dir: &Path, partitions: u32, is_cold: bool) -> Value {
    let before = Process::now();
    let begun = Instant::now();
    let shelf = shelf(dir);
    let open_s = begun.elapsed().as_secs_f64();
    let opened = Process::now();
    let size = shelf.size();
    let fetch = |number: u32, from: i64| {
        if is_cold {
            forget();
        }
        let before = Process::now();
        let begun = Instant::now();
        let is_there = shelf.has(opening(number), from);
        let batches = shelf.read(opening(number), from, i64::MAX, FETCH_BYTES).unwrap();
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let after = Process::now();
        assert!(is_there && !batches.is_empty(), "what was settled is there");
        json!({
            "ms": ms, "reads": after.reads_since(&before),
            "disk_bytes": after.disk_bytes - before.disk_bytes, "batches": batches.len(),
        })
    };
    // The first has what comes with any first fetch.
    let first = fetch(partitions / 3, 0);
    let quiet = fetch(partitions, 0);
    let busy = fetch(partitions / 2, 1);
    let after = Process::now();
    json!({
        "open_s": open_s,
        "open_reads": opened.reads_since(&before), "open_disk_bytes": opened.disk_bytes - before.disk_bytes,
        "rss_mib": mib(opened.rss_bytes), "rss_most_mib": mib(opened.rss_most_bytes),
        "rss_before_mib": mib(before.rss_bytes), "rss_fetched_mib": mib(after.rss_bytes),
        "files": size.files, "runs": size.runs, "file_mib": mib(size.file_bytes),
        "first_fetch": first, "quiet_fetch": quiet, "busy_fetch": busy,
    })
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn shelf(dir: &Path) -> Shelf {
    let dir: Arc<dyn Dir> = Arc::new(OsDir::create_all(PathBuf::from(dir)).unwrap());
    Shelf::open(dir, SHARD).unwrap()
}

fn opening(number: u32) -> Opening {
    Opening { partition: PartitionId { topic: TopicId([7; 16]), number }, number: 1 }
}

fn batch() -> Vec<u8> {
    let mut draft = records::Draft::default();
    draft.push(1000, None, Some(&[b'x'; 50]), &[]);
    draft.batch(Compression::None, None).pieces().concat()
}

/// Nothing that was read or written is in the page cache any more.
fn forget() {
    let synced = Command::new("sync").status().unwrap();
    assert!(synced.success(), "sync failed");
    fs::write("/proc/sys/vm/drop_caches", "3").expect("the page cache is emptied by root");
}

/// What the system counts of this process.
struct Process {
    reads: u64,
    disk_bytes: u64,
    rss_bytes: u64,
    rss_most_bytes: u64,
}

impl Process {
    /// Reading this is counted too, with one read more than that of `io` itself sees.
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let io = fs::read_to_string("/proc/self/io").unwrap();
        let field = |of: &str, name: &str| -> u64 {
            let line = of.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
        };
        Self {
            reads: field(&io, "syscr"),
            disk_bytes: field(&io, "read_bytes"),
            rss_bytes: field(&status, "VmRSS") << 10,
            rss_most_bytes: field(&status, "VmHWM") << 10,
        }
    }

    /// Calls that read, without those of looking.
    fn reads_since(&self, before: &Self) -> u64 {
        let nothing = Self::now();
        let of_looking = Self::now().reads - nothing.reads;
        (self.reads - before.reads).saturating_sub(of_looking)
    }
}
