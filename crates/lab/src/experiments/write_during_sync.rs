//! Does write(2) wait for a sync of the same file in another thread?
//!
//! Source: article 1 ("fsync() on a different thread: apparently a useless trick"): a write every
//! 100 ms, a sync every second, on a disk whose syncs took 40 ms. It found that the write which
//! met a sync took as long as the sync. On a fast disk its ten writes a second seldom meet a sync,
//! so the default here writes thousands of times a second and says of every write whether a sync
//! was in flight; the article's own rates are the profile `article`.
//!
//! An open loop: writes start at a fixed rate whatever the one before took, and the measure "from
//! intended start" counts the waiting in (no coordinated omission).

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_sync::{Promise, SyncMethod, System, finest_timer};

use crate::claim::{Claim, Holds};
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::Layout;
use crate::race::{self, Contest, Outcome, Race, Rates, Target};
use crate::result::{ArmResult, Machine, PerOperation};
use crate::runner::{self, Block, Rule, Size, Watch};
use crate::stats;
use crate::summary::Summary;
use crate::units;
use crate::verdict::{self, Asked};

/// The experiment.
#[derive(Debug)]
pub(super) struct WriteDuringSync;

/// Fewer syncs than this that held a write up are chance.
const HELD_TELLS: usize = 3;

/// Fewer writes than this that met a sync say nothing.
const OVERLAPPED_MIN: usize = 40;

/// Below this share of syncs that held a write up the answer is no, above the other it is yes.
const NO_BELOW: f64 = 0.02;
const YES_ABOVE: f64 = 0.5;

/// The rates of a profile.
const fn rates(profile: Profile) -> Rates {
    let ms = Duration::from_millis;
    let quick = Rates {
        write_bytes: 4096,
        write_every: Duration::from_micros(250),
        sync_every: ms(20),
        block: ms(250),
    };
    match profile {
        Profile::Quick => quick,
        Profile::Full => Rates { block: ms(1000), ..quick },
        Profile::Article => {
            Rates { write_bytes: 1, write_every: ms(100), sync_every: ms(1000), block: ms(10_000) }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Spec {
    label: &'static str,
    target: Target,
    syncs: &'static [SyncMethod],
}

const FSYNC: &[SyncMethod] = &[SyncMethod::ORDINARY];
const FDATASYNC: &[SyncMethod] = &[SyncMethod::Fdatasync];
const RANGE_FIRST: &[SyncMethod] = &[SyncMethod::SyncFileRange, SyncMethod::Fdatasync];

const SPECS: [Spec; 9] = [
    Spec { label: "no sync", target: Target::Nothing, syncs: &[] },
    Spec { label: "fsync, same descriptor", target: Target::SameDescriptor, syncs: FSYNC },
    Spec { label: "fsync, other descriptor", target: Target::OtherDescriptor, syncs: FSYNC },
    Spec { label: "fsync, other file", target: Target::OtherFile, syncs: FSYNC },
    Spec { label: "fdatasync, same descriptor", target: Target::SameDescriptor, syncs: FDATASYNC },
    Spec {
        label: "fdatasync, other descriptor",
        target: Target::OtherDescriptor,
        syncs: FDATASYNC,
    },
    Spec { label: "fdatasync, other file", target: Target::OtherFile, syncs: FDATASYNC },
    Spec {
        label: "sync_file_range+fdatasync, same descriptor",
        target: Target::SameDescriptor,
        syncs: RANGE_FIRST,
    },
    Spec { label: "o_sync instead", target: Target::EveryWrite, syncs: &[SyncMethod::OSync] },
];

/// The arms of the article: its two programs, what it ends with, and the control that it lacks.
const ARTICLE: [&str; 4] =
    ["no sync", "fsync, other descriptor", "fdatasync, other descriptor", "o_sync instead"];

impl Experiment for WriteDuringSync {
    fn name(&self) -> &'static str {
        "write-during-sync"
    }

    fn question(&self) -> &'static str {
        "Does write(2) wait for a sync of the same file in another thread?"
    }

    fn source(&self) -> &'static str {
        "article 1, \"fsync() on a different thread: apparently a useless trick\""
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
        let two = |(spec, _): &(Spec, Layout)| 1 + u64::from(spec.target == Target::OtherFile);
        let files: u64 = all_specs(profile).iter().map(two).sum();
        let disk_bytes = files * rates.records() * rates.write_bytes.max(1);
        Cost { budget: Duration::from_secs(seconds), disk_bytes }
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        all_specs(profile).iter().map(|(spec, layout)| arm_name(spec, *layout)).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let rates = rates(setup.profile);
        let specs = specs(setup);
        let race = |(number, &(spec, layout)): (usize, &(Spec, Layout))| {
            let Spec { target, syncs, .. } = spec;
            let contest = Contest { target, syncs, layout, rates };
            Race::create(setup.dir, &format!("{}-{number}", self.name()), contest, setup.seed)
        };
        let mut arms: Vec<Race> =
            specs.iter().enumerate().map(race).collect::<plimsoll_sync::Result<_>>()?;
        let size = Size { operations: rates.writes(), time: rates.block };
        let rule = Rule {
            budget: setup.budget,
            blocks_min: stats::BLOCKS_TO_COMPARE,
            // The question is about the tail, which every block makes better known.
            precision: 0.0,
            samples: None,
            seed: setup.seed,
        };
        finest_timer();
        let blocks_of_arms =
            runner::run(&mut arms, race::MEASURES.len(), size, &rule, setup.counters, watch)?;
        let found: Vec<Found> = specs
            .iter()
            .zip(arms.iter().zip(&blocks_of_arms))
            .map(|(&(spec, layout), (race, blocks))| {
                let outcome = race.outcome(blocks, usual_ns(&specs, &blocks_of_arms, layout));
                Found::of(spec, layout, outcome, blocks.len(), setup)
            })
            .collect();
        let claim = article(&found.iter().filter(|found| found.arm.valid).collect::<Vec<_>>());
        let answer = answer(&found, claim.as_ref());
        let parameters = vec![
            format!("write_bytes={}", rates.write_bytes),
            format!("write_every_us={}", rates.write_every.as_micros()),
            format!("sync_every_ms={}", rates.sync_every.as_millis()),
            format!("block_ms={}", rates.block.as_millis()),
        ];
        let arms = found.into_iter().map(|found| found.arm).collect();
        let claims = claim.into_iter().collect();
        Ok(Measured { parameters, answer, claims, arms, unavailable: Vec::new() })
    }
}

