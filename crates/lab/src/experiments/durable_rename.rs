//! What does replacing a file safely cost?
//!
//! Source: the dance that every database and editor does (Linux ext4(5) on `auto_da_alloc`;
//! PostgreSQL's `durable_rename`; Pillai et al., "All File Systems Are Not Created Equal", OSDI
//! 2014, who found programs that leave a step out): write the new content to a temporary file, sync
//! it, rename it over the old one, sync the directory. Each step is left out in an arm of its own,
//! which shows what it costs, beside what is at risk without it.
//!
//! It is a closed loop with one writer: the next replacement starts when the one before has
//! returned.

use std::time::{Duration, Instant};

use plimsoll_sync::{AlignedBuf, Dir, OsDir, Promise, SyncMethod, System, risky};

use crate::arm::Identity;
use crate::arm_result::{ArmResult, busy_mark_of};
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::{Layout, noise};
use crate::least::OneBlock;
use crate::result::Unavailable;
use crate::runner::{self, Arm, Block, Rule, Size, Watch};
use crate::units::{self, capitalised};
use crate::verdict::Asked;
use crate::warning::busy_stamp;

/// The experiment.
#[derive(Debug)]
pub(super) struct DurableRename;

const MEASURE: &str = "time of one replacement";

/// Blocks are short, so that the arms of a round see the same machine.
const SIZE: Size = Size { operations: 64, time: Duration::from_millis(25) };
/// The size of a configuration file, a manifest, a checkpoint.
const FILE_BYTES: usize = 4096;

/// How a file is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dance {
    name: &'static str,
    /// Whether it is written to a temporary file that is renamed, or over the old content.
    renames: bool,
    /// The call that syncs the file.
    file: Option<SyncMethod>,
    /// Whether the directory is synced after the rename.
    directory: bool,
    /// What may be found after a crash.
    at_risk: &'static str,
}

const FULL: Dance = Dance {
    name: "full dance",
    renames: true,
    file: Some(SyncMethod::ORDINARY),
    directory: true,
    at_risk: "nothing, if the device keeps its word",
};

const DANCES: [Dance; 6] = [
    FULL,
    Dance { name: "full dance with fdatasync", file: Some(SyncMethod::Fdatasync), ..FULL },
    Dance {
        name: "without fsync of the file",
        file: None,
        at_risk: "the new name may lead to an empty file, or one of the right length without its \
                  content, and the old one is gone",
        ..FULL
    },
    Dance {
        name: "without fsync of the directory",
        directory: false,
        at_risk: "the old file may come back, whole, after the replacement was reported done",
        ..FULL
    },
    Dance {
        name: "without any sync",
        file: None,
        directory: false,
        at_risk: "both: the old file may come back, or an empty one takes its place",
        ..FULL
    },
    Dance {
        name: "in place with fsync",
        renames: false,
        directory: false,
        at_risk: "a crash while it is written may leave a mix of old and new content",
        ..FULL
    },
];

impl Dance {
    /// How the file's content is synced.
    fn method(&self) -> SyncMethod {
        self.file.unwrap_or(SyncMethod::None)
    }

    /// What is promised on return: that the new content is there, under the name.
    fn promise(&self) -> Promise {
        let all_steps = self.file.is_some() && self.directory == self.renames;
        let kept = self.file.filter(|_| all_steps).and_then(|method| method.promise(System::HERE));
        kept.unwrap_or(Promise::Nothing)
    }

    /// What the device must have seen. Each sync implies a flush, even if a step that is left out
    /// takes the promise away.
    fn asked(&self, operations: u64) -> Asked {
        let bytes = FILE_BYTES as u64;
        let ordinary = SyncMethod::ORDINARY.promise(System::HERE).unwrap_or(Promise::Nothing);
        let (promise, bytes) = match self.file {
            Some(method) => (method.promise(System::HERE).unwrap_or(Promise::Nothing), bytes),
            None if self.directory => (ordinary, 0),
            // The system writes these bytes when it wants to; they are ours all the same.
            None => (Promise::Nothing, bytes),
        };
        Asked::new(promise, operations, bytes)
    }
}

