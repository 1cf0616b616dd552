//! Results as a page: one file, which needs no network, no script and no colour.
//!
//! The verdict first, then each experiment with its charts, then what all of it depends on.

use maud::{Markup, html};

use super::chart::{self, Paper};
use super::page::{frame, plimsoll_line};
use super::{choice, text};
use crate::arm_result::ArmResult;
use crate::claim::Claim;
use crate::conclusion::Conclusion;
use crate::environment::Environment;
use crate::ladder::{Ladder, Rung};
use crate::result::ExperimentResult;
use crate::summary::Summary;
use crate::units;
use crate::warning::Warning;

/// The name of a run's page, beside its results.
pub const FILE: &str = "report.html";
/// Widths that charts are drawn for: a desk or paper, and a phone.
const WIDTHS: [(&str, f64); 2] = [("wide", 860.0), ("narrow", 328.0)];

/// The page of some results, in their order.
#[must_use]
pub fn render(results: &[ExperimentResult]) -> String {
    let environments = environments(results);
    let title = title(results);
    let body = html! {
        header.masthead {
            p.brand { (plimsoll_line()) " plimsoll lab" }
            h1 { (title) }
            @if let Some(result) = results.first() {
                p.meta { (text::measured_on(result)) }
            }
        }
        main {
            (verdict(results, &environments))
            (how_to_read())
            @for (number, result) in results.iter().enumerate() {
                (experiment(number, result))
            }
            (surroundings(&environments))
        }
        footer {
            p {
                "Made by plimsoll " (env!("CARGO_PKG_VERSION")) " from saved results. \
                 Times are from this machine, this filesystem and this disk on that day; \
                 compare ratios, not machines."
            }
        }
    };
    frame(&title, "", &body)
}

fn title(results: &[ExperimentResult]) -> String {
    let devices = results.first().map(|result| {
        let environment = &result.environment;
        let names: Vec<&str> = environment.devices.iter().map(|d| d.name.as_str()).collect();
        let filesystem = environment.mount.as_ref().map(|mount| mount.filesystem.as_str());
        match (filesystem, names.is_empty()) {
            (Some(filesystem), false) => format!("{filesystem} on {}", names.join(", ")),
            (Some(filesystem), true) => filesystem.to_owned(),
            (None, false) => names.join(", "),
            (None, true) => "this disk".to_owned(),
        }
    });
    format!("What durability costs on {}", devices.as_deref().unwrap_or("no disk"))
}

/// Distinct environments, with the experiments that ran in each. Free space does not
/// count, as measuring changes it.
fn environments(results: &[ExperimentResult]) -> Vec<(&Environment, Vec<&ExperimentResult>)> {
    let mut found: Vec<(&Environment, Vec<&ExperimentResult>)> = Vec::new();
    for result in results {
        let fixed = |e: &Environment| Environment { free_bytes: None, ..e.clone() };
        let of = &result.environment;
        match found.iter_mut().find(|(known, _)| fixed(known) == fixed(of)) {
            Some((_, results)) => results.push(result),
            None => found.push((of, vec![result])),
        }
    }
    found
}

fn anchor(number: usize) -> String {
    format!("experiment-{}", number + 1)
}

/// What is invalid, what was found, how far to believe it.
fn verdict(
    results: &[ExperimentResult],
    environments: &[(&Environment, Vec<&ExperimentResult>)],
) -> Markup {
    html! {
        section #verdict aria-labelledby="verdict-heading" {
            h2 #verdict-heading { "Verdict" }
            (alarm(results))
            @if results.is_empty() { p { "No results." } }
            @if let ([_], Some(conclusion)) = (environments, Conclusion::of(results, None)) {
                ul.conclusion { @for sentence in &conclusion.sentences { li { (tied(sentence)) } } }
            }
            @for (number, result) in results.iter().enumerate() {
                div.finding {
                    h3 { a href=(format!("#{}", anchor(number))) { (result.question) } }
                    @if let Some(first) = result.answer.first() {
                        p.lead { (tied(first)) }
                    } @else {
                        p.lead.soft { "No answer: see the charts and the warnings." }
                    }
                    @for claim in &result.claims {
                        p.claim { strong { (claim.who()) " claims that" } " " (tied(&claim.claim)) ": "
                            strong { (tied(&claim.verdict_in_words())) }
                            span.soft { " — " (tied(&claim.here)) } }
                    }
                }
            }
            @if let [(environment, _)] = environments {
                (ladder(environment, results))
            }
            (distrust(results))
        }
    }
}

