//! [`Room`]: whether the disk has room for records.
//!
//! Of a disk that is full nobody gets any room back: what deletes is agreed on first, and that is written too.
//! So records are refused while less is free than a reserve, and all else has it. Others who fill the disk are
//! not kept from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_sync::Dir;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// What part of the reserve is appended between two looks, about: the rest is for what waits to be written, and
/// for a segment that is made ready.
const LOOKS: u64 = 16;
const LOOK_BYTES_MIN: u64 = 1 << 20;
/// How often it is looked where there is none.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// How often it is looked in any case: others use the disk too.
const LOOK_ANYHOW: Duration = Duration::from_secs(2);
/// The part of a small disk that is kept: a log makes a segment of 64 MiB ready at once.
const SHARE_MAX: u64 = 4;

/// What is known of the room on a disk.
#[derive(Debug)]
pub(crate) struct Room {
    dir: Arc<dyn Dir>,
    reserve_bytes: u64,
    /// Bytes of batches since the last look.
    appended: AtomicU64,
    is_short: Arc<AtomicBool>,
    /// Half of the reserve is gone too.
    is_spent: AtomicBool,
    look: Notify,
}

impl Room {
    /// The room where this directory is: so many bytes are kept of it, or a quarter if that is less. Waits for
    /// the disk.
    pub(super) fn new(dir: &Arc<dyn Dir>, reserve_bytes: u64) -> Self {
        let total_bytes = dir.space().map_or(u64::MAX, |space| space.total_bytes);
        let room = Self {
            dir: Arc::clone(dir),
            reserve_bytes: reserve_bytes.min(total_bytes / SHARE_MAX),
            appended: AtomicU64::new(0),
            is_short: Arc::default(),
            is_spent: AtomicBool::new(false),
            look: Notify::new(),
        };
        room.look();
        room
    }

    /// Notes a batch that is about to be appended. Whether it may be.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        let appended = self.appended.fetch_add(bytes as u64, Ordering::Relaxed);
        let look_bytes = (self.reserve_bytes / LOOKS).max(LOOK_BYTES_MIN);
        if appended + bytes as u64 >= look_bytes {
            self.appended.store(0, Ordering::Relaxed);
            self.look.notify_one();
        }
        !self.is_short()
    }

    /// So many bytes of a chapter, or as many as the reserve has room for beside what the logs take of it: what is
    /// to be settled can be, also on a full disk.
    pub(super) fn for_chapter(&self, bytes: u64) -> u64 {
        bytes.min(self.reserve_bytes / 3 * 2)
    }

    /// Whether records are refused.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// The same, for who is to know it at any time.
    pub(super) fn shortness(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_short)
    }

    /// Whether records are refused also by who is about to have another node take them.
    pub(super) fn is_spent(&self) -> bool {
        self.is_spent.load(Ordering::Relaxed)
    }

    /// Looks now and then, and when there is a reason to.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            let pause = if self.is_short() { LOOK_AGAIN } else { LOOK_ANYHOW };
            timeout(pause, self.look.notified()).await.ok();
            let room = Arc::clone(&self);
            if spawn_blocking(move || room.look()).await.is_err() {
                return;
            }
        }
    }

    fn look(&self) {
        // Where nobody can say, records are taken until the log has no room.
        let free_bytes = self.dir.space().map_or(u64::MAX, |space| space.free_bytes);
        let reserve_bytes = self.reserve_bytes;
        let is_short = free_bytes < reserve_bytes;
        self.is_spent.store(free_bytes < reserve_bytes / 2, Ordering::Relaxed);
        match (self.is_short.swap(is_short, Ordering::Relaxed), is_short) {
            (false, true) => {
                tracing::warn!(free_bytes, reserve_bytes, "records are refused: the disk is full");
            }
            (true, false) => tracing::info!(free_bytes, "records are taken again"),
            _ => {}
        }
    }
}