/// What a write takes on this layout when nobody syncs: the control's median, or where the control
/// does not run, the lowest of the writes that met no sync.
fn usual_ns(specs: &[(Spec, Layout)], blocks: &[Vec<Block>], layout: Layout) -> u64 {
    let medians = |control: bool| {
        let arms = specs.iter().zip(blocks).filter(move |((spec, of), _)| {
            *of == layout && (spec.target == Target::Nothing) == control
        });
        arms.filter_map(|(_, blocks)| Summary::of("", blocks, race::FREE).p50_ns)
    };
    medians(true).next().or_else(|| medians(false).min()).unwrap_or(0)
}

/// The arms of a profile.
fn all_specs(profile: Profile) -> Vec<(Spec, Layout)> {
    let layouts: &[Layout] = match profile {
        Profile::Article => &[Layout::Append],
        Profile::Quick | Profile::Full => &[Layout::Append, Layout::Overwritten],
    };
    let in_profile = |spec: &&Spec| profile != Profile::Article || ARTICLE.contains(&spec.label);
    let of = |&layout| SPECS.iter().filter(in_profile).map(move |spec| (*spec, layout));
    layouts.iter().flat_map(of).collect()
}

/// The arms that can run here and are wanted.
fn specs(setup: &Setup<'_>) -> Vec<(Spec, Layout)> {
    let can = |spec: &Spec| spec.syncs.iter().all(|&method| setup.works(method));
    all_specs(setup.profile)
        .into_iter()
        .filter(|(spec, layout)| can(spec) && setup.wants(&arm_name(spec, *layout)))
        .collect()
}

fn arm_name(spec: &Spec, layout: Layout) -> String {
    format!("{}/{layout}", spec.label)
}

/// An arm and what its writes and syncs did to each other.
struct Found {
    target: Target,
    layout: Layout,
    syncs: usize,
    held: usize,
    overlapped: usize,
    slow_writes: usize,
    arm: ArmResult,
}