impl Experiment for DurableRename {
    fn name(&self) -> &'static str {
        "durable-rename"
    }

    fn question(&self) -> &'static str {
        "What does replacing a file safely cost?"
    }

    fn source(&self) -> &'static str {
        "Pillai et al., \"All File Systems Are Not Created Equal\" (OSDI 2014); ext4(5), \
         auto_da_alloc; PostgreSQL durable_rename"
    }

    fn explanation(&self) -> &'static str {
        "\
A file of 4 KiB is replaced again and again, each time when the replacement before has returned. The
full dance: create a temporary file, write it, fsync it, rename it over the old one, fsync the
directory. The other arms leave a step out, or do without the rename. What is then at risk when the
power fails or the kernel dies:

  without fsync of the file        the new name may lead to an empty file, or to one without its
                                   content; the old one is gone
  without fsync of the directory   the old file may come back, whole
  without any sync                 both
  in place with fsync              a mix of old and new content, if the crash comes while it is
                                   written; once it has returned, the new content is there
  full dance with fdatasync        nothing more: a new file's size is synced too

The columns count flushes and KiB written per replacement. The time counts from before the create to
after the last sync, closing the temporary file included.

How it can mislead: filesystems hide the mistakes. ext4 starts to write a file out when it is renamed
over another (auto_da_alloc), so leaving out the fsync gains less there and mostly goes well; xfs has
nothing of that kind, for renames. Syncing the file usually commits its name as well on journalling
filesystems, which none of them promises. A test that saw no loss has not shown that the step may go.
In place is quick because nothing is created, removed or renamed: use it only for content of which
you can tell a torn mix, by a checksum, and that you can get back."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 4,
            Profile::Full => 60,
            Profile::Article => 30,
        };
        // Replaced files are freed later, but no later than the end of the block.
        let disk_bytes = (DANCES.len() * (SIZE.operations + 1) * FILE_BYTES) as u64;
        let block = OneBlock { time: SIZE.time, syncs: 6, bytes: 0 };
        Cost::new(Duration::from_secs(seconds), disk_bytes, DANCES.len(), block)
    }

    fn arm_names(&self, _: Profile) -> Vec<String> {
        DANCES.iter().map(|dance| dance.name.to_owned()).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let (mut arms, mut unavailable) = (Vec::new(), Vec::new());
        for dance in DANCES.into_iter().filter(|dance| setup.wants(dance.name)) {
            if setup.works(dance.method()) {
                arms.push(Replacer::new(setup, dance, arms.len())?);
            } else {
                let reason = format!("{} does not work here", dance.method());
                unavailable.push(Unavailable { name: dance.name.to_owned(), reason });
            }
        }
        let blocks = runner::run(&mut arms, 1, SIZE, &rule(setup), setup.counters, watch)?;
        let arms: Vec<ArmResult> =
            arms.iter().zip(&blocks).map(|(arm, blocks)| arm.result(blocks, setup)).collect();
        let parameters = vec![
            format!("file_bytes={FILE_BYTES}"),
            format!("block_operations={}", SIZE.operations),
        ];
        let (answer, in_short) = (answer(&arms), in_short(&arms));
        Ok(Measured { parameters, answer, in_short, arms, unavailable, ..Measured::default() })
    }
}

fn rule(setup: &Setup<'_>) -> Rule {
    let precision = match setup.profile {
        Profile::Quick => 0.02,
        Profile::Full | Profile::Article => 0.005,
    };
    Rule { budget: setup.budget_left(), blocks_min: 20, precision, samples: None, seed: setup.seed }
}

/// An arm.
struct Replacer<'a> {
    dir: &'a OsDir,
    dance: Dance,
    name: String,
    temporary: String,
    payload: AlignedBuf,
}

