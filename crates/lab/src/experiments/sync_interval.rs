//! How much may stay unsynced before it costs you, and how little before it costs you more?
//!
//! Source: article 4 ("Wait Before You Sync"): 1 GiB of 4 KiB writes, with an fdatasync never, once at
//! the end, or every 100 MiB down to every 16 KiB; the median of twenty trials. On its drive a sync
//! every 1 MiB costs 4.8 times one sync at the end, and the article draws a line at 10 MiB.
//!
//! The line is the drive's: it lies where a sync costs as much as writing what it covers. So it is
//! measured here, with what lies on the other side of the bargain beside it: how many bytes, and for
//! how long, a power cut may take.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_sync::{AlignedBuf, Dir, File, Promise, SyncMethod};

use crate::arm::Identity;
use crate::claim::{Claim, Holds};
use crate::counters::nanoseconds;
use crate::error::{Error, Result};
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::{Layout, noise};
use crate::result::{ArmResult, Unavailable};
use crate::runner::{self, Arm, Block, Rule, Size, Watch};
use crate::stats;
use crate::summary::Summary;
use crate::units;
use crate::verdict::Asked;
use crate::warning::Kind;

/// The experiment.
#[derive(Debug)]
pub(super) struct SyncInterval;

/// What is measured, in the order of a block's lists. A block is one trial.
const MEASURES: [&str; 3] = ["time for 1 MiB", "time at risk", "sync"];
const AT_RISK: usize = 1;
const SYNC: usize = 2;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes of a write.
const WRITE_BYTES: u64 = 4 * KIB;
/// The article's intervals, and the one below them. Largest first.
const INTERVALS: [u64; 10] = [
    100 * MIB,
    10 * MIB,
    MIB,
    512 * KIB,
    256 * KIB,
    128 * KIB,
    64 * KIB,
    32 * KIB,
    16 * KIB,
    4 * KIB,
];
/// The article's trials.
const ARTICLE_TRIALS: usize = 20;
/// Its factors over one sync at the end, for an interval beyond its line and for its smallest one.
const ARTICLE_FACTORS: [(u64, f64); 2] = [(MIB, 4.8), (16 * KIB, 169.0)];

/// From this factor on, syncing tanks performance: half of the time is spent on it.
const TANKS: f64 = 2.0;

/// How much a trial writes, and when a costly one ends early.
#[derive(Debug, Clone, Copy)]
struct Trial {
    bytes: u64,
    time: Duration,
}

const fn trial(profile: Profile) -> Trial {
    let ms = Duration::from_millis;
    match profile {
        Profile::Quick => Trial { bytes: 20 * MIB, time: ms(20) },
        Profile::Full => Trial { bytes: 200 * MIB, time: ms(250) },
        Profile::Article => Trial { bytes: 1024 * MIB, time: ms(3000) },
    }
}

/// When to sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Never,
    End,
    Every(u64),
}

/// Which thread syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The one that writes, which waits.
    Writer,
    /// Another one, at most one interval behind.
    Background,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spec {
    when: When,
    place: Place,
}

impl Spec {
    /// `never`, `end`, `10MiB/writer`, `10MiB/background`.
    fn name(self) -> String {
        let place = match self.place {
            Place::Writer => "writer",
            Place::Background => "background",
        };
        match self.when {
            When::Never => "never".to_owned(),
            When::End => "end".to_owned(),
            When::Every(bytes) => format!("{}/{place}", units::bytes(bytes).replace(' ', "")),
        }
    }

    /// Bytes that one sync covers, of a trial of so many.
    fn batch_bytes(self, trial_bytes: u64) -> u64 {
        match self.when {
            When::Never | When::End => trial_bytes,
            When::Every(bytes) => bytes,
        }
    }

    /// Most bytes that a power cut can take: in the background one interval is being synced while
    /// the next is being written.
    fn at_risk_bytes(self, trial_bytes: u64) -> u64 {
        match (self.when, self.place) {
            (When::Every(bytes), Place::Background) => 2 * bytes,
            _ => self.batch_bytes(trial_bytes),
        }
    }
}

