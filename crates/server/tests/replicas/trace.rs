//! [`Trace`]: what happened in a life, in order, so that two can be compared.

use std::fmt;
use std::sync::Mutex;

use tokio::time::Instant;

use super::world::lock;

/// Lines, each with the time since the life began.
#[derive(Debug)]
pub(crate) struct Trace {
    begun: Instant,
    /// None: nobody reads them.
    lines: Option<Mutex<Vec<String>>>,
}

impl Trace {
    pub(crate) fn new(is_kept: bool) -> Self {
        Self { begun: Instant::now(), lines: is_kept.then(Mutex::default) }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn tell(&self, what: fmt::Arguments<'_>) {
        if let Some(lines) = &self.lines {
            let line = format!("{:>13.6} {what}", self.begun.elapsed().as_secs_f64());
            lock(lines).push(line);
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.as_ref().map_or_else(Vec::new, |lines| lock(lines).clone())
    }
}