impl<'a> Replacer<'a> {
    /// Creates the old file to replace, and makes it durable.
    fn new(setup: &Setup<'a>, dance: Dance, number: usize) -> Result<Self> {
        let mut payload = AlignedBuf::zeroed(FILE_BYTES, 1);
        noise(&mut payload, setup.seed);
        let name = format!("durable-rename-{number}");
        let old = setup.dir.create(&name, SyncMethod::ORDINARY.access())?;
        old.write_sync_at(&payload, 0, SyncMethod::ORDINARY)?;
        let temporary = format!("{name}.tmp");
        Ok(Self { dir: setup.dir, dance, name, temporary, payload })
    }

    fn replace(&self) -> plimsoll_sync::Result<()> {
        let Dance { renames, file: method, directory, .. } = self.dance;
        let access = self.dance.method().access();
        let file = if renames {
            risky::create(self.dir, &self.temporary, access)?
        } else {
            self.dir.open(&self.name, access)?
        };
        match method {
            Some(method) => file.write_sync_at(&self.payload, 0, method).map(|_kept| ())?,
            None => file.write_at(&self.payload, 0)?,
        }
        drop(file);
        match (renames, directory) {
            (true, true) => self.dir.rename(&self.temporary, &self.name),
            (true, false) => risky::rename(self.dir, &self.temporary, &self.name),
            (false, _) => Ok(()),
        }
    }

    fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        let identity = Identity {
            name: self.dance.name.to_owned(),
            method: self.dance.method(),
            layout: if self.dance.renames { Layout::Append } else { Layout::Overwritten },
            promise: self.dance.promise(),
            payload_bytes: FILE_BYTES as u64,
            measures: &[MEASURE],
        };
        identity.result(blocks, |operations| Some(self.dance.asked(operations)), setup)
    }
}

impl Arm for Replacer<'_> {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        Ok(())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        loop {
            let start = Instant::now();
            self.replace()?;
            let end = Instant::now();
            block.durable_operations += 1;
            if !block.sample(end - start, end) {
                return Ok(());
            }
        }
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        let file = self.dir.open(&self.name, SyncMethod::ORDINARY.access())?;
        file.sync(SyncMethod::ORDINARY)?;
        self.dir.sync()
    }
}

/// The valid arm of a dance, and its median.
fn find<'a>(arms: &'a [ArmResult], dance: &Dance) -> Option<(&'a ArmResult, u64)> {
    let arm = arms.iter().find(|arm| arm.name == dance.name && arm.valid)?;
    Some((arm, arm.p50_ns()?))
}

/// What safety costs, for a line of a screen.
fn in_short(arms: &[ArmResult]) -> Option<String> {
    let (full, full_p50) = find(arms, &FULL)?;
    let without = DANCES.iter().find(|dance| dance.file.is_none() && !dance.directory)?;
    let Some((risky, p50)) = find(arms, without) else {
        return Some(format!(
            "a file replaced safely {}{}",
            units::time(full_p50),
            busy_mark_of(&[full])
        ));
    };
    Some(format!(
        "a file replaced safely {}, without any sync {}{}",
        units::time(full_p50),
        units::time(p50),
        busy_mark_of(&[full, risky])
    ))
}

/// The answer, from valid arms.
fn answer(arms: &[ArmResult]) -> Vec<String> {
    let Some((full, full_p50)) = find(arms, &FULL) else { return Vec::new() };
    let flushes = full.per_operation.map_or_else(String::new, |per_operation| {
        format!(", with {:.1} flushes of the device", per_operation.flushes)
    });
    let spent = full.attribution.map(|spent| format!(" Of it {}.", spent.in_words()));
    let mut answer = vec![format!(
        "Replacing a 4 KiB file safely costs {} here{flushes}{}.{}",
        units::time(full_p50),
        busy_stamp(full.is_noisy()),
        spent.unwrap_or_default()
    )];
    for dance in &DANCES[1..] {
        let Some((arm, p50)) = find(arms, dance) else { continue };
        let change = match arm.summaries[0].differs_from(&full.summaries[0]) {
            Some(false) => "no difference seen".to_owned(),
            _ if p50 > full_p50 => format!("{} dearer", percent_of(p50 - full_p50, full_p50)),
            _ => format!("{} saved", percent_of(full_p50 - p50, full_p50)),
        };
        let (name, time) = (capitalised(dance.name), units::time(p50));
        let busy = busy_stamp(arm.is_noisy());
        answer.push(format!("{name}: {time}, {change}{busy}. At risk: {}.", dance.at_risk));
    }
    answer
}

