//! Which charts show a result. They are chosen by what the arms say of themselves, so that even an
//! experiment that this file does not know gets charts.

use std::collections::BTreeSet;

use maud::html;
use plimsoll_sync::{Promise, SyncMethod};

use super::chart::{self, Bar, Group, Lane, Row, Spread, Stalls, Standing};
use super::figure::Figure;
use super::{against, text};
use crate::arm_result::ArmResult;
use crate::claim::Claim;
use crate::layout::Layout;
use crate::result::ExperimentResult;
use crate::summary::Summary;
use crate::units;

/// The charts of a result, the most telling first. Each arm that was measured is in one of them.
pub(super) fn figures(result: &ExperimentResult) -> Vec<Figure> {
    match result.experiment.as_str() {
        "sync-cost" => cost(result),
        "write-during-sync" => race(result),
        _ => {
            let special = [
                against::loss_window(result),
                per_file(result),
                against::by_writers(result),
                against::by_cached_bytes(result),
            ];
            let mut figures: Vec<Figure> = special.into_iter().flatten().collect();
            figures.extend(stalls(result));
            figures.extend(every_arm(result));
            figures
        }
    }
}

/// By method, in panels of layouts, for each size and class of promise; then where the time went.
fn cost(result: &ExperimentResult) -> Vec<Figure> {
    let class = |bytes: u64, promise: Promise| -> Vec<&ArmResult> {
        let is = |arm: &&ArmResult| arm.payload_bytes == bytes && arm.promise == promise.name();
        result.arms.iter().filter(is).collect()
    };
    let known = |arm: &&ArmResult| Promise::ALL.iter().any(|p| p.name() == arm.promise);
    let mut figures = Vec::new();
    let sizes: BTreeSet<u64> = result.arms.iter().map(|arm| arm.payload_bytes).collect();
    let page = 4096;
    for promise in Promise::ALL {
        let arms = class(page, promise);
        let title = match promise {
            Promise::Media => "4 KiB made durable, by method".to_owned(),
            _ => format!("The same, promised less: {promise}"),
        };
        figures.extend(ranges(title, by_layout(&arms, "")));
    }
    let mut others = Vec::new();
    for &bytes in sizes.iter().filter(|&&bytes| bytes != page) {
        for promise in Promise::ALL {
            let arms = class(bytes, promise);
            let prefix = match (bytes, promise) {
                (0, _) => "nothing to sync, ".to_owned(),
                (_, Promise::Media) => format!("{}, ", units::bytes(bytes)),
                _ => format!("{}, {promise}, ", units::bytes(bytes)),
            };
            let mut groups = by_layout(&arms, &prefix);
            if let (0, Some(group), Some(claimed)) = (bytes, groups.first_mut(), claimed(result)) {
                group.title = "nothing to sync".to_owned();
                group.reference = Some(claimed);
            }
            others.extend(groups);
        }
    }
    figures.extend(ranges("Other sizes".to_owned(), others));
    figures.extend(spent(result));
    let unknown: Vec<&ArmResult> = result.arms.iter().filter(|arm| !known(arm)).collect();
    figures.extend(ranges("Other arms".to_owned(), vec![group("", &unknown, false)]));
    figures
}

/// A time that an article claims.
fn claimed(result: &ExperimentResult) -> Option<(f64, String)> {
    // Zero has no place on a logarithmic axis.
    let timed = |claim: &Claim| claim.claimed_ns.filter(|&ns| ns > 0);
    let ns = result.claims.iter().find_map(timed)?;
    Some((units::ratio(ns, 1), format!("the article: {}", units::short_time(ns))))
}

/// A panel for each layout, its methods from fast to slow.
fn by_layout(arms: &[&ArmResult], prefix: &str) -> Vec<Group> {
    let layouts: BTreeSet<&str> = arms.iter().map(|arm| arm.layout.as_str()).collect();
    let mut layouts: Vec<&str> = layouts.into_iter().collect();
    layouts.sort_by_key(|name| Layout::ALL.iter().position(|layout| layout.name() == *name));
    let best = best(arms);
    let panel = |layout: &str| {
        let mut of: Vec<&ArmResult> =
            arms.iter().filter(|arm| arm.layout == layout).copied().collect();
        of.sort_by_key(|arm| (!arm.valid, arm.p50_ns().unwrap_or(u64::MAX)));
        let row =
            |arm: &&ArmResult| Row { label: arm.method.clone(), lanes: lanes(arm, arms, best, 1) };
        Group {
            title: format!("{prefix}{layout}"),
            rows: of.iter().map(row).collect(),
            reference: None,
        }
    };
    layouts.into_iter().map(panel).collect()
}

