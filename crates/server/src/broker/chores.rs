//! What a node does beside its shards, as long as it is open: it keeps the marks of its run true, and finds out of each shard
//! whether it may take part in it.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use plimsoll_sync::Dir;

use super::company::Company;
use super::coordinator::Coordinator;
use super::error::sentence;
use super::kept;
use super::known::Known;
use super::layout::{CONTROL, GROUPS, SHARED};
use super::seeded::trust;
use super::topics::Topics;
use crate::cluster::{Apply, Group, Outline};
use crate::run::{Ends, Run};

/// How often it is looked whether nobody asks.
const QUIET: Duration = Duration::from_secs(10);
/// So often it is noted how far a shard is durable whose entries are so before they are acknowledged: what its disk loses behind that is not missed.
const NOTED: Duration = Duration::from_secs(1);

/// What a node asks of the group of any shard, whatever it agrees on.
pub(super) trait Voting {
    fn outline(&self) -> Outline;
    fn until_it_takes_part(&self, company: &Arc<Company>) -> BoxFuture<'static, bool>;
    fn until_clean(&self) -> BoxFuture<'static, bool>;
}

impl<S: Apply> Voting for Group<S> {
    fn outline(&self) -> Outline {
        Self::outline(self)
    }

    fn until_it_takes_part(&self, company: &Arc<Company>) -> BoxFuture<'static, bool> {
        let company = Arc::clone(company);
        Self::until_it_takes_part(self, move || company.others()).boxed()
    }

    fn until_clean(&self) -> BoxFuture<'static, bool> {
        Self::until_clean(self).boxed()
    }
}

/// The group of a shard.
pub(super) fn voting<'a>(
    topics: &'a Topics,
    groups: &'a Coordinator,
    number: u32,
) -> &'a dyn Voting {
    match number {
        CONTROL => topics.group(),
        GROUPS => &*groups.group,
        of => &*topics.shard(of).group,
    }
}

/// Where a shard has nothing: asks the others whether it is new, or lost.
pub(super) fn greet(
    company: &Arc<Company>,
    lost: &Arc<OnceLock<u32>>,
    number: u32,
    group: &dyn Voting,
) -> impl Future<Output = ()> + Send + use<> {
    let (takes_part, lost) = (group.until_it_takes_part(company), Arc::clone(lost));
    async move {
        if !takes_part.await {
            lost.set(number).ok();
        }
    }
}

/// Once a shard that was seeded, or may have forgotten, has re-entered its group it is not in doubt any more. Durable.
pub(super) fn trust_once_clean(
    dir: Arc<dyn Dir>,
    number: u32,
    group: &dyn Voting,
) -> impl Future<Output = ()> + Send + use<> {
    let clean = group.until_clean();
    async move {
        if !clean.await {
            return;
        }
        // What would take its word from it goes before its doubt does.
        let ends = move || {
            kept::caught_up(&*dir, number)?;
            trust(&*dir, number)?;
            kept::forget(&*dir, number)
        };
        match tokio::task::spawn_blocking(ends).await {
            Ok(Ok(())) => {
                tracing::info!(shard = number, "what it may have lacked is there; it votes again");
            }
            Ok(Err(why)) => {
                let why = sentence(&why);
                tracing::error!(shard = number, why, "its doubt cannot be ended");
            }
            Err(_ended) => {}
        }
    }
}

/// Notes, now and then and durably, how far a shard is durable here whose entries are so before they are acknowledged: what a
/// disk loses of it is missed at the next start (`damaged.rs`). Until nobody says any more how it is.
pub(super) async fn note_durable(
    root: Arc<dyn Dir>,
    number: u32,
    look: impl Fn() -> Option<Outline>,
) {
    let noted = Known::read(&*root, number);
    let (mut is_there, mut known) = (noted.is_some(), noted.unwrap_or_default());
    loop {
        let Some(now) = look() else { return };
        let now = noted_now(known, &now);
        if is_there && now == known {
            tokio::time::sleep(NOTED).await;
            continue;
        }
        let root = Arc::clone(&root);
        match tokio::task::spawn_blocking(move || now.write(&*root, number)).await {
            Ok(Ok(())) => (is_there, known) = (true, now),
            // It promises nothing, and is tried again.
            Ok(Err(why)) => tracing::debug!(shard = number, %why, "what is durable is not noted"),
            Err(_ended) => return,
        }
        tokio::time::sleep(NOTED).await;
    }
}

/// What is known now of a shard, where this was known before.
fn noted_now(known: Known, now: &Outline) -> Known {
    let raised = known.raised(Known::of(now.committed, now.durable, now.synced));
    Known { had: if now.is_dirty { raised.had } else { 0 }, ..raised }
}

/// A shard, as it was when it was looked at last.
#[derive(Debug, Clone, Copy, Default)]
struct Looked {
    number: u32,
    applied: u64,
    known: Known,
}

/// Notes, durably, that nothing was acknowledged which is not durable, as soon as nobody asks any more:
/// then a power cut leaves no doubt. While somebody asks, notes how far it is durable.
pub(super) async fn rest(
    root: Arc<dyn Dir>,
    topics: Weak<Topics>,
    run: Arc<Run>,
    clock: fn() -> u64,
) {
    let mut looked = SHARED.map(|number| {
        // A start knows less, until somebody who leads tells it.
        let known = Known::read(&*root, number).unwrap_or_default();
        Looked { number, known, ..Looked::default() }
    });
    // One that is missing later is lost.
    let begun = Arc::clone(&root);
    let begin = move || {
        let missing = SHARED.into_iter().filter(|number| Known::read(&*begun, *number).is_none());
        missing.for_each(|number| drop(Known::default().write(&*begun, number)));
    };
    if tokio::task::spawn_blocking(begin).await.is_err() {
        return;
    }
    loop {
        tokio::time::sleep(QUIET).await;
        let Some(topics) = topics.upgrade() else { return };
        let shards = SHARED.map(|number| Arc::clone(topics.shard(number)));
        drop(topics);
        if shards.iter().any(|shard| shard.group.why_disk_failed().is_some()) {
            return;
        }
        let (mut is_quiet, mut ends, mut more) = (true, Ends::new(), Vec::new());
        for (shard, looked) in shards.iter().zip(&mut looked) {
            let (applied, durable) = (shard.replica.lock().state.applied(), shard.group.synced());
            is_quiet &= applied == looked.applied && durable >= applied;
            looked.applied = applied;
            ends.insert(shard.number, durable);
            let known = noted_now(looked.known, &shard.group.outline());
            if known != looked.known {
                looked.known = known;
                more.push(*looked);
            }
        }
        drop(shards);
        // It promises nothing.
        let root = Arc::clone(&root);
        let written = move || {
            more.iter().for_each(|of| drop(of.known.write(&*root, of.number)));
        };
        if tokio::task::spawn_blocking(written).await.is_err() {
            return;
        }
        if run.rests() {
            continue;
        }
        let run = Arc::clone(&run);
        let note = move || {
            if is_quiet {
                run.quiesce(&ends, clock()).map(drop)
            } else {
                run.synced(&ends, clock())
            }
        };
        match tokio::task::spawn_blocking(note).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                let why = sentence(&why);
                return tracing::error!(why, "the marks of the run cannot be kept");
            }
            Err(_ended) => return,
        }
    }
}
