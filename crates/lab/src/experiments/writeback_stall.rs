//! What happens to small durable writes under heavy random writeback?
//!
//! Source: article 2 ("buffered writeback torture program", fsync-tester, 2011): one process writes
//! random pages of an 8 GiB file as fast as it can, another overwrites a small file once a second and
//! syncs it. On the xfs of the day one such write took 128.9 s. The article speaks of 4 KiB; its
//! program writes 1 MiB. It has no control and does not say how fast the random writer was: both are
//! here.
//!
//! What holds a write up is `balance_dirty_pages` in the kernel, and it begins to when a good part of
//! memory is dirty, which takes the article's size. The short profiles make the device busy instead:
//! their writer starts writeback itself, piece by piece, as the kernel's flusher would.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_sync::{Access, AlignedBuf, Dir, File, Promise, SyncMethod, finest_timer};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::arm::Identity;
use crate::claim::{Claim, Holds};
use crate::counters::{DirtyPages, nanoseconds};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::{Layout, noise};
use crate::pace::Pace;
use crate::result::{ArmResult, Series};
use crate::runner::{self, Arm, Block, Progress, Rule, Size, Watch};
use crate::stats;
use crate::summary::Summary;
use crate::units;
use crate::verdict::Asked;
use crate::warning::{Kind, Warning};

/// The experiment.
#[derive(Debug)]
pub(super) struct WritebackStall;

/// What is measured, in the order of a block's lists.
const MEASURES: [&str; 3] = ["write and sync", "write", "sync"];
const WRITE: usize = 1;
const SYNC: usize = 2;

const MIB: u64 = 1 << 20;
/// What the random writer writes at a time.
const PAGE: u64 = 4096;
/// The small file: what the article says, and what its program does.
const WRITE_BYTES: [u64; 2] = [PAGE, MIB];

/// The big file is prepared in pieces of this size, each synced, so that stopping is soon noticed.
const PIECE_BYTES: u64 = 64 * MIB;
/// The big file takes at most this share of memory and of free space, one in so many.
const SHARE: u64 = 8;

/// With less than this dirty a block may begin.
const CALM_BYTES: u64 = 64 * MIB;
/// How often dirty pages are looked at until then.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A write is stalled from here on; from the second on it is the article's kind of stall.
const STALL: Duration = Duration::from_millis(100);
const LONG_STALL: Duration = Duration::from_secs(1);
/// From this factor on, a sync waits for the random writes.
const WAITS: f64 = 2.0;

/// Sizes and rates of a profile.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Of the big file, unless memory or the disk is small.
    file_bytes: u64,
    /// Whether the big file is as large as that anyway.
    file_is_fixed: bool,
    /// Pages after which the random writer starts writeback itself and waits for it.
    push_pages: Option<u64>,
    write_every: Duration,
    size: Size,
    /// How long to wait for what others left dirty.
    calm: Duration,
}

