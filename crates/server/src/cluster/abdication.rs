//! [`watch`]: how a replica whose disk has failed comes to lead no more.
//!
//! To hand over as `handover` does takes a leader that goes on if the other does not come. This one does not go on:
//! it stops its signs of life and its elections, and asks the voter that has most of its log to campaign, then
//! the next, until somebody leads in a later term. Nothing that they are asked for needs this disk, or this engine:
//! it may have ended with an error by then. Whoever campaigns is elected by the rule, or not at all, so it does not
//! matter what the replica knew. If nobody hears it, the others elect one once they miss the signs of life.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use tokio::time::timeout;

use super::apply::Apply;
use super::disk::Disk;
use super::heard::Heard;
use super::message::Request;
use super::network::Network;
use super::state::Engine;
use super::types::LogId;

/// How long one that was asked may take until another is: two syncs and two ways.
const PATIENCE: Duration = Duration::from_millis(250);
/// How often all are asked.
const ROUNDS: usize = 8;

/// Notes who votes; once the disk has failed, has another lead. Ends with the engine, or when that is done.
pub(crate) async fn watch<S: Apply>(
    node: u64,
    engine: Engine<S>,
    disk: Arc<Disk>,
    network: Network,
    heard: Arc<Heard>,
) {
    let (mut members, mut failed) = (engine.server_metrics(), disk.watch());
    let mut leading = None;
    while !disk.has_failed() {
        {
            let now = members.borrow_and_update();
            let voters = now.membership_config.membership().voter_ids();
            let others: Vec<u64> = voters.filter(|voter| *voter != node).collect();
            disk.is_shared(!others.is_empty());
            // An engine that has ended with an error says nothing of that any more.
            leading = (now.state == ServerState::Leader).then_some((now.vote, others));
        }
        tokio::select! {
            biased;
            told = failed.changed() => if told.is_err() { return },
            changed = members.changed() => if changed.is_err() { return },
        }
    }
    tracing::error!(
        why = disk.why(),
        "its disk has failed: it acknowledges nothing, and leads no more"
    );
    engine.runtime_config().heartbeat(false);
    engine.runtime_config().elect(false);
    let Some((own, others)) = leading else { return };
    let others = by_what_they_have(&engine, &others);
    for (to, has) in std::iter::repeat_n(&others, ROUNDS).flatten() {
        let request = TransferLeaderRequest::new(own, *to, *has);
        // Whether it was taken shows in what is heard of a later term.
        let asked = network.ask(*to, &Request::TakeOver(request));
        let led = async {
            let (_answer, ()) = tokio::join!(asked, heard.until_later(own.leader_id.term));
        };
        if timeout(PATIENCE, led).await.is_ok() {
            return;
        }
    }
}

/// The other voters, each with what it is known to have of this leader's log, those with most first.
fn by_what_they_have<S: Apply>(engine: &Engine<S>, voters: &[u64]) -> Vec<(u64, Option<LogId>)> {
    let metrics = engine.metrics();
    let now = metrics.borrow_watched();
    let matched = |voter: &u64| now.replication.as_ref().and_then(|all| *all.get(voter)?);
    let mut others: Vec<_> = voters.iter().map(|voter| (*voter, matched(voter))).collect();
    others.sort_by_key(|(_, has)| std::cmp::Reverse(*has));
    others
}
