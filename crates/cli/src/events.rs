//! [`print()`]: what a broker does and meets, an event a line, on stderr.

use std::{env, io};

use anyhow::{Result, anyhow};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// What says from which level on.
const LEVEL: &str = "PLIMSOLL_LOG";

/// Has them printed from now on, with what they are about: from `info` on, or as `PLIMSOLL_LOG` says.
pub(crate) fn print() -> Result<()> {
    let level = match env::var(LEVEL) {
        Ok(word) => word.parse().map_err(|_unknown| unknown(&word))?,
        Err(env::VarError::NotPresent) => LevelFilter::INFO,
        Err(env::VarError::NotUnicode(word)) => return Err(unknown(&word.to_string_lossy())),
    };
    // The engine's are for who works on it, and what a log finds at each opening is told in the server's words.
    let own = Targets::new()
        .with_target("plimsoll_server", level)
        .with_target("plimsoll", level.min(LevelFilter::WARN));
    // Where stderr takes none nobody can be told.
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false).with_target(false);
    let lines = lines.log_internal_errors(false).with_filter(own);
    // Whoever runs this in a process of theirs has a subscriber already.
    tracing_subscriber::registry().with(lines).try_init().ok();
    Ok(())
}

fn unknown(word: &str) -> anyhow::Error {
    anyhow!("{LEVEL} is {word:?}: it must be off, error, warn, info, debug or trace")
}