impl Experiment for SyncInterval {
    fn name(&self) -> &'static str {
        "sync-interval"
    }

    fn question(&self) -> &'static str {
        "How much may stay unsynced before it costs you, and how little before it costs you more?"
    }

    fn source(&self) -> &'static str {
        "article 4, \"Wait Before You Sync\""
    }

    fn explanation(&self) -> &'static str {
        "\
A trial writes a growing file in pieces of 4 KiB, as fast as it can, and syncs it never, once at the
end, or every so many bytes. Every trial but 'never' ends with everything synced. The time of a trial
is scaled to 1 MiB. The thread that syncs is the one that writes, or another one:

  writer      the writer syncs, and waits
  background  the writer hands each interval over and goes on; it waits only if the interval before
              is not synced yet, so that no more than two intervals are ever unsynced

  at risk bytes   most that a power cut can take; for 'end' and 'never' the whole trial
  at risk ms      from the first write of an interval until its sync has returned, at the median: so
                  long a byte may stay unsynced when writing as fast as this. Not said of 'never':
                  that is up to the kernel (on Linux about 30 s, or less where much is dirty)
  cost over end   time of a trial over that of a trial with one sync at the end
  trial mib       what a trial wrote, at the median. Trials with costly syncs end early, by time
                  (parameter trial_ms), and are scaled up from what they wrote

The answer names the knee: the fewest bytes at risk that cost under 10 %. It looks from large
intervals to small ones and stops at the first that is dearer by 10 % and differs (Mann-Whitney over
trials, 5 %). An interval with too few trials to judge is never the knee.

Flushes are counted: each sync must empty the device's cache, and 'never' must not.

How it can mislead: each sync wakes a thread up, so a machine without a free CPU makes short
intervals look far dearer than the disk does. Layout matters as much as the interval: the file grows
here as in the article, and over written blocks a sync costs about half (sync-cost). A writer with
pauses pays less, because the background has time to catch up. Quick trials are short (20 MiB) and
never meet the kernel's limits for dirty pages or a drive's full cache; the profile 'article' writes
1 GiB. 'At risk' counts what a power cut may take; a crash of the process takes nothing that was
written."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 15,
            Profile::Full => 120,
            Profile::Article => 300,
        };
        // One trial at a time: its file is emptied when it ends.
        Cost { budget: Duration::from_secs(seconds), disk_bytes: trial(profile).bytes }
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        specs(trial(profile).bytes).into_iter().map(Spec::name).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let trial = trial(setup.profile);
        let method = method(setup);
        let specs: Vec<Spec> =
            specs(trial.bytes).into_iter().filter(|spec| setup.wants(&spec.name())).collect();
        let create = |(number, &spec): (usize, &Spec)| {
            Writer::create(setup, spec, method, trial, number, watch.cancel)
        };
        let mut arms: Vec<Writer<'_>> =
            specs.iter().enumerate().map(create).collect::<plimsoll_sync::Result<_>>()?;
        let size = Size { operations: 1, time: trial.time };
        let blocks =
            runner::run(&mut arms, MEASURES.len(), size, &rule(setup), setup.counters, watch)?;
        // A trial that was cut short is no trial.
        if watch.cancel.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let end = specs.iter().position(|spec| spec.when == When::End);
        let end = end.map(|end| runner::block_medians(&blocks[end], 0)).unwrap_or_default();
        let mut arms: Vec<ArmResult> = arms
            .iter()
            .zip(&blocks)
            .map(|(arm, blocks)| arm.result(blocks, median(&end), setup))
            .collect();
        mark_knees(&specs, &mut arms);
        let parameters = vec![
            format!("trial_bytes={}", trial.bytes),
            format!("trial_ms={}", trial.time.as_millis()),
            format!("write_bytes={WRITE_BYTES}"),
            format!("method={method}"),
        ];
        let (answer, claim) = answer(&specs, &arms, trial);
        let (claims, unavailable) = (claim.into_iter().collect(), stood_in_for(setup, method));
        Ok(Measured { parameters, answer, claims, arms, unavailable })
    }
}

