//! A result on a terminal with all its tables: the answer first, then the tables, then what to distrust.
//! What all results share is on the screen of the run ([`super::screen`]).

use std::collections::BTreeSet;
use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Table, presets};
use plimsoll_sync::{Promise, SyncMethod};

use crate::arm_result::{ArmResult, all_busy};
use crate::environment::Environment;
use crate::layout::Layout;
use crate::result::{Before, ExperimentResult, Unavailable};
use crate::summary::Summary;
use crate::units;
use crate::warning::{Kind, Warning};

/// How to print.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Whether to use colours. Nothing is said by colour alone.
    pub colour: bool,
    /// Whether the tables are printed, with every arm and all its figures.
    pub details: bool,
    /// Where to wrap sentences. Tables are not wrapped.
    pub columns: usize,
}

impl Default for Style {
    fn default() -> Self {
        Self { colour: false, details: false, columns: 100 }
    }
}

/// The question, and the answer in sentences.
pub(super) fn answer(result: &ExperimentResult, style: Style) -> String {
    let mut text = String::new();
    line(&mut text, &style.bold(&format!("{}: {}", result.experiment, result.question)));
    for sentence in &result.answer {
        line(&mut text, &style.wrap(sentence, "  "));
    }
    text
}

/// The whole result: the answer, every table, every warning.
#[must_use]
pub fn render(result: &ExperimentResult, style: Style) -> String {
    let mut text = answer(result, style);
    line(&mut text, "");
    text += &match result.experiment.as_str() {
        "sync-cost" => cost_tables(result, style),
        "write-during-sync" => race_table(result, style),
        _ => arm_table(result, style),
    };
    text += &details(result);
    text += &unavailable(result, style);
    text += &warnings(result, style);
    text
}

/// What the figures depend on, in a line.
pub(super) fn measured_on(result: &ExperimentResult) -> String {
    let environment = &result.environment;
    let mount = environment.mount.as_ref();
    let disk = [
        mount.map(|mount| format!("{} ({})", mount.filesystem, mount.options)),
        Some(environment.devices_in_words()).filter(|devices| !devices.is_empty()),
        Some(format!("profile {}, seed {}", result.profile, result.seed)),
    ];
    let parts: Vec<String> =
        machine(environment).into_iter().chain(disk.into_iter().flatten()).collect();
    format!("measured on {}", parts.join("; "))
}

/// The machine, in parts.
pub(super) fn machine(environment: &Environment) -> Vec<String> {
    let parts = [
        environment.kernel.as_ref().map(|kernel| format!("{} {kernel}", environment.system)),
        environment.cpu.as_ref().map(|cpu| format!("{} × {cpu}", environment.cpus)),
        environment.virtualisation.clone(),
        environment.container.as_ref().map(|container| format!("in {container}")),
    ];
    parts.into_iter().flatten().collect()
}

impl Style {
    pub(super) fn bold(self, text: &str) -> String {
        self.paint(text, "1")
    }

    pub(super) fn loud(self, text: &str) -> String {
        self.paint(text, "1;31")
    }

    /// Wraps a text into lines behind `indent` that fit the terminal, if its words do.
    pub(super) fn wrap(self, text: &str, indent: &str) -> String {
        let (first, more) = (indent, format!("\n{indent}  "));
        // No line is longer than those behind the deeper indent.
        let columns = self.columns.saturating_sub(indent.len() + 2);
        format!("{first}{}", lines(text, columns).join(&more))
    }

