//! Charts as SVG: ranges, bars, stalls over time. Pure: marks in, markup out. Curves have a file of
//! their own (`curves.rs`).
//!
//! A chart is drawn for a width and knows the place of every text in it, so that nothing overlaps,
//! nothing is cut off and nothing is scaled. Whatever colour says, a shape, a pattern or a word
//! says as well. Colours and fonts are in style.css.

use maud::{Markup, html};

use super::scale::{Scale, text_px, wrap};
use crate::units;

/// Size of the text in charts.
pub(super) const TEXT_PX: f64 = 12.0;
/// From one line of text to the next.
pub(super) const LINE_PX: f64 = 16.0;
/// From one lane to the next.
const LANE_PX: f64 = 14.0;
/// Between a label or a value and the marks.
const GUTTER_PX: f64 = 14.0;
/// Room below the marks for ticks and their labels.
const AXIS_PX: f64 = 26.0;

/// The paper of one chart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paper<'a> {
    /// Unique in the page.
    pub(super) id: &'a str,
    /// What it shows, for readers who cannot see it.
    pub(super) title: &'a str,
    /// What one would see in it.
    pub(super) description: &'a str,
    /// How wide it is.
    pub(super) width_px: f64,
}

impl Paper<'_> {
    /// Whether there is room for two panels side by side.
    fn columns(self, panels: usize) -> usize {
        if self.width_px > 700.0 && panels > 1 { 2 } else { 1 }
    }

    pub(super) fn svg(self, height_px: f64, marks: &Markup) -> Markup {
        let (width, height) = (n(self.width_px), n(height_px));
        html! {
            svg viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height) role="img"
                aria-labelledby=(format!("{0}-title {0}-desc", self.id)) {
                title id=(format!("{}-title", self.id)) { (self.title) }
                desc id=(format!("{}-desc", self.id)) { (self.description) }
                (marks)
            }
        }
    }
}

/// What is known of a distribution, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    /// The median, if there are enough samples for one.
    pub(super) middle: Option<f64>,
    /// Where most samples lie, if there are enough to say.
    pub(super) most: Option<(f64, f64)>,
    /// The fastest and the slowest.
    pub(super) all: (f64, f64),
}

/// How a mark stands among its rivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Plain,
    Best,
    Invalid,
}

/// One distribution.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// Which shape marks the median.
    pub(super) shape: usize,
    pub(super) spread: Option<Spread>,
    pub(super) value: String,
    pub(super) standing: Standing,
}

/// A name and its distributions.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) lanes: Vec<Lane>,
}

/// Rows that are compared.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
    /// A figure from elsewhere, and where it comes from.
    pub(super) reference: Option<(f64, String)>,
}

/// Distributions on one logarithmic scale of time, which all groups share.
pub(super) fn ranges(paper: Paper<'_>, groups: &[Group]) -> Markup {
    let spreads = groups.iter().flat_map(|group| &group.rows).flat_map(|row| &row.lanes);
    let ends = spreads.filter_map(|lane| lane.spread).flat_map(|s| [s.all.0, s.all.1]);
    let references = groups.iter().filter_map(|group| group.reference.as_ref()).map(|r| r.0);
    let scale = Scale::decimal(ends.chain(references), 0.0, 1.0);
    // All panels have their columns in the same places.
    let widest = |texts: &mut dyn Iterator<Item = &str>| {
        texts.map(|text| text_px(text, TEXT_PX)).fold(0.0, f64::max)
    };
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let label_px = widest(&mut rows().map(|row| row.label.as_str()));
    let lanes = || rows().flat_map(|row| &row.lanes);
    let value_px = widest(&mut lanes().map(|lane| lane.value.as_str()));
    grid(paper, groups, |group, width| range_panel(group, scale, label_px, value_px, width))
}

