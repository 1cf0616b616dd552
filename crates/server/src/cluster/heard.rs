//! [`Heard`]: which leader this replica has heard lately. The engine names the one that it last voted for or followed, also
//! where that has ended, and after a start before anybody spoke.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::settings::ELECTION_MS;
use super::watch;

/// One that is not heard for so long leads no more, or not here: another would have been elected.
const LATELY: Duration = Duration::from_millis(2 * ELECTION_MS);

/// Who sent entries, or signs of life, last; and the latest leader whose term is known.
#[derive(Debug)]
pub(crate) struct Heard {
    last: Mutex<Option<(u64, Instant)>>,
    /// Its term, and who it is.
    latest: watch::Sender<(u64, u64)>,
}

impl Default for Heard {
    fn default() -> Self {
        Self { last: Mutex::default(), latest: watch::Sender::new((0, 0)) }
    }
}

impl Heard {
    pub(crate) fn hears(&self, leader: u64) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((leader, Instant::now()));
    }

    /// This node's process is gone: what was heard of it counts no more.
    pub(crate) fn is_gone(&self, leader: u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.take_if(|(node, _)| *node == leader);
    }

    /// Whether this node was heard lately.
    pub(crate) fn is_lately(&self, leader: u64) -> bool {
        let heard = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        heard.is_some_and(|(node, at)| node == leader && at.elapsed() < LATELY)
    }

    /// That this node leads in this term, though the engine of this replica is not told so.
    pub(crate) fn hears_of(&self, term: u64, leader: u64) {
        self.hears(leader);
        self.latest.send_if_modified(|latest| {
            let is_later = term > latest.0;
            *latest = (*latest).max((term, leader));
            is_later
        });
    }

    /// Who leads in the latest term that was [heard of](Self::hears_of), if that was lately.
    pub(crate) fn latest(&self) -> Option<u64> {
        let (term, leader) = *self.latest.borrow();
        (term > 0 && self.is_lately(leader)).then_some(leader)
    }

    /// Done once somebody does.
    pub(crate) async fn until_later(&self, term: u64) {
        // It is here, so it can be changed.
        self.latest.subscribe().wait_for(|latest| latest.0 > term).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn a_leader_that_was_not_heard_lately_is_none() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(async {
            let heard = Heard::default();
            assert!(!heard.is_lately(3));
            heard.hears(3);
            assert!(heard.is_lately(3) && !heard.is_lately(2));
            advance(LATELY / 2).await;
            heard.hears(3);
            advance(LATELY / 2).await;
            assert!(heard.is_lately(3));
            advance(LATELY / 2).await;
            assert!(!heard.is_lately(3));
            heard.hears(3);
            heard.is_gone(2);
            assert!(heard.is_lately(3), "another is gone");
            heard.is_gone(3);
            assert!(!heard.is_lately(3));
        });
    }
}
