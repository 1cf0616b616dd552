//! A run on one screen: what is wrong with it, what durability costs on this disk, a line for each
//! experiment, what to doubt, and where there is more. From saved results only.

use std::path::Path;
use std::time::Duration;

use plimsoll_sync::{Promise, SyncMethod};

use super::text::{self, Style, line};
use crate::arm_result::{ArmResult, busy_mark_of};
use crate::conclusion::{self, Conclusion};
use crate::durability_profile::DurabilityProfile;
use crate::environment::Environment;
use crate::layout::Layout;
use crate::result::ExperimentResult;
use crate::units;
use crate::usage::Usage;
use crate::warning::{BEST_UNKNOWN, Kind, busy_mark};

/// Where the text of a row begins, behind its label.
const TEXT_AT: usize = 19;
/// So many reasons to doubt are said.
const DOUBTS_MAX: usize = 5;

/// What a screen says beside the results.
#[derive(Debug, Clone, Copy, Default)]
pub struct About<'a> {
    /// What the disk is for.
    pub usage: Option<&'a Usage>,
    /// The page that was made of the results.
    pub page: Option<&'a Path>,
    /// Whether to give the whole answer of each experiment, and not a line.
    pub answers: bool,
}

/// The screen of the `results` of one run.
#[must_use]
pub fn render(results: &[ExperimentResult], about: About<'_>, style: Style) -> String {
    let (Some(first), Some(profile)) = (results.first(), DurabilityProfile::of(results)) else {
        return String::new();
    };
    let mut screen = Screen { text: String::new(), style };
    screen.alarm(results);
    screen.place(first, results);
    screen.disk(results, &profile, about.usage);
    screen.experiments(results, about.answers);
    screen.doubts(results, &profile);
    screen.more(about.page);
    screen.text
}

struct Screen {
    text: String,
    style: Style,
}

impl Screen {
    /// What did not do what it promises: before anything that it might make somebody believe.
    fn alarm(&mut self, results: &[ExperimentResult]) {
        let arms = || results.iter().flat_map(|result| &result.arms);
        let invalid: Vec<&ArmResult> = arms().filter(|arm| !arm.valid).collect();
        let Some(one) = invalid.first() else { return };
        let cause = one.warnings.iter().find(|warning| warning.kind.invalidates());
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let (count, of) = (invalid.len(), arms().count());
        let said = format!(
            "{count} of {of} arms did not do what they promise ({} first{cause}). Do not use their \
             figures.",
            one.name
        );
        let label = self.style.loud("INVALID");
        self.painted_row("INVALID", &label, &said);
    }

