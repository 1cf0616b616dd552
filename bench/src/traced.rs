//! Who syncs, as strace sees it: an arm that is called durable must sync, one that is called buffered
//! must not.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use anyhow::Result;

use crate::harness::Bench;
use crate::result::{Saved, Traced};
use crate::task::{Beside, Cell, Kind, Level};
use crate::{Run, arms};

/// Records that are appended under strace.
const RECORDS: u64 = 200;
const RECORD_BYTES: usize = 1024;

pub(crate) fn run(run: &Run) -> Result<ExitCode> {
    let bench = Bench::open(run)?;
    let mut saved = Saved::open(&run.out, &bench.scratch.0, run.seed, run.quick)?;
    saved.traced.clear();
    for level in [Level::Durable, Level::Buffered] {
        let cell = Cell {
            kind: Kind::Append,
            level,
            record_bytes: RECORD_BYTES,
            appenders: 1,
            beside: Beside::Nothing,
            segments: 0,
        };
        for arm in arms::of(&cell).filter(|arm| bench.misses(arm).is_none()) {
            let mut task = bench.task(arm, &cell);
            (task.seconds, task.bytes_max) = (60.0, RECORDS * RECORD_BYTES as u64);
            let log = bench.scratch.0.join("strace");
            let to = format!("-o{}", log.display());
            let trace = "-etrace=fsync,fdatasync,sync_file_range,msync,syncfs,pwritev2,openat,io_uring_enter";
            let answer = bench.trial(arm, &task, &["strace", "-f", "-qqq", trace, &to])?;
            let calls = count(&fs::read_to_string(&log)?);
            fs::remove_file(&log)?;
            println!(
                "{:10} {:16} {:4} records {calls:?}",
                format!("{level:?}"),
                arm.name,
                answer.records
            );
            let (arm, cell) = (arm.name.to_owned(), cell.clone());
            saved.traced.push(Traced { arm, cell, records: answer.records, calls });
        }
    }
    saved.save(&run.out)?;
    Ok(ExitCode::SUCCESS)
}

/// Calls that sync, by name.
fn count(trace: &str) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for line in trace.lines() {
        // "1234 fdatasync(5) = 0"; what another thread interrupted ends on a line of its own.
        let Some(call) = line.split_whitespace().nth(1) else { continue };
        let Some((name, _)) = call.split_once('(') else { continue };
        let name = match name {
            "openat" if line.contains("O_DSYNC") || line.contains("O_SYNC") => "open with O_DSYNC",
            "openat" => continue,
            "pwritev2" if line.contains("RWF_DSYNC") || line.contains("RWF_SYNC") => {
                "pwritev2 with RWF_DSYNC"
            }
            "pwritev2" => continue,
            other => other,
        };
        *calls.entry(name.to_owned()).or_default() += 1;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_sync_are_counted() {
        let trace = "7 openat(AT_FDCWD, \"a\", O_RDWR) = 3\n7 fdatasync(3 <unfinished ...>\n8 fdatasync(4) = 0\n\
            7 <... fdatasync resumed>) = 0\n7 pwritev2(3, [], 1, 0, 0) = 1\n7 pwritev2(3, [], 1, 0, RWF_DSYNC) = 1\n";
        let counted = count(trace);
        assert_eq!(counted["fdatasync"], 2);
        assert_eq!(counted["pwritev2 with RWF_DSYNC"], 1);
        assert_eq!(counted.len(), 2);
    }
}
