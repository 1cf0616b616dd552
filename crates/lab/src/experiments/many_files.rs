//! What do N small files cost, and how do you pay less?
//!
//! Source: article 3 ("fsync is Costly, But Don't Avoid It"). It writes 200 B to each of its files,
//! with and without an fsync, and then tries direct I/O and `io_uring`. Beside its four programs
//! stand the ways that it does not try (syncing later, syncing together, fewer files), and its
//! `io_uring` program twice: as printed, where nothing ties an fsync to its write, and linked.
//!
//! A sample is the time for all files. They are created and opened before it and removed after it,
//! untimed, as in the article; so a block is one sample.

use std::time::Duration;

use plimsoll_sync::{Dir, Error as SyncError, SyncMethod, System};

use crate::claim::{Claim, Holds};
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::files::{self, DIRECT_BYTES, Files, THREADS, TOO_EARLY, WAYS, Way};
use crate::result::{ArmResult, Unavailable};
use crate::runner::{self, Rule, Size, Watch};
use crate::units;

/// The experiment.
#[derive(Debug)]
pub(super) struct ManyFiles;

/// The article's `FILE_NUMBER`.
const FILES: usize = 100;
/// The article's record.
const RECORD_BYTES: usize = 200;
/// A block is one sample: what lies between two of them must not be counted.
const SIZE: Size = Size { operations: 1, time: Duration::from_secs(60) };

/// The article's figures.
const ARTICLE_WRITES: Duration = Duration::from_micros(430);
const ARTICLE_EACH: Duration = Duration::from_millis(154);
const ARTICLE_DIRECT: Duration = Duration::from_millis(153);
const ARTICLE_URING: Duration = Duration::from_millis(30);

/// Durable files cost at least so many times the mere writes, or the article's claim does not hold.
const COSTLY_FROM: f64 = 10.0;
/// Direct I/O makes a difference if it changes the time by more than this share.
const DIFFERENCE: f64 = 0.2;

/// What the others are compared with.
const BASELINE: Way = Way::Each(SyncMethod::ORDINARY);
const DIRECT: Way = Way::Each(SyncMethod::DirectFsync);
const LINKED: Way = Way::Batch(SyncMethod::UringLink);
const TRAP: Way = Way::Batch(SyncMethod::Uring);

impl Experiment for ManyFiles {
    fn name(&self) -> &'static str {
        "many-files"
    }

    fn question(&self) -> &'static str {
        "What do N small files cost, and how do you pay less?"
    }

    fn source(&self) -> &'static str {
        "article 3, \"fsync is Costly, But Don't Avoid It\" (without_fsync, with_fsync, \
         direct_write_fsync, io_uring)"
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
        // One arm's files at a time; removed blocks may be free only later.
        let disk_bytes = (4 * FILES * DIRECT_BYTES) as u64;
        Cost { budget: Duration::from_secs(seconds), disk_bytes }
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
        let answer = answer(&measured, &claims);
        let arms = measured.into_iter().map(|(_, arm)| arm).collect();
        Ok(Measured { parameters, answer, claims, arms, unavailable })
    }
}

fn rule(setup: &Setup<'_>) -> Rule {
    let precision = match setup.profile {
        Profile::Quick => 0.02,
        Profile::Full | Profile::Article => 0.005,
    };
    // A block is one sample, and twenty carry a median.
    Rule { budget: setup.budget, blocks_min: 20, precision, samples: None, seed: setup.seed }
}

/// Why a way cannot be gone here.
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

/// The article's direct write of 200 B, which no kernel takes: tried, not assumed.
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

fn total(arm: &ArmResult) -> Option<u64> {
    files::median(arm.summaries.first()?)
}

/// The arms, each with how many times faster than the baseline it is.
fn with_speedup(mut arms: Vec<(Way, ArmResult)>) -> Vec<(Way, ArmResult)> {
    let Some(baseline) = find(&arms, BASELINE).and_then(total) else { return arms };
    for (_, arm) in &mut arms {
        if let Some(total) = total(arm) {
            arm.values.insert("speedup".to_owned(), units::ratio(baseline, total));
        }
    }
    arms
}

/// The valid arm of a way.
fn find(arms: &[(Way, ArmResult)], way: Way) -> Option<&ArmResult> {
    arms.iter().find(|(found, arm)| *found == way && arm.valid).map(|(_, arm)| arm)
}