const fn plan(profile: Profile) -> Plan {
    let ms = Duration::from_millis;
    let quick = Plan {
        file_bytes: 256 * MIB,
        file_is_fixed: false,
        push_pages: Some(2048),
        write_every: ms(12),
        // Twenty operations carry a median, and short blocks a comparison.
        size: Size { operations: 20, time: ms(300) },
        calm: ms(200),
    };
    match profile {
        Profile::Quick => quick,
        Profile::Full => Plan {
            file_bytes: 1024 * MIB,
            write_every: ms(25),
            size: Size { operations: 40, time: ms(1250) },
            ..quick
        },
        Profile::Article => Plan {
            file_bytes: 8192 * MIB,
            file_is_fixed: true,
            push_pages: None,
            write_every: ms(1000),
            size: Size { operations: 60, time: ms(61_000) },
            calm: ms(10_000),
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spec {
    torture: bool,
    write_bytes: u64,
}

impl Spec {
    /// `torture/4KiB`.
    fn name(self) -> String {
        let kind = if self.torture { "torture" } else { "quiet" };
        format!("{kind}/{}", units::bytes(self.write_bytes).replace(' ', ""))
    }
}

impl Experiment for WritebackStall {
    fn name(&self) -> &'static str {
        "writeback-stall"
    }

    fn question(&self) -> &'static str {
        "What happens to small durable writes under heavy random writeback?"
    }

    fn source(&self) -> &'static str {
        "article 2, \"buffered writeback torture program\" (fsync-tester)"
    }

    fn explanation(&self) -> &'static str {
        "\
One thread overwrites a small file and syncs it at fixed times, and times the write and the sync
apart. In the arms 'torture' another thread writes random pages of a big file at the same time, as
fast as it can. In the arms 'quiet' it does not: they are the control. The big file is drained after
each block, and a block begins when little is dirty.

  4KiB, 1MiB     what is overwritten: what the article says, and what its program does
  writer mib s   what the random writer achieved: a slow one is no torture
  dirty mib max, writeback mib max
                 the most that the kernel had yet to write, and had under way (/proc/meminfo: anybody's)

What reaches the device is chosen by the profile. 'article' does what the article did: 8 GiB, a sync
every second for a minute, and the kernel writes back when it wants to. It takes a good part of memory
to be dirty before the kernel holds writers up, so 'quick' and 'full' cannot show that; their writer
has every 8 MiB written back and waits for it, which keeps the device busy from the first millisecond.
The answer says how much was dirty and from where on writers are held up.

How it can mislead: the random writer needs a CPU, and so does writeback; with few CPUs a sync also
waits for those (run_queue_share in the result). Starts are due at fixed times, so a stall is
followed by the writes that it delayed. In the article's profile the two arms are a minute each, one
after the other, and are not compared block by block. With much memory 8 GiB may not reach the limits
either."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 10,
            Profile::Full => 120,
            Profile::Article => 180,
        };
        let disk_bytes = plan(profile).file_bytes + 2 * WRITE_BYTES.iter().sum::<u64>();
        Cost { budget: Duration::from_secs(seconds), disk_bytes }
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        specs(profile).into_iter().map(Spec::name).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let begun = Instant::now();
        let plan = plan(setup.profile);
        let specs: Vec<Spec> =
            specs(setup.profile).into_iter().filter(|spec| setup.wants(&spec.name())).collect();
        let Environment { memory_kib, free_bytes, .. } = *setup.environment;
        let memory_bytes = memory_kib.map(|kib| kib.saturating_mul(1024));
        let file_bytes = file_bytes(plan, memory_bytes, free_bytes);
        let push = plan.push_pages.map(|pages| (pages, push_method(setup)));
        let tortured = specs.iter().any(|spec| spec.torture);
        let progress = || {
            let (elapsed, budget) = (begun.elapsed(), setup.budget);
            (watch.progress)(Progress {
                elapsed,
                budget,
                arms_done: 0,
                arms: specs.len(),
                rounds: 0,
            });
        };
        let file = setup.dir.create("writeback-stall-big", Access::default())?;
        let bytes = if tortured { file_bytes } else { 0 };
        let big = Big::prepare(file, bytes, push, setup.seed, watch.cancel, &progress)?;
        finest_timer();
        let create = |(number, &spec): (usize, &Spec)| {
            Stall::create(setup, spec, plan, &big, number, watch.cancel)
        };
        let mut arms: Vec<Stall<'_>> =
            specs.iter().enumerate().map(create).collect::<plimsoll_sync::Result<_>>()?;
        let rule = Rule {
            budget: setup.budget.saturating_sub(begun.elapsed()),
            blocks_min: stats::BLOCKS_TO_COMPARE,
            // The question is about the tail, which every block makes better known.
            precision: 0.0,
            samples: (setup.profile == Profile::Article).then_some(plan.size.operations),
            seed: setup.seed,
        };
        let blocks =
            runner::run(&mut arms, MEASURES.len(), plan.size, &rule, setup.counters, watch)?;
        // A block that was cut short is no block.
        if watch.cancel.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let arms: Vec<ArmResult> =
            arms.iter().zip(&blocks).map(|(arm, blocks)| arm.result(blocks, setup)).collect();
        let held_up_from = held_up_from(&setup.environment.dirty_limits, memory_bytes);
        let mut parameters = vec![
            format!("file_bytes={file_bytes}"),
            format!("write_every_ms={}", plan.write_every.as_millis()),
            format!("block_ms={}", plan.size.time.as_millis()),
        ];
        if let Some((pages, method)) = push {
            parameters.push(format!("written_back_every_bytes={} ({method})", pages * PAGE));
        }
        let (answer, claim) = answer(&specs, &arms, held_up_from);
        let claims = claim.into_iter().collect();
        Ok(Measured { parameters, answer, claims, arms, unavailable: Vec::new() })
    }
}

