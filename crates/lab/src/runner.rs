//! Runs the arms of an experiment in short blocks, in random order, interleaved.
//!
//! Arms that run one after the other are compared with each other *and* with whatever the machine
//! did meanwhile. So every round runs one block of each arm, in an order drawn from the seed, and
//! rounds go on until the median of each arm is known well enough or the time is up. What happens
//! to the machine then happens to all arms alike, and what differs between blocks of one arm is
//! the noise that its interval shows.
//!
//! Nothing but the operations is timed: files are prepared before a block and settled after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::counters::{Counters, Elapsed};
use crate::error::{Error, Result};
use crate::stats;

/// One thing that is measured beside others.
pub trait Arm {
    /// Makes the next block possible. Not timed.
    fn prepare(&mut self) -> plimsoll_sync::Result<()>;

    /// Runs operations and adds their times to `block`, until it is full. The arm itself takes the
    /// times.
    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()>;

    /// Leaves nothing dirty behind for the next arm. Not timed.
    fn settle(&mut self) -> plimsoll_sync::Result<()>;
}

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Time for all arms together.
    pub budget: Duration,
    /// The fewest blocks of an arm, however narrow its interval.
    pub blocks_min: usize,
    /// All arms are done when the interval of each median reaches no further than this to either
    /// side, as a share of the median. If zero, only the budget ends the run.
    pub precision: f64,
    /// If set, all arms are done when each has so many samples of its leading measure, and not
    /// before.
    pub samples: Option<usize>,
    /// Draws the order of the arms.
    pub seed: u64,
}

/// One block of one arm.
#[derive(Debug, Clone)]
pub struct Block {
    /// Samples in nanoseconds, one list for each measure of the experiment; the first list leads.
    pub samples: Vec<Vec<u64>>,
    /// How many operations asked for durability; flushes are counted per each of these.
    pub durable_operations: u64,
    /// What the kernel counted meanwhile.
    pub elapsed: Elapsed,
    limit_operations: usize,
    limit_time: Duration,
    started: Instant,
}

/// Room for so many samples is allocated before a block begins; growing beyond it costs a moment.
const RESERVE: usize = 4096;

/// How large a block may be.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// The most operations.
    pub operations: usize,
    /// The most time; the operation that is under way may still end.
    pub time: Duration,
}

/// How the caller follows a run, and how it stops one.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a closure has nothing to show")]
pub struct Watch<'a> {
    /// Set by the caller to stop the run after the current block.
    pub cancel: &'a AtomicBool,
    /// Called after every block.
    pub progress: &'a dyn Fn(Progress),
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Files are made.
    Preparing,
    /// Blocks are run that are thrown away.
    WarmingUp {
        /// All arms.
        arms: usize,
    },
    /// Blocks are run that count.
    Measuring {
        /// All arms.
        arms: usize,
        /// Which round it is, from 1.
        round: usize,
    },
}