fn range_panel(
    group: &Group,
    scale: Scale,
    label_px: f64,
    value_px: f64,
    width: f64,
) -> (Markup, f64) {
    // Labels stand beside the marks if that leaves most of the room to the marks, else above them.
    let beside = label_px <= width * 0.42;
    let left = if beside { label_px + GUTTER_PX } else { 20.0 };
    let scale = scale.onto(left, width - value_px - GUTTER_PX - 4.0);
    let top = if group.title.is_empty() { 4.0 } else { LINE_PX + 10.0 };
    let top = if group.reference.is_some() { top + LINE_PX } else { top };
    let mut y = top;
    let mut rows = Vec::new();
    for row in &group.rows {
        let lines =
            if beside { vec![row.label.clone()] } else { wrap(&row.label, TEXT_PX, width - 4.0) };
        let label_y = y;
        if !beside {
            y += LINE_PX * count(lines.len());
        }
        let lanes: Vec<(f64, &Lane)> = row
            .lanes
            .iter()
            .enumerate()
            .map(|(number, lane)| (y + LANE_PX * (count(number) + 0.5), lane))
            .collect();
        let lanes_px = LANE_PX * count(row.lanes.len().max(1));
        let label_y = if beside { y + lanes_px / 2.0 - LINE_PX / 2.0 } else { label_y };
        y += lanes_px + if beside { 4.0 } else { 8.0 };
        rows.push((label_y, lines, lanes, row));
    }
    let bottom = y;
    let strong = |row: &Row| row.lanes.first().is_some_and(|lane| lane.standing == Standing::Best);
    let marks = html! {
        @if !group.title.is_empty() { text.head x="0" y=(n(LINE_PX - 3.0)) { (group.title) } }
        (time_axis(scale, top - 2.0, bottom))
        @if let Some((value, whose)) = &group.reference {
            (reference(scale, *value, whose, top, bottom))
        }
        @for (label_y, lines, lanes, row) in rows {
            @for (number, line) in lines.iter().enumerate() {
                text.strong[strong(row)] x="0" y=(n(label_y + LINE_PX * count(number) + 12.0)) {
                    (line)
                }
            }
            @for (y, lane) in lanes { (lane_marks(lane, scale, y, width)) }
        }
    };
    (marks, bottom + AXIS_PX)
}

fn lane_marks(lane: &Lane, scale: Scale, y: f64, width: f64) -> Markup {
    let class = match lane.standing {
        Standing::Plain => "lane",
        Standing::Best => "lane best",
        Standing::Invalid => "lane invalid",
    };
    html! {
        g class=(class) {
            @if let Some(spread) = lane.spread {
                @let (from, to) = (scale.at(spread.all.0), scale.at(spread.all.1));
                path.all d=(format!("M{} {y}H{}M{1} {2}V{3}", n(from), n(to), n(y - 3.0), n(y + 3.0), y = n(y))) {}
                @if let Some((low, high)) = spread.most {
                    path.most d=(format!("M{} {y}H{}", n(scale.at(low)), n(scale.at(high)), y = n(y))) {}
                }
                @if let Some(middle) = spread.middle {
                    (shape(lane.shape, scale.at(middle), y, lane.standing == Standing::Invalid))
                }
            }
            text.value x=(n(width - 4.0)) y=(n(y + 4.0)) { (lane.value) }
        }
    }
}

/// The mark of a lane. Its number decides the form, and a mark that must not be used is crossed
/// out.
pub(super) fn shape(number: usize, x: f64, y: f64, crossed: bool) -> Markup {
    let (r, s) = (4.2, 3.8);
    let path = match number % 4 {
        _ if crossed => {
            format!("M{0} {1}L{2} {3}M{0} {3}L{2} {1}", n(x - s), n(y - s), n(x + s), n(y + s))
        }
        1 => format!("M{} {}h{2}v{2}h-{2}z", n(x - s), n(y - s), n(2.0 * s)),
        2 => format!("M{} {}L{} {1}L{} {}z", n(x - r), n(y + s), n(x + r), n(x), n(y - r)),
        3 => format!("M{} {}l{2} -{2}l{2} {2}l-{2} {2}z", n(x - r - 1.0), n(y), n(r + 1.0)),
        _ => return html! { circle.dot cx=(n(x)) cy=(n(y)) r=(n(r)) {} },
    };
    let open = number % 4 == 1 || number % 4 == 3;
    html! { path.dot.open[open && !crossed] d=(path) {} }
}

/// One form of mark with its name, to stand in a line of text.
pub(super) fn sample(number: usize) -> Markup {
    html! {
        svg.sample viewBox="0 0 24 14" width="24" height="14" aria-hidden="true" {
            g.lane { path.most d="M0 7H24" {} (shape(number, 12.0, 7.0, false)) }
        }
    }
}

