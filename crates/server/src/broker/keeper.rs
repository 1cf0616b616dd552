//! [`Keeper`]: writes the snapshots of a shard, and lets its log go behind them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_sync::Dir;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, sleep};

use super::error::{Failed, sentence};
use super::layout;
use super::leadership::why_failed;
use super::room::Room;
use super::snapshot::{EVERY_BYTES, Snapshot};
use super::task::Task;
use crate::chapter::{MANIFEST, Shelf};
use crate::cluster::{Apply, Group, Place};
use crate::shard::State;

/// How often a keeper looks.
const LOOK: Duration = Duration::from_millis(250);
/// How many times as long as a state is taken, which holds up its shard, passes before the next is.
const REST: u32 = 50;
const REST_MIN: Duration = Duration::from_millis(200);
/// How long a node that ends waits for others to say what they have.
const PATIENCE: Duration = Duration::from_secs(3);
/// Others may have filled the disk, and may free it.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// A state that can be kept in a file.
pub(super) trait Kept: Apply {
    /// Its bytes.
    fn encode(&self) -> Vec<u8>;

    /// The first entry of the log that is still read, as the engine counts; `None`: no entry that is applied.
    fn needs_from(&self) -> Option<u64>;
}

/// What is written for one shard, and when.
#[derive(Debug)]
pub(super) struct Keeper {
    dir: Arc<dyn Dir>,
    number: u32,
    /// Bytes of entries that were applied, counted by who applies them.
    applied_bytes: Arc<AtomicU64>,
    /// How many of them there were at the last snapshot.
    kept_bytes: AtomicU64,
    /// There is a snapshot.
    has_kept: AtomicBool,
    /// Up to where the log could have been let go of last.
    could_go: AtomicU64,
    /// Where what is settled is let go of, of a shard that has chapters.
    shelf: Option<Arc<Shelf>>,
    /// Once the state is kept again the log lets something go, or the shelf does: a chapter is settled, or
    /// something was deleted.
    is_due: AtomicBool,
    end: Notify,
    /// Since when the node ends.
    ends: OnceLock<Instant>,
}

impl Keeper {
    pub(super) fn new(
        dir: &Arc<dyn Dir>,
        number: u32,
        applied_bytes: Arc<AtomicU64>,
        shelf: Option<Arc<Shelf>>,
    ) -> Self {
        let name = layout::state(number);
        let has_kept = dir.list().is_ok_and(|names| names.contains(&name));
        Self {
            dir: Arc::clone(dir),
            number,
            applied_bytes,
            kept_bytes: AtomicU64::new(0),
            has_kept: AtomicBool::new(has_kept),
            could_go: AtomicU64::new(0),
            shelf,
            is_due: AtomicBool::new(false),
            end: Notify::new(),
            ends: OnceLock::new(),
        }
    }

    /// Has the state kept soon.
    pub(super) fn keep_soon(&self) {
        self.is_due.store(true, Ordering::Relaxed);
    }

    /// Reads again what a start reads first, past the page cache where there is a way: the snapshot, and the manifest of chapters. What
    /// of them is damaged: the manifest is written anew by then, the snapshot soon. Waits for the disk.
    pub(super) fn check(&self) -> Result<Vec<String>, Failed> {
        let mut damaged = Vec::new();
        if let Some(shelf) = &self.shelf {
            let checked = shelf.check_manifest();
            if checked.map_err(|why| Failed::Chapters { number: self.number, why })? {
                damaged.push(format!("{}/{MANIFEST}", layout::chapters(self.number)));
            }
        }
        let is_whole = match Snapshot::check(&*self.dir, self.number) {
            // There is none before one was kept.
            Ok(found) => found.unwrap_or(!self.has_kept.load(Ordering::Relaxed)),
            Err(why) if why.is_of_the_device() => false,
            Err(why) => return Err(Failed::Directory(why)),
        };
        if !is_whole {
            tracing::error!(
                shard = self.number,
                "its state is damaged on the disk: it is kept anew"
            );
            self.keep_soon();
            damaged.push(layout::state(self.number));
        }
        Ok(damaged)
    }