impl Watch<'_> {
    /// Fails if the caller asked the run to stop.
    pub fn check(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

impl Progress {
    /// In a round of so many arms, where the first one is thrown away.
    const fn of_round(rounds_before: usize, arms: usize) -> Self {
        match rounds_before {
            0 => Self::WarmingUp { arms },
            round => Self::Measuring { arms, round },
        }
    }

    /// `8 arms, round 14`
    #[must_use]
    pub fn in_words(self) -> String {
        let of = |arms: usize| if arms == 1 { "1 arm".to_owned() } else { format!("{arms} arms") };
        match self {
            Self::Preparing => "making files".to_owned(),
            Self::WarmingUp { arms } => format!("{}, warming up", of(arms)),
            Self::Measuring { arms, round } => format!("{}, round {round}", of(arms)),
        }
    }
}

impl Block {
    fn new(measures: usize, size: Size) -> Self {
        Self {
            samples: vec![Vec::with_capacity(size.operations.min(RESERVE)); measures],
            durable_operations: 0,
            elapsed: Elapsed::default(),
            limit_operations: size.operations,
            limit_time: size.time,
            started: Instant::now(),
        }
    }

    /// Adds a sample of the leading measure; false when the block is full.
    #[inline]
    pub fn sample(&mut self, duration: Duration, now: Instant) -> bool {
        self.samples[0].push(crate::counters::nanoseconds(duration));
        self.samples[0].len() < self.limit_operations
            && now.duration_since(self.started) < self.limit_time
    }

    /// A block with these samples, which was not run.
    #[cfg(test)]
    pub(crate) fn from_samples(samples: Vec<Vec<u64>>) -> Self {
        let size = Size { operations: 0, time: Duration::ZERO };
        Self { samples, ..Self::new(0, size) }
    }

    /// How long it may take.
    #[must_use]
    pub const fn time(&self) -> Duration {
        self.limit_time
    }
}

/// Runs `arms` by `rule`, and returns the blocks of each. Each block has `measures` lists of
/// samples and is at most of `size`.
///
/// Warming up is not a phase of its own: the first block of every arm is run and thrown away,
/// because it maps memory, opens rings and faults code in.
pub fn run<A: Arm>(
    arms: &mut [A],
    measures: usize,
    size: Size,
    rule: &Rule,
    counters: &Counters,
    watch: &Watch<'_>,
) -> Result<Vec<Vec<Block>>> {
    let begun = Instant::now();
    let mut order_rng = Pcg64Mcg::seed_from_u64(rule.seed);
    let mut blocks: Vec<Vec<Block>> = arms.iter().map(|_| Vec::new()).collect();
    let mut order: Vec<usize> = (0..arms.len()).collect();
    for rounds in 0.. {
        order.shuffle(&mut order_rng);
        for &arm in &order {
            watch.check()?;
            // Time is up, but never before each arm has been measured once.
            if rounds > 1 && begun.elapsed() >= rule.budget {
                return Ok(blocks);
            }
            let block = run_block(&mut arms[arm], Block::new(measures, size), counters)?;
            if rounds > 0 {
                blocks[arm].push(block);
            }
            (watch.progress)(Progress::of_round(rounds, arms.len()));
        }
        // Arms go on until all are done: they are compared, so they must have seen the same
        // machine.
        if blocks.iter().all(|blocks| rule.is_met(blocks)) {
            break;
        }
    }
    Ok(blocks)
}

fn run_block<A: Arm>(arm: &mut A, mut block: Block, counters: &Counters) -> Result<Block> {
    arm.prepare()?;
    let before = counters.read();
    block.started = Instant::now();
    arm.run(&mut block)?;
    block.elapsed = counters.since(&before);
    arm.settle()?;
    Ok(block)
}

impl Rule {
    fn is_met(&self, blocks: &[Block]) -> bool {
        if let Some(samples) = self.samples {
            return blocks.iter().map(|block| block.samples[0].len()).sum::<usize>() >= samples;
        }
        let narrow = self.precision > 0.0 && half_width(blocks) <= self.precision;
        blocks.len() >= self.blocks_min && narrow
    }
}

/// Half the width of the interval of the median, as a share of the median.
fn half_width(blocks: &[Block]) -> f64 {
    let medians = block_medians(blocks, 0);
    match stats::quantile_interval(&medians, 0.5) {
        Some((low, high)) => {
            crate::units::ratio(high - low, 2 * stats::quantile(&medians, 0.5).max(1))
        }
        None => f64::INFINITY,
    }
}

/// The medians of the blocks that have samples of a measure, sorted.
#[must_use]
pub fn block_medians(blocks: &[Block], measure: usize) -> Vec<u64> {
    let mut medians: Vec<u64> = blocks
        .iter()
        .filter(|block| !block.samples[measure].is_empty())
        .map(|block| {
            let mut samples = block.samples[measure].clone();
            samples.sort_unstable();
            stats::quantile(&samples, 0.5)
        })
        .collect();
    medians.sort_unstable();
    medians
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Takes as long as it is told, without a clock.
    struct Told<'a> {
        name: usize,
        ns: u64,
        log: &'a RefCell<Vec<usize>>,
        settled: bool,
    }

    impl Arm for Told<'_> {
        fn prepare(&mut self) -> plimsoll_sync::Result<()> {
            assert!(self.settled, "the block before was not settled");
            Ok(())
        }
        fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
            self.log.borrow_mut().push(self.name);
            self.settled = false;
            while block.sample(Duration::from_nanos(self.ns), block.started) {}
            Ok(())
        }
        fn settle(&mut self) -> plimsoll_sync::Result<()> {
            self.settled = true;
            Ok(())
        }
    }

    const SIZE: Size = Size { operations: 10, time: Duration::from_secs(1) };

    fn rule(seed: u64) -> Rule {
        let budget = Duration::from_secs(3600);
        Rule { budget, blocks_min: 8, precision: 0.05, samples: None, seed }
    }

    fn run_told(rule: &Rule, cancel: &AtomicBool) -> (Vec<usize>, Result<Vec<Vec<Block>>>) {
        let log = RefCell::new(Vec::new());
        let mut arms: Vec<_> =
            (0..5).map(|name| Told { name, ns: 100, log: &log, settled: true }).collect();
        let watch = Watch { cancel, progress: &|_| {} };
        let blocks = run(&mut arms, 1, SIZE, rule, &Counters::new(Vec::new()), &watch);
        drop(arms);
        (log.into_inner(), blocks)
    }

    #[test]
    fn one_seed_gives_one_order() {
        let go = AtomicBool::new(false);
        let (first, again, other) =
            (run_told(&rule(1), &go).0, run_told(&rule(1), &go).0, run_told(&rule(2), &go).0);
        assert_eq!(first, again);
        assert_ne!(first, other);
    }

    #[test]
    fn every_round_runs_every_arm_once() {
        let (order, _) = run_told(&rule(7), &AtomicBool::new(false));
        for round in order.chunks(5) {
            let mut round = round.to_vec();
            round.sort_unstable();
            assert_eq!(round, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn arms_end_when_their_intervals_are_narrow_and_not_before_the_fewest_blocks() {
        let (_, blocks) = run_told(&rule(1), &AtomicBool::new(false));
        for blocks in blocks.unwrap() {
            assert_eq!(blocks.len(), 8);
        }
    }

    #[test]
    fn an_arm_with_a_number_of_samples_to_reach_reaches_it() {
        let rule = Rule { samples: Some(95), ..rule(1) };
        let (_, blocks) = run_told(&rule, &AtomicBool::new(false));
        for blocks in blocks.unwrap() {
            assert_eq!(blocks.iter().map(|b| b.samples[0].len()).sum::<usize>(), 100);
        }
    }

    #[test]
    fn without_a_precision_only_the_budget_ends_a_run() {
        let budget = Duration::from_millis(500);
        let rule = Rule { precision: 0.0, budget, ..rule(1) };
        let begun = Instant::now();
        run_told(&rule, &AtomicBool::new(false)).1.unwrap();
        assert!(begun.elapsed() >= budget, "medians all alike");
    }

    #[test]
    fn no_time_left_still_measures_every_arm_once() {
        let rule = Rule { budget: Duration::ZERO, ..rule(1) };
        let (_, blocks) = run_told(&rule, &AtomicBool::new(false));
        for blocks in blocks.unwrap() {
            assert_eq!(blocks.len(), 1);
        }
    }

    /// "Round 14 of 4 arms" was once said.
    #[test]
    fn progress_tells_rounds_from_arms_and_warming_up_from_measuring() {
        let told = RefCell::new(Vec::new());
        let log = RefCell::new(Vec::new());
        let mut arms = [(); 2].map(|()| Told { name: 0, ns: 100, log: &log, settled: true });
        let progress = |so_far: Progress| told.borrow_mut().push(so_far.in_words());
        let watch = Watch { cancel: &AtomicBool::new(false), progress: &progress };
        let rule = Rule { samples: Some(20), ..rule(1) };
        run(&mut arms, 1, SIZE, &rule, &Counters::new(Vec::new()), &watch).unwrap();
        let each = ["2 arms, warming up", "2 arms, round 1", "2 arms, round 2"];
        assert_eq!(told.into_inner(), each.map(|words| [words; 2]).concat());
        assert_eq!(Progress::Preparing.in_words(), "making files");
    }

    #[test]
    fn a_cancelled_run_ends_as_interrupted() {
        let (order, blocks) = run_told(&rule(1), &AtomicBool::new(true));
        assert!(order.is_empty());
        assert!(matches!(blocks, Err(Error::Interrupted)));
    }
}
