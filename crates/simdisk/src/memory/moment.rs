//! [`Moment`]: the disk between two operations, shown to whoever watches, while the run goes on.

use std::fmt;

use plimsoll_sync::Crash;

use super::disk::Disk;
use super::{DiskOptions, Operation, SimDir, crash};

/// The disk just before an operation that will change it.
#[derive(Debug)]
pub struct Moment<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) options: DiskOptions,
    /// Number of the operation, as [`SimDir::stop_at`] takes it.
    pub number: u64,
    /// What comes next.
    pub operation: Operation,
    /// The file that it is done to; empty for the directory.
    pub name: &'a str,
}

impl Moment<'_> {
    /// As [`SimDir::crash`], at this moment.
    #[must_use]
    pub fn crash(&self, crash: Crash, seed: u64) -> SimDir {
        SimDir::on(crash::crash(self.disk, crash, self.options.tear, seed), self.options)
    }
}

type Watch = dyn FnMut(&Disk, u64, Operation, &str) + Send;

/// Whoever is shown the moments.
#[derive(Default)]
pub(crate) struct Watcher(Option<Box<Watch>>);

impl Watcher {
    pub(crate) fn new(
        options: DiskOptions,
        mut watch: impl FnMut(&Moment<'_>) + Send + 'static,
    ) -> Self {
        Self(Some(Box::new(move |disk, number, operation, name| {
            watch(&Moment { disk, options, number, operation, name });
        })))
    }

    pub(crate) fn look(&mut self, disk: &Disk, number: u64, operation: Operation, name: &str) {
        if let Some(watch) = &mut self.0
            && operation.changes_disk()
        {
            watch(disk, number, operation, name);
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watcher(somebody)" } else { "Watcher(nobody)" })
    }
}
