//! The experiment: what it asks, what it costs, and how a run goes.

use std::time::Duration;

use super::answer::{answer, in_short};
use super::arm::Group;
use super::plan::{FULL, METHOD, RECORD_BYTES, RECORDS, Syncs, arm_name, block_time, widths};
use crate::arm_result::ArmResult;
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::least::OneBlock;
use crate::runner::{self, Rule, Size, Watch};

/// The experiment.
#[derive(Debug)]
pub(crate) struct GroupCommit;

impl Experiment for GroupCommit {
    fn name(&self) -> &'static str {
        "group-commit"
    }

    fn question(&self) -> &'static str {
        "How many durable records per second with K writers sharing one sync?"
    }

    fn source(&self) -> &'static str {
        "group commit (DeWitt et al., SIGMOD 1984); no article measures it"
    }

    fn explanation(&self) -> &'static str {
        "\
K threads make records of 200 bytes durable, each waiting for its own before the next.

  private  each writes into its own part of the file and syncs through its own descriptor
  shared   whoever comes first writes and syncs for all that wait; those who come meanwhile are
           taken along by the next (group commit)

One file whose blocks are written already, fdatasync (the ordinary sync where there is none). The columns: records per
second, and records per sync, which is how wide the groups became.

How to read it: while shared syncs gain with every doubling of K, the sync is what limits; where the
gain ends, CPU or wake-ups do. The width that reaches 90 % of the most is the one to aim for.

How it can mislead: 256 threads on few CPUs wait for a CPU too; a kernel merges the flushes of private
syncs, so they gain as well."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 8,
            Profile::Full => 90,
            Profile::Article => 30,
        };
        let files = 2 * FULL.len() as u64;
        let disk_bytes = files * RECORDS * RECORD_BYTES as u64;
        let arms = 2 * widths(profile).len();
        let block = OneBlock { time: block_time(profile), syncs: 2, bytes: 0 };
        Cost::new(Duration::from_secs(seconds), disk_bytes, arms, block)
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        let both = |&writers: &usize| {
            [Syncs::Private, Syncs::Shared].map(|syncs| arm_name(syncs, writers))
        };
        widths(profile).iter().flat_map(both).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let mut arms = Vec::new();
        for (number, &writers) in widths(setup.profile).iter().enumerate() {
            watch.check()?;
            for syncs in [Syncs::Private, Syncs::Shared] {
                if setup.wants(&arm_name(syncs, writers)) {
                    arms.push(Group::create(setup, syncs, writers, number)?);
                }
            }
        }
        let time = block_time(setup.profile);
        let size = Size { operations: usize::MAX, time };
        let rule = Rule {
            budget: setup.budget_left(),
            blocks_min: 8,
            precision: 0.02,
            samples: None,
            seed: setup.seed,
        };
        let blocks = runner::run(&mut arms, 1, size, &rule, setup.counters, watch)?;
        let arms: Vec<ArmResult> =
            arms.iter().zip(&blocks).map(|(arm, blocks)| arm.result(blocks, setup)).collect();
        let parameters = vec![
            format!("record_bytes={RECORD_BYTES}"),
            format!("method={METHOD}"),
            format!("block_ms={}", time.as_millis()),
        ];
        let (answer, in_short) = (answer(&arms), in_short(&arms));
        Ok(Measured { parameters, answer, in_short, arms, ..Measured::default() })
    }
}
