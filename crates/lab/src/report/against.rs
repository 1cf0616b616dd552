//! Figures of one value against another: records by writers, cost against what may be lost, flushes
//! by what is cached. A figure is made if the arms have the values that it needs.

use maud::html;

use super::chart::whole;
use super::curves::{self, Axes, Curve, Named};
use super::figure::Figure;
use crate::arm_result::ArmResult;
use crate::result::ExperimentResult;
use crate::summary::Summary;
use crate::units;

/// Throughput by writers.
pub(super) fn by_writers(result: &ExperimentResult) -> Option<Figure> {
    let (y, title, y_name) = [
        ("records_per_s", "Durable records per second, by writers", "records per second"),
        (
            "acknowledged_per_s",
            "Acknowledgements per second, by writers",
            "acknowledged per second",
        ),
    ]
    .into_iter()
    .find(|(y, ..)| result.arms.iter().any(|arm| arm.values.contains_key(*y)))?;
    let (curves, _) = families(result, "writers", y);
    if curves.is_empty() {
        return None;
    }
    Some(Figure {
        title: title.to_owned(),
        description: in_words(&curves, "writers", y),
        note: html! { "Both axes are logarithmic: equal steps are equal ratios." },
        draw: Box::new(move |paper| {
            let axes = Axes {
                x_name: "writers",
                x_text: units::figure,
                y_name,
                y_text: units::figure,
                logarithmic: true,
                beside: None,
                levels: Vec::new(),
                knees: Vec::new(),
            };
            curves::curves(paper, &axes, &curves)
        }),
    })
}

/// The time of a flush by how much is cached: the median with its interval, and the tail. A flush
/// with nothing cached has no place on the axis of bytes, so it is a line across.
pub(super) fn by_cached_bytes(result: &ExperimentResult) -> Option<Figure> {
    let number = |ns: u64| units::ratio(ns, 1);
    let mut arms: Vec<(f64, &Summary)> = result
        .arms
        .iter()
        .filter(|arm| arm.valid)
        .filter_map(|arm| Some((*arm.values.get("cached_bytes")?, arm.summaries.first()?)))
        .filter(|(bytes, summary)| bytes.is_finite() && summary.p50_ns.is_some())
        .collect();
    arms.sort_by(|a, b| a.0.total_cmp(&b.0));
    let levels: Vec<(f64, String)> = arms
        .iter()
        .filter(|(bytes, _)| *bytes == 0.0)
        .filter_map(|(_, summary)| summary.p50_ns)
        .map(|p50| (number(p50), format!("nothing cached: {}", units::time(p50))))
        .collect();
    arms.retain(|(bytes, _)| *bytes > 0.0);
    if arms.len() < 2 {
        return None;
    }
    let curve = |name: &str, of: fn(&Summary) -> Option<u64>| {
        let point = |(bytes, summary): &(f64, &Summary)| Some((*bytes, number(of(summary)?)));
        let points: Vec<(f64, f64)> = arms.iter().filter_map(point).collect();
        // A tail of some arms only would say something about the samples, not about the disk.
        (points.len() == arms.len()).then(|| Curve {
            name: name.to_owned(),
            points,
            intervals: Vec::new(),
        })
    };
    let mut median = curve("median", |summary| summary.p50_ns)?;
    let interval = |(bytes, summary): &(f64, &Summary)| {
        let (low, high) = summary.p50_ci95_ns?;
        Some((*bytes, number(low), number(high)))
    };
    median.intervals = arms.iter().filter_map(interval).collect();
    let tail =
        curve("p99", |summary| summary.p99_ns).or_else(|| curve("p90", |summary| summary.p90_ns));
    let curves: Vec<Curve> = [Some(median), tail].into_iter().flatten().collect();
    let nothing: Vec<String> = levels.iter().map(|level| format!("; {}", level.1)).collect();
    let description = in_words(&curves, "cached_bytes", "flush_ns") + &nothing.concat();
    Some(Figure {
        title: "What a flush costs, by what is cached".to_owned(),
        description,
        note: html! {
            "If the line rises at a speed that a medium can have, the cache is volatile and is emptied. \
             Upright strokes are 95 % intervals of the median. The axis of bytes is logarithmic."
        },
        draw: Box::new(move |paper| {
            let axes = Axes {
                x_name: "bytes cached before it",
                x_text: |bytes| units::quantity("_bytes", bytes).1,
                y_name: "time of the flush",
                y_text: |ns| units::short_time(whole(ns)),
                logarithmic: spans(&curves),
                beside: None,
                levels: levels.clone(),
                knees: Vec::new(),
            };
            curves::curves(paper, &axes, &curves)
        }),
    })
}

