//! [`Room`]: whether the disk has room for records.
//!
//! Of a disk that is full nobody gets any room back: what deletes is agreed on first, and that is written too.
//! So records are refused while less is free than a reserve, and all else has it. Others who fill the disk are
//! not kept from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_sync::{Dir, Space};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// What part of the reserve is appended between two looks, about: the rest is for what waits to be written, and
/// for a segment that is made ready.
const LOOKS: u64 = 16;
/// How often it is looked where there is none.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// The part of a small disk that is kept.
const SHARE_MAX: u64 = 8;

/// What is known of the room on a disk.
#[derive(Debug)]
pub(crate) struct Room {
    dir: Arc<dyn Dir>,
    reserve_bytes: u64,
    /// Bytes of batches since the last look.
    appended: AtomicU64,
    is_short: AtomicBool,
    look: Notify,
}

impl Room {
    /// The room where this directory is: so many bytes are kept of it, or an eighth if that is less. Waits for
    /// the disk.
    pub(super) fn new(dir: &Arc<dyn Dir>, reserve_bytes: u64) -> Self {
        let total_bytes = dir.space().map_or(u64::MAX, |space| space.total_bytes);
        let room = Self {
            dir: Arc::clone(dir),
            reserve_bytes: reserve_bytes.min(total_bytes / SHARE_MAX),
            appended: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            look: Notify::new(),
        };
        room.look();
        room
    }

    /// Notes a batch that is about to be appended. Whether it may be.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        let appended = self.appended.fetch_add(bytes as u64, Ordering::Relaxed);
        if appended + bytes as u64 >= self.reserve_bytes / LOOKS {
            self.appended.store(0, Ordering::Relaxed);
            self.look.notify_one();
        }
        !self.is_short()
    }

    /// Whether records are refused.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Looks when there is a reason to.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            if self.is_short() {
                sleep(LOOK_AGAIN).await;
            } else {
                self.look.notified().await;
            }
            let room = Arc::clone(&self);
            if spawn_blocking(move || room.look()).await.is_err() {
                return;
            }
        }
    }

    fn look(&self) {
        // Where nobody can say, records are taken until the log has no room.
        let Some(Space { free_bytes, .. }) = self.dir.space() else { return };
        let reserve_bytes = self.reserve_bytes;
        let is_short = free_bytes < reserve_bytes;
        match (self.is_short.swap(is_short, Ordering::Relaxed), is_short) {
            (false, true) => {
                tracing::warn!(free_bytes, reserve_bytes, "records are refused: the disk is full");
            }
            (true, false) => tracing::info!(free_bytes, "records are taken again"),
            _ => {}
        }
    }
}
