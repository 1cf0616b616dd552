//! [`watch`]: the disk has failed under one shard of a node, so it has under all.
//!
//! Each shard that others vote on too leads elsewhere from then on ([`cluster`](crate::cluster)), and the node is to end: it
//! ends as a crash of the process does, and the next start decides by what it finds whether it may have forgotten.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};

use super::coordinator::Coordinator;
use super::topics::Topics;
use crate::cluster::{Apply, Group};

/// How long the node stays for those whom it tells who leads.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// What is asked of the group of a shard, whatever it agrees on.
trait OnDisk {
    fn until_disk_fails(&self) -> BoxFuture<'static, String>;
    fn fail_disk(&self, why: &str);
    fn why_disk_failed(&self) -> Option<String>;
    /// Whether it goes on, as far as this node knows: somebody else leads it, or nobody else could.
    fn goes_on(&self) -> bool;
}

impl<S: Apply> OnDisk for Group<S> {
    fn until_disk_fails(&self) -> BoxFuture<'static, String> {
        Self::until_disk_fails(self).boxed()
    }

    fn fail_disk(&self, why: &str) {
        Self::fail_disk(self, why);
    }

    fn why_disk_failed(&self) -> Option<String> {
        Self::why_disk_failed(self)
    }

    fn goes_on(&self) -> bool {
        self.is_alone() || self.leader().is_some()
    }
}

fn all<T>(
    topics: &Topics,
    groups: &Coordinator,
    of: impl Fn(&(dyn OnDisk + 'static)) -> T,
) -> Vec<T> {
    let mut all = vec![of(topics.group()), of(&*groups.group)];
    all.extend(topics.shards().iter().map(|shard| of(&*shard.group)));
    all
}

/// Why the disk counts as failed, if it does.
pub(super) fn why_failed(topics: &Topics, groups: &Coordinator) -> Option<String> {
    all(topics, groups, OnDisk::why_disk_failed).into_iter().flatten().next()
}

/// Waits until the disk has failed under a shard, has all others know, and says why once they lead elsewhere.
pub(super) async fn watch(
    topics: Weak<Topics>,
    groups: Weak<Coordinator>,
    failed: Arc<OnceLock<String>>,
) {
    let both = || Some((topics.upgrade()?, groups.upgrade()?));
    let mut fails: FuturesUnordered<_> = match both() {
        Some((topics, groups)) => {
            all(&topics, &groups, OnDisk::until_disk_fails).into_iter().collect()
        }
        None => return,
    };
    let Some(why) = fails.next().await else { return };
    let until = Instant::now() + PATIENCE;
    match both() {
        Some((topics, groups)) => drop(all(&topics, &groups, |shard| shard.fail_disk(&why))),
        None => return,
    }
    loop {
        sleep(LOOK).await;
        let Some((topics, groups)) = both() else { return };
        let go_on = all(&topics, &groups, OnDisk::goes_on).into_iter().all(|goes_on| goes_on);
        if go_on || Instant::now() >= until {
            break;
        }
    }
    failed.set(why).ok();
}