fn answer(arms: &[(Way, ArmResult)], claims: &[Claim]) -> Vec<String> {
    let total = |way| find(arms, way).and_then(total);
    let mut answer = Vec::new();
    if let Some(baseline) = total(BASELINE) {
        answer.push(format!(
            "{FILES} files of {RECORD_BYTES} B, each written and synced, cost {} here ({} a file).",
            units::time(baseline),
            units::time(baseline / FILES as u64)
        ));
        answer.extend(cheapest(arms, baseline));
        if let Some(one) = total(Way::OneFile) {
            answer.push(format!(
                "The same records in one file with one sync: {}, {}. Fewer files beat every way to \
                 sync many.",
                units::time(one),
                times_as_fast(baseline, one)
            ));
        }
    }
    answer.extend(trap(arms));
    answer.extend(claims.iter().map(Claim::in_words));
    answer
}

/// The way to pay least for many files, and what it gives away.
fn cheapest(arms: &[(Way, ArmResult)], baseline: u64) -> Option<String> {
    let promise = &find(arms, BASELINE)?.promise;
    let (way, arm, best) = arms
        .iter()
        .filter(|(way, arm)| arm.valid && arm.promise == *promise && *way != Way::OneFile)
        .filter_map(|(way, arm)| Some((*way, arm, total(arm)?)))
        .min_by_key(|&(_, _, total)| total)?;
    if way == BASELINE {
        return Some("No other way to sync as many files is cheaper here.".to_owned());
    }
    let but = match way {
        Way::Syncfs => " It waits for everything that is dirty on the filesystem, not only yours.",
        _ => "",
    };
    let ties = |(other, rival): &&(Way, ArmResult)| {
        let rivals = *other != way && rival.valid && rival.promise == *promise;
        rivals && rival.summaries[0].differs_from(&arm.summaries[0]) == Some(false)
    };
    let ties = match arms.iter().filter(ties).count() {
        0 => String::new(),
        ways => format!(" (no difference seen from {ways} of the others)"),
    };
    Some(format!(
        "The cheapest way that promises as much: {}, in {}, {}{ties}.{but}",
        arm.name,
        units::time(best),
        times_as_fast(baseline, best)
    ))
}

fn trap(arms: &[(Way, ArmResult)]) -> Option<String> {
    let arm = find(arms, TRAP)?;
    let early = arm.values.get(TOO_EARLY)?;
    Some(format!(
        "Unlinked io_uring requests promise nothing: {early:.0} of {} fsyncs were done before their \
         own write was.",
        arm.durable_operations
    ))
}

/// What the article claims, what is found here, and whether the claim holds.
fn claims(arms: &[(Way, ArmResult)]) -> Vec<Claim> {
    let total = |way| find(arms, way).and_then(total);
    let article = |time: Duration| units::time(crate::counters::nanoseconds(time));
    let claim = |claim, here, verdict| Claim { article: 3, claim, claimed_ns: None, here, verdict };
    let mut claims = Vec::new();
    let Some(each) = total(BASELINE) else { return claims };
    if let Some(writes) = total(Way::Write) {
        let here = units::ratio(each, writes);
        let verdict = if here >= COSTLY_FROM { Holds::Holds } else { Holds::DoesNotHold };
        let claimed = format!(
            "syncing each file costs {} where writing costs {} ({:.0} times)",
            article(ARTICLE_EACH),
            article(ARTICLE_WRITES),
            ARTICLE_EACH.as_secs_f64() / ARTICLE_WRITES.as_secs_f64()
        );
        let here = format!("{} and {} ({here:.0} times)", units::time(each), units::time(writes));
        claims.push(claim(claimed, here, verdict));
    }
    if let Some(direct) = total(DIRECT) {
        let verdict = match units::ratio(direct, each) {
            share if share < 1.0 - DIFFERENCE => Holds::DoesNotHold,
            _ => Holds::Holds,
        };
        let claimed = format!(
            "O_DIRECT gains nothing ({} against {})",
            article(ARTICLE_DIRECT),
            article(ARTICLE_EACH)
        );
        let here = format!(
            "{} against {}, with {DIRECT_BYTES} B, because {RECORD_BYTES} B cannot be written so",
            units::time(direct),
            units::time(each)
        );
        claims.push(claim(claimed, here, verdict));
    }
    if let Some(linked) = total(LINKED) {
        let claimed = ARTICLE_EACH.as_secs_f64() / ARTICLE_URING.as_secs_f64();
        let verdict = match units::ratio(each, linked) {
            gain if gain >= 0.8 * claimed => Holds::Holds,
            gain if gain > 1.0 + DIFFERENCE => Holds::InPart,
            _ => Holds::DoesNotHold,
        };
        let claimed =
            format!("io_uring is {claimed:.0} times as fast ({})", article(ARTICLE_URING));
        let here = format!(
            "{}, with each fsync linked to its write, is {}",
            units::time(linked),
            times_as_fast(each, linked)
        );
        claims.push(claim(claimed, here, verdict));
    }
    claims
}

