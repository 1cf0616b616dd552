//! A writer at a fixed rate, and a syncer beside it: two threads, one file or two.
//!
//! While the race runs, every write and every sync is kept as a span of time. Which writes
//! overlapped a sync is sorted out afterwards ([`super::overlap`]), so that between two writes
//! there are only two readings of the clock.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_sync::{AlignedBuf, Dir, File, SyncMethod, finest_timer};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::overlap::{self, Span};
use crate::arm_result::Series;
use crate::counters::{Elapsed, nanoseconds};
use crate::layout::{LaidOut, Layout, noise};
use crate::pace::Pace;
use crate::runner::{Arm, Block};
use crate::summary::Summary;

/// What a race measures, in the order of a block's lists.
pub(super) const MEASURES: [&str; 4] =
    ["write, no sync in flight", "write, sync in flight", "sync", "write, from intended start"];
/// The list of writes with no sync in flight.
pub(super) const FREE: usize = 0;
/// The list of writes with a sync in flight.
pub(super) const OVERLAPPED: usize = 1;
/// The list of syncs.
pub(super) const SYNC: usize = 2;
const FROM_INTENDED_START: usize = 3;

/// A write was held up if it took at least so long, and so many times as long as usual.
const HELD_MIN: Duration = Duration::from_micros(100);
const HELD_TIMES: u32 = 10;

/// The width of a bucket of the saved series, and the most buckets.
const BUCKET: Duration = Duration::from_millis(10);
const SERIES_MAX: usize = 20_000;

/// How fast to write and to sync.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// Bytes of a write.
    pub(super) write_bytes: u64,
    /// Time from one start to the next.
    pub(super) write_every: Duration,
    /// Time from one sync to the next.
    pub(super) sync_every: Duration,
    /// Time of a block.
    pub(super) block: Duration,
}

impl Rates {
    /// How many writes a block has. A write that is late starts at once, so a stall changes
    /// nothing.
    #[must_use]
    pub(super) fn writes(&self) -> usize {
        let writes = self.block.as_nanos() / self.write_every.as_nanos() + 1;
        usize::try_from(writes).expect("a block is short")
    }

    /// How many records a file has: four blocks of them, so that a growing file has grown when it
    /// is measured.
    #[must_use]
    pub(super) fn records(&self) -> u64 {
        4 * self.writes() as u64
    }

    /// How many writes there are between two syncs.
    fn writes_between(&self) -> usize {
        let between = self.sync_every.as_nanos() / self.write_every.as_nanos();
        usize::try_from(between).expect("a block is short")
    }
}

/// What is synced while the writer writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Nothing: the control.
    Nothing,
    /// The writer's file, through the writer's descriptor.
    SameDescriptor,
    /// The writer's file, through another descriptor, as the article does.
    OtherDescriptor,
    /// Another file, to which as much is written between two syncs.
    OtherFile,
    /// Every write is synced by itself, with `O_SYNC`.
    EveryWrite,
}

/// What a race is between.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contest {
    /// What is synced.
    pub(super) target: Target,
    /// The calls of one sync, in order.
    pub(super) syncs: &'static [SyncMethod],
    /// How the files are laid out.
    pub(super) layout: Layout,
    /// How fast.
    pub(super) rates: Rates,
}

/// A writer and a syncer, block after block.
#[derive(Debug)]
pub(super) struct Race {
    contest: Contest,
    writer: LaidOut,
    payload: AlignedBuf,
    /// What the syncer syncs.
    synced: Option<Arc<dyn File>>,
    other: Option<LaidOut>,
    /// Draws how long after its due time a sync starts, up to the time between two writes. In step
    /// with the writes, each sync would meet only the write that starts with it.
    phase: Pcg64Mcg,
    history: Vec<Trace>,
}

/// What happened in a block, before writes are sorted by whether they met a sync.
#[derive(Debug)]
struct Trace {
    started: Instant,
    writes: Vec<Span>,
    syncs: Vec<Span>,
}

/// What the writes and the syncs of a race did to each other.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// How many writes met a sync in flight.
    pub(super) overlapped: usize,
    /// One for each of [`MEASURES`].
    pub(super) summaries: Vec<Summary>,
    /// How many syncs there were.
    pub(super) syncs: usize,
    /// How many syncs held a write up: it took ten times the usual, and 100 µs or more.
    pub(super) held: usize,
    /// How many writes took so long, with a sync in flight or without.
    pub(super) slow_writes: usize,
    /// All writes and syncs over time.
    pub(super) series: Series,
    /// What the kernel counted.
    pub(super) elapsed: Elapsed,
    /// Syncs, or writes that synced themselves.
    pub(super) durable_operations: u64,
}

