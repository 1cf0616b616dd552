//! Thousands of power cuts of one trace, in parallel: each worker a thread with a mount namespace of its
//! own. What is durable at each point is worked out once, for all of them.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use super::check::{Situation, Verdict};
use super::error::{Error, Result};
use super::image::{Image, Timings};
use super::namespace;
use crate::block::{Medium, Platter, State, Timeline, Toll, Trace};

/// States that a worker takes at once, at most: neighbours differ in little, and a disk in memory is
/// rewritten only where they do.
const STRETCH_MAX: usize = 32;

/// What to visit, and how.
#[derive(Debug)]
pub struct Explore<'a> {
    /// The recording.
    pub trace: &'a Trace,
    /// When its writes became durable, as is believed of the disk.
    pub timeline: &'a Timeline,
    /// Which states, in the order of their points.
    pub states: &'a [State],
    /// Threads that work on it.
    pub workers: usize,
    /// More options for the mount.
    pub mount_options: &'a str,
    /// Whether to mount without writing; journals are replayed even so.
    pub read_only: bool,
    /// Set to stop.
    pub stop: &'a AtomicBool,
}

/// A state that was visited.
#[derive(Debug, Clone)]
pub struct Visit {
    /// Its number in [`Explore::states`].
    pub number: usize,
    /// What was found.
    pub verdict: Verdict,
    /// What became of what was pending.
    pub pending: Toll,
    /// A hash of the disk, relative to what the trace began with: [`Platter::digest`].
    pub disk: u64,
    /// What it took.
    pub timings: Timings,
}

/// Mounts each state and has it checked. `check` runs in the thread that mounted it; `each` is told
/// in the order in which they come, in the thread that calls, and may stop it all.
///
/// `Ok(false)` if it was stopped. An error is one of the rig, not of what is checked: it ends everything.
/// Wrong options are none of those: ask [`Image::try_undamaged`] first.
pub fn explore(
    explore: &Explore<'_>,
    check: &(dyn Fn(&Situation<'_>) -> Result<Verdict> + Sync),
    mut each: impl FnMut(Visit) -> ControlFlow<()>,
) -> Result<bool> {
    let course = Mutex::new(Course::new(explore));
    let over = AtomicBool::new(false);
    let failed = Mutex::new(None);
    let (send, visits) = mpsc::sync_channel(64);
    std::thread::scope(|scope| {
        for _ in 0..explore.workers.max(1) {
            let send = send.clone();
            let (course, over, failed) = (&course, &over, &failed);
            scope.spawn(move || {
                if let Err(error) = work(explore, check, course, over, &send) {
                    over.store(true, Ordering::Relaxed);
                    failed.lock().expect("nobody panics with it").get_or_insert(error);
                }
            });
        }
        drop(send);
        for visit in visits {
            if each(visit).is_break() {
                over.store(true, Ordering::Relaxed);
            }
        }
    });
    match failed.into_inner().expect("nobody panics with it") {
        Some(Error::Interrupted) => Ok(false),
        Some(error) => Err(error),
        None => Ok(!over.into_inner() && !explore.stop.load(Ordering::Relaxed)),
    }
}

/// The way through the trace, of which each worker takes a stretch after another.
struct Course<'a> {
    explore: &'a Explore<'a>,
    /// The first state that nobody has taken.
    next: usize,
    medium: Medium,
    /// Hash of what is on it.
    digest: u64,
}

impl<'a> Course<'a> {
    fn new(explore: &'a Explore<'a>) -> Self {
        Self { explore, next: 0, medium: Medium::new(explore.trace.base.clone()), digest: 0 }
    }

    /// The next few states by number, each with what is durable at its point and a hash of that; none
    /// at the end.
    fn stretch(&mut self) -> Vec<(usize, Platter, u64)> {
        let Explore { trace, timeline, states, workers, .. } = self.explore;
        let count = (states.len() / workers.max(&1) / 4).clamp(1, STRETCH_MAX);
        let numbers = self.next..(self.next + count).min(states.len());
        self.next = numbers.end;
        let durable = |number: usize| {
            let earlier = self.medium.platter().clone();
            // Numbers only grow, and points with them.
            self.medium.advance(states[number].point, &trace.events, timeline);
            self.digest = self.medium.platter().digest(&earlier, self.digest);
            (number, self.medium.platter().clone(), self.digest)
        };
        numbers.map(durable).collect()
    }
}

fn work(
    explore: &Explore<'_>,
    check: &(dyn Fn(&Situation<'_>) -> Result<Verdict> + Sync),
    course: &Mutex<Course<'_>>,
    over: &AtomicBool,
    send: &mpsc::SyncSender<Visit>,
) -> Result<()> {
    namespace::enter()?;
    let (events, timeline) = (&explore.trace.events, explore.timeline);
    loop {
        let stretch = course.lock().expect("nobody panics with it").stretch();
        if stretch.is_empty() {
            return Ok(());
        }
        for (number, durable, digest) in stretch {
            if over.load(Ordering::Relaxed) || explore.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let state = &explore.states[number];
            let begun = Instant::now();
            let mut platter = durable.clone();
            let pending = state.survive(events, timeline, &mut platter);
            let disk = platter.digest(&durable, digest);
            let survived = begun.elapsed();
            let situation = Situation { state, marks: timeline.marks(state.point) };
            let (verdict, mut timings) = visit(explore, &platter, &situation, check)?;
            timings.build += survived;
            if send.send(Visit { number, verdict, pending, disk, timings }).is_err() {
                return Ok(());
            }
        }
    }
}

fn visit(
    explore: &Explore<'_>,
    platter: &Platter,
    situation: &Situation<'_>,
    check: &(dyn Fn(&Situation<'_>) -> Result<Verdict> + Sync),
) -> Result<(Verdict, Timings)> {
    let (trace, options) = (explore.trace, explore.mount_options);
    let image = match Image::of_trace(trace, platter, options, explore.read_only) {
        Ok(image) => image,
        Err(Error::NotMounted { source, .. }) => {
            return Ok((Verdict::NotMounted(source.to_string()), Timings::default()));
        }
        Err(error) => return Err(error),
    };
    let begun = Instant::now();
    let verdict = check(situation)?;
    let took = begun.elapsed();
    let mut timings = image.unmount()?;
    timings.check = took;
    Ok((verdict, timings))
}
