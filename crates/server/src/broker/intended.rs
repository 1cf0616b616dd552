//! [`Intended`]: what control intends, as far as this node has heard; and [`Carrier`]: having it done in a shard of
//! records, by whoever leads that.
//!
//! Every node applies what control agrees on, and every leader of a shard compares its shard with that: at the start
//! of its leadership all of it, and then whatever changes. Nobody tells it to.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::watch;

use super::neighbours::{Neighbours, Reshapes};
use crate::control::{
    Catalog, Change, Coming, Impossible, Left, coming, reconcile, reconcile_topics,
};
use crate::shard::{Item, State, TopicId};

/// So many changes are known one by one: who has missed more looks at everything.
const LATELY_MAX: usize = 1024;
/// Items of an act in one entry: far below what an entry may hold.
const ITEMS_MAX: usize = 1024;

/// The catalog, and who is told that it has changed.
#[derive(Debug, Default)]
pub(crate) struct Intended {
    catalog: RwLock<Arc<Catalog>>,
    /// The topics of the last changes, each with the version that the change made.
    lately: Mutex<VecDeque<(u64, TopicId)>>,
    version: watch::Sender<u64>,
    /// Whether this node has heard, since its start, of all that was agreed on by then.
    is_heard: watch::Sender<bool>,
}

impl Intended {
    /// What is intended now. Whoever holds it keeps nobody from changing it, which costs a copy meanwhile.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Told of every change from here on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Told once this node has heard, since its start, of all that was agreed on by then.
    pub(super) fn heard(&self) -> watch::Receiver<bool> {
        self.is_heard.subscribe()
    }

    /// It has.
    pub(super) fn has_heard(&self) {
        self.is_heard.send_replace(true);
    }

    /// Does a change that was agreed on.
    pub(super) fn apply(&self, change: &Change) -> Result<(), Impossible> {
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut catalog).apply(change)?;
        let version = catalog.version();
        // Whoever sees the one sees the other.
        if let Some(topic) = change.topic() {
            let mut lately = self.lately();
            lately.push_back((version, topic));
            if lately.len() > LATELY_MAX {
                lately.pop_front();
            }
        }
        drop(catalog);
        self.version.send_replace(version);
        Ok(())
    }

    /// Done once something holds of the catalog.
    pub(super) async fn until(&self, mut holds: impl FnMut(&Catalog) -> bool) {
        let mut changes = self.changes();
        while !holds(&self.catalog()) {
            // It is held by whoever asks, and so is there.
            changes.changed().await.ok();
        }
    }

    /// The topics that changed behind a version; `None` where that is not known any more.
    fn changed_since(&self, version: u64) -> Option<BTreeSet<TopicId>> {
        let lately = self.lately();
        let is_known = lately.len() < LATELY_MAX
            || lately.front().is_some_and(|(oldest, _)| *oldest <= version + 1);
        let behind = lately.iter().rev().take_while(|(changed, _)| *changed > version);
        is_known.then(|| behind.map(|(_, topic)| *topic).collect())
    }

    fn lately(&self) -> MutexGuard<'_, VecDeque<(u64, TopicId)>> {
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a leadership has done of what is intended for its shard.
#[derive(Debug)]
pub(super) struct Carrier {
    intended: Arc<Intended>,
    changes: watch::Receiver<u64>,
    /// The version up to which it was compared.
    seen: Option<u64>,
    /// What is left of the last look: of one state and one catalog.
    items: VecDeque<Vec<Item<'static>>>,
    on_its_way: usize,
    neighbours: Arc<Neighbours>,
    /// Partitions that come from other shards, as of the last look; none once that is known which they have left there.
    coming: Vec<Coming>,
    reshapes: Reshapes,
    left: Left,
}

impl Carrier {
    /// Of a leadership that begins.
    pub(super) fn new(intended: &Arc<Intended>, neighbours: &Arc<Neighbours>) -> Self {
        Self {
            intended: Arc::clone(intended),
            changes: intended.changes(),
            seen: None,
            items: VecDeque::new(),
            on_its_way: 0,
            neighbours: Arc::clone(neighbours),
            coming: Vec::new(),
            reshapes: neighbours.reshapes(),
            left: Left::new(),
        }
    }

    /// Done when something has changed.
    pub(super) async fn changed(&mut self) {
        let is_awaited = !self.coming.is_empty();
        // The catalog is held here.
        tokio::select! {
            _ = self.changes.changed() => return,
            () = self.reshapes.changed(), if is_awaited => {}
        }
        self.left = self.neighbours.left(&self.coming);
    }

    /// What the next entry is to hold. It looks again once all that it said before is applied.
    pub(super) fn next(&mut self, number: u32, state: &State) -> Option<Vec<Item<'static>>> {
        if self.is_idle() {
            self.look(number, state);
        }
        let items = self.items.pop_front()?;
        self.on_its_way += 1;
        Some(items)
    }

    /// Whether nothing of it is on its way: another act may be.
    pub(super) fn is_idle(&self) -> bool {
        self.items.is_empty() && self.on_its_way == 0
    }

    /// An entry of it is applied.
    pub(super) fn applied(&mut self) {
        self.on_its_way -= 1;
    }

    fn look(&mut self, number: u32, state: &State) {
        let catalog = self.intended.catalog();
        let version = catalog.version();
        // A leader that is behind looks at all of it once it is not.
        let seen = self.seen.filter(|seen| *seen >= state.intended());
        if seen == Some(version) && self.left.is_empty() {
            return;
        }
        self.seen = Some(version);
        let mut topics = seen.and_then(|seen| self.intended.changed_since(seen));
        if let Some(topics) = &mut topics {
            topics.extend(self.coming.iter().map(|coming| coming.opening.partition.topic));
        }
        let left = std::mem::take(&mut self.left);
        let items = match &topics {
            Some(topics) => reconcile_topics(topics, &catalog, number, state, &left),
            None => reconcile(&catalog, number, state, &left),
        };
        self.coming = coming(topics.as_ref(), &catalog, number, state);
        drop(catalog);
        self.coming.retain(|coming| !left.contains_key(&coming.ended));
        if !self.coming.is_empty() {
            // They may be there already.
            self.reshapes = self.neighbours.reshapes();
        }
        self.items = split(items);
    }
}

/// Entries of these items. What closes a partition, and what lets go of all that it holds, stay together: in between it may
/// be let go of by its age, and is not there any more.
fn split(items: Vec<Item<'static>>) -> VecDeque<Vec<Item<'static>>> {
    let mut entries: VecDeque<Vec<Item<'static>>> = VecDeque::new();
    for item in items {
        let goes_on = |entry: &&mut Vec<Item<'_>>| {
            entry.len() < ITEMS_MAX || matches!(entry.last(), Some(Item::Close { .. }))
        };
        match entries.back_mut().filter(goes_on) {
            Some(entry) => entry.push(item),
            None => entries.push_back(vec![item]),
        }
    }
    entries
}