/// Whether values lie so far apart that only a logarithmic axis shows them all.
fn spans(curves: &[Curve]) -> bool {
    let ys = || curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let (low, high) = (ys().fold(f64::MAX, f64::min), ys().fold(0.0, f64::max));
    low > 0.0 && high / low > 12.0
}

/// What syncing costs, against what is lost without.
pub(super) fn loss_window(result: &ExperimentResult) -> Option<Figure> {
    let x = "at_risk_bytes";
    let y = ["cost_over_end", "throughput_mib_s"]
        .into_iter()
        .find(|name| result.arms.iter().any(|arm| arm.values.contains_key(*name)))?;
    let (curves, arms) = families(result, x, y);
    let knees = knees(result, x, &curves, y == "cost_over_end");
    // Curves differ in their time at risk; show that of the one with the most points.
    let longest = curves.iter().max_by_key(|curve| curve.points.len())?.name.clone();
    let beside_name = match curves.len() {
        1 => "time at risk".to_owned(),
        _ => format!("time at risk, {longest}"),
    };
    let mut at_risk: Vec<(f64, String)> = arms
        .iter()
        .filter(|arm| family(&arm.name) == longest)
        .filter_map(|arm| {
            let ms = *arm.values.get("at_risk_ms")?;
            Some((*arm.values.get(x)?, units::quantity("at_risk_ms", ms).1))
        })
        .collect();
    at_risk.sort_by(|a, b| a.0.total_cmp(&b.0));
    at_risk.dedup_by(|a, b| a.0.total_cmp(&b.0).is_eq());
    let placed = |arm: &&ArmResult| arms.iter().any(|placed| placed.name == arm.name);
    let without: Vec<String> = result
        .arms
        .iter()
        .filter(|arm| !placed(arm))
        .filter_map(|arm| Some(format!("{} {}", arm.name, units::figure(*arm.values.get(y)?))))
        .collect();
    let (y_name, y_text): (&'static str, Named) = match y {
        "cost_over_end" => {
            ("cost, as a multiple of one sync at the end", |v| format!("{} ×", units::figure(v)))
        }
        _ => ("MiB/s", units::figure),
    };
    let logarithmic = spans(&curves);
    let knees_said: Vec<String> = knees.iter().map(|knee| format!("; {}", knee.1)).collect();
    Some(Figure {
        title: "What syncing costs, against what may be lost".to_owned(),
        description: in_words(&curves, x, y) + &knees_said.concat(),
        note: html! {
            "To the left, less is lost in a crash. Left of the knee, each halving of the loss costs \
             more than a tenth."
            @if !without.is_empty() { " Not drawn: " (without.join(", ")) "." }
        },
        draw: Box::new(move |paper| {
            let axes = Axes {
                x_name: "bytes at risk",
                x_text: |bytes| units::quantity("_bytes", bytes).1,
                y_name,
                y_text,
                logarithmic,
                beside: (!at_risk.is_empty()).then(|| (beside_name.as_str(), at_risk.clone())),
                levels: Vec::new(),
                knees: knees.clone(),
            };
            curves::curves(paper, &axes, &curves)
        }),
    })
}