    /// What was measured, once for all experiments.
    fn place(&mut self, first: &ExperimentResult, results: &[ExperimentResult]) {
        let took: u64 = results.iter().map(|result| result.duration_ms).sum();
        let took = units::clock(Duration::from_millis(took));
        let Environment { mount, .. } = &first.environment;
        let devices = first.environment.devices_in_words();
        let disk: Vec<String> = [
            mount.as_ref().map(|mount| mount.filesystem.clone()),
            (!devices.is_empty()).then(|| format!("on {devices}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        let disk = if disk.is_empty() { "not known".to_owned() } else { disk.join(" ") };
        self.row("Disk", &disk);
        let machine = text::machine(&first.environment).join("; ");
        let how = format!("profile {}, seed {}, {took}", first.profile, first.seed);
        self.row("Measured", &format!("{machine}; {how}"));
    }

    /// What durability costs on this disk, and how far its word was checked.
    fn disk(
        &mut self,
        results: &[ExperimentResult],
        profile: &DurabilityProfile,
        usage: Option<&Usage>,
    ) {
        for (number, durable) in durable(results, profile).iter().enumerate() {
            self.row(if number == 0 { "Durable 4 KiB" } else { "" }, durable);
        }
        let ladder = &profile.ladder;
        let checked = units::capitalised(conclusion::checked(ladder.rung));
        self.row("Flush", &format!("{} {checked}.", ladder.in_words()));
        if let Some(group) = profile.group_commit {
            let busy = busy_mark(group.noisy);
            let said = format!(
                "{:.0} records/s made durable by {} writers that share a sync{busy}",
                group.records_per_s, group.writers
            );
            self.row("Group commit", &said);
        }
        if let Some(unsynced) = conclusion::unsynced(results, profile) {
            self.row("May stay unsynced", &unsynced);
        }
        let fit = Conclusion::fit(results, usage);
        if let Some(fit) = fit {
            self.row("Fit for its use", &fit.sentence);
        }
    }

    fn experiments(&mut self, results: &[ExperimentResult], answers: bool) {
        line(&mut self.text, "");
        for result in results {
            if answers {
                self.text += &text::answer(result, self.style);
                continue;
            }
            let is_few = result.arms.iter().any(|arm| arm.p50_ns().is_none());
            let none = || match is_few {
                true => "not known here, because of too few samples: give it a longer --budget",
                false => "no answer: see the warnings on the page",
            };
            let short = result.in_short.as_ref().or_else(|| result.answer.first());
            self.row(&result.experiment, short.map_or_else(none, String::as_str));
        }
    }

    fn doubts(&mut self, results: &[ExperimentResult], profile: &DurabilityProfile) {
        line(&mut self.text, "");
        let doubts = doubts(results, profile);
        for (number, doubt) in doubts.iter().take(DOUBTS_MAX).enumerate() {
            self.row(if number == 0 { "What to doubt" } else { "" }, doubt);
        }
        if doubts.len() > DOUBTS_MAX {
            self.row("", &format!("and {} more: see the page", doubts.len() - DOUBTS_MAX));
        }
    }

    fn more(&mut self, page: Option<&Path>) {
        if let Some(page) = page {
            self.row("Page", &page.display().to_string());
        }
        if !self.style.details {
            self.row(
                "Tables",
                "--details, or the page; how it is measured: plimsoll lab explain NAME",
            );
        }
    }

    /// A label and a text, which is wrapped behind it.
    fn row(&mut self, label: &str, said: &str) {
        let painted = self.style.bold(label);
        self.painted_row(label, &painted, said);
    }

    fn painted_row(&mut self, label: &str, painted: &str, said: &str) {
        let gap = TEXT_AT.saturating_sub(label.chars().count()).max(1);
        let indent = " ".repeat(TEXT_AT);
        let lines = text::lines(said, self.style.columns.saturating_sub(TEXT_AT));
        let painted = if label.is_empty() { "" } else { painted };
        line(
            &mut self.text,
            &format!("{painted}{}{}", " ".repeat(gap), lines.join(&format!("\n{indent}"))),
        );
    }
}

/// The plain way to make a page durable, and the best one.
fn durable(results: &[ExperimentResult], profile: &DurabilityProfile) -> Vec<String> {
    let sync_cost = results.iter().find(|result| result.experiment == "sync-cost");
    let is_plain = |arm: &&ArmResult| {
        let ordinary = arm.method == SyncMethod::ORDINARY.name();
        ordinary && arm.layout == Layout::Append.name() && arm.payload_bytes == 4096 && arm.valid
    };
    let plain = sync_cost.and_then(|result| result.arms.iter().find(is_plain));
    let tail = |p99: Option<u64>| {
        p99.map_or_else(String::new, |p99| format!(", {} p99", units::time(p99)))
    };
    let mut said = Vec::new();
    let best = profile.best.get(Promise::Media.name());
    let knows_best = conclusion::knows_best(results);
    if let Some((plain, p50)) = plain.and_then(|arm| Some((arm, arm.p50_ns()?))) {
        let tail = tail(plain.summaries[0].p99_ns);
        let is_best = best
            .is_some_and(|b| (&b.method, &b.layout) == (&plain.method, &plain.layout))
            && knows_best;
        let best = if is_best { ", the best that was measured" } else { "" };
        let (time, way) = (units::time(p50), format!("{}, {}{best}", plain.method, plain.layout));
        said.push(format!("plain {time} p50{tail} ({way}){}", busy_mark_of(&[plain])));
        if is_best {
            return said;
        }
    } else if plain.is_some() {
        said.push(
            "plain not known here, because of too few samples: give it a longer --budget".into(),
        );
    }
    if !knows_best {
        said.push(format!("best  {BEST_UNKNOWN}"));
    } else if let Some(best) = best {
        let (time, tail) = (units::time(best.p50_ns), tail(best.p99_ns));
        let busy = busy_mark(best.noisy);
        said.push(format!("best  {time} p50{tail} ({}, {}){busy}", best.method, best.layout));
    }
    if said.is_empty() && sync_cost.is_some() {
        said.push(
            "not known here, because too little was measured: give it a longer --budget".into(),
        );
    }
    said
}

/// Reasons to distrust the run, those that concern most of it first.
fn doubts(results: &[ExperimentResult], profile: &DurabilityProfile) -> Vec<String> {
    let arms: Vec<&ArmResult> = results.iter().flat_map(|result| &result.arms).collect();
    let count = |has: &dyn Fn(&ArmResult) -> bool| arms.iter().filter(|arm| has(arm)).count();
    let with = |kind: Kind| count(&|arm| arm.warnings.iter().any(|warning| warning.kind == kind));
    let mut doubts = Vec::new();
    let busy = conclusion::busy(results).map(|busy| format!("{busy} Such figures have a ?."));
    for before in results.iter().filter_map(|result| result.before.as_ref()) {
        // What to do about it is said of the arms, if they were busy as well.
        let said = before.busy_in_words().filter(|_| busy.is_some());
        let warnings = before.warnings().into_iter().map(|warning| warning.text);
        let warnings =
            warnings.filter(|text| said.as_ref().is_none_or(|said| !text.starts_with(said)));
        doubts
            .extend(said.clone().into_iter().chain(warnings).map(|s| units::capitalised(&s) + "."));
    }
    doubts.extend(busy);
    let disturbed = with(Kind::OthersWrote);
    if disturbed > 0 {
        doubts.push(format!(
            "{disturbed} of {} arms were disturbed by others who wrote to the device: stop them, and \
             measure again.",
            arms.len()
        ));
    }
    let of_place = [Kind::Place, Kind::FlushesNotCounted];
    let warnings = results.iter().flat_map(|result| &result.warnings);
    let place = warnings.filter(|warning| of_place.contains(&warning.kind));
    doubts.extend(place.map(|warning| units::capitalised(&warning.text) + "."));
    let few = count(&|arm| arm.summaries.iter().any(|s| s.n > 0 && s.p50_ns.is_none()));
    if few > 0 {
        doubts.push(format!(
            "{few} of {} arms have too few samples for a median: give it a longer --budget.",
            arms.len()
        ));
    }
    if !profile.ladder.cannot_know.is_empty() {
        let cannot_know = profile.ladder.cannot_know.join("; ");
        doubts.push(format!("Nothing here can know {cannot_know}."));
    }
    // What is said of the machine is said of every experiment.
    let mut said: Vec<String> = Vec::new();
    for doubt in doubts {
        if !said.contains(&doubt) {
            said.push(doubt);
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm_result::Machine;
    use crate::quiet::Before;
    use crate::summary::Summary;
    use crate::warning::Warning;

    fn result(experiment: &str, in_short: &str, arms: &[(&str, &str, u64)]) -> ExperimentResult {
        let arm = |&(method, layout, p50_ns): &(&str, &str, u64)| {
            let p50 = Some(p50_ns);
            let summary =
                Summary { n: 2000, p50_ns: p50, p99_ns: Some(2 * p50_ns), ..Summary::default() };
            let mut arm = ArmResult::of_summary(&format!("{method}/{layout}/4KiB"), summary);
            (arm.method, arm.layout) = (method.to_owned(), layout.to_owned());
            arm
        };
        ExperimentResult {
            experiment: experiment.to_owned(),
            in_short: Some(in_short.to_owned()),
            answer: vec!["The whole answer.".to_owned()],
            arms: arms.iter().map(arm).collect(),
            ..ExperimentResult::empty()
        }
    }

    fn run() -> Vec<ExperimentResult> {
        let cost = [("fsync", "append", 110_000), ("fdatasync", "overwritten", 52_000)];
        vec![result("sync-cost", "in short", &cost), result("many-files", "as one file", &[])]
    }

    fn rendered(results: &[ExperimentResult]) -> String {
        let style = Style { columns: 80, ..Style::default() };
        let page = Path::new("out/report.html");
        render(results, About { page: Some(page), ..About::default() }, style)
    }

    #[test]
    fn a_screen_says_the_disk_the_costs_a_line_an_experiment_the_doubts_and_the_page() {
        let said = rendered(&run());
        for whole in [
            "\nDurable 4 KiB      plain 110 µs p50, 220 µs p99 (fsync, append)\n",
            "\n                   best  52.0 µs p50, 104 µs p99 (fdatasync, overwritten)\n",
            "\nFlush              What the word of this disk is worth is not known here,",
            "\nsync-cost          in short\nmany-files         as one file\n",
            "\nWhat to doubt      Nothing here can know whether the bytes survive a power cut",
            "\nPage               out/report.html\n",
            "\nTables             --details",
        ] {
            assert!(said.contains(whole), "{whole}\n{said}");
        }
        assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
        assert!(said.lines().count() <= 24, "{said}");
    }

    #[test]
    fn what_has_too_few_samples_is_not_known_and_a_longer_budget_is_named() {
        let mut results = run();
        results[0].arms[0].summaries[0].p50_ns = None;
        (results[0].in_short, results[0].answer) = (None, Vec::new());
        let said = rendered(&results);
        let plain =
            "\nDurable 4 KiB      plain not known here, because of too few samples: give it a";
        assert!(said.contains(plain), "{said}");
        assert!(said.contains("\nsync-cost          not known here, because of too few samples"));
    }

    #[test]
    fn what_did_not_do_what_it_promises_comes_first() {
        let mut results = run();
        results[0].arms[1].valid = false;
        let warning = Warning::new(Kind::PromiseContradicted, "0.00 flushes per sync");
        results[0].arms[1].warnings.push(warning);
        let said = rendered(&results);
        let first = "INVALID            1 of 2 arms did not do what they promise";
        assert!(said.starts_with(first) && said.contains("0.00 flushes per sync"), "{said}");
        assert!(!said.contains("best  52.0 µs"), "{said}");
    }

    /// `best  52.0 µs p50 ?` stood there, and could have been the arm that was disturbed least.
    #[test]
    fn a_busy_machine_is_marked_where_it_was_measured_and_names_no_best() {
        let mut results = run();
        results[0].arms[1].warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
        let said = rendered(&results);
        assert!(said.contains("104 µs p99 (fdatasync, overwritten) ?\n"), "{said}");
        results[0].arms[0].warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
        let before = Before {
            busy_because: Some("others use 201 % of 2 CPUs".to_owned()),
            waited_ms: 30_000,
            machine: Machine::default(),
            others_requests: None,
        };
        results[0].before = Some(before.clone());
        results[1].before = Some(before);
        let said = rendered(&results);
        assert!(said.contains("220 µs p99 (fsync, append) ?\n"), "{said}");
        let best = "                   best  not known here: the machine was busy\n";
        assert!(said.contains(best), "{said}");
        let doubt = "What to doubt      The machine was busy when the run began (others use 201 %";
        assert!(said.contains(doubt), "{said}");
        assert_eq!(said.matches("when the run began").count(), 1, "{said}");
        assert!(said.contains("All 2 arms were measured on a busy machine"), "{said}");
    }

    #[test]
    fn who_named_an_experiment_gets_its_whole_answer() {
        let about = About { answers: true, ..About::default() };
        let said = render(&run()[..1], about, Style::default());
        assert!(said.contains("\nsync-cost:\n  The whole answer.\n"), "{said}");
        assert!(!said.contains("in short"), "{said}");
    }

    #[test]
    fn no_results_are_no_screen() {
        assert!(rendered(&[]).is_empty());
    }
}