/// The article's call, where something else stands in for it.
fn stood_in_for(setup: &Setup<'_>, method: SyncMethod) -> Vec<Unavailable> {
    let asked = SyncMethod::Fdatasync;
    let stood_in_for = |u: &Unavailable| method != asked && u.name == asked.name();
    setup.unavailable().into_iter().filter(stood_in_for).collect()
}

/// The article's call, or the strongest that stands in for it.
fn method(setup: &Setup<'_>) -> SyncMethod {
    [SyncMethod::Fdatasync, SyncMethod::FullFsync]
        .into_iter()
        .find(|&method| setup.works(method))
        .unwrap_or(SyncMethod::ORDINARY)
}

fn rule(setup: &Setup<'_>) -> Rule {
    let (precision, samples) = match setup.profile {
        Profile::Quick => (0.02, None),
        Profile::Full => (0.01, None),
        Profile::Article => (0.0, Some(ARTICLE_TRIALS)),
    };
    // A trial is one sample, and twenty of them carry a median.
    Rule { budget: setup.budget, blocks_min: 20, precision, samples, seed: setup.seed }
}

/// The arms of trials of so many bytes: an interval as long as a trial is a sync at its end.
fn specs(trial_bytes: u64) -> Vec<Spec> {
    let place = Place::Writer;
    let mut specs = vec![Spec { when: When::Never, place }, Spec { when: When::End, place }];
    for place in [Place::Writer, Place::Background] {
        let intervals = INTERVALS.into_iter().filter(|&bytes| bytes < trial_bytes);
        specs.extend(intervals.map(|bytes| Spec { when: When::Every(bytes), place }));
    }
    specs
}

/// An arm.
struct Writer<'a> {
    spec: Spec,
    method: SyncMethod,
    promise: Promise,
    trial: Trial,
    file: Arc<dyn File>,
    payload: AlignedBuf,
    cancel: &'a AtomicBool,
    /// Bytes of each trial.
    written: Vec<u64>,
}

/// One sync of a trial.
struct Synced {
    /// From the first write that it covers until it returned.
    at_risk: Duration,
    time: Duration,
}

impl<'a> Writer<'a> {
    fn create(
        setup: &Setup<'_>,
        spec: Spec,
        method: SyncMethod,
        trial: Trial,
        number: usize,
        cancel: &'a AtomicBool,
    ) -> plimsoll_sync::Result<Self> {
        let file = setup.dir.create(&format!("sync-interval-{number}"), method.access())?;
        let len = usize::try_from(WRITE_BYTES).expect("a page is small");
        let mut payload = AlignedBuf::zeroed(len, file.alignment());
        noise(&mut payload, setup.seed);
        let promise = match spec.when {
            When::Never => Promise::Nothing,
            When::End | When::Every(_) => file.sync(method)?,
        };
        Ok(Self { spec, method, promise, trial, file, payload, cancel, written: Vec::new() })
    }

    /// Writes a trial, and calls `sync` after each interval with the time of its first write.
    /// Returns the bytes written.
    fn write(&self, mut sync: impl FnMut(Instant) -> plimsoll_sync::Result<()>) -> Written {
        let Trial { bytes, time } = self.trial;
        let batch_bytes = self.spec.batch_bytes(bytes);
        let started = Instant::now();
        let mut written = 0;
        loop {
            let first = Instant::now();
            let until = bytes.min(written + batch_bytes);
            while written < until {
                self.file.write_at(&self.payload, written)?;
                written += WRITE_BYTES;
                if self.cancel.load(Ordering::Relaxed) {
                    return Ok(written);
                }
            }
            sync(first)?;
            if written == bytes || started.elapsed() >= time {
                return Ok(written);
            }
        }
    }

    fn sync(&self, first: Instant) -> plimsoll_sync::Result<Synced> {
        let start = Instant::now();
        self.file.sync(self.method)?;
        let end = Instant::now();
        Ok(Synced { at_risk: end - first, time: end - start })
    }

    fn write_and_sync(&self, syncs: &mut Vec<Synced>) -> Written {
        self.write(|first| {
            syncs.push(self.sync(first)?);
            Ok(())
        })
    }

