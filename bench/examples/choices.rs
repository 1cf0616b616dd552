//! What else the log could have chosen, measured: checksums, past the page cache or through it.
//! Run it alone on the machine, in a directory of the filesystem in question: `choices DIR [checksums|log]`. The
//! figures of docs/performance.md, "Choices", come from here.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use plimsoll_log::{Log, Options, Policy};

const ROUNDS: usize = 3;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (dir, part) = match &args[..] {
        [dir] => (dir, "all"),
        [dir, part] => (dir, part.as_str()),
        _ => bail!("usage: choices DIR [checksums|log]"),
    };
    if part != "log" {
        checksums();
    }
    if part != "checksums" {
        logs(&Path::new(dir).join("choices"))?;
    }
    Ok(())
}

type Sum = (&'static str, fn(&[u8]) -> u64);

fn checksums() {
    for bytes in [100, 1024, 4096, 65536] {
        let record: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
        let sums: [Sum; 3] = [
            ("XXH3-64", twox_hash::XxHash3_64::oneshot),
            ("CRC-32C", |bytes| u64::from(crc32c::crc32c(bytes))),
            ("CRC-32", |bytes| u64::from(crc32fast::hash(bytes))),
        ];
        let mut took = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for ((_, sum), took) in sums.iter().zip(&mut took) {
                let times = (64 << 20) / bytes;
                let begun = Instant::now();
                for _ in 0..times {
                    black_box(sum(black_box(&record)));
                }
                took.push(begun.elapsed() / times as u32);
            }
        }
        for ((name, _), took) in sums.iter().zip(&mut took) {
            println!("{name} of {bytes} B: {:?}", median(took));
        }
    }
}

fn logs(dir: &Path) -> Result<()> {
    let arms: [(&str, Options); 2] = [
        ("past the cache", Options::default()),
        ("through the cache", Options { direct: false, ..Options::default() }),
    ];
    for bytes in [100, 4096] {
        let mut took = [const { Vec::new() }; 2];
        let mut says = [const { String::new() }; 2];
        for _ in 0..ROUNDS {
            for (at, (_, options)) in arms.iter().enumerate() {
                let dir = fresh(dir)?;
                let options = Options { policy: Policy::Always, ..options.clone() };
                let (log, _) = Log::open(&dir, options)?;
                // Files are made ready meanwhile.
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(500) {
                    log.append(&vec![7; bytes])?;
                }
                let mut each = Vec::new();
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(700) {
                    let start = Instant::now();
                    log.append(&vec![7; bytes])?;
                    each.push(start.elapsed());
                }
                took[at].push(median(&mut each));
                let stats = log.stats();
                let share = stats.written_bytes as f64 / stats.payload_bytes as f64;
                says[at] =
                    format!("{}, {}; {share:.1} bytes written for one", stats.method, stats.layout);
                log.close()?;
                std::fs::remove_dir_all(&dir)?;
            }
        }
        for (((name, _), took), says) in arms.iter().zip(&mut took).zip(says) {
            let middle = median(took);
            println!(
                "{bytes} B, {name}: {middle:?} ({:?}–{:?}; {says})",
                took[0],
                took[took.len() - 1]
            );
        }
    }
    Ok(())
}

fn fresh(dir: &Path) -> Result<PathBuf> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)?;
    Ok(dir.to_owned())
}

fn median(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}
