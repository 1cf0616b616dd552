//! [`Scrubber`]: reads every chapter again now and then, slowly, so that a disk that forgets is found out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::chapter::{Error, Shelf};

/// A start has more to do than that.
const REST_AFTER_START: Duration = Duration::from_secs(3600);
/// Bytes that are read between two pauses, about.
const PIECE_BYTES: u64 = 4 << 20;
/// So that others do not feel it: 16 MiB a second at most.
const PAUSE: Duration = Duration::from_millis(250);

/// Scrubs the shelf of a shard.
#[derive(Debug)]
pub(super) struct Scrubber {
    number: u32,
    shelf: Arc<Shelf>,
    /// How long it rests; `None`: it does nothing.
    every: Option<Duration>,
    clock: fn() -> u64,
    /// When it last came to an end, in ms since 1970; 0: not yet.
    ended_ms: AtomicU64,
    /// Bytes of batches that were there then to be read.
    bytes: AtomicU64,
}

/// A scrub that came to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scrubbed {
    pub(super) ended_ms: u64,
    pub(super) bytes: u64,
}

impl Scrubber {
    pub(super) fn new(
        number: u32,
        shelf: Arc<Shelf>,
        every: Option<Duration>,
        clock: fn() -> u64,
    ) -> Self {
        let (ended_ms, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { number, shelf, every, clock, ended_ms, bytes }
    }

    /// The last scrub since the start that came to its end, if one did.
    pub(super) fn last(&self) -> Option<Scrubbed> {
        let ended_ms = self.ended_ms.load(Ordering::Acquire);
        let bytes = self.bytes.load(Ordering::Relaxed);
        (ended_ms > 0).then_some(Scrubbed { ended_ms, bytes })
    }

    /// Scrubs for ever. What is found damaged is noted on the shelf, and said.
    pub(super) async fn scrub(self: Arc<Self>) {
        let Some(every) = self.every else { return };
        sleep(REST_AFTER_START.min(every)).await;
        loop {
            let bytes = self.shelf.size().live_bytes;
            for file in self.shelf.files() {
                if let Err(why) = self.scrub_file(file).await {
                    tracing::error!(shard = self.number, %why, "a chapter cannot be scrubbed");
                }
            }
            self.bytes.store(bytes, Ordering::Relaxed);
            self.ended_ms.store((self.clock)(), Ordering::Release);
            sleep(every).await;
        }
    }

    async fn scrub_file(&self, file: u64) -> Result<(), Error> {
        let mut next = Some(0);
        while let Some(from) = next {
            let shelf = Arc::clone(&self.shelf);
            let read = spawn_blocking(move || shelf.scrub(file, from, PIECE_BYTES)).await;
            next = read.unwrap_or(Err(Error::Stopped))?;
            sleep(PAUSE).await;
        }
        Ok(())
    }
}