/// A distribution with its parts named, which shows how to read the others.
pub(super) fn reading_key(paper: Paper<'_>) -> Markup {
    let right = paper.width_px - 50.0;
    let lane = Lane {
        shape: 0,
        spread: Some(Spread { middle: Some(3.0), most: Some((1.8, 6.5)), all: (1.0, 10.0) }),
        value: String::new(),
        standing: Standing::Plain,
    };
    let scale = Scale::linear(1.0, 10.0, 26.0, right);
    let names =
        [(1.0, "fastest"), (1.8, "10 %"), (3.0, "median"), (6.5, "99 %"), (10.0, "slowest")];
    let marks = html! {
        @for (number, (at, name)) in names.into_iter().enumerate() {
            text.tick x=(n(scale.at(at))) y=(if number % 2 == 0 { "36" } else { "11" }) { (name) }
        }
        (lane_marks(&lane, scale, 20.0, paper.width_px))
    };
    paper.svg(42.0, &marks)
}

/// Vertical lines at round times, and the times below.
fn time_axis(scale: Scale, top: f64, bottom: f64) -> Markup {
    let name = |tick: f64| units::short_time(whole(tick));
    let widest = text_px(&name(scale.high()), TEXT_PX - 1.0);
    let ticks = scale.ticks(widest.max(text_px("100 µs", TEXT_PX - 1.0)));
    html! {
        @for tick in ticks {
            @let x = n(scale.at(tick));
            path.grid d=(format!("M{x} {}V{}", n(top), n(bottom))) {}
            text.tick x=(x) y=(n(bottom + 15.0)) { (name(tick)) }
        }
    }
}

/// A dashed line with a name above it, which stays on the paper.
fn reference(scale: Scale, value: f64, whose: &str, top: f64, bottom: f64) -> Markup {
    let x = scale.at(value);
    html! {
        path.reference d=(format!("M{} {}V{}", n(x), n(top - 6.0), n(bottom))) {}
        text.tick.reference-name.end x=(n(x + 3.0)) y=(n(top - 9.0)) { (whose) }
    }
}

/// One bar, of parts that add up to it.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    pub(super) label: String,
    /// Which pattern, and how much.
    pub(super) parts: Vec<(usize, f64)>,
    pub(super) value: String,
    pub(super) standing: Standing,
}

/// Bars that begin at zero, on one scale. If `shares` is set, each part says what share of its bar
/// it is.
pub(super) fn bars(paper: Paper<'_>, bars: &[Bar], shares: bool) -> Markup {
    let width = paper.width_px;
    let total = |bar: &Bar| bar.parts.iter().map(|part| part.1).sum::<f64>();
    let value_px = bars.iter().map(|bar| text_px(&bar.value, TEXT_PX)).fold(0.0, f64::max);
    let label_px = bars.iter().map(|bar| text_px(&bar.label, TEXT_PX)).fold(0.0, f64::max);
    let beside = label_px <= width * 0.42 && !shares;
    let left = if beside { label_px + GUTTER_PX } else { 0.0 };
    let scale = Scale::linear(
        0.0,
        bars.iter().map(total).filter(|total| total.is_finite()).fold(0.0, f64::max),
        left,
        width - if shares { 2.0 } else { value_px + 10.0 },
    );
    let (thick, mut y) = (if shares { 20.0 } else { 13.0 }, 2.0);
    let mut drawn = Vec::new();
    for bar in bars {
        let mut x = left;
        let room = if shares { width - value_px - GUTTER_PX } else { width - 4.0 };
        let lines = if beside { vec![bar.label.clone()] } else { wrap(&bar.label, TEXT_PX, room) };
        let top = if beside { y } else { y + LINE_PX * count(lines.len()) };
        let parts: Vec<(usize, f64, f64, String)> = bar
            .parts
            .iter()
            .map(|&(pattern, part)| {
                let px = (scale.at(part) - left).max(0.0);
                let share = units::percent(part / total(bar).max(f64::MIN_POSITIVE));
                x += px;
                (pattern, x - px, px, share)
            })
            .collect();
        drawn.push((y, top, lines, parts, x, bar));
        y = top + thick + if shares { LINE_PX + 14.0 } else { 9.0 };
    }
    let marks = html! {
        (patterns(paper.id))
        @for (y, top, lines, parts, end, bar) in drawn {
            g.bar.invalid[bar.standing == Standing::Invalid].best[bar.standing == Standing::Best] {
                @for (number, line) in lines.iter().enumerate() {
                    text.strong[shares || bar.standing == Standing::Best] x="0"
                        y=(n(y + LINE_PX * count(number) + if beside { 10.5 } else { 11.0 })) {
                        (line)
                    }
                }
                @for (pattern, x, px, share) in parts {
                    @if px > 0.2 {
                        rect.part x=(n(x)) y=(n(top)) width=(n(px)) height=(n(thick))
                            fill=(format!("url(#{}-p{})", paper.id, pattern % PATTERNS)) {}
                    }
                    @if shares && px > text_px(&share, TEXT_PX - 1.0) {
                        text.tick x=(n(x + px / 2.0)) y=(n(top + thick + 14.0)) { (share) }
                    }
                }
                @if shares {
                    text.value x=(n(width - 2.0)) y=(n(y + 11.0)) { (bar.value) }
                } @else {
                    text.after x=(n(end + 8.0)) y=(n(top + thick - 2.5)) { (bar.value) }
                }
            }
        }
    };
    paper.svg(y, &marks)
}

