//! Processes that use the disk: starting them, waiting for them, and seeing that none is left.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::error::{Error, Result};
use super::namespace::DIR;

/// How long a process is waited for before it is looked whether it should stop.
const GLANCE: Duration = Duration::from_millis(20);
/// How long the kernel may take to end what was killed.
const STRAYS_WAIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// A program and its arguments; `{dir}` in them is the mounted directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    words: Vec<String>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exited(i32),
    /// By a signal that was not ours.
    Signalled(i32),
    /// It took too long, and was killed.
    TimedOut,
    /// Somebody asked to stop, and it was killed.
    Stopped,
}

impl Ended {
    /// Whether a shell ended like this because it may not run a program, or finds none.
    #[must_use]
    pub const fn is_not_started(self) -> bool {
        matches!(self, Self::Exited(126 | 127))
    }
}

impl Program {
    /// A program with its arguments.
    #[must_use]
    pub fn new(words: Vec<String>) -> Self {
        Self { words }
    }

    /// A line for the shell.
    #[must_use]
    pub fn shell(line: &str) -> Self {
        Self { words: ["/bin/sh", "-c", line].map(str::to_owned).to_vec() }
    }

    /// The command, with the directory put in.
    pub(super) fn command(&self) -> Result<Command> {
        let mut words = self.words.iter().map(|word| word.replace("{dir}", DIR));
        let program = words.next().ok_or_else(|| Error::Program {
            program: "nothing".to_owned(),
            said: "there is no command to run".to_owned(),
        })?;
        let mut command = Command::new(program);
        command.args(words).env("PLIMSOLL_DIR", DIR);
        Ok(command)
    }

    /// As it was given.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }
}

/// A process and all that it starts, as long as they stay in its process group.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    program: String,
}

impl Running {
    pub(super) fn start(mut command: Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| Error::Program {
            program: program.clone(),
            said: format!("it cannot be started: {error}"),
        })?;
        Ok(Self { child, program })
    }

    /// Waits until it ends, until `limit` is over, or until `stop` returns true. Then calls `over`, and
    /// kills what is left of its group.
    pub(super) fn wait(
        mut self,
        limit: Option<Duration>,
        stop: &dyn Fn() -> bool,
        over: &mut dyn FnMut(),
    ) -> Result<Ended> {
        let pid = self.pid();
        let (send, ended) = mpsc::channel();
        let deadline = limit.map(|limit| Instant::now() + limit);
        let why = std::thread::scope(|scope| {
            scope.spawn(move || {
                // It stays a zombie, so that its number is still its own when the group is killed.
                let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
                while waitid(Id::Pid(pid), flags) == Err(nix::Error::EINTR) {}
                let _timed_out = send.send(());
            });
            let why = loop {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                match ended.recv_timeout(left.map_or(GLANCE, |left| left.min(GLANCE))) {
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break None,
                    Err(RecvTimeoutError::Timeout) if stop() => break Some(Ended::Stopped),
                    Err(RecvTimeoutError::Timeout) => {
                        if deadline.is_some_and(|at| Instant::now() >= at) {
                            break Some(Ended::TimedOut);
                        }
                    }
                }
            };
            over();
            kill_group(pid);
            why
        });
        let status = self.child.wait().map_err(|source| self.failed(&source))?;
        Ok(why.unwrap_or_else(|| of_status(status)))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("process numbers are positive"))
    }

    fn failed(&self, source: &io::Error) -> Error {
        Error::Program { program: self.program.clone(), said: source.to_string() }
    }
}

fn of_status(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Signalled(signal.unwrap_or_default()),
    }
}

/// Errors say that nobody is left.
fn kill_group(leader: Pid) {
    let _gone = killpg(leader, Signal::SIGKILL);
    // Where it shares the group of a terminal.
    let _gone = kill(leader, Signal::SIGKILL);
}

/// Kills what [`kill_strays`] finds until there is none, but not for ever.
pub(super) fn end_strays() {
    let deadline = Instant::now() + STRAYS_WAIT;
    while kill_strays() > 0 && Instant::now() < deadline {
        std::thread::park_timeout(PAUSE);
    }
}

/// Kills processes that are in the mount namespace of this thread and not of this process: what left
/// its process group, and would keep the disk mounted. How many there were.
pub(super) fn kill_strays() -> usize {
    let Ok(ours) = fs::read_link("/proc/thread-self/ns/mnt") else { return 0 };
    let Ok(listed) = fs::read_dir("/proc") else { return 0 };
    let mut killed = 0;
    for entry in listed.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let theirs = fs::read_link(entry.path().join("ns/mnt"));
        let is_us = u32::try_from(pid) == Ok(std::process::id());
        if theirs.is_ok_and(|theirs| theirs == ours) && !is_us {
            let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
            killed += 1;
        }
    }
    killed
}

/// Runs a program to its end and returns what it printed; its errors are errors.
pub(super) fn output(program: &str, args: &[&str]) -> Result<String> {
    let failed = |said: String| Error::Program { program: program.to_owned(), said };
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