/// Writes with and without a sync in flight, then the stalls over time.
fn race(result: &ExperimentResult) -> Vec<Figure> {
    let mut figures = Vec::new();
    let groups: Vec<Group> = grouped(result)
        .into_iter()
        .map(|(title, arms)| {
            let row = |arm: &&ArmResult| Row { label: label(arm), lanes: lanes(arm, &[], None, 2) };
            Group { title, rows: arms.iter().map(row).collect(), reference: None }
        })
        .collect();
    let title = "One write(2), with and without a sync in flight".to_owned();
    let names = measures(&result.arms.iter().collect::<Vec<_>>(), 2);
    figures.extend(ranges(title, groups).map(|figure| with_key(figure, &names)));
    figures.extend(stalls(result));
    figures
}

/// The slowest writes over time: of all arms if there are few, else of the quiet one and the worst
/// one of each group.
fn stalls(result: &ExperimentResult) -> Option<Figure> {
    let has = |arm: &&ArmResult| arm.series.as_ref().is_some_and(|s| !s.writes.is_empty());
    let with: Vec<&ArmResult> = result.arms.iter().filter(has).collect();
    let chosen: Vec<&ArmResult> = if with.len() <= 4 {
        with
    } else {
        grouped(result).into_iter().flat_map(|(_, arms)| telling(&arms)).collect()
    };
    if chosen.is_empty() {
        return None;
    }
    let panel = |arm: &&ArmResult| {
        let series = arm.series.clone().unwrap_or_default();
        let number = |value: u64| units::ratio(value, 1);
        let mut writes: Vec<(f64, f64, bool)> =
            series.writes.iter().map(|w| (number(w.0), number(w.1), w.2)).collect();
        writes.sort_by(|a, b| a.0.total_cmp(&b.0));
        Stalls {
            title: arm.name.clone(),
            writes,
            syncs: series
                .syncs
                .iter()
                .map(|sync| (number(sync.0) / 1e3, number(sync.1) / 1e6, sync.2))
                .collect(),
        }
    };
    let panels: Vec<Stalls> = chosen.iter().map(panel).collect();
    let in_words = |panel: &Stalls| {
        let slowest = panel.writes.iter().map(|write| write.1).fold(0.0, f64::max);
        let held = panel.syncs.iter().filter(|sync| sync.2).count();
        format!(
            "{}: slowest write {}, {held} of {} syncs held a write up",
            panel.title,
            units::quantity("_ns", slowest).1,
            panel.syncs.len()
        )
    };
    let description = panels.iter().map(in_words).collect::<Vec<_>>().join("; ");
    let bucket_ms = chosen.iter().filter_map(|arm| Some(arm.series.as_ref()?.bucket_ms)).max();
    Some(Figure {
        title: "Stalls over time".to_owned(),
        description,
        note: html! {
            "Each stem is the slowest write of " (units::short_time(bucket_ms.unwrap_or(0).saturating_mul(1_000_000)))
            " or more; one with a dot met a sync in flight. Blocks below are the syncs; a tall block \
             held a write up. All panels share their scales."
        },
        draw: Box::new(move |paper| chart::stalls(paper, &panels)),
    })
}

/// The arm without syncs, and the one with the slowest write beside a sync.
fn telling<'a>(arms: &[&'a ArmResult]) -> Vec<&'a ArmResult> {
    let slowest = |arm: &&&ArmResult| {
        let writes = arm.series.iter().flat_map(|series| &series.writes);
        writes.filter(|write| write.2).map(|write| write.1).max()
    };
    let syncs = |arm: &&&ArmResult| arm.series.as_ref().is_some_and(|s| !s.syncs.is_empty());
    let quiet = arms.iter().find(|arm| arm.series.is_some() && !syncs(arm));
    let worst = arms.iter().filter(|arm| syncs(arm)).max_by_key(slowest);
    [quiet, worst].into_iter().flatten().copied().collect()
}