fn specs(profile: Profile) -> Vec<Spec> {
    let sizes = if profile == Profile::Article { &WRITE_BYTES[1..] } else { &WRITE_BYTES[..] };
    let arms = |&write_bytes: &u64| [false, true].map(|torture| Spec { torture, write_bytes });
    sizes.iter().flat_map(arms).collect()
}

/// The size of the big file where there is so much memory and free space.
fn file_bytes(plan: Plan, memory_bytes: Option<u64>, free_bytes: Option<u64>) -> u64 {
    if plan.file_is_fixed {
        return plan.file_bytes;
    }
    let share = [memory_bytes, free_bytes].into_iter().flatten().min().map(|bytes| bytes / SHARE);
    let bytes = plan.file_bytes.min(share.unwrap_or(u64::MAX));
    (bytes / MIB).max(1) * MIB
}

/// What writes back without emptying the device's cache, or else what there is.
fn push_method(setup: &Setup<'_>) -> SyncMethod {
    let method = SyncMethod::SyncFileRange;
    if setup.works(method) { method } else { SyncMethod::ORDINARY }
}

/// From how many dirty bytes on the kernel holds writers up: midway between where it begins to write
/// back and where it stops them (kernel, mm/page-writeback.c, `dirty_freerun_ceiling`). About, because
/// it counts shares of the memory that is available and not of all.
fn held_up_from(limits: &[String], memory_bytes: Option<u64>) -> Option<u64> {
    let value = |name: &str| -> Option<u64> {
        let of = |limit: &String| limit.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        limits.iter().find_map(of)
    };
    let bytes = |bytes: &str, ratio: &str| match value(bytes) {
        Some(bytes) if bytes > 0 => Some(bytes),
        _ => Some(memory_bytes? / 100 * value(ratio)?.min(100)),
    };
    let limit = bytes("dirty_bytes", "dirty_ratio")?;
    let background = bytes("dirty_background_bytes", "dirty_background_ratio")?;
    Some(limit.midpoint(background.min(limit)))
}

/// The big file.
#[derive(Debug)]
struct Big {
    file: Arc<dyn File>,
    pages: u64,
    push: Option<(u64, SyncMethod)>,
    payload: AlignedBuf,
    seed: u64,
}

impl Big {
    /// Written in order, a page at a time, and synced.
    fn prepare(
        file: Arc<dyn File>,
        bytes: u64,
        push: Option<(u64, SyncMethod)>,
        seed: u64,
        cancel: &AtomicBool,
        progress: &dyn Fn(),
    ) -> Result<Self> {
        let mut payload = AlignedBuf::zeroed(payload_len(PAGE), file.alignment());
        noise(&mut payload, seed);
        let mut byte_offset = 0;
        while byte_offset < bytes {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let until = bytes.min(byte_offset + PIECE_BYTES);
            while byte_offset < until {
                file.write_at(&payload, byte_offset)?;
                byte_offset += PAGE;
            }
            file.sync(SyncMethod::ORDINARY)?;
            progress();
        }
        Ok(Self { file, pages: bytes / PAGE, push, payload, seed })
    }

    /// Writes random pages until told to stop. Returns MiB for each second.
    fn torture(&self, block: u64, stop: &AtomicBool) -> plimsoll_sync::Result<f64> {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed.wrapping_add(block));
        let started = Instant::now();
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            let page = rng.random_range(0..self.pages);
            self.file.write_at(&self.payload, page * PAGE)?;
            written += 1;
            if let Some((_, method)) = self.push.filter(|(pages, _)| written % pages == 0) {
                self.file.sync(method)?;
            }
        }
        Ok(units::ratio(written * PAGE, MIB) / started.elapsed().as_secs_f64())
    }
}