    /// Keeps the shard's state until that is ended, or the shard has stopped. Where the disk is full it does not
    /// wait until there is much to keep: behind a snapshot the log gives room back.
    pub(super) async fn keep<S: Kept>(self: Arc<Self>, group: Arc<Group<S>>, room: Arc<Room>) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut not_before = Instant::now();
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = self.end.notified() => return,
            }
            let since = self.applied_bytes.load(Ordering::Relaxed)
                - self.kept_bytes.load(Ordering::Relaxed);
            let is_due = self.is_due.load(Ordering::Relaxed);
            let is_wanted = since >= EVERY_BYTES || is_due || room.is_short();
            if !is_wanted || Instant::now() < not_before {
                continue;
            }
            let rest = match self.keep_now(&group).await {
                Ok(took) => REST * took,
                Err(why) => {
                    self.keep_soon();
                    match &why {
                        Failed::Chapters { why, .. } => {
                            let why = sentence(why);
                            tracing::error!(shard = self.number, why, "chapters are not freed");
                        }
                        why => {
                            let why = sentence(why);
                            tracing::error!(shard = self.number, why, "its state cannot be kept");
                        }
                    }
                    if why_failed(&group).is_some() {
                        return;
                    }
                    REST_AFTER_FAILURE
                }
            };
            not_before = Instant::now() + rest.max(REST_MIN);
        }
    }

    /// Ends what keeps it, keeps it once more, and returns the group, which nobody else uses then.
    pub(super) fn close<S: Kept>(
        &self,
        keeping: Task,
        mut group: Arc<Group<S>>,
    ) -> (Result<(), Failed>, Group<S>) {
        self.ends.get_or_init(Instant::now);
        self.end.notify_one();
        keeping.join();
        let runtime = group.runtime().clone();
        let kept = match runtime.block_on(self.keep_now(&group)) {
            // The state is kept, whatever becomes of the chapters: the next start tries again.
            Ok(_) | Err(Failed::Chapters { .. }) => Ok(()),
            Err(why) => Err(why),
        };
        loop {
            match Arc::try_unwrap(group) {
                Ok(group) => return (kept, group),
                // It is still read for a client that is gone.
                Err(shared) => group = shared,
            }
            runtime.block_on(async { sleep(Duration::from_millis(1)).await });
        }
    }

    /// The node ends, and its state is not to be had, or the others do not say that they have it durable: they may be ending too. The
    /// next start applies the log.
    async fn is_given_up<S: Kept>(&self, group: &Group<S>) {
        loop {
            sleep(LOOK).await;
            let has_waited = self.ends.get().is_some_and(|since| since.elapsed() > PATIENCE);
            if has_waited && !group.is_alone() {
                return;
            }
        }
    }

    /// Up to where the log goes that could go up to `end`: where another replica that is there lacks something of it, up to
    /// where it could have gone the last time. So one that is a moment behind needs no seed, and nobody who is further
    /// behind, or away, has the log grow. Who ends may be the last, and another have ended before it had all.
    fn kept_for_others<S: Kept>(&self, group: &Group<S>, end: u64) -> u64 {
        let before = self.could_go.swap(end, Ordering::Relaxed);
        let ends_beside_others = self.ends.get().is_some() && !group.is_alone();
        if ends_beside_others || group.is_lacking(end) { before.min(end) } else { end }
    }

    /// Writes a snapshot, if anything was applied since the last one. Durable on return. Says for how long it
    /// held up the shard.
    ///
    /// # Errors
    /// [`Failed::Chapters`]: the state is kept, and what is deleted of the chapters is not freed.
    pub(super) async fn keep_now<S: Kept>(
        &self,
        group: &Arc<Group<S>>,
    ) -> Result<Duration, Failed> {
        let number = self.number;
        let failed = move |why| Failed::Shard { number, why };
        let applied_bytes = self.applied_bytes.load(Ordering::Relaxed);
        // Of what is asked for from here on the next one knows.
        let is_due = self.is_due.swap(false, Ordering::Relaxed);
        if applied_bytes == self.kept_bytes.load(Ordering::Relaxed) && !is_due {
            return Ok(Duration::ZERO);
        }
        let taken = group.snapshot(|state| {
            let begun = Instant::now();
            let state = (state.encode(), state.needs_from());
            (state, begun.elapsed())
        });
        let taken = tokio::select! {
            taken = taken => taken.map_err(failed)?,
            // It comes behind what is to be applied, and that may be damaged here, and nobody give it.
            () = self.is_given_up(group) => None,
        };
        let Some((place, ((state, needs_from), took))) = taken else { return Ok(Duration::ZERO) };
        // Never ahead of what a power cut leaves.
        let durable = tokio::select! {
            durable = group.wait_durable(place.index()) => Some(durable.map_err(failed)?),
            () = self.is_given_up(group) => None,
        };
        if durable.is_none() {
            return Ok(Duration::ZERO);
        }
        let covered = covered(&place, needs_from);
        let end = covered.map(|end| self.kept_for_others(&**group, end));
        let (dir, log, shelf) = (Arc::clone(&self.dir), Arc::clone(group), self.shelf.clone());
        let write = move || -> Result<Result<(), Failed>, Failed> {
            let snapshot = Snapshot { place, state };
            snapshot.write(&*dir, number)?;
            if let Some(covered) = covered {
                log.cover(covered);
            }
            if let Some(end) = end {
                log.purge(end).map_err(failed)?;
            }
            Ok(shelf.map_or(Ok(()), |shelf| free(&shelf, number, &snapshot.state)))
        };
        let written = tokio::task::spawn_blocking(write).await;
        let freed = written.map_err(|_ended| Failed::Offline { number })??;
        self.kept_bytes.store(applied_bytes, Ordering::Relaxed);
        self.has_kept.store(true, Ordering::Relaxed);
        freed.map(|()| took)
    }
}

