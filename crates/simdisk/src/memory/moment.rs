//! [`Moment`]: the disk between two operations, shown to whoever watches, while the run goes on.

use plimsoll_sync::Crash;

use super::crash;
use super::disk::Disk;
use super::fault::Operation;
use super::fs::SimDir;
use super::options::DiskOptions;
use super::watcher::Watcher;

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
        SimDir::on(crash::crash(self.disk, crash, seed), self.options)
    }
}

impl SimDir {
    /// From now on `watch` is shown every moment before an operation that changes the disk, inside the
    /// call that makes it. It must not touch this directory, which waits for it.
    pub fn watch(&self, mut watch: impl FnMut(&Moment<'_>) + Send + 'static) {
        let options = self.options;
        self.machine.lock().watcher = Watcher::new(move |disk, number, operation, name| {
            watch(&Moment { disk, options, number, operation, name });
        });
    }
}
