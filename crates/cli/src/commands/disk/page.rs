//! What was found of a trace as a page: one file, no network, no script; light, dark, and for paper.
//!
//! The verdict, then the timeline: bytes written, flushes, marks and the points at which power was cut,
//! the bad ones on a line of their own. Recordings and what checks say may come from anybody: every
//! text is escaped, and the page's policy forbids it to fetch or run anything.

use std::path::Path;

use anyhow::{Context, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use plimsoll_lab::report::html::{STYLE, plimsoll_line};
use plimsoll_lab::units;
use plimsoll_simdisk::block::{Event, Plan, Timeline, Trace};

use super::findings::Findings;

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
/// What the lab's pages have no need for.
const MORE_STYLE: &str = "
.timeline rect.write { fill: var(--mark); }
.timeline rect.flush { fill: var(--accent); }
.timeline rect.said { fill: var(--tone-4); }
.timeline rect.cut { fill: var(--tone-3); }
.timeline path.bad { fill: var(--alarm); stroke: none; }
.counts { display: flex; flex-wrap: wrap; gap: 0.4rem 2rem; margin-top: 1.3rem; }
.counts li { font-size: 0.9rem; color: var(--soft); }
.counts strong { display: block; font-size: 1.6rem; line-height: 1.2; color: var(--ink); }
.counts .bad strong { color: var(--alarm); }
.states td, .states th { vertical-align: top; text-align: left; }
.states code { font-size: 0.82rem; overflow-wrap: anywhere; }
.states pre { margin: 0; font-size: 0.82rem; white-space: pre-wrap; overflow-wrap: anywhere; }
";
/// Bad states that are listed; all are in the file of findings.
const LISTED_MAX: usize = 200;
/// Columns of the timeline, for a desk and for a phone.
const WIDTHS: [(&str, usize); 2] = [("wide", 860), ("narrow", 328)];
/// Width of the names of rows.
const NAMES: usize = 92;

/// The page.
pub(super) fn render(
    trace: &Trace,
    timeline: &Timeline,
    plan: &Plan,
    findings: &Findings,
) -> String {
    let about = &trace.about;
    let bad: Vec<_> = findings.bad().collect();
    let title = format!("What a power cut leaves on {}", about.filesystem);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="generator" content=(concat!("plimsoll ", env!("CARGO_PKG_VERSION")));
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(MORE_STYLE)) }
            }
            body {
                header.masthead {
                    p.brand { (plimsoll_line()) " plimsoll disk" }
                    h1 { (title) }
                    p.meta { "Workload: " (about.command.join(" ")) " · check: " (findings.asked.check) }
                }
                main {
                    (verdict(plan, findings, bad.len()))
                    section.experiment aria-labelledby="timeline" {
                        p.eyebrow { "timeline" }
                        h2 #timeline { "What was asked of the disk, and when the power was cut" }
                        figure.timeline {
                            @for (class, width) in WIDTHS {
                                div class=(class) { (drawn(trace, timeline, plan, findings, width)) }
                            }
                            figcaption { "From left to right the " (trace.events.len()) " events of the recording,
                                in their order; time has no scale here. The higher a
                                column, the more falls into it. A triangle is a point at which at least one state failed its check." }
                        }
                    }
                    @if !bad.is_empty() { (failures(&bad)) }
                    (surroundings(trace, plan, findings))
                }
                footer { p {
                    "Made by plimsoll " (env!("CARGO_PKG_VERSION")) ". A state is a trace, a point, a mode and a seed: "
                    code { "plimsoll disk replay TRACE STATE" } " makes the same disk again, byte for byte. That no state
                    failed means that none of these did, under this model, on this kernel."
                } }
            }
        }
    };
    page.into_string()
}

