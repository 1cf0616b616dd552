//! What was done to a simulated disk, so that a failure can be told as a story.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use super::fault::{FaultKind, Operation};

/// One operation and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 0. [`crate::SimDir::stop_at`] takes it.
    pub number: u64,
    /// What was asked for.
    pub operation: Operation,
    /// The name of the file; empty for the first directory. What lies in another one is
    /// `directory/file`.
    pub name: String,
    /// What else was asked: a range, a method, a new name. Empty if nothing.
    pub detail: String,
    /// The fault that met it.
    pub fault: Option<FaultKind>,
    /// What the caller was told: `None` that it worked, or the kind of the error.
    pub error: Option<io::ErrorKind>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}", self.number, self.operation)?;
        for word in [&self.name, &self.detail] {
            if !word.is_empty() {
                write!(f, " {word}")?;
            }
        }
        match self.error {
            None => write!(f, ": done")?,
            Some(kind) => write!(f, ": {kind}")?,
        }
        match self.fault {
            None => Ok(()),
            Some(fault) => write!(f, " (fault: {fault:?})"),
        }
    }
}

/// The latest steps, no more than a limit.
#[derive(Debug, Default)]
pub(crate) struct History {
    steps: VecDeque<Step>,
    limit: usize,
}

impl History {
    pub(crate) fn new(limit: usize) -> Self {
        Self { steps: VecDeque::new(), limit }
    }

    /// Whether steps are kept at all, so that nobody describes one in vain.
    pub(crate) fn is_kept(&self) -> bool {
        self.limit > 0
    }

    pub(crate) fn add(&mut self, step: Step) {
        if !self.is_kept() {
            return;
        }
        if self.steps.len() == self.limit {
            self.steps.pop_front();
        }
        self.steps.push_back(step);
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        self.steps.iter().cloned().collect()
    }
}