/// The arms that did not do what they promise, by cause: one cause often has many victims.
fn alarm(results: &[ExperimentResult]) -> Markup {
    let invalid: Vec<(&ExperimentResult, &ArmResult)> = results
        .iter()
        .flat_map(|result| result.arms.iter().map(move |arm| (result, arm)))
        .filter(|(_, arm)| !arm.valid)
        .collect();
    let cause = |arm: &ArmResult| {
        let cause = arm.warnings.iter().find(|warning| warning.kind.invalidates());
        cause.map_or_else(|| "its counts contradict its promise".to_owned(), Warning::to_string)
    };
    let mut causes: Vec<(String, Vec<String>)> = Vec::new();
    for (result, arm) in &invalid {
        let name = format!("{}: {}", result.experiment, arm.name);
        let cause = cause(arm);
        match causes.iter_mut().find(|known| known.0 == cause) {
            Some(known) => known.1.push(name),
            None => causes.push((cause, vec![name])),
        }
    }
    html! {
        @if !invalid.is_empty() {
            div.alarm role="note" {
                p.loud { "INVALID: " (invalid.len()) " of "
                    (results.iter().map(|result| result.arms.len()).sum::<usize>())
                    " arms did not do what they promise. Do not use their figures." }
                ul { @for (cause, names) in &causes {
                    li { (cause) " " span.names { (names.join(" · ")) } }
                } }
            }
        }
    }
}

/// Reasons to distrust, each once: what is said of the machine is said of every experiment on it.
fn distrust(results: &[ExperimentResult]) -> Markup {
    let mut distrust: Vec<(&str, Vec<&str>)> = Vec::new();
    for result in results {
        for warning in &result.warnings {
            match distrust.iter_mut().find(|known| known.0 == warning.text) {
                Some(known) => known.1.push(&result.experiment),
                None => distrust.push((&warning.text, vec![&result.experiment])),
            }
        }
    }
    html! {
        @if !distrust.is_empty() {
            div.distrust role="note" {
                h3 { "Before you trust it" }
                ul { @for (text, of) in distrust {
                    li {
                        @if of.len() < results.len() || of.len() == 1 {
                            strong { (of.join(", ")) } " "
                        } @else {
                            strong { "all" } " "
                        }
                        (tied(text))
                    }
                } }
            }
        }
    }
}

/// How far the disk's word was checked.
fn ladder(environment: &Environment, results: &[ExperimentResult]) -> Markup {
    let ladder = Ladder::of(environment, results);
    let rungs = [
        (Rung::Claimed, "the call returned"),
        (Rung::Sent, "the kernel sent a flush for it"),
        (Rung::Plausible, "the device answers as a device can"),
        (Rung::Survived, "it was there after a power cut"),
    ];
    html! {
        div.ladder {
            h3 { "How far the disk's word was checked" }
            p.lead { (ladder.in_words()) }
            ol { @for (rung, means) in rungs {
                @let reached = rung <= ladder.rung;
                li.reached[reached] {
                    strong { (rung.name()) } " " span.soft { (means) }
                    span.state { (if reached { "reached" } else { "not reached" }) }
                }
            } }
            @if !ladder.reasons.is_empty() {
                ul { @for reason in &ladder.reasons { li { (reason) } } }
            }
            @if !ladder.cannot_know.is_empty() {
                p.soft { "What this cannot know: " (ladder.cannot_know.join("; ")) "." }
            }
        }
    }
}

fn experiment(number: usize, result: &ExperimentResult) -> Markup {
    let id = anchor(number);
    let figures = choice::figures(result);
    html! {
        section.experiment id=(id) aria-labelledby=(format!("{id}-heading")) {
            p.eyebrow { (result.experiment) }
            h2 id=(format!("{id}-heading")) { (result.question) }
            ul.answer { @for sentence in &result.answer { li { (tied(sentence)) } } }
            (beside(&result.claims))
            @for (number, figure) in figures.iter().enumerate() {
                @let id = format!("{id}-{}", number + 1);
                figure {
                    h3 { (figure.title) }
                    @for (class, width_px) in WIDTHS {
                        @let id = format!("{id}-{class}");
                        div class=(class) {
                            ((figure.draw)(Paper {
                                id: &id,
                                title: &figure.title,
                                description: &figure.description,
                                width_px,
                            }))
                        }
                    }
                    figcaption { (figure.note) }
                }
            }
            (table(result))
            (doubts(result))
            (missing(result))
            p.source {
                "Source: " (result.source) ". Profile " (result.profile) ", seed " (result.seed)
                ", begun " (result.started_at) ", took "
                (units::clock(std::time::Duration::from_millis(result.duration_ms)))
                @if !result.parameters.is_empty() { "; " (result.parameters.join(", ")) }
                ". Measuring itself costs " (units::time(result.harness.operation_p50_ns))
                " an operation."
            }
        }
    }
}