/// How many patterns there are.
const PATTERNS: usize = 5;

/// Fills that differ in tone and in form.
fn patterns(id: &str) -> Markup {
    let forms = [
        "",
        "M-2 8L8 -2M-1 11L11 -1M2 12L12 2",
        "M2.5 2.5h.01M7.5 7.5h.01",
        "M0 3H10M0 8H10",
        "M-2 2L8 12M2 -2L12 8",
    ];
    html! {
        defs {
            @for (number, form) in forms.iter().enumerate() {
                pattern id=(format!("{id}-p{number}")) class=(format!("p{number}"))
                    width="10" height="10" patternUnits="userSpaceOnUse" {
                    rect width="10" height="10" {}
                    @if !form.is_empty() { path d=(form) {} }
                }
            }
        }
    }
}

/// The patterns with their names.
pub(super) fn pattern_key(id: &str, names: &[&str]) -> Markup {
    html! {
        ul.key {
            @for (number, name) in names.iter().enumerate() {
                @let id = format!("{id}-key{number}");
                li {
                    svg.sample viewBox="0 0 22 14" width="22" height="14" aria-hidden="true" {
                        (patterns(&id))
                        rect.part x="0.5" y="0.5" width="21" height="13" fill=(format!("url(#{id}-p{number})")) {}
                    }
                    " " (name)
                }
            }
        }
    }
}

/// Writes and syncs of one arm over time.
#[derive(Debug, Clone)]
pub(super) struct Stalls {
    pub(super) title: String,
    /// The slowest write of each bucket: when in milliseconds, its time in nanoseconds, whether a
    /// sync was in flight.
    pub(super) writes: Vec<(f64, f64, bool)>,
    /// Syncs: when each began and how long it took, both in milliseconds, and whether it held a
    /// write up.
    pub(super) syncs: Vec<(f64, f64, bool)>,
}

/// Small multiples, all on the same scales.
pub(super) fn stalls(paper: Paper<'_>, panels: &[Stalls]) -> Markup {
    let times = panels.iter().flat_map(|panel| panel.writes.iter().map(|write| write.1));
    let ends = |panel: &Stalls| {
        let writes = panel.writes.iter().map(|write| write.0);
        writes.chain(panel.syncs.iter().map(|sync| sync.0 + sync.1)).fold(0.0, f64::max)
    };
    let time = Scale::linear(0.0, panels.iter().map(ends).fold(0.0, f64::max), 0.0, 1.0);
    let height = Scale::decimal(times, 0.0, 1.0);
    grid(paper, panels, |panel, width| stall_panel(panel, time, height, width))
}