impl Found {
    fn of(spec: Spec, layout: Layout, outcome: Outcome, blocks: usize, setup: &Setup<'_>) -> Self {
        let write_bytes = rates(setup.profile).write_bytes;
        let (elapsed, operations) = (outcome.elapsed, outcome.durable_operations);
        let last = spec.syncs.last();
        let promise = last.and_then(|method| method.promise(System::HERE));
        let promise = promise.unwrap_or(Promise::Nothing);
        let mut warnings = verdict::check_noise(&elapsed, setup.environment.cpus);
        if operations > 0 {
            // Only a write that syncs itself says how much a sync has to write.
            let bytes = if spec.target == Target::EveryWrite { write_bytes } else { 0 };
            let asked = Asked::new(promise, operations, bytes);
            warnings.extend(verdict::check_promise(asked, &elapsed, setup.environment));
        }
        let arm = ArmResult {
            name: arm_name(&spec, layout),
            method: spec.syncs.iter().map(|m| m.name()).collect::<Vec<_>>().join("+"),
            layout: layout.name().to_owned(),
            promise: promise.name().to_owned(),
            payload_bytes: write_bytes,
            blocks,
            durable_operations: operations,
            valid: !warnings.iter().any(|warning| warning.kind.invalidates()),
            per_operation: PerOperation::of(&elapsed, operations),
            values: BTreeMap::from([
                ("syncs".to_owned(), units::ratio(outcome.syncs as u64, 1)),
                ("syncs_that_held_a_write".to_owned(), units::ratio(outcome.held as u64, 1)),
            ]),
            machine: Machine::during(&elapsed),
            attribution: None,
            series: Some(outcome.series),
            warnings,
            summaries: outcome.summaries,
        };
        let Outcome { syncs, held, overlapped, slow_writes, .. } = outcome;
        Self { target: spec.target, layout, syncs, held, overlapped, slow_writes, arm }
    }

    /// The share of syncs that held a write up; none, if so few did that it may be chance.
    fn held_share(&self) -> f64 {
        if self.held < HELD_TELLS { 0.0 } else { units::ratio(self.held as u64, self.syncs as u64) }
    }

    fn slowest_beside_a_sync(&self) -> Option<u64> {
        self.arm.summaries[race::OVERLAPPED].max_ns
    }

    /// `3 of 410 syncs held a write up; the slowest write beside one took …`
    fn in_words(&self) -> String {
        let slowest = self.slowest_beside_a_sync().map_or_else(|| "–".to_owned(), units::time);
        let sync = self.arm.summaries[race::SYNC].p50_ns.map_or_else(String::new, |p50| {
            format!("; a sync took {} at the median", units::time(p50))
        });
        let (held, syncs) = (self.held, self.syncs);
        format!(
            "{held} of {syncs} syncs held a write up; the slowest write beside one took {slowest}{sync}"
        )
    }
}

fn answer(found: &[Found], claim: Option<&Claim>) -> Vec<String> {
    let found: Vec<&Found> = found.iter().filter(|found| found.arm.valid).collect();
    let mut answer = Vec::new();
    for layout in [Layout::Overwritten, Layout::Append] {
        answer.extend(answer_for(&found, layout));
    }
    let control = found.iter().filter(|found| found.target == Target::Nothing);
    let slow: usize = control.clone().map(|found| found.slow_writes).sum();
    let writes: usize = control.map(|found| found.arm.summaries[race::FREE].n).sum();
    if writes > 0 {
        answer.push(format!(
            "With no sync anywhere, {slow} of {writes} writes were as slow: that much is the machine."
        ));
    }
    let every_write =
        |found: &&&Found| found.target == Target::EveryWrite && found.layout == Layout::Append;
    if let Some(p50) = found.iter().find(every_write).and_then(|found| found.arm.p50_ns()) {
        answer.push(format!("With O_SYNC instead, each write takes {}.", units::time(p50)));
    }
    answer.extend(claim.map(Claim::in_words));
    answer
}

/// Whether syncs of the writer's own file hold its writes up.
fn answer_for(found: &[&Found], layout: Layout) -> Option<String> {
    let same = |found: &&&Found| {
        let same = [Target::SameDescriptor, Target::OtherDescriptor].contains(&found.target);
        found.layout == layout && same && found.syncs > 0
    };
    let arms = || found.iter().filter(same);
    let worst = arms().max_by_key(|found| found.held)?;
    let what = match layout {
        Layout::Append => "a growing file",
        _ => "a file whose blocks are written already",
    };
    let overlapped: usize = arms().map(|found| found.overlapped).sum();
    if overlapped < OVERLAPPED_MIN {
        return Some(format!(
            "Cannot say, for {what}: only {overlapped} writes met a sync; syncs are short here, or the \
             budget was."
        ));
    }
    let verdict = match worst.held_share() {
        share if share < NO_BELOW => "No",
        share if share > YES_ABOVE => "Yes",
        _ => "Sometimes",
    };
    if worst.held > 0 {
        let (name, words) = (&worst.arm.name, worst.in_words());
        return Some(format!("{verdict}, for {what}: in the worst arm ({name}) {words}."));
    }
    let syncs: usize = arms().map(|found| found.syncs).sum();
    let slowest = arms().filter_map(|found| found.slowest_beside_a_sync()).max();
    let slowest = slowest.map_or_else(|| "–".to_owned(), units::time);
    Some(format!(
        "{verdict}, for {what}: {overlapped} writes met one of {syncs} syncs of the same file, and none \
         was held up; the slowest took {slowest}."
    ))
}

