//! [`scrub`]: reads every chapter again now and then, slowly, so that a disk that forgets is found out.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::chapter::{Error, Shelf};

/// After so long all of it is read again.
const EVERY: Duration = Duration::from_secs(7 * 24 * 3600);
/// A start has more to do than that.
const REST_AFTER_START: Duration = Duration::from_secs(3600);
/// Bytes that are read between two pauses, about.
const PIECE_BYTES: u64 = 4 << 20;
/// So that others do not feel it: 16 MiB a second at most.
const PAUSE: Duration = Duration::from_millis(250);

/// Scrubs a shelf for ever. What is found damaged is noted there, and said.
pub(super) async fn scrub(number: u32, shelf: Arc<Shelf>) {
    sleep(REST_AFTER_START).await;
    loop {
        for file in shelf.files() {
            if let Err(why) = scrub_file(&shelf, file).await {
                tracing::error!(shard = number, %why, "a chapter cannot be scrubbed");
            }
        }
        sleep(EVERY).await;
    }
}

async fn scrub_file(shelf: &Arc<Shelf>, file: u64) -> Result<(), Error> {
    let mut next = Some(0);
    while let Some(from) = next {
        let shelf = Arc::clone(shelf);
        let read = spawn_blocking(move || shelf.scrub(file, from, PIECE_BYTES)).await;
        next = read.unwrap_or(Err(Error::Stopped))?;
        sleep(PAUSE).await;
    }
    Ok(())
}
