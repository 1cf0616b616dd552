//! The log against a model, on a simulated disk: random operations, faults and crashes, all of it from
//! one seed.
//!
//! The model is a list of records and three numbers. What must hold, whatever happens: what `open`
//! returns is a prefix of what was appended, whole batches only, with everything that was
//! acknowledged at a level that survives the crash; and what was cut off stays away.
//!
//! * `world.rs`: one history, in which the log crashes and is opened again.
//! * `steps.rs`: what is asked of the log, one step after the other.
//! * `points.rs`: every moment of a history is crashed, in a copy.
//! * `faults.rs`: an error at each operation of a history in turn.
//! * `full.rs`: disks that fill, and have room again.
//! * `home.rs`, `rings.rs`: where the log is, and which ring an opener sees.
//! * `stories.rs`: histories that once went wrong, each a test of its own.
//! * `tails.rs`: damage to the end of a log, and what it must be called.
//!
//! `PLIMSOLL_SEEDS=100000 cargo test --release -p plimsoll-log --test simulation` runs more seeds,
//! `PLIMSOLL_FROM=500` begins there; `PLIMSOLL_SEED=7` runs one, and tells its story.
//! `PLIMSOLL_POINTS=1000000` visits so many crash points, with `PLIMSOLL_JOBS=2` threads;
//! `PLIMSOLL_EVERY=1` visits every operation, and every byte; `PLIMSOLL_AT=28` one operation.
#![cfg(not(shuttle))]
#![expect(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a campaign that tells its story; indexes are small"
)]

mod faults;
mod full;
mod home;
mod model;
mod points;
mod rings;
mod steps;
mod stories;
mod tails;
mod world;

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};
use std::{env, thread};

use plimsoll_log::{Clock, Options, Policy};
use points::Counts;
use world::{Tally, World};

/// How the disk may misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    /// It loses power, and nothing else.
    Good,
    /// Operations fail, and say so.
    Failing,
    /// It says that it did what it did not do.
    Lying,
}

const STEPS: u32 = 120;
/// Nothing is synced but what is asked for.
const RARELY: Policy = Policy::Interval { max_age: Duration::from_secs(3600), max_bytes: 1 << 30 };

/// A small log for a test that tells a story: driven by its calls, at a time that stands.
fn story(policy: Policy) -> Options {
    Options {
        policy,
        segment_bytes: 64 << 10,
        ring_bytes: 32 << 10,
        threads: false,
        clock: Clock::manual(1),
        ..Options::default()
    }
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Runs `one` with the seed that was asked for, or with so many. Says which seed fails.
fn each_seed(seeds: u64, one: impl Fn(u64, bool)) {
    let begun = Instant::now();
    let only = number("PLIMSOLL_SEED");
    let from = number("PLIMSOLL_FROM").unwrap_or(0);
    let seeds = number("PLIMSOLL_SEEDS").unwrap_or(seeds);
    let all = only.map_or(from..from + seeds, |seed| seed..seed + 1);
    for (count, seed) in (1..).zip(all) {
        replayable(seed, count, begun, || one(seed, only.is_some()));
    }
}

thread_local! {
    /// Which seed this thread is at, which one it is, and when the first began.
    static AT: Cell<Option<(u64, u64, Instant)>> = const { Cell::new(None) };
}

/// Says which seed fails, also where a panic meets another and ends the process.
fn replayable(seed: u64, count: u64, begun: Instant, run: impl FnOnce()) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            tell(info);
            if let Some((seed, count, begun)) = AT.take() {
                let seconds = begun.elapsed().as_secs_f64();
                println!("failed: PLIMSOLL_SEED={seed}, after {count} seeds and {seconds:.1} s");
            }
        }));
    });
    AT.set(Some((seed, count, begun)));
    run();
    AT.set(None);
}

/// Runs something in a thread of its own, for the same seed.
pub(crate) fn in_a_thread(run: impl FnOnce() + Send) {
    let at = AT.get();
    let ran = thread::scope(|scope| {
        let run = || {
            AT.set(at);
            run();
        };
        scope.spawn(run).join()
    });
    if let Err(panic) = ran {
        resume_unwind(panic);
    }
}

fn simulate(disk: Disk, seeds: u64) {
    let tally = Mutex::new(Tally::default());
    each_seed(seeds, |seed, talks| {
        let mut world = World::new(seed, disk, talks);
        world.tell_options();
        world.run(STEPS, &mut tally.lock().unwrap());
    });
    println!("{disk:?}: {:?}", tally.into_inner().unwrap());
}

#[test]
fn nothing_acknowledged_is_lost_to_crashes() {
    simulate(Disk::Good, 200);
}

#[test]
fn nothing_acknowledged_is_lost_to_failing_disks() {
    simulate(Disk::Failing, 200);
}

#[test]
fn a_disk_that_lies_may_lose_records_and_never_changes_one() {
    simulate(Disk::Lying, 200);
}

/// Which disk a seed of the crash points has: most of them only lose power.
fn disk_of(seed: u64) -> Disk {
    match seed % 8 {
        2 | 5 => Disk::Failing,
        7 => Disk::Lying,
        _ => Disk::Good,
    }
}

fn visit(seed: u64, talks: bool) -> Counts {
    let mut world = World::new(seed, disk_of(seed), talks);
    world.tell_options();
    world.watch();
    world.run(STEPS, &mut Tally::default());
    world.points()
}

#[test]
fn every_moment_of_a_run_may_be_its_last() {
    let begun = Instant::now();
    if let Some(seed) = number("PLIMSOLL_SEED") {
        return replayable(seed, 1, begun, || println!("{:?}", visit(seed, true)));
    }
    let wanted = number("PLIMSOLL_POINTS").unwrap_or(5_000);
    let jobs = number("PLIMSOLL_JOBS").unwrap_or(1);
    let from = number("PLIMSOLL_FROM").unwrap_or(0);
    let seeds = number("PLIMSOLL_SEEDS").unwrap_or(u64::MAX);
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let sum = Mutex::new(Counts::default());
    thread::scope(|scope| {
        let job = || {
            while !failed.load(SeqCst) && sum.lock().unwrap().points < wanted {
                let count = next.fetch_add(1, SeqCst);
                if count >= seeds {
                    break;
                }
                let run = || {
                    let counts = visit(from + count, false);
                    let mut sum = sum.lock().unwrap();
                    let before = sum.points;
                    sum.add(counts);
                    if sum.points * 20 / wanted > before * 20 / wanted {
                        println!("{} points, {:.0} s", sum.points, begun.elapsed().as_secs_f64());
                    }
                };
                let run = || replayable(from + count, count + 1, begun, run);
                if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                    failed.store(true, SeqCst);
                    resume_unwind(panic);
                }
            }
        };
        let jobs: Vec<_> = (0..jobs).map(|_| scope.spawn(job)).collect();
        for job in jobs {
            if let Err(panic) = job.join() {
                resume_unwind(panic);
            }
        }
    });
    let sum = sum.into_inner().unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    let rate = sum.points as f64 / seconds;
    println!("{} histories, {sum:?}, {seconds:.0} s, {rate:.0} points/s", next.into_inner());
}
