//! What changed between two states of a disk, on a terminal: a sentence first, then every row.

use comfy_table::Cell;

use super::text::{Style, line, right, table, time};
use crate::compare::{Comparison, Condition, Row, Sides, Source, TOGETHER_MAX, Verdict};
use crate::units;

/// As a share: medians always move together by less than this, which needs no mention.
const TOGETHER_WORTH_A_WORD: f64 = 0.05;
/// A sentence names so many, and then says how many more there are.
const NAMES: usize = 5;

/// The whole comparison.
#[must_use]
pub fn render(comparison: &Comparison, style: Style) -> String {
    let mut text = String::new();
    line(&mut text, &style.bold(&style.wrap(&headline(comparison), "")));
    for sentence in news(comparison) {
        line(&mut text, &style.wrap(&sentence, "  "));
    }
    for condition in &comparison.conditions {
        line(&mut text, &style.wrap(&format!("warning: {}", in_words(condition)), "  "));
    }
    let mut experiments: Vec<&str> =
        comparison.rows.iter().map(|row| row.experiment.as_str()).collect();
    experiments.dedup();
    for experiment in experiments {
        let rows: Vec<&Row> =
            comparison.rows.iter().filter(|row| row.experiment == experiment).collect();
        line(&mut text, &style.bold(&format!("\n{experiment}: old → new")));
        line(&mut text, &rows_table(&rows));
    }
    line(&mut text, "\n  ~ no difference seen   ? too few blocks or samples to say   ! INVALID");
    line(&mut text, &style.wrap(&legend(comparison), "  "));
    text
}

/// What changed, in a sentence.
#[must_use]
pub fn headline(comparison: &Comparison) -> String {
    let rows = &comparison.rows;
    let quiet = |verdict: Verdict| -> Vec<&Row> {
        let is = |row: &&Row| row.verdict == verdict && !row.noisy.any();
        rows.iter().filter(is).collect()
    };
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let what = if rows.iter().all(|row| row.leads) { "arms" } else { "measures" };
    let mut parts = Vec::new();
    let slower = quiet(Verdict::Slower);
    if let Some(limit) = comparison.fail_over {
        let failed: Vec<&Row> = comparison.failed().collect();
        let over = format!("slower by more than {}", units::percent(limit));
        parts.push(format!("{} of {} {what} {}", failed.len(), rows.len(), are(&failed, &over)));
        let within = slower.len() - failed.len();
        if within > 0 {
            parts.push(format!("{within} slower by less than that"));
        }
    } else {
        parts.push(format!("{} of {} {what} {}", slower.len(), rows.len(), are(&slower, "slower")));
    }
    let faster = quiet(Verdict::Faster);
    if !faster.is_empty() {
        parts.push(format!("{} faster: {}", faster.len(), names(&faster)));
    }
    let busy =
        |row: &&Row| row.noisy.any() && matches!(row.verdict, Verdict::Slower | Verdict::Faster);
    let busy = rows.iter().filter(busy).count();
    if busy > 0 {
        parts.push(format!("{busy} changed on a busy machine: undecided"));
    }
    match count(Verdict::Same) {
        0 => {}
        same => parts.push(format!("for {same} no difference was seen")),
    }
    match count(Verdict::Unknown) {
        0 => {}
        unknown => parts.push(format!("{unknown} with too few blocks to compare")),
    }
    match count(Verdict::Invalid) {
        0 => {}
        invalid => parts.push(format!("{invalid} INVALID and not compared")),
    }
    format!("{}.", parts.join("; "))
}

/// What the headline leaves open, in a sentence each.
fn news(comparison: &Comparison) -> Vec<String> {
    let mut news = vec![seen_from(comparison)];
    for (experiment, change) in &comparison.together {
        let change = change.exp_m1();
        if change.abs() >= TOGETHER_WORTH_A_WORD {
            news.push(format!(
                "In {experiment} everything moved by {} together: up to {} of a change there is taken \
                 for the machine's mood.",
                signed(change),
                units::percent(change.abs().min(TOGETHER_MAX.exp_m1()))
            ));
        }
    }
    let undecided: Vec<&Row> = comparison.undecided().collect();
    if !undecided.is_empty() {
        news.push(format!(
            "Undecided, because the machine was busy: {}. Measure these again on a machine left in \
             peace.",
            names(&undecided)
        ));
    }
    let invalid: Vec<&Row> =
        comparison.rows.iter().filter(|row| row.verdict == Verdict::Invalid && row.leads).collect();
    for side in [
        Sides { old: true, new: true },
        Sides { old: true, new: false },
        Sides { old: false, new: true },
    ] {
        let mut there: Vec<String> =
            invalid.iter().filter(|row| row.invalid == side).map(|row| row.name()).collect();
        if there.len() > NAMES {
            let more = there.split_off(NAMES).len();
            there.push(format!("and {more} more"));
        }
        if !there.is_empty() {
            news.push(format!("INVALID in {side}, not compared: {}.", there.join(", ")));
        }
    }
    for (side, only) in [("OLD", &comparison.only_in_old), ("NEW", &comparison.only_in_new)] {
        if !only.is_empty() {
            news.push(format!("Only in {side}: {}.", only.join(", ")));
        }
    }
    news
}

