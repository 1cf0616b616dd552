//! The experiment: what it asks, what it costs, and how a run goes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_sync::{Access, Dir, SyncMethod, finest_timer};

use super::answer::{answer, in_short};
use super::arm::Stall;
use super::big_file::BigFile;
use super::plan::{MEASURES, MIB, PAGE, SmallWrite, WRITE_BYTES, file_bytes, plan, small_writes};
use super::values::{held_up_from, take_our_own_noise};
use crate::arm_result::ArmResult;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::least::OneBlock;
use crate::runner::{self, Progress, Rule, Watch};
use crate::stats;

/// The experiment.
#[derive(Debug)]
pub(crate) struct WritebackStall;

impl Experiment for WritebackStall {
    fn name(&self) -> &'static str {
        "writeback-stall"
    }

    fn question(&self) -> &'static str {
        "What happens to small durable writes under heavy random writeback?"
    }

    fn source(&self) -> &'static str {
        "\"buffered writeback torture program\" (fsync-tester)"
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
waits for those (run_queue_share in the result). That is no busy machine: whether others use it, the
quiet arms tell, which are measured between the others. Starts are due at fixed times, so a stall is
followed by the writes that it delayed. In the article's profile the two arms are a minute each, one
after the other: they are not compared block by block, and whether the random writer or somebody else
kept the machine busy is not told. With much memory 8 GiB may not reach the limits either."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 10,
            Profile::Full => 120,
            Profile::Article => 180,
        };
        let plan = plan(profile);
        let disk_bytes = plan.file_bytes + 2 * WRITE_BYTES.iter().sum::<u64>();
        // The first block, which is thrown away, is short.
        let block = (plan.size.time + 3 * plan.write_every) / 2 + plan.calm;
        let arms = small_writes(profile).len();
        // What the random writer leaves to be drained.
        let block = OneBlock { time: block, syncs: 3, bytes: 8 * MIB };
        Cost::new(Duration::from_secs(seconds), disk_bytes, arms, block)
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        small_writes(profile).into_iter().map(SmallWrite::name).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let plan = plan(setup.profile);
        let small_writes: Vec<SmallWrite> = small_writes(setup.profile)
            .into_iter()
            .filter(|write| setup.wants(&write.name()))
            .collect();
        let Environment { memory_kib, free_bytes, .. } = *setup.environment;
        let memory_bytes = memory_kib.map(|kib| kib.saturating_mul(1024));
        let file_bytes = file_bytes(plan, memory_bytes, free_bytes);
        let push = plan.push_pages.map(|pages| (pages, push_method(setup)));
        let tortured = small_writes.iter().any(|write| write.torture);
        let progress = || (watch.progress)(Progress::Preparing);
        let file = setup.dir.create("writeback-stall-big", Access::default())?;
        let bytes = if tortured { file_bytes } else { 0 };
        let big = BigFile::prepare(file, bytes, push, setup.seed, watch.cancel, &progress)?;
        finest_timer();
        let create = |(number, &write): (usize, &SmallWrite)| {
            Stall::create(setup, write, plan, &big, number, watch.cancel)
        };
        let mut arms: Vec<Stall<'_>> =
            small_writes.iter().enumerate().map(create).collect::<plimsoll_sync::Result<_>>()?;
        let rule = Rule {
            budget: setup.budget_left(),
            blocks_min: stats::BLOCKS_TO_COMPARE,
            // The question is about the tail, and every block makes it better known.
            precision: 0.0,
            samples: (setup.profile == Profile::Article).then_some(plan.size.operations),
            seed: setup.seed,
        };
        let blocks =
            runner::run(&mut arms, MEASURES.len(), plan.size, &rule, setup.counters, watch)?;
        // A block that was cut short does not count.
        if watch.cancel.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let mut arms: Vec<ArmResult> =
            arms.iter().zip(&blocks).map(|(arm, blocks)| arm.result(blocks, setup)).collect();
        take_our_own_noise(setup.profile, &small_writes, &mut arms);
        let held_up_from = held_up_from(&setup.environment.dirty_limits, memory_bytes);
        let mut parameters = vec![
            format!("file_bytes={file_bytes}"),
            format!("write_every_ms={}", plan.write_every.as_millis()),
            format!("block_ms={}", plan.size.time.as_millis()),
        ];
        if let Some((pages, method)) = push {
            parameters.push(format!("written_back_every_bytes={} ({method})", pages * PAGE));
        }
        let (answer, claim) = answer(&small_writes, &arms, held_up_from);
        let (in_short, claims) = (in_short(&small_writes, &arms), claim.into_iter().collect());
        Ok(Measured { parameters, answer, in_short, claims, arms, unavailable: Vec::new() })
    }
}

/// The call that writes back without emptying the device's cache, or else an ordinary sync.
fn push_method(setup: &Setup<'_>) -> SyncMethod {
    let method = SyncMethod::SyncFileRange;
    if setup.works(method) { method } else { SyncMethod::ORDINARY }
}