fn how_to_read() -> Markup {
    html! {
        section.reading aria-labelledby="reading-heading" {
            h2 #reading-heading { "How to read the ranges" }
            @for (class, width_px) in WIDTHS {
                @let id = format!("reading-{class}");
                div class=(class) {
                    (chart::reading_key(Paper {
                        id: &id,
                        title: "How to read a range",
                        description: "A dot at the median, a thick line from the fastest tenth to \
                                      the slowest hundredth, a thin one from the fastest to the \
                                      slowest, which has a tick.",
                        width_px: width_px.min(430.0),
                    }))
                }
            }
            p { "The figure on the right is the median; the lowest of those that may be compared is \
                 heavy. " b { "~" } " no difference from it was seen. " b { "?" } " measured on a busy \
                 machine. " b { "×" } " INVALID. Where the samples are too few to know the slowest \
                 hundredth, the thick line ends at the slowest tenth, or is not there. Scales of \
                 time are logarithmic, and shared by the panels of a figure." }
        }
    }
}

/// A number and its unit, kept on one line.
fn tied(text: &str) -> String {
    let units = ["%", "ns", "µs", "ms", "s", "B", "KiB", "MiB", "GiB", "GiB/s", "times"];
    let mut tied = String::with_capacity(text.len() + 8);
    let mut after_number = false;
    for (number, word) in text.split(' ').enumerate() {
        let unit = word.trim_end_matches(['.', ',', ';', ':', ')']);
        if number > 0 {
            tied.push(if after_number && units.contains(&unit) { '\u{a0}' } else { ' ' });
        }
        tied.push_str(word);
        after_number = word.ends_with(|letter: char| letter.is_ascii_digit());
    }
    tied
}

/// What articles claim, beside what was found here. Older results have their claims only in the
/// answer.
fn beside(claims: &[Claim]) -> Markup {
    html! {
        @if !claims.is_empty() {
            table.beside {
                caption { "Beside the article" }
                thead { tr { th scope="col" { "There" } th scope="col" { "Here" } } }
                tbody { @for claim in claims {
                    tr {
                        td { strong { (claim.who()) " claims that" } " " (tied(&claim.claim)) }
                        td { (tied(&claim.here)) ": "
                            strong { (tied(&claim.verdict_in_words())) } }
                    }
                } }
            }
        }
    }
}

/// Which columns the table of a result has beside those that every table has.
struct Columns<'a> {
    /// Whether any arm has more than one measure.
    several: bool,
    /// Whether the device was counted for any arm.
    counted: bool,
    /// The values of all arms, by name.
    values: Vec<&'a String>,
}

/// Every arm with all its figures.
fn table(result: &ExperimentResult) -> Markup {
    let mut values: Vec<&String> = result.arms.iter().flat_map(|arm| arm.values.keys()).collect();
    values.sort();
    values.dedup();
    let columns = Columns {
        several: result.arms.iter().any(|arm| arm.summaries.len() > 1),
        counted: result.arms.iter().any(|arm| arm.per_operation.is_some()),
        values,
    };
    html! {
        @if !result.arms.is_empty() {
            details.table {
                summary { "All figures: " (result.arms.len()) " arms" }
                div.scroll role="region" tabindex="0" aria-label=(format!("All figures of {}", result.experiment)) {
                    table {
                        thead { tr {
                            th scope="col" { "arm" }
                            th scope="col" { "promise" }
                            @if columns.several { th scope="col" { "measure" } }
                            @for name in ["p50", "95 % interval", "p90", "p99", "p99.9", "max", "n"] {
                                th.number scope="col" { (name) }
                            }
                            @if columns.counted {
                                th.number scope="col" { "flushes" }
                                th.number scope="col" { "KiB written" }
                            }
                            @for name in &columns.values {
                                th.number scope="col" { (units::quantity(name, 0.0).0) }
                            }
                        } }
                        tbody { @for arm in &result.arms { (rows(arm, &columns)) } }
                    }
                }
            }
        }
    }
}

