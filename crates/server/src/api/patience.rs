//! [`Patience`]: how long a client waits for what the node does for it.
//!
//! What waits for a disk may wait for long: on a full one, until there is room. It is not taken back then; it
//! goes on by itself for as long as the node does, and the client is told that it took too long.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::problem::Problem;
use super::session::Session;
use crate::broker::{Node, Refused};
use crate::kafka::error::ErrorCode;

/// Until when somebody waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience(Instant);

impl Patience {
    /// As long as the request says, if it says so.
    pub(super) fn of(timeout_ms: i32) -> Self {
        let said = u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0);
        said.map_or_else(Self::unless_said, |ms| Self(Instant::now() + Duration::from_millis(ms)))
    }

    /// Where a request cannot say: less than the 30 s that clients wait for an answer unless told otherwise.
    pub(super) fn unless_said() -> Self {
        Self(Instant::now() + Duration::from_secs(20))
    }
}

impl Session {
    /// Whether topics can be changed: the controller is here or can be asked. What it has agreed on is known here then.
    pub(super) async fn check_controller(&self, patience: Patience) -> Result<(), Problem> {
        if self.node.topics.leads() {
            return Ok(());
        }
        self.within(patience, |node: Arc<Node>| async move { node.topics.catch_up().await }).await
    }

    /// Has the node do something, and waits for it while there is patience. Where the listener has ended
    /// before it is done, it stops where it is: what is agreed on then, the next start does.
    pub(super) async fn within<T, Done>(
        &self,
        Patience(until): Patience,
        work: impl FnOnce(Arc<Node>) -> Done,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        Done: Future<Output = Result<T, Refused>> + Send + 'static,
    {
        let too_late = |message| Problem::new(ErrorCode::RequestTimedOut, message);
        if until <= Instant::now() {
            return Err(too_late(
                "it was not begun: what came before it took all the time there was",
            ));
        }
        let (work, mut ended) = (work(Arc::clone(&self.node)), self.ended.clone());
        let done = tokio::spawn(async move {
            tokio::select! {
                biased;
                done = work => Some(done),
                _ = ended.wait_for(|ended| *ended) => None,
            }
        });
        match timeout_at(until, done).await {
            Ok(Ok(Some(done))) => Ok(done?),
            Ok(Ok(None)) => Err(too_late("it was not done when the broker ended")),
            Err(_elapsed) => Err(too_late("it is not done yet: is the disk full, or slow?")),
            // It was printed by the broker.
            Ok(Err(_panic)) => Err(ErrorCode::UnknownServerError.into()),
        }
    }
}
