//! What does one durable write cost, by every method and layout?
//!
//! Source: article 3 ("fsync is Costly, But Don't Avoid It", `fsync_speed`: 10,000 calls on one
//! file, nothing dirty) and PostgreSQL's `pg_test_fsync`. The article times bare fsyncs of a clean
//! file; that arm is kept, and beside it stands what people think of when they read it: a write
//! and its sync, joined into one time to durable.
//!
//! It is a closed loop with one writer: the next operation starts when the one before is durable.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_sync::{Promise, SyncMethod};

use crate::claim::{Claim, Holds};
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::Layout;
use crate::result::ArmResult;
use crate::runner::{self, Rule, Size, Watch};
use crate::units;
use crate::writer::{self, Shape, Writer, WriterSpec};

/// The experiment.
#[derive(Debug)]
pub(super) struct SyncCost;

/// Blocks are short, so that the arms of a round see the same machine.
const SHAPE: Shape =
    Shape { block: Size { operations: 256, time: Duration::from_millis(25) }, records: 1024 };

/// The page size of many databases, and of the page cache.
const PAGE: u64 = 4096;
/// The article's record, and PostgreSQL's page.
const OTHER_SIZES: [u64; 2] = [200, 8192];
/// Methods that are measured with the other sizes in the quick profile.
const COMMON: [SyncMethod; 6] = [
    SyncMethod::Fsync,
    SyncMethod::Fdatasync,
    SyncMethod::ODsync,
    SyncMethod::RwfDsync,
    SyncMethod::DirectODsync,
    SyncMethod::ORDINARY,
];
/// The calls that are also measured with nothing to sync.
const CLEAN: [SyncMethod; 3] =
    [SyncMethod::Fsync, SyncMethod::Fdatasync, SyncMethod::FlushFileBuffers];

/// The article's time for an fsync with nothing to sync.
const ARTICLE_CLEAN_NS: u64 = 2_000_000;
/// How many calls the article makes.
const ARTICLE_CALLS: usize = 10_000;
const ARTICLE_BYTES: u64 = 200;

impl Experiment for SyncCost {
    fn name(&self) -> &'static str {
        "sync-cost"
    }

    fn question(&self) -> &'static str {
        "What does one durable write cost, by every method and layout?"
    }

    fn source(&self) -> &'static str {
        "article 3, \"fsync is Costly, But Don't Avoid It\" (fsync_speed); PostgreSQL pg_test_fsync"
    }

    fn explanation(&self) -> &'static str {
        "\
One writer writes a record and waits until it is durable, then writes the next: a closed loop. The
time counts from the start of the write to the return of whatever made it durable, so it holds the
write, the queue and the sync. Every method that works here runs on every layout:

  append       the file grows with each write, from nothing in each block
  fallocated   blocks are reserved, but marked unwritten
  zero-filled  blocks were written with zeros; each is overwritten once
  overwritten  blocks hold data; the same ones are overwritten again and again

Methods are compared only within their promise class. The columns flush/op and KiB/op count what
the device did for one operation: they explain most of the differences between layouts, and they
show whether a sync really reached the device. An arm that reports success without the flush that
its promise needs is marked INVALID.

'~' stands for no difference seen between the medians of the blocks (Mann-Whitney, 5 %).

How it can mislead: one writer says nothing of many (group commit); a fresh SSD is faster than one
in its steady state; a virtual disk may answer a flush without doing anything, which no program
inside the machine can see."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = match profile {
            Profile::Quick => 38,
            Profile::Full => 600,
            Profile::Article => 120,
        };
        let specs = specs(profile, &SyncMethod::ALL);
        let disk_bytes =
            specs.iter().map(|spec| spec.payload_bytes.max(PAGE) * SHAPE.records).sum();
        Cost { budget: Duration::from_secs(seconds), disk_bytes }
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        specs(profile, &SyncMethod::ALL).into_iter().map(WriterSpec::name).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        let specs = specs(setup.profile, &writer::working(setup));
        let (mut arms, cannot) = Writer::create_all(setup, &specs, SHAPE, watch)?;
        let unavailable = setup.unavailable().into_iter().chain(cannot).collect();
        let blocks = runner::run(&mut arms, 1, SHAPE.block, &rule(setup), setup.counters, watch)?;
        let arms: Vec<ArmResult> =
            arms.iter().zip(&blocks).map(|(arm, blocks)| arm.result(blocks, setup)).collect();
        let claims: Vec<Claim> = claim(&arms).into_iter().collect();
        let answer = answer(&arms, &claims);
        Ok(Measured { parameters: parameters(), answer, claims, arms, unavailable })
    }
}

fn parameters() -> Vec<String> {
    vec![
        format!("block_operations={}", SHAPE.block.operations),
        format!("block_ms={}", SHAPE.block.time.as_millis()),
        format!("file_records={}", SHAPE.records),
    ]
}

