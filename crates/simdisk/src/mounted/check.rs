//! What is asked about each crash state, and what can be answered.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use super::error::{Error, Result};
use super::namespace::{BASE, DIR};
use super::processes::{Ended, Program, Running};
use super::said::Said;
use crate::block::State;

/// A crash state that is mounted, and what had been promised by then.
#[derive(Debug)]
pub struct Situation<'a> {
    /// Which state.
    pub state: &'a State,
    /// What the workload had said by then: index of the event, and text.
    pub marks: &'a [(usize, Arc<str>)],
}

impl Situation<'_> {
    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        Path::new(DIR)
    }

    /// The last thing that the workload had said.
    #[must_use]
    pub fn last_mark(&self) -> Option<&str> {
        self.marks.last().map(|(_, text)| &**text)
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All that was acknowledged is there (exit 0).
    Ok,
    /// Something acknowledged is lost or wrong, and nobody said so (exit 1).
    Lost(String),
    /// It opened, found out that something is lost, and says so (exit 2).
    Reported(String),
    /// It would not open (exit 3).
    Refused(String),
    /// The kernel would not mount it.
    NotMounted(String),
    /// The check itself failed: another status, a signal, or it took too long.
    Broken(String),
}

impl Verdict {
    /// `ok`, `lost`, `reported`, `refused`, `not-mounted`, `broken`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Lost(_) => "lost",
            Self::Reported(_) => "reported",
            Self::Refused(_) => "refused",
            Self::NotMounted(_) => "not-mounted",
            Self::Broken(_) => "broken",
        }
    }

    /// All names, in the order in which they are reported.
    pub const NAMES: [&'static str; 6] =
        ["ok", "lost", "reported", "refused", "not-mounted", "broken"];

    /// Whether an honest disk with an honest program on it may not end like this.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::Ok)
    }

    /// What was said about it.
    #[must_use]
    pub fn said(&self) -> &str {
        match self {
            Self::Ok => "",
            Self::Lost(said)
            | Self::Reported(said)
            | Self::Refused(said)
            | Self::NotMounted(said)
            | Self::Broken(said) => said,
        }
    }
}

/// A program that checks. It finds `PLIMSOLL_DIR`, `PLIMSOLL_LAST_MARK` (empty if there was none),
/// `PLIMSOLL_MARKS` (a file, a mark a line, oldest first) and `PLIMSOLL_STATE` in its environment, and
/// answers with its exit status.
#[derive(Debug, Clone)]
pub struct Check {
    /// What to run.
    pub program: Program,
    /// After so long it is killed, and counts as broken.
    pub limit: Duration,
    /// Whether what it says goes to our stderr and not into the verdict.
    pub aloud: bool,
}

impl Check {
    /// Runs it, as [`Check::run`] does, where it was found on another state of the trace: if it cannot be started
    /// now, what it needs is not in this state, and it is broken here.
    pub fn run_again(&self, situation: &Situation<'_>, stop: &dyn Fn() -> bool) -> Result<Verdict> {
        match self.run(situation, &[], stop) {
            Err(error @ Error::CheckNotStarted { .. }) => Ok(Verdict::Broken(error.to_string())),
            answer => answer,
        }
    }

    /// Runs it. Marks that were said before this trace began, if any, come first. That the shell cannot start
    /// it is [`Error::CheckNotStarted`].
    pub fn run(
        &self,
        situation: &Situation<'_>,
        earlier_marks: &[String],
        stop: &dyn Fn() -> bool,
    ) -> Result<Verdict> {
        let marks = PathBuf::from(BASE).join("marks");
        let mut text = String::new();
        let said = situation.marks.iter().map(|(_, text)| &**text);
        for mark in earlier_marks.iter().map(String::as_str).chain(said) {
            text.push_str(mark);
            text.push('\n');
        }
        let last = text.lines().next_back().unwrap_or_default().to_owned();
        fs::write(&marks, text).map_err(Error::io("write", &marks))?;
        let mut command = self.program.command()?;
        command.env("PLIMSOLL_MARKS", &marks).env("PLIMSOLL_LAST_MARK", last);
        command.env("PLIMSOLL_STATE", situation.state.to_string());
        command.stdin(Stdio::null()).process_group(0);
        let said = if self.aloud {
            command.stdout(std::io::stderr());
            None
        } else {
            Some(Said::by(&mut command)?)
        };
        let ended = Running::start(command)?.wait(Some(self.limit), stop, &mut || {})?;
        let said = said.map_or_else(String::new, |said| said.end());
        // Who reads a finding must not have to guess what an empty one means.
        let with = |how: String| match said.as_str() {
            "" if self.aloud => how,
            "" => format!("{how} and said nothing"),
            said => format!("{how}: {said}"),
        };
        let or_status = |code| match said.as_str() {
            "" => with(format!("the check ended with status {code}")),
            said => said.to_owned(),
        };
        Ok(match ended {
            Ended::Exited(0) => Verdict::Ok,
            Ended::Exited(1) => Verdict::Lost(or_status(1)),
            Ended::Exited(2) => Verdict::Reported(or_status(2)),
            Ended::Exited(3) => Verdict::Refused(or_status(3)),
            Ended::Exited(status) if ended.is_not_started() => {
                let said = with(format!("exit status {status}"));
                return Err(Error::CheckNotStarted { said });
            }
            Ended::Exited(code) => {
                Verdict::Broken(with(format!("the check ended with status {code}")))
            }
            Ended::Signalled(signal) => {
                Verdict::Broken(with(format!("the check was ended by signal {signal}")))
            }
            Ended::TimedOut => {
                Verdict::Broken(with(format!("the check took longer than {:?}", self.limit)))
            }
            Ended::Stopped => return Err(Error::Interrupted),
        })
    }
}