impl Race {
    /// Creates the files of a race, whose names begin with `name`. They are not laid out yet.
    pub(super) fn create(
        dir: &dyn Dir,
        name: &str,
        contest: Contest,
        seed: u64,
    ) -> plimsoll_sync::Result<Self> {
        let Contest { target, layout, rates, .. } = contest;
        let method = match target {
            Target::EveryWrite => SyncMethod::OSync,
            _ => SyncMethod::None,
        };
        let create = |name: &str| {
            LaidOut::create(dir, name, method, layout, rates.write_bytes, rates.records())
        };
        let writer = create(name)?;
        let mut other = None;
        let synced = match target {
            Target::Nothing | Target::EveryWrite => None,
            Target::SameDescriptor => Some(Arc::clone(writer.file())),
            Target::OtherDescriptor => Some(dir.open(name, method.access())?),
            Target::OtherFile => {
                let file = other.insert(create(&format!("{name}-other"))?);
                Some(Arc::clone(file.file()))
            }
        };
        let len = usize::try_from(rates.write_bytes).expect("writes are small");
        let mut payload = AlignedBuf::zeroed(len, writer.file().alignment());
        noise(&mut payload, seed);
        let phase = Pcg64Mcg::seed_from_u64(seed);
        Ok(Self { contest, writer, payload, synced, other, phase, history: Vec::new() })
    }

    /// The outcome of `blocks`, the last ones that were run. `usual_ns` is how long a write takes
    /// when nobody syncs. The race itself cannot tell: if syncs never pause, no write is free, and
    /// its median would make every delay look usual.
    #[must_use]
    pub(super) fn outcome(&self, blocks: &[Block], usual_ns: u64) -> Outcome {
        let history = &self.history[self.history.len() - blocks.len()..];
        let summaries: Vec<Summary> = MEASURES
            .iter()
            .enumerate()
            .map(|(number, measure)| Summary::of(measure, blocks, number))
            .collect();
        let slow = HELD_MIN.max(Duration::from_nanos(usual_ns) * HELD_TIMES);
        let held: Vec<Vec<bool>> =
            history.iter().map(|trace| overlap::held(&trace.writes, &trace.syncs, slow)).collect();
        let writes = history.iter().flat_map(|trace| &trace.writes);
        Outcome {
            overlapped: summaries[OVERLAPPED].n,
            summaries,
            syncs: held.iter().map(Vec::len).sum(),
            held: held.iter().flatten().filter(|&&held| held).count(),
            slow_writes: writes.filter(|write| write.duration() >= slow).count(),
            series: series(history, &held),
            elapsed: Elapsed::sum(blocks.iter().map(|block| &block.elapsed)),
            durable_operations: blocks.iter().map(|block| block.durable_operations).sum(),
        }
    }
}

impl Arm for Race {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        let writes = self.contest.rates.writes() as u64;
        self.writer.prepare(writes)?;
        self.other.as_mut().map_or(Ok(()), |other| other.prepare(writes))
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let started = Instant::now();
        let until = started + self.contest.rates.block;
        let Self { contest, writer, payload, synced, other, phase, .. } = self;
        let Contest { target, syncs: calls, rates, .. } = *contest;
        let (mut writes, mut due) = (Vec::with_capacity(rates.writes()), Vec::new());
        let syncs = thread::scope(|scope| {
            let syncer = synced.as_ref().map(|file| {
                scope.spawn(|| {
                    finest_timer();
                    sync_at_rate(file, calls, other.as_mut(), payload, rates, started, phase)
                })
            });
            let written = write_at_rate(writer, payload, target, rates, started, until);
            let synced = syncer.map_or_else(
                || Ok(Vec::new()),
                |syncer| syncer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
            (writes, due) = written?;
            synced
        })?;
        block.durable_operations = match target {
            Target::EveryWrite => writes.len() as u64,
            _ => syncs.len() as u64,
        };
        for (write, overlapped) in writes.iter().zip(overlap::overlapped(&writes, &syncs)) {
            let list = if overlapped.is_some() { OVERLAPPED } else { FREE };
            block.samples[list].push(nanoseconds(write.duration()));
        }
        block.samples[SYNC] = syncs.iter().map(|sync| nanoseconds(sync.duration())).collect();
        block.samples[FROM_INTENDED_START] = due;
        self.history.push(Trace { started, writes, syncs });
        Ok(())
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        self.writer.file().sync(SyncMethod::ORDINARY)?;
        match &self.other {
            Some(other) => other.file().sync(SyncMethod::ORDINARY).map(|_kept| ()),
            None => Ok(()),
        }
    }
}

/// Writes at the rate until the block is over. Returns the writes, and their times from their
/// intended starts in nanoseconds.
fn write_at_rate(
    file: &mut LaidOut,
    payload: &[u8],
    target: Target,
    rates: Rates,
    started: Instant,
    until: Instant,
) -> plimsoll_sync::Result<(Vec<Span>, Vec<u64>)> {
    let mut pace = Pace::new(started, rates.write_every);
    let mut writes = Vec::with_capacity(rates.writes());
    let mut due = Vec::with_capacity(rates.writes());
    let handle = Arc::clone(file.file());
    loop {
        let intended = pace.wait();
        if intended >= until {
            return Ok((writes, due));
        }
        let byte_offset = file.advance();
        let start = Instant::now();
        if target == Target::EveryWrite {
            handle.write_sync_at(payload, byte_offset, SyncMethod::OSync)?;
        } else {
            handle.write_at(payload, byte_offset)?;
        }
        let end = Instant::now();
        writes.push(Span { start, end });
        due.push(nanoseconds(end.saturating_duration_since(intended)));
    }
}

