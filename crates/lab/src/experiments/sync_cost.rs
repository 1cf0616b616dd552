//! What does one durable write cost, by every method and layout?
//!
//! Source: "fsync is Costly, But Don't Avoid It" (`fsync_speed`: 10,000 calls on one file, nothing
//! dirty) and PostgreSQL's `pg_test_fsync`. The article times bare fsyncs of a clean file; that arm
//! is kept, and beside it stands what people think of when they read it: a write and its sync,
//! joined into one time to durable.
//!
//! It is a closed loop with one writer: the next operation starts when the one before is durable.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_sync::{Promise, SyncMethod, System};

use crate::arm_result::{ArmResult, all_busy, busy_mark_of};
use crate::claim::{Article, Claim, Holds};
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::Layout;
use crate::least::OneBlock;
use crate::runner::{self, Rule, Size, Watch};
use crate::units;
use crate::warning::BEST_UNKNOWN;
use crate::warning::busy_stamp;
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
        "\"fsync is Costly, But Don't Avoid It\" (fsync_speed); PostgreSQL pg_test_fsync"
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
        let here = |spec: &&WriterSpec| spec.method.promise(System::HERE).is_some();
        let arms = specs.iter().filter(here).count();
        let block = OneBlock { time: SHAPE.block.time, syncs: 3, bytes: 0 };
        Cost::new(Duration::from_secs(seconds), disk_bytes, arms, block)
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
        let (answer, in_short) = (answer(&arms, &claims), in_short(&arms));
        Ok(Measured { parameters: parameters(), answer, in_short, claims, arms, unavailable })
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
    Rule { budget: setup.budget_left(), blocks_min: 20, precision, samples, seed: setup.seed }
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
    let best = cheapest(arms, PAGE);
    answer.extend(best_unknown(arms, PAGE));
    answer.extend(best.map(|(best, p50)| {
        format!(
            "A durable 4 KiB write costs {} here at best{}: {}, {}{}.",
            units::time(p50),
            if best.is_noisy() { ", on a machine that was busy" } else { "" },
            way(best),
            tail(best),
            as_cheap(arms, best)
        )
    }));
    let naive = find(&name(SyncMethod::ORDINARY, Layout::Append, PAGE));
    if let Some((naive, p50)) = naive.and_then(|arm| Some((arm, arm.p50_ns()?))) {
        let times = best.map_or_else(String::new, |(_, best_p50)| {
            format!(" ({:.1} times that)", units::ratio(p50, best_p50))
        });
        let spent = naive.attribution.map(|spent| format!("; of it {}", spent.in_words()));
        answer.push(format!(
            "The plain way, {}, costs {}{}{times}{}.",
            way(naive),
            units::time(p50),
            busy_stamp(naive.is_noisy()),
            spent.unwrap_or_default()
        ));
    }
    answer.extend(layouts(arms));
    for bytes in OTHER_SIZES {
        answer.extend(best_unknown(arms, bytes));
        if let Some((best, p50)) = cheapest(arms, bytes) {
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
    let claim = format!("an fsync with nothing to sync costs {}", units::time(ARTICLE_CLEAN_NS));
    let here = format!("{}{flushes}", units::time(p50));
    let claim = Claim::new(Article::Costly, claim, here, verdict).of_arms(&[clean]);
    Some(Claim { claimed_ns: Some(ARTICLE_CLEAN_NS), ..claim })
}

/// What layout does to the plain way, for a line of a screen.
fn in_short(arms: &[ArmResult]) -> Option<String> {
    let (method, of) = by_layout(arms)?;
    let [growing, written] = [Layout::Append, Layout::Overwritten].map(|l| of.get(l.name()));
    let (growing, written) = growing.copied().zip(written.copied())?;
    Some(format!(
        "{method}: {} on a growing file, {} over written blocks{}",
        units::time(growing.p50_ns()?),
        units::time(written.p50_ns()?),
        busy_mark_of(&[growing, written])
    ))
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

/// The plain method, and its valid arms of a page by their layouts.
fn by_layout(arms: &[ArmResult]) -> Option<(SyncMethod, HashMap<&str, &ArmResult>)> {
    let method = [SyncMethod::Fdatasync, SyncMethod::ORDINARY]
        .into_iter()
        .find(|method| arms.iter().any(|arm| arm.name == name(*method, Layout::Append, PAGE)))?;
    let of =
        |arm: &&ArmResult| arm.valid && arm.method == method.name() && arm.payload_bytes == PAGE;
    Some((method, arms.iter().filter(of).map(|arm| (arm.layout.as_str(), arm)).collect()))
}

/// How layout alone changes one method's cost, and why.
fn layouts(arms: &[ArmResult]) -> Option<String> {
    let (method, by_layout) = by_layout(arms)?;
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

/// The valid arms of a size that promise the medium.
fn durable(arms: &[ArmResult], bytes: u64) -> impl Iterator<Item = &ArmResult> {
    let media = Promise::Media.name();
    arms.iter().filter(move |a| a.valid && a.promise == media && a.payload_bytes == bytes)
}

/// The one with the lowest median, and that median; none where all were measured on a busy machine.
fn cheapest(arms: &[ArmResult], bytes: u64) -> Option<(&ArmResult, u64)> {
    if all_busy(durable(arms, bytes)) {
        return None;
    }
    durable(arms, bytes).filter_map(|a| Some((a, a.p50_ns()?))).min_by_key(|&(_, p50)| p50)
}

/// Why no best is named of a size, where that is so.
fn best_unknown(arms: &[ArmResult], bytes: u64) -> Option<String> {
    let size = units::bytes(bytes);
    all_busy(durable(arms, bytes))
        .then(|| format!("What a durable {size} write costs at best is {BEST_UNKNOWN}."))
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
    use crate::warning::{Kind, Warning};

    /// "15.2 ms here at best" was said where others had kept the machine busy all the time.
    #[test]
    fn no_best_is_named_where_every_arm_was_busy() {
        let arm = |method: SyncMethod, p50_ns| {
            let summary = Summary { n: 400, p50_ns: Some(p50_ns), ..Summary::default() };
            let mut arm = ArmResult::of_summary(&name(method, Layout::Append, PAGE), summary);
            (arm.method, arm.layout) = (method.name().to_owned(), Layout::Append.name().to_owned());
            arm.warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
            arm
        };
        let mut arms = [arm(SyncMethod::ORDINARY, 90_000), arm(SyncMethod::ODsync, 50_000)];
        let said = answer(&arms, &[]).join("\n");
        let unknown =
            "What a durable 4 KiB write costs at best is not known here: the machine was busy.";
        assert!(said.starts_with(unknown) && !said.contains("50.0 µs"), "{said}");
        assert!(said.contains("costs 90.0 µs, on a busy machine."), "{said}");
        arms[0].warnings.clear();
        let said = answer(&arms, &[]).join("\n");
        assert!(said.starts_with("A durable 4 KiB write costs 50.0 µs here at best"), "{said}");
        assert!(said.contains("costs 90.0 µs (1.8 times that)."), "{said}");
    }

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
        let whole = "\"fsync is Costly, But Don't Avoid It\" claims that an fsync with nothing to sync \
                     costs 2.00 ms; here 10.7 µs: does not hold here.";
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
