//! The experiment: what it asks, what it costs, and how a run goes.

use std::time::Duration;

use plimsoll_sync::{Dir, Error as SyncError, System};

use super::answer::{answer, claims, in_short};
use super::files::Files;
use super::values::with_speedup;
use super::way::{DIRECT, DIRECT_BYTES, FILES, RECORD_BYTES, THREADS, WAYS, Way};
use crate::arm_result::ArmResult;
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::least::OneBlock;
use crate::result::Unavailable;
use crate::runner::{self, Rule, Size, Watch};

/// The experiment.
#[derive(Debug)]
pub(crate) struct ManyFiles;

/// A block is one sample, as what happens between two samples must not be counted.
const SIZE: Size = Size { operations: 1, time: Duration::from_secs(60) };

impl Experiment for ManyFiles {
    fn name(&self) -> &'static str {
        "many-files"
    }

    fn question(&self) -> &'static str {
        "What do N small files cost, and how do you pay less?"
    }

    fn source(&self) -> &'static str {
        "\"fsync is Costly, But Don't Avoid It\" (without_fsync, with_fsync, direct_write_fsync, \
         io_uring)"
    }

    fn explanation(&self) -> &'static str {
        "\
A record of 200 B goes to each of 100 files (the article's numbers, in every profile; the profiles
differ in how often it is repeated). One sample is the time for all of them. The files are created,
opened and made durable as empty files before it, and removed after it, untimed. The last arm puts
all records into one file.

  per file us                  the median, divided by the files
  speedup                      the median of 'write and fsync each', divided by this one
  fsyncs before their write    of the trap: fsyncs whose completion arrived before that of their
                               own write, in all samples together
  flushes, KiB written         per file

Syncs that follow each other need a flush each. Those that run together (threads, io_uring) may
share one, and syncfs and the single file have one sync: of them one flush per sample is asked.

sync_file_range is a hint here: begin to write the file out, and do not wait (WRITE alone).

Unlinked io_uring requests run in any order, so an fsync may be done before its write has begun,
and still report success: that arm promises nothing, however fast it is. The article's program
shows no link between the two. Its direct I/O of 200 B is refused by the kernel (EINVAL), so that
arm writes 4096 B, which is what any of these records costs the device.

How it can mislead: syncfs waits for everything dirty on the filesystem, also what others wrote, and
on some filesystems it sends no flush where only data is dirty. The files exist before: creating
them durably costs a sync of the directory as well. A hundred files share a journal commit where
they are synced together, so the gain depends on the filesystem. Threads and io_uring workers need
CPUs: on a busy machine they lose most. One file is another design, not another method: what it
saves in syncs it may cost in searching and in reclaiming space."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 6,
            Profile::Full => 120,
            Profile::Article => 60,
        };
        // Only one arm has its files at a time, but blocks may become free only some time after
        // removal.
        let disk_bytes = (4 * FILES * DIRECT_BYTES) as u64;
        // Each sample makes its files and syncs them.
        let block = OneBlock { syncs: FILES as u64 + 30, ..OneBlock::default() };
        Cost::new(Duration::from_secs(seconds), disk_bytes, WAYS.len(), block)
    }

    fn arm_names(&self, _: Profile) -> Vec<String> {
        WAYS.into_iter().map(Way::name).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let mut unavailable = Vec::new();
        let mut arms = Vec::new();
        for way in WAYS {
            if !setup.wants(&way.name()) {
                continue;
            }
            match why_not(way, setup)? {
                Some(reason) => unavailable.push(Unavailable { name: way.name(), reason }),
                None => arms.push(Files::new(setup, way, FILES, RECORD_BYTES)?),
            }
        }
        if arms.iter().any(|arm| arm.way() == DIRECT) {
            unavailable.extend(direct_as_printed(setup)?);
        }
        let blocks = runner::run(&mut arms, 1, SIZE, &rule(setup), setup.counters, watch)?;
        let measured: Vec<(Way, ArmResult)> = arms
            .iter()
            .zip(&blocks)
            .map(|(arm, blocks)| (arm.way(), arm.result(blocks, setup)))
            .collect();
        let measured = with_speedup(measured);
        let parameters = vec![
            format!("files={FILES}"),
            format!("record_bytes={RECORD_BYTES}"),
            format!("threads={THREADS}"),
        ];
        let claims = claims(&measured);
        let (answer, in_short) = (answer(&measured, &claims), in_short(&measured));
        let arms = measured.into_iter().map(|(_, arm)| arm).collect();
        Ok(Measured { parameters, answer, in_short, claims, arms, unavailable })
    }
}

fn rule(setup: &Setup<'_>) -> Rule {
    let precision = match setup.profile {
        Profile::Quick => 0.02,
        Profile::Full | Profile::Article => 0.005,
    };
    // A block is one sample, and twenty carry a median.
    Rule { budget: setup.budget_left(), blocks_min: 20, precision, samples: None, seed: setup.seed }
}

/// Why a way does not work here, if it does not.
fn why_not(way: Way, setup: &Setup<'_>) -> Result<Option<String>> {
    let method = way.method();
    if !setup.works(method) {
        let found = setup.unavailable().into_iter().find(|arm| arm.name == method.name());
        let reason = found.map_or_else(|| "it does not work here".to_owned(), |arm| arm.reason);
        return Ok(Some(reason));
    }
    if way == Way::HintThen && System::HERE != System::Linux {
        return Ok(Some("sync_file_range is Linux's".to_owned()));
    }
    if way.needs_uring() {
        match setup.dir.batch(&[]) {
            Err(SyncError::Unsupported { reason, .. }) => return Ok(Some(reason)),
            made => drop(made?),
        }
    }
    Ok(None)
}

/// Tries the article's direct write of 200 B, which we expect the kernel to refuse.
fn direct_as_printed(setup: &Setup<'_>) -> Result<Option<Unavailable>> {
    let name = "many-files-direct";
    let file = setup.dir.create(name, DIRECT.method().access())?;
    let refused = file.write_at(&[0; RECORD_BYTES], 0).err();
    setup.dir.remove(name)?;
    let unavailable = |error: SyncError| {
        let reason = format!(
            "the article's O_DIRECT write of {RECORD_BYTES} B gets EINVAL: {}",
            match error {
                SyncError::Unsupported { reason, .. } => reason,
                error => error.to_string(),
            }
        );
        Unavailable { name: format!("{}, of {RECORD_BYTES} B", DIRECT.name()), reason }
    };
    Ok(refused.map(unavailable))
}