    fn paint(self, text: &str, code: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The words of a text in lines of at most so many columns, if none of them is longer.
#[must_use]
pub fn lines(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Method by layout, for each size and promise class: times, then what the device did.
fn cost_tables(result: &ExperimentResult, style: Style) -> String {
    let mut text = String::new();
    let sizes: BTreeSet<u64> = result.arms.iter().map(|arm| arm.payload_bytes).collect();
    // 4 KiB comes first, as the question is about a page.
    let mut sizes: Vec<u64> = sizes.into_iter().filter(|&bytes| bytes > 0).collect();
    sizes.sort_by_key(|&bytes| (bytes != 4096, bytes));
    for bytes in sizes {
        for promise in Promise::ALL {
            let arms: Vec<&ArmResult> = result
                .arms
                .iter()
                .filter(|arm| arm.payload_bytes == bytes && arm.promise == promise.name())
                .collect();
            if arms.is_empty() {
                continue;
            }
            let size = units::bytes(bytes);
            let title = format!("{size}, promised: {promise} (p50 / p99 until it returned)");
            line(&mut text, &style.bold(&title));
            line(&mut text, &by_layout(&arms, |arm| time_cell(arm, &arms)));
            if all_busy(arms.iter().copied().filter(|arm| arm.valid)) {
                line(&mut text, "  the lowest is not known here: the machine was busy");
            }
            if bytes == 4096 {
                line(&mut text, "  the same, at the device: flushes and KiB written per operation");
                line(&mut text, &by_layout(&arms, device_cell));
            }
        }
    }
    text +=
        "  * lowest of its class   ~ no difference from it seen   . too few blocks to compare\n";
    text += "  ! INVALID, do not use   ? measured on a busy machine\n";
    let clean: Vec<&ArmResult> = result.arms.iter().filter(|arm| arm.payload_bytes == 0).collect();
    if !clean.is_empty() {
        line(&mut text, &style.bold("\nnothing to sync: p50 / p99, flushes"));
        let mut table = table();
        for arm in clean {
            table.add_row([
                format!("  {}", arm.method),
                times(&arm.summaries[0]),
                device_cell(arm).unwrap_or_default(),
            ]);
        }
        line(&mut text, &table.to_string());
    }
    text + &spent(result)
}

/// Rows of methods, columns of layouts.
fn by_layout(arms: &[&ArmResult], cell: impl Fn(&ArmResult) -> Option<String>) -> String {
    let layouts: Vec<Layout> = Layout::ALL
        .into_iter()
        .filter(|layout| arms.iter().any(|arm| arm.layout == layout.name()))
        .collect();
    let mut table = table();
    let names = layouts.iter().map(|layout| right(layout.name().to_owned()));
    table.set_header(std::iter::once(Cell::new("  method")).chain(names));
    for method in SyncMethod::ALL {
        let row: Vec<Option<&&ArmResult>> = layouts
            .iter()
            .map(|layout| {
                let is =
                    |arm: &&&ArmResult| arm.method == method.name() && arm.layout == layout.name();
                arms.iter().find(is)
            })
            .collect();
        if row.iter().all(Option::is_none) {
            continue;
        }
        let cells = row
            .into_iter()
            .map(|arm| right(arm.and_then(|arm| cell(arm)).unwrap_or_else(|| "–".to_owned())));
        table.add_row(std::iter::once(Cell::new(format!("  {method}"))).chain(cells));
    }
    table.to_string()
}

/// `31.2 / 69.0 µs *`
fn time_cell(arm: &ArmResult, rivals: &[&ArmResult]) -> Option<String> {
    Some(format!("{} {}", times(arm.summaries.first()?), mark(arm, rivals)))
}

/// Signs for how an arm stands among those of its class, and whether the machine left it in peace.
pub(super) fn mark(arm: &ArmResult, rivals: &[&ArmResult]) -> String {
    let best = lowest(rivals);
    let standing = match best {
        _ if !arm.valid => '!',
        Some(best) if best.name == arm.name => '*',
        Some(best) => match arm.summaries[0].differs_from(&best.summaries[0]) {
            Some(true) => ' ',
            Some(false) => '~',
            None => '.',
        },
        None => ' ',
    };
    format!("{standing}{}", if arm.is_noisy() { '?' } else { ' ' })
}

/// The valid arm with the lowest median, unless all of them were measured on a busy machine.
pub(super) fn lowest<'a>(arms: &[&'a ArmResult]) -> Option<&'a ArmResult> {
    let valid = || arms.iter().copied().filter(|arm| arm.valid && arm.p50_ns().is_some());
    if all_busy(valid()) { None } else { valid().min_by_key(|arm| arm.p50_ns()) }
}

/// ` !?` behind a name, or nothing.
pub(super) fn mark_behind_name(arm: &ArmResult) -> String {
    let mark = mark(arm, &[]);
    let mark = mark.trim();
    if mark.is_empty() { String::new() } else { format!(" {mark}") }
}

/// `1.00 F  11.0 KiB`
fn device_cell(arm: &ArmResult) -> Option<String> {
    let per_operation = arm.per_operation?;
    Some(format!("{:.2} F {:>6.1} KiB", per_operation.flushes, per_operation.device_kib))
}

