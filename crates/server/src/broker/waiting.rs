//! [`wait_for`]: what a node does before anybody can ask it.

use tokio::runtime::Handle;

use super::error::Failed;
use crate::cluster::patient;

/// Waits for `work`, on a thread that is not the runtime's; while `lacks_room` says why, not for long.
pub(super) fn wait_for<T>(
    runtime: &Handle,
    lacks_room: impl Fn() -> Option<Failed>,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    runtime.block_on(patient(lacks_room, work))
}
