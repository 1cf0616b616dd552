//! What was found of a trace as a page, but for its frame: no network, no script; light, dark, and for paper.
//!
//! The verdict, then the timeline: bytes written, flushes, marks, the points at which power was cut, and
//! those of them that failed. Recordings and what checks say may come from anybody: every text is escaped.

use maud::{Markup, html};

use super::finding::{Finding, Standing};
use super::findings::Findings;
use super::tested::{Tested, Untested};
use crate::block::{Event, Plan, Timeline, Trace, size};

/// For what is in `main`.
const STYLE: &str = "
.timeline rect.write { fill: var(--mark); }
.timeline rect.flush { fill: var(--accent); }
.timeline rect.said { fill: var(--mark); }
.timeline rect.cut { fill: var(--soft); }
.timeline rect.bad { fill: var(--alarm); }
#verdict .lead, #verdict .alarm { margin-top: 1.3rem; }
#verdict .lead + p { margin-top: 0.5rem; max-width: 44rem; }
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

/// A page without its frame: what a caller's own look goes around.
///
/// All text in it is escaped. Control characters of a trace or a check are in it as they are: whoever draws
/// the frame shows them as it shows all that strangers wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Plain text.
    pub title: String,
    /// CSS, on top of the frame's: it uses its variables `--mark`, `--accent`, `--soft`, `--alarm`, `--ink`,
    /// `--grid`.
    pub style: &'static str,
    /// What belongs into the element `main`, as HTML.
    pub main: String,
}

impl Page {
    pub(super) fn of(trace: &Trace, timeline: &Timeline, plan: &Plan, findings: &Findings) -> Self {
        let bad: Vec<_> = findings.bad().collect();
        let main = html! {
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
        };
        let title = format!("What a power cut leaves on {}", trace.about.filesystem);
        Self { title, style: STYLE, main: main.into_string() }
    }
}

fn verdict(plan: &Plan, findings: &Findings, bad: usize) -> Markup {
    let whole = findings.found.len() == plan.states.len();
    let untested = whole.then(|| Untested::of(findings)).flatten();
    let (visited, apart) = (findings.found.len(), findings.count(Standing::Apart));
    let passed = findings.count(Standing::Passed);
    html! {
        section #verdict aria-labelledby="verdict-heading" {
            h2 #verdict-heading { "Verdict" }
            @if bad > 0 {
                div.alarm role="note" {
                    p.loud { (bad) " of " (visited) " crash states failed." }
                }
            } @else if let Some(why) = untested {
                div.alarm role="note" { p.loud { "No failure, but " (why) "." } }
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
            p { "Of " (visited) " states " (Tested::of(findings)) "." }
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

fn failures(bad: &[&Finding]) -> Markup {
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
                            td { code { (&finding.state) } }
                            td.mark { (finding.last_mark.as_deref().unwrap_or("–")) }
                            td.verdict { (&finding.verdict) }
                            td { pre { (&finding.said) } }
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
    let (about, question) = (&trace.about, &findings.question);
    let of = plan.covered(|number| findings.found.contains_key(&number));
    let micros = findings.found.values().map(|finding| finding.micros.sum());
    let micros = micros.fold(0, u64::saturating_add);
    let each = micros.checked_div(findings.found.len() as u64).unwrap_or(0);
    let mut facts: Vec<(&str, String)> = vec![
        ("trace", question.trace.clone()),
        ("recorded", format!("{}, {}", about.recorded_at, about.ended)),
        ("filesystem", format!("{} ({})", about.filesystem, about.mkfs.join(" "))),
        (
            "mount options",
            format!("{},{}", about.mount_options, question.mount_options)
                .trim_matches(',')
                .to_owned(),
        ),
        ("disk", size(trace.base.disk_bytes())),
        ("kernel", format!("recorded on {}, mounted by {}", about.kernel, question.kernel)),
        ("flush boundaries", format!("{} of {}", of.boundaries, of.flushes)),
        ("all combinations", format!("at {} of {} flushes", of.exhaustive, of.flushes)),
        ("samples", of.samples.to_string()),
        ("only these modes", question.modes.join(", ")),
        ("tears at", format!("{} bytes", question.tear_bytes)),
        ("seed", question.seed.to_string()),
        ("a state took", format!("{:.1} ms", each as f64 / 1000.0)),
    ];
    if question.lying {
        facts.push(("the disk lies", "no flush did anything".to_owned()));
    }
    if let Some(bytes) = question.cache_bytes {
        facts.push(("write cache", size(bytes)));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::finding::Micros;
    use super::super::question::Question;
    use super::super::question::tests::question;
    use super::*;
    use crate::block::{About, Belief, Platter, Toll, Wanted};

    const HOSTILE: &str = "<script>alert(1)</script>";

    /// The page of one state that was visited.
    fn page(verdict: &str, tear_bytes: u32) -> Page {
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
        let trace = Trace { about, base: Platter::new(1 << 20), events, aftermath: vec![] };
        let timeline = Timeline::of(&trace.events, Belief::default());
        let plan = Plan::new(&trace.events, &timeline, &Wanted::default());
        let question =
            Question { check: HOSTILE.to_owned(), cache_bytes: Some(4096), ..question(1) };
        let mut findings = Findings::open(&dir.path().join("a.trace"), question, true).unwrap();
        let finding = Finding {
            number: 0,
            state: format!("point=3,mode=torn,seed=1,tear={tear_bytes}"),
            verdict: verdict.to_owned(),
            said: HOSTILE.to_owned(),
            last_mark: Some(HOSTILE.to_owned()),
            pending: Toll { lost: 1, ..Toll::default() },
            disk: "0".to_owned(),
            micros: Micros { check: 1500, ..Micros::default() },
        };
        findings.add(finding).unwrap();
        Page::of(&trace, &timeline, &plan, &findings)
    }

    #[test]
    fn nothing_of_a_trace_is_more_than_text() {
        let page = page("lost", 4096).main;
        assert!(page.contains("1 of 1 crash states failed."));
        assert!(page.contains("1 had a mark before the cut") && page.contains("0 tore a write"));
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
    }

    #[test]
    fn sizes_and_times_are_said_with_their_units() {
        let page = page("ok", 4096).main;
        for fact in ["<dd>1MiB</dd>", "<dd>4KiB</dd>", "<dd>1.5 ms</dd>"] {
            assert!(page.contains(fact), "{fact}");
        }
    }

    #[test]
    fn where_nothing_could_be_checked_nothing_passed() {
        let page = page("not-mounted", 512).main;
        assert!(page.contains("No crash state could be checked.") && !page.contains(" passed"));
        assert!(page.contains("1 of 1 did not mount"));
    }
}