/// `31.2 µs / 69.0 µs`, or `–` where there are too few samples.
fn times(summary: &Summary) -> String {
    format!("{} / {}", time(summary.p50_ns), time(summary.p99_ns))
}

pub(super) fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".to_owned(), units::time)
}

/// The arms for which reports say where the time went: the plain ways and the best one.
pub(super) fn spent_arms(result: &ExperimentResult) -> Vec<&ArmResult> {
    let class = Promise::Media.name();
    let shown = |arm: &&ArmResult| {
        arm.payload_bytes == 4096 && arm.promise == class && arm.attribution.is_some()
    };
    let best = result.arms.iter().filter(|arm| arm.valid).filter(shown).min_by_key(|a| a.p50_ns());
    let plain = [SyncMethod::ORDINARY, SyncMethod::Fdatasync].map(SyncMethod::name);
    let told = |arm: &&ArmResult| {
        plain.contains(&arm.method.as_str()) || best.is_some_and(|b| b.name == arm.name)
    };
    result.arms.iter().filter(shown).filter(told).collect()
}

/// Where the time went.
fn spent(result: &ExperimentResult) -> String {
    let arms = spent_arms(result);
    if arms.is_empty() {
        return String::new();
    }
    let mut text = "\n  where the time goes, on average\n".to_owned();
    let mut table = table();
    for arm in arms {
        if let Some(spent) = arm.attribution {
            table.add_row([
                format!("  {}", arm.name),
                units::time(spent.mean_ns),
                spent.in_words(),
            ]);
        }
    }
    line(&mut text, &table.to_string());
    text
}

/// One row for each arm of a race between writes and syncs.
fn race_table(result: &ExperimentResult, style: Style) -> String {
    let mut table = table();
    table.set_header([
        Cell::new("  syncs beside the writes"),
        right("free: p50 / p99".to_owned()),
        right("in flight: p50 / p90".to_owned()),
        right("max".to_owned()),
        Cell::new(""),
        right("sync p50".to_owned()),
        right("held".to_owned()),
        right("flush/sync".to_owned()),
    ]);
    for arm in &result.arms {
        let [free, in_flight, sync, ..] = arm.summaries.as_slice() else {
            continue;
        };
        let value = |name: &str| arm.values.get(name).copied().unwrap_or_default();
        let (syncs, held) = (value("syncs"), value("syncs_that_held_a_write"));
        let same = match in_flight.differs_from(free) {
            Some(false) => "~",
            _ => " ",
        };
        let mark = mark_behind_name(arm);
        table.add_row([
            Cell::new(format!("  {}{mark}", arm.name)),
            right(times(free)),
            right(format!("{} / {}", time(in_flight.p50_ns), time(in_flight.p90_ns))),
            right(time(in_flight.max_ns)),
            Cell::new(same),
            right(time(sync.p50_ns)),
            right(if syncs > 0.0 { format!("{held}/{syncs}") } else { "–".to_owned() }),
            right(
                arm.per_operation
                    .map_or_else(|| "–".to_owned(), |device| format!("{:.2}", device.flushes)),
            ),
        ]);
    }
    let title = style.bold("time of one write(2), without and with a sync in flight");
    format!(
        "{title}\n{table}\n  ~ no difference seen between free and in flight   held: syncs that held a \
         write up   ! INVALID   ? busy machine\n"
    )
}

/// One row for each arm, as most experiments want it.
fn arm_table(result: &ExperimentResult, style: Style) -> String {
    let mut values: Vec<&String> = result.arms.iter().flat_map(|arm| arm.values.keys()).collect();
    values.sort();
    values.dedup();
    let counted = result.arms.iter().any(|arm| arm.per_operation.is_some());
    let mut header = vec![Cell::new("  arm")];
    header.extend(["p50", "p99", "max", "n"].map(|name| right(name.to_owned())));
    header.extend(counted.then(|| right("flushes, KiB written".to_owned())));
    header.extend(values.iter().map(|name| right(name.replace('_', " "))));
    let mut table = table();
    table.set_header(header);
    for arm in &result.arms {
        let Some(leading) = arm.summaries.first() else { continue };
        let mark = mark_behind_name(arm);
        let mut row = vec![Cell::new(format!("  {}{mark}", arm.name))];
        row.extend([leading.p50_ns, leading.p99_ns, leading.max_ns].map(|ns| right(time(ns))));
        row.push(right(leading.n.to_string()));
        if counted {
            row.push(right(device_cell(arm).unwrap_or_else(|| "–".to_owned())));
        }
        for name in &values {
            let value = arm.values.get(*name);
            row.push(right(value.map_or_else(|| "–".to_owned(), |&value| units::figure(value))));
        }
        table.add_row(row);
    }
    let measure = result.arms.first().and_then(|arm| arm.summaries.first());
    let title = style.bold(measure.map_or("", |summary| &summary.measure));
    format!("{title}\n{table}\n  ! INVALID   ? busy machine\n")
}

