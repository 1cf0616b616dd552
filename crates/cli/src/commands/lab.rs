//! `plimsoll lab`: measure, list, explain; clean, compare and report have files of their own.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_lab::conclusion::Conclusion;
use plimsoll_lab::durability_profile::DurabilityProfile;
use plimsoll_lab::experiment::{Experiment, Profile};
use plimsoll_lab::report::screen::{self, About};
use plimsoll_lab::report::text::{self, Style};
use plimsoll_lab::report::{html, page};
use plimsoll_lab::result::{Before, ExperimentResult};
use plimsoll_lab::session::{Lab, Session, Standing};
use plimsoll_lab::{experiments, units};

use crate::args::{LabArgs, LabCommand, Measure};
use crate::exit::Exit;
use crate::interrupt::{self, INTERRUPTED};
use crate::output;

pub(crate) fn run(args: LabArgs) -> Result<Exit> {
    match args.command {
        None => measure(&[], &args.measure),
        Some(LabCommand::Run { experiments, measure: how }) => measure(&experiments, &how),
        Some(LabCommand::Compare { old, new, fail_over, json }) => {
            super::compare::run(&old, &new, fail_over, json)
        }
        Some(LabCommand::Report { results, output }) => super::report::run(&results, &output),
        Some(LabCommand::Clean { dir, dry_run, json }) => super::clean::run(&dir, dry_run, json),
        Some(LabCommand::List { json }) => list(json),
        Some(LabCommand::Explain { experiment }) => explain(experiment),
    }
}