/// The article's claim, beside the same syncs of another file, which hold up as many by chance.
fn article(found: &[&Found]) -> Option<Claim> {
    let arms = |target: Target| {
        found.iter().filter(move |found| found.target == target && found.layout == Layout::Append)
    };
    let worst = arms(Target::OtherDescriptor).max_by_key(|found| found.held)?;
    let control = arms(Target::OtherFile).map(|found| found.held_share()).fold(0.0, f64::max);
    let (share, percent) = (worst.held_share(), units::percent(worst.held_share()));
    let held = format!("{percent} of syncs held a write up");
    let (verdict, here) = if worst.overlapped < OVERLAPPED_MIN / 2 {
        (Holds::Undecided, "too few writes met a sync".to_owned())
    } else if share > YES_ABOVE {
        (Holds::Holds, held)
    } else if share < NO_BELOW || share <= 2.0 * control {
        let beside = units::percent(control);
        (Holds::DoesNotHold, format!("{held}, syncs of another file {beside}"))
    } else {
        (Holds::InPart, held)
    };
    let claim = "a write waits for a sync in another thread".to_owned();
    Some(Claim { article: 1, claim, claimed_ns: None, here, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(target: Target, layout: Layout, held: usize) -> Found {
        let summary = |measure: &&str| Summary {
            measure: (*measure).to_owned(),
            n: 1000,
            p50_ns: Some(2_000),
            max_ns: Some(900_000),
            ..Summary::default()
        };
        let arm = ArmResult {
            summaries: race::MEASURES.iter().map(summary).collect(),
            ..ArmResult::of_summary(&format!("{target:?}/{layout}"), Summary::default())
        };
        Found { target, layout, syncs: 100, held, overlapped: 500, slow_writes: 3, arm }
    }

    fn answer_of(found: &[Found]) -> Vec<String> {
        let valid: Vec<&Found> = found.iter().filter(|found| found.arm.valid).collect();
        answer(found, article(&valid).as_ref())
    }

    #[test]
    fn the_answer_follows_the_share_of_syncs_that_held_a_write() {
        let answer = answer_of(&[
            found(Target::Nothing, Layout::Append, 0),
            found(Target::OtherDescriptor, Layout::Append, 97),
            found(Target::SameDescriptor, Layout::Overwritten, 0),
            found(Target::OtherFile, Layout::Overwritten, 100),
        ])
        .join("\n");
        assert!(answer.contains("No, for a file whose blocks are written already"), "{answer}");
        assert!(answer.contains("Yes, for a growing file"), "{answer}");
        assert!(answer.contains("3 of 1000 writes were as slow"), "{answer}");
        assert!(answer.contains("here 97 % of syncs held a write up: holds here."), "{answer}");
    }

    #[test]
    fn nothing_is_said_of_syncs_that_no_write_met() {
        let mut lone = found(Target::OtherDescriptor, Layout::Append, 0);
        lone.overlapped = 3;
        let answer = answer_of(&[lone]).join("\n");
        assert!(answer.contains("Cannot say, for a growing file"), "{answer}");
        assert!(answer.contains("too few writes met a sync: not decided here"), "{answer}");
    }

    /// One of 48 syncs once made an answer of "sometimes".
    #[test]
    fn a_single_sync_that_held_a_write_up_is_chance() {
        let mut once = found(Target::OtherDescriptor, Layout::Append, 1);
        once.syncs = 10;
        let answer = answer_of(&[once]).join("\n");
        assert!(
            answer.contains("No, for a growing file") && answer.contains("1 of 10"),
            "{answer}"
        );
        assert!(answer.contains("does not hold here"), "{answer}");
    }

    #[test]
    fn an_arm_that_contradicts_its_promise_is_in_no_answer() {
        let mut invalid = found(Target::OtherDescriptor, Layout::Append, 97);
        invalid.arm.valid = false;
        assert!(answer_of(&[invalid]).is_empty());
    }

    #[test]
    fn a_file_has_room_for_the_writes_of_a_block() {
        for profile in [Profile::Quick, Profile::Full, Profile::Article] {
            let rates = rates(profile);
            assert!(rates.records() >= rates.writes() as u64, "{profile:?}");
            assert!(rates.block > 2 * rates.sync_every, "{profile:?}: too few syncs a block");
        }
    }
}
