//! [`MarkOn`]: marks of programs that cannot be changed, made of the lines that they print.
//!
//! What a program prints goes through a pipe, is passed on as it comes, and each whole line that matches becomes a
//! mark when it is read. That is later than it was printed, and that later than what it rests on: such a mark
//! may miss states in which it would have been owed, and never claims what was not said.

use std::fmt;
use std::io::{self, PipeReader, Read, Write};
use std::process::Command;
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};

use super::error::{Error, Result};
use super::serve::Shared;

/// A line that is longer is passed on, and no mark.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Memory of an expression.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;
/// How long it takes at most to read what a program that has ended left in its pipes.
const DRAIN: Duration = Duration::from_secs(1);

/// Which lines are marks, and what they say: the first group of a regular expression, or all that matches.
#[derive(Debug, Clone)]
pub struct MarkOn(Regex);

impl FromStr for MarkOn {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let expression = RegexBuilder::new(text).size_limit(EXPRESSION_BYTES_MAX).build();
        expression.map(Self).map_err(|wrong| wrong.to_string())
    }
}

impl fmt::Display for MarkOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl MarkOn {
    /// What a line says.
    fn mark<'a>(&self, line: &'a str) -> Option<&'a str> {
        let captures = self.0.captures(line)?;
        let said = captures.get(1).or_else(|| captures.get(0))?;
        Some(said.as_str())
    }
}

/// Lines that matched and could not be marks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub lines: u64,
    /// Why the last of them could not.
    pub why: String,
}

impl Refused {
    /// Counts those of another run of the program, a later one.
    pub fn add(&mut self, later: &Self) {
        if later.lines > 0 {
            *self = Self { lines: self.lines + later.lines, why: later.why.clone() };
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, why } = self;
        write!(f, "Of the lines that matched --mark-on {lines} could not be marks: {why}.")
    }
}

/// Reads what a program prints.
#[derive(Debug)]
pub(super) struct Listener {
    ended: Receiver<()>,
    pipes: usize,
    refused: Arc<Mutex<Refused>>,
}

impl Listener {
    /// Has a command that is about to be started print to us.
    pub(super) fn of(command: &mut Command, on: &MarkOn, shared: &Arc<Shared>) -> Result<Self> {
        let pipe = || io::pipe().map_err(Error::io("make", "a pipe"));
        let ((out, theirs_out), (err, theirs_err)) = (pipe()?, pipe()?);
        command.stdout(theirs_out).stderr(theirs_err);
        let (send, ended) = mpsc::channel();
        let refused = Arc::new(Mutex::new(Refused::default()));
        let pipes = [out, err];
        let count = pipes.len();
        for pipe in pipes {
            let (on, shared, send) = (on.clone(), Arc::clone(shared), send.clone());
            let refused = Arc::clone(&refused);
            // Ends when nobody can print any more.
            std::thread::spawn(move || {
                read(pipe, &mut |line| {
                    let Some(said) = on.mark(line) else { return };
                    if let Err(why) = shared.device().mark(said) {
                        let mut refused = locked(&refused);
                        *refused = Refused { lines: refused.lines + 1, why };
                    }
                });
                let _nobody_waits = send.send(());
            });
        }
        Ok(Self { ended, pipes: count, refused })
    }

    /// Waits until all that was printed is read; not for ever, as somebody else may have the pipes.
    pub(super) fn drain(self) -> Refused {
        let deadline = Instant::now() + DRAIN;
        for _ in 0..self.pipes {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        locked(&self.refused).clone()
    }
}

fn locked(refused: &Mutex<Refused>) -> MutexGuard<'_, Refused> {
    refused.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hears whole lines first, and passes all on.
fn read(mut pipe: PipeReader, hear: &mut dyn FnMut(&str)) {
    let mut lines = Lines::default();
    let mut chunk = vec![0; LINE_BYTES_MAX];
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => {
                lines.take(&chunk[..count], hear);
                // Whoever watches may be gone; the marks are not.
                let _unseen = io::stderr().write_all(&chunk[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Cuts what comes into lines. What is too long is none, and neither is what ends without a newline.
#[derive(Default)]
struct Lines {
    begun: Vec<u8>,
    is_too_long: bool,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], hear: &mut dyn FnMut(&str)) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, is_whole) = match piece {
                [text @ .., b'\n'] => (text, true),
                text => (text, false),
            };
            self.is_too_long |= self.begun.len() + text.len() > LINE_BYTES_MAX;
            if !self.is_too_long {
                self.begun.extend_from_slice(text);
            }
            if is_whole {
                if !self.is_too_long {
                    hear(String::from_utf8_lossy(&self.begun).trim_end_matches('\r'));
                }
                self.begun.clear();
                self.is_too_long = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut heard = Vec::new();
        for piece in pieces {
            lines.take(piece, &mut |line| heard.push(line.to_owned()));
        }
        heard
    }

    #[test]
    fn a_line_is_heard_once_it_is_whole() {
        assert_eq!(
            heard(&[b"comm", b"it 1\r\ncommit", b" 2\n\ncommit 3"]),
            ["commit 1", "commit 2", ""]
        );
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        assert_eq!(heard(&[&long, b"\nnext\n"]), ["next"], "its end is none either");
        assert_eq!(heard(&[&long[1..], b"\n"])[0].len(), LINE_BYTES_MAX);
        assert_eq!(heard(&[b"\xff1\n"]), ["\u{fffd}1"]);
    }

    #[test]
    fn a_mark_is_the_first_group_or_all_that_matches() {
        let on = |expression: &str| expression.parse::<MarkOn>().unwrap();
        assert_eq!(on(r"committed (\d+)").mark("12:00 committed 17 rows"), Some("17"));
        assert_eq!(on("ready").mark("is ready now"), Some("ready"));
        assert_eq!(on("a(x)?").mark("a"), Some("a"));
        assert_eq!(on("^done$").mark("not done"), None);
        assert!("(".parse::<MarkOn>().is_err());
        assert!("(a{1000}){1000}".parse::<MarkOn>().is_err(), "too large");
    }
}
