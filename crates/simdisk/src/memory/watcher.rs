//! [`Watcher`]: whoever is shown the disk before each operation that changes it.

use std::fmt;

use super::disk::Disk;
use super::fault::Operation;

/// Is shown the disk, the number of the operation, what comes next and the file that it is done to.
type Watch = dyn FnMut(&Disk, u64, Operation, &str) + Send;

/// Whoever is shown the moments.
#[derive(Default)]
pub(crate) struct Watcher(Option<Box<Watch>>);

impl Watcher {
    pub(crate) fn new(watch: impl FnMut(&Disk, u64, Operation, &str) + Send + 'static) -> Self {
        Self(Some(Box::new(watch)))
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
