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
    let frame = Frame::of(paper.width_px, axes, curves);
    let marks = html! {
        text.soft x="0" y="12" { (axes.y_name) }
        (frame.key())
        (frame.upright_axis())
        (frame.axis_below())
        (frame.knees())
        (frame.levels())
        (frame.lines())
    };
    let below = if axes.beside.is_some() { 82.0 } else { 42.0 };
    paper.svg(frame.bottom + below, &marks)
}

/// Where everything stands on the paper.
struct Frame<'a> {
    axes: &'a Axes<'a>,
    curves: &'a [Curve],
    x: Scale,
    y: Scale,
    /// The value of each line across, and its name.
    y_names: Vec<(f64, String)>,
    width: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    names: Names,
}

/// Where the names of the curves stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Nowhere: there is one curve.
    None,
    /// At the ends of the lines.
    AtEnds,
    /// In a key above the chart, for want of room.
    Above,
}

impl<'a> Frame<'a> {
    fn of(width: f64, axes: &'a Axes<'_>, curves: &'a [Curve]) -> Self {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let xs = || points().map(|p| p.0);
        let ys = || {
            let intervals = curves.iter().flat_map(|curve| &curve.intervals);
            let levels = axes.levels.iter().map(|level| level.0);
            let ends = intervals.flat_map(|&(_, low, high)| [low, high]);
            points().map(|p| p.1).chain(ends).chain(levels)
        };
        let names_px = curves.iter().map(|curve| text_px(&curve.name, TEXT_PX)).fold(0.0, f64::max);
        let names = match curves.len() {
            0 | 1 => Names::None,
            _ if names_px < width * 0.25 => Names::AtEnds,
            _ => Names::Above,
        };
        let key_px = if names == Names::Above { LINE_PX * count(curves.len()) + 4.0 } else { 0.0 };
        let top = 44.0 + key_px + LINE_PX * count(axes.knees.len().saturating_sub(1));
        let bottom = top + 220.0;
        let y = if axes.logarithmic {
            Scale::decimal(ys(), bottom, top)
        } else {
            Scale::from_zero(ys(), bottom, top)
        };
        let named = |tick: f64| (tick, (axes.y_text)(tick));
        let y_names: Vec<(f64, String)> = y.ticks(LINE_PX + 4.0).into_iter().map(named).collect();
        let left =
            y_names.iter().map(|(_, name)| text_px(name, TEXT_PX)).fold(20.0, f64::max) + 10.0;
        let right = width - if names == Names::AtEnds { names_px + 22.0 } else { 26.0 };
        let x = Scale::binary(xs(), left + 8.0, right);
        Self { axes, curves, x, y, y_names, width, left, right, top, bottom, names }
    }

    fn key(&self) -> Markup {
        html! {
            @if self.names == Names::Above {
                @for (number, curve) in self.curves.iter().enumerate() {
                    @let at = 28.0 + LINE_PX * count(number);
                    path class=(format!("curve c{}", number % 4)) d=(format!("M0 {0}H28", n(at))) {}
                    g.lane { (shape(number, 14.0, at, false)) }
                    text x="36" y=(n(at + 4.0)) { (curve.name) }
                }
            }
        }
    }

    fn upright_axis(&self) -> Markup {
        html! {
            @for (tick, name) in &self.y_names {
                (self.line_across("grid", *tick))
                text.value.soft x=(n(self.left - 8.0)) y=(n(self.y.at(*tick) + 4.0)) { (name) }
            }
        }
    }

    /// From the upright axis to the right end.
    fn line_across(&self, class: &str, value: f64) -> Markup {
        let (left, at, right) = (n(self.left), n(self.y.at(value)), n(self.right + 8.0));
        html! { path class=(class) d=(format!("M{left} {at}H{right}")) {} }
    }

    fn axis_below(&self) -> Markup {
        let (left, bottom) = (self.left, self.bottom);
        html! {
            @for tick in self.x.ticks(text_px("100 MiB", TEXT_PX)) {
                @let at = n(self.x.at(tick));
                path.grid d=(format!("M{at} {}v5", n(bottom))) {}
                text.tick x=(at) y=(n(bottom + 18.0)) { ((self.axes.x_text)(tick)) }
            }
            path.axis d=(format!("M{} {}H{}", n(left), n(bottom), n(self.right + 8.0))) {}
            text.soft x=(n(left)) y=(n(bottom + 35.0)) { (self.axes.x_name) }
            @if let Some((name, labels)) = &self.axes.beside {
                @for (at, label) in self.that_fit(labels) {
                    text.tick x=(n(self.x.at(*at))) y=(n(bottom + 54.0)) { (label) }
                }
                text.soft x=(n(left)) y=(n(bottom + 71.0)) { (name) }
            }
        }
    }

    /// Those names of places below that do not overlap.
    fn that_fit<'b>(&self, labels: &'b [(f64, String)]) -> Vec<&'b (f64, String)> {
        let place = |(at, text): &(f64, String)| (self.x.at(*at), text_px(text, TEXT_PX));
        let places: Vec<(f64, f64)> = labels.iter().map(place).collect();
        let kept = labels.iter().zip(without_overlap(&places));
        kept.filter_map(|(label, kept)| kept.then_some(label)).collect()
    }

    fn knees(&self) -> Markup {
        html! {
            @for (number, (at, what)) in self.axes.knees.iter().enumerate() {
                @let place = self.x.at(*at);
                @let room = text_px(what, TEXT_PX);
                @let start = (place - room / 2.0).clamp(0.0, (self.width - room).max(0.0));
                @let label = self.top - 13.0 - LINE_PX * count(number);
                path.knee d=(format!("M{} {}V{}", n(place), n(self.top - 8.0), n(self.bottom))) {}
                text.strong.knee-name x=(n(start)) y=(n(label)) { (what) }
            }
        }
    }

    fn levels(&self) -> Markup {
        html! {
            @for (value, what) in &self.axes.levels {
                (self.line_across("reference", *value))
                // Left, and below the line: what is above is the curves'.
                text.soft x=(n(self.left + 6.0)) y=(n(self.y.at(*value) + 15.0)) { (what) }
            }
        }
    }

    fn lines(&self) -> Markup {
        let (x, y) = (&self.x, &self.y);
        let end = |curve: &Curve| y.at(curve.points.last().map_or(0.0, |point| point.1));
        let ends: Vec<f64> = self.curves.iter().map(end).collect();
        let ends = pushed_apart(&ends, LINE_PX, self.bottom - LINE_PX / 2.0);
        let line = |curve: &Curve| -> String {
            let step = |(number, point): (usize, &(f64, f64))| {
                let pen = if number == 0 { "M" } else { "L" };
                format!("{pen}{} {}", n(x.at(point.0)), n(y.at(point.1)))
            };
            curve.points.iter().enumerate().map(step).collect()
        };
        html! {
            @for (number, curve) in self.curves.iter().enumerate() {
                @for (at, low, high) in &curve.intervals {
                    path.interval d=(format!("M{} {}V{}", n(x.at(*at)), n(y.at(*low)), n(y.at(*high)))) {}
                }
                path class=(format!("curve c{}", number % 4)) d=(line(curve)) {}
                g.lane {
                    @for point in &curve.points { (shape(number, x.at(point.0), y.at(point.1), false)) }
                }
                @if self.names == Names::AtEnds {
                    text x=(n(self.right + 14.0)) y=(n(ends[number] + 4.0)) { (curve.name) }
                }
            }
        }
    }
}