/// Every arm with all its figures.
fn details(result: &ExperimentResult) -> String {
    let mut text =
        "\n  every arm: p50 [95 % interval], p90, p99, p99.9, max, n in blocks\n".to_owned();
    let mut table = table();
    for arm in &result.arms {
        for summary in arm.summaries.iter().filter(|summary| summary.n > 0) {
            let interval = summary.p50_ci95_ns.map_or_else(String::new, |(low, high)| {
                format!("[{}, {}]", units::time(low), units::time(high))
            });
            let name = if arm.summaries.len() > 1 {
                format!("  {}: {}", arm.name, summary.measure)
            } else {
                format!("  {}", arm.name)
            };
            table.add_row([
                Cell::new(name),
                right(time(summary.p50_ns)),
                right(interval),
                right(time(summary.p90_ns)),
                right(time(summary.p99_ns)),
                right(time(summary.p999_ns)),
                right(time(summary.max_ns)),
                right(format!("{} in {}", summary.n, arm.blocks)),
            ]);
        }
        if let Some(spent) = arm.attribution {
            table.add_row([format!("    mean {}", units::time(spent.mean_ns)), spent.in_words()]);
        }
    }
    line(&mut text, &table.to_string());
    text
}

/// Each reason once, with everything that could not be measured because of it.
pub(super) fn by_reason(unavailable: &[Unavailable]) -> Vec<(&str, Vec<&str>)> {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for arm in unavailable {
        match by_reason.iter_mut().find(|(reason, _)| *reason == arm.reason) {
            Some((_, names)) => names.push(&arm.name),
            None => by_reason.push((&arm.reason, vec![&arm.name])),
        }
    }
    by_reason
}

/// What could not be measured.
fn unavailable(result: &ExperimentResult, style: Style) -> String {
    let by_reason = by_reason(&result.unavailable);
    if by_reason.is_empty() {
        return String::new();
    }
    let mut text = "\n  not measured here\n".to_owned();
    for (reason, names) in by_reason {
        line(&mut text, &style.wrap(&format!("{}: {reason}", names.join(", ")), "    "));
    }
    text
}