/// Where the time goes, for the plain ways and the best one.
fn spent(result: &ExperimentResult) -> Option<Figure> {
    let arms = text::spent_arms(result);
    if arms.is_empty() {
        return None;
    }
    let plain = [SyncMethod::ORDINARY, SyncMethod::Fdatasync].map(SyncMethod::name);
    let bar = |arm: &&ArmResult| {
        let spent = arm.attribution?;
        let parts = [
            spent.own_cpu_ns,
            spent.run_queue_ns,
            spent.device_write_ns.unwrap_or(0),
            spent.device_flush_ns.unwrap_or(0),
            spent.kernel_and_filesystem_ns,
        ];
        let parts = parts.into_iter().enumerate().map(|(p, ns)| (p, units::ratio(ns, 1)));
        Some(Bar {
            label: arm.name.clone(),
            parts: parts.collect(),
            value: format!("mean {}", units::time(spent.mean_ns)),
            standing: match plain.contains(&arm.method.as_str()) {
                _ if !arm.valid => Standing::Invalid,
                true => Standing::Plain,
                false => Standing::Best,
            },
        })
    };
    let bars: Vec<Bar> = arms.iter().filter_map(bar).collect();
    let in_words = |arm: &&ArmResult| {
        arm.attribution.map(|spent| format!("{}: {}", arm.name, spent.in_words()))
    };
    let description = arms.iter().filter_map(in_words).collect::<Vec<_>>().join("; ");
    let names =
        ["own CPU", "waiting for a CPU", "device write", "device flush", "kernel and filesystem"];
    Some(Figure {
        title: "Where the time goes".to_owned(),
        description,
        note: html! {
            (chart::pattern_key("spent", &names))
            "Parts of the mean, which they add up to; kernel and filesystem is what no counter \
             explains."
        },
        draw: Box::new(move |paper| chart::bars(paper, &bars, true)),
    })
}

/// What a small file costs.
fn per_file(result: &ExperimentResult) -> Option<Figure> {
    let name = "per_file_us";
    let cost = |arm: &ArmResult| arm.values.get(name).copied();
    let mut arms: Vec<&ArmResult> =
        result.arms.iter().filter(|arm| cost(arm).is_some_and(f64::is_finite)).collect();
    if arms.is_empty() {
        return None;
    }
    let class = |arm: &ArmResult| {
        Promise::ALL.iter().position(|promise| promise.name() == arm.promise).unwrap_or(4)
    };
    arms.sort_by(|a, b| {
        class(a).cmp(&class(b)).then(cost(a).unwrap_or(0.0).total_cmp(&cost(b).unwrap_or(0.0)))
    });
    let bar = |arm: &&ArmResult| {
        let value = cost(arm).unwrap_or(0.0);
        let mark = if arm.valid { "" } else { " INVALID" };
        Bar {
            label: arm.name.clone(),
            parts: vec![(class(arm), value)],
            value: format!("{}{mark}", units::quantity(name, value).1),
            standing: if arm.valid { Standing::Plain } else { Standing::Invalid },
        }
    };
    let bars: Vec<Bar> = arms.iter().map(bar).collect();
    let description = bars.iter().map(|bar| format!("{}: {}", bar.label, bar.value));
    let names = Promise::ALL.map(Promise::name);
    Some(Figure {
        title: "Cost per file".to_owned(),
        description: description.collect::<Vec<_>>().join("; "),
        note: html! {
            (chart::pattern_key("per-file", &names))
            "Only bars of one pattern promise the same and may be compared."
        },
        draw: Box::new(move |paper| chart::bars(paper, &bars, false)),
    })
}

/// The ranges of all measures of all arms.
fn every_arm(result: &ExperimentResult) -> Option<Figure> {
    let all: Vec<&ArmResult> = result.arms.iter().collect();
    let names = measures(&all, 4);
    let groups =
        grouped(result).into_iter().map(|(title, arms)| group(&title, &arms, true)).collect();
    let title = match names.as_slice() {
        [one] => capital(one),
        _ => "Times".to_owned(),
    };
    ranges(title, groups).map(|figure| with_key(figure, &names))
}

/// Arms that promise the same on the same layout.
fn grouped(result: &ExperimentResult) -> Vec<(String, Vec<&ArmResult>)> {
    let layouts = result.arms.iter().all(|arm| arm.name.ends_with(&format!("/{}", arm.layout)));
    let promises: BTreeSet<&str> = result.arms.iter().map(|arm| arm.promise.as_str()).collect();
    // In a race the promise is that of the syncs beside the writes, which are what is compared.
    let by_promise = promises.len() > 1 && result.experiment != "write-during-sync";
    let mut groups: Vec<(String, Vec<&ArmResult>)> = Vec::new();
    for arm in &result.arms {
        let parts = [(by_promise, &arm.promise), (layouts, &arm.layout)];
        let parts: Vec<&str> =
            parts.into_iter().filter_map(|(is, part)| is.then_some(part.as_str())).collect();
        let title = parts.join(", ");
        match groups.iter_mut().find(|group| group.0 == title) {
            Some(group) => group.1.push(arm),
            None => groups.push((title, vec![arm])),
        }
    }
    groups
}

fn group(title: &str, arms: &[&ArmResult], rank: bool) -> Group {
    let rivals = if rank { arms } else { &[] };
    let row = |arm: &&ArmResult| Row {
        label: if title.ends_with(&arm.layout) { label(arm) } else { arm.name.clone() },
        lanes: lanes(arm, rivals, best(rivals), 4),
    };
    Group { title: title.to_owned(), rows: arms.iter().map(row).collect(), reference: None }
}