    /// As above, with the syncs in another thread. Handing over waits for that thread to be free.
    fn write_beside_syncs(&self, syncs: &mut Vec<Synced>) -> Written {
        thread::scope(|scope| {
            let (hand_over, batches) = mpsc::sync_channel(0);
            let syncer = scope.spawn(|| {
                batches.into_iter().try_for_each(|first| {
                    syncs.push(self.sync(first)?);
                    Ok(())
                })
            });
            let written = self.write(|first| {
                // If the syncer is gone a sync has failed: the file takes no more writes, and the
                // failure is reported below.
                hand_over.send(first).ok();
                Ok(())
            });
            drop(hand_over);
            syncer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            written
        })
    }

    fn result(&self, blocks: &[Block], end_ns: Option<u64>, setup: &Setup<'_>) -> ArmResult {
        let synced = self.spec.when != When::Never;
        let identity = Identity {
            name: self.spec.name(),
            method: if synced { self.method } else { SyncMethod::None },
            layout: Layout::Append,
            promise: self.promise,
            payload_bytes: WRITE_BYTES,
            measures: &MEASURES,
        };
        let mut written = self.written[self.written.len() - blocks.len()..].to_vec();
        let bytes: u64 = written.iter().sum();
        let asked =
            |operations: u64| Some(Asked::new(self.promise, operations, bytes / operations.max(1)));
        let arm = identity.result(blocks, asked, setup);
        written.sort_unstable();
        let values = self.values(&arm.summaries, median(&written), end_ns);
        // Beside another thread, the time of this one says little.
        let attribution = arm.attribution.filter(|_| self.spec.place == Place::Writer);
        ArmResult { values, attribution, ..arm }
    }

    fn values(
        &self,
        summaries: &[Summary],
        written: Option<u64>,
        end_ns: Option<u64>,
    ) -> BTreeMap<String, f64> {
        let ns = median(&summaries[0].block_p50_ns);
        let at_risk_ns = median(&summaries[AT_RISK].block_p50_ns);
        let values = [
            ("at_risk_bytes", Some(units::ratio(self.spec.at_risk_bytes(self.trial.bytes), 1))),
            ("at_risk_ms", at_risk_ns.map(|ns| units::ratio(ns, 1_000_000))),
            ("throughput_mib_s", ns.map(|ns| units::ratio(1_000_000_000, ns))),
            ("cost_over_end", ns.zip(end_ns).map(|(ns, end_ns)| units::ratio(ns, end_ns))),
            ("trial_mib", written.map(|bytes| units::ratio(bytes, MIB))),
        ];
        let known = |(name, value): (&str, Option<f64>)| Some((name.to_owned(), value?));
        values.into_iter().filter_map(known).collect()
    }
}

type Written = plimsoll_sync::Result<u64>;

impl Arm for Writer<'_> {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        Ok(())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let mut syncs = Vec::new();
        let start = Instant::now();
        let written = match (self.spec.when, self.spec.place) {
            (When::Never, _) => self.write(|_first| Ok(())),
            (_, Place::Writer) => self.write_and_sync(&mut syncs),
            (_, Place::Background) => self.write_beside_syncs(&mut syncs),
        }?;
        let end = Instant::now();
        // A trial that syncs nothing is one operation that asked for nothing.
        block.durable_operations = (syncs.len() as u64).max(1);
        block.samples[AT_RISK] = syncs.iter().map(|sync| nanoseconds(sync.at_risk)).collect();
        block.samples[SYNC] = syncs.iter().map(|sync| nanoseconds(sync.time)).collect();
        block.sample(per_mib(end - start, written), end);
        self.written.push(written);
        Ok(())
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        self.file.truncate(0)?;
        self.file.sync(SyncMethod::ORDINARY).map(|_kept| ())
    }
}

