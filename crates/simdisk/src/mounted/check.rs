//! What is asked about each crash state, and what can be answered.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use super::error::{Error, Result};
use super::namespace::{BASE, DIR};
use super::processes::{Ended, Program, Running};
use crate::block::State;

/// The end of what a check says is kept, and no more.
const SAID_BYTES_MAX: u64 = 4096;

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
    /// Runs it. Marks that were said before this trace began, if any, come first.
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
        let path = PathBuf::from(BASE).join("said");
        if !self.aloud {
            let file = fs::File::create(&path).map_err(Error::io("create", &path))?;
            let clone = file.try_clone().map_err(Error::io("open", &path))?;
            command.stdout(file).stderr(clone);
        } else {
            command.stdout(std::io::stderr());
        }
        let ended = Running::start(command)?.wait(Some(self.limit), stop, &mut || {})?;
        let said = if self.aloud { String::new() } else { end_of(&path) };
        Ok(match ended {
            Ended::Exited(0) => Verdict::Ok,
            Ended::Exited(1) => Verdict::Lost(said),
            Ended::Exited(2) => Verdict::Reported(said),
            Ended::Exited(3) => Verdict::Refused(said),
            Ended::Exited(code) => {
                Verdict::Broken(format!("the check ended with status {code}: {said}"))
            }
            Ended::Signalled(signal) => {
                Verdict::Broken(format!("the check was ended by signal {signal}: {said}"))
            }
            Ended::TimedOut => {
                Verdict::Broken(format!("the check took longer than {:?}: {said}", self.limit))
            }
            Ended::Stopped => return Err(Error::Interrupted),
        })
    }
}

/// The last lines of a file.
fn end_of(path: &Path) -> String {
    use std::io::{Seek, SeekFrom};
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(SAID_BYTES_MAX);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(SAID_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).trim().to_owned()
}
