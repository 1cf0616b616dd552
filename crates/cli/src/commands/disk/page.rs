//! What was found of a trace as a page: one file, no network, no script; light, dark, and for paper.
//!
//! The verdict, then the timeline: bytes written, flushes, marks, the points at which power was cut, and
//! those of them that failed. Recordings and what checks say may come from anybody: every
//! text is escaped, and the page's policy forbids it to fetch or run anything.

use std::path::Path;

use anyhow::{Context, Result};
use maud::{Markup, html};
use plimsoll_lab::report::html::{page, plimsoll_line};
use plimsoll_lab::units;
use plimsoll_simdisk::block::{Event, Plan, Timeline, Trace};

use super::findings::{Findings, Standing};
use crate::disk_args::ViewArgs;
use crate::output::plain;

/// What the lab's pages have no need for.
const MORE_STYLE: &str = "
.timeline rect.write { fill: var(--mark); }
.timeline rect.flush { fill: var(--accent); }
.timeline rect.said { fill: var(--mark); }
.timeline rect.cut { fill: var(--soft); }
.timeline rect.bad { fill: var(--alarm); }
#verdict .lead, #verdict .alarm { margin-top: 1.3rem; }
#verdict .lead + p { margin-top: 0.5rem; max-width: 44rem; }
.meta code { color: var(--ink); overflow-wrap: anywhere; }
.meta + .meta { margin-top: 0.2rem; }
.counts { display: flex; flex-wrap: wrap; gap: 0.4rem 2rem; margin-top: 1.3rem; }
.counts li { font-size: 0.9rem; color: var(--soft); }
.counts strong { display: block; font-size: 1.6rem; line-height: 1.2; color: var(--ink); }
.counts .bad strong { color: var(--alarm); }
.states td, .states th { vertical-align: top; text-align: left; }
.states code { font-size: 0.82rem; overflow-wrap: anywhere; }
.states td { white-space: normal; }
table.states { width: 100%; table-layout: fixed; }
.states th:nth-child(1) { width: 37%; }
.states th:nth-child(2) { width: 17%; }
.states th:nth-child(3) { width: 11%; }
.states .mark { overflow-wrap: anywhere; }
.states pre { margin: 0; font-size: 0.82rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media screen and (max-width: 760px) {
  .states thead { display: none; }
  .states, .states tbody, .states tr, .states td { display: block; }
  .states tr { padding: 0.7rem 0; border-bottom: 1px solid var(--grid); }
  .states td { padding: 0 0 0.2rem; border: 0; white-space: normal; }
  .states .mark, .states .verdict { display: inline; color: var(--soft); }
  .states .mark::before { content: 'last mark '; }
  .states .mark::after { content: ' · '; }
  .states .verdict { color: var(--alarm); }
}
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
    let title = format!("What a power cut leaves on {}", plain(&about.filesystem));
    let body = html! {
        header.masthead {
            p.brand { (plimsoll_line()) " plimsoll disk" }
            h1 { (title) }
            p.meta { "Workload: " code { (plain(&about.command.join(" "))) } }
            p.meta { "Check: " code { (plain(&findings.asked.check)) } }
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
                        column, the more falls into it." }
                }
            }
            @if !bad.is_empty() { (failures(&bad)) }
            (surroundings(trace, plan, findings))
        }
        footer { p {
            "Made by plimsoll " (env!("CARGO_PKG_VERSION")) ". A state is a trace, a point, a mode and a seed: "
            code { "plimsoll disk replay TRACE STATE" (plain(&view(findings).to_string())) } " makes the same disk again, byte for byte. That no state
            failed means that none of these did, under this model, on this kernel."
        } }
    };
    page(&title, MORE_STYLE, &body)
}

fn verdict(plan: &Plan, findings: &Findings, bad: usize) -> Markup {
    let (visited, apart) = (findings.found.len(), findings.count(Standing::Apart));
    let passed = findings.count(Standing::Passed);
    html! {
        section #verdict aria-labelledby="verdict-heading" {
            h2 #verdict-heading { "Verdict" }
            @if bad > 0 {
                div.alarm role="note" {
                    p.loud { (bad) " of " (visited) " crash states failed." }
                }
            } @else if passed == 0 {
                div.alarm role="note" { p.loud { "No crash state could be checked." } }
            } @else if apart > 0 {
                p.lead { "All " (passed) " crash states that could be checked passed." }
            } @else {
                p.lead { "All " (passed) " crash states that were visited passed the check." }
            }
            @if apart > 0 {
                p { (apart) " of " (visited) " did not mount and could not be checked. They count neither way: " (unmountable(findings)) "." }
            }
            @if visited < plan.states.len() {
                p.soft { "Only " (visited) " of " (plan.states.len()) " were visited so far." }
            }
            @let shown = |&(name, count): &(&str, usize)| count > 0 || ["ok", "lost"].contains(&name);
            ul.counts { @for (name, count) in findings.counts().into_iter().filter(shown) {
                @let alarming = findings.bad().any(|finding| finding.verdict == name);
                li.bad[alarming] { strong { (count) } (explained(name)) }
            } }
        }
    }
}

