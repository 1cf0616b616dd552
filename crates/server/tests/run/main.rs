//! What a start knows of the run before it.

mod golden;
mod hostile;
mod model;
mod stories;
mod verdict;

use std::collections::BTreeMap;

use plimsoll_server::run::{Ends, Run, Start, Verdict};
use plimsoll_simdisk::{DiskOptions, Overwriting, SimDir};

/// A directory on tmpfs.
fn memory() -> SimDir {
    SimDir::with(DiskOptions { overwriting: Overwriting::Memory, ..DiskOptions::default() })
}

fn ends<const N: usize>(ends: [(u32, u64); N]) -> Ends {
    BTreeMap::from(ends)
}

/// A start at time 1000 on boot 7.
fn begin(data: &SimDir, memory: &SimDir, ends: &Ends) -> (Run, Verdict) {
    Run::begin(start(data, memory), ends).unwrap()
}

fn start<'a>(data: &'a SimDir, memory: &'a SimDir) -> Start<'a> {
    Start { data, memory: Some(memory), boot: Some(7), fresh_id: 42, now_ms: 1000, drawn: 9 }
}