/// Syncs at the rate until the block is over: no sync is due after its end. Writes to another file
/// come before a sync, and its time does not include them.
fn sync_at_rate(
    file: &Arc<dyn File>,
    methods: &[SyncMethod],
    mut other: Option<&mut LaidOut>,
    payload: &[u8],
    rates: Rates,
    started: Instant,
    phase: &mut Pcg64Mcg,
) -> plimsoll_sync::Result<Vec<Span>> {
    let until = started + rates.block;
    let mut pace = Pace::new(started + rates.sync_every, rates.sync_every);
    let mut left = rates.writes();
    let mut syncs = Vec::new();
    loop {
        let intended = pace.wait();
        if intended >= until {
            return Ok(syncs);
        }
        let later = phase.random_range(0..nanoseconds(rates.write_every).max(1));
        Pace::new(intended + Duration::from_nanos(later), Duration::ZERO).wait();
        if let Some(other) = other.as_deref_mut() {
            let writes = rates.writes_between().min(left);
            left -= writes;
            for _ in 0..writes {
                let byte_offset = other.advance();
                file.write_at(payload, byte_offset)?;
            }
        }
        let start = Instant::now();
        for &method in methods {
            file.sync(method)?;
        }
        syncs.push(Span { start, end: Instant::now() });
    }
}

/// The slowest write of each bucket, and every sync, with pauses between blocks left out.
fn series(history: &[Trace], held: &[Vec<bool>]) -> Series {
    let bucket_ms = u64::try_from(BUCKET.as_millis()).expect("a bucket is short");
    let mut series = Series { bucket_ms, ..Series::default() };
    let mut base = Duration::ZERO;
    for (trace, held) in history.iter().zip(held) {
        let at = |span: &Span| base + span.start.saturating_duration_since(trace.started);
        let in_flight = overlap::overlapped(&trace.writes, &trace.syncs);
        for (write, in_flight) in trace.writes.iter().zip(&in_flight) {
            let bucket = at(write).as_nanos() / BUCKET.as_nanos();
            let at_ms = u64::try_from(bucket).unwrap_or(u64::MAX).saturating_mul(bucket_ms);
            let (ns, in_flight) = (nanoseconds(write.duration()), in_flight.is_some());
            match series.writes.last_mut() {
                Some(last) if last.0 == at_ms && last.1 >= ns => {}
                Some(last) if last.0 == at_ms => *last = (at_ms, ns, in_flight),
                _ => series.writes.push((at_ms, ns, in_flight)),
            }
        }
        for (sync, &held) in trace.syncs.iter().zip(held) {
            let at_us = u64::try_from(at(sync).as_micros()).unwrap_or(u64::MAX);
            series.syncs.push((at_us, nanoseconds(sync.duration()), held));
        }
        base += trace.writes.last().map_or(Duration::ZERO, |write| write.end - trace.started);
    }
    series.writes.truncate(SERIES_MAX);
    series.syncs.truncate(SERIES_MAX);
    series
}

#[cfg(test)]
mod tests {
    use plimsoll_sync::OsDir;

    use super::*;
    use crate::counters::Counters;
    use crate::runner::{self, Rule, Size, Watch};

    /// Writes and syncs once started in step, so that a sync met only the write that began with it,
    /// and its middle and its end were never seen.
    #[test]
    fn syncs_start_anywhere_between_two_writes() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = OsDir::open(tmp.path()).unwrap();
        let ms = Duration::from_millis;
        let rates =
            Rates { write_bytes: 64, write_every: ms(4), sync_every: ms(8), block: ms(200) };
        let target = Target::SameDescriptor;
        let syncs: &[SyncMethod] = &[SyncMethod::ORDINARY];
        let contest = Contest { target, syncs, layout: Layout::Append, rates };
        let mut races = [Race::create(&dir, "race", contest, 1).unwrap()];
        let size = Size { operations: rates.writes(), time: rates.block };
        let budget = Duration::ZERO;
        let rule = Rule { budget, blocks_min: 1, precision: 0.0, samples: None, seed: 1 };
        let cancel = std::sync::atomic::AtomicBool::new(false);
        let watch = Watch { cancel: &cancel, progress: &|_| {} };
        let counters = Counters::new(Vec::new());
        let blocks = runner::run(&mut races, MEASURES.len(), size, &rule, &counters, &watch);
        let outcome = races[0].outcome(&blocks.unwrap()[0], 1_000);
        assert!(outcome.syncs > 5, "{}", outcome.syncs);
        let trace = races[0].history.last().unwrap();
        let phases: Vec<u128> = trace
            .syncs
            .iter()
            .map(|sync| sync.start.duration_since(trace.started).as_micros() % 4000 / 1000)
            .collect();
        let (first, last) = (phases.iter().min(), phases.iter().max());
        assert!(last > first, "all syncs start in the same quarter: {phases:?}");
    }
}