/// Tells a thread to stop, also when this one panics: the scope of both would wait for ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An arm.
#[derive(Debug)]
struct Stall<'a> {
    spec: Spec,
    plan: Plan,
    promise: Promise,
    file: Arc<dyn File>,
    payload: AlignedBuf,
    big: &'a Big,
    cancel: &'a AtomicBool,
    history: Vec<Trace>,
}

/// What happened in a block.
#[derive(Debug, Default)]
struct Trace {
    /// What was dirty when it began.
    dirty_at_start: Option<DirtyPages>,
    /// Start of each operation since the start of the block, its write, its sync.
    operations: Vec<(Duration, Duration, Duration)>,
    /// What was dirty after each.
    dirty: Vec<(Duration, DirtyPages)>,
    writer_mib_s: Option<f64>,
    length: Duration,
}

impl<'a> Stall<'a> {
    fn create(
        setup: &Setup<'_>,
        spec: Spec,
        plan: Plan,
        big: &'a Big,
        number: usize,
        cancel: &'a AtomicBool,
    ) -> plimsoll_sync::Result<Self> {
        let file = setup.dir.create(&format!("writeback-stall-{number}"), Access::default())?;
        let mut payload = AlignedBuf::zeroed(payload_len(spec.write_bytes), file.alignment());
        noise(&mut payload, setup.seed);
        file.write_at(&payload, 0)?;
        let promise = file.sync(SyncMethod::ORDINARY)?;
        Ok(Self { spec, plan, promise, file, payload, big, cancel, history: Vec::new() })
    }

    /// Overwrites and syncs at the rate, until the block is over.
    fn measure(&self, block: &mut Block, trace: &mut Trace) -> plimsoll_sync::Result<()> {
        let started = Instant::now();
        // The first block is thrown away: it need not take a minute.
        let first = self.history.is_empty();
        let until = started + if first { 3 * self.plan.write_every } else { block.time() };
        // One period later, when the random writer is at work.
        let mut pace = Pace::new(started + self.plan.write_every, self.plan.write_every);
        loop {
            if pace.wait() >= until || self.cancel.load(Ordering::Relaxed) {
                return Ok(());
            }
            let start = Instant::now();
            self.file.write_at(&self.payload, 0)?;
            let written = Instant::now();
            self.file.sync(SyncMethod::ORDINARY)?;
            let end = Instant::now();
            let (write, sync) = (written - start, end - written);
            block.durable_operations += 1;
            block.samples[WRITE].push(nanoseconds(write));
            block.samples[SYNC].push(nanoseconds(sync));
            trace.operations.push((start - started, write, sync));
            trace.dirty.extend(DirtyPages::now().map(|dirty| (end - started, dirty)));
            if !block.sample(end - start, end) {
                return Ok(());
            }
        }
    }

    fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        let identity = Identity {
            name: self.spec.name(),
            method: SyncMethod::ORDINARY,
            layout: Layout::Overwritten,
            promise: self.promise,
            payload_bytes: self.spec.write_bytes,
            measures: &MEASURES,
        };
        // Beside the random writer only the flushes are ours.
        let bytes = if self.spec.torture { 0 } else { self.spec.write_bytes };
        let asked = |operations| Some(Asked::new(self.promise, operations, bytes));
        let mut arm = identity.result(blocks, asked, setup);
        let history = &self.history[self.history.len() - blocks.len()..];
        if !self.spec.torture {
            arm.warnings.extend(restless(history));
        }
        ArmResult {
            values: values(history),
            // Starts are due at fixed times: the loop is not closed.
            attribution: None,
            series: Some(series(history, self.plan.write_every)),
            ..arm
        }
    }
}

impl Arm for Stall<'_> {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        wait_until_calm(self.plan.calm, self.cancel);
        Ok(())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let mut trace = Trace { dirty_at_start: DirtyPages::now(), ..Trace::default() };
        let number = self.history.len() as u64;
        let stop = AtomicBool::new(false);
        let started = Instant::now();
        let (measured, tortured) = thread::scope(|scope| {
            let writer = self.spec.torture.then(|| scope.spawn(|| self.big.torture(number, &stop)));
            let measured = {
                let _stop = StopOnDrop(&stop);
                self.measure(block, &mut trace)
            };
            let join = |writer: thread::ScopedJoinHandle<'_, _>| {
                writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            (measured, writer.map(join))
        });
        measured?;
        trace.writer_mib_s = tortured.transpose()?;
        trace.length = started.elapsed();
        self.history.push(trace);
        Ok(())
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        if self.spec.torture {
            self.big.file.sync(SyncMethod::ORDINARY)?;
        }
        Ok(())
    }
}