fn measure(named: &[&'static dyn Experiment], how: &Measure) -> Result<Exit> {
    let lab = Lab::check(how.options(named))?;
    catch_signals(lab.scratches())?;
    let before = watch(&lab, how.patience())?;
    announce(&lab, how);
    let session = lab.begin(Some(before))?;
    announce_time(&session);
    let out = session.results().to_owned();
    let bar = bar();
    let mut results = Vec::new();
    let mut printed = Ok(());
    let ran = session.run(&INTERRUPTED, &|standing| show(&bar, standing), |result, _path| {
        if how.details() && !how.json() {
            let tables = format!("{}\n", text::render(&result, style(how)));
            bar.suspend(|| printed = output::answer(&tables));
        }
        results.push(result);
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    bar.finish_and_clear();
    // Before anything is said of the end, the scratch directory is gone.
    drop(session);
    ran?;
    printed?;
    // What was measured for minutes is answered before a page that cannot be saved ends the run.
    let page = save(&results, &out);
    if how.json() {
        output::answer(&format!("{}\n", serde_json::to_string_pretty(&results)?))?;
        tell(&format!("page: {}", page?.display()));
    } else {
        // What the tables were printed of has been answered.
        let answers = !named.is_empty() && !how.details();
        let about = About { usage: how.usage(), page: page.as_deref().ok(), answers };
        output::answer(&screen::render(&results, about, style(how)))?;
        page?;
    }
    let invalid = results.iter().any(ExperimentResult::has_invalid_arm);
    let conclusion = Conclusion::of(&results, how.usage());
    let too_slow = conclusion.is_some_and(|conclusion| conclusion.fails());
    Ok(if invalid || too_slow { Exit::CheckFailed } else { Exit::Ok })
}

/// What is wrong with the machine is said before anything else, and waited for.
fn watch(lab: &Lab, patience: Duration) -> Result<Before> {
    let bar = bar();
    let mut is_first = true;
    let mut told = |because: &str, left: Duration| {
        if is_first {
            is_first = false;
            let or = match left.is_zero() {
                true => "going on, as --now says".to_owned(),
                false => format!("waiting {} s, or --now", left.as_secs()),
            };
            tell(&format!("{because}; figures will not be reliable; {or}"));
            bar.set_prefix("waiting for a quiet machine");
        }
        let waited = patience.saturating_sub(left);
        bar.set_position(thousandths(waited, patience));
        bar.set_message(format!("{because}; {} left", units::clock(left)));
    };
    let before = lab.watch(patience, &INTERRUPTED, &mut told);
    bar.finish_and_clear();
    let before = before?;
    let waited = units::clock(Duration::from_millis(before.waited_ms));
    match &before.busy_because {
        _ if before.waited_ms == 0 => {}
        None => tell(&format!("quiet after {waited}")),
        Some(because) => tell(&format!(
            "still busy after {waited}: {because}; going on, and what is measured so is marked ?"
        )),
    }
    Ok(before)
}

/// What will be written where, and what is there from before.
fn announce(lab: &Lab, how: &Measure) {
    tell(&lab.announcement());
    for left in lab.leftovers() {
        tell(&format!(
            "A run that was killed left {} ({}): `plimsoll lab clean {}` removes it.",
            left.path.display(),
            units::bytes(left.bytes),
            how.dir().display()
        ));
    }
}

/// News in lines that fit the terminal, or 80 columns, where the words of a path let them.
fn tell(news: &str) {
    let indent = "  ";
    let columns = output::news_columns() - indent.len();
    output::news(&text::lines(news, columns).join(&format!("\n{indent}")));
}

/// How long it takes, before anything is measured.
fn announce_time(session: &Session) {
    let time = units::clock(session.budget());
    let longer = if session.is_busy() { ", longer while others keep the machine busy" } else { "" };
    match session.overrun() {
        None => {
            tell(&format!("This takes about {time}{longer}; Ctrl-C stops it and cleans up."));
        }
        Some(overrun) => tell(&format!(
            "This may take {} instead of {time}{longer}, as every arm is measured once: for less, name \
             fewer experiments, or arms with --only. Ctrl-C stops it and cleans up.",
            units::clock(overrun)
        )),
    }
}

/// Saves what is made of all results, beside them. Returns the page.
fn save(results: &[ExperimentResult], out: &Path) -> Result<PathBuf> {
    if let Some(profile) = DurabilityProfile::of(results) {
        profile.save(out)?;
    }
    let page = out.join(html::FILE);
    page::save(&page, &html::render(results))?;
    Ok(page)
}

fn style(how: &Measure) -> Style {
    Style { colour: output::colour(), details: how.details(), columns: output::columns() }
}

fn catch_signals(scratches: [PathBuf; 2]) -> Result<()> {
    interrupt::on_interrupt_or(
        || tell("stopping and cleaning up; Ctrl-C again abandons the scratch files"),
        // A disk that hangs may never let us clean up.
        move || {
            for scratch in scratches.iter().filter(|scratch| scratch.exists()) {
                let Some(dir) = scratch.parent() else { continue };
                let (scratch, dir) = (scratch.display(), dir.display());
                tell(&format!("abandoned {scratch}: `plimsoll lab clean {dir}` removes it"));
            }
        },
    )
}

fn bar() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(4)
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{prefix} {bar:24} {msg}")
        .expect("the template is well formed");
    ProgressBar::with_draw_target(Some(1000), target).with_style(style)
}

fn show(bar: &ProgressBar, standing: Standing) {
    let Standing { experiment, progress, elapsed, budget, after } = standing;
    bar.set_prefix(experiment.name());
    bar.set_position(thousandths(elapsed, budget));
    let left = if elapsed > budget {
        format!("longer than planned, and {} for the rest", units::clock(after))
    } else {
        format!("at most {} left in all", units::clock(budget.saturating_sub(elapsed) + after))
    };
    bar.set_message(format!("{left}; {}", progress.in_words()));
}

/// A part in thousandths of the whole, at most all of them.
fn thousandths(part: Duration, whole: Duration) -> u64 {
    let of = part.as_micros().saturating_mul(1000) / whole.as_micros().max(1);
    u64::try_from(of).unwrap_or(u64::MAX).min(1000)
}

fn list(json: bool) -> Result<Exit> {
    if json {
        let all: Vec<_> = experiments::ALL
            .iter()
            .map(|experiment| {
                serde_json::json!({
                    "name": experiment.name(),
                    "question": experiment.question(),
                    "source": experiment.source(),
                    "runs_unasked": experiment.runs_unasked(),
                })
            })
            .collect();
        output::answer(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
        return Ok(Exit::Ok);
    }
    for experiment in experiments::ALL {
        let if_named = if experiment.runs_unasked() { "" } else { " (only if it is named)" };
        output::answer(&format!("{:20}{}{if_named}\n", experiment.name(), experiment.question()))?;
    }
    Ok(Exit::Ok)
}

fn explain(experiment: &dyn Experiment) -> Result<Exit> {
    let mut text = format!(
        "{}: {}\n\nSource: {}\n\n{}\n\nArms of the quick profile:\n",
        experiment.name(),
        experiment.question(),
        experiment.source(),
        experiment.explanation()
    );
    for arm in experiment.arm_names(Profile::Quick) {
        text += &format!("  {arm}\n");
    }
    output::answer(&text)?;
    Ok(Exit::Ok)
}
