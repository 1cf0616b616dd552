//! The experiment: what it asks, what it costs, and how a run goes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_sync::SyncMethod;

use super::answer::{answer, in_short};
use super::arm::TrialWriter;
use super::plan::{MEASURES, Schedule, WRITE_BYTES, When, schedules, trial};
use super::values::{mark_knees, median};
use crate::arm_result::ArmResult;
use crate::error::{Error, Result};
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::least::OneBlock;
use crate::result::Unavailable;
use crate::runner::{self, Rule, Size, Watch};

/// The experiment.
#[derive(Debug)]
pub(crate) struct SyncInterval;

/// How many trials the article runs.
const ARTICLE_TRIALS: usize = 20;

impl Experiment for SyncInterval {
    fn name(&self) -> &'static str {
        "sync-interval"
    }

    fn question(&self) -> &'static str {
        "How much may stay unsynced before it costs you, and how little before it costs you more?"
    }

    fn source(&self) -> &'static str {
        "\"Wait Before You Sync\""
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
trials, 5 %). An interval with too few trials to judge is never the knee. Where what it looks at was
measured on a busy machine, or where a long interval costs twice what a shorter one costs, there is
no knee and no verdict: it is not known.

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
        // Only one trial runs at a time, and its file is emptied when it ends.
        let trial = trial(profile);
        let arms = schedules(trial.bytes).len();
        // Long intervals outlast the time of a trial.
        let block = OneBlock { time: trial.time, syncs: 3, bytes: trial.bytes / 8 };
        Cost::new(Duration::from_secs(seconds), trial.bytes, arms, block)
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        schedules(trial(profile).bytes).into_iter().map(Schedule::name).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let trial = trial(setup.profile);
        let method = method(setup);
        let schedules: Vec<Schedule> = schedules(trial.bytes)
            .into_iter()
            .filter(|schedule| setup.wants(&schedule.name()))
            .collect();
        let create = |(number, &schedule): (usize, &Schedule)| {
            TrialWriter::create(setup, schedule, method, trial, number, watch.cancel)
        };
        let mut arms: Vec<TrialWriter<'_>> =
            schedules.iter().enumerate().map(create).collect::<plimsoll_sync::Result<_>>()?;
        let size = Size { operations: 1, time: trial.time };
        let blocks =
            runner::run(&mut arms, MEASURES.len(), size, &rule(setup), setup.counters, watch)?;
        // A trial that was cut short does not count.
        if watch.cancel.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let end = schedules.iter().position(|schedule| schedule.when == When::End);
        let end = end.map(|end| runner::block_medians(&blocks[end], 0)).unwrap_or_default();
        let mut arms: Vec<ArmResult> = arms
            .iter()
            .zip(&blocks)
            .map(|(arm, blocks)| arm.result(blocks, median(&end), setup))
            .collect();
        mark_knees(&schedules, &mut arms);
        let parameters = vec![
            format!("trial_bytes={}", trial.bytes),
            format!("trial_ms={}", trial.time.as_millis()),
            format!("write_bytes={WRITE_BYTES}"),
            format!("method={method}"),
        ];
        let (answer, claim) = answer(&schedules, &arms, trial);
        let in_short = in_short(&schedules, &arms);
        let (claims, unavailable) = (claim.into_iter().collect(), stood_in_for(setup, method));
        Ok(Measured { parameters, answer, in_short, claims, arms, unavailable })
    }
}

/// The article's call as unavailable, if something else stands in for it.
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
    Rule { budget: setup.budget_left(), blocks_min: 20, precision, samples, seed: setup.seed }
}
