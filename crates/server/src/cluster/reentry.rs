//! [`re_enter`]: how a replica that may have forgotten comes to vote again; the rule is in [`super::standing`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use openraft::async_runtime::WatchReceiver;
use plimsoll_log::Ack;
use tokio::time::{sleep, timeout};

use super::apply::Apply;
use super::message::{Answer, Request};
use super::network::Network;
use super::standing::{Goal, Standing};
use super::state::Engine;
use super::storage::Storage;

/// How long the others may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often it is looked how far this replica has come.
const LOOK: Duration = Duration::from_millis(50);
/// How often the others are asked.
const LOOKS: usize = 5;

/// Asks the leaders of the group how far this replica must come, and lets it vote once it has, and has all
/// of that on its disk.
pub(crate) async fn re_enter<S: Apply>(
    node: u64,
    engine: Engine<S>,
    storage: Weak<Storage>,
    network: Network,
    standing: Arc<Standing>,
) {
    let mut goal = Goal::default();
    loop {
        let (others, is_alone, own) = {
            let metrics = engine.metrics();
            let now = metrics.borrow_watched();
            let members = now.membership_config.membership();
            let others: Vec<_> =
                members.nodes().map(|(id, _)| *id).filter(|id| *id != node).collect();
            let is_alone = members.voter_ids().eq([node]);
            (others, is_alone, now.vote)
        };
        if is_alone {
            // Nobody else acknowledged anything: whoever opened it says what may be lost.
            break;
        }
        let asks = others.into_iter().map(|other| {
            let asked = network.ask(other, &Request::ReEnter(own));
            async move { timeout(PATIENCE, asked).await.ok()?.ok() }
        });
        for answer in join_all(asks).await.into_iter().flatten() {
            if let Answer::ReEnter(leader, last) = answer {
                goal.named(leader, last, Some(own));
            }
        }
        let mut is_reached = false;
        for _ in 0..LOOKS {
            is_reached = {
                let metrics = engine.metrics();
                let now = metrics.borrow_watched();
                goal.is_reached(Some(now.vote), now.last_applied.map(|last| last.index))
            };
            if is_reached {
                break;
            }
            sleep(LOOK).await;
        }
        if is_reached && sync(&storage).await {
            break;
        }
        if storage.strong_count() == 0 {
            return;
        }
    }
    standing.is_clean_from_here();
    // Who has lost some of its log campaigns once that is healed.
    let is_whole = storage.upgrade().is_none_or(|storage| storage.is_whole());
    engine.runtime_config().elect(is_whole);
}

/// Whether all of the log is durable now.
async fn sync(storage: &Weak<Storage>) -> bool {
    let Some(storage) = storage.upgrade() else { return false };
    let last = storage.log.last_index();
    match storage.log.wait(last, Ack::Durable) {
        Ok(synced) => {
            drop(storage);
            synced.await.is_ok()
        }
        Err(_) => last == 0,
    }
}
