//! [`patient`]: what opens or ends a group waits for, while nobody can ask it.
//!
//! On a full disk what is agreed on waits for room. A group that is open tells so whoever asks; of one that
//! opens or ends nobody would know.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// For how long a disk may have no room.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

/// Waits for `work`; while `lacks_room` says why it waits, not for long.
pub(crate) async fn patient<T, E>(
    lacks_room: impl Fn() -> Option<E>,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
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
    tokio::select! {
        done = work => done,
        why = given_up => Err(why),
    }
}