/// Where the price begins: at the arms that say so, else on the curve with the most points.
fn knees(
    result: &ExperimentResult,
    x: &str,
    curves: &[Curve],
    is_cost: bool,
) -> Vec<(f64, String)> {
    let named = |at: f64, whose: &str| {
        let at_risk = units::quantity(x, at).1;
        match curves.len() {
            1 => (at, format!("knee: {at_risk}")),
            _ => (at, format!("knee, {whose}: {at_risk}")),
        }
    };
    let is_knee = |arm: &&ArmResult| arm.values.get("is_knee").is_some_and(|&is| is > 0.0);
    let said: Vec<(f64, String)> = result
        .arms
        .iter()
        .filter(|arm| arm.valid)
        .filter(is_knee)
        .filter_map(|arm| Some(named(*arm.values.get(x)?, &family(&arm.name))))
        .collect();
    if !said.is_empty() {
        return said;
    }
    let longest = curves.iter().max_by_key(|curve| curve.points.len());
    let found = longest.and_then(|curve| Some(named(knee(&curve.points, is_cost)?, &curve.name)));
    found.into_iter().collect()
}

/// Where the price begins: the least that is at risk while the price is at most a tenth above that
/// of the last point. `points` run from left to right.
fn knee(points: &[(f64, f64)], is_cost: bool) -> Option<f64> {
    let last = points.last()?.1;
    let dear = |&&(_, y): &&(f64, f64)| if is_cost { y > last * 1.1 } else { y < last * 0.9 };
    let dear = points.iter().rev().find(dear)?.0;
    points.iter().find(|point| point.0 > dear).map(|point| point.0)
}

/// The arms that have both values, and a curve for each family of them: arms whose names differ
/// only in the parts that count.
fn families<'a>(
    result: &'a ExperimentResult,
    x: &str,
    y: &str,
) -> (Vec<Curve>, Vec<&'a ArmResult>) {
    let mut curves: Vec<Curve> = Vec::new();
    let mut arms = Vec::new();
    // An arm that belongs to no family is not drawn, unless no arm belongs to one.
    let orphans = result.arms.iter().all(|arm| family(&arm.name).is_empty());
    let belongs = |arm: &&ArmResult| orphans || !family(&arm.name).is_empty();
    for arm in result.arms.iter().filter(|arm| arm.valid).filter(belongs) {
        let (Some(&x), Some(&y)) = (arm.values.get(x), arm.values.get(y)) else { continue };
        if !(x > 0.0 && x.is_finite() && y.is_finite()) {
            continue;
        }
        arms.push(arm);
        let name = family(&arm.name);
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push((x, y)),
            None => {
                curves.push(Curve { name, points: vec![(x, y)], intervals: Vec::new() });
            }
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    (curves, arms)
}

/// The name of an arm without its parts that count: `shared/16` belongs to `shared`,
/// `end/background` to `background`.
fn family(name: &str) -> String {
    let counts = |part: &&str| {
        part.starts_with(|c: char| c.is_ascii_digit()) || ["end", "never"].contains(part)
    };
    let parts: Vec<&str> = name.split('/').map(str::trim).filter(|part| !counts(part)).collect();
    parts.join(", ")
}

fn in_words(curves: &[Curve], x: &str, y: &str) -> String {
    let point = |point: &(f64, f64)| {
        format!("{} at {}", units::quantity(y, point.1).1, units::quantity(x, point.0).1)
    };
    let curve = |curve: &Curve| {
        let points: Vec<String> = curve.points.iter().map(point).collect();
        format!("{}: {}", curve.name, points.join(", "))
    };
    curves.iter().map(curve).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_the_price_begins() {
        let costs = [(4096.0, 9.0), (65_536.0, 1.4), (1e6, 1.09), (1e7, 1.02), (1e9, 1.0)];
        assert_eq!(knee(&costs, true), Some(1e6));
        let rates = [(4096.0, 50.0), (65_536.0, 700.0), (1e6, 960.0), (1e9, 1000.0)];
        assert_eq!(knee(&rates, false), Some(1e6));
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 1.0)], true), None, "no price, no knee");
    }

    #[test]
    fn curves_are_named_after_what_does_not_vary() {
        assert_eq!(family("shared/16"), "shared");
        assert_eq!(family("in the background/100MiB"), "in the background");
        assert_eq!(family("end/background"), "background");
    }
}