/// The warnings of the run, then those of arms; equal ones are printed once.
fn warnings(result: &ExperimentResult, style: Style) -> String {
    let mut text = String::new();
    let mut warn = |about: &str, warning: &Warning| {
        let label =
            if warning.kind.invalidates() { style.loud("INVALID") } else { style.bold("warning") };
        line(&mut text, &style.wrap(&format!("{label}: {about}{warning}"), "  "));
    };
    // What was seen before the run is said once for all results.
    let before = result.before.as_ref().map_or_else(Vec::new, Before::warnings);
    for warning in result.warnings.iter().filter(|warning| !before.contains(warning)) {
        warn("", warning);
    }
    let mut by_kind: Vec<(&Warning, Vec<&str>)> = Vec::new();
    for arm in &result.arms {
        // A warning of the run says how many arms were noisy.
        for warning in arm.warnings.iter().filter(|warning| warning.kind != Kind::Noisy) {
            match by_kind.iter_mut().find(|(first, _)| first.kind == warning.kind) {
                Some((_, names)) => names.push(&arm.name),
                None => by_kind.push((warning, vec![&arm.name])),
            }
        }
    }
    for (first, names) in by_kind {
        match names.as_slice() {
            [name] => warn(&format!("{name}: "), first),
            [name, ..] => warn(&format!("{} arms, {name} first: ", names.len()), first),
            [] => {}
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

pub(super) fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

pub(super) fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

pub(super) fn line(text: &mut String, line: &str) {
    let trimmed: Vec<&str> = line.lines().map(str::trim_end).collect();
    writeln!(text, "{}", trimmed.join("\n")).expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(name: &str, p50_ns: u64, valid: bool) -> ArmResult {
        let block_p50_ns = (0..10).map(|block| p50_ns + block).collect();
        let (p50_ns, p99_ns) = (Some(p50_ns), Some(2 * p50_ns));
        let summary = Summary { n: 2000, p50_ns, p99_ns, block_p50_ns, ..Summary::default() };
        let mut parts = name.split('/');
        ArmResult {
            name: name.to_owned(),
            method: parts.next().unwrap().to_owned(),
            layout: parts.next().unwrap().to_owned(),
            promise: Promise::Media.name().to_owned(),
            payload_bytes: 4096,
            blocks: 10,
            durable_operations: 2000,
            valid,
            summaries: vec![summary],
            per_operation: None,
            values: std::collections::BTreeMap::new(),
            machine: crate::arm_result::Machine::default(),
            attribution: None,
            series: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_lowest_valid_arm_is_marked_and_ties_are_not_ranked() {
        let arms = [
            arm("none/append", 10, false),
            arm("fsync/append", 1000, true),
            arm("fdatasync/append", 1001, true),
            arm("o_sync/append", 9000, true),
        ];
        let rivals: Vec<&ArmResult> = arms.iter().collect();
        let marks: String = arms.iter().map(|arm| mark(arm, &rivals)).collect();
        assert_eq!(marks, "! * ~   ");
    }

    #[test]
    fn a_busy_machine_shows_on_the_best_arm_too() {
        let mut best = arm("fsync/append", 1000, true);
        best.warnings.push(Warning::new(Kind::Noisy, "waited"));
        let quiet = arm("fdatasync/append", 9000, true);
        assert_eq!(mark(&best, &[&best, &quiet]), "*?");
    }

    /// A best was named where every arm had its `?`.
    #[test]
    fn where_every_arm_was_busy_none_is_marked_as_the_lowest() {
        let mut result = ExperimentResult::empty();
        result.arms = [("fsync/append", 1000), ("fdatasync/append", 9000)]
            .map(|(name, ns)| arm(name, ns, true))
            .to_vec();
        let unknown = "  the lowest is not known here: the machine was busy\n";
        let table = |result: &ExperimentResult| cost_tables(result, Style::default());
        assert!(table(&result).contains("2.00 µs *") && !table(&result).contains(unknown));
        for arm in &mut result.arms {
            arm.warnings.push(Warning::new(Kind::Noisy, "waited"));
        }
        let said = table(&result);
        assert!(!said.contains("µs *") && said.contains(unknown), "{said}");
    }

    #[test]
    fn like_warnings_are_told_once() {
        let mut result = ExperimentResult::empty();
        for name in ["fsync/append", "fdatasync/append", "o_sync/append"] {
            let mut arm = arm(name, 1000, false);
            arm.warnings.push(Warning::new(Kind::PromiseContradicted, "0.00 flushes"));
            result.arms.push(arm);
        }
        let told = warnings(&result, Style::default());
        assert!(told.contains("3 arms, fsync/append first: 0.00 flushes"), "{told}");
        assert_eq!(told.matches("INVALID").count(), 1, "{told}");
    }

    #[test]
    fn a_method_without_an_arm_on_a_layout_has_a_dash() {
        let arms = [arm("fsync/append", 91_000, true), arm("msync/overwritten", 71_000, true)];
        let rivals: Vec<&ArmResult> = arms.iter().collect();
        let table = by_layout(&rivals, |arm| time_cell(arm, &rivals));
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[1].contains("91.0 µs / 182 µs") && rows[1].contains('–'), "{table}");
        assert!(rows[2].contains("71.0 µs / 142 µs *"), "{table}");
    }

    #[test]
    fn long_sentences_are_wrapped_behind_the_indent() {
        let wrapped = Style::default().wrap(&"word ".repeat(40), "  ");
        assert!(wrapped.lines().count() > 1);
        assert!(wrapped.lines().all(|line| line.starts_with("  ") && line.chars().count() <= 100));
    }

    #[test]
    fn colour_is_only_there_when_asked_for() {
        let painted = Style { colour: true, ..Style::default() }.loud("INVALID");
        assert!(painted.contains("\x1b["));
        assert_eq!(Style::default().loud("INVALID"), "INVALID");
    }
}
