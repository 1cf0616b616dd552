//! The experiment: what it asks, what it costs, and how a run goes.

use std::time::Duration;

use plimsoll_sync::finest_timer;

use super::answer::{answer, article, in_short};
use super::plan::{Rival, all_rivals, arm_name, rates};
use super::race::{self, Contest, Race, Target};
use super::values::{Found, usual_ns};
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::Layout;
use crate::least::OneBlock;
use crate::runner::{self, Rule, Size, Watch};
use crate::stats;

/// The experiment.
#[derive(Debug)]
pub(crate) struct WriteDuringSync;

impl Experiment for WriteDuringSync {
    fn name(&self) -> &'static str {
        "write-during-sync"
    }

    fn question(&self) -> &'static str {
        "Does write(2) wait for a sync of the same file in another thread?"
    }

    fn source(&self) -> &'static str {
        "\"fsync() on a different thread: apparently a useless trick\""
    }

    fn explanation(&self) -> &'static str {
        "\
One thread writes at a fixed rate (4 KiB, 4,000 times a second; in the article's profile 1 byte ten
times a second). Another syncs every 20 ms (article: every second): the same file through the same
descriptor or another one, or another file to which as much is written. Every write is then sorted
by whether a sync was in flight while it ran:

  free        no sync was in flight
  in flight   a sync was, at some moment of the write
  held        syncs during which a write took 10 times the usual, and 100 us or more

The writer does not wait for slow writes: starts are due at fixed times, and the measure 'write,
from intended start' in the result file counts from there.

Layouts: append grows the file, overwritten writes the same blocks again. Where a write waits, it
waits for the journal, which a growing file needs much more.

'~' stands for no difference seen between writes with and without a sync in flight (Mann-Whitney
over blocks, 5 %).

How it can mislead: a disk with fast writes hides what a disk with slow ones shows; a busy machine
delays writes with no sync in sight, which the control arm 'no sync' shows."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 20,
            Profile::Full => 360,
            Profile::Article => 200,
        };
        let rates = rates(profile);
        let two = |(rival, _): &(Rival, Layout)| 1 + u64::from(rival.target == Target::OtherFile);
        let files: u64 = all_rivals(profile).iter().map(two).sum();
        let disk_bytes = files * rates.records() * rates.write_bytes.max(1);
        let arms = all_rivals(profile).len();
        let bytes = rates.records() * rates.write_bytes;
        let block = OneBlock { time: rates.block, syncs: 3, bytes };
        Cost::new(Duration::from_secs(seconds), disk_bytes, arms, block)
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        all_rivals(profile).iter().map(|(rival, layout)| arm_name(rival, *layout)).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let rates = rates(setup.profile);
        let rivals = rivals(setup);
        let race = |(number, &(rival, layout)): (usize, &(Rival, Layout))| {
            let Rival { target, syncs, .. } = rival;
            let contest = Contest { target, syncs, layout, rates };
            Race::create(setup.dir, &format!("{}-{number}", self.name()), contest, setup.seed)
        };
        let mut arms: Vec<Race> =
            rivals.iter().enumerate().map(race).collect::<plimsoll_sync::Result<_>>()?;
        let size = Size { operations: rates.writes(), time: rates.block };
        let rule = Rule {
            budget: setup.budget_left(),
            blocks_min: stats::BLOCKS_TO_COMPARE,
            // The question is about the tail, and every block makes it better known.
            precision: 0.0,
            samples: None,
            seed: setup.seed,
        };
        finest_timer();
        let blocks_of_arms =
            runner::run(&mut arms, race::MEASURES.len(), size, &rule, setup.counters, watch)?;
        let found: Vec<Found> = rivals
            .iter()
            .zip(arms.iter().zip(&blocks_of_arms))
            .map(|(&(rival, layout), (race, blocks))| {
                let outcome = race.outcome(blocks, usual_ns(&rivals, &blocks_of_arms, layout));
                Found::of(rival, layout, outcome, blocks.len(), setup)
            })
            .collect();
        let claim = article(&found.iter().filter(|found| found.arm.valid).collect::<Vec<_>>());
        let (answer, in_short) = (answer(&found, claim.as_ref()), in_short(&found));
        let parameters = vec![
            format!("write_bytes={}", rates.write_bytes),
            format!("write_every_us={}", rates.write_every.as_micros()),
            format!("sync_every_ms={}", rates.sync_every.as_millis()),
            format!("block_ms={}", rates.block.as_millis()),
        ];
        let arms = found.into_iter().map(|found| found.arm).collect();
        let claims = claim.into_iter().collect();
        Ok(Measured { parameters, answer, in_short, claims, arms, unavailable: Vec::new() })
    }
}

/// The arms that are wanted and can run here.
fn rivals(setup: &Setup<'_>) -> Vec<(Rival, Layout)> {
    let can = |rival: &Rival| rival.syncs.iter().all(|&method| setup.works(method));
    all_rivals(setup.profile)
        .into_iter()
        .filter(|(rival, layout)| can(rival) && setup.wants(&arm_name(rival, *layout)))
        .collect()
}