fn stall_panel(panel: &Stalls, time: Scale, height: Scale, width: f64) -> (Markup, f64) {
    let left = text_px("100 µs", TEXT_PX) + 6.0;
    let titles = wrap(&panel.title, TEXT_PX, width);
    let (top, bottom) =
        (LINE_PX * count(titles.len()) + 12.0, LINE_PX * count(titles.len()) + 142.0);
    let x = time.onto(left, width - 10.0);
    let y = height.onto(bottom, top);
    let lane = bottom + 18.0;
    let writes = slowest_of_each_pixel(&panel.writes, x, 2.5);
    let stems = |in_flight: bool| -> String {
        let stem =
            |&(at, ns, _): &(f64, f64, bool)| format!("M{} {}V{}", n(at), n(bottom), n(y.at(ns)));
        writes.iter().filter(|write| write.2 == in_flight).map(stem).collect()
    };
    let (held, free): (Vec<_>, Vec<_>) = panel.syncs.iter().partition(|sync| sync.2);
    let blocks = |syncs: &[&(f64, f64, bool)], half: f64| -> String {
        syncs
            .iter()
            .map(|sync| {
                let (from, to) = (x.at(sync.0), x.at(sync.0 + sync.1));
                format!(
                    "M{} {}h{}v{}h-{2}z",
                    n(from),
                    n(lane - half),
                    n((to - from).max(1.2)),
                    n(2.0 * half)
                )
            })
            .collect()
    };
    let seconds = |ms: f64| match whole(ms * 1e6) {
        0 => "0".to_owned(),
        ns => units::short_time(ns),
    };
    let marks = html! {
        @for (number, line) in titles.iter().enumerate() {
            text.head x="0" y=(n(LINE_PX * count(number) + 12.0)) { (line) }
        }
        @for tick in y.ticks(LINE_PX) {
            @let at = y.at(tick);
            path.grid d=(format!("M{} {}H{}", n(left), n(at), n(width - 10.0))) {}
            text.value.soft x=(n(left - 6.0)) y=(n(at + 4.0)) { (units::short_time(whole(tick))) }
        }
        path.stem d=(stems(false)) {}
        path.stem.in-flight d=(stems(true)) {}
        @for (at, ns, _) in writes.iter().filter(|write| write.2) {
            circle.in-flight cx=(n(*at)) cy=(n(y.at(*ns))) r="2.2" {}
        }
        path.axis d=(format!("M{} {}H{}", n(left), n(bottom), n(width - 10.0))) {}
        text.value.soft x=(n(left - 6.0)) y=(n(lane + 4.0)) { "syncs" }
        @if panel.syncs.is_empty() {
            text.soft x=(n(left)) y=(n(lane + 4.0)) { "none" }
        } @else {
            path.sync d=(blocks(&free, 3.0)) {}
            path.sync.held d=(blocks(&held, 7.0)) {}
        }
        @for tick in x.ticks(text_px("500 ms", TEXT_PX)) {
            @let at = n(x.at(tick));
            path.grid d=(format!("M{at} {}v5", n(lane + 12.0))) {}
            text.tick x=(at) y=(n(lane + 29.0)) { (seconds(tick)) }
        }
    };
    (marks, lane + 40.0)
}

/// The slowest write of each `step_px` of paper, with its place instead of its time. So no stall is
/// lost for want of room.
fn slowest_of_each_pixel(
    writes: &[(f64, f64, bool)],
    x: Scale,
    step_px: f64,
) -> Vec<(f64, f64, bool)> {
    let mut kept: Vec<(f64, f64, bool)> = Vec::new();
    for &(at, ns, in_flight) in writes {
        let place = (x.at(at) / step_px).floor() * step_px;
        match kept.last_mut() {
            Some(last) if (last.0 - place).abs() < step_px / 2.0 => {
                if ns > last.1 {
                    (last.1, last.2) = (ns, in_flight);
                }
            }
            _ => kept.push((place, ns, in_flight)),
        }
    }
    kept
}

/// Panels side by side if there is room, in aligned rows.
fn grid<T>(paper: Paper<'_>, panels: &[T], draw: impl Fn(&T, f64) -> (Markup, f64)) -> Markup {
    let columns = paper.columns(panels.len());
    let gap = 44.0;
    let width = (paper.width_px - gap * (count(columns) - 1.0)) / count(columns);
    let mut y = 0.0;
    let mut placed = Vec::new();
    for row in panels.chunks(columns) {
        let drawn: Vec<(Markup, f64)> = row.iter().map(|panel| draw(panel, width)).collect();
        let height = drawn.iter().map(|panel| panel.1).fold(0.0, f64::max);
        for (number, (marks, _)) in drawn.into_iter().enumerate() {
            placed.push((count(number) * (width + gap), y, marks));
        }
        y += height + 18.0;
    }
    let marks = html! {
        @for (x, y, marks) in placed {
            g transform=(format!("translate({} {})", n(x), n(y))) { (marks) }
        }
    };
    paper.svg((y - 18.0).max(10.0), &marks)
}

/// A length for SVG, with no more digits than can be seen.
pub(super) fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

/// A number of things on paper.
pub(super) fn count(things: usize) -> f64 {
    f64::from(u32::try_from(things).unwrap_or(u32::MAX))
}

/// A time in whole nanoseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as wanted")]
pub(super) fn whole(ns: f64) -> u64 {
    ns.round() as u64
}
