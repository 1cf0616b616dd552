//! [`Preparation`]: what is put on a disk before it is recorded, and is there at first in each crash state.

use std::path::PathBuf;

use super::copy;
use super::error::Result;
use super::processes::Program;
use super::step::run;

/// What a disk begins with, beside an empty filesystem.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preparation {
    /// A directory; what is in it is copied first.
    pub from: Option<PathBuf>,
    /// A line for the shell that is run then, on the mounted directory.
    pub setup: Option<String>,
}

impl Preparation {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What can be known to fail before there is a disk.
    pub fn check(&self) -> Result<()> {
        self.from.as_deref().map_or(Ok(()), copy::check)
    }

    /// Does it, on what is mounted. What `stop` ends is [`super::Error::Interrupted`].
    pub(super) fn apply(&self, stop: &dyn Fn() -> bool) -> Result<()> {
        if let Some(from) = &self.from {
            copy::copy(from, stop)?;
        }
        match &self.setup {
            None => Ok(()),
            Some(line) => run(Program::shell(line).command()?, &format!("--setup '{line}'"), stop),
        }
    }
}