fn verdict(plan: &Plan, findings: &Findings, bad: usize) -> Markup {
    let visited = findings.found.len();
    html! {
        section #verdict aria-labelledby="verdict-heading" {
            h2 #verdict-heading { "Verdict" }
            @if bad > 0 {
                div.alarm role="note" {
                    p.loud { (bad) " of " (visited) " crash states failed the check." }
                }
            } @else {
                p.lead { "All " (visited) " crash states that were visited passed the check." }
            }
            @if visited < plan.states.len() {
                p.soft { "Only " (visited) " of " (plan.states.len()) " were visited so far." }
            }
            @let shown = |&(name, count): &(&str, usize)| count > 0 || ["ok", "lost"].contains(&name);
            ul.counts { @for (name, count) in findings.counts().into_iter().filter(shown) {
                @let alarming = count > 0 && name != "ok";
                li.bad[alarming] { strong { (count) } (explained(name)) }
            } }
        }
    }
}

fn explained(name: &str) -> &'static str {
    match name {
        "ok" => "ok",
        "lost" => "lost or wrong, unnoticed",
        "reported" => "opened, loss reported",
        "refused" => "refused to open",
        "not-mounted" => "not mounted by the kernel",
        _ => "check broken",
    }
}

/// What falls into one column of the timeline.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Column {
    written: u64,
    flushes: u64,
    marks: u64,
    cuts: u64,
    bad: u64,
}

fn columns(trace: &Trace, plan: &Plan, findings: &Findings, count: usize) -> Vec<Column> {
    let events = trace.events.len().max(1);
    let mut columns = vec![Column::default(); count.max(1)];
    // A point is behind the event before it.
    let column = |index: usize| (index.min(events - 1) * count / events).min(count - 1);
    for (index, event) in trace.events.iter().enumerate() {
        let column = &mut columns[column(index)];
        match event {
            Event::Write { bytes, .. } => column.written += bytes.len() as u64,
            Event::Flush => column.flushes += 1,
            Event::Mark(_) => column.marks += 1,
            Event::Discard { .. } | Event::Ended { .. } => {}
        }
    }
    for (number, finding) in &findings.found {
        let Some(state) = plan.states.get(*number) else { continue };
        let column = &mut columns[column(state.point.saturating_sub(1))];
        column.cuts += 1;
        column.bad += u64::from(findings.is_bad(finding));
    }
    columns
}

fn drawn(
    trace: &Trace,
    timeline: &Timeline,
    plan: &Plan,
    findings: &Findings,
    width: usize,
) -> Markup {
    let count = (width - NAMES).min(trace.events.len().max(1));
    let columns = columns(trace, plan, findings, count);
    let step = (width - NAMES) as f64 / count as f64;
    let x = |number: usize| NAMES as f64 + number as f64 * step;
    let rows: [(&str, &str, fn(&Column) -> u64); 4] = [
        ("written", "write", |column| column.written),
        ("flushes", "flush", |column| column.flushes),
        ("marks", "said", |column| column.marks),
        ("power cuts", "cut", |column| column.cuts),
    ];
    let row_height = 40.0;
    let bad_y = 4.0 * (row_height + 12.0) + 4.0;
    let height = bad_y + 40.0;
    let description = format!(
        "{} flushes, {} marks, {} states of which {} failed",
        timeline.flushes().len(),
        timeline.marks(trace.events.len()).len(),
        findings.found.len(),
        findings.bad().count()
    );
    html! {
        svg viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height) role="img" aria-label=(description) {
            @for (row, (name, class, value)) in rows.iter().enumerate() {
                @let y = row as f64 * (row_height + 12.0);
                @let most = columns.iter().map(value).max().unwrap_or(0).max(1) as f64;
                text x="0" y=(y + row_height - 4.0) { (name) }
                path.grid d=(format!("M{} {}H{width}", NAMES, y + row_height)) {}
                @for (number, column) in columns.iter().enumerate() {
                    @let value = value(column) as f64;
                    @if value > 0.0 {
                        // Half of the height says that there is something at all.
                        @let high = row_height * (0.15 + 0.85 * (value / most).sqrt());
                        rect class=(class) x=(format!("{:.1}", x(number))) y=(format!("{:.1}", y + row_height - high))
                            width=(format!("{:.1}", (step * 0.9).max(0.7))) height=(format!("{high:.1}")) {}
                    }
                }
            }
            text x="0" y=(bad_y + 14.0) { "failed" }
            @for (number, _) in columns.iter().enumerate().filter(|(_, column)| column.bad > 0) {
                path.bad d=(format!("M{:.1} {bad_y}l3.5 9h-7z", x(number) + step / 2.0)) {}
            }
            path.axis d=(format!("M{} {}H{width}", NAMES, bad_y + 20.0)) {}
            text.tick x=(NAMES) y=(bad_y + 36.0) { "0" }
            text.soft.value x=(width) y=(bad_y + 36.0) { "event " (trace.events.len()) }
        }
    }
}

