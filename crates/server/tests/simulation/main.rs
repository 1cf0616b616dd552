//! A broker on a simulated disk, over lives drawn from a seed, against a model that fits a page (`model.rs`).
//!
//! Topics come, grow and go, and get other settings; producers send, and send again; records are deleted, or are more
//! than is to be kept; chapters end, are settled, read, compacted and freed; groups commit; and each life ends in
//! order, with its process, with its memory, with the system or with the power, between any two operations of the
//! disk, its start's and its end's own too. Disks fill and fail. What comes next has other options.
//!
//! The promises: nothing at or below D is lost; nothing acknowledged is lost with a process; what a start
//! says may be gone covers what is gone, and it says nothing of the kind where there is evidence; no offset
//! ever names two records, and a record is byte for byte what was sent; each offset below the high watermark names one
//! or lies in a gap; partitions that were closed notice nothing; what was made, deleted or committed stays so; a disk
//! that works refuses nothing. Of what is compacted the newest record of each key stays (`model.rs`). A bit of a
//! chapter's file that is another one is an error to whoever reads that run, and to nobody else (`flips.rs`).
//!
//! A seed draws what is done and what fails. When threads have their turn it does not: a run may differ from
//! its replay in what was durable by then, never in what is allowed.

mod broker;
mod flips;
mod model;
#[path = "../shared/seeds.rs"]
mod seeds;
#[path = "../shared/served.rs"]
mod served;
mod steps;
mod stories;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::{env, panic, thread};

use seeds::{is_replay, replayable, seeds};
use world::{Seen, World};

/// So many by default: each starts brokers, whose threads wait for each other.
const SEEDS: u64 = 200;

/// So many at once, unless `PLIMSOLL_JOBS` says so: they wait more than they work.
const JOBS: usize = 6;

/// Panics of threads that are the broker's.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn what_a_broker_said_holds_whatever_ends_it() {
    listen();
    let seeds = seeds(SEEDS);
    let jobs = env::var("PLIMSOLL_JOBS").map_or(JOBS, |jobs| jobs.parse().unwrap());
    let (next, total) = (AtomicU64::new(seeds.start), Mutex::new(Seen::new()));
    let live = || {
        // Where one has failed the others begin no more.
        let _ended = Ended(&next, seeds.end);
        while let seed = next.fetch_add(1, Ordering::Relaxed)
            && seed < seeds.end
        {
            let seen = replayable(seed, || {
                let seen = World::new(seed).live();
                let panics = PANICS.lock().unwrap();
                assert!(panics.is_empty(), "threads of some seed's broker panicked: {panics:#?}");
                seen
            });
            let mut total = total.lock().unwrap();
            for (what, times) in seen {
                *total.entry(what).or_default() += times;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(live);
        }
    });
    let total = total.into_inner().unwrap();
    println!("seeds {seeds:?}: {total:#?}");
    // What tests nothing has not passed.
    let wanted = [
        "nothing is lost",
        "records may be lost",
        "a start that failed",
        "an end in order",
        "an end that failed",
        "a process crash",
        "memory that went",
        "a system crash",
        "a power cut",
        "a disk that fails",
        "a batch sent again",
        "records lost",
        "records deleted",
        "retention.bytes deleted",
        "settings changed",
        "a record without a key refused",
        "a record compacted",
        "a tombstone gone",
        "a compacted run verified",
        "a look from the middle",
        "a look too early",
        "an offset by time",
        "read from a chapter",
        "runs in chapters",
        "chapters that were freed",
        "a chapter verified",
        "a merged file verified",
        "a topic deleted while chapters wait",
        "a run that is damaged",
        "a file that is damaged",
    ];
    for what in wanted.into_iter().filter(|_| !is_replay()) {
        assert!(total.contains_key(what), "{what}");
    }
}

/// Has no seed begun any more once it is dropped.
struct Ended<'a>(&'a AtomicU64, u64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_max(self.1, Ordering::Relaxed);
    }
}

/// Notes panics that are not of the tests themselves.
fn listen() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            tell(info);
            if info.location().is_none_or(|at| !at.file().contains("tests/")) {
                PANICS.lock().unwrap().push(info.to_string());
            }
        }));
    });
}
