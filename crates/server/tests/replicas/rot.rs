//! Disks that lose a record of a log while its node runs, or that a start finds.
//!
//! Only what a majority has on its disks, never the same record twice, and not in a life in which a majority may forget: so
//! another has it. Where a start cannot go on with it, what becomes of the log is the broker's (`broker/damage.rs`): here the bytes are back then.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use plimsoll_log::{Ack, Dumped, Kind, View};
use plimsoll_server::cluster::Error;
use plimsoll_sync::{Access, Dir, SyncMethod};
use rand::Rng;
use tokio::time::{sleep, timeout};

use super::life::Life;
use super::world::{End, Node, World, run};

/// As many bytes tell one place of a log from another.
const WINDOW: usize = 12;

/// Bytes that a disk has lost.
pub(crate) struct Rotten {
    file: String,
    at: u64,
    was: [u8; WINDOW],
    is: [u8; WINDOW],
}

impl Life {
    /// The disk of a node loses a record. Half of the time the others let go of what they have before, as far as they can.
    pub(super) async fn rots(&mut self, node: u64) {
        if self.is_severe {
            return;
        }
        let is_last = self.drawn.random_ratio(1, 2);
        if is_last {
            self.world.up().into_iter().filter(|id| *id != node).for_each(|id| self.lets_go(id));
            sleep(Duration::from_millis(200)).await;
        }
        let group = self.world.group(node);
        // What came since its start it has in memory too. The log's index of an entry is the engine's plus one.
        let found = self.world.nodes[&node].found.min(group.synced()).checked_sub(1);
        let Some(last) = group.durable().min(found) else { return };
        // Some are many beside each other, as where a leader changed, and some begin with the first of all.
        let first =
            if self.drawn.random_ratio(1, 8) { 0 } else { self.drawn.random_range(0..=last) };
        let many = if self.drawn.random_ratio(1, 3) { self.drawn.random_range(1..8) } else { 1 };
        for index in (first..=last).take(many) {
            if self.rotten.insert(index) && self.world.rots(node, index) {
                self.count("a record that a disk lost");
                self.tell(&format!("the disk of {node} loses entry {index}"));
                if is_last {
                    drop(self.world.group(node).read(index, 1));
                }
            }
        }
    }

    /// Who reads all of its log finds what is damaged.
    pub(super) fn reads_all(&self) {
        for id in self.world.up() {
            let group = self.world.group(id);
            if let Err(why) = group.read(0, usize::MAX) {
                self.meets(&why);
            }
        }
    }

    /// Of what cannot be read only damage counts.
    pub(super) fn meets(&self, why: &Error) {
        if matches!(why, Error::Log(plimsoll_log::Error::Corrupt(_))) {
            self.count("a damaged record that was met");
        }
    }

    /// So often other replicas gave back what a disk had lost, of those that are up.
    pub(super) fn counts_healed(&self) {
        let healed = self.world.up().into_iter().map(|id| self.world.group(id).healed().0);
        (0..healed.sum()).for_each(|_| self.count("a damaged record that was healed"));
    }
}

impl World {
    /// Whether it had the record in a file.
    pub(super) fn rots(&mut self, id: u64, index: u64) -> bool {
        let drawn: u64 = self.drawn.random();
        let node = self.nodes.get_mut(&id).unwrap();
        let dir = Arc::clone(&node.disk) as Arc<dyn Dir>;
        let view = View::of(Arc::clone(&dir)).unwrap();
        let mut found = None;
        for segment in view.outline().unwrap() {
            let see = |dumped: Dumped<'_>| {
                if let Dumped::Frame { byte_offset, frame, payload, .. } = dumped
                    && (frame.kind, frame.index) == (Kind::Record, index + 1)
                {
                    found = Some((segment.segment.clone(), byte_offset, payload.len()));
                }
                Ok::<(), plimsoll_log::Error>(())
            };
            view.dump(&segment, see).unwrap();
        }
        let Some((file, at, bytes)) = found else { return false };
        let at = at + drawn % (bytes as u64 + 1);
        let opened = dir.open(&file, Access::default()).unwrap();
        let mut was = [0; WINDOW];
        if opened.read_at(&mut was, at).unwrap() < WINDOW {
            return false;
        }
        let mut is = was;
        is[0] ^= 1;
        if opened.write_at(&is, at).is_err() {
            // It fails anyhow.
            return false;
        }
        node.rotten.push(Rotten { file, at, was, is });
        true
    }

    /// What a disk had lost is there again, unless it was healed, or something else is in its place: a power cut may take that back.
    pub(crate) fn mends(&mut self, id: u64) {
        let Node { disk, rotten, .. } = self.nodes.get_mut(&id).unwrap();
        rotten.retain(|rotten| !rotten.mend(&**disk));
    }
}

impl Rotten {
    /// The bytes are what they were. Whether they were what they had become.
    pub(crate) fn mend(&self, dir: &dyn Dir) -> bool {
        let Self { file, at, was, is } = self;
        let Ok(opened) = dir.open(file, Access::default()) else { return false };
        let mut now = [0; WINDOW];
        let is_rotten = opened.read_at(&mut now, *at).unwrap() == WINDOW && now == *is;
        if is_rotten {
            opened.write_at(was, *at).unwrap();
            opened.sync(SyncMethod::ORDINARY).unwrap();
        }
        is_rotten
    }
}

/// What follows a damaged record in a file cannot be read up to where readers can begin again: so the replica named the last
/// entry of its log, and if no other had that it was not healed, and could not be elected (seed 1014).
#[test]
fn a_record_among_small_ones_is_healed_though_nobody_else_has_the_newest_entry() {
    run(async {
        let mut world = World::new(1, Ack::Buffered, [1, 2, 3]);
        world.form().await;
        let mut last = 0;
        for number in 0..40 {
            // The block that is written last is written again.
            last = world.agree(&format!("number {number} {}", "x".repeat(300))).await;
        }
        world.settle(last).await;
        world.group(1).wait_durable(last).await.unwrap();
        // From here on what it had is in its files only.
        world.end(1, End::Killed);
        world.start(1, false).await;
        while world.leader().await != 1 {
            world.agree("once more").await;
            let group = Arc::clone(world.group(world.leader().await));
            drop(group.hand_over(1).await);
        }
        let are_full = Arc::new(AtomicBool::new(true));
        for id in [2, 3] {
            world.group(id).refuses_while(Arc::clone(&are_full));
        }
        let group = Arc::clone(world.group(1));
        let alone = group.propose(group.leadership().unwrap(), "alone".into());
        assert!(timeout(Duration::from_secs(5), alone).await.is_err(), "nobody else takes it");
        assert!(world.rots(1, 7));
        assert!(group.read(7, 1).is_err());
        let healed = async {
            while group.healed() != (1, 0) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), healed).await.expect("it is healed");
    });
}
