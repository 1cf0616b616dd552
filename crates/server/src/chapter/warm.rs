//! A shelf is read on where it was read last, before somebody asks.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use plimsoll_sync::{File, SyncMethod};

use super::error::Error;
use super::hot;
use super::shelf::Shelf;
use crate::shard::Opening;
use crate::whole;

/// Bytes that are read from one place on, and from all.
const AHEAD_BYTES: usize = 4 << 20;
const ALL_BYTES: usize = 256 << 20;

impl Shelf {
    /// Writes down where it was read last. Without that a start is colder.
    pub fn remember(&self) {
        let places = self.hot.places();
        let bytes = hot::encode(&places, self.shard);
        let fill = |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
        if !places.is_empty()
            && let Err(why) = whole::create(&*self.dir, hot::NAME, fill)
        {
            tracing::warn!(shard = self.shard, %why, "where chapters were read cannot be noted");
        }
    }

    /// Reads on where it was read last before it was stopped: some MiB from each place on, which are in the page cache
    /// then. Returns how many bytes that were. Waits for the disk, until it is told to end.
    pub fn warm(&self) -> usize {
        let places = match self.remembered() {
            Ok(places) => places,
            Err(why) => {
                tracing::warn!(shard = self.shard, %why, "where chapters were read is not known");
                return 0;
            }
        };
        let mut bytes = 0;
        for (opening, from) in places {
            if bytes >= ALL_BYTES || self.is_ending.load(Ordering::Relaxed) {
                break;
            }
            // What is damaged was noted there.
            let read = self.read_from(opening, from, i64::MAX, AHEAD_BYTES).unwrap_or_default();
            bytes += read.iter().map(Bytes::len).sum::<usize>();
        }
        bytes
    }

    fn remembered(&self) -> Result<Vec<(Opening, i64)>, Error> {
        let file = match self.dir.open(hot::NAME, SyncMethod::ORDINARY.access()) {
            Ok(file) => file,
            Err(error) if error.kind() == Some(ErrorKind::NotFound) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut bytes = vec![0; hot::BYTES_MAX];
        let read = file.read_at(&mut bytes, 0)?;
        let damaged = |why| Error::File { file: hot::NAME.to_owned(), why };
        hot::decode(&bytes[..read], self.shard).map_err(damaged)
    }
}