fn payload_len(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a write is small")
}

/// Waits until little is dirty, but not for ever: nothing of ours is, and others may write on.
#[expect(clippy::disallowed_methods, reason = "nobody tells when pages are written: one must look")]
fn wait_until_calm(at_most: Duration, cancel: &AtomicBool) {
    let until = Instant::now() + at_most;
    while DirtyPages::now().is_some_and(|dirty| dirty.sum_bytes() > CALM_BYTES)
        && Instant::now() < until
        && !cancel.load(Ordering::Relaxed)
    {
        thread::sleep(LOOK_EVERY);
    }
}

/// What others had dirty when blocks of the control began.
fn restless(history: &[Trace]) -> Option<Warning> {
    let most =
        history.iter().filter_map(|trace| trace.dirty_at_start).map(|dirty| dirty.sum_bytes());
    let most = most.max().filter(|&bytes| bytes > CALM_BYTES)?;
    let text = format!(
        "{} were dirty when a quiet block began: somebody else writes, and the control is not quiet; \
         stop them and measure again",
        units::bytes(most)
    );
    Some(Warning::new(Kind::OthersWrote, text))
}

fn values(history: &[Trace]) -> BTreeMap<String, f64> {
    let mut rates: Vec<f64> = history.iter().filter_map(|trace| trace.writer_mib_s).collect();
    rates.sort_by(f64::total_cmp);
    let dirty = history.iter().flat_map(|trace| &trace.dirty);
    let most = |bytes: fn(&DirtyPages) -> u64| {
        dirty.clone().map(|(_, dirty)| bytes(dirty)).max().map(|bytes| units::ratio(bytes, MIB))
    };
    let values = [
        ("writer_mib_s", rates.get(rates.len() / 2).copied()),
        ("dirty_mib_max", most(|dirty| dirty.dirty_bytes)),
        ("writeback_mib_max", most(|dirty| dirty.writeback_bytes)),
    ];
    let known = |(name, value): (&str, Option<f64>)| Some((name.to_owned(), value?));
    values.into_iter().filter_map(known).collect()
}

/// Every write and sync, and what was dirty, with pauses between blocks left out.
fn series(history: &[Trace], bucket: Duration) -> Series {
    let millis = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
    let micros = |at: Duration| u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
    let bucket_ms = millis(bucket).max(1);
    let mut series = Series { bucket_ms, ..Series::default() };
    let mut base = Duration::ZERO;
    for trace in history {
        for &(at, write, sync) in &trace.operations {
            let (at_ms, ns) = (millis(base + at) / bucket_ms * bucket_ms, nanoseconds(write));
            // Writes that a stall delayed share a bucket: the slowest stays.
            match series.writes.last_mut().filter(|last| last.0 == at_ms) {
                Some(last) => last.1 = last.1.max(ns),
                None => series.writes.push((at_ms, ns, false)),
            }
            series.syncs.push((micros(base + at + write), nanoseconds(sync), false));
        }
        for &(at, DirtyPages { dirty_bytes, writeback_bytes }) in &trace.dirty {
            series.dirty.push((millis(base + at), dirty_bytes, writeback_bytes));
        }
        base += trace.length;
    }
    series
}