/// `4.4 times as fast`
fn times_as_fast(baseline: u64, total: u64) -> String {
    format!("{} times as fast", units::figure(units::ratio(baseline, total)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_sync::Promise;

    use super::*;
    use crate::layout::Layout;
    use crate::result::Machine;
    use crate::summary::Summary;

    fn arm(way: Way, total_us: u64) -> (Way, ArmResult) {
        let promise = way.method().promise(System::Linux).unwrap_or(Promise::Nothing);
        let mut values = BTreeMap::new();
        if way == TRAP {
            values.insert(TOO_EARLY.to_owned(), 3.0);
        }
        let block_p50_ns = vec![total_us * 1000; 20];
        let summary = Summary { n: 20, block_p50_ns, ..Summary::default() };
        let arm = ArmResult {
            name: way.name(),
            method: way.method().name().to_owned(),
            layout: Layout::Append.name().to_owned(),
            promise: promise.name().to_owned(),
            payload_bytes: RECORD_BYTES as u64,
            blocks: 20,
            durable_operations: 2000,
            valid: true,
            summaries: vec![summary],
            per_operation: None,
            values,
            machine: Machine::default(),
            attribution: None,
            series: None,
            warnings: Vec::new(),
        };
        (way, arm)
    }

    #[cfg(target_os = "linux")]
    fn answer_of(arms: &[(Way, ArmResult)]) -> Vec<String> {
        answer(arms, &claims(arms))
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_article_holds_where_figures_are_as_on_its_machine() {
        let answer = answer_of(&with_speedup(vec![
            arm(Way::Write, 430),
            arm(BASELINE, 154_000),
            arm(DIRECT, 153_000),
            arm(LINKED, 30_000),
            arm(TRAP, 29_000),
            arm(Way::Syncfs, 20_000),
            arm(Way::OneFile, 2_000),
        ]))
        .join("\n");
        assert!(answer.contains("358 times): holds here"), "{answer}");
        assert!(answer.contains("cannot be written so: holds here."), "{answer}");
        assert!(answer.contains("5.13 times as fast: holds here."), "{answer}");
        assert!(answer.contains("promises as much: all writes, then one syncfs"), "{answer}");
        assert!(answer.contains("3 of 2000 fsyncs were done before"), "{answer}");
        assert!(answer.contains("one file with one sync: 2.00 ms, 77 times as fast"), "{answer}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_trap_and_invalid_arms_are_never_the_cheapest_way() {
        let mut syncfs = arm(Way::Syncfs, 1);
        syncfs.1.valid = false;
        let pool = arm(Way::Pool, 3_500);
        let arms = [arm(BASELINE, 7_000), arm(TRAP, 2), syncfs, arm(LINKED, 3_500), pool];
        let answer = answer_of(&arms).join("\n");
        let tied = "promises as much: io_uring, linked, in 3.50 ms, 2 times as fast (no difference \
                    seen from 1 of the others).";
        assert!(answer.contains(tied), "{answer}");
        assert!(answer.contains("2 times as fast: holds here in part"), "{answer}");
    }

    #[test]
    fn a_speedup_needs_something_to_compare_with() {
        let arms = with_speedup(vec![arm(Way::Syncfs, 10)]);
        assert!(!arms[0].1.values.contains_key("speedup"));
        let arms = with_speedup(vec![arm(BASELINE, 40), arm(Way::Syncfs, 10)]);
        assert!((arms[1].1.values["speedup"] - 4.0).abs() < 1e-9);
    }
}