fn percent_of(part: u64, whole: u64) -> String {
    units::percent(units::ratio(part, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    fn arm(dance: &Dance, p50_us: u64) -> ArmResult {
        let block_p50_ns = (0..20).map(|block| p50_us * 1000 + block).collect();
        let p50_ns = Some(p50_us * 1000);
        let summary = Summary { n: 1000, p50_ns, block_p50_ns, ..Summary::default() };
        ArmResult {
            promise: dance.promise().name().to_owned(),
            ..ArmResult::of_summary(dance.name, summary)
        }
    }

    #[test]
    fn only_a_dance_with_all_its_steps_promises_anything() {
        let promises = |dance: &&Dance| dance.promise() != Promise::Nothing;
        let complete: Vec<&str> = DANCES.iter().filter(promises).map(|dance| dance.name).collect();
        let expected = if SyncMethod::Fdatasync.promise(System::HERE).is_some() {
            vec!["full dance", "full dance with fdatasync", "in place with fsync"]
        } else {
            vec!["full dance", "in place with fsync"]
        };
        assert_eq!(complete, expected);
    }

    #[test]
    fn every_saving_is_told_with_what_it_risks() {
        let arms: Vec<ArmResult> = DANCES
            .iter()
            .zip([200, 200, 120, 100, 20, 50])
            .map(|(dance, p50_us)| arm(dance, p50_us))
            .collect();
        let answer = answer(&arms).join("\n");
        assert!(answer.contains("safely costs 200 µs here"), "{answer}");
        assert!(answer.contains("fdatasync: 200 µs, no difference seen. At risk: nothing"));
        assert!(answer.contains("Without fsync of the file: 120 µs, 40 % saved. At risk: the new"));
        assert!(answer.contains("Without any sync: 20.0 µs, 90 % saved. At risk: both"));
        assert_eq!(
            in_short(&arms).unwrap(),
            "a file replaced safely 200 µs, without any sync 20.0 µs"
        );
    }

    #[test]
    fn without_the_full_dance_there_is_nothing_to_compare_with() {
        assert!(answer(&[arm(&DANCES[4], 20)]).is_empty());
        let mut invalid = arm(&FULL, 200);
        invalid.valid = false;
        assert!(answer(&[invalid]).is_empty());
    }

    #[test]
    fn every_dance_leaves_the_new_content_under_the_name_and_no_temporary_file() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = OsDir::open(tmp.path()).unwrap();
        for (number, dance) in DANCES.into_iter().enumerate() {
            if dance.method().promise(System::HERE).is_none() {
                continue;
            }
            let name = number.to_string();
            dir.create(&name, SyncMethod::ORDINARY.access()).unwrap();
            let mut payload = AlignedBuf::zeroed(FILE_BYTES, 1);
            noise(&mut payload, number as u64);
            let temporary = format!("{name}.tmp");
            let arm = Replacer { dir: &dir, dance, name: name.clone(), temporary, payload };
            arm.replace().unwrap();
            let mut content = vec![0; FILE_BYTES];
            let file = dir.open(&name, SyncMethod::ORDINARY.access()).unwrap();
            assert_eq!(file.read_at(&mut content, 0).unwrap(), FILE_BYTES);
            assert_eq!(content, *arm.payload, "{}", dance.name);
            assert!(dir.list().unwrap().iter().all(|name| !name.ends_with(".tmp")));
        }
    }
}
