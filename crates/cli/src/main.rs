//! The `plimsoll` command: parse, run, say what went wrong, exit.
//!
//! Exit status: 0 ok; 1 a check failed; 2 wrong usage, or it cannot run here; 3 nothing that could have
//! failed was tested; 129, 130 or 143 interrupted, by a hangup, Ctrl-C or SIGTERM.

mod args;
mod backup_args;
mod broker_args;
mod chapter_args;
mod client_args;
mod cluster_args;
mod commands;
mod disk_args;
mod events;
mod exit;
mod help;
mod interrupt;
mod log_args;
mod output;
mod serve_args;
mod serve_config;
mod size;

use std::process::ExitCode;

use crate::args::Command;

fn main() -> ExitCode {
    let done = match help::parse().command {
        Command::Lab(lab) => commands::lab::run(*lab),
        Command::Log { command } => commands::log::run(command),
        Command::Disk { command } => commands::disk::run(*command),
        Command::Broker { command } => commands::broker::run(command),
        Command::Cluster { command } => commands::cluster::run(command),
        Command::Chapter { command } => commands::chapter::run(command),
        Command::Backup(args) => commands::backup::backup(&args),
        Command::Restore(args) => commands::backup::restore(&args),
        Command::Serve(serve) => commands::serve::run(&serve),
        Command::Topic { command } => commands::client::topic::run(command),
        Command::Group { command } => commands::client::group::run(command),
        Command::Produce(args) => commands::client::produce::run(*args),
        Command::Consume(args) => commands::client::consume::run(&args),
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
