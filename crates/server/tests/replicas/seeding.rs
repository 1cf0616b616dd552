//! Replicas that let go of what their snapshots cover, and those that lack it then and are seeded with what another has.
//!
//! As the broker does it (`src/broker/keeper.rs`, `src/seed`), but in one moment each: how files that change are fetched is not
//! tested here.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use plimsoll_log::{Dumped, Kind, SegmentState, View};
use plimsoll_server::cluster::{Identity, Place};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Crash, Dir, SyncMethod};
use rand::Rng;

use super::life::Life;
use super::machines::Saved;
use super::world::{End, Remembers, World, lock};

/// The file that says who a replica is, beside its log.
const IDENTITY: &str = "identity";

/// A snapshot: what was applied up to its place, and what the state machines made of it.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) place: Place,
    pub(crate) applied: Vec<(u64, Option<Bytes>)>,
    pub(crate) machines: Saved,
}

/// The newest that a node has on its disk.
pub(crate) type Kept = Arc<Mutex<Option<Snapshot>>>;

impl Life {
    /// A node keeps a snapshot, and lets go of the log up to there, or of most of it.
    pub(super) fn lets_go(&mut self, id: u64) {
        let stays = [0, 0, 3, 40][self.drawn.random_range(0..4)];
        let group = Arc::clone(self.world.group(id));
        let node = self.world.nodes.get_mut(&id).unwrap();
        let (kept, oracle) = (Arc::clone(&node.kept), Arc::clone(&self.world.oracle));
        let keeps = async move {
            let taken = group.snapshot(Remembers::copy).await;
            let Ok(Some((place, (applied, machines)))) = taken else { return };
            let covered = place.index();
            // Never ahead of what a power cut leaves.
            if group.wait_durable(covered).await.is_err() {
                return;
            }
            *lock(&kept) = Some(Snapshot { place, applied, machines });
            group.cover(covered);
            let end = covered.saturating_sub(stays);
            if !group.is_lacking(end) && group.purge(end).is_ok() {
                oracle.count("a log that was let go of");
            }
        };
        node.clients.push(tokio::spawn(keeps).abort_handle());
    }

    /// Those that lack what is not to be had by entry are given what another has, sooner or later.
    pub(super) async fn seeds(&mut self) {
        // As the broker has it: what it lacks it is given behind another, which is one that may lead.
        if let Some(leader) = self.world.leads()
            && self.world.group(leader).is_damaged()
            && self.drawn.random_ratio(1, 10)
        {
            let up = self.world.up();
            let may_lead = |id: &u64| {
                let group = |id| self.world.group(id);
                *id != leader
                    && up.contains(id)
                    && !group(*id).is_dirty()
                    && group(*id).healed().1 == 0
            };
            let fit: Vec<_> = self.voters().into_iter().filter(may_lead).collect();
            if let Some(to) = self.draw(&fit) {
                self.count("a damaged leader that hands over");
                self.hands_over(leader, to);
            }
        }
        for id in self.world.up() {
            if self.world.group(id).needed().is_none() || !self.drawn.random_ratio(1, 10) {
                continue;
            }
            let others: Vec<_> = self.world.up().into_iter().filter(|up| *up != id).collect();
            let Some(giver) = self.draw(&others) else { continue };
            self.tell(&format!("{id} is to be seeded by {giver}"));
            let is_damaged = self.world.group(id).healed().1 > 0;
            if self.world.seeds(id, giver) {
                self.count("a replica that was seeded");
                if is_damaged {
                    self.count("a replica that was seeded as its log was damaged");
                }
                self.fails.remove(&id);
                self.world.start(id, false).await;
            }
        }
    }
}

impl World {
    /// Ends a node, which has what another has from then on, if that is enough by the rule and can be read. Whether it is.
    fn seeds(&mut self, id: u64, giver: u64) -> bool {
        let needed = self.group(id).needed().expect("it lacks something");
        // All that is given is read. What is damaged there it finds out so, and heals.
        if self.group(giver).read(0, usize::MAX).is_err() {
            return false;
        }
        let of_giver = &self.nodes[&giver];
        let given = Arc::new(of_giver.disk.crash(Crash::Process, 0));
        // Nor is what was let go of while it was damaged.
        for rotten in &of_giver.rotten {
            rotten.mend(&*given);
        }
        let ends = ends(Arc::clone(&given));
        let snapshot = lock(&of_giver.kept).clone();
        // The log counts from 1. What comes last may be in memory only.
        let covered = snapshot.as_ref().map_or(0, |snapshot| snapshot.place.index() + 1);
        if ends.1 < needed.through.max(covered) || ends < needed.ends {
            return false;
        }
        self.end(id, End::Killed);
        let node = self.nodes.get_mut(&id).unwrap();
        hand_on(&*given, &*node.disk, id);
        sync(&*given);
        node.is_given(given, snapshot);
        true
    }
}

/// Term and place of the last record of a log, as the log counts.
fn ends(dir: Arc<SimDir>) -> (u64, u64) {
    let view = View::of(dir).unwrap();
    let mut last = (0, 0);
    for segment in view.outline().unwrap() {
        if segment.state == SegmentState::Stale {
            continue;
        }
        let see = |dumped: Dumped<'_>| {
            if let Dumped::Frame { frame, payload, .. } = dumped
                && frame.kind == Kind::Record
                && frame.index > last.1
            {
                last = (u64::from_le_bytes(*payload[8..].first_chunk().unwrap()), frame.index);
            }
            Ok::<(), plimsoll_log::Error>(())
        };
        view.dump(&segment, see).unwrap();
    }
    last
}

/// What another has there becomes this node's, whose votes stay.
fn hand_on(dir: &dyn Dir, own: &dyn Dir, id: u64) {
    let of_giver = Identity::look(dir).unwrap().expect("it has one");
    let open = |dir: &dyn Dir| dir.open(IDENTITY, SyncMethod::ORDINARY.access()).unwrap();
    let (from, to) = (open(own), open(dir));
    let mut bytes = vec![0; usize::try_from(from.len().unwrap()).unwrap()];
    assert_eq!(from.read_at(&mut bytes, 0).unwrap(), bytes.len());
    to.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).unwrap();
    of_giver.hand_on(dir, id).unwrap();
}

fn sync(dir: &dyn Dir) {
    for name in dir.list().unwrap() {
        dir.open(&name, Access::default()).unwrap().sync(SyncMethod::ORDINARY).unwrap();
    }
    dir.sync().unwrap();
}
