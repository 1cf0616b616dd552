//! The log beside its rivals and the raw limit of the disk: runs the arms, saves what they took, and
//! renders `docs/benchmarks.md` and its chart from what was saved.
//!
//! A *cell* is one workload; an *arm* is one engine in it; a *trial* is one run of an arm, in a process
//! of its own. Cells come in turn, and the arms of a cell in seeded random order, round after round.

mod arms;
mod chart;
mod conditions;
mod engine;
mod engines;
mod figures;
mod goals;
mod harness;
mod history;
mod meter;
mod plan;
mod report;
mod result;
mod tables;
mod task;
mod tasks;
mod torture;
mod traced;
mod units;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measures the log beside its rivals.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  bench/run                     everything, then the report\n  \
    bench/run --quick             a smoke run of every arm\n  \
    bench/run --only durable/100  one part of the cells\n  \
    plimsoll-bench run --out r.json --rounds 5 --for 150   go on for 150 s with what is left"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs what is left of a plan, saving after each trial. Exits with 3 if the time was too short.
    Run(Run),
    /// Renders the page and its chart from a saved run.
    Report {
        /// The saved run.
        json: PathBuf,
        /// Where the page goes; the chart goes beside it, as .svg.
        #[arg(long, default_value = "docs/benchmarks.md")]
        out: PathBuf,
    },
    /// Lists the cells and their arms.
    List,
    /// Runs each arm under strace and counts its syncs, so that nobody is credited with one it omits.
    Trace(Run),
    /// One trial, as the harness starts it.
    #[command(hide = true)]
    Work { task: String },
    /// The writer of article 2, until it is killed.
    #[command(hide = true)]
    Torture { file: PathBuf },
}

#[derive(clap::Args)]
pub(crate) struct Run {
    /// Where results go; what is there is not measured again.
    #[arg(long)]
    out: PathBuf,
    /// Where logs are written: on the disk that is to be measured. Removed at the end.
    #[arg(long, default_value = "bench/scratch")]
    dir: PathBuf,
    /// The Go program (bench/go); without it Go's arms are left out, and that is said.
    #[arg(long, default_value = "bench/go/bench-go")]
    go: PathBuf,
    /// How often each cell is measured.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only cells whose name contains this; may be given more than once.
    #[arg(long)]
    only: Vec<String>,
    /// Only these arms.
    #[arg(long)]
    arms: Vec<String>,
    /// Short trials, to see that everything works. Figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Stop before this many seconds are over, so that a long run can be cut into slices.
    #[arg(long = "for")]
    seconds: Option<u64>,
    /// Decides the order of arms.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Run {
    fn limit(&self) -> Option<Duration> {
        self.seconds.map(Duration::from_secs)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode> {
    match Args::parse().command {
        Command::Run(run) => harness::run(&run),
        Command::Trace(run) => traced::run(&run),
        Command::Report { json, out } => report::write(&json, &out).map(|()| ExitCode::SUCCESS),
        Command::List => {
            for cell in plan::cells() {
                let arms: Vec<_> = arms::of(&cell).map(|arm| arm.name).collect();
                println!("{:24} {}", cell.name(), arms.join(" "));
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Work { task } => worker::work(&task).map(|()| ExitCode::SUCCESS),
        Command::Torture { file } => torture::write(&file),
    }
}
