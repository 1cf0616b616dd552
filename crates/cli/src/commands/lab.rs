//! `plimsoll lab`: measure, list, explain; compare and report have files of their own.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_lab::conclusion::Conclusion;
use plimsoll_lab::durability_profile::DurabilityProfile;
use plimsoll_lab::experiment::{Experiment, Profile};
use plimsoll_lab::report::text::{self, Style};
use plimsoll_lab::result::ExperimentResult;
use plimsoll_lab::runner::Progress;
use plimsoll_lab::session::Lab;
use plimsoll_lab::{experiments, units};

use crate::args::{LabArgs, LabCommand, Measure};
use crate::exit::Exit;
use crate::output;

/// Set by Ctrl-C. A static, because a signal handler outlives everything else.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(args: LabArgs) -> Result<Exit> {
    match args.command {
        None => measure(&[], &args.measure),
        Some(LabCommand::Run { experiments, measure: how }) => measure(&experiments, &how),
        Some(LabCommand::Compare { old, new, fail_over, json }) => {
            super::compare::run(&old, &new, fail_over, json)
        }
        Some(LabCommand::Report { results, output }) => super::report::run(&results, &output),
        Some(LabCommand::List { json }) => list(json),
        Some(LabCommand::Explain { experiment }) => explain(experiment),
    }
}

fn measure(named: &[&'static dyn Experiment], how: &Measure) -> Result<Exit> {
    let lab = Lab::check(how.options(named))?;
    output::news(&lab.announcement());
    for left in lab.leftovers() {
        output::news(&format!("A run that was killed left {}: remove it.", left.display()));
    }
    let time = units::clock(lab.budget());
    output::news(&format!("This takes about {time}; Ctrl-C stops it and cleans up."));
    catch_ctrl_c(lab.scratch().to_owned())?;
    let session = lab.begin()?;
    let bar = bar();
    let mut results = Vec::new();
    let mut paths = Vec::new();
    let mut printed = Ok(());
    let ran = session.run(
        &INTERRUPTED,
        &|experiment, progress, after| show(&bar, experiment, progress, after),
        |result, path| {
            if !how.json() {
                let style = style(how);
                bar.suspend(|| {
                    printed = output::answer(&format!("{}\n", text::render(&result, style)));
                });
            }
            paths.push(path.to_owned());
            results.push(result);
            if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        },
    );
    bar.finish_and_clear();
    // Before anything is said of the end, the scratch directory is gone.
    drop(session);
    ran?;
    printed?;
    if how.json() {
        output::answer(&format!("{}\n", serde_json::to_string_pretty(&results)?))?;
    }
    let conclusion = Conclusion::of(&results, how.usage());
    if let Some(conclusion) = conclusion.as_ref().filter(|_| !how.json()) {
        output::answer(&text::render_conclusion(conclusion, style(how)))?;
    }
    if let Some(out) = paths.first().and_then(|path| path.parent())
        && let Some(profile) = DurabilityProfile::of(&results)
    {
        paths.push(profile.save(out)?);
    }
    for path in paths {
        output::news(&format!("result: {}", path.display()));
    }
    let invalid = results.iter().any(ExperimentResult::has_invalid_arm);
    let too_slow = conclusion.is_some_and(|conclusion| conclusion.fails());
    Ok(if invalid || too_slow { Exit::CheckFailed } else { Exit::Ok })
}

fn style(how: &Measure) -> Style {
    Style { colour: output::colour(), details: how.details(), columns: output::columns() }
}

fn catch_ctrl_c(scratch: PathBuf) -> Result<()> {
    let caught = ctrlc::set_handler(move || {
        // Asked a second time, nicely is over: a disk that hangs may never let us clean up.
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            output::news(&format!("abandoned; remove {}", scratch.display()));
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        output::news("stopping and cleaning up; Ctrl-C again abandons the scratch files");
    });
    caught.context("Ctrl-C cannot be caught")
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

fn show(bar: &ProgressBar, experiment: &dyn Experiment, progress: Progress, after: Duration) {
    let (elapsed, budget) = (progress.elapsed, progress.budget);
    let left = budget.saturating_sub(elapsed) + after;
    let share = elapsed.as_secs_f64() / budget.as_secs_f64().max(f64::EPSILON);
    bar.set_prefix(experiment.name());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    bar.set_position((share * 1000.0).min(1000.0) as u64);
    let left = if elapsed > budget {
        format!("longer than planned, and {} for the rest", units::clock(after))
    } else {
        format!("{} left in all", units::clock(left))
    };
    bar.set_message(format!("{left}; round {} of {} arms", progress.rounds, progress.arms));
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
                })
            })
            .collect();
        output::answer(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
        return Ok(Exit::Ok);
    }
    for experiment in experiments::ALL {
        output::answer(&format!("{:20}{}\n", experiment.name(), experiment.question()))?;
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