fn failures(bad: &[&super::findings::Finding]) -> Markup {
    html! {
        section.experiment aria-labelledby="failures" {
            p.eyebrow { "failures" }
            h2 #failures { "States that failed" }
            div.scroll role="region" tabindex="0" aria-label="States that failed" {
                table.states {
                    thead { tr {
                        th scope="col" { "state" } th scope="col" { "last mark" }
                        th scope="col" { "verdict" } th scope="col" { "what the check said" }
                    } }
                    tbody { @for finding in bad.iter().take(LISTED_MAX) {
                        tr {
                            td { code { (finding.state) } }
                            td { (finding.last_mark.as_deref().unwrap_or("–")) }
                            td { (finding.verdict) }
                            td { pre { (finding.said) } }
                        }
                    } }
                }
            }
            @if bad.len() > LISTED_MAX {
                p.soft { "And " (bad.len() - LISTED_MAX) " more, in the file of findings." }
            }
        }
    }
}

fn surroundings(trace: &Trace, plan: &Plan, findings: &Findings) -> Markup {
    let (about, asked, of) = (&trace.about, &findings.asked, plan.coverage);
    let micros = findings.found.values().map(|finding| finding.micros.sum());
    let micros = micros.fold(0, u64::saturating_add);
    let each = micros.checked_div(findings.found.len() as u64).unwrap_or(0);
    let mut facts: Vec<(&str, String)> = vec![
        ("trace", asked.trace.clone()),
        ("recorded", format!("{}, {}", about.recorded_at, about.ended)),
        ("filesystem", format!("{} ({})", about.filesystem, about.mkfs.join(" "))),
        ("mount options", about.mount_options.clone()),
        ("disk", units::bytes(trace.base.disk_bytes())),
        ("kernel", format!("recorded on {}, mounted by {}", about.kernel, asked.kernel)),
        ("flush boundaries", format!("{} of {}", of.boundaries, of.flushes)),
        ("all combinations", format!("at {} of {} flushes", of.exhaustive, of.flushes)),
        ("samples", format!("{} ({})", of.samples, asked.modes.join(", "))),
        ("tears at", format!("{} bytes", asked.tear_bytes)),
        ("seed", asked.seed.to_string()),
        ("a state took", units::time(each.saturating_mul(1000))),
    ];
    if asked.lying {
        facts.push(("the disk lies", "no flush did anything".to_owned()));
    }
    if !about.faults.is_empty() {
        facts.push(("faults", about.faults.join("; ")));
    }
    html! {
        section #environment aria-labelledby="environment-heading" {
            h2 #environment-heading { "What it depends on" }
            dl { @for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (name) } dd { (value) } }
            } }
        }
    }
}

/// Writes the page; at no time is there half of one under its name.
pub(super) fn save(path: &Path, page: &str) -> Result<()> {
    plimsoll_lab::report::html::save(path, page).with_context(|| format!("save {}", path.display()))
}
