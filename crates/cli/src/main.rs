//! The `plimsoll` command: parse, run, say what went wrong, exit.
//!
//! Exit status: 0 ok; 1 a check failed; 2 wrong usage, or it cannot run here; 130 interrupted.

mod args;
mod commands;
mod disk_args;
mod exit;
mod interrupt;
mod log_args;
mod output;
mod size;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.command {
        Command::Lab(lab) => commands::lab::run(*lab),
        Command::Log { command } => commands::log::run(command),
        Command::Disk { command } => commands::disk::run(*command),
        Command::Completions { shell } => commands::completions::run(shell),
        Command::Man { dir } => commands::man::run(&dir),
    };
    match done {
        Ok(exit) => exit.into(),
        // A reader that went away (`| head`) wants no more, and that is no error.
        Err(error) if output::reader_left(&error) => exit::Exit::Ok.into(),
        Err(error) => {
            output::error(&error);
            exit::Exit::of(&error).into()
        }
    }
}