/// The last entry of the log that nobody needs beside a state that stands there, of which this is the first entry that is still
/// read.
pub(super) fn covered(place: &Place, needs_from: Option<u64>) -> Option<u64> {
    let behind = needs_from.map_or(Some(place.index()), |first| first.checked_sub(1));
    behind.map(|behind| behind.min(place.index()))
}

/// Lets go of chapters, as far as this state says, which is durable.
fn free(shelf: &Shelf, number: u32, state: &[u8]) -> Result<(), Failed> {
    if shelf.is_empty() {
        return Ok(());
    }
    let state = State::decode(state).expect("it was encoded just now");
    shelf.free(&state).map_err(|why| Failed::Chapters { number, why })
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;

    use super::*;
    use crate::cluster::trio::{ENTRIES, Net, Nothing, damage, start_needing, tell, three};

    impl Kept for Nothing {
        fn encode(&self) -> Vec<u8> {
            Vec::new()
        }

        fn needs_from(&self) -> Option<u64> {
            None
        }
    }

    /// It waited for an entry that all others had let go of, and that only the next start could do without: SIGTERM or not, the
    /// broker stayed in its closing (a trial).
    #[test]
    fn a_state_that_waits_for_what_is_damaged_is_not_kept_at_the_end() {
        let net = Net::default();
        tell(async {
            let ([one, two, third], last) = three(&net).await;
            let first = last + 1 - ENTRIES;
            let disk = two.close(2, &net).await;
            damage(&disk, first + 3, 30, &[0xa5; 4]);
            for node in [&one, &third] {
                node.purges(first + 5).await.unwrap();
            }
            let two = start_needing(disk, 2, &net, None, None);
            net.heard().insert(2, two.group.receiver());
            while two.group.applied() < Some(first + 2) {
                sleep(Duration::from_millis(5)).await;
            }
            net.heard().remove(&2);
            let root: Arc<dyn Dir> = Arc::new(SimDir::new());
            let keeper = Keeper::new(&root, 2, Arc::new(AtomicU64::new(1)), None);
            let group = two.group;
            let closed = tokio::task::spawn_blocking(move || {
                let keeping = Task::spawn(group.runtime(), std::future::ready(()));
                let (kept, group) = keeper.close(keeping, group);
                kept.unwrap();
                group.close()
            });
            let closed = tokio::time::timeout(PATIENCE * 10, closed).await;
            closed.expect("it comes to its end").unwrap().unwrap();
        });
        net.heard().clear();
    }
}
