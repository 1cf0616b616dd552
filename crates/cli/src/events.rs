//! [`print()`]: what a broker does and meets, an event a line, on stderr.
//!
//! A thread writes them: a stderr that nobody reads holds up that thread, and no shard. What it cannot take is counted, and said.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use std::{env, thread};

use anyhow::{Context, Result, anyhow};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// What says from which level on.
const LEVEL: &str = "PLIMSOLL_LOG";
/// Lines that wait for the thread, at most.
const WAITING_MAX: usize = 1024;
/// How long it may take for what waits when all ends.
const PATIENCE: Duration = Duration::from_secs(1);

enum Said {
    Line(Vec<u8>),
    /// All before it is to be there.
    End(Sender<()>),
}

/// What hands lines to the thread.
#[derive(Debug, Clone)]
struct Lines {
    thread: SyncSender<Said>,
    untold: Arc<AtomicU64>,
}

/// Has events printed for as long as it is there. Dropping it waits until those that were taken are there, not for long.
#[derive(Debug)]
pub(crate) struct Events(Lines);

/// Has them printed from now on, with what they are about: from `info` on, or as `PLIMSOLL_LOG` says.
pub(crate) fn print() -> Result<Events> {
    let level = match env::var(LEVEL) {
        Ok(word) if word.is_empty() => LevelFilter::INFO,
        Ok(word) => word.parse().map_err(|_unknown| unknown(&word))?,
        Err(env::VarError::NotPresent) => LevelFilter::INFO,
        Err(env::VarError::NotUnicode(word)) => return Err(unknown(&word.to_string_lossy())),
    };
    let (thread, said) = sync_channel(WAITING_MAX);
    let lines = Lines { thread, untold: Arc::default() };
    let untold = Arc::clone(&lines.untold);
    let writing = thread::Builder::new().name("events".to_owned());
    writing.spawn(move || write(&said, &untold)).context("no thread for events")?;
    // The engine's are for who works on it, and what a log finds at each opening is told in the server's words.
    let own = Targets::new()
        .with_target("plimsoll_server", level)
        .with_target("plimsoll", level.min(LevelFilter::WARN));
    let writer = lines.clone();
    let layer = fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
    let layer = layer.with_target(false).log_internal_errors(false).with_filter(own);
    // Whoever runs this in a process of theirs has a subscriber already.
    tracing_subscriber::registry().with(layer).try_init().ok();
    Ok(Events(lines))
}

fn unknown(word: &str) -> anyhow::Error {
    anyhow!("{LEVEL} is {word:?}: it must be off, error, warn, info, debug or trace")
}

fn write(said: &Receiver<Said>, untold: &AtomicU64) {
    for one in said {
        // Where stderr takes none nobody can be told.
        match one {
            Said::Line(line) => drop(io::stderr().write_all(&line)),
            Said::End(there) => drop(there.send(())),
        }
        let untold = untold.swap(0, Relaxed);
        if untold > 0 {
            writeln!(
                io::stderr(),
                "{untold} events are not here: they came faster than they were read"
            )
            .ok();
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.thread.try_send(Said::Line(line.to_vec())).is_err() {
            self.untold.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let (there, are_there) = channel();
        if self.0.thread.try_send(Said::End(there)).is_ok() {
            are_there.recv_timeout(PATIENCE).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_something_waits_for_nobody_who_reads() {
        let (thread, said) = sync_channel(1);
        let mut lines = Lines { thread, untold: Arc::default() };
        for _ in 0..3 {
            lines.write_all(b"it follows\n").unwrap();
        }
        assert_eq!(lines.untold.load(Relaxed), 2);
        assert!(matches!(said.try_recv(), Ok(Said::Line(line)) if line == b"it follows\n"));
    }
}
