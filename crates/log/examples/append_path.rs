//! Appends so many records of 100 bytes, and writes them if told to: one thread, a clock that stands, so
//! that two runs execute the same instructions. `.ci/instructions` counts them under callgrind.
//!
//! `append_path DIR RECORDS [write]`

use std::path::PathBuf;

use plimsoll_log::{Clock, Log, Options, Policy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, records, rest @ ..] = &args[..] else {
        return Err("usage: append_path DIR RECORDS [write]".into());
    };
    let dir = PathBuf::from(dir).join("append-path");
    let options = Options {
        policy: Policy::Never,
        threads: false,
        clock: Clock::manual(1),
        // Through the cache: how many calls the disk's alignment takes is not the question.
        direct: false,
        ..Options::default()
    };
    let (log, _) = Log::open(&dir, options)?;
    for _ in 0..records.parse()? {
        log.append(&[7; 100])?;
    }
    let writes = rest.first().is_some_and(|what| what == "write");
    while writes && log.drive()? {}
    // What closing a log takes is not counted either.
    std::fs::remove_dir_all(&dir)?;
    std::process::exit(0);
}