fn rule(setup: &Setup<'_>) -> Rule {
    let (precision, samples) = match setup.profile {
        Profile::Quick => (0.02, None),
        Profile::Full => (0.005, None),
        Profile::Article => (0.0, Some(ARTICLE_CALLS)),
    };
    // Twenty blocks give intervals worth printing, and thousands of samples give a tail.
    Rule { budget: setup.budget, blocks_min: 20, precision, samples, seed: setup.seed }
}

/// The arms of a profile, for the methods that work here.
fn specs(profile: Profile, methods: &[SyncMethod]) -> Vec<WriterSpec> {
    let mut specs = Vec::new();
    let mut add = |method, layout, payload_bytes| {
        let spec = WriterSpec { method, layout, payload_bytes };
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    };
    let clean = CLEAN.into_iter().filter(|method| methods.contains(method));
    clean.for_each(|method| add(method, Layout::Overwritten, 0));
    if profile == Profile::Article {
        for layout in [Layout::Append, Layout::Overwritten] {
            add(SyncMethod::ORDINARY, layout, ARTICLE_BYTES);
        }
        return specs;
    }
    for &method in methods {
        for layout in Layout::ALL {
            add(method, layout, PAGE);
            for bytes in OTHER_SIZES {
                let common = COMMON.contains(&method)
                    && [Layout::Append, Layout::Overwritten].contains(&layout);
                if common || profile == Profile::Full {
                    add(method, layout, bytes);
                }
            }
        }
    }
    specs
}

/// The answer, from valid arms.
fn answer(arms: &[ArmResult], claims: &[Claim]) -> Vec<String> {
    let find = |name: &str| arms.iter().find(|arm| arm.name == name && arm.valid);
    let mut answer = Vec::new();
    answer.extend(too_few(arms));
    let best = cheapest(arms, Promise::Media, PAGE);
    if let Some((best, best_p50)) = best {
        answer.push(format!(
            "A durable 4 KiB write costs {} here at best{}: {}, {}{}.",
            units::time(best_p50),
            if best.is_noisy() { ", on a machine that was busy" } else { "" },
            way(best),
            tail(best),
            as_cheap(arms, best)
        ));
        let naive = find(&name(SyncMethod::ORDINARY, Layout::Append, PAGE));
        if let Some((naive, p50)) = naive.and_then(|arm| Some((arm, arm.p50_ns()?))) {
            let spent = naive.attribution.map(|spent| format!(" of it {}.", spent.in_words()));
            answer.push(format!(
                "The plain way, {}, costs {} ({:.1} times that);{}",
                way(naive),
                units::time(p50),
                units::ratio(p50, best_p50),
                spent.unwrap_or_default()
            ));
        }
    }
    answer.extend(layouts(arms));
    for bytes in OTHER_SIZES {
        if let Some((best, p50)) = cheapest(arms, Promise::Media, bytes) {
            let (size, time) = (units::bytes(bytes), units::time(p50));
            answer.push(format!("A durable {size} write: {time} at best, {}.", way(best)));
        }
    }
    answer.extend(claims.iter().map(Claim::in_words));
    answer
}

/// The article's claim, and what was found here.
fn claim(arms: &[ArmResult]) -> Option<Claim> {
    let name = format!("{}/clean", SyncMethod::ORDINARY);
    let clean = arms.iter().find(|arm| arm.name == name && arm.valid)?;
    let p50 = clean.p50_ns()?;
    let flushes = clean.per_operation.map_or_else(String::new, |per_operation| {
        format!(", with {:.2} flushes of the device", per_operation.flushes)
    });
    // An effect less than half as large is another effect.
    let verdict = if p50 >= ARTICLE_CLEAN_NS / 2 { Holds::Holds } else { Holds::DoesNotHold };
    Some(Claim {
        article: 3,
        claim: format!("an fsync with nothing to sync costs {}", units::time(ARTICLE_CLEAN_NS)),
        claimed_ns: Some(ARTICLE_CLEAN_NS),
        here: format!("{}{flushes}", units::time(p50)),
        verdict,
    })
}

/// Says so if arms that promise the medium have too few samples to compare. Slow arms have the
/// fewest, so the best of the rest would be the best of the quick ones.
fn too_few(arms: &[ArmResult]) -> Option<String> {
    let media = arms.iter().filter(|arm| arm.valid && arm.promise == Promise::Media.name());
    let all = media.clone().count();
    let few = media.filter(|arm| arm.p50_ns().is_none()).count();
    (few > 0).then(|| {
        format!(
            "{few} of {all} arms have too few samples to be compared: give it a longer --budget."
        )
    })
}

