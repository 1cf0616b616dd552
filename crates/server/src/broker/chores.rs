//! What a node does beside its shards, as long as it is open: it keeps the marks of its run true, and finds out of each shard
//! whether it may take part in it.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use plimsoll_sync::Dir;

use super::company::Company;
use super::data::DataShard;
use super::known;
use super::layout::SHARED;
use super::seeded::trust;
use crate::cluster::{Apply, Group};
use crate::run::{Ends, Run};

/// How often it is looked whether nobody asks.
const QUIET: Duration = Duration::from_secs(10);

/// Once the others have given back what may have been lost here, nothing is in doubt any more. Durable.
pub(super) async fn settle(shared: Weak<DataShard>, run: Arc<Run>, clock: fn() -> u64) {
    let Some(group) = shared.upgrade().map(|shared| Arc::clone(&shared.group)) else { return };
    group.wait_clean().await;
    let ends: Ends = [(SHARED, group.synced())].into();
    drop(group);
    match tokio::task::spawn_blocking(move || run.fenced(&ends, clock())).await {
        Ok(Ok(())) => tracing::info!("what may have been lost here is back; this node votes again"),
        Ok(Err(why)) => tracing::error!(%why, "the marks of the run cannot be kept"),
        Err(_ended) => {}
    }
}

/// Where a shard has nothing: asks the others whether it is new, or lost.
pub(super) fn greet<S: Apply>(
    company: Arc<Company>,
    lost: Arc<OnceLock<u32>>,
    number: u32,
    group: &Group<S>,
) -> impl Future<Output = ()> + Send + use<S> {
    let takes_part = group.until_it_takes_part(move || company.others());
    async move {
        if !takes_part.await {
            lost.set(number).ok();
        }
    }
}

/// Once a shard that was seeded has re-entered its group it is not in doubt any more. Durable.
pub(super) fn trust_once_clean<S: Apply>(
    dir: Arc<dyn Dir>,
    number: u32,
    group: &Group<S>,
) -> impl Future<Output = ()> + Send + use<S> {
    let clean = group.until_clean();
    async move {
        if !clean.await {
            return;
        }
        match tokio::task::spawn_blocking(move || trust(&*dir, number)).await {
            Ok(Ok(())) => tracing::info!(shard = number, "it was seeded, and votes again"),
            Ok(Err(why)) => tracing::error!(shard = number, %why, "its doubt cannot be ended"),
            Err(_ended) => {}
        }
    }
}

/// Notes, durably, that nothing was acknowledged which is not durable, as soon as nobody asks any more:
/// then a power cut leaves no doubt. While somebody asks, notes how far it is durable.
pub(super) async fn rest(
    root: Arc<dyn Dir>,
    shared: Weak<DataShard>,
    run: Arc<Run>,
    clock: fn() -> u64,
) {
    let (mut last, mut noted) = (0, (0, 0));
    loop {
        tokio::time::sleep(QUIET).await;
        let Some(shared) = shared.upgrade() else { return };
        if shared.group.why_disk_failed().is_some() {
            return;
        }
        let (applied, durable) = (shared.replica.lock().state.applied(), shared.group.synced());
        let known = shared.group.outline();
        let known = (known.committed, known.durable);
        drop(shared);
        let (is_quiet, has_rest) = (applied == last && durable >= applied, run.rests());
        last = applied;
        if known > noted {
            // It promises nothing.
            let root = Arc::clone(&root);
            let written = move || known::write(&*root, SHARED, known).is_ok();
            if tokio::task::spawn_blocking(written).await.unwrap_or(false) {
                noted = known;
            }
        }
        if has_rest {
            continue;
        }
        let run = Arc::clone(&run);
        let note = move || {
            let ends = [(SHARED, durable)].into();
            if is_quiet {
                run.quiesce(&ends, clock()).map(drop)
            } else {
                run.synced(&ends, clock())
            }
        };
        match tokio::task::spawn_blocking(note).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return tracing::error!(%why, "the marks of the run cannot be kept"),
            Err(_ended) => return,
        }
    }
}
