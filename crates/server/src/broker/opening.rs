//! [`wait_for`]: what a node does before anybody can ask it.
//!
//! On a full disk what is agreed on waits for room. A node that is open tells so whoever asks; of one that
//! opens nobody would know.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::error::Failed;

/// For how long a disk may have no room.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

/// Waits for `work`, on a thread that is not the runtime's; while `lacks_room` says why, not for long.
pub(super) fn wait_for<T>(
    runtime: &Handle,
    lacks_room: impl Fn() -> Option<Failed>,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    let given_up = async {
        let mut since = Instant::now();
        loop {
            sleep(LOOK).await;
            match lacks_room() {
                Some(why) if since.elapsed() >= PATIENCE => return why,
                Some(_) => {}
                None => since = Instant::now(),
            }
        }
    };
    runtime.block_on(async {
        tokio::select! {
            done = work => done,
            why = given_up => Err(why),
        }
    })
}