fn answer(
    specs: &[Spec],
    arms: &[ArmResult],
    held_up_from: Option<u64>,
) -> (Vec<String>, Option<Claim>) {
    let find = |torture: bool, write_bytes: u64| {
        let spec = Spec { torture, write_bytes };
        let arm = &arms[specs.iter().position(|&s| s == spec)?];
        Some(arm).filter(|arm| arm.valid && arm.summaries[0].n > 0)
    };
    let pairs: Vec<(&ArmResult, &ArmResult)> =
        WRITE_BYTES.iter().filter_map(|&bytes| find(false, bytes).zip(find(true, bytes))).collect();
    let mut answer: Vec<String> =
        pairs.iter().filter_map(|(quiet, torture)| beside(quiet, torture)).collect();
    let dirty = arms.iter().filter_map(|arm| arm.values.get("dirty_mib_max")).copied();
    let dirty_mib = dirty.reduce(f64::max);
    let from_mib = held_up_from.map(|bytes| units::ratio(bytes, MIB));
    let reached = dirty_mib.zip(from_mib).map(|(dirty, from)| dirty >= from);
    if let (Some(dirty), Some(from), Some(reached)) = (dirty_mib, from_mib, reached) {
        let so = if reached {
            "so they were"
        } else {
            "so what stalled the article's write cannot show in this run"
        };
        answer.push(format!(
            "Up to {dirty:.0} MiB were dirty; the kernel holds writers up from about {from:.0} MiB on, \
             {so}."
        ));
    }
    let claim = claim(&pairs, reached);
    answer.extend(claim.as_ref().map(Claim::in_words));
    (answer, claim)
}

/// `4 KiB: beside random writes at 210 MiB/s the write takes …`
fn beside(quiet: &ArmResult, torture: &ArmResult) -> Option<String> {
    let part = |number: usize| {
        let (quiet, torture) = (&quiet.summaries[number], &torture.summaries[number]);
        let (quiet_ns, ns) = (middle(quiet)?, middle(torture)?);
        let same = match torture.differs_from(quiet) {
            Some(false) => ", no difference seen",
            Some(true) | None => "",
        };
        Some(format!(
            "{} (alone {}{same}), at most {} (alone {})",
            units::time(ns),
            units::time(quiet_ns),
            units::time(torture.max_ns?),
            units::time(quiet.max_ns?)
        ))
    };
    let rate = torture
        .values
        .get("writer_mib_s")
        .map_or_else(String::new, |rate| format!(" at {} MiB/s", units::figure(*rate)));
    Some(format!(
        "{}: beside random writes{rate} a write takes {}; its sync {}.",
        units::bytes(torture.payload_bytes),
        part(WRITE)?,
        part(SYNC)?
    ))
}

/// The article's claim, and what was found here. `reached`: whether enough was dirty for it to show.
fn claim(pairs: &[(&ArmResult, &ArmResult)], reached: Option<bool>) -> Option<Claim> {
    let slowest = |number: usize| {
        pairs.iter().filter_map(|(_, torture)| torture.summaries[number].max_ns).max()
    };
    let (write_ns, sync_ns) = (slowest(WRITE)?, slowest(SYNC)?);
    let writes: usize = pairs.iter().map(|(_, torture)| torture.summaries[WRITE].n).sum();
    let (verdict, dirty) = if write_ns >= nanoseconds(LONG_STALL) {
        (Holds::Holds, "")
    } else if write_ns >= nanoseconds(STALL) {
        (Holds::InPart, "")
    } else if reached == Some(false) {
        (Holds::Undecided, ", with less dirty than what makes the kernel hold writers up")
    } else {
        (Holds::DoesNotHold, "")
    };
    let waiting = |(quiet, torture): &(&ArmResult, &ArmResult)| {
        let (quiet, torture) = (&quiet.summaries[SYNC], &torture.summaries[SYNC]);
        let factor = units::ratio(middle(torture)?, middle(quiet)?);
        (factor >= WAITS && torture.differs_from(quiet) != Some(false)).then_some(factor)
    };
    let syncs = match pairs.iter().filter_map(waiting).reduce(f64::max) {
        Some(factor) if write_ns < nanoseconds(STALL) => {
            format!(
                ", what waits is the sync, {} times as long at the median",
                units::figure(factor)
            )
        }
        Some(factor) => format!(", syncs take up to {} times as long", units::figure(factor)),
        None => String::new(),
    };
    // The arms with the random writer always wait for a CPU; the control says whether it is busy.
    let noisy = |(quiet, _): &(&ArmResult, &ArmResult)| {
        quiet.warnings.iter().any(|warning| warning.kind == Kind::Noisy)
    };
    let but = if pairs.iter().any(noisy) {
        "; but the machine was busy, also for the control: measure again on a quiet one"
    } else {
        ""
    };
    let here = format!(
        "the slowest of {writes} writes took {}{dirty}, the slowest sync {}{syncs}{but}",
        units::time(write_ns),
        units::time(sync_ns)
    );
    let claim = "small writes stall behind random writeback (128.9 s for one, xfs in 2011)";
    Some(Claim { article: 2, claim: claim.to_owned(), claimed_ns: None, here, verdict })
}