/// Why a state may fail to mount without that being a fault of the program.
fn unmountable(findings: &Findings) -> &'static str {
    if findings.disk_lies {
        "a disk that lies breaks filesystems, too"
    } else {
        "torn below 4 KiB, as few drives tear, filesystems themselves break"
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
        column.bad += u64::from(findings.standing(finding) == Standing::Failed);
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
    let rows: [(&str, &str, fn(&Column) -> u64); 5] = [
        ("written", "write", |column| column.written),
        ("flushes", "flush", |column| column.flushes),
        ("marks", "said", |column| column.marks),
        ("power cuts", "cut", |column| column.cuts),
        ("failed", "bad", |column| column.bad),
    ];
    let row_height = 40.0;
    let row_step = row_height + 12.0;
    let axis_y = rows.len() as f64 * row_step - 12.0;
    let height = axis_y + 20.0;
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
                @let y = row as f64 * row_step;
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
            path.axis d=(format!("M{} {axis_y}H{width}", NAMES)) {}
            text.tick x=(NAMES) y=(axis_y + 16.0) { "0" }
            text.soft.value x=(width) y=(axis_y + 16.0) { "event " (trace.events.len()) }
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
                            td { code { (plain(&finding.state)) } }
                            td.mark { (plain(finding.last_mark.as_deref().unwrap_or("–"))) }
                            td.verdict { (plain(&finding.verdict)) }
                            td { pre { (plain(&finding.said)) } }
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

/// How the trace was seen, as it is typed.
fn view(findings: &Findings) -> ViewArgs {
    let asked = &findings.asked;
    let mount_options = asked.mount_options.clone();
    ViewArgs { lying: asked.lying, cache: asked.cache_bytes, mount_options }
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
        (
            "mount options",
            format!("{},{}", about.mount_options, asked.mount_options).trim_matches(',').to_owned(),
        ),
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
    if let Some(bytes) = asked.cache_bytes {
        facts.push(("write cache", units::bytes(bytes)));
    }
    if !about.faults.is_empty() {
        facts.push(("faults", about.faults.join("; ")));
    }
    html! {
        section #environment aria-labelledby="environment-heading" {
            h2 #environment-heading { "What it depends on" }
            dl { @for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (name) } dd { (plain(value)) } }
            } }
        }
    }
}

/// Writes the page; at no time is there half of one under its name.
pub(super) fn save(path: &Path, page: &str) -> Result<()> {
    plimsoll_lab::report::html::save(path, page).with_context(|| format!("save {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_simdisk::block::{About, Belief, Platter, Wanted};

    use super::super::findings::{Asked, Finding, Micros};
    use super::*;

    const HOSTILE: &str = "\u{1b}[2J<script>alert(1)</script>";

    /// The page of one state that was visited.
    fn page(verdict: &str, tear_bytes: u32) -> String {
        let dir = tempfile::tempdir().unwrap();
        let about = About {
            filesystem: HOSTILE.to_owned(),
            command: vec![HOSTILE.to_owned()],
            kernel: HOSTILE.to_owned(),
            ..About::default()
        };
        let bytes = Arc::from([1; 512]);
        let events =
            vec![Event::Write { byte_offset: 0, bytes }, Event::Flush, Event::Mark(HOSTILE.into())];
        let trace = Trace { about, base: Platter::new(1 << 20), events };
        let timeline = Timeline::of(&trace.events, Belief::default());
        let plan = Plan::new(trace.events.len(), &timeline, &Wanted::default());
        let asked = Asked {
            trace: trace.id(),
            filesystem: HOSTILE.to_owned(),
            check: HOSTILE.to_owned(),
            check_files: vec![],
            check_limit_ms: 1,
            states: 1,
            modes: vec![],
            tear_bytes,
            exhaustive_writes: 0,
            seed: 1,
            lying: false,
            faults: vec![],
            cache_bytes: Some(4096),
            mount_options: String::new(),
            kernel: String::new(),
            plimsoll: String::new(),
        };
        let mut findings = Findings::open(&dir.path().join("a.trace"), asked, true).unwrap();
        let finding = Finding {
            number: 0,
            state: format!("point=3,mode=torn,seed=1,tear={tear_bytes}"),
            verdict: verdict.to_owned(),
            said: HOSTILE.to_owned(),
            last_mark: Some(HOSTILE.to_owned()),
            micros: Micros::default(),
        };
        findings.add(finding).unwrap();
        render(&trace, &timeline, &plan, &findings)
    }

    #[test]
    fn nothing_of_a_trace_is_more_than_text() {
        let page = page("lost", 4096);
        assert!(page.contains("1 of 1 crash states failed."));
        assert!(page.contains("\\u001b[2J&lt;script&gt;"));
        assert!(!page.contains('\u{1b}') && !page.contains("<script"));
        assert!(page.contains("replay TRACE STATE --cache 4096"));
    }

    #[test]
    fn where_nothing_could_be_checked_nothing_passed() {
        let page = page("not-mounted", 512);
        assert!(page.contains("No crash state could be checked.") && !page.contains(" passed"));
        assert!(page.contains("1 of 1 did not mount"));
    }
}