/// A row for each measure of an arm that has samples. What is said of the arm as a whole stands in
/// the first one.
fn rows(arm: &ArmResult, columns: &Columns<'_>) -> Markup {
    let dash = || "–".to_owned();
    let time = |ns: Option<u64>| ns.map_or_else(dash, units::time);
    let interval = |summary: &Summary| {
        let (low, high) = summary.p50_ci95_ns?;
        Some(format!("{} – {}", units::time(low), units::time(high)))
    };
    let mark = if arm.valid { text::mark_behind_name(arm) } else { " INVALID".to_owned() };
    let measured = arm.summaries.iter().filter(|summary| summary.n > 0);
    html! {
        @for (number, summary) in measured.enumerate() {
            tr.invalid[!arm.valid] {
                @if number == 0 {
                    th scope="row" { (arm.name) (mark) }
                } @else {
                    td.again { span { (arm.name) } }
                }
                td { (arm.promise) }
                @if columns.several { td { (summary.measure) } }
                td.number { (time(summary.p50_ns)) }
                td.number { (interval(summary).unwrap_or_else(dash)) }
                @for ns in [summary.p90_ns, summary.p99_ns, summary.p999_ns, summary.max_ns] {
                    td.number { (time(ns)) }
                }
                td.number { (summary.n) }
                @let device = arm.per_operation.filter(|_| number == 0);
                @if columns.counted {
                    td.number { (device.map_or_else(dash, |d| units::figure(d.flushes))) }
                    td.number { (device.map_or_else(dash, |d| units::figure(d.device_kib))) }
                }
                @for name in &columns.values {
                    @let value = arm.values.get(*name).filter(|_| number == 0);
                    td.number { (value.map_or_else(dash, |&v| units::quantity(name, v).1)) }
                }
            }
        }
    }
}

/// Warnings of arms: many arms often share one reason, apart from its figures.
fn doubts(result: &ExperimentResult) -> Markup {
    let mut doubts: Vec<(String, &Warning)> = Vec::new();
    for arm in &result.arms {
        doubts.extend(arm.warnings.iter().map(|warning| (arm.name.clone(), warning)));
    }
    doubts.sort_by_key(|(_, warning)| !warning.kind.invalidates());
    let list = html! { ul.doubts { @for (arm, warning) in &doubts {
        li {
            @if warning.kind.invalidates() { strong.loud { "INVALID " } }
            strong { (arm) } " " (warning)
        }
    } } };
    html! {
        @if !doubts.is_empty() {
            details { summary { "Warnings: " (doubts.len()) } (list) }
        }
    }
}

/// What could not be measured.
fn missing(result: &ExperimentResult) -> Markup {
    html! {
        @if !result.unavailable.is_empty() {
            details {
                summary { "Not measured here: " (result.unavailable.len()) }
                ul.doubts { @for (reason, names) in text::by_reason(&result.unavailable) {
                    li { strong { (names.join(", ")) } " " (reason) }
                } }
            }
        }
    }
}

/// What the figures depend on.
fn surroundings(environments: &[(&Environment, Vec<&ExperimentResult>)]) -> Markup {
    html! {
        section #environment aria-labelledby="environment-heading" {
            h2 #environment-heading { "Environment" }
            @for (environment, results) in environments {
                @if environments.len() > 1 {
                    @let names: Vec<&str> = results.iter().map(|r| r.experiment.as_str()).collect();
                    h3 { (names.join(", ")) }
                }
                dl { @for (name, value) in facts(environment) {
                    div { dt { (name) } dd { (value) } }
                } }
            }
        }
    }
}

fn facts(environment: &Environment) -> Vec<(&'static str, String)> {
    let kib = |kib: u64| units::bytes(kib.saturating_mul(1024));
    let mount = environment.mount.as_ref();
    let mut facts = vec![
        ("plimsoll", Some(environment.plimsoll.clone())),
        ("system", Some(environment.system.clone())),
        ("kernel", environment.kernel.clone()),
        ("processor", environment.cpu.as_ref().map(|cpu| format!("{} × {cpu}", environment.cpus))),
        ("frequency governor", environment.cpu_governor.clone()),
        ("memory", environment.memory_kib.map(kib)),
        ("machine", environment.virtualisation.clone()),
        ("container", environment.container.clone()),
        ("directory", Some(environment.directory.display().to_string())),
        (
            "filesystem",
            mount.map(|m| {
                format!("{} from {} on {}", m.filesystem, m.source, m.mounted_at.display())
            }),
        ),
        ("mount options", mount.map(|m| m.options.clone())),
        ("size", environment.total_bytes.map(units::bytes)),
        ("free", environment.free_bytes.map(units::bytes)),
    ];
    let known = |fact: Option<bool>| match fact {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    for device in &environment.devices {
        let unknown = || "unknown".to_owned();
        facts.push((
            "device",
            Some(format!(
                "{}: model {}, write cache {}, FUA {}, rotational {}, scheduler {}",
                device.name,
                device.model.clone().unwrap_or_else(unknown),
                device.write_cache.clone().unwrap_or_else(unknown),
                known(device.fua),
                known(device.rotational),
                device.scheduler.clone().unwrap_or_else(unknown),
            )),
        ));
    }
    if !environment.dirty_limits.is_empty() {
        facts.push(("dirty limits", Some(environment.dirty_limits.join(", "))));
    }
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_parted_from_its_unit() {
        assert_eq!(tied("costs 28.3 µs (12 %)."), "costs 28.3\u{a0}µs (12\u{a0}%).");
        assert_eq!(tied("a file s"), "a file s");
    }
}
