//! [`Task`]: work of a shard on the runtime of its engine, which ends with whoever holds it.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A running task. Dropping it ends it, wherever it waits; dropped outside of any runtime it has let go of
/// all that it held by then, but for what it had done on another thread, which goes on to its end.
#[derive(Debug)]
pub(super) struct Task {
    handle: JoinHandle<()>,
    runtime: Handle,
}

impl Task {
    pub(super) fn spawn(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { handle: runtime.spawn(work), runtime: runtime.clone() }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits until it has ended by itself.
    pub(super) fn join(mut self) {
        // A panic there was printed there.
        drop(self.runtime.block_on(&mut self.handle));
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
        if !self.handle.is_finished() && Handle::try_current().is_err() {
            drop(self.runtime.block_on(&mut self.handle));
        }
    }
}
