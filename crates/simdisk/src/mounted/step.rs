//! A step that a preparation consists of: a program that must succeed.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::error::{Error, Result};
use super::processes::{Ended, Running};
use super::said::Said;

/// Runs it; `name` is what an error calls it. What it leaves running in its group is killed.
pub(super) fn run(mut command: Command, name: &str, stop: &dyn Fn() -> bool) -> Result<()> {
    command.stdin(Stdio::null()).process_group(0);
    let said = Said::by(&mut command)?;
    let how = match Running::start(command)?.wait(None, stop, &mut || {})? {
        Ended::Exited(0) => return Ok(()),
        Ended::Stopped | Ended::TimedOut => return Err(Error::Interrupted),
        Ended::Exited(code) => format!("exit status {code}"),
        Ended::Signalled(signal) => format!("signal {signal}"),
    };
    let said = match said.end() {
        said if said.is_empty() => "it said nothing".to_owned(),
        said if said.contains("No space left") => format!("{said}; --size makes a larger disk"),
        said => said,
    };
    Err(Error::Program { program: name.to_owned(), said: format!("{how}: {said}") })
}