/// How many runs there are, and how large a change had to be.
fn seen_from(comparison: &Comparison) -> String {
    let of = |runs: usize| if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    let runs = comparison.runs;
    let spread = units::percent(comparison.yardstick.spread);
    let from_run_to_run = match comparison.yardstick.source {
        Source::Runs => format!("from run to run a median moves by {spread}"),
        Source::Changes => format!(
            "how far a median moves from run to run is guessed from these two ({spread}): several \
             runs of each would tell, and show smaller changes"
        ),
        Source::BuiltIn => format!(
            "how far a median moves from run to run is not known and taken to be {spread}: several \
             runs of everything would tell, and show smaller changes"
        ),
    };
    let smallest = comparison.smallest.map_or_else(String::new, |smallest| {
        format!("; a single measure is called changed from about {} on", signed(smallest))
    });
    format!("{} of OLD, {} of NEW; {from_run_to_run}{smallest}.", of(runs.old), of(runs.new))
}

/// `are slower: fsync/append/4KiB (+21 %)`
fn are(rows: &[&Row], how: &str) -> String {
    let verb = if rows.len() == 1 { "is" } else { "are" };
    if rows.is_empty() { format!("{verb} {how}") } else { format!("{verb} {how}: {}", names(rows)) }
}

/// The names of rows with their changes, the largest change first.
fn names(rows: &[&Row]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let mut names: Vec<String> = rows
        .iter()
        .take(NAMES)
        .map(|row| format!("{} ({})", row.name(), signed(row.change.unwrap_or_default())))
        .collect();
    if rows.len() > NAMES {
        names.push(format!("and {} more", rows.len() - NAMES));
    }
    names.join(", ")
}

fn in_words(condition: &Condition) -> String {
    let or_none = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    format!(
        "the runs differ in {}, so a change need not be the disk's: {} → {}",
        condition.what,
        or_none(&condition.old),
        or_none(&condition.new)
    )
}

/// A table of rows: changed ones first, the largest change on top, then the others in their order.
fn rows_table(rows: &[&Row]) -> String {
    let mut rows = rows.to_vec();
    let differs = |row: &Row| matches!(row.verdict, Verdict::Slower | Verdict::Faster);
    rows.sort_by(|a, b| {
        let key = |row: &Row| if differs(row) { size(row) } else { 0.0 };
        key(b).total_cmp(&key(a))
    });
    let mut table = table();
    table.set_header([
        Cell::new("  arm"),
        right("p50".to_owned()),
        right("change".to_owned()),
        right("p99".to_owned()),
        right("change".to_owned()),
        Cell::new(""),
    ]);
    for row in rows {
        let (p99, p99_change) = match row.p99 {
            None => ("–".to_owned(), String::new()),
            Some(tail) => (
                format!("{} → {}", units::time(tail.old_ns), units::time(tail.new_ns)),
                match tail.differs {
                    _ if row.verdict == Verdict::Invalid => "!".to_owned(),
                    Some(true) => signed(tail.change),
                    Some(false) => "~".to_owned(),
                    None => "?".to_owned(),
                },
            ),
        };
        table.add_row([
            Cell::new(format!("  {}", row.name())),
            right(format!("{} → {}", time(row.old_p50_ns), time(row.new_p50_ns))),
            right(change(row)),
            right(p99),
            right(p99_change),
            Cell::new(remarks(row)),
        ]);
    }
    table.to_string()
}

fn change(row: &Row) -> String {
    match row.verdict {
        Verdict::Slower | Verdict::Faster => signed(row.change.unwrap_or_default()),
        Verdict::Same => "~".to_owned(),
        Verdict::Unknown => "?".to_owned(),
        Verdict::Invalid => "!".to_owned(),
    }
}

fn remarks(row: &Row) -> String {
    let mut remarks = Vec::new();
    if row.invalid.any() {
        remarks.push(format!("INVALID in {}", row.invalid));
    }
    if row.noisy.any() {
        remarks.push(format!("busy machine in {}", row.noisy));
    }
    if let Some((old, new)) = row.flushes {
        remarks.push(format!("flushes/op {old:.2} → {new:.2}"));
    }
    if let Some((old, new)) = row.device_kib {
        remarks.push(format!("KiB/op {old:.1} → {new:.1}"));
    }
    remarks.join("; ")
}

