//! [`compact`]: keeps the newest record of each key, of partitions that ask for it.
//!
//! It takes long where there is much, and nobody waits for it: chapters are settled and freed meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::ends::Ends;
use super::error::sentence;
use super::keeper::Keeper;
use super::replica::Replica;
use super::room::Room;
use crate::chapter::{Error, Shelf};
use crate::shard::Opening;

/// How often it is looked whether more is settled.
const LOOK: Duration = Duration::from_millis(250);

/// What compacts the chapters of one shard.
#[derive(Debug)]
pub(super) struct Compactor {
    pub(super) number: u32,
    pub(super) shelf: Arc<Shelf>,
    pub(super) replica: Arc<Replica>,
    pub(super) keeper: Arc<Keeper>,
    pub(super) room: Arc<Room>,
    pub(super) clock: fn() -> u64,
    pub(super) ends: Arc<Ends>,
}

impl Compactor {
    /// Compacts after each chapter, until it is told to end.
    pub(super) async fn compact(self: Arc<Self>) {
        let _end = self.ends.on_drop();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = 0;
        while !self.ends.has_come() {
            tokio::select! {
                _ = looks.tick() => {}
                () = self.ends.told() => return,
            }
            let settled = self.shelf.settled().chapter;
            if settled == seen || self.room.is_short() {
                continue;
            }
            seen = settled;
            let dirty = self.shelf.dirty(&self.replica.lock().state);
            if dirty.is_empty() {
                continue;
            }
            let compactor = Arc::clone(&self);
            // A panic there was printed there.
            if !spawn_blocking(move || compactor.compact_all(dirty)).await.unwrap_or(true) {
                seen = 0;
            }
            // Files that lost much of what they had are merged then.
            self.keeper.keep_soon();
        }
    }

    /// Whether none of it is to be tried again.
    fn compact_all(&self, dirty: Vec<(Opening, u64)>) -> bool {
        let _writing = self.ends.begin();
        let mut is_done = true;
        for (opening, stays_ms) in dirty {
            let goes_on = || !self.ends.has_come() && !self.room.is_short();
            match self.shelf.compact(opening, stays_ms, (self.clock)(), goes_on) {
                Ok(is_compacted) => is_done &= is_compacted,
                // For want of room, or as it ends.
                Err(Error::Stopped) => {
                    is_done = false;
                    break;
                }
                Err(why) => {
                    let why = sentence(&why);
                    tracing::error!(shard = self.number, %opening, why, "it cannot be compacted");
                }
            }
        }
        self.shelf.roll_up();
        is_done
    }
}