/// The time of 1 MiB, of a trial that wrote `written` bytes in `time`.
fn per_mib(time: Duration, written: u64) -> Duration {
    let ns = time.as_nanos() * u128::from(MIB) / u128::from(written.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

fn median(sorted: &[u64]) -> Option<u64> {
    (!sorted.is_empty()).then(|| stats::quantile(sorted, 0.5))
}

/// What an interval costs beside one sync at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Price {
    /// Under 10 % more.
    Cheap,
    /// 10 % more or worse, and the trials differ.
    Dear,
    /// More, but the trials do not say so; or there are too few of them.
    Unclear,
}

/// Of sorted times of trials: with one sync at the end, and with this interval.
fn price(end: &[u64], interval: &[u64]) -> Price {
    let (Some(end_ns), Some(ns)) = (median(end), median(interval)) else {
        return Price::Unclear;
    };
    let cheap = u128::from(ns) * 10 < u128::from(end_ns) * 11;
    match (cheap, stats::differ(end, interval)) {
        (true, Some(_)) => Price::Cheap,
        (false, Some(true)) => Price::Dear,
        (false, Some(false)) | (_, None) => Price::Unclear,
    }
}

/// The place in `sweep`, largest interval first, of the smallest interval that is cheap, with no dear
/// one among those above it: one cheap trial behind dear ones would be luck.
fn knee(end: &[u64], sweep: &[&[u64]]) -> Option<usize> {
    let prices = sweep.iter().map(|interval| price(end, interval));
    let before_dear = prices.enumerate().take_while(|&(_, price)| price != Price::Dear);
    before_dear.filter(|&(_, price)| price == Price::Cheap).map(|(place, _)| place).last()
}

/// Tells programs which arm is the knee of its place: it has a value `is_knee`.
fn mark_knees(specs: &[Spec], arms: &mut [ArmResult]) {
    let end = specs.iter().position(|spec| spec.when == When::End).filter(|&end| arms[end].valid);
    let Some(end) = end.map(|end| blocks(&arms[end]).to_vec()) else {
        return;
    };
    for place in [Place::Writer, Place::Background] {
        let of_place = |&arm: &usize| {
            let interval = matches!(specs[arm].when, When::Every(_)) && specs[arm].place == place;
            interval && arms[arm].valid
        };
        let sweep: Vec<usize> = (0..arms.len()).filter(of_place).collect();
        let trials: Vec<&[u64]> = sweep.iter().map(|&arm| blocks(&arms[arm])).collect();
        if let Some(knee) = knee(&end, &trials) {
            arms[sweep[knee]].values.insert("is_knee".to_owned(), 1.0);
        }
    }
}

fn answer(specs: &[Spec], arms: &[ArmResult], trial: Trial) -> (Vec<String>, Option<Claim>) {
    let all: Vec<(Spec, &ArmResult)> =
        specs.iter().copied().zip(arms).filter(|(_, arm)| arm.valid).collect();
    let find = |when: When| all.iter().find(|(spec, _)| spec.when == when).map(|(_, arm)| *arm);
    let Some(end) = find(When::End) else {
        return (Vec::new(), None);
    };
    let sweep = |place: Place| -> Vec<(u64, &ArmResult)> {
        let interval = |&(spec, arm): &(Spec, _)| match spec.when {
            When::Every(bytes) if spec.place == place => Some((bytes, arm)),
            _ => None,
        };
        all.iter().filter_map(interval).collect()
    };
    let (writer, background) = (sweep(Place::Writer), sweep(Place::Background));
    let mut answer = Vec::new();
    answer.extend(knee_in_words(Place::Writer, end, &writer));
    answer.extend(knee_in_words(Place::Background, end, &background));
    let speed = |arm: &ArmResult| arm.values.get("throughput_mib_s").copied();
    if let Some((end, never)) = speed(end).zip(find(When::Never).and_then(speed)) {
        answer.push(format!(
            "Writing {} with one sync at the end runs at {end:.0} MiB/s, with none at {never:.0} MiB/s.",
            units::bytes(trial.bytes)
        ));
    }
    let claim = claim(end, &writer);
    answer.extend(claim.as_ref().map(Claim::in_words));
    (answer, claim)
}

/// `Syncing every 64 KiB in the writing thread costs under 10 % …`
fn knee_in_words(thread: Place, end: &ArmResult, sweep: &[(u64, &ArmResult)]) -> Option<String> {
    let end_blocks = blocks(end);
    let place = match thread {
        Place::Writer => "in the writing thread",
        Place::Background => "in a background thread",
    };
    if sweep.is_empty() {
        return None;
    }
    if sweep.iter().all(|(_, arm)| stats::differ(end_blocks, blocks(arm)).is_none()) {
        let fewest = stats::BLOCKS_TO_COMPARE;
        return Some(format!(
            "Too few trials ({fewest} are needed) to name an interval {place}: give it more time \
             (--budget)."
        ));
    }
    let trials: Vec<&[u64]> = sweep.iter().map(|(_, arm)| blocks(arm)).collect();
    let Some(knee) = knee(end_blocks, &trials) else {
        let (bytes, arm) = sweep.first()?;
        return Some(format!(
            "Every interval {place} costs 10 % or more over one sync at the end; the longest one, \
             {}, costs {:.2} times that.",
            units::bytes(*bytes),
            factor(arm)?
        ));
    };
    let (bytes, arm) = sweep[knee];
    let at_risk = Spec { when: When::Every(bytes), place: thread }.at_risk_bytes(bytes);
    let mut text = format!(
        "Syncing every {} {place} costs under 10 % ({:.2} times one sync at the end), with at most {} \
         at risk, for {} ms at the median",
        units::bytes(bytes),
        factor(arm)?,
        units::bytes(at_risk),
        units::figure(arm.values.get("at_risk_ms").copied()?),
    );
    let below =
        sweep[knee + 1..].iter().find(|(_, arm)| price(end_blocks, blocks(arm)) == Price::Dear);
    let smallest = sweep.last().filter(|(smallest, _)| below.is_some_and(|(b, _)| b != smallest));
    let costs = |&(bytes, arm): &(u64, &ArmResult)| {
        Some(format!("every {} {:.2} times", units::bytes(bytes), factor(arm)?))
    };
    let below: Vec<String> = [below, smallest].into_iter().flatten().filter_map(costs).collect();
    if !below.is_empty() {
        text += &format!("; below, it costs: {}", below.join(", "));
    }
    Some(text + ".")
}

/// The article's claim, what was found here, and how they compare.
fn claim(end: &ArmResult, writer: &[(u64, &ArmResult)]) -> Option<Claim> {
    let find = |bytes: u64| Some(writer.iter().find(|(b, _)| *b == bytes)?.1);
    let here = |bytes: u64| factor(find(bytes)?);
    let beyond = find(ARTICLE_FACTORS[0].0)?;
    let too_few = stats::differ(blocks(end), blocks(beyond)).is_none();
    let verdict = match factor(beyond)? {
        _ if too_few => Holds::Undecided,
        factor if factor >= TANKS => Holds::Holds,
        factor if factor < 1.1 => Holds::DoesNotHold,
        _ => Holds::InPart,
    };
    // Each sync wakes this thread up, so a thread that waits for a CPU makes syncs look dear.
    let busy = |arm: &ArmResult| arm.warnings.iter().any(|warning| warning.kind == Kind::Noisy);
    let but = if too_few {
        ", of too few trials to judge"
    } else if busy(end) || busy(beyond) {
        ", as far as a busy machine can tell; measure again on a quiet one"
    } else {
        ""
    };
    let beside = |(bytes, theirs): (u64, f64)| {
        let ours = here(bytes).map_or_else(|| "not measured".to_owned(), |f| format!("{f:.2}"));
        format!(
            "every {} costs {ours} times one sync at the end, there {theirs}",
            units::bytes(bytes)
        )
    };
    let tanks = writer.iter().find(|(_, arm)| factor(arm).is_some_and(|factor| factor >= TANKS));
    let tanks = tanks.map_or_else(
        || "no interval doubles the time".to_owned(),
        |(bytes, _)| format!("the time doubles at {}", units::bytes(*bytes)),
    );
    let claim = "syncing more often than every 10 MiB or so tanks performance".to_owned();
    let here = format!("{}, and {tanks}{but}", ARTICLE_FACTORS.map(beside).join(", "));
    Some(Claim { article: 4, claim, claimed_ns: None, here, verdict })
}

fn blocks(arm: &ArmResult) -> &[u64] {
    &arm.summaries[0].block_p50_ns
}

fn factor(arm: &ArmResult) -> Option<f64> {
    arm.values.get("cost_over_end").copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Machine;
    use crate::warning::Warning;

    /// Ten trials around a time.
    fn trials(ns: u64) -> Vec<u64> {
        (0..10).map(|n| ns - 5 + n).collect()
    }

    fn knee_of(end: u64, sweep: &[u64]) -> Option<usize> {
        let sweep: Vec<Vec<u64>> = sweep.iter().map(|&ns| trials(ns)).collect();
        let sweep: Vec<&[u64]> = sweep.iter().map(Vec::as_slice).collect();
        knee(&trials(end), &sweep)
    }

    #[test]
    fn the_knee_is_the_smallest_interval_that_costs_under_a_tenth() {
        assert_eq!(knee_of(1000, &[990, 1050, 1098, 1150, 4000]), Some(2));
        assert_eq!(knee_of(1000, &[1000, 1000]), Some(1));
        assert_eq!(knee_of(1000, &[1500, 3000]), None);
        assert_eq!(knee_of(1000, &[]), None);
    }

    #[test]
    fn a_cheap_interval_behind_a_dear_one_is_luck() {
        assert_eq!(knee_of(1000, &[1010, 1500, 1010]), Some(0));
        assert_eq!(knee_of(1000, &[1500, 1010]), None);
    }

    #[test]
    fn an_interval_is_dear_only_if_its_trials_say_so() {
        let wide: Vec<u64> = vec![500, 600, 900, 1000, 1150, 1200, 1300, 1400, 1500, 2000];
        let end: Vec<u64> = vec![500, 550, 900, 950, 1000, 1100, 1200, 1300, 1900, 2000];
        assert_eq!(price(&end, &wide), Price::Unclear);
        assert_eq!(price(&trials(1000), &trials(1050)), Price::Cheap);
        assert_eq!(price(&trials(1000), &trials(1200)), Price::Dear);
        // An unclear interval is no knee, and does not hide one.
        assert_eq!(knee(&end, &[&wide, &end]), Some(1));
        assert_eq!(knee(&end, &[&end, &wide]), Some(0));
    }

    #[test]
    fn too_few_trials_name_no_knee() {
        assert_eq!(price(&trials(1000)[..7], &trials(1000)[..7]), Price::Unclear);
        assert_eq!(knee(&trials(1000)[..7], &[&trials(1000)[..7]]), None);
        assert_eq!(price(&[], &[]), Price::Unclear);
    }

    #[test]
    fn an_interval_as_long_as_a_trial_is_a_sync_at_its_end() {
        let quick = specs(trial(Profile::Quick).bytes);
        let every = |bytes| Spec { when: When::Every(bytes), place: Place::Background };
        assert!(quick.contains(&every(10 * MIB)) && !quick.contains(&every(100 * MIB)));
        assert_eq!(specs(trial(Profile::Article).bytes).len(), 2 + 2 * INTERVALS.len());
        for profile in [Profile::Quick, Profile::Full, Profile::Article] {
            let bytes = trial(profile).bytes;
            assert!(bytes.is_multiple_of(WRITE_BYTES));
            assert!(INTERVALS.iter().all(|interval| interval.is_multiple_of(WRITE_BYTES)));
        }
    }

    #[test]
    fn in_the_background_two_intervals_are_at_risk() {
        let spec = |when, place| Spec { when, place };
        let every = When::Every(MIB);
        assert_eq!(spec(every, Place::Writer).at_risk_bytes(20 * MIB), MIB);
        assert_eq!(spec(every, Place::Background).at_risk_bytes(20 * MIB), 2 * MIB);
        assert_eq!(spec(When::End, Place::Writer).at_risk_bytes(20 * MIB), 20 * MIB);
    }

    #[test]
    fn a_trial_that_ended_early_is_scaled() {
        let ms = Duration::from_millis;
        assert_eq!(per_mib(ms(40), 2 * MIB), ms(20));
        assert_eq!(per_mib(ms(1), 4 * KIB), ms(256));
    }

    fn arm(spec: Spec, ns: u64, end_ns: u64) -> ArmResult {
        let summary = Summary { block_p50_ns: trials(ns), ..Summary::default() };
        let risk = units::ratio(spec.at_risk_bytes(20 * MIB), 1);
        let values = [
            ("at_risk_bytes", risk),
            ("at_risk_ms", 1.5),
            ("throughput_mib_s", units::ratio(1_000_000_000, ns)),
            ("cost_over_end", units::ratio(ns, end_ns)),
        ];
        ArmResult {
            name: spec.name(),
            method: "fdatasync".to_owned(),
            layout: "append".to_owned(),
            promise: Promise::Media.name().to_owned(),
            payload_bytes: WRITE_BYTES,
            blocks: 10,
            durable_operations: 10,
            valid: true,
            summaries: vec![summary; 3],
            per_operation: None,
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
            machine: Machine::default(),
            attribution: None,
            series: None,
            warnings: Vec::new(),
        }
    }

    /// The answer where a sync costs as much as writing so many bytes.
    fn answer_of(sync_costs_bytes: u64) -> String {
        let trial = trial(Profile::Quick);
        let specs = specs(trial.bytes);
        let cost = |spec: &Spec| match spec.when {
            When::Never => 300_000,
            When::End => 1_000_000,
            When::Every(bytes) => 1_000_000 + 1_000_000 * sync_costs_bytes / bytes,
        };
        let arms: Vec<_> = specs.iter().map(|spec| arm(*spec, cost(spec), 1_000_000)).collect();
        answer(&specs, &arms, trial).0.join("\n")
    }

    #[test]
    fn the_answer_names_the_knee_in_bytes_and_time_and_judges_the_claim() {
        let cheap_syncs = answer_of(8 * KIB);
        let knee = "every 128 KiB in the writing thread costs under 10 % (1.06 times one sync at the \
                    end), with at most 128 KiB at risk, for 1.50 ms at the median";
        assert!(cheap_syncs.contains(knee), "{cheap_syncs}");
        assert!(cheap_syncs.contains("every 64 KiB 1.12 times"), "{cheap_syncs}");
        assert!(cheap_syncs.contains("with at most 256 KiB"), "in the background: {cheap_syncs}");
        assert!(cheap_syncs.contains("does not hold here"), "{cheap_syncs}");
        assert!(cheap_syncs.contains("the time doubles at 4 KiB"), "{cheap_syncs}");
        let dear_syncs = answer_of(4 * MIB);
        assert!(dear_syncs.contains("Every interval"), "{dear_syncs}");
        assert!(dear_syncs.contains("here every 1 MiB costs 5.00 times"), "{dear_syncs}");
        assert!(dear_syncs.ends_with(": holds here."), "{dear_syncs}");
        assert!(answer_of(512 * KIB).contains("holds here in part"));
    }

    /// On a machine with no CPU to spare each sync once took a tick of 4 ms, and every 4 KiB cost 484
    /// times one sync at the end, where it costs 11 times when the machine is left in peace.
    #[test]
    fn a_busy_machine_or_too_few_trials_make_no_plain_verdict() {
        let trial = trial(Profile::Quick);
        let specs = specs(trial.bytes);
        let arms: Vec<_> = specs.iter().map(|spec| arm(*spec, 3_000_000, 1_000_000)).collect();
        let busy = |mut arm: ArmResult| {
            arm.warnings.push(Warning::new(Kind::Noisy, "waited 66 % of the time for a CPU"));
            arm
        };
        let noisy: Vec<_> = arms.iter().cloned().map(busy).collect();
        let said = answer(&specs, &noisy, trial).0.join("\n");
        assert!(said.contains("as far as a busy machine can tell"), "{said}");
        let few = |mut arm: ArmResult| {
            arm.summaries[0].block_p50_ns.truncate(7);
            arm
        };
        let few: Vec<_> = arms.into_iter().map(few).collect();
        let said = answer(&specs, &few, trial).0.join("\n");
        assert!(said.contains("too few trials to judge"), "{said}");
        assert!(!said.contains("as far as a busy machine"), "{said}");
    }
}