/// The median of blocks: there may be too few samples for one of samples.
fn middle(summary: &Summary) -> Option<u64> {
    let blocks = &summary.block_p50_ns;
    summary.p50_ns.or_else(|| (!blocks.is_empty()).then(|| stats::quantile(blocks, 0.5)))
}

#[cfg(test)]
mod tests {
    use plimsoll_sync::{Dir, OsDir};

    use super::*;
    use crate::result::Machine;

    #[test]
    fn the_big_file_is_small_where_memory_or_the_disk_is() {
        let quick = plan(Profile::Quick);
        let gib = 1024 * MIB;
        assert_eq!(file_bytes(quick, Some(24 * gib), Some(70 * gib)), 256 * MIB);
        assert_eq!(file_bytes(quick, Some(gib), Some(70 * gib)), 128 * MIB);
        assert_eq!(file_bytes(quick, Some(24 * gib), Some(100 * MIB + 5)), 12 * MIB);
        assert_eq!(file_bytes(quick, None, Some(0)), MIB);
        assert_eq!(file_bytes(quick, None, None), 256 * MIB);
        assert_eq!(file_bytes(plan(Profile::Article), Some(gib), None), 8 * gib);
    }

    #[test]
    fn writers_are_held_up_midway_between_the_kernels_limits() {
        let limits = |limits: &[&str]| limits.iter().map(|&l| l.to_owned()).collect::<Vec<_>>();
        let ratios = limits(&[
            "dirty_background_bytes=0",
            "dirty_background_ratio=10",
            "dirty_bytes=0",
            "dirty_ratio=20",
        ]);
        assert_eq!(held_up_from(&ratios, Some(100 * MIB)), Some(15 * MIB));
        assert_eq!(held_up_from(&ratios, None), None);
        let bytes = limits(&["dirty_bytes=4000", "dirty_background_bytes=2000"]);
        assert_eq!(held_up_from(&bytes, None), Some(3000));
        assert_eq!(held_up_from(&[], Some(MIB)), None);
        assert_eq!(held_up_from(&limits(&["dirty_ratio=x"]), Some(MIB)), None);
    }

    fn trace(operations: &[(u64, u64, u64)], rate: Option<f64>, dirty_mib: u64) -> Trace {
        let ms = Duration::from_millis;
        let dirty = DirtyPages { dirty_bytes: dirty_mib * MIB, writeback_bytes: MIB };
        Trace {
            dirty_at_start: Some(dirty),
            operations: operations.iter().map(|&(at, w, s)| (ms(at), ms(w), ms(s))).collect(),
            dirty: vec![(ms(5), dirty)],
            writer_mib_s: rate,
            length: ms(100),
        }
    }

    #[test]
    fn the_series_runs_on_from_block_to_block_and_keeps_the_slowest_write_of_a_bucket() {
        let history =
            [trace(&[(10, 25, 1), (36, 2, 1), (38, 1, 1)], None, 3), trace(&[(10, 1, 4)], None, 9)];
        let series = series(&history, Duration::from_millis(20));
        let ms = 1_000_000;
        assert_eq!(series.writes, [(0, 25 * ms, false), (20, 2 * ms, false), (100, ms, false)]);
        let syncs = [(35_000, ms), (38_000, ms), (39_000, ms), (111_000, 4 * ms)];
        assert_eq!(series.syncs, syncs.map(|(at, ns)| (at, ns, false)));
        assert_eq!(series.dirty, [(5, 3 * MIB, MIB), (105, 9 * MIB, MIB)]);
    }

    #[test]
    fn the_writers_rate_and_the_most_that_was_dirty_are_told() {
        let rates = [Some(100.0), Some(900.0), Some(200.0)];
        let history = rates.map(|rate| trace(&[], rate, 7));
        let values = values(&history);
        assert_eq!(values["writer_mib_s"], 200.0);
        assert_eq!((values["dirty_mib_max"], values["writeback_mib_max"]), (7.0, 1.0));
        assert!(!super::values(&[trace(&[], None, 7)]).contains_key("writer_mib_s"));
    }

