//! `plimsoll completions`.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::Exit;
use crate::output;

pub(crate) fn run(shell: Shell) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "plimsoll", &mut script);
    output::answer(&String::from_utf8(script)?)?;
    Ok(Exit::Ok)
}
