//! `plimsoll completions`.

use anyhow::Result;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::help;
use crate::output;

pub(crate) fn run(shell: Shell) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut help::command(), "plimsoll", &mut script);
    output::answer(&String::from_utf8(script)?)?;
    Ok(Exit::Ok)
}