fn legend(comparison: &Comparison) -> String {
    let tested = comparison.rows.iter().filter(|row| row.p.is_some()).count();
    format!(
        "The yardstick is how far a median moves from one run to the next: by a measure's own runs, \
         drawn toward what all measures do, because few runs tell little. A change of p50 is shown if \
         it is too large for that (Student's t) and for how far its blocks scatter (Mann–Whitney), \
         the p values of all {tested} comparisons being corrected for their number \
         (Benjamini–Hochberg, 5 %). What everything in an experiment did together, and 5 % about it, \
         is no change. p99 differs where its 95 % intervals are apart: a hint, they are optimistic."
    )
}

fn size(row: &Row) -> f64 {
    row.change.unwrap_or_default().abs()
}

/// `+21 %`, `−7 %`
fn signed(change: f64) -> String {
    let sign = if change < 0.0 { '−' } else { '+' };
    format!("{sign}{}", units::percent(change.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::compare;
    use crate::result::ExperimentResult;
    use crate::warning::{Kind, Warning};

    fn result(name: &str) -> ExperimentResult {
        let json = include_str!("../../testdata/result-v1-sync-cost.json");
        let mut result = ExperimentResult::parse(json).unwrap();
        result.experiment = name.to_owned();
        for arm in &mut result.arms {
            arm.warnings.clear();
        }
        result
    }

    /// The same, with the arm three times as slow.
    fn slower(mut result: ExperimentResult, arm: usize) -> ExperimentResult {
        let summary = &mut result.arms[arm].summaries[0];
        summary.p50_ns = summary.p50_ns.map(|ns| ns * 3);
        for ns in &mut summary.block_p50_ns {
            *ns *= 3;
        }
        result
    }

    #[test]
    fn the_first_sentence_says_what_changed() {
        let (old, new) = (result("sync-cost"), slower(result("sync-cost"), 1));
        let said = |old: &ExperimentResult, new: &ExperimentResult, limit| {
            headline(&compare(&[vec![old.clone()]], &[vec![new.clone()]], limit).unwrap())
        };
        let arm = "fsync/append/4KiB";
        assert_eq!(
            said(&old, &new, None),
            format!("1 of 3 arms is slower: {arm} (+200 %); for 2 no difference was seen.")
        );
        assert_eq!(
            said(&old, &new, Some(0.1)),
            format!(
                "1 of 3 arms is slower by more than 10 %: {arm} (+200 %); for 2 no difference was seen."
            )
        );
        assert_eq!(
            said(&old, &new, Some(2.5)),
            "0 of 3 arms are slower by more than 250 %; 1 slower by less than that; for 2 no \
             difference was seen."
        );
        assert_eq!(
            said(&new, &old, None),
            format!(
                "0 of 3 arms are slower; 1 faster: {arm} (−67 %); for 2 no difference was seen."
            )
        );
    }

    #[test]
    fn busy_invalid_and_missing_arms_are_marked_and_named() {
        let (mut old, mut new) = (result("sync-cost"), slower(result("sync-cost"), 1));
        new.arms[1].warnings.push(Warning::new(Kind::Noisy, "busy"));
        new.arms[0].valid = false;
        old.arms[2].name = "gone".to_owned();
        old.environment.kernel = Some("1.0".to_owned());
        let text =
            render(&compare(&[vec![old]], &[vec![new]], Some(0.1)).unwrap(), Style::default());
        for part in [
            "0 of 2 arms are slower by more than 10 %; 1 changed on a busy machine: undecided; 1 \
             INVALID and not compared.",
            "Undecided, because the machine was busy: fsync/append/4KiB (+200 %).",
            "INVALID in NEW, not compared: fsync/clean.",
            "Only in OLD: sync-cost: gone.",
            "Only in NEW: sync-cost: msync/zero-filled/4KiB.",
            "warning: the runs differ in kernel, so a change need not be the disk's: 1.0 → 6.18.0",
            "busy machine in NEW",
            "Student's t",
            "1 run of OLD, 1 run of NEW; how far a median moves from run to run is not known",
        ] {
            let unwrapped = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(unwrapped.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn no_difference_is_a_tilde_in_every_row() {
        let same = [vec![result("sync-cost")]];
        let text = render(&compare(&same, &same, None).unwrap(), Style::default());
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" → ")).skip(1).collect();
        assert!(rows.len() == 3 && rows.iter().all(|row| row.contains(" ~ ")), "{text}");
    }
}