    #[test]
    fn a_control_beside_somebody_elses_dirty_pages_is_not_quiet() {
        assert!(restless(&[trace(&[], None, 60)]).is_none());
        let warning = restless(&[trace(&[], None, 60), trace(&[], None, 500)]).unwrap();
        assert!(warning.text.contains("501 MiB"), "{warning}");
    }

    #[test]
    fn preparing_the_big_file_notices_that_it_should_stop() {
        let tmp = tempfile::tempdir().unwrap();
        let file = OsDir::open(tmp.path()).unwrap().create("big", Access::default()).unwrap();
        let cancel = AtomicBool::new(false);
        let told = std::cell::Cell::new(0);
        let progress = || {
            told.set(told.get() + 1);
            cancel.store(true, Ordering::Relaxed);
        };
        let bytes = 8 * 1024 * MIB;
        let prepared = Big::prepare(Arc::clone(&file), bytes, None, 1, &cancel, &progress);
        assert!(matches!(prepared, Err(Error::Interrupted)));
        assert_eq!((told.get(), file.len().unwrap()), (1, PIECE_BYTES));
    }

    /// An arm whose writes and syncs take so long, at the median and at most.
    fn arm(spec: Spec, write_ns: (u64, u64), sync_ns: (u64, u64), dirty_mib: f64) -> ArmResult {
        let summary = |(p50, max): (u64, u64)| Summary {
            n: 100,
            p50_ns: Some(p50),
            max_ns: Some(max),
            block_p50_ns: (0..10).map(|block| p50 + block).collect(),
            ..Summary::default()
        };
        let values = [("writer_mib_s", 200.0), ("dirty_mib_max", dirty_mib)];
        ArmResult {
            name: spec.name(),
            method: "fsync".to_owned(),
            layout: "overwritten".to_owned(),
            promise: Promise::Media.name().to_owned(),
            payload_bytes: spec.write_bytes,
            blocks: 10,
            durable_operations: 100,
            valid: true,
            summaries: [sync_ns, write_ns, sync_ns].map(summary).into(),
            per_operation: None,
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
            machine: Machine::default(),
            attribution: None,
            series: None,
            warnings: Vec::new(),
        }
    }

    fn answer_of(write_max_ns: u64, sync_ns: u64, dirty_mib: f64) -> String {
        let specs = [false, true].map(|torture| Spec { torture, write_bytes: PAGE });
        let quiet = arm(specs[0], (2_000, 9_000), (50_000, 90_000), 1.0);
        let torture = arm(specs[1], (2_000, write_max_ns), (sync_ns, 80_000_000), dirty_mib);
        answer(&specs, &[quiet, torture], Some(3000 * MIB)).0.join("\n")
    }

    #[test]
    fn writes_that_do_not_stall_beside_syncs_that_do_are_told_apart() {
        let answer = answer_of(700_000, 4_000_000, 3500.0);
        assert!(answer.contains("does not hold here"), "{answer}");
        assert!(answer.contains("what waits is the sync, 80 times as long"), "{answer}");
        assert!(answer.contains("alone 2.00 µs, no difference seen"), "{answer}");
        assert!(answer.contains("at 200 MiB/s"), "{answer}");
    }

    #[test]
    fn a_stall_of_seconds_is_the_articles() {
        let answer = answer_of(128_930_500_000, 2_600_000_000, 3500.0);
        assert!(answer.contains("here the slowest of 100 writes took 129 s"), "{answer}");
        assert!(answer.ends_with(": holds here."), "{answer}");
        assert!(answer_of(200_000_000, 50_000, 3500.0).contains("holds here in part"));
    }

    #[test]
    fn what_could_not_show_is_not_said_to_be_absent() {
        let answer = answer_of(700_000, 60_000, 300.0);
        assert!(answer.contains("cannot show in this run"), "{answer}");
        assert!(
            answer.contains("not decided here") && !answer.contains("does not hold"),
            "{answer}"
        );
        assert!(!answer.contains("what waits is the sync"), "{answer}");
    }
}