/// The name of an arm without its layout, which is said elsewhere.
fn label(arm: &ArmResult) -> String {
    let bare = arm.name.strip_suffix(arm.layout.as_str()).and_then(|name| name.strip_suffix('/'));
    bare.unwrap_or(&arm.name).to_owned()
}

/// The arm with the lowest median, if there are at least two to choose from and one of them was left in
/// peace.
fn best<'a>(arms: &[&'a ArmResult]) -> Option<&'a str> {
    let valid = arms.iter().filter(|arm| arm.valid && arm.p50_ns().is_some());
    if valid.count() < 2 {
        return None;
    }
    text::lowest(arms).map(|arm| arm.name.as_str())
}

/// A lane for each of the first measures.
fn lanes(arm: &ArmResult, rivals: &[&ArmResult], best: Option<&str>, most: usize) -> Vec<Lane> {
    let measured = arm.summaries.iter().take(most).enumerate().filter(|(_, s)| s.n > 0);
    let lane = |(number, summary): (usize, &Summary)| {
        let standing = match best {
            _ if !arm.valid => Standing::Invalid,
            Some(best) if best == arm.name && number == 0 => Standing::Best,
            _ => Standing::Plain,
        };
        let mut signs = if number == 0 { text::mark(arm, rivals) } else { String::new() };
        signs.retain(|sign| ['~', '?'].contains(&sign));
        let value = match (summary.p50_ns, summary.max_ns) {
            _ if !arm.valid => "INVALID".to_owned(),
            (Some(p50), _) => units::time(p50),
            (None, Some(max)) => format!("max {}", units::time(max)),
            (None, None) => "–".to_owned(),
        };
        let value = format!("{value} {signs}").trim_end().to_owned();
        Lane { shape: number, spread: spread(summary), value, standing }
    };
    measured.map(lane).collect()
}

fn spread(summary: &Summary) -> Option<Spread> {
    let number = |ns: u64| units::ratio(ns.max(1), 1);
    let (min, max) = (summary.min_ns?, summary.max_ns?);
    let low = tenth(summary).unwrap_or(min).clamp(min, max.max(min));
    let high = summary.p99_ns.or(summary.p90_ns);
    Some(Spread {
        middle: summary.p50_ns.map(number),
        most: high.map(|high| (number(low.min(high)), number(high))),
        all: (number(min), number(max.max(min))),
    })
}

/// The 10th percentile, if there are enough samples for it.
fn tenth(summary: &Summary) -> Option<u64> {
    if summary.n < 100 {
        return None;
    }
    let total: u128 = summary.histogram.iter().map(|bucket| u128::from(bucket.1)).sum();
    let mut seen = 0;
    summary.histogram.iter().find_map(|&(ns, times)| {
        seen += u128::from(times);
        (seen * 10 >= total).then_some(ns)
    })
}

fn measures(arms: &[&ArmResult], most: usize) -> Vec<String> {
    let longest = arms.iter().map(|arm| &arm.summaries).max_by_key(|summaries| summaries.len());
    longest.into_iter().flatten().take(most).map(|summary| summary.measure.clone()).collect()
}

fn with_key(figure: Figure, names: &[String]) -> Figure {
    if names.len() < 2 {
        return figure;
    }
    let note = html! {
        ul.key {
            @for (number, name) in names.iter().enumerate() {
                li { (chart::sample(number)) " " (name) }
            }
        }
        (figure.note)
    };
    Figure { note, ..figure }
}

/// A figure of ranges, if there are any.
fn ranges(title: String, mut groups: Vec<Group>) -> Option<Figure> {
    groups.retain(|group| !group.rows.is_empty());
    if groups.is_empty() {
        return None;
    }
    let said = |group: &Group| {
        let rows: Vec<String> = group
            .rows
            .iter()
            .map(|row| {
                let values: Vec<&str> = row.lanes.iter().map(|lane| lane.value.as_str()).collect();
                format!("{} {}", row.label, values.join(" and "))
            })
            .collect();
        format!("{}: {}", group.title, rows.join(", "))
    };
    let description =
        format!("Medians. {}", groups.iter().map(said).collect::<Vec<_>>().join("; "));
    Some(Figure {
        title,
        description,
        note: html! {},
        draw: Box::new(move |paper| chart::ranges(paper, &groups)),
    })
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_tenth_is_known_only_from_a_hundred_samples() {
        let of = |n| Summary { n, histogram: vec![(5, 20), (9, 80)], ..Summary::default() };
        assert_eq!(tenth(&of(100)), Some(5));
        assert_eq!(tenth(&of(99)), None);
    }
}