/// How layout alone changes one method's cost, and why.
fn layouts(arms: &[ArmResult]) -> Option<String> {
    let method = [SyncMethod::Fdatasync, SyncMethod::ORDINARY]
        .into_iter()
        .find(|method| arms.iter().any(|arm| arm.name == name(*method, Layout::Append, PAGE)))?;
    let by_layout: HashMap<&str, &ArmResult> = arms
        .iter()
        .filter(|arm| arm.valid && arm.method == method.name() && arm.payload_bytes == PAGE)
        .map(|arm| (arm.layout.as_str(), arm))
        .collect();
    let steps: Option<Vec<String>> = Layout::ALL
        .into_iter()
        .map(|layout| {
            let arm = by_layout.get(layout.name())?;
            let kib = arm.per_operation.map_or_else(String::new, |per_operation| {
                format!(" ({:.1} KiB to the device)", per_operation.device_kib)
            });
            Some(format!("{layout} {}{kib}", units::time(arm.p50_ns()?)))
        })
        .collect();
    Some(format!("What layout does to {method}: {}.", steps?.join(", ")))
}

/// The valid arm of a class and a size with the lowest median, and that median.
fn cheapest(arms: &[ArmResult], promise: Promise, bytes: u64) -> Option<(&ArmResult, u64)> {
    arms.iter()
        .filter(|arm| arm.valid && arm.promise == promise.name() && arm.payload_bytes == bytes)
        .filter_map(|arm| Some((arm, arm.p50_ns()?)))
        .min_by_key(|&(_, p50)| p50)
}

/// How many arms of the same class and size cannot be told from the best one.
fn as_cheap(arms: &[ArmResult], best: &ArmResult) -> String {
    let same = |arm: &&ArmResult| {
        let class = (&arm.promise, arm.payload_bytes) == (&best.promise, best.payload_bytes);
        let ties = arm.summaries[0].differs_from(&best.summaries[0]) == Some(false);
        class && ties && arm.valid && arm.name != best.name
    };
    match arms.iter().filter(same).count() {
        0 => String::new(),
        1 => " (no difference seen from one other way)".to_owned(),
        ways => format!(" (no difference seen from {ways} other ways)"),
    }
}

fn name(method: SyncMethod, layout: Layout, payload_bytes: u64) -> String {
    WriterSpec { method, layout, payload_bytes }.name()
}

/// `fsync on a growing file`
fn way(arm: &ArmResult) -> String {
    let on = match arm.layout.parse() {
        Ok(Layout::Append) => "on a growing file",
        Ok(Layout::Fallocated) => "into fallocated blocks",
        Ok(Layout::ZeroFilled) => "into zero-filled blocks",
        Ok(Layout::Overwritten) | Err(_) => "over written blocks",
    };
    format!("{} {on}", arm.method)
}

fn tail(arm: &ArmResult) -> String {
    let summary = &arm.summaries[0];
    match (summary.p99_ns, summary.max_ns) {
        (Some(p99), _) => format!("p99 {}", units::time(p99)),
        (None, Some(max)) => format!("at most {} in {} writes", units::time(max), summary.n),
        (None, None) => "nothing measured".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    #[test]
    fn quick_measures_every_method_on_every_layout_and_names_each_arm_once() {
        let specs = specs(Profile::Quick, &SyncMethod::ALL);
        for method in SyncMethod::ALL {
            for layout in Layout::ALL {
                let spec = WriterSpec { method, layout, payload_bytes: PAGE };
                assert!(specs.contains(&spec), "{}", spec.name());
            }
        }
        let mut names: Vec<_> = specs.iter().map(|spec| spec.name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), specs.len());
    }

    #[test]
    fn an_fsync_of_nothing_stands_beside_the_articles() {
        let claimed = |p50_ns| {
            let summary = Summary { n: 1000, p50_ns: Some(p50_ns), ..Summary::default() };
            let name = format!("{}/clean", SyncMethod::ORDINARY);
            claim(&[ArmResult::of_summary(&name, summary)]).unwrap()
        };
        let said = claimed(10_700).in_words();
        let whole = "Article 3 claims that an fsync with nothing to sync costs 2.00 ms; here 10.7 µs: \
                     does not hold here.";
        assert_eq!(said, whole);
        assert_eq!(claimed(1_500_000).verdict, Holds::Holds);
        assert_eq!(claim(&[]), None);
    }

    #[test]
    fn the_article_syncs_clean_and_dirty_files() {
        let names: Vec<_> = specs(Profile::Article, &[SyncMethod::Fsync, SyncMethod::Fdatasync])
            .into_iter()
            .map(WriterSpec::name)
            .collect();
        let expected =
            ["fsync/clean", "fdatasync/clean", "fsync/append/200B", "fsync/overwritten/200B"];
        assert_eq!(names, expected);
    }
}
