//! Curves as SVG: one value against another. Pure: points in, markup out.

use maud::{Markup, html};

use super::chart::{LINE_PX, Paper, TEXT_PX, count, n, shape};
use super::scale::{Scale, pushed_apart, text_px, without_overlap};

/// One line through points.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub(super) name: String,
    /// Left to right.
    pub(super) points: Vec<(f64, f64)>,
    /// How well points are known: at a place, from a value to a value.
    pub(super) intervals: Vec<(f64, f64, f64)>,
}

/// How the values of an axis are written.
pub(super) type Named = fn(f64) -> String;

/// What curves are drawn on.
#[derive(Debug)]
pub(super) struct Axes<'a> {
    /// Below, growing by twos.
    pub(super) x_name: &'a str,
    pub(super) x_text: Named,
    /// Above the upright axis.
    pub(super) y_name: &'a str,
    pub(super) y_text: Named,
    /// Whether the upright axis is logarithmic.
    pub(super) logarithmic: bool,
    /// A second row of names below, at places of the first.
    pub(super) beside: Option<(&'a str, Vec<(f64, String)>)>,
    /// Values on the upright axis to compare with, and what they are.
    pub(super) levels: Vec<(f64, String)>,
    /// Places on the x axis to point at, and what they are.
    pub(super) knees: Vec<(f64, String)>,
}

/// Curves on common axes, each with its own line, its own mark and its name at its end.
pub(super) fn curves(paper: Paper<'_>, axes: &Axes<'_>, curves: &[Curve]) -> Markup {
    let width = paper.width_px;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let xs = || points().map(|p| p.0);
    let ys = || {
        let intervals = curves.iter().flat_map(|curve| &curve.intervals);
        let levels = axes.levels.iter().map(|level| level.0);
        let ends = intervals.flat_map(|&(_, low, high)| [low, high]);
        points().map(|p| p.1).chain(ends).chain(levels)
    };
    let several = curves.len() > 1;
    let names_px = curves.iter().map(|curve| text_px(&curve.name, TEXT_PX)).fold(0.0, f64::max);
    // The names stand at the ends of the lines if there is room, above the chart if there is not.
    let named_at_end = several && names_px < width * 0.25;
    let y_scale = |from, to| {
        if axes.logarithmic {
            Scale::decimal(ys(), from, to)
        } else {
            Scale::from_zero(ys(), from, to)
        }
    };
    let key_px = if several && !named_at_end { LINE_PX * count(curves.len()) + 4.0 } else { 0.0 };
    let top = 44.0 + key_px + LINE_PX * count(axes.knees.len().saturating_sub(1));
    let bottom = top + 220.0;
    let y = y_scale(bottom, top);
    let y_ticks = y.ticks(LINE_PX + 4.0);
    let y_names: Vec<String> = y_ticks.iter().map(|&tick| (axes.y_text)(tick)).collect();
    let left = y_names.iter().map(|name| text_px(name, TEXT_PX)).fold(20.0, f64::max) + 10.0;
    let right = width - if named_at_end { names_px + 22.0 } else { 26.0 };
    let x = Scale::binary(xs(), left + 8.0, right);
    let ends: Vec<f64> =
        curves.iter().map(|curve| y.at(curve.points.last().map_or(0.0, |point| point.1))).collect();
    let ends = pushed_apart(&ends, LINE_PX, bottom - LINE_PX / 2.0);
    let line = |curve: &Curve| -> String {
        let step = |(number, point): (usize, &(f64, f64))| {
            format!(
                "{}{} {}",
                if number == 0 { "M" } else { "L" },
                n(x.at(point.0)),
                n(y.at(point.1))
            )
        };
        curve.points.iter().enumerate().map(step).collect()
    };
    let x_px = text_px("100 MiB", TEXT_PX);
    let second = axes.beside.as_ref().map(|(name, labels)| {
        let places: Vec<(f64, f64)> =
            labels.iter().map(|(at, text)| (x.at(*at), text_px(text, TEXT_PX))).collect();
        let kept: Vec<_> = labels
            .iter()
            .zip(without_overlap(&places))
            .filter_map(|(label, kept)| kept.then_some(label))
            .collect();
        (name, kept)
    });
    let mut below = bottom + 34.0;
    let second_y = second.is_some().then(|| {
        below += 34.0;
        below - 16.0
    });
    let marks = html! {
        text.soft x="0" y="12" { (axes.y_name) }
        @if several && !named_at_end {
            @for (number, curve) in curves.iter().enumerate() {
                @let at = 28.0 + LINE_PX * count(number);
                path class=(format!("curve c{}", number % 4)) d=(format!("M0 {0}H28", n(at))) {}
                g.lane { (shape(number, 14.0, at, false)) }
                text x="36" y=(n(at + 4.0)) { (curve.name) }
            }
        }
        @for (tick, name) in y_ticks.iter().zip(&y_names) {
            @let at = y.at(*tick);
            path.grid d=(format!("M{} {}H{}", n(left), n(at), n(right + 8.0))) {}
            text.value.soft x=(n(left - 8.0)) y=(n(at + 4.0)) { (name) }
        }
        @for tick in x.ticks(x_px) {
            @let at = n(x.at(tick));
            path.grid d=(format!("M{at} {}v5", n(bottom))) {}
            text.tick x=(at) y=(n(bottom + 18.0)) { ((axes.x_text)(tick)) }
        }
        path.axis d=(format!("M{} {}H{}", n(left), n(bottom), n(right + 8.0))) {}
        text.soft x=(n(left)) y=(n(bottom + 35.0)) { (axes.x_name) }
        @if let (Some((name, labels)), Some(second_y)) = (second, second_y) {
            @for (at, label) in labels {
                text.tick x=(n(x.at(*at))) y=(n(second_y + 2.0)) { (label) }
            }
            text.soft x=(n(left)) y=(n(second_y + 19.0)) { (name) }
        }
        @for (number, (at, what)) in axes.knees.iter().enumerate() {
            @let place = x.at(*at);
            @let room = text_px(what, TEXT_PX);
            @let start = (place - room / 2.0).clamp(0.0, (width - room).max(0.0));
            @let label = top - 13.0 - LINE_PX * count(number);
            path.knee d=(format!("M{} {}V{}", n(place), n(top - 8.0), n(bottom))) {}
            text.strong.knee-name x=(n(start)) y=(n(label)) { (what) }
        }
        @for (value, what) in &axes.levels {
            @let at = y.at(*value);
            path.reference d=(format!("M{} {}H{}", n(left), n(at), n(right + 8.0))) {}
            // Left, and below the line: what is above is the curves'.
            text.soft x=(n(left + 6.0)) y=(n(at + 15.0)) { (what) }
        }
        @for (number, curve) in curves.iter().enumerate() {
            @for (at, low, high) in &curve.intervals {
                path.interval d=(format!("M{} {}V{}", n(x.at(*at)), n(y.at(*low)), n(y.at(*high)))) {}
            }
            path class=(format!("curve c{}", number % 4)) d=(line(curve)) {}
            g.lane {
                @for point in &curve.points { (shape(number, x.at(point.0), y.at(point.1), false)) }
            }
            @if named_at_end {
                text x=(n(right + 14.0)) y=(n(ends[number] + 4.0)) { (curve.name) }
            }
        }
    };
    paper.svg(below + if second_y.is_some() { 14.0 } else { 8.0 }, &marks)
}
